//! The benchmark: a workload that can be repeated, through the real spool and daemon, timed and
//! checked to the last number.

mod baseline;
mod dimension;
mod drain;
mod growth;
mod machine;
mod model;
mod outcome;
mod probe;
mod text;
mod workload;

use std::fmt;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use drain::Usage;
pub use growth::{Growth, Point};
pub use machine::Machine;
pub use model::ModelState;
pub use outcome::{BaselineSample, Comparison, Medians, Outcome, Rates, Sample};
pub use probe::{Dimensional, Probed};
pub use text::write_text;
pub use workload::Ids;

use crate::store;
use drain::Bed;
use workload::{Generator, Workload};

/// The baseline takes in no more than this: it is slow, and gets slower.
const BASELINE_EVENTS: u64 = 1_000_000;

/// What is to be measured.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The name of the sizes that it began with.
    pub preset: &'static str,
    /// How many events there are in all, repeats and late ones counted.
    pub events: u64,
    /// How many lie in one file.
    pub batch_size: u64,
    /// How often the whole is done, each time with a fresh store.
    pub runs: u32,
    /// How many keys there are.
    pub keys: u32,
    /// What ids look like.
    pub ids: Ids,
    /// Decides all that looks random.
    pub seed: u64,
    /// Measure the naive engine on the same files too.
    pub baseline: bool,
    /// Let one store grow, instead of beginning afresh.
    pub growth: bool,
    /// Measure stores that are large in this dimension only, or in each that there is (`all`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dimension: Option<String>,
    /// Measure every command that reads, on stores of the workload.
    pub commands: bool,
    /// Where the temporary folder is made.
    #[serde(skip)]
    pub dir: PathBuf,
}

/// Why there is no result.
#[derive(Debug)]
pub enum BenchError {
    /// What came out is not what the model says.
    Differs {
        /// After which part.
        when: String,
        /// Each figure that differs, with both sides.
        differences: Vec<String>,
    },
    /// It was asked to stop.
    Stopped,
    /// Something could not be done.
    Failed(String),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Differs { when, differences } => write!(
                f,
                "wrong after {when}, so that no figure counts: {}",
                differences.join("; ")
            ),
            BenchError::Stopped => f.write_str("stopped; the temporary folder is removed"),
            BenchError::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<store::Error> for BenchError {
    fn from(error: store::Error) -> BenchError {
        BenchError::Failed(error.to_string())
    }
}

fn at(path: &Path, error: &io::Error) -> BenchError {
    BenchError::Failed(format!("{}: {error}", path.display()))
}

/// Told what is being done, how much of it is done, and of how much; a break ends the whole.
pub type Watch<'w> = dyn FnMut(&str, u64, u64) -> ControlFlow<()> + 'w;

fn going_on(flow: ControlFlow<()>) -> Result<(), BenchError> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(BenchError::Stopped),
    }
}

/// Measures. What it makes on the disk lies in one temporary folder, which is gone when it returns.
///
/// # Errors
/// When it was stopped, could not do its work, or found a wrong number.
pub fn run(plan: &Plan, watch: &mut Watch<'_>) -> Result<Outcome, BenchError> {
    let folder = tempfile::Builder::new()
        .prefix("windowflow-bench-")
        .tempdir_in(&plan.dir)
        .map_err(|error| at(&plan.dir, &error))?;
    let machine = Machine::of(folder.path());
    let mut outcome = Outcome::new(plan.clone(), machine);
    if plan.commands || plan.dimension.is_some() {
        outcome.dimensions = dimensions(plan, folder.path(), watch)?;
        return Ok(outcome);
    }
    if plan.growth {
        outcome.growth = Some(growth::run(plan, folder.path(), watch)?);
        return Ok(outcome);
    }
    let batch = Files::write(plan, folder.path(), watch)?;
    outcome.file_bytes = Some(batch.bytes);
    outcome.expected = Some(batch.expected.clone());
    for nth in 1..=plan.runs {
        outcome.samples.push(sample(plan, &batch, &folder.path().join("run"), nth, watch)?);
        if plan.baseline {
            outcome.baseline.push(naive(&batch, &folder.path().join("baseline"), nth, watch)?);
        }
    }
    outcome.sum_up();
    Ok(outcome)
}

/// Small and large stores, one dimension after the other.
fn dimensions(
    plan: &Plan,
    folder: &Path,
    watch: &mut Watch<'_>,
) -> Result<Vec<Dimensional>, BenchError> {
    let (asked, least) = match &plan.dimension {
        Some(name) => (dimension::Dimension::named(name), 1000),
        None => (vec![dimension::WORKLOAD], 100),
    };
    let mut all = Vec::new();
    for dimension in asked {
        let most = plan.events.min(dimension.most);
        let mut sizes = vec![(most / least).max(1), (most / 10).max(1), most];
        sizes.dedup();
        all.push(probe::run(&dimension, &sizes, folder, watch)?);
    }
    Ok(all)
}

/// The workload of a plan, written down.
#[derive(Debug, Default)]
struct Files {
    paths: Vec<PathBuf>,
    bytes: u64,
    events: u64,
    expected: ModelState,
    // how many files the baseline takes, how many events these hold, and what it must come to
    baseline_files: usize,
    baseline_events: u64,
    baseline_expected: ModelState,
}

impl Files {
    fn write(plan: &Plan, folder: &Path, watch: &mut Watch<'_>) -> Result<Files, BenchError> {
        let mut generator = Generator::new(plan.workload());
        let mut files = Files { events: plan.events, ..Files::default() };
        let folder = folder.join("files");
        fs::create_dir(&folder).map_err(|error| at(&folder, &error))?;
        while generator.events() < plan.events {
            going_on(watch("writing the files", generator.events(), plan.events))?;
            let path = folder.join(file_name(files.paths.len()));
            let events = plan.batch_size.min(plan.events - generator.events());
            files.bytes +=
                generator.write_file(&path, events).map_err(|error| at(&path, &error))?;
            files.paths.push(path);
            let written = generator.events();
            let is_enough = written == plan.events || written + plan.batch_size > BASELINE_EVENTS;
            if files.baseline_files == 0 && is_enough {
                files.baseline_files = files.paths.len();
                files.baseline_events = written;
                files.baseline_expected = generator.state();
            }
        }
        files.expected = generator.state();
        Ok(files)
    }
}

/// Names that sort in the order in which they are made.
fn file_name(nth: usize) -> String {
    format!("{nth:09}.json")
}

impl Plan {
    fn workload(&self) -> Workload {
        Workload { seed: self.seed, keys: self.keys, ids: self.ids }
    }
}

/// First all of it, then all of it again, with a fresh store.
fn sample(
    plan: &Plan,
    batch: &Files,
    folder: &Path,
    nth: u32,
    watch: &mut Watch<'_>,
) -> Result<Sample, BenchError> {
    let bed = Bed::make(folder)?;
    let mut timed = |part: &str, expected: &ModelState| -> Result<Usage, BenchError> {
        let what = format!("run {nth} of {}: {part}", plan.runs);
        bed.drop_in(&batch.paths, part)?;
        let usage = bed.drain(&mut || watch(&what, u64::from(nth - 1), u64::from(plan.runs)))?;
        bed.check(expected, &what)?;
        Ok(usage)
    };
    let ingest = timed("ingest", &batch.expected)?;
    let store_bytes = bed.store_bytes()?;
    let replay = timed("replay", &batch.expected.replayed(batch.events))?;
    fs::remove_dir_all(folder).map_err(|error| at(folder, &error))?;
    let kept = batch.expected.accepted + batch.expected.late;
    let files = batch.paths.len() as u64;
    Ok(Sample {
        ingest: Rates::of(ingest, batch.events, files),
        replay: Rates::of(replay, batch.events, files),
        store_bytes,
        store_bytes_per_id: store_bytes as f64 / kept as f64,
    })
}

/// The naive engine on the same files, or the first of them.
fn naive(
    batch: &Files,
    folder: &Path,
    nth: u32,
    watch: &mut Watch<'_>,
) -> Result<BaselineSample, BenchError> {
    let files = &batch.paths[..batch.baseline_files];
    fs::create_dir(folder).map_err(|error| at(folder, &error))?;
    drain::settle(folder)?;
    let (what, mut done, all) = (format!("run {nth}: baseline"), 0, files.len() as u64);
    let (seconds, found) = baseline::run(files, folder, &mut || {
        done += 1;
        going_on(watch(&what, done, all))
    })?;
    let differences = found.differences(&batch.baseline_expected);
    if !differences.is_empty() {
        return Err(BenchError::Differs { when: what, differences });
    }
    fs::remove_dir_all(folder).map_err(|error| at(folder, &error))?;
    let events = batch.baseline_events;
    Ok(BaselineSample { seconds, events, events_per_second: events as f64 / seconds })
}
