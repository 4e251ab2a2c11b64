//! What becomes of every event is counted for its source and its key, and the counts add up.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::model::Event;
use crate::observed::ndjson;
use crate::world::World;

const OUTCOMES: [&str; 5] = ["accepted", "late", "duplicate", "future", "expired"];

/// The accounts that `sources --keys --json` lists; they add up to what the report says of each
/// source and of all.
fn accounts(world: &World) -> Vec<Value> {
    let listed = world.run(&["sources", "--keys", "--json"]).ok().json();
    let accounts = listed["accounts"].as_array().unwrap().clone();
    let count = |row: &Value, name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{row}"));
    let mut sums: BTreeMap<(String, &str), u64> = BTreeMap::new();
    for row in &accounts {
        let read: u64 = OUTCOMES.iter().map(|outcome| count(row, outcome)).sum();
        assert_eq!(count(row, "read"), read, "{row}");
        for name in OUTCOMES.into_iter().chain(["read"]) {
            let source = row["source"].as_str().unwrap().to_owned();
            *sums.entry((source, name)).or_default() += count(row, name);
            *sums.entry(("all".to_owned(), name)).or_default() += count(row, name);
        }
    }
    let report = world.report();
    for source in report["sources"].as_array().unwrap() {
        let name = source["source"].as_str().unwrap();
        for outcome in OUTCOMES.into_iter().chain(["read"]) {
            let found = sums.get(&(name.to_owned(), outcome)).copied().unwrap_or_default();
            assert_eq!(found, count(&source["counts"], outcome), "{source}\n{}", world.told());
        }
    }
    for outcome in OUTCOMES {
        let found = sums[&("all".to_owned(), outcome)];
        assert_eq!(found, count(&report["totals"], outcome), "{outcome}\n{}", world.told());
    }
    accounts
}

fn shown(row: &Value) -> (&str, &str, u64, u64, u64) {
    let count = |name: &str| row[name].as_u64().unwrap();
    let text = |name: &str| row[name].as_str().unwrap_or("-");
    (text("source"), text("key"), count("read"), count("accepted"), count("late"))
}

/// Case 77: whoever sent what came too late is seen, whatever becomes of it.
#[test]
fn case_077_of_late_events_nobody_loses_sight_whatever_the_policy() {
    for policy in ["drop", "aside", "correct"] {
        let world = World::new();
        world.init(1000, 0, &["--late-policy", policy]);
        let keys = ["a", "b", "c", "d", "e"];
        let event = |n: usize, at_ms| {
            let (id, key) = (format!("{n}-{at_ms}"), keys[n % 5]);
            Event { source: Some(["s", "t"][n % 2].to_owned()), ..Event::new(id, key, at_ms, 1) }
        };
        let in_time: Vec<Event> = (0..10).map(|n| event(n, 5000)).collect();
        let late: Vec<Event> = (0..100).map(|n| event(n, 4999)).collect();
        world.drop_in("1", ndjson(&in_time));
        world.drop_in("2", ndjson(&late));
        world.drop_in("3", ndjson(&late[..30]));
        world.drain().ok();
        let accounts = accounts(&world);
        let found: Vec<_> = accounts.iter().map(shown).collect();
        let of = |source| keys.map(|key| (source, key, 14, 1, 10));
        assert_eq!(found, [of("s"), of("t")].concat(), "{policy}");
        assert!(accounts.iter().all(|row| row["duplicate"] == 3), "{policy}: {accounts:?}");
        assert_eq!(world.report()["totals"]["late"], 100, "{policy}");
        let text = world.run(&["sources", "--keys"]).ok().out;
        assert!(text.contains("of each key: 10 listed") && text.contains(" 140 "), "{text}");
    }
}

/// Case 83: short-lived keys are not remembered for good, and what they sent stays counted.
#[test]
fn case_083_short_lived_keys_do_not_pile_up() {
    const DAY_MS: i64 = 86_400_000;
    let world = World::new();
    world.init(DAY_MS, 0, &["--dedup-horizon-ms", &DAY_MS.to_string()]);
    let config = world.root().join("w.toml");
    fs::write(&config, "[retention]\nwindows_days = 2\nlate_days = 2\n").unwrap();
    let (config, mut sizes) = (config.to_str().unwrap().to_owned(), Vec::new());
    // from 1972 on: before, milliseconds could pass for seconds
    for day in 1000..1100 {
        let event = |n| {
            let name = format!("{day}-{n}");
            Event::new(name.clone(), &name, day * DAY_MS + n, 1)
        };
        let steady = Event::new(format!("steady-{day}"), "steady", day * DAY_MS, 1);
        let late = Event::new(format!("late-{day}"), &format!("late-{day}"), day * DAY_MS - 1, 1);
        let mut events: Vec<Event> = (0..20).map(event).chain([steady]).collect();
        events.extend((day > 1000).then_some(late));
        fs::write(world.root().join("batch"), ndjson(&events)).unwrap();
        world.run(&["ingest", "batch"]).ok();
        if day % 5 == 4 {
            world.run(&["--config", &config, "prune"]).ok();
        }
        if day % 20 == 19 {
            let accounts = accounts(&world);
            let has = |key: &str| accounts.iter().any(|row| row["key"] == key);
            assert!(has("steady") && has(&format!("{day}-0")) && !has("1000-0"), "{accounts:?}");
            assert_eq!(shown(&accounts[0]).1, "-", "what is no longer told apart comes first");
            let windows = world.report()["windows"].as_array().unwrap().len();
            sizes.push((accounts.len(), windows));
        }
    }
    assert!(sizes.iter().all(|size| *size == sizes[0]) && sizes[0].0 < 100, "{sizes:?}");
    assert_eq!(world.report()["sources"][0]["counts"]["read"], 100 * 22 - 1);
}
