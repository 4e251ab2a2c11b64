//! Many kept events, settled in turns: as if it were one transaction, and finished by whoever asks
//! again after a crash.

use std::ops::ControlFlow;

use super::*;
use crate::engine::window::WindowId;
use crate::model::clock::Clock;
use crate::model::event::Place;
use crate::store::failing::{FailedCall, FailingStore};
use crate::store::memory::MemoryStore;
use crate::store::{Snapshot, Span};

const NOW_MS: i64 = 1_000_000;

const ASKED: Asked<'_> = Asked { by: "a test", reason: None };

/// A store in which that many events of three keys are held (by a clock that stands far behind), or
/// late for three windows.
fn with_kept(held: bool, events: u64) -> MemoryStore {
    let settings = Settings::new(1000, 0).unwrap().with_max_future_ms(Some(10)).unwrap();
    let mut store = MemoryStore::new(settings, Clock::Fixed(if held { 0 } else { NOW_MS }));
    let own = |id: &str| id.to_owned();
    if !held {
        put(&mut store, &[(own("far"), "z", 900_000, 1)]);
    }
    for batch in 0..events.div_ceil(5) {
        let one = |n: u64| {
            let (key, ms) = (["a", "b", "c"][n as usize % 3], 500 + n as i64 % 2 * 1000);
            (format!("e{n}"), key, ms, n as i64)
        };
        let some: Vec<_> = (batch * 5..events.min(batch * 5 + 5)).map(one).collect();
        put(&mut store, &some);
    }
    store.set_clock(Clock::Fixed(NOW_MS));
    store
}

/// Takes in a batch of events, each with its id, key, time and value.
fn put(store: &mut MemoryStore, events: &[(String, &str, i64, i64)]) {
    let settings = store.settings();
    let delivery = Delivery::fresh("f".to_owned(), DEFAULT_SOURCE.to_owned()).unwrap();
    let Begun::Open(mut batch) = store.begin(&delivery).unwrap() else { panic!("it is new") };
    let mut chunk = Chunk::default();
    for (id, key, timestamp_ms, value) in events {
        let (timestamp_ms, value, place) = (*timestamp_ms, *value, Place::default());
        let (source, producer_version) = (None, None);
        chunk.push(Event { id, key, timestamp_ms, value, source, producer_version, place });
    }
    let mut judge = Judge::new(settings, batch.number(), DEFAULT_SOURCE);
    let mut facts = Vec::new();
    batch.facts(&chunk, &mut facts).unwrap();
    let progress = batch.progress(&judge.sources(&chunk)).unwrap();
    judge.learn(&progress);
    let judged = judge.judge(&chunk, &facts);
    batch.apply(&chunk, &judged.changes).unwrap();
    let counts = judged.changes.counts;
    let receipt = Receipt::Events { sha256: String::new(), bytes: 0, counts };
    batch.commit(&receipt).unwrap();
}

/// All that a report would say of windows and of what is kept.
fn state(store: &MemoryStore) -> Vec<String> {
    let snapshot = store.snapshot();
    let mut said = Vec::new();
    let mut windows = Vec::new();
    snapshot
        .windows(Span::default(), &mut |row| {
            said.push(format!("{row:?}"));
            windows.push((row.start_ms, row.key.to_owned()));
            ControlFlow::Continue(())
        })
        .unwrap();
    for (start_ms, key) in windows {
        let before = snapshot.revisions(WindowId { start_ms, key: &key }).unwrap();
        said.push(format!("{:?}", before.iter().map(|row| row.totals).collect::<Vec<_>>()));
    }
    let left = |row: &store::HeldRow<'_>| {
        said.push(format!("{row:?}"));
        ControlFlow::Continue(())
    };
    snapshot.held(&mut { left }).unwrap();
    let summary = snapshot.summary().unwrap();
    said.push(format!("{} {:?} {}", summary.watermark_ms, summary.counts, summary.late_waiting));
    said
}

/// Has failed for turns without a bound, for turns that end within a window, and for counts that
/// were not added up.
#[test]
fn case_150_events_settled_in_turns_come_to_what_one_transaction_makes_of_them() {
    for (what, held) in
        [(Settling::Release, true), (Settling::Discard, true), (Settling::Correct, false)]
    {
        let mut whole = with_kept(held, 47);
        let once = settle(&mut whole, what, &mut |_| true, ASKED).unwrap();
        assert_eq!((once.concerned, once.batches), (47, 1), "{what:?}");
        for crashes in [false, true] {
            let mut store = with_kept(held, 47);
            let mut done = None::<Done>;
            let mut turn = small();
            while !turn.is_over {
                if crashes {
                    // whoever asks again knows nothing of the turns before
                    turn = small();
                }
                let next = one_turn(&mut store, what, &mut |_| true, ASKED, &mut turn).unwrap();
                assert!(next.concerned <= 8, "{what:?}: {}", next.concerned);
                match &mut done {
                    Some(done) => done.add(&next),
                    none => *none = Some(next),
                }
            }
            let done = done.unwrap();
            assert!(done.batches >= 6, "{what:?}: {}", done.batches);
            assert_eq!((done.concerned, done.counts), (once.concerned, once.counts));
            assert_eq!(done.watermark_ms, once.watermark_ms);
            assert_eq!(done.windows_closed, once.windows_closed);
            assert_eq!(state(&store), state(&whole), "{what:?}, crashes: {crashes}");
        }
    }
}

/// So small that a turn ends in the middle of each window, which is then finished all the same.
fn small() -> Turn {
    Turn { settled: 5, settled_of_window: 20, looked: 1000, ..Turn::unbounded() }
}

/// Has failed for a turn that looks at all.
#[test]
fn case_150_a_turn_ends_where_it_has_looked_at_enough() {
    let mut store = with_kept(true, 30);
    let mut turn = Turn { looked: 10, ..small() };
    let mut wanted = |event: &Event<'_>| event.id == "e25";
    let concerned: Vec<u64> = std::iter::from_fn(|| {
        let done = |turn: &mut Turn, wanted: &mut Wanted<'_>, store: &mut MemoryStore| {
            one_turn(store, Settling::Discard, wanted, ASKED, turn).unwrap().concerned
        };
        (!turn.is_over).then(|| done(&mut turn, &mut wanted, &mut store))
    })
    .collect();
    assert_eq!(concerned, [0, 0, 1], "ten are looked at in each");
}

/// Has failed for a halt that forgets what was done.
#[test]
fn case_150_settling_that_fails_at_any_call_is_finished_by_asking_again() {
    for (what, held) in
        [(Settling::Release, true), (Settling::Discard, true), (Settling::Correct, false)]
    {
        let mut whole = with_kept(held, 23);
        settle(&mut whole, what, &mut |_| true, ASKED).unwrap();
        for failure in FailedCall::ALL {
            let mut halts = 0;
            for fail_at in 0.. {
                let mut store = FailingStore::new(with_kept(held, 23), fail_at, failure);
                let all = |store: &mut dyn Store| {
                    all_turns(store, what, &mut |_| true, ASKED, small(), &mut |_| {})
                };
                let first = all(&mut store);
                let Err(halted) = first else { break };
                halts += 1;
                let before = halted.done.map_or(0, |done| done.concerned);
                let rest = all(&mut store).unwrap().concerned;
                // a commit whose answer was lost is in, and counted by nobody
                let lost = if failure == FailedCall::LostAfter { 8 } else { 0 };
                assert!((23 - lost..=23).contains(&(before + rest)), "{what:?} {before} {rest}");
                assert_eq!(state(store.inner()), state(&whole), "{what:?} {failure:?} {fail_at}");
            }
            assert!(halts > 10, "{halts}");
        }
    }
}

#[test]
fn case_112_a_watermark_is_plausible_up_to_the_bound_and_not_beyond() {
    let (now_ms, day_ms) = (1_767_225_600_000, DEFAULT_MAX_FUTURE_MS);
    let is_fine = |to_ms, watermark_ms, newest_ms, max_future_ms| {
        let settings = Settings::new(60_000, 0).unwrap();
        let settings = settings.with_max_future_ms(max_future_ms).unwrap();
        let reached = Reached { watermark_ms, newest_ms };
        refuse_implausible(to_ms, now_ms, reached, &settings).is_ok()
    };
    for (most_ms, newest_ms, max_future_ms) in [
        (now_ms + day_ms, Some(now_ms - 1), None),
        (now_ms + 3_600_000, None, Some(3_600_000)),
        // events that were accepted ahead of the clock
        (now_ms + 6 * day_ms, Some(now_ms + 5 * day_ms), Some(day_ms)),
    ] {
        assert!(is_fine(most_ms, 0, newest_ms, max_future_ms), "{most_ms}");
        assert!(!is_fine(most_ms + 1, 0, newest_ms, max_future_ms), "{most_ms}");
    }
    assert!(is_fine(i64::MAX, i64::MAX, None, Some(0)), "no step at all");
}
