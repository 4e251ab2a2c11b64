//! A write that fails anywhere in an act, or in what only some settings write, undoes all of it.

use rusqlite::Connection;

use super::*;
use crate::engine::Presence;
use crate::engine::settings::{LatePolicy, LateRule};
use crate::store::conformance::{
    Dump, NOW_MS, Stopped, apply_late, change_presence, deliver, delivery, discard, ev, ingest,
    release, settings,
};

/// Does something while that kind of write to the table fails, and again when it no longer does.
fn stumble(
    files: &Files,
    store: &mut SqliteStore,
    (write, table): (&str, &str),
    act: impl Fn(&mut SqliteStore) -> Result<(), Error>,
) {
    let path = store.path.clone();
    let before = Dump::of(&*files.snapshot(store));
    let trip = format!(
        "CREATE TRIGGER trip BEFORE {write} ON {table} BEGIN SELECT RAISE(ABORT, 'trip'); END"
    );
    Connection::open(&path).unwrap().execute_batch(&trip).unwrap();
    match act(store) {
        Err(Error::Io(text)) => assert!(text.contains("trip"), "{text}"),
        other => panic!("{write} {table}: expected a failure, found {other:?}"),
    }
    assert_eq!(Dump::of(&*files.snapshot(store)), before, "{write} {table}");
    Connection::open(&path).unwrap().execute_batch("DROP TRIGGER trip").unwrap();
}

#[test]
fn a_correction_that_fails_anywhere_undoes_the_batch() {
    let files = Files::new();
    let mut store = files.make(settings().with_late(LateRule::Window, LatePolicy::Correct));
    deliver(&mut store, 1, &[ev("a", "k", 100, 1), ev("b", "k", 2600, 1)]);
    change_presence(&mut store, 2, &["default"], Presence::Idle).unwrap();
    let late = ev("c", "k", 200, 1);
    for trip in [("INSERT", "revisions"), ("UPDATE", "windows"), ("INSERT", "presence")] {
        stumble(&files, &mut store, trip, |store| {
            match ingest(store, &delivery(3), &[std::slice::from_ref(&late)]) {
                Ok(_) => Ok(()),
                Err(Stopped::Store(error)) => Err(error),
                Err(other) => panic!("{other:?}"),
            }
        });
    }
    let committed = deliver(&mut store, 3, &[late]);
    assert_eq!(committed.counts.late, 1);
}

#[test]
fn an_act_that_fails_anywhere_undoes_all_of_it() {
    let files = Files::new();
    let mut store = files.make(settings());
    let ahead_ms = NOW_MS + 100_001;
    let events = [
        ev("a", "k", 100, 1),
        ev("b", "k", 2600, 1),
        ev("c", "k", 200, 1),
        ev("h", "k", ahead_ms, 1).by("1"),
        ev("i", "k", ahead_ms, 1).by("1"),
    ];
    deliver(&mut store, 1, &events);
    let mut store = files.reopen_at(store, NOW_MS + 50);
    for trip in [("INSERT", "presence"), ("UPDATE", "sources"), ("INSERT", "batches")] {
        stumble(&files, &mut store, trip, |store| {
            change_presence(store, 2, &["default"], Presence::Idle).map(|_| ())
        });
    }
    for trip in [("UPDATE", "late"), ("INSERT", "revisions"), ("UPDATE", "store")] {
        stumble(&files, &mut store, trip, |store| apply_late(store, 2, 9).map(|_| ()));
    }
    for trip in [("INSERT", "settled"), ("DELETE", "held")] {
        stumble(&files, &mut store, trip, |store| discard(store, 2, |_| true).map(|_| ()));
        stumble(&files, &mut store, trip, |store| release(store, 2, 1).map(|_| ()));
    }
    for trip in [("UPDATE", "versions"), ("UPDATE", "sources"), ("UPDATE", "store")] {
        stumble(&files, &mut store, trip, |store| release(store, 2, 1).map(|_| ()));
    }
    assert_eq!(release(&mut store, 2, 1).unwrap().counts.accepted, 2);
}
