//! Row 23: the system clock steps under a daemon that runs, forth and back, by seconds and by years.
//!
//! An attempt is a world and 5 steps, between which files come in: renamed in, and written where
//! they lie. Event times at their edges are in row 14.
//!
//! Seen to fail: with a scan that takes "now" from the time of day, what was written in place is
//! not still for as long as the clock was set back.

use std::path::PathBuf;

use crate::clocked::{self, Clocked};
use crate::dice::Dice;
use crate::invariants::Oracle;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::rows::{Ended, quick_config, until_drained};
use crate::workload::Workload;

/// Whatever the clock says, files are taken, and the watermark does not fall.
pub const ROW: Row = Row {
    number: 23,
    fault: "the clock steps",
    promise: "I1 to I5, nothing waits for the clock",
    figures: Figures { smoke: 4, full: 20, soak: 200 },
    lanes: 2,
    begin,
};

/// How often the clock of a world is set.
const STEPS: u64 = 5;

/// How far it is from the truth then.
const OFFSETS: [&str; 10] =
    ["-1s", "+1s", "-1h", "+1h", "-1d", "+1d", "-30d", "-8000d", "+3000d", "+0"];

struct ClockSteps {
    preload: PathBuf,
}

fn begin(_: &Scale) -> Result<Box<dyn Trial>, Unable> {
    Ok(Box::new(ClockSteps { preload: clocked::preload().map_err(Unable)? }))
}

impl Trial for ClockSteps {
    fn attempt(&self, _: u64, mut dice: Dice) -> Result<Tried, String> {
        let mut workload = Workload::of_all_kinds(dice.next());
        let (world, mut oracle) = Oracle::with_world(&workload);
        let clocked = Clocked::of(world, self.preload.clone());
        let world = &clocked.world;
        // nothing is found by a look that a clock could put off
        let config = quick_config(world, &[("inbox.rescan_ms", "3600000")]);
        let mut daemon = clocked.spawn(&config);
        daemon.until_ready();
        for _ in 0..STEPS {
            let offset = OFFSETS[dice.below(OFFSETS.len() as u64) as usize];
            clocked.set(offset);
            for _ in 0..=dice.below(4) {
                match dice.below(3) {
                    0 => oracle.write_in_place(world, workload.next()),
                    _ => oracle.drop_in(world, workload.next()),
                }
            }
            let ended = until_drained(world, &mut daemon, &mut |_| {});
            if let Ended::GaveUp(code) = ended.map_err(|what| format!("{offset}: {what}"))? {
                return Err(format!("{offset}: it ended with {code:?}: {}", world.told()));
            }
        }
        daemon.stop();
        oracle.check_end(world)?;
        Ok(Tried::Times(STEPS))
    }
}
