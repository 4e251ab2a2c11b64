//! Group A: files that a watcher could miss. Where the rescan is put off for an hour, what is found
//! was found by the watch, by the first scan or by the answer to lost hints.
//!
//! Cases 2 and 7 need events made up by hand: they are unit tests of the watch.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{
    NEVER_RESCAN, NEVER_SETTLE, accepted, event, one, order_taken, quick_with, skip, soaking, told,
    write_config,
};
use crate::world::{Daemon, World};

#[test]
fn case_001_nothing_is_missed_when_the_kernels_queue_overflows() {
    let world = World::with_store(1000, 0);
    let mut daemon = quick_with(&world, &[NEVER_RESCAN]);
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    assert!(limit <= 1_000_000, "a queue of {limit} events takes too long to fill");
    daemon.signal("STOP");
    // made, written and removed: at least four events, none of which says anything by itself
    for n in 0..=limit / 4 {
        let path = world.inbox().join(format!(".hidden-{}", n % 2));
        fs::write(&path, "x").unwrap();
        fs::remove_file(&path).unwrap();
    }
    for n in 0..200 {
        world.drop_in(format!("{n:03}.json"), one(&format!("id-{n}")));
    }
    daemon.signal("CONT");
    world.until_drained();
    assert_eq!(accepted(&world), 200, "{}", world.told());
    world.eventually("a rescan is counted", || told(&world, "rescans") >= 1);
    assert!(daemon.runs());
    daemon.stop();
}

#[test]
fn case_004_no_file_falls_between_the_watch_and_the_first_scan() {
    let world = World::with_store(1000, 0);
    let config = write_config(&world, &[NEVER_RESCAN]);
    let starts = if soaking() { 200 } else { 25 };
    for start in 0..starts {
        std::thread::scope(|scope| {
            // one a millisecond, each time beginning a little later in the life of the daemon
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(start % 40 * 2));
                for n in 0..30 {
                    let name = format!("{start:03}-{n:02}.json");
                    world.drop_in(&name, one(&name));
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let daemon = world.spawn(&["--config", &config]);
            let expected = (start as usize + 1) * 30;
            world.eventually("all are taken", || world.names("done").len() == expected);
            daemon.stop();
        });
    }
    assert_eq!(accepted(&world), starts as i64 * 30, "{}", world.told());
    assert_eq!(world.names("inbox"), Vec::<String>::new());
}

/// Whether the daemon has a thread of that name.
fn has_thread(daemon: &Daemon<'_>, begin: &str) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", daemon.pid())) else { return false };
    tasks.flatten().any(|task| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with(begin))
    })
}

/// The same with the gap held open: half a second passes before the kernel is asked to watch, and
/// the one file is dropped in that time. A scan that came first would have been too early for it.
#[test]
fn case_004_a_file_that_comes_just_before_the_watch_is_found_by_the_scan_after_it() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("the gap before the watch", "there is no strace");
    }
    let world = World::with_store(1000, 0);
    let config = write_config(&world, &[NEVER_RESCAN]);
    let wrapper = "strace -D -f -qq -o /dev/null -e trace=inotify_add_watch \
                   -e inject=inotify_add_watch:delay_enter=500000";
    let wrapper: Vec<&str> = wrapper.split_whitespace().collect();
    let daemon = world.spawn_under(&wrapper, &["--config", &config]);
    world.eventually("it is about to watch", || has_thread(&daemon, "notify-rs"));
    assert_eq!(told(&world, "done"), 0);
    world.drop_in("a.json", one("a"));
    world.until_drained();
    assert_eq!(accepted(&world), 1);
    daemon.stop();
}

/// What is put back is looked at again without a hint, and a hint that comes while it is read counts.
#[test]
fn what_ends_too_early_is_refused_after_the_settle_time_and_holds_up_nobody() {
    let world = World::with_store(1000, 0);
    let daemon = quick_with(&world, &[NEVER_RESCAN]);
    for n in 0..20 {
        world.drop_in(format!("{n:02}-empty.json"), if n % 2 == 0 { "" } else { "[{" });
        world.drop_in(format!("{n:02}-good.json"), one(&n.to_string()));
        world.eventually("one is in, the other refused", || {
            world.names("done").len() == n + 1 && world.names("failed").len() == 2 * (n + 1)
        });
    }
    daemon.stop();
    world.drop_in("x-empty.json", "");
    world.run(&["run", "--once"]).exits(65);
    assert_eq!(world.names("inbox"), Vec::<String>::new(), "{}", world.told());
}

#[test]
fn case_005_what_came_while_it_was_not_running_is_taken_in_order() {
    let world = World::with_store(1000, 0);
    let mut expected = Vec::new();
    // dropped in an order that is not that of the names
    for n in (0..100).map(|n| (n * 37) % 100) {
        let name = format!("{n:02}.json");
        world.drop_in(&name, one(&name));
        expected.push(name);
    }
    expected.sort();
    // without settling, so that all are ready at the first look
    let daemon = quick_with(&world, &[NEVER_RESCAN, ("inbox.settle_ms", "0")]);
    world.until_drained();
    assert_eq!(order_taken(&world), expected);
    assert_eq!(accepted(&world), 100);
    daemon.stop();
}

/// What makes the kernel refuse to watch, for this process and its children only.
fn without(limit: &str) -> String {
    format!("echo 0 > /proc/sys/user/{limit}; exec \"$@\"")
}

/// Whether a user namespace of our own can be had, whose limits are ours to set.
fn may_limit(what: &str) -> bool {
    let script = without("max_inotify_instances");
    let tried = Command::new("unshare").args(["-Ur", "sh", "-c", &script, "sh", "true"]).output();
    let fits = tried.as_ref().is_ok_and(|tried| tried.status.success() && tried.stderr.is_empty());
    if !fits {
        skip(what, &format!("no user namespace: {tried:?}"));
    }
    fits
}

fn blind<'w>(world: &'w World, limit: &str, settings: &[(&str, &str)]) -> Daemon<'w> {
    let config = write_config(world, settings);
    let wrapper = ["unshare", "-Ur", "sh", "-c", &without(limit), "sh"];
    let daemon = world.spawn_under(&wrapper, &["--config", &config]);
    daemon.until_ready();
    daemon
}

#[test]
fn case_008_without_a_watch_it_says_which_limit_and_goes_on_by_looking() {
    if !may_limit("the limits of inotify") {
        return;
    }
    for (limit, named) in [
        ("max_inotify_instances", "fs.inotify.max_user_instances"),
        ("max_inotify_watches", "fs.inotify.max_user_watches"),
    ] {
        let world = World::with_store(1000, 0);
        let daemon = blind(&world, limit, &[]);
        world.drop_in("a.json", one("a"));
        world.until_drained();
        world.drop_in("b.json", one("b"));
        world.until_drained();
        assert_eq!(accepted(&world), 2);
        let state = world.state();
        assert_eq!(state["daemon"]["watching"], false, "{limit}: {state}");
        let log = world.log();
        assert!(log.contains(named), "{limit}: {log}");
        assert!(!log.to_lowercase().contains("no space"), "{limit}: {log}");
        // said once, not at every look
        let lines = log.lines().filter(|line| line.contains("watch")).count();
        assert!(lines <= 2, "{limit}: {lines} lines about it:\n{}", world.told());
        // a watch that is not there cannot lose hints
        assert_eq!(told(&world, "rescans"), 0, "{}", world.told());
        daemon.stop();
    }
}

#[test]
fn case_011_polling_takes_a_second_file_of_the_same_name_size_and_second() {
    if !may_limit("polling") {
        return;
    }
    let world = World::with_store(1000, 0);
    let daemon = blind(&world, "max_inotify_instances", &[]);
    let mut dated = None;
    for id in ["first", "other"] {
        let staged = world.root().join("staged.json");
        fs::write(&staged, one(id)).unwrap();
        let file = fs::File::options().write(true).open(&staged).unwrap();
        let mtime = *dated.get_or_insert_with(|| file.metadata().unwrap().modified().unwrap());
        file.set_modified(mtime).unwrap();
        drop(file);
        fs::rename(&staged, world.inbox().join("a.json")).unwrap();
        world.until_drained();
    }
    assert_eq!(accepted(&world), 2);
    assert_eq!(world.names("done"), ["a.json", "a.json.1"]);
    daemon.stop();
}

#[test]
fn case_010_polling_outlives_a_file_that_comes_and_goes_and_takes_its_last_version() {
    if !may_limit("polling") {
        return;
    }
    let world = World::with_store(1000, 0);
    let settings = [("inbox.rescan_ms", "100"), ("inbox.settle_ms", "3000")];
    let mut daemon = blind(&world, "max_inotify_instances", &settings);
    let path = world.inbox().join("a.json");
    for n in 0..1000 {
        fs::write(&path, one(&format!("version-{n}"))).unwrap();
        fs::remove_file(&path).unwrap();
    }
    fs::write(&path, one("last")).unwrap();
    world.until_drained();
    assert_eq!(accepted(&world), 1);
    assert_eq!(fs::read_to_string(world.spool().join("done/a.json")).unwrap(), one("last"));
    assert_eq!(world.names("failed"), Vec::<String>::new());
    assert!(daemon.runs() && !world.log().contains("panicked"), "{}", world.told());
    daemon.stop();
}

#[test]
fn case_013_one_upload_in_several_steps_is_one_ingest() {
    let world = World::with_store(1000, 0);
    // longer than a loaded machine may take between two of the steps
    let daemon = quick_with(&world, &[("inbox.settle_ms", "2000"), ("daemon.log", "\"debug\"")]);
    let path = world.inbox().join("a.json");
    for part in ["[", "{\"id\":\"a\",\"key\":\"k\",", "\"timestamp_ms\":1,", "\"value\":7", "}]"] {
        append(&path, part);
        std::thread::sleep(Duration::from_millis(10));
    }
    world.until_drained();
    assert_eq!(accepted(&world), 1);
    assert_eq!(order_taken(&world), ["a.json"]);
    assert_eq!(world.names("done"), ["a.json"]);
    assert_eq!(world.names("failed"), Vec::<String>::new());
    let log = world.log();
    for wrong in ["ERROR", "No such file", "not found", "is gone"] {
        assert!(!log.contains(wrong), "{wrong}: {log}");
    }
    daemon.stop();
}

fn append(path: &Path, part: &str) {
    use std::io::Write;
    let mut options = fs::File::options();
    let mut file = options.create(true).append(true).mode(0o644).open(path).unwrap();
    file.write_all(part.as_bytes()).unwrap();
}

#[test]
fn case_014_a_file_that_is_linked_in_is_taken_and_the_producers_copy_is_left() {
    let world = World::with_store(1000, 0);
    let daemon = quick_with(&world, &[NEVER_RESCAN, NEVER_SETTLE]);
    let outbox = world.root().join("outbox");
    fs::create_dir(&outbox).unwrap();
    let own = outbox.join("a.json");
    fs::write(&own, one("a")).unwrap();
    fs::hard_link(&own, world.inbox().join("a.json")).unwrap();
    world.until_drained();
    assert_eq!(accepted(&world), 1);
    assert_eq!(fs::read_to_string(&own).unwrap(), one("a"));
    assert_eq!(fs::read_to_string(world.spool().join("done/a.json")).unwrap(), one("a"));
    daemon.stop();
}

#[test]
fn case_019_a_rename_from_an_ignored_name_and_one_from_outside_are_both_seen() {
    let world = World::with_store(1000, 0);
    // before the start, so that it is watched
    fs::create_dir(world.inbox().join("press")).unwrap();
    let daemon = quick_with(&world, &[NEVER_RESCAN, NEVER_SETTLE]);
    let unfinished = world.inbox().join("a.json.tmp");
    fs::write(&unfinished, one("a")).unwrap();
    fs::rename(&unfinished, world.inbox().join("a.json")).unwrap();
    world.drop_in("b.json", one("b"));
    world.until_drained();
    // over a name that the inbox had before, and into the folder of a source
    world.drop_in("a.json", one("c"));
    fs::write(world.inbox().join("d.json.part"), one("d")).unwrap();
    let to = world.inbox().join("press/d.json");
    fs::rename(world.inbox().join("d.json.part"), to).unwrap();
    world.until_drained();
    assert_eq!(accepted(&world), 4);
    daemon.stop();
}

#[test]
fn case_020_exactly_the_documented_names_are_left_alone() {
    let world = World::with_store(1000, 0);
    let daemon = quick_with(&world, &[]);
    let left =
        ["xa.json.part", "a.json~", "b.filepart", "b.inprogress", "b.partial", "a.json.gz.tmp"];
    let hidden = ".a.json.swp";
    for name in left.iter().chain([&hidden]) {
        world.drop_in(name, "not json at all");
    }
    let taken = ["A.JSON", "json", "a.json ", "tmp", "a.tmp.json", "a.TMP"];
    for name in taken {
        world.drop_in(name, event(&format!("of {name}"), "k", 1, 1));
    }
    world.eventually("the others are taken", || world.names("done").len() == taken.len());
    world.eventually("they are counted", || told(&world, "ignored") == left.len() as u64 + 1);
    let mut expected = left;
    expected.sort();
    assert_eq!(world.names("inbox"), expected);
    assert!(world.inbox().join(hidden).exists());
    assert_eq!(world.names("failed"), Vec::<String>::new());
    assert_eq!(accepted(&world), taken.len() as i64);
    daemon.stop();
}

#[test]
fn the_inbox_is_removed_and_made_again() {
    let world = World::with_store(1000, 0);
    let mut daemon = quick_with(&world, &[]);
    for round in 0..3 {
        fs::remove_dir_all(world.inbox()).unwrap();
        world.eventually("it says so", || super::fault(&world).contains("inbox unreadable"));
        assert_eq!(world.run(&["status"]).code, Some(75));
        fs::create_dir(world.inbox()).unwrap();
        world.drop_in("a.json", one(&format!("id-{round}")));
        world.until_drained();
        assert_eq!(accepted(&world), round + 1);
        world.eventually("the fault is over", || super::fault(&world).is_empty());
    }
    // and it is watched again
    world.eventually("it is watched", || world.state()["daemon"]["watching"] == true);
    assert!(daemon.runs());
    daemon.stop();
}

#[test]
fn another_inbox_is_put_in_its_place() {
    let world = World::with_store(1000, 0);
    let daemon = quick_with(&world, &[]);
    let (old, new) = (world.spool().join("inbox.old"), world.spool().join("inbox.new"));
    fs::create_dir(&new).unwrap();
    fs::write(new.join("a.json"), one("a")).unwrap();
    fs::rename(world.inbox(), &old).unwrap();
    fs::rename(&new, world.inbox()).unwrap();
    world.eventually("what lies there is taken", || world.names("done") == ["a.json"]);
    // what goes into the old one is not ours any more
    fs::write(old.join("b.json"), one("b")).unwrap();
    world.drop_in("c.json", one("c"));
    world.eventually("the next is taken", || world.names("done") == ["a.json", "c.json"]);
    assert!(old.join("b.json").exists());
    assert_eq!(accepted(&world), 2);
    daemon.stop();
}
