//! Row 15: event time at its edges.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::dice::Dice;
use crate::history::play;
use crate::real::Real;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};

/// How many histories one attempt plays.
const HISTORIES: u64 = 10;

/// Times, widths and values at and beside their bounds: the store does what the model does.
pub const ROW: Row = Row {
    number: 15,
    fault: "event time at its edges (10 histories an attempt)",
    promise: "windows, late events and watermark are the model's",
    // about 200,000 and 100 million events
    figures: Figures { smoke: 400, full: 4_000, soak: 200_000 },
    lanes: 2,
    begin,
};

struct EventTime;

fn begin(_: &Scale) -> Result<Box<dyn Trial>, Unable> {
    Ok(Box::new(EventTime))
}

impl Trial for EventTime {
    fn attempt(&self, n: u64, mut dice: Dice) -> Result<Tried, String> {
        // the store in SQLite costs more, and is held to the same contract as that in memory
        let make = if n.is_multiple_of(40) { Real::sqlite } else { Real::memory };
        let mut struck = false;
        for _ in 0..HISTORIES {
            let bytes: Vec<u8> = (0..50 + dice.below(500)).map(|_| dice.next() as u8).collect();
            match catch_unwind(AssertUnwindSafe(|| play(&bytes, make))) {
                Ok(played) => struck |= played.counts.accepted > 0,
                Err(panic) => {
                    let said = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
                    return Err(format!("{said}\n  of: {}", bytes.escape_ascii()));
                }
            }
        }
        Ok(if struck { Tried::Struck } else { Tried::Missed })
    }
}
