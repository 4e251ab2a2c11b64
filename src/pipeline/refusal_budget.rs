//! How long the rests of refused files may be read: a file costs next to nothing to make, however
//! large it says it is, and all others wait meanwhile.

use std::time::{Duration, Instant};

use crate::decode::REST_TIME;

/// What is left for each file, however many were refused.
const LEAST: Duration = Duration::from_millis(50);

/// Of what passes this part is added to what is left: 1/20.
const SHARE: u32 = 20;

/// The time that is left: at most that of one file, [`REST_TIME`].
#[derive(Debug)]
pub(super) struct RefusalBudget {
    left: Duration,
    seen: Instant,
}

impl RefusalBudget {
    pub(super) fn new() -> RefusalBudget {
        RefusalBudget { left: REST_TIME, seen: Instant::now() }
    }

    /// How long the rest of the next refused file may take.
    pub(super) fn left(&mut self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.seen);
        self.seen = now;
        self.left = (self.left + passed / SHARE).min(REST_TIME);
        self.left.max(LEAST)
    }

    /// The rest of a file took that long.
    pub(super) fn spend(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_may_take_all_and_many_share_a_twentieth() {
        let mut rests = RefusalBudget::new();
        let now = Instant::now();
        assert_eq!(rests.left(now), REST_TIME);
        rests.spend(REST_TIME);
        assert_eq!(rests.left(now), LEAST);
        rests.spend(LEAST);
        let left = rests.left(now + Duration::from_secs(10));
        assert!(
            left > Duration::from_millis(490) && left <= Duration::from_millis(501),
            "{left:?}"
        );
        assert_eq!(rests.left(now + Duration::from_secs(100)), REST_TIME);
    }
}
