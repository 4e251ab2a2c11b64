//! Where one event came from, and what was decided of it.

use std::ops::ControlFlow;

use serde::Serialize;

use super::{Came, Cause, Correction, Explainer};
use crate::engine::settings::{LatePolicy, LateRule};
use crate::engine::window::{self, WindowId};
use crate::store::{
    Error, EventRef, LateFacts, LateRow, MoveRow, ReceiptRow, RememberedRow, SettledRow, Span,
    Summary,
};

/// The longest that a batch can have taken from its first event to its commit: one day. What could
/// have been held in that time is not called accepted.
const LONGEST_BATCH_MS: i64 = 86_400_000;

/// What is known of an id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IdAnswer {
    /// The id.
    pub id: String,
    /// Whether it is remembered.
    pub known: bool,
    /// Ids of events that happened before this are no longer known, in milliseconds since the
    /// epoch; none when all are.
    pub forgets_before_ms: Option<i64>,
    /// Where it came in first.
    pub came: Option<Came>,
    /// Its key; none where only its hash is kept.
    pub key: Option<String>,
    /// When it happened.
    pub timestamp_ms: Option<i64>,
    /// What it measured; none where only its hash is kept.
    pub value: Option<i64>,
    /// What was decided.
    pub fate: Option<EventFate>,
}

/// What was decided of an event, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventFate {
    /// `accepted`, `late`, `future` (it is held, or was and is discarded), or `unknown`: accepted
    /// or late, which can no longer be told.
    pub outcome: &'static str,
    /// Where its window begins.
    pub window_start_ms: i64,
    /// Where its window ends: the first millisecond that is not in it.
    pub window_end_ms: i64,
    /// `open`, `final` or `corrected`, as it is now.
    pub window_state: &'static str,
    /// How often that was corrected.
    pub window_revision: u64,
    /// It has no totals any more: retention removed it, if it ever had any.
    pub window_removed: bool,
    /// The watermark when it was judged late, while it is kept.
    pub watermark_ms: Option<i64>,
    /// What had closed its window before it came.
    pub closed_by: Option<Cause>,
    /// Whether it lies in the side output.
    pub kept: bool,
    /// The batch whose revision of the window it is part of.
    pub applied_in: Option<u64>,
    /// Who made that revision, why and when, while its receipt is kept.
    pub application: Option<Correction>,
    /// Whether it counts in its window; none when that can no longer be told.
    pub counts: Option<bool>,
    /// How far ahead of the clock of this moment it is, in milliseconds; only while it is held.
    pub ahead_ms: Option<i64>,
    /// How it stopped being held.
    pub settled: Option<Settled>,
}

/// How an event stopped being held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Settled {
    /// `released` or `discarded`.
    pub settlement: String,
    /// The batch that did so.
    pub batch: u64,
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
    /// Who asked, while that is kept.
    pub asked_by: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

/// A late event that lies in the side output.
pub(super) struct Aside {
    pub(super) at: EventRef,
    pub(super) source: String,
    pub(super) watermark_ms: i64,
    pub(super) applied_in: Option<u64>,
}

impl Explainer<'_> {
    /// Where the event with that id came from, and what was decided.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub fn id(&mut self, id: &str) -> Result<IdAnswer, Error> {
        let horizon_ms = self.summary.settings.dedup_horizon_ms();
        let forgets_before_ms = horizon_ms.map(|ms| self.summary.watermark_ms.saturating_sub(ms));
        let nothing = IdAnswer {
            id: id.to_owned(),
            known: false,
            forgets_before_ms: forgets_before_ms.filter(|ms| *ms > 0),
            came: None,
            key: None,
            timestamp_ms: None,
            value: None,
            fate: None,
        };
        let Some(row) = self.snapshot.remembered(id)? else { return Ok(nothing) };
        let (fate, own_source) = self.fate(id, &row)?;
        let came = self.came(row.event, own_source)?;
        Ok(IdAnswer {
            known: true,
            came: Some(came),
            key: row.key,
            timestamp_ms: Some(row.timestamp_ms),
            value: row.value,
            fate: Some(fate),
            ..nothing
        })
    }

    fn came(&mut self, event: EventRef, own_source: Option<String>) -> Result<Came, Error> {
        let EventRef { batch, event_index } = event;
        let Some(receipt) = self.snapshot.receipt(batch)? else {
            return Ok(Came {
                batch,
                event_index,
                file: None,
                source: own_source,
                received_at_ms: None,
                path: None,
                lost: None,
                line: None,
            });
        };
        let (found, lost) = match self.in_file(&receipt, event_index) {
            Ok(found) => (Some(found), None),
            Err(lost) => (None, Some(lost)),
        };
        let from_file =
            found.as_ref().map(|event| event.source.clone().unwrap_or(receipt.source.clone()));
        Ok(Came {
            batch,
            event_index,
            received_at_ms: Some(receipt.committed_at_ms),
            file: Some(receipt.file),
            // without the file an event of its own source cannot be told from the others
            source: own_source.or(from_file).or(Some(receipt.source)),
            line: found.as_ref().map(|event| event.line),
            path: found.map(|event| event.path),
            lost,
        })
    }

    /// What was decided, and whose event it is where the store itself knows.
    fn fate(
        &mut self,
        id: &str,
        row: &RememberedRow,
    ) -> Result<(EventFate, Option<String>), Error> {
        let mut fate = self.undecided(row)?;
        let (start_ms, end_ms) = (fate.window_start_ms, fate.window_end_ms);
        if let Some(source) = self.snapshot.held_at(row.event)? {
            fate.outcome = "future";
            fate.counts = Some(false);
            fate.ahead_ms = Some(row.timestamp_ms.saturating_sub(self.now_ms));
            return Ok((fate, Some(source)));
        }
        let settled = self.snapshot.settled(row.event)?;
        let mut source = settled.as_ref().map(|settled| settled.source.clone());
        fate.settled = settled.as_ref().map(|settled| self.settled(settled)).transpose()?;
        if settled.as_ref().is_some_and(|settled| settled.settlement == "discarded") {
            fate.outcome = "future";
            fate.counts = Some(false);
            return Ok((fate, source));
        }
        // what was released is judged, and if late kept, in the batch that released it
        let released_in = settled.map(|settled| settled.settled_in);
        let at_sight = self.snapshot.receipt(row.event.batch)?;
        let unsure =
            released_in.is_none() && self.may_have_been_held(at_sight.as_ref(), row.timestamp_ms);
        let aside = self.aside(id, row, start_ms, released_in)?;
        source = aside.as_ref().map(|aside| aside.source.clone()).or(source);
        let at = match (&aside, released_in) {
            (Some(aside), _) => aside.at,
            (None, Some(batch)) => EventRef { batch, event_index: 0 },
            (None, None) => row.event,
        };
        let closing = self.closing(end_ms)?;
        let after = match released_in {
            Some(batch) => self.released_after(end_ms, closing.as_ref(), batch)?,
            None => self.came_after(end_ms, closing.as_ref(), at)?,
        };
        match (&aside, after) {
            (None, _) if unsure => {
                fate.outcome = "unknown";
                fate.counts = None;
            }
            (Some(_), _) | (None, Some(true)) => self.late(&mut fate, aside, at, closing)?,
            (None, Some(false)) if !self.is_late_unseen() => {}
            (None, _) => {
                fate.outcome = "unknown";
                let counts = self.summary.settings.late_policy() == LatePolicy::Correct;
                fate.counts = counts.then_some(true);
            }
        }
        Ok((fate, source))
    }

    /// Accepted, as far as its window goes, until something says otherwise.
    fn undecided(&self, row: &RememberedRow) -> Result<EventFate, Error> {
        let settings = self.summary.settings;
        let start_ms = window::start_ms(row.timestamp_ms, settings.window_ms());
        let end_ms = window::end_ms(start_ms, settings.window_ms());
        let is_final = end_ms <= self.summary.watermark_ms;
        let held = row.key.as_deref().map(|key| self.held_by(key, start_ms)).transpose()?;
        let revision = held.flatten().map_or(0, |(_, revision)| revision);
        Ok(EventFate {
            outcome: "accepted",
            window_start_ms: start_ms,
            window_end_ms: end_ms,
            window_state: match (is_final, revision) {
                (false, _) => "open",
                (true, 0) => "final",
                (true, _) => "corrected",
            },
            window_revision: revision,
            // of which key it is, and so of which window, may not be known any more
            window_removed: held == Some(None) && is_final && self.is_pruned(start_ms),
            watermark_ms: None,
            closed_by: None,
            kept: false,
            applied_in: None,
            application: None,
            counts: Some(true),
            ahead_ms: None,
            settled: None,
        })
    }

    fn late(
        &mut self,
        fate: &mut EventFate,
        aside: Option<Aside>,
        at: EventRef,
        closing: Option<MoveRow>,
    ) -> Result<(), Error> {
        let corrects = self.summary.settings.late_policy() == LatePolicy::Correct;
        fate.outcome = "late";
        fate.kept = aside.is_some();
        fate.watermark_ms = aside.as_ref().map(|aside| aside.watermark_ms);
        fate.applied_in = match &aside {
            Some(aside) => aside.applied_in,
            None => corrects.then_some(at.batch),
        };
        let application = fate.applied_in.map(|batch| self.correction(batch)).transpose()?;
        fate.application = application.flatten();
        // of a kept one whose row is gone it is not known whether it was applied before
        let is_row_gone = !fate.kept && self.summary.settings.late_policy() == LatePolicy::Aside;
        fate.counts = (!is_row_gone).then_some(fate.applied_in.is_some());
        // by the stricter rule it can be late while its window is open
        let before_it = match closing {
            Some(moved) => {
                let after = self.came_after(fate.window_end_ms, Some(&moved), at)?;
                Some(moved).filter(|_| after == Some(true))
            }
            None => None,
        };
        fate.closed_by = before_it.map(|moved| self.cause(&moved)).transpose()?;
        Ok(())
    }

    /// Whether an event can have been late while its window was open, and nothing is left to tell.
    pub(super) fn is_late_unseen(&self) -> bool {
        let settings = &self.summary.settings;
        settings.late_rule() == LateRule::Event
            && (settings.late_policy() != LatePolicy::Aside || self.are_late_rows_gone())
    }

    /// Whether late events were kept whose rows have been removed since.
    pub(super) fn are_late_rows_gone(&self) -> bool {
        let Summary { settings, counts, late_kept, .. } = &self.summary;
        settings.late_policy() == LatePolicy::Aside && counts.late > *late_kept
    }

    /// Whether an event that is neither held nor noted as settled may have been held all the same:
    /// notes of what was settled are removed with old receipts.
    pub(super) fn may_have_been_held(
        &self,
        receipt: Option<&ReceiptRow>,
        timestamp_ms: i64,
    ) -> bool {
        let Some(max_future_ms) = self.summary.settings.max_future_ms() else { return false };
        // without its receipt nothing is known of the clock at its time
        let Some(receipt) = receipt else { return true };
        let latest_ms = receipt.committed_at_ms.saturating_add(max_future_ms);
        receipt.counts.future > 0 && timestamp_ms > latest_ms.saturating_sub(LONGEST_BATCH_MS)
    }

    /// Whether the window had closed before an event that was released in that batch was judged
    /// again; none when it closed in that very batch, in which the order is not kept.
    pub(super) fn released_after(
        &self,
        end_ms: i64,
        closing: Option<&MoveRow>,
        batch: u64,
    ) -> Result<Option<bool>, Error> {
        if closing.is_some_and(|closing| closing.batch == batch) {
            return Ok(None);
        }
        self.came_after(end_ms, closing, EventRef { batch, event_index: 0 })
    }

    fn settled(&self, row: &SettledRow) -> Result<Settled, Error> {
        let receipt = self.snapshot.receipt(row.settled_in)?;
        Ok(Settled {
            settlement: row.settlement.clone(),
            batch: row.settled_in,
            at_ms: row.at_ms,
            asked_by: receipt.as_ref().and_then(|receipt| receipt.asked_by.clone()),
            reason: receipt.and_then(|receipt| receipt.reason),
        })
    }

    /// The event in the side output, by where it came in or was released.
    fn aside(
        &self,
        id: &str,
        row: &RememberedRow,
        start_ms: i64,
        released_in: Option<u64>,
    ) -> Result<Option<Aside>, Error> {
        let Some(batch) = released_in else {
            let facts = self.snapshot.late_at(row.event)?;
            return Ok(facts.map(|facts| Aside::of(row.event, facts)));
        };
        let mut found = None;
        let mut each = |late: &LateRow<'_>| {
            if late.batch != batch || late.id != id {
                return ControlFlow::Continue(());
            }
            found = Some(EventRef { batch, event_index: late.event_index });
            ControlFlow::Break(())
        };
        match row.key.as_deref() {
            Some(key) => self.snapshot.late_of(WindowId { start_ms, key }, &mut each)?,
            // of which key it is may not be known any more
            None => {
                let span = Span { from_ms: Some(start_ms), to_ms: start_ms.checked_add(1) };
                self.snapshot.late(span, &mut each)?;
            }
        }
        let Some(at) = found else { return Ok(None) };
        let facts = self.snapshot.late_at(at)?;
        Ok(facts.map(|facts| Aside::of(at, facts)))
    }
}

impl Aside {
    fn of(at: EventRef, facts: LateFacts) -> Aside {
        let LateFacts { source, watermark_ms, applied_in } = facts;
        Aside { at, source, watermark_ms, applied_in }
    }
}
