//! Retention while nothing else is to do: soon after the start, then at most once an hour. What
//! goes wrong is shown, and stops nothing.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::faults::FaultPart;
use super::worker_context::WorkerContext;
use crate::maintenance::retention;
use crate::store::sqlite::SqliteStore;
use crate::store::{Pace, Pruned, Snapshot, Store};

/// How long after one turn the next one is due.
const INTERVAL: Duration = Duration::from_secs(3600);

/// The same after one that was cut short because there was work, or that failed.
const AFTER_CUT: Duration = Duration::from_secs(60);

/// After how many refused files failed/ is looked at before its time.
const MUCH_REFUSED: u64 = 1000;

/// How often that happens at most: the whole folder is listed for it.
const AFTER_MUCH: Duration = Duration::from_secs(1);

/// When retention was last seen to.
#[derive(Debug)]
pub(super) struct RetentionTask {
    due: Instant,
    // the watermark when the ids were last walked through: until it moves, no other is behind the
    // horizon
    walked_at_ms: Option<i64>,
    // what cannot act was named
    told: bool,
    // how many files were refused by the last whole turn, and when that is looked at again
    refused: u64,
    not_before: Instant,
}

impl RetentionTask {
    /// Due at the first pause.
    pub(super) fn new() -> RetentionTask {
        let now = Instant::now();
        RetentionTask { due: now, walked_at_ms: None, told: false, refused: 0, not_before: now }
    }

    /// Removes what is old, if it is time for that. `is_wanted` says whether somebody waits for
    /// the worker: the turn ends early then.
    pub(super) fn turn(
        &mut self,
        context: &WorkerContext,
        store: &mut dyn Store,
        is_wanted: &dyn Fn() -> bool,
    ) {
        let asked = context.config.retention;
        if !retention::is_any(&store.settings(), &asked) {
            // it may have been turned off because of its fault
            context.shared.pass(FaultPart::Retention);
            return;
        }
        let refused = context.shared.state().failed;
        let is_bounded = asked.failed_days.is_some() || asked.failed_max_bytes.is_some();
        let is_much = is_bounded
            && refused - self.refused >= MUCH_REFUSED
            && Instant::now() >= self.not_before;
        if Instant::now() < self.due && !is_much {
            return;
        }
        if !std::mem::replace(&mut self.told, true)
            && let Some(why) = retention::cannot_act(&store.settings(), &asked)
        {
            log::warn!("{why}");
        }
        let mut is_cut = false;
        let mut pace = || {
            context.shared.beat();
            let is_enough = context.shared.stopping() || is_wanted();
            is_cut |= is_enough;
            if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let now_ms = store.trusted_ms();
        let mut faults = Vec::new();
        if let Some(watermark_ms) = files(context, now_ms, &mut pace, &mut faults) {
            let ids = self.walked_at_ms != Some(watermark_ms);
            match retention::rows(store, &asked, ids, watermark_ms, now_ms, &mut pace) {
                Ok(pruned) => {
                    if !is_cut {
                        self.walked_at_ms = Some(watermark_ms);
                    }
                    match pruned == Pruned::default() {
                        true => log::debug!("retention: nothing is old"),
                        false => log::info!("retention: removed from the store: {pruned}"),
                    }
                }
                Err(error) => faults.push(error.to_string()),
            }
        }
        let is_well = faults.is_empty();
        match is_well {
            true => drop(context.shared.pass(FaultPart::Retention)),
            false => context.shared.meet(FaultPart::Retention, "retention", &faults.join("; ")),
        }
        if !is_cut {
            self.refused = refused;
        }
        self.not_before = Instant::now() + AFTER_MUCH;
        self.due = Instant::now() + if is_cut || !is_well { AFTER_CUT } else { INTERVAL };
    }
}

/// Removes old files; the watermark, for what follows. A fault with files keeps nothing of the
/// store.
fn files(
    context: &WorkerContext,
    now_ms: i64,
    pace: &mut Pace<'_>,
    faults: &mut Vec<String>,
) -> Option<i64> {
    let snapshot = SqliteStore::snapshot(&context.db, context.options.clone());
    let looked = snapshot.and_then(|snapshot| Ok((snapshot.summary()?.watermark_ms, snapshot)));
    let (watermark_ms, snapshot) = match looked {
        Ok(looked) => looked,
        Err(error) => {
            faults.push(error.to_string());
            return None;
        }
    };
    match retention::files(&snapshot, &context.spool, &context.config.retention, now_ms, pace) {
        Ok(removed) if removed.done + removed.reports + removed.failed > 0 => log::info!(
            "retention: removed from done/: {} file(s), from reports/: {}, from failed/: {}",
            removed.done,
            removed.reports,
            removed.failed
        ),
        Ok(_) => {}
        Err(error) => faults.push(error.to_string()),
    }
    Some(watermark_ms)
}
