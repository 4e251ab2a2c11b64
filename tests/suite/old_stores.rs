//! Stores that older versions left behind open for ever, say what they said, and go on.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::world::World;

/// The versions of which a store was kept, and the number that the next batch has there. What was
/// made by hand is written down in `tests/fixtures/make.sh`.
const KEPT: [(u32, u64); 3] = [(1, 12), (2, 19), (3, 19)];

/// A world with the store of that version, and the report that this version gave of it.
fn old(version: u32) -> (World, Value) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let world = World::new();
    fs::copy(fixtures.join(format!("store-v{version}.db")), world.db()).unwrap();
    let report = fs::read(fixtures.join(format!("store-v{version}.report.json"))).unwrap();
    (world, serde_json::from_slice(&report).unwrap())
}

/// What of the old report the new one says otherwise: members that came later don't matter.
fn contradictions(old: &Value, new: &Value, at: &str, found: &mut Vec<String>) {
    match (old, new) {
        _ if at.ends_with(".generated_at_ms") => {}
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old {
                let other = new.get(name).unwrap_or(&Value::Null);
                contradictions(value, other, &format!("{at}.{name}"), found);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (value, other)) in old.iter().zip(new).enumerate() {
                contradictions(value, other, &format!("{at}[{index}]"), found);
            }
        }
        _ if old == new => {}
        _ => found.push(format!("{at}: {old} was said, now {new}")),
    }
}

/// Brings an old store up to date, without a change that anybody could see.
fn bring_up(world: &World) {
    let ran = world.run(&["prune"]).ok();
    assert!(ran.err.contains("older windowflow: brought up to date"), "{}", ran.err);
    assert!(ran.err.contains(world.db().to_str().unwrap()), "{}", ran.err);
    assert_eq!(world.run(&["prune"]).ok().err.matches("brought up").count(), 0);
}

fn assert_says(report: &Value, expected: &Value) {
    let mut found = Vec::new();
    contradictions(expected, report, "", &mut found);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn an_old_store_says_what_it_said_and_goes_on() {
    for (version, next_batch) in KEPT {
        let (world, expected) = old(version);
        bring_up(&world);
        assert_says(&world.report(), &expected);
        // all of it came before, but for one
        let events = concat!(
            r#"{"id": "later-2", "key": "checkout", "timestamp_ms": 9300, "value": 6}"#,
            "\n",
            r#"{"id": "ahead-1", "key": "press-3", "timestamp_ms": 32503680000000, "value": 7}"#,
            "\n",
            r#"{"id": "next-1", "key": "checkout", "timestamp_ms": 9400, "value": 3}"#,
        );
        let ran = world.run_with_input(&["ingest", "--json", "-"], events.as_bytes()).ok();
        let told = ran.json();
        assert_eq!((&told["duplicate"], &told["accepted"]), (&2.into(), &1.into()), "{told}");
        assert_eq!(told["batch"], next_batch);
        let report = world.report();
        let mut windows = report["windows"].as_array().unwrap().iter();
        let checkout = windows.find(|window| window["window_start_ms"] == 9000).unwrap();
        assert_eq!((&checkout["count"], &checkout["sum"]), (&2.into(), &9.into()), "{checkout}");
        let conflict = r#"{"id": "request-1", "key": "checkout", "timestamp_ms": 100, "value": 0}"#;
        let ran = world.run_with_input(&["ingest", "--json", "-"], conflict.as_bytes()).exits(65);
        assert!(ran.out.contains("01-worked-example.json"), "{}", ran.out);
    }
}

fn ingest(world: &World, id: &str, key: &str, timestamp_ms: i64) -> Value {
    let event = serde_json::json!({
        "id": id, "key": key, "timestamp_ms": timestamp_ms, "value": 1, "source": "press-3",
    });
    world.run_with_input(&["ingest", "--json", "-"], event.to_string().as_bytes()).ok().json()
}

#[test]
fn each_command_finds_what_it_needs_in_an_old_store() {
    for (version, _) in KEPT {
        let (world, expected) = old(version);
        bring_up(&world);
        // those that only read, before anything else was done to it
        let held = |world: &World| -> Vec<String> {
            let told = world.run(&["held", "--json"]).ok().json();
            let rows = told["held"].as_array().unwrap().iter();
            rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(held(&world), ["ahead-1", "ahead-2"]);
        let fate = |id: &str| -> Value {
            world.run(&["explain", "--id", id, "--json"]).ok().json()["fate"].clone()
        };
        let late = fate("request-5");
        assert_eq!((&late["outcome"], &late["applied_in"]), (&"late".into(), &Value::Null));
        assert_eq!((&late["watermark_ms"], &late["kept"]), (&1100.into(), &true.into()), "{late}");
        assert_eq!(late["closed_by"]["batch"], 1, "{late}");
        assert_eq!(fate("request-1")["outcome"], "accepted");
        assert_eq!(fate("ahead-1")["outcome"], "future");
        let unknown = world.run(&["explain", "--id", "never", "--json"]).exits(66).json();
        assert_eq!(unknown["known"], false, "{unknown}");
        assert_says(&world.report(), &expected);

        // what came before is late for good, or can be made up for, once
        assert_eq!(ingest(&world, "new-late", "parts", 2500)["late"], 1);
        for applied in [5, 0] {
            let told = world.run(&["late", "--apply", "--json"]).ok().json();
            assert_eq!(told["events"], applied, "{told}");
        }
        let report = world.report();
        let window = |start_ms: i64, key: &str| -> Value {
            let mut windows = report["windows"].as_array().unwrap().iter();
            let is_it = |w: &&Value| w["window_start_ms"] == start_ms && w["key"] == key;
            windows.find(is_it).cloned().unwrap_or_default()
        };
        let of =
            |window: Value| ["count", "sum", "revision"].map(|name| window[name].as_i64().unwrap());
        // request-5 (99) and later-1 (5) beside 3 worth 40; request-9; late-again; new-late
        assert_eq!(of(window(0, "checkout")), [5, 144, 1]);
        assert_eq!(of(window(1000, "checkout")), [3, 62, 1]);
        assert_eq!(of(window(5000, "other")), [1, 3, 1]);
        assert_eq!(of(window(2000, "parts")), [2, 41, 1]);
        assert_eq!(of(window(2000, "checkout")), [1, 1, 0]);
        assert_eq!(fate("request-5")["counts"], true);

        // a thousand years ahead: they stay held; dropped, they stay known
        assert_eq!(world.run(&["release", "--all", "--json"]).ok().json()["events"], 0);
        assert_eq!(held(&world), ["ahead-1", "ahead-2"]);
        world.run(&["discard", "--id", "ahead-2"]).ok();
        assert_eq!(held(&world), ["ahead-1"]);
        assert_eq!(fate("ahead-2")["outcome"], "future");
    }
}

/// Which of them brings it up to date is a matter of chance: neither must notice.
#[test]
fn two_processes_that_meet_an_old_store_at_once_both_work() {
    for round in 0..12 {
        let (version, next_batch) = KEPT[round / 2 % KEPT.len()];
        let (world, expected) = old(version);
        let event = |id: &str| {
            let event = serde_json::json!({
                "id": id, "key": "together", "timestamp_ms": 9500, "value": 1, "source": "press-3",
            });
            fs::write(world.root().join(id), event.to_string()).unwrap();
        };
        event("one");
        event("two");
        let start = |args: &[&str]| {
            let mut command = world.command(args);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let second = [&["ingest", "--json", "two"][..], &["report", "--json"]][round % 2];
        let children = [start(&["ingest", "--json", "one"]), start(second)];
        let mut batches = Vec::new();
        for child in children {
            let output = child.wait_with_output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            if output.status.code() == Some(78) && told.contains("was written by an older") {
                // the report came first
                continue;
            }
            assert!(output.status.success(), "round {round}: {told}\n{}", world.told());
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
            match answer.get("accepted") {
                Some(accepted) => {
                    assert_eq!(*accepted, 1, "{answer}");
                    batches.push(answer["batch"].as_u64().unwrap());
                }
                None => {
                    let totals = answer["totals"]["accepted"].as_i64().unwrap();
                    let before = expected["totals"]["accepted"].as_i64().unwrap();
                    assert!([before, before + 1].contains(&totals), "{answer}");
                }
            }
        }
        batches.sort_unstable();
        assert_eq!(batches, [next_batch, next_batch + 1][..batches.len()]);
        let report = world.report();
        let mut windows = report["windows"].as_array().unwrap().iter();
        let together = windows.find(|window| window["key"] == "together").unwrap();
        assert_eq!(together["count"], batches.len());
        for window in expected["windows"].as_array().unwrap() {
            let mut found = Vec::new();
            let is_it = |other: &&Value| {
                ["window_start_ms", "key"].iter().all(|name| other[*name] == window[*name])
            };
            let now = report["windows"].as_array().unwrap().iter().find(is_it).unwrap();
            contradictions(window, now, "", &mut found);
            assert!(found.is_empty(), "{}", found.join("\n"));
        }
    }
}

#[test]
fn what_came_with_the_second_version_is_kept() {
    for (version, _) in &KEPT[1..] {
        let (world, _) = old(*version);
        bring_up(&world);
        let report = world.report();
        let mut windows = report["windows"].as_array().unwrap().iter();
        let deep = windows.find(|window| window["state"] == "corrected").unwrap();
        assert_eq!((&deep["key"], &deep["count"]), (&"deep".into(), &2.into()), "{deep}");
        assert_eq!((&deep["sum"], &deep["revision"]), (&3.into(), &2.into()), "{deep}");
        let args = ["explain", "--key", "deep", "--window-start-ms", "5000", "--json"];
        let told = world.run(&args).ok().json();
        let revisions = told["revisions"].as_array().unwrap_or_else(|| panic!("{told}"));
        assert!(!revisions.is_empty(), "{told}");
        let fate = |id: &str| {
            world.run(&["explain", "--id", id, "--json"]).ok().json()["fate"].to_string()
        };
        assert!(fate("ahead-3").contains("discarded"), "{}", fate("ahead-3"));
        let sources = world.run(&["sources", "--json"]).ok().out;
        assert!(sources.contains("press-0"), "{sources}");
    }
}

#[test]
fn a_member_that_changes_would_be_seen() {
    let (_, report) = old(1);
    let mut other = report.clone();
    other["new"] = 1.into();
    other["windows"][3]["new"] = 1.into();
    assert_says(&other, &report);
    other["windows"][3]["sum"] = 0.into();
    let mut found = Vec::new();
    contradictions(&report, &other, "", &mut found);
    assert_eq!(found, [".windows[3].sum: 1 was said, now 0"]);
}

#[test]
fn case_131_commands_that_only_read_leave_an_old_store_as_it_is() {
    let (world, _) = old(1);
    fs::write(world.root().join("new.json"), "[]").unwrap();
    let before = fs::read(world.db()).unwrap();
    let commands: [&[&str]; 13] = [
        &["report"],
        &["report", "--json"],
        &["late"],
        &["held"],
        &["sources"],
        &["sources", "--keys"],
        &["explain", "--id", "request-1"],
        &["explain", "--key", "checkout", "--window-start-ms", "0"],
        &["explain", "--watermark"],
        &["lateness"],
        &["check", "new.json"],
        &["verify"],
        &["status"],
    ];
    for command in commands {
        let ran = world.run(command).exits(78);
        for part in ["older windowflow", "start the daemon", "prune"] {
            assert!(ran.err.contains(part), "{command:?}: {}", ran.err);
        }
        assert_eq!(fs::read(world.db()).unwrap(), before, "{command:?} changed it");
    }
    // what can be said without the tables is said
    let ran = world.run(&["status"]).exits(78);
    assert!(ran.out.contains("does not run") && ran.out.contains("windowflow.db"), "{}", ran.out);
    let copy = world.root().join("copy.db");
    world.run(&["backup", copy.to_str().unwrap()]).ok();
    assert_eq!(fs::read(world.db()).unwrap(), before);
    // the daemon brings it up to date, and says so once
    for expected in [1, 0] {
        let ran = world.drain().ok();
        assert_eq!(ran.err.matches("brought up to date, from schema 1 to").count(), expected);
    }
    world.run(&["report"]).ok();
}
