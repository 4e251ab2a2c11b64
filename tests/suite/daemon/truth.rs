//! The state of the daemon tells the truth in every fault: what is in the way, where, and what to
//! do; in `status` and in the log, once, until it is over.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::Connection;

use super::{accepted, fault, many, one, quick, quick_with, write_config};
use crate::world::{World, has_tool};

/// How many lines of the log are of that level.
fn lines(world: &World, level: &str) -> usize {
    let log = world.log();
    log.lines().filter(|line| line.split_whitespace().nth(1) == Some(level)).count()
}

fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn phase(world: &World) -> String {
    world.state()["daemon"]["phase"].as_str().unwrap_or_default().to_owned()
}

/// A store that others hold is waited for inside the store, where nothing is said: the state tells
/// of it long before that gives up. Without the look at its progress it says "working" throughout.
#[test]
fn a_store_that_does_not_answer_is_told_of_while_it_is_waited_for() {
    let world = World::with_store(1000, 0);
    let daemon = quick_with(&world, &[("daemon.busy_timeout_ms", "60000")]);
    let other = Connection::open(world.db()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    world.drop_in("a.json", one("a"));
    world.eventually("it says so", || phase(&world) == "backing_off");
    let text = fault(&world);
    for named in [
        "nothing moves for",
        "inbox/a.json",
        world.db().to_str().unwrap(),
        &format!("process {}", std::process::id()),
    ] {
        assert!(text.contains(named), "{named}: {text}");
    }
    let status = world.run(&["status"]).exits(75);
    assert!(status.out.contains("backing off: nothing moves for"), "{}", status.out);
    other.execute_batch("ROLLBACK").unwrap();
    world.until_drained();
    world.eventually("it is over", || fault(&world).is_empty());
    world.run(&["status"]).ok();
    let log = world.log();
    let said = |what: &str| log.lines().filter(|line| line.contains(what)).count();
    assert_eq!(
        (said("WARN  nothing moves"), said("what was in the way: nothing")),
        (1, 1),
        "{log}"
    );
    assert_eq!(accepted(&world), 1);
    daemon.stop();
}

/// When the system refuses the locks that SQLite reads under, that waits and tries again for many
/// seconds, and neither answers nor fails.
#[test]
fn case_p3_locks_that_fail_where_nothing_comes_back_are_told_of() {
    if !has_tool("strace", "locks that fail inside the store") {
        return;
    }
    let world = World::with_store(1000, 0);
    // a log is there, so that all begins with reading it
    let other = Connection::open(world.db()).unwrap();
    other.execute_batch("PRAGMA user_version").unwrap();
    let config = write_config(&world, &[]);
    let strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fcntl"];
    let inject = ["-e", "inject=fcntl:error=ENOLCK:when=12+"];
    let mut daemon = world.spawn_under(&[&strace[..], &inject].concat(), &["--config", &config]);
    world.drop_in("a.json", one("a"));
    world.eventually("it says so", || {
        let state = world.state();
        let text = state["daemon"]["fault"]["text"].as_str().unwrap_or_default();
        text.contains(world.db().to_str().unwrap())
    });
    assert_ne!(world.run(&["status"]).code, Some(0));
    assert_eq!(world.names("inbox"), ["a.json"]);
    daemon.signal("KILL");
    daemon.wait();
    drop(other);
    world.drain().ok();
    assert_eq!(accepted(&world), 1);
}

/// Without the bound there is a line for every file.
#[test]
fn a_thousand_files_in_the_same_trouble_make_a_few_lines() {
    let world = World::unprivileged();
    world.init(1000, 0, &[]);
    world.run(&["run", "--once"]).ok();
    let folder = world.inbox().join("press");
    fs::create_dir(&folder).unwrap();
    for n in 0..1000 {
        fs::write(folder.join(format!("{n:04}.json")), one(&format!("id-{n}"))).unwrap();
    }
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).unwrap();
    }
    chmod(&folder, 0o555);
    let daemon = quick(&world);
    world.eventually("all of them are stuck", || super::told(&world, "resting") == 1000);
    let text = fault(&world);
    assert!(text.contains("so are 999 other files") && text.contains("give the user"), "{text}");
    world.eventually("it waits with them", || phase(&world) == "backing_off");
    world.run(&["status"]).exits(75);
    // another comes through all the same
    world.drop_in("other.json", one("other"));
    world.eventually("it is taken", || world.names("done") == ["other.json"]);
    assert!(!fault(&world).is_empty(), "a file that went well hides the others");
    let (errors, warnings) = (lines(&world, "ERROR"), lines(&world, "WARN"));
    assert!(errors == 1 && warnings <= 2, "{errors} errors, {warnings} warnings");
    chmod(&folder, 0o755);
    world.until_drained();
    world.eventually("it is over", || fault(&world).is_empty());
    world.run(&["status"]).ok();
    assert_eq!(world.names("done").len(), 1001);
    assert_eq!(accepted(&world), 1001);
    assert_eq!(world.report()["totals"]["duplicate"], 0);
    let log = world.log();
    assert_eq!(log.lines().filter(|line| line.contains("going on after")).count(), 1, "{log}");
    daemon.stop();
}

/// What goes wrong on other threads is in the state as well, until it goes right.
#[test]
fn a_report_that_cannot_be_written_is_shown_until_one_is() {
    let world = World::unprivileged();
    world.init(1000, 0, &[]);
    let daemon = quick(&world);
    let reports = world.spool().join("reports");
    chmod(&reports, 0o555);
    let asked = || world.log().matches("no report: ").count();
    daemon.signal("USR1");
    world.eventually("it says so", || fault(&world).contains("no report: cannot write"));
    world.run(&["status"]).exits(75);
    for _ in 0..50 {
        daemon.signal("USR1");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    world.drop_in("a.json", one("a"));
    world.until_drained();
    assert_eq!(asked(), 1, "{}", world.log());
    assert!(!fault(&world).is_empty());
    chmod(&reports, 0o755);
    daemon.signal("USR1");
    world.eventually("the next is written", || reports.join("latest.json").exists());
    world.eventually("it is over", || fault(&world).is_empty());
    world.run(&["status"]).ok();
    daemon.stop();
}

#[test]
fn one_that_gave_up_is_asked_afterwards_why() {
    let world = World::with_store(1000, 0);
    let config = write_config(&world, &[]);
    let other = Connection::open(world.db()).unwrap();
    other.pragma_update(None, "user_version", 999).unwrap();
    drop(other);
    world.run(&["run", "--config", &config]).exits(78);
    // the store cannot be read by this version
    let status = world.run(&["status"]).exits(78);
    assert!(status.out.contains("at its end: "), "{}", status.out);
    assert!(status.out.contains(world.db().to_str().unwrap()), "{}", status.out);
}

/// Neither a full disk behind standard error nor a reader that went away ends the daemon.
#[test]
fn output_that_goes_nowhere_stops_nothing() {
    for redirected in [
        "exec \"$@\" >/dev/full 2>/dev/full",
        "exec \"$@\" >&- 2>&-",
        // whoever reads the log is gone
        "exec \"$@\" > >(exit) 2> >(exit)",
    ] {
        if !has_tool("bash", "output that goes nowhere") {
            return;
        }
        let world = World::with_store(1000, 0);
        let config = write_config(&world, &[("daemon.log", "\"debug\"")]);
        let wrapper = ["bash", "-c", redirected, "bash"];
        let mut daemon = world.spawn_under(&wrapper, &["--config", &config]);
        daemon.until_ready();
        for n in 0..5 {
            world.drop_in(format!("{n}.json"), many(&format!("id-{n}"), 10));
        }
        world.drop_in("bad.json", "{");
        world.until_drained();
        daemon.signal("USR1");
        let report = world.spool().join("reports/latest.json");
        world.eventually("a report is written", || report.exists());
        assert!(daemon.runs(), "{redirected}");
        assert_eq!(accepted(&world), 50, "{redirected}");
        daemon.stop();
    }
}
