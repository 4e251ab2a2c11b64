//! What was measured. Every sample is kept, the bad ones too; these are the members of the JSON.

use serde::Serialize;

use super::{Dimensional, Growth, Machine, ModelState, Plan, Usage};

/// The version of the form.
const FORMAT: u32 = 1;

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The version of the form: members may be added, never renamed.
    pub format: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// What was asked for.
    pub settings: Plan,
    /// All files together, where they all exist at once.
    pub file_bytes: Option<u64>,
    /// What the model says, and every run came to.
    pub expected: Option<ModelState>,
    /// One for each run.
    pub samples: Vec<Sample>,
    /// Over the samples.
    pub median: Option<Medians>,
    /// One for each run, where it was asked for.
    pub baseline: Vec<BaselineSample>,
    /// How the two compare.
    pub comparison: Option<Comparison>,
    /// How one store grew, where that was asked for.
    pub growth: Option<Growth>,
    /// Stores that are large in one dimension, where they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dimensions: Vec<Dimensional>,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Into a fresh store.
    pub ingest: Rates,
    /// The same files again, under other names: nothing but duplicates.
    pub replay: Rates,
    /// The store after the ingest, with its log.
    pub store_bytes: u64,
    /// The same for each id that it remembers, windows and all else included.
    pub store_bytes_per_id: f64,
}

/// What a part took, and what that comes to.
#[derive(Clone, Debug, Serialize)]
pub struct Rates {
    /// What it took.
    #[serde(flatten)]
    pub usage: Usage,
    /// Every event counts: repeats and late ones too.
    pub events_per_second: f64,
    /// Files, each a transaction of its own.
    pub files_per_second: f64,
    /// Written to the disk for each event.
    pub disk_write_bytes_per_event: f64,
}

impl Rates {
    pub(super) fn of(usage: Usage, events: u64, files: u64) -> Rates {
        Rates {
            usage,
            events_per_second: events as f64 / usage.seconds,
            files_per_second: files as f64 / usage.seconds,
            disk_write_bytes_per_event: usage.disk_write_bytes as f64 / events as f64,
        }
    }
}

/// The middle of all samples, each figure by itself.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "as in a sample")]
pub struct Medians {
    pub ingest_events_per_second: f64,
    pub ingest_files_per_second: f64,
    pub replay_events_per_second: f64,
}

/// One run of the naive engine.
#[derive(Clone, Debug, Serialize)]
pub struct BaselineSample {
    /// From opening its database until it is closed.
    pub seconds: f64,
    /// How many of the events it took in: the first, up to a million.
    pub events: u64,
    /// How many that is in a second.
    pub events_per_second: f64,
}

/// The medians side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Of the naive engine.
    pub baseline_events_per_second: f64,
    /// How many times as fast the first ingest is.
    pub ratio: f64,
    /// The baseline took in all events; if not, it had the easier part, since it slows down as it
    /// grows.
    pub over_all_events: bool,
}

impl Outcome {
    pub(super) fn new(settings: Plan, machine: Machine) -> Outcome {
        Outcome {
            format: FORMAT,
            machine,
            settings,
            file_bytes: None,
            expected: None,
            samples: Vec::new(),
            median: None,
            baseline: Vec::new(),
            comparison: None,
            growth: None,
            dimensions: Vec::new(),
        }
    }

    /// Fills in what follows from the samples.
    pub(super) fn sum_up(&mut self) {
        let over = |figure: fn(&Sample) -> f64| median(self.samples.iter().map(figure).collect());
        let medians = Medians {
            ingest_events_per_second: over(|sample| sample.ingest.events_per_second),
            ingest_files_per_second: over(|sample| sample.ingest.files_per_second),
            replay_events_per_second: over(|sample| sample.replay.events_per_second),
        };
        if let Some(first) = self.baseline.first() {
            let rates = self.baseline.iter().map(|sample| sample.events_per_second).collect();
            let baseline_events_per_second = median(rates);
            self.comparison = Some(Comparison {
                baseline_events_per_second,
                ratio: medians.ingest_events_per_second / baseline_events_per_second,
                over_all_events: first.events == self.settings.events,
            });
        }
        self.median = Some(medians);
    }
}

/// The middle one; of an even number, between the two in the middle.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let half = figures.len() / 2;
    match figures.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => figures[half],
        _ => f64::midpoint(figures[half - 1], figures[half]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![9.0, 1.0, 2.0, 4.0]), 3.0);
        assert_eq!(median(vec![7.0]), 7.0);
    }
}
