//! Row 7: a write that the disk swallows, and a byte that it flips, in the store or in its log.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use windowflow::engine::settings::LatePolicy;

use super::lost_write::LostWrites;
use crate::dice::Dice;
use crate::populated::{Populated, copy_all, verify, visible};
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};

/// Either it is found, or nothing that can be seen differs.
pub const ROW: Row = Row {
    number: 7,
    fault: "lost write, flipped byte in the store or its log",
    promise: "found by verify, or nothing to be seen differs",
    figures: Figures { smoke: 100, full: 2_000, soak: 20_000 },
    lanes: 2,
    begin,
};

/// A spool whose store is to be damaged, and what can be seen of it while it is whole.
struct Image {
    spool: TempDir,
    visible: Vec<String>,
}

struct Damage {
    images: Vec<Image>,
    lost: LostWrites,
}

/// One store that was closed, and one that has much of what is in it in its log still.
fn begin(scale: &Scale) -> Result<Box<dyn Trial>, Unable> {
    let lost = LostWrites::count(*scale)?;
    let mut images = Vec::new();
    for policy in [LatePolicy::Aside, LatePolicy::Correct] {
        let made = tempfile::tempdir().unwrap();
        let mut all = Populated::begin(made.path(), policy);
        all.fill(6, 70);
        // what stands in the log last is a file: that an act is lost with it cannot be seen
        all.file(40);
        images.push(image(made.path()));
        all.file(30);
        drop(all.close());
        images.push(image(made.path()));
    }
    Ok(Box::new(Damage { images, lost }))
}

fn image(from: &Path) -> Image {
    let spool = tempfile::tempdir().unwrap();
    copy_all(from, spool.path());
    let db = spool.path().join("windowflow.db");
    let copy = tempfile::tempdir().unwrap();
    copy_all(from, copy.path());
    let visible = visible(&copy.path().join("windowflow.db"), copy.path()).unwrap();
    let verified = verify(copy.path()).unwrap();
    assert_eq!(verified.checkup.total(), 0, "{:?}", verified.checkup);
    assert!(db.is_file());
    Image { spool, visible }
}

impl Trial for Damage {
    /// By turns a write is lost, as long as there is another one, and a byte is flipped.
    fn attempt(&self, n: u64, dice: Dice) -> Result<Tried, String> {
        match self.lost.write(n / 2).filter(|_| n.is_multiple_of(2)) {
            Some(write) => self.lost.lose(write),
            None => self.flip(n, dice),
        }
    }
}

impl Damage {
    fn flip(&self, n: u64, mut dice: Dice) -> Result<Tried, String> {
        let image = &self.images[n as usize % self.images.len()];
        let copy = tempfile::tempdir().unwrap();
        copy_all(image.spool.path(), copy.path());
        let db = copy.path().join("windowflow.db");
        let log = copy.path().join("windowflow.db-wal");
        let has_log = fs::metadata(&log).is_ok_and(|meta| meta.len() > 0);
        let path: &PathBuf = if has_log && dice.below(2) == 0 { &log } else { &db };
        let mut bytes = fs::read(path).unwrap();
        let mut at = dice.below(bytes.len() as u64) as usize;
        // much of a store is empty: mostly what is written is struck
        while bytes[at] == 0 && dice.below(8) > 0 {
            at = dice.below(bytes.len() as u64) as usize;
        }
        let flip = 1 + dice.below(255) as u8;
        bytes[at] ^= flip;
        fs::write(path, &bytes).unwrap();
        let verified = match verify(copy.path()) {
            Ok(verified) => verified,
            // it cannot even be opened, and that is said
            Err(_) => return Ok(Tried::Struck),
        };
        let seen = visible(&db, copy.path());
        let differs = match &seen {
            Err(error) => Some(error.to_string()),
            Ok(seen) => difference(&image.visible, seen),
        };
        match (verified.checkup.total(), differs) {
            (0, None) => Ok(Tried::Missed),
            (0, Some(what)) => {
                let file = path.file_name().unwrap().display();
                Err(format!("byte {at} of {file} ^ {flip:#x}: nothing found, yet {what}"))
            }
            (_, _) => Ok(Tried::Struck),
        }
    }
}

/// The first line that differs.
fn difference(one: &[String], other: &[String]) -> Option<String> {
    let pairs = one.iter().zip(other).find(|(one, other)| one != other);
    match pairs {
        Some((one, other)) => Some(format!("\n  {one}\nis now\n  {other}")),
        None if one.len() != other.len() => {
            Some(format!("there are {} lines instead of {}", other.len(), one.len()))
        }
        None => None,
    }
}
