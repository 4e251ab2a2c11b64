//! A failure at any call, of any kind, leaves nothing behind; and the same delivery gets in later.

use super::acts::*;
use super::world::*;
use crate::engine::Presence;
use crate::engine::settings::Settings;
use crate::engine::totals::Totals;
use crate::store::failing::{FailedCall, FailingStore};
use crate::store::{Begun, Committed, Error, Retention, Store};

fn history() -> Vec<Vec<Ev>> {
    vec![
        vec![ev("a", "k", 100, 1), ev("b", "l", 2600, 2).from("s"), ev("c", "k", 2700, 3)],
        vec![ev("d", "k", 50, 4), ev("e", "k", 9_999_999, 5), ev("a", "k", 100, 1).by("2")],
    ]
}

pub(super) fn a_failure_anywhere_leaves_nothing_behind(subject: &impl Subject) {
    let more = [ev("f", "k", 4800, 6).from("s"), ev("g", "k", 4900, 7), ev("d", "k", 50, 4)];
    let (first, second) = more.split_at(2);
    let made = |settings: Settings| {
        let mut store = subject.make(settings);
        for (number, events) in history().iter().enumerate() {
            deliver(&mut store, number as u64, events);
        }
        store
    };
    let mut whole = FailingStore::new(made(settings()), usize::MAX, FailedCall::Io);
    let before = subject.dump(whole.inner());
    let expected = ingest(&mut whole, &delivery(9), &[first, second]).unwrap();
    let (calls, after) = (whole.calls(), subject.dump(whole.inner()));
    assert_eq!(calls, 8, "begin, twice facts, progress and apply, commit");
    let k_at_4000 = (4000, "k".to_owned(), Totals { count: 2, sum: 13, min: 6, max: 7 });
    assert!(after.windows.contains(&k_at_4000), "{:?}", after.windows);

    for failure in FailedCall::ALL {
        for fail_at in 0..calls {
            let mut store = FailingStore::new(made(settings()), fail_at, failure);
            let failed = ingest(&mut store, &delivery(9), &[first, second]);
            let case = format!("{failure:?} at call {fail_at}: {failed:?}");
            assert!(failed.is_err() && store.has_failed(), "{case}");
            let is_commit = fail_at + 1 == calls;
            let is_in = is_commit && failure == FailedCall::LostAfter;
            let lost =
                is_commit && matches!(failure, FailedCall::LostBefore | FailedCall::LostAfter);
            let unknown = matches!(failed, Err(Stopped::Store(Error::Unknown(_))));
            assert_eq!(unknown, lost, "{case}");
            let now = subject.dump(store.inner());
            assert_eq!(now, if is_in { after.clone() } else { before.clone() }, "{case}");
            // the store answers which world it is
            let known = matches!(store.begin(&delivery(9)).unwrap(), Begun::Known(_));
            assert_eq!(known, is_in, "{case}");
            let mut store = store.into_inner();
            let again = ingest(&mut store, &delivery(9), &[first, second]).unwrap();
            assert_eq!(again, expected, "{case}");
            assert_eq!(subject.dump(&store), after, "{case}");
        }
    }
}

/// An act on a store that has something for it to do.
type ActOn = fn(&mut dyn Store) -> Result<Committed, Error>;

pub(super) fn a_failure_anywhere_in_an_act_leaves_nothing_behind(subject: &impl Subject) {
    let made = || {
        let mut store = subject.make(settings());
        for (number, events) in history().iter().enumerate() {
            deliver(&mut store, number as u64, events);
        }
        subject.reopen_at(store, NOW_MS + 9_999_999)
    };
    let acts: [(&str, ActOn); 4] = [
        ("release", |store| release(store, 9, 1)),
        ("discard", |store| discard(store, 9, |_| true)),
        ("apply", |store| apply_late(store, 9, 1)),
        ("idle", |store| change_presence(store, 9, &["s", "new"], Presence::Idle)),
    ];
    for (name, act) in acts {
        let mut whole = FailingStore::new(made(), usize::MAX, FailedCall::Io);
        let before = subject.dump(whole.inner());
        let expected = act(&mut whole).unwrap();
        let (calls, after) = (whole.calls(), subject.dump(whole.inner()));
        assert_ne!(before.summary, after.summary, "{name} does something");
        for failure in [FailedCall::Busy, FailedCall::LostBefore, FailedCall::LostAfter] {
            for fail_at in 0..calls {
                let mut store = FailingStore::new(made(), fail_at, failure);
                let failed = act(&mut store);
                let case = format!("{name}: {failure:?} at call {fail_at}: {failed:?}");
                assert!(failed.is_err() && store.has_failed(), "{case}");
                let is_in = fail_at + 1 == calls && failure == FailedCall::LostAfter;
                let now = subject.dump(store.inner());
                assert_eq!(now, if is_in { after.clone() } else { before.clone() }, "{case}");
                let mut store = store.into_inner();
                assert_eq!(act(&mut store).unwrap(), expected, "{case}");
                assert_eq!(subject.dump(&store), after, "{case}");
            }
        }
    }
    let mut store = FailingStore::new(made(), 0, FailedCall::Full);
    let before = subject.dump(store.inner());
    let ever = Some(i64::MAX);
    let all = Retention { windows_before_ms: ever, late_before_ms: ever, ..Retention::default() };
    assert!(matches!(store.prune(&all), Err(Error::Full(_))));
    assert_eq!(subject.dump(store.inner()), before);
    assert_eq!(store.prune(&all).unwrap().windows, 1);
}
