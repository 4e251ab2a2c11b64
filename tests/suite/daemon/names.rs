//! Names of any bytes, folders of sources, the order of a backlog, and the way back from failed.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde_json::Value;

use super::{NEVER_RESCAN, accepted, event, one, order_taken, quick, quick_with, told};
use crate::world::World;

/// Names that break what takes names for text.
fn odd_names() -> Vec<OsString> {
    let mut long = vec![b'x'; 250];
    long.extend(b".json");
    let names: [&[u8]; 8] = [
        b"\xff.json",
        b"a\nb.json",
        b"\x1b[31mred.json",
        b"-rf",
        b"--all",
        b"back\\slash.json",
        "\u{202e}nosj.json".as_bytes(),
        &long,
    ];
    names.iter().map(|name| OsString::from_vec(name.to_vec())).collect()
}

fn has(world: &World, folder: &str, name: &OsStr) -> bool {
    world.spool().join(folder).join(name).symlink_metadata().is_ok()
}

#[test]
fn case_028_names_of_any_bytes_are_taken_and_moved_as_they_are() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    for (n, name) in odd_names().iter().enumerate() {
        world.drop_in(name, one(&format!("id-{n}")));
    }
    world.until_drained();
    for name in odd_names() {
        assert!(has(&world, "done", &name), "{name:?}\n{}", world.told());
    }
    assert_eq!(accepted(&world), odd_names().len() as i64);
    let said = [world.log(), world.run(&["status"]).out, world.run(&["sources"]).out];
    for text in said {
        let raw = |char: char| char.is_control() && char != '\n' || char == '\u{202e}';
        assert!(!text.contains(raw), "{text:?}");
        assert!(!text.contains("a\nb.json"), "{text}");
    }
    // a name as long as can be finds a free one next to it
    let long = odd_names().pop().unwrap();
    world.drop_in(&long, one("again"));
    world.until_drained();
    assert_eq!(world.names("done").len(), odd_names().len() + 1);
    daemon.stop();
}

/// Lets files of all odd names fail, and takes the fault away: a conflict that is none any more
/// cannot be had, so their content is mended.
#[test]
fn case_028_refused_files_of_any_name_come_back_and_are_taken() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    let names = odd_names();
    for name in &names {
        world.drop_in(name, "{");
    }
    world.drop_in("press/bad.json", "{");
    world.eventually("all have failed", || world.names("failed").len() == 2 * names.len() + 2);
    world.until_drained();
    let listed = world.run(&["failed", "--json"]).ok().json_lines();
    assert_eq!(listed.len(), names.len() + 1);
    for (n, line) in listed.iter().enumerate() {
        assert_eq!(line["reason"]["code"], "truncated", "{line}");
        let shown = line["failed"].as_str().unwrap();
        let moved = failed_path(&world, &names, shown);
        fs::write(&moved, one(&format!("mended-{n}"))).unwrap();
        // by the name that is shown, and by path, which may begin with dashes
        let by_path = moved.as_os_str().to_owned();
        let given = if n % 2 == 0 { OsString::from(shown) } else { by_path };
        let args = [OsStr::new("retry"), OsStr::new("--json"), OsStr::new("--"), &given];
        world.run(&args).ok();
    }
    world.until_drained();
    world.eventually("all are in", || world.names("done").len() == names.len() + 1);
    assert_eq!(world.names("failed"), Vec::<String>::new(), "{}", world.told());
    assert_eq!(accepted(&world), names.len() as i64 + 1);
    assert_eq!(world.run(&["failed"]).ok().out, "nothing has failed\n");
    daemon.stop();
}

/// Where the file lies whose name `failed` shows so. A name that left no room for its reason was
/// cut.
fn failed_path(world: &World, names: &[OsString], shown: &str) -> std::path::PathBuf {
    let folder = world.spool().join("failed");
    if shown == "press/bad.json" {
        return folder.join(shown);
    }
    let mut entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    let found = entries.find(|name| {
        let is_ours = names.contains(name) || name.as_bytes().starts_with(b"xxx");
        let is_reason = name.as_bytes().ends_with(b".error.json");
        is_ours && !is_reason && windowflow::spool::name::shown(name.as_bytes()) == shown
    });
    folder.join(found.unwrap_or_else(|| panic!("no {shown} in failed/\n{}", world.told())))
}

#[test]
fn a_file_that_is_put_back_and_refused_again_has_one_new_reason() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    world.drop_in("bad.json", "{");
    world.until_drained();
    let before = world.reason("bad.json")["refused_at_ms"].as_i64().unwrap();
    world.run(&["retry", "--all"]).ok();
    let again = || {
        let path = world.spool().join("failed/bad.json.error.json");
        let reason = fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        reason.is_some_and(|reason: Value| reason["refused_at_ms"].as_i64() > Some(before))
    };
    world.eventually("it was refused again", again);
    world.until_drained();
    assert_eq!(world.names("failed"), ["bad.json", "bad.json.error.json"]);
    let unknown = world.run(&["retry", "nothing-of-this-name"]).exits(66);
    assert!(unknown.err.contains("nothing-of-this-name"), "{}", unknown.err);
    daemon.stop();
}

#[test]
fn a_folder_is_a_source_from_the_moment_that_it_is_there() {
    let world = World::with_store(1000, 0);
    let daemon = quick_with(&world, &[NEVER_RESCAN]);
    // made and filled at once, before a watch can be on it
    for n in 0..20 {
        world.drop_in(format!("source-{n:02}/a.json"), event(&format!("id-{n}"), "k", 100 + n, 1));
    }
    // and a folder that comes whole, with a name that a file may not have
    let staged = world.root().join("whole");
    fs::create_dir(&staged).unwrap();
    fs::write(staged.join("b.json"), one("whole")).unwrap();
    fs::rename(&staged, world.inbox().join("press.tmp")).unwrap();
    world.until_drained();
    assert_eq!(accepted(&world), 21);
    let report = world.report();
    let sources = report["sources"].as_array().unwrap();
    let names: Vec<&str> =
        sources.iter().map(|source| source["source"].as_str().unwrap()).collect();
    let mut expected: Vec<String> = (0..20).map(|n| format!("source-{n:02}")).collect();
    expected.insert(0, "press.tmp".to_owned());
    assert_eq!(names, expected);
    assert!(has(&world, "done", OsStr::new("press.tmp/b.json")));
    // the next file in each of them, also after a folder was removed and made again
    fs::remove_dir(world.inbox().join("source-07")).unwrap();
    for n in 0..20 {
        world.drop_in(format!("source-{n:02}/a.json"), one(&format!("next-{n}")));
    }
    world.until_drained();
    assert_eq!(world.names("done").len(), 41);
    daemon.stop();
}

#[test]
fn folders_that_are_no_sources_are_reported_and_left() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    world.drop_in("press/deeper/a.json", one("too deep"));
    world.drop_in(OsStr::from_bytes(b"\xff\xfe/b.json"), one("no text"));
    world.drop_in(" /c.json", one("blank"));
    world.drop_in(".hidden/d.json", one("hidden"));
    world.drop_in("press/e.json", one("e"));
    world.eventually("the good one is taken", || world.names("done") == ["press/e.json"]);
    world.eventually("the rest is reported", || told(&world, "odd") == 3);
    let left = [" /c.json", "\\xff\\xfe/b.json", "press/deeper/a.json"];
    assert_eq!(world.names("inbox"), left);
    assert!(world.inbox().join(".hidden/d.json").exists());
    assert_eq!(accepted(&world), 1);
    let log = world.log();
    for named in ["press/deeper", r"inbox/\xff\xfe"] {
        assert_eq!(log.lines().filter(|line| line.contains(named)).count(), 1, "{named}: {log}");
    }
    daemon.stop();
}

#[test]
fn a_backlog_is_taken_by_name_whatever_its_folders_and_times() {
    let world = World::with_store(1000, 0);
    let names = ["b/2.json", "10.json", "a/2.json", "2.json", "1.json", "b/1.json", "Z.json"];
    for name in names {
        world.drop_in(name, one(name));
    }
    let daemon = quick_with(&world, &[NEVER_RESCAN, ("inbox.settle_ms", "0")]);
    world.until_drained();
    let expected = ["1.json", "b/1.json", "10.json", "2.json", "a/2.json", "b/2.json", "Z.json"];
    assert_eq!(order_taken(&world), expected);
    daemon.stop();
}

#[test]
fn a_backlog_is_taken_by_time_when_asked_to() {
    let world = World::with_store(1000, 0);
    let epoch = std::time::SystemTime::UNIX_EPOCH;
    for (name, second) in [("1.json", 3), ("2.json", 1), ("3.json", 2), ("0.json", 2)] {
        world.drop_in(name, one(name));
        let file = fs::File::options().write(true).open(world.inbox().join(name)).unwrap();
        file.set_modified(epoch + std::time::Duration::from_secs(second)).unwrap();
    }
    let daemon = quick_with(&world, &[NEVER_RESCAN, ("inbox.order", "\"mtime\"")]);
    world.until_drained();
    assert_eq!(order_taken(&world), ["2.json", "0.json", "3.json", "1.json"]);
    daemon.stop();
}
