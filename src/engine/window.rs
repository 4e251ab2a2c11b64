//! Tumbling windows: which one a timestamp falls into, and when it is final.

/// One window of one key, half-open: from its start up to, but not including, its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowId<'a> {
    /// The first millisecond that belongs to it.
    pub start_ms: i64,
    /// The key whose window it is.
    pub key: &'a str,
}

/// Where the window of that width begins that holds the timestamp.
pub fn start_ms(timestamp_ms: i64, window_ms: i64) -> i64 {
    timestamp_ms - timestamp_ms.rem_euclid(window_ms)
}

/// The first millisecond after the window that begins there. A start is 0 or at least as large as
/// the width, and at most a timestamp, so this stays far inside the 64-bit range; it saturates
/// for the widest windows of all.
pub fn end_ms(start_ms: i64, window_ms: i64) -> i64 {
    start_ms.saturating_add(window_ms)
}

/// Whether the window that begins there is final under this watermark.
pub fn is_final(start_ms: i64, window_ms: i64, watermark_ms: i64) -> bool {
    end_ms(start_ms, window_ms) <= watermark_ms
}

/// The window starts that become final when the watermark moves: from the first (inclusive) up to
/// the second (exclusive). None when no boundary is crossed.
pub fn closing_starts_ms(from_ms: i64, to_ms: i64, window_ms: i64) -> Option<(i64, i64)> {
    // a start s closes when from < s + window <= to; starts are multiples of the width from 0 on
    let (first, after) = (start_ms(from_ms, window_ms), start_ms(to_ms, window_ms));
    (first < after).then_some((first, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_half_open() {
        assert_eq!([0, 999, 1000, 1999].map(|t| start_ms(t, 1000)), [0, 0, 1000, 1000]);
        assert!(!is_final(0, 1000, 999));
        assert!(is_final(0, 1000, 1000));
        assert_eq!(end_ms(0, i64::MAX), i64::MAX);
    }

    #[test]
    fn closing_starts_agree_with_finality() {
        for window_ms in 1..6 {
            for from in 0..20 {
                for to in from..20 {
                    let closes =
                        |s: &i64| is_final(*s, window_ms, to) && !is_final(*s, window_ms, from);
                    let expected: Vec<i64> =
                        (0..20).map(|n| n * window_ms).filter(closes).collect();
                    let found: Vec<i64> = closing_starts_ms(from, to, window_ms)
                        .map_or(vec![], |(a, b)| (a..b).step_by(window_ms as usize).collect());
                    assert_eq!(found, expected, "window {window_ms}, from {from} to {to}");
                }
            }
        }
    }
}
