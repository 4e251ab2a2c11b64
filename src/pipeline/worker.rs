//! The only writer: one file at a time, and what a failure means for it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use super::error_class::Operation;
pub use super::error_class::{Failure, Scope};
pub use super::group_commit::Pace;
use super::group_commit::{GROUP_FILES, Taken};
use super::ingest::{RefusedBatch, Step, Watcher};
pub use super::read_ahead::{ReadAhead, Waiting};
use super::reader_thread::ReaderThread;
use super::refusal_budget::RefusalBudget;
use crate::decode::Limits;
use crate::engine::Admission;
use crate::model::refusal::{Code, Refusal};
use crate::spool::advice;
use crate::spool::blame::{self, MoveBlame};
use crate::spool::in_flight::{Hand, InFlight};
use crate::spool::late_writes::Moved;
use crate::spool::move_error::MoveError;
use crate::spool::safe_open::{self, OpenError, Opened, Seen};
use crate::spool::{Entry, Spool};
use crate::store::{Committed, Delivery, Store};

/// How often a commit of unknown fate is asked after before that is left for later.
pub(super) const ASK_AGAIN: u32 = 3;

/// How often it is logged that this is done.
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// What to do about a folder out of which nothing can be moved.
const NOT_OURS_TO_MOVE: &str = "its folder keeps us from moving what others put there (owner, mode, \
                                sticky bit): have folders of sources made by the user that runs \
                                windowflow, with mode 3730";

/// What became of a file.
#[derive(Debug)]
pub enum FileOutcome {
    /// It is in, durably, and lies in done/.
    Done(Committed, Box<Moved>),
    /// It was refused, and lies in failed/ with its reason.
    Failed(Box<RefusedBatch>, PathBuf),
    /// It was not complete after all: back in line.
    NotYet,
    /// It went away, or is another file by now; nothing of it is in.
    Gone,
    /// It is in, but went away or was replaced before it could be moved.
    Vanished(Committed),
    /// We were told to stop: it stays where it is, and nothing of it is in.
    Stopped,
    /// A fault of ours: it stays where it is.
    Failure(Failure),
}

/// Takes files in and puts them where they belong.
pub struct Worker {
    pub(super) spool: Spool,
    pub(super) store: Box<dyn Store>,
    pub(super) limits: Limits,
    pub(super) settle: Duration,
    pub(super) admission: Option<Admission>,
    pub(super) unfinished: HashMap<Entry, Unfinished>,
    // when it was last logged that the fate of a commit is asked after
    pub(super) doubted: Option<Instant>,
    pub(super) in_flight: Arc<InFlight>,
    // none: there was no room for it
    pub(super) reader: Option<ReaderThread>,
    // the hashes of files whose timestamps in seconds are taken as they stand
    pub(super) accepted_seconds: Arc<HashSet<String>>,
    // shared by all that is read ahead
    pub(super) rests: Arc<Mutex<RefusalBudget>>,
}

/// What is known of a file whose last step failed, so that no step is done twice.
pub(super) struct Unfinished {
    pub(super) seen: Seen,
    pub(super) delivery: Delivery,
    pub(super) fate: FileFate,
}

/// How far a file has come.
pub(super) enum FileFate {
    /// It may be in or not: the store knows.
    Unknown,
    /// It is in.
    Committed(Committed),
    /// Its refusal may be in the store or not.
    Refusing(Box<RefusedBatch>),
    /// Its refusal is in the store.
    Refused(Box<RefusedBatch>),
}

impl Worker {
    /// A worker for that spool and store. A file that ends too early is not refused while it is
    /// younger than `settle`.
    pub fn new(spool: Spool, store: Box<dyn Store>, limits: Limits, settle: Duration) -> Worker {
        let in_flight = Arc::default();
        let unfinished = HashMap::new();
        // started now, while there is memory; if there is none, it is tried again when it is needed
        let reader = ReaderThread::start().ok();
        Worker {
            spool,
            store,
            limits,
            settle,
            admission: None,
            unfinished,
            doubted: None,
            in_flight,
            reader,
            accepted_seconds: Arc::default(),
            rests: Arc::new(Mutex::new(RefusalBudget::new())),
        }
    }

    /// The same, which notes what it has in hand.
    pub fn noting(self, in_flight: Arc<InFlight>) -> Worker {
        Worker { in_flight, ..self }
    }

    /// The same, with a rule for the sources that may send.
    pub fn admitting(self, admission: Admission) -> Worker {
        Worker { admission: Some(admission), ..self }
    }

    /// The fate of a commit is asked after: logged once, then once a minute.
    pub(super) fn doubt(&mut self, text: &str) {
        match is_due(&mut self.doubted, Instant::now()) {
            true => log::warn!("{text}; asking it now"),
            false => log::debug!("{text}; asking it again"),
        }
    }

    /// The store, for what is not a file.
    pub fn store(&mut self) -> &mut dyn Store {
        self.store.as_mut()
    }

    /// Forgets what is known of files that went away unfinished: all but these.
    pub fn keep_unfinished(&mut self, is_there: impl Fn(&Entry) -> bool) {
        self.unfinished.retain(|entry, _| is_there(entry));
    }

    /// Whether there are files whose last step failed.
    pub fn has_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Changes the bounds for the files to come.
    pub fn set_limits(&mut self, limits: Limits, settle: Duration) {
        self.limits = limits;
        self.settle = settle;
    }

    /// Takes files with these hashes (SHA-256 of the raw bytes) as they stand, though their
    /// timestamps look like seconds.
    pub fn accept_seconds(&mut self, hashes: Arc<HashSet<String>>) {
        self.accepted_seconds = hashes;
    }

    /// Changes which sources may send, for the files to come.
    pub fn set_admission(&mut self, admission: Admission) {
        self.admission = Some(admission);
    }

    /// Begins to read those files of the inbox, ahead of what takes them in. `waiting` is told
    /// while the reader thread moves on and is waited for.
    ///
    /// # Errors
    /// When there is no reader thread yet and no room for one.
    pub fn read_ahead<'w>(
        &mut self,
        entries: Vec<Entry>,
        waiting: Waiting<'w>,
    ) -> Result<ReadAhead<'w>, Failure> {
        let thread = match self.reader.take() {
            Some(thread) => thread,
            None => ReaderThread::start().map_err(|error| {
                let what = "no thread to read with";
                Failure::with_spool("no thread", what, self.spool.root(), &error)
            })?,
        };
        let inbox = self.spool.inbox().to_owned();
        let (limits, in_flight) = (self.limits.clone(), Arc::clone(&self.in_flight));
        let besides = (in_flight, waiting, Arc::clone(&self.rests));
        let store = self.store.as_ref();
        let ahead = ReadAhead::start(&thread, inbox, entries.into(), limits, store, besides);
        self.reader = Some(thread);
        Ok(ahead)
    }

    /// Moves links into failed/, as many as make a group: links are never followed.
    pub fn refuse_links(
        &mut self,
        entries: &[&Entry],
        pace: &mut dyn Pace,
    ) -> Vec<(Entry, FileOutcome)> {
        let mut group = Vec::new();
        for &entry in entries.iter().take(GROUP_FILES) {
            if pace.begin(entry).is_break() {
                break;
            }
            let refusal = Refusal::new(
                Code::NotARegularFile,
                format!("inbox/{entry} is a symbolic link, and links are never followed"),
                "drop the file itself: copy it under a name that begins with a dot, then rename \
                 it; or link it in with ln, without -s",
            );
            let so_far = self.record(never_opened(entry, refusal, self.store.now_ms()));
            group.push(Taken { entry: entry.clone(), opened: None, delivery: None, so_far });
        }
        self.end(group, pace)
    }

    /// Moves a file into failed/ of which so many processes died, without reading it.
    pub fn refuse_deadly(
        &mut self,
        entry: &Entry,
        deaths: u32,
        pace: &mut dyn Pace,
    ) -> Vec<(Entry, FileOutcome)> {
        if pace.begin(entry).is_break() {
            return Vec::new();
        }
        let refusal = Refusal::new(
            Code::Crashed,
            format!(
                "windowflow died {deaths} times in a row at the same place of inbox/{entry}: it \
                 crashed, or was killed, perhaps for want of memory"
            ),
            format!(
                "look for what ended it in its log and in the kernel's (journalctl -k); if it was \
                 not the file, put that back (windowflow retry {entry}); if it was, report this as \
                 a bug, with the file"
            ),
        );
        let so_far = self.record(never_opened(entry, refusal, self.store.now_ms()));
        let taken = Taken { entry: entry.clone(), opened: None, delivery: None, so_far };
        self.end(vec![taken], pace)
    }

    pub(super) fn unread(&self, entry: &Entry, code: Code, error: &OpenError) -> Box<RefusedBatch> {
        let refusal = Refusal::new(
            code,
            format!("inbox/{entry} cannot be read: {error}"),
            format!(
                "{}; then put it back (windowflow retry {entry}); files are dropped with umask 027, \
                 in a group of windowflow's user",
                advice::readable(&entry.path_in(self.spool.inbox()))
            ),
        );
        never_opened(entry, refusal, self.store.now_ms())
    }

    /// Whether what was refused may still have been on its way: it changed while it was read,
    /// somebody has it open for writing, or it ends too early and is young.
    pub(super) fn is_incomplete(&self, opened: &Opened, refused: &RefusedBatch) -> bool {
        if !opened.unchanged().unwrap_or(false) || opened.is_being_written() {
            return true;
        }
        let ends_early = matches!(refused.refusal.code, Code::Truncated | Code::Empty);
        // a time of writing that lies ahead of the clock says nothing about its age
        let age = SystemTime::now().duration_since(opened.modified());
        ends_early && age.is_ok_and(|age| age < self.settle)
    }

    /// A file that could not be moved to `base`. Only what is to blame is held up: the file, its
    /// folder, or all files.
    pub(super) fn unmovable(
        &self,
        entry: &Entry,
        base: &Path,
        what: &str,
        error: &MoveError,
    ) -> FileOutcome {
        let MoveError::Io(path, error) = error else {
            return FileOutcome::Failure(Failure::passing("unmovable", format!("{what}: {error}")));
        };
        let failure = Failure::with_spool("not moved", what, path, error);
        FileOutcome::Failure(match blame::of_move(&self.spool, base, entry) {
            MoveBlame::Spool => failure,
            // the error names the file, whose own rights do not matter
            MoveBlame::Folder if *path == entry.path_in(self.spool.inbox()) => {
                let text = format!("{what}: {error}; {NOT_OURS_TO_MOVE}");
                Failure { reach: Scope::Folder, text, ..failure }
            }
            MoveBlame::Folder => Failure { reach: Scope::Folder, ..failure },
            MoveBlame::File => Failure { reach: Scope::File, ..failure },
        })
    }

    /// A file that could not be opened, read or synced.
    pub(super) fn unreadable(&self, entry: &Entry, error: &io::Error) -> FileOutcome {
        let (what, path) =
            (format!("cannot read inbox/{entry}"), entry.path_in(self.spool.inbox()));
        FileOutcome::Failure(Failure::of_system(Operation::File, "unread", &what, &path, error))
    }
}

/// Whether it is time to log something that was last logged then; if so, it is from now on.
fn is_due(said: &mut Option<Instant>, now: Instant) -> bool {
    let is_due = said.is_none_or(|said| now.saturating_duration_since(said) >= SAY_AGAIN);
    if is_due {
        *said = Some(now);
    }
    is_due
}

/// The refusal of what was never opened.
fn never_opened(entry: &Entry, refusal: Refusal, now_ms: i64) -> Box<RefusedBatch> {
    Box::new(RefusedBatch {
        file: entry.shown(),
        source: entry.source().to_owned(),
        sha256: None,
        bytes: None,
        refused_at_ms: now_ms,
        refusal,
    })
}

/// What stands beside a failed file.
pub(super) fn reason(refused: &RefusedBatch) -> Vec<u8> {
    // strings and numbers only: there is nothing in it that cannot be written as JSON
    let mut text = serde_json::to_vec_pretty(refused).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Watches over a file of the inbox while it is read.
pub(super) struct Watched<'a> {
    pub(super) inbox: &'a Path,
    pub(super) entry: &'a Entry,
    pub(super) opened: &'a Opened,
    // the producer's bytes are durable
    pub(super) is_synced: bool,
    pub(super) pace: &'a mut dyn Pace,
    pub(super) in_flight: &'a InFlight,
    pub(super) steps: u32,
}

impl Watcher for Watched<'_> {
    /// That the store is waited for is not for the file to answer for.
    fn begun(&mut self) {
        self.in_flight.take(Hand::Writer, self.entry, self.opened);
    }

    fn step(&mut self, step: Step) -> ControlFlow<()> {
        self.steps += 1;
        self.in_flight.get_on(Hand::Writer, self.steps);
        self.pace.step(step)
    }

    /// The producer's bytes are made durable before the commit that counts them: a power cut must
    /// not leave their counts without the file.
    fn still_the_same(&mut self) -> io::Result<bool> {
        // what remains is no matter of what the file holds, and can take its time
        self.in_flight.put_down(Hand::Writer);
        if !self.is_synced {
            self.opened.sync()?;
        }
        // a writer that opened it since the scan may add to it: asked before its content, so that
        // what such a writer wrote and closed is seen, too
        if self.opened.is_being_written() {
            return Ok(false);
        }
        // one that was taken back or replaced meanwhile is not what lies there
        Ok(self.opened.unchanged()? && safe_open::leads_to(self.inbox, self.entry, self.opened)?)
    }
}

#[cfg(test)]
mod tests;
