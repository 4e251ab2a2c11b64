//! Whether an event comes too late for its window.

use super::settings::{LateRule, Settings};
use super::window;

/// Whether an event with that timestamp is late under this watermark.
pub(super) fn is_late(settings: &Settings, timestamp_ms: i64, watermark_ms: i64) -> bool {
    match settings.late_rule() {
        LateRule::Event => timestamp_ms < watermark_ms,
        // a window ends behind all that is in it: mostly that is enough to know
        LateRule::Window if timestamp_ms >= watermark_ms => false,
        LateRule::Window => {
            let start_ms = window::start_ms(timestamp_ms, settings.window_ms());
            window::is_final(start_ms, settings.window_ms(), watermark_ms)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::settings::LatePolicy;

    #[test]
    fn the_two_rules_differ_inside_an_open_window() {
        let by_window = Settings::new(1000, 0).unwrap();
        let by_event = by_window.with_late(LateRule::Event, LatePolicy::Aside);
        let late = |t, w| (is_late(&by_window, t, w), is_late(&by_event, t, w));
        assert_eq!(late(1499, 1500), (false, true));
        assert_eq!(late(1500, 1500), (false, false));
        assert_eq!(late(999, 1000), (true, true));
        assert_eq!(late(1000, 1000), (false, false));
        assert_eq!(late(0, 999), (false, true));
    }
}
