//! `prune`: retention now.

use std::io::Write;
use std::ops::ControlFlow;
use std::time::Instant;

use serde_json::json;

use super::args::{Prune, Where};
use super::report::snapshot;
use super::settle::pause;
use super::{CommandError, Exit, complain, results};
use crate::config;
use crate::maintenance::retention::{self, Removed};
use crate::model::clock::Clock;
use crate::query::report;
use crate::spool::Spool;
use crate::store::{Snapshot, Store, is_behind};

pub(super) fn run(at: &Where, command: &Prune) -> Result<Exit, CommandError> {
    let retention = at.config()?.map(|config| config.retention).unwrap_or_default();
    let mut store = at.open()?;
    if command.trust_clock {
        let before_ms = store.trusted_ms();
        store.trust_now()?;
        let (before, after) = (report::utc(before_ms), report::utc(store.trusted_ms()));
        complain(&format!("trusted time set from {before} to the clock, {after}"));
    }
    let now_ms = store.trusted_ms();
    note_distance(now_ms, Clock::System.now_ms());
    let mut go_on = || ControlFlow::Continue(());
    // the files first: they are told by their receipts
    let state = snapshot(at)?;
    let summary = state.summary()?;
    let of_files = config::RetentionConfig {
        reports_days: retention.reports_days,
        done_days: retention.done_days,
        failed_days: retention.failed_days,
        failed_max_bytes: retention.failed_max_bytes,
        ..config::RetentionConfig::default()
    };
    let removed = match of_files != config::RetentionConfig::default() {
        true => retention::files(&state, &Spool::at(&at.spool()?), &retention, now_ms, &mut go_on)?,
        false => Removed::default(),
    };
    drop(state);
    let mut begun = Instant::now();
    let mut with_pauses = || {
        pause(begun.elapsed());
        begun = Instant::now();
        ControlFlow::Continue(())
    };
    let watermark_ms = summary.watermark_ms;
    let pruned =
        retention::rows(&mut store, &retention, true, watermark_ms, now_ms, &mut with_pauses)?;
    let rows = [
        ("ids", pruned.ids),
        ("windows", pruned.windows),
        ("revisions", pruned.revisions),
        ("accounts", pruned.accounts),
        ("late", pruned.late),
        ("moves", pruned.moves),
        ("receipts", pruned.receipts),
        ("refusals", pruned.refusals),
        ("settled", pruned.settled),
        ("presence", pruned.presence),
        ("done_files", removed.done),
        ("report_files", removed.reports),
        ("failed_files", removed.failed),
    ];
    let mut out = results();
    if at.json {
        let mut line = serde_json::Map::new();
        line.extend(rows.iter().map(|(name, count)| ((*name).to_owned(), json!(count))));
        line.insert("done_files_without_receipt".to_owned(), json!(removed.unknown));
        writeln!(out, "{}", json!(line))?;
    } else {
        let counts = rows.iter().filter(|(_, count)| *count > 0);
        let counts: Vec<String> = counts.map(|(name, count)| format!("{name}: {count}")).collect();
        let counts = if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") };
        writeln!(out, "removed {counts}")?;
    }
    out.flush()?;
    if removed.unknown > 0 {
        complain(&format!(
            "files in done/ that are old enough but that no receipt of the store names, left \
             there: {}",
            removed.unknown
        ));
    }
    if let Some(why) = retention::cannot_act(&summary.settings, &retention) {
        complain(&format!("note: {why}"));
    }
    if !retention::is_any(&summary.settings, &retention) {
        complain(
            "note: the store has no dedup_horizon_ms, and no [retention] was read: nothing is \
             ever old; name a configuration with --config FILE",
        );
    }
    Ok(Exit::Done)
}

/// From where on it is worth saying how far the trusted time is behind the clock: a day.
const FAR_MS: i64 = 86_400_000;

/// Says where the trusted time and the clock are far apart: age is measured by the former.
fn note_distance(trusted_ms: i64, now_ms: i64) {
    if is_behind(trusted_ms, now_ms) || now_ms.saturating_sub(trusted_ms) > FAR_MS {
        complain(&format!(
            "note: age is measured by the trusted time of the store, {}, and the clock says {}; if \
             the clock is right: windowflow prune --trust-clock",
            report::utc(trusted_ms),
            report::utc(now_ms)
        ));
    }
}

impl From<retention::RetentionError> for CommandError {
    fn from(error: retention::RetentionError) -> CommandError {
        match error {
            retention::RetentionError::Store(error) => CommandError::from(error),
            error @ retention::RetentionError::File(..) => {
                CommandError::new(Exit::Failed, error.to_string())
            }
        }
    }
}
