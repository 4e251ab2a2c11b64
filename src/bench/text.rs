//! The outcome for a person at a terminal. Its layout may change.

use std::io::{self, Write};

use super::{Dimensional, Growth, Outcome, Rates};
use crate::query::report::grouped;

/// Writes all of it.
///
/// # Errors
/// When `out` cannot be written.
pub fn write_text(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let (machine, plan) = (&outcome.machine, &outcome.settings);
    writeln!(
        out,
        "machine   {}, {} cores, {} MiB, Linux {}, {}",
        machine.cpu,
        machine.cores,
        grouped(machine.memory_bytes >> 20),
        machine.kernel,
        machine.file_system
    )?;
    writeln!(out, "versions  windowflow {}, SQLite {}", machine.windowflow, machine.sqlite)?;
    writeln!(
        out,
        "workload  {}: {} events in files of {}, {} keys, {} ids, --seed {}",
        plan.preset,
        grouped(plan.events),
        grouped(plan.batch_size),
        grouped(plan.keys),
        plan.ids.name(),
        plan.seed
    )?;
    if machine.is_in_memory() {
        writeln!(
            out,
            "note      the folder lies in memory ({}), where a sync costs nothing: name one on a \
             disk with --dir",
            machine.file_system
        )?;
    }
    if !machine.optimised {
        writeln!(out, "note      this is a debug build: the figures say nothing")?;
    }
    if let Some(state) = &outcome.expected {
        writeln!(
            out,
            "checked   every run: {} accepted, {} late, {} duplicate; {} windows, checksum {}",
            grouped(state.accepted),
            grouped(state.late),
            grouped(state.duplicate),
            grouped(state.windows),
            state.windows_checksum
        )?;
    }
    if !outcome.dimensions.is_empty() {
        return outcome.dimensions.iter().try_for_each(|one| write_dimension(one, out));
    }
    if let Some(growth) = &outcome.growth {
        return write_growth(growth, out);
    }
    samples(outcome, out)
}

fn samples(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "\n{:<8}{:>3}{:>12}{:>10}{:>10}{:>9}{:>12}{:>17}{:>12}",
        "part",
        "run",
        "events/s",
        "files/s",
        "seconds",
        "CPU s",
        "memory KiB",
        "written B/event",
        "store B/id"
    )?;
    let mut line = |part: &str, nth: usize, rates: &Rates, per_id: &str| {
        writeln!(
            out,
            "{part:<8}{nth:>3}{:>12}{:>10}{:>10.3}{:>9.2}{:>12}{:>17.0}{per_id:>12}",
            whole(rates.events_per_second),
            whole(rates.files_per_second),
            rates.usage.seconds,
            rates.usage.cpu_seconds,
            grouped(rates.usage.peak_memory_bytes >> 10),
            rates.disk_write_bytes_per_event,
        )
    };
    for (nth, sample) in (1..).zip(&outcome.samples) {
        line("ingest", nth, &sample.ingest, &format!("{:.1}", sample.store_bytes_per_id))?;
        line("replay", nth, &sample.replay, "")?;
    }
    for (nth, sample) in (1..).zip(&outcome.baseline) {
        let rate = whole(sample.events_per_second);
        writeln!(out, "baseline{nth:>3}{rate:>12}{:>20.3}", sample.seconds)?;
    }
    if let Some(median) = &outcome.median {
        writeln!(
            out,
            "\nmedian    ingest {} events/s and {} files/s, replay {} events/s",
            whole(median.ingest_events_per_second),
            whole(median.ingest_files_per_second),
            whole(median.replay_events_per_second)
        )?;
    }
    if let (Some(comparison), Some(baseline)) = (&outcome.comparison, outcome.baseline.first()) {
        let over = match comparison.over_all_events {
            true => "the same files".to_owned(),
            false => format!("the first {} events only, its fastest", grouped(baseline.events)),
        };
        writeln!(
            out,
            "baseline  {} events/s over {over}: ingest is {:.1} times as fast",
            whole(comparison.baseline_events_per_second),
            comparison.ratio
        )?;
    }
    Ok(())
}

/// One dimension: a row for each thing that was measured.
fn write_dimension(one: &Dimensional, out: &mut dyn Write) -> io::Result<()> {
    let sizes: Vec<String> = one.sizes.iter().map(|size| grouped(*size)).collect();
    let last = |figures: &[f64]| figures.last().copied().unwrap_or_default();
    writeln!(
        out,
        "\n{}: {}; the largest made in {:.1} s, its store {} MiB, all its files read in {:.2} s",
        one.dimension,
        sizes.join(", "),
        last(&one.made_seconds),
        grouped(one.store_bytes.last().copied().unwrap_or_default() >> 20),
        last(&one.read_seconds)
    )?;
    write!(out, "{:>16}", "seconds with")?;
    for size in &sizes {
        write!(out, "{size:>12}")?;
    }
    writeln!(out, "{:>8}{:>12}", "ratio", "memory KiB")?;
    for row in &one.rows {
        write!(out, "{:>16}", row.what)?;
        for seconds in &row.seconds {
            match seconds {
                Some(seconds) => write!(out, "{seconds:>12.4}")?,
                None => write!(out, "{:>12}", "over 60")?,
            }
        }
        let ratio = row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let memory = row.peak_memory_bytes.last().copied().unwrap_or_default() >> 10;
        writeln!(out, "{ratio:>8}{:>12}", grouped(memory))?;
    }
    Ok(())
}

fn write_growth(growth: &Growth, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "checked   at every point below\n\n{:>13}{:>10}{:>12}{:>17}{:>12}{:>11}{:>12}",
        "ids", "ns/event", "restart s", "written B/event", "memory KiB", "store MiB", "store B/id"
    )?;
    for point in &growth.points {
        writeln!(
            out,
            "{:>13}{:>10}{:>12.3}{:>17.0}{:>12}{:>11}{:>12.1}",
            grouped(point.ids),
            whole(point.nanoseconds_per_event),
            point.restart.seconds,
            point.disk_write_bytes_per_event,
            grouped(point.peak_memory_bytes >> 10),
            grouped(point.store_bytes >> 20),
            point.store_bytes_per_id
        )?;
    }
    writeln!(out, "\nan event costs {:.2} times as much at the end as at first", growth.cost_ratio)
}

fn whole(figure: f64) -> String {
    grouped(figure.round() as i64)
}
