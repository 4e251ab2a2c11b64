//! The trusted time of a store: it follows the clock, never backwards, and only so fast. A clock that
//! is wrong for a while can neither age what is kept nor hold events that are in time.

use crate::model::clock::Clock;

/// How far behind the trusted time the clock may be before it is not believed: an hour.
const MOST_BEHIND_MS: i64 = 3_600_000;

/// How many times as fast as this process has been running the trusted time may follow the clock.
const MOST_SPEED: i64 = 24;

/// After how much running time a commit takes the trusted time along, in milliseconds. Less is added
/// up until then.
const STEP_MS: i64 = 1000;

/// How far a process has come with the trusted time of a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Following {
    clock: Clock,
    // up to when the running time is accounted for
    since_ms: i64,
}

impl Following {
    /// Begins now.
    pub(super) fn new(clock: Clock) -> Following {
        Following { clock, since_ms: clock.running_ms().unwrap_or(0) }
    }

    /// The same running time, with another clock.
    pub(super) fn with_clock(self, clock: Clock) -> Following {
        Following { clock, ..self }
    }

    /// The trusted time of this moment, from what is kept.
    pub(super) fn trusted_ms(&self, kept_ms: Option<i64>) -> i64 {
        let now_ms = self.clock.now_ms();
        match (kept_ms, self.clock.running_ms()) {
            (Some(kept_ms), Some(running_ms)) => {
                let ran_ms = running_ms.saturating_sub(self.since_ms).max(0);
                let most_ms = kept_ms.saturating_add(ran_ms.saturating_mul(MOST_SPEED));
                now_ms.min(most_ms).max(kept_ms)
            }
            _ => now_ms,
        }
    }

    /// What is to be kept with a commit, and whether the running time is accounted for by it.
    pub(super) fn step(&self, kept_ms: Option<i64>) -> (i64, Option<Following>) {
        let running_ms = self.clock.running_ms();
        match (kept_ms, running_ms) {
            (Some(kept_ms), Some(ms)) if ms.saturating_sub(self.since_ms) < STEP_MS => {
                (kept_ms, None)
            }
            _ => (self.trusted_ms(kept_ms), Some(Following::new(self.clock))),
        }
    }

    /// The time by which events are judged and receipts stamped: the clock, unless it is too far
    /// behind the trusted time.
    pub(super) fn now_ms(&self, kept_ms: Option<i64>) -> i64 {
        let now_ms = self.clock.now_ms();
        match kept_ms {
            Some(kept_ms) if self.clock.running_ms().is_some() && is_behind(kept_ms, now_ms) => {
                kept_ms
            }
            _ => now_ms,
        }
    }
}

/// Whether a clock is too far behind the trusted time to be believed.
pub fn is_behind(trusted_ms: i64, now_ms: i64) -> bool {
    trusted_ms.saturating_sub(now_ms) > MOST_BEHIND_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGUN_MS: i64 = 1_790_000_000_000;
    const YEARS_MS: i64 = 10 * 365 * 86_400_000;

    fn after(ran_ms: i64, now_ms: i64) -> Following {
        let clock = |running_ms| Clock::Machine { now_ms, running_ms };
        Following { clock: clock(ran_ms), ..Following::new(clock(0)) }
    }

    /// Has failed for a time that follows at once, and for one that goes back.
    #[test]
    fn case_114_the_trusted_time_follows_forwards_and_only_so_fast() {
        let kept = Some(BEGUN_MS);
        let follow = |ran_ms, offset_ms| after(ran_ms, BEGUN_MS + offset_ms).trusted_ms(kept);
        assert_eq!(follow(60_000, 60_000), BEGUN_MS + 60_000, "as the clock goes");
        assert_eq!(follow(60_000, YEARS_MS), BEGUN_MS + 24 * 60_000, "ten years ahead");
        assert_eq!(follow(14, YEARS_MS), BEGUN_MS + 24 * 14);
        assert_eq!(follow(60_000, -BEGUN_MS), BEGUN_MS, "never back");
        assert_eq!(after(0, 5).trusted_ms(None), 5, "the first time it is the clock");
        let fixed = Following::new(Clock::Fixed(7));
        assert_eq!((fixed.trusted_ms(kept), fixed.now_ms(kept)), (7, 7));
    }

    /// Has failed for a clock that is always believed.
    #[test]
    fn case_114_a_clock_far_behind_is_not_believed() {
        let now = |offset_ms| after(0, BEGUN_MS + offset_ms).now_ms(Some(BEGUN_MS)) - BEGUN_MS;
        let offsets = [-BEGUN_MS, -3_600_001, -3_600_000, -1, 0, YEARS_MS];
        assert_eq!(offsets.map(now), [0, 0, -3_600_000, -1, 0, YEARS_MS]);
    }

    /// Has failed for each step taken alone.
    #[test]
    fn case_114_short_steps_are_added_up() {
        let kept = Some(BEGUN_MS);
        let (same, following) = after(999, BEGUN_MS + 999).step(kept);
        assert!(same == BEGUN_MS && following.is_none(), "the second is not lost");
        let (moved, following) = after(1000, BEGUN_MS + 1000).step(kept);
        assert_eq!(moved, BEGUN_MS + 1000);
        assert_eq!(following.unwrap().since_ms, 1000);
    }
}
