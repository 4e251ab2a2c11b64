//! What the daemon looks at, and how soon: only what hints name, a backlog afresh, and what to do
//! where the kernel gives no hints.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, EventKind};
use notify::{RecursiveMode, Watcher};

use super::{
    NEVER_RESCAN, accepted, fault, one, order_taken, quick, quick_with, skip, write_config,
};
use crate::hostile::table::gzip;
use crate::world::{World, has_tool};

/// Has failed for a daemon that listed every folder for each file.
#[test]
fn case_148_a_file_that_comes_alone_makes_nobody_look_into_other_folders() {
    let world = World::with_store(1000, 0);
    for n in 0..40 {
        let folder = world.inbox().join(format!("quiet-{n}"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("left.tmp"), "x").unwrap();
    }
    fs::create_dir(world.inbox().join("busy")).unwrap();
    let daemon = quick_with(&world, &[NEVER_RESCAN]);
    world.drop_in("before.json", one("before"));
    world.eventually("it is in", || world.names("done").len() == 1);
    let (tell, told) = mpsc::channel();
    let mut watcher = notify::recommended_watcher(move |event| drop(tell.send(event))).unwrap();
    watcher.watch(&world.inbox(), RecursiveMode::Recursive).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let next = || -> notify::Event {
        let left = deadline.saturating_duration_since(Instant::now());
        told.recv_timeout(left).expect("what the test itself does is seen").unwrap()
    };
    // to begin to watch opens each folder: what comes after this is of others
    let mark = world.inbox().join(".mark");
    fs::write(&mark, "").unwrap();
    while !next().paths.contains(&mark) {}
    for n in 0..20 {
        let folder = ["", "busy/"][n % 2];
        world.drop_in(format!("{folder}{n}.json"), one(&n.to_string()));
        world.eventually("it is in", || world.names("done").len() == n + 2);
    }
    // our own look into a folder is seen, and no other was before it
    let last = world.inbox().join("quiet-39");
    assert_eq!(fs::read_dir(&last).unwrap().count(), 1);
    let mut opened = BTreeSet::new();
    while !opened.contains(&last) {
        let event = next();
        if matches!(event.kind, EventKind::Access(AccessKind::Open(_))) {
            let is_quiet = |path: &PathBuf| path.to_string_lossy().contains("/quiet-");
            opened.extend(event.paths.into_iter().filter(is_quiet));
        }
    }
    assert_eq!(opened, BTreeSet::from([last]), "{}", world.told());
    assert_eq!(accepted(&world), 21);
    daemon.stop();
}

/// Folders come, are renamed and go away while no look at everything mends what a hint missed.
#[test]
fn case_148_folders_that_come_and_go_are_followed_by_hints_alone() {
    let world = World::with_store(1000, 0);
    let daemon = quick_with(&world, &[NEVER_RESCAN]);
    let mut done = 0;
    for n in 0..10 {
        // made, filled and renamed at once, before it can be watched
        let outside = world.root().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("a.json"), one(&format!("a-{n}"))).unwrap();
        fs::rename(&outside, world.inbox().join(format!("in-{n}"))).unwrap();
        world.drop_in(format!("made-{n}/b.json"), one(&format!("b-{n}")));
        let renamed = world.inbox().join(format!("renamed-{n}"));
        fs::rename(world.inbox().join(format!("made-{n}")), &renamed).unwrap();
        fs::write(renamed.join("c.json"), one(&format!("c-{n}"))).unwrap();
        done += 3;
        world.eventually("all are in", || world.names("done").len() == done);
        fs::remove_dir(&renamed).unwrap();
        world.drop_in(format!("renamed-{n}/d.json"), one(&format!("d-{n}")));
        done += 1;
        world.eventually("so is one of a folder made again", || world.names("done").len() == done);
    }
    assert_eq!(accepted(&world), done as i64);
    daemon.stop();
}

/// Has failed for a daemon that took all of its last look first: then it is the last one.
#[test]
fn case_152_what_sorts_first_does_not_wait_for_the_end_of_a_backlog() {
    let mut files = 1000;
    loop {
        let world = World::with_store(1000, 0);
        for n in 0..files {
            world.drop_in(format!("m-{n:06}.json"), one(&n.to_string()));
        }
        let daemon = quick(&world);
        world.eventually("it has begun", || !world.names("done").is_empty());
        let begun = Instant::now();
        world.drop_in("a-first.json", one("first"));
        world.until_drained();
        let took = begun.elapsed();
        let order = order_taken(&world);
        assert_eq!(order.len(), files + 1);
        daemon.stop();
        // on a fast machine all is over before a fresh look is due
        if took < Duration::from_secs(4) && files < 200_000 {
            files *= 2;
            continue;
        }
        let at = order.iter().position(|name| name == "a-first.json").unwrap();
        assert!(at < files, "it was taken last of {files}, after {took:?}");
        let others: Vec<&String> = order.iter().filter(|name| *name != "a-first.json").collect();
        assert!(others.is_sorted(), "the others are taken in their order");
        return;
    }
}

/// Has failed for a reader that told of no file before it had unpacked all of them.
#[test]
fn case_152_files_that_take_long_to_unpack_are_looked_between() {
    const FILES: usize = 12;
    let mut spaces_bytes = 8 << 20;
    loop {
        let world = World::with_store(1000, 0);
        for n in 0..FILES {
            let slow = " ".repeat(spaces_bytes) + &one(&n.to_string());
            world.drop_in(format!("m-{n:02}.json.gz"), gzip(slow.as_bytes()));
        }
        let begun = Instant::now();
        let daemon = quick(&world);
        world.eventually("it has begun", || !world.names("done").is_empty());
        world.drop_in("a-first.json", one("first"));
        world.until_drained();
        let took = begun.elapsed();
        let order = order_taken(&world);
        daemon.stop();
        // on a fast machine all is over before a fresh look is due
        if took < Duration::from_secs(4) && spaces_bytes < 1 << 30 {
            spaces_bytes *= 2;
            continue;
        }
        let at = order.iter().position(|name| name == "a-first.json").unwrap();
        assert!(at < FILES, "it was taken last, after {took:?}: {order:?}");
        return;
    }
}

/// A mount that is undone in any case.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Has failed for a daemon that called itself told of new files, and found them each `rescan_ms`.
#[test]
fn case_138_where_the_kernel_does_not_tell_of_files_status_says_so_until_it_does() {
    let what = "a file system that gives no hints";
    if !has_tool("bindfs", what) {
        return;
    }
    let world = World::new();
    // nothing is mounted over a folder that holds something
    fs::remove_dir(world.inbox()).unwrap();
    let real = world.root().join("real");
    fs::create_dir_all(real.join("inbox")).unwrap();
    let mounted = Command::new("bindfs").args([&real, &world.spool()]).output().unwrap();
    if !mounted.status.success() {
        return skip(what, &String::from_utf8_lossy(&mounted.stderr));
    }
    let _mounted = Mounted(world.spool());
    let db = world.root().join("store.db");
    let db = ["--db", db.to_str().unwrap()];
    world.run(&[&db[..], &["init", "--window-ms", "1000", "--lateness-ms", "0"]].concat()).ok();
    let config = write_config(&world, &[]);
    let daemon = world.daemon_with(&[&db[..], &["--config", &config]].concat());
    let status = || world.run(&[&db[..], &["status"]].concat()).out;
    assert!(status().contains("inbox/ is on FUSE"), "{}", status());
    let is_untold = || world.state()["daemon"]["untold"] == true;
    let drop_at = |inbox: &Path, name: String| {
        fs::write(inbox.join(&name), one(&name)).unwrap();
        world.eventually("it is found", || world.names("done").contains(&name));
    };
    let deadline = Instant::now() + Duration::from_secs(120);
    for n in 0.. {
        drop_at(&real.join("inbox"), format!("hidden-{n}.json"));
        if is_untold() {
            break;
        }
        assert!(Instant::now() < deadline, "{}", world.told());
    }
    assert!(status().contains("the kernel did not tell of some"), "{}", status());
    for n in 0.. {
        drop_at(&world.inbox(), format!("seen-{n}.json"));
        if !is_untold() {
            break;
        }
        assert!(Instant::now() < deadline, "{}", world.told());
    }
    assert!(status().contains("told of new files by the kernel"), "{}", status());
    daemon.stop();
}

/// Has failed for a daemon whose log grew to ten times its limit without a word.
#[test]
fn case_138_a_reader_that_keeps_the_log_from_being_emptied_is_named_until_it_ends() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    world.drop_in("a.json", one("a"));
    world.until_drained();
    let reader = rusqlite::Connection::open(world.db()).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let batches = |reader: &rusqlite::Connection| -> i64 {
        reader.query_row("SELECT count(*) FROM batches", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(batches(&reader), 1);
    world.drop_in("b.json", one("b"));
    world.until_drained();
    // as if much had been written since: what follows the last page of the log means nothing
    let log = world.spool().join("windowflow.db-wal");
    fs::File::options().write(true).open(&log).unwrap().set_len(65 << 20).unwrap();
    let named = format!("process {}", std::process::id());
    let seen = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    if seen.as_os_str() != "pid:[4026531836]" {
        reader.execute_batch("ROLLBACK").unwrap();
        return skip("a reader of the log", "the locks of other processes cannot be seen here");
    }
    world.eventually("the reader is named", || fault(&world).contains(&named));
    let text = fault(&world);
    assert!(text.contains("windowflow.db-wal") && text.contains("67,108,864"), "{text}");
    world.run(&["status"]).exits(75);
    reader.execute_batch("ROLLBACK").unwrap();
    world.eventually("the fault is over", || fault(&world).is_empty());
    world.run(&["status"]).ok();
    daemon.stop();
}
