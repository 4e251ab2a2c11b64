//! Row 2: SIGKILL at random times, over and over, while a producer goes on; each restart at once.
//!
//! An attempt is a spool of its own and 25 kills. The producer is held up only while the store and
//! the folders are looked at, after each kill.
//!
//! Seen to fail: with a move just before the commit, a file is in done/ without its events.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::dice::Dice;
use crate::invariants::Oracle;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::rows::{EndsThem, drained, quick_config};
use crate::workload::Workload;
use crate::world::World;

/// Killed at any time, again and again.
pub const ROW: Row = Row {
    number: 2,
    fault: "SIGKILL at random times, producer running",
    promise: "I1 to I5 after each",
    figures: Figures { smoke: 10, full: 1000 / KILLS, soak: 20_000 / KILLS },
    lanes: 2,
    begin,
};

/// How often the daemon of a world is killed.
const KILLS: u64 = 25;

/// The longest that a daemon lives.
const LONGEST_LIFE_US: u64 = 90_000;

/// The longest pause between two files.
const LONGEST_PAUSE_US: u64 = 12_000;

struct KillAnytime;

fn begin(_: &Scale) -> Result<Box<dyn Trial>, Unable> {
    Ok(Box::new(KillAnytime))
}

impl Trial for KillAnytime {
    fn attempt(&self, _: u64, mut dice: Dice) -> Result<Tried, String> {
        let mut workload = Workload::of_all_kinds(dice.next());
        let (world, oracle) = Oracle::with_world(&workload);
        let config = quick_config(&world, &[]);
        let (oracle, over) = (Mutex::new(oracle), AtomicBool::new(false));
        let mut of_producer = Dice::of_attempt(dice.next(), ROW.number, 0);
        let killed = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    oracle.lock().unwrap().drop_in(&world, workload.next());
                    std::thread::sleep(Duration::from_micros(of_producer.below(LONGEST_PAUSE_US)));
                }
            });
            let _ends = EndsThem(&over);
            kill_over_and_over(&world, &config, &oracle, &mut dice)
        });
        killed?;
        let mut oracle = oracle.into_inner().unwrap();
        let before = oracle.check(&world)?;
        drained(&world, &config)?;
        let found = oracle.check_end(&world)?;
        match found.repeats <= before.repeats + before.owed {
            true => Ok(Tried::Times(KILLS)),
            false => Err(format!("{found:?} after {before:?}: files were taken twice")),
        }
    }
}

fn kill_over_and_over(
    world: &World,
    config: &str,
    oracle: &Mutex<Oracle>,
    dice: &mut Dice,
) -> Result<(), String> {
    for kill in 0..KILLS {
        let daemon = world.spawn(&["--config", config]);
        std::thread::sleep(Duration::from_micros(dice.below(LONGEST_LIFE_US)));
        daemon.kill();
        let mut oracle = oracle.lock().unwrap();
        // the first look after the kill is now the daemon's, now ours
        if kill % 2 == 0 {
            oracle.check(world).map_err(|what| format!("kill {kill}: {what}"))?;
        }
    }
    Ok(())
}
