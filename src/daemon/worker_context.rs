//! The worker thread from outside: what it needs, is told and says; it begins with the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use super::backoff::Backoff;
use super::faults::FaultPart;
use super::lost_store;
use super::quarantine::Quarantine;
use super::state::{Phase, SharedState};
use super::worker_loop::WorkerLoop;
use crate::config::Config;
use crate::engine::settings::Settings;
use crate::exit::Exit;
use crate::pipeline::worker::{Failure, Scope};
use crate::spool::name::shown_path;
use crate::spool::{self, Spool};
use crate::store::sqlite::{Created, Options, SqliteStore};
use crate::store::{self, Store};

/// What the worker thread says.
pub(super) enum WorkerNote {
    /// It looked through the inbox for the first time: all that was left from before is known.
    Ready,
    /// A passing fault is in the way of the start, and is waited out.
    Waits,
    /// The shared state changed.
    Changed,
}

/// How the worker thread ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WorkerEnd {
    /// It was told to, or drained the inbox.
    Finished,
    /// It gave up.
    GaveUp(Failure),
}

/// What the worker thread needs.
pub(super) struct WorkerContext {
    pub(super) spool: Spool,
    pub(super) db: PathBuf,
    /// The store that the daemons before this one used, as shown.
    pub(super) used_db: Option<String>,
    pub(super) options: Options,
    pub(super) settings: Option<Settings>,
    pub(super) config: Config,
    pub(super) once: bool,
    pub(super) shared: Arc<SharedState>,
    pub(super) woken: Receiver<()>,
    pub(super) notes: Sender<WorkerNote>,
    pub(super) longest_wait: Duration,
    pub(super) quarantine: Quarantine,
}

impl WorkerContext {
    /// Runs until it is told to stop, gives up, or (once) has drained the inbox.
    pub(super) fn run(mut self) -> WorkerEnd {
        let mut backoff = Backoff::new(&self.config);
        let store = loop {
            match self.open() {
                Ok(store) => break store,
                Err(failure) if failure.reach == Scope::Lasting || self.once => {
                    return WorkerEnd::GaveUp(failure);
                }
                Err(failure) if failure.reach == Scope::Suspect && backoff.tries() > 0 => {
                    return WorkerEnd::GaveUp(failure);
                }
                Err(failure) => {
                    let wait = backoff.next();
                    self.in_the_way(&failure, wait);
                    // what looks like damage may end it at the next try
                    if failure.reach != Scope::Suspect {
                        // the receiver lives as long as the process does
                        let _ = self.notes.send(WorkerNote::Waits);
                    }
                    let until = Instant::now() + wait;
                    // woken or not, the loop looks at what there is
                    while self.rest(until) {
                        if let Some(config) = self.shared.take_offer() {
                            self.config = config;
                        }
                    }
                    if self.shared.stopping() {
                        return WorkerEnd::Finished;
                    }
                }
            }
        };
        self.clear();
        WorkerLoop::new(self, store).run()
    }

    /// Makes the folders of the spool where they are missing, tries them, and opens the store; that
    /// is made from the settings of the configuration where there never was one.
    fn open(&self) -> Result<SqliteStore, Failure> {
        self.spool.prepare().map_err(|error| of_spool(&error))?;
        let (db, settings) = (&self.db, self.settings.as_ref());
        lost_store::refuse_lost(db, &self.spool, self.used_db.as_deref(), settings)?;
        let options = self.options.clone();
        let opened = match self.settings {
            Some(settings) => SqliteStore::create(db, settings, options),
            None => SqliteStore::open(db, options).map(|store| (store, Created::Confirmed)),
        };
        let (store, created) = opened.map_err(|error| match error {
            store::Error::Missing(_) if self.settings.is_none() => no_store(db),
            error => Failure::from(&error),
        })?;
        if created == Created::Made {
            log::info!("made a new store, {}: {}", shown_path(db), store.settings());
        }
        if let Some(migration) = store.migration() {
            log::info!("{migration}");
        }
        let mut state = self.shared.state();
        (state.db_opened, state.used_db) = (true, None);
        Ok(store)
    }

    pub(super) fn changed(&self) {
        if self.shared.is_news() {
            // a full channel means that it is known already
            let _ = self.notes.try_send(WorkerNote::Changed);
        }
    }

    /// Shows a fault that is in the way of all.
    pub(super) fn in_the_way(&self, failure: &Failure, wait: Duration) {
        let mut state = self.shared.state();
        state.phase = Phase::BackingOff;
        state.file = None;
        drop(state);
        self.shared.meet(FaultPart::Spool, &failure.kind, &failure.text);
        log::debug!("next try in {} ms", wait.as_millis());
        self.changed();
    }

    /// Nothing is in the way of all (any more).
    pub(super) fn clear(&self) {
        if self.shared.pass(FaultPart::Spool) {
            self.changed();
        }
    }

    /// Waits until then, unless it is woken or told to stop; whether it was woken. A wait gives its
    /// signs of life.
    pub(super) fn rest(&self, until: Instant) -> bool {
        self.shared.set_waiting(true);
        let mut is_woken = false;
        while !is_woken && !self.shared.stopping() && Instant::now() < until {
            self.shared.beat();
            let left = until.saturating_duration_since(Instant::now());
            is_woken = self.woken.recv_timeout(left.min(self.longest_wait)).is_ok();
        }
        self.shared.set_waiting(false);
        is_woken
    }
}

/// What it means that the spool cannot be used: as while it runs, what may pass is waited out.
fn of_spool(error: &spool::SpoolError) -> Failure {
    let failure = Failure::passing("spool", error.to_string());
    match error {
        spool::SpoolError::OtherMount { .. } => {
            Failure { reach: Scope::Lasting, exit: Exit::Config, ..failure }
        }
        spool::SpoolError::Make { .. } | spool::SpoolError::Probe { .. } => failure,
    }
}

/// There is no store, and nothing to make one from.
fn no_store(db: &Path) -> Failure {
    let db = shown_path(db);
    let text = format!(
        "there is no store {db}, and no [window] table in the configuration to make it from; add \
         one, or run: windowflow --db {db} init --window-ms N --lateness-ms N"
    );
    Failure { reach: Scope::Lasting, exit: Exit::Missing, kind: "missing".to_owned(), text }
}
