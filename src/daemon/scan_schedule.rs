//! When to look at how much of the inbox.

use std::time::{Duration, Instant};

use crate::spool::scan::Depth;

/// How often a backlog is looked at afresh while it is worked on.
const FRESH: Duration = Duration::from_secs(1);

/// For how many times as long as it took to list all that is not done again, unless its time has
/// come.
const LISTING_REST: u32 = 10;

/// The same for a fresh look at a backlog.
const FRESH_REST: u32 = 20;

/// What the looks so far have cost.
#[derive(Debug, Default)]
pub(super) struct ScanSchedule {
    // when all was last listed
    listed: Option<Instant>,
    listing: Duration,
    fresh: Duration,
}

impl ScanSchedule {
    /// A look has ended that took so long.
    pub(super) fn end(&mut self, depth: Depth, now: Instant, took: Duration) {
        match depth {
            Depth::Whole => (self.listed, self.listing) = (Some(now), took),
            Depth::Asked | Depth::Names => self.fresh = took,
        }
    }

    /// When all is to be listed again: every `interval`, or, where that was asked for, as soon as it
    /// does not take up most of the time.
    pub(super) fn next_listing(&self, interval: Duration, is_asked: bool, now: Instant) -> Instant {
        let Some(listed) = self.listed else { return now };
        let wait = if is_asked { interval.min(self.rest()) } else { interval };
        listed + wait
    }

    /// For how long all is not listed again at least.
    pub(super) fn rest(&self) -> Duration {
        self.listing * LISTING_REST
    }

    /// Whether it is time for a fresh look while a backlog is worked on: often enough that what
    /// sorts first does not wait, and not so often that it costs.
    pub(super) fn is_stale(&self, looked: Instant, now: Instant) -> bool {
        now.saturating_duration_since(looked) >= FRESH.max(self.fresh * FRESH_REST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn all_is_listed_by_time_and_never_most_of_the_time() {
        let (mut scan_schedule, now) = (ScanSchedule::default(), Instant::now());
        assert_eq!(
            scan_schedule.next_listing(ms(10_000), false, now),
            now,
            "nothing was listed yet"
        );
        scan_schedule.end(Depth::Whole, now, ms(50));
        scan_schedule.end(Depth::Asked, now + ms(60), ms(1));
        assert_eq!(scan_schedule.next_listing(ms(10_000), false, now + ms(99)), now + ms(10_000));
        assert_eq!(scan_schedule.next_listing(ms(10_000), true, now + ms(99)), now + ms(500));
        assert_eq!(scan_schedule.next_listing(ms(100), true, now + ms(99)), now + ms(100));
    }

    #[test]
    fn case_152_a_backlog_is_looked_at_afresh_each_second_unless_that_costs_much() {
        let (mut scan_schedule, now) = (ScanSchedule::default(), Instant::now());
        scan_schedule.end(Depth::Whole, now, ms(500));
        assert!(!scan_schedule.is_stale(now, now + ms(999)));
        assert!(scan_schedule.is_stale(now, now + ms(1000)), "the next look costs little");
        scan_schedule.end(Depth::Asked, now, ms(200));
        assert!(!scan_schedule.is_stale(now, now + ms(3999)));
        assert!(scan_schedule.is_stale(now, now + ms(4000)));
    }
}
