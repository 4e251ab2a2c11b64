//! Why a number is what it is: where an event came from and what was decided, what a window is made
//! of, what moved the watermark. Reads a snapshot and files in done/; what cannot be known is said
//! to be so.

mod id;
mod window;

use std::ops::ControlFlow;

use serde::Serialize;

use super::done_files::{Archive, Lost};
use crate::engine::totals::Totals;
use crate::store::{Act, Error, EventRef, MoveRow, ReceiptRow, Snapshot, SourceRow, Span, Summary};

pub use id::{EventFate, IdAnswer, Settled};
pub use window::{LateEvents, LateOne, Made, Missing, Revision, Waiting, WindowAnswer, WindowPart};

/// Answers from one state of a store and the files in done/.
pub struct Explainer<'s> {
    snapshot: &'s dyn Snapshot,
    archive: Archive,
    summary: Summary,
    now_ms: i64,
}

/// Why the watermark moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The watermark before, in milliseconds since the epoch.
    pub from_ms: i64,
    /// The watermark after.
    pub to_ms: i64,
    /// How many windows that hold something became final.
    pub windows_closed: u64,
    /// `event`, or the name of the act that moved it; none when its receipt was removed.
    pub by: Option<String>,
    /// The batch in which it moved.
    pub batch: u64,
    /// When that was committed.
    pub at_ms: Option<i64>,
    /// Its file, as shown; none for an act.
    pub file: Option<String>,
    /// The index in the batch of the event that moved it, from 0.
    pub event_index: Option<u64>,
    /// The id of that event, while its file is in done/.
    pub event_id: Option<String>,
    /// The line of that event in its file, from 1, likewise.
    pub line: Option<u64>,
    /// Who asked for it.
    pub asked_by: Option<String>,
    /// Why, in their words.
    pub reason: Option<String>,
    /// The sources that came or went in it.
    pub sources: Vec<String>,
}

/// Who made a revision, why and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Correction {
    /// The file that did so by itself, as shown; none when somebody asked for it.
    pub file: Option<String>,
    /// Who asked for it.
    pub asked_by: Option<String>,
    /// Why, in their words.
    pub reason: Option<String>,
    /// When it was committed, in milliseconds since the epoch.
    pub at_ms: i64,
}

/// Where an event came in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Came {
    /// The batch that brought it.
    pub batch: u64,
    /// Its index in that batch, from 0.
    pub event_index: u64,
    /// The file of the batch, as shown; none when its receipt was removed.
    pub file: Option<String>,
    /// Whose event it is, as far as known.
    pub source: Option<String>,
    /// When the batch was committed, in milliseconds since the epoch.
    pub received_at_ms: Option<i64>,
    /// Where its file lies now.
    pub path: Option<String>,
    /// Why its file could not be looked into.
    pub lost: Option<Lost>,
    /// Its line in the file, from 1.
    pub line: Option<u64>,
}

/// One event as its file in done/ has it.
struct InFile {
    id: String,
    line: u64,
    source: Option<String>,
    path: String,
}

impl<'s> Explainer<'s> {
    /// Of that state, at that moment of the clock.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub fn new(
        snapshot: &'s dyn Snapshot,
        archive: Archive,
        now_ms: i64,
    ) -> Result<Explainer<'s>, Error> {
        Ok(Explainer { summary: snapshot.summary()?, snapshot, archive, now_ms })
    }

    /// The figures of the store.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Calls `each` with every move of the watermark that is kept (those that closed windows), the
    /// newest last, until told to stop. The ids of the events that moved it are not looked up.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub fn moves(&self, each: &mut dyn FnMut(&Cause) -> ControlFlow<()>) -> Result<(), Error> {
        let sources = self.snapshot.sources()?;
        let mut failed = None;
        self.snapshot.moves(0, &mut |moved| match self.cause_without_file(moved, &sources) {
            Ok((cause, _)) => each(&cause),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// The move that made windows that end there final. None while none did, and when it closed
    /// nothing, or is no longer kept.
    fn closing(&self, end_ms: i64) -> Result<Option<MoveRow>, Error> {
        let mut first = None;
        self.snapshot.moves(end_ms, &mut |moved| {
            first = Some(*moved);
            ControlFlow::Break(())
        })?;
        Ok(first.filter(|moved| moved.from_ms < end_ms))
    }

    fn cause(&mut self, moved: &MoveRow) -> Result<Cause, Error> {
        let sources = self.snapshot.sources()?;
        let (mut cause, receipt) = self.cause_without_file(moved, &sources)?;
        if let (Some(receipt), Some(index)) = (receipt, cause.event_index)
            && let Ok(event) = self.in_file(&receipt, index)
        {
            cause.event_id = Some(event.id);
            cause.line = Some(event.line);
        }
        Ok(cause)
    }

    fn cause_without_file(
        &self,
        moved: &MoveRow,
        sources: &[SourceRow],
    ) -> Result<(Cause, Option<ReceiptRow>), Error> {
        let receipt = self.snapshot.receipt(moved.batch)?;
        let act = receipt.as_ref().and_then(|receipt| receipt.act.clone());
        let mut changed = Vec::new();
        if act.as_deref().and_then(Act::from_name).is_some_and(|act| act.presence().is_some()) {
            for row in sources {
                let presence = self.snapshot.presence(&row.source)?;
                if presence.iter().any(|change| change.batch == moved.batch) {
                    changed.push(row.source.clone());
                }
            }
        }
        let cause = Cause {
            from_ms: moved.from_ms,
            to_ms: moved.to_ms,
            windows_closed: moved.windows_closed,
            by: act.clone().or_else(|| receipt.as_ref().map(|_| "event".to_owned())),
            batch: moved.batch,
            at_ms: receipt.as_ref().map(|receipt| receipt.committed_at_ms),
            file: receipt.as_ref().filter(|_| act.is_none()).map(|receipt| receipt.file.clone()),
            event_index: moved.event_index,
            event_id: None,
            line: None,
            asked_by: receipt.as_ref().and_then(|receipt| receipt.asked_by.clone()),
            reason: receipt.as_ref().and_then(|receipt| receipt.reason.clone()),
            sources: changed,
        };
        Ok((cause, receipt.filter(|_| act.is_none())))
    }

    fn correction(&self, batch: u64) -> Result<Option<Correction>, Error> {
        correction_in(self.snapshot, batch)
    }

    /// Whether retention has removed windows up to that one or beyond it.
    pub fn is_pruned(&self, start_ms: i64) -> bool {
        self.summary.pruned_start_ms.is_some_and(|pruned_ms| start_ms <= pruned_ms)
    }

    /// What the window holds, and its revision.
    fn held_by(&self, key: &str, start_ms: i64) -> Result<Option<(Totals, u64)>, Error> {
        let mut held = None;
        let span = Span { from_ms: Some(start_ms), to_ms: start_ms.checked_add(1) };
        self.snapshot.windows(span, &mut |row| {
            if row.key != key {
                return ControlFlow::Continue(());
            }
            held = Some((row.totals, row.revision));
            ControlFlow::Break(())
        })?;
        Ok(held)
    }

    /// The event with that index in the file of that receipt.
    fn in_file(&mut self, receipt: &ReceiptRow, index: u64) -> Result<InFile, Lost> {
        let mut found = self.archive.find(receipt)?;
        let path = crate::spool::name::shown(found.path.as_os_str().as_encoded_bytes());
        let mut event = None;
        let read = self.archive.events(&mut found, &mut |at, one| {
            if at < index {
                return ControlFlow::Continue(());
            }
            event = Some(InFile {
                id: one.id.to_owned(),
                line: one.place.line,
                source: one.source.map(str::to_owned),
                path: path.clone(),
            });
            ControlFlow::Break(())
        });
        read?;
        event.ok_or(Lost::Unreadable)
    }

    /// Whether an event was judged after the window that ends there was final; none when that is
    /// not known any more.
    fn came_after(
        &self,
        end_ms: i64,
        closing: Option<&MoveRow>,
        event: EventRef,
    ) -> Result<Option<bool>, Error> {
        if end_ms > self.summary.watermark_ms {
            return Ok(Some(false));
        }
        if let Some(closing) = closing {
            let of_one_batch = closing.event_index.filter(|_| closing.batch == event.batch);
            return Ok(Some(match of_one_batch {
                Some(index) => event.event_index > index,
                None => event.batch > closing.batch,
            }));
        }
        let after_ms = self.snapshot.receipt(event.batch)?.map(|receipt| receipt.watermark_ms);
        if after_ms.is_some_and(|after_ms| after_ms < end_ms) {
            return Ok(Some(false));
        }
        let before_ms = self.watermark_before(event.batch)?;
        Ok(before_ms.filter(|before_ms| *before_ms >= end_ms).map(|_| true))
    }

    /// The watermark as the last batch before that one left it, while its receipt is kept. Numbers
    /// may be missing, but hardly many in a row.
    fn watermark_before(&self, batch: u64) -> Result<Option<i64>, Error> {
        for number in (batch.saturating_sub(100)..batch).rev() {
            if let Some(receipt) = self.snapshot.receipt(number)? {
                return Ok(Some(receipt.watermark_ms));
            }
        }
        Ok(None)
    }
}

/// Who made the revisions of that batch; none when its receipt was removed.
fn correction_in(snapshot: &dyn Snapshot, batch: u64) -> Result<Option<Correction>, Error> {
    let receipt = snapshot.receipt(batch)?;
    Ok(receipt.map(|receipt| Correction {
        file: receipt.act.is_none().then_some(receipt.file),
        asked_by: receipt.asked_by,
        reason: receipt.reason,
        at_ms: receipt.committed_at_ms,
    }))
}
