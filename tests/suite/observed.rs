//! What a real store shows, in the words of the model.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;

use serde_json::{Value, json};
use windowflow::store::{Snapshot, Span};

use crate::model::{Answer, Counts, Event, Late, Model, State, Totals};

impl Event {
    /// Itself as JSON on one line.
    pub fn json(&self) -> String {
        let mut event = json!({
            "id": self.id,
            "key": self.key,
            "timestamp_ms": self.timestamp_ms,
            "value": self.value,
        });
        if let Some(source) = &self.source {
            event["source"] = json!(source);
        }
        event.to_string()
    }
}

/// The events as NDJSON.
pub fn ndjson(events: &[Event]) -> String {
    events.iter().fold(String::new(), |mut text, event| {
        writeln!(text, "{}", event.json()).unwrap();
        text
    })
}

/// The events as a JSON array.
pub fn array(events: &[Event]) -> String {
    let events: Vec<String> = events.iter().map(Event::json).collect();
    format!("[{}]", events.join(",\n "))
}

impl State {
    /// What `report --json` says.
    pub fn of_report(report: &Value) -> State {
        let integer = |value: &Value| value.as_i64().unwrap_or_else(|| panic!("{value}"));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let rows = |name: &str| report[name].as_array().unwrap().iter();
        let counts = counts(&report["totals"]);
        State {
            watermark_ms: integer(&report["watermark_ms"]),
            counts,
            windows: rows("windows")
                .map(|row| {
                    let totals = Totals {
                        count: integer(&row["count"]),
                        sum: integer(&row["sum"]),
                        min: integer(&row["min"]),
                        max: integer(&row["max"]),
                    };
                    ((integer(&row["window_start_ms"]), text(&row["key"])), totals)
                })
                .collect(),
            late: rows("late")
                .map(|row| Late {
                    id: text(&row["id"]),
                    key: text(&row["key"]),
                    timestamp_ms: integer(&row["timestamp_ms"]),
                    value: integer(&row["value"]),
                    window_start_ms: integer(&row["window_start_ms"]),
                    watermark_ms: integer(&row["watermark_ms"]),
                    source: text(&row["source"]),
                })
                .collect(),
            // nothing is released or discarded in these tests
            held: counts.future,
            sources: rows("sources")
                .filter_map(|row| Some((text(&row["source"]), row["max_timestamp_ms"].as_i64()?)))
                .collect(),
        }
    }

    /// What a snapshot says.
    pub fn of_snapshot(snapshot: &dyn Snapshot) -> State {
        let summary = snapshot.summary().unwrap();
        let mut windows = BTreeMap::new();
        let mut order = Vec::new();
        let each_window = &mut |row: &windowflow::store::WindowRow<'_>| {
            let of = row.totals;
            let totals = Totals { count: of.count, sum: of.sum, min: of.min, max: of.max };
            order.push((row.start_ms, row.key.to_owned()));
            windows.insert((row.start_ms, row.key.to_owned()), totals);
            ControlFlow::Continue(())
        };
        snapshot.windows(Span::default(), each_window).unwrap();
        assert!(order.is_sorted(), "windows out of order: {order:?}");
        let mut late = Vec::new();
        let each_late = &mut |row: &windowflow::store::LateRow<'_>| {
            late.push(Late {
                id: row.id.to_owned(),
                key: row.key.to_owned(),
                timestamp_ms: row.timestamp_ms,
                value: row.value,
                window_start_ms: row.window_start_ms,
                watermark_ms: row.watermark_ms,
                source: row.source.to_owned(),
            });
            ControlFlow::Continue(())
        };
        snapshot.late(Span::default(), each_late).unwrap();
        let sources = snapshot.sources().unwrap().into_iter();
        assert_eq!(summary.windows, windows.len() as u64);
        assert_eq!(summary.late_kept, late.len() as u64);
        State {
            watermark_ms: summary.watermark_ms,
            counts: summary.counts.into(),
            windows,
            late,
            held: summary.held,
            sources: sources.filter_map(|row| Some((row.source, row.max_timestamp_ms?))).collect(),
        }
    }
}

impl From<windowflow::engine::Counts> for Counts {
    fn from(counts: windowflow::engine::Counts) -> Counts {
        Counts {
            accepted: counts.accepted,
            late: counts.late,
            duplicate: counts.duplicate,
            future: counts.future,
            expired: counts.expired,
        }
    }
}

fn counts(of: &Value) -> Counts {
    let count = |name: &str| of[name].as_u64().unwrap_or_else(|| panic!("{name}: {of}"));
    Counts {
        accepted: count("accepted"),
        late: count("late"),
        duplicate: count("duplicate"),
        future: count("future"),
        expired: count("expired"),
    }
}

/// What `ingest --json` answers for one batch.
pub fn answer(line: &Value) -> Answer {
    Answer {
        counts: counts(line),
        watermark_ms: line["watermark_ms"].as_i64().unwrap_or_else(|| panic!("{line}")),
        windows_closed: line["windows_closed"].as_u64().unwrap(),
    }
}

/// Compares a whole report with the model: also what is final, in which order, and how it adds up.
pub fn assert_report(report: &Value, model: &Model, told: &dyn Fn() -> String) {
    let found = State::of_report(report);
    assert!(found == model.state, "{}\n{}", difference(&found, &model.state), told());
    let rows = report["windows"].as_array().unwrap();
    let start = |row: &Value| row["window_start_ms"].as_i64().unwrap();
    let keys: Vec<_> = rows.iter().map(|row| (start(row), row["key"].as_str().unwrap())).collect();
    assert!(keys.is_sorted(), "windows out of order\n{}", told());
    for row in rows {
        let state = if model.is_final(start(row)) { "final" } else { "open" };
        assert_eq!(row["state"], state, "{row}\n{}", told());
    }
}

/// Where two states differ, in few lines.
pub fn difference(found: &State, expected: &State) -> String {
    let mut text = String::new();
    let mut say = |what: &str, found: String, expected: String| {
        if found != expected {
            writeln!(text, "{what}:\n  found    {found}\n  expected {expected}").unwrap();
        }
    };
    say("W", found.watermark_ms.to_string(), expected.watermark_ms.to_string());
    say("counts", format!("{:?}", found.counts), format!("{:?}", expected.counts));
    say("sources", format!("{:?}", found.sources), format!("{:?}", expected.sources));
    say("held", found.held.to_string(), expected.held.to_string());
    let keys = found.windows.keys().chain(expected.windows.keys());
    let keys: std::collections::BTreeSet<_> = keys.collect();
    let of = |state: &State, key| format!("{:?}", state.windows.get(key));
    for key in keys.into_iter().filter(|key| of(found, key) != of(expected, key)).take(5) {
        say(&format!("window {key:?}"), of(found, key), of(expected, key));
    }
    let late = |state: &State, at: usize| format!("{:?}", state.late.get(at));
    let most = found.late.len().max(expected.late.len());
    if let Some(at) = (0..most).find(|at| late(found, *at) != late(expected, *at)) {
        say(&format!("late row {at}"), late(found, at), late(expected, at));
    }
    text
}
