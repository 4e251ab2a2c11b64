//! Files that are written to after their move to done/: looked at again for a while, at growing
//! intervals, and copied back into the inbox. What is in done/ is never touched.

mod copy;
mod marks;
mod resume;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::Entry;
use super::folder::{self, Facts, Kind};
use super::readiness::{Moment, Observation, Readiness};
use super::safe_open::{self, Opened, Seen};

pub use copy::{Copied, Copy, NotCopied};
pub use marks::{MARKS_FILE, Mark};
pub use resume::Receipt;

/// For how long after its move a file is looked at again.
pub const WATCH_TIME: Duration = Duration::from_secs(600);

/// The most files that are looked at again; the newest stay.
pub const MOST_FILES: usize = 10_000;

/// How often one file is copied at most.
pub const MOST_COPIES: u32 = 3;

/// How many files are looked at in one turn at most.
pub const LOOKS: usize = 256;

/// How soon after its move a file is looked at first, and how long the pauses become.
const FIRST_LOOK: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The shortest pause between two turns.
const LEAST_PAUSE: Duration = Duration::from_millis(100);

/// After which time a copy that failed is tried again.
const AFTER_FAILURE: Duration = Duration::from_secs(30);

/// A file that was moved to done/.
#[derive(Debug)]
pub struct Moved {
    /// Where it lies.
    pub path: PathBuf,
    /// The same, below done/.
    pub entry: Entry,
    seen: Seen,
}

impl Moved {
    /// What became of an entry of the inbox that was read as `opened` and now lies at `path`.
    pub fn new(from: &Entry, path: PathBuf, opened: &Opened) -> Moved {
        let name = path.file_name().unwrap_or(&from.name).to_owned();
        let entry = Entry { folder: from.folder.clone(), name };
        Moved { path, entry, seen: opened.seen() }
    }
}

/// Size and time of last writing: whoever writes to a file changes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    mtime: (i64, u32),
}

impl Stamp {
    fn of(facts: &Facts) -> Stamp {
        Stamp { bytes: facts.bytes, mtime: facts.mtime }
    }
}

/// One file that is looked at again.
#[derive(Debug)]
struct Watched {
    entry: Entry,
    batch: u64,
    // as it was taken in, or copied last; none when it is known to be another
    stamp: Option<Stamp>,
    moved: Instant,
    // it changed: how it looks since
    observation: Option<Observation>,
    copies: u32,
}

/// A file in done/ that changed after its move and stands still again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Where it is, below done/.
    pub entry: Entry,
    /// The batch that it brought.
    pub batch: u64,
    /// How often it was copied before.
    pub copies: u32,
    key: u64,
}

/// The files that were moved lately.
#[derive(Debug, Default)]
pub struct LateWrites {
    // in the order of their moves
    files: BTreeMap<u64, Watched>,
    keys: HashMap<Entry, u64>,
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    next_key: u64,
    // no turn before
    rest_until: Option<Instant>,
}

impl LateWrites {
    /// A file was moved to done/ just now.
    pub fn moved(&mut self, moved: &Moved, batch: u64, now: Instant) {
        let stamp = Some(Stamp::of(moved.seen.facts()));
        self.watch(Watched {
            entry: moved.entry.clone(),
            batch,
            stamp,
            moved: now,
            observation: None,
            copies: 0,
        });
    }

    fn watch(&mut self, file: Watched) {
        let key = self.next_key;
        self.next_key += 1;
        // what had that name before lies there no more
        if let Some(before) = self.keys.insert(file.entry.clone(), key) {
            self.files.remove(&before);
        }
        let first = if file.stamp.is_none() { Duration::ZERO } else { FIRST_LOOK };
        self.due.push(Reverse((file.moved + first, key)));
        self.files.insert(key, file);
        while self.files.len() > MOST_FILES {
            let oldest = self.files.first_key_value().map(|(key, _)| *key);
            oldest.into_iter().for_each(|key| self.forget(key));
        }
        // what was replaced or forgotten leaves its turn behind
        if self.due.len() > 2 * MOST_FILES {
            let files = &self.files;
            self.due.retain(|Reverse((_, key))| files.contains_key(key));
        }
    }

    fn forget(&mut self, key: u64) {
        if let Some(file) = self.files.remove(&key)
            && self.keys.get(&file.entry) == Some(&key)
        {
            self.keys.remove(&file.entry);
        }
    }

    /// When the next turn is due; none while there is nothing to look at.
    pub fn due(&self) -> Option<Instant> {
        let Reverse((due, _)) = self.due.peek()?;
        Some(self.rest_until.map_or(*due, |rest| rest.max(*due)))
    }

    /// Looks at files whose turn it is, at most [`LOOKS`], and answers those that changed and stand
    /// still, by the rule of the inbox. Each of those is to be settled by one of the calls below.
    pub fn turn(
        &mut self,
        done: &Path,
        settle: Duration,
        now: Instant,
        wall: SystemTime,
    ) -> Vec<Changed> {
        if self.due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.rest_until = Some(now + LEAST_PAUSE);
        let moment = Moment { now, wall, trust_wall: true };
        let mut changed = Vec::new();
        for _ in 0..LOOKS {
            match self.due.peek() {
                Some(Reverse((due, _))) if *due <= now => {}
                _ => break,
            }
            if let Some(Reverse((_, key))) = self.due.pop() {
                changed.extend(self.look(done, settle, moment, key));
            }
        }
        changed
    }

    /// Makes the turn of all due, for a process that ends soon.
    pub fn hurry(&mut self, now: Instant) {
        self.rest_until = None;
        self.due = self.files.keys().map(|key| Reverse((now, *key))).collect();
    }

    /// The next turn need not wait for a while after the last.
    pub fn no_rest(&mut self) {
        self.rest_until = None;
    }

    fn look(&mut self, done: &Path, settle: Duration, moment: Moment, key: u64) -> Option<Changed> {
        let file = self.files.get_mut(&key)?;
        let held = folder::open_source(done, file.entry.folder.as_deref());
        let found = held.and_then(|held| Ok((Facts::at(&held, &file.entry.name)?, held)));
        let (facts, held) = match found {
            Ok((facts, held)) if facts.kind == Kind::File => (facts, held),
            Err(error) if !safe_open::is_not_that_folder(&error) => {
                self.due.push(Reverse((moment.now + LONGEST_PAUSE, key)));
                return None;
            }
            // it was removed, or is no file any more
            _ => {
                self.forget(key);
                return None;
            }
        };
        if file.stamp == Some(Stamp::of(&facts)) {
            file.observation = None;
            let age = moment.now.saturating_duration_since(file.moved);
            let pause = (age / 4).clamp(FIRST_LOOK, LONGEST_PAUSE);
            match age < WATCH_TIME {
                true => self.due.push(Reverse((moment.now + pause, key))),
                false => self.forget(key),
            }
            return None;
        }
        // the producer's own name for it is no sign that it is whole
        let facts = Facts { links: 1, ..facts };
        let mut observation = Observation::new(file.observation.as_ref(), facts, false, moment, 0);
        let is_written = || {
            let file = folder::open_file(&held, &file.entry.name).ok()?;
            safe_open::being_written(&file)
        };
        let verdict = observation.judge(moment, settle, is_written);
        file.observation = Some(observation);
        match verdict {
            Readiness::Wait(_, wait) => {
                self.due.push(Reverse((moment.now + wait.max(LEAST_PAUSE), key)));
                None
            }
            Readiness::Take => {
                let Watched { entry, batch, copies, .. } = file;
                Some(Changed { entry: entry.clone(), batch: *batch, copies: *copies, key })
            }
        }
    }

    /// It was copied as it is now; it is looked at on.
    pub fn copied(&mut self, changed: &Changed, copied: &Copied, now: Instant) {
        self.settle(changed, copied, now, 1);
    }

    /// It holds what it held when it was taken in, or copied before; it is looked at on.
    pub fn same(&mut self, changed: &Changed, copied: &Copied, now: Instant) {
        self.settle(changed, copied, now, 0);
    }

    fn settle(&mut self, changed: &Changed, copied: &Copied, now: Instant, copies: u32) {
        if let Some(file) = self.files.get_mut(&changed.key) {
            file.stamp = Some(copied.stamp);
            file.observation = None;
            file.copies += copies;
            self.due.push(Reverse((now + FIRST_LOOK, changed.key)));
        }
    }

    /// It could not be copied: it is tried again later, or, should it have changed meanwhile, once
    /// it stands still.
    pub fn not_copied(&mut self, changed: &Changed, why: &NotCopied, now: Instant) {
        let wait = match why {
            NotCopied::Gone | NotCopied::TooLarge(_) => return self.forget(changed.key),
            NotCopied::Changing => FIRST_LOOK,
            NotCopied::Io(_) => AFTER_FAILURE,
        };
        if let Some(file) = self.files.get_mut(&changed.key) {
            file.observation = None;
            self.due.push(Reverse((now + wait, changed.key)));
        }
    }

    /// It was copied often enough: it is not looked at any more.
    pub fn give_up(&mut self, changed: &Changed) {
        self.forget(changed.key);
    }

    /// What the next process has to know: which files were copied, and as what.
    pub fn marks(&self) -> Vec<Mark> {
        self.files.values().filter(|file| file.copies > 0).filter_map(Mark::of).collect()
    }
}

/// Keeps the marks, and nothing else is lost should that fail.
///
/// # Errors
/// When the disk refuses.
pub fn keep_marks(root: &Path, marks: &[Mark]) -> io::Result<()> {
    marks::keep(root, marks)
}

#[cfg(test)]
mod tests;
