//! Row 22: two daemons on one spool, and the lock that a killed one leaves.
//!
//! Seen to fail: with the lock not taken, the second one runs.

use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::world::World;

/// The second is refused; the lock of a killed one holds nobody up.
pub const ROW: Row = Row {
    number: 22,
    fault: "two daemons, stale lock",
    promise: "the second refuses, a killed one's lock is free",
    figures: Figures { smoke: 10, full: 100, soak: 100 },
    lanes: 2,
    begin,
};

struct TwoDaemons;

fn begin(_: &Scale) -> Result<Box<dyn Trial>, Unable> {
    Ok(Box::new(TwoDaemons))
}

impl Trial for TwoDaemons {
    fn attempt(&self, _: u64, mut dice: Dice) -> Result<Tried, String> {
        let world = World::with_store(1000, 0);
        let mut first = world.daemon();
        let mut second = world.spawn(&[]);
        let begun = Instant::now();
        while second.runs() {
            if begun.elapsed() > Duration::from_secs(20) {
                return Err(format!("the second one runs: {}", world.told()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let code = second.wait().code();
        if code != Some(75) {
            return Err(format!("the second one ended with {code:?}: {}", world.told()));
        }
        if !world.log().contains(&format!("(pid {})", first.pid())) {
            return Err(format!("it does not say who holds the spool: {}", world.told()));
        }
        world.drop_in("a.json", format!("[{}]", event(dice.below(1000))));
        std::thread::sleep(Duration::from_micros(dice.below(3000)));
        if !first.runs() {
            return Err(format!("the first one ended by itself: {}", world.log()));
        }
        first.kill();
        let was_left = !world.names("inbox").is_empty();
        let ended = world.drain();
        if ended.code != Some(0) || world.names("done") != ["a.json"] {
            return Err(format!("after the kill: {:?}: {}", ended.code, ended.err));
        }
        Ok(if was_left { Tried::Struck } else { Tried::Missed })
    }
}

fn event(n: u64) -> String {
    format!(r#"{{"id":"e{n}","key":"k","timestamp_ms":{n},"value":1}}"#)
}
