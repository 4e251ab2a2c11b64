//! What each source sent of each key: every event has one account, whatever becomes of it.

use std::collections::BTreeMap;

use super::acts::*;
use super::world::*;
use crate::engine::Counts;
use crate::engine::settings::{LatePolicy, LateRule};
use crate::store::{Pruned, Retention, Store};

const AHEAD_MS: i64 = NOW_MS + 100_001;

/// What accounts say of each source is what the source says, and of all what the store says.
pub(crate) fn assert_they_add_up(dump: &Dump) {
    let mut by_source: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut all = Counts::default();
    for (source, _, counts, _) in &dump.accounts {
        by_source.entry(source).or_default().add(counts);
        all.add(counts);
    }
    for row in &dump.sources {
        let found = by_source.remove(row.source.as_str()).unwrap_or_default();
        assert_eq!(found, row.counts, "{}: {:?}", row.source, dump.accounts);
    }
    assert!(by_source.is_empty(), "accounts of no source: {by_source:?}");
    assert_eq!(all, dump.summary.counts, "{:?}", dump.accounts);
}

fn counts(accepted: u64, late: u64, duplicate: u64, future: u64, expired: u64) -> Counts {
    Counts { accepted, late, duplicate, future, expired }
}

fn account(source: &str, key: &str, counts: Counts, last_seen_ms: i64) -> Account {
    (source.to_owned(), Some(key.to_owned()), counts, Some(last_seen_ms))
}

fn rest(source: &str, counts: Counts) -> Account {
    (source.to_owned(), None, counts, None)
}

pub(super) fn every_event_has_its_account(subject: &impl Subject) {
    for policy in [LatePolicy::Aside, LatePolicy::Drop, LatePolicy::Correct] {
        let settings = settings().with_late(LateRule::Window, policy);
        let mut store = subject.make(settings.with_dedup_horizon_ms(Some(3000)).unwrap());
        deliver(&mut store, 1, &[ev("a", "k", 100, 1), ev("b", "k", 2600, 1), ev("b2", "l", 0, 1)]);
        let chunks: [&[Ev]; 2] = [
            &[ev("c", "k", 200, 1), ev("a", "k", 100, 1), ev("d", "k", AHEAD_MS, 1)],
            // the other source holds the watermark where it is
            &[ev("e", "k", 2900, 1).from("s"), ev("f", "l", 6000, 1), ev("d", "k", AHEAD_MS, 1)],
        ];
        ingest(&mut store, &delivery(2), &chunks).unwrap();
        deliver(&mut store, 3, &[ev("g", "l", 5500, 1).from("s"), ev("h", "k", 1999, 1)]);
        let dump = subject.dump(&store);
        let expected = [
            account("default", "k", counts(2, 1, 2, 1, 1), 5000),
            account("default", "l", counts(1, 1, 0, 0, 0), 6000),
            account("s", "k", counts(1, 0, 0, 0, 0), 2900),
            account("s", "l", counts(1, 0, 0, 0, 0), 5500),
        ];
        assert_eq!(dump.accounts, expected, "{policy:?}");
        assert_they_add_up(&dump);
    }
}

pub(super) fn a_released_event_changes_its_account(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let held = [ev("a", "k", AHEAD_MS, 1), ev("b", "k", AHEAD_MS, 1), ev("c", "l", AHEAD_MS, 1)];
    deliver(&mut store, 1, &held);
    discard(&mut store, 2, |id| id == "b").unwrap();
    let mut store = subject.reopen_at(store, AHEAD_MS);
    release(&mut store, 3, 1).unwrap();
    let dump = subject.dump(&store);
    let expected = [
        account("default", "k", counts(1, 0, 0, 1, 0), AHEAD_MS),
        account("default", "l", counts(1, 0, 0, 0, 0), AHEAD_MS),
    ];
    assert_eq!(dump.accounts, expected, "what was discarded still counts as future");
    assert_they_add_up(&dump);
}

pub(super) fn they_come_by_source_and_key(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let mut events = Vec::new();
    for (at, source) in ["é", "a\0", "b", "a"].into_iter().enumerate() {
        for key in ["z", "é", "a\0", "a"] {
            events.push(ev(&format!("{at}{key}"), key, 5, 1).from(source));
        }
    }
    deliver(&mut store, 1, &events);
    let snapshot = subject.snapshot(&store);
    let all = accounts(&*snapshot, usize::MAX);
    let names: Vec<_> = all.iter().map(|row| (&row.0, &row.1)).collect();
    assert!(names.is_sorted() && names.len() == 16, "{names:?}");
    assert_eq!(accounts(&*snapshot, 5), all[..5], "until told to stop");
}

pub(super) fn an_account_goes_when_nothing_is_left_of_it(subject: &impl Subject) {
    let mut store = subject.make(settings());
    for (number, key) in ["gone", "late", "held", "back", "gone"].into_iter().enumerate() {
        let at_ms = number as i64 * 1000;
        deliver(&mut store, 10 + number as u64, &[ev(&format!("{number}"), key, at_ms, 1)]);
    }
    let ahead = [ev("h", "held", AHEAD_MS, 1), ev("l", "late", 1500, 1), ev("o", "x", 0, 1)];
    deliver(&mut store, 1, &ahead);
    deliver(&mut store, 2, &[ev("n", "now", 9900, 1)]);
    deliver(&mut store, 3, &[ev("3", "back", 3000, 1)]);
    let before = subject.dump(&store);
    let until = |ms| Retention { windows_before_ms: Some(ms), ..Retention::default() };
    // all came after it, or has a window that was accepted after it
    assert_eq!(store.prune(&until(1000)).unwrap().accounts, 0);
    let pruned = store.prune(&until(i64::MAX)).unwrap();
    // the watermark is 9400: for late an event waits, one is held, a repeat came at 9400, one has
    // its window
    assert_eq!((pruned.accounts, pruned.windows), (2, 3));
    let dump = subject.dump(&store);
    let keys: Vec<_> = dump.accounts.iter().map(|row| row.1.as_deref()).collect();
    assert_eq!(keys, [None, Some("back"), Some("held"), Some("late"), Some("now")]);
    assert_eq!(dump.accounts[0], rest("default", counts(2, 1, 0, 0, 0)));
    assert_eq!(dump.sources, before.sources);
    assert_they_add_up(&dump);
    assert_eq!(store.prune(&until(i64::MAX)).unwrap(), Pruned::default(), "once is enough");

    // what was settled keeps no account, and one that is gone can begin anew
    discard(&mut store, 4, |_| true).unwrap();
    apply_late(&mut store, 5, 9).unwrap();
    deliver(&mut store, 6, &[ev("m", "gone", 20_500, 1)]);
    let mut store = subject.reopen(store);
    assert_eq!(store.prune(&until(i64::MAX)).unwrap().accounts, 4);
    let dump = subject.dump(&store);
    let expected = [
        rest("default", counts(6, 2, 1, 1, 0)),
        account("default", "gone", counts(1, 0, 0, 0, 0), 20_500),
    ];
    assert_eq!(dump.accounts, expected);
    assert_they_add_up(&dump);
}
