//! Row 25: everything at once, for as long as one likes, on one spool.
//!
//! Each attempt is one more minute (in `cargo test` one quarter of it) in the life of the same
//! spool. A producer drops files all the time. For two thirds of it daemons are killed, stopped,
//! continued, have calls fail, find the store held, and are told to report, reload and end. In the
//! last third one daemon stays, and is only hindered: its memory and the log must stay within
//! their bounds. Then all must be in, and right.
//!
//! Seen to fail: as row 2, with a move just before the commit.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::dice::Dice;
use crate::invariants::Oracle;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::rows::{Ended, EndsThem, quick_config, until_drained};
use crate::strace::{self, Inject};
use crate::workload::Workload;
use crate::world::{Daemon, World};

/// It lives on, and counts rightly.
pub const ROW: Row = Row {
    number: 25,
    fault: "soak: kills and faults of all kinds, one spool",
    promise: "flat memory, log bound kept, totals equal, verify clean",
    figures: Figures { smoke: 1, full: 10, soak: 8 * 60 },
    lanes: 1,
    begin,
};

/// The bound of the log, and what one batch adds to it.
const MOST_LOG_BYTES: u64 = (64 << 20) + (8 << 20);

/// What a daemon may use, whatever it has taken: 32 MiB of it are pages of the store.
const MOST_MEMORY_KIB: u64 = 96 * 1024;

/// The longest pause between two files.
const LONGEST_PAUSE_US: u64 = 60_000;

/// How long a hindrance lasts at most.
const LONGEST_HINDRANCE_US: u64 = 300_000;

/// Calls that fail for a while, and how.
const FAULTS: [(&str, &str); 8] = [
    ("fsync,fdatasync", "EIO"),
    ("pwrite64", "ENOSPC"),
    ("renameat2", "EACCES"),
    ("openat,open", "EMFILE"),
    ("read", "EIO"),
    ("statx,newfstatat", "EIO"),
    ("getdents64", "EIO"),
    ("fcntl", "ENOLCK"),
];

struct Soak {
    slice: Duration,
    has_strace: bool,
    life: Mutex<Option<Life>>,
}

/// The spool that lives on.
struct Life {
    world: World,
    config: String,
    workload: Workload,
    oracle: Oracle,
    has_verify: bool,
}

fn begin(scale: &Scale) -> Result<Box<dyn Trial>, Unable> {
    let seconds = if *scale == Scale::Smoke { 15 } else { 60 };
    let has_strace = strace::is_here().is_ok();
    Ok(Box::new(Soak { slice: Duration::from_secs(seconds), has_strace, life: Mutex::new(None) }))
}

impl Life {
    fn begin(dice: &mut Dice) -> Life {
        let workload = Workload::that_lasts(dice.next());
        let (world, oracle) = Oracle::with_world(&workload);
        let config = quick_config(&world, &[("daemon.busy_timeout_ms", "200")]);
        let has_verify = world.run(&["help"]).out.contains("\n  verify");
        Life { world, config, workload, oracle: oracle.that_lasts(), has_verify }
    }
}

impl Trial for Soak {
    fn note(&self) -> Option<String> {
        let missing = if self.has_strace { "" } else { "; NO CALLS FAILED: there is no strace" };
        let seconds = self.slice.as_secs();
        Some(format!("an attempt is {seconds} s in the life of one spool{missing}"))
    }

    fn attempt(&self, _: u64, mut dice: Dice) -> Result<Tried, String> {
        // what was left by a minute that went wrong proves nothing any more
        let mut life = self.life.lock().unwrap().take().unwrap_or_else(|| Life::begin(&mut dice));
        let Life { world, config, workload, oracle, .. } = &mut life;
        let (world, shared, over) = (&*world, Mutex::new(oracle), AtomicBool::new(false));
        let hindrances = AtomicU64::new(0);
        let mut of_producer = Dice::of_attempt(dice.next(), ROW.number, 0);
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    shared.lock().unwrap().drop_in(world, workload.next());
                    std::thread::sleep(Duration::from_micros(of_producer.below(LONGEST_PAUSE_US)));
                }
            });
            let _ends = EndsThem(&over);
            let until = Instant::now() + self.slice * 2 / 3;
            let here = Here { world, config, has_strace: self.has_strace, count: &hindrances };
            here.kill_and_hinder(until, &shared, &mut dice).and_then(|()| {
                let mut daemon = world.spawn(&["--config", config]);
                daemon.until_ready();
                here.hinder_only(&mut daemon, until + self.slice / 3, &mut dice).map(|()| daemon)
            })
        });
        finish(world, ended?)?;
        let oracle = shared.into_inner().unwrap();
        oracle.check_end(world)?;
        if life.has_verify {
            let ran = life.world.run(&["verify"]);
            if ran.code != Some(0) {
                return Err(format!("verify: {:?}: {}{}", ran.code, ran.out, ran.err));
            }
        }
        *self.life.lock().unwrap() = Some(life);
        Ok(Tried::Times(hindrances.into_inner()))
    }
}

fn finish(world: &World, mut daemon: Daemon<'_>) -> Result<(), String> {
    if let Ended::GaveUp(code) = until_drained(world, &mut daemon, &mut |_| {})? {
        return Err(format!("it ended with {code:?}: {}", world.told()));
    }
    daemon.signal("TERM");
    match daemon.wait().code() {
        Some(0) => Ok(()),
        code => Err(format!("after TERM it ended with {code:?}: {}", world.told())),
    }
}

/// Where it all happens.
struct Here<'a> {
    world: &'a World,
    config: &'a str,
    has_strace: bool,
    count: &'a AtomicU64,
}

impl Here<'_> {
    fn kill_and_hinder(
        &self,
        until: Instant,
        oracle: &Mutex<&mut Oracle>,
        dice: &mut Dice,
    ) -> Result<(), String> {
        let mut checked = Instant::now();
        while Instant::now() < until {
            let mut daemon = self.world.spawn(&["--config", self.config]);
            for _ in 0..dice.below(4) {
                std::thread::sleep(Duration::from_micros(dice.below(200_000)));
                self.hinder(&mut daemon, dice)?;
            }
            self.count.fetch_add(1, Ordering::Relaxed);
            // however it ended, and if it still lives, it is killed
            drop(daemon);
            self.check_log()?;
            if checked.elapsed() > Duration::from_secs(3) {
                oracle.lock().unwrap().check(self.world)?;
                checked = Instant::now();
            }
        }
        Ok(())
    }

    fn hinder_only(
        &self,
        daemon: &mut Daemon<'_>,
        until: Instant,
        dice: &mut Dice,
    ) -> Result<(), String> {
        while Instant::now() < until {
            std::thread::sleep(Duration::from_micros(dice.below(200_000)));
            self.pause_or_hold(daemon, dice);
            self.check_log()?;
            let memory = daemon.proc_status("VmRSS").unwrap_or_default();
            let memory_kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
            if !daemon.runs() {
                return Err(format!("it ended by itself: {}", self.world.told()));
            }
            if memory_kib > MOST_MEMORY_KIB {
                return Err(format!("it uses {memory_kib} KiB"));
            }
        }
        Ok(())
    }

    /// Something that it has to outlive, or may end over.
    fn hinder(&self, daemon: &mut Daemon<'_>, dice: &mut Dice) -> Result<(), String> {
        if dice.below(2) == 0 || !self.has_strace || !daemon.runs() {
            self.pause_or_hold(daemon, dice);
            return Ok(());
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let (calls, error) = FAULTS[dice.below(FAULTS.len() as u64) as usize];
        let inject = Inject { calls, how: format!("error={error}"), paths: Vec::new() };
        match inject.attach(self.world, daemon.pid()) {
            Ok(_attached) => hinder_for_a_while(dice),
            // it may end while it is taken hold of
            Err(_) if !daemon.runs() => {}
            Err(what) => return Err(what),
        }
        Ok(())
    }

    /// Something that no daemon may end over.
    fn pause_or_hold(&self, daemon: &mut Daemon<'_>, dice: &mut Dice) {
        self.count.fetch_add(1, Ordering::Relaxed);
        // in the first moments of a program a signal would end it
        if !daemon.catches(libc::SIGUSR1) || !daemon.catches(libc::SIGHUP) {
            return;
        }
        match dice.below(4) {
            0 => daemon.signal("USR1"),
            1 => daemon.signal("HUP"),
            2 => {
                daemon.signal("STOP");
                hinder_for_a_while(dice);
                daemon.signal("CONT");
            }
            _ => {
                let other = Connection::open(self.world.db()).unwrap();
                other.busy_timeout(Duration::from_secs(20)).unwrap();
                other.execute_batch("BEGIN IMMEDIATE").unwrap();
                hinder_for_a_while(dice);
                other.execute_batch("ROLLBACK").unwrap();
            }
        }
    }

    fn check_log(&self) -> Result<(), String> {
        let bytes =
            fs::metadata(self.world.spool().join("windowflow.db-wal")).map_or(0, |log| log.len());
        match bytes > MOST_LOG_BYTES {
            true => Err(format!("the log has {bytes} bytes")),
            false => Ok(()),
        }
    }
}

fn hinder_for_a_while(dice: &mut Dice) {
    // that it lasts is what is tried here
    std::thread::sleep(Duration::from_micros(dice.below(LONGEST_HINDRANCE_US)));
}
