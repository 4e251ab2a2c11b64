//! Threads and channels: start, drain, stop.

mod backoff;
mod expected;
mod fairness;
mod faults;
mod idleness;
mod liveness;
mod lost_store;
mod quarantine;
mod report_dump;
mod resting;
mod retention;
mod scan_schedule;
pub mod signals;
mod start;
pub mod state;
pub mod systemd;
mod wal_growth;
mod watch_health;
mod worker_context;
mod worker_loop;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{
    Receiver, RecvTimeoutError, Sender, TrySendError, after, bounded, never, select, tick,
};

use crate::config::Config;
use crate::daemon::liveness::{Liveness, Panic, Panics};
use crate::daemon::quarantine::Quarantine;
use crate::daemon::report_dump::Dumper;
use crate::daemon::signals::Asked;
use crate::daemon::systemd::Notifier;
use crate::daemon::wal_growth::WalGrowth;
use crate::daemon::worker_context::{WorkerContext, WorkerEnd, WorkerNote};
use crate::exit::Exit;
use crate::model::clock::Clock;
use crate::pipeline::worker::Failure;
use crate::spool::in_flight::{Excuse, InFlight};
use crate::spool::lock::Lock;
use crate::spool::name::shown_path;
use crate::spool::{self, Spool, advice};
use crate::store::sqlite::Options;
use backoff::Backoff;
use faults::FaultPart;
use faults::ShownFault;
pub use start::note_failure;
use state::{DaemonState, Phase, SharedState};

/// How often the state is published at most.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);

/// How often a sign of life is published, as long as the worker gives some.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How long the worker waits at most without a sign of life, where no watchdog asks for less.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// How long a process that was told to stop waits beyond the grace time for the current file to be
/// undone.
const UNDO_TIME: Duration = Duration::from_secs(20);

/// How long a process that stops in good order waits at least for a report that was asked for before;
/// the grace time where that is longer.
const REPORT_TIME: Duration = Duration::from_secs(5);

/// What the daemon is to do.
#[derive(Debug)]
pub struct Job {
    /// The folder with the inbox.
    pub spool: PathBuf,
    /// The store.
    pub db: PathBuf,
    /// How it is opened.
    pub options: Options,
    /// The configuration that it starts with.
    pub config: Config,
    /// The file that it is read from again on SIGHUP; none when there is none.
    pub config_file: Option<PathBuf>,
    /// How much is logged is fixed, whatever the configuration says.
    pub log_is_fixed: bool,
    /// Drain the inbox and stop.
    pub once: bool,
}

/// Why the daemon ended other than in good order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The exit code.
    pub exit: Exit,
    /// What is wrong, where, and what to do.
    pub text: String,
}

impl Stopped {
    fn new(exit: Exit, text: impl Into<String>) -> Stopped {
        Stopped { exit, text: text.into() }
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTotals {
    /// How many files it ingested.
    pub done: u64,
    /// How many it refused.
    pub failed: u64,
    /// How many it left in the inbox: not ready yet.
    pub left: u64,
}

/// Runs until it is asked to stop, or has drained the inbox.
///
/// # Errors
/// When it cannot start, or meets a fault that does not pass.
pub fn run(job: Job, asked: &Receiver<Asked>) -> Result<RunTotals, Stopped> {
    let notifier = Notifier::from_env();
    let Some(lock) = start::lock(&job, &notifier, asked)? else { return Ok(RunTotals::default()) };
    // before this process says anything there
    let used_db = lost_store::used_before(&job.spool);
    let spool = Spool::at(&job.spool);
    let shared = Arc::new(SharedState::default());
    introduce(&job, &spool, used_db.as_deref(), &shared);
    let failed = |error: io::Error| {
        let what = format!("no thread: {}", advice::explain(&job.spool, &error));
        Stopped::new(Exit::Again, what)
    };
    let panics = liveness::watch_panics();
    let (dumps, dumped) = start_dumper(&job, &spool, &shared).map_err(failed)?;
    let (wake, woken) = bounded(1);
    let (note, notes) = bounded(64);
    let longest_wait = notifier
        .watchdog_interval()
        .map_or(LONGEST_WAIT, |interval| LONGEST_WAIT.min(interval / 2));
    let quarantine = Quarantine::begin(&spool);
    let in_flight = quarantine.in_flight();
    let context = WorkerContext {
        spool: spool.clone(),
        db: job.db.clone(),
        used_db,
        options: job.options.clone(),
        settings: job.config.window,
        config: job.config.clone(),
        once: job.once,
        shared: Arc::clone(&shared),
        woken,
        notes: note,
        longest_wait,
        quarantine,
    };
    let (end, ended) = bounded(1);
    let worker = thread::Builder::new()
        .name("worker".to_owned())
        .spawn(move || {
            let over = context.run();
            // the receiver lives until this arrives, or the process ends
            let _ = end.send(over);
        })
        .map_err(failed)?;
    let running = job.config.clone();
    let report_time = REPORT_TIME.max(running.daemon.stop_grace());
    let desk = Supervisor {
        job,
        running,
        lock,
        notifier,
        shared,
        wake,
        dumps,
        panics,
        in_flight,
        published: None,
        dirty: true,
        last_word: None,
    };
    let over = desk.serve(asked, &notes, &ended);
    if over.is_ok() {
        // the desk is gone and asks for no more: this ends when the last report is written
        let _ = dumped.recv_timeout(report_time);
        // it has said its last word; how it ends cannot matter any more
        let _ = worker.join();
    }
    over
}

/// Says who begins, on what, and who else could change that.
fn introduce(job: &Job, spool: &Spool, used_db: Option<&str>, shared: &SharedState) {
    let version = env!("CARGO_PKG_VERSION");
    let loose = spool::rights::loose(spool, &job.db);
    loose.iter().for_each(|folder| log::warn!("{folder}"));
    let tightened = spool::rights::tighten(spool, &job.db);
    tightened.iter().for_each(|file| log::warn!("{file}"));
    *shared.state() = DaemonState {
        pid: std::process::id(),
        version: version.to_owned(),
        db_opened: used_db == Some(&shown_path(&job.db)),
        used_db: used_db.filter(|used| *used != shown_path(&job.db)).map(str::to_owned),
        db: shown_path(&job.db),
        started_at_ms: Clock::System.now_ms(),
        loose: loose.len() as u64,
        ..DaemonState::default()
    };
    let (inbox, db) = (shown_path(spool.inbox()), shown_path(&job.db));
    log::info!("windowflow {version}: inbox {inbox}, store {db}");
}

/// The thread that writes reports. One may be asked for while another is being written; more are
/// the same request.
/// Nothing ever arrives at the receiver: it is cut off when the thread ends.
fn start_dumper(
    job: &Job,
    spool: &Spool,
    shared: &Arc<SharedState>,
) -> io::Result<(Sender<()>, Receiver<()>)> {
    let dumper = Dumper {
        db: job.db.clone(),
        options: job.options.clone(),
        reports: spool.reports().to_owned(),
        shared: Arc::clone(shared),
    };
    let (ask, asked) = bounded::<()>(1);
    let (shared, backoff) = (Arc::clone(shared), Backoff::new(&job.config));
    let (end, ended) = bounded(1);
    thread::Builder::new().name("reports".to_owned()).spawn(move || {
        let _end = end;
        let mut failed: Option<Backoff> = None;
        loop {
            let request = match &failed {
                None => asked.recv().map_err(RecvTimeoutError::from),
                // the one that failed is owed still
                Some(backoff) => asked.recv_timeout(backoff.left(Instant::now())),
            };
            if request == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            match dumper.dump() {
                Ok(path) => {
                    log::info!("report written: {}", shown_path(&path));
                    shared.pass(FaultPart::Reports);
                    failed = None;
                }
                Err(text) => {
                    shared.meet(FaultPart::Reports, "report", &text);
                    failed.get_or_insert_with(|| backoff.clone()).next();
                }
            }
        }
    })?;
    Ok((ask, ended))
}

/// The main thread: everything that is asked and said goes over it.
struct Supervisor {
    job: Job,
    // as it was last read; what cannot change while it runs stands in `job`
    running: Config,
    lock: Lock,
    notifier: Notifier,
    shared: Arc<SharedState>,
    wake: Sender<()>,
    dumps: Sender<()>,
    panics: Panics,
    in_flight: Arc<InFlight>,
    published: Option<Instant>,
    dirty: bool,
    // why it gives up
    last_word: Option<ShownFault>,
}

impl Supervisor {
    fn serve(
        mut self,
        asked: &Receiver<Asked>,
        notes: &Receiver<WorkerNote>,
        ended: &Receiver<WorkerEnd>,
    ) -> Result<RunTotals, Stopped> {
        let watchdog = self.notifier.watchdog_interval();
        let mut fed = WatchdogFeed::new(watchdog);
        let mut give_up: Option<Instant> = None;
        let mut lives = u64::MAX;
        let mut life = Liveness::new();
        let mut wal_growth = WalGrowth::default();
        let look = tick(liveness::LOOK_EVERY);
        loop {
            let publish = self.publish_in().map_or_else(never, after);
            let heartbeat = after(
                self.published.map_or(HEARTBEAT, |at| HEARTBEAT.saturating_sub(at.elapsed())),
            );
            let feed = fed.left().map_or_else(never, after);
            let too_long = give_up
                .map_or_else(never, |at| after(at.saturating_duration_since(Instant::now())));
            select! {
                recv(asked) -> asked => match asked {
                    Ok(Asked::Report) => self.ask_for_report(),
                    Ok(Asked::Reload) => self.reload(),
                    Ok(Asked::Stop) => give_up = Some(self.stop()),
                    Err(_) => {
                        let text = "the thread that waits for signals ended";
                        return Err(Stopped::new(Exit::Failed, text));
                    }
                },
                recv(notes) -> note => match note {
                    Ok(WorkerNote::Ready) => {
                        self.notifier.ready();
                        fed.ready(watchdog);
                        self.dirty = true;
                    }
                    Ok(WorkerNote::Waits) => {
                        // whoever started it need not wait with it: the status says why
                        self.notifier.ready();
                        self.dirty = true;
                    }
                    // when the worker is gone, what it ended with arrives next
                    Ok(WorkerNote::Changed) | Err(_) => self.dirty = true,
                },
                // a process that has lost a thread must not look alive
                recv(self.panics.told) -> panicked => return self.close(Err(panicked.ok())),
                recv(ended) -> over => return self.close(over.map_err(|_| None)),
                recv(look) -> _ => {
                    life.look(&self.shared, &self.in_flight, &self.job.db);
                    wal_growth.look(&self.shared, &self.job.db);
                    self.dirty |= self.shared.is_touched();
                }
                recv(publish) -> _ => self.publish(),
                recv(heartbeat) -> _ => {
                    let beats = self.shared.beats();
                    self.dirty |= beats != std::mem::replace(&mut lives, beats);
                    // without life the old state stands, and its age tells
                    self.published = Some(Instant::now());
                }
                recv(feed) -> _ => fed.feed(&self.notifier, self.shared.beats()),
                recv(too_long) -> _ => {
                    let text = "the current file could not be undone within the grace time; it is \
                                undone when the store is opened again";
                    return Err(Stopped::new(Exit::Failed, text));
                }
            }
        }
    }

    fn publish_in(&self) -> Option<Duration> {
        let since = self.published.map_or(PUBLISH_INTERVAL, |at| at.elapsed());
        self.dirty.then(|| PUBLISH_INTERVAL.saturating_sub(since))
    }

    fn publish(&mut self) {
        self.dirty = false;
        self.published = Some(Instant::now());
        let mut state = self.shared.to_publish();
        state.updated_at_ms = Clock::System.now_ms();
        if self.last_word.is_some() {
            state.fault.clone_from(&self.last_word);
        }
        match self.lock.publish(&state.published()) {
            Ok(()) => drop(self.shared.pass(FaultPart::State)),
            Err(error) => self.shared.meet(FaultPart::State, "publish", &error.to_string()),
        }
        self.notifier.status(&state.line());
    }

    fn ask_for_report(&self) {
        match self.dumps.try_send(()) {
            // the one that waits is begun after this request, and answers it too
            Ok(()) | Err(TrySendError::Full(())) => {}
            // the thread panicked, which ends the process
            Err(TrySendError::Disconnected(())) => {}
        }
    }

    fn reload(&mut self) {
        self.notifier.reloading();
        match self.read_config() {
            Ok(None) => log::info!("asked to read the configuration again, but there is no file"),
            Ok(Some(config)) => {
                self.name_differences(&config);
                if !self.job.log_is_fixed {
                    log::set_max_level(config.daemon.log.to_level_filter());
                }
                self.running = config.clone();
                self.shared.offer(config);
                self.wake();
                log::info!("configuration read again");
            }
            Err(text) => {
                log::error!("{text}; going on with the configuration as it was");
                let text = format!("{text}; it goes on as it was, but the next start would fail");
                self.shared.show(FaultPart::Config, "reload", &text);
            }
        }
        self.dirty = true;
        self.notifier.ready();
    }

    /// Says what another configuration changes that cannot change while it runs. The settings of a
    /// store never change: that they differ is shown until they do not.
    fn name_differences(&self, config: &Config) {
        let mut settings = Vec::new();
        for key in self.job.config.fixed_differences(config) {
            if key.starts_with("window") {
                let text = format!(
                    "{key} has changed in the configuration, but a store never changes its \
                     settings: put it back, or the next start is refused"
                );
                log::warn!("{text}");
                settings.push(text);
            } else {
                log::warn!("{key} has changed in the configuration: restart to use it");
            }
        }
        match settings.first() {
            Some(text) => self.shared.show(FaultPart::Config, "settings", text),
            None => drop(self.shared.pass(FaultPart::Config)),
        }
    }

    fn read_config(&self) -> Result<Option<Config>, String> {
        let file = self.job.config_file.as_deref();
        file.map(Config::load).transpose().map_err(|error| error.to_string())
    }

    /// No new file; until when to wait for the current one.
    fn stop(&mut self) -> Instant {
        let grace = self.running.daemon.stop_grace();
        let file = self.shared.state().file.clone();
        match file {
            Some(file) => log::info!("stopping; {file} has {} ms to end", grace.as_millis()),
            None => log::info!("stopping"),
        }
        self.notifier.stopping();
        // whatever the unit says of the time for a stop: it is ours to know when it is up
        self.notifier.extend_timeout(grace + UNDO_TIME);
        // whoever loses patience with it now has another reason than the file in hand
        self.in_flight.excuse(Excuse::Ending);
        self.shared.state().phase = Phase::Stopping;
        self.dirty = true;
        let by = Instant::now() + grace;
        self.shared.stop(by);
        self.wake();
        by + UNDO_TIME
    }

    /// Wakes the worker where it waits, and never waits for it: it may have a file in hand for
    /// hours. A full channel wakes it too, and when it is gone, so is the daemon.
    fn wake(&self) {
        let _ = self.wake.try_send(());
    }

    /// The last word: how the worker ended, or that a thread panicked and what it said.
    fn close(mut self, over: Result<WorkerEnd, Option<Panic>>) -> Result<RunTotals, Stopped> {
        let end = match over {
            Ok(WorkerEnd::Finished) => Ok(()),
            Ok(WorkerEnd::GaveUp(Failure { exit, text, .. })) => Err(Stopped { exit, text }),
            Err(panicked) => {
                // the hook tells before the thread is gone
                let panicked = panicked.or_else(|| self.panics.told.try_recv().ok());
                let excuse = panicked.as_ref().map_or(Excuse::None, |panic| panic.excuse);
                self.in_flight.excuse(excuse);
                let what = panicked.map(|panic| panic.text);
                let what = what.unwrap_or_else(|| "the worker ended unexpectedly".to_owned());
                let text = format!(
                    "{what}: this is a bug, please report it; start again: what was in hand is \
                     still in the inbox, and comes after all other files"
                );
                Err(Stopped::new(Exit::Failed, text))
            }
        };
        let tally = {
            let mut state = self.shared.state();
            state.phase = Phase::Stopped;
            state.file = None;
            RunTotals {
                done: state.done,
                failed: state.failed,
                left: state.ready + state.not_ready,
            }
        };
        let since_ms = Clock::System.now_ms();
        let word = |end: &Stopped| ShownFault { text: end.text.clone(), since_ms, tries: 1 };
        self.last_word = end.as_ref().err().map(word);
        self.notifier.stopping();
        self.publish();
        end.map(|()| tally)
    }
}

/// When systemd last had a sign of life, and for which progress.
struct WatchdogFeed {
    at: Instant,
    beats: u64,
    interval: Option<Duration>,
    starting: bool,
}

impl WatchdogFeed {
    fn new(watchdog: Option<Duration>) -> WatchdogFeed {
        // a start has its time limit even where no watchdog is set
        let interval = Some(watchdog.unwrap_or(LONGEST_WAIT));
        WatchdogFeed { at: Instant::now(), beats: u64::MAX, interval, starting: true }
    }

    fn ready(&mut self, watchdog: Option<Duration>) {
        self.starting = false;
        self.interval = watchdog;
    }

    /// How long until the next sign of life is due; none when nobody waits for one.
    fn left(&self) -> Option<Duration> {
        self.interval.map(|interval| interval.saturating_sub(self.at.elapsed()))
    }

    /// Only progress of the worker itself counts as a sign of life. A long recovery and a start
    /// that waits for room on the disk are progress too, and no reason to be killed.
    fn feed(&mut self, notifier: &Notifier, beats: u64) {
        self.at = Instant::now();
        if beats != self.beats {
            notifier.watchdog();
            if let (true, Some(interval)) = (self.starting, self.interval) {
                notifier.extend_timeout(3 * interval);
            }
            self.beats = beats;
        }
    }
}
