//! Where the past is kept: the questions the engine asks and the changes it makes.

mod admin_batch;
pub mod audit;
#[cfg(test)]
mod conformance;
#[doc(hidden)]
pub mod failing;
#[doc(hidden)]
pub mod memory;
mod retention;
mod snapshot;
pub mod sqlite;
mod trusted;

use std::fmt;
use std::io;
use std::ops::ControlFlow;

use rustix::rand::GetRandomFlags;

use crate::engine::settings::Settings;
use crate::engine::totals::Totals;
use crate::engine::{Changes, Counts, Fact, Known, Progress, Seen};
use crate::model::event::{Chunk, Event, HashKey};
use crate::model::refusal::{Code, Other};
pub use crate::store::admin_batch::Act;
pub use retention::{KEPT_RECEIPTS, KEPT_RECEIPTS_MS, Pruned, Retention};
pub use snapshot::{
    AccountRow, EachAccount, EachHeld, EachLate, EachMove, EachReceipt, EachVersion, EachWindow,
    HeldRow, LateFacts, LateRow, MoveRow, PresenceRow, ReceiptRow, RememberedRow, RevisionRow,
    SettledRow, Snapshot, SourceRow, Span, Summary, WindowRow,
};
pub use trusted::is_behind;

/// The writing side. One batch at a time; dropping it before its commit undoes it.
pub trait Store {
    /// What was fixed when the store was made.
    fn settings(&self) -> Settings;

    /// The secret under which it hashes ids: a [`Chunk`] that is made with it need not be hashed
    /// again.
    fn hash_key(&self) -> HashKey;

    /// The time by which events are judged and receipts stamped, in milliseconds since the epoch:
    /// the clock, unless it is more than an hour behind the trusted time.
    fn now_ms(&self) -> i64;

    /// The trusted time of this moment, by which age is measured: it began with the clock, follows
    /// it, never backwards, and at most 24 times as fast as this process has been running.
    fn trusted_ms(&self) -> i64;

    /// Keeps the trusted time of this moment.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    fn keep_time(&mut self) -> Result<(), Error>;

    /// Sets the trusted time to the clock, forwards or back.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    fn trust_now(&mut self) -> Result<(), Error>;

    /// What can look at chunks ahead of the writer, on another thread; none where that is of no use.
    /// It holds for as long as the store does.
    fn prefetch(&self) -> Option<Box<dyn Prefetch>> {
        None
    }

    /// Opens the next unit of commit, or says that this very delivery is in already (its commit's
    /// answer was lost).
    ///
    /// # Errors
    /// [`Error::Busy`] when others hold the store too long; any other kind as it says.
    fn begin<'s>(&'s mut self, delivery: &Delivery) -> Result<Begun<'s>, Error>;

    /// The same for one of a group: its commit is whole and seen by all, but durable only with the
    /// next [`sync`](Self::sync). What is lost before that is lost from the end: never a batch and
    /// not one after it.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    fn begin_unsynced<'s>(&'s mut self, delivery: &Delivery) -> Result<Begun<'s>, Error>;

    /// Keeps the receipt of a refused batch, which took no effect; durable with the next
    /// [`sync`](Self::sync).
    ///
    /// # Errors
    /// As [`begin`](Self::begin). After [`Error::Unknown`], here or from `sync`, the same refusal
    /// can be given again, and is kept once.
    fn record_refusal(&mut self, refused: &Refused) -> Result<(), Error>;

    /// Makes durable all that is in, also what `begin` says is known. Costs nothing when there is
    /// nothing to do.
    ///
    /// # Errors
    /// [`Error::Unknown`] when it cannot be told what of that is in still: begin each of those
    /// batches again, and give each of those refusals again, then sync. Any other kind as it says,
    /// and all is as it was.
    fn sync(&mut self) -> Result<(), Error>;

    /// What is known of these sources, in that order. It waits for nobody who writes.
    ///
    /// # Errors
    /// By kind.
    fn known(&mut self, sources: &[&str]) -> Result<Vec<Known>, Error>;

    /// At most so many of the sources for which the watermark waits (without those that are only
    /// [expected](Self::expected)), the one that was heard of the longest ago first, behind
    /// `after`; with the number of the last batch of all. It waits for nobody who writes.
    ///
    /// # Errors
    /// By kind.
    fn silent(&mut self, after: Option<&Silent>, most: usize) -> Result<Vec<(u64, Silent)>, Error>;

    /// The sources that are expected: the watermark waits for their first event since files of them
    /// wait. It waits for nobody who writes.
    ///
    /// # Errors
    /// By kind.
    fn expected(&mut self) -> Result<Vec<String>, Error>;

    /// Removes what is older than asked, as far as no promise needs it, in transactions of bounded
    /// size: others get their turn in between. When it fails, what was removed before stays so.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    fn prune(&mut self, what: &Retention) -> Result<Pruned, Error> {
        self.prune_paced(what, &mut || ControlFlow::Continue(()))
    }

    /// The same, asking between the transactions whether to go on. What is cut short goes on where
    /// it stopped when it is asked for again.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    fn prune_paced(&mut self, what: &Retention, pace: &mut Pace<'_>) -> Result<Pruned, Error>;
}

/// A source for which the watermark waits, and when it was heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    /// Its name.
    pub source: String,
    /// The last batch that named it in an event, declared it, or took it back; 0 when none did.
    pub heard_in: u64,
}

/// Finds out about the ids of chunks what can be found out ahead of who writes, and leaves it in
/// them as a hint: whoever writes has less to do then. Nothing depends on it.
pub trait Prefetch: Send {
    /// How many ids it is best shown at once, in whole chunks, where so many wait: from 1 on.
    fn ids_at_once(&self) -> usize;

    /// Looks at chunks that are full, in the order in which they are to be written.
    fn look(&mut self, chunks: &mut [&mut Chunk]);
}

/// Asked between the steps of long work; a break ends it early, and what was done stays so.
pub type Pace<'p> = dyn FnMut() -> ControlFlow<()> + 'p;

/// The most events that [`Batch::kept`] gives at once.
pub const KEPT_AT_ONCE: usize = 1000;

/// One unit of commit that is open. It is used in this order: for each chunk `facts`, `progress`,
/// `apply`; then `commit`. Asking `facts` claims the ids: until the batch ends nobody else can take
/// one of them in, and from `progress` on the watermark stands still.
pub trait Batch {
    /// Its number. Numbers rise in the order in which batches take effect; some may be missing.
    fn number(&self) -> u64;

    /// Writes into `facts`, one for each event of the chunk, what is known of its id: from earlier
    /// batches and from the chunks that this batch has applied, not from the chunk itself.
    ///
    /// # Errors
    /// By kind, as for all that follow.
    fn facts(&mut self, chunk: &Chunk, facts: &mut Vec<Fact>) -> Result<(), Error>;

    /// The watermark, the sources asked for, the least of all others, and the store's clock: as the
    /// chunks that this batch has applied left them.
    ///
    /// # Errors
    /// By kind.
    fn progress(&mut self, sources: &[&str]) -> Result<Progress, Error>;

    /// Makes the changes of one chunk, and says how many windows that hold something became
    /// final by it.
    ///
    /// # Errors
    /// [`Error::Overflow`] with every window that would leave its range, be it by what it gets or by
    /// what corrects it: nothing of the chunk is to be relied on then, and the batch must be
    /// dropped.
    fn apply(&mut self, chunk: &Chunk, changes: &Changes<'_>) -> Result<u64, Error>;

    /// How many windows that hold something became final by each move of the chunk that was applied
    /// last, in their order.
    fn closings(&self) -> &[u64];

    /// Writes into `chunk` the next events of that kind that were kept and not settled yet, behind
    /// `after`, in the order in which they came (late ones window by window), each with its source, at most [`KEPT_AT_ONCE`];
    /// and into `refs` which they are. An empty chunk means that there are no more. Without `after`
    /// the chunk begins at index 0, else behind the events that it held.
    ///
    /// Of the late ones only those are given that can become corrections: their window is final,
    /// and its numbers were not pruned.
    ///
    /// # Errors
    /// By kind.
    fn kept(
        &mut self,
        kind: Kept,
        after: Option<EventRef>,
        chunk: &mut Chunk,
        refs: &mut Vec<EventRef>,
    ) -> Result<(), Error>;

    /// Settles kept events, once and for ever: late ones become corrections, held ones are released
    /// or discarded. Released ones no longer count as future, not in their account either; what else
    /// they count as comes with `apply`.
    ///
    /// # Errors
    /// [`Error::Io`] when one of them is not kept, or was settled before: the batch must be dropped
    /// then. The rest by kind.
    fn settle(&mut self, refs: &[EventRef], settlement: Settlement) -> Result<(), Error>;

    /// What is still known of where an id came from.
    ///
    /// # Errors
    /// By kind.
    fn first_seen(&mut self, event: &Event<'_>, seen: &Seen) -> Result<Other, Error>;

    /// Ends the batch: durable when this returns, unless it was begun as one of a group.
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
    /// A batch without a file: something was asked for, or came about by itself.
    Act {
        /// What.
        act: Act,
        /// What became of the events that were judged again in it.
        counts: Counts,
        /// Who asked.
        asked_by: String,
        /// Why, in the operator's words.
        reason: Option<String>,
    },
}

/// Which events were kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Those that came too late.
    Late,
    /// Those that were too far ahead.
    Held,
}

/// One event, by where it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventRef {
    /// The batch that brought it.
    pub batch: u64,
    /// Its index in that batch, from 0.
    pub event_index: u64,
}

impl fmt::Display for EventRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {} of batch {}", self.event_index, self.batch)
    }
}

/// What becomes of a kept event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// A late one became part of a revision.
    Applied,
    /// A held one was judged again.
    Released,
    /// A held one was dropped for good.
    Discarded,
}

impl Settlement {
    /// The name, as stored and shown.
    pub fn name(self) -> &'static str {
        match self {
            Settlement::Applied => "applied",
            Settlement::Released => "released",
            Settlement::Discarded => "discarded",
        }
    }
}

/// A batch that is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its number.
    pub batch: u64,
    /// The outcomes of its events.
    pub counts: Counts,
    /// The watermark afterwards.
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
    /// Nobody else holds it, and it cannot be had all the same.
    Stuck(String),
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
    /// It was written by an older version, and only reading was asked for.
    OlderSchema(String),
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
            | Error::Stuck(text)
            | Error::Full(text)
            | Error::Io(text)
            | Error::Corrupt(text)
            | Error::Missing(text)
            | Error::NewerSchema(text)
            | Error::OlderSchema(text)
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
