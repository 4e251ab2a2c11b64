//! The only place that reads the clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Where the time of day comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The machine's own clock, which may step in either direction.
    #[default]
    System,
    /// One that stands still at that many milliseconds since the epoch.
    Fixed(i64),
}

impl Clock {
    /// Milliseconds since 1970-01-01T00:00:00Z; 0 for a clock that is before it.
    pub fn now_ms(self) -> i64 {
        match self {
            Clock::Fixed(now_ms) => now_ms,
            Clock::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
        }
    }
}
