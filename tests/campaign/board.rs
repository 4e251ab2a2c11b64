//! The table at the end, how far a run has come, and the way back to a failure.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::row::{Row, Scale};

/// How many failures of a row are told in full.
const MAX_TOLD: usize = 5;

/// What became of the rows, as it is kept between runs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Board {
    /// Decides what is drawn.
    pub seed: u64,
    /// By the number of the row.
    pub rows: BTreeMap<u32, Score>,
}

/// What became of one row.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Score {
    /// The attempt that comes next.
    pub next: u64,
    /// How many attempts were made.
    pub tried: u64,
    /// In how many of them the fault struck.
    pub struck: u64,
    /// The attempts that found what must not be, and what they said.
    pub violations: BTreeMap<u64, String>,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// Why it was not tried.
    pub unable: Option<String>,
    /// What there is to say besides.
    #[serde(default)]
    pub note: Option<String>,
    /// How far it came, where the time was up before the end.
    #[serde(default)]
    pub cut_short: Option<String>,
}

impl Board {
    /// What an earlier run left there, or an empty one.
    ///
    /// # Errors
    /// When the file is there and cannot be read, or belongs to another seed.
    pub fn load(path: &Path, seed: Option<u64>) -> Result<Board, String> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Board::default());
            }
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let board: Board = serde_json::from_slice(&text)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        match seed {
            Some(seed) if seed != board.seed => {
                Err(format!("{} is of seed {}, not {seed}", path.display(), board.seed))
            }
            _ => Ok(board),
        }
    }

    /// Leaves it for the next run, whole or not at all.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let draft = path.with_extension("draft");
        let text = serde_json::to_vec_pretty(self).map_err(|error| error.to_string())?;
        fs::write(&draft, text)
            .and_then(|()| fs::rename(&draft, path))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The table, and the failures behind it.
    pub fn show(&self, rows: &[&Row], scale: Scale) -> String {
        let mut text = format!(
            "\nseed {}\n{:>3}  {:>9}  {:>9}  {:>10}  {:>7}  fault (promise)\n",
            self.seed, "row", "tried", "struck", "violations", "seconds"
        );
        let shown = || rows.iter().filter_map(|row| Some((row, self.rows.get(&row.number)?)));
        for (row, score) in shown() {
            let (number, fault, promise) = (row.number, row.fault, row.promise);
            let (tried, struck) = (score.tried, score.struck);
            let (bad, took_s) = (score.violations.len(), score.took_s);
            text.push_str(&format!(
                "{number:>3}  {tried:>9}  {struck:>9}  {bad:>10}  {took_s:>7.1}  {fault} \
                 ({promise})\n"
            ));
            if let Some(why) = &score.unable {
                text.push_str(&format!("     NOT TRIED: {why}\n"));
            }
            for said in [&score.note, &score.cut_short].into_iter().flatten() {
                text.push_str(&format!("     {said}\n"));
            }
        }
        let scale = match scale {
            Scale::Smoke => " --smoke",
            Scale::Full => "",
            Scale::Soak => " --soak",
        };
        for (row, score) in shown() {
            for (n, what) in score.violations.iter().take(MAX_TOLD) {
                let (number, seed) = (row.number, self.seed);
                text.push_str(&format!(
                    "\nrow {number}, attempt {n}: {what}\n  again: cargo campaign{scale} --row \
                     {number} --seed {seed} --from {n} --count 1\n"
                ));
            }
        }
        text
    }
}

/// Prints at once, past the test runner.
pub fn say(text: &str) {
    // where nobody listens any more, the exit code tells
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}
