//! `init`: makes the store, or confirms it.

use std::io::Write;

use serde_json::json;

use super::args::{Init, Where};
use super::{CommandError, Exit, complain, owner, results};
use crate::engine::settings::{LatePolicy, LateRule, Settings};
use crate::query::report;
use crate::spool::name::shown_path;
use crate::store::Store;
use crate::store::sqlite::{Created, SqliteStore};

pub(super) fn run(at: &Where, command: &Init) -> Result<Exit, CommandError> {
    owner::refuse_other(at)?;
    let db = at.db()?;
    let (store, created) = SqliteStore::create(&db, settings(command)?, at.options()?)?;
    let made = created == Created::Made;
    let mut out = results();
    if at.json {
        let settings = report::settings_json(&store.settings());
        let line = json!({"db": db.to_string_lossy(), "created": made, "settings": settings});
        writeln!(out, "{line}")?;
    } else {
        let what = if made { "made" } else { "is there already, with the same settings:" };
        writeln!(out, "store {} {what} {}", shown_path(&db), store.settings())?;
    }
    out.flush()?;
    if let Some(migration) = store.migration() {
        complain(&migration);
    }
    if made && let Some(note) = slip(&store.settings()) {
        complain(&note);
    }
    Ok(Exit::Done)
}

/// Windows below this are rarely meant: a second.
const SHORT_WINDOW_MS: i64 = 1000;

/// Windows and a lateness above this are rarely meant: ten years of 366 days.
const LONG_MS: i64 = 10 * 366 * 86_400_000;

/// Settings that look as if another unit was meant: they can never be changed.
fn slip(settings: &Settings) -> Option<String> {
    let (window_ms, lateness_ms) = (settings.window_ms(), settings.lateness_ms());
    let odd = match () {
        () if window_ms < SHORT_WINDOW_MS => format!("a window of {window_ms} ms is very short"),
        () if window_ms > LONG_MS => format!("a window of {window_ms} ms is longer than ten years"),
        () if lateness_ms > LONG_MS => {
            format!("a lateness of {lateness_ms} ms is longer than ten years")
        }
        () => return None,
    };
    Some(format!(
        "note: {odd}; both are in milliseconds (a minute is 60000) and can never be changed: if \
         this is a slip, remove the store now and make it anew"
    ))
}

fn settings(command: &Init) -> Result<Settings, CommandError> {
    // both names were checked when the arguments were read
    let rule = LateRule::from_name(&command.late_rule).unwrap_or_default();
    let policy = LatePolicy::from_name(&command.late_policy).unwrap_or_default();
    Settings::new(command.window_ms, command.lateness_ms)
        .map(|settings| settings.with_late(rule, policy))
        .and_then(|settings| settings.with_max_future_ms(command.max_future_ms.0))
        .and_then(|settings| settings.with_dedup_horizon_ms(command.dedup_horizon_ms.0))
        .map_err(|error| CommandError::new(Exit::Config, error.to_string()))
}
