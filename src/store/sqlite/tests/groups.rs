//! Commits that are synced together: what is known of them when the connection is lost before.

use super::*;
use crate::store::Begun;
use crate::store::conformance::{deliver, delivery, ev, ingest_unsynced, refused, settings};

/// A number that a pragma answers.
fn pragma(store: &SqliteStore, name: &str) -> i64 {
    let connection = store.connection.as_ref().unwrap();
    connection.pragma_query_value(None, name, |row| row.get(0)).unwrap()
}

fn take(store: &mut SqliteStore, number: u64) {
    let id = format!("id{number}");
    ingest_unsynced(store, &delivery(number), &[ev(&id, "k", 1, 1)]).unwrap();
}

#[test]
fn commits_of_a_group_are_not_synced_and_begin_no_checkpoint_and_all_others_are() {
    let files = Files::new();
    let mut store = files.make(settings());
    let found = |store: &SqliteStore| {
        (pragma(store, "synchronous"), pragma(store, "wal_autocheckpoint") > 0)
    };
    assert_eq!(found(&store), (2, true));
    take(&mut store, 1);
    assert_eq!(found(&store), (1, false));
    store.record_refusal(&refused()).unwrap();
    assert_eq!(found(&store), (1, false));
    store.sync().unwrap();
    assert_eq!(found(&store), (2, true));
    take(&mut store, 2);
    deliver(&mut store, 3, &[ev("c", "k", 1, 1)]);
    assert_eq!(found(&store), (2, true));
    assert!(!store.unsynced.pending(), "the last one synced all of them");
}

/// Each page more is 4 KiB for each file with one event.
#[test]
fn a_batch_of_one_event_writes_few_pages() {
    const BATCHES: u64 = 20;
    let files = Files::new();
    let mut store = files.make(settings());
    let log = file::with_ending(&store.path, "-wal");
    let bytes = || std::fs::metadata(&log).unwrap().len();
    take(&mut store, 0);
    let before = bytes();
    for number in 1..=BATCHES {
        let event = ev(&format!("id{number}"), "k", number as i64, 1);
        ingest_unsynced(&mut store, &delivery(number), &[event]).unwrap();
    }
    let pages = (bytes() - before).div_ceil(4096 + 24) as f64 / BATCHES as f64;
    assert!(pages <= 8.0, "{pages} pages a batch");
}

#[test]
fn what_writes_nothing_is_no_sync() {
    let files = Files::new();
    let mut store = files.make(settings());
    take(&mut store, 1);
    store.retention_bounds(&Retention::default()).unwrap();
    assert!(store.unsynced.pending());
    let log = file::with_ending(&store.path, "-wal");
    let bytes = || std::fs::metadata(&log).unwrap().len();
    let before = bytes();
    store.sync().unwrap();
    assert!(bytes() > before, "without a page to write the log is not synced");
    assert!(!store.unsynced.pending());
    let before = bytes();
    store.sync().unwrap();
    assert_eq!(bytes(), before, "there is nothing to do");
}

#[test]
fn a_connection_that_is_lost_before_the_sync_makes_the_group_unknown() {
    let files = Files::new();
    let mut store = files.make(settings());
    take(&mut store, 1);
    store.record_refusal(&refused()).unwrap();
    // as any failure within a later batch does
    store.close();
    assert!(store.in_doubt);
    take(&mut store, 2);
    deliver(&mut store, 3, &[ev("c", "k", 1, 1)]);
    let found = store.sync();
    assert!(matches!(found, Err(Error::Unknown(_))), "{found:?}");
    for number in 1..=3 {
        let found = store.begin_unsynced(&delivery(number)).unwrap();
        assert!(matches!(found, Begun::Known(_)), "{number}");
    }
    let count = |store: &SqliteStore| {
        SqliteStore::snapshot(&store.path, options()).unwrap().summary().unwrap().refused_batches
    };
    store.record_refusal(&refused()).unwrap();
    assert_eq!(count(&store), 1, "it was in, and counts once");
    store.sync().unwrap();
    store.record_refusal(&refused()).unwrap();
    assert_eq!(count(&store), 2, "no doubt: another one");
}
