//! Stores that older versions left behind open for ever, say what they said, and go on.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::world::World;

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

fn assert_says(report: &Value, expected: &Value) {
    let mut found = Vec::new();
    contradictions(expected, report, "", &mut found);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn an_old_store_says_what_it_said_and_goes_on() {
    for version in 1..=1 {
        let (world, expected) = old(version);
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
        assert_eq!(told["batch"], 12);
        let report = world.report();
        let mut windows = report["windows"].as_array().unwrap().iter();
        let checkout = windows.find(|window| window["window_start_ms"] == 9000).unwrap();
        assert_eq!((&checkout["count"], &checkout["sum"]), (&2.into(), &9.into()), "{checkout}");
        let conflict = r#"{"id": "request-1", "key": "checkout", "timestamp_ms": 100, "value": 0}"#;
        let ran = world.run_with_input(&["ingest", "--json", "-"], conflict.as_bytes()).exits(65);
        assert!(ran.out.contains("01-worked-example.json"), "{}", ran.out);
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
