//! One store that grows: what an event costs when a hundred times as many ids are remembered. The
//! files are written round by round and removed again, so that the disk holds one round at a time.
//! Rounds become larger as the store does: a start reads what the store has to have in memory, and
//! is measured by itself.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::drain::Bed;
use super::workload::Generator;
use super::{BenchError, Plan, Usage, Watch, at, file_name, going_on};

/// The first round holds no more events than this, and is the first point.
const FIRST_EVENTS: u64 = 1_000_000;

/// Over how many events one figure is taken at most, in whole rounds, and over no more than half of
/// those behind it: merges in the store fall on some rounds and not on others.
const EVENTS_MEASURED: u64 = 10_000_000;

/// From how many stores the first figure is taken. All others rest on it, and one round is short.
const FIRST_STORES: usize = 3;

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Growth {
    /// At each size.
    pub points: Vec<Point>,
    /// The cost of an event at the last point, over that at the first.
    pub cost_ratio: f64,
}

/// How it stands at one size.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// How many events had come, repeats and late ones counted.
    pub events: u64,
    /// How many ids the store remembered.
    pub ids: u64,
    /// How many events came in one run of the daemon before it, at most.
    pub round_events: u64,
    /// Over how many of the last rounds the next figures are the mean; at the first point, over the
    /// first round of how many stores.
    pub rounds_measured: usize,
    /// One round, with the start and the end of the daemon.
    pub round_seconds: f64,
    /// What an event of a round costs, its part of the start and the end of the daemon included.
    pub nanoseconds_per_event: f64,
    /// Written to the disk for each event in these rounds.
    pub disk_write_bytes_per_event: f64,
    /// The most memory that one of them needed.
    pub peak_memory_bytes: u64,
    /// A start, one more file, an end.
    pub restart: Usage,
    /// The store, with its log.
    pub store_bytes: u64,
    /// The same for each id.
    pub store_bytes_per_id: f64,
}

/// The store, and the stream that goes into it.
struct Grower<'p> {
    plan: &'p Plan,
    generator: Generator,
    bed: Bed,
    staging: PathBuf,
    files: usize,
}

pub(super) fn run(plan: &Plan, folder: &Path, watch: &mut Watch<'_>) -> Result<Growth, BenchError> {
    let schedule = schedule(plan.events, plan.batch_size);
    let mut first: Vec<(u64, Usage)> = Vec::new();
    for store in 1..FIRST_STORES {
        let spool = folder.join(format!("spool-{store}"));
        let events = schedule[0].0;
        first.push((events, Grower::begin(plan, folder, &spool)?.round(events, watch)?));
        fs::remove_dir_all(&spool).map_err(|error| at(&spool, &error))?;
    }
    let mut grower = Grower::begin(plan, folder, &folder.join("spool"))?;
    let mut reached: Vec<Point> = Vec::new();
    let mut rounds: Vec<(u64, Usage)> = Vec::new();
    for (point, round) in schedule {
        while grower.generator.events() < point {
            let events = round.min(point - grower.generator.events());
            rounds.push((events, grower.round(events, watch)?));
        }
        first.extend(rounds.first().filter(|_| reached.is_empty()));
        let last = if reached.is_empty() { &first } else { measured(&rounds) };
        reached.push(grower.point(round, last, watch)?);
    }
    let cost = |point: Option<&Point>| point.map_or(f64::NAN, |point| point.nanoseconds_per_event);
    let cost_ratio = cost(reached.last()) / cost(reached.first());
    Ok(Growth { points: reached, cost_ratio })
}

/// Where it is measured, and how many events a round before that holds, in whole files: after one
/// round, after ten and a hundred times as much, and at the end. A round holds a tenth of what there
/// is at the next point.
fn schedule(events: u64, batch_size: u64) -> Vec<(u64, u64)> {
    let mut round = FIRST_EVENTS.min(events.div_ceil(10)).next_multiple_of(batch_size);
    let mut points = Vec::new();
    let mut point = round;
    while point < events {
        points.push((point, round));
        round = point;
        point = point.saturating_mul(10);
    }
    points.push((events, round));
    points
}

/// Of so many rounds the last ones that a figure is taken over.
fn measured(rounds: &[(u64, Usage)]) -> &[(u64, Usage)] {
    let most = EVENTS_MEASURED.min(rounds.iter().map(|(events, _)| events).sum::<u64>() / 2);
    let mut events = 0;
    let fits = |round: &&(u64, Usage)| {
        events += round.0;
        events <= most
    };
    let many = rounds.iter().rev().take_while(fits).count().max(1);
    &rounds[rounds.len() - many..]
}

impl<'p> Grower<'p> {
    /// A store without an id, and the stream from its beginning.
    fn begin(plan: &'p Plan, folder: &Path, spool: &Path) -> Result<Grower<'p>, BenchError> {
        Ok(Grower {
            plan,
            generator: Generator::new(plan.workload()),
            bed: Bed::make(spool)?,
            staging: folder.join("files"),
            files: 0,
        })
    }

    /// Writes files with the next events, lets the daemon take them, and removes them.
    fn round(&mut self, events: u64, watch: &mut Watch<'_>) -> Result<Usage, BenchError> {
        let (from, all) = (self.generator.events(), self.plan.events);
        let mut going = || watch("growing", from.min(all), all);
        fs::create_dir(&self.staging).map_err(|error| at(&self.staging, &error))?;
        let mut files = Vec::new();
        while self.generator.events() < from + events {
            going_on(going())?;
            let path = self.staging.join(file_name(self.files));
            let size = self.plan.batch_size.min(from + events - self.generator.events());
            self.generator.write_file(&path, size).map_err(|error| at(&path, &error))?;
            files.push(path);
            self.files += 1;
        }
        self.bed.drop_in(&files, "growth")?;
        let usage = self.bed.drain(&mut going)?;
        self.bed.clear_done()?;
        fs::remove_dir_all(&self.staging).map_err(|error| at(&self.staging, &error))?;
        Ok(usage)
    }

    /// Measures where it has come to: by these rounds behind it, and by one more file.
    fn point(
        &mut self,
        round_events: u64,
        last: &[(u64, Usage)],
        watch: &mut Watch<'_>,
    ) -> Result<Point, BenchError> {
        let (events, expected) = (self.generator.events(), self.generator.state());
        let ids = expected.accepted + expected.late;
        let store_bytes = self.bed.store_bytes()?;
        let restart = self.round(self.plan.batch_size, watch)?;
        self.bed.check(&self.generator.state(), &format!("{events} events"))?;
        let sum =
            |figure: fn(&Usage) -> f64| last.iter().map(|(_, usage)| figure(usage)).sum::<f64>();
        let seconds = sum(|usage| usage.seconds);
        let in_rounds: u64 = last.iter().map(|(events, _)| events).sum();
        Ok(Point {
            events,
            ids,
            round_events,
            rounds_measured: last.len(),
            round_seconds: seconds / last.len() as f64,
            nanoseconds_per_event: seconds * 1e9 / in_rounds as f64,
            disk_write_bytes_per_event: sum(|usage| usage.disk_write_bytes as f64)
                / in_rounds as f64,
            peak_memory_bytes: last.iter().map(|(_, u)| u.peak_memory_bytes).max().unwrap_or(0),
            restart,
            store_bytes,
            store_bytes_per_id: store_bytes as f64 / ids as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_measured_at_each_power_of_ten_and_at_the_end() {
        let million = 1_000_000;
        assert_eq!(
            schedule(100 * million, 2_500),
            [(million, million), (10 * million, million), (100 * million, 10 * million)]
        );
        assert_eq!(
            schedule(30 * million, 2_500),
            [(million, million), (10 * million, million), (30 * million, 10 * million)]
        );
        assert_eq!(schedule(4_000, 50), [(400, 400), (4_000, 400)]);
        assert_eq!(schedule(40, 50), [(40, 50)], "less than a file");
    }

    #[test]
    fn a_figure_is_taken_over_the_last_rounds() {
        let million = 1_000_000;
        let of = |rounds: &[u64]| -> usize {
            let rounds: Vec<_> =
                rounds.iter().map(|round| (round * million, Usage::default())).collect();
            measured(&rounds).len()
        };
        assert_eq!(of(&[1]), 1);
        assert_eq!(of(&[1; 10]), 5);
        assert_eq!(of(&[1; 40]), 10);
        assert_eq!(of(&[1, 1, 10]), 1, "a round is never cut");
        assert_eq!(of(&[1, 10, 10]), 1);
    }
}
