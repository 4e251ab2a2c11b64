//! One store that grows: what an event costs when a hundred times as many ids are remembered. The
//! files are written round by round and removed again, so that the disk holds one round at a time.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::drain::Bed;
use super::workload::Generator;
use super::{Error, Plan, Usage, Watch, at, file_name, going_on};

/// A round holds no more events than this.
const ROUND_EVENTS: u64 = 1_000_000;

/// How many rounds one figure is taken over at most, and at most half of those behind it: merges in
/// the store fall on some rounds and not on others.
const ROUNDS_MEASURED: usize = 10;

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Growth {
    /// How many events come in one run of the daemon.
    pub round_events: u64,
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
    /// Over how many of the last rounds the next two figures are the mean.
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

pub(super) fn run(plan: &Plan, folder: &Path, watch: &mut Watch<'_>) -> Result<Growth, Error> {
    let (round_events, points) = schedule(plan.events, plan.batch_size);
    let mut grower = Grower {
        plan,
        generator: Generator::new(plan.workload()),
        bed: Bed::make(&folder.join("spool"))?,
        staging: folder.join("files"),
        files: 0,
    };
    let mut reached: Vec<Point> = Vec::new();
    let mut rounds: Vec<(u64, Usage)> = Vec::new();
    for point in points {
        while grower.generator.events() < point {
            let events = round_events.min(point - grower.generator.events());
            rounds.push((events, grower.round(events, watch)?));
        }
        reached.push(grower.point(&rounds, watch)?);
    }
    let cost = |point: Option<&Point>| point.map_or(f64::NAN, |point| point.nanoseconds_per_event);
    let cost_ratio = cost(reached.last()) / cost(reached.first());
    Ok(Growth { round_events, points: reached, cost_ratio })
}

/// How many events a round holds, in whole files, and where it is measured: after one, ten, a
/// hundred rounds, and at the end.
fn schedule(events: u64, batch_size: u64) -> (u64, Vec<u64>) {
    let round = ROUND_EVENTS.min(events.div_ceil(10)).next_multiple_of(batch_size);
    let mut points = Vec::new();
    let mut point = round;
    while point < events {
        points.push(point);
        point = point.saturating_mul(10);
    }
    points.push(events);
    (round, points)
}

impl Grower<'_> {
    /// Writes files with the next events, lets the daemon take them, and removes them.
    fn round(&mut self, events: u64, watch: &mut Watch<'_>) -> Result<Usage, Error> {
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

    /// Measures where it has come to: by the rounds behind it, and by one more file.
    fn point(&mut self, rounds: &[(u64, Usage)], watch: &mut Watch<'_>) -> Result<Point, Error> {
        let (events, expected) = (self.generator.events(), self.generator.state());
        let ids = expected.accepted + expected.late;
        let store_bytes = self.bed.store_bytes()?;
        let restart = self.round(self.plan.batch_size, watch)?;
        self.bed.check(&self.generator.state(), &format!("{events} events"))?;
        let measured = ROUNDS_MEASURED.min(rounds.len().div_ceil(2));
        let last = &rounds[rounds.len() - measured..];
        let sum =
            |figure: fn(&Usage) -> f64| last.iter().map(|(_, usage)| figure(usage)).sum::<f64>();
        let seconds = sum(|usage| usage.seconds);
        let in_rounds: u64 = last.iter().map(|(events, _)| events).sum();
        Ok(Point {
            events,
            ids,
            rounds_measured: measured,
            round_seconds: seconds / measured as f64,
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
            (million, vec![million, 10 * million, 100 * million])
        );
        assert_eq!(
            schedule(30 * million, 2_500),
            (million, vec![million, 10 * million, 30 * million])
        );
        assert_eq!(schedule(4_000, 50), (400, vec![400, 4_000]));
        assert_eq!(schedule(40, 50), (50, vec![40]), "less than a file");
    }
}
