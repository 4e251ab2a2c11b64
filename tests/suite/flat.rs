//! What a command costs grows no faster than what it reads. Bounded by processor time, which does
//! not depend on how busy the machine is.

use std::fmt::Write as _;

use crate::world::{Ran, World, has_tool};

/// Runs a command that may use so many seconds of the processor.
fn within_seconds(world: &World, seconds: u32, args: &[&str]) -> Option<Ran> {
    if !has_tool("prlimit", "the cost of a command") {
        return None;
    }
    Some(world.run_under(&["prlimit", &format!("--cpu={seconds}")], args).ok())
}

/// One event a line: the number makes the id and the timestamp.
fn lines(numbers: impl Iterator<Item = u64>) -> String {
    let mut text = String::new();
    for n in numbers {
        let at = 1_767_225_600_000 + n;
        writeln!(text, r#"{{"id":"event-{n}","key":"k","timestamp_ms":{at},"value":1}}"#).unwrap();
    }
    text
}

#[test]
fn case_144_lateness_reads_the_ledger_once_however_many_files_hold_repeats() {
    const FILES: u64 = 30;
    const EVENTS: u64 = 1000;
    let world = World::with_store(86_400_000, 0);
    for file in 0..FILES {
        // each file sends the last event of the one before again
        let from = (file * EVENTS).saturating_sub(1);
        world.drop_in(format!("{file:04}.ndjson"), lines(from..(file + 1) * EVENTS));
    }
    world.drain().ok();
    let Some(ran) = within_seconds(&world, 10, &["lateness", "--json"]) else { return };
    let answer = ran.json();
    assert_eq!(answer["events"], FILES * EVENTS);
    assert_eq!(answer["left_out"], FILES - 1);
}

#[test]
fn case_145_explaining_a_window_costs_the_same_for_each_of_its_events() {
    const FILES: u64 = 20;
    const EVENTS: u64 = 1500;
    let world = World::with_store(86_400_000, 0);
    for file in 0..FILES {
        world.drop_in(format!("{file:04}.ndjson"), lines(file * EVENTS..(file + 1) * EVENTS));
    }
    // all of it again, under other names
    for file in 0..FILES {
        world.drop_in(format!("{file:04}.again"), lines(file * EVENTS..(file + 1) * EVENTS));
    }
    world.drain().ok();
    let args = ["explain", "--key", "k", "--window-start-ms", "1767225600000", "--json"];
    let Some(ran) = within_seconds(&world, 15, &args) else { return };
    let answer = ran.json();
    assert_eq!(answer["found"]["count"], FILES * EVENTS);
    assert_eq!(answer["difference"]["count"], 0);
    assert_eq!(answer["files"].as_array().unwrap().len() as u64, FILES);
}

#[test]
fn case_145_explaining_a_window_needs_no_memory_for_each_late_event() {
    const LATE: u64 = 60_000;
    let world = World::with_store(86_400_000, 0);
    world.drop_in(
        "0.ndjson",
        r#"{"id":"closes","key":"other","timestamp_ms":1767398400000,"value":1}"#,
    );
    world.drop_in("1.ndjson", lines(0..LATE));
    world.drain().ok();
    if !has_tool("prlimit", "the memory of a command") {
        return;
    }
    let limit = format!("--data={}", 24 << 20);
    let args = ["explain", "--key", "k", "--window-start-ms", "1767225600000", "--json"];
    let answer = world.run_under(&["prlimit", &limit], &args).ok().json();
    let late = answer["late"].as_array().unwrap();
    assert_eq!(late.len() as u64, LATE);
    assert_eq!((&late[7]["id"], &late[7]["event_index"]), (&"event-7".into(), &7.into()));
    let text = world.run_under(&["prlimit", &limit], &args[..5]).ok().out;
    assert!(text.contains("and 59980 more; --json has all"), "{text}");
}

/// Has failed for one transaction for all.
#[test]
fn case_150_many_held_events_are_settled_in_turns_with_one_answer() {
    const HELD: u64 = 21_000;
    let world = World::with_store(86_400_000, 0);
    let ahead = |n: u64| 4_000_000_000_000 + n % 5 * 86_400_000;
    let mut text = String::new();
    for n in 0..HELD {
        let at = ahead(n);
        writeln!(text, r#"{{"id":"event-{n}","key":"k","timestamp_ms":{at},"value":1}}"#).unwrap();
    }
    world.drop_in("0.ndjson", text);
    world.drain().ok();
    assert_eq!(world.report()["totals"]["future"], HELD);
    let answer = world.run(&["discard", "--all", "--json"]).ok().json();
    assert_eq!((&answer["events"], &answer["batches"]), (&HELD.into(), &2.into()));
    assert_eq!(world.run(&["held", "--json"]).ok().json()["held"], serde_json::json!([]));
    world.run(&["verify"]).ok();
}

#[test]
fn case_149_a_store_with_a_horizon_levels_off_under_run_once() {
    const EVENTS: u64 = 2000;
    let world = World::new();
    world.init(1000, 0, &["--dedup-horizon-ms", "10000"]);
    let mut sizes = Vec::new();
    for second in 0..36 {
        let numbers = second * 5000..second * 5000 + EVENTS;
        world.drop_in(format!("{second:04}.ndjson"), lines(numbers));
        world.drain().ok();
        if second % 12 == 11 {
            sizes.push(std::fs::metadata(world.db()).unwrap().len());
        }
    }
    // 24 files more bring 2 MB
    assert!(sizes[2] < sizes[0] + 500_000, "{sizes:?}");
}

#[test]
fn case_151_failed_files_are_listed_in_little_memory_and_cut_for_a_person() {
    const FILES: u64 = 3000;
    let world = World::new();
    let failed = world.spool().join("failed");
    std::fs::create_dir_all(&failed).unwrap();
    let message = "m".repeat(10_000);
    for n in 0..FILES {
        std::fs::write(failed.join(format!("{n:05}.json")), "").unwrap();
        let reason = format!(r#"{{"code":"empty","message":"{message}","refused_at_ms":1}}"#);
        std::fs::write(failed.join(format!("{n:05}.json.error.json")), reason).unwrap();
    }
    let text = world.run(&["failed"]).ok().out;
    assert!(text.starts_with("empty: 3000 file(s)\n  00000.json"), "{:.60}", text);
    assert!(text.ends_with("  and 2980 more; --json has all\n"), "{} bytes", text.len());
    if !has_tool("prlimit", "the memory of a command") {
        return;
    }
    // the reasons alone are 30 MB
    let limit = format!("--data={}", 16 << 20);
    let lines = world.run_under(&["prlimit", &limit], &["failed", "--json"]).ok().json_lines();
    assert_eq!(lines.len() as u64, FILES);
    assert_eq!(lines[7]["reason"]["message"], message);
}

/// Whoever watches the daemon asks for its status each minute.
#[test]
fn case_151_status_counts_failed_files_by_their_names_alone() {
    const FILES: usize = 1000;
    let world = World::with_store(1000, 0);
    let failed = world.spool().join("failed");
    std::fs::create_dir_all(&failed).unwrap();
    for n in 0..FILES {
        std::fs::write(failed.join(format!("{n:05}.json")), "").unwrap();
        std::fs::write(failed.join(format!("{n:05}.json.error.json")), "{}").unwrap();
    }
    if !has_tool("strace", "the cost of status") {
        return;
    }
    let trace = world.root().join("trace");
    let path = trace.to_str().unwrap();
    let strace = ["strace", "-f", "-qq", "-o", path, "-e", "trace=%file,%desc"];
    let answer = world.run_under(&strace, &["status", "--json"]).json();
    assert_eq!(answer["failed_files"], FILES);
    let calls = std::fs::read_to_string(trace).unwrap().lines().count();
    assert!(calls < FILES, "{calls} system calls");
}

/// Each event may name another version; nothing bounds how many there are.
#[test]
fn case_151_producer_versions_are_told_in_little_memory() {
    const VERSIONS: u64 = 20_000;
    let world = World::with_store(86_400_000, 0);
    let mut text = String::new();
    for n in 0..VERSIONS {
        let at = 1_767_225_600_000 + n;
        let version = format!("{n:05}-{}", "v".repeat(500));
        writeln!(
            text,
            r#"{{"id":"{n}","key":"k","timestamp_ms":{at},"value":1,"producer_version":"{version}"}}"#
        )
        .unwrap();
    }
    world.drop_in("0.ndjson", text);
    world.drain().ok();
    if !has_tool("prlimit", "the memory of a command") {
        return;
    }
    // the names alone are 10 MB
    let limit = format!("--data={}", 12 << 20);
    let run = |args: &[&str]| world.run_under(&["prlimit", &limit], args);
    let status = run(&["status", "--json"]).json();
    assert_eq!(status["producer_versions_more"], VERSIONS - 20);
    let sources = run(&["sources", "--json"]).ok().json();
    assert_eq!(sources["producer_versions"].as_array().unwrap().len() as u64, VERSIONS);
    let report = run(&["report", "--format", "text"]).ok().out;
    assert_eq!(report.matches("-vvv").count() as u64, VERSIONS);
}
