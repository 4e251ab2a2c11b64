//! The worker thread at work: looks into the inbox, takes what is ready, and waits for more.

mod dispatch;
mod late_writes;
mod presence;

use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, Sender, select};

use super::backoff::Backoff;
use super::fairness::Fairness;
use super::faults::FaultPart;
use super::idleness::Spent;
use super::resting::Resting;
use super::retention::RetentionTask;
use super::scan_schedule::ScanSchedule;
use super::state::MOST_SHOWN;
use super::state::OpenFile;
use super::watch_health::WatchHealth;
use super::worker_context::{WorkerContext, WorkerEnd, WorkerNote};
use crate::model::clock::{Clock, utc};
use crate::pipeline::worker::{Failure, Scope, Worker};
use crate::spool::accepted_seconds::Accepted;
use crate::spool::late_writes::LateWrites;
use crate::spool::name::shown_path;
use crate::spool::scan::{Depth, NotReady, Odd, Scan, ScanError, Scanner};
use crate::spool::watch::{self, Hint, Watch};
use crate::store::is_behind;
use crate::store::sqlite::SqliteStore;
use presence::Presences;

/// How often the inbox is looked through when the kernel does not tell of new files.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How often the trusted time is kept while no batch comes.
const KEEP_TIME_EVERY: Duration = Duration::from_secs(600);

/// The same while the clock is not believed.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// For how many settle times a single run waits for files that are still changing before it begins
/// with the others.
const SETTLE_ROUNDS: u32 = 5;

/// The worker thread at work.
pub(super) struct WorkerLoop {
    context: WorkerContext,
    worker: Worker,
    scanner: Scanner,
    hints: Receiver<Hint>,
    tell: Sender<Hint>,
    watch: Option<Watch>,
    watch_error: Option<String>,
    watch_health: WatchHealth,
    scan_schedule: ScanSchedule,
    // the inbox could not be listed at the last try
    blind: bool,
    backoff: Backoff,
    resting: Resting,
    fairness: Fairness,
    // a folder began to rest: what else was going to be taken of it waits, too
    rested: bool,
    known_odd: HashSet<Odd>,
    stuck: Option<Failure>,
    // files wait until this process has lived for a while
    calming: bool,
    // there is more to be seen in the inbox than the last look has shown
    must_look: bool,
    presences: Presences,
    // how the time since the last look was spent
    spent: Spent,
    looked: Instant,
    // the last try ended with what looks like damage
    suspected: bool,
    // what is wrong with the first of the folders and files that cannot be looked at
    unreadable_why: Option<String>,
    // when the watch ended, which is not started again at once
    unwatched_since: Option<Instant>,
    // what the configuration declares is not in the store yet
    undeclared: bool,
    accepted: Accepted,
    // when the trusted time was last kept
    time_kept: Instant,
    retain: RetentionTask,
    late_writes: LateWrites,
}

impl WorkerLoop {
    /// Begins with a store that is open.
    pub(super) fn new(context: WorkerContext, store: SqliteStore) -> WorkerLoop {
        let (tell, hints) = watch::channel();
        let settle = context.config.inbox.settle();
        let mut scanner = Scanner::new(settle, context.config.inbox.scan_order());
        scanner.set_ignored(context.config.inbox.ignored());
        let limits = context.config.limits.for_decoding();
        let worker = Worker::new(context.spool.clone(), Box::new(store), limits, settle);
        let worker = worker.noting(context.quarantine.in_flight());
        let worker = worker.admitting(context.config.sources.admission());
        WorkerLoop {
            worker,
            scanner,
            hints,
            tell,
            watch: None,
            watch_error: None,
            watch_health: WatchHealth::default(),
            scan_schedule: ScanSchedule::default(),
            blind: false,
            backoff: Backoff::new(&context.config),
            resting: Resting::default(),
            fairness: Fairness::default(),
            rested: false,
            known_odd: HashSet::new(),
            stuck: None,
            calming: false,
            must_look: false,
            presences: Presences::default(),
            spent: Spent::AtWork(Duration::ZERO),
            looked: Instant::now(),
            suspected: false,
            unreadable_why: None,
            unwatched_since: None,
            undeclared: true,
            accepted: Accepted::default(),
            time_kept: Instant::now(),
            retain: RetentionTask::new(),
            late_writes: LateWrites::default(),
            context,
        }
    }

    /// Looks, takes and waits, until there is a reason to end.
    pub(super) fn run(mut self) -> WorkerEnd {
        if !self.context.once {
            self.start_watch();
        }
        let mut first = true;
        let begun = Instant::now();
        loop {
            self.context.shared.beat();
            if self.context.shared.stopping() {
                break;
            }
            let scan = match self.scan() {
                Ok(scan) => scan,
                Err(failure) if self.context.once => return WorkerEnd::GaveUp(failure),
                Err(failure) => {
                    self.back_off(&failure);
                    continue;
                }
            };
            if first {
                first = false;
                // the receiver lives as long as the process does
                let _ = self.context.notes.send(WorkerNote::Ready);
                self.resume_late_writes();
            }
            if self.context.once && self.is_settling(&scan, begun) {
                self.wait(&scan);
                continue;
            }
            let took = match self.mind_sources(&scan).and_then(|()| self.take_all(&scan)) {
                Ok(took) => took,
                Err(failure) if failure.reach == Scope::Suspect && !self.suspected => {
                    self.suspected = true;
                    self.back_off(&failure);
                    continue;
                }
                Err(failure) if failure.is_final() || self.context.once => {
                    return WorkerEnd::GaveUp(failure);
                }
                Err(failure) => {
                    self.back_off(&failure);
                    continue;
                }
            };
            self.must_look |= self.mind_late_writes();
            if took > 0 || self.must_look {
                self.spent = Spent::AtWork(self.looked.elapsed());
                continue;
            }
            if scan.ready.is_empty() && scan.links.is_empty() {
                // nothing waits that anything could be in the way of
                self.backoff.reset();
                self.context.clear();
            }
            if self.context.once && self.is_drained(&scan) {
                if self.mind_all_late_writes() {
                    continue;
                }
                break;
            }
            self.wait(&scan);
        }
        let unreadable = self.unreadable_why.take();
        let unreadable = unreadable.map(|why| Failure::passing("unreadable", why));
        match self.stuck.take().or(unreadable) {
            Some(failure) if self.context.once => WorkerEnd::GaveUp(failure),
            _ => WorkerEnd::Finished,
        }
    }

    /// Watch first, scan second: nothing falls in between. Without a watch the inbox is looked
    /// through regularly.
    fn start_watch(&mut self) {
        self.watch = match watch::start(self.context.spool.inbox(), self.tell.clone()) {
            Ok(watch) => Some(watch),
            Err(error) => {
                let every_ms = self.context.config.inbox.rescan().min(POLL_INTERVAL).as_millis();
                let text = format!("{error}; looking into the inbox every {every_ms} ms instead");
                if self.watch_error.as_ref() != Some(&text) {
                    log::warn!("{text}");
                    self.watch_error = Some(text);
                }
                None
            }
        };
        if self.watch.is_some() && self.watch_error.take().is_some() {
            log::info!("the kernel tells of new files again");
        }
        let mut far = None;
        if self.watch.is_some() {
            // what came before the watch was told by nobody
            self.scanner.ask_whole();
            self.watch_health.reset();
            far = watch::far_file_system(self.context.spool.inbox());
        }
        let mut state = self.context.shared.state();
        state.watching = self.watch.is_some();
        state.inbox_on = far.map(str::to_owned);
        state.untold = false;
        drop(state);
        self.context.changed();
    }

    /// Whether the last watch ended so lately that another would only end as soon.
    fn rests_from_watching(&self) -> bool {
        self.unwatched_since.is_some_and(|since| since.elapsed() < POLL_INTERVAL)
    }

    /// How often all is listed.
    fn rescan_interval(&self) -> Duration {
        let rescan = self.context.config.inbox.rescan();
        match self.is_told() {
            true => rescan,
            false => rescan.min(POLL_INTERVAL.max(self.scan_schedule.rest())),
        }
    }

    /// Whether the kernel tells of new files.
    fn is_told(&self) -> bool {
        self.watch.is_some() && !self.watch_health.is_deaf()
    }

    fn next_listing(&self, now: Instant) -> Instant {
        self.scan_schedule.next_listing(self.rescan_interval(), self.scanner.needs_whole(), now)
    }

    /// How much is to be looked at now. Where the kernel tells of what is new, that; otherwise what
    /// came during the work is listed after it.
    fn depth(&self, now: Instant) -> Depth {
        let has_worked = matches!(self.spent, Spent::AtWork(_));
        match self.is_told() {
            _ if self.blind || now >= self.next_listing(now) => Depth::Whole,
            false if has_worked => Depth::Names,
            false if self.context.once => Depth::Whole,
            _ => Depth::Asked,
        }
    }

    /// Whether what is ready is to be looked at afresh, in the middle of a backlog.
    fn is_stale(&self) -> bool {
        self.scan_schedule.is_stale(self.looked, Instant::now())
    }

    /// Takes up whether a listing by time found files of which the kernel did not tell.
    fn listen(&mut self, scan: &Scan, was_asked: bool) {
        if self.watch.is_none() {
            return;
        }
        let was_deaf = self.watch_health.is_deaf();
        let inbox = self.context.spool.inbox();
        // where hints were lost, that files were not named says nothing
        let unannounced = scan.unannounced.iter().filter(|_| !was_asked);
        self.watch_health.listed(unannounced.map(|entry| entry.path_in(inbox)));
        let is_deaf = self.watch_health.is_deaf();
        if is_deaf == was_deaf {
            return;
        }
        match is_deaf {
            true => log::warn!(
                "the kernel does not tell of files that come to {}: looking through all of it at \
                 least every {} ms ([inbox] rescan_ms)",
                shown_path(inbox),
                self.rescan_interval().as_millis()
            ),
            false => log::info!("the kernel tells of new files again"),
        }
        self.context.shared.state().untold = is_deaf;
        self.context.changed();
    }

    fn scan(&mut self) -> Result<Scan, Failure> {
        self.obey();
        self.must_look = false;
        // what was put back to be taken as it stands was noted before
        if let Some(hashes) = self.accepted.look(&self.context.spool) {
            self.worker.accept_seconds(hashes);
        }
        let now = Instant::now();
        let depth = self.depth(now);
        let was_asked = self.scanner.needs_whole();
        self.resting.pass_over(now);
        self.scanner.pass_over(self.resting.passed_over());
        let looked = self.scanner.look(&self.context.spool, depth, now, SystemTime::now());
        self.scan_schedule.end(depth, Instant::now(), now.elapsed());
        let scan = match looked {
            Ok(scan) => scan,
            Err(ScanError { path, source }) => {
                self.blind = true;
                let what = "inbox unreadable";
                return Err(Failure::with_spool(what, what, &path, &source));
            }
        };
        if std::mem::take(&mut self.blind) {
            self.backoff.reset();
            self.context.clear();
        }
        if depth == Depth::Whole {
            self.listen(&scan, was_asked);
        }
        self.look_at_odd(&scan);
        let open = scan.waiting.iter().filter(|(_, why)| *why == NotReady::OpenForWriting).count();
        let mut state = self.context.shared.state();
        let was_open = state.open_for_writing > 0;
        state.ready = (scan.ready.len() + scan.links.len()) as u64;
        state.not_ready = scan.waiting.len() as u64;
        state.open_for_writing = open as u64;
        state.longest_open = scan.longest_open.as_ref().map(OpenFile::of);
        state.odd = scan.odd.iter().filter(|odd| !is_unreadable(odd)).count() as u64;
        state.resting = self.resting.len() as u64;
        state.ignored = scan.ignored as u64;
        drop(state);
        if open > 0 || was_open {
            self.context.changed();
        }
        Ok(scan)
    }

    /// Says of each thing that is left alone what it is, once; of many at once, of the first.
    fn look_at_odd(&mut self, scan: &Scan) {
        let (mut said, mut unsaid) = (0, 0);
        for odd in scan.odd.iter().filter(|odd| !is_unreadable(odd)) {
            if !self.known_odd.insert(odd.clone()) {
                continue;
            }
            if said < MOST_SHOWN {
                log::warn!("{odd}");
                said += 1;
            } else {
                unsaid += 1;
            }
        }
        if unsaid > 0 {
            log::warn!("{unsaid} more things in the inbox are no files: left alone");
        }
        self.resting.look(scan);
        self.unreadable_why = scan.odd.iter().find(|odd| is_unreadable(odd)).map(Odd::to_string);
        if let Some(why) = &self.unreadable_why {
            self.context.shared.meet(FaultPart::Files, "unreadable", why);
        }
        let here: HashSet<&Odd> = scan.odd.iter().collect();
        self.known_odd.retain(|odd| here.contains(odd));
    }

    /// Whether a single run waits before it takes anything: files that were copied in a moment ago
    /// become still one after the other, and are to be taken in order all the same. What never
    /// becomes still does not hold up the others for ever.
    fn is_settling(&self, scan: &Scan, begun: Instant) -> bool {
        begun.elapsed() < self.context.config.inbox.settle().saturating_mul(SETTLE_ROUNDS)
            && scan.waiting.iter().any(|(_, why)| *why == NotReady::StillChanging)
    }

    /// Whether a single run has nothing left to do: what somebody still has open is left for the
    /// next run, what may settle is waited for.
    fn is_drained(&self, scan: &Scan) -> bool {
        if self.calming || scan.waiting.iter().any(|(_, why)| *why != NotReady::OpenForWriting) {
            return false;
        }
        for (entry, _) in &scan.waiting {
            log::warn!("{entry} is still open for writing: left for the next run");
        }
        true
    }

    /// Takes up what came in the meantime, without waiting; whether there was another configuration.
    fn obey(&mut self) -> bool {
        while let Ok(hint) = self.hints.try_recv() {
            self.take_hint(hint);
        }
        // there is room again for what found none
        while let Some(hint) = self.watch.as_ref().and_then(Watch::owed) {
            self.take_hint(hint);
        }
        self.take_up_config()
    }

    /// Whether it is a reason to look into the inbox.
    fn take_hint(&mut self, hint: Hint) -> bool {
        match hint {
            Hint::Look => self.scanner.ask_whole(),
            Hint::Changed(path) => {
                self.watch_health.hear(&path);
                self.scanner.changed(path);
            }
            Hint::MovedIn(path) => {
                self.watch_health.hear(&path);
                self.scanner.moved_in(path);
            }
            Hint::Rescan => {
                self.scanner.ask_whole();
                self.context.shared.state().rescans += 1;
                log::info!("hints of new files were lost: looking through the whole inbox");
            }
            // of one that never began: known already, and to try again at once would be a loop
            Hint::Dead(_) if self.watch.is_none() => return false,
            Hint::Dead(why) => {
                log::warn!("the watch on the inbox ended: {why}");
                self.context.shared.state().rescans += 1;
                self.watch = None;
                self.scanner.ask_whole();
                self.unwatched_since = Some(Instant::now());
            }
        }
        self.must_look = true;
        true
    }

    fn take_up_config(&mut self) -> bool {
        let Some(config) = self.context.shared.take_offer() else { return false };
        self.scanner.set_settle(config.inbox.settle());
        self.scanner.set_order(config.inbox.scan_order());
        self.scanner.set_ignored(config.inbox.ignored());
        self.worker.set_limits(config.limits.for_decoding(), config.inbox.settle());
        self.worker.set_admission(config.sources.admission());
        self.backoff = Backoff::new(&config);
        self.undeclared = true;
        self.context.config = config;
        true
    }

    /// Keeps the trusted time now and then: a commit does so, too, but there may be none for long.
    /// And says so while the clock is too far behind it to be believed.
    fn keep_time(&mut self) {
        let store = self.worker.store();
        let (trusted_ms, now_ms) = (store.trusted_ms(), Clock::System.now_ms());
        // somebody may have said meanwhile that the clock is right
        let is_due = self.time_kept.elapsed()
            >= if is_behind(trusted_ms, now_ms) { LOOK_EVERY } else { KEEP_TIME_EVERY };
        if is_due {
            self.time_kept = Instant::now();
            // it is only kept a little later then; what is wrong with the store is found elsewhere
            if let Err(error) = store.keep_time() {
                log::debug!("the trusted time is not kept: {error}");
            }
        }
        if is_behind(trusted_ms, now_ms) {
            let text = format!(
                "the clock says {}, and the store knows that it is {} at least: events are judged \
                 and receipts stamped by that; set the clock, or if it is right, run: windowflow \
                 prune --trust-clock",
                utc(now_ms),
                utc(trusted_ms)
            );
            self.context.shared.meet(FaultPart::Clock, "clock", &text);
            self.context.changed();
        } else if self.context.shared.pass(FaultPart::Clock) {
            self.context.changed();
        }
    }

    /// Waits for a hint, to be woken, or for the time to look again.
    fn wait(&mut self, scan: &Scan) {
        if self.watch.is_none() && !self.context.once && !self.rests_from_watching() {
            self.start_watch();
            if self.watch.is_some() {
                // what came before the watch is seen by the scan after it
                return;
            }
        }
        self.keep_time();
        if !self.context.once {
            let hints = &self.hints;
            self.retain.turn(&self.context, self.worker.store(), &|| !hints.is_empty());
        }
        let now = Instant::now();
        let rest = self.resting.left(now);
        let calm = self.calming.then(|| self.context.quarantine.calm_in(now));
        let listing = self.next_listing(now).saturating_duration_since(now);
        let wait = [Some(listing), scan.look_again_in, rest, self.presences.next, calm]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(POLL_INTERVAL);
        let until = now + wait;
        loop {
            let step = self.late_writes.due().map_or(until, |due| until.min(due));
            if self.is_woken_before(step) || step >= until {
                break;
            }
            if self.mind_late_writes() {
                self.must_look = true;
                break;
            }
        }
        self.spent = Spent::Waiting { passed: now.elapsed(), meant: wait };
        if Instant::now() >= until && self.watch.as_ref().is_some_and(|watch| !watch.is_current()) {
            self.take_hint(Hint::Dead("the inbox is another folder by now".to_owned()));
        }
    }

    /// Waits until then; whether there was a reason to stop waiting before.
    fn is_woken_before(&mut self, until: Instant) -> bool {
        loop {
            self.context.shared.beat();
            let left = until.saturating_duration_since(Instant::now());
            let pause = left.min(self.context.longest_wait);
            self.context.shared.set_waiting(true);
            let is_woken = select! {
                recv(self.hints) -> hint => hint.is_ok_and(|hint| self.take_hint(hint)),
                recv(self.context.woken) -> woken => {
                    match woken {
                        Ok(()) => drop(self.take_up_config()),
                        // nobody is left to say when to stop
                        Err(_) => self.context.shared.stop(Instant::now()),
                    }
                    true
                }
                default(pause) => false,
            };
            self.context.shared.set_waiting(false);
            // asked last, since what woke us may have been taken up already
            if is_woken || self.context.shared.stopping() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
        }
    }

    /// Something passing is in the way of all: waits, then everything is looked at afresh. Hints
    /// do not shorten the wait, to be woken does.
    fn back_off(&mut self, failure: &Failure) {
        let wait = self.backoff.next();
        self.context.in_the_way(failure, wait);
        if self.context.rest(Instant::now() + wait) {
            self.take_up_config();
        }
    }
}

/// Whether it is something that cannot be looked at, and is tried again at each scan.
fn is_unreadable(odd: &Odd) -> bool {
    odd.oddity.is_fault()
}
