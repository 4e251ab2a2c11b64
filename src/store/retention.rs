//! What may be removed from a store, and what a promise needs whatever is asked.

use std::fmt;

use crate::engine::settings::{LatePolicy, Settings};
use crate::engine::window;

/// The receipts of so many last batches are always kept: a delivery that is begun again must find
/// its own.
pub const KEPT_RECEIPTS: u64 = 10_000;

/// Receipts younger than this are always kept: a day.
pub const KEPT_RECEIPTS_MS: i64 = 86_400_000;

/// What is asked to be removed. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Ids that are older than the horizon behind the watermark. Without a horizon all are kept.
    pub ledger: bool,
    /// Final windows that end at or before this, with their revisions. A window for which late
    /// events wait is kept until these are removed or applied. Where late events make corrections,
    /// a window is kept until the horizon has passed it, and for ever without a horizon: its next
    /// revision needs what it held.
    ///
    /// The account of a source and key goes when nothing came for it since then, no window of its
    /// key from before then is left, and none of its events is held. It is added to what its source
    /// sent that is not told apart by key.
    pub windows_before_ms: Option<i64>,
    /// Late events whose window is final and ends at or before this.
    pub late_before_ms: Option<i64>,
    /// Receipts of batches that were committed before this, of refused ones, and the notes of how
    /// held events were settled and how sources came and went. The last [`KEPT_RECEIPTS`] batches
    /// and those younger than [`KEPT_RECEIPTS_MS`] are kept, and so is the last refusal.
    pub receipts_before_ms: Option<i64>,
    /// Moves of the watermark to before this; those that closed a window which is still there are
    /// kept.
    pub moves_before_ms: Option<i64>,
}

/// How much was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "rows of each kind, described where they are asked for")]
pub struct Pruned {
    pub ids: u64,
    pub windows: u64,
    pub revisions: u64,
    pub accounts: u64,
    pub late: u64,
    pub receipts: u64,
    pub refusals: u64,
    pub settled: u64,
    pub presence: u64,
    pub moves: u64,
}

/// In words: how many of each kind that lost any.
impl fmt::Display for Pruned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [
            (self.ids, "id", "ids"),
            (self.windows, "window", "windows"),
            (self.revisions, "revision", "revisions"),
            (self.late, "late event", "late events"),
            (self.moves, "move of the watermark", "moves of the watermark"),
            (self.receipts, "receipt", "receipts"),
            (self.refusals, "receipt of a refused batch", "receipts of refused batches"),
            (self.settled, "note of a held event", "notes of held events"),
            (self.presence, "note of a source", "notes of sources"),
        ];
        let mut gap = "";
        for (count, one, many) in kinds.into_iter().filter(|(count, _, _)| *count > 0) {
            write!(f, "{gap}{count} {}", if count == 1 { one } else { many })?;
            gap = ", ";
        }
        if gap.is_empty() { f.write_str("nothing") } else { Ok(()) }
    }
}

/// How far the store had come when it was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) watermark_ms: i64,
    /// The number of the last batch of any kind.
    pub(super) last_number: u64,
    pub(super) now_ms: i64,
}

/// What may be removed, as first values that are kept; none keeps all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The least timestamp whose id is kept.
    pub(super) ids_from_ms: Option<i64>,
    /// The least start of a window that is kept.
    pub(super) windows_from_ms: Option<i64>,
    /// The least start of a window whose late events are kept.
    pub(super) late_from_ms: Option<i64>,
    pub(super) receipts: Option<ReceiptBound>,
    /// The least watermark, as it was reached, that is kept; what closed a kept window is kept
    /// as well.
    pub(super) moves_from_ms: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceiptBound {
    /// The earliest commit that is kept.
    pub(super) from_ms: i64,
    /// The earliest note of another kind that is kept.
    pub(super) notes_from_ms: i64,
    /// The greatest number that may go.
    pub(super) last_number: u64,
}

impl Retention {
    /// What of this may be done at that moment. It stays right later on: the watermark and the
    /// numbers only rise.
    pub(super) fn bounds(&self, settings: &Settings, moment: Moment) -> Bounds {
        let Moment { watermark_ms, last_number, now_ms } = moment;
        let horizon_ms =
            settings.dedup_horizon_ms().map(|horizon_ms| watermark_ms.saturating_sub(horizon_ms));
        let first_kept = |end_ms: i64| window::start_ms(end_ms, settings.window_ms());
        // what is final can still be corrected, until what comes for it is expired
        let settled_ms = match settings.late_policy() {
            LatePolicy::Correct => horizon_ms,
            LatePolicy::Aside | LatePolicy::Drop => Some(watermark_ms),
        };
        let windows_ms = self.windows_before_ms.zip(settled_ms);
        let late_ms = self.late_before_ms.map(|asked_ms| asked_ms.min(watermark_ms));
        Bounds {
            ids_from_ms: horizon_ms.filter(|_| self.ledger),
            windows_from_ms: windows_ms.map(|(asked_ms, ms)| first_kept(asked_ms.min(ms).max(0))),
            late_from_ms: late_ms.map(|ms| first_kept(ms.max(0))),
            receipts: self.receipts_before_ms.map(|asked_ms| ReceiptBound {
                from_ms: asked_ms.min(now_ms.saturating_sub(KEPT_RECEIPTS_MS)),
                notes_from_ms: asked_ms,
                last_number: last_number.saturating_sub(KEPT_RECEIPTS),
            }),
            moves_from_ms: self.moves_before_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::settings::LateRule;

    const ALL: Retention = Retention {
        ledger: true,
        windows_before_ms: Some(i64::MAX),
        late_before_ms: Some(i64::MAX),
        receipts_before_ms: Some(i64::MAX),
        moves_before_ms: Some(i64::MAX),
    };

    fn moment() -> Moment {
        Moment { watermark_ms: 10_700, last_number: 10_003, now_ms: 2 * KEPT_RECEIPTS_MS }
    }

    #[test]
    fn what_was_removed_is_said_in_words() {
        let pruned = Pruned { windows: 12, late: 3, receipts: 1, ..Pruned::default() };
        assert_eq!(pruned.to_string(), "12 windows, 3 late events, 1 receipt");
        assert_eq!(Pruned::default().to_string(), "nothing");
    }

    #[test]
    fn what_a_promise_needs_stays_whatever_is_asked() {
        let settings = Settings::new(1000, 500).unwrap();
        let bounds = ALL.bounds(&settings, moment());
        assert_eq!(bounds.ids_from_ms, None, "without a horizon every id is needed");
        assert_eq!(bounds.windows_from_ms, Some(10_000), "the open window");
        assert_eq!(bounds.late_from_ms, Some(10_000));
        let receipts = bounds.receipts.unwrap();
        assert_eq!((receipts.from_ms, receipts.last_number), (KEPT_RECEIPTS_MS, 3));

        let bounded = settings.with_dedup_horizon_ms(Some(2000)).unwrap();
        let bounds = ALL.bounds(&bounded, moment());
        assert_eq!(bounds.ids_from_ms, Some(8700));
        assert_eq!(bounds.windows_from_ms, Some(10_000));
    }

    #[test]
    fn what_can_still_be_corrected_stays() {
        let correct = |settings: Settings| {
            let settings = settings.with_late(LateRule::Window, LatePolicy::Correct);
            ALL.bounds(&settings, moment()).windows_from_ms
        };
        let settings = Settings::new(1000, 500).unwrap();
        assert_eq!(correct(settings), None);
        assert_eq!(correct(settings.with_dedup_horizon_ms(Some(2000)).unwrap()), Some(8000));
        assert_eq!(correct(settings.with_dedup_horizon_ms(Some(1_000_000)).unwrap()), Some(0));
    }

    #[test]
    fn nothing_goes_that_was_not_asked_for() {
        let settings = Settings::new(1000, 500).unwrap().with_dedup_horizon_ms(Some(2000)).unwrap();
        assert_eq!(Retention::default().bounds(&settings, moment()), Bounds::default());
        let some = Retention { windows_before_ms: Some(3999), ..Retention::default() };
        assert_eq!(some.bounds(&settings, moment()).windows_from_ms, Some(3000));
    }
}
