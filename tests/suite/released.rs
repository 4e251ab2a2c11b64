//! Held events at moments that a scenario cannot reach: when the clock has come to where they are.

use std::slice::from_ref;

use crate::draw::{NOW_MS, Step, Which};
use crate::model::{Counts, Done, Event, Policy, Settings, Totals};
use crate::observed::ndjson;
use crate::real::{Acted, Real};

const AHEAD_MS: i64 = NOW_MS + 5001;

fn settings() -> Settings {
    Settings { max_future_ms: Some(5000), ..Settings::new(1000, 0) }
}

/// Each kind of store.
fn stores(settings: Settings) -> [Real; 2] {
    [Real::sqlite(settings), Real::memory(settings)]
}

fn take(real: &mut Real, events: &[Event]) -> Counts {
    real.ingest(&ndjson(events)).unwrap().counts
}

fn done(concerned: u64, counts: Counts, watermark_ms: i64, windows_closed: u64) -> Acted {
    Acted::Done(Done { concerned, counts, watermark_ms, windows_closed })
}

fn one(outcome: fn(&mut Counts) -> &mut u64) -> Counts {
    let mut counts = Counts::default();
    *outcome(&mut counts) = 1;
    counts
}

#[test]
fn a_held_event_counts_once_however_often_it_comes_and_is_released() {
    let (held, normal) = (Event::new("h", "k", AHEAD_MS, 7), Event::new("n", "k", 500, 1));
    for mut real in stores(settings()) {
        take(&mut real, &[normal.clone(), held.clone()]);
        assert_eq!(take(&mut real, from_ref(&held)), one(|counts| &mut counts.duplicate));
        let release = Step::Release(Which::All);
        assert_eq!(real.act(&release), done(0, Counts::default(), 500, 0), "it is ahead still");
        assert_eq!(real.state().windows.len(), 1);

        // a millisecond later it is as far ahead as may be
        real.act(&Step::Clock(NOW_MS + 1));
        assert_eq!(real.state().held.len(), 1, "nothing is released by itself");
        let accepted = one(|counts| &mut counts.accepted);
        assert_eq!(real.act(&release), done(1, accepted, AHEAD_MS, 1));
        assert_eq!(real.act(&release), done(0, Counts::default(), AHEAD_MS, 0));
        assert_eq!(take(&mut real, from_ref(&held)), one(|counts| &mut counts.duplicate));
        let state = real.state();
        let start_ms = AHEAD_MS / 1000 * 1000;
        let totals = Totals { count: 1, sum: 7, min: 7, max: 7 };
        assert_eq!(state.windows[&(start_ms, "k".to_owned())], totals);
        assert_eq!((state.counts.accepted, state.counts.future, state.held.len()), (2, 0, 0));
    }
}

#[test]
fn what_was_discarded_cannot_be_released_and_stays_known() {
    let held = Event::new("h", "k", AHEAD_MS, 7);
    for mut real in stores(settings()) {
        take(&mut real, from_ref(&held));
        assert_eq!(real.act(&Step::Discard(Which::All)), done(1, Counts::default(), 0, 0));
        real.act(&Step::Clock(NOW_MS + 10_000));
        assert_eq!(real.act(&Step::Release(Which::All)), done(0, Counts::default(), 0, 0));
        assert_eq!(take(&mut real, from_ref(&held)), one(|counts| &mut counts.duplicate));
        let other = Event::new("h", "k", AHEAD_MS, 8);
        assert_eq!(real.ingest(&ndjson(&[other])), Err(("conflict", 0)));
        assert!(real.state().windows.is_empty());
    }
}

#[test]
fn what_is_released_late_goes_the_way_of_the_late() {
    for policy in [Policy::Aside, Policy::Drop, Policy::Correct] {
        for mut real in stores(Settings { policy, ..settings() }) {
            take(&mut real, &[Event::new("h", "k", AHEAD_MS, 7)]);
            real.act(&Step::Advance(AHEAD_MS + 2000));
            real.act(&Step::Clock(NOW_MS + 10_000));
            let late = one(|counts| &mut counts.late);
            let released = real.act(&Step::Release(Which::All));
            assert_eq!(released, done(1, late, AHEAD_MS + 2000, 0), "{policy:?}");
            let state = real.state();
            let kept = (state.late.len(), state.windows.len(), state.revisions.len());
            let expected = match policy {
                Policy::Aside => (1, 0, 0),
                Policy::Drop => (0, 0, 0),
                Policy::Correct => (0, 1, 1),
            };
            assert_eq!(kept, expected, "{policy:?}");
            // and what was kept can be applied, once
            let applied = u64::from(policy == Policy::Aside);
            for expected in [applied, 0] {
                let found = real.act(&Step::Apply(Which::All));
                assert_eq!(found, done(expected, Counts::default(), AHEAD_MS + 2000, 0));
            }
        }
    }
}

#[test]
fn what_is_released_beyond_the_horizon_is_expired() {
    let settings = Settings { dedup_horizon_ms: Some(1000), ..settings() };
    for mut real in stores(settings) {
        take(&mut real, &[Event::new("h", "k", AHEAD_MS, 7)]);
        real.act(&Step::Advance(AHEAD_MS + 1001));
        let expired = one(|counts| &mut counts.expired);
        // whatever the clock says by then
        assert_eq!(real.act(&Step::Release(Which::All)), done(1, expired, AHEAD_MS + 1001, 0));
        assert_eq!(take(&mut real, &[Event::new("h", "k", AHEAD_MS, 7)]), expired);
        assert!(real.state().windows.is_empty());
    }
}

#[test]
fn a_release_that_would_overflow_releases_nothing() {
    let [a, b] =
        [("a", i64::MAX), ("bb", 1)].map(|(id, value)| Event::new(id, "k", AHEAD_MS, value));
    for mut real in stores(settings()) {
        take(&mut real, &[a.clone(), b.clone()]);
        real.act(&Step::Clock(NOW_MS + 10_000));
        let before = real.state();
        assert_eq!(real.act(&Step::Release(Which::All)), Acted::Overflow);
        assert!(real.state() == before);
        // one of them alone fits
        let accepted = one(|counts| &mut counts.accepted);
        assert_eq!(real.act(&Step::Release(Which::Odd)), done(1, accepted, AHEAD_MS, 0));
        assert_eq!(real.state().held.len(), 1);
    }
}
