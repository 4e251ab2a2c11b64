//! Looks into the inbox: at the names that hints give, at those whose time has come, or at all. It
//! reads names and times only, and changes nothing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::FileType;

use super::advice;
use super::folder::{self, Facts, FileId};
use super::folder_state::{Known, Look, Seen};
use super::inbox::Inbox;
use super::name::Ignored;
use super::readiness::Moment;
use super::scan::{Depth, NotReady, Odd, Oddity, Order, Scan, ScanError, list, source_name};
use super::scan_request::{Names, ScanRequest};
use super::{Entry, Spool, safe_open};

/// The shortest time after which another scan is asked for.
pub(super) const LEAST_WAIT: Duration = Duration::from_millis(5);

/// How soon to look again into a folder that is new, and how soon once more: the watch on it starts
/// a little after it is seen, and a file that is dropped in between makes no hint.
pub(super) const NEW_FOLDER_WAIT: Duration = Duration::from_millis(250);
pub(super) const NEW_FOLDER_LAST_WAIT: Duration = Duration::from_secs(2);

/// How many things that are left alone are looked at again at each look that is not a listing.
const ODD_AGAIN: usize = 64;

/// How many files are named that were found without a hint.
const MOST_UNANNOUNCED: usize = 64;

/// How far the wall clock may drift from the steady one between two scans before it counts as set.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(250);

/// Looks into the inbox again and again, and remembers what it saw: of each file just enough to tell
/// whether it stands still.
///
/// What is remembered is right as of the last look at that name. A file that is ready is not looked
/// at again until a hint names it or all is listed: whoever takes it says what became of it, with
/// [`left`](Scanner::left), [`put_back`](Scanner::put_back) or [`look_at`](Scanner::look_at).
#[derive(Debug)]
pub struct Scanner {
    settle: Duration,
    order: Order,
    ignored_names: Arc<Ignored>,
    // paths that were hinted at, and whether a file was renamed to it
    pub(super) hinted: HashMap<PathBuf, bool>,
    asked: ScanRequest,
    pub(super) seen: HashMap<Option<String>, Seen>,
    // those of which there is anything to tell
    busy: BTreeSet<Option<String>>,
    // folders that need not be looked into for now
    passed_over: HashSet<String>,
    // folders that are new, to be listed again at that time
    listed_again: Vec<(Instant, String)>,
    // which folder the inbox was when it was last listed
    inbox: Option<FileId>,
    ignored: usize,
    unannounced: Vec<Entry>,
    round: u64,
    last_look: Option<(Instant, SystemTime)>,
    // until then the wall clock is not believed, since it was set
    distrust_wall_until: Option<Instant>,
}

impl Scanner {
    /// A scanner for which a file must be still for `settle`, unless it came whole.
    pub fn new(settle: Duration, order: Order) -> Scanner {
        Scanner {
            settle,
            order,
            ignored_names: Arc::default(),
            hinted: HashMap::new(),
            asked: ScanRequest::default(),
            seen: HashMap::new(),
            busy: BTreeSet::new(),
            passed_over: HashSet::new(),
            listed_again: Vec::new(),
            inbox: None,
            ignored: 0,
            unannounced: Vec::new(),
            round: 0,
            last_look: None,
            distrust_wall_until: None,
        }
    }

    /// Changes for how long a file must be still.
    pub fn set_settle(&mut self, settle: Duration) {
        // when to look again was reckoned with the other one
        self.asked.whole |= settle != self.settle;
        self.settle = settle;
    }

    /// Changes the order in which files are taken.
    pub fn set_order(&mut self, order: Order) {
        self.order = order;
    }

    /// Changes which names are left alone.
    pub fn set_ignored(&mut self, ignored: Ignored) {
        // what was left alone may be work by now, and the other way round
        self.asked.whole = true;
        self.ignored_names = Arc::new(ignored);
    }

    /// Notes that a file was renamed into the inbox, so that the next look takes it at once.
    pub fn moved_in(&mut self, path: PathBuf) {
        self.hinted.insert(path, true);
    }

    /// Notes that something changed at that path of the inbox: the next look includes it.
    pub fn changed(&mut self, path: PathBuf) {
        self.hinted.entry(path).or_default();
    }

    /// Asks the next look to include everything.
    pub fn ask_whole(&mut self) {
        self.asked.whole = true;
    }

    /// Whether the next look has to include everything, since that was asked for.
    pub fn needs_whole(&self) -> bool {
        self.asked.whole || self.round == 0
    }

    /// Names the folders that the next looks pass over, instead of those before: what is known of
    /// them is kept, and not told. They are listed as soon as they are not named any more.
    pub fn pass_over<'f>(&mut self, folders: impl Iterator<Item = &'f str>) {
        let folders = folders.map(str::to_owned).collect();
        for folder in mem::replace(&mut self.passed_over, folders) {
            if !self.passed_over.contains(&folder) {
                self.asked.folder(Some(folder));
            }
        }
    }

    /// Asks the next look to include that entry: it went away, or something else has its name.
    pub fn look_at(&mut self, entry: &Entry) {
        self.asked.entry(entry);
    }

    /// Notes that a file left the inbox.
    pub fn left(&mut self, entry: &Entry) {
        if let Some(seen) = self.seen.get_mut(&entry.folder) {
            seen.forget(&entry.name);
            if !seen.is_busy() {
                self.busy.remove(&entry.folder);
            }
        }
    }

    /// Puts a file back in line that changed while it was read, or ended too early while it was
    /// young: it is not ready again until it has been still for so many whole settle times from now.
    pub fn put_back(&mut self, entry: &Entry, settle_times: u32, now: Instant) {
        let folder = self.seen.get_mut(&entry.folder);
        if let Some(known) = folder.and_then(|folder| folder.files.get_mut(&entry.name)) {
            let until = now + self.settle.saturating_mul(settle_times);
            known.observation.hold(now, until);
            known.waits = Some((NotReady::StillChanging, until));
        }
    }

    /// Looks at the whole inbox and the folders of the sources. `now` is the steady clock, `wall`
    /// the clock that files are dated by.
    ///
    /// # Errors
    /// When the inbox cannot be listed or searched. What is known of the files is kept then.
    pub fn scan(
        &mut self,
        spool: &Spool,
        now: Instant,
        wall: SystemTime,
    ) -> Result<Scan, ScanError> {
        self.look(spool, Depth::Whole, now, wall)
    }

    /// Looks at so much of the inbox, and answers what is known of all of it. Everything is looked
    /// at, whatever `depth` says, the first time and when the inbox is another folder by now.
    ///
    /// # Errors
    /// As those of [`scan`](Scanner::scan).
    pub fn look(
        &mut self,
        spool: &Spool,
        depth: Depth,
        now: Instant,
        wall: SystemTime,
    ) -> Result<Scan, ScanError> {
        let unreadable = |source| ScanError { path: spool.inbox().to_owned(), source };
        let inbox = Inbox::open(spool).map_err(unreadable)?;
        let file = Facts::of(&inbox.held).map_err(unreadable)?.file;
        for (path, came) in self.hinted.drain() {
            self.asked.path(spool.inbox(), &path, came);
        }
        // a burst is past; do not keep its memory
        self.hinted.shrink_to(1024);
        let is_other = self.inbox.replace(file) != Some(file);
        let depth = if self.round == 0 || is_other { Depth::Whole } else { depth };
        // what was asked for is asked for still when this fails
        let listed = match depth {
            Depth::Asked => None,
            _ => match list(&inbox.held) {
                Ok(names) => Some(names),
                Err(error) => {
                    self.asked.whole = true;
                    return Err(unreadable(error));
                }
            },
        };
        self.round += 1;
        self.unannounced.clear();
        let moment = self.look_at_clocks(now, wall);
        let ignored = Arc::clone(&self.ignored_names);
        let ignored = &*ignored;
        let look = Look { ignored, moment, settle: self.settle, round: self.round, depth };
        let outcome = match listed {
            Some(names) => self.look_at_all(&inbox, names, look),
            None => self.look_at_asked(&inbox, look),
        };
        if let Err(error) = outcome {
            self.asked.whole = true;
            return Err(unreadable(error));
        }
        Ok(self.told(now))
    }

    fn look_at_all(
        &mut self,
        inbox: &Inbox<'_>,
        names: Vec<(OsString, FileType)>,
        look: Look<'_>,
    ) -> io::Result<()> {
        let is_first = self.round == 1;
        let mut asked = mem::take(&mut self.asked);
        self.listed_again.retain(|(at, _)| *at > look.moment.now);
        let top = asked.folders.remove(&None).unwrap_or_default();
        let folders = self.list_names(&inbox.held, None, names, &top, look)?;
        self.mark_busy(None);
        for folder in folders {
            let names = folder.to_str().map(|name| Some(name.to_owned()));
            let names = names.and_then(|key| asked.folders.remove(&key)).unwrap_or_default();
            self.look_at_folder(inbox, folder, &names, is_first, look);
        }
        // the folders that are gone
        let round = self.round;
        self.seen.retain(|_, seen| seen.round == round);
        let seen = &self.seen;
        self.busy.retain(|folder| seen.contains_key(folder));
        self.ignored = seen.values().map(|seen| seen.ignored).sum();
        Ok(())
    }

    /// Looks at single names, at those whose time has come, and into new folders.
    fn look_at_asked(&mut self, inbox: &Inbox<'_>, look: Look<'_>) -> io::Result<()> {
        let mut asked = mem::take(&mut self.asked);
        // that is for whoever can afford it
        self.asked.whole = asked.whole;
        self.ask_due(&mut asked, look.moment.now);
        // a name that is a folder is listed, with all that was asked for of it
        let top = asked.folders.remove(&None).unwrap_or_default();
        for (name, came) in &top.names {
            let seen = self.seen.entry(None).or_default();
            let is_folder = seen.judge(&inbox.held, (name, FileType::Unknown), *came, look)?;
            if is_folder {
                let key = name.to_str().map(|name| Some(name.to_owned()));
                let names = key.and_then(|key| asked.folders.remove(&key)).unwrap_or_default();
                self.look_at_folder(inbox, name.clone(), &names, false, look);
            } else if let Some(name) = name.to_str() {
                // where there was a folder, there is none
                self.drop_folder(&Some(name.to_owned()));
            }
        }
        self.mark_busy(None);
        for (folder, names) in asked.folders {
            let Some(name) = folder.as_deref() else { continue };
            if self.passed_over.contains(name) {
                continue;
            }
            if names.all || !self.seen.contains_key(&folder) {
                self.look_at_folder(inbox, name.into(), &names, false, look);
            } else {
                self.look_at_names(inbox, name, &names, look);
            }
        }
        Ok(())
    }

    /// Adds what was seen before and is to be looked at again by now.
    fn ask_due(&mut self, asked: &mut ScanRequest, now: Instant) {
        self.listed_again.retain(|(at, folder)| {
            if *at <= now {
                asked.folder(Some(folder.clone()));
            }
            *at > now
        });
        let mut odd = 0;
        for folder in &self.busy {
            let Some(seen) = self.seen.get(folder) else { continue };
            if seen.fault.is_some() {
                asked.folder(folder.clone());
            }
            let due = |known: &Known| known.waits.is_some_and(|(_, at)| at <= now);
            let due = seen.files.iter().filter(|(_, known)| due(known)).map(|(name, _)| name);
            let again = seen.odd.keys().take(ODD_AGAIN.saturating_sub(odd));
            odd += again.len();
            for name in due.chain(again).chain(&seen.links) {
                asked.entry(&Entry { folder: folder.clone(), name: name.clone() });
            }
        }
    }

    /// Looks at single names in the folder of a source that is known.
    fn look_at_names(&mut self, inbox: &Inbox<'_>, folder: &str, names: &Names, look: Look<'_>) {
        let key = Some(folder.to_owned());
        let seen = self.seen.entry(key.clone()).or_default();
        let looked = folder::open_sub(&inbox.held, folder).and_then(|held| {
            if let Some(other) = inbox.other_mount(&held, folder) {
                return Ok(Some(Oddity::OtherMount(other)));
            }
            for (name, came) in &names.names {
                if seen.judge(&held, (name, FileType::Unknown), *came, look)? {
                    seen.set_odd(name, Oddity::TooDeep);
                }
            }
            Ok(None)
        });
        self.end_folder(inbox, key, looked);
    }

    /// Lists the folder of a source, and looks at all of it.
    fn look_at_folder(
        &mut self,
        inbox: &Inbox<'_>,
        folder: OsString,
        asked: &Names,
        is_first: bool,
        look: Look<'_>,
    ) {
        let Some(source) = source_name(&folder) else {
            let seen = self.seen.entry(None).or_default();
            seen.set_odd(&folder, Oddity::NotASource);
            return self.mark_busy(None);
        };
        let key = Some(source.clone());
        if self.passed_over.contains(&source) {
            self.seen.entry(key).or_default().round = self.round;
            return;
        }
        if !is_first && !self.seen.contains_key(&key) {
            for wait in [NEW_FOLDER_WAIT, NEW_FOLDER_LAST_WAIT] {
                self.listed_again.push((look.moment.now + wait, source.clone()));
            }
        }
        // counted as ignored are names that are listed
        let look = match look.depth {
            Depth::Asked => Look { depth: Depth::Whole, ..look },
            _ => look,
        };
        let looked = folder::open_sub(&inbox.held, &folder).and_then(|held| {
            let names = list(&held)?;
            if !names.is_empty()
                && let Some(other) = inbox.other_mount(&held, &source)
            {
                return Ok(Some(Oddity::OtherMount(other)));
            }
            let deeper = self.list_names(&held, key.clone(), names, asked, look)?;
            let seen = self.seen.entry(key.clone()).or_default();
            for name in deeper {
                seen.set_odd(&name, Oddity::TooDeep);
            }
            Ok(None)
        });
        self.end_folder(inbox, key, looked);
    }

    /// After a look into the folder of a source: all is well, or what is wrong with all of it.
    fn end_folder(
        &mut self,
        inbox: &Inbox<'_>,
        key: Option<String>,
        looked: io::Result<Option<Oddity>>,
    ) {
        let fault = match looked {
            Ok(fault) => fault,
            // it went away, or something else took its name
            Err(error) if safe_open::is_not_that_folder(&error) => return self.drop_folder(&key),
            Err(error) => {
                let path = inbox.spool.inbox().join(key.as_deref().unwrap_or_default());
                Some(Oddity::Unreadable(advice::explain(&path, &error)))
            }
        };
        if let Some(fault) = fault {
            let seen = self.seen.entry(key.clone()).or_default();
            // it is not empty: nothing is known of it
            self.ignored = self.ignored.saturating_sub(mem::take(&mut seen.ignored));
            seen.begin(self.round);
            seen.files.clear();
            seen.fault = Some(fault);
        }
        self.mark_busy(key);
    }

    /// Sorts the names of one folder into what is known, and answers the folders among them.
    fn list_names(
        &mut self,
        held: &OwnedFd,
        key: Option<String>,
        names: Vec<(OsString, FileType)>,
        asked: &Names,
        look: Look<'_>,
    ) -> io::Result<Vec<OsString>> {
        let is_known = self.seen.contains_key(&key);
        let seen = self.seen.entry(key.clone()).or_default();
        let ignored = seen.ignored;
        seen.begin(look.round);
        let mut folders = Vec::new();
        for (name, file_type) in names {
            let was_known = !is_known || seen.files.contains_key(&name);
            if seen.judge(held, (&name, file_type), asked.came(&name), look)? {
                folders.push(name);
            } else if !was_known
                && !asked.names.contains_key(&name)
                && seen.files.contains_key(&name)
                && self.unannounced.len() < MOST_UNANNOUNCED
            {
                self.unannounced.push(Entry { folder: key.clone(), name: name.clone() });
            }
        }
        seen.end();
        self.ignored = (self.ignored + seen.ignored).saturating_sub(ignored);
        Ok(folders)
    }

    fn mark_busy(&mut self, key: Option<String>) {
        match self.seen.get(&key).is_some_and(Seen::is_busy) {
            true => self.busy.insert(key),
            false => self.busy.remove(&key),
        };
    }

    fn drop_folder(&mut self, key: &Option<String>) {
        if let Some(seen) = self.seen.remove(key) {
            self.ignored = self.ignored.saturating_sub(seen.ignored);
            self.busy.remove(key);
        }
    }

    /// All that is known, in order.
    fn told(&self, now: Instant) -> Scan {
        let unannounced = self.unannounced.clone();
        let mut scan = Scan { ignored: self.ignored, unannounced, ..Scan::default() };
        let mut ready = Vec::new();
        let mut again = self.listed_again.iter().map(|(at, _)| *at).min();
        for folder in &self.busy {
            let Some(seen) = self.seen.get(folder) else { continue };
            if folder.as_ref().is_some_and(|folder| self.passed_over.contains(folder)) {
                continue;
            }
            let entry = |name: &OsString| Entry { folder: folder.clone(), name: name.clone() };
            for (name, known) in &seen.files {
                match known.waits {
                    None => ready.push((known.observation.facts.mtime, entry(name))),
                    Some((why, at)) => {
                        scan.waiting.push((entry(name), why));
                        let since = known.observation.open_since;
                        if let Some(since) = since.filter(|_| why == NotReady::OpenForWriting)
                            && scan.longest_open.as_ref().is_none_or(|(_, least)| since < *least)
                        {
                            scan.longest_open = Some((entry(name), since));
                        }
                        again = Some(again.map_or(at, |least| least.min(at)));
                    }
                }
            }
            scan.links.extend(seen.links.iter().map(entry));
            let odd = seen.odd.iter().map(|(name, oddity)| (entry(name), oddity));
            let fault = seen.fault.iter().zip(folder);
            let fault = fault.map(|(oddity, folder)| (Entry::new(None, folder), oddity));
            let odd = odd.chain(fault);
            scan.odd.extend(odd.map(|(entry, oddity)| Odd { entry, oddity: oddity.clone() }));
        }
        match self.order {
            Order::Name => ready.sort_unstable_by(|a, b| a.1.cmp(&b.1)),
            Order::Mtime => ready.sort_unstable(),
        }
        scan.ready = ready.into_iter().map(|(_, entry)| entry).collect();
        scan.links.sort_unstable();
        scan.waiting.sort_unstable();
        scan.odd.sort_unstable();
        scan.look_again_in = again.map(|at| at.saturating_duration_since(now).max(LEAST_WAIT));
        scan
    }

    /// Finds out whether the wall clock was set since the last look: then the age of a file says
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
}
