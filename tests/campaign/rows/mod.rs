//! The rows of the table, in the order in which they run, and what several of them need.

mod bad_input;
mod bombs;
mod broken_disk;
mod clock_steps;
mod damage;
mod doctored;
mod error_lasting;
mod error_once;
mod event_time;
mod first_start;
mod full_disk;
mod histories;
mod hostile_producer;
mod kill_anytime;
mod kill_at_call;
mod leaks;
mod lock_held;
mod lost_hints;
mod lost_write;
mod migration;
mod power_cut;
mod signals;
mod soak;
mod surroundings;
mod torn_writes;
mod two_daemons;
mod wrong_clock;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::row::Row;
use crate::world::{Daemon, World};

/// All rows.
pub const ROWS: &[&Row] = &[
    &doctored::ROW,
    &kill_at_call::ROW,
    &kill_anytime::ROW,
    &error_once::ROW,
    &error_lasting::ROW,
    &power_cut::ROW,
    &torn_writes::ROW,
    &damage::ROW,
    &full_disk::ROW,
    &broken_disk::ROW,
    &migration::ROW,
    &lost_hints::ROW,
    &bad_input::ROW,
    &histories::ROW,
    &event_time::ROW,
    &lock_held::ROW,
    &bombs::ROW,
    &leaks::ROW,
    &signals::ROW,
    &two_daemons::ROW,
    &clock_steps::ROW,
    &wrong_clock::ROW,
    &first_start::ROW,
    &surroundings::ROW,
    &hostile_producer::ROW,
    &soak::ROW,
];

/// A configuration with short waits and these settings, `TABLE.KEY` and a value; its path.
fn quick_config(world: &World, settings: &[(&str, &str)]) -> String {
    let quick = [
        ("inbox.settle_ms", "20"),
        ("inbox.rescan_ms", "200"),
        ("daemon.backoff_min_ms", "20"),
        ("daemon.backoff_max_ms", "200"),
    ];
    let is_set = |key: &str| settings.iter().any(|(set, _)| *set == key);
    let defaults = quick.iter().filter(|(key, _)| !is_set(key));
    let lines = defaults.chain(settings).map(|(key, value)| format!("{key} = {value}\n"));
    let path = world.root().join("windowflow.toml");
    fs::write(&path, lines.collect::<String>()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Has others end when it goes out of scope, also in a panic: they would be waited for for ever.
struct EndsThem<'a>(&'a AtomicBool);

impl Drop for EndsThem<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs once over the inbox, to the end.
fn drained(world: &World, config: &str) -> Result<(), String> {
    let ran = world.run(&["run", "--once", "--config", config]);
    match ran.code {
        Some(0 | 65) => Ok(()),
        code => Err(format!("the last run ended with {code:?}: {}\n{}", ran.err, world.told())),
    }
}

/// How a daemon that had work came out of it.
enum Ended {
    /// The inbox is empty.
    Drained,
    /// It ended by itself, with that code.
    GaveUp(Option<i32>),
}

/// How long a daemon may take to get over a fault that is gone.
const RECOVERY: Duration = Duration::from_secs(20);

/// Waits until nothing lies in the inbox and it can be told to stop; `meanwhile` is called over and
/// over.
fn until_drained(
    world: &World,
    daemon: &mut Daemon<'_>,
    meanwhile: &mut dyn FnMut(&Daemon<'_>),
) -> Result<Ended, String> {
    let begun = Instant::now();
    while !world.names("inbox").is_empty() || !daemon.catches(libc::SIGTERM) {
        meanwhile(daemon);
        if !daemon.runs() {
            return Ok(Ended::GaveUp(daemon.wait().code()));
        }
        if begun.elapsed() > RECOVERY {
            return Err(format!("the inbox is not empty after {RECOVERY:?}\n{}", world.told()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(Ended::Drained)
}

/// Whether a process that was ended by a signal had no more memory, which nothing in it can
/// outlive: the allocator, or a thread that has no room to begin.
fn is_out_of_memory(said: &str) -> bool {
    said.contains("memory allocation of") || said.contains("Cannot allocate memory")
}
