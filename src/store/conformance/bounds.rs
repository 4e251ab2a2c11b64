//! Numbers at their edges, and rows in their order.

use super::world::*;
use crate::engine::settings::{LatePolicy, LateRule};
use crate::engine::totals::{Delta, Totals};
use crate::engine::window::WindowId;
use crate::engine::{Changes, Counts};
use crate::model::event::Chunk;
use crate::store::{Begun, Error, Overflowing, Span, Store};

pub(super) fn an_overflow_names_every_window(subject: &impl Subject) {
    let mut store = subject.make(settings());
    deliver(
        &mut store,
        1,
        &[ev("a", "k", 1, i64::MAX), ev("b", "l", 1, i64::MIN), ev("c", "m", 1, 5)],
    );
    let before = subject.dump(&store);
    // k comes back into its range, which does not help; n overflows by itself; m is fine
    let events = [
        ev("d", "k", 2, 1),
        ev("e", "k", 2, -1),
        ev("f", "l", 2, -1),
        ev("g", "m", 2, 1),
        ev("h", "n", 2, i64::MAX),
        ev("i", "n", 2, i64::MAX),
    ];
    let found = match ingest(&mut store, &delivery(2), &[&events]) {
        Err(Stopped::Store(Error::Overflow(found))) => found,
        other => panic!("expected an overflow, found {other:?}"),
    };
    let held = |sum| Some(Totals { count: 1, sum, min: sum, max: sum });
    let window = |key: &str, before| Overflowing { key: key.to_owned(), start_ms: 0, before };
    let expected = [window("k", held(i64::MAX)), window("l", held(i64::MIN)), window("n", None)];
    assert_eq!(found, expected);
    assert_eq!(subject.dump(&store), before);
    deliver(&mut store, 3, &[ev("d", "k", 2, -1), ev("e", "k", 2, 1)]);
}

pub(super) fn a_count_has_a_bound_too(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let many = |count| {
        let id = WindowId { start_ms: 0, key: "k" };
        Changes { windows: vec![(id, Delta { count, ..Delta::of(0) })], ..Changes::default() }
    };
    let Begun::Open(mut batch) = store.begin(&delivery(1)).unwrap() else { panic!("known") };
    batch.apply(&Chunk::default(), &many(i64::MAX)).unwrap();
    batch.commit(&receipt(Counts::default())).unwrap();
    let before = subject.dump(&store);
    assert_eq!(before.windows[0].2.count, i64::MAX);

    let Begun::Open(mut batch) = store.begin(&delivery(2)).unwrap() else { panic!("known") };
    match batch.apply(&Chunk::default(), &many(1)) {
        Err(Error::Overflow(found)) => assert_eq!(found[0].before, Some(before.windows[0].2)),
        other => panic!("expected an overflow, found {other:?}"),
    }
    // a batch that has overflowed can only be dropped
    let committed = batch.commit(&receipt(Counts::default()));
    assert!(committed.is_err(), "{committed:?}");
    assert_eq!(subject.dump(&store), before);
}

pub(super) fn late_events_come_by_batch_and_index(subject: &impl Subject) {
    let mut store = subject.make(settings());
    deliver(&mut store, 1, &[ev("z", "k", 9900, 1)]);
    let two = [ev("y", "k", 3000, 1), ev("x", "k", 1000, 2).from("s")];
    let more = [ev("w", "k", 2500, 3)];
    ingest(&mut store, &delivery(2), &[&two, &more]).unwrap();
    deliver(&mut store, 3, &[ev("a", "k", 0, 4)]);
    let snapshot = subject.snapshot(&store);
    let ids = |span, most| -> Vec<String> {
        late(&*snapshot, span, most).into_iter().map(|row| row.id).collect()
    };
    assert_eq!(ids(Span::default(), 99), ["y", "x", "w", "a"]);
    assert_eq!(ids(Span::default(), 2), ["y", "x"], "told to stop");
    assert_eq!(ids(Span { from_ms: Some(1000), to_ms: Some(3000) }, 99), ["x", "w"]);
    let rows = late(&*snapshot, Span::default(), 99);
    let places: Vec<_> = rows.iter().map(|row| row.event_index).collect();
    assert_eq!(places, [0, 1, 2, 0]);
    assert_eq!((rows[1].source.as_str(), rows[0].source.as_str()), ("s", "default"));
    assert_eq!((rows[2].window_start_ms, rows[2].watermark_ms), (2000, 9400));
    assert_eq!(snapshot.summary().unwrap().late_kept, 4);

    let mut store = subject.make(settings().with_late(LateRule::Window, LatePolicy::Drop));
    deliver(&mut store, 1, &[ev("z", "k", 9900, 1), ev("a", "k", 0, 1)]);
    let dump = subject.dump(&store);
    assert_eq!((dump.summary.late_kept, dump.summary.counts.late, dump.late.len()), (0, 1, 0));
}

pub(super) fn windows_come_by_start_and_key_within_a_span(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let events = [
        ev("a", "é", 2000, 1),
        ev("b", "z", 2999, 1),
        ev("c", "Z", 2000, 1),
        ev("d", "k", 3000, 1),
        ev("e", "k", 1999, 1),
        ev("f", "k\u{10000}", 2000, 1),
        ev("g", "k\u{ffff}", 2000, 1),
    ];
    let events: Vec<Ev> = events.into_iter().rev().collect();
    deliver(&mut store, 1, &events);
    let snapshot = subject.snapshot(&store);
    let found = |from_ms, to_ms, most| -> Vec<(i64, String)> {
        windows(&*snapshot, Span { from_ms, to_ms }, most)
            .into_iter()
            .map(|(start_ms, key, _)| (start_ms, key))
            .collect()
    };
    let all = [
        (1000, "k"),
        (2000, "Z"),
        (2000, "k\u{ffff}"),
        (2000, "k\u{10000}"),
        (2000, "z"),
        (2000, "é"),
        (3000, "k"),
    ]
    .map(|(start_ms, key)| (start_ms, key.to_owned()));
    assert_eq!(found(None, None, 99), all);
    assert_eq!(found(Some(2000), Some(3000), 99), all[1..6]);
    assert_eq!(found(Some(2001), None, 99), all[6..]);
    assert_eq!(found(None, Some(1000), 99), []);
    assert_eq!(found(None, None, 3), all[..3], "told to stop");
}

pub(super) fn held_events_are_counted(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let ahead_ms = NOW_MS + 100_001;
    let first = deliver(&mut store, 1, &[ev("a", "k", ahead_ms, 1), ev("b", "k", 10, 1)]);
    assert_eq!((first.counts.future, first.watermark_ms), (1, 0));
    let dump = subject.dump(&store);
    assert_eq!((dump.summary.held, dump.summary.max_timestamp_ms), (1, Some(10)));
    let again = deliver(&mut store, 2, &[ev("a", "k", ahead_ms, 1)]);
    assert_eq!(again.counts.duplicate, 1);
    assert_eq!(subject.dump(&store).summary.held, 1);
}

pub(super) fn a_forgotten_id_is_recorded_again(subject: &impl Subject) {
    let settings = settings().with_dedup_horizon_ms(Some(2000)).unwrap();
    let mut store = subject.make(settings);
    deliver(&mut store, 1, &[ev("a", "k", 1000, 1)]);
    deliver(&mut store, 2, &[ev("z", "k", 9000, 1)]);
    // the watermark is 8500, so that 1000 is forgotten: the same id may come with another payload
    let events = [ev("a", "l", 8600, 2), ev("a", "l", 8600, 2)];
    let counts = deliver(&mut store, 3, &events).counts;
    assert_eq!(counts, Counts { accepted: 1, duplicate: 1, ..Counts::default() });
    let mut store = subject.reopen(store);
    assert_eq!(deliver(&mut store, 4, &events).counts.duplicate, 2);
    let conflict = ingest(&mut store, &delivery(5), &[&[ev("a", "l", 8600, 3)]]);
    assert!(matches!(conflict, Err(Stopped::Conflict { event_index: 0, .. })), "{conflict:?}");
}

pub(super) fn refusals_are_counted(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let committed = deliver(&mut store, 1, &[ev("a", "k", 1, 1)]);
    let refused = refused();
    store.record_refusal(&refused).unwrap();
    store.record_refusal(&refused).unwrap();
    let store = subject.reopen(store);
    let summary = subject.dump(&store).summary;
    assert_eq!((summary.refused_batches, summary.batches), (2, 1));
    assert_eq!(summary.last_batch, Some(committed.batch));
}
