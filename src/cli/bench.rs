//! `bench`: how fast it is here, checked to the last number.

use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};

use super::args::{Bench, Where};
use super::{CommandError, Exit, results};
use crate::bench::{self, BenchError, Ids, Plan};
use crate::daemon::signals::{self, Asked};
use crate::spool::name::shown_path;

pub(super) fn run(at: &Where, command: &Bench) -> Result<Exit, CommandError> {
    let plan = plan(command)?;
    if !plan.dir.is_dir() {
        let text = format!("there is no folder {}: name another with --dir", shown_path(&plan.dir));
        return Err(CommandError::new(Exit::Missing, text));
    }
    let unwritten = |path: &Path, error: &io::Error| {
        CommandError::new(Exit::Failed, format!("cannot write {}: {error}", shown_path(path)))
    };
    // opened now: what takes minutes to measure must not be lost for want of a place; what is there
    // stays until there is a result
    let output = command.output.as_deref().map(|path| {
        match File::options().write(true).create(true).truncate(false).open(path) {
            Ok(file) => Ok((path, file)),
            Err(error) => Err(unwritten(path, &error)),
        }
    });
    let output = output.transpose()?;
    // so that the temporary folder is removed however it ends
    let asked = signals::start().map_err(|error| {
        CommandError::new(Exit::Failed, format!("cannot catch signals: {error}"))
    })?;
    // the bar shows itself on a terminal only, and on standard error
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {elapsed}") {
        bar.set_style(style);
    }
    let outcome = bench::run(&plan, &mut |what, done, all| {
        bar.set_message(what.to_owned());
        bar.set_length(all);
        bar.set_position(done);
        match asked.try_iter().any(|asked| asked == Asked::Stop) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    bar.finish_and_clear();
    let outcome = outcome?;
    let json = || {
        serde_json::to_string_pretty(&outcome)
            .map_err(|error| CommandError::new(Exit::Failed, error.to_string()))
    };
    if let Some((path, mut file)) = output {
        let text = json()?;
        let written = file.set_len(0).and_then(|()| writeln!(file, "{text}"));
        written.map_err(|error| unwritten(path, &error))?;
    }
    let mut out = results();
    match at.json {
        true => writeln!(out, "{}", json()?)?,
        false => bench::write_text(&outcome, &mut out)?,
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// The sizes of the preset, and what was said otherwise.
fn plan(command: &Bench) -> Result<Plan, CommandError> {
    let (preset, events, batch_size, runs) = match command.preset.as_str() {
        "small" => ("small", 10_000, 250, 3),
        "large" => ("large", 10_000_000, 25_000, 1),
        "growth" => ("growth", 100_000_000, 2_500, 1),
        _ => ("medium", 1_000_000, 2_500, 3),
    };
    let growth = preset == "growth";
    if growth && (command.baseline || command.runs.is_some()) {
        let text = "--preset growth lets one store grow, once: leave out --runs and --baseline";
        return Err(CommandError::new(Exit::Usage, text));
    }
    let is_of_dimensions = command.commands || command.dimension.is_some();
    let (preset, events) = match &command.dimension {
        None if command.commands => ("commands", 10_000_000),
        Some(_) => ("dimension", 1_000_000),
        None => (preset, events),
    };
    if is_of_dimensions && (growth || command.baseline || command.runs.is_some()) {
        let text = "--dimension and --commands make stores of their own: leave out --preset growth, \
                    --runs and --baseline";
        return Err(CommandError::new(Exit::Usage, text));
    }
    Ok(Plan {
        preset,
        events: command.events.unwrap_or(events),
        batch_size: command.batch_size.unwrap_or(batch_size),
        runs: command.runs.unwrap_or(runs),
        keys: command.keys,
        ids: if command.ids == "monotonic" { Ids::Monotonic } else { Ids::Random },
        seed: command.seed,
        baseline: command.baseline,
        growth,
        dimension: command.dimension.clone(),
        commands: command.commands,
        dir: command.dir.clone().unwrap_or_else(std::env::temp_dir),
    })
}

impl From<BenchError> for CommandError {
    fn from(error: BenchError) -> CommandError {
        CommandError::new(Exit::Failed, error.to_string())
    }
}
