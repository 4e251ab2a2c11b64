//! What a real store shows, in the words of the model.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::ControlFlow;

use serde_json::{Value, json};
use windowflow::engine::window::WindowId;
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
        let named = |member: &str| -> BTreeSet<String> {
            let sources = rows("sources").filter(|row| row[member].as_bool().unwrap());
            sources.map(|row| text(&row["source"])).collect()
        };
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
                    applied: !row["applied_in"].is_null(),
                })
                .collect(),
            sources: rows("sources")
                .filter_map(|row| Some((text(&row["source"]), row["max_timestamp_ms"].as_i64()?)))
                .collect(),
            declared: named("declared"),
            idle: named("idle"),
            revisions: rows("windows")
                .filter(|row| row["revision"] != 0)
                .map(|row| {
                    let window = (integer(&row["window_start_ms"]), text(&row["key"]));
                    (window, row["revision"].as_u64().unwrap())
                })
                .collect(),
            // a report does not list these
            ..State::default()
        }
    }

    /// What a snapshot says.
    pub fn of_snapshot(snapshot: &dyn Snapshot) -> State {
        let summary = snapshot.summary().unwrap();
        let (mut windows, mut revisions) = (BTreeMap::new(), BTreeMap::new());
        let mut order = Vec::new();
        let each_window = &mut |row: &windowflow::store::WindowRow<'_>| {
            let of = row.totals;
            let totals = Totals { count: of.count, sum: of.sum, min: of.min, max: of.max };
            order.push((row.start_ms, row.key.to_owned()));
            windows.insert((row.start_ms, row.key.to_owned()), totals);
            if row.revision > 0 {
                revisions.insert((row.start_ms, row.key.to_owned()), row.revision);
            }
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
                applied: row.applied_in.is_some(),
            });
            ControlFlow::Continue(())
        };
        snapshot.late(Span::default(), each_late).unwrap();
        let mut held = Vec::new();
        let each_held = &mut |row: &windowflow::store::HeldRow<'_>| {
            let event = Event::new(row.id, row.key, row.timestamp_ms, row.value);
            held.push((event, row.source.to_owned()));
            ControlFlow::Continue(())
        };
        snapshot.held(each_held).unwrap();
        let sources = snapshot.sources().unwrap();
        let named = |is_so: fn(&windowflow::store::SourceRow) -> bool| -> BTreeSet<String> {
            sources.iter().filter(|row| is_so(row)).map(|row| row.source.clone()).collect()
        };
        let waiting = late.iter().filter(|late| !late.applied).count();
        assert_eq!(summary.windows, windows.len() as u64);
        assert_eq!(summary.corrected_windows, revisions.len() as u64);
        assert_eq!((summary.late_kept, summary.late_waiting), (late.len() as u64, waiting as u64));
        assert_eq!(summary.held, held.len() as u64);
        State {
            watermark_ms: summary.watermark_ms,
            counts: summary.counts.into(),
            windows,
            late,
            held,
            declared: named(|row| row.declared),
            idle: named(|row| row.idle),
            presence: presence(snapshot, &sources),
            earlier: revisions
                .keys()
                .map(|window| (window.clone(), earlier(snapshot, window)))
                .filter(|(_, rows)| !rows.is_empty())
                .collect(),
            revisions,
            sources: sources
                .into_iter()
                .filter_map(|row| Some((row.source, row.max_timestamp_ms?)))
                .collect(),
        }
    }
}

fn earlier(snapshot: &dyn Snapshot, (start_ms, key): &(i64, String)) -> Vec<(u64, Totals)> {
    let rows = snapshot.revisions(WindowId { start_ms: *start_ms, key }).unwrap().into_iter();
    rows.map(|row| {
        let of = row.totals;
        (row.revision, Totals { count: of.count, sum: of.sum, min: of.min, max: of.max })
    })
    .collect()
}

fn presence(
    snapshot: &dyn Snapshot,
    sources: &[windowflow::store::SourceRow],
) -> BTreeMap<String, Vec<&'static str>> {
    let known = ["declared", "idle", "active"];
    let of = |source: &str| -> Vec<&'static str> {
        let rows = snapshot.presence(source).unwrap();
        let known = |name: &str| known.into_iter().find(|known| *known == name).expect(name);
        rows.iter().map(|row| known(&row.presence)).collect()
    };
    let all = sources.iter().map(|row| (row.source.clone(), of(&row.source)));
    all.filter(|(_, rows)| !rows.is_empty()).collect()
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
    let differs = report_differs(report, model);
    assert!(differs.is_none(), "{}\n{}", differs.unwrap_or_default(), told());
}

/// In what a whole report differs from the model.
pub fn report_differs(report: &Value, model: &Model) -> Option<String> {
    let unlisted = model.state.clone();
    let found = State {
        held: unlisted.held,
        presence: unlisted.presence,
        earlier: unlisted.earlier,
        ..State::of_report(report)
    };
    if report["totals"]["held"] != found.held.len() {
        return Some(format!("held: {} and not {}", report["totals"]["held"], found.held.len()));
    }
    if found != model.state {
        return Some(difference(&found, &model.state));
    }
    let rows = report["windows"].as_array().unwrap();
    let start = |row: &Value| row["window_start_ms"].as_i64().unwrap();
    let keys: Vec<_> = rows.iter().map(|row| (start(row), row["key"].as_str().unwrap())).collect();
    if !keys.is_sorted() {
        return Some("windows out of order".to_owned());
    }
    rows.iter().find_map(|row| {
        let state = match (model.is_final(start(row)), row["revision"] == 0) {
            (false, _) => "open",
            (true, true) => "final",
            (true, false) => "corrected",
        };
        (row["state"] != state).then(|| format!("not {state}: {row}"))
    })
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
    say("held", format!("{:?}", found.held), format!("{:?}", expected.held));
    say("declared", format!("{:?}", found.declared), format!("{:?}", expected.declared));
    say("idle", format!("{:?}", found.idle), format!("{:?}", expected.idle));
    say("presence", format!("{:?}", found.presence), format!("{:?}", expected.presence));
    let keys = found.windows.keys().chain(expected.windows.keys());
    let keys: std::collections::BTreeSet<_> = keys.collect();
    let of = |state: &State, key| {
        let State { windows, revisions, earlier, .. } = state;
        format!("{:?} {:?} {:?}", windows.get(key), revisions.get(key), earlier.get(key))
    };
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
