//! Row 19: handles, threads and memory of a daemon that takes many files.
//!
//! A daemon gets used to its work first: all sources, refusals, reports. Then it takes thousands
//! of files more, and must hold as many handles and threads afterwards as before. Its memory may
//! grow by what SQLite keeps of the store's pages, 32 MiB, and no more.
//!
//! Seen to fail: with a handle on done/ left open at each move, handles are never those of before.

use std::fs;
use std::path::PathBuf;

use crate::dice::Dice;
use crate::invariants::Oracle;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::rows::{Ended, quick_config, until_drained};
use crate::workload::Workload;
use crate::world::{Daemon, World};

/// Nothing is left over.
pub const ROW: Row = Row {
    number: 19,
    fault: "thousands of files",
    promise: "no handle, no thread, no memory more",
    figures: Figures { smoke: 1, full: 1, soak: 10 },
    lanes: 1,
    begin,
};

/// What SQLite may keep in memory, in KiB, and what an allocator needs to breathe.
const MOST_GROWTH_KIB: u64 = (32 + 12) * 1024;

/// SQLite keeps a closed handle on the store, for the next to use, while another connection of the
/// process has locks there: one for each that was ever open at once.
const MOST_STORE_HANDLES: usize = 4;

struct Leaks {
    files: u64,
}

fn begin(scale: &Scale) -> Result<Box<dyn Trial>, Unable> {
    let files = if *scale == Scale::Smoke { 4000 } else { 10_000 };
    Ok(Box::new(Leaks { files }))
}

impl Trial for Leaks {
    fn note(&self) -> Option<String> {
        Some("figures are files; 10,000 for each daemon of a soak".to_owned())
    }

    fn attempt(&self, _: u64, mut dice: Dice) -> Result<Tried, String> {
        let mut workload = Workload::that_lasts(dice.next());
        let (world, oracle) = Oracle::with_world(&workload);
        let mut oracle = oracle.that_lasts();
        let config = quick_config(&world, &[]);
        let mut daemon = world.spawn(&["--config", &config]);
        daemon.until_ready();
        take(&world, &mut daemon, &mut oracle, &mut workload, 500)?;
        let before = Uses::at_rest(&world, &daemon);
        take(&world, &mut daemon, &mut oracle, &mut workload, self.files)?;
        let mut after = Uses::at_rest(&world, &daemon);
        // a report that is being written ends in its time
        world.eventually("handles and threads are those of before", || {
            after = Uses::at_rest(&world, &daemon);
            after.handles <= before.handles && after.threads <= before.threads
        });
        if after.store_handles > MOST_STORE_HANDLES {
            return Err(format!("handles of the store grew: {before:?}, {after:?}"));
        }
        if after.memory_kib > before.memory_kib + MOST_GROWTH_KIB {
            return Err(format!("memory grew: {before:?}, {after:?}"));
        }
        daemon.stop();
        oracle.check_end(&world)?;
        Ok(Tried::Times(self.files))
    }
}

fn take(
    world: &World,
    daemon: &mut Daemon<'_>,
    oracle: &mut Oracle,
    workload: &mut Workload,
    files: u64,
) -> Result<(), String> {
    for n in 0..files {
        oracle.drop_in(world, workload.next());
        if n % 100 == 99 {
            daemon.signal("USR1");
            if let Ended::GaveUp(code) = until_drained(world, daemon, &mut |_| {})? {
                return Err(format!("it ended with {code:?}: {}", world.told()));
            }
        }
    }
    Ok(())
}

/// What a process uses.
#[derive(Debug)]
struct Uses {
    /// Without those of the store's file.
    handles: usize,
    store_handles: usize,
    threads: usize,
    memory_kib: u64,
}

impl Uses {
    fn at_rest(world: &World, daemon: &Daemon<'_>) -> Uses {
        world.eventually("it is idle", || world.state()["daemon"]["phase"] == "idle");
        let proc = |what: &str| fs::read_dir(format!("/proc/{}/{what}", daemon.pid())).unwrap();
        let is_store = |path: &PathBuf| *path == world.db();
        // one that is closed while they are listed leads nowhere
        let handles = proc("fd").filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
        let (store, others): (Vec<PathBuf>, Vec<PathBuf>) = handles.partition(is_store);
        let memory = daemon.proc_status("VmRSS").unwrap();
        Uses {
            handles: others.len(),
            store_handles: store.len(),
            threads: proc("task").count(),
            memory_kib: memory.trim_end_matches(" kB").parse().unwrap(),
        }
    }
}
