//! What a window is made of, what closed it, and what came after.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;

use serde::ser::{Error as _, SerializeSeq};
use serde::{Serialize, Serializer};

use super::{Cause, Correction, Explainer, correction_in};
use crate::engine::settings::LatePolicy;
use crate::engine::totals::Totals;
use crate::engine::window::{self, WindowId};
use crate::model::event::Event;
use crate::query::done_files::Lost;
use crate::query::report::{MOST_WAITING, is_awaited};
use crate::store::{Error, EventRef, MoveRow, ReceiptRow, Snapshot};

/// What is known of a window.
#[derive(Serialize)]
pub struct WindowAnswer<'s> {
    /// Its key.
    pub key: String,
    /// Where it begins, in milliseconds since the epoch.
    pub window_start_ms: i64,
    /// Where it ends: the first millisecond that is not in it.
    pub window_end_ms: i64,
    /// `open`, `final` or `corrected`.
    pub state: &'static str,
    /// How often it was corrected.
    pub revision: u64,
    /// What it holds; none when only late events came for it.
    pub totals: Option<Made>,
    /// It has no totals any more: retention removed it, if it ever had any.
    pub removed: bool,
    /// What it held before each correction, oldest first.
    pub revisions: Vec<Revision>,
    /// What made it final. None while it is open, and when nothing was in it then or the note was
    /// removed.
    pub closed_by: Option<Cause>,
    /// The sources that keep it open.
    pub waiting_for: Vec<Waiting>,
    /// How many others.
    pub waiting_for_more: usize,
    /// The late events of it that are kept.
    pub late: LateEvents<'s>,
    /// The files in done/ that it was counted from.
    pub files: Vec<WindowPart>,
    /// What each source brought, as far as found.
    pub sources: BTreeMap<String, Made>,
    /// Files that may have brought something, but are not there to be read.
    pub missing: Vec<Missing>,
    /// What was found in the files.
    pub found: Made,
    /// How many files were read for it.
    pub files_read: u64,
    /// Its totals less what was found; none when it was removed, and when no file could be read.
    pub difference: Option<Made>,
    /// Found, but accepted or dropped as late, which can no longer be told: not in `found`.
    pub unsure: Made,
    /// Found, but their ids are no longer known: not in `found`.
    pub forgotten: Made,
}

/// A count and a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "described above")]
pub struct Made {
    pub count: i128,
    pub sum: i128,
}

impl Made {
    fn add(&mut self, value: i64) {
        self.count += 1;
        self.sum += i128::from(value);
    }

    fn less(self, other: Made) -> Made {
        Made { count: self.count - other.count, sum: self.sum - other.sum }
    }
}

impl From<Totals> for Made {
    fn from(totals: Totals) -> Made {
        Made { count: totals.count.into(), sum: totals.sum.into() }
    }
}

/// What a window held before it was corrected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "as in a report")]
pub struct Revision {
    pub revision: u64,
    pub count: i64,
    pub sum: i64,
    pub min: i64,
    pub max: i64,
    /// The batch that corrected it.
    pub corrected_in: u64,
    /// The file of that batch, or the act that it was, while its receipt is kept.
    pub corrected_by: Option<String>,
    /// Who did so, why and when, likewise.
    pub correction: Option<Correction>,
}

/// A source that keeps a window open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// Its name.
    pub source: String,
    /// How far it has come; none while it has sent nothing that counts.
    pub watermark_ms: Option<i64>,
    /// Since when nothing came from it: its last batch, or when it was declared or came back.
    pub since_ms: Option<i64>,
}

/// A late event that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "as in a report")]
pub struct LateOne {
    pub id: String,
    pub timestamp_ms: i64,
    pub value: i64,
    pub watermark_ms: i64,
    pub source: String,
    pub batch: u64,
    pub event_index: u64,
    /// The batch whose revision it is part of.
    pub applied_in: Option<u64>,
    /// Who asked for that, why and when, while its receipt is kept.
    pub application: Option<Correction>,
}

/// The late events of a window that are kept, in the order in which they came: read from the store
/// each time they are asked for, since there can be any number.
pub struct LateEvents<'s> {
    snapshot: &'s dyn Snapshot,
    key: String,
    start_ms: i64,
    /// How many there are.
    pub count: u64,
}

impl LateEvents<'_> {
    /// Shows one after the other, until told to stop.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub fn each(&self, each: &mut dyn FnMut(&LateOne) -> ControlFlow<()>) -> Result<(), Error> {
        let id = WindowId { start_ms: self.start_ms, key: &self.key };
        let mut failed = None;
        // mostly many of them were applied together
        let mut last: Option<(u64, Option<Correction>)> = None;
        self.snapshot.late_of(id, &mut |row| {
            if let Some(batch) = row.applied_in
                && last.as_ref().is_none_or(|(known, _)| *known != batch)
            {
                match correction_in(self.snapshot, batch) {
                    Ok(correction) => last = Some((batch, correction)),
                    Err(error) => {
                        failed = Some(error);
                        return ControlFlow::Break(());
                    }
                }
            }
            let application = last.as_ref().filter(|(batch, _)| row.applied_in == Some(*batch));
            each(&LateOne {
                id: row.id.to_owned(),
                timestamp_ms: row.timestamp_ms,
                value: row.value,
                watermark_ms: row.watermark_ms,
                source: row.source.to_owned(),
                batch: row.batch,
                event_index: row.event_index,
                applied_in: row.applied_in,
                application: application.and_then(|(_, correction)| correction.clone()),
            })
        })?;
        failed.map_or(Ok(()), Err)
    }
}

/// As an array, written while it is read.
impl Serialize for LateEvents<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut array = serializer.serialize_seq(None)?;
        let mut failed = None;
        let read = self.each(&mut |late| match array.serialize_element(late) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        });
        match failed {
            Some(error) => Err(error),
            None => read.map_err(S::Error::custom).and_then(|()| array.end()),
        }
    }
}

/// What one file brought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowPart {
    /// The batch.
    pub batch: u64,
    /// Its file, as shown.
    pub file: String,
    /// Where it lies now.
    pub path: String,
    /// What of it counts in the window.
    #[serde(flatten)]
    pub made: Made,
}

/// A file that is not there to be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The batch.
    pub batch: u64,
    /// Its file, as shown.
    pub file: String,
    /// Why.
    pub why: Lost,
}

/// What tells whether an event counts in the window.
struct Judging {
    key: String,
    start_ms: i64,
    end_ms: i64,
    closing: Option<MoveRow>,
    late: LateFound,
}

/// What is remembered of the late events of the window; how many they are does not matter.
#[derive(Default)]
struct LateFound {
    count: u64,
    // those that were released, by the batch that released them and their id
    released: HashMap<(u64, String), Option<u64>>,
    // batches that brought late events which were applied
    applied: HashSet<u64>,
}

/// Whether an event counts.
enum Counts {
    Yes,
    No,
    Unsure,
}

impl<'s> Explainer<'s> {
    /// What the window of that key that begins there is made of; none when nothing ever came for
    /// it, or it was removed. Reads the files in done/ that may have brought something for it.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub fn window(&mut self, key: &str, start_ms: i64) -> Result<Option<WindowAnswer<'s>>, Error> {
        let settings = self.summary.settings;
        let end_ms = window::end_ms(start_ms, settings.window_ms());
        let held = self.held_by(key, start_ms)?;
        let late = self.late_found(WindowId { start_ms, key })?;
        if held.is_none() && late.count == 0 {
            return Ok(None);
        }
        let totals = held.map(|(totals, _)| totals);
        let revision = held.map_or(0, |(_, revision)| revision);
        let is_final = end_ms <= self.summary.watermark_ms;
        let closing = self.closing(end_ms)?;
        let (waiting_for, waiting_for_more) =
            if is_final { (Vec::new(), 0) } else { self.waiting_for(end_ms)? };
        let mut answer = WindowAnswer {
            key: key.to_owned(),
            window_start_ms: start_ms,
            window_end_ms: end_ms,
            state: match (is_final, revision) {
                (false, _) => "open",
                (true, 0) => "final",
                (true, _) => "corrected",
            },
            revision,
            totals: totals.map(Made::from),
            removed: held.is_none() && is_final && self.is_pruned(start_ms),
            revisions: self.revisions(WindowId { start_ms, key })?,
            closed_by: closing.map(|moved| self.cause(&moved)).transpose()?,
            waiting_for,
            waiting_for_more,
            late: LateEvents {
                snapshot: self.snapshot,
                key: key.to_owned(),
                start_ms,
                count: late.count,
            },
            files: Vec::new(),
            sources: BTreeMap::new(),
            missing: Vec::new(),
            found: Made::default(),
            files_read: 0,
            difference: None,
            unsure: Made::default(),
            forgotten: Made::default(),
        };
        let judging = Judging { key: key.to_owned(), start_ms, end_ms, closing, late };
        self.walk(&judging, &mut answer)?;
        let is_counted = answer.files_read > 0 || answer.missing.is_empty();
        answer.difference = (is_counted && !answer.removed)
            .then(|| answer.totals.unwrap_or_default().less(answer.found));
        Ok(Some(answer))
    }

    fn late_found(&self, id: WindowId<'_>) -> Result<LateFound, Error> {
        let mut found = LateFound::default();
        let mut failed = None;
        let mut last = (0, false);
        self.snapshot.late_of(id, &mut |row| {
            found.count += 1;
            if row.applied_in.is_some() {
                found.applied.insert(row.batch);
            }
            if last.0 != row.batch {
                match self.snapshot.receipt(row.batch) {
                    Ok(receipt) => {
                        last = (row.batch, receipt.is_some_and(|receipt| receipt.act.is_some()))
                    }
                    Err(error) => {
                        failed = Some(error);
                        return ControlFlow::Break(());
                    }
                }
            }
            if last.1 {
                found.released.insert((row.batch, row.id.to_owned()), row.applied_in);
            }
            ControlFlow::Continue(())
        })?;
        failed.map_or(Ok(found), Err)
    }

    fn revisions(&self, id: WindowId<'_>) -> Result<Vec<Revision>, Error> {
        let rows = self.snapshot.revisions(id)?;
        let named = rows.into_iter().map(|row| {
            let Totals { count, sum, min, max } = row.totals;
            let (revision, corrected_in) = (row.revision, row.corrected_in);
            let receipt = self.snapshot.receipt(corrected_in)?;
            let corrected_by = receipt.map(|receipt| receipt.act.unwrap_or(receipt.file));
            let correction = self.correction(corrected_in)?;
            Ok(Revision { revision, count, sum, min, max, corrected_in, corrected_by, correction })
        });
        named.collect()
    }

    /// The sources that keep an open window open: those that are furthest behind, and how many
    /// others there are.
    fn waiting_for(&self, end_ms: i64) -> Result<(Vec<Waiting>, usize), Error> {
        let lateness_ms = self.summary.settings.lateness_ms();
        let sources = self.snapshot.sources()?.into_iter().filter(|row| !row.idle);
        let waiting = sources.filter_map(|row| {
            let watermark_ms = row.max_timestamp_ms.map(|ms| ms.saturating_sub(lateness_ms));
            let holds =
                watermark_ms.map_or_else(|| is_awaited(&row), |watermark_ms| watermark_ms < end_ms);
            let since_ms = row.last_batch_at_ms.max(row.presence_since_ms);
            holds.then_some(Waiting { source: row.source, watermark_ms, since_ms })
        });
        let mut waiting: Vec<Waiting> = waiting.collect();
        if waiting.len() > MOST_WAITING {
            waiting.sort_by_key(|waiting| waiting.watermark_ms);
        }
        let more = waiting.len().saturating_sub(MOST_WAITING);
        waiting.truncate(MOST_WAITING);
        Ok((waiting, more))
    }

    /// Reads each file that may have brought something.
    fn walk(&mut self, judging: &Judging, answer: &mut WindowAnswer<'_>) -> Result<(), Error> {
        let snapshot = self.snapshot;
        let mut failed = None;
        snapshot.receipts(0, &mut |receipt| {
            if !self.may_bring(judging, receipt) {
                return ControlFlow::Continue(());
            }
            match self.read(judging, receipt, answer) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn may_bring(&self, judging: &Judging, receipt: &ReceiptRow) -> bool {
        let counts = &receipt.counts;
        let corrects = self.summary.settings.late_policy() == LatePolicy::Correct;
        // those whose rows are gone may have been applied
        let gone = self.are_late_rows_gone();
        let in_time = judging.closing.is_none_or(|moved| receipt.batch <= moved.batch);
        receipt.act.is_none()
            && ((in_time && counts.accepted > 0)
                || counts.future > 0
                || ((corrects || gone) && counts.late > 0)
                || judging.late.applied.contains(&receipt.batch))
    }

    fn read(
        &mut self,
        judging: &Judging,
        receipt: &ReceiptRow,
        answer: &mut WindowAnswer<'_>,
    ) -> Result<(), Error> {
        let (batch, file) = (receipt.batch, receipt.file.clone());
        let mut found = match self.archive.find(receipt) {
            Ok(found) => found,
            Err(why) => {
                answer.missing.push(Missing { batch, file, why });
                return Ok(());
            }
        };
        let (mut made, mut unsure, mut forgotten) = <(Made, Made, Made)>::default();
        let mut sources: BTreeMap<String, Made> = BTreeMap::new();
        let mut failed = None;
        let read = self.archive.events(&mut found, &mut |event_index, event| {
            if !judging.is_of(event.key, event.timestamp_ms) {
                return ControlFlow::Continue(());
            }
            match self.counts(judging, receipt, event_index, event) {
                Ok(None) => forgotten.add(event.value),
                Ok(Some(Counts::Unsure)) => unsure.add(event.value),
                Ok(Some(Counts::No)) => {}
                Ok(Some(Counts::Yes)) => {
                    made.add(event.value);
                    let source = event.source.unwrap_or(&receipt.source);
                    sources.entry(source.to_owned()).or_default().add(event.value);
                }
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if let Err(why) = read {
            answer.missing.push(Missing { batch, file, why });
            return Ok(());
        }
        answer.files_read += 1;
        for (source, more) in sources {
            plus(answer.sources.entry(source).or_default(), more);
        }
        plus(&mut answer.found, made);
        plus(&mut answer.unsure, unsure);
        plus(&mut answer.forgotten, forgotten);
        if made.count > 0 {
            let path = crate::spool::name::shown(found.path.as_os_str().as_encoded_bytes());
            answer.files.push(WindowPart { batch, file, path, made });
        }
        Ok(())
    }

    /// Whether the event counts in the window; none when its id is no longer known.
    fn counts(
        &self,
        judging: &Judging,
        receipt: &ReceiptRow,
        event_index: u64,
        event: &Event<'_>,
    ) -> Result<Option<Counts>, Error> {
        let at = EventRef { batch: receipt.batch, event_index };
        if !self.snapshot.is_first(at, event)? {
            let settings = &self.summary.settings;
            let oldest_ms =
                settings.dedup_horizon_ms().map(|ms| self.summary.watermark_ms.saturating_sub(ms));
            // what is young enough to be known is a repeat
            let is_forgotten = oldest_ms.is_some_and(|ms| event.timestamp_ms < ms);
            return Ok((!is_forgotten).then_some(Counts::No));
        }
        let may_be_held = receipt.counts.future > 0;
        if may_be_held && self.snapshot.held_at(at)?.is_some() {
            return Ok(Some(Counts::No));
        }
        let settled = if may_be_held { self.snapshot.settled(at)? } else { None };
        let aside = match &settled {
            Some(settled) if settled.settlement == "discarded" => return Ok(Some(Counts::No)),
            Some(settled) => {
                let by = (settled.settled_in, event.id.to_owned());
                judging.late.released.get(&by).copied()
            }
            None if receipt.counts.late == 0 => None,
            None => self.snapshot.late_at(at)?.map(|late| late.applied_in),
        };
        if let Some(applied_in) = aside {
            return Ok(Some(if applied_in.is_some() { Counts::Yes } else { Counts::No }));
        }
        if settled.is_none() && self.may_have_been_held(Some(receipt), event.timestamp_ms) {
            return Ok(Some(Counts::Unsure));
        }
        let policy = self.summary.settings.late_policy();
        if policy == LatePolicy::Correct {
            return Ok(Some(Counts::Yes));
        }
        let (end_ms, closing) = (judging.end_ms, judging.closing.as_ref());
        let after = match &settled {
            Some(settled) => self.released_after(end_ms, closing, settled.settled_in)?,
            None => self.came_after(end_ms, closing, at)?,
        };
        Ok(Some(match after {
            // a kept one whose row is gone may have been applied before
            Some(true) if policy == LatePolicy::Drop => Counts::No,
            Some(false) if !self.is_late_unseen() => Counts::Yes,
            _ => Counts::Unsure,
        }))
    }
}

impl Judging {
    fn is_of(&self, key: &str, timestamp_ms: i64) -> bool {
        key == self.key && (self.start_ms..self.end_ms).contains(&timestamp_ms)
    }
}

fn plus(to: &mut Made, more: Made) {
    to.count += more.count;
    to.sum += more.sum;
}
