//! Sources that fall idle, in the orders and at the moments that neither a scenario nor the daemon
//! can be brought to at will: through the library, in both kinds of stores.

use crate::draw::{NOW_MS, Step, Which};
use crate::model::{Counts, Event, Settings};
use crate::observed::ndjson;
use crate::real::{Acted, Real};

const AHEAD_MS: i64 = NOW_MS + 5001;

fn stores() -> [Real; 2] {
    let settings = Settings { max_future_ms: Some(5000), ..Settings::new(1000, 0) };
    [Real::sqlite(settings), Real::memory(settings)]
}

fn of(source: &str, id: &str, timestamp_ms: i64) -> Event {
    Event { source: Some(source.to_owned()), ..Event::new(id, "k", timestamp_ms, 1) }
}

fn take(real: &mut Real, events: &[Event]) -> Counts {
    real.ingest(&ndjson(events)).unwrap().counts
}

fn turn(real: &mut Real, source: &str, presence: &'static str) -> (i64, u64) {
    match real.act(&Step::Presence(vec![source.to_owned()], presence)) {
        Acted::Done(done) => (done.watermark_ms, done.windows_closed),
        other => panic!("{other:?}"),
    }
}

/// Case 74: when all are idle, the watermark is the greatest of theirs, whichever was idle first.
#[test]
fn case_074_the_order_in_which_sources_fall_idle_makes_no_difference() {
    let fast_first = [("fast", (4000, 0)), ("slow", (5000, 1))];
    let slow_first = [("slow", (5000, 1)), ("fast", (5000, 0))];
    let mut ends = Vec::new();
    for order in [fast_first, slow_first] {
        for mut real in stores() {
            take(&mut real, &[of("slow", "s", 4000), of("fast", "f", 5000)]);
            assert_eq!(real.state().watermark_ms, 4000);
            for (source, expected) in order {
                assert_eq!(turn(&mut real, source, "idle"), expected, "{source} of {order:?}");
                real.reopen();
            }
            let state = real.state();
            assert_eq!(state.watermark_ms, 5000);
            // they are back one after the other: nothing moves back, whoever is first
            assert_eq!(turn(&mut real, "slow", "active"), (5000, 0));
            assert_eq!(turn(&mut real, "fast", "active"), (5000, 0));
            let late = Counts { late: 1, ..Counts::default() };
            assert_eq!(take(&mut real, &[of("slow", "s2", 4500)]), late);
            ends.push((state.windows, state.sources, state.idle, state.counts));
        }
    }
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
}

#[test]
fn a_held_event_does_not_bring_an_idle_source_to_where_it_is() {
    for mut real in stores() {
        take(&mut real, &[of("slow", "s", 1500), of("fast", "f", 5000)]);
        assert_eq!(turn(&mut real, "slow", "idle"), (5000, 1));

        // whatever comes of it, it is back; what is held has no say in where the watermark is
        let held = Counts { future: 1, ..Counts::default() };
        assert_eq!(take(&mut real, &[of("slow", "h", AHEAD_MS)]), held);
        let state = real.state();
        assert!(state.idle.is_empty(), "{:?}", state.idle);
        assert_eq!((state.watermark_ms, state.sources["slow"]), (5000, 1500));
        take(&mut real, &[of("fast", "f2", 9000)]);
        assert_eq!(real.state().watermark_ms, 5000, "slow holds it: its own is 1500 still");

        // released while its source is idle: it counts, and its source is as far as it is
        assert_eq!(turn(&mut real, "slow", "idle"), (9000, 1));
        real.act(&Step::Clock(NOW_MS + 1));
        let Acted::Done(done) = real.act(&Step::Release(Which::All)) else { panic!("overflow") };
        assert_eq!((done.concerned, done.counts.accepted), (1, 1));
        let state = real.state();
        assert_eq!((state.held.len(), state.sources["slow"]), (0, AHEAD_MS));
        // the fast one is the slower one now
        assert_eq!((done.watermark_ms, state.watermark_ms), (9000, 9000));
        assert_eq!(state.counts.late, 0);
    }
}

#[test]
fn an_idle_source_with_nothing_but_held_events_holds_nothing() {
    for mut real in stores() {
        take(&mut real, &[of("ahead", "h", AHEAD_MS), of("fast", "f", 5000)]);
        // declared, it is waited for; idle, it is not; neither moves what is held
        assert_eq!(turn(&mut real, "ahead", "declared"), (5000, 0));
        take(&mut real, &[of("fast", "f2", 6000)]);
        assert_eq!(real.state().watermark_ms, 5000);
        assert_eq!(turn(&mut real, "ahead", "idle"), (6000, 1));
        assert_eq!(turn(&mut real, "fast", "idle"), (6000, 0), "all are: nothing held counts");
        assert_eq!(real.state().held.len(), 1);
    }
}
