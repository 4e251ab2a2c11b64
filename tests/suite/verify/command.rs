//! `windowflow verify` as it is typed: what it prints, how it ends, and that it can be asked at any
//! time.

use std::fs;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::world::World;

fn event(id: &str, timestamp_ms: i64) -> String {
    format!(r#"{{"id":"{id}","key":"k","timestamp_ms":{timestamp_ms},"value":1}}"#)
}

#[test]
fn the_readme_says_of_each_code_what_it_is() {
    let readme = include_str!("../../../README.md");
    let rows: Vec<&str> = readme.lines().filter(|line| line.starts_with("| `")).collect();
    for code in windowflow::store::audit::FindingCode::ALL {
        let name = format!("`{}`", code.name());
        assert!(rows.iter().any(|row| row.contains(&name)), "{name}");
    }
}

#[test]
fn what_to_do_can_be_typed_as_it_is_printed() {
    let world = World::new();
    world.init(1000, 0, &[]);
    world.drop_in("bad.json", "{");
    world.drain().exits(65);
    fs::remove_file(world.spool().join("failed/bad.json.error.json")).unwrap();
    let spool = world.spool().to_str().unwrap().to_owned();
    let json = world.run(&["verify", "--json", "--spool", &spool]).exits(65).json();
    let told = json["findings"][0]["do"].as_str().unwrap();
    let (_, command) = told.split_once("`windowflow ").unwrap();
    let (command, _) = command.split_once('`').unwrap();
    assert!(command.starts_with("retry bad.json --spool "), "{command}");
    world.run(&command.split(' ').collect::<Vec<_>>()).ok();
    assert_eq!(world.names("inbox"), ["bad.json"]);
}

#[test]
fn a_variable_that_is_left_over_does_not_bring_files_into_another_store() {
    let (one, other) = (World::new(), World::new());
    one.init(1000, 0, &[]);
    other.init(1000, 0, &[]);
    fs::create_dir_all(other.spool().join("done")).unwrap();
    fs::write(other.spool().join("done/lost.json"), event("a", 1500)).unwrap();
    let spool = other.spool();
    let run = |arguments: &[&str], db: &std::path::Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windowflow"));
        command.args(arguments).arg("--spool").arg(&spool);
        let ran = command.env("WINDOWFLOW_DB", db).env_remove("WINDOWFLOW_SPOOL").output().unwrap();
        (ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned())
    };
    for arguments in [&["verify", "--repair"][..], &["run", "--once"], &["report"]] {
        let (code, told) = run(arguments, &one.db());
        assert_eq!(code, Some(2), "{arguments:?}: {told}");
        assert!(told.contains("unset WINDOWFLOW_DB"), "{told}");
    }
    // the same by another name is no contradiction, nor is a spool without a store
    let link = one.root().join("link.db");
    std::os::unix::fs::symlink(other.db(), &link).unwrap();
    assert_eq!(run(&["report"], &link).0, Some(0));
    let bare = World::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_windowflow"));
    command.arg("report").arg("--spool").arg(bare.spool()).env("WINDOWFLOW_DB", one.db());
    assert_eq!(command.output().unwrap().status.code(), Some(0));
}

#[test]
fn it_ends_with_a_code_that_a_script_can_use() {
    let world = World::new();
    let none = world.run(&["verify"]).exits(66);
    assert!(none.err.contains("there is no store"), "{}", none.err);
    world.init(1000, 0, &[]);
    world.drop_in("a.json", event("a", 1500));
    world.drain().ok();
    let text = world.run(&["verify"]).ok().out;
    assert!(text.contains("up to batch 1, watermark 1500"), "{text}");
    assert!(text.contains("1 batches played again") && text.contains("nothing wrong"), "{text}");
    let json = world.run(&["verify", "--json"]).ok().json();
    assert_eq!(json["format"], 1);
    assert_eq!(json["findings"], serde_json::json!([]));
    assert_eq!(json["not_checked"], serde_json::json!([]));
    assert_eq!((&json["checked"]["ids"], &json["last_batch"]), (&1.into(), &1.into()));

    // a name that would forge a line
    fs::write(world.spool().join("done/b\n.json"), event("b", 1600)).unwrap();
    let text = world.run(&["verify"]).exits(65).out;
    assert!(text.contains("lost_commit: done/b\\n.json\n"), "{text}");
    let json = world.run(&["verify", "--json"]).exits(65).json();
    assert_eq!(json["findings"][0]["code"], "lost_commit");
    assert_eq!(json["findings_by_code"]["lost_commit"], 1);
    for member in ["what", "expected", "found", "do"] {
        assert!(json["findings"][0][member].as_str().is_some_and(|text| !text.is_empty()));
    }
    let store = rusqlite::Connection::open(world.db()).unwrap();
    store.execute_batch("PRAGMA user_version = 99").unwrap();
    world.run(&["verify"]).exits(78);
}

/// The processor time of `verify` over a spool with so many files in failed/, in ticks; the least of
/// three, which is nearest to what it costs without what else the machine does.
fn ticks_of_failed(files: usize) -> u64 {
    let world = World::with_store(1000, 0);
    world.drain().ok();
    let spool = world.spool();
    let mut store = rusqlite::Connection::open(world.db()).unwrap();
    let all = store.transaction().unwrap();
    for number in 0..files {
        let (name, at_ms) = (format!("{number:05}.json"), 1000 + number);
        all.execute(
            "INSERT INTO refusals (file, source, refused_at_ms, code, message) \
             VALUES (?1, 'default', ?2, 'bad_json', 'no JSON')",
            rusqlite::params![name, at_ms as i64],
        )
        .unwrap();
        let reason = format!(
            r#"{{"file":"{name}","refused_at_ms":{at_ms},"code":"bad_json","message":"no JSON"}}"#
        );
        fs::write(spool.join("failed").join(&name), "{").unwrap();
        fs::write(spool.join(format!("failed/{name}.error.json")), reason).unwrap();
    }
    all.execute("UPDATE store SET refused_batches = ?1", [files as i64]).unwrap();
    all.commit().unwrap();
    drop(store);
    let once = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windowflow"));
        command.args(["verify", "--json", "--spool"]).arg(&spool).stdout(Stdio::piped());
        command.env_remove("WINDOWFLOW_DB").env_remove("WINDOWFLOW_SPOOL");
        let mut child = command.spawn().unwrap();
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        // it has closed its output, and nobody has asked yet how it ended: its time can be read
        let deadline = Instant::now() + Duration::from_secs(60);
        let path = format!("/proc/{}/stat", child.id());
        let ticks = loop {
            let stat = fs::read_to_string(&path).unwrap();
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
            if fields[0] == "Z" {
                break fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::yield_now();
        };
        assert!(child.wait().unwrap().success(), "{text}");
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["checked"]["failed_files"], files);
        ticks
    };
    (0..3).map(|_| once()).min().unwrap().max(1)
}

/// Four times as many cost about four times as much; before, it was sixteen times as much.
#[test]
fn case_147_verify_does_not_grow_with_the_square_of_failed() {
    let (few, many) = (ticks_of_failed(1500), ticks_of_failed(6000));
    assert!(many < 9 * few.max(4), "{few} and {many} ticks");
}

/// Of more than are listed the rest is counted.
#[test]
fn what_is_listed_has_an_end() {
    let world = World::with_store(1000, 0);
    world.drop_in("a.json", event("a", 1500));
    world.drain().ok();
    for number in 0..130 {
        let path = world.spool().join(format!("done/{number}.json"));
        fs::write(path, event(&format!("lost-{number}"), 1600)).unwrap();
    }
    let ran = world.run(&["verify"]).exits(65);
    assert!(ran.out.contains("findings: 130") && ran.out.contains("and 30 more"), "{}", ran.out);
    let json = world.run(&["verify", "--json"]).exits(65).json();
    assert_eq!(json["findings"].as_array().unwrap().len(), 100);
    assert_eq!(json["findings_in_all"], 130);
}

/// Files are taken in, refused and moved all the time, and the log is emptied.
#[test]
fn while_a_daemon_works_nothing_is_found() {
    let world = World::with_store(1000, 0);
    let daemon = world.daemon();
    let (mut verified, mut dropped) = (0, 0);
    while verified < 8 {
        for _ in 0..15 {
            let name = format!("{dropped:04}.json");
            match dropped % 7 {
                6 => world.drop_in(&name, "{"),
                _ => world.drop_in(&name, event(&name, dropped * 100)),
            }
            dropped += 1;
        }
        let json = world.run(&["verify", "--json"]);
        assert_eq!(json.code, Some(0), "{}{}\n{}", json.out, json.err, world.told());
        verified += 1;
    }
    world.until_drained();
    daemon.stop();
    let json = world.run(&["verify", "--json"]).ok().json();
    assert_eq!(json["not_checked"], serde_json::json!([]));
    assert_eq!(json["checked"]["failed_files"], dropped / 7);
}

/// A store that an older version left is not changed by being looked at.
#[test]
fn a_store_of_an_older_version_is_left_as_it_is() {
    let world = World::new();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/store-v1.db");
    fs::copy(fixture, world.db()).unwrap();
    let before = fs::read(world.db()).unwrap();
    let ran = world.run(&["verify"]).exits(78);
    assert!(ran.err.contains("older windowflow") && ran.err.contains("prune"), "{}", ran.err);
    assert_eq!(fs::read(world.db()).unwrap(), before);
    // and once it was brought up to date there is nothing wrong with it
    world.run(&["prune"]).ok();
    let ran = world.run(&["verify"]).ok();
    assert!(ran.out.contains("not checked: "), "{}", ran.out);
}
