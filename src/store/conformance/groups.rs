//! Batches that are synced together: each whole by itself, none durable before all are.

use super::world::*;
use crate::store::failing::{FailedCall, FailingStore};
use crate::store::{Begun, Error, Store};

fn events(number: u64) -> [Ev; 2] {
    // the second one comes in every batch
    [ev(&format!("id{number}"), "k", number as i64, 1), ev("same", "l", 7, 7)]
}

pub(super) fn a_group_is_seen_before_it_is_synced(subject: &impl Subject) {
    let mut store = subject.make(settings());
    store.sync().unwrap();
    let first = ingest_unsynced(&mut store, &delivery(1), &events(1)).unwrap();
    store.record_refusal(&refused()).unwrap();
    let second = ingest_unsynced(&mut store, &delivery(2), &events(2)).unwrap();
    assert!(second.batch > first.batch);
    assert_eq!((second.counts.accepted, second.counts.duplicate), (1, 1));
    let seen = subject.dump(&store);
    assert_eq!((seen.summary.batches, seen.summary.refused_batches), (2, 1));
    assert!(matches!(store.begin_unsynced(&delivery(1)).unwrap(), Begun::Known(it) if it == first));
    assert!(matches!(store.begin(&delivery(2)).unwrap(), Begun::Known(it) if it == second));
    store.sync().unwrap();
    assert_eq!(subject.dump(&store), seen);
    // one that is durable by itself, after some that are not
    ingest_unsynced(&mut store, &delivery(3), &events(3)).unwrap();
    deliver(&mut store, 4, &events(4));
    let seen = subject.dump(&store);
    let store = subject.reopen(store);
    assert_eq!(subject.dump(&store), seen);
    assert_eq!(seen.summary.batches, 4);
}

pub(super) fn a_batch_of_a_group_can_be_dropped(subject: &impl Subject) {
    let mut store = subject.make(settings());
    ingest_unsynced(&mut store, &delivery(1), &events(1)).unwrap();
    let before = subject.dump(&store);
    let conflict = [ev("x", "k", 9, 9), ev("same", "l", 7, 8)];
    let stopped = ingest_unsynced(&mut store, &delivery(2), &conflict);
    assert!(matches!(stopped, Err(Stopped::Conflict { event_index: 1, .. })), "{stopped:?}");
    assert_eq!(subject.dump(&store), before);
    store.sync().unwrap();
    assert_eq!(subject.dump(&store), before);
}

/// Takes in what is not in, and syncs.
fn group<S: Store>(store: &mut S, refuse: bool) -> Result<(), Stopped> {
    for number in 1..=3 {
        ingest_unsynced(store, &delivery(number), &events(number))?;
    }
    if refuse {
        store.record_refusal(&refused())?;
    }
    Ok(store.sync()?)
}

pub(super) fn a_failure_anywhere_in_a_group_leaves_whole_batches(subject: &impl Subject) {
    let mut whole = FailingStore::new(subject.make(settings()), usize::MAX, FailedCall::Io);
    group(&mut whole, true).unwrap();
    let (calls, after) = (whole.calls(), subject.dump(whole.inner()));
    assert_eq!(calls, 3 * 5 + 2, "begin, facts, progress, apply and commit of each; the rest");
    for failure in FailedCall::ALL {
        for fail_at in 0..calls {
            let mut store = FailingStore::new(subject.make(settings()), fail_at, failure);
            let failed = group(&mut store, true);
            let case = format!("{failure:?} at call {fail_at}: {failed:?}");
            assert!(failed.is_err() && store.has_failed(), "{case}");
            let is_lost = matches!(failure, FailedCall::LostBefore | FailedCall::LostAfter);
            let can_be_lost = fail_at + 1 == calls || (fail_at < 15 && fail_at % 5 == 4);
            let unknown = matches!(failed, Err(Stopped::Store(Error::Unknown(_))));
            assert_eq!(unknown, is_lost && can_be_lost, "{case}");
            let before_it = (fail_at / 5).min(3) as u64;
            let is_in = u64::from(failure == FailedCall::LostAfter && fail_at < 15 && unknown);
            let summary = subject.dump(store.inner()).summary;
            assert_eq!(summary.batches, before_it + is_in, "{case}");
            // given again, under the same tokens
            let was_refused = summary.refused_batches > 0;
            group(&mut store, !was_refused).unwrap();
            assert_eq!(subject.dump(store.inner()), after, "{case}");
        }
    }
}
