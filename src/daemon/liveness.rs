//! Whether the threads of the daemon live: a worker that does not get on is shown, a thread that
//! panics ends the process.

use std::panic::{self, PanicHookInfo};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::faults::FaultPart;
use super::state::SharedState;
use crate::spool::in_flight::{Excuse, Hand, InFlight};
use crate::store::sqlite;

/// How often it is looked whether the worker gets on.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// For how long it may do nothing. A store that others hold is waited for inside the store, and
/// SQLite itself waits when the system refuses a lock: neither comes back with an error for many
/// seconds.
const PATIENCE: Duration = Duration::from_millis(3500);

/// What is known of the worker's progress.
#[derive(Debug)]
pub(super) struct Liveness {
    beats: u64,
    since: Instant,
    is_stuck: bool,
}

impl Liveness {
    pub(super) fn new() -> Liveness {
        Liveness { beats: u64::MAX, since: Instant::now(), is_stuck: false }
    }

    /// Looks whether the worker gets on, and shows it when it does not.
    pub(super) fn look(&mut self, shared: &SharedState, in_flight: &InFlight, db: &Path) {
        let beats = shared.beats();
        if shared.is_waiting() || beats != self.beats {
            if self.is_stuck {
                shared.pass(FaultPart::Progress);
                self.excuse(shared, in_flight, Excuse::None);
            }
            *self = Liveness { beats, since: Instant::now(), is_stuck: false };
        } else if self.since.elapsed() >= PATIENCE {
            if !self.is_stuck {
                self.excuse(shared, in_flight, Excuse::Stuck);
            }
            self.is_stuck = true;
            let file = shared.state().file.clone();
            let file = file.map_or_else(String::new, |file| format!(" with inbox/{file} in hand"));
            let (seconds, db_shown) = (self.since.elapsed().as_secs(), db.display());
            let what = match sqlite::held_by(db) {
                Some(holder) => {
                    format!("it waits for the store {db_shown}, which {holder} holds; let that end")
                }
                None => format!(
                    "it waits for the store {db_shown} or for a disk that does not answer; look at \
                     the disk and at the kernel's log"
                ),
            };
            let text = format!("nothing moves for {seconds} s{file}: {what}");
            shared.meet(FaultPart::Progress, "still", &text);
        }
    }

    fn excuse(&self, shared: &SharedState, in_flight: &InFlight, excuse: Excuse) {
        // who stops has an excuse already
        if !shared.stopping() {
            in_flight.excuse(excuse);
        }
    }
}

/// A thread panicked.
#[derive(Debug)]
pub(super) struct Panic {
    /// Which, where, and what it said.
    pub(super) text: String,
    /// What of the files in hand is to blame.
    pub(super) excuse: Excuse,
}

/// Where panics of this process are told.
#[derive(Debug)]
pub(super) struct Panics {
    pub(super) told: Receiver<Panic>,
    // another daemon in this process takes the watch over: that is no panic
    _tell: Sender<Panic>,
}

/// From here on every thread that panics is logged, and told of at the receiver, however the
/// thread goes on from there.
pub(super) fn watch_panics() -> Panics {
    let (tell, told) = bounded(8);
    let panics = Panics { told, _tell: tell.clone() };
    panic::set_hook(Box::new(move |info| {
        let text = said(info);
        log::error!("{text}");
        let excuse = match thread::current().name() {
            Some("reader") => Excuse::Panicked(Hand::Reader),
            Some("worker") => Excuse::Panicked(Hand::Writer),
            _ => Excuse::Ending,
        };
        // the first one is enough
        let _ = tell.try_send(Panic { text, excuse });
    }));
    panics
}

fn said(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    let place = info.location().map_or_else(String::new, |place| format!(" at {place}"));
    let thread = thread::current();
    format!(
        "the thread '{}' panicked{place}: {}",
        thread.name().unwrap_or("unnamed"),
        text.unwrap_or_else(|| "without a word".to_owned())
    )
}
