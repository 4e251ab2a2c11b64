//! Row 18: files that ask for much, and the largest that is to be taken.

use std::fs::{self, File};
use std::io::{BufWriter, Write};

use crate::bombs::{BOMBS, CAGE_BYTES, Cage, Reach, write_line};
use crate::dice::Dice;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::world::World;

/// A gigabyte on one line, and what inflates without end, within 256 MB.
pub const ROW: Row = Row {
    number: 18,
    fault: "memory: bombs, and an array on one line, under a limit of 256 MB",
    promise: "refused or taken, and never killed for memory",
    figures: Figures {
        smoke: BOMBS.len() as u64 + 1,
        full: BOMBS.len() as u64 + 1,
        soak: BOMBS.len() as u64 + 1,
    },
    lanes: 1,
    begin,
};

struct Bombs {
    reach: Reach,
    events: u64,
}

fn begin(scale: &Scale) -> Result<Box<dyn Trial>, Unable> {
    if Cage::new(CAGE_BYTES).is_none() {
        return Err(Unable("no control group with a limit of memory can be made".to_owned()));
    }
    Ok(Box::new(match scale {
        Scale::Smoke => {
            Bombs { reach: Reach { allowed_bytes: 64 << 20, many: 200_000 }, events: 300_000 }
        }
        // as far as the default allows, and a gigabyte
        Scale::Full | Scale::Soak => {
            Bombs { reach: Reach { allowed_bytes: 16 << 30, many: 10_000_000 }, events: 10_000_000 }
        }
    }))
}

impl Trial for Bombs {
    fn attempts(&self) -> Option<u64> {
        Some(BOMBS.len() as u64 + 1)
    }

    fn attempt(&self, n: u64, _: Dice) -> Result<Tried, String> {
        let cage = Cage::new(CAGE_BYTES).ok_or("no cage")?;
        let world = World::with_store(100_000, 0);
        let config = world.root().join("windowflow.toml");
        let allowed = self.reach.allowed_bytes;
        let text = format!("[limits]\nmax_inflated_bytes = {allowed}\n");
        fs::write(&config, text).unwrap();
        let staged = world.root().join("staged");
        let bomb = BOMBS.get(n as usize);
        let io = |error: std::io::Error| error.to_string();
        match bomb {
            None => write_line(&staged, self.events).map_err(io)?,
            Some(bomb) => {
                let mut out = BufWriter::new(File::create(&staged).map_err(io)?);
                (bomb.write)(&mut out, &self.reach).and_then(|()| out.flush()).map_err(io)?;
            }
        }
        fs::rename(&staged, world.inbox().join("a file")).map_err(io)?;
        let wrapper = cage.wrapper();
        let args = ["--once", "--config", config.to_str().unwrap()];
        let wrapper = wrapper.each_ref().map(String::as_str);
        // however long it takes: to its end, or its death
        let ran = world.run_under(&wrapper, &[&["run"], &args[..]].concat());
        let name = bomb.map_or("one line", |bomb| bomb.name);
        let expected = if bomb.is_some() { 65 } else { 0 };
        if ran.code != Some(expected) {
            return Err(format!("{name}: {:?}: {}", ran.code, ran.err));
        }
        match bomb {
            Some(bomb) if world.reason("a file")["code"] != bomb.code => {
                Err(format!("{name}: {}", world.reason("a file")))
            }
            None if world.report()["totals"]["accepted"] != self.events => {
                Err(format!("{name}: {}", world.report()["totals"]))
            }
            _ => Ok(Tried::Struck),
        }
    }
}
