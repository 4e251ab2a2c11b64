//! Group G: signals at any time, and reports on request.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::Value;

use super::{NEVER_RESCAN, accepted, accepted_in, many, one, quick, quick_with, soaking};
use super::{skip, write_config};
use crate::world::{Daemon, World};

/// The reports written so far, without `latest.json`; each must be whole and agree with itself.
fn reports(world: &World) -> Vec<(PathBuf, Value)> {
    let Ok(entries) = fs::read_dir(world.spool().join("reports")) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().as_encoded_bytes().starts_with(b"report-") {
            let text = fs::read(&path).unwrap();
            let report: Value = serde_json::from_slice(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            accepted_in(&report);
            found.push((path, report));
        }
    }
    found
}

/// Waits until that file is being ingested.
fn until_in_hand(world: &World, name: &str) {
    world.eventually("it is in hand", || {
        let state = world.state();
        state["daemon"]["file"] == name && state["daemon"]["phase"] == "working"
    });
}

#[test]
fn case_100_sigterm_at_any_moment_after_the_start_ends_in_good_order() {
    let world = World::with_store(1000, 0);
    let config = write_config(&world, &[NEVER_RESCAN]);
    let backlog = if soaking() { 1000 } else { 300 };
    for n in 0..backlog {
        world.drop_in(format!("{n:04}.json"), one(&format!("id-{n}")));
    }
    let points = if soaking() { 200 } else { 30 };
    for point in 0..points {
        let mut daemon = world.spawn(&["--config", &config]);
        // the very first moments are those of the loader, which no program can guard
        world.eventually("signals are caught", || daemon.catches(libc::SIGTERM));
        std::thread::sleep(Duration::from_micros(point * 500_000 / points / 4));
        daemon.signal(if point % 2 == 0 { "TERM" } else { "INT" });
        let status = daemon.wait();
        assert_eq!(status.code(), Some(0), "point {point}: {status}\n{}", world.told());
        let (inbox, done) = (world.names("inbox").len(), world.names("done").len());
        assert_eq!(inbox + done, backlog, "point {point}: {}", world.told());
    }
    world.drain().ok();
    let report = world.report();
    assert_eq!(report["totals"]["accepted"], backlog);
    assert_eq!(report["totals"]["duplicate"], 0, "a stop in good order leaves nothing to repeat");
    accepted(&world);
}

#[test]
fn case_100_a_signal_in_the_first_moments_loses_nothing() {
    let world = World::with_store(1000, 0);
    let config = write_config(&world, &[]);
    let rounds = if soaking() { 200 } else { 20 };
    for round in 0..rounds {
        world.drop_in(format!("{round}.json"), one(&format!("id-{round}")));
        let mut daemon = world.spawn(&["--config", &config]);
        std::thread::sleep(Duration::from_micros(round * 300));
        daemon.signal("TERM");
        let status = daemon.wait();
        let is_clean = status.code() == Some(0) || status.signal() == Some(libc::SIGTERM);
        assert!(is_clean, "{status}\n{}", world.told());
    }
    world.drain().ok();
    assert_eq!(accepted(&world), rounds as i64);
}

/// Stops a daemon that has this file in hand; whether the file was finished. If not, it must be in
/// the inbox and nothing of it in the store.
fn stopped_within(world: &World, grace_ms: &str, name: &str, events: usize) -> bool {
    let before = accepted(world);
    let config = write_config(world, &[("daemon.stop_grace_ms", grace_ms)]);
    let daemon = world.spawn(&["--config", &config]);
    daemon.until_ready();
    world.drop_in(name, many(name, events));
    let is_done = || world.names("done").iter().any(|done| done == name);
    world.eventually("it is in hand", || world.state()["daemon"]["file"] == name || is_done());
    daemon.stop();
    let counted = accepted(world) - before;
    if is_done() {
        assert_eq!(counted, events as i64, "{}", world.told());
    } else {
        assert_eq!(counted, 0, "a part of it is in");
        assert_eq!(world.names("inbox"), [name], "{}", world.told());
    }
    is_done()
}

#[test]
fn case_101_sigterm_in_the_middle_of_a_large_file_finishes_it_within_the_grace_time() {
    let world = World::with_store(1000, 1_000_000_000);
    let events = if soaking() { 1_000_000 } else { 60_000 };
    assert!(stopped_within(&world, "3600000", "a.json", events));
    world.drain().ok();
    assert_eq!(accepted(&world), events as i64);
}

#[test]
fn case_101_sigterm_in_the_middle_of_a_large_file_undoes_it_after_the_grace_time() {
    let world = World::with_store(1000, 1_000_000_000);
    let mut expected = 0;
    // a fast machine may be through with it before the signal arrives: then a larger one
    for (name, events) in [("a.json", 60_000), ("b.json", 400_000), ("c.json", 2_000_000)] {
        expected += events as i64;
        if !stopped_within(&world, "0", name, events) {
            world.drain().ok();
            assert_eq!(accepted(&world), expected);
            assert_eq!(world.report()["totals"]["duplicate"], 0);
            return;
        }
    }
    panic!("no file was large enough to be stopped in\n{}", world.told());
}

/// A daemon that has a file in hand and cannot go on with it, since the store is held by another.
fn stuck<'w>(world: &'w World, config: &str) -> (Daemon<'w>, Connection) {
    let daemon = world.spawn(&["--config", config]);
    daemon.until_ready();
    let other = Connection::open(world.db()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    world.drop_in("stuck.json", one("stuck"));
    until_in_hand(world, "stuck.json");
    (daemon, other)
}

#[test]
fn case_104_a_second_signal_stops_at_once_and_loses_nothing() {
    for second in ["TERM", "INT"] {
        let world = World::with_store(1000, 0);
        let settings = [("daemon.busy_timeout_ms", "60000"), ("daemon.stop_grace_ms", "3600000")];
        let config = write_config(&world, &settings);
        let (mut daemon, other) = stuck(&world, &config);
        daemon.signal("TERM");
        world.eventually("it is stopping", || world.log().contains("INFO  stopping"));
        assert!(daemon.runs(), "{}", world.told());
        daemon.signal(second);
        assert_eq!(daemon.wait().code(), Some(1), "{}", world.told());
        assert!(world.log().contains("second time"), "{}", world.log());
        assert_eq!(world.names("inbox"), ["stuck.json"]);
        drop(other);
        world.drain().ok();
        assert_eq!(accepted(&world), 1);
    }
}

#[test]
fn case_104_two_signals_at_the_same_moment_end_it() {
    let world = World::with_store(1000, 0);
    for (n, signals) in [["TERM", "TERM"], ["INT", "TERM"], ["TERM", "INT"]].iter().enumerate() {
        world.drop_in(format!("{n}.json"), many(&format!("of-{n}"), 20_000));
        let mut daemon = quick(&world);
        for signal in signals {
            // it may have ended after the first
            if daemon.runs() {
                daemon.signal(signal);
            }
        }
        let status = daemon.wait();
        assert!(matches!(status.code(), Some(0 | 1)), "{status}\n{}", world.told());
    }
    world.drain().ok();
    assert_eq!(world.report()["totals"]["accepted"].as_i64(), Some(accepted(&world)));
    assert_eq!(world.names("done").len(), 3);
    let report = world.report();
    let late = report["totals"]["late"].as_i64().unwrap();
    assert_eq!(accepted(&world) + late, 60_000);
}

#[test]
fn sigterm_is_obeyed_however_often_it_was_told_to_reload_and_report() {
    let world = World::with_store(1000, 0);
    let settings = [("daemon.busy_timeout_ms", "60000"), ("daemon.stop_grace_ms", "3600000")];
    let (mut daemon, other) = stuck(&world, &write_config(&world, &settings));
    // many more than any queue holds, while the worker can take none of them up
    for n in 1..=60 {
        daemon.signal("HUP");
        daemon.signal("USR1");
        let read = || world.log().matches("configuration read again").count();
        let mut seen = read();
        let begun = Instant::now();
        // signals of one kind melt into one while they wait
        while seen < n && begun.elapsed() < Duration::from_millis(50) {
            std::thread::sleep(Duration::from_millis(1));
            seen = read();
        }
    }
    daemon.signal("TERM");
    world.eventually("it is stopping", || world.log().contains("INFO  stopping"));
    assert!(daemon.runs());
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(daemon.wait().code(), Some(0), "{}", world.told());
    assert_eq!(world.names("inbox"), Vec::<String>::new(), "the file in hand was not finished");
    assert_eq!(accepted(&world), 1);
}

#[test]
fn sigusr1_every_millisecond_from_the_first_moment_on_does_no_harm() {
    let world = World::with_store(1000, 0);
    let config = write_config(&world, &[]);
    for n in 0..50 {
        world.drop_in(format!("{n:02}.json"), many(&format!("of-{n}"), 20));
    }
    let mut daemon = world.spawn(&["--config", &config]);
    world.eventually("signals are caught", || daemon.catches(libc::SIGUSR1));
    for _ in 0..1000 {
        daemon.signal("USR1");
        std::thread::sleep(Duration::from_millis(1));
        assert!(daemon.runs(), "{}", world.told());
    }
    world.until_drained();
    world.eventually("there is a report", || !reports(&world).is_empty());
    // the last one asked for shows all
    world.eventually("a report of all", || {
        daemon.signal("USR1");
        let path = world.spool().join("reports/latest.json");
        let latest: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        latest["totals"]["batches"] == 50
    });
    daemon.stop();
    let hidden = fs::read_dir(world.spool().join("reports"))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().as_encoded_bytes().starts_with(b"."));
    assert_eq!(hidden.count(), 0, "an unfinished report is left");
    reports(&world);
}

#[test]
fn sigusr1_in_the_middle_of_a_large_file_shows_what_was_before_it() {
    let world = World::with_store(1000, 1_000_000_000);
    let daemon = quick(&world);
    world.drop_in("before.json", many("before", 100));
    world.until_drained();
    // on a fast machine the file may be over too soon: then a larger one
    for (round, events) in [100_000, 400_000, 1_600_000].into_iter().enumerate() {
        let expected = accepted(&world);
        let name = format!("{round}-large.json");
        world.drop_in(&name, many(&format!("of-{round}"), events));
        until_in_hand(&world, &name);
        let seen = reports(&world).len();
        daemon.signal("USR1");
        world.eventually("a report is there", || reports(&world).len() > seen);
        let in_hand = world.state()["daemon"]["file"] == name.as_str();
        let latest = world.spool().join("reports/latest.json");
        world.eventually("it is the latest", || latest.exists());
        world.eventually("its number is known", || !reports(&world).is_empty());
        if in_hand {
            let all = reports(&world);
            let counts: Vec<i64> = all.iter().map(|(_, report)| accepted_in(report)).collect();
            assert!(counts.contains(&expected), "{counts:?} and not {expected}");
            let between = |count: &i64| *count > expected && *count < expected + events as i64;
            assert!(!counts.iter().any(between), "a part of the file shows: {counts:?}");
            daemon.stop();
            return;
        }
        world.until_drained();
    }
    skip("a report in the middle of a file", "the machine is too fast for the largest one");
}

#[test]
fn a_report_that_was_asked_for_before_the_stop_is_written() {
    let world = World::with_store(10, 1_000_000_000);
    world.drop_in("a.json", many("a", 20_000));
    world.drain().ok();
    for round in 1..=5 {
        // however slow the machine is, the report is waited for
        let daemon = quick_with(&world, &[("daemon.stop_grace_ms", "60000")]);
        // taken up in this order, however soon one follows the other
        daemon.signal("USR1");
        daemon.stop();
        assert_eq!(reports(&world).len(), round, "{}", world.told());
        assert!(!world.spool().join("reports/.latest.json.tmp").exists());
    }
}

#[test]
fn the_latest_report_is_whole_whenever_it_is_read() {
    let world = World::with_store(10, 1_000_000);
    let daemon = quick(&world);
    world.drop_in("first.json", many("first", 3000));
    world.until_drained();
    daemon.signal("USR1");
    let latest = world.spool().join("reports/latest.json");
    world.eventually("there is one", || latest.exists());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut read, mut last) = (0_u64, 0);
            while !over.load(Ordering::Acquire) || read < 10 {
                let report: Value = serde_json::from_slice(&fs::read(&latest).unwrap()).unwrap();
                let batches = report["totals"]["batches"].as_i64().unwrap();
                assert!(batches >= last, "the latest report went back from {last} to {batches}");
                accepted_in(&report);
                last = batches;
                read += 1;
            }
        });
        for n in 0..40 {
            world.drop_in(format!("{n}.json"), one(&format!("id-{n}")));
            daemon.signal("USR1");
            std::thread::sleep(Duration::from_millis(10));
        }
        world.until_drained();
        over.store(true, Ordering::Release);
        reader.join().unwrap();
    });
    daemon.stop();
}
