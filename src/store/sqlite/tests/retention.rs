//! Retention in a file: in bounded transactions, with freed pages used again.

use std::ops::ControlFlow;

use rusqlite::Connection;

use super::*;
use crate::store::conformance::{
    Dump, Ev, NOW_MS, Stopped, deliver, delivery, ev, ingest, settings,
};
use crate::store::{Begun, KEPT_RECEIPTS, KEPT_RECEIPTS_MS, Pruned, Retention};

const ALL: Retention = Retention {
    ledger: true,
    windows_before_ms: Some(i64::MAX),
    late_before_ms: Some(i64::MAX),
    receipts_before_ms: Some(i64::MAX),
    moves_before_ms: Some(i64::MAX),
};

fn pages(store: &SqliteStore) -> i64 {
    let connection = store.connection.as_ref().unwrap();
    connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap()
}

/// Ids and keys of a second, long enough to fill pages.
fn second(number: u64) -> Vec<Ev> {
    let name = |n: u64| format!("{number}-{n}-{}", "x".repeat(200));
    (0..20).map(|n| ev(&name(n), &name(n), number as i64 * 1000, 1)).collect()
}

/// Stores whose batches forget nothing by themselves.
fn only_pruned() -> Files {
    Files { sizes: Sizes { forget_rows: u64::MAX, ..Sizes::default() }, ..Files::new() }
}

#[test]
fn the_file_stops_growing_under_steady_load() {
    let files = Files::new();
    let mut store = files.make(settings().with_dedup_horizon_ms(Some(3000)).unwrap());
    let mut sizes = Vec::new();
    for number in 1..=120 {
        deliver(&mut store, number, &second(number));
        if number % 5 == 0 {
            store.prune(&ALL).unwrap();
        }
        if number % 40 == 0 {
            sizes.push(pages(&store));
        }
    }
    // what is left to grow is the receipts, of which the last ones always stay
    assert!(sizes[2] - sizes[0] <= 8, "{sizes:?}");

    let mut unpruned = files.make(settings());
    (1..=40).for_each(|number| {
        deliver(&mut unpruned, number, &second(number));
    });
    assert!(pages(&unpruned) > 2 * sizes[2], "{} and {sizes:?}", pages(&unpruned));
}

#[test]
fn others_get_their_turn_in_between() {
    let files = only_pruned();
    let mut store = files.make(settings().with_dedup_horizon_ms(Some(3000)).unwrap());
    (1..=20).for_each(|number| {
        deliver(&mut store, number, &second(number));
    });
    let before = Dump::of(&*files.snapshot(&store));
    // every transaction that removes something from these stumbles
    let path = store.path.clone();
    let trip = |table: &str, after: u32| {
        let sql = format!(
            "CREATE TABLE IF NOT EXISTS gone (n INTEGER) STRICT;
             CREATE TRIGGER trip AFTER DELETE ON {table} BEGIN
                 INSERT INTO gone VALUES (1);
                 SELECT RAISE(ABORT, 'trip') WHERE (SELECT COUNT(*) FROM gone) > {after};
             END"
        );
        Connection::open(&path).unwrap().execute_batch(&sql).unwrap();
    };
    store.prune_rows = 10;
    trip("windows", 25);
    let failed = store.prune(&Retention { ledger: false, ..ALL });
    assert!(matches!(&failed, Err(Error::Io(text)) if text.contains("trip")), "{failed:?}");
    let after = Dump::of(&*files.snapshot(&store));
    assert_eq!(before.windows.len() - after.windows.len(), 20, "two transactions of ten stand");
    assert_eq!(after.summary.windows, after.windows.len() as u64);
    Connection::open(&path).unwrap().execute_batch("DROP TRIGGER trip").unwrap();
    let rest = store.prune(&ALL).unwrap();
    assert_eq!(rest.windows as usize + 20, 18 * 20, "the last two are open");
    assert_eq!(rest.ids, 16 * 20);
}

#[test]
fn what_is_cut_short_goes_on_where_it_stopped() {
    let files = only_pruned();
    let mut store = files.make(settings().with_dedup_horizon_ms(Some(3000)).unwrap());
    (1..=20).for_each(|number| {
        deliver(&mut store, number, &second(number));
    });
    store.prune_rows = 10;
    let mut steps = 0;
    let mut ids = 0;
    while ids < 16 * 20 {
        let mut asked = 0;
        let mut after_two = || {
            asked += 1;
            if asked == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let ledger = Retention { ledger: true, ..Retention::default() };
        ids += store.prune_paced(&ledger, &mut after_two).unwrap().ids;
        steps += 1;
        assert!(steps <= 20 * 20 / 20 + 1, "{ids} ids are gone after {steps} turns");
    }
    assert_eq!(ids, 16 * 20);
}

#[test]
fn receipts_go_when_they_are_many_and_old() {
    let files = Files::new();
    let mut store = files.make(settings());
    (1..=6).for_each(|number| {
        deliver(&mut store, number, &[ev(&format!("{number}"), "k", 1, 1)]);
    });
    let store = files.reopen_at(store, NOW_MS + KEPT_RECEIPTS_MS + 1);
    let path = store.path.clone();
    let mut store = store;
    let all = Retention { receipts_before_ms: Some(i64::MAX), ..Retention::default() };
    assert_eq!(store.prune(&all).unwrap(), Pruned::default(), "they are the last ones");
    let many = format!("UPDATE store SET last_number = {}", KEPT_RECEIPTS + 4);
    Connection::open(&path).unwrap().execute_batch(&many).unwrap();
    let mut store = files.reopen_at(store, NOW_MS + KEPT_RECEIPTS_MS);
    assert_eq!(store.prune(&all).unwrap(), Pruned::default(), "a day is not over");
    let mut store = files.reopen_at(store, NOW_MS + KEPT_RECEIPTS_MS + 1);
    let early = Retention { receipts_before_ms: Some(NOW_MS), ..Retention::default() };
    assert_eq!(store.prune(&early).unwrap(), Pruned::default(), "they are not that old");
    assert_eq!(store.prune(&all).unwrap(), Pruned { receipts: 4, ..Pruned::default() });
    let is_known = |store: &mut SqliteStore, number| {
        matches!(store.begin(&delivery(number)).unwrap(), Begun::Known(_))
    };
    let known: Vec<_> = (1..=6).map(|number| is_known(&mut store, number)).collect();
    assert_eq!(known, [false, false, false, false, true, true]);
    // an id whose receipt is gone is still known, and says what it can
    let again = deliver(&mut store, 9, &[ev("1", "k", 1, 1)]);
    assert_eq!(again.counts.duplicate, 1);
    let conflict = ingest(&mut store, &delivery(10), &[&[ev("1", "k", 1, 2)]]);
    match conflict {
        Err(Stopped::Conflict { other, .. }) => {
            assert_eq!((other.file, other.batch, other.value), (None, Some(1), Some(1)));
        }
        other => panic!("expected a conflict, found {other:?}"),
    }
}

/// Nobody prunes, and a process takes in no more than some batches, as under `run --once`. Seconds are
/// numbered; one event in each may be far ahead, which keeps its row and nothing else.
fn grown(is_one_ahead: bool) -> i64 {
    let files = Files::new();
    let mut store = files.make(settings().with_dedup_horizon_ms(Some(3000)).unwrap());
    let key = "k".repeat(200);
    let second = |number: u64| -> Vec<Ev> {
        let at = |n: u64| if is_one_ahead && n == 7 { 2_000_000 } else { number as i64 * 1000 };
        (0..100).map(|n| ev(&format!("{number}-{n}"), &key, at(n), 1)).collect()
    };
    let mut size = 0;
    for number in 1..=180 {
        deliver(&mut store, number, &second(number));
        if number % 7 == 0 {
            store = files.reopen(store);
        }
        if number == 60 {
            size = pages(&store);
        }
    }
    let again = deliver(&mut store, 500, &second(180)[..3]);
    assert_eq!(again.counts.duplicate, 3, "what is remembered still is");
    pages(&store) - size
}

#[test]
fn case_149_a_store_with_a_horizon_stops_growing_without_a_pause() {
    // 120 seconds are written in 720 pages
    let (even, ahead) = (grown(false), grown(true));
    assert!(even <= 20, "{even} pages more");
    assert!(
        ahead <= 200,
        "{ahead} pages more: one of the six pages of each second, and held events"
    );
}
