//! A store that is tested through the library: either one, at a time of day of the test's own, with
//! the same acts for the model beside it.

use std::path::{Path, PathBuf};

use windowflow::decode::Limits;
use windowflow::engine::Presence;
use windowflow::engine::settings::{LatePolicy, LateRule};
use windowflow::model::clock::Clock;
use windowflow::pipeline::admin_batch::{self, Asked};
use windowflow::pipeline::ingest::{Ended, Ingest, Mode, Seconds, Unwatched};
use windowflow::store::memory::MemoryStore;
use windowflow::store::sqlite::{Options, SqliteStore};
use windowflow::store::{self, Delivery, Pruned, Retention, Store};

use crate::draw::{NOW_MS, Step, Which};
use crate::model::{Answer, Done, Model, Policy, Refusal, Settings, State};

/// A store that is tested, through the library.
pub enum Real {
    Sqlite {
        store: Option<Box<SqliteStore>>,
        path: PathBuf,
        now_ms: i64,
        /// How many ids make a run, where that is not to be as many as usual.
        runs_of: Option<u64>,
        folder: tempfile::TempDir,
    },
    Memory(Box<MemoryStore>),
}

const ASKED: Asked<'_> = Asked { by: "a test", reason: None };

fn options(now_ms: i64) -> Options {
    Options { clock: Clock::Fixed(now_ms), ..Options::default() }
}

impl Real {
    pub fn sqlite(settings: Settings) -> Real {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("windowflow.db");
        let (store, _) = SqliteStore::create(&path, product(settings), options(NOW_MS)).unwrap();
        let store = Some(Box::new(store));
        Real::Sqlite { store, path, now_ms: NOW_MS, runs_of: None, folder }
    }

    /// The same, with runs and merges after few ids already.
    pub fn sqlite_of_small_runs(settings: Settings) -> Real {
        let mut real = Real::sqlite(settings);
        if let Real::Sqlite { runs_of, .. } = &mut real {
            *runs_of = Some(24);
        }
        real.reopen();
        real
    }

    /// The folder that the store lies in.
    pub fn spool(&self) -> &Path {
        match self {
            Real::Sqlite { folder, .. } => folder.path(),
            Real::Memory(_) => panic!("it lies nowhere"),
        }
    }

    /// Puts a file where one that was ingested is kept.
    pub fn put_into_done(&self, name: &str, text: &str) {
        let done = self.spool().join("done");
        std::fs::create_dir_all(&done).unwrap();
        std::fs::write(done.join(name), text).unwrap();
    }

    pub fn memory(settings: Settings) -> Real {
        Real::Memory(Box::new(MemoryStore::new(product(settings), Clock::Fixed(NOW_MS))))
    }

    fn store(&mut self) -> &mut dyn Store {
        match self {
            Real::Sqlite { store, .. } => store.as_mut().unwrap().as_mut(),
            Real::Memory(store) => store.as_mut(),
        }
    }

    pub fn ingest(&mut self, text: &str) -> Result<Answer, Refusal> {
        self.ingest_as("a file", text)
    }

    pub fn ingest_as(&mut self, name: &str, text: &str) -> Result<Answer, Refusal> {
        let delivery = Delivery::fresh(name.into(), "default".into()).unwrap();
        let ingest = Ingest {
            delivery: &delivery,
            limits: Limits::default(),
            mode: Mode::Commit,
            admission: None,
            now_ms: NOW_MS,
            seconds: Seconds::Accept,
        };
        match ingest.run(self.store(), text.as_bytes(), &mut Unwatched).unwrap() {
            Ended::Committed(committed) => Ok(Answer {
                counts: committed.counts.into(),
                watermark_ms: committed.watermark_ms,
                windows_closed: committed.windows_closed,
            }),
            Ended::Refused(refused) => {
                self.store().record_refusal(&refused.receipt()).unwrap();
                Err((refused.refusal.code.name(), refused.refusal.event_index.unwrap()))
            }
            other => panic!("{other:?}"),
        }
    }

    fn advance(&mut self, to_ms: i64) -> Option<u64> {
        match admin_batch::advance(self.store(), to_ms, ASKED) {
            Ok(done) => Some(done.windows_closed),
            Err(admin_batch::AdminBatchError::Behind { .. }) => None,
            Err(admin_batch::AdminBatchError::Store(error)) => panic!("{error}"),
        }
    }

    pub fn state(&self) -> State {
        match self {
            Real::Sqlite { path, .. } => {
                State::of_snapshot(&SqliteStore::snapshot(path, options(NOW_MS)).unwrap())
            }
            Real::Memory(store) => State::of_snapshot(&store.snapshot()),
        }
    }

    /// Removes what may go.
    pub fn prune(&mut self, what: &Retention) -> Pruned {
        self.store().prune(what).unwrap()
    }

    /// As after the end of the process and the begin of another.
    pub fn reopen(&mut self) {
        if let Real::Sqlite { store, path, now_ms, runs_of, .. } = self {
            drop(store.take());
            let opened = SqliteStore::open(path, options(*now_ms)).unwrap();
            *store = Some(Box::new(match runs_of {
                Some(ids) => opened.with_runs_of(*ids),
                None => opened,
            }));
        }
    }

    fn set_clock(&mut self, to_ms: i64) {
        match self {
            Real::Sqlite { now_ms, .. } => {
                *now_ms = to_ms;
                self.reopen();
            }
            Real::Memory(store) => store.set_clock(Clock::Fixed(to_ms)),
        }
    }

    /// An act without a file.
    pub fn act(&mut self, step: &Step) -> Acted {
        let wanted = |which: &Which| {
            let which = *which;
            move |event: &windowflow::model::event::Event<'_>| which.takes(event.id)
        };
        let store = self.store();
        let done = match step {
            Step::Event(_) => panic!("an event is no act"),
            Step::Clock(to_ms) => {
                self.set_clock(*to_ms);
                return Acted::Done(Done::default());
            }
            Step::Advance(to_ms) => {
                return Acted::Advanced(self.advance(*to_ms));
            }
            Step::Presence(sources, presence) => {
                let presence = match *presence {
                    "declared" => Presence::Declared,
                    "idle" => Presence::Idle,
                    "retired" => Presence::Retired,
                    "expected" => Presence::Expected,
                    "not_expected" => Presence::NotExpected,
                    _ => Presence::Active,
                };
                let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
                admin_batch::change_presence(store, &sources, presence, ASKED)
            }
            Step::Release(which) => admin_batch::settle(
                store,
                admin_batch::Settling::Release,
                &mut wanted(which),
                ASKED,
            ),
            Step::Discard(which) => admin_batch::settle(
                store,
                admin_batch::Settling::Discard,
                &mut wanted(which),
                ASKED,
            ),
            Step::Apply(which) => {
                let mut wanted =
                    |event: &windowflow::model::event::Event<'_>| which.takes(event.key);
                admin_batch::settle(store, admin_batch::Settling::Correct, &mut wanted, ASKED)
            }
        };
        match done {
            Ok(done) => {
                assert_eq!(done.batch.is_some(), done.concerned > 0, "{done:?}");
                Acted::Done(Done {
                    concerned: done.concerned,
                    counts: done.counts.into(),
                    watermark_ms: done.watermark_ms,
                    windows_closed: done.windows_closed,
                })
            }
            Err(admin_batch::AdminBatchError::Store(store::Error::Overflow(_))) => Acted::Overflow,
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// What became of an act.
#[derive(Debug, PartialEq, Eq)]
pub enum Acted {
    Advanced(Option<u64>),
    Done(Done),
    Overflow,
}

impl Acted {
    pub fn changed(&self) -> bool {
        !matches!(self, Acted::Advanced(None) | Acted::Overflow)
    }
}

/// The same act in the model.
pub fn act_in_model(model: &mut Model, step: &Step, now_ms: i64) -> Acted {
    let done = match step {
        Step::Event(_) => panic!("an event is no act"),
        Step::Clock(_) => Ok(Done::default()),
        Step::Advance(to_ms) => return Acted::Advanced(model.advance(*to_ms)),
        Step::Presence(sources, presence) => Ok(model.change_presence(sources, presence)),
        Step::Release(which) => model.release(|event| which.takes(&event.id), now_ms),
        Step::Discard(which) => Ok(model.discard(|event| which.takes(&event.id))),
        Step::Apply(which) => model.apply(|key| which.takes(key)),
    };
    done.map_or(Acted::Overflow, Acted::Done)
}

fn product(settings: Settings) -> windowflow::engine::settings::Settings {
    let rule = if settings.strict { LateRule::Event } else { LateRule::Window };
    let policy = match settings.policy {
        Policy::Aside => LatePolicy::Aside,
        Policy::Drop => LatePolicy::Drop,
        Policy::Correct => LatePolicy::Correct,
    };
    windowflow::engine::settings::Settings::new(settings.window_ms, settings.lateness_ms)
        .unwrap()
        .with_late(rule, policy)
        .with_max_future_ms(settings.max_future_ms)
        .unwrap()
        .with_dedup_horizon_ms(settings.dedup_horizon_ms)
        .unwrap()
}
