//! What lies in the inbox: what is ready, in which order, and what has to wait. It reads names and
//! times only, and changes nothing.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::FileType;

use super::advice;
use super::folder::{self, Facts, Kind};
use super::name::shown_path;
use super::still::{Moment, Sight, Verdict};
use super::{Entry, Spool, name, ready};
use crate::event::MAX_NAME_BYTES;

pub use super::still::Why;

/// The shortest time after which another scan is asked for.
const LEAST_WAIT: Duration = Duration::from_millis(5);

/// How soon to look again into a folder that is new: the watch on it starts a little after it is
/// seen, and a file that is dropped in between makes no hint.
const NEW_FOLDER_WAIT: Duration = Duration::from_millis(250);

/// How far the wall clock may drift from the steady one between two scans before it counts as set.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(250);

/// In which order ready files are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By the bytes of the name, then by folder.
    #[default]
    Name,
    /// By the time of last writing, then as by name.
    Mtime,
}

/// What one scan found.
#[derive(Debug, Default)]
pub struct Scan {
    /// Files to be taken, in order.
    pub ready: Vec<Entry>,
    /// Symbolic links, in order: they are never followed, and belong in failed.
    pub links: Vec<Entry>,
    /// Files that are not ready, in order.
    pub waiting: Vec<(Entry, Why)>,
    /// What is neither read nor moved, in order: to be reported.
    pub odd: Vec<Odd>,
    /// How many names were left alone because they say so.
    pub ignored: usize,
    /// After which time to scan again even without a hint; none when nothing waits.
    pub look_again_in: Option<Duration>,
}

/// Something in the inbox that is left where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Odd {
    /// Where it is.
    pub entry: Entry,
    /// What it is.
    pub oddity: Oddity,
}

/// What is wrong with something that is left where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Oddity {
    /// A pipe, a socket or a device.
    Special(Kind),
    /// A folder in the folder of a source.
    TooDeep,
    /// A folder whose name cannot be a source: not UTF-8, or blank.
    NotASource,
    /// A folder that cannot be listed, or a damaged file, and what the system says.
    Unreadable(String),
    /// The folder of a source that files cannot be moved out of: it, or the one in done or failed
    /// that is named, is a mount of its own.
    OtherMount(String),
}

impl Oddity {
    /// Whether it is a fault that is tried again, rather than something that does not belong there.
    pub fn is_fault(&self) -> bool {
        matches!(self, Oddity::Unreadable(_) | Oddity::OtherMount(_))
    }
}

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = &self.entry;
        match &self.oddity {
            Oddity::Special(kind) => {
                write!(f, "inbox/{entry} is {}: left alone; remove it", kind.name())
            }
            Oddity::TooDeep => write!(
                f,
                "inbox/{entry} is a folder within the folder of a source: nothing in it is taken; \
                 move its files one level up"
            ),
            Oddity::NotASource => write!(
                f,
                "inbox/{entry} is a folder whose name cannot be a source (UTF-8, not blank): \
                 nothing in it is taken; rename it"
            ),
            Oddity::Unreadable(error) => {
                write!(f, "inbox/{entry} cannot be looked into: nothing of it is taken: {error}")
            }
            Oddity::OtherMount(folder) => write!(
                f,
                "nothing of inbox/{entry} is taken, since files cannot be moved out of it: \
                 {folder} is another mount than inbox/: {}",
                advice::OTHER_MOUNT
            ),
        }
    }
}

/// The inbox itself cannot be listed: a fault of ours or the operator's, never an empty inbox.
#[derive(Debug)]
pub struct ScanError {
    /// The inbox.
    pub path: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, source) = (shown_path(&self.path), &self.source);
        write!(f, "inbox unreadable: {path}: {}", advice::explain(&self.path, source))
    }
}

impl std::error::Error for ScanError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Looks into the inbox again and again, and remembers just enough of each file to tell whether it
/// stands still.
#[derive(Debug)]
pub struct Scanner {
    settle: Duration,
    order: Order,
    arrivals: HashSet<PathBuf>,
    seen: HashMap<Option<String>, Seen>,
    round: u64,
    last_look: Option<(Instant, SystemTime)>,
    // until then the wall clock is not believed, since it was set
    distrust_wall_until: Option<Instant>,
}

/// What is remembered of one folder.
#[derive(Debug, Default)]
struct Seen {
    files: HashMap<OsString, Sight>,
    round: u64,
}

impl Scanner {
    /// A scanner for which a file must be still for `settle`, unless it came whole.
    pub fn new(settle: Duration, order: Order) -> Scanner {
        Scanner {
            settle,
            order,
            arrivals: HashSet::new(),
            seen: HashMap::new(),
            round: 0,
            last_look: None,
            distrust_wall_until: None,
        }
    }

    /// Changes for how long a file must be still.
    pub fn set_settle(&mut self, settle: Duration) {
        self.settle = settle;
    }

    /// Changes the order in which files are taken.
    pub fn set_order(&mut self, order: Order) {
        self.order = order;
    }

    /// Notes that a file was renamed into the inbox, so that the next scan takes it at once.
    pub fn moved_in(&mut self, path: PathBuf) {
        self.arrivals.insert(path);
    }

    /// Puts a file back in line that changed while it was read, or ended too early while it was
    /// young: it is not ready again until it has been still for the whole settle time from now.
    pub fn put_back(&mut self, entry: &Entry, now: Instant) {
        let folder = self.seen.get_mut(&entry.folder);
        if let Some(sight) = folder.and_then(|folder| folder.files.get_mut(&entry.name)) {
            sight.hold(now, now + self.settle);
        }
    }

    /// Looks into the inbox and the folders of the sources. `now` is the steady clock, `wall` the
    /// clock that files are dated by.
    ///
    /// # Errors
    /// When the inbox cannot be listed or searched. What is known of the files is kept then.
    pub fn scan(
        &mut self,
        spool: &Spool,
        now: Instant,
        wall: SystemTime,
    ) -> Result<Scan, ScanError> {
        let unreadable = |source| ScanError { path: spool.inbox().to_owned(), source };
        let inbox = folder::open(spool.inbox()).map_err(unreadable)?;
        let mounts = Mounts { spool, inbox: folder::mount_of(&inbox, "") };
        let names = list(&inbox).map_err(unreadable)?;

        let is_first = self.round == 0;
        self.round += 1;
        let moment = self.look_at_clocks(now, wall);
        let arrivals = self.sort_arrivals(spool.inbox());
        let mut found = Found::default();
        let folders = self
            .judge_all(&inbox, None, names, &arrivals, moment, &mut found)
            .map_err(unreadable)?;
        for folder in folders {
            self.scan_folder((&inbox, &mounts), folder, &arrivals, moment, is_first, &mut found);
        }
        self.forget();
        Ok(found.into_scan(self.order))
    }

    fn scan_folder(
        &mut self,
        (inbox, mounts): (&OwnedFd, &Mounts<'_>),
        folder: OsString,
        arrivals: &HashMap<Option<String>, HashSet<OsString>>,
        moment: Moment,
        is_first: bool,
        found: &mut Found,
    ) {
        let Some(source) = source_name(&folder) else {
            return found.odd(None, folder, Oddity::NotASource);
        };
        if !is_first && !self.seen.contains_key(&Some(source.clone())) {
            found.look_again(NEW_FOLDER_WAIT);
        }
        let judged = folder::open_sub(inbox, &folder).and_then(|held| {
            let names = list(&held)?;
            if !names.is_empty()
                && let Some(other) = mounts.other(&held, &source)
            {
                // known by now: it is not to be looked into again at once
                self.seen.entry(Some(source.clone())).or_default().round = self.round;
                found.odd(None, folder.clone(), Oddity::OtherMount(other));
                return Ok(Vec::new());
            }
            self.judge_all(&held, Some(&source), names, arrivals, moment, found)
        });
        match judged {
            Ok(deeper) => {
                for name in deeper {
                    found.odd(Some(&source), name, Oddity::TooDeep);
                }
            }
            // it went away, or something else took its name: the next scan sees what
            Err(error) if ready::is_not_that_folder(&error) => {}
            Err(error) => {
                let path = mounts.spool.inbox().join(&folder);
                let error = advice::explain(&path, &error);
                found.odd(None, folder, Oddity::Unreadable(error));
            }
        }
    }

    /// Sorts the names of one folder into what was found, and answers the folders among them.
    fn judge_all(
        &mut self,
        held: &OwnedFd,
        folder: Option<&str>,
        names: Vec<(OsString, FileType)>,
        arrivals: &HashMap<Option<String>, HashSet<OsString>>,
        moment: Moment,
        found: &mut Found,
    ) -> io::Result<Vec<OsString>> {
        let key = folder.map(str::to_owned);
        let arrived = arrivals.get(&key);
        let (settle, round) = (self.settle, self.round);
        let seen = self.seen.entry(key).or_default();
        seen.round = round;
        let mut folders = Vec::new();
        for (name, file_type) in names {
            // not every file system says the type when it lists
            let looked_up = match file_type {
                FileType::RegularFile | FileType::Unknown => match Facts::at(held, &name) {
                    Ok(facts) => Some(facts),
                    // it went away since it was listed
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    // a folder that can be listed and not searched is not an empty one
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        return Err(error);
                    }
                    Err(error) => {
                        found.odd(folder, name, Oddity::Unreadable(error.to_string()));
                        continue;
                    }
                },
                _ => None,
            };
            let kind = looked_up.map_or_else(|| Kind::of(file_type), |facts| facts.kind);
            let bytes = name.as_bytes();
            let is_left_alone = match kind {
                Kind::Folder => name::is_hidden(bytes),
                _ => name::is_ignored(bytes),
            };
            match (kind, looked_up) {
                _ if is_left_alone => found.ignored += 1,
                (Kind::File, Some(facts)) => {
                    let came = arrived.is_some_and(|names| names.contains(&name));
                    let before = seen.files.get(&name);
                    let mut sight = Sight::new(before, facts, came, moment, round);
                    let verdict = sight.judge(moment, settle, || is_written(held, &name));
                    seen.files.insert(name.clone(), sight);
                    found.file(folder, name, facts.mtime, verdict);
                }
                (Kind::Folder, _) => folders.push(name),
                (Kind::Link, _) => found.links.push(Entry::new(folder, name)),
                (kind, _) => found.odd(folder, name, Oddity::Special(kind)),
            }
        }
        Ok(folders)
    }

    /// Finds out whether the wall clock was set since the last scan: then the age of a file says
    /// nothing until all have been watched for the settle time.
    fn look_at_clocks(&mut self, now: Instant, wall: SystemTime) -> Moment {
        if let Some((now_before, wall_before)) = self.last_look {
            let steady = now.saturating_duration_since(now_before);
            let expected = wall_before + steady;
            let apart = wall.duration_since(expected).unwrap_or_else(|error| error.duration());
            if apart > CLOCK_TOLERANCE {
                self.distrust_wall_until = Some(now + self.settle);
            }
        }
        self.last_look = Some((now, wall));
        let trust_wall = self.distrust_wall_until.is_none_or(|until| now >= until);
        Moment { now, wall, trust_wall }
    }

    fn sort_arrivals(&mut self, inbox: &Path) -> HashMap<Option<String>, HashSet<OsString>> {
        let mut sorted: HashMap<_, HashSet<OsString>> = HashMap::new();
        for path in self.arrivals.drain() {
            let Ok(below) = path.strip_prefix(inbox) else { continue };
            let (Some(name), Some(folder)) = (below.file_name(), below.parent()) else { continue };
            let folder = match folder.as_os_str() {
                above if above.is_empty() => None,
                above => match above.to_str() {
                    Some(above) => Some(above.to_owned()),
                    None => continue,
                },
            };
            sorted.entry(folder).or_default().insert(name.to_owned());
        }
        // a burst is past; do not keep its memory
        self.arrivals.shrink_to(1024);
        sorted
    }

    /// Forgets all that was not there this time.
    fn forget(&mut self) {
        let round = self.round;
        self.seen.retain(|_, folder| folder.round == round);
        for folder in self.seen.values_mut() {
            folder.files.retain(|_, sight| sight.round == round);
            if folder.files.capacity() > 4 * folder.files.len() + 1024 {
                folder.files.shrink_to_fit();
            }
        }
    }
}

/// Where the folders of the spool are mounted. That files can be moved from the inbox itself to done
/// and failed was tried at the start.
struct Mounts<'a> {
    spool: &'a Spool,
    // none: the kernel does not tell
    inbox: Option<u64>,
}

impl Mounts<'_> {
    /// The folder that is another mount than the inbox: the one of a source, which is `held`, or
    /// that of the same name in done or failed. None when there is no such folder.
    fn other(&self, held: &OwnedFd, source: &str) -> Option<String> {
        let inbox = self.inbox?;
        let differs = |mount: Option<u64>| mount.is_some_and(|mount| mount != inbox);
        if differs(folder::mount_of(held, "")) {
            return Some(format!("inbox/{}", name::shown(source.as_bytes())));
        }
        let bases = [("done", self.spool.done()), ("failed", self.spool.failed())];
        bases.into_iter().find_map(|(name, base)| {
            let is_other = differs(folder::mount_of(rustix::fs::CWD, base.join(source)));
            is_other.then(|| format!("{name}/{}", name::shown(source.as_bytes())))
        })
    }
}

fn is_written(held: &OwnedFd, name: &OsStr) -> Option<bool> {
    // what cannot be opened is for the worker to find out, who says why
    let file = folder::open_file(held.as_fd(), name).ok()?;
    let is_file = Facts::of(&file).is_ok_and(|facts| facts.kind == Kind::File);
    if is_file { ready::being_written(&file) } else { None }
}

/// The source that a folder in the inbox stands for; none when its name cannot be one.
fn source_name(folder: &OsStr) -> Option<String> {
    let name = folder.to_str()?;
    (name.len() <= MAX_NAME_BYTES && !name.trim().is_empty()).then(|| name.to_owned())
}

/// The names in a folder, in no order, without `.` and `..`. Here the right to list it is needed.
pub(super) fn list(held: &OwnedFd) -> io::Result<Vec<(OsString, FileType)>> {
    let mut names = Vec::new();
    for entry in folder::entries(held)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push((OsString::from_vec(name.to_vec()), entry.file_type()));
        }
    }
    Ok(names)
}

/// A scan in the making.
#[derive(Default)]
struct Found {
    ready: Vec<((i64, u32), Entry)>,
    links: Vec<Entry>,
    waiting: Vec<(Entry, Why)>,
    odd: Vec<Odd>,
    ignored: usize,
    look_again_in: Option<Duration>,
}

impl Found {
    fn file(&mut self, folder: Option<&str>, name: OsString, mtime: (i64, u32), verdict: Verdict) {
        let entry = Entry::new(folder, name);
        match verdict {
            Verdict::Take => self.ready.push((mtime, entry)),
            Verdict::Wait(why, wait) => {
                self.waiting.push((entry, why));
                self.look_again(wait);
            }
        }
    }

    fn odd(&mut self, folder: Option<&str>, name: OsString, oddity: Oddity) {
        self.odd.push(Odd { entry: Entry::new(folder, name), oddity });
    }

    fn look_again(&mut self, wait: Duration) {
        let wait = wait.max(LEAST_WAIT);
        self.look_again_in = Some(self.look_again_in.map_or(wait, |least| least.min(wait)));
    }

    fn into_scan(mut self, order: Order) -> Scan {
        match order {
            Order::Name => self.ready.sort_unstable_by(|a, b| a.1.cmp(&b.1)),
            Order::Mtime => self.ready.sort_unstable(),
        }
        self.links.sort_unstable();
        self.waiting.sort_unstable();
        self.odd.sort_unstable();
        Scan {
            ready: self.ready.into_iter().map(|(_, entry)| entry).collect(),
            links: self.links,
            waiting: self.waiting,
            odd: self.odd,
            ignored: self.ignored,
            look_again_in: self.look_again_in,
        }
    }
}

#[cfg(test)]
mod tests;
