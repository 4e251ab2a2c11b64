//! What surrounds the daemon: mounts, limits of its process, other users, and a start at which
//! something is in the way that may pass.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use super::{accepted, fault, many, one, quick, write_config};
use crate::world::{Daemon, World, has_tool, skip};

fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn unprivileged() -> World {
    let world = World::unprivileged();
    world.init(1000, 0, &[]);
    world
}

/// What is in the way of that daemon: the state of one before it is there until it has its own.
fn fault_of(world: &World, daemon: &Daemon<'_>) -> String {
    let state = world.state();
    let is_its = state["daemon"]["pid"] == daemon.pid();
    let text = state["daemon"]["fault"]["text"].as_str().filter(|_| is_its);
    text.unwrap_or_default().to_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs an ignored test of this file in mounts of its own, where a script prepares the folder that
/// worlds are made in.
fn in_own_mounts(name: &str, what: &str, script: &str) {
    let name = format!("daemon::surroundings::{name}");
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{script} || exit 77; shift; exec \"$@\"");
    let ran = Command::new("unshare")
        .arg(if is_root() { "-m" } else { "-Urm" })
        .args(["sh", "-c", &script, "sh"])
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .args([&name, "--exact", "--ignored", "--nocapture"])
        .env("TMPDIR", folder.path())
        .output();
    let ran = match ran {
        Ok(ran) if ran.status.code() != Some(77) && !err(&ran).contains("unshare:") => ran,
        other => return skip(what, &format!("nothing can be mounted: {other:?}")),
    };
    let out = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{out}\n{}", err(&ran));
    assert!(out.contains("1 passed"), "{name} was not run: {out}");
}

/// Has failed with `Mounts::other` answering none: the file was ingested, and never moved.
#[test]
fn case_124_a_folder_that_is_a_mount_of_its_own_rests_and_nothing_of_it_is_taken() {
    let script = "mount -t tmpfs -o size=64m tmpfs \"$1\"";
    in_own_mounts("with_bind_mounts", "mounts of their own in the inbox", script);
}

#[test]
#[ignore = "mounts; the test of case 124 runs it in mounts of its own"]
fn with_bind_mounts() {
    let world = World::with_store(1000, 0);
    let bind = |folder: &str| {
        let path = world.spool().join(folder);
        fs::create_dir_all(&path).unwrap();
        let bound = Command::new("mount").arg("--bind").arg(&path).arg(&path).status();
        assert!(bound.unwrap().success());
    };
    let unbind = |folder: &str| {
        let path = world.spool().join(folder);
        assert!(Command::new("umount").arg("-l").arg(path).status().unwrap().success());
    };
    let place = |folder: &str| {
        let path = world.inbox().join(folder);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join(".a"), one(folder)).unwrap();
        fs::rename(path.join(".a"), path.join("a.json")).unwrap();
    };
    // there at the start, there later, and one whose folder in done/ is the mount
    bind("inbox/at-start");
    place("at-start");
    let daemon = quick(&world);
    bind("inbox/later");
    place("later");
    bind("done/far");
    place("far");
    place("plain");
    world.eventually("the plain one is taken", || world.names("done") == ["plain/a.json"]);
    world.eventually("all three rest", || super::told(&world, "resting") == 3);
    let status = world.run(&["status"]).exits(75);
    assert!(status.out.contains("is another mount than inbox/"), "{}", status.out);
    assert!(status.out.contains("it is a mount of its own"), "{}", status.out);
    assert_eq!(accepted(&world), 1, "nothing is taken that cannot be moved");
    for folder in ["inbox/at-start", "inbox/later", "done/far"] {
        unbind(folder);
    }
    world.until_drained();
    assert_eq!(accepted(&world), 4);
    assert_eq!(world.report()["totals"]["duplicate"], 0);
    world.eventually("all is well", || world.run(&["status"]).code == Some(0));
    daemon.stop();
    // one that runs once says so, too
    bind("inbox/at-start");
    fs::write(world.inbox().join("at-start/b.json"), one("b")).unwrap();
    let once = world.drain().exits(75);
    assert!(once.err.contains("mount of its own"), "{}", once.err);
    assert_eq!(world.names("inbox"), ["at-start/b.json"]);
    unbind("inbox/at-start");
}

/// Has failed without `signals::catch_file_limit`: the process ends by SIGXFSZ.
#[test]
fn case_126_a_limit_of_the_process_on_the_size_of_files_is_named() {
    if !has_tool("prlimit", "a limit on the size of files") {
        return;
    }
    let world = World::with_store(1000, 0);
    let config = write_config(&world, &[]);
    world.drop_in("a.json", many("a", 30_000));
    let limited = ["prlimit", "--fsize=300000:unlimited"];
    let once = world.run_under(&limited, &["run", "--once", "--config", &config]).exits(75);
    assert!(once.err.contains("no file of more than 300,000 bytes"), "{}", once.err);
    assert!(once.err.contains("LimitFSIZE="), "{}", once.err);
    let daemon = world.spawn_under(&limited, &["--config", &config]);
    world.eventually("it is named", || fault_of(&world, &daemon).contains("LimitFSIZE="));
    world.run(&["status"]).exits(75);
    assert_eq!(world.names("inbox"), ["a.json"]);
    // what was lifted is noticed without a restart
    let pid = daemon.pid().to_string();
    let lifted = Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited"]).status();
    assert!(lifted.unwrap().success());
    world.until_drained();
    assert_eq!(accepted(&world), 30_000);
    assert_eq!(world.report()["totals"]["duplicate"], 0);
    daemon.stop();
}

/// Has failed with `Room::around` looking at the store and its folder only: the disk is blamed.
#[test]
fn case_127_log_files_of_another_user_are_named_with_the_chown_to_type() {
    if !is_root() {
        return skip("log files of another user", "only root can give a file away");
    }
    for ending in ["-wal", "-shm"] {
        let world = unprivileged();
        world.drop_in("a.json", one("a"));
        let config = write_config(&world, &[]);
        let left = world.spool().join(format!("windowflow.db{ending}"));
        fs::write(&left, "").unwrap();
        chmod(&left, 0o644);
        chown(&left, Some(0), Some(0)).unwrap();
        let expected = [left.to_str().unwrap(), "belongs to root:root", "run: chown nobody "];
        let once = world.run(&["run", "--once", "--config", &config]).exits(75);
        assert!(expected.iter().all(|text| once.err.contains(text)), "{}", once.err);
        let daemon = world.spawn(&["--config", &config]);
        world.eventually("it is named", || {
            expected.iter().all(|text| fault_of(&world, &daemon).contains(text))
        });
        chown(&left, Some(65534), Some(65534)).unwrap();
        world.until_drained();
        assert_eq!(accepted(&world), 1);
        daemon.stop();
    }
}

/// The threads of a daemon, by number and name.
fn threads(daemon: &Daemon<'_>) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().flatten();
    let name = |path: &Path| fs::read_to_string(path.join("comm")).unwrap_or_default();
    let mut found: Vec<_> = tasks
        .map(|task| (task.file_name().to_string_lossy().into_owned(), name(&task.path())))
        .collect();
    found.sort();
    found
}

/// A thread that is started while memory is short can die before it runs anything of ours. Has
/// failed with a reader thread for each group of files.
#[test]
fn case_132_no_thread_is_started_while_files_come_in() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    world.eventually("it is idle", || world.state()["daemon"]["phase"] == "idle");
    let before = threads(&daemon);
    assert!(before.iter().any(|(_, name)| name.trim_end() == "reader"), "{before:?}");
    for n in 0..5 {
        world.drop_in(format!("{n}.json"), one(&format!("id-{n}")));
        world.until_drained();
    }
    assert_eq!(threads(&daemon), before);
    daemon.stop();
}

/// Everything in a folder that belongs to root.
fn of_root(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let seen = entry.metadata().unwrap();
        if seen.uid() == 0 {
            found.push(entry.path().display().to_string());
        }
        if seen.is_dir() {
            of_root(&entry.path(), found);
        }
    }
}

/// Has failed with `owner::refuse_other` left out: root ran the daemon, and left files of its own.
#[test]
fn case_128_root_does_not_write_into_the_spool_of_another_user() {
    if !is_root() {
        return skip("root in the spool of another user", "the tests do not run as root");
    }
    let world = unprivileged();
    world.drop_in("bad.json", "no batch");
    world.drop_in("a.json", one("a"));
    world.drain().exits(65);
    // a daemon that was killed leaves its log
    let daemon = quick(&world);
    daemon.kill();
    let batch = world.root().join("b.json");
    fs::write(&batch, one("b")).unwrap();
    let batch = batch.to_str().unwrap();
    let spool = world.spool();
    let spool = spool.to_str().unwrap();
    let as_root = |args: &[&str], by_variable: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windowflow"));
        command.args(args).env_remove("WINDOWFLOW_DB").env_remove("RUST_LOG");
        match by_variable {
            true => command.env("WINDOWFLOW_SPOOL", spool),
            false => command.env_remove("WINDOWFLOW_SPOOL").args(["--spool", spool]),
        };
        command.output().unwrap()
    };
    let writing: [&[&str]; 9] = [
        &["run", "--once"],
        &["ingest", batch],
        &["advance", "5000"],
        &["retry", "--all"],
        &["init", "--window-ms", "1000", "--lateness-ms", "0"],
        &["sources", "--declare", "gw1"],
        &["release", "--all"],
        &["prune"],
        &["verify", "--repair"],
    ];
    for args in writing {
        for by_variable in [false, true] {
            let ran = as_root(args, by_variable);
            let said = err(&ran);
            assert_eq!(ran.status.code(), Some(78), "{args:?}: {said}");
            let typed = args.join(" ");
            let expected = format!("windowflow {typed} --spool {spool}");
            assert!(said.contains("sudo -u nobody ") && said.contains(&expected), "{said}");
            assert!(said.contains("belongs to nobody:"), "{said}");
        }
    }
    let reading: [&[&str]; 8] = [
        &["report"],
        &["sources"],
        &["failed"],
        &["late"],
        &["held"],
        &["verify"],
        &["check", batch],
        &["explain", "--id", "a"],
    ];
    for args in reading {
        let ran = as_root(args, false);
        assert_eq!(ran.status.code(), Some(0), "{args:?}: {}", err(&ran));
    }
    let mut left = Vec::new();
    of_root(&world.spool(), &mut left);
    // the files that were dropped were root's
    left.retain(|path| !path.ends_with(".json") || path.ends_with(".error.json"));
    assert_eq!(left, Vec::<String>::new());
    world.drop_in("c.json", one("c"));
    world.drain().ok();
    assert_eq!(accepted(&world), 2);
}

/// The other direction: root's own spool, and one that was lent, are no reason to refuse.
#[test]
fn case_128_who_owns_the_spool_writes_to_it() {
    let world = World::with_store(1000, 0);
    world.drop_in("a.json", one("a"));
    world.drain().ok();
    world.run(&["advance", "5000"]).ok();
    assert_eq!(accepted(&world), 1);
}

/// A daemon that uses a store elsewhere is followed by a run that names none. Has failed with the
/// store of the spool taken instead: there is none.
#[test]
fn case_128_a_run_without_a_store_uses_the_one_that_was_used_last() {
    let world = World::new();
    let store = world.root().join("elsewhere.db");
    let store = store.to_str().unwrap();
    world.run(&["--db", store, "init", "--window-ms", "1000", "--lateness-ms", "0"]).ok();
    world.drop_in("a.json", one("a"));
    world.run(&["--db", store, "run", "--once"]).ok();
    world.drop_in("b.json", one("b"));
    let mut again = world.command(&["run", "--once"]);
    let again = again.env_remove("WINDOWFLOW_DB").output().unwrap();
    assert!(again.status.success(), "{}", err(&again));
    let report = world.run(&["--db", store, "report", "--json"]).ok().json();
    assert_eq!(report["totals"]["accepted"], 2);
}

/// Has failed with a dumper that waits for the next request.
#[test]
fn case_129_a_report_that_failed_is_written_when_its_cause_is_gone() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    let reports = world.spool().join("reports");
    fs::rename(&reports, world.root().join("away")).unwrap();
    symlink("/no/such/folder", &reports).unwrap();
    daemon.signal("USR1");
    world.eventually("it is in the way", || fault(&world).contains("no report"));
    world.run(&["status"]).exits(75);
    fs::remove_file(&reports).unwrap();
    fs::rename(world.root().join("away"), &reports).unwrap();
    world.eventually("all is well", || world.run(&["status"]).code == Some(0));
    assert!(reports.join("latest.json").exists(), "the request is answered after all");
    daemon.stop();
}

/// Has failed with a reload that only logs, and a start that leaves no note.
#[test]
fn case_130_a_reload_that_failed_shows_until_a_good_one_and_a_failed_start_says_why() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    let path = world.root().join("windowflow.toml");
    fs::write(&path, "inbox.nonsense = 1").unwrap();
    daemon.signal("HUP");
    let shows = || fault(&world).contains("nonsense") && fault(&world).contains("next start");
    world.eventually("it shows", shows);
    let status = world.run(&["status"]).exits(75);
    assert!(status.out.contains("nonsense"), "{}", status.out);
    let config = write_config(&world, &[]);
    daemon.signal("HUP");
    world.eventually("all is well", || world.run(&["status"]).code == Some(0));
    // other settings than those of the store would fail the next start as well
    let other = [("window.window_ms", "7"), ("window.lateness_ms", "0")];
    write_config(&world, &other);
    daemon.signal("HUP");
    world.eventually("it shows", || fault(&world).contains("never changes its settings"));
    fs::write(&path, "inbox.nonsense = 1").unwrap();
    daemon.signal("HUP");
    world.eventually("it shows", shows);
    daemon.stop();
    world.run(&["run", "--config", &config]).exits(78);
    let status = world.run(&["status"]).exits(1);
    assert!(status.out.contains("at its end:"), "{}", status.out);
    assert!(status.out.contains("nonsense"), "{}", status.out);
    assert!(status.out.contains(world.db().to_str().unwrap()), "{}", status.out);
    write_config(&world, &[]);
    let daemon = quick(&world);
    assert_eq!(fault(&world), "");
    daemon.stop();
}

/// What a service manager is told, on a socket of this world.
fn told_to_manager(world: &World) -> UnixDatagram {
    let path = world.root().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    chmod(&path, 0o777);
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    socket
}

/// Has failed with a start that ends with 1 when a probe fails.
#[test]
fn case_140_what_passes_is_waited_out_at_the_start_as_it_is_later() {
    for folder in ["done", "failed", "inbox"] {
        let world = unprivileged();
        let config = write_config(&world, &[]);
        world.run(&["run", "--once", "--config", &config]).ok();
        world.drop_in("a.json", one("a"));
        let path = world.spool().join(folder);
        chmod(&path, 0o555);
        let names_it = |text: &str| {
            text.contains(path.to_str().unwrap()) && text.contains("read, write and search")
        };
        let once = world.run(&["run", "--once", "--config", &config]).exits(75);
        assert!(names_it(&once.err), "{}", once.err);
        let manager = told_to_manager(&world);
        let mut command = world.command(&["run", "--config", &config]);
        command.env("NOTIFY_SOCKET", world.root().join("notify"));
        let daemon = world.start(command);
        world.eventually("it is named", || names_it(&fault_of(&world, &daemon)));
        world.run(&["status"]).exits(75);
        assert_eq!(world.state()["daemon"]["phase"], "backing_off");
        // whoever started it does not wait, and can see why it does
        let mut said = String::new();
        world.eventually("the service manager knows", || {
            let mut message = [0; 4096];
            while let Ok(bytes) = manager.recv(&mut message) {
                said.push_str(&String::from_utf8_lossy(&message[..bytes]));
                said.push('\n');
            }
            said.contains("READY=1") && said.contains("STATUS=backing off: cannot make")
        });
        assert_eq!(world.names("inbox"), ["a.json"]);
        chmod(&path, 0o755);
        world.until_drained();
        assert_eq!(accepted(&world), 1);
        world.eventually("all is well", || world.run(&["status"]).code == Some(0));
        daemon.stop();
    }
}

/// What looks like damage is tried once more, and a start that then ends was never ready. Has failed
/// with READY at the first try of any kind.
#[test]
fn case_140_a_start_that_gives_up_was_never_ready() {
    let world = World::with_store(1000, 0);
    let config = write_config(&world, &[]);
    fs::write(world.db(), "this was a store once, before somebody wrote over it").unwrap();
    let manager = told_to_manager(&world);
    let mut command = world.command(&["run", "--config", &config]);
    command.env("NOTIFY_SOCKET", world.root().join("notify"));
    let mut daemon = world.start(command);
    assert_eq!(daemon.wait().code(), Some(1), "{}", world.told());
    let (mut said, mut message) = (String::new(), [0; 4096]);
    while let Ok(bytes) = manager.recv(&mut message) {
        said.push_str(&String::from_utf8_lossy(&message[..bytes]));
    }
    assert!(said.contains("STATUS=") && !said.contains("READY=1"), "{said}");
}

/// Not even the state can be written: the log says so. A stop is obeyed meanwhile.
#[test]
fn case_140_a_lock_that_cannot_be_taken_is_waited_for() {
    let world = unprivileged();
    let config = write_config(&world, &[]);
    world.drop_in("a.json", one("a"));
    chmod(world.spool(), 0o555);
    let once = world.run(&["run", "--once", "--config", &config]).exits(75);
    assert!(once.err.contains("cannot lock the spool at "), "{}", once.err);
    let waiting = || world.log().matches("cannot lock the spool at ").count();
    let daemon = world.spawn(&["--config", &config]);
    world.eventually("it is logged", || waiting() == 1);
    daemon.stop();
    let daemon = world.spawn(&["--config", &config]);
    world.eventually("it is logged", || waiting() == 2);
    chmod(world.spool(), 0o755);
    world.until_drained();
    assert_eq!(accepted(&world), 1);
    daemon.stop();
}

/// Has failed with the path of the file in the message, and with `chmod g+r` as the only hint.
#[test]
fn case_133_advice_names_the_object_at_fault_its_owner_and_its_mode() {
    let world = unprivileged();
    let daemon = quick(&world);
    let done = world.spool().join("done");
    chmod(&done, 0o500);
    world.drop_in("p.json", one("p"));
    world.eventually("it is in the way", || fault(&world).contains("not moved"));
    let said = fault(&world);
    let shown = done.to_str().unwrap();
    let expected = format!("not moved: {shown}: Permission denied");
    assert!(said.contains(&expected), "{said}");
    assert!(said.contains("mode 0500") && said.contains("chmod u+rwx "), "{said}");
    chmod(&done, 0o750);
    world.until_drained();
    if is_root() {
        let staged = world.root().join("h.json");
        fs::write(&staged, one("h")).unwrap();
        chmod(&staged, 0o640);
        fs::rename(&staged, world.inbox().join("h.json")).unwrap();
        world.until_drained();
        let hint = world.reason("h.json")["hint"].as_str().unwrap().to_owned();
        for text in ["belongs to root:root, mode 0640", "run: chgrp nogroup ", "retry h.json"] {
            assert!(hint.contains(text), "{text}: {hint}");
        }
        assert!(!hint.contains("chmod g+r"), "it has that: {hint}");
    }
    daemon.stop();
}

#[test]
fn case_133_a_limit_on_open_files_is_no_matter_of_rights() {
    if !has_tool("prlimit", "a limit on open files") {
        return;
    }
    let world = World::with_store(1000, 0);
    let config = write_config(&world, &[]);
    let mut named = 0;
    for most in 4..24 {
        world.drop_in("a.json", one(&format!("a{most}")));
        let limit = format!("--nofile={most}:{most}");
        let ran = world.run_under(&["prlimit", &limit], &["run", "--once", "--config", &config]);
        let said = &ran.err;
        if ran.code == Some(0) || said.contains("error while loading") {
            continue;
        }
        assert!(!said.contains("the right to"), "{most}: {said}");
        assert!(!said.contains("must own"), "{most}: {said}");
        assert!(!said.contains("panicked"), "{most}: {said}");
        assert!(said.contains("ulimit -n"), "{most}: {said}");
        assert_eq!(ran.code, Some(75), "{most}: {said}");
        named += 1;
    }
    assert!(named >= 3, "only {named} limits were met");
    world.drain().ok();
}

#[test]
fn case_133_a_folder_for_temporary_files_that_is_not_there_is_named() {
    let world = World::with_store(1000, 0);
    let mut command = world.command(&["ingest", "-"]);
    let ran = command.env("TMPDIR", "/no/such/folder").output().unwrap();
    let said = err(&ran);
    assert_eq!(ran.status.code(), Some(75), "{said}");
    assert!(said.contains("/no/such/folder") && said.contains("TMPDIR"), "{said}");
}

/// Only where the file system knows the attribute, and for root.
#[test]
fn case_133_an_immutable_file_is_called_so() {
    let world = World::with_store(1000, 0);
    let file = world.inbox().join("i.json");
    world.drop_in("i.json", one("i"));
    let chattr = |how: &str| Command::new("chattr").arg(how).arg(&file).status();
    if !chattr("+i").is_ok_and(|status| status.success()) {
        return skip("an immutable file", "chattr +i is refused here");
    }
    let daemon = quick(&world);
    world.eventually("it is in the way", || fault(&world).contains("immutable"));
    let said = fault(&world);
    assert!(chattr("-i").unwrap().success());
    assert!(said.contains("run: chattr -i") && !said.contains("the right to"), "{said}");
    world.until_drained();
    assert_eq!(accepted(&world), 1);
    daemon.stop();
}

/// Where the daemon's store is, only a file says that others may not read. Has failed with: no
/// store, run init.
#[test]
fn case_133_who_may_not_look_is_not_told_to_make_a_store() {
    if !is_root() {
        return skip("a reader without rights", "the tests do not run as root");
    }
    let outsider = World::unprivileged();
    let world = World::new();
    chmod(world.root(), 0o755);
    chmod(world.spool(), 0o711);
    let state = world.root().join("state");
    fs::create_dir(&state).unwrap();
    chmod(&state, 0o700);
    let store = state.join("store.db");
    let store = store.to_str().unwrap();
    world.run(&["--db", store, "init", "--window-ms", "1000", "--lateness-ms", "0"]).ok();
    world.run(&["--db", store, "run", "--once"]).ok();
    let report = |args: &[&str]| {
        let mut command = outsider.command(args);
        command.env_remove("WINDOWFLOW_DB").env_remove("WINDOWFLOW_SPOOL");
        let ran = command.output().unwrap();
        (ran.status.code(), err(&ran))
    };
    let spool = world.spool();
    for args in [&["report", "--spool", spool.to_str().unwrap()][..], &["report", "--db", store]] {
        let (code, said) = report(args);
        assert_eq!(code, Some(75), "{args:?}: {said}");
        assert!(said.contains("belongs to root:root"), "{args:?}: {said}");
        assert!(!said.contains("init"), "{args:?}: {said}");
    }
}

/// Has failed with the free bytes as the reason.
#[test]
fn case_133_inodes_that_are_used_up_are_told_from_bytes() {
    let script = "mount -t tmpfs -o size=64m,nr_inodes=60 tmpfs \"$1\"";
    in_own_mounts("without_inodes", "inodes that are used up", script);
}

#[test]
#[ignore = "needs a disk with few inodes; the test of case 133 runs it on one"]
fn without_inodes() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    world.drop_in("a.json", one("a"));
    world.until_drained();
    fs::write(world.inbox().join(".bad"), "no batch").unwrap();
    let mut taken = Vec::new();
    for n in 0..200 {
        let path = world.root().join(format!("taken-{n}"));
        if fs::write(&path, "").is_err() {
            break;
        }
        taken.push(path);
    }
    assert!(taken.len() < 200, "this disk has many inodes");
    // a refused file needs one for its reason
    fs::rename(world.inbox().join(".bad"), world.inbox().join("bad.json")).unwrap();
    world.eventually("it is named", || fault(&world).contains("no inodes left"));
    assert!(!fault(&world).contains("disk full"), "{}", fault(&world));
    for path in taken {
        fs::remove_file(path).unwrap();
    }
    world.until_drained();
    assert_eq!(world.names("failed"), ["bad.json", "bad.json.error.json"]);
    world.eventually("all is well", || world.run(&["status"]).code == Some(0));
    daemon.stop();
}
