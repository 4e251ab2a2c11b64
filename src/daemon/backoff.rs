//! How long to wait before the next try: twice as long each time, within bounds.

use std::time::{Duration, Instant};

use crate::config::Config;

/// The waits after failed tries in a row.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    least: Duration,
    most: Duration,
    tries: u32,
    until: Option<Instant>,
}

impl Backoff {
    pub(super) fn new(config: &Config) -> Backoff {
        let (least, most) = config.daemon.backoff();
        Backoff { least, most, tries: 0, until: None }
    }

    /// Another try failed: how long to wait.
    pub(super) fn next(&mut self) -> Duration {
        let doubled = self.least.saturating_mul(2_u32.saturating_pow(self.tries));
        self.tries = self.tries.saturating_add(1);
        let wait = doubled.min(self.most);
        self.until = Some(Instant::now() + wait);
        wait
    }

    /// How many tries failed in a row.
    pub(super) fn tries(&self) -> u32 {
        self.tries
    }

    /// A try went well.
    pub(super) fn reset(&mut self) {
        self.tries = 0;
        self.until = None;
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    pub(super) fn left(&self, now: Instant) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_bound() {
        let least = Duration::from_millis(250);
        let most = Duration::from_secs(30);
        let mut backoff = Backoff { least, most, tries: 0, until: None };
        let waits: Vec<u128> = (0..9).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        assert!(!backoff.is_over(Instant::now()));
        backoff.reset();
        assert_eq!(backoff.next(), least);
        for _ in 0..100 {
            assert!(backoff.next() <= most);
        }
    }
}
