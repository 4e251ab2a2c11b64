//! The daemon as it is run: files dropped into its inbox, signals, faults of the machine around it.
//!
//! Names carry the number of the case from the field that they hold. Nothing is timed: what is to
//! come about is polled for, so a slow machine only makes them slower. `WINDOWFLOW_SOAK=1` makes
//! them long.

mod clock;
mod config;
mod cost;
mod deadly;
mod faults;
mod files;
mod groups;
mod kills;
mod locks;
mod looks;
mod names;
mod neighbours;
mod overlay;
mod quiet;
mod rights;
mod signals;
mod soak;
mod sources;
mod surroundings;
mod syncs;
mod truth;
mod watcher;
mod writers;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::world::{Daemon, World, skip};

/// Waits that suit a test.
const QUICK: &[(&str, &str)] = &[
    ("inbox.settle_ms", "100"),
    ("inbox.rescan_ms", "200"),
    ("daemon.backoff_min_ms", "20"),
    ("daemon.backoff_max_ms", "200"),
];

/// Long enough never to come within a test: what is found was found without it.
const NEVER_RESCAN: (&str, &str) = ("inbox.rescan_ms", "3600000");

/// Long enough never to come within a test: what was written in place stays where it is.
const NEVER_SETTLE: (&str, &str) = ("inbox.settle_ms", "3600000");

/// Writes the world's configuration: short waits, and what is given instead of them.
fn write_config(world: &World, settings: &[(&str, &str)]) -> String {
    let all: BTreeMap<_, _> = QUICK.iter().chain(settings).copied().collect();
    let mut text = String::new();
    for (key, value) in all {
        writeln!(text, "{key} = {value}").unwrap();
    }
    let path = world.root().join("windowflow.toml");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A daemon that is ready, with short waits.
fn quick(world: &World) -> Daemon<'_> {
    quick_with(world, &[])
}

/// A daemon that is ready, with short waits and these settings.
fn quick_with<'w>(world: &'w World, settings: &[(&str, &str)]) -> Daemon<'w> {
    world.daemon_with(&["--config", &write_config(world, settings)])
}

/// One event.
fn event(id: &str, key: &str, timestamp_ms: i64, value: i64) -> String {
    format!(
        "{{\"id\":\"{id}\",\"key\":\"{key}\",\"timestamp_ms\":{timestamp_ms},\"value\":{value}}}\n"
    )
}

/// A batch of one event, worth 1.
fn one(id: &str) -> String {
    event(id, "k", 500, 1)
}

/// A batch of that many events, worth 1 each, under ids of its own.
fn many(prefix: &str, count: usize) -> String {
    (0..count)
        .map(|n| event(&format!("{prefix}-{n}"), &format!("k{}", n % 7), n as i64, 1))
        .collect()
}

/// How many events were accepted, and what the windows add up to; both by the report, which must
/// agree with itself.
fn accepted(world: &World) -> i64 {
    accepted_in(&world.report())
}

/// The same of a report.
fn accepted_in(report: &Value) -> i64 {
    let accepted = report["totals"]["accepted"].as_i64().unwrap();
    let windows = report["windows"].as_array().unwrap();
    let counted: i64 = windows.iter().map(|window| window["count"].as_i64().unwrap()).sum();
    assert_eq!(counted, accepted, "the windows and the totals of a report differ");
    accepted
}

/// What the windows of the report add up to.
fn summed(world: &World) -> i64 {
    let report = world.report();
    let windows = report["windows"].as_array().unwrap();
    windows.iter().map(|window| window["sum"].as_i64().unwrap()).sum()
}

/// The store, for looking only.
fn look_into(db: &Path) -> Connection {
    Connection::open_with_flags(db, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

/// Whether the store has that id.
fn remembers(world: &World, id: &str) -> bool {
    let options = windowflow::store::sqlite::Options::default();
    let store = windowflow::store::sqlite::SqliteStore::snapshot(&world.db(), options).unwrap();
    windowflow::store::Snapshot::remembered(&store, id).unwrap().is_some()
}

/// The files of the batches, in the order in which they took effect.
fn order_taken(world: &World) -> Vec<String> {
    let store = look_into(&world.db());
    let mut rows =
        store.prepare("SELECT file FROM batches WHERE kind = 'events' ORDER BY batch").unwrap();
    rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// What `status` calls a fault; empty when there is none.
fn fault(world: &World) -> String {
    world.state()["daemon"]["fault"]["text"].as_str().unwrap_or_default().to_owned()
}

/// One number of the daemon's own account of itself.
fn told(world: &World, name: &str) -> u64 {
    world.state()["daemon"][name].as_u64().unwrap_or_default()
}

/// Whether the long forms are asked for.
fn soaking() -> bool {
    std::env::var_os("WINDOWFLOW_SOAK").is_some()
}
