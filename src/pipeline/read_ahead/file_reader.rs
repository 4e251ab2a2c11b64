//! The reader thread's side of reading ahead: opens, decodes and syncs files, and tells of them in
//! order.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, SendError, Sender};

use super::{FeedPart, ReaderMessage, Wanted, lock};
use crate::decode::{Decoder, Digest, Fault, Limits};
use crate::model::event::{Chunk, HashKey};
use crate::pipeline::refusal_budget::RefusalBudget;
use crate::spool::Entry;
use crate::spool::in_flight::{Hand, InFlight};
use crate::spool::safe_open::{self, OpenError, Opened};
use crate::store::Prefetch;

/// How many files of one chunk, or how many bytes of text, are read before the first of them is
/// synced, whose bytes are on their way to the disk meanwhile: enough to save most of the waiting,
/// few enough that the writer need not wait.
const AHEAD_FILES: usize = 64;
const AHEAD_BYTES: usize = 2 << 20;

/// For how long a file that is read is kept for that: files that take long to unpack are told of one by
/// one, so that the writer can look after others between them.
const AHEAD_TIME: Duration = Duration::from_millis(100);

/// The thread's end.
pub(super) struct FileReader {
    pub(super) inbox: PathBuf,
    pub(super) limits: Limits,
    pub(super) hash_key: HashKey,
    pub(super) prefetch: Option<Box<dyn Prefetch>>,
    pub(super) tell: Sender<ReaderMessage>,
    pub(super) spares: Receiver<Chunk>,
    pub(super) rooms: Receiver<()>,
    pub(super) wanted: Arc<Wanted>,
    // files of one chunk that are read, not synced, and not told of
    pub(super) untold: VecDeque<Whole>,
    pub(super) untold_bytes: usize,
    // when the first of them was read
    pub(super) untold_since: Instant,
    // how many of them, from the first on, the scout has looked at
    pub(super) looked_at: usize,
    // parts of a file that the scout has not looked at
    pub(super) parts: Vec<FeedPart>,
    pub(super) in_flight: Arc<InFlight>,
    // of the file that is being read
    pub(super) read_parts: u32,
    pub(super) rests: Arc<Mutex<RefusalBudget>>,
}

/// A file that was read to its end.
pub(super) struct Whole {
    opened: Result<Arc<Opened>, OpenError>,
    read: Option<(FeedPart, io::Result<Digest>)>,
}

/// Nobody listens any more.
pub(super) struct Gone;

impl<T> From<SendError<T>> for Gone {
    fn from(_: SendError<T>) -> Gone {
        Gone
    }
}

impl FileReader {
    pub(super) fn read(mut self, entries: &[Entry]) -> Result<(), Gone> {
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
                // that the writer took its time is no reason to tell of the others
                self.untold_since = Instant::now();
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
