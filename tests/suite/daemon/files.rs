//! Group B: files that are half written, in the way, odd or empty.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use super::{NEVER_SETTLE, accepted, event, many, one, order_taken, quick, quick_with, told};
use crate::world::World;

/// Looks on for a while, since what must not come about cannot be waited for.
fn stays(what: &str, world: &World, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(700) {
        assert!(holds(), "{what}\n{}", world.told());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Writes a batch in two parts with a pause of several settle times, both of which would do as a
/// batch by themselves.
fn written_slowly(closes_between: bool) {
    let world = World::with_store(1000, 0);
    let settings = [("inbox.settle_ms", if closes_between { "1500" } else { "100" })];
    let daemon = quick_with(&world, &settings);
    let path = world.inbox().join("slow.json");
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(many("first", 10).as_bytes()).unwrap();
    if closes_between {
        drop(file);
        std::thread::sleep(Duration::from_millis(100));
        file = fs::File::options().append(true).open(&path).unwrap();
    } else {
        stays("it is taken half written", &world, || world.names("inbox") == ["slow.json"]);
        assert_eq!(accepted(&world), 0);
    }
    file.write_all(many("second", 10).as_bytes()).unwrap();
    drop(file);
    world.until_drained();
    assert_eq!(world.names("failed"), Vec::<String>::new(), "{}", world.told());
    assert_eq!(order_taken(&world), ["slow.json"]);
    assert_eq!(accepted(&world), 20);
    daemon.stop();
}

#[test]
fn case_016_and_017_a_writer_that_pauses_and_keeps_the_file_open_is_waited_for() {
    written_slowly(false);
}

#[test]
fn case_016_a_file_that_was_closed_and_goes_on_within_the_settle_time_is_one_batch() {
    written_slowly(true);
}

#[test]
fn case_016_a_file_that_was_renamed_in_while_it_is_written_is_not_failed() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    let staged = world.root().join("open.json");
    let mut file = fs::File::create(&staged).unwrap();
    file.write_all(b"[{\"id\":\"a\",\"key\":\"k\",").unwrap();
    fs::rename(&staged, world.inbox().join("open.json")).unwrap();
    // written on for longer than the settle time, so that it never looks still
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(30));
        file.write_all(b" ").unwrap();
    }
    file.write_all(b"\"timestamp_ms\":1,\"value\":7}]").unwrap();
    drop(file);
    world.until_drained();
    assert_eq!(world.names("failed"), Vec::<String>::new(), "{}", world.told());
    assert_eq!(accepted(&world), 1);
    daemon.stop();
}

#[test]
fn case_025_a_name_that_done_has_already_loses_neither_file() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    for id in ["x", "y", "z"] {
        world.drop_in("a.json", one(id));
        world.until_drained();
    }
    assert_eq!(world.names("done"), ["a.json", "a.json.1", "a.json.2"]);
    let done = world.spool().join("done");
    for (name, id) in [("a.json", "x"), ("a.json.1", "y"), ("a.json.2", "z")] {
        assert_eq!(fs::read_to_string(done.join(name)).unwrap(), one(id));
    }
    assert_eq!(accepted(&world), 3);
    // the same for refused ones, whose reasons stay apart too
    for _ in 0..2 {
        world.drop_in("bad.json", "{");
        world.until_drained();
    }
    let failed = ["bad.json", "bad.json.1", "bad.json.1.error.json", "bad.json.error.json"];
    assert_eq!(world.names("failed"), failed);
    daemon.stop();
}

#[test]
fn case_026_a_folder_of_that_name_in_done_is_no_hindrance() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    fs::create_dir_all(world.spool().join("done/a.json/within")).unwrap();
    world.drop_in("a.json", one("a"));
    world.until_drained();
    assert_eq!(world.names("done"), ["a.json.1"]);
    assert_eq!(order_taken(&world), ["a.json"]);
    assert!(world.spool().join("done/a.json/within").is_dir());
    daemon.stop();
}

#[test]
fn case_029_pipes_sockets_and_links_are_never_read_and_hold_up_nothing() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    let inbox = world.inbox();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        inbox.join("pipe.json"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    fs::create_dir(inbox.join("folder.json")).unwrap();
    let socket = UnixListener::bind(inbox.join("socket.json")).unwrap();
    let secret = world.root().join("secret.json");
    fs::write(&secret, one("secret")).unwrap();
    symlink(&secret, inbox.join("link.json")).unwrap();
    symlink(world.root(), inbox.join("link-to-folder")).unwrap();
    symlink("nowhere", inbox.join("dangling.json")).unwrap();
    for n in 0..5 {
        world.drop_in(format!("good-{n}.json"), one(&format!("id-{n}")));
    }
    world.eventually("the good ones are taken", || world.names("done").len() == 5);
    world.eventually("the links have failed", || world.names("failed").len() == 6);
    assert_eq!(world.names("inbox"), ["pipe.json", "socket.json"]);
    world.eventually("the rest is reported", || told(&world, "odd") == 2);
    for name in ["link.json", "link-to-folder", "dangling.json"] {
        assert_eq!(world.reason(name)["code"], "not_a_regular_file");
        let moved = fs::symlink_metadata(world.spool().join("failed").join(name)).unwrap();
        assert!(moved.is_symlink(), "{name}");
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), one("secret"));
    assert_eq!(accepted(&world), 5);
    let log = world.log();
    for name in ["pipe.json", "socket.json"] {
        let lines = log.lines().filter(|line| line.contains(name)).count();
        assert_eq!(lines, 1, "{name} is to be reported once:\n{log}");
    }
    drop(socket);
    daemon.stop();
}

#[test]
fn case_031_one_bad_file_among_a_hundred_good_ones_is_tried_once() {
    let world = World::with_store(1000, 0);
    for n in 0..100 {
        world.drop_in(format!("{n:02}.json"), one(&format!("id-{n}")));
    }
    world.drop_in(
        "50-bad.json",
        "[{\"id\":\"never\",\"key\":\"k\",\"timestamp_ms\":1,\"value\":1},]",
    );
    let daemon = quick(&world);
    world.until_drained();
    assert_eq!(accepted(&world), 100);
    assert_eq!(world.names("failed"), ["50-bad.json", "50-bad.json.error.json"]);
    assert_eq!(world.reason("50-bad.json")["code"], "bad_json");
    let log = world.log();
    assert_eq!(log.matches("refused 50-bad.json").count(), 1, "{log}");
    assert_eq!(world.report()["totals"]["refused_batches"], 1);
    daemon.stop();
}

#[test]
fn case_034_identity_is_neither_a_prefix_nor_a_size_nor_an_inode() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    // 8 KiB alike, and as many bytes
    let (a, b) = (many("same", 150) + &one("tail-a"), many("same", 150) + &one("tail-b"));
    assert!(a.len() == b.len() && a[..8192] == b[..8192]);
    world.drop_in("a.json", &a);
    world.drop_in("b.json", &b);
    world.until_drained();
    assert_eq!(accepted(&world), 152);
    // a new file under a number that an ingested one had
    let freed = world.spool().join("done/a.json");
    let number = fs::metadata(&freed).unwrap().ino();
    fs::remove_file(&freed).unwrap();
    for n in 0..20 {
        let name = format!("new-{n}.json");
        world.drop_in(&name, one(&name));
        let path = world.inbox().join(&name);
        // it may be gone already, which is as well
        if fs::metadata(path).is_ok_and(|new| new.ino() == number) {
            break;
        }
    }
    world.until_drained();
    let new = world.names("done").len() as i64 - 1;
    assert_eq!(accepted(&world), 152 + new);
    daemon.stop();
}

#[test]
fn case_035_empty_files_are_refused_each_for_itself_and_the_queue_goes_on() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    for name in ["1.json", "2.json", "3.json"] {
        fs::write(world.inbox().join(name), "").unwrap();
    }
    world.drop_in("4.json", one("a"));
    world.until_drained();
    for name in ["1.json", "2.json", "3.json"] {
        let reason = world.reason(name);
        assert_eq!(reason["code"], "empty");
        assert!(reason["hint"].as_str().unwrap().contains("run out of room"), "{reason}");
    }
    assert_eq!(accepted(&world), 1);
    daemon.stop();
}

#[test]
fn a_file_that_changes_hands_while_it_waits_is_read_as_it_is_then() {
    let world = World::with_store(1000, 0);
    let daemon = quick_with(&world, &[("inbox.settle_ms", "400")]);
    let path = world.inbox().join("a.json");
    fs::write(&path, one("old")).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    // the same length, in place, and dated back: only the bytes and the watching tell
    let file = fs::File::options().write(true).open(&path).unwrap();
    let mtime = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(one("new").as_bytes(), 0).unwrap();
    file.set_modified(mtime).unwrap();
    drop(file);
    world.until_drained();
    assert!(super::remembers(&world, "new") && !super::remembers(&world, "old"));
    daemon.stop();
}

#[test]
fn what_is_written_in_place_waits_and_what_is_renamed_in_does_not() {
    let world = World::with_store(1000, 0);
    let daemon = quick_with(&world, &[NEVER_SETTLE]);
    fs::write(world.inbox().join("0-placed.json"), one("placed")).unwrap();
    world.drop_in("1-renamed.json", event("renamed", "k", 1, 1));
    world.eventually("one is taken", || world.names("done") == ["1-renamed.json"]);
    world.eventually("the other waits", || told(&world, "not_ready") == 1);
    assert_eq!(world.names("inbox"), ["0-placed.json"]);
    daemon.stop();
}
