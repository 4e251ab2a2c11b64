//! The only place that reads the clock, and how a time is written.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use jiff::fmt::temporal::DateTimePrinter;
use jiff::{SignedDuration, civil};

/// Where the time of day comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The machine's own clock, which may step in either direction.
    #[default]
    System,
    /// One that stands still at that many milliseconds since the epoch.
    Fixed(i64),
    /// A machine's clock at one moment, for tests of what depends on both.
    Machine {
        /// What it shows, in milliseconds since the epoch.
        now_ms: i64,
        /// For how long the process has been running, in milliseconds.
        running_ms: i64,
    },
}

/// When this process first asked how long it has been running.
static BEGUN: OnceLock<Instant> = OnceLock::new();

impl Clock {
    /// For how long this process has been running, by a clock that never steps; none for a time that
    /// stands still, which is believed as it is.
    pub fn running_ms(self) -> Option<i64> {
        match self {
            Clock::System => {
                let ran = BEGUN.get_or_init(Instant::now).elapsed();
                Some(i64::try_from(ran.as_millis()).unwrap_or(i64::MAX))
            }
            Clock::Fixed(_) => None,
            Clock::Machine { running_ms, .. } => Some(running_ms),
        }
    }

    /// Milliseconds since 1970-01-01T00:00:00Z; 0 for a clock that is before it.
    pub fn now_ms(self) -> i64 {
        match self {
            Clock::Fixed(now_ms) | Clock::Machine { now_ms, .. } => now_ms,
            Clock::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
        }
    }
}

/// The moment in UTC to the millisecond, as `2026-11-29T18:22:35.123Z`; one that is outside the
/// years -9999 to 9999, which that form can show, is named as such.
pub fn utc(ms: i64) -> String {
    const TO_THE_MILLISECOND: DateTimePrinter = DateTimePrinter::new().precision(Some(3));
    // not jiff's Timestamp, which ends a day before the year 9999 does
    let moment = civil::date(1970, 1, 1).to_datetime(civil::Time::midnight());
    match moment.checked_add(SignedDuration::from_millis(ms)) {
        Ok(moment) => TO_THE_MILLISECOND.datetime_to_string(&moment) + "Z",
        Err(_) if ms < 0 => "before-year--9999".to_owned(),
        Err(_) => "after-year-9999".to_owned(),
    }
}
