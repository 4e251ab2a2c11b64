//! Whether a spool has lost its store: then no other is made in its place. A new store knows no id,
//! so it would count again what comes again, and its watermark would begin at 0.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use super::state::DaemonState;
use crate::engine::settings::Settings;
use crate::exit::Exit;
use crate::pipeline::worker::{Failure, Scope};
use crate::spool::name::shown_path;
use crate::spool::{Spool, lock};
use crate::store::sqlite;

/// The store that the daemons of a spool used last, as shown; none when none ever opened one.
pub(super) fn used_before(root: &Path) -> Option<String> {
    let state = last_state(&lock::peek(root).ok()?.state?)?;
    if state.db_opened { Some(state.db) } else { state.used_db }
}

/// What the last daemon said of itself, whatever its version.
pub(super) fn last_state(text: &[u8]) -> Option<DaemonState> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let says_so = value.get("db_opened").is_some();
    let mut state: DaemonState = serde_json::from_value(value).ok()?;
    if !says_so {
        // of a version that did not say whether it had opened its store
        state.db_opened = state.fault.is_none();
    }
    Some(state)
}

/// Refuses to go on where there is no store although there was one. `used` is what
/// [`used_before`] found.
///
/// # Errors
/// A lasting trouble (exit code 66) that says what is missing and what to do.
pub(super) fn refuse_lost(
    db: &Path,
    spool: &Spool,
    used: Option<&str>,
    settings: Option<&Settings>,
) -> Result<(), Failure> {
    let is_empty_file = match fs::metadata(db) {
        Ok(seen) if seen.is_file() && seen.len() == 0 => true,
        Err(error) if is_absent(&error) => false,
        // whatever is there instead, opening it says what is wrong
        _ => return Ok(()),
    };
    let (shown, log) = (shown_path(db), sqlite::left_log(db));
    let mut text = match used {
        Some(used) if used == shown => format!("the store of this spool, {shown}, is gone"),
        Some(used) => format!(
            "there is no store {shown}; until now this spool used {used}: is the name right (db in \
             the configuration, --db)"
        ),
        None if log.is_some() => format!("there is no store {shown}"),
        None => match holds_files(spool.done()) {
            Ok(false) => return Ok(()),
            Ok(true) => {
                let done = shown_path(spool.done());
                format!("there is no store {shown}, but {done} holds files that one has taken in")
            }
            Err(error) => {
                let done = shown_path(spool.done());
                format!("there is no store {shown}, and {done} cannot be listed ({error})")
            }
        },
    };
    // a string takes whatever is written
    if is_empty_file {
        text.push_str("; a file of that name is there, and is empty");
    }
    if let Some(log) = log {
        let _ = write!(
            text,
            "; its log {} is still there: keep it, it belongs to the store",
            shown_path(&log)
        );
    }
    let _ = write!(
        text,
        "; put the store back (is its disk mounted?), or restore a backup: a new store would count \
         again what comes again. To begin anew all the same, {}run: windowflow --db {shown} init {}",
        if is_empty_file { "remove the empty file and " } else { "" },
        settings.map_or_else(|| "--window-ms N --lateness-ms N".to_owned(), arguments)
    );
    Err(Failure { reach: Scope::Lasting, exit: Exit::Missing, kind: "lost store".to_owned(), text })
}

/// The settings as arguments of `init`.
fn arguments(settings: &Settings) -> String {
    let or_off = |ms: Option<i64>| ms.map_or_else(|| "off".to_owned(), |ms| ms.to_string());
    format!(
        "--window-ms {} --lateness-ms {} --late-rule {} --late-policy {} --max-future-ms {} \
         --dedup-horizon-ms {}",
        settings.window_ms(),
        settings.lateness_ms(),
        settings.late_rule().name(),
        settings.late_policy().name(),
        or_off(settings.max_future_ms()),
        or_off(settings.dedup_horizon_ms())
    )
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Whether a file lies in done/ or in a folder of a source in it.
fn holds_files(done: &Path) -> io::Result<bool> {
    for found in fs::read_dir(done)? {
        let found = found?;
        let is_file = |found: &fs::DirEntry| -> io::Result<bool> {
            let is_hidden = found.file_name().as_encoded_bytes().starts_with(b".");
            Ok(!is_hidden && found.file_type()?.is_file())
        };
        if is_file(&found)? {
            return Ok(true);
        }
        if found.file_type()?.is_dir() {
            for inner in fs::read_dir(found.path())? {
                if is_file(&inner?)? {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}
