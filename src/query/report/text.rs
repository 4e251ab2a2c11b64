//! A report for a person at a terminal. Names stand last in their line, whole however long they
//! are, so that they push nothing out of line and can be taken for no figure.

use std::fmt::Write as _;
use std::io::Write;

use super::table::{Column, line, titles, widen};
use super::{
    ReportError, Standing, View, Window, WindowState, awaited_as, grouped, is_all_expired,
    is_awaited, shown, shown_apart, suspected_unit, utc,
};
use crate::engine::Counts;
use crate::engine::settings::LatePolicy;
use crate::store::{HeldRow, LateRow};

/// The width of a moment from the year 0 to the year 9999.
const UTC_COLUMNS: usize = 24;

/// The whole report.
pub(super) fn report(
    view: &View<'_>,
    generated_at_ms: i64,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    writeln!(out, "WindowFlow report of {}\n", moment(generated_at_ms))?;
    head(view, generated_at_ms, out)?;
    source_table(view, out)?;
    version_table(view, out)?;
    windows(view, out)?;
    late_table(view, out)
}

/// The late events alone.
pub(super) fn late(view: &View<'_>, out: &mut dyn Write) -> Result<(), ReportError> {
    late_table(view, out)
}

/// The sources alone, with what each sent.
pub(super) fn sources(view: &View<'_>, out: &mut dyn Write) -> Result<(), ReportError> {
    writeln!(out, "watermark {}", moment(view.summary.watermark_ms))?;
    source_table(view, out)?;
    let rows =
        view.sources.iter().map(|standing| counted(&standing.row.source, standing.row.counts));
    count_table("What each source sent", "source", rows.collect(), out)?;
    version_table(view, out)
}

fn head(view: &View<'_>, generated_at_ms: i64, out: &mut dyn Write) -> Result<(), ReportError> {
    let summary = &view.summary;
    let watermark = moment(summary.watermark_ms);
    writeln!(out, "watermark     {watermark}: windows that end by then are final")?;
    match summary.max_timestamp_ms {
        Some(max_ms) => writeln!(out, "newest event  {}", moment(max_ms))?,
        None => writeln!(out, "newest event  none yet")?,
    }
    match (summary.last_ingest_at_ms, summary.last_batch) {
        (Some(at_ms), Some(batch)) => {
            let age = age(generated_at_ms, at_ms);
            writeln!(out, "last ingest   {}, batch {batch}, {age}", moment(at_ms))?;
        }
        _ => writeln!(out, "last ingest   none yet")?,
    }
    writeln!(out, "settings      {}", summary.settings)?;
    let (batches, refused) = (grouped(summary.batches), grouped(summary.refused_batches));
    writeln!(out, "batches       {batches} taken in, {refused} refused")?;
    let counts = &summary.counts;
    writeln!(
        out,
        "events        {}: {} accepted, {} late ({} kept{}), {} duplicate, {} future ({} held), \
         {} expired",
        grouped(counts.events()),
        grouped(counts.accepted),
        grouped(counts.late),
        grouped(summary.late_kept),
        match summary.late_kept {
            0 => String::new(),
            _ => format!(", {} not applied", grouped(summary.late_waiting)),
        },
        grouped(counts.duplicate),
        grouped(counts.future),
        grouped(summary.held),
        grouped(counts.expired),
    )?;
    let (windows, open) = (summary.windows, summary.open_windows);
    let corrected = summary.corrected_windows;
    let closed = grouped(windows.saturating_sub(open).saturating_sub(corrected));
    let corrected = match corrected {
        0 => String::new(),
        _ => format!(", {} corrected", grouped(corrected)),
    };
    let (windows, open) = (grouped(windows), grouped(open));
    writeln!(out, "windows       {windows}: {closed} final{corrected}, {open} open")?;
    Ok(())
}

/// How far each source has come.
fn source_table(view: &View<'_>, out: &mut dyn Write) -> Result<(), ReportError> {
    writeln!(out, "\nSources: {}", grouped(view.sources.len() as u64))?;
    if view.sources.is_empty() {
        return Ok(writeln!(out, "nothing has been taken in yet")?);
    }
    let mut columns = [
        Column::left("holds W"),
        Column::left("own watermark"),
        Column::right("own watermark_ms"),
        Column::right("last event_ms"),
        Column::left("last batch at"),
        Column::right("batch"),
        Column::left("source"),
        Column::left("last file"),
    ];
    let names: Vec<&str> = view.sources.iter().map(|one| one.row.source.as_str()).collect();
    let names = shown_apart(&names);
    let rows: Vec<[String; 8]> =
        view.sources.iter().zip(&names).map(|(one, name)| source_cells(one, name)).collect();
    rows.iter().for_each(|row| widen(&mut columns, row));
    titles(&columns, out)?;
    for row in &rows {
        line(&columns, row, out)?;
    }
    for (standing, name) in view.sources.iter().zip(&names) {
        presence_line(standing, name, out)?;
    }
    Ok(())
}

/// How a source stands to the watermark, where that is not as for any other.
fn presence_line(standing: &Standing, name: &str, out: &mut dyn Write) -> Result<(), ReportError> {
    let row = &standing.row;
    let since = row.presence_since_ms.map_or_else(String::new, |ms| format!(" since {}", utc(ms)));
    if row.idle {
        let how = if row.retired { "retired" } else { "idle" };
        writeln!(out, "{how}{since}, does not hold the watermark: {name}")?;
    } else if is_awaited(row) {
        let how = awaited_as(row);
        writeln!(out, "{how}{since}, the watermark waits for its first event: {name}")?;
    }
    if let Some(unit) = suspected_unit(row) {
        writeln!(out, "timestamps look like {unit}, not milliseconds: {name}")?;
    } else if is_all_expired(row) {
        writeln!(
            out,
            "all its events are behind the horizon: are its timestamps in seconds? {name}"
        )?;
    }
    Ok(())
}

fn source_cells(standing: &Standing, name: &str) -> [String; 8] {
    let row = &standing.row;
    let or_none = |ms: Option<i64>| ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string());
    [
        match standing.holds {
            true => "holds".to_owned(),
            false if row.retired => "retired".to_owned(),
            false if row.idle => "idle".to_owned(),
            false => "-".to_owned(),
        },
        standing.watermark_ms.map_or_else(|| "no event yet".to_owned(), utc),
        or_none(standing.watermark_ms),
        or_none(row.max_timestamp_ms),
        row.last_batch_at_ms.map_or_else(|| "-".to_owned(), utc),
        row.last_batch.map_or_else(|| "-".to_owned(), |batch| batch.to_string()),
        name.to_owned(),
        shown(row.last_file.as_deref().unwrap_or("-")).into_owned(),
    ]
}

/// What each producer version sent, where producers say theirs. There can be a million of them, so
/// none is kept: they are read once for the widths and once for the lines.
fn version_table(view: &View<'_>, out: &mut dyn Write) -> Result<(), ReportError> {
    let mut columns = count_columns("producer_version");
    let mut is_empty = true;
    view.each_version(&mut |version, counts| {
        is_empty = false;
        widen(&mut columns, &counted(version, counts));
        Ok(())
    })?;
    if is_empty {
        return Ok(());
    }
    writeln!(out, "\nWhat each producer version sent")?;
    titles(&columns, out)?;
    view.each_version(&mut |version, counts| line(&columns, &counted(version, counts), out))
}

fn count_table(
    caption: &str,
    name: &'static str,
    rows: Vec<[String; 6]>,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{caption}")?;
    let mut columns = count_columns(name);
    rows.iter().for_each(|row| widen(&mut columns, row));
    titles(&columns, out)?;
    for row in &rows {
        line(&columns, row, out)?;
    }
    Ok(())
}

fn count_columns(name: &'static str) -> [Column; 6] {
    let outcomes = ["accepted", "late", "duplicate", "future", "expired"].map(Column::right);
    let [accepted, late, duplicate, future, expired] = outcomes;
    [accepted, late, duplicate, future, expired, Column::left(name)]
}

fn counted(name: &str, counts: Counts) -> [String; 6] {
    let Counts { accepted, late, duplicate, future, expired } = counts;
    let [accepted, late, duplicate, future, expired] =
        [accepted, late, duplicate, future, expired].map(grouped);
    [accepted, late, duplicate, future, expired, shown(name).into_owned()]
}

/// The windows, in two passes over the same state: the first finds the widths and the totals.
fn windows(view: &View<'_>, out: &mut dyn Write) -> Result<(), ReportError> {
    let mut listed = Listed::default();
    view.each_window(&mut |window| {
        listed.add(window);
        Ok(())
    })?;
    let (some, all) = (grouped(listed.windows), grouped(view.summary.windows));
    writeln!(out, "\nWindows: {some} listed of {all}{}", filter_words(view, true))?;
    if listed.windows == 0 {
        return Ok(());
    }
    let mut columns = [
        Column::left("start").at_least(UTC_COLUMNS),
        Column::right("start_ms"),
        Column::left("state").at_least("open*".len()),
        Column::right("count"),
        Column::right("sum"),
        Column::right("min"),
        Column::right("max"),
        Column::left("key"),
    ];
    listed.widen(&mut columns);
    titles(&columns, out)?;
    let mut start = (i64::MIN, String::new());
    view.each_window(&mut |window| {
        if start.0 != window.start_ms {
            start = (window.start_ms, utc(window.start_ms));
        }
        let state = match window.state {
            WindowState::Open => "open*".to_owned(),
            WindowState::Final => "final".to_owned(),
            WindowState::Corrected => format!("corrected {}", window.revision),
        };
        let totals = &window.totals;
        let [count, sum, min, max] =
            [totals.count, totals.sum, totals.min, totals.max].map(grouped);
        let start_ms = window.start_ms.to_string();
        let key = shown(window.key);
        line(&columns, &[&*start.1, &start_ms, &state, &count, &sum, &min, &max, &key], out)
    })?;
    line(&columns, &listed.cells(), out)?;
    if listed.open > 0 {
        let open = grouped(listed.open);
        writeln!(out, "* open ({open}): provisional until the watermark reaches the window's end")?;
    }
    if listed.greatest_revision > 0 {
        writeln!(
            out,
            "corrected N: the Nth revision since it was final; earlier numbers are kept"
        )?;
    }
    Ok(())
}

/// What the listed windows add up to, and how wide their figures are.
#[derive(Default)]
struct Listed {
    windows: u64,
    open: u64,
    greatest_revision: u64,
    last_start_ms: i64,
    count: i128,
    /// Wider than a sum of a window, so that it is exact.
    sum: i128,
    /// Least and greatest of count, sum, min and max.
    bounds: Option<[(i64, i64); 4]>,
}

impl Listed {
    fn add(&mut self, window: &Window<'_>) {
        let totals = &window.totals;
        self.windows += 1;
        self.open += u64::from(window.state == WindowState::Open);
        if window.state == WindowState::Corrected {
            self.greatest_revision = self.greatest_revision.max(window.revision);
        }
        self.last_start_ms = self.last_start_ms.max(window.start_ms);
        self.count += i128::from(totals.count);
        self.sum += i128::from(totals.sum);
        let figures = [totals.count, totals.sum, totals.min, totals.max];
        let bounds = self.bounds.get_or_insert(figures.map(|figure| (figure, figure)));
        for (bound, figure) in bounds.iter_mut().zip(figures) {
            *bound = (bound.0.min(figure), bound.1.max(figure));
        }
    }

    fn widen(&self, columns: &mut [Column; 8]) {
        columns[1].widen(&self.last_start_ms.to_string());
        if self.greatest_revision > 0 {
            columns[2].widen(&format!("corrected {}", self.greatest_revision));
        }
        for (column, (least, greatest)) in
            columns[3..7].iter_mut().zip(self.bounds.iter().flatten())
        {
            column.widen(&grouped(*least));
            column.widen(&grouped(*greatest));
        }
        widen(columns, &self.cells());
    }

    /// The line of totals.
    fn cells(&self) -> [String; 8] {
        let bounds = self.bounds.unwrap_or_default();
        [
            "all that are listed".to_owned(),
            String::new(),
            String::new(),
            grouped(self.count),
            grouped(self.sum),
            grouped(bounds[2].0),
            grouped(bounds[3].1),
            format!("({} windows)", grouped(self.windows)),
        ]
    }
}

/// The late events, in two passes as the windows are.
fn late_table(view: &View<'_>, out: &mut dyn Write) -> Result<(), ReportError> {
    let mut columns = [
        Column::left("timestamp"),
        Column::right("timestamp_ms"),
        Column::right("value"),
        Column::right("window_start_ms"),
        Column::right("watermark_ms then"),
        Column::right("batch"),
        Column::right("applied in"),
        Column::left("source"),
        Column::left("key"),
        Column::left("id"),
    ];
    let mut listed = 0_u64;
    view.each_late(&mut |late| {
        listed += 1;
        widen(&mut columns, &late_cells(late));
        Ok(())
    })?;
    let kept = grouped(view.summary.late_kept);
    let words = filter_words(view, false);
    writeln!(out, "\nLate events: {} listed of {kept} kept{words}", grouped(listed))?;
    let dropped = view.summary.counts.late.saturating_sub(view.summary.late_kept);
    if dropped > 0 && view.summary.settings.late_policy() == LatePolicy::Drop {
        writeln!(out, "{} more were counted, not kept: late_policy is drop", grouped(dropped))?;
    }
    if listed == 0 {
        return Ok(());
    }
    titles(&columns, out)?;
    view.each_late(&mut |late| line(&columns, &late_cells(late), out))
}

fn late_cells(late: &LateRow<'_>) -> [String; 10] {
    [
        utc(late.timestamp_ms),
        late.timestamp_ms.to_string(),
        grouped(late.value),
        late.window_start_ms.to_string(),
        late.watermark_ms.to_string(),
        late.batch.to_string(),
        late.applied_in.map_or_else(|| "-".to_owned(), |batch| batch.to_string()),
        shown(late.source).into_owned(),
        shown(late.key).into_owned(),
        shown(late.id).into_owned(),
    ]
}

/// What was asked for, where it was not everything.
fn filter_words(view: &View<'_>, with_state: bool) -> String {
    let filter = view.filter;
    let mut words = String::new();
    if let Some(key) = &filter.key {
        let _infallible = write!(words, ", key {}", shown(key.glob().glob()));
    }
    if let Some(from_ms) = filter.span.from_ms {
        let _infallible = write!(words, ", starting from {}", moment(from_ms));
    }
    if let Some(to_ms) = filter.span.to_ms {
        let _infallible = write!(words, ", starting before {}", moment(to_ms));
    }
    if let Some(state) = filter.state.filter(|_| with_state) {
        let _infallible = write!(words, ", state {}", state.name());
    }
    words
}

fn moment(ms: i64) -> String {
    format!("{} ({ms})", utc(ms))
}

/// How long before the report something was, in the two largest units.
fn age(now_ms: i64, then_ms: i64) -> String {
    let Ok(ms) = u64::try_from(now_ms.saturating_sub(then_ms)) else {
        return "after this report: the clock was set back since".to_owned();
    };
    let (s, min, h, d) = (ms / 1000, ms / 60_000, ms / 3_600_000, ms / 86_400_000);
    let span = match ms {
        0..60_000 => format!("{s}.{:03} s", ms % 1000),
        60_000..3_600_000 => format!("{min} min {} s", s % 60),
        3_600_000..86_400_000 => format!("{h} h {} min", min % 60),
        _ => format!("{d} d {} h", h % 24),
    };
    format!("{span} before this report")
}

/// The held events alone, with how far ahead of the clock each is now.
pub(super) fn held(view: &View<'_>, now_ms: i64, out: &mut dyn Write) -> Result<(), ReportError> {
    let mut columns = [
        Column::left("timestamp"),
        Column::right("timestamp_ms"),
        Column::right("ahead_ms"),
        Column::right("value"),
        Column::right("batch"),
        Column::left("source"),
        Column::left("key"),
        Column::left("id"),
        Column::left("file"),
    ];
    let cells = |held: &HeldRow<'_>| {
        [
            utc(held.timestamp_ms),
            held.timestamp_ms.to_string(),
            grouped(held.timestamp_ms.saturating_sub(now_ms)),
            grouped(held.value),
            held.event.batch.to_string(),
            shown(held.source).into_owned(),
            shown(held.key).into_owned(),
            shown(held.id).into_owned(),
            shown(held.file).into_owned(),
        ]
    };
    writeln!(out, "Held events: {}", grouped(view.summary.held))?;
    if view.summary.held == 0 {
        return Ok(());
    }
    view.each_held(&mut |held| {
        widen(&mut columns, &cells(held));
        Ok(())
    })?;
    titles(&columns, out)?;
    view.each_held(&mut |held| line(&columns, &cells(held), out))
}

#[cfg(test)]
mod tests;
