//! The system clock steps while the daemon runs, or much time passes.

use std::fs;

use rusqlite::Connection;
use serde_json::Value;

use super::write_config;
use super::{NEVER_RESCAN, NEVER_SETTLE, accepted, event, fault, look_into, one, skip};
use crate::clocked::{self, Clocked, DAY_MS, HOUR_MS, MINUTE_MS, now_ms};
use crate::world::{Daemon, World};

/// Each way that a clock is set, and back to where it was.
const STEPS: [(&str, i64); 4] =
    [("-1h", -HOUR_MS), ("+1d", DAY_MS), ("-30d", -30 * DAY_MS), ("+0", 0)];

/// A world with a clock of its own; none, said loudly, where there is no way to make one.
fn clocked(what: &str) -> Option<Clocked> {
    match clocked::preload() {
        Ok(library) => Some(Clocked::of(World::new(), library)),
        Err(missing) => {
            skip(what, &missing);
            None
        }
    }
}

/// A daemon that is ready, with short waits and these settings.
fn started<'c>(clocked: &'c Clocked, settings: &[(&str, &str)]) -> Daemon<'c> {
    let daemon = clocked.spawn(&write_config(&clocked.world, settings));
    daemon.until_ready();
    daemon
}

fn totals(report: &Value) -> [i64; 4] {
    ["accepted", "late", "future", "duplicate"].map(|name| report["totals"][name].as_i64().unwrap())
}

/// The windows that are final, as they are listed.
fn finals(report: &Value) -> Vec<Value> {
    let windows = report["windows"].as_array().unwrap().iter();
    windows.filter(|window| window["state"] == "final").cloned().collect()
}

/// Case 82: what was decided stays, and the guard against what is ahead follows the clock.
#[test]
fn case_082_the_guard_follows_a_clock_that_steps_and_what_was_decided_stays() {
    let Some(clocked) = clocked("a system clock that steps") else { return };
    let world = &clocked.world;
    world.init(1000, 0, &["--max-future-ms", "300000"]);
    // files are found at once, not by a look that a clock could put off
    let daemon = started(&clocked, &[NEVER_RESCAN]);
    let begun_ms = now_ms();
    let mut before = world.report();
    let mut files = 0;
    let mut bring = |offset_ms: i64, expected: [i64; 4]| {
        files += 1;
        let name = format!("{files}.json");
        world.drop_in(&name, event(&name, "k", begun_ms + offset_ms, 1));
        clocked.until_done(&name);
        let report = world.report();
        assert_eq!(totals(&report), expected, "{offset_ms}\n{}", world.told());
        let (was, is) = (&before["watermark_ms"], &report["watermark_ms"]);
        assert!(is.as_i64() >= was.as_i64(), "W fell from {was} to {is}");
        let now_final = finals(&report);
        assert!(finals(&before).iter().all(|window| now_final.contains(window)), "{now_final:?}");
        before = report;
    };
    // accepted, late, future, duplicate
    bring(0, [1, 0, 0, 0]);
    bring(10 * MINUTE_MS, [1, 0, 1, 0]);

    clocked.step("-30m", -30 * MINUTE_MS);
    bring(-20 * MINUTE_MS, [1, 0, 2, 0]);
    bring(-31 * MINUTE_MS, [1, 1, 2, 0]);

    clocked.step("+1d", DAY_MS);
    bring(23 * HOUR_MS, [2, 1, 2, 0]);
    bring(DAY_MS + 10 * MINUTE_MS, [2, 1, 3, 0]);
    // what was ahead then is not any more: it can be released, and is late by now
    let released = clocked.run(&["release", "--all", "--json"]).ok().json();
    assert_eq!((&released["events"], &released["counts"]["late"]), (&2.into(), &2.into()));

    assert_eq!(totals(&world.report()), [2, 3, 1, 0]);

    clocked.step("-30d", -30 * DAY_MS);
    let released = clocked.run(&["release", "--all", "--json"]).ok().json();
    assert_eq!(released["events"], 0, "{released}");
    // so far behind it is not believed: what would be ahead of it is not held
    bring(-DAY_MS, [2, 4, 1, 0]);
    bring(-30 * DAY_MS - MINUTE_MS, [2, 5, 1, 0]);

    clocked.step("+0", 0);
    bring(MINUTE_MS, [2, 6, 1, 0]);
    assert_eq!(world.report()["watermark_ms"], begun_ms + 23 * HOUR_MS);
    assert_eq!(world.report()["totals"]["held"], 1);
    assert_eq!(world.names("failed"), Vec::<String>::new());
    daemon.stop();
}

/// Case 82: a file is ready when it stood still for as long as we watched, whatever the clock says.
#[test]
fn case_082_files_are_taken_neither_later_nor_earlier_when_the_clock_steps() {
    let Some(clocked) = clocked("a system clock that steps beside files") else { return };
    let world = &clocked.world;
    world.init(1000, HOUR_MS, &[]);
    let daemon = started(&clocked, &[]);
    for (offset, offset_ms) in STEPS {
        clocked.step(offset, offset_ms);
        // one that comes whole, and one that is written where it lies
        let (whole, written) = (format!("whole{offset}.json"), format!("written{offset}.json"));
        world.drop_in(&whole, one(&whole));
        fs::write(world.inbox().join(&written), one(&written)).unwrap();
        clocked.until_done(&whole);
        clocked.until_done(&written);
    }
    assert_eq!(accepted(world), 2 * STEPS.len() as i64);
    daemon.stop();

    let daemon = started(&clocked, &[NEVER_SETTLE]);
    fs::write(world.inbox().join("unfinished"), "[").unwrap();
    world.drop_in("before", one("before"));
    clocked.until_done("before");
    for (offset, offset_ms) in STEPS {
        clocked.step(offset, offset_ms);
        let after = format!("after{offset}");
        world.drop_in(&after, one(&after));
        clocked.until_done(&after);
        assert_eq!(world.names("inbox"), ["unfinished"], "{offset}\n{}", world.told());
    }
    daemon.stop();
}

/// Case 82: a source falls idle by the time that passed, not by the clock.
#[test]
fn case_082_a_clock_that_steps_makes_nobody_idle_and_keeps_nobody_from_it() {
    let Some(clocked) = clocked("a system clock that steps beside an idle timeout") else {
        return;
    };
    let world = &clocked.world;
    world.init(1000, 0, &[]);
    let presence = |source: &str| -> u64 {
        let sql = "SELECT count(*) FROM presence WHERE source = ?1";
        look_into(&world.db()).query_row(sql, [source], |row| row.get(0)).unwrap()
    };
    let daemon = started(&clocked, &[("sources.idle_timeout_ms", "3600000")]);
    world.drop_in("a/1.json", event("a1", "k", 500, 1));
    clocked.until_done("a/1.json");
    for (number, (offset, offset_ms)) in STEPS.into_iter().enumerate() {
        clocked.step(offset, offset_ms);
        let name = format!("b/{number}.json");
        world.drop_in(&name, event(&name, "k", 9000, 1));
        clocked.until_done(&name);
        assert_eq!((presence("a"), presence("b")), (0, 0), "{offset}: {}", world.told());
    }
    assert_eq!(world.report()["watermark_ms"], 500);
    // 30 days back while the time runs: it is up all the same
    write_config(world, &[("sources.idle_timeout_ms", "1500")]);
    daemon.signal("HUP");
    clocked.set("-30d");
    world.eventually("a and b are idle", || presence("a") == 1 && presence("b") == 1);
    assert_eq!(world.report()["watermark_ms"], 9000);
    daemon.stop();
}

/// Case 82: the time between two attempts passes whatever the clock says.
#[test]
fn case_082_a_clock_that_steps_in_a_fault_puts_off_no_attempt() {
    let Some(clocked) = clocked("a system clock that steps in a fault") else { return };
    let world = &clocked.world;
    world.init(1000, 0, &[]);
    let daemon = started(&clocked, &[("daemon.busy_timeout_ms", "20"), NEVER_RESCAN]);
    let other = Connection::open(world.db()).unwrap();
    for (offset, offset_ms) in STEPS {
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let name = format!("at{offset}.json");
        world.drop_in(&name, one(&name));
        world.eventually("it says so", || fault(world).contains("busy"));
        clocked.step(offset, offset_ms);
        assert!(fault(world).contains("busy"), "{}", world.told());
        other.execute_batch("ROLLBACK").unwrap();
        clocked.until_done(&name);
        // a clock that went back too far is a fault of its own
        world.eventually("the fault is over", || !fault(world).contains("busy"));
    }
    assert_eq!(accepted(world), STEPS.len() as i64);
    daemon.stop();
}

/// Case 73: the last window waits, is never said to be final before it is, and how old all is can
/// be seen.
#[test]
fn case_073_the_last_window_stays_open_with_its_age_until_it_is_closed() {
    let Some(clocked) = clocked("an hour of silence") else { return };
    let world = &clocked.world;
    world.init(1000, 500, &[]);
    let daemon = started(&clocked, &[("sources.idle_timeout_ms", "1000")]);
    world.drop_in("a/1.json", event("a1", "k", 1500, 1));
    world.drop_in("b/1.json", event("b1", "k", 2100, 2));
    clocked.until_done("a/1.json");
    clocked.until_done("b/1.json");
    clocked.step("+1h", HOUR_MS);
    // idle, they hold nothing: the watermark is where the greatest event puts it, and no further
    world.eventually("both are idle", || world.report()["watermark_ms"] == 1600);
    let open = |report: &Value| -> Vec<Value> {
        let windows = report["windows"].as_array().unwrap().iter();
        let open = windows.filter(|window| window["state"] == "open");
        open.map(|window| window["window_start_ms"].clone()).collect()
    };
    let report = clocked.run(&["report", "--json"]).ok().json();
    assert_eq!(open(&report), [1000, 2000]);
    let at = |name: &str| report[name].as_i64().unwrap();
    let age_ms = at("generated_at_ms") - at("last_ingest_at_ms");
    assert!((HOUR_MS..HOUR_MS + 10 * MINUTE_MS).contains(&age_ms), "{age_ms}");
    let text = clocked.run(&["report"]).ok().out;
    let age = text.lines().find(|line| line.starts_with("last ingest")).unwrap();
    assert!(age.contains(", 1 h ") && age.ends_with("before this report"), "{age}");
    assert!(text.contains("* open (2): provisional"), "{text}");

    world.run(&["advance", "3000", "--reason", "month-end"]).ok();
    let report = world.report();
    assert_eq!((open(&report).len(), finals(&report).len()), (0, 2), "{report}");
    daemon.stop();
}

/// Has failed for a clock that is always believed, by the daemon or by status.
#[test]
fn case_114_a_start_in_1970_holds_nothing_and_status_names_both_clocks() {
    let Some(clocked) = clocked("a start in 1970") else { return };
    let world = &clocked.world;
    world.init(1000, 0, &[]);
    let begun_ms = now_ms();
    let daemon = started(&clocked, &[NEVER_RESCAN]);
    world.drop_in("1.json", event("1", "k", begun_ms, 1));
    clocked.until_done("1.json");
    daemon.stop();
    clocked.set("-20000d");
    let daemon = started(&clocked, &[NEVER_RESCAN]);
    world.drop_in("2.json", event("2", "k", begun_ms + MINUTE_MS, 1));
    clocked.until_done("2.json");
    assert_eq!(totals(&world.report()), [2, 0, 0, 0], "{}", world.told());
    let status = clocked.run(&["status"]).exits(75);
    for part in ["1972-0", "202", "is not believed", "prune --trust-clock"] {
        assert!(status.out.contains(part), "{part}: {}", status.out);
    }
    let told = clocked.run(&["status", "--json"]).exits(75).json();
    assert_eq!(told["clock_is_behind"], true, "{told}");
    world.eventually("the daemon says so", || world.log().contains("the clock says 197"));
    // under the true clock all is well again
    clocked.step("+0", 0);
    world.drop_in("3.json", event("3", "k", begun_ms + 2 * MINUTE_MS, 1));
    clocked.until_done("3.json");
    assert_eq!(totals(&world.report()), [3, 0, 0, 0]);
    world.eventually("status is well", || world.run(&["status"]).code == Some(0));
    daemon.stop();
}

/// Has failed for retention by the clock, in the daemon and by hand, and for `--trust-clock` that
/// changes nothing.
#[test]
fn case_114_a_start_ten_years_ahead_removes_nothing() {
    let Some(clocked) = clocked("a start ten years ahead") else { return };
    let world = &clocked.world;
    world.init(1000, 0, &[]);
    let begun_ms = now_ms();
    let settings = [
        NEVER_RESCAN,
        ("retention.done_days", "30"),
        ("retention.receipts_days", "30"),
        ("retention.windows_days", "30"),
        ("daemon.log", "\"debug\""),
    ];
    let daemon = started(&clocked, &settings);
    world.drop_in("1.json", event("1", "k", begun_ms, 1));
    world.drop_in("2.json", event("2", "k", begun_ms + MINUTE_MS, 1));
    clocked.until_done("1.json");
    clocked.until_done("2.json");
    daemon.stop();
    let before = world.log().matches("retention: ").count();
    clocked.set("+3650d");
    let daemon = started(&clocked, &settings);
    world.eventually("retention had its turn", || {
        world.log().matches("retention: ").count() > before
    });
    assert!(!world.log().contains("retention: removed"), "{}", world.log());
    assert_eq!(world.names("done"), ["1.json", "2.json"]);
    assert_eq!(world.report()["windows"].as_array().unwrap().len(), 2);
    let status = clocked.run(&["status"]);
    assert!(status.out.contains("trusted time of the store"), "{}", status.out);
    daemon.stop();
    // and only because somebody says so is it believed
    let config = world.root().join("windowflow.toml");
    let config = config.to_str().unwrap();
    let ran = clocked.run(&["prune", "--config", config]).ok();
    assert!(ran.out.contains("nothing") && ran.err.contains("--trust-clock"), "{ran:?}");
    let ran = clocked.run(&["prune", "--config", config, "--trust-clock"]).ok();
    assert!(ran.out.contains("done_files: 2"), "{ran:?}");
}
