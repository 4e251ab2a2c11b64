//! What is known, how final and how fresh. Reads one snapshot of any store and changes nothing.

mod accounts;
mod csv;
mod filter;
mod json;
mod shown;
mod table;
mod text;

#[cfg(test)]
mod fake;

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;

pub use accounts::write_accounts;
pub use filter::{Filter, KeyGlobError};
pub(crate) use json::settings_json;
pub use shown::{MOST_NAMES, grouped, shown, shown_apart, some_names, utc, visible, visible_lines};

use crate::engine::totals::Totals;
use crate::engine::window;
use crate::engine::{Counts, Expected, LIKE_SECONDS};
use crate::store::{self, HeldRow, LateRow, Snapshot, SourceRow, Span, Summary};

/// How much is gathered before it is written out.
const BUFFER_BYTES: usize = 64 * 1024;

/// How many sources are named at most for which a window waits: a report grows with its windows
/// and its sources, not with their product.
pub const MOST_WAITING: usize = 10;

/// For whom a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For a person at a terminal. Its layout may change.
    #[default]
    Text,
    /// For programs: one object, by the contract.
    Json,
    /// For spreadsheets and databases: RFC 4180, so lines end in CR LF. Nothing is changed in a
    /// key: one that begins with `=`, `+`, `-` or `@` is a formula to a spreadsheet that is not
    /// told to read the column as text.
    Csv,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 3] = [Format::Text, Format::Json, Format::Csv];

    /// The public name.
    pub fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Json => "json",
            Format::Csv => "csv",
        }
    }

    /// The format of that name.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }
}

/// How final the numbers of a window are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowState {
    /// They can still change.
    Open,
    /// Its end has passed, and it was not corrected since.
    Final,
    /// It was corrected since it was final; the earlier numbers stay in the store.
    Corrected,
}

impl WindowState {
    /// Every state.
    pub const ALL: [WindowState; 3] =
        [WindowState::Open, WindowState::Final, WindowState::Corrected];

    /// The public name.
    pub fn name(self) -> &'static str {
        match self {
            WindowState::Open => "open",
            WindowState::Final => "final",
            WindowState::Corrected => "corrected",
        }
    }

    /// The state of that name.
    pub fn from_name(name: &str) -> Option<WindowState> {
        WindowState::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// Why a report is not whole.
#[derive(Debug)]
pub enum ReportError {
    /// The store could not answer.
    Store(store::Error),
    /// It could not be written; the kind is `BrokenPipe` when the reader has seen enough.
    Write(io::Error),
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReportError::Store(error) => error.fmt(f),
            ReportError::Write(error) => write!(f, "the report could not be written: {error}"),
        }
    }
}

impl std::error::Error for ReportError {}

impl From<store::Error> for ReportError {
    fn from(error: store::Error) -> ReportError {
        ReportError::Store(error)
    }
}

impl From<io::Error> for ReportError {
    fn from(error: io::Error) -> ReportError {
        ReportError::Write(error)
    }
}

/// Writes the report: the figures of the store, its sources, and the windows and late events that
/// the filter lets through. Memory does not grow with their number.
///
/// # Errors
/// When the store cannot answer or `out` cannot be written; what was written by then is cut short.
pub fn write(
    snapshot: &dyn Snapshot,
    format: Format,
    filter: &Filter,
    generated_at_ms: i64,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    write_with_resting(snapshot, format, filter, (generated_at_ms, None), out)
}

/// The same with which files of the inbox rest, if any: as JSON, and in that form only.
///
/// # Errors
/// As [`write()`].
pub fn write_with_resting(
    snapshot: &dyn Snapshot,
    format: Format,
    filter: &Filter,
    (generated_at_ms, resting): (i64, Option<&serde_json::Value>),
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let view = View::of(snapshot, filter)?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    match format {
        Format::Text => text::report(&view, generated_at_ms, &mut out)?,
        Format::Json => json::report(&view, generated_at_ms, resting, &mut out)?,
        Format::Csv => csv::windows(&view, &mut out)?,
    }
    Ok(out.flush()?)
}

/// Writes the late events that were kept and that the filter lets through.
///
/// # Errors
/// As [`write()`].
pub fn write_late(
    snapshot: &dyn Snapshot,
    format: Format,
    filter: &Filter,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let view = View::of(snapshot, filter)?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    match format {
        Format::Text => text::late(&view, &mut out)?,
        Format::Json => json::late(&view, &mut out)?,
        Format::Csv => csv::late(&view, &mut out)?,
    }
    Ok(out.flush()?)
}

/// Writes the events that are held as too far ahead of the clock.
///
/// # Errors
/// As [`write()`].
pub fn write_held(
    snapshot: &dyn Snapshot,
    json: bool,
    now_ms: i64,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let filter = Filter::default();
    let view = View::of(snapshot, &filter)?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    if json {
        json::held(&view, now_ms, &mut out)?
    } else {
        text::held(&view, now_ms, &mut out)?
    }
    Ok(out.flush()?)
}

/// Writes what is known of each source, and of each producer version.
///
/// # Errors
/// As [`write()`].
pub fn write_sources(
    snapshot: &dyn Snapshot,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let filter = Filter::default();
    let view = View::of(snapshot, &filter)?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    if json {
        json::sources(&view, &mut out)?
    } else {
        text::sources(&view, &mut out)?
    }
    Ok(out.flush()?)
}

/// One snapshot as a report needs it.
struct View<'s> {
    snapshot: &'s dyn Snapshot,
    filter: &'s Filter,
    summary: Summary,
    /// By name.
    sources: Vec<Standing>,
}

/// How far a source has come, beside the others.
struct Standing {
    row: SourceRow,
    /// None while it has sent nothing that counts.
    watermark_ms: Option<i64>,
    /// Whether the watermark cannot move before this source does.
    holds: bool,
}

/// One window that is listed.
struct Window<'w> {
    key: &'w str,
    start_ms: i64,
    end_ms: i64,
    totals: Totals,
    state: WindowState,
    revision: u64,
}

impl<'s> View<'s> {
    fn of(snapshot: &'s dyn Snapshot, filter: &'s Filter) -> Result<View<'s>, store::Error> {
        let summary = snapshot.summary()?;
        let lateness_ms = summary.settings.lateness_ms();
        let rows = snapshot.sources()?;
        let holding = Holding::of(&rows, &summary);
        let standing = |row: SourceRow| Standing {
            watermark_ms: row.max_timestamp_ms.map(|max_ms| max_ms.saturating_sub(lateness_ms)),
            holds: holding.holds(&row),
            row,
        };
        let sources = rows.into_iter().map(standing).collect();
        Ok(View { snapshot, filter, summary, sources })
    }

    /// Calls `each` with every window that the filter lets through, until it fails.
    fn each_window(
        &self,
        each: &mut dyn FnMut(&Window<'_>) -> io::Result<()>,
    ) -> Result<(), ReportError> {
        let window_ms = self.summary.settings.window_ms();
        let watermark_ms = self.summary.watermark_ms;
        let mut outcome = Ok(());
        let span = span_of_state(self.filter, window_ms, watermark_ms);
        self.snapshot.windows(span, &mut |row| {
            let is_final = window::is_final(row.start_ms, window_ms, watermark_ms);
            let state = match (is_final, row.revision) {
                (false, _) => WindowState::Open,
                (true, 0) => WindowState::Final,
                (true, _) => WindowState::Corrected,
            };
            let wanted = self.filter.state.is_none_or(|wanted| wanted == state);
            if !wanted || !self.filter.takes_key(row.key) {
                return ControlFlow::Continue(());
            }
            outcome = each(&Window {
                key: row.key,
                start_ms: row.start_ms,
                end_ms: window::end_ms(row.start_ms, window_ms),
                totals: row.totals,
                state,
                revision: row.revision,
            });
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(outcome?)
    }

    /// Calls `each` with every held event, until it fails.
    fn each_held(
        &self,
        each: &mut dyn FnMut(&HeldRow<'_>) -> io::Result<()>,
    ) -> Result<(), ReportError> {
        let mut outcome = Ok(());
        self.snapshot.held(&mut |row| {
            outcome = each(row);
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(outcome?)
    }

    /// Calls `each` with what every producer version sent, until it fails.
    fn each_version(
        &self,
        each: &mut dyn FnMut(&str, Counts) -> io::Result<()>,
    ) -> Result<(), ReportError> {
        let mut outcome = Ok(());
        self.snapshot.versions(&mut |name, counts| {
            outcome = each(name, counts);
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(outcome?)
    }

    /// Calls `each` with every late event that the filter lets through, until it fails.
    fn each_late(
        &self,
        each: &mut dyn FnMut(&LateRow<'_>) -> io::Result<()>,
    ) -> Result<(), ReportError> {
        let mut outcome = Ok(());
        self.snapshot.late(self.filter.span, &mut |row| {
            if self.filter.takes_key(row.key) {
                outcome = each(row);
            }
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(outcome?)
    }
}

/// The filter's span, cut to where windows of its state can start, so that a store need not walk
/// through a long past to list what is open.
fn span_of_state(filter: &Filter, window_ms: i64, watermark_ms: i64) -> Span {
    let span = filter.span;
    // at the very end of the range the end of a window saturates, and this would not hold
    if watermark_ms == i64::MAX {
        return span;
    }
    let first_open_ms = watermark_ms.saturating_sub(window_ms).saturating_add(1);
    match filter.state {
        None => span,
        Some(WindowState::Open) => Span { from_ms: span.from_ms.max(Some(first_open_ms)), ..span },
        Some(WindowState::Final | WindowState::Corrected) => {
            let to_ms = span.to_ms.map_or(first_open_ms, |to_ms| to_ms.min(first_open_ms));
            Span { to_ms: Some(to_ms), ..span }
        }
    }
}

/// Which sources hold the watermark back.
#[derive(Clone, Copy, Debug)]
pub struct Holding {
    least_active_ms: Option<i64>,
    /// Whether it is they who keep the watermark where it is, while others are awaited too.
    least_holds: bool,
}

impl Holding {
    /// Among all the sources of a store.
    pub fn of(rows: &[SourceRow], summary: &Summary) -> Holding {
        let active = rows.iter().filter(|row| !row.idle);
        let least_active_ms = active.filter_map(|row| row.max_timestamp_ms).min();
        let lateness_ms = summary.settings.lateness_ms();
        let is_behind = least_active_ms
            .is_some_and(|ms| ms.saturating_sub(lateness_ms) <= summary.watermark_ms);
        let least_holds = is_behind || !rows.iter().any(is_awaited);
        Holding { least_active_ms, least_holds }
    }

    /// Whether the watermark cannot move before this source does.
    pub fn holds(self, row: &SourceRow) -> bool {
        let is_least = !row.idle
            && row.max_timestamp_ms.is_some()
            && row.max_timestamp_ms == self.least_active_ms;
        is_awaited(row) || is_least && self.least_holds
    }
}

/// Whether the watermark stays where it is until the first event of this source.
pub fn is_awaited(row: &SourceRow) -> bool {
    let is_named = row.declared || row.expected == Expected::Now;
    is_named && !row.idle && row.max_timestamp_ms.is_none()
}

/// Why that source is awaited, in one word.
pub fn awaited_as(row: &SourceRow) -> &'static str {
    if row.declared { "declared" } else { "expected" }
}

/// The unit that the timestamps of a source seem to be in, where that is not milliseconds: read as
/// such they all lie in the first months of 1970, and read as seconds in this century. (In
/// microseconds or nanoseconds a timestamp of this century is out of range, and refused.)
pub fn suspected_unit(row: &SourceRow) -> Option<&'static str> {
    row.max_timestamp_ms.filter(|ms| LIKE_SECONDS.contains(ms)).map(|_| "seconds")
}

/// Whether nothing that a source sent counts, and some or all of it was behind the horizon: its
/// timestamps, which are not kept then, may be in seconds.
pub fn is_all_expired(row: &SourceRow) -> bool {
    row.counts.expired > 0 && row.counts.accepted == 0 && row.max_timestamp_ms.is_none()
}

/// The names of the sources that keep open windows open, found anew only when they change.
struct Waiting<'v> {
    /// By watermark, without those that are idle; those that are awaited stand before all, and so
    /// do those that have sent nothing when nobody has.
    by_watermark: Vec<(i64, &'v str)>,
    /// The names of the first of them, sorted.
    names: Vec<&'v str>,
}

impl<'v> Waiting<'v> {
    fn on(sources: &'v [Standing]) -> Waiting<'v> {
        let nobody_sent = sources.iter().all(|source| source.watermark_ms.is_none());
        let mut by_watermark: Vec<(i64, &str)> = sources
            .iter()
            .filter(|source| !source.row.idle)
            .filter_map(|source| {
                let holds_all = nobody_sent || is_awaited(&source.row);
                let unsent_ms = holds_all.then_some(i64::MIN);
                Some((source.watermark_ms.or(unsent_ms)?, source.row.source.as_str()))
            })
            .collect();
        by_watermark.sort_unstable();
        Waiting { by_watermark, names: Vec::new() }
    }

    /// Whom an open window that ends there waits for: the names of those that are furthest behind,
    /// at most [`MOST_WAITING`], sorted, and how many others there are.
    fn until(&mut self, end_ms: i64) -> (&[&'v str], usize) {
        let taken = self.by_watermark.partition_point(|(watermark_ms, _)| *watermark_ms < end_ms);
        let listed = taken.min(MOST_WAITING);
        if listed != self.names.len() {
            self.names.clear();
            self.names.extend(self.by_watermark[..listed].iter().map(|(_, name)| *name));
            self.names.sort_unstable();
        }
        (&self.names, taken - listed)
    }
}

#[cfg(test)]
mod tests;
