//! One batch is one transaction: ask, decide, write, in chunks of bounded size.

mod refused;
mod seconds;

use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::ControlFlow;

use serde::Serialize;

use crate::decode::{Decoder, Digest, Fault, Limits};
use crate::engine::settings::{LatePolicy, Settings};
use crate::engine::totals::{Delta, Overflow, Totals};
use crate::engine::window::WindowId;
use crate::engine::{
    Admission, Counts, Fact, Judge, Judged, NotAdmitted, Outcome, Seen, Stop, window,
};
use crate::model::event::{Chunk, Event};
use crate::model::refusal::{Code, Other, Refusal};
pub use seconds::Seconds;

use crate::store::{self, Batch, Begun, Committed, Delivery, Overflowing, Receipt, Refused, Store};

/// How far a batch has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Events judged so far.
    pub events: u64,
}

/// Who watches over a batch while it is taken in.
pub trait Watcher {
    /// Told once the batch is begun: from here on it is about what the file holds.
    fn begun(&mut self) {}

    /// Told after every chunk; a break undoes the batch.
    fn step(&mut self, step: Step) -> ControlFlow<()>;

    /// Shown each chunk once it is judged and applied; of one that ends in a contradiction, what
    /// came before that. `closings` says how many windows that hold something each of its moves of
    /// the watermark closed.
    fn judged(
        &mut self,
        _chunk: &Chunk,
        _judged: &Judged<'_>,
        _closings: &[u64],
        _settings: &Settings,
    ) {
    }

    /// Asked before the commit whether what was read still is what lies there, and told to make
    /// it durable.
    ///
    /// # Errors
    /// When that cannot be told or done.
    fn still_the_same(&mut self) -> io::Result<bool>;
}

/// Watches over what cannot change: text in hand, a private copy.
pub struct Unwatched;

impl Watcher for Unwatched {
    fn step(&mut self, _: Step) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn still_the_same(&mut self) -> io::Result<bool> {
        Ok(true)
    }
}

/// How a batch ended.
#[derive(Debug)]
pub enum Ended {
    /// It is in, whole; durable as its mode says, and if it was known, with the next sync.
    Committed(Committed),
    /// It would be in, had it been for real.
    Checked(Committed),
    /// Nothing of it is in.
    Refused(Box<RefusedBatch>),
    /// It changed while it was read: nothing of it is in.
    Changed,
    /// The watcher stopped it: nothing of it is in.
    Stopped,
}

/// Why a batch could neither be taken in nor refused. Nothing of it is in, unless the error says
/// that this is unknown.
#[derive(Debug)]
pub enum IngestError {
    /// It could not be read.
    Read(io::Error),
    /// The store could not do its part.
    Store(store::Error),
}

impl From<store::Error> for IngestError {
    fn from(error: store::Error) -> IngestError {
        IngestError::Store(error)
    }
}

impl std::fmt::Display for IngestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            IngestError::Read(error) => write!(f, "cannot read the batch: {error}"),
            IngestError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for IngestError {}

/// A refused batch, as `NAME.error.json` has it: enough by itself to mend the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedBatch {
    /// The file's name, as shown.
    pub file: String,
    /// The source that it belongs to.
    pub source: String,
    /// SHA-256 of the raw bytes, where they could be read.
    pub sha256: Option<String>,
    /// How many raw bytes.
    pub bytes: Option<u64>,
    /// When, in milliseconds since the epoch.
    pub refused_at_ms: i64,
    /// Why.
    #[serde(flatten)]
    pub refusal: Refusal,
}

impl RefusedBatch {
    /// What the store keeps of it.
    pub fn receipt(&self) -> Refused {
        Refused {
            file: self.file.clone(),
            source: self.source.clone(),
            sha256: self.sha256.clone(),
            bytes: self.bytes,
            refused_at_ms: self.refused_at_ms,
            code: self.refusal.code,
            message: self.refusal.message.clone(),
        }
    }
}

/// Whether a batch is taken in or only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is committed, durably.
    Commit,
    /// It is committed as one of a group, which the next sync of the store makes durable.
    Group,
    /// It is judged on the real state, and undone.
    Check,
}

/// One batch on its way in.
pub struct Ingest<'a> {
    /// Its name, source and token.
    pub delivery: &'a Delivery,
    /// The bounds of what is read.
    pub limits: Limits,
    /// For real or not.
    pub mode: Mode,
    /// Which sources may send; none: all.
    pub admission: Option<Admission>,
    /// The clock, for the time of a refusal.
    pub now_ms: i64,
    /// What becomes of timestamps that look like seconds.
    pub seconds: Seconds<'a>,
}

/// Where the chunks of a batch come from.
pub trait Feed {
    /// Brings the next events into the chunk, as [`Decoder::read_chunk`] does.
    ///
    /// # Errors
    /// As there.
    fn next(&mut self) -> Result<bool, Fault>;

    /// What [`next`](Self::next) brought.
    fn chunk(&self) -> &Chunk;

    /// What the whole raw file was, also when events of it are left.
    ///
    /// # Errors
    /// When it can't be read.
    fn digest(&mut self) -> io::Result<Digest>;
}

/// A feed that reads and decodes when it is asked.
struct BatchReader<R: Read> {
    // taken by the digest, which comes last
    decoder: Option<Decoder<R>>,
    chunk: Chunk,
}

impl<R: Read> Feed for BatchReader<R> {
    fn next(&mut self) -> Result<bool, Fault> {
        match &mut self.decoder {
            Some(decoder) => decoder.read_chunk(&mut self.chunk),
            None => Ok(false),
        }
    }

    fn chunk(&self) -> &Chunk {
        &self.chunk
    }

    fn digest(&mut self) -> io::Result<Digest> {
        let decoder = self.decoder.take().ok_or(io::ErrorKind::UnexpectedEof)?;
        decoder.digest()
    }
}

impl Ingest<'_> {
    /// Takes the batch in, or refuses it, or neither; never a part of it. A refusal is not
    /// recorded here: that is for the caller, who knows what becomes of the file.
    ///
    /// # Errors
    /// When reading or the store fails, which is not the fault of the batch.
    pub fn run<R: Read>(
        &self,
        store: &mut dyn Store,
        raw: R,
        watcher: &mut dyn Watcher,
    ) -> Result<Ended, IngestError> {
        let decoder = Some(Decoder::new(raw, self.limits.clone()));
        let mut reader = BatchReader { decoder, chunk: Chunk::keyed(store.hash_key()) };
        self.run_on(store, &mut reader, watcher)
    }

    /// The same with chunks that come from elsewhere, hashed under the store's
    /// [key](Store::hash_key).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_on(
        &self,
        store: &mut dyn Store,
        feed: &mut dyn Feed,
        watcher: &mut dyn Watcher,
    ) -> Result<Ended, IngestError> {
        // the first chunk is read before the store is asked for anything: a small batch holds
        // the store no longer than it takes to judge it
        let mut read = feed.next();
        if feed.chunk().is_empty()
            && let Err(fault) = read
        {
            return self.fault(fault, feed);
        }
        let settings = store.settings();
        let begun = match self.mode {
            Mode::Group => store.begin_unsynced(self.delivery)?,
            Mode::Commit | Mode::Check => store.begin(self.delivery)?,
        };
        let batch = match begun {
            Begun::Known(committed) => return Ok(Ended::Committed(committed)),
            Begun::Open(batch) => batch,
        };
        watcher.begun();
        let judge = Judge::new(settings, batch.number(), &self.delivery.source)
            .with_seconds(self.seconds.rule())
            .admitting(self.admission);
        let mut open = Open {
            batch,
            judge,
            delivery: self.delivery,
            facts: Vec::new(),
            counts: Counts::default(),
            windows_closed: 0,
            like_seconds: None,
        };
        loop {
            // what a damaged archive seems to say is not held against it
            let damaged = matches!(
                &read,
                Err(Fault::Refused(refusal)) if refusal.code == Code::BadCompression
            );
            if !damaged && let Some(refusal) = open.take_in(feed.chunk(), watcher)? {
                return self.refused(open.refuse(refusal), feed);
            }
            match read {
                Ok(true) => {}
                Ok(false) => break,
                Err(Fault::Refused(refusal)) => {
                    return self.refused(open.refuse(*refusal), feed);
                }
                Err(Fault::Io(error)) => return Err(IngestError::Read(error)),
            }
            if watcher.step(Step { events: open.counts.events() }).is_break() {
                return Ok(Ended::Stopped);
            }
            read = feed.next();
        }
        let digest = feed.digest().map_err(IngestError::Read)?;
        if !digest.whole {
            // whoever brings the events was told to stop
            return Ok(Ended::Stopped);
        }
        if let Some(refusal) = open.like_seconds.take()
            && !self.seconds.accepts(&digest.sha256)
        {
            drop(open);
            return Ok(self.refused_as(refusal, digest));
        }
        if !watcher.still_the_same().map_err(IngestError::Read)? {
            return Ok(Ended::Changed);
        }
        open.end(self.mode, digest)
    }

    fn fault(&self, fault: Fault, feed: &mut dyn Feed) -> Result<Ended, IngestError> {
        match fault {
            Fault::Io(error) => Err(IngestError::Read(error)),
            Fault::Refused(refusal) => self.refused((*refusal, None), feed),
        }
    }

    /// The batch is refused; the second refusal, of timestamps that look like seconds, came first,
    /// if it counts for this file.
    fn refused(
        &self,
        (refusal, like_seconds): (Refusal, Option<Refusal>),
        feed: &mut dyn Feed,
    ) -> Result<Ended, IngestError> {
        let digest = feed.digest().map_err(IngestError::Read)?;
        let like_seconds = like_seconds.filter(|_| !self.seconds.accepts(&digest.sha256));
        Ok(self.refused_as(like_seconds.unwrap_or(refusal), digest))
    }

    fn refused_as(&self, refusal: Refusal, digest: Digest) -> Ended {
        // of a file that is too large the rest was not read, or not all of it
        let digest = digest.whole.then_some(digest);
        Ended::Refused(Box::new(RefusedBatch {
            file: self.delivery.file.clone(),
            source: self.delivery.source.clone(),
            bytes: digest.as_ref().map(|digest| digest.bytes),
            sha256: digest.map(|digest| digest.sha256),
            refused_at_ms: self.now_ms,
            refusal,
        }))
    }
}

/// A batch that the store has open.
struct Open<'s, 'd> {
    batch: Box<dyn Batch + 's>,
    judge: Judge,
    delivery: &'d Delivery,
    facts: Vec<Fact>,
    counts: Counts,
    windows_closed: u64,
    /// Why it is refused if its timestamps in seconds are not taken as they stand.
    like_seconds: Option<Refusal>,
}

impl Open<'_, '_> {
    /// Undoes the batch, which is refused for that, and for what came before it if that counts.
    fn refuse(self, refusal: Refusal) -> (Refusal, Option<Refusal>) {
        (refusal, self.like_seconds)
    }

    /// Judges the chunk and writes what that changes; or says why the batch is refused.
    fn take_in(
        &mut self,
        chunk: &Chunk,
        watcher: &mut dyn Watcher,
    ) -> Result<Option<Refusal>, IngestError> {
        if chunk.is_empty() {
            return Ok(None);
        }
        // ids are claimed before the watermark is read: from then on both stand still
        self.batch.facts(chunk, &mut self.facts)?;
        let progress = self.batch.progress(&self.judge.sources(chunk))?;
        self.judge.learn(&progress);
        let judged = self.judge.judge(chunk, &self.facts);
        // what came before a contradiction counts first: it may overflow earlier
        match self.batch.apply(chunk, &judged.changes) {
            Ok(closed) => self.windows_closed += closed,
            Err(store::Error::Overflow(windows)) => {
                return Ok(Some(overflow(chunk, &judged, &windows, self.judge.settings())));
            }
            Err(error) => return Err(IngestError::Store(error)),
        }
        self.counts.add(&judged.changes.counts);
        watcher.judged(chunk, &judged, self.batch.closings(), self.judge.settings());
        if let Some(suspect) = judged.seconds {
            let (event, index) =
                (chunk.event(suspect.row), chunk.first_index() + suspect.row as u64);
            let source = chunk.source(suspect.row).unwrap_or(&self.delivery.source);
            let refusal = seconds::refusal(&event, index, source, suspect);
            if self.judge.stops_at_seconds() {
                return Ok(Some(refusal));
            }
            self.like_seconds.get_or_insert(refusal);
        }
        match judged.stopped {
            Some((_, Stop::Seconds)) => Ok(None),
            None => Ok(None),
            Some((row, Stop::Conflict(seen))) => self.conflict(chunk, row, &seen).map(Some),
            Some((row, Stop::Source(why))) => Ok(Some(self.not_admitted(chunk, row, why))),
        }
    }

    fn conflict(&mut self, chunk: &Chunk, row: usize, seen: &Seen) -> Result<Refusal, IngestError> {
        let event = chunk.event(row);
        let in_this_batch = seen.batch == self.batch.number();
        let mut other = if in_this_batch && seen.event_index >= chunk.first_index() {
            let first = chunk.event((seen.event_index - chunk.first_index()) as usize);
            Other {
                event_index: Some(seen.event_index),
                key: Some(first.key.to_owned()),
                timestamp_ms: Some(first.timestamp_ms),
                value: Some(first.value),
                ..Other::default()
            }
        } else {
            self.batch.first_seen(&event, seen)?
        };
        if in_this_batch {
            other.file = Some(self.delivery.file.clone());
            other.source = Some(self.delivery.source.clone());
            other.batch = None;
        }
        Ok(refused::conflict(&event, chunk.first_index() + row as u64, other))
    }

    fn not_admitted(&self, chunk: &Chunk, row: usize, why: NotAdmitted) -> Refusal {
        let event = chunk.event(row);
        let source = event.source.unwrap_or(&self.delivery.source);
        refused::not_admitted(&event, chunk.first_index() + row as u64, source, why)
    }

    fn end(mut self, mode: Mode, digest: Digest) -> Result<Ended, IngestError> {
        if mode == Mode::Check {
            // a batch without events has not asked yet
            let before_ms = self.batch.progress(&[])?.watermark_ms;
            return Ok(Ended::Checked(Committed {
                batch: self.batch.number(),
                counts: self.counts,
                watermark_ms: self.judge.watermark_ms().max(before_ms),
                windows_closed: self.windows_closed,
            }));
        }
        let receipt =
            Receipt::Events { sha256: digest.sha256, bytes: digest.bytes, counts: self.counts };
        Ok(Ended::Committed(self.batch.commit(&receipt)?))
    }
}

/// Finds the first event of the chunk after which a window leaves its range.
fn overflow(
    chunk: &Chunk,
    judged: &Judged<'_>,
    windows: &[Overflowing],
    settings: &Settings,
) -> Refusal {
    let mut held: HashMap<WindowId<'_>, Option<Totals>> = windows
        .iter()
        .map(|window| (WindowId { start_ms: window.start_ms, key: &window.key }, window.before))
        .collect();
    // of the late ones only those have a part that correct their window; the store named no other
    let counts = |outcome: &Outcome| match outcome {
        Outcome::Accepted => true,
        Outcome::Late => settings.late_policy() == LatePolicy::Correct,
        Outcome::Duplicate | Outcome::Future | Outcome::Expired => false,
    };
    for (row, _) in judged.outcomes.iter().enumerate().filter(|(_, outcome)| counts(outcome)) {
        let event = chunk.event(row);
        let start_ms = window::start_ms(event.timestamp_ms, settings.window_ms());
        let Some(before) = held.get_mut(&WindowId { start_ms, key: event.key }) else { continue };
        match Delta::of(event.value).added_to(*before) {
            Ok(after) => *before = Some(after),
            Err(Overflow) => {
                let index = chunk.first_index() + row as u64;
                return overflow_at(&event, index, start_ms, *before, settings);
            }
        }
    }
    // the store and this walk use the same arithmetic, so the walk finds what the store found
    Refusal::new(
        Code::Overflow,
        "a window would leave the signed 64-bit range",
        "report this: the event could not be found",
    )
}

fn overflow_at(
    event: &Event<'_>,
    index: u64,
    start_ms: i64,
    held: Option<Totals>,
    settings: &Settings,
) -> Refusal {
    let end_ms = window::end_ms(start_ms, settings.window_ms());
    let (count, sum) = held.map_or((0, 0), |totals| (totals.count, totals.sum));
    let message = format!(
        "event {index} (id {:?}) at line {} would take window [{start_ms}, {end_ms}) of key {:?} \
            out of the signed 64-bit range: it holds {count} events with the sum {sum}, and the \
            event adds {}",
        event.id, event.place.line, event.key, event.value,
    );
    let hint = "count and sum must stay within -9223372036854775808 and 9223372036854775807 after \
            every single event: is the value right? if it is, use a coarser unit or narrower \
            windows";
    Refusal::new(Code::Overflow, message, hint)
        .at(event.place)
        .in_event(index, Some(event.id))
        .in_field("value")
}
