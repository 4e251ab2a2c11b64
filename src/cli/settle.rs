//! `held`, `release`, `discard` and `late --apply`: what was kept apart, and what becomes of it.

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::args::{Late, Settle, Where};
use super::report::{filter, snapshot};
use super::{CommandError, Exit, asked_by, complain, results};
use crate::engine::settings::LatePolicy;
use crate::engine::window;
use crate::model::clock::Clock;
use crate::model::event::Event;
use crate::pipeline::admin_batch::{self, Asked, Done, Halted, Settling};
use crate::query::report::{self, Filter};
use crate::store::sqlite::SqliteStore;
use crate::store::{Snapshot, Store};

pub(super) fn held(at: &Where) -> Result<Exit, CommandError> {
    let mut out = results();
    report::write_held(&snapshot(at)?, at.json, Clock::System.now_ms(), &mut out)?;
    out.flush()?;
    Ok(Exit::Done)
}

pub(super) fn release(at: &Where, command: &Settle) -> Result<Exit, CommandError> {
    settle(at, command, "released", Settling::Release)
}

pub(super) fn discard(at: &Where, command: &Settle) -> Result<Exit, CommandError> {
    settle(at, command, "discarded", Settling::Discard)
}

fn settle(at: &Where, command: &Settle, verb: &str, what: Settling) -> Result<Exit, CommandError> {
    let mut store: SqliteStore = at.open()?;
    let mut missing: BTreeSet<&str> = command.ids.iter().map(String::as_str).collect();
    let by = asked_by();
    let asked = Asked { by: &by, reason: command.reason.as_deref() };
    let mut wanted = |event: &Event<'_>| command.all || missing.remove(event.id);
    let done = in_turns(&mut store, what, verb, &mut wanted, asked)?;
    print(at, verb, &done, None)?;
    for id in &missing {
        complain(&format!("no held event has the id {id:?}; see: windowflow held"));
    }
    Ok(if missing.is_empty() { Exit::Done } else { Exit::Missing })
}

pub(super) fn apply_late(at: &Where, command: &Late) -> Result<Exit, CommandError> {
    let filter = filter(&command.filters)?;
    let mut store = at.open()?;
    let window_ms = store.settings().window_ms();
    let by = asked_by();
    let asked = Asked { by: &by, reason: command.reason.as_deref() };
    let mut wanted = |event: &Event<'_>| {
        filter.takes(event.key, window::start_ms(event.timestamp_ms, window_ms))
    };
    let done = in_turns(&mut store, Settling::Correct, "applied", &mut wanted, asked)?;
    let left = Left::of(&snapshot(at)?, &filter)?;
    print(at, "applied", &done, Some(&left))?;
    left.complain();
    Ok(Exit::Done)
}

/// The longest pause between two transactions: whoever waits for the store looks at least that often
/// whether it is free.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Gives others the store for about as long as it was held.
pub(super) fn pause(held: Duration) {
    thread::sleep(held.min(LONGEST_PAUSE));
}

fn in_turns(
    store: &mut dyn Store,
    what: Settling,
    verb: &str,
    wanted: &mut admin_batch::Wanted<'_>,
    asked: Asked<'_>,
) -> Result<Done, CommandError> {
    admin_batch::settle_in_turns(store, what, wanted, asked, &mut pause).map_err(|halted| {
        let Halted { done, error } = *halted;
        if let Some(done) = done.filter(|done| done.concerned > 0) {
            complain(&format!(
                "events {verb} before this failed: {}; they stay so, and the same command again \
                 goes on with the rest",
                done.concerned
            ));
        }
        error.into()
    })
}

/// Late events that were asked for and are still no part of a revision.
#[derive(Default)]
struct Left {
    window_open: u64,
    window_removed: u64,
    policy: LatePolicy,
}

impl Left {
    /// As a store stands after all that can be applied was.
    fn of(snapshot: &dyn Snapshot, filter: &Filter) -> Result<Left, CommandError> {
        let summary = snapshot.summary()?;
        let window_ms = summary.settings.window_ms();
        let mut left = Left { policy: summary.settings.late_policy(), ..Left::default() };
        snapshot.late(filter.span, &mut |row| {
            let start_ms = row.window_start_ms;
            if row.applied_in.is_none() && filter.takes(row.key, start_ms) {
                let is_open = !window::is_final(start_ms, window_ms, summary.watermark_ms);
                let is_removed = summary.pruned_start_ms.is_some_and(|ms| start_ms <= ms);
                left.window_open += u64::from(is_open);
                // what is neither came in the meantime
                left.window_removed += u64::from(!is_open && is_removed);
            }
            ControlFlow::Continue(())
        })?;
        Ok(left)
    }

    fn complain(&self) {
        if self.window_removed > 0 {
            complain(&format!(
                "not applied: {}: their windows were removed by retention, so there is nothing to \
                 correct",
                self.window_removed
            ));
        }
        if self.window_open > 0 {
            complain(&format!(
                "not applied: {}: their windows are still open (late_rule is event); apply them \
                 when the windows are final",
                self.window_open
            ));
        }
        match self.policy {
            LatePolicy::Aside => {}
            LatePolicy::Drop => complain("late_policy is drop: late events are counted, not kept"),
            LatePolicy::Correct => complain(
                "late_policy is correct: late events correct their windows as they come; none is \
                 kept to be applied",
            ),
        }
    }
}

fn print(at: &Where, verb: &str, done: &Done, left: Option<&Left>) -> Result<(), CommandError> {
    let mut out = results();
    if at.json {
        let mut line = json!({
            "batch": done.batch,
            "batches": done.batches,
            "events": done.concerned,
            "counts": done.counts,
            "watermark_ms": done.watermark_ms,
            "windows_closed": done.windows_closed,
        });
        if let Some(left) = left {
            line["not_applied"] = json!({
                "window_open": left.window_open,
                "window_removed": left.window_removed,
            });
        }
        writeln!(out, "{line}")?;
    } else {
        let became = match done.counts.events() {
            0 => String::new(),
            _ => format!(" ({})", done.counts),
        };
        writeln!(
            out,
            "events {verb}: {}{became}; watermark {}, windows closed: {}",
            done.concerned, done.watermark_ms, done.windows_closed
        )?;
    }
    Ok(out.flush()?)
}
