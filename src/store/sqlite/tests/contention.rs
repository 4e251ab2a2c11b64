//! Several connections to one store: nobody loses an event, counts one twice, or waits for ever.

use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;

use super::*;
use crate::engine::Counts;
use crate::store::conformance::{Dump, Stopped, deliver, delivery, ev, ingest, settings};

/// So many threads deliver at once, each through a connection of its own.
fn together(path: &Path, count: u64, id: impl Fn(u64) -> String + Sync) -> Counts {
    let barrier = std::sync::Barrier::new(count as usize);
    std::thread::scope(|scope| {
        let one = |number: u64| {
            let mut store = SqliteStore::open(path, options()).unwrap();
            barrier.wait();
            deliver(&mut store, number, &[ev(&id(number), "k", 10, 3)]).counts
        };
        let threads: Vec<_> = (0..count).map(|n| scope.spawn(move || one(n))).collect();
        let mut all = Counts::default();
        threads.into_iter().for_each(|thread| all.add(&thread.join().unwrap()));
        all
    })
}

#[test]
fn of_24_deliveries_of_one_id_one_counts() {
    let files = Files::new();
    let path = files.make(settings()).path.clone();
    let counts = together(&path, 24, |_| "same".to_owned());
    assert_eq!(counts, Counts { accepted: 1, duplicate: 23, ..Counts::default() });
    let dump = Dump::of(&SqliteStore::snapshot(&path, options()).unwrap());
    assert_eq!((dump.windows[0].2.count, dump.windows[0].2.sum), (1, 3));
    assert_eq!((dump.summary.batches, dump.summary.counts), (24, counts));
}

#[test]
fn of_40_distinct_deliveries_none_is_lost() {
    let files = Files::new();
    let path = files.make(settings()).path.clone();
    let counts = together(&path, 40, |number| format!("id{number}"));
    assert_eq!(counts, Counts { accepted: 40, ..Counts::default() });
    let dump = Dump::of(&SqliteStore::snapshot(&path, options()).unwrap());
    assert_eq!((dump.windows[0].2.count, dump.windows[0].2.sum), (40, 120));
    assert_eq!(dump.summary.last_batch, Some(40));
}

#[test]
fn a_store_that_is_held_is_not_to_be_had_and_free_again_afterwards() {
    let files = Files::new();
    let mut store = files.make(settings());
    store.options.busy_timeout = Duration::from_millis(30);
    // another process would make it busy; this one stands in its own way
    let other = Connection::open(&store.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let found = ingest(&mut store, &delivery(1), &[&[ev("a", "k", 1, 1)]]);
    let Err(Stopped::Store(Error::Stuck(text))) = found else { panic!("{found:?}") };
    assert!(text.contains(&store.path.display().to_string()) && text.contains("start windowflow"));
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(deliver(&mut store, 1, &[ev("a", "k", 1, 1)]).counts.accepted, 1);
}

#[test]
fn case_p2_our_own_stale_lock_comes_off_with_the_connection() {
    let files = Files::new();
    let mut store = files.make(settings());
    store.options.busy_timeout = Duration::from_millis(30);
    // a transaction that was never ended stands for an unlock that failed
    store.connection.as_ref().unwrap().execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut second = SqliteStore::open(&store.path, store.options.clone()).unwrap();
    let Some(Error::Stuck(text)) = second.begin(&delivery(1)).err() else { panic!("not stuck") };
    assert!(text.contains("this process holds it itself"), "{text}");
    store.connection = None;
    deliver(&mut second, 1, &[ev("a", "k", 1, 1)]);
}

#[test]
fn busy_without_anybody_else_the_connection_is_opened_again() {
    let files = Files::new();
    let mut store = files.make(settings());
    store.options.busy_timeout = Duration::from_millis(30);
    // the connection is in its own way: it can never lock the same file under both names
    let connection = store.connection.as_ref().unwrap();
    connection.execute("ATTACH ?1 AS again", [store.path.to_str().unwrap()]).unwrap();
    let refused = connection.execute_batch("BEGIN IMMEDIATE").unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy));
    deliver(&mut store, 1, &[ev("a", "k", 1, 1)]);
}

#[test]
fn case_056_batches_wait_for_others_that_write_again_and_again() {
    let files = Files::new();
    let mut store = files.make(settings());
    let path = store.path.clone();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = Connection::open(&path).unwrap();
            other.busy_timeout(Duration::from_secs(10)).unwrap();
            while !done.load(Ordering::Relaxed) {
                other.execute_batch("BEGIN IMMEDIATE").unwrap();
                std::thread::yield_now();
                other.execute_batch("ROLLBACK").unwrap();
            }
        });
        for number in 0..100 {
            deliver(&mut store, number, &[ev(&format!("id{number}"), "k", 10, 1)]);
        }
        done.store(true, Ordering::Relaxed);
    });
    let dump = Dump::of(&SqliteStore::snapshot(&path, options()).unwrap());
    assert_eq!(dump.windows[0].2.count, 100);
}

#[test]
fn a_batch_that_is_open_is_seen_by_nobody() {
    let files = Files::new();
    let mut store = files.make(settings());
    let path = store.path.clone();
    deliver(&mut store, 1, &[ev("a", "k", 1, 1)]);
    let before = Dump::of(&SqliteStore::snapshot(&path, options()).unwrap());
    let Begun::Open(mut batch) = store.begin(&delivery(2)).unwrap() else { panic!("known") };
    let changes = crate::engine::Changes { watermark_ms: 9000, ..Default::default() };
    batch.apply(&crate::model::event::Chunk::default(), &changes).unwrap();
    assert_eq!(Dump::of(&SqliteStore::snapshot(&path, options()).unwrap()), before);
    drop(batch);
}
