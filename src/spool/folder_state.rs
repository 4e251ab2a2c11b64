//! What is remembered of one folder of the inbox, and how a single name in it is judged.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use rustix::fs::FileType;

use super::folder::{self, Facts, Kind};
use super::name::Ignored;
use super::readiness::{Moment, NotReady, Observation, Readiness};
use super::scan::{Depth, Oddity, Scanner};
use super::{Entry, name, safe_open};

/// What is remembered of one folder.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) files: HashMap<OsString, Known>,
    pub(super) links: BTreeSet<OsString>,
    pub(super) odd: BTreeMap<OsString, Oddity>,
    // the folder itself cannot be looked into
    pub(super) fault: Option<Oddity>,
    pub(super) ignored: usize,
    // in which it was last listed
    pub(super) round: u64,
}

/// A file that is there.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) observation: Observation,
    // why it is not ready, and when to look again
    pub(super) waits: Option<(NotReady, Instant)>,
    // since when it is ready; of no use while it is not
    ready_since: Instant,
}

/// What holds for all names of one look.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) ignored: &'a Ignored,
    pub(super) moment: Moment,
    pub(super) settle: Duration,
    pub(super) round: u64,
    pub(super) depth: Depth,
}

impl Scanner {
    /// Since when that file is ready; none when it is not, or is not known.
    pub fn ready_since(&self, entry: &Entry) -> Option<Instant> {
        let known = self.seen.get(&entry.folder)?.files.get(&entry.name)?;
        known.waits.is_none().then_some(known.ready_since)
    }
}

impl Seen {
    pub(super) fn is_busy(&self) -> bool {
        !self.files.is_empty()
            || !self.links.is_empty()
            || !self.odd.is_empty()
            || self.fault.is_some()
    }

    /// Looks at one name; whether it is a folder.
    pub(super) fn judge(
        &mut self,
        held: &OwnedFd,
        (name, file_type): (&OsStr, FileType),
        came: bool,
        look: Look<'_>,
    ) -> io::Result<bool> {
        if look.depth == Depth::Names
            && file_type == FileType::RegularFile
            && !came
            && let Some(known) = self.files.get_mut(name).filter(|known| known.waits.is_none())
        {
            known.observation.round = look.round;
            return Ok(false);
        }
        // not every file system says the type when it lists
        let looked_up = match file_type {
            FileType::RegularFile | FileType::Unknown => match Facts::at(held, name) {
                Ok(facts) => Some(facts),
                // it went away since it was listed
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.forget(name);
                    return Ok(false);
                }
                // a folder that can be listed and not searched is not an empty one
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
                Err(error) => {
                    self.set_odd(name, Oddity::Unreadable(error.to_string()));
                    return Ok(false);
                }
            },
            _ => None,
        };
        let kind = looked_up.map_or_else(|| Kind::of(file_type), |facts| facts.kind);
        let bytes = name.as_bytes();
        let is_left_alone = match kind {
            Kind::Folder => name::is_hidden(bytes),
            _ => look.ignored.covers(bytes),
        };
        match (kind, looked_up) {
            _ if is_left_alone => {
                self.forget(name);
                // single names are not counted: whether they were before is not known
                self.ignored += usize::from(look.depth != Depth::Asked);
            }
            (Kind::File, Some(facts)) => self.judge_file(held, name, facts, came, look),
            (Kind::Folder, _) => {
                self.forget(name);
                return Ok(true);
            }
            (Kind::Link, _) => {
                self.forget(name);
                self.links.insert(name.to_owned());
            }
            (kind, _) => self.set_odd(name, Oddity::Special(kind)),
        }
        Ok(false)
    }

    fn judge_file(
        &mut self,
        held: &OwnedFd,
        name: &OsStr,
        facts: Facts,
        came: bool,
        look: Look<'_>,
    ) {
        let Look { moment, settle, round, .. } = look;
        let known = self.files.get(name);
        let was_ready = known
            .filter(|known| known.waits.is_none() && known.observation.facts.file == facts.file);
        let ready_since = was_ready.map_or(moment.now, |known| known.ready_since);
        let before = known.map(|known| &known.observation);
        let mut observation = Observation::new(before, facts, came, moment, round);
        let waits = match observation.judge(moment, settle, || is_written(held, name)) {
            Readiness::Take => None,
            Readiness::Wait(why, wait) => Some((why, moment.now + wait)),
        };
        if before.is_none() {
            self.forget(name);
        }
        self.files.insert(name.to_owned(), Known { observation, waits, ready_since });
    }

    pub(super) fn set_odd(&mut self, name: &OsStr, oddity: Oddity) {
        self.forget(name);
        self.odd.insert(name.to_owned(), oddity);
    }

    pub(super) fn forget(&mut self, name: &OsStr) {
        self.files.remove(name);
        self.links.remove(name);
        self.odd.remove(name);
    }

    /// Begins a listing: what is not met again is gone.
    pub(super) fn begin(&mut self, round: u64) {
        self.links.clear();
        self.odd.clear();
        self.fault = None;
        self.ignored = 0;
        self.round = round;
    }

    pub(super) fn end(&mut self) {
        let round = self.round;
        self.files.retain(|_, known| known.observation.round == round);
        if self.files.capacity() > 4 * self.files.len() + 1024 {
            self.files.shrink_to_fit();
        }
    }
}

fn is_written(held: &OwnedFd, name: &OsStr) -> Option<bool> {
    // what cannot be opened is for the worker to find out, who says why
    let file = folder::open_file(held.as_fd(), name).ok()?;
    let is_file = Facts::of(&file).is_ok_and(|facts| facts.kind == Kind::File);
    if is_file { safe_open::being_written(&file) } else { None }
}
