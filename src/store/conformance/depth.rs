//! Event time in depth: windows that are corrected, sources that come and go, kept events that are
//! settled.

use super::acts::*;
use super::progress::{advance, open};
use super::world::*;
use crate::engine::settings::{LatePolicy, LateRule, Settings};
use crate::engine::totals::{Delta, Totals};
use crate::engine::window::WindowId;
use crate::engine::{Changes, Counts, Expected, Judge, Known, Presence};
use crate::model::event::Chunk;
use crate::store::{
    Act, Error, EventRef, KEPT_AT_ONCE, Kept, MoveRow, Overflowing, PresenceRow, RevisionRow,
    SettledRow, Settlement, Silent, Store,
};

const AHEAD_MS: i64 = NOW_MS + 100_001;

fn correcting() -> Settings {
    settings().with_late(LateRule::Window, LatePolicy::Correct)
}

fn totals(values: &[i64]) -> Totals {
    let (min, max) = (*values.iter().min().unwrap(), *values.iter().max().unwrap());
    Totals { count: values.len() as i64, sum: values.iter().sum(), min, max }
}

pub(super) fn a_correction_keeps_what_was_final(subject: &impl Subject) {
    let mut store = subject.make(correcting());
    assert_eq!(store.settings(), correcting());
    let first = deliver(&mut store, 1, &[ev("a", "k", 100, 5), ev("b", "k", 1700, 2)]);
    assert_eq!(first.windows_closed, 1);
    // two late events of one window in two chunks, one of a window that never was, and a move
    let chunks: [&[Ev]; 2] = [
        &[ev("c", "k", 200, 7), ev("z", "k", 3600, 1), ev("d", "l", 900, 4)],
        &[ev("e", "k", 300, -9)],
    ];
    let second = ingest(&mut store, &delivery(2), &chunks).unwrap();
    assert_eq!((second.counts.late, second.counts.accepted), (3, 1));
    assert_eq!(second.windows_closed, 1, "what a correction makes was never open");
    let dump = subject.dump(&store);
    let window = |start_ms, key: &str, values: &[i64]| (start_ms, key.to_owned(), totals(values));
    assert_eq!(dump.windows[0], window(0, "k", &[5, 7, -9]));
    assert_eq!(dump.windows[1], window(0, "l", &[4]));
    let row = |revision, values: &[i64], corrected_in| RevisionRow {
        revision,
        totals: totals(values),
        corrected_in,
    };
    let k = |revision, before| (0, "k".to_owned(), revision, before);
    let l = (0, "l".to_owned(), 1, vec![]);
    let once = k(1, vec![row(0, &[5], second.batch)]);
    assert_eq!(dump.revisions, [once, l.clone()]);
    assert_eq!((dump.summary.windows, dump.summary.corrected_windows), (4, 2));
    assert_eq!((dump.summary.late_kept, dump.summary.open_windows), (0, 1));

    let mut store = subject.reopen(store);
    let third = deliver(&mut store, 3, &[ev("f", "k", 400, 1), ev("c", "k", 200, 7)]);
    assert_eq!((third.counts.late, third.counts.duplicate), (1, 1));
    let dump = subject.dump(&store);
    let before = vec![row(0, &[5], second.batch), row(1, &[5, 7, -9], third.batch)];
    assert_eq!(dump.revisions, [k(2, before), l]);
    assert_eq!(dump.summary.corrected_windows, 2);
    let moved = |row: &MoveRow| (row.from_ms, row.to_ms, row.batch, row.event_index);
    let moves: Vec<_> = dump.moves.iter().map(moved).collect();
    assert_eq!(moves, [(0, 1200, first.batch, Some(1)), (1200, 3100, second.batch, Some(1))]);
    let snapshot = subject.snapshot(&store);
    assert_eq!(super::world::moves(&*snapshot, 1201, 9).len(), 1);
    assert_eq!(super::world::moves(&*snapshot, 0, 1).len(), 1, "told to stop");
}

pub(super) fn a_window_can_close_and_be_corrected_in_one_chunk(subject: &impl Subject) {
    let mut store = subject.make(correcting());
    let events = [ev("a", "k", 100, 5), ev("b", "k", 1700, 2), ev("c", "k", 200, 7)];
    let committed = deliver(&mut store, 1, &events);
    assert_eq!(committed.windows_closed, 1);
    let before = RevisionRow { revision: 0, totals: totals(&[5]), corrected_in: committed.batch };
    assert_eq!(subject.dump(&store).revisions, [(0, "k".to_owned(), 1, vec![before])]);
}

pub(super) fn an_overflow_of_a_correction_names_the_window(subject: &impl Subject) {
    let mut store = subject.make(correcting());
    deliver(&mut store, 1, &[ev("a", "k", 100, i64::MAX), ev("b", "k", 1700, 2)]);
    let before = subject.dump(&store);
    let events = [
        ev("c", "m", 1800, i64::MAX),
        ev("d", "k", 300, 1),
        ev("e", "n", 1800, i64::MAX),
        ev("f", "n", 1800, 1),
        ev("g", "x", 300, 1),
        ev("h", "z", 3000, 1),
        // it closed with what this chunk added: the store tells what it held before the chunk
        ev("i", "m", 1800, 1),
    ];
    let found = match ingest(&mut store, &delivery(2), &[&events]) {
        Err(Stopped::Store(Error::Overflow(found))) => found,
        other => panic!("expected an overflow, found {other:?}"),
    };
    let window =
        |start_ms, key: &str, before| Overflowing { key: key.to_owned(), start_ms, before };
    let k = window(0, "k", Some(totals(&[i64::MAX])));
    assert_eq!(found, [k, window(1000, "m", None), window(1000, "n", None)]);
    assert_eq!(subject.dump(&store), before);
    deliver(&mut store, 3, &[ev("d", "k", 300, -1)]);
}

pub(super) fn sources_come_and_go(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let declared = change_presence(&mut store, 1, &["slow", "new"], Presence::Declared).unwrap();
    assert_eq!((declared.watermark_ms, declared.counts), (0, Counts::default()));
    let first = deliver(&mut store, 2, &[ev("a", "k", 100, 1), ev("b", "k", 9000, 1)]);
    assert_eq!(first.watermark_ms, 0, "two are waited for that have sent nothing");
    let mut batch = open(&mut store, 3);
    let progress = batch.progress(&["new", "default", "none"]).unwrap();
    let known = Known { is_known: true, ..Known::default() };
    let new = Known { declared: true, ..known };
    let default = Known { max_timestamp_ms: Some(9000), ..known };
    assert_eq!(progress.sources, [new, default, Known::default()]);
    assert!(progress.others.any_awaited, "slow is");
    assert_eq!(progress.source_count, 3);
    assert_eq!((progress.others.least_active_ms, progress.others.greatest_ms), (None, None));
    assert!(!batch.progress(&["new", "slow"]).unwrap().others.any_awaited);
    drop(batch);

    let idle = change_presence(&mut store, 4, &["slow", "new"], Presence::Idle).unwrap();
    assert_eq!((idle.watermark_ms, idle.windows_closed), (8500, 1));
    let mut store = subject.reopen_at(store, NOW_MS + 5);
    let mut batch = open(&mut store, 5);
    let progress = batch.progress(&["slow"]).unwrap();
    assert_eq!(progress.sources, [Known { idle: true, ..new }]);
    assert!(!progress.others.any_awaited, "new is idle too");
    assert_eq!(progress.others.least_active_ms, Some(9000));
    drop(batch);
    let back = deliver(&mut store, 6, &[ev("c", "k", 9100, 1), ev("d", "k", 8600, 1).from("slow")]);
    assert_eq!(back.watermark_ms, 8600, "back before its event is judged");
    let dump = subject.dump(&store);
    let names: Vec<_> = dump.sources.iter().map(|row| row.source.as_str()).collect();
    assert_eq!(names, ["default", "new", "slow"]);
    let (new, slow) = (&dump.sources[1], &dump.sources[2]);
    assert_eq!((new.declared, new.idle, new.presence_since_ms), (true, true, Some(NOW_MS)));
    let never = (new.last_batch, new.last_batch_at_ms, new.last_file.as_ref());
    assert_eq!((never, new.counts), ((None, None, None), Counts::default()));
    assert_eq!((slow.declared, slow.idle, slow.presence_since_ms), (true, false, Some(NOW_MS + 5)));
    assert_eq!((slow.last_batch, slow.last_batch_at_ms), (Some(back.batch), Some(NOW_MS + 5)));
    assert_eq!(dump.sources[0].presence_since_ms, None);
    let row = |presence: Presence, batch, event_index, at_ms| PresenceRow {
        presence: presence.name().to_owned(),
        batch,
        event_index,
        at_ms,
    };
    let declared = row(Presence::Declared, declared.batch, None, NOW_MS);
    let idle = row(Presence::Idle, idle.batch, None, NOW_MS);
    let active = row(Presence::Active, back.batch, Some(1), NOW_MS + 5);
    assert_eq!(dump.presence[2], [declared.clone(), idle.clone(), active]);
    assert_eq!(dump.presence[1], [declared, idle]);
    assert!(dump.presence[0].is_empty());
    assert_eq!(dump.summary.batches, 2);
}

pub(super) fn an_expected_source_is_waited_for_once(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let expect = |store: &mut _, number, presence| {
        change_presence(store, number, &["slow", "none"], presence).unwrap().batch
    };
    let first = expect(&mut store, 1, Presence::Expected);
    assert_eq!(store.expected().unwrap(), ["none", "slow"]);
    assert_eq!(store.silent(None, 9).unwrap(), [], "they end in another way");
    let a = deliver(&mut store, 2, &[ev("a", "k", 9000, 1)]);
    assert_eq!(a.watermark_ms, 0, "two are waited for that have sent nothing");
    assert_eq!(open(&mut store, 3).progress(&[]).unwrap().source_count, 1);
    let repeat = deliver(&mut store, 4, &[ev("a", "k", 9000, 1).from("slow")]);
    assert_eq!(repeat.watermark_ms, 0, "a repeat is no accepted event");
    assert_eq!(store.expected().unwrap(), ["none", "slow"]);
    let held = deliver(&mut store, 5, &[ev("b", "k", 8000, 1).from("slow")]);
    assert_eq!((held.watermark_ms, store.expected().unwrap()), (0, vec!["none".to_owned()]));
    let over = expect(&mut store, 6, Presence::NotExpected);
    let dump = subject.dump(&store);
    assert_eq!(dump.summary.watermark_ms, 7500, "only none was expected still");
    let stand: Vec<_> = dump.sources.iter().map(|row| (&*row.source, row.expected)).collect();
    let expected = [Expected::Never, Expected::Over, Expected::Over];
    assert_eq!(stand, ["default", "none", "slow"].into_iter().zip(expected).collect::<Vec<_>>());
    let notes: Vec<_> = dump.presence[1].iter().map(|row| (&*row.presence, row.batch)).collect();
    assert_eq!(notes, [("expected", first), ("not_expected", over)]);
    assert_eq!(dump.presence[2].len(), 1);

    // never twice, and never one that is known
    let mut batch = open(&mut store, 7);
    let mut judge = Judge::new(settings(), 7, "default");
    let progress = batch.progress(&judge.named(&["default", "none", "slow"])).unwrap();
    assert_eq!((progress.source_count, progress.sources[1].is_known), (2, false));
    judge.learn(&progress);
    let changes = judge.change_presence(&["default", "none", "slow"], Presence::Expected);
    assert_eq!(changes.presence, []);
}

pub(super) fn a_retired_source_is_back_with_its_next_event(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let first = deliver(&mut store, 1, &[ev("b", "k", 900, 1).from("b"), ev("a", "k", 9000, 1)]);
    assert_eq!(first.watermark_ms, 400);
    let silent =
        |source: &str, heard_in| (first.batch, Silent { source: source.to_owned(), heard_in });
    let both = [silent("b", first.batch), silent("default", first.batch)];
    assert_eq!(store.silent(None, 9).unwrap(), both);
    assert_eq!(store.silent(Some(&both[0].1), 9).unwrap(), both[1..]);
    assert_eq!(store.silent(None, 1).unwrap(), both[..1]);
    let retired = change_presence(&mut store, 2, &["b"], Presence::Retired).unwrap();
    assert_eq!(retired.watermark_ms, 8500);
    let heard: Vec<_> =
        store.silent(None, 9).unwrap().into_iter().map(|(last, it)| (last, it.source)).collect();
    assert_eq!(heard, [(retired.batch, "default".to_owned())]);
    let row = |store: &_| subject.dump(store).sources[0].clone();
    assert_eq!((row(&store).idle, row(&store).retired), (true, true));
    deliver(&mut store, 3, &[ev("c", "k", 9100, 1).from("b")]);
    assert_eq!((row(&store).idle, row(&store).retired), (false, false));
}

pub(super) fn the_greatest_of_all_counts_idle_or_not(subject: &impl Subject) {
    let mut store = subject.make(settings());
    deliver(&mut store, 1, &[ev("a", "k", 9000, 1), ev("b", "k", 500, 1).from("b")]);
    change_presence(&mut store, 2, &["default"], Presence::Idle).unwrap();
    let mut batch = open(&mut store, 3);
    let others = batch.progress(&[]).unwrap().others;
    assert_eq!((others.least_active_ms, others.greatest_ms), (Some(500), Some(9000)));
    let others = batch.progress(&["default"]).unwrap().others;
    assert_eq!((others.least_active_ms, others.greatest_ms), (Some(500), Some(500)));
    drop(batch);
    let all = change_presence(&mut store, 4, &["b"], Presence::Idle).unwrap();
    assert_eq!(all.watermark_ms, 8500);
}

pub(super) fn held_events_are_released(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let events = [
        ev("a", "k", AHEAD_MS, 3).from("s").by("1"),
        ev("b", "k", 9000, 1),
        ev("c", "l", AHEAD_MS + 999_999, 5),
        ev("d", "k", AHEAD_MS + 9, 4),
    ];
    let first = deliver(&mut store, 1, &events);
    assert_eq!((first.counts.future, first.counts.accepted), (3, 1));
    let held = subject.dump(&store).held;
    let ids: Vec<_> = held.iter().map(|row| (row.id.as_str(), row.event.event_index)).collect();
    assert_eq!(ids, [("a", 0), ("c", 2), ("d", 3)]);
    assert_eq!((held[0].source.as_str(), held[1].source.as_str()), ("s", "default"));
    assert_eq!((held[0].file.as_str(), held[0].value), ("f1.json", 3));
    assert_eq!(super::world::held(&*subject.snapshot(&store), 1).len(), 1, "told to stop");
    let early = release(&mut store, 2, 99).unwrap();
    assert_eq!(early.counts, Counts::default());
    assert_eq!(subject.dump(&store).held, held, "they are still too far ahead");

    let mut store = subject.reopen_at(store, NOW_MS + 50);
    let released = release(&mut store, 3, 1).unwrap();
    assert_eq!(released.counts, Counts { accepted: 2, ..Counts::default() });
    let dump = subject.dump(&store);
    let ids: Vec<_> = dump.held.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["c"]);
    let counts = Counts { accepted: 3, future: 1, ..Counts::default() };
    assert_eq!((dump.summary.counts, dump.summary.held), (counts, 1));
    let summary = &dump.summary;
    assert_eq!((summary.batches, summary.last_batch), (1, Some(first.batch)), "no batch of events");
    assert_eq!(summary.last_ingest_at_ms, Some(NOW_MS));
    let accepted = Counts { accepted: 1, ..Counts::default() };
    let s = &dump.sources[1];
    assert_eq!((s.counts, s.max_timestamp_ms), (accepted, Some(AHEAD_MS)));
    assert_eq!((s.last_batch, s.last_file.as_deref()), (Some(first.batch), Some("f1.json")));
    assert_eq!(dump.versions, [("1".to_owned(), accepted)]);
    let event = EventRef { batch: first.batch, event_index: 0 };
    let row = SettledRow {
        settlement: "released".to_owned(),
        settled_in: released.batch,
        at_ms: NOW_MS + 50,
        id: "a".to_owned(),
        key: "k".to_owned(),
        timestamp_ms: AHEAD_MS,
        value: 3,
        source: "s".to_owned(),
    };
    let snapshot = subject.snapshot(&store);
    assert_eq!(snapshot.settled(event).unwrap(), Some(row));
    assert_eq!(snapshot.settled(EventRef { event_index: 2, ..event }).unwrap(), None);
    // its id stays what it was
    assert_eq!(deliver(&mut store, 4, &events[..1]).counts.duplicate, 1);
}

pub(super) fn a_released_event_can_be_late(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let first = deliver(&mut store, 1, &[ev("x", "k", 1, 1), ev("a", "k", AHEAD_MS, 3).by("1")]);
    advance(&mut store, 2, AHEAD_MS + 5000).unwrap();
    let mut store = subject.reopen_at(store, NOW_MS + 50);
    let released = release(&mut store, 3, 99).unwrap();
    assert_eq!(released.counts, Counts { late: 1, ..Counts::default() });
    let dump = subject.dump(&store);
    let late = &dump.late[0];
    assert_eq!((late.batch, late.event_index), (released.batch, 0), "late in this batch");
    assert_ne!(late.batch, first.batch);
    let counts = Counts { accepted: 1, late: 1, ..Counts::default() };
    assert_eq!((dump.summary.counts, dump.summary.late_waiting), (counts, 1));
}

pub(super) fn held_events_are_discarded(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let events = [ev("a", "k", AHEAD_MS, 3).by("1"), ev("b", "k", AHEAD_MS, 1)];
    let first = deliver(&mut store, 1, &events);
    let done = discard(&mut store, 2, |id| id == "a").unwrap();
    assert_eq!((done.counts, done.windows_closed), (Counts::default(), 0));
    let mut store = subject.reopen_at(store, NOW_MS + 50);
    assert_eq!(release(&mut store, 3, 99).unwrap().counts.accepted, 1);
    let dump = subject.dump(&store);
    let counts = Counts { accepted: 1, future: 1, ..Counts::default() };
    assert_eq!((dump.summary.counts, dump.summary.held), (counts, 0));
    assert_eq!(dump.versions[0].1.future, 1, "discarded ones stay counted");
    let event = EventRef { batch: first.batch, event_index: 0 };
    let settled = subject.snapshot(&store).settled(event).unwrap().unwrap();
    assert_eq!((settled.settlement.as_str(), settled.settled_in), ("discarded", done.batch));
    assert_eq!(deliver(&mut store, 4, &events).counts.duplicate, 2);
}

pub(super) fn late_events_become_corrections(subject: &impl Subject) {
    let mut store = subject.make(settings().with_late(LateRule::Event, LatePolicy::Aside));
    let events = [
        ev("a", "k", 100, 5),
        ev("b", "k", 1900, 2),
        ev("c", "k", 200, 7),
        ev("d", "k", 1100, 1),
        ev("e", "l", 300, 4),
        ev("f", "k", 400, 9),
    ];
    assert_eq!(deliver(&mut store, 1, &events).counts.late, 4);
    let before = subject.dump(&store).summary;
    assert_eq!((before.late_kept, before.late_waiting), (4, 4));
    let applied = apply_late(&mut store, 2, 2).unwrap();
    assert_eq!((applied.counts, applied.windows_closed), (Counts::default(), 0));
    let dump = subject.dump(&store);
    let applied_in: Vec<_> = dump.late.iter().map(|row| row.applied_in).collect();
    let done = Some(applied.batch);
    assert_eq!(applied_in, [done, None, done, done], "that of an open window waits");
    assert_eq!((dump.summary.late_kept, dump.summary.late_waiting), (4, 1));
    assert_eq!(dump.windows[0], (0, "k".to_owned(), totals(&[5, 7, 9])));
    let k = RevisionRow { revision: 0, totals: totals(&[5]), corrected_in: applied.batch };
    assert_eq!(dump.revisions, [(0, "k".to_owned(), 1, vec![k]), (0, "l".to_owned(), 1, vec![])]);
    assert_eq!(dump.summary.counts, before.counts);
    // once and for ever
    apply_late(&mut store, 3, 99).unwrap();
    assert_eq!(subject.dump(&store).windows, dump.windows);
    advance(&mut store, 4, 2000).unwrap();
    apply_late(&mut store, 5, 99).unwrap();
    assert_eq!(subject.dump(&store).summary.late_waiting, 0);
}

pub(super) fn nothing_is_settled_twice(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let events = [ev("a", "k", AHEAD_MS, 1), ev("b", "k", 9000, 1), ev("c", "k", 1, 1)];
    let first = deliver(&mut store, 1, &events);
    let at = |event_index| EventRef { batch: first.batch, event_index };
    let before = subject.dump(&store);
    for (refs, settlement) in [
        (vec![at(0), at(0)], Settlement::Released),
        (vec![at(0), at(1)], Settlement::Discarded),
        (vec![at(2), at(2)], Settlement::Applied),
        (vec![at(0)], Settlement::Applied),
        (vec![at(2)], Settlement::Released),
    ] {
        let mut batch = open(&mut store, 2);
        let failed = batch.settle(&refs, settlement);
        match failed {
            Err(Error::Io(text)) => assert!(text.contains("event ") && text.contains("before")),
            other => panic!("{settlement:?} of {refs:?}: expected a failure, found {other:?}"),
        }
        let committed = batch.commit(&act_receipt(Act::Release, Counts::default()));
        assert!(committed.is_err(), "{committed:?}");
        assert_eq!(subject.dump(&store), before, "{settlement:?} of {refs:?}");
    }
}

pub(super) fn kept_events_come_piece_by_piece(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let many = KEPT_AT_ONCE * 2 + 7;
    let events: Vec<Ev> = (0..many).map(|n| ev(&format!("{n}"), "k", AHEAD_MS, 1)).collect();
    deliver(&mut store, 1, &events);
    let mut batch = open(&mut store, 2);
    let (mut chunk, mut refs, mut after, mut found) = (Chunk::default(), vec![], None, vec![]);
    loop {
        batch.kept(Kept::Held, after, &mut chunk, &mut refs).unwrap();
        assert!(refs.len() <= KEPT_AT_ONCE && refs.len() == chunk.len());
        let Some(last) = refs.last() else { break };
        after = Some(*last);
        assert_eq!(chunk.first_index(), found.len() as u64);
        found.extend(chunk.iter().map(|event| event.id.to_owned()));
        batch.settle(&refs, Settlement::Discarded).unwrap();
    }
    let all: Vec<_> = events.iter().map(|event| event.id.clone()).collect();
    assert_eq!(found, all);
}

pub(super) fn every_batch_has_its_receipt(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let first = deliver(&mut store, 1, &[ev("a", "k", 100, 1), ev("b", "k", 1700, 1)]);
    let second = advance(&mut store, 2, 5000).unwrap();
    let store = subject.reopen(store);
    let snapshot = subject.snapshot(&store);
    let row = snapshot.receipt(first.batch).unwrap().unwrap();
    assert_eq!((row.act, row.file.as_str(), row.bytes), (None, "f1.json", Some(12)));
    assert_eq!((row.sha256, row.asked_by), (Some("00".repeat(32)), None));
    assert_eq!((row.counts, row.windows_closed, row.watermark_ms), (first.counts, 1, 1200));
    assert_eq!((row.committed_at_ms, row.source.as_str()), (NOW_MS, "default"));
    let row = snapshot.receipt(second.batch).unwrap().unwrap();
    assert_eq!((row.act.as_deref(), row.sha256, row.bytes), (Some("advance"), None, None));
    assert_eq!((row.asked_by.as_deref(), row.windows_closed), (Some("ann"), 1));
    assert_eq!(row.reason.as_deref(), Some("spring cleaning"));
    assert_eq!(snapshot.receipt(second.batch + 1).unwrap(), None);
    let all = receipts(&*snapshot, 0, usize::MAX);
    let one_by_one = [first.batch, second.batch].map(|n| snapshot.receipt(n).unwrap().unwrap());
    assert_eq!(all, one_by_one);
    assert_eq!(receipts(&*snapshot, second.batch, usize::MAX), all[1..]);
    assert_eq!(receipts(&*snapshot, 0, 1), all[..1]);
}

pub(super) fn an_id_is_remembered_within_the_horizon(subject: &impl Subject) {
    let mut store = subject.make(settings().with_dedup_horizon_ms(Some(2000)).unwrap());
    let first = deliver(&mut store, 1, &[ev("b", "k", 10, 1), ev("a", "l", 1000, 7)]);
    let found = subject.snapshot(&store).remembered("a").unwrap().unwrap();
    assert_eq!(found.event, EventRef { batch: first.batch, event_index: 1 });
    assert_eq!((found.key.as_deref(), found.timestamp_ms), (Some("l"), 1000));
    assert_eq!(found.value, Some(7));
    assert_eq!(subject.snapshot(&store).remembered("c").unwrap(), None);
    advance(&mut store, 2, 3000).unwrap();
    assert!(subject.snapshot(&store).remembered("a").unwrap().is_some());
    advance(&mut store, 3, 3001).unwrap();
    assert_eq!(subject.snapshot(&store).remembered("a").unwrap(), None, "it is forgotten");
}

pub(super) fn a_correction_may_come_without_an_event(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let mut batch = open(&mut store, 1);
    let id = WindowId { start_ms: 0, key: "k" };
    let changes =
        Changes { corrections: vec![(id, Delta::of(3))], watermark_ms: 1000, ..Changes::default() };
    assert_eq!(batch.apply(&Chunk::default(), &changes).unwrap(), 0);
    batch.apply(&Chunk::default(), &changes).unwrap();
    batch.commit(&act_receipt(Act::Correct, Counts::default())).unwrap();
    let dump = subject.dump(&store);
    assert_eq!(dump.windows, [(0, "k".to_owned(), totals(&[3, 3]))]);
    assert_eq!(dump.revisions, [(0, "k".to_owned(), 1, vec![])], "one revision for a batch");
}
