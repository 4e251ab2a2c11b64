//! What the daemon says of itself: in the lock file, for `status`, and to systemd.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::faults::{FaultPart, Faults, ShownFault};
use crate::config::Config;
use crate::model::clock::Clock;
use crate::spool::Entry;

/// The longest text that is published, in bytes: the whole state has to fit into the lock file.
const MAX_TEXT_BYTES: usize = 900;

/// The same of the name of what rests, and of the reason.
const MAX_RESTED_BYTES: usize = 200;
const MAX_WHY_BYTES: usize = 350;

/// The same of each fault that is not the gravest, and how many of those are published.
const MAX_ALSO_BYTES: usize = 250;
const MAX_ALSO: usize = 2;

/// The same of the name of a file that waits for its writer.
const MAX_OPEN_BYTES: usize = 100;

/// The longest name of a former store that is published, in bytes.
const MAX_USED_DB_BYTES: usize = 250;

/// What the daemon is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Phase {
    #[default]
    Starting,
    Idle,
    Working,
    /// Something passing is in the way, and it tries again.
    BackingOff,
    Stopping,
    Stopped,
}

impl Phase {
    /// The name, as published.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Idle => "idle",
            Phase::Working => "working",
            Phase::BackingOff => "backing off",
            Phase::Stopping => "stopping",
            Phase::Stopped => "stopped",
        }
    }
}

/// How many of them are shown by name.
pub(super) const MOST_SHOWN: usize = 20;

/// A file that waits for a writer that has it open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFile {
    /// The file, as shown.
    pub file: String,
    /// Since when that is known, in milliseconds since the epoch.
    pub since_ms: i64,
}

impl OpenFile {
    /// What a scan says of it.
    pub(super) fn of((entry, since): &(Entry, Instant)) -> OpenFile {
        let open_ms = i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX);
        let since_ms = Clock::System.now_ms().saturating_sub(open_ms);
        OpenFile { file: entry.shown(), since_ms }
    }
}

/// A file or folder of the inbox that is left alone for a while, because something stands in the
/// way of it alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rested {
    /// Its name below the inbox, as shown; that of a folder ends in a slash.
    pub what: String,
    /// Since when, in milliseconds since the epoch.
    pub since_ms: i64,
    /// Why, and what to do.
    pub why: String,
    /// How many files that concerns, as far as can be seen; at least 1.
    pub files: u64,
}

/// The state of the daemon, as others can see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonState {
    /// The process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// Its store.
    pub db: String,
    /// Whether this or an earlier daemon of this spool has opened that store: it was there.
    #[serde(default)]
    pub db_opened: bool,
    /// The store that the daemons of this spool opened last, while that is another one.
    #[serde(default)]
    pub used_db: Option<String>,
    /// When it started, in milliseconds since the epoch.
    pub started_at_ms: i64,
    /// When this was written.
    pub updated_at_ms: i64,
    /// What it is doing.
    pub phase: Phase,
    /// What is in its way; when it gave up, why.
    pub fault: Option<ShownFault>,
    /// What else is, less gravely.
    #[serde(default)]
    pub also: Vec<String>,
    /// The file that it has in hand, as shown.
    pub file: Option<String>,
    /// How many files are ready and wait for their turn.
    pub ready: u64,
    /// How many files are not ready: still being written.
    pub not_ready: u64,
    /// How many of those are not taken because a writer has them open.
    #[serde(default)]
    pub open_for_writing: u64,
    /// The one of those that has waited longest.
    #[serde(default)]
    pub longest_open: Option<OpenFile>,
    /// How many things in the inbox are neither read nor moved.
    pub odd: u64,
    /// How many names in the inbox say that they are not meant yet: left alone.
    pub ignored: u64,
    /// How many files cannot be read or moved at the moment, and are tried again later.
    pub resting: u64,
    /// The first of them, with the reason: at most 20.
    #[serde(default)]
    pub rests: Vec<Rested>,
    /// How many folders others could change when it started; the log names them.
    #[serde(default)]
    pub loose: u64,
    /// How many files it has ingested since it started.
    pub done: u64,
    /// How many it has refused.
    pub failed: u64,
    /// How often it looked through the whole inbox because hints were lost.
    pub rescans: u64,
    /// Whether the kernel tells of new files; if not, the inbox is looked through regularly.
    pub watching: bool,
    /// Whether it is watched, and files came of which the kernel did not tell.
    #[serde(default)]
    pub untold: bool,
    /// The file system of the inbox, where files can come to it of which the kernel does not tell.
    #[serde(default)]
    pub inbox_on: Option<String>,
}

/// What the threads of the daemon share.
#[derive(Debug, Default)]
pub(super) struct SharedState {
    state: Mutex<DaemonState>,
    faults: Mutex<Faults>,
    // the state was changed, and whoever publishes it knows
    changed: AtomicBool,
    // a fault came or went, and whoever publishes it looks for itself
    touched: AtomicBool,
    // the worker has nothing to do for a while
    waiting: AtomicBool,
    beat: AtomicU64,
    stop: AtomicU8,
    stop_by: Mutex<Option<Instant>>,
    // the last configuration that was read and is not taken up yet
    offer: Mutex<Option<Config>>,
}

const GO_ON: u8 = 0;
const STOP: u8 = 1;

impl SharedState {
    /// The state, to be changed in place.
    pub(super) fn state(&self) -> MutexGuard<'_, DaemonState> {
        // a thread that panicked ends the process; what it left is still worth showing
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state was changed; whether that must be said: once is enough until it is read.
    pub(super) fn is_news(&self) -> bool {
        !self.changed.swap(true, Ordering::AcqRel)
    }

    /// The state, to be published as it is now.
    pub(super) fn to_publish(&self) -> DaemonState {
        // first: what changes from here on is said again
        self.changed.store(false, Ordering::Release);
        self.touched.store(false, Ordering::Release);
        let mut state = self.state().clone();
        let faults = self.faults();
        (state.fault, state.also) = faults.shown();
        if faults.has(FaultPart::Progress) && matches!(state.phase, Phase::Idle | Phase::Working) {
            state.phase = Phase::BackingOff;
        }
        state
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is in the way of that part: shown, and logged once.
    pub(super) fn meet(&self, part: FaultPart, kind: &str, text: &str) {
        let line = self.faults().meet(part, kind, text, Instant::now());
        self.touched.store(true, Ordering::Release);
        if let Some(line) = line {
            line.log();
        }
    }

    /// The same, without a line in the log.
    pub(super) fn show(&self, part: FaultPart, kind: &str, text: &str) {
        self.faults().show(part, kind, text, Instant::now());
        self.touched.store(true, Ordering::Release);
    }

    /// Nothing is in the way of that part; whether something was.
    pub(super) fn pass(&self, part: FaultPart) -> bool {
        let mut faults = self.faults();
        let was = faults.has(part);
        let line = faults.pass(part);
        drop(faults);
        if was {
            self.touched.store(true, Ordering::Release);
        }
        if let Some(line) = line {
            line.log();
        }
        was
    }

    /// Whether a fault came or went since the state was published.
    pub(super) fn is_touched(&self) -> bool {
        self.touched.load(Ordering::Acquire)
    }

    /// The worker begins to wait for something to do, or ends that: meanwhile it need not get on.
    pub(super) fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Release);
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// The worker made progress: what the watchdog is fed by.
    pub(super) fn beat(&self) {
        self.beat.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn beats(&self) -> u64 {
        self.beat.load(Ordering::Relaxed)
    }

    /// A configuration, for the worker to take up at its next step. A later one replaces it.
    pub(super) fn offer(&self, config: Config) {
        *self.offer.lock().unwrap_or_else(PoisonError::into_inner) = Some(config);
    }

    /// The configuration that was offered since the last time.
    pub(super) fn take_offer(&self) -> Option<Config> {
        self.offer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// No new file from now on; the current one may be finished until then.
    pub(super) fn stop(&self, by: Instant) {
        *self.stop_by.lock().unwrap_or_else(PoisonError::into_inner) = Some(by);
        self.stop.store(STOP, Ordering::Release);
    }

    pub(super) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire) != GO_ON
    }

    /// Whether the time for the current file is up.
    pub(super) fn out_of_time(&self) -> bool {
        self.stopping()
            && self
                .stop_by
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_some_and(|by| Instant::now() >= by)
    }
}

impl DaemonState {
    /// Whether something is in its way, so that it is not well; then the [line](Self::line) says
    /// what.
    pub fn is_hindered(&self) -> bool {
        self.fault.is_some() || self.resting > 0
    }

    /// What rests, for a report; none when nothing does.
    pub fn resting_json(&self) -> Option<serde_json::Value> {
        let resting = serde_json::json!({"files": self.resting, "listed": self.rests});
        (self.resting > 0).then_some(resting)
    }

    /// What rests, a line each, for people; none when nothing does.
    pub fn resting_lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut listed = 0;
        for rested in &self.rests {
            let files = match rested.files {
                1 => String::new(),
                files => format!(" ({files} files)"),
            };
            let since = crate::query::report::utc(rested.since_ms);
            let why = crate::query::report::visible(&rested.why);
            lines.push(format!("{}{files}, since {since}: {why}", rested.what));
            listed += rested.files;
        }
        let more = self.resting.saturating_sub(listed);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        lines
    }

    /// In one line, for systemd and for people.
    pub fn line(&self) -> String {
        let mut line = self.phase.name().to_owned();
        if let Some(fault) = &self.fault {
            line.push_str(": ");
            line.push_str(&fault.text);
        } else if let Some(file) = &self.file {
            line.push_str(": ");
            line.push_str(file);
        }
        for text in &self.also {
            line.push_str("; also: ");
            line.push_str(text);
        }
        if self.fault.is_none() && self.resting > 0 {
            line.push_str(&format!("; not readable or movable: {}", self.resting));
        }
        line.push_str(&format!(
            "; since start {} ingested, {} refused; {} waiting",
            self.done,
            self.failed,
            self.ready + self.not_ready
        ));
        line
    }

    /// As JSON that fits into the lock file.
    pub(super) fn published(&self) -> Vec<u8> {
        let mut state = self.clone();
        shorten(&mut state.db, MAX_TEXT_BYTES);
        if let Some(fault) = &mut state.fault {
            shorten(&mut fault.text, MAX_TEXT_BYTES);
        }
        if let Some(file) = &mut state.file {
            shorten(file, MAX_TEXT_BYTES);
        }
        // half a name is no name
        state.used_db = state.used_db.filter(|db| db.len() <= MAX_USED_DB_BYTES);
        if let Some(open) = &mut state.longest_open {
            shorten(&mut open.file, MAX_OPEN_BYTES);
        }
        state.also.truncate(MAX_ALSO);
        state.also.iter_mut().for_each(|text| shorten(text, MAX_ALSO_BYTES));
        state.rests.truncate(MOST_SHOWN);
        for rested in &mut state.rests {
            shorten(&mut rested.what, MAX_RESTED_BYTES);
            shorten(&mut rested.why, MAX_WHY_BYTES);
        }
        // strings and numbers only: there is nothing in it that cannot be written as JSON
        serde_json::to_vec(&state).unwrap_or_default()
    }
}

fn shorten(text: &mut String, most: usize) {
    if text.len() > most {
        let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::lock::STATE_MAX_BYTES;

    #[test]
    fn the_longest_state_fits_into_the_lock_file() {
        let long = "\u{1}".repeat(5000);
        let (what, why) = ("ж".repeat(4000), "é".repeat(4000));
        let rested = Rested { what, since_ms: i64::MIN, why, files: u64::MAX };
        let state = DaemonState {
            db: "ж".repeat(4000),
            fault: Some(ShownFault {
                text: "é".repeat(4000), since_ms: i64::MIN, tries: u64::MAX
            }),
            file: Some(long.replace('\u{1}', "x")),
            also: vec!["é".repeat(4000); 5],
            used_db: Some("x".repeat(MAX_USED_DB_BYTES)),
            longest_open: Some(OpenFile { file: "é".repeat(4000), since_ms: i64::MIN }),
            rests: vec![rested; 100],
            resting: u64::MAX,
            ..DaemonState::default()
        };
        let published = state.published();
        assert!(published.len() <= STATE_MAX_BYTES, "{} bytes", published.len());
        let read: DaemonState = serde_json::from_slice(&published).unwrap();
        assert_eq!(read.fault.unwrap().tries, u64::MAX);
        assert_eq!((read.also.len(), read.rests.len()), (MAX_ALSO, MOST_SHOWN));
    }

    #[test]
    fn what_is_hindered_says_so_in_its_line() {
        let fault = Some(ShownFault { text: "disk full".to_owned(), since_ms: 0, tries: 1 });
        let well = DaemonState::default();
        assert!(!well.is_hindered());
        let line = well.line();
        for state in [
            DaemonState { fault, also: vec!["no report".to_owned()], ..DaemonState::default() },
            DaemonState { resting: 2, ..DaemonState::default() },
        ] {
            assert!(state.is_hindered());
            assert_ne!(state.line(), line, "the same line as that of one who is well");
        }
    }

    #[test]
    fn one_that_does_not_get_on_backs_off() {
        let shared = SharedState::default();
        shared.state().phase = Phase::Working;
        shared.meet(FaultPart::Progress, "still", "the store does not answer");
        assert!(shared.is_touched());
        let state = shared.to_publish();
        assert!(!shared.is_touched());
        assert_eq!(state.phase, Phase::BackingOff);
        assert_eq!(state.line().split(';').next(), Some("backing off: the store does not answer"));
        assert!(shared.pass(FaultPart::Progress) && !shared.pass(FaultPart::Progress));
        assert_eq!(shared.to_publish().phase, Phase::Working);
    }

    #[test]
    fn a_stop_gives_time_first() {
        let shared = SharedState::default();
        assert!(!shared.stopping() && !shared.out_of_time());
        let now = Instant::now();
        shared.stop(now + std::time::Duration::from_secs(3600));
        assert!(shared.stopping() && !shared.out_of_time());
        shared.stop(now);
        assert!(shared.out_of_time());
    }
}
