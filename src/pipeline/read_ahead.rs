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

use crossbeam_channel::{Receiver, RecvTimeoutError, SendError, Sender, bounded, never};

use super::ingest::Feed;
use super::refusal_budget::RefusalBudget;
use crate::decode::{Decoder, Digest, Fault, Limits};
use crate::model::event::{Chunk, HashKey};
use crate::spool::Entry;
use crate::spool::in_flight::{Hand, InFlight};
use crate::spool::safe_open::{self, OpenError, Opened};
use crate::store::{Prefetch, Store};

use super::reader_thread::{ReaderThread, Running};

/// How many messages may wait for the writer: three for a file of one chunk.
const WAITING: usize = 3 * 64;

/// From how many bytes of text on a chunk is large, and how many of those may wait: what the writer
/// has to do while the scout looks at many, and room for what is read while the writer syncs.
/// Together they bound the memory, however large the files are: small ones are many, and take little.
const LARGE_BYTES: usize = 32 << 10;
const LARGE_WAITING: usize = 16;

/// How many used chunks are kept, to be filled again.
const SPARE: usize = 40;

/// How many files of one chunk, or how many bytes of text, are read before the first of them is
/// synced, whose bytes are on their way to the disk meanwhile: enough to save most of the waiting,
/// few enough that the writer need not wait.
const AHEAD_FILES: usize = 64;
const AHEAD_BYTES: usize = 2 << 20;

/// For how long a file that is read is kept for that: files that take long to unpack are told of one by
/// one, so that the writer can look after others between them.
const AHEAD_TIME: Duration = Duration::from_millis(100);

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

/// The thread's end.
struct FileReader {
    inbox: PathBuf,
    limits: Limits,
    hash_key: HashKey,
    prefetch: Option<Box<dyn Prefetch>>,
    tell: Sender<ReaderMessage>,
    spares: Receiver<Chunk>,
    rooms: Receiver<()>,
    wanted: Arc<Wanted>,
    // files of one chunk that are read, not synced, and not told of
    untold: VecDeque<Whole>,
    untold_bytes: usize,
    // when the first of them was read
    untold_since: Instant,
    // how many of them, from the first on, the scout has looked at
    looked_at: usize,
    // parts of a file that the scout has not looked at
    parts: Vec<FeedPart>,
    in_flight: Arc<InFlight>,
    // of the file that is being read
    read_parts: u32,
    rests: Arc<Mutex<RefusalBudget>>,
}

/// A file that was read to its end.
struct Whole {
    opened: Result<Arc<Opened>, OpenError>,
    read: Option<(FeedPart, io::Result<Digest>)>,
}

/// Nobody listens any more.
struct Gone;

impl<T> From<SendError<T>> for Gone {
    fn from(_: SendError<T>) -> Gone {
        Gone
    }
}

impl FileReader {
    fn read(mut self, entries: &[Entry]) -> Result<(), Gone> {
        for (number, entry) in entries.iter().enumerate() {
            if self.untold.is_empty() {
                self.untold_since = Instant::now();
            }
            if self.wanted.no_other.load(Ordering::Relaxed) {
                break;
            }
            match safe_open::open_entry(&self.inbox, entry) {
                Ok(opened) => {
                    self.in_flight.take(Hand::Reader, entry, &opened);
                    self.read_parts = 0;
                    self.file(number, Arc::new(opened), entries.len() > 1)?;
                }
                Err(error) => self.untold.push_back(Whole { opened: Err(error), read: None }),
            }
            if self.untold_since.elapsed() >= AHEAD_TIME {
                self.in_flight.put_down(Hand::Reader);
                self.tell_all()?;
            }
            while self.untold.len() >= AHEAD_FILES || self.untold_bytes >= AHEAD_BYTES {
                // whoever listens may take long, which is not for a file to answer for
                self.in_flight.put_down(Hand::Reader);
                self.tell_first()?;
            }
        }
        self.tell_all()
    }

    /// Reads a file to its end: a small one of a single chunk is told of later, the parts of others
    /// one by one.
    fn file(&mut self, number: usize, opened: Arc<Opened>, has_company: bool) -> Result<(), Gone> {
        let file = Arc::clone(&opened);
        let wanted = Arc::clone(&self.wanted);
        let goes_on = move || {
            wanted.blocks.fetch_add(1, Ordering::Relaxed);
            wanted.nothing.load(Ordering::Relaxed) <= number
        };
        let decoder = Decoder::sized(file.file(), self.limits.clone(), file.bytes());
        let decoder = decoder.allowing_rest(lock(&self.rests).left(Instant::now()));
        let mut decoder = decoder.watched(Box::new(goes_on));
        let is_large = file.bytes() > AHEAD_BYTES as u64;
        if is_large {
            self.begin_parts(Arc::clone(&opened))?;
            self.in_flight.get_on(Hand::Reader, 0);
        }
        let mut part = self.part(&mut decoder);
        if !is_large {
            if !matches!(part.read, Ok(true)) {
                let digest = self.digest(decoder);
                if has_company && matches!(part.read, Ok(false)) {
                    file.begin_sync();
                }
                self.untold_bytes += part.chunk.text_bytes();
                self.untold.push_back(Whole { opened: Ok(opened), read: Some((part, digest)) });
                return Ok(());
            }
            self.begin_parts(opened)?;
        }
        let Wanted { no_events, nothing, .. } = &*Arc::clone(&self.wanted);
        let is_left = |wanted: &AtomicUsize| wanted.load(Ordering::Relaxed) > number;
        while matches!(part.read, Ok(true)) && !is_left(no_events) && !is_left(nothing) {
            self.parts.push(part);
            if self.has_many_parts() {
                self.tell_parts()?;
            }
            part = self.part(&mut decoder);
        }
        let is_good = matches!(part.read, Ok(false));
        self.parts.push(part);
        self.tell_parts()?;
        let digest = match is_left(nothing) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => self.digest(decoder).and_then(|digest| sync(&file, is_good).map(|()| digest)),
        };
        Ok(self.tell.send(ReaderMessage::End(digest))?)
    }

    /// A file that is told of part by part, behind those that are still untold.
    fn begin_parts(&mut self, opened: Arc<Opened>) -> Result<(), Gone> {
        self.in_flight.put_down(Hand::Reader);
        self.tell_all()?;
        Ok(self.tell.send(ReaderMessage::File(Ok(opened)))?)
    }

    fn part<R: io::Read>(&mut self, decoder: &mut Decoder<R>) -> FeedPart {
        if self.read_parts > 0 {
            self.in_flight.get_on(Hand::Reader, self.read_parts);
        }
        self.read_parts += 1;
        let spare = self.spares.try_recv().ok();
        let mut chunk = spare
            .filter(|chunk| chunk.hash_key() == self.hash_key)
            .unwrap_or_else(|| Chunk::keyed(self.hash_key));
        let begun = Instant::now();
        let read = decoder.read_chunk(&mut chunk);
        if matches!(read, Err(Fault::Refused(_))) {
            lock(&self.rests).spend(begun.elapsed());
        }
        FeedPart { chunk, read }
    }

    /// What the raw file was; of one that is refused the rest is read, as far as there is time.
    fn digest<R: io::Read>(&self, decoder: Decoder<R>) -> io::Result<Digest> {
        let begun = Instant::now();
        let digest = decoder.digest();
        lock(&self.rests).spend(begun.elapsed());
        digest
    }

    fn has_many_parts(&self) -> bool {
        let chunks = || self.parts.iter().map(|part| &part.chunk);
        let at_once = self.prefetch.as_ref().map_or(1, |prefetch| prefetch.ids_at_once());
        chunks().map(Chunk::len).sum::<usize>() >= at_once
            || chunks().map(Chunk::text_bytes).sum::<usize>() >= AHEAD_BYTES
    }

    fn tell_parts(&mut self) -> Result<(), Gone> {
        self.in_flight.put_down(Hand::Reader);
        if let Some(prefetch) = &mut self.prefetch {
            let chunks = self.parts.iter_mut().map(|part| &mut part.chunk);
            prefetch.look(&mut chunks.collect::<Vec<_>>());
        }
        mem::take(&mut self.parts).into_iter().try_for_each(|part| self.tell_part(part))
    }

    /// Lets the scout look at as many files that are not told of as it likes.
    fn look(&mut self) {
        let Some(prefetch) = &mut self.prefetch else { return };
        let at_once = prefetch.ids_at_once();
        let (mut chunks, mut ids) = (Vec::new(), 0);
        for whole in self.untold.iter_mut().skip(self.looked_at) {
            if ids >= at_once {
                break;
            }
            self.looked_at += 1;
            if let Some((part, _)) = &mut whole.read {
                ids += part.chunk.len();
                chunks.push(&mut part.chunk);
            }
        }
        prefetch.look(&mut chunks);
    }

    fn tell_all(&mut self) -> Result<(), Gone> {
        while !self.untold.is_empty() {
            self.tell_first()?;
        }
        Ok(())
    }

    fn tell_first(&mut self) -> Result<(), Gone> {
        if self.looked_at == 0 {
            self.look();
        }
        let Some(Whole { opened, read }) = self.untold.pop_front() else { return Ok(()) };
        self.looked_at = self.looked_at.saturating_sub(1);
        let file = opened.as_ref().ok().cloned();
        self.tell.send(ReaderMessage::File(opened))?;
        let (Some(file), Some((part, digest))) = (file, read) else { return Ok(()) };
        self.untold_bytes -= part.chunk.text_bytes();
        let is_good = matches!(part.read, Ok(false));
        self.tell_part(part)?;
        // behind its events: they can be judged meanwhile
        let digest = digest.and_then(|digest| sync(&file, is_good).map(|()| digest));
        Ok(self.tell.send(ReaderMessage::End(digest))?)
    }

    fn tell_part(&self, part: FeedPart) -> Result<(), Gone> {
        if part.is_large() {
            self.rooms.recv().map_err(|_| Gone)?;
        }
        Ok(self.tell.send(ReaderMessage::Part(part))?)
    }
}

/// Before a commit counts them, the producer's bytes are made durable: a power cut must not leave
/// their counts without the file. Of a file that is refused nothing is counted.
fn sync(file: &Opened, is_good: bool) -> io::Result<()> {
    if is_good { file.sync() } else { Ok(()) }
}

#[cfg(test)]
mod tests;
