//! A report for programs, by the contract: members may be added, never renamed.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use super::shown::{is_hidden, push_escaped};
use super::{ReportError, Standing, View, Waiting, WindowState};
use crate::engine::settings::Settings;
use crate::engine::{Counts, Expected};
use crate::store::LateRow;

/// The version of the form.
pub(super) const FORMAT: u32 = 1;

/// The whole report. Each source, window and late event has a line of its own.
pub(super) fn report(
    view: &View<'_>,
    generated_at_ms: i64,
    resting: Option<&serde_json::Value>,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let summary = &view.summary;
    write!(out, "{{\"format\":{FORMAT},\"generated_at_ms\":{generated_at_ms}")?;
    write!(out, ",\"watermark_ms\":{}", summary.watermark_ms)?;
    member("max_timestamp_ms", &summary.max_timestamp_ms, out)?;
    member("last_batch", &summary.last_batch, out)?;
    member("last_ingest_at_ms", &summary.last_ingest_at_ms, out)?;
    out.write_all(b",\n")?;
    object("settings", &SettingsJson::of(&summary.settings), out)?;
    out.write_all(b",\n")?;
    let (batches, refused_batches) = (summary.batches, summary.refused_batches);
    let totals = Totals {
        batches,
        refused_batches,
        counts: summary.counts,
        late_kept: summary.late_kept,
        late_waiting: summary.late_waiting,
        held: summary.held,
    };
    object("totals", &totals, out)?;
    if let Some(resting) = resting {
        write!(out, ",\n\"resting\":{resting}")?;
    }
    let mut list = List::begin(",\n\"sources\":[", out)?;
    for source in &view.sources {
        list.push(&Source::of(source))?;
    }
    list.end()?;
    windows(view, out)?;
    late_list(",\n\"late\":[", view, out)?;
    Ok(out.write_all(b"}\n")?)
}

/// The late events alone, each as in the whole report.
pub(super) fn late(view: &View<'_>, out: &mut dyn Write) -> Result<(), ReportError> {
    write!(out, "{{\"format\":{FORMAT},\"watermark_ms\":{}", view.summary.watermark_ms)?;
    late_list(",\n\"late\":[", view, out)?;
    Ok(out.write_all(b"}\n")?)
}

/// The held events alone.
pub(super) fn held(view: &View<'_>, now_ms: i64, out: &mut dyn Write) -> Result<(), ReportError> {
    write!(out, "{{\"format\":{FORMAT},\"watermark_ms\":{}", view.summary.watermark_ms)?;
    let mut list = List::begin(",\n\"held\":[", out)?;
    view.each_held(&mut |row| {
        list.push(&serde_json::json!({
            "id": row.id,
            "key": row.key,
            "timestamp_ms": row.timestamp_ms,
            "ahead_ms": row.timestamp_ms.saturating_sub(now_ms),
            "value": row.value,
            "source": row.source,
            "batch": row.event.batch,
            "event_index": row.event.event_index,
            "file": row.file,
        }))
    })?;
    list.end()?;
    Ok(out.write_all(b"}\n")?)
}

/// The sources, each as in the whole report and with more beside it, and the producer versions.
pub(super) fn sources(view: &View<'_>, out: &mut dyn Write) -> Result<(), ReportError> {
    write!(out, "{{\"format\":{FORMAT},\"watermark_ms\":{}", view.summary.watermark_ms)?;
    let mut list = List::begin(",\n\"sources\":[", out)?;
    for standing in &view.sources {
        list.push(&SourceInFull {
            source: Source::of(standing),
            last_batch: standing.row.last_batch,
            last_file: standing.row.last_file.as_deref(),
            holds_watermark: standing.holds,
            outcomes: standing.row.counts,
        })?;
    }
    list.end()?;
    let mut list = List::begin(",\n\"producer_versions\":[", out)?;
    view.each_version(&mut |producer_version, counts| {
        list.push(&Version { producer_version, counts })
    })?;
    list.end()?;
    Ok(out.write_all(b"}\n")?)
}

fn windows(view: &View<'_>, out: &mut dyn Write) -> Result<(), ReportError> {
    let mut waiting = Waiting::on(&view.sources);
    let mut list = List::begin(",\n\"windows\":[", out)?;
    view.each_window(&mut |window| {
        let (waiting_for, waiting_for_more) = match window.state {
            WindowState::Open => waiting.until(window.end_ms),
            WindowState::Final | WindowState::Corrected => (&[][..], 0),
        };
        list.push(&WindowJson {
            key: window.key,
            window_start_ms: window.start_ms,
            window_end_ms: window.end_ms,
            count: window.totals.count,
            sum: window.totals.sum,
            min: window.totals.min,
            max: window.totals.max,
            state: window.state.name(),
            revision: window.revision,
            waiting_for,
            waiting_for_more,
        })
    })?;
    Ok(list.end()?)
}

fn late_list(before: &str, view: &View<'_>, out: &mut dyn Write) -> Result<(), ReportError> {
    let mut list = List::begin(before, out)?;
    view.each_late(&mut |row| list.push(&Late::of(row)))?;
    Ok(list.end()?)
}

/// An array that is written element by element.
pub(super) struct List<'o> {
    out: &'o mut dyn Write,
    between: &'static str,
}

impl<'o> List<'o> {
    pub(super) fn begin(before: &str, out: &'o mut dyn Write) -> io::Result<List<'o>> {
        out.write_all(before.as_bytes())?;
        Ok(List { out, between: "\n" })
    }

    pub(super) fn push(&mut self, element: &impl Serialize) -> io::Result<()> {
        self.out.write_all(self.between.as_bytes())?;
        self.between = ",\n";
        value(element, self.out)
    }

    pub(super) fn end(self) -> io::Result<()> {
        self.out.write_all(if self.between == "\n" { b"]" } else { b"\n]" })
    }
}

fn member(name: &str, content: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b",")?;
    object(name, content, out)
}

fn object(name: &str, content: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "\"{name}\":")?;
    value(content, out)
}

fn value(content: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    Ok(content.serialize(&mut Serializer::with_formatter(out, Visible))?)
}

/// Compact JSON in which whatever cannot be seen is escaped: the same text to a parser, and no
/// command to a terminal.
struct Visible;

impl Formatter for Visible {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if fragment.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return out.write_all(fragment.as_bytes());
        }
        let mut text = String::with_capacity(fragment.len());
        for c in fragment.chars() {
            if is_hidden(c) { push_escaped(c, &mut text) } else { text.push(c) }
        }
        out.write_all(text.as_bytes())
    }
}

#[derive(Serialize)]
struct SettingsJson {
    window_ms: i64,
    lateness_ms: i64,
    late_rule: &'static str,
    late_policy: &'static str,
    max_future_ms: Option<i64>,
    dedup_horizon_ms: Option<i64>,
}

impl SettingsJson {
    fn of(settings: &Settings) -> SettingsJson {
        SettingsJson {
            window_ms: settings.window_ms(),
            lateness_ms: settings.lateness_ms(),
            late_rule: settings.late_rule().name(),
            late_policy: settings.late_policy().name(),
            max_future_ms: settings.max_future_ms(),
            dedup_horizon_ms: settings.dedup_horizon_ms(),
        }
    }
}

/// The settings of a store, as they stand in a report.
pub(crate) fn settings_json(settings: &Settings) -> serde_json::Value {
    // plain numbers and names: always JSON
    serde_json::to_value(SettingsJson::of(settings)).unwrap_or_default()
}

#[derive(Serialize)]
struct Totals {
    batches: u64,
    refused_batches: u64,
    #[serde(flatten)]
    counts: Counts,
    late_kept: u64,
    late_waiting: u64,
    held: u64,
}

#[derive(Serialize)]
struct Source<'a> {
    source: &'a str,
    watermark_ms: Option<i64>,
    max_timestamp_ms: Option<i64>,
    idle: bool,
    last_batch_at_ms: Option<i64>,
    declared: bool,
    expected: bool,
    retired: bool,
    presence_since_ms: Option<i64>,
    counts: Read,
}

impl<'a> Source<'a> {
    fn of(standing: &'a Standing) -> Source<'a> {
        Source {
            source: &standing.row.source,
            watermark_ms: standing.watermark_ms,
            max_timestamp_ms: standing.row.max_timestamp_ms,
            idle: standing.row.idle,
            last_batch_at_ms: standing.row.last_batch_at_ms,
            declared: standing.row.declared,
            expected: standing.row.expected == Expected::Now,
            retired: standing.row.retired,
            presence_since_ms: standing.row.presence_since_ms,
            counts: Read::of(standing.row.counts),
        }
    }
}

#[derive(Serialize)]
struct SourceInFull<'a> {
    #[serde(flatten)]
    source: Source<'a>,
    last_batch: Option<u64>,
    last_file: Option<&'a str>,
    holds_watermark: bool,
    #[serde(flatten)]
    outcomes: Counts,
}

#[derive(Serialize)]
struct Version<'a> {
    producer_version: &'a str,
    #[serde(flatten)]
    counts: Counts,
}

#[derive(Serialize)]
struct WindowJson<'a> {
    key: &'a str,
    window_start_ms: i64,
    window_end_ms: i64,
    count: i64,
    sum: i64,
    min: i64,
    max: i64,
    state: &'static str,
    revision: u64,
    waiting_for: &'a [&'a str],
    waiting_for_more: usize,
}

#[derive(Serialize)]
struct Late<'a> {
    id: &'a str,
    key: &'a str,
    timestamp_ms: i64,
    value: i64,
    window_start_ms: i64,
    watermark_ms: i64,
    source: &'a str,
    batch: u64,
    event_index: u64,
    applied_in: Option<u64>,
}

impl<'a> Late<'a> {
    fn of(row: &LateRow<'a>) -> Late<'a> {
        Late {
            id: row.id,
            key: row.key,
            timestamp_ms: row.timestamp_ms,
            value: row.value,
            window_start_ms: row.window_start_ms,
            watermark_ms: row.watermark_ms,
            source: row.source,
            batch: row.batch,
            event_index: row.event_index,
            applied_in: row.applied_in,
        }
    }
}

/// Outcomes, and what they add up to.
#[derive(Serialize)]
pub(super) struct Read {
    read: u64,
    #[serde(flatten)]
    counts: Counts,
}

impl Read {
    pub(super) fn of(counts: Counts) -> Read {
        Read { read: counts.events(), counts }
    }
}
