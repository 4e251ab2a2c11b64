//! Timestamps in seconds where milliseconds are meant: once they are in, they stand for ever.

use std::ops::Range;

/// What looks like seconds: from 2001 to 2286 in seconds, from January to April 1970 in
/// milliseconds.
pub const LIKE_SECONDS: Range<i64> = 1_000_000_000..10_000_000_000;

/// What is done about events whose timestamps look like seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecondsRule {
    /// They are taken as they stand.
    #[default]
    Accept,
    /// They are taken as they stand, and the first one of each chunk is named.
    Name,
    /// The first one stops the batch.
    Stop,
}

/// An event whose timestamp looks like seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LikeSeconds {
    /// Its row in the chunk.
    pub row: usize,
    /// The greatest timestamp that its source had sent before; none when it had sent nothing.
    pub greatest_ms: Option<i64>,
}

/// Whether a timestamp looks like seconds, from a source that has sent milliseconds or nothing so
/// far. One that has only sent such timestamps, since they were accepted so, is not suspected again.
pub(super) fn is_suspect(timestamp_ms: i64, greatest_ms: Option<i64>) -> bool {
    LIKE_SECONDS.contains(&timestamp_ms)
        && !greatest_ms.is_some_and(|greatest_ms| LIKE_SECONDS.contains(&greatest_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_139_seconds_are_told_by_the_event_and_by_what_its_source_sent() {
        let (seconds, millis) = (1_767_225_600, 1_767_225_600_000);
        for greatest_ms in [None, Some(millis), Some(900), Some(10_000_000_000)] {
            assert!(is_suspect(seconds, greatest_ms), "{greatest_ms:?}");
            assert!(!is_suspect(millis, greatest_ms), "{greatest_ms:?}");
        }
        assert!(!is_suspect(seconds, Some(seconds - 1)), "it was accepted so");
        let edges = [999_999_999, 1_000_000_000, 9_999_999_999, 10_000_000_000];
        assert_eq!(edges.map(|ms| is_suspect(ms, None)), [false, true, true, false]);
    }
}
