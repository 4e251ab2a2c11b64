//! Group D: the store is missing, busy, full, damaged, newer, or another one.
//!
//! A network file system cannot be had on a test machine; one in user space can, and how the kinds
//! are told apart is a unit test of the store.

use std::fs;
use std::process::Command;

use rusqlite::Connection;

use super::{accepted, fault, look_into, many, one, quick_with, skip, write_config};
use crate::world::{World, has_tool};

#[test]
fn a_spool_without_a_store_says_how_to_make_one() {
    let world = World::new();
    world.drop_in("a.json", one("a"));
    let ran = world.run(&["run"]).exits(66);
    for named in ["init --window-ms", "[window]", world.db().to_str().unwrap()] {
        assert!(ran.err.contains(named), "{named}: {}", ran.err);
    }
    assert_eq!(world.names("inbox"), ["a.json"]);
    assert!(!world.db().exists());
    let nowhere = world.run(&["run", "--spool", "no-such-folder"]).exits(66);
    assert!(nowhere.err.contains("no-such-folder"), "{}", nowhere.err);
}

/// A mount that is undone in any case.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Has failed for a store that was made there.
#[test]
fn case_058_a_store_on_a_file_system_in_user_space_is_refused_unless_it_is_forced() {
    let what = "a store on a file system in user space";
    if !has_tool("bindfs", what) {
        return;
    }
    let world = World::new();
    let (from, at) = (world.root().join("real"), world.root().join("mounted"));
    for folder in [&from, &at] {
        fs::create_dir(folder).unwrap();
    }
    let mounted = Command::new("bindfs").args([&from, &at]).output().unwrap();
    if !mounted.status.success() {
        return skip(what, &String::from_utf8_lossy(&mounted.stderr));
    }
    let _mounted = Mounted(at.clone());
    let db = at.join("store.db");
    let store = ["--db", db.to_str().unwrap()];
    let init = ["init", "--window-ms", "1000", "--lateness-ms", "0"];
    let refused = world.run(&[&store[..], &init[..]].concat()).exits(78);
    assert!(refused.err.contains("network file system (FUSE)"), "{}", refused.err);
    assert!(fs::read_dir(&from).unwrap().next().is_none(), "something was made there");
    let window = [("window.window_ms", "1000"), ("window.lateness_ms", "0")];
    let config = write_config(&world, &window);
    world.drop_in("a.json", one("a"));
    let args = ["run", "--once", "--config", &config];
    let refused = world.run(&[&store[..], &args[..]].concat()).exits(78);
    assert!(refused.err.contains(db.to_str().unwrap()), "{}", refused.err);
    assert_eq!(world.names("inbox"), ["a.json"]);
    let forced = [&window[..], &[("daemon.allow_network_fs", "true")]].concat();
    write_config(&world, &forced);
    world.run(&[&store[..], &args[..]].concat()).ok();
    assert_eq!(world.names("done"), ["a.json"]);
}

#[test]
fn case_056_a_busy_store_is_waited_for_and_no_file_fails_for_it() {
    let world = World::with_store(1000, 0);
    let daemon = quick_with(&world, &[("daemon.busy_timeout_ms", "50")]);
    let other = Connection::open(world.db()).unwrap();
    for round in 0..5 {
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        for n in 0..10 {
            world.drop_in(format!("{round}-{n}.json"), one(&format!("id-{round}-{n}")));
        }
        world.eventually("it says so", || fault(&world).contains("busy"));
        let status = world.run(&["status"]).exits(75);
        assert!(status.out.contains("busy"), "{}", status.out);
        assert_eq!(world.names("inbox").len(), 10);
        other.execute_batch("ROLLBACK").unwrap();
        world.until_drained();
        world.eventually("the fault is over", || fault(&world).is_empty());
        world.run(&["status"]).ok();
    }
    assert_eq!(world.names("failed"), Vec::<String>::new());
    assert_eq!(accepted(&world), 50);
    assert_eq!(world.report()["totals"]["duplicate"], 0);
    daemon.stop();
}

#[test]
fn case_056_a_store_that_is_busy_within_the_patience_is_no_fault_at_all() {
    let world = World::with_store(1000, 0);
    let daemon = quick_with(&world, &[("daemon.busy_timeout_ms", "60000")]);
    let other = Connection::open(world.db()).unwrap();
    for round in 0..4 {
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        world.drop_in(format!("{round}.json"), one(&format!("id-{round}")));
        let file = format!("{round}.json");
        world.eventually("it has it in hand", || world.state()["daemon"]["file"] == file.as_str());
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert_eq!(fault(&world), "");
        other.execute_batch("ROLLBACK").unwrap();
        world.until_drained();
    }
    assert_eq!(accepted(&world), 4);
    assert!(!world.log().contains("ERROR"), "{}", world.log());
    daemon.stop();
}

#[test]
fn a_store_that_is_busy_at_the_start_is_waited_for_and_can_be_stopped_for() {
    let world = World::with_store(1000, 0);
    world.drop_in("a.json", one("a"));
    // an exclusive lock in the other mode of journal keeps even readers out
    let other = Connection::open(world.db()).unwrap();
    other.pragma_update(None, "locking_mode", "EXCLUSIVE").unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let config = write_config(&world, &[("daemon.busy_timeout_ms", "50")]);
    let waiting = world.spawn(&["--config", &config]);
    let state = || world.run(&["status", "--config", &config, "--json"]).exits(75).json();
    world.eventually("it starts", || waiting.catches(libc::SIGTERM));
    // the store cannot be read, the daemon can be asked all the same
    world.eventually("it says so", || {
        let state = state();
        let text = state["daemon"]["fault"]["text"].as_str().unwrap_or_default();
        state["running"] == true && state["healthy"] == false && text.contains("busy")
    });
    waiting.stop();
    let mut waiting = world.spawn(&["--config", &config]);
    world.eventually("it starts", || waiting.catches(libc::SIGTERM));
    drop(other);
    world.until_drained();
    assert!(waiting.runs());
    assert_eq!(accepted(&world), 1);
    waiting.stop();
}

#[test]
fn a_long_report_does_not_hold_up_the_daemon() {
    let world = World::with_store(1000, 0);
    let daemon = quick_with(&world, &[]);
    world.drop_in("a.json", one("a"));
    world.until_drained();
    let reader = look_into(&world.db());
    reader.execute_batch("BEGIN").unwrap();
    let count =
        || reader.query_row("SELECT accepted FROM store", [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count(), 1);
    for n in 0..20 {
        world.drop_in(format!("{n}.json"), one(&format!("id-{n}")));
    }
    world.until_drained();
    assert_eq!(count(), 1);
    assert_eq!(accepted(&world), 21);
    daemon.stop();
}

#[test]
fn a_damaged_store_stops_the_daemon_and_leaves_the_file() {
    let world = World::with_store(1000, 0);
    let config = write_config(&world, &[]);
    fs::write(world.db(), "this was a store once, before somebody wrote over it").unwrap();
    world.drop_in("a.json", one("a"));
    let before = fs::read(world.db()).unwrap();
    let ran = world.run(&["run", "--config", &config]).exits(1);
    assert!(ran.err.contains(world.db().to_str().unwrap()), "{}", ran.err);
    assert_eq!(world.names("inbox"), ["a.json"]);
    assert_eq!(fs::read(world.db()).unwrap(), before, "what is no store was written to");
}

#[test]
fn a_store_that_is_damaged_within_stops_the_daemon_while_it_runs() {
    let world = World::with_store(1000, 0);
    world.drop_in("a.json", many("a", 2000));
    world.drain().ok();
    // the log is emptied at the end, so that all is in the one file
    let other = Connection::open(world.db()).unwrap();
    other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let root: i64 = other
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'ledger_entries'", [], |row| {
            row.get(0)
        })
        .unwrap();
    let page_bytes: i64 = other.query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap();
    drop(other);
    let mut bytes = fs::read(world.db()).unwrap();
    let at = ((root - 1) * page_bytes) as usize;
    bytes[at..at + page_bytes as usize].fill(0xa5);
    fs::write(world.db(), bytes).unwrap();
    let config = write_config(&world, &[]);
    let mut daemon = world.spawn(&["--config", &config]);
    world.drop_in("b.json", one("b"));
    let status = daemon.wait();
    assert_eq!(status.code(), Some(1), "{}", world.told());
    assert!(world.log().contains("damaged"), "{}", world.log());
    assert!(world.log().contains("restore a backup"), "{}", world.log());
    assert_eq!(world.names("inbox"), ["b.json"]);
    assert_eq!(world.names("failed"), Vec::<String>::new());
    let after = world.run(&["status"]);
    assert_eq!(after.code, Some(1), "{} {}", after.out, after.err);
}

#[test]
fn a_store_of_a_newer_version_is_left_as_it_is() {
    let world = World::with_store(1000, 0);
    let other = Connection::open(world.db()).unwrap();
    other.pragma_update(None, "user_version", 999).unwrap();
    other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(other);
    world.drop_in("a.json", one("a"));
    let before = fs::read(world.db()).unwrap();
    let ran = world.run(&["run"]).exits(78);
    assert!(ran.err.contains("newer"), "{}", ran.err);
    assert_eq!(fs::read(world.db()).unwrap(), before);
    assert_eq!(world.names("inbox"), ["a.json"]);
}

#[test]
fn a_store_that_was_moved_away_is_not_made_anew_over_its_log() {
    let world = World::with_store(1000, 0);
    let config = write_config(&world, &[("window.window_ms", "1000"), ("window.lateness_ms", "0")]);
    let daemon = world.spawn(&["--config", &config]);
    daemon.until_ready();
    for name in ["a.json", "b.json"] {
        world.drop_in(name, one(name));
    }
    world.until_drained();
    // what was committed last is in the log only
    daemon.kill();
    let away = world.root().join("away.db");
    fs::rename(world.db(), &away).unwrap();
    world.drop_in("c.json", one("c"));
    let ran = world.run(&["run", "--config", &config]).exits(66);
    assert!(ran.err.contains("windowflow.db-wal"), "{}", ran.err);
    assert_eq!(world.names("inbox"), ["c.json"]);
    fs::rename(&away, world.db()).unwrap();
    world.drain().ok();
    assert_eq!(accepted(&world), 3);
}

#[test]
fn case_059_a_full_disk_is_said_so_and_passes_by_itself() {
    let name = "daemon::faults::on_a_small_disk";
    let program = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir().unwrap();
    // a disk of our own, seen by this process and its children only
    let script = "mount -t tmpfs -o size=16m tmpfs \"$1\" || exit 77; shift; exec \"$@\"";
    let root = rustix::process::geteuid().is_root();
    let ran = Command::new("unshare")
        .arg(if root { "-m" } else { "-Urm" })
        .args(["sh", "-c", script, "sh"])
        .arg(folder.path())
        .arg(program)
        .args([name, "--exact", "--ignored", "--nocapture"])
        .env("TMPDIR", folder.path())
        .output();
    let ran = match ran {
        Ok(ran) if ran.status.code() != Some(77) && !is_refused(&ran.stderr) => ran,
        other => return skip("a full disk", &format!("no small disk can be mounted: {other:?}")),
    };
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}\n{err}");
    assert!(out.contains("1 passed"), "{name} was not run: {out}");
}

fn is_refused(stderr: &[u8]) -> bool {
    String::from_utf8_lossy(stderr).contains("unshare:")
}

#[test]
#[ignore = "fills the disk that it is on; the test of case 59 runs it on a small one"]
fn on_a_small_disk() {
    let world = World::with_store(10, 0);
    assert!(free_bytes(&world) < 32 << 20, "this is no small disk");
    let daemon = quick_with(&world, &[]);
    world.drop_in("0.json", one("before"));
    world.until_drained();
    for n in 1..6 {
        // there before the disk is full, under names that are left alone
        fs::write(world.inbox().join(format!(".{n}")), many(&format!("id-{n}"), 3000)).unwrap();
    }
    let filler = world.root().join("filler");
    fill(&filler);
    for n in 1..6 {
        let to = world.inbox().join(format!("{n}.json"));
        fs::rename(world.inbox().join(format!(".{n}")), to).unwrap();
    }
    world.eventually("it says so", || fault(&world).contains("disk full"));
    assert!(fault(&world).contains("bytes free on "), "{}", fault(&world));
    world.run(&["status"]).exits(75);
    let waiting = world.names("inbox").len();
    assert!(waiting > 0 && world.names("failed").is_empty(), "{}", world.told());
    // a refused file needs room for its reason: it waits, too
    fs::rename(world.root().join("filler"), world.root().join("filler.2")).unwrap();
    fs::remove_file(world.root().join("filler.2")).unwrap();
    world.until_drained();
    assert_eq!(world.names("failed"), Vec::<String>::new());
    assert_eq!(world.names("done").len(), 6);
    let report = world.report();
    let (totals, late) = (&report["totals"], report["late"].as_array().unwrap().len() as i64);
    let taken = totals["accepted"].as_i64().unwrap() + late;
    assert_eq!((taken, totals["duplicate"].as_i64()), (15_001, Some(0)), "{totals}");
    world.eventually("the fault is over", || fault(&world).is_empty());
    daemon.stop();
}

fn free_bytes(world: &World) -> u64 {
    let seen = rustix::fs::statvfs(world.root()).unwrap();
    seen.f_bavail * seen.f_frsize
}

/// Writes until nothing more goes in.
fn fill(path: &std::path::Path) {
    use std::io::Write;
    let mut file = fs::File::create(path).unwrap();
    for block in [1 << 16, 1 << 12, 1] {
        let block = vec![b'x'; block];
        while file.write_all(&block).is_ok() {}
    }
}
