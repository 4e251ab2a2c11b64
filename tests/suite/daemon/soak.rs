//! The big one: files of all kinds while reports are asked for, against a model.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{accepted_in, event, quick, soaking};
use crate::world::World;

/// What a store must hold in the end: each id counts once. The lateness is longer than all times
/// in it, so that no order of files makes anything late.
#[derive(Default)]
struct Model {
    seen: BTreeMap<String, (String, i64, i64)>,
    duplicates: i64,
}

type Totals = (i64, i64, i64, i64);

impl Model {
    fn take(&mut self, id: &str, key: &str, timestamp_ms: i64, value: i64) {
        let payload = (key.to_owned(), timestamp_ms, value);
        match self.seen.insert(id.to_owned(), payload.clone()) {
            None => {}
            Some(before) => {
                assert_eq!(before, payload, "the test makes a conflict");
                self.duplicates += 1;
            }
        }
    }

    fn windows(&self, window_ms: i64) -> BTreeMap<(i64, String), Totals> {
        let mut windows: BTreeMap<_, Totals> = BTreeMap::new();
        for (key, timestamp_ms, value) in self.seen.values() {
            let start_ms = timestamp_ms / window_ms * window_ms;
            let window =
                windows.entry((start_ms, key.clone())).or_insert((0, 0, i64::MAX, i64::MIN));
            window.0 += 1;
            window.1 += value;
            window.2 = window.2.min(*value);
            window.3 = window.3.max(*value);
        }
        windows
    }
}

fn windows_of(report: &Value) -> BTreeMap<(i64, String), Totals> {
    let number = |window: &Value, name: &str| window[name].as_i64().unwrap();
    let windows = report["windows"].as_array().unwrap().iter();
    windows
        .map(|window| {
            let key = window["key"].as_str().unwrap().to_owned();
            let totals = ["count", "sum", "min", "max"].map(|name| number(window, name));
            ((number(window, "window_start_ms"), key), totals.into())
        })
        .collect()
}

#[test]
fn totals_equal_a_model_while_reports_are_asked_for() {
    const WINDOW_MS: i64 = 1000;
    let world = World::with_store(WINDOW_MS, 1_000_000_000);
    let daemon = quick(&world);
    let files = if soaking() { 10_000 } else { 500 };
    let every = Duration::from_millis(if soaking() { 1000 } else { 50 });
    let mut model = Model::default();
    let mut refused = 0;
    let mut asked = Instant::now();
    for n in 0..files {
        let source = ["", "press-1/", "press-2/"][n % 3];
        let mut content = String::new();
        for row in 0..(n * 7) % 23 + 1 {
            // every fifth event repeats one of a file before
            let (of, row) = if row % 5 == 4 { (n.saturating_sub(7), row % 4) } else { (n, row) };
            let (id, key) = (format!("{of}-{row}"), format!("key-{}", (of + row) % 11));
            let timestamp_ms = ((of * 131 + row * 17) % 100_000) as i64;
            let value = (of as i64 - 200) * (row as i64 + 1);
            content.push_str(&event(&id, &key, timestamp_ms, value));
            if n % 50 != 49 {
                model.take(&id, &key, timestamp_ms, value);
            }
        }
        if n % 50 == 49 {
            content.push_str("and then it broke off");
            refused += 1;
        }
        let name = format!("{source}{n:05}.json");
        if n % 4 == 3 {
            // in place, as a careless producer does
            fs::create_dir_all(world.inbox().join(source)).unwrap();
            fs::write(world.inbox().join(&name), content).unwrap();
        } else {
            world.drop_in(&name, content);
        }
        if asked.elapsed() >= every {
            daemon.signal("USR1");
            asked = Instant::now();
        }
    }
    world.until_drained();
    let report = world.report();
    assert_eq!(accepted_in(&report), model.seen.len() as i64);
    assert_eq!(windows_of(&report), model.windows(WINDOW_MS));
    assert_eq!(report["totals"]["duplicate"].as_i64(), Some(model.duplicates));
    assert_eq!(report["totals"]["refused_batches"].as_i64(), Some(refused));
    assert_eq!(report["totals"]["batches"].as_i64(), Some(files as i64 - refused));
    assert_eq!(world.names("failed").len() as i64, 2 * refused);
    assert_eq!(world.names("done").len() as i64, files as i64 - refused);
    daemon.signal("USR1");
    let folder = world.spool().join("reports");
    let all_in = |path: &std::path::Path| {
        let text = fs::read(path).ok()?;
        let report: Value = serde_json::from_slice(&text).unwrap();
        Some(accepted_in(&report) == model.seen.len() as i64)
    };
    world.eventually("a report of all", || all_in(&folder.join("latest.json")) == Some(true));
    daemon.stop();
    let mut dated = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        assert!(all_in(&path).is_some(), "{}", path.display());
        dated += 1;
    }
    // one while files came in, and one at the end: a slow machine makes few of them
    assert!(dated >= 2, "only {dated} reports were written");
}
