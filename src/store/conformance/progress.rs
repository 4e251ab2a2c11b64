//! Batches one after the other: what each finds, and how far the store has come after it.

use super::acts::act_receipt;
use super::world::*;
use crate::engine::totals::Totals;
use crate::engine::{Changes, Counts, Fact, Move, Seen, SourceChange};
use crate::model::event::Chunk;
use crate::store::{Act, Batch, Begun, Committed, Store};

pub(super) fn an_empty_store_says_so(subject: &impl Subject) {
    let store = subject.make(settings());
    assert_eq!(store.settings(), settings());
    let dump = subject.dump(&store);
    assert_eq!(dump.summary.settings, settings());
    assert_eq!((dump.summary.watermark_ms, dump.summary.max_timestamp_ms), (0, None));
    assert_eq!((dump.summary.batches, dump.summary.last_batch), (0, None));
    assert_eq!(dump.summary.last_ingest_at_ms, None);
    assert!(dump.windows.is_empty() && dump.late.is_empty() && dump.sources.is_empty());
}

fn worked_example() -> Vec<Ev> {
    vec![
        ev("request-1", "checkout", 100, 12),
        ev("request-2", "checkout", 700, 20),
        ev("request-3", "checkout", 400, 8),
        ev("request-4", "checkout", 1600, 5),
        ev("request-5", "checkout", 900, 99),
        ev("request-2", "checkout", 700, 20),
    ]
}

pub(super) fn the_worked_example(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let counts = Counts { accepted: 4, late: 1, duplicate: 1, ..Counts::default() };
    let first = deliver(&mut store, 1, &worked_example());
    let expected = Committed { batch: first.batch, counts, watermark_ms: 1100, windows_closed: 1 };
    assert_eq!(first, expected);
    let again = deliver(&mut store, 2, &worked_example());
    assert_eq!(again.counts, Counts { duplicate: 6, ..Counts::default() });
    assert_eq!((again.watermark_ms, again.windows_closed), (1100, 0));

    let dump = subject.dump(&store);
    let checkout = |start_ms, count, sum, min, max| {
        (start_ms, "checkout".to_owned(), Totals { count, sum, min, max })
    };
    assert_eq!(dump.windows, [checkout(0, 3, 40, 8, 20), checkout(1000, 1, 5, 5, 5)]);
    assert_eq!((dump.summary.windows, dump.summary.open_windows), (2, 1));
    assert_eq!(dump.summary.max_timestamp_ms, Some(1600));
    assert_eq!((dump.summary.batches, dump.summary.last_batch), (2, Some(again.batch)));
    assert_eq!(dump.summary.last_ingest_at_ms, Some(NOW_MS));
    assert_eq!(dump.summary.counts, Counts { duplicate: 7, ..counts });
    let late = Late {
        id: "request-5".to_owned(),
        key: "checkout".to_owned(),
        timestamp_ms: 900,
        value: 99,
        window_start_ms: 0,
        watermark_ms: 1100,
        source: "default".to_owned(),
        batch: first.batch,
        event_index: 4,
        applied_in: None,
    };
    assert_eq!(dump.late, [late]);
    let store = subject.reopen(store);
    assert_eq!(subject.dump(&store), dump);
}

pub(super) fn open<'s, S: Store + ?Sized>(store: &'s mut S, number: u64) -> Box<dyn Batch + 's> {
    match store.begin(&delivery(number)).unwrap() {
        Begun::Open(batch) => batch,
        Begun::Known(known) => panic!("delivery {number} is known: {known:?}"),
    }
}

pub(super) fn a_batch_sees_its_earlier_chunks(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let before = deliver(&mut store, 1, &[ev("old", "k", 10, 1)]);
    let mut batch = open(&mut store, 2);
    let number = batch.number();
    let first = chunk(0, &[ev("a", "k", 20, 2), ev("a", "k", 20, 2), ev("old", "k", 10, 1)]);
    let mut facts = vec![Fact::New; 9];
    batch.facts(&first, &mut facts).unwrap();
    let seen = |batch, event_index, timestamp_ms, same_payload| {
        Fact::Seen(Seen { batch, event_index, timestamp_ms, same_payload })
    };
    let old = seen(before.batch, 0, 10, true);
    assert_eq!(facts, [Fact::New, Fact::New, old], "not the chunk itself");

    let changes = Changes { recorded: vec![0], watermark_ms: 0, ..Changes::default() };
    batch.apply(&first, &changes).unwrap();
    let second = chunk(
        3,
        &[ev("a", "k", 20, 2), ev("a", "other", 20, 2), ev("a", "k", 21, 2), ev("a", "k", 20, 3)],
    );
    batch.facts(&second, &mut facts).unwrap();
    let other = seen(number, 0, 20, false);
    assert_eq!(facts, [seen(number, 0, 20, true), other, other, other]);
}

pub(super) fn what_is_dropped_was_never_there(subject: &impl Subject) {
    let mut store = subject.make(settings());
    deliver(&mut store, 1, &worked_example());
    let before = subject.dump(&store);
    {
        let mut batch = open(&mut store, 2);
        let chunk = chunk(0, &[ev("new", "k", 9000, 1)]);
        let mut facts = Vec::new();
        batch.facts(&chunk, &mut facts).unwrap();
        let number = batch.number();
        let mut judge = crate::engine::Judge::new(settings(), number, "default");
        let progress = batch.progress(&judge.sources(&chunk)).unwrap();
        judge.learn(&progress);
        batch.apply(&chunk, &judge.judge(&chunk, &facts).changes).unwrap();
    }
    assert_eq!(subject.dump(&store), before);
    let store = &mut subject.reopen(store);
    assert_eq!(subject.dump(store), before);
    let after = deliver(store, 2, &[ev("new", "k", 9000, 1)]);
    assert_eq!(after.counts.accepted, 1);
}

pub(super) fn numbers_rise(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let first = deliver(&mut store, 1, &[ev("a", "k", 1, 1)]).batch;
    assert!(first >= 1);
    drop(open(&mut store, 2));
    let second = advance(&mut store, 3, 5).unwrap().batch;
    let mut store = subject.reopen(store);
    let third = deliver(&mut store, 4, &[]).batch;
    assert!(first < second && second < third, "{first} {second} {third}");
}

/// Sets the watermark by hand, as an operator does.
pub(super) fn advance<S: Store + ?Sized>(
    store: &mut S,
    number: u64,
    to_ms: i64,
) -> Result<Committed, crate::store::Error> {
    let mut batch = match store.begin(&delivery(number))? {
        Begun::Known(committed) => return Ok(committed),
        Begun::Open(batch) => batch,
    };
    let from_ms = batch.progress(&[])?.watermark_ms;
    let changes = Changes {
        watermark_ms: to_ms,
        moves: vec![Move { from_ms, to_ms, event_index: None }],
        ..Changes::default()
    };
    batch.apply(&Chunk::default(), &changes)?;
    batch.commit(&act_receipt(Act::Advance, Counts::default()))
}

pub(super) fn a_delivery_is_known_once_it_is_in(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let committed = deliver(&mut store, 1, &worked_example());
    let before = subject.dump(&store);
    let known = |store: &mut _| match Store::begin(store, &delivery(1)).unwrap() {
        Begun::Known(known) => known,
        Begun::Open(_) => panic!("it is in, and was begun again"),
    };
    assert_eq!(known(&mut store), committed);
    let mut store = subject.reopen(store);
    assert_eq!(known(&mut store), committed);
    assert_eq!(subject.dump(&store), before);
    // asking leaves nothing open, and another attempt at the same file is another delivery
    assert_eq!(deliver(&mut store, 2, &worked_example()).counts.duplicate, 6);
    let advanced = advance(&mut store, 3, 90_000).unwrap();
    match store.begin(&delivery(3)).unwrap() {
        Begun::Known(known) => assert_eq!(known, advanced),
        Begun::Open(_) => panic!("an advance is a delivery too"),
    }
}

pub(super) fn an_operator_sets_the_watermark(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let events =
        [ev("a", "k", 100, 1), ev("b", "l", 200, 1), ev("c", "k", 1100, 1), ev("d", "k", 2100, 1)];
    let first = deliver(&mut store, 1, &events);
    assert_eq!((first.watermark_ms, first.windows_closed), (1600, 2));
    let before = subject.dump(&store);
    let closed = advance(&mut store, 2, 2999).unwrap();
    assert_eq!((closed.watermark_ms, closed.windows_closed), (2999, 1));
    assert_eq!(closed.counts, Counts::default());
    let after = subject.dump(&store);
    assert_eq!((after.summary.watermark_ms, after.summary.open_windows), (2999, 1));
    assert_eq!(after.summary.last_batch, before.summary.last_batch);
    assert_eq!(after.summary.batches, 1);
    assert_eq!(after.windows, before.windows);
    assert_eq!(advance(&mut store, 3, 3000).unwrap().windows_closed, 1);
    // a watermark behind what is there changes nothing
    let mut batch = open(&mut store, 4);
    let behind = Changes { watermark_ms: 10, ..Changes::default() };
    batch.apply(&Chunk::default(), &behind).unwrap();
    assert_eq!(batch.progress(&[]).unwrap().watermark_ms, 3000);
    assert_eq!(batch.commit(&receipt(Counts::default())).unwrap().watermark_ms, 3000);
    assert_eq!(subject.dump(&store).summary.watermark_ms, 3000);
}

pub(super) fn sources_are_told_apart(subject: &impl Subject) {
    let mut store = subject.make(settings());
    deliver(&mut store, 1, &[ev("a", "k", 5000, 1).from("fast"), ev("b", "k", 4000, 1)]);
    deliver(
        &mut store,
        2,
        &[ev("c", "k", 700, 1).from("slow"), ev("a", "k", 5000, 1).from("echo")],
    );
    let mut batch = open(&mut store, 3);
    let asked = |batch: &mut Box<dyn Batch + '_>, sources: &[&str]| {
        let progress = batch.progress(sources).unwrap();
        assert_eq!(progress.now_ms, NOW_MS);
        let sources = progress.sources.iter().map(|known| known.max_timestamp_ms);
        (sources.collect::<Vec<_>>(), progress.others.least_active_ms)
    };
    assert_eq!(asked(&mut batch, &[]), (vec![], Some(700)));
    let some = asked(&mut batch, &["none", "fast", "echo", "slow"]);
    assert_eq!(some, (vec![None, Some(5000), None, Some(700)], Some(4000)));
    assert_eq!(asked(&mut batch, &["default", "fast", "slow"]).1, None, "echo has had no event");
    drop(batch);
    let dump = subject.dump(&store);
    let names: Vec<_> = dump.sources.iter().map(|row| row.source.as_str()).collect();
    assert_eq!(names, ["default", "echo", "fast", "slow"]);
    let echo = &dump.sources[1];
    assert_eq!((echo.max_timestamp_ms, echo.counts.duplicate), (None, 1));
    assert_eq!((echo.last_batch_at_ms, echo.last_file.as_deref()), (Some(NOW_MS), Some("f2.json")));
    assert_eq!(echo.last_batch, dump.summary.last_batch);
    assert_eq!(dump.sources[2].last_file.as_deref(), Some("f1.json"));
    assert_eq!(dump.summary.max_timestamp_ms, Some(5000));
    // what one has sent later never takes back how far it has come
    deliver(&mut store, 4, &[ev("d", "k", 4500, 1).from("fast")]);
    let fast = &subject.dump(&store).sources[2];
    assert_eq!((fast.max_timestamp_ms, fast.counts.accepted), (Some(5000), 2));
    let mut batch = open(&mut store, 5);
    for max_timestamp_ms in [None, Some(3), Some(700), None] {
        let source = "slow".to_owned();
        let change = SourceChange { source, max_timestamp_ms, counts: Counts::default() };
        let changes = Changes { sources: vec![change], ..Changes::default() };
        batch.apply(&Chunk::default(), &changes).unwrap();
        assert_eq!(asked(&mut batch, &["slow"]).0, [Some(700)]);
    }
}

pub(super) fn of_two_recorded_with_one_id_the_last_stays(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let mut batch = open(&mut store, 1);
    let twice = chunk(0, &[ev("a", "k", 1, 1), ev("b", "k", 1, 1), ev("a", "k", 9, 1)]);
    batch.apply(&twice, &Changes { recorded: vec![0, 1, 2], ..Changes::default() }).unwrap();
    let mut facts = Vec::new();
    batch.facts(&chunk(3, &[ev("a", "k", 9, 1)]), &mut facts).unwrap();
    let batch = batch.number();
    let last = Seen { batch, event_index: 2, timestamp_ms: 9, same_payload: true };
    assert_eq!(facts, [Fact::Seen(last)]);
}

pub(super) fn a_snapshot_stands_still(subject: &impl Subject) {
    let mut store = subject.make(settings());
    deliver(&mut store, 1, &worked_example());
    let snapshot = subject.snapshot(&store);
    let before = Dump::of(&*snapshot);
    deliver(&mut store, 2, &[ev("z", "k", 8000, 1).by("2.0"), ev("y", "k", 1, 1).from("s")]);
    assert_eq!(Dump::of(&*snapshot), before);
    assert_ne!(subject.dump(&store), before);
}

pub(super) fn versions_are_counted(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let first = [ev("a", "k", 1, 1).by("1.1"), ev("b", "k", 9000, 1).by("1.0"), ev("c", "k", 2, 1)];
    deliver(&mut store, 1, &first);
    deliver(&mut store, 2, &[ev("a", "k", 1, 1).by("1.1"), ev("d", "k", 3, 1).by("1.1")]);
    let accepted = Counts { accepted: 1, ..Counts::default() };
    let versions = subject.dump(&store).versions;
    let both = Counts { duplicate: 1, late: 1, ..accepted };
    assert_eq!(versions, [("1.0".to_owned(), accepted), ("1.1".to_owned(), both)]);
}
