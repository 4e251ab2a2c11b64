//! What is fixed for ever when a store is made, and which combinations make sense.

use std::fmt;

/// How far ahead of the clock an event may be by default before it is held: one day.
pub const DEFAULT_MAX_FUTURE_MS: i64 = 86_400_000;

/// When an event counts as late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LateRule {
    /// When its window is final.
    #[default]
    Window,
    /// When it is older than the watermark, even if its window is still open.
    Event,
}

/// What becomes of a late event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatePolicy {
    /// It is kept in the side output.
    #[default]
    Aside,
    /// It is counted, not kept.
    Drop,
    /// Its window gets another revision; what was final before stays readable.
    Correct,
}

impl LateRule {
    /// The public name.
    pub fn name(self) -> &'static str {
        match self {
            LateRule::Window => "window",
            LateRule::Event => "event",
        }
    }

    /// The rule of that name.
    pub fn from_name(name: &str) -> Option<LateRule> {
        [LateRule::Window, LateRule::Event].into_iter().find(|rule| rule.name() == name)
    }
}

impl LatePolicy {
    /// The public name.
    pub fn name(self) -> &'static str {
        match self {
            LatePolicy::Aside => "aside",
            LatePolicy::Drop => "drop",
            LatePolicy::Correct => "correct",
        }
    }

    /// The policy of that name.
    pub fn from_name(name: &str) -> Option<LatePolicy> {
        [LatePolicy::Aside, LatePolicy::Drop, LatePolicy::Correct]
            .into_iter()
            .find(|policy| policy.name() == name)
    }
}

/// The settings of a store: only combinations that keep every promise can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    window_ms: i64,
    lateness_ms: i64,
    late_rule: LateRule,
    late_policy: LatePolicy,
    max_future_ms: Option<i64>,
    dedup_horizon_ms: Option<i64>,
}

impl Settings {
    /// Windows of `window_ms` (at least 1), the watermark `lateness_ms` (at least 0) behind, and
    /// the defaults for the rest.
    ///
    /// # Errors
    /// When a number is out of its range.
    pub fn new(window_ms: i64, lateness_ms: i64) -> Result<Settings, SettingsError> {
        if window_ms < 1 {
            return Err(SettingsError::OutOfRange {
                name: "window_ms",
                least: 1,
                found: window_ms,
            });
        }
        if lateness_ms < 0 {
            let name = "lateness_ms";
            return Err(SettingsError::OutOfRange { name, least: 0, found: lateness_ms });
        }
        Ok(Settings {
            window_ms,
            lateness_ms,
            late_rule: LateRule::default(),
            late_policy: LatePolicy::default(),
            max_future_ms: Some(DEFAULT_MAX_FUTURE_MS),
            dedup_horizon_ms: None,
        })
    }

    /// The same with another rule and policy for late events.
    pub fn with_late(self, late_rule: LateRule, late_policy: LatePolicy) -> Settings {
        Settings { late_rule, late_policy, ..self }
    }

    /// The same with another guard against clocks that run ahead; none turns it off.
    ///
    /// # Errors
    /// When it is negative.
    pub fn with_max_future_ms(self, max_future_ms: Option<i64>) -> Result<Settings, SettingsError> {
        match max_future_ms {
            Some(found) if found < 0 => {
                Err(SettingsError::OutOfRange { name: "max_future_ms", least: 0, found })
            }
            _ => Ok(Settings { max_future_ms, ..self }),
        }
    }

    /// The same with a bound on how far behind the watermark ids are remembered; none is for ever.
    ///
    /// # Errors
    /// When it is shorter than a window and the lateness together: an event could then be
    /// forgotten while its window is still open.
    pub fn with_dedup_horizon_ms(self, horizon_ms: Option<i64>) -> Result<Settings, SettingsError> {
        let least_ms = self.window_ms.saturating_add(self.lateness_ms);
        match horizon_ms {
            Some(found_ms) if found_ms < least_ms => {
                Err(SettingsError::HorizonTooShort { least_ms, found_ms })
            }
            _ => Ok(Settings { dedup_horizon_ms: horizon_ms, ..self }),
        }
    }

    /// Width of a window, at least 1.
    pub fn window_ms(&self) -> i64 {
        self.window_ms
    }

    /// How far the watermark stays behind the greatest timestamp, at least 0.
    pub fn lateness_ms(&self) -> i64 {
        self.lateness_ms
    }

    /// When an event counts as late.
    pub fn late_rule(&self) -> LateRule {
        self.late_rule
    }

    /// What becomes of a late event.
    pub fn late_policy(&self) -> LatePolicy {
        self.late_policy
    }

    /// How far ahead of the clock an event may be before it is held.
    pub fn max_future_ms(&self) -> Option<i64> {
        self.max_future_ms
    }

    /// How far behind the watermark an id is remembered; none is for ever.
    pub fn dedup_horizon_ms(&self) -> Option<i64> {
        self.dedup_horizon_ms
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_off = |ms: Option<i64>| ms.map_or_else(|| "off".to_owned(), |ms| ms.to_string());
        write!(
            f,
            "window_ms={} lateness_ms={} late_rule={} late_policy={} max_future_ms={} \
             dedup_horizon_ms={}",
            self.window_ms,
            self.lateness_ms,
            self.late_rule.name(),
            self.late_policy.name(),
            or_off(self.max_future_ms),
            or_off(self.dedup_horizon_ms),
        )
    }
}

/// Why settings cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// A number is less than it may be.
    OutOfRange {
        /// The setting.
        name: &'static str,
        /// The least that it may be.
        least: i64,
        /// What was given.
        found: i64,
    },
    /// The horizon ends before the lateness does.
    HorizonTooShort {
        /// Window and lateness together.
        least_ms: i64,
        /// What was given.
        found_ms: i64,
    },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::OutOfRange { name, least, found } => {
                write!(f, "{name} must be a whole number from {least} on, found {found}")
            }
            SettingsError::HorizonTooShort { least_ms, found_ms } => write!(
                f,
                "dedup_horizon_ms must be at least window_ms + lateness_ms = {least_ms}, found \
                 {found_ms}: a repeat could be counted twice in a window that is still open"
            ),
        }
    }
}

impl std::error::Error for SettingsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_that_keep_the_promises_can_be_made() {
        assert!(Settings::new(1, 0).is_ok());
        let error = Settings::new(0, 0).unwrap_err().to_string();
        assert_eq!(error, "window_ms must be a whole number from 1 on, found 0");
        assert!(Settings::new(1, -1).is_err());
        let settings = Settings::new(1000, 500).unwrap();
        assert!(settings.with_dedup_horizon_ms(Some(1500)).is_ok());
        assert!(settings.with_dedup_horizon_ms(Some(1499)).is_err());
        assert!(settings.with_max_future_ms(Some(-1)).is_err());
        let widest = Settings::new(i64::MAX, i64::MAX).unwrap();
        assert!(widest.with_dedup_horizon_ms(Some(i64::MAX)).is_ok());
    }
}
