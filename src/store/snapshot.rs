//! What can be read of a store: one consistent state, row by row.

use std::ops::ControlFlow;

use crate::engine::settings::Settings;
use crate::engine::totals::Totals;
use crate::engine::window::WindowId;
use crate::engine::{Counts, Expected};
use crate::model::event::Event;
use crate::store::{Error, EventRef};

/// The reading side: one consistent state, whatever is written meanwhile.
pub trait Snapshot {
    /// The figures of the whole store.
    ///
    /// # Errors
    /// By kind, as for all that follow.
    fn summary(&self) -> Result<Summary, Error>;

    /// Each source, by name.
    ///
    /// # Errors
    /// By kind.
    fn sources(&self) -> Result<Vec<SourceRow>, Error>;

    /// What each producer version sent, by name, until told to stop: nothing bounds how many
    /// there are.
    ///
    /// # Errors
    /// By kind.
    fn versions(&self, each: &mut EachVersion<'_>) -> Result<(), Error>;

    /// What each source sent of each key, by (source, key), until told to stop: with what is not
    /// told apart by key it adds up to the counts of the source.
    ///
    /// # Errors
    /// By kind.
    fn accounts(&self, each: &mut EachAccount<'_>) -> Result<(), Error>;

    /// Each window whose start is in the span, by (start, key), until told to stop.
    ///
    /// # Errors
    /// By kind.
    fn windows(&self, span: Span, each: &mut EachWindow<'_>) -> Result<(), Error>;

    /// Each late event that was kept and whose window starts in the span, by (batch, index), until
    /// told to stop.
    ///
    /// # Errors
    /// By kind.
    fn late(&self, span: Span, each: &mut EachLate<'_>) -> Result<(), Error>;

    /// The same of one window only.
    ///
    /// # Errors
    /// By kind.
    fn late_of(&self, window: WindowId<'_>, each: &mut EachLate<'_>) -> Result<(), Error> {
        let (start_ms, key) = (window.start_ms, window.key);
        let span = Span { from_ms: Some(start_ms), to_ms: start_ms.checked_add(1) };
        self.late(span, &mut |row| match row.key == key {
            true => each(row),
            false => ControlFlow::Continue(()),
        })
    }

    /// The late event that is kept and came in, or was judged again, there.
    ///
    /// # Errors
    /// By kind.
    fn late_at(&self, at: EventRef) -> Result<Option<LateFacts>, Error> {
        let mut found = None;
        self.late(Span::default(), &mut |row| {
            if (EventRef { batch: row.batch, event_index: row.event_index }) != at {
                return ControlFlow::Continue(());
            }
            found = Some(LateFacts {
                source: row.source.to_owned(),
                watermark_ms: row.watermark_ms,
                applied_in: row.applied_in,
            });
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// The source of the held event that came in there; none when none is held.
    ///
    /// # Errors
    /// By kind.
    fn held_at(&self, at: EventRef) -> Result<Option<String>, Error> {
        let mut source = None;
        self.held(&mut |row| {
            if row.event != at {
                return ControlFlow::Continue(());
            }
            source = Some(row.source.to_owned());
            ControlFlow::Break(())
        })?;
        Ok(source)
    }

    /// Each event that is held, by (batch, index), until told to stop.
    ///
    /// # Errors
    /// By kind.
    fn held(&self, each: &mut EachHeld<'_>) -> Result<(), Error>;

    /// The final numbers that a window had before each of its revisions, by revision.
    ///
    /// # Errors
    /// By kind.
    fn revisions(&self, window: WindowId<'_>) -> Result<Vec<RevisionRow>, Error>;

    /// Each move of the watermark that closed windows, in order, from the first that reached
    /// `from_ms`, until told to stop.
    ///
    /// # Errors
    /// By kind.
    fn moves(&self, from_ms: i64, each: &mut EachMove<'_>) -> Result<(), Error>;

    /// What is remembered of an id.
    ///
    /// # Errors
    /// By kind.
    fn remembered(&self, id: &str) -> Result<Option<RememberedRow>, Error>;

    /// Whether the event that came in there is the one by which its id is remembered: neither a
    /// repeat, nor forgotten. To be asked in the order of (batch, index): the ledger is then read
    /// once, however many are asked for.
    ///
    /// # Errors
    /// By kind.
    fn is_first(&self, at: EventRef, event: &Event<'_>) -> Result<bool, Error> {
        Ok(self.remembered(event.id)?.is_some_and(|known| known.event == at))
    }

    /// The receipt of a batch.
    ///
    /// # Errors
    /// By kind.
    fn receipt(&self, batch: u64) -> Result<Option<ReceiptRow>, Error>;

    /// Each receipt that is kept, by batch, from that number on, until told to stop.
    ///
    /// # Errors
    /// By kind.
    fn receipts(&self, from_batch: u64, each: &mut EachReceipt<'_>) -> Result<(), Error>;

    /// What became of an event that was held, once it was settled.
    ///
    /// # Errors
    /// By kind.
    fn settled(&self, event: EventRef) -> Result<Option<SettledRow>, Error>;

    /// How a source came and went, in order.
    ///
    /// # Errors
    /// By kind.
    fn presence(&self, source: &str) -> Result<Vec<PresenceRow>, Error>;
}

/// What is called with each producer version of a stream; the name lives only for the call.
pub type EachVersion<'e> = dyn FnMut(&str, Counts) -> ControlFlow<()> + 'e;

/// What is called with each account of a stream; the row lives only for the call.
pub type EachAccount<'e> = dyn FnMut(&AccountRow<'_>) -> ControlFlow<()> + 'e;

/// What is called with each window of a stream; the row lives only for the call.
pub type EachWindow<'e> = dyn FnMut(&WindowRow<'_>) -> ControlFlow<()> + 'e;

/// What is called with each late event of a stream; the row lives only for the call.
pub type EachLate<'e> = dyn FnMut(&LateRow<'_>) -> ControlFlow<()> + 'e;

/// What is called with each held event of a stream; the row lives only for the call.
pub type EachHeld<'e> = dyn FnMut(&HeldRow<'_>) -> ControlFlow<()> + 'e;

/// What is called with each move of a stream.
pub type EachMove<'e> = dyn FnMut(&MoveRow) -> ControlFlow<()> + 'e;

/// What is called with each receipt of a stream.
pub type EachReceipt<'e> = dyn FnMut(&ReceiptRow) -> ControlFlow<()> + 'e;

/// Window starts from `from_ms` (inclusive) to `to_ms` (exclusive); none is unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "described above")]
pub struct Span {
    pub from_ms: Option<i64>,
    pub to_ms: Option<i64>,
}

/// The figures of the whole store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// What was fixed when it was made.
    pub settings: Settings,
    /// The watermark.
    pub watermark_ms: i64,
    /// The greatest timestamp of any accepted or late event.
    pub max_timestamp_ms: Option<i64>,
    /// The number of the last batch of events.
    pub last_batch: Option<u64>,
    /// When that was committed.
    pub last_ingest_at_ms: Option<i64>,
    /// The trusted time as it was last kept; none in a store that nothing was written to since it
    /// was made by a version without one.
    pub trusted_ms: Option<i64>,
    /// How many batches of events are in.
    pub batches: u64,
    /// How many were refused.
    pub refused_batches: u64,
    /// The outcomes of all their events.
    pub counts: Counts,
    /// How many windows hold something.
    pub windows: u64,
    /// How many of these are open.
    pub open_windows: u64,
    /// How many windows have a revision.
    pub corrected_windows: u64,
    /// How many late events are kept.
    pub late_kept: u64,
    /// How many of these are not part of a revision.
    pub late_waiting: u64,
    /// How many events are held as too far ahead.
    pub held: u64,
    /// The greatest start of a window that retention removed; none when it removed none.
    pub pruned_start_ms: Option<i64>,
}

/// What is known of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRow {
    /// Its name.
    pub source: String,
    /// The greatest timestamp of its accepted and late events.
    pub max_timestamp_ms: Option<i64>,
    /// It was declared.
    pub declared: bool,
    /// It is idle: it does not hold the watermark back.
    pub idle: bool,
    /// It is idle because an operator retired it.
    pub retired: bool,
    /// Whether it holds the watermark back because files of it wait.
    pub expected: Expected,
    /// Since when it has stood to the watermark as it does: declared, expected, idle or back.
    pub presence_since_ms: Option<i64>,
    /// When its last batch was committed; none while it is only declared.
    pub last_batch_at_ms: Option<i64>,
    /// The number of that batch.
    pub last_batch: Option<u64>,
    /// The file of that batch, as shown.
    pub last_file: Option<String>,
    /// The outcomes of its events.
    pub counts: Counts,
}

/// What a source sent of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountRow<'a> {
    /// Whose it is.
    pub source: &'a str,
    /// The key; none, before all others, for what is not told apart by key: its accounts were
    /// pruned, or it came before the store had any.
    pub key: Option<&'a str>,
    /// The outcomes of its events.
    pub counts: Counts,
    /// How far event time had come with the last of them: the watermark when it was judged, or the
    /// greatest timestamp that was accepted, if that is more. None without a key.
    pub last_seen_ms: Option<i64>,
}

/// One window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRow<'a> {
    /// Its key.
    pub key: &'a str,
    /// Where it begins.
    pub start_ms: i64,
    /// What it holds.
    pub totals: Totals,
    /// How often it was corrected since it was final.
    pub revision: u64,
}

/// What a window held before it was corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevisionRow {
    /// The revision, 0 for the first final numbers.
    pub revision: u64,
    /// What it held.
    pub totals: Totals,
    /// The batch that made the next revision of it.
    pub corrected_in: u64,
}

/// A move of the watermark that closed windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveRow {
    /// The watermark before.
    pub from_ms: i64,
    /// The watermark after.
    pub to_ms: i64,
    /// The batch in which it moved.
    pub batch: u64,
    /// The index in that batch of the event that moved it, from 0; none when no event did.
    pub event_index: Option<u64>,
    /// How many windows became final.
    pub windows_closed: u64,
}

/// What is remembered of an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RememberedRow {
    /// Where it came in.
    pub event: EventRef,
    /// Its key; none where only its hash is kept.
    pub key: Option<String>,
    /// When it happened.
    pub timestamp_ms: i64,
    /// What it measured; none where only its hash is kept.
    pub value: Option<i64>,
}

/// The receipt of a batch that took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptRow {
    /// Its number.
    pub batch: u64,
    /// What it did, when it was not a batch of events: the name of an
    /// [`Act`](crate::store::Act).
    pub act: Option<String>,
    /// Its file, as shown.
    pub file: String,
    /// The source that it belonged to.
    pub source: String,
    /// SHA-256 of the raw bytes.
    pub sha256: Option<String>,
    /// The number of raw bytes.
    pub bytes: Option<u64>,
    /// The outcomes of its events.
    pub counts: Counts,
    /// The watermark afterwards.
    pub watermark_ms: i64,
    /// How many windows it closed.
    pub windows_closed: u64,
    /// When it was committed.
    pub committed_at_ms: i64,
    /// Who asked, when it was asked for.
    pub asked_by: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

/// One late event that was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateRow<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its key.
    pub key: &'a str,
    /// When it happened.
    pub timestamp_ms: i64,
    /// What it measured.
    pub value: i64,
    /// The window that was final.
    pub window_start_ms: i64,
    /// The watermark when it was judged.
    pub watermark_ms: i64,
    /// Whose it is.
    pub source: &'a str,
    /// The batch that brought it.
    pub batch: u64,
    /// Its index in that batch, from 0.
    pub event_index: u64,
    /// The batch in which it became part of a revision.
    pub applied_in: Option<u64>,
}

/// What is known of a late event that is kept, beside what came with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateFacts {
    /// Whose it is.
    pub source: String,
    /// The watermark when it was judged, in milliseconds since the epoch.
    pub watermark_ms: i64,
    /// The batch in which it became part of a revision.
    pub applied_in: Option<u64>,
}

/// One event that is held as too far ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRow<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its key.
    pub key: &'a str,
    /// When it happened, or so it says.
    pub timestamp_ms: i64,
    /// What it measured.
    pub value: i64,
    /// Whose it is.
    pub source: &'a str,
    /// Where it came in.
    pub event: EventRef,
    /// The file that brought it, as shown.
    pub file: &'a str,
}

/// What became of an event that was held, with what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledRow {
    /// The name of its [`Settlement`](crate::store::Settlement).
    pub settlement: String,
    /// The batch that settled it.
    pub settled_in: u64,
    /// When.
    pub at_ms: i64,
    /// Its id.
    pub id: String,
    /// Its key.
    pub key: String,
    /// When it happened, or so it said.
    pub timestamp_ms: i64,
    /// What it measured.
    pub value: i64,
    /// Whose it is.
    pub source: String,
}

/// One change of how a source stands to the watermark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceRow {
    /// The name of its [`Presence`](crate::engine::Presence).
    pub presence: String,
    /// The batch in which it changed.
    pub batch: u64,
    /// The index in that batch of the event that brought it back, from 0; none without an event.
    pub event_index: Option<u64>,
    /// When.
    pub at_ms: i64,
}
