//! What retention removes, and what it keeps whatever is asked.

use super::acts::*;
use super::progress::advance;
use super::world::*;
use crate::engine::Presence;
use crate::engine::settings::{LatePolicy, LateRule};
use crate::store::{Pruned, Retention, Store};

const ALL: Retention = Retention {
    ledger: true,
    windows_before_ms: Some(i64::MAX),
    late_before_ms: Some(i64::MAX),
    receipts_before_ms: Some(i64::MAX),
    moves_before_ms: Some(i64::MAX),
};

/// One event in each of ten windows, one batch each; the watermark comes to 8500.
fn ten_windows<S: Store + ?Sized>(store: &mut S) {
    for n in 0..10 {
        deliver(store, 100 + n, &[ev(&format!("t{n}"), "k", n as i64 * 1000, 1)]);
    }
}

fn starts(dump: &Dump) -> Vec<i64> {
    dump.windows.iter().map(|(start_ms, _, _)| *start_ms).collect()
}

pub(super) fn nothing_goes_unasked(subject: &impl Subject) {
    let mut store = subject.make(settings().with_dedup_horizon_ms(Some(1500)).unwrap());
    ten_windows(&mut store);
    deliver(&mut store, 1, &[ev("late", "k", 7500, 1)]);
    let before = subject.dump(&store);
    assert_eq!(store.prune(&Retention::default()).unwrap(), Pruned::default());
    assert_eq!(subject.dump(&store), before);
}

pub(super) fn old_ids_go_behind_the_horizon(subject: &impl Subject) {
    let store = subject.make(settings().with_dedup_horizon_ms(Some(1500)).unwrap());
    let mut store = subject.reopen_at(store, NOW_MS);
    ten_windows(&mut store);
    let before = subject.dump(&store);
    let only_ids = Retention { ledger: true, ..Retention::default() };
    // the watermark is 8500: 7000 is still remembered, 6000 no longer
    let pruned = store.prune(&only_ids).unwrap();
    assert_eq!(Pruned { ids: 0, ..pruned }, Pruned::default(), "nothing else goes");
    // a store may have let some of them go with its batches
    assert!(pruned.ids <= 7, "{pruned:?}");
    let remembered = |id: &str| subject.snapshot(&store).remembered(id).unwrap().is_some();
    assert_eq!(["t6", "t7"].map(remembered), [false, true]);
    assert_eq!(subject.dump(&store), before);
    assert_eq!(store.prune(&only_ids).unwrap(), Pruned::default());
    let again = deliver(&mut store, 1, &[ev("t7", "k", 7000, 1), ev("t6", "k", 6000, 1)]);
    assert_eq!((again.counts.duplicate, again.counts.expired), (1, 1));
    assert!(subject.snapshot(&store).remembered("t7").unwrap().is_some());

    let mut store = subject.make(settings());
    ten_windows(&mut store);
    assert_eq!(store.prune(&only_ids).unwrap(), Pruned::default(), "without a horizon all stay");
    assert_eq!(deliver(&mut store, 1, &[ev("t0", "k", 0, 1)]).counts.duplicate, 1);
}

pub(super) fn final_windows_go_with_their_late_events_and_moves(subject: &impl Subject) {
    let store = subject.make(settings());
    let mut store = subject.reopen_at(store, NOW_MS);
    ten_windows(&mut store);
    let late = [ev("l0", "k", 300, 1), ev("l5", "k", 5300, 1), ev("l6", "k", 6300, 1)];
    deliver(&mut store, 1, &late);
    let some = Retention { windows_before_ms: Some(2999), ..Retention::default() };
    let pruned = store.prune(&some).unwrap();
    assert_eq!(pruned, Pruned { windows: 1, ..Pruned::default() }, "for the first one waits late");
    let dump = subject.dump(&store);
    assert_eq!(starts(&dump), [0, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000]);
    assert_eq!((dump.summary.windows, dump.summary.open_windows), (9, 2));
    let moves = Retention { moves_before_ms: Some(i64::MAX), ..Retention::default() };
    assert_eq!(store.prune(&moves).unwrap(), Pruned::default(), "its first window is there");

    let late = Retention { late_before_ms: Some(6000), ..moves };
    let pruned = store.prune(&Retention { windows_before_ms: Some(i64::MAX), ..late }).unwrap();
    let expected = Pruned { late: 2, windows: 6, moves: 6, ..Pruned::default() };
    assert_eq!(pruned, expected);
    let dump = subject.dump(&store);
    assert_eq!(starts(&dump), [6000, 8000, 9000], "one with a late event, and the open ones");
    assert_eq!((dump.summary.late_kept, dump.summary.late_waiting), (1, 1));
    assert_eq!(dump.moves.iter().map(|row| row.to_ms).min(), Some(7500));
    assert_eq!(dump.summary.counts.late, 3, "what was counted stays counted");

    apply_late(&mut store, 2, 9).unwrap();
    let pruned = store.prune(&ALL).unwrap();
    let gone = (pruned.windows, pruned.revisions, pruned.late, pruned.ids);
    assert_eq!(gone, (1, 1, 1, 0));
    let dump = subject.dump(&store);
    assert_eq!((dump.summary.corrected_windows, dump.summary.late_kept), (0, 0));
    assert_eq!((dump.summary.windows, dump.moves.len()), (2, 0));
    // an event of a window that is gone is late, as before
    assert_eq!(deliver(&mut store, 3, &[ev("l7", "k", 300, 1)]).counts.late, 1);
}

pub(super) fn a_window_that_can_be_corrected_stays(subject: &impl Subject) {
    let correcting = settings().with_late(LateRule::Window, LatePolicy::Correct);
    let mut store = subject.make(correcting);
    ten_windows(&mut store);
    let before = subject.dump(&store);
    assert_eq!(store.prune(&ALL).unwrap(), Pruned::default());
    assert_eq!(subject.dump(&store), before);

    let store = subject.make(correcting.with_dedup_horizon_ms(Some(3000)).unwrap());
    let mut store = subject.reopen_at(store, NOW_MS);
    ten_windows(&mut store);
    deliver(&mut store, 1, &[ev("l6", "k", 6300, 1)]);
    advance(&mut store, 2, 9500).unwrap();
    // up to 6500 nothing comes any more: the window that ends there at the latest may go
    let pruned = store.prune(&Retention { ledger: false, ..ALL }).unwrap();
    assert_eq!((pruned.windows, pruned.revisions), (6, 0));
    let late = deliver(&mut store, 3, &[ev("m6", "k", 6500, 1), ev("m5", "k", 5999, 1)]).counts;
    assert_eq!((late.late, late.expired), (1, 1));
    let dump = subject.dump(&store);
    let (start_ms, _, revision, before) = &dump.revisions[0];
    assert_eq!((*start_ms, *revision, before.len()), (6000, 2, 2));
    advance(&mut store, 4, 10_000).unwrap();
    let pruned = store.prune(&ALL).unwrap();
    assert_eq!((pruned.windows, pruned.revisions), (1, 2));
    assert_eq!(subject.dump(&store).summary.corrected_windows, 0);
}

pub(super) fn a_late_event_of_a_pruned_window_corrects_nothing(subject: &impl Subject) {
    let mut store = subject.make(settings());
    ten_windows(&mut store);
    let some = Retention { windows_before_ms: Some(3000), ..Retention::default() };
    assert_eq!(store.prune(&some).unwrap().windows, 3);
    // of the first two nobody knows what they held; the third was never there
    let late = [ev("x", "k", 300, 7), ev("y", "other", 2300, 7), ev("z", "other", 3300, 7)];
    deliver(&mut store, 1, &late);
    let mut store = subject.reopen(store);
    apply_late(&mut store, 2, 9).unwrap();
    let dump = subject.dump(&store);
    let applied: Vec<_> = dump.late.iter().map(|row| row.applied_in.is_some()).collect();
    assert_eq!(applied, [false, false, true]);
    assert_eq!((starts(&dump)[0], dump.summary.late_waiting), (3000, 2));
}

pub(super) fn old_notes_go(subject: &impl Subject) {
    let mut store = subject.make(settings());
    deliver(&mut store, 1, &[ev("a", "k", NOW_MS + 100_001, 1)]);
    discard(&mut store, 2, |_| true).unwrap();
    change_presence(&mut store, 3, &["s", "t", "u", "v"], Presence::Declared).unwrap();
    let refused = refused();
    for _ in 0..5 {
        store.record_refusal(&refused).unwrap();
    }
    let before = subject.dump(&store);
    let at = |ms| Retention { receipts_before_ms: Some(ms), ..Retention::default() };
    assert_eq!(store.prune(&at(NOW_MS)).unwrap(), Pruned::default());
    let mut store = subject.reopen_at(store, NOW_MS + 200_000_000);
    let pruned = store.prune(&at(NOW_MS + 1)).unwrap();
    let expected = Pruned { refusals: 4, settled: 1, presence: 4, ..Pruned::default() };
    assert_eq!(pruned, expected, "the last refusal stays, and so do the last receipts");
    let after = subject.dump(&store);
    assert_eq!((after.receipts, after.sources), (before.receipts, before.sources));
    assert_eq!(after.summary, before.summary);
    assert!(after.presence.iter().all(Vec::is_empty));
}
