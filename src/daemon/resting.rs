//! What rests: the files and folders in the way of which something stands, while all others go on.
//! Each has a growing pause of its own.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::backoff::Backoff;
use super::state::{MOST_SHOWN, Rested};
use crate::config::Config;
use crate::model::clock::Clock;
use crate::pipeline::worker::{Failure, Scope};
use crate::spool::Entry;
use crate::spool::name::shown;
use crate::spool::scan::Scan;

/// All that rests.
#[derive(Debug, Default)]
pub(super) struct Resting {
    files: HashMap<Entry, Rest>,
    folders: HashMap<String, Rest>,
    // folders and files that cannot be looked at, by their names as shown; since when, and why
    unreadable: HashMap<String, (i64, String)>,
    // the folders that the last scan did not look into
    passed_over: HashSet<String>,
    // how often files were read in vain, since they changed meanwhile
    changed: HashMap<Entry, u32>,
}

/// For how many settle times at most a file waits that changes whenever it is read.
const MOST_SETTLE_TIMES: u32 = 32;

#[derive(Debug)]
struct Rest {
    backoff: Backoff,
    since_ms: i64,
    why: String,
    // of a folder: how many ready files it held when it was last looked into
    files: usize,
}

impl Rest {
    fn new(config: &Config) -> Rest {
        let since_ms = Clock::System.now_ms();
        Rest { backoff: Backoff::new(config), since_ms, why: String::new(), files: 0 }
    }

    /// Something was tried again in vain. Of many files that were tried together the first counts.
    fn met(&mut self, failure: &Failure, now: Instant) {
        self.why.clone_from(&failure.text);
        if self.backoff.is_over(now) {
            self.backoff.next();
        }
    }
}

impl Resting {
    /// A fault that concerns that file, or the folder that it lies in, begins or lasts.
    pub(super) fn meet(&mut self, entry: &Entry, failure: &Failure, config: &Config) {
        let now = Instant::now();
        if let Some(folder) = &entry.folder {
            let is_new = failure.reach == Scope::Folder && !self.folders.contains_key(folder);
            if is_new {
                self.folders.insert(folder.clone(), Rest::new(config));
            }
            // one of its files was the trial, whatever it met
            if let Some(rest) = self.folders.get_mut(folder) {
                rest.met(failure, now);
            }
        }
        if failure.reach != Scope::Folder || entry.folder.is_none() {
            let rest = self.files.entry(entry.clone()).or_insert_with(|| Rest::new(config));
            rest.met(failure, now);
        }
    }

    /// That file is not in the way of anything any more. When it was moved, its folder is not
    /// either.
    pub(super) fn pass(&mut self, entry: &Entry, is_moved: bool) {
        self.files.remove(entry);
        if is_moved {
            self.changed.remove(entry);
        }
        if is_moved && let Some(folder) = &entry.folder {
            self.folders.remove(folder);
        }
    }

    /// That file changed while it was read; for how many settle times it is left alone. Who changes a
    /// large file again and again must not have all others wait for it.
    pub(super) fn change(&mut self, entry: &Entry) -> u32 {
        let times = self.changed.entry(entry.clone()).or_insert(0);
        *times = (*times * 2).clamp(1, MOST_SETTLE_TIMES);
        *times
    }

    /// Forgets of the files that changed those that went away.
    pub(super) fn keep_changed(&mut self, scan: &Scan) {
        if self.changed.is_empty() {
            return;
        }
        let waiting = scan.waiting.iter().map(|(entry, _)| entry);
        let here: HashSet<&Entry> = scan.ready.iter().chain(waiting).collect();
        self.changed.retain(|entry, _| here.contains(entry));
    }

    /// Whether that file, or its folder, is not to be touched now.
    pub(super) fn holds(&self, entry: &Entry, now: Instant) -> bool {
        let is_held = |rest: Option<&Rest>| rest.is_some_and(|rest| !rest.backoff.is_over(now));
        let folder = entry.folder.as_ref();
        is_held(self.files.get(entry))
            || is_held(folder.and_then(|folder| self.folders.get(folder)))
    }

    /// Whether that file, or its folder, rests, also while it is tried again.
    pub(super) fn has(&self, entry: &Entry) -> bool {
        let folder = entry.folder.as_ref();
        self.files.contains_key(entry)
            || folder.is_some_and(|folder| self.folders.contains_key(folder))
    }

    /// Takes up what a scan has found, and answers which files are to be tried, in order. Of a
    /// folder whose pause is over that is one file.
    pub(super) fn due<'s>(
        &mut self,
        found: impl Iterator<Item = &'s Entry> + Clone,
        now: Instant,
    ) -> Vec<&'s Entry> {
        if self.files.is_empty() && self.folders.is_empty() {
            return found.collect();
        }
        let here: HashSet<&Entry> = found.clone().collect();
        let passed_over = &self.passed_over;
        let is_passed_over = |entry: &Entry| {
            entry.folder.as_ref().is_some_and(|folder| passed_over.contains(folder))
        };
        self.files.retain(|entry, _| here.contains(entry) || is_passed_over(entry));
        for (folder, rest) in &mut self.folders {
            if !passed_over.contains(folder) {
                rest.files = 0;
            }
        }
        let mut tried: HashSet<&str> = HashSet::new();
        let mut due = Vec::new();
        for entry in found {
            let folder = entry.folder.as_deref();
            let rest = folder.and_then(|folder| self.folders.get_mut(folder));
            let is_trial = rest.is_some();
            if let Some(rest) = rest {
                rest.files += 1;
            }
            let is_first = || folder.is_none_or(|folder| !tried.contains(folder));
            if !self.holds(entry, now) && (!is_trial || is_first()) {
                tried.extend(folder.filter(|_| is_trial));
                due.push(entry);
            }
        }
        // what is left of the others rests for itself, or went away
        let passed_over = &self.passed_over;
        self.folders.retain(|folder, rest| {
            !rest.backoff.is_over(now)
                || tried.contains(folder.as_str())
                || passed_over.contains(folder)
        });
        due
    }

    /// Takes up which folders and files could not be looked at.
    pub(super) fn look(&mut self, scan: &Scan) {
        let before = std::mem::take(&mut self.unreadable);
        for odd in &scan.odd {
            if odd.oddity.is_fault() {
                let name = odd.entry.shown();
                let since_ms = before.get(&name).map(|(since_ms, _)| *since_ms);
                let since_ms = since_ms.unwrap_or_else(|| Clock::System.now_ms());
                self.unreadable.insert(name, (since_ms, odd.to_string()));
            }
        }
    }

    /// A scan begins: the folders whose pause lasts need not be looked into.
    pub(super) fn pass_over(&mut self, now: Instant) {
        let at_rest = self.folders.iter().filter(|(_, rest)| !rest.backoff.is_over(now));
        self.passed_over = at_rest.map(|(folder, _)| folder.clone()).collect();
    }

    /// The folders that the last scan did not look into.
    pub(super) fn passed_over(&self) -> impl Iterator<Item = &str> {
        self.passed_over.iter().map(String::as_str)
    }

    /// Whether that file may be there although a scan did not show it: its folder was not looked
    /// into.
    pub(super) fn hides(&self, entry: &Entry) -> bool {
        entry.folder.as_ref().is_some_and(|folder| {
            self.folders.contains_key(folder)
                || self.unreadable.contains_key(&shown(folder.as_bytes()))
        })
    }

    /// When the first pause is over; none when nothing rests.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        self.files.values().chain(self.folders.values()).map(|rest| rest.backoff.left(now)).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.folders.is_empty() && self.unreadable.is_empty()
    }

    /// How many files rest. A folder that cannot be looked into counts as one.
    pub(super) fn len(&self) -> usize {
        let in_folders: usize = self.folders.values().map(|rest| rest.files.max(1)).sum();
        let is_counted = |entry: &&Entry| {
            entry.folder.as_ref().is_none_or(|folder| !self.folders.contains_key(folder))
        };
        self.files.keys().filter(is_counted).count() + in_folders + self.unreadable.len()
    }

    /// Those that rest for the longest time, with the reason.
    pub(super) fn shown(&self) -> Vec<Rested> {
        if self.is_empty() {
            return Vec::new();
        }
        let rested = |what: String, rest: &Rest, files: usize| Rested {
            what,
            since_ms: rest.since_ms,
            why: rest.why.clone(),
            files: files as u64,
        };
        let mut first: Vec<(i64, &Entry)> =
            self.files.iter().map(|(entry, rest)| (rest.since_ms, entry)).collect();
        if first.len() > MOST_SHOWN {
            first.select_nth_unstable(MOST_SHOWN);
            first.truncate(MOST_SHOWN);
        }
        let files = first
            .into_iter()
            .filter_map(|(_, entry)| Some(rested(entry.shown(), self.files.get(entry)?, 1)));
        let folders = self.folders.iter().map(|(folder, rest)| {
            rested(format!("{}/", shown(folder.as_bytes())), rest, rest.files.max(1))
        });
        let unreadable = self.unreadable.iter().map(|(what, (since_ms, why))| Rested {
            what: what.clone(),
            since_ms: *since_ms,
            why: why.clone(),
            files: 1,
        });
        let mut all: Vec<Rested> = folders.chain(unreadable).chain(files).collect();
        all.sort_by(|a, b| (a.since_ms, &a.what).cmp(&(b.since_ms, &b.what)));
        all.truncate(MOST_SHOWN);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(reach: Scope) -> Failure {
        let (kind, text) = ("not moved".to_owned(), "not moved".to_owned());
        Failure { reach, exit: crate::exit::Exit::Again, kind, text }
    }

    fn later(resting: &Resting) -> Instant {
        let now = Instant::now();
        now + resting.left(now).unwrap()
    }

    #[test]
    fn of_a_folder_whose_pause_is_over_one_file_is_tried() {
        let config = Config::default();
        let of = |name: &str| Entry::new(Some("x"), name);
        let found: Vec<Entry> =
            (0..100).map(|n| of(&format!("{n:03}"))).chain([Entry::new(None, "a")]).collect();
        let mut resting = Resting::default();
        assert_eq!(resting.due(found.iter(), Instant::now()).len(), 101);
        // a whole group failed together: that is one try
        for entry in &found[..50] {
            resting.meet(entry, &failure(Scope::Folder), &config);
        }
        let now = Instant::now();
        assert!(resting.holds(&found[99], now) && !resting.holds(&found[100], now));
        assert_eq!(resting.due(found.iter(), now), [&found[100]]);
        assert_eq!((resting.len(), resting.shown()[0].files), (100, 100));
        assert_eq!(resting.shown()[0].what, "x/");
        // one that a scan passed over rests on, however long the scan took
        resting.pass_over(now);
        assert_eq!(resting.passed_over().collect::<Vec<_>>(), ["x"]);
        assert_eq!(resting.due(found[100..].iter(), later(&resting)), [&found[100]]);
        assert_eq!(resting.len(), 100);
        resting.pass_over(later(&resting));
        let first = resting.left(now).unwrap();
        assert!(first <= config.daemon.backoff().0, "{first:?}");
        let now = later(&resting);
        assert_eq!(resting.due(found.iter(), now), [&found[0], &found[100]]);
        resting.pass(&found[0], true);
        assert_eq!(resting.due(found.iter(), now).len(), 101);
        assert!(resting.is_empty());
    }

    #[test]
    fn a_file_rests_alone_and_what_went_away_does_not_rest() {
        let config = Config::default();
        let found = [Entry::new(Some("x"), "a"), Entry::new(Some("x"), "b")];
        let mut resting = Resting::default();
        resting.meet(&found[0], &failure(Scope::File), &config);
        let now = Instant::now();
        assert_eq!(resting.due(found.iter(), now), [&found[1]]);
        assert_eq!((resting.len(), resting.shown()[0].what.as_str()), (1, "x/a"));
        assert_eq!(resting.due(found[1..].iter(), now), [&found[1]]);
        assert!(resting.is_empty());
        // nor does a folder of which nothing is left
        resting.meet(&found[0], &failure(Scope::Folder), &config);
        assert!(resting.due([].iter(), later(&resting)).is_empty());
        assert!(resting.is_empty() && resting.left(now).is_none());
    }

    #[test]
    fn what_changes_again_and_again_waits_longer_each_time() {
        let mut resting = Resting::default();
        let entry = Entry::new(None, "a");
        let times: Vec<u32> = (0..8).map(|_| resting.change(&entry)).collect();
        assert_eq!(times, [1, 2, 4, 8, 16, 32, 32, 32]);
        resting.pass(&entry, true);
        assert_eq!(resting.change(&entry), 1);
        resting.keep_changed(&Scan::default());
        assert_eq!(resting.change(&entry), 1);
        assert!(resting.is_empty());
    }

    #[test]
    fn no_more_than_20_are_shown_and_all_are_counted() {
        let config = Config::default();
        let mut resting = Resting::default();
        for n in 0..1000 {
            resting.meet(&Entry::new(None, format!("{n}")), &failure(Scope::File), &config);
        }
        assert_eq!((resting.len(), resting.shown().len()), (1000, MOST_SHOWN));
    }
}
