//! The trusted time of a store that is opened under clocks that are wrong.

use crate::engine::settings::Settings;
use crate::model::clock::Clock;
use crate::store::conformance::{deliver, ev};
use crate::store::memory::MemoryStore;
use crate::store::sqlite::{Options, SqliteStore};
use crate::store::{Retention, Snapshot, Store};

const BEGUN_MS: i64 = 1_790_000_000_000;
const DAY_MS: i64 = 86_400_000;
const YEARS_MS: i64 = 3650 * DAY_MS;

fn machine(now_ms: i64, running_ms: i64) -> Clock {
    Clock::Machine { now_ms, running_ms }
}

/// Puts a store under wrong clocks: `at` opens it as a process that begins at that moment.
fn assert_not_misled<S: Store>(mut store: S, at: impl Fn(S, i64) -> S) {
    let settings = store.settings();
    assert_eq!(store.trusted_ms(), BEGUN_MS, "the clock when it was made");
    deliver(&mut store, 1, &[ev("a", "k", BEGUN_MS, 1)]);
    // a start in 1970: what is in time is neither held nor late, what is ahead is held
    store = at(store, 0);
    let events = [ev("b", "k", BEGUN_MS + 1000, 1), ev("c", "k", BEGUN_MS + 2 * DAY_MS, 1)];
    let counts = deliver(&mut store, 2, &events).counts;
    assert_eq!((counts.accepted, counts.future, counts.late), (1, 1, 0));
    assert_eq!((store.now_ms(), store.trusted_ms()), (BEGUN_MS, BEGUN_MS));
    // one ten years ahead: nothing is older than it was
    store = at(store, BEGUN_MS + YEARS_MS);
    assert_eq!(store.trusted_ms(), BEGUN_MS);
    deliver(&mut store, 3, &[ev("d", "k", BEGUN_MS + 2000, 1)]);
    store.keep_time().unwrap();
    assert_eq!(store.trusted_ms(), BEGUN_MS);
    let old = Retention { receipts_before_ms: Some(BEGUN_MS - DAY_MS), ..Retention::default() };
    assert_eq!(store.prune(&old).unwrap().receipts, 0);
    // whoever knows better says so, in both directions
    store.trust_now().unwrap();
    assert_eq!(store.trusted_ms(), BEGUN_MS + YEARS_MS);
    store = at(store, BEGUN_MS);
    assert_eq!(store.now_ms(), BEGUN_MS + YEARS_MS);
    store.trust_now().unwrap();
    assert_eq!((store.now_ms(), store.trusted_ms()), (BEGUN_MS, BEGUN_MS));
    assert_eq!(store.settings(), settings);
}

/// Has failed for a time that follows at once or goes back, and for receipts stamped by the clock.
#[test]
fn case_114_no_store_is_misled_by_a_clock_that_is_wrong_for_a_while() {
    let settings = Settings::new(1000, 0).unwrap();
    assert_not_misled(MemoryStore::new(settings, machine(BEGUN_MS, 0)), |mut store, now_ms| {
        store.set_clock(machine(now_ms, 0));
        store
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    let options = |now_ms| Options { clock: machine(now_ms, 0), ..Options::default() };
    let (store, _) = SqliteStore::create(&path, settings, options(BEGUN_MS)).unwrap();
    assert_not_misled(store, |store, now_ms| {
        drop(store);
        SqliteStore::open(&path, options(now_ms)).unwrap()
    });
    let snapshot = SqliteStore::snapshot(&path, options(0)).unwrap();
    assert_eq!(snapshot.receipt(2).unwrap().unwrap().committed_at_ms, BEGUN_MS);
    assert_eq!(snapshot.summary().unwrap().trusted_ms, Some(BEGUN_MS));
}

#[test]
fn case_114_an_older_store_trusts_its_last_receipt() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/store-v3.db");
    let path = folder.path().join("w.db");
    std::fs::copy(fixture, &path).unwrap();
    let in_1970 = Options { clock: machine(0, 0), ..Options::default() };
    let store = SqliteStore::open(&path, in_1970.clone()).unwrap();
    let snapshot = SqliteStore::snapshot(&path, in_1970).unwrap();
    let mut last_ms = 0;
    let mut each = |row: &crate::store::ReceiptRow| {
        last_ms = row.committed_at_ms;
        std::ops::ControlFlow::Continue(())
    };
    snapshot.receipts(0, &mut each).unwrap();
    assert!(last_ms > 1_700_000_000_000, "{last_ms}");
    assert_eq!((store.trusted_ms(), store.now_ms()), (last_ms, last_ms));
}
