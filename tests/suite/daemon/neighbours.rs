//! What a producer does with its own file or folder holds up that alone. The daemon is one user
//! here, the hostile producer another, and the honest one a third.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{accepted, fault, one, quick, quick_with, told, write_config};
use crate::world::{World, skip};

/// The hostile producer.
const FOE: u32 = 64_001;

/// A world whose daemon is an ordinary user; none when the test may not act as several users.
fn two_users(what: &str) -> Option<World> {
    if !rustix::process::geteuid().is_root() {
        skip(what, "only root can act as two users");
        return None;
    }
    let world = World::unprivileged();
    world.init(1000, 0, &[]);
    chmod(world.inbox(), 0o3777);
    Some(world)
}

fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Makes a folder in the inbox that belongs to the hostile producer; its path.
fn foes_folder(world: &World, name: &str, mode: u32) -> PathBuf {
    let folder = world.inbox().join(name);
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(FOE), None).unwrap();
    chmod(&folder, mode);
    folder
}

/// Puts a file of the hostile producer there, as a rename does.
fn foes_file(world: &World, to: &Path, content: impl AsRef<[u8]>) {
    let staged = world.root().join(".foe");
    fs::write(&staged, content).unwrap();
    chown(&staged, Some(FOE), None).unwrap();
    fs::rename(&staged, to).unwrap();
}

/// Drops honest files one by one, each of which has to be in done/ before the next.
fn honest(world: &World, prefix: &str, count: usize) {
    for n in 0..count {
        let name = format!("{prefix}-{n}.json");
        world.drop_in(&name, one(&name));
        let done = world.spool().join("done").join(&name);
        world.eventually("an honest file is taken", || done.exists());
    }
}

fn rests(world: &World) -> Vec<Value> {
    world.state()["daemon"]["rests"].as_array().cloned().unwrap_or_default()
}

/// Has failed for a move that was refused and held up all files, and for one that held up the
/// others of its scan.
#[test]
fn case_116_a_sticky_folder_of_a_producer_holds_up_nothing_else() {
    let Some(world) = two_users("a sticky folder") else { return };
    let daemon = quick(&world);
    let folder = foes_folder(&world, "0e", 0o1777);
    for n in 0..200 {
        foes_file(&world, &folder.join(format!("{n:03}.json")), one(&format!("foe-{n}")));
    }
    // one that is refused, and a link
    foes_file(&world, &folder.join("000.bad"), "no batch");
    symlink("nowhere", folder.join("000.link")).unwrap();
    std::os::unix::fs::lchown(folder.join("000.link"), Some(FOE), None).unwrap();
    honest(&world, "a", 20);
    world.eventually("all of it is shown", || {
        rests(&world).iter().any(|rested| rested["what"] == "0e/" && rested["files"] == 202)
    });
    let rested = rests(&world).remove(0);
    assert!(rested["why"].as_str().unwrap().contains("sticky"), "{rested}");
    assert_eq!(told(&world, "resting"), 202);
    // wherever one looks
    let status = world.run(&["status"]).exits(75);
    assert!(status.out.contains("resting     0e/ ("), "{}", status.out);
    let failed = world.run(&["failed"]).ok();
    assert!(failed.out.contains("resting in inbox/, tried again later: "), "{}", failed.out);
    let failed = world.run(&["failed", "--json"]).ok().json_lines();
    assert_eq!(failed.last().unwrap()["resting"]["listed"][0]["what"], "0e/", "{failed:?}");
    assert_eq!(world.report()["resting"]["listed"][0]["what"], "0e/");
    daemon.signal("USR1");
    let latest = world.spool().join("reports/latest.json");
    world.eventually("a report is written", || latest.exists());
    let latest: Value = serde_json::from_slice(&fs::read(latest).unwrap()).unwrap();
    assert_eq!(latest["resting"]["listed"][0]["what"], "0e/");
    // tried again and again, with a pause that grows, and none of it is ingested again
    let batches = |world: &World| world.report()["totals"]["batches"].as_u64().unwrap();
    let before = batches(&world);
    honest(&world, "b", 20);
    assert_eq!(batches(&world), before + 20, "{}", world.told());
    // what is in and could not be moved counts once, also when it can be
    chmod(&folder, 0o777);
    world.until_drained();
    world.eventually("all is well again", || told(&world, "resting") == 0);
    assert_eq!(accepted(&world), 240);
    assert_eq!(world.names("done").len(), 240);
    let failed = ["0e/000.bad", "0e/000.bad.error.json", "0e/000.link", "0e/000.link.error.json"];
    assert_eq!(world.names("failed"), failed);
    assert!(world.report()["resting"].is_null());
    assert!(fault(&world).is_empty());
    assert_eq!(world.report()["totals"]["duplicate"], 0);
    daemon.stop();
}

/// Has failed for a sync of the folder that stood in the way of all until the next start.
#[test]
fn case_116_a_folder_that_its_producer_closes_later_holds_up_nothing_else() {
    let Some(world) = two_users("a closed folder") else { return };
    let daemon = quick(&world);
    let folder = foes_folder(&world, "0e", 0o777);
    for (round, mode) in [0o333, 0o000, 0o1333, 0o555].into_iter().enumerate() {
        chmod(&folder, 0o777);
        for n in 0..20 {
            let id = format!("foe-{round}-{n}");
            foes_file(&world, &folder.join(format!("{id}.json")), one(&id));
        }
        let done = world.spool().join(format!("done/0e/foe-{round}-0.json"));
        world.eventually("its first file is taken", || done.exists());
        chmod(&folder, mode);
        honest(&world, &format!("a-{round}"), 5);
        assert!(!fault(&world).contains("cannot sync"), "{}", fault(&world));
    }
    chmod(&folder, 0o777);
    world.until_drained();
    world.eventually("all is well again", || fault(&world).is_empty());
    assert_eq!(accepted(&world), 100);
    daemon.stop();
}

/// A daemon whose own folder refuses says so: that is not a producer's fault.
#[test]
fn case_116_where_done_itself_refuses_all_files_wait_and_that_of_a_source_only_its_own() {
    let Some(world) = two_users("done that refuses") else { return };
    let daemon = quick(&world);
    world.drop_in("s/a.json", one("a"));
    chown(world.inbox().join("s"), Some(65534), None).unwrap();
    world.until_drained();
    chmod(world.spool().join("done/s"), 0o555);
    world.drop_in("s/b.json", one("b"));
    honest(&world, "h", 5);
    world.eventually("it rests", || rests(&world).iter().any(|rested| rested["what"] == "s/"));
    chmod(world.spool().join("done"), 0o555);
    world.drop_in("c.json", one("c"));
    world.eventually("all wait", || world.log().contains("trying again until it passes"));
    assert!(world.names("inbox").contains(&"c.json".to_owned()));
    chmod(world.spool().join("done"), 0o755);
    chmod(world.spool().join("done/s"), 0o755);
    world.until_drained();
    assert_eq!(accepted(&world), 8);
    daemon.stop();
}

const F_SETSIG: libc::c_int = 10;

/// Takes a lease to write on a file, as its owner may. It is gone when the file is closed.
#[expect(unsafe_code, reason = "leases have no safe wrapper in std, rustix or nix")]
fn lease(file: &File) {
    // who opens it makes the kernel send a signal, by default one that ends the process
    for (command, argument) in [(F_SETSIG, libc::SIGURG), (libc::F_SETLEASE, libc::F_WRLCK)] {
        // SAFETY: the descriptor is open, and neither command touches memory
        let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
        assert_eq!(answer, 0, "{}", io::Error::last_os_error());
    }
}

/// Has failed for a `verify` that looked at no file at all when one of them could not be read.
#[test]
fn case_117_a_file_in_done_that_cannot_be_read_blinds_verify_to_no_other() {
    let world = World::with_store(1000, 0);
    for name in ["a.json", "b.json", "c.json"] {
        world.drop_in(name, one(name));
    }
    world.drain().ok();
    let held = fs::File::options().write(true).open(world.spool().join("done/b.json")).unwrap();
    lease(&held);
    fs::write(world.spool().join("done/c.json"), "something else").unwrap();
    let spool = world.spool();
    let ran = world.run(&["verify", "--spool", spool.to_str().unwrap()]).exits(65);
    assert!(ran.out.contains("file_changed") && ran.out.contains("done/c.json"), "{}", ran.out);
    assert!(ran.out.contains("not checked: done/b.json: "), "{}", ran.out);
    assert!(!ran.out.contains("done/a.json"), "{}", ran.out);
}

/// Has failed for `EAGAIN` taken for a want of threads, and for a fault of the spool: then nothing
/// rests, and all wait.
#[test]
fn case_117_a_file_on_which_its_writer_holds_a_lease_waits_alone() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    let staged = world.root().join("leased");
    fs::write(&staged, one("leased")).unwrap();
    let held = File::open(&staged).unwrap();
    lease(&held);
    fs::rename(&staged, world.inbox().join("0.json")).unwrap();
    for n in 0..20 {
        let name = format!("a-{n}.json");
        world.drop_in(&name, one(&name));
        let done = world.spool().join("done").join(&name);
        world.eventually("the others are taken", || done.exists());
        assert!(!world.log().contains("TasksMax"), "{}", world.log());
        if n == 0 {
            world.eventually("it rests alone", || told(&world, "resting") == 1);
        }
    }
    // the kernel takes the lease away after fs.lease-break-time seconds
    drop(held);
    world.until_drained();
    assert_eq!(accepted(&world), 21);
    daemon.stop();
}

/// Has failed for a hash of the whole file, which takes hours, and for a stop that called that the
/// end of the file.
#[test]
fn case_118_a_sparse_file_of_4_tib_is_refused_at_once_and_not_hashed_to_its_end() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    // as many as share the time for one
    for n in 0..5 {
        let staged = world.root().join("sparse");
        File::create(&staged).unwrap().set_len(4 << 40).unwrap();
        fs::rename(&staged, world.inbox().join(format!("0-{n}.json"))).unwrap();
    }
    honest(&world, "a", 5);
    let refused = world.spool().join("failed/0-4.json.error.json");
    world.eventually("they are refused", || refused.exists());
    for n in 0..5 {
        let reason = world.reason(&format!("0-{n}.json"));
        assert!(reason["sha256"].is_null(), "{reason}");
        assert_eq!(reason["bytes"], 4_u64 << 40, "{reason}");
    }
    // a stop does not wait for it, and says nothing that is not so
    let staged = world.root().join("sparse");
    File::create(&staged).unwrap().set_len(4 << 40).unwrap();
    fs::rename(&staged, world.inbox().join("0-9.json")).unwrap();
    daemon.stop();
    assert!(!world.log().contains("end of file"), "{}", world.log());
    assert_eq!(accepted(&world), 5);
}

/// Whatever the umask, and also where an older version has made them readable by all. Has failed for
/// a store made with mode 0644.
#[test]
fn case_122_what_is_made_in_the_spool_is_closed_to_others_whatever_the_umask() {
    for umask in ["0000", "0022", "0077"] {
        let world = World::new();
        fs::remove_dir(world.inbox()).unwrap();
        let config =
            write_config(&world, &[("window.window_ms", "1000"), ("window.lateness_ms", "0")]);
        let wrapper = ["sh", "-c", &format!("umask {umask}; exec \"$@\""), "sh"];
        let mut daemon = world.spawn_under(&wrapper, &["--config", &config]);
        daemon.until_ready();
        world.drop_in("s/a.json", one("a"));
        world.drop_in("b.json", "bad");
        world.until_drained();
        daemon.signal("USR1");
        world.eventually("a report", || world.spool().join("reports/latest.json").exists());
        let copy = world.spool().join("copy.db");
        world.run(&["backup", copy.to_str().unwrap()]).ok();
        let mut seen = 0;
        let mut folders = vec![world.spool()];
        while let Some(folder) = folders.pop() {
            for found in fs::read_dir(folder).unwrap() {
                let path = found.unwrap().path();
                let meta = fs::symlink_metadata(&path).unwrap();
                let mode = meta.permissions().mode() & 0o7777;
                let is_ours = !path.ends_with("done/s/a.json")
                    && !path.ends_with("failed/b.json")
                    && !path.ends_with("inbox/s");
                let expected = if meta.is_dir() { 0o750 } else { 0o640 };
                assert!(!is_ours || mode == expected, "{}: {mode:o} by {umask}", path.display());
                seen += 1;
                if meta.is_dir() {
                    folders.push(path);
                }
            }
        }
        assert!(seen >= 14, "{seen}");
        assert!(daemon.runs());
        // what is open to others is closed at the start, and said
        chmod(world.db(), 0o644);
        daemon.stop();
        let daemon = world.daemon_with(&["--config", &config]);
        let mode = fs::metadata(world.db()).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o640);
        assert!(world.log().contains("had mode 0644"), "{}", world.log());
        daemon.stop();
    }
}

/// Locks a file to be read, as who may read it can.
fn read_lock(file: &File) {
    rustix::fs::fcntl_lock(file, rustix::fs::FlockOperation::NonBlockingLockShared).unwrap();
}

/// Has failed for a daemon that ended since it saw nobody who holds the store.
#[test]
fn case_122_who_holds_a_lock_to_read_on_the_shared_memory_is_named_and_waited_for() {
    let world = World::with_store(1000, 0);
    let mut daemon = quick_with(&world, &[("daemon.busy_timeout_ms", "100")]);
    honest(&world, "a", 1);
    let held = File::open(world.spool().join("windowflow.db-shm")).unwrap();
    read_lock(&held);
    world.drop_in("b.json", one("b"));
    let us = format!("process {}", std::process::id());
    world.eventually("the process is named", || fault(&world).contains(&us));
    assert!(daemon.runs());
    drop(held);
    world.until_drained();
    assert_eq!(accepted(&world), 2);
    daemon.stop();
}

/// Has failed for a folder of refused files that was never looked at.
#[test]
fn case_123_the_oldest_refused_files_go_and_each_is_named_in_the_log() {
    let world = World::with_store(1000, 0);
    let config = &[
        ("retention.failed_max_bytes", "100000"),
        ("inbox.rescan_ms", "200"),
        ("daemon.log", "\"debug\""),
    ];
    let daemon = quick_with(&world, config);
    // its next turn by time is far away then
    world.eventually("retention had a turn", || world.log().contains("retention: nothing is old"));
    for n in 0..1100 {
        world.drop_in(format!("{n:04}.json"), "x");
    }
    honest(&world, "a", 3);
    world.until_drained();
    // between the removals of a file and of its reason there is one more than pairs
    world.eventually("most are removed, and each with its reason", || {
        let left = world.names("failed");
        let reasons = left.iter().filter(|name| name.ends_with(".error.json")).count();
        left.len() < 400 && reasons * 2 == left.len()
    });
    let left = world.names("failed");
    assert!(left.contains(&"1099.json".to_owned()), "{left:?}");
    assert!(world.log().contains("removed failed/0000.json with its reason, by failed_max_bytes"));
    daemon.stop();
}
