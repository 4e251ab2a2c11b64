//! Where the past is kept: the questions the engine asks and the changes it makes.

#[cfg(test)]
mod conformance;
#[doc(hidden)]
pub mod failing;
#[doc(hidden)]
pub mod memory;
pub mod sqlite;

use std::fmt;
use std::io;
use std::ops::ControlFlow;

use rustix::rand::GetRandomFlags;

use crate::engine::settings::Settings;
use crate::engine::totals::Totals;
use crate::engine::{Changes, Counts, Fact, Progress, Seen};
use crate::event::{Chunk, Event};
use crate::refusal::{Code, Other};

/// The writing side. One batch at a time; dropping it before its commit undoes it.
pub trait Store {
    /// What was fixed when the store was made.
    fn settings(&self) -> Settings;

    /// Opens the next unit of commit, or says that this very delivery is in already (its commit's
    /// answer was lost).
    ///
    /// # Errors
    /// [`Error::Busy`] when others hold the store too long; any other kind as it says.
    fn begin<'s>(&'s mut self, delivery: &Delivery) -> Result<Begun<'s>, Error>;

    /// Keeps the receipt of a refused batch, which took no effect.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    fn record_refusal(&mut self, refused: &Refused) -> Result<(), Error>;
}

/// One unit of commit that is open. It is used in this order: for each chunk `facts`, `progress`,
/// `apply`; then `commit`. Asking `facts` claims the ids: until the batch ends nobody else can take
/// one of them in, and from `progress` on W stands still.
pub trait Batch {
    /// Its number. Numbers rise in the order in which batches take effect; some may be missing.
    fn number(&self) -> u64;

    /// Writes into `facts`, one for each event of the chunk, what is known of its id: from earlier
    /// batches and from the chunks that this batch has applied, not from the chunk itself.
    ///
    /// # Errors
    /// By kind, as for all that follow.
    fn facts(&mut self, chunk: &Chunk, facts: &mut Vec<Fact>) -> Result<(), Error>;

    /// W, the sources asked for, the least of all others, and the store's clock: as the chunks that
    /// this batch has applied left them.
    ///
    /// # Errors
    /// By kind.
    fn progress(&mut self, sources: &[&str]) -> Result<Progress, Error>;

    /// Makes the changes of one chunk, and says how many windows that hold something became
    /// final by it.
    ///
    /// # Errors
    /// [`Error::Overflow`] with every window that would leave its range: nothing of the chunk is
    /// to be relied on then, and the batch must be dropped.
    fn apply(&mut self, chunk: &Chunk, changes: &Changes<'_>) -> Result<u64, Error>;

    /// What is still known of where an id came from.
    ///
    /// # Errors
    /// By kind.
    fn first_seen(&mut self, event: &Event<'_>, seen: &Seen) -> Result<Other, Error>;

    /// Ends the batch: durable when this returns.
    ///
    /// # Errors
    /// [`Error::Unknown`] when it cannot be told whether it is in: begin again with the same
    /// delivery, which answers.
    fn commit(self: Box<Self>, receipt: &Receipt) -> Result<Committed, Error>;
}

/// One attempt to deliver a batch, kept until its fate is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Drawn afresh for each attempt.
    pub token: [u8; 16],
    /// What is delivered: the file's name as shown, or what an operator asked for.
    pub file: String,
    /// The source that it belongs to.
    pub source: String,
}

impl Delivery {
    /// A new attempt to deliver that file.
    ///
    /// # Errors
    /// When the machine gives no randomness.
    pub fn fresh(file: String, source: String) -> io::Result<Delivery> {
        let mut token = [0; 16];
        let mut filled = 0;
        while filled < token.len() {
            filled += rustix::rand::getrandom(&mut token[filled..], GetRandomFlags::empty())?;
        }
        Ok(Delivery { token, file, source })
    }
}

/// What `begin` answers.
pub enum Begun<'s> {
    /// A batch is open.
    Open(Box<dyn Batch + 's>),
    /// This delivery was committed before.
    Known(Committed),
}

/// What is kept of a batch that took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// A batch of events.
    Events {
        /// SHA-256 of the raw bytes, in lower-case hexadecimal.
        sha256: String,
        /// The number of raw bytes.
        bytes: u64,
        /// The outcomes of its events.
        counts: Counts,
    },
    /// The watermark set by hand.
    Advance {
        /// Who asked.
        asked_by: String,
        /// Why, in the operator's words.
        reason: Option<String>,
    },
}

/// A batch that is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its number.
    pub batch: u64,
    /// The outcomes of its events.
    pub counts: Counts,
    /// W afterwards.
    pub watermark_ms: i64,
    /// How many windows that hold something became final in it.
    pub windows_closed: u64,
}

/// What is kept of a refused batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its file, as shown.
    pub file: String,
    /// The source that it belonged to.
    pub source: String,
    /// SHA-256 of the raw bytes, where it could be read.
    pub sha256: Option<String>,
    /// The number of raw bytes, where known.
    pub bytes: Option<u64>,
    /// When, by the store's clock.
    pub refused_at_ms: i64,
    /// Why.
    pub code: Code,
    /// Why, in words.
    pub message: String,
}

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

    /// What each producer version sent, by name.
    ///
    /// # Errors
    /// By kind.
    fn versions(&self) -> Result<Vec<(String, Counts)>, Error>;

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
}

/// What is called with each window of a stream; the row lives only for the call.
pub type EachWindow<'e> = dyn FnMut(&WindowRow<'_>) -> ControlFlow<()> + 'e;

/// What is called with each late event of a stream; the row lives only for the call.
pub type EachLate<'e> = dyn FnMut(&LateRow<'_>) -> ControlFlow<()> + 'e;

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
    /// W.
    pub watermark_ms: i64,
    /// The greatest timestamp of any accepted or late event.
    pub max_timestamp_ms: Option<i64>,
    /// The number of the last batch of events.
    pub last_batch: Option<u64>,
    /// When that was committed.
    pub last_ingest_at_ms: Option<i64>,
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
    /// How many late events are kept.
    pub late_kept: u64,
    /// How many events are held as too far ahead.
    pub held: u64,
}

/// What is known of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRow {
    /// Its name.
    pub source: String,
    /// The greatest timestamp of its accepted and late events.
    pub max_timestamp_ms: Option<i64>,
    /// When its last batch was committed.
    pub last_batch_at_ms: i64,
    /// The number of that batch.
    pub last_batch: u64,
    /// The file of that batch, as shown.
    pub last_file: String,
    /// The outcomes of its events.
    pub counts: Counts,
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
    /// W when it was judged.
    pub watermark_ms: i64,
    /// Whose it is.
    pub source: &'a str,
    /// The batch that brought it.
    pub batch: u64,
    /// Its index in that batch, from 0.
    pub event_index: u64,
}

/// A window whose count or sum would leave the signed 64-bit range, as it was before the chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overflowing {
    /// Its key.
    pub key: String,
    /// Where it begins.
    pub start_ms: i64,
    /// What it held; none when it was empty.
    pub before: Option<Totals>,
}

/// Why the store could not do what was asked, by what can be done about it. The texts name what
/// was touched and what to do.
#[derive(Debug)]
pub enum Error {
    /// Others hold it: begin again.
    Busy(String),
    /// No room, or no right to write: begin again when there is.
    Full(String),
    /// It cannot be read or written at the moment for another reason of the machine's.
    Io(String),
    /// It is damaged, or is no store.
    Corrupt(String),
    /// There is no store there.
    Missing(String),
    /// It was written by a newer version.
    NewerSchema(String),
    /// It lies, or would lie, where it cannot be kept safely.
    Misplaced(String),
    /// It was made with other settings.
    OtherSettings {
        /// What it was made with.
        stored: Settings,
        /// What was asked for.
        asked: Settings,
    },
    /// Windows would leave their range.
    Overflow(Vec<Overflowing>),
    /// Whether the commit took place cannot be told.
    Unknown(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Busy(text)
            | Error::Full(text)
            | Error::Io(text)
            | Error::Corrupt(text)
            | Error::Missing(text)
            | Error::NewerSchema(text)
            | Error::Misplaced(text)
            | Error::Unknown(text) => f.write_str(text),
            Error::OtherSettings { stored, asked } => write!(
                f,
                "the store was made with other settings, which can never change: it has {stored}; \
                 asked for were {asked}; use those of the store, or another store"
            ),
            Error::Overflow(windows) => {
                write!(f, "{} window(s) would leave the signed 64-bit range", windows.len())
            }
        }
    }
}

impl std::error::Error for Error {}
