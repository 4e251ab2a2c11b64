//! Row 13: bad input, by mutants of the fuzz targets' seeds.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::dice::Dice;
use crate::judge::judge;
use crate::mutate::mutant;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};

/// How many mutants one attempt makes and reads.
const MUTANTS: u64 = 200;

/// Whatever is read, however it is cut: no panic, the same outcome, a place that is there, and what
/// a slow reading through `serde_json` says.
pub const ROW: Row = Row {
    number: 13,
    fault: "bad input (200 mutants of good and bad batches an attempt)",
    promise: "refused with a place, or read as by serde_json; never a panic",
    // 140,000 and 400 million mutants
    figures: Figures { smoke: 700, full: 7_000, soak: 2_000_000 },
    lanes: 2,
    begin,
};

struct BadInput {
    seeds: Vec<Vec<u8>>,
}

fn begin(_: &Scale) -> Result<Box<dyn Trial>, Unable> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/decode");
    let unable = |error: std::io::Error| Unable(format!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .and_then(|found| found.map(|entry| Ok(entry?.path())).collect())
        .map_err(unable)?;
    // a seed of the campaign draws the same everywhere
    paths.sort();
    let seeds = paths.iter().map(fs::read).collect::<Result<_, _>>().map_err(unable)?;
    Ok(Box::new(BadInput { seeds }))
}

impl Trial for BadInput {
    fn attempt(&self, _: u64, mut dice: Dice) -> Result<Tried, String> {
        let mut refused = 0;
        for _ in 0..MUTANTS {
            let mut seed = || &self.seeds[dice.below(self.seeds.len() as u64) as usize];
            let (one, other) = (seed(), seed());
            let bytes = mutant(one, other, || dice.next());
            let tried = catch_unwind(AssertUnwindSafe(|| judge(&bytes)));
            match tried {
                Ok(outcome) => refused += u64::from(outcome.refusal.is_some()),
                Err(panic) => {
                    let said = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
                    return Err(format!("{said}\n  of: {}", bytes.escape_ascii()));
                }
            }
        }
        Ok(if refused > 0 { Tried::Struck } else { Tried::Missed })
    }
}
