//! `explain` says that it does not know what can no longer be told, and never guesses.

use std::fs;
use std::path::Path;

use windowflow::decode::Limits;
use windowflow::engine::settings::{LatePolicy, LateRule, Settings};
use windowflow::model::clock::Clock;
use windowflow::pipeline::admin_batch::{self, Asked};
use windowflow::pipeline::ingest::{Ended, Ingest, Mode, Seconds, Unwatched};
use windowflow::query::done_files::Archive;
use windowflow::query::explain::Explainer;
use windowflow::store::sqlite::{Options, SqliteStore};
use windowflow::store::{Committed, Delivery, Retention, Store};

use crate::world::World;

const DAY_MS: i64 = 86_400_000;
const ASKED: Asked<'static> = Asked { by: "a test", reason: None };

fn at(now_ms: i64) -> Options {
    Options { clock: Clock::Fixed(now_ms), ..Options::default() }
}

fn made(db: &Path, policy: LatePolicy, now_ms: i64) -> SqliteStore {
    let settings = Settings::new(1000, 0)
        .unwrap()
        .with_late(LateRule::Window, policy)
        .with_max_future_ms(Some(1000))
        .unwrap();
    SqliteStore::create(db, settings, at(now_ms)).unwrap().0
}

/// Takes in events of key k, each with its timestamp and the value 1.
fn take(store: &mut SqliteStore, events: &[(&str, i64)]) {
    let lines: String = events
        .iter()
        .map(|(id, ms)| {
            format!("{{\"id\":\"{id}\",\"key\":\"k\",\"timestamp_ms\":{ms},\"value\":1}}\n")
        })
        .collect();
    take_text(store, &lines);
}

/// Takes in a batch that nothing is wrong with.
pub fn take_text(store: &mut SqliteStore, text: &str) -> Committed {
    let delivery = Delivery::fresh("f".to_owned(), "default".to_owned()).unwrap();
    let limits = Limits::default();
    let ingest = Ingest {
        delivery: &delivery,
        limits,
        mode: Mode::Commit,
        admission: None,
        now_ms: 0,
        seconds: Seconds::Accept,
    };
    match ingest.run(store, text.as_bytes(), &mut Unwatched).unwrap() {
        Ended::Committed(committed) => committed,
        other => panic!("{other:?}"),
    }
}

/// The outcome and whether it counts, as `explain --id` has it.
fn told(db: &Path, id: &str) -> (&'static str, Option<bool>) {
    let snapshot = SqliteStore::snapshot(db, at(0)).unwrap();
    let archive = Archive::new(None, Limits::default());
    let answer = Explainer::new(&snapshot, archive, 0).unwrap().id(id).unwrap();
    let fate = answer.fate.expect("it is known");
    (fate.outcome, fate.counts)
}

#[test]
fn what_was_discarded_is_not_called_accepted_when_the_note_is_gone() {
    let world = World::new();
    let db = world.db();
    let mut store = made(&db, LatePolicy::Aside, 1000);
    take(&mut store, &[("a", 1900), ("h", 5000)]);
    let mut store = SqliteStore::open(&db, at(10_000)).unwrap();
    admin_batch::settle(&mut store, admin_batch::Settling::Discard, &mut |_| true, ASKED).unwrap();
    take(&mut store, &[("b", 5001)]);
    assert_eq!(told(&db, "h"), ("future", Some(false)));
    let mut store = SqliteStore::open(&db, at(10 * DAY_MS)).unwrap();
    let notes = Retention { receipts_before_ms: Some(i64::MAX), ..Retention::default() };
    assert_eq!(store.prune(&notes).unwrap().settled, 1);
    assert_eq!(told(&db, "h"), ("unknown", None));
    // and of one that the clock had room for there is no doubt
    assert_eq!(told(&db, "b"), ("accepted", Some(true)));
}

#[test]
fn the_order_within_a_release_is_not_guessed() {
    for policy in [LatePolicy::Drop, LatePolicy::Correct] {
        let world = World::new();
        let db = world.db();
        let mut store = made(&db, policy, 1000);
        take(&mut store, &[("a", 100), ("h1", 20_000), ("h2", 5000)]);
        let mut store = SqliteStore::open(&db, at(30_000)).unwrap();
        let done =
            admin_batch::settle(&mut store, admin_batch::Settling::Release, &mut |_| true, ASKED)
                .unwrap();
        assert_eq!((done.counts.accepted, done.counts.late), (1, 1));
        assert_eq!(told(&db, "h1"), ("accepted", Some(true)));
        let counts = (policy == LatePolicy::Correct).then_some(true);
        assert_eq!(told(&db, "h2"), ("unknown", counts), "{policy:?}");
    }
}

fn drop_events(world: &World, name: &str, events: &[(&str, i64)]) {
    let lines: String = events
        .iter()
        .map(|(id, ms)| {
            format!("{{\"id\":\"{id}\",\"key\":\"k\",\"timestamp_ms\":{ms},\"value\":1}}\n")
        })
        .collect();
    world.drop_in(name, lines);
}

#[test]
fn an_applied_late_event_is_not_said_to_be_in_no_total_when_its_row_is_gone() {
    let world = World::with_store(3_600_000, 0);
    let config = world.root().join("w.toml");
    fs::write(&config, "[inbox]\nsettle_ms = 0\n[retention]\nlate_days = 1\n").unwrap();
    let config = config.to_str().unwrap();
    drop_events(&world, "1.ndjson", &[("a", 100), ("b", 10 * DAY_MS)]);
    world.drain().ok();
    drop_events(&world, "2.ndjson", &[("c", 200)]);
    world.drain().ok();
    world.run(&["late", "--apply"]).ok();
    let fate = |world: &World| world.run(&["explain", "--id", "c", "--json"]).ok().json();
    assert_eq!(fate(&world)["fate"]["counts"], true);
    let pruned = world.run(&["prune", "--json", "--config", config]).ok().json();
    assert_eq!(pruned["late"], 1, "{pruned}");
    let after = fate(&world);
    assert_eq!(after["fate"]["outcome"], "late");
    assert_eq!(after["fate"]["counts"], serde_json::Value::Null, "{after}");
    let window = ["explain", "--key", "k", "--window-start-ms", "0", "--json"];
    let window = world.run(&window).ok().json();
    assert_eq!(window["unsure"]["count"], 1, "{window}");
}

#[test]
fn by_the_stricter_rule_a_correction_in_an_open_window_is_not_called_accepted() {
    let world = World::new();
    world.init(1000, 0, &["--late-rule", "event", "--late-policy", "correct"]);
    drop_events(&world, "1.ndjson", &[("a", 5500), ("b", 5400)]);
    world.drain().ok();
    let answer = world.run(&["explain", "--id", "b", "--json"]).ok().json();
    assert_eq!(answer["fate"]["outcome"], "unknown", "{answer}");
    assert_eq!(answer["fate"]["counts"], true);
}
