//! Row 17: somebody else holds the store: its write lock, or a long read.
//!
//! An attempt is a world and 25 holds, longer or shorter than the daemon's patience, while files
//! come in. Nothing may go to failed/ for it, nothing be taken twice. One attempt in ten has a
//! reader that stays until the log is beyond its bound of 64 MiB: once it is gone, the next
//! commits have to bring the log back below it.
//!
//! Seen to fail: with a busy store taken for a lasting fault, the daemon ends; with neither
//! `SqliteStore::trim_log` nor a `journal_size_limit`, the log stays at 88 MB. Each of the two
//! does alone.

use std::fs;
use std::time::Duration;

use rusqlite::Connection;

use crate::dice::Dice;
use crate::invariants::{Oracle, look_into};
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::rows::{Ended, quick_config, until_drained};
use crate::workload::Workload;
use crate::world::{Daemon, World};

/// It is waited for.
pub const ROW: Row = Row {
    number: 17,
    fault: "the store is held by another",
    promise: "waits, nothing in failed/ for it, log bound kept",
    figures: Figures { smoke: 10, full: 1000 / HOLDS, soak: 50 },
    lanes: 2,
    begin,
};

/// How often the store of a world is held.
const HOLDS: u64 = 25;

/// The bound of the log, and what one batch adds to it.
const MOST_LOG_BYTES: u64 = (64 << 20) + (8 << 20);

/// How many files make the log longer than its bound, at the very least.
const FILES_BEYOND: usize = 3000;

struct LockHeld;

fn begin(_: &Scale) -> Result<Box<dyn Trial>, Unable> {
    Ok(Box::new(LockHeld))
}

impl Trial for LockHeld {
    fn attempt(&self, n: u64, mut dice: Dice) -> Result<Tried, String> {
        match n % 10 {
            0 => held_for_long(&mut dice),
            _ => held_often(&mut dice),
        }
    }
}

fn held_often(dice: &mut Dice) -> Result<Tried, String> {
    let mut workload = Workload::of_all_kinds(dice.next());
    let (world, mut oracle) = Oracle::with_world(&workload);
    let patience_ms = ["0", "10", "50", "10000"][dice.below(4) as usize];
    let config = quick_config(&world, &[("daemon.busy_timeout_ms", patience_ms)]);
    let mut daemon = world.spawn(&["--config", &config]);
    daemon.until_ready();
    let other = Connection::open(world.db()).unwrap();
    other.busy_timeout(Duration::from_secs(20)).unwrap();
    let mut reader: Option<Connection> = None;
    for _ in 0..HOLDS {
        let how = ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "BEGIN"][dice.below(3) as usize];
        match how {
            // a reader may stay over several holds
            "BEGIN" if reader.is_some() => reader = None,
            "BEGIN" => reader = Some(reading(&world)?),
            how => other.execute_batch(how).unwrap(),
        }
        for _ in 0..dice.below(3) {
            oracle.drop_in(&world, workload.next());
        }
        // to hold it for a while is what is tried here
        std::thread::sleep(Duration::from_micros(dice.below(60_000)));
        if how != "BEGIN" {
            other.execute_batch("ROLLBACK").unwrap();
        }
    }
    drop((reader, other));
    finish(&world, &mut daemon, &mut oracle)?;
    Ok(Tried::Times(HOLDS))
}

/// A snapshot that is being read.
fn reading(world: &World) -> Result<Connection, String> {
    let reader = look_into(world)?;
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT count(*) FROM batches", [], |_| Ok(())).unwrap();
    Ok(reader)
}

fn held_for_long(dice: &mut Dice) -> Result<Tried, String> {
    let mut workload = Workload::that_lasts(dice.next());
    let (world, oracle) = Oracle::with_world(&workload);
    let mut oracle = oracle.that_lasts();
    let config = quick_config(&world, &[]);
    let mut daemon = world.spawn(&["--config", &config]);
    daemon.until_ready();
    let reader = reading(&world)?;
    let log = world.spool().join("windowflow.db-wal");
    let log_bytes = || fs::metadata(&log).map_or(0, |log| log.len());
    let mut files = 0;
    while files < FILES_BEYOND || log_bytes() <= MOST_LOG_BYTES {
        for _ in 0..250 {
            oracle.drop_in(&world, workload.next());
        }
        files += 250;
        drained(&world, &mut daemon)?;
        if files > 20 * FILES_BEYOND {
            return Err(format!("after {files} files the log has {} bytes only", log_bytes()));
        }
    }
    drop(reader);
    for _ in 0..50 {
        oracle.drop_in(&world, workload.next());
    }
    drained(&world, &mut daemon)?;
    let bytes = log_bytes();
    if bytes > MOST_LOG_BYTES {
        return Err(format!("the log stays at {bytes} bytes when nobody reads any more"));
    }
    finish(&world, &mut daemon, &mut oracle)?;
    Ok(Tried::Struck)
}

fn drained(world: &World, daemon: &mut Daemon<'_>) -> Result<(), String> {
    match until_drained(world, daemon, &mut |_| {})? {
        Ended::Drained => Ok(()),
        Ended::GaveUp(code) => Err(format!("it ended with {code:?}: {}", world.told())),
    }
}

fn finish(world: &World, daemon: &mut Daemon<'_>, oracle: &mut Oracle) -> Result<(), String> {
    drained(world, daemon)?;
    daemon.signal("TERM");
    let code = daemon.wait().code();
    if code != Some(0) {
        return Err(format!("after TERM it ended with {code:?}: {}", world.told()));
    }
    let found = oracle.check_end(world)?;
    match found.repeats {
        0 => Ok(()),
        repeats => Err(format!("{repeats} files were taken twice: {}", world.told())),
    }
}
