//! Reads ahead of the writer, on the reader thread: opens files, unpacks, decodes and hashes them
//! in order, and makes the producer's bytes durable. The store is never touched here.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::ops::ControlFlow;
use std::panic;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, never};

use super::ingest::Feed;
use super::refusal_budget::RefusalBudget;
use crate::decode::{Digest, Fault, Limits};
use crate::model::event::Chunk;
use crate::spool::Entry;
use crate::spool::in_flight::{Hand, InFlight};
use crate::spool::safe_open::{OpenError, Opened};
use crate::store::Store;

use super::reader_thread::{ReaderThread, Running};
use file_reader::FileReader;

/// How many messages may wait for the writer: three for a file of one chunk.
const WAITING: usize = 3 * 64;

/// From how many bytes of text on a chunk is large, and how many of those may wait: what the writer
/// has to do while the scout looks at many, and room for what is read while the writer syncs.
/// Together they bound the memory, however large the files are: small ones are many, and take little.
const LARGE_BYTES: usize = 32 << 10;
const LARGE_WAITING: usize = 16;

/// How many used chunks are kept, to be filled again.
const SPARE: usize = 40;

/// For how long the thread is waited for before it is looked at whether it moves on.
const PATIENCE: Duration = Duration::from_millis(500);

/// Told while the thread is waited for and moves on, though it has nothing to tell: a small file
/// can inflate for minutes without an event. A break ends the wait.
pub type Waiting<'w> = Box<dyn Fn() -> ControlFlow<()> + 'w>;

/// What the thread tells: each file, then its parts, of which the last one ends the batch or is
/// wrong, then its end. Of a file that could not be opened there is nothing more.
enum ReaderMessage {
    File(Result<Arc<Opened>, OpenError>),
    Part(FeedPart),
    End(io::Result<Digest>),
}

struct FeedPart {
    chunk: Chunk,
    read: Result<bool, Fault>,
}

impl FeedPart {
    fn is_large(&self) -> bool {
        self.chunk.text_bytes() >= LARGE_BYTES
    }
}

/// What the writer wants no more: of so many files, from the first on.
#[derive(Default)]
struct Wanted {
    no_events: AtomicUsize,
    nothing: AtomicUsize,
    // no file that is not begun
    no_other: AtomicBool,
    // how many blocks the thread has read or unpacked
    blocks: AtomicUsize,
}

/// A file whose turn it is.
pub(super) struct Upcoming {
    pub(super) entry: Entry,
    pub(super) opened: Result<Arc<Opened>, OpenError>,
    /// No other comes behind it.
    pub(super) is_last: bool,
}

impl Upcoming {
    /// Its size; of what is not open it does not matter.
    pub(super) fn bytes(&self) -> u64 {
        self.opened.as_ref().map_or(0, |opened| opened.bytes())
    }
}

/// The writer's end. Dropping it waits until the reader thread has left these files.
pub struct ReadAhead<'w> {
    entries: Arc<[Entry]>,
    // how many files were told of
    seen: usize,
    next: Option<Upcoming>,
    told: Receiver<ReaderMessage>,
    spare: Sender<Chunk>,
    room: Sender<()>,
    wanted: Arc<Wanted>,
    running: Option<Running>,
    waiting: Waiting<'w>,
    // how many blocks there were when it was last looked
    blocks: usize,
    // the wait was ended
    gave_up: bool,
}

impl<'w> ReadAhead<'w> {
    /// Has that thread read these files of the inbox.
    pub(super) fn start(
        thread: &ReaderThread,
        inbox: PathBuf,
        entries: Arc<[Entry]>,
        limits: Limits,
        store: &dyn Store,
        (in_flight, waiting, rests): (Arc<InFlight>, Waiting<'w>, Arc<Mutex<RefusalBudget>>),
    ) -> ReadAhead<'w> {
        let (tell, told) = bounded(WAITING);
        let (spare, spares) = bounded(SPARE);
        let (room, rooms) = bounded(LARGE_WAITING);
        for () in [(); LARGE_WAITING] {
            // as many as fit
            let _ = room.try_send(());
        }
        let wanted = Arc::default();
        let reader = FileReader {
            inbox,
            limits,
            hash_key: store.hash_key(),
            prefetch: store.prefetch(),
            tell,
            spares,
            rooms,
            wanted: Arc::clone(&wanted),
            untold: VecDeque::new(),
            untold_bytes: 0,
            untold_since: Instant::now(),
            looked_at: 0,
            parts: Vec::new(),
            in_flight: Arc::clone(&in_flight),
            read_parts: 0,
            rests,
        };
        let to_read = Arc::clone(&entries);
        let running = Some(thread.run(move || {
            // nobody listens any more: then it is not needed any more
            let _ = reader.read(&to_read);
            in_flight.put_down(Hand::Reader);
        }));
        let (seen, next, blocks, gave_up) = (0, None, 0, false);
        ReadAhead {
            entries,
            seen,
            next,
            told,
            spare,
            room,
            wanted,
            running,
            waiting,
            blocks,
            gave_up,
        }
    }

    /// How many files were taken.
    pub fn taken(&self) -> usize {
        self.seen - usize::from(self.next.is_some())
    }

    /// Has no other file begun: those that are read already still come, so that nothing is read for
    /// nothing.
    pub fn begin_no_other(&self) {
        self.wanted.no_other.store(true, Ordering::Relaxed);
    }

    /// The next file; none when there is no other, or none came by then.
    pub(super) fn peek(&mut self, until: Option<Instant>) -> Option<&Upcoming> {
        while self.next.is_none() && self.seen < self.entries.len() {
            match self.receive(until)? {
                ReaderMessage::File(opened) => {
                    let entry = self.entries[self.seen].clone();
                    self.seen += 1;
                    let is_last = self.seen == self.entries.len();
                    self.next = Some(Upcoming { entry, opened, is_last });
                }
                // left of the file before, of which no more was wanted
                ReaderMessage::Part(part) => self.give_back(part),
                ReaderMessage::End(_) => {}
            }
        }
        self.next.as_ref()
    }

    /// Takes what was peeked at. Its parts come next.
    pub(super) fn take(&mut self) -> Option<Upcoming> {
        self.next.take()
    }

    /// The parts of the file that was taken last.
    pub(super) fn feed(&mut self) -> ReaderFeed<'_, 'w> {
        ReaderFeed { ahead: self, part: FeedPart { chunk: Chunk::default(), read: Ok(false) } }
    }

    /// None when the time is up, the wait was ended, or the thread has ended. When it ended in a
    /// panic, so does the writer: nobody must wait for what never comes.
    fn receive(&mut self, until: Option<Instant>) -> Option<ReaderMessage> {
        let told = loop {
            let look_at = Instant::now() + PATIENCE;
            let told = self.told.recv_deadline(until.map_or(look_at, |until| until.min(look_at)));
            let is_over = until.is_some_and(|until| until <= look_at);
            if is_over || !matches!(told, Err(RecvTimeoutError::Timeout)) || !self.waits_on() {
                break told;
            }
        };
        if matches!(told, Err(RecvTimeoutError::Disconnected))
            && let Some(running) = self.running.take()
            && let Err(panicked) = running.wait()
        {
            panic::resume_unwind(panicked);
        }
        told.ok()
    }

    /// Whether the thread, which has nothing to tell yet, is waited for any longer.
    fn waits_on(&mut self) -> bool {
        let blocks = self.wanted.blocks.load(Ordering::Relaxed);
        if mem::replace(&mut self.blocks, blocks) != blocks && (self.waiting)().is_break() {
            self.gave_up = true;
            // of no file
            self.wanted.nothing.store(usize::MAX, Ordering::Relaxed);
        }
        !self.gave_up
    }

    fn give_back(&self, part: FeedPart) {
        if part.is_large() {
            // there is room for as many as were taken
            let _ = self.room.try_send(());
        }
        // there are enough of them, or nobody fills them any more
        let _ = self.spare.try_send(part.chunk);
    }
}

impl Drop for ReadAhead<'_> {
    fn drop(&mut self) {
        // the thread stops at its next block, or where it would tell something
        self.wanted.nothing.store(usize::MAX, Ordering::Relaxed);
        self.told = never();
        self.room = bounded(0).0;
        if let Some(running) = self.running.take() {
            // the panic hook has told of a panic already
            let _ = running.wait();
        }
    }
}

/// The file that was taken last, as it was read.
pub(super) struct ReaderFeed<'a, 'w> {
    ahead: &'a mut ReadAhead<'w>,
    part: FeedPart,
}

impl ReaderFeed<'_, '_> {
    fn exchange(&mut self, chunk: Chunk) {
        let part = FeedPart { chunk, read: Ok(false) };
        let used = mem::replace(&mut self.part, part);
        self.ahead.give_back(used);
    }
}

impl Feed for ReaderFeed<'_, '_> {
    fn next(&mut self) -> Result<bool, Fault> {
        match self.ahead.receive(None) {
            Some(ReaderMessage::Part(FeedPart { chunk, read })) => {
                self.exchange(chunk);
                read
            }
            // no events, and whoever asked for this is told so at the next step
            None if self.ahead.gave_up => {
                self.exchange(Chunk::keyed(self.part.chunk.hash_key()));
                Ok(true)
            }
            _ => Err(Fault::Io(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn chunk(&self) -> &Chunk {
        &self.part.chunk
    }

    fn digest(&mut self) -> io::Result<Digest> {
        // events that are left need not be decoded
        self.ahead.wanted.no_events.store(self.ahead.seen, Ordering::Relaxed);
        loop {
            match self.ahead.receive(None) {
                Some(ReaderMessage::Part(part)) => self.ahead.give_back(part),
                Some(ReaderMessage::End(digest)) => return digest,
                // whoever asked for this is told so by what is left out
                None if self.ahead.gave_up => {
                    let (sha256, bytes, whole) = (String::new(), 0, false);
                    return Ok(Digest { sha256, bytes, whole });
                }
                Some(ReaderMessage::File(_)) | None => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}

impl Drop for ReaderFeed<'_, '_> {
    fn drop(&mut self) {
        self.ahead.wanted.nothing.store(self.ahead.seen, Ordering::Relaxed);
        self.exchange(Chunk::default());
    }
}

fn lock(rests: &Mutex<RefusalBudget>) -> MutexGuard<'_, RefusalBudget> {
    rests.lock().unwrap_or_else(PoisonError::into_inner)
}

mod file_reader;
#[cfg(test)]
mod tests;
