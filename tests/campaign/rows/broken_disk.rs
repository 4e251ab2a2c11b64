//! Row 9: in the middle of a run the disk answers each read and write with an error, or the kernel
//! takes the file system away from writers.
//!
//! An error that passes is outlived by the daemon itself. A file system that was set to read-only
//! stays so: it is checked and mounted again, as an operator would do, under a new daemon. The
//! judge looks at what lies on the disk then, not at what the kernel had in memory of it.
//!
//! The judge can see: a daemon without the sync before the moves (`tests/power/run.sh --prove` says
//! how it is made) left a file in done/ without its events in 1 of 12. A spool on a file system
//! that is read-only cannot hold what the daemon says of itself: then its log tells, and `status`
//! is told by a lock that it says nothing else. Without that: "not within 60s: status tells".

use std::fs;
use std::time::Duration;

use crate::deliveries::{NEVER_LATE_MS, WINDOW_MS, in_any_order};
use crate::dice::Dice;
use crate::mounted::{self, Mounted, show, stage};
use crate::outcome::all_counted;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::world::{Daemon, World};

/// It says so, does not spin, loses nothing.
pub const ROW: Row = Row {
    number: 9,
    fault: "read-only in mid-run, block EIO",
    promise: "said, no busy loop, nothing lost, totals right",
    figures: Figures { smoke: 4, full: 100, soak: 100 },
    lanes: 2,
    begin,
};

/// Over so long the daemon's work is counted while the disk is bad.
const WATCHED: Duration = Duration::from_secs(1);

/// What it may work in that time, in hundredths of a second: files are tried five times a second.
const MOST_TICKS: u64 = 60;

struct BrokenDisk {
    /// Whether a disk can be had that fails when told to.
    has_faulty: bool,
}

fn begin(_: &Scale) -> Result<Box<dyn Trial>, Unable> {
    mounted::must_work()?;
    match Mounted::faulty(24) {
        Ok(_) => Ok(Box::new(BrokenDisk { has_faulty: true })),
        // half of the row is no row where all tools must be there
        Err(text) if std::env::var_os("CI").is_some() => Err(Unable(text)),
        Err(text) => {
            crate::board::say(&format!("SKIPPED: block EIO was NOT tried: {text}\n"));
            Ok(Box::new(BrokenDisk { has_faulty: false }))
        }
    }
}

impl Trial for BrokenDisk {
    fn attempt(&self, n: u64, mut dice: Dice) -> Result<Tried, String> {
        let is_faulty = self.has_faulty && n.is_multiple_of(2);
        let disk = match is_faulty {
            true => Mounted::faulty(24)?,
            false => Mounted::new(24, 4096, "errors=remount-ro")?,
        };
        let how = if is_faulty { "EIO" } else { "read-only" };
        strike(&disk, is_faulty, &mut dice).map_err(|text| format!("{how}: {text}"))
    }
}

fn strike(disk: &Mounted, is_faulty: bool, dice: &mut Dice) -> Result<Tried, String> {
    let world = disk.world();
    world.init(WINDOW_MS, NEVER_LATE_MS, &[]);
    let text = "[inbox]\nsettle_ms = 0\nrescan_ms = 200\n[daemon]\nbackoff_min_ms = 50\n\
                backoff_max_ms = 200\n";
    fs::write(world.root().join("windowflow.toml"), text).unwrap();
    let files = in_any_order(30, 600, dice);
    stage(&world, &files);
    let mut daemon = start(&world);
    daemon.until_ready();
    // all are there before: on a bad disk nobody could drop any
    show(&world, &files, 0..files.len());
    std::thread::sleep(Duration::from_millis(dice.below(60)));
    if is_faulty {
        disk.set_bad(true)?
    } else {
        disk.trigger_error()?
    }
    let mut is_struck = false;
    world.eventually("it says so, or was done before", || {
        is_struck = is_struck || world.log().contains("ERROR") || !daemon.runs();
        is_struck || world.names("inbox").is_empty()
    });
    if disk.is_read_only() && daemon.runs() {
        // it cannot say so itself any more
        world.eventually("status tells that it is told nothing", || {
            let status = world.run(&["status", "--json"]);
            status.code == Some(75) && status.out.contains("\"state_is_old\":true")
        });
    }
    if is_struck && daemon.runs() {
        let before = ticks(&daemon);
        std::thread::sleep(WATCHED);
        let worked = ticks(&daemon) - before;
        if worked > MOST_TICKS {
            return Err(format!("it works {worked} ticks in {WATCHED:?}:\n{}", world.log()));
        }
    }
    if is_faulty {
        disk.set_bad(false)?;
    }
    // a disk that failed within its own book-keeping is read-only from then on
    if disk.is_read_only() || !daemon.runs() {
        daemon = again(disk, &world, daemon)?;
    }
    show(&world, &files, 0..files.len());
    world.until_drained();
    again(disk, &world, daemon)?.stop();
    all_counted(&world, &files)?;
    Ok(if is_struck { Tried::Struck } else { Tried::Missed })
}

/// Ends the daemon, checks the disk and mounts it again, and starts another.
fn again<'w>(
    disk: &Mounted,
    world: &'w World,
    mut daemon: Daemon<'w>,
) -> Result<Daemon<'w>, String> {
    if daemon.runs() {
        daemon.stop();
    } else if daemon.wait().code() != Some(1) {
        return Err(format!("the daemon ended with {}:\n{}", daemon.wait(), world.log()));
    }
    disk.mend()?;
    let daemon = start(world);
    daemon.until_ready();
    Ok(daemon)
}

fn start(world: &World) -> Daemon<'_> {
    world.spawn(&["--config", "windowflow.toml"])
}

/// How long a process has worked, in hundredths of a second.
fn ticks(daemon: &Daemon<'_>) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap_or_default();
    // behind the name, which may have blanks in it
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}
