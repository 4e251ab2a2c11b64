//! The reading side: a copy.

use std::ops::ControlFlow;

use crate::engine::window::{self, WindowId};
use crate::store::{
    AccountRow, EachAccount, EachHeld, EachLate, EachMove, EachReceipt, EachVersion, EachWindow,
    Error, EventRef, HeldRow, LateRow, PresenceRow, Receipt, ReceiptRow, RememberedRow,
    RevisionRow, SettledRow, Snapshot, SourceRow, Span, Summary, WindowRow,
};

use super::MemoryState;

/// The state of a store at the moment when this was taken.
#[derive(Clone, Debug)]
pub struct MemorySnapshot {
    state: MemoryState,
}

impl MemorySnapshot {
    pub(super) fn of(state: MemoryState) -> MemorySnapshot {
        MemorySnapshot { state }
    }
}

impl Snapshot for MemorySnapshot {
    fn summary(&self) -> Result<Summary, Error> {
        let state = &self.state;
        let window_ms = state.settings.window_ms();
        let is_open = |start_ms: i64| !window::is_final(start_ms, window_ms, state.watermark_ms);
        let open = state.windows.keys().filter(|(start_ms, _)| is_open(*start_ms)).count();
        let corrected = state.windows.values().filter(|window| window.revision > 0).count();
        let waiting = state.late.values().filter(|late| late.applied_in.is_none()).count();
        Ok(Summary {
            settings: state.settings,
            watermark_ms: state.watermark_ms,
            max_timestamp_ms: state.sources.values().filter_map(|row| row.max_timestamp_ms).max(),
            last_batch: state.last_batch,
            last_ingest_at_ms: state.last_ingest_at_ms,
            trusted_ms: state.trusted_ms,
            batches: state.batches,
            refused_batches: state.refused_batches,
            counts: state.counts,
            windows: state.windows.len() as u64,
            open_windows: open as u64,
            corrected_windows: corrected as u64,
            late_kept: state.late.len() as u64,
            late_waiting: waiting as u64,
            held: state.held.len() as u64,
            pruned_start_ms: state.pruned_start_ms,
        })
    }

    fn sources(&self) -> Result<Vec<SourceRow>, Error> {
        Ok(self.state.sources.values().cloned().collect())
    }

    fn versions(&self, each: &mut EachVersion<'_>) -> Result<(), Error> {
        let mut all = self.state.versions.iter();
        let _ = all.try_for_each(|(name, counts)| each(name, *counts));
        Ok(())
    }

    fn accounts(&self, each: &mut EachAccount<'_>) -> Result<(), Error> {
        let rest = self.state.pruned_accounts.iter().map(|(source, counts)| AccountRow {
            source,
            key: None,
            counts: *counts,
            last_seen_ms: None,
        });
        let told_apart = self.state.accounts.iter().map(|((source, key), account)| AccountRow {
            source,
            key: Some(key),
            counts: account.counts,
            last_seen_ms: Some(account.last_seen_ms),
        });
        let mut rows: Vec<_> = rest.chain(told_apart).collect();
        rows.sort_by_key(|row| (row.source, row.key));
        for row in &rows {
            if each(row) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn windows(&self, span: Span, each: &mut EachWindow<'_>) -> Result<(), Error> {
        for ((start_ms, key), window) in &self.state.windows {
            let (totals, revision) = (window.totals, window.revision);
            let row = WindowRow { key, start_ms: *start_ms, totals, revision };
            if holds(span, *start_ms) && each(&row) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn late(&self, span: Span, each: &mut EachLate<'_>) -> Result<(), Error> {
        let window_ms = self.state.settings.window_ms();
        for (event, late) in &self.state.late {
            let row = LateRow {
                id: &late.id,
                key: &late.key,
                timestamp_ms: late.timestamp_ms,
                value: late.value,
                window_start_ms: window::start_ms(late.timestamp_ms, window_ms),
                watermark_ms: late.watermark_ms,
                source: &late.source,
                batch: event.batch,
                event_index: event.event_index,
                applied_in: late.applied_in,
            };
            if holds(span, row.window_start_ms) && each(&row) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn held(&self, each: &mut EachHeld<'_>) -> Result<(), Error> {
        for (event, held) in &self.state.held {
            let kept = self.state.receipts.get(&event.batch);
            let row = HeldRow {
                id: &held.id,
                key: &held.key,
                timestamp_ms: held.timestamp_ms,
                value: held.value,
                source: &held.source,
                event: *event,
                file: kept.map_or("", |kept| &kept.delivery.file),
            };
            if each(&row) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn revisions(&self, window: WindowId<'_>) -> Result<Vec<RevisionRow>, Error> {
        let found = self.state.windows.get(&(window.start_ms, window.key.to_owned()));
        Ok(found.map(|window| window.before.clone()).unwrap_or_default())
    }

    fn moves(&self, from_ms: i64, each: &mut EachMove<'_>) -> Result<(), Error> {
        for row in self.state.moves.iter().filter(|row| row.to_ms >= from_ms) {
            if each(row) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn remembered(&self, id: &str) -> Result<Option<RememberedRow>, Error> {
        let state = &self.state;
        let oldest_ms = state.settings.dedup_horizon_ms().map(|ms| state.watermark_ms - ms);
        let found = state.ledger.get(id);
        let found = found.filter(|known| oldest_ms.is_none_or(|ms| known.timestamp_ms >= ms));
        Ok(found.map(|known| RememberedRow {
            event: known.event,
            key: Some(known.key.clone()),
            timestamp_ms: known.timestamp_ms,
            value: Some(known.value),
        }))
    }

    fn receipt(&self, batch: u64) -> Result<Option<ReceiptRow>, Error> {
        let Some(kept) = self.state.receipts.get(&batch) else { return Ok(None) };
        let row = ReceiptRow {
            batch,
            act: None,
            file: kept.delivery.file.clone(),
            source: kept.delivery.source.clone(),
            sha256: None,
            bytes: None,
            counts: kept.committed.counts,
            watermark_ms: kept.committed.watermark_ms,
            windows_closed: kept.committed.windows_closed,
            committed_at_ms: kept.committed_at_ms,
            asked_by: None,
            reason: None,
        };
        Ok(Some(match &kept.receipt {
            Receipt::Events { sha256, bytes, counts: _ } => {
                ReceiptRow { sha256: Some(sha256.clone()), bytes: Some(*bytes), ..row }
            }
            Receipt::Act { act, counts: _, asked_by, reason } => ReceiptRow {
                act: Some(act.name().to_owned()),
                asked_by: Some(asked_by.clone()),
                reason: reason.clone(),
                ..row
            },
        }))
    }

    fn receipts(&self, from_batch: u64, each: &mut EachReceipt<'_>) -> Result<(), Error> {
        for batch in self.state.receipts.range(from_batch..).map(|(batch, _)| *batch) {
            if self.receipt(batch)?.is_some_and(|row| each(&row).is_break()) {
                break;
            }
        }
        Ok(())
    }

    fn settled(&self, event: EventRef) -> Result<Option<SettledRow>, Error> {
        Ok(self.state.settled.get(&event).cloned())
    }

    fn presence(&self, source: &str) -> Result<Vec<PresenceRow>, Error> {
        let of_source = self.state.presence.iter().filter(|(name, _)| name == source);
        Ok(of_source.map(|(_, row)| row.clone()).collect())
    }
}

fn holds(span: Span, start_ms: i64) -> bool {
    span.from_ms.is_none_or(|from_ms| start_ms >= from_ms)
        && span.to_ms.is_none_or(|to_ms| start_ms < to_ms)
}
