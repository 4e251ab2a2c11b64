//! `held`, `release`, `discard` and `late --apply`: what was kept apart, and what becomes of it.

use std::collections::BTreeSet;
use std::io::Write;

use serde_json::json;

use super::args::{Late, Settle, Where};
use super::report::{filter, snapshot};
use super::{Exit, Failure, asked_by, complain, results};
use crate::act::{self, Asked, Done};
use crate::clock::Clock;
use crate::engine::window;
use crate::event::Event;
use crate::report;
use crate::store::Store;
use crate::store::sqlite::SqliteStore;

pub(super) fn held(at: &Where) -> Result<Exit, Failure> {
    let mut out = results();
    report::write_held(&snapshot(at)?, at.json, Clock::System.now_ms(), &mut out)?;
    out.flush()?;
    Ok(Exit::Done)
}

pub(super) fn release(at: &Where, command: &Settle) -> Result<Exit, Failure> {
    settle(at, command, "released", act::release)
}

pub(super) fn discard(at: &Where, command: &Settle) -> Result<Exit, Failure> {
    settle(at, command, "discarded", act::discard)
}

type Act = fn(&mut dyn Store, &mut act::Wanted<'_>, Asked<'_>) -> Result<Done, act::Error>;

fn settle(at: &Where, command: &Settle, verb: &str, act: Act) -> Result<Exit, Failure> {
    let mut store: SqliteStore = at.open()?;
    let mut missing: BTreeSet<&str> = command.ids.iter().map(String::as_str).collect();
    let by = asked_by();
    let asked = Asked { by: &by, reason: command.reason.as_deref() };
    let mut wanted = |event: &Event<'_>| command.all || missing.remove(event.id);
    let done = act(&mut store, &mut wanted, asked)?;
    print(at, verb, &done)?;
    for id in &missing {
        complain(&format!("no held event has the id {id:?}; see: windowflow held"));
    }
    Ok(if missing.is_empty() { Exit::Done } else { Exit::Missing })
}

pub(super) fn apply_late(at: &Where, command: &Late) -> Result<Exit, Failure> {
    let filter = filter(&command.filters)?;
    let mut store = at.open()?;
    let window_ms = store.settings().window_ms();
    let by = asked_by();
    let asked = Asked { by: &by, reason: command.reason.as_deref() };
    let mut wanted = |event: &Event<'_>| {
        filter.takes(event.key, window::start_ms(event.timestamp_ms, window_ms))
    };
    let done = act::correct(&mut store, &mut wanted, asked)?;
    print(at, "applied", &done)?;
    Ok(Exit::Done)
}

fn print(at: &Where, verb: &str, done: &Done) -> Result<(), Failure> {
    let mut out = results();
    if at.json {
        let line = json!({
            "batch": done.batch,
            "events": done.concerned,
            "counts": done.counts,
            "watermark_ms": done.watermark_ms,
            "windows_closed": done.windows_closed,
        });
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
