//! How far back ids are remembered: what is older can no longer be told from a repeat.

/// The oldest timestamp that is still remembered, at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Horizon {
    oldest_ms: Option<i64>,
}

impl Horizon {
    /// The horizon under this watermark; without a bound all is remembered.
    pub(super) fn at(watermark_ms: i64, dedup_horizon_ms: Option<i64>) -> Horizon {
        Horizon { oldest_ms: dedup_horizon_ms.map(|horizon_ms| watermark_ms - horizon_ms) }
    }

    /// Whether something with that timestamp is too old to be remembered.
    pub(super) fn forgets(self, timestamp_ms: i64) -> bool {
        self.oldest_ms.is_some_and(|oldest_ms| timestamp_ms < oldest_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_millisecond_is_still_remembered() {
        assert!(!Horizon::at(5000, None).forgets(0));
        assert!(!Horizon::at(5000, Some(1000)).forgets(4000));
        assert!(Horizon::at(5000, Some(1000)).forgets(3999));
    }
}
