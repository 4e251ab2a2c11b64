//! `run`: the daemon.

use std::io::{ErrorKind, Write};
use std::path::Path;

use log::LevelFilter;
use serde_json::json;

use super::args::{Run, Where};
use super::{CommandError, Exit, options, owner, results, store_of};
use crate::config::WORK_FOLDERS;
use crate::daemon::signals;
use crate::daemon::{self, Job, RunTotals};
use crate::query::report::visible_lines;
use crate::spool::advice;
use crate::spool::name::shown_path;

pub(super) fn run(at: &Where, command: &Run) -> Result<Exit, CommandError> {
    // first of all: what is sent from here on is not lost and kills nothing
    let asked = signals::start().map_err(|error| {
        let why = advice::explain(Path::new("/"), &error);
        CommandError::new(Exit::Again, format!("cannot catch signals: {why}"))
    })?;
    owner::refuse_other(at)?;
    let job = job(at, command).inspect_err(|failure| {
        // `status` says why; without a spool that was named there is no place for it
        if let Some(spool) = &at.spool {
            daemon::note_failure(spool, &failure.message);
        }
    })?;
    let tally = daemon::run(job, &asked)
        .map_err(|stopped| CommandError::new(stopped.exit, stopped.text))?;
    if command.once {
        let mut out = results();
        let RunTotals { done, failed, left } = tally;
        if at.json {
            writeln!(out, "{}", json!({"ingested": done, "refused": failed, "left": left}))?;
        } else {
            writeln!(out, "files ingested: {done}, refused: {failed}, left in the inbox: {left}")?;
        }
        out.flush()?;
    }
    Ok(if command.once && tally.failed > 0 { Exit::Refused } else { Exit::Done })
}

/// What the daemon is to do, and with what.
fn job(at: &Where, command: &Run) -> Result<Job, CommandError> {
    let config = at.config()?.unwrap_or_default();
    start_log(config.daemon.log.to_level_filter());
    let spool = at.spool()?;
    refuse_missing(&spool)?;
    let named = at.db.is_some().then(|| at.db()).transpose()?;
    let db = match named.or_else(|| config.db.clone()) {
        Some(db) => db,
        // the one that was used last, which may have been named elsewhere
        None => store_of(&spool)?,
    };
    // published for others, who may be somewhere else
    let db = std::path::absolute(&db).unwrap_or(db);
    if let Some(folder) = WORK_FOLDERS.iter().map(|f| spool.join(f)).find(|f| db.starts_with(f)) {
        let text = format!(
            "the store {} must not lie in {}, where files are work: name another with --db",
            shown_path(&db),
            shown_path(&folder)
        );
        return Err(CommandError::new(Exit::Config, text));
    }
    let options = options(&config);
    let (config_file, log_is_fixed) = (at.config.clone(), is_log_fixed());
    Ok(Job { spool, db, options, config, config_file, log_is_fixed, once: command.once })
}

/// That the spool cannot be looked at does not mean that it is not there: that is waited out.
fn refuse_missing(spool: &Path) -> Result<(), CommandError> {
    let shown = shown_path(spool);
    match std::fs::metadata(spool) {
        Ok(seen) if seen.is_dir() => Ok(()),
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(())
        }
        _ => {
            let text = format!("there is no folder {shown}: make it, then run again");
            Err(CommandError::new(Exit::Missing, text))
        }
    }
}

/// Messages go to standard error; under systemd with their priority, and without a time, which the
/// journal has itself. `RUST_LOG` wins over the configuration.
fn start_log(level: LevelFilter) {
    let by_journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let mut builder = env_logger::Builder::new();
    builder.filter_level(LevelFilter::Trace).parse_default_env();
    builder.format(move |out, record| {
        let (level, text) = (record.level(), record.args().to_string());
        let text = visible_lines(&text);
        if by_journal {
            let priority = match level {
                log::Level::Error => 3,
                log::Level::Warn => 4,
                log::Level::Info => 6,
                log::Level::Debug | log::Level::Trace => 7,
            };
            writeln!(out, "<{priority}>{text}")
        } else {
            writeln!(out, "{} {level:<5} {text}", out.timestamp_millis())
        }
    });
    builder.init();
    if !is_log_fixed() {
        log::set_max_level(level);
    }
}

/// Whether the environment says how much is logged, and the configuration does not.
fn is_log_fixed() -> bool {
    std::env::var_os("RUST_LOG").is_some()
}
