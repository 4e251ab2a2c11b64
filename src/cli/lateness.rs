//! `lateness`: how many events would have been late under other settings.

use std::io::{self, Write};
use std::ops::ControlFlow;

use serde_json::json;

use super::args::{Lateness as Arguments, Where};
use super::report::snapshot;
use super::{CommandError, Exit, results};
use crate::engine::settings::Settings;
use crate::query::done_files::Archive;
use crate::query::lateness::{Lateness, Setting, SourceLateness};
use crate::query::report::grouped;
use crate::spool::Spool;
use crate::spool::name::shown;
use crate::store::{self, EventRef, ReceiptRow, Snapshot};

pub(super) fn run(at: &Where, command: &Arguments) -> Result<Exit, CommandError> {
    let snapshot = snapshot(at)?;
    let settings = snapshot.summary()?.settings;
    if let Some(name) = &command.source
        && !snapshot.sources()?.iter().any(|row| row.source == *name)
    {
        let text = format!("no such source: {name:?}; see: windowflow sources");
        return Err(CommandError::new(Exit::Missing, text));
    }
    let limits = at.config()?.map(|config| config.limits.for_decoding()).unwrap_or_default();
    // without a spool there is nothing to read
    let archive = Archive::new(Some(Spool::at(&at.spool()?).done().to_owned()), limits);
    let lateness = Lateness::new(&settings);
    let only = command.source.as_deref();
    let mut pass = Pass { settings, archive, lateness, only, read: Read::default() };
    let mut failed = None;
    snapshot.receipts(0, &mut |receipt| match pass.batch(&snapshot, receipt) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    let sources = pass.lateness.sources(settings.lateness_ms());
    let mut out = results();
    print(at, &settings, &pass.read, &sources, &mut out)?;
    out.flush()?;
    Ok(Exit::Done)
}

/// What was read.
#[derive(Default)]
struct Read {
    events: u64,
    batches: u64,
    missing: u64,
    // repeats, and what was too far ahead or behind
    left_out: u64,
}

/// One pass over the files in done/.
struct Pass<'a> {
    settings: Settings,
    archive: Archive,
    lateness: Lateness,
    only: Option<&'a str>,
    read: Read,
}

impl Pass<'_> {
    fn batch(&mut self, snapshot: &dyn Snapshot, receipt: &ReceiptRow) -> Result<(), store::Error> {
        let counts = &receipt.counts;
        if receipt.act.is_some() || counts.accepted + counts.late == 0 {
            return Ok(());
        }
        let Ok(mut found) = self.archive.find(receipt) else {
            self.read.missing += 1;
            return Ok(());
        };
        // where every event counted as what it was, none has to be looked up
        let is_plain = counts.accepted + counts.late == counts.events();
        let ahead_ms = self.settings.max_future_ms();
        let guard_ms = ahead_ms.map(|ms| receipt.committed_at_ms.saturating_add(ms));
        let mut failed = None;
        let read = self.archive.events(&mut found, &mut |event_index, event| {
            let source = event.source.unwrap_or(&receipt.source);
            if self.only.is_some_and(|only| only != source) {
                return ControlFlow::Continue(());
            }
            let at = EventRef { batch: receipt.batch, event_index };
            let is_first = match is_plain {
                true => Ok(true),
                false => snapshot.is_first(at, event),
            };
            match is_first {
                Ok(true) if guard_ms.is_none_or(|ms| event.timestamp_ms <= ms) => {
                    self.read.events += 1;
                    self.lateness.event(source, event.timestamp_ms);
                }
                Ok(_) => self.read.left_out += 1,
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        match read {
            Ok(()) => self.read.batches += 1,
            Err(_) => self.read.missing += 1,
        }
        failed.map_or(Ok(()), Err)
    }
}

fn print(
    at: &Where,
    settings: &Settings,
    read: &Read,
    sources: &[SourceLateness],
    out: &mut dyn Write,
) -> io::Result<()> {
    if at.json {
        let answer = json!({
            "window_ms": settings.window_ms(),
            "late_rule": settings.late_rule().name(),
            "lateness_ms": settings.lateness_ms(),
            "events": read.events,
            "left_out": read.left_out,
            "batches": read.batches,
            "batches_not_read": read.missing,
            "sources": sources,
        });
        return writeln!(out, "{answer}");
    }
    writeln!(
        out,
        "events read: {} of {} batches; repeats and events too far ahead or behind, left out: {}; \
         batches whose file is not in done/ any more: {}",
        grouped(read.events),
        grouped(read.batches),
        grouped(read.left_out),
        grouped(read.missing)
    )?;
    for source in sources {
        let name = shown(source.source.as_bytes());
        let (events, behind) = (grouped(source.events), grouped(source.out_of_order));
        writeln!(out, "\nsource {name}: events: {events}, out of order: {behind}")?;
        writeln!(out, "{:>20}  {:>16}  {:>9}", "lateness_ms", "late", "share")?;
        let are_equal = |a: &Setting, b: &Setting| {
            a.late == b.late && notes(a).is_empty() && notes(b).is_empty()
        };
        for settings in source.settings.chunk_by(are_equal) {
            row(settings, source.events, out)?;
        }
    }
    Ok(())
}

/// One row of the table, of neighbouring settings that make no difference.
fn row(settings: &[Setting], events: u64, out: &mut dyn Write) -> io::Result<()> {
    let (Some(first), Some(last)) = (settings.first(), settings.last()) else { return Ok(()) };
    let share = first.late as f64 * 100.0 / events.max(1) as f64;
    let range = match settings.len() {
        1 => first.lateness_ms.to_string(),
        _ => format!("{} to {}", first.lateness_ms, last.lateness_ms),
    };
    let notes = notes(first);
    let gap = if notes.is_empty() { "" } else { "  " };
    writeln!(out, "{range:>20}  {:>16}  {share:>7.3} %{gap}{notes}", grouped(first.late))
}

fn notes(setting: &Setting) -> String {
    let mut notes = Vec::new();
    if setting.current {
        notes.push("as it is".to_owned());
    }
    if let Some(per_mille) = setting.for_per_mille {
        notes.push(format!("for at most {} % late", per_mille as f64 / 10.0));
    }
    notes.join(", ")
}
