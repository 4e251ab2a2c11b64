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
