//! `explain`: why a number is what it is.

use std::io::{self, Write};
use std::ops::ControlFlow;

use serde_json::json;

use super::args::{Explain, Where};
use super::report::snapshot;
use super::{CommandError, Exit, complain, results};
use crate::engine::window;
use crate::model::clock::Clock;
use crate::query::explain::{
    Cause, Correction, EventFate, Explainer, IdAnswer, LateOne, Made, WindowAnswer,
};
use crate::query::report::{grouped, utc};
use crate::spool::name::shown;

/// How many lines of a kind are printed for a person; JSON has all.
const MOST_LINES: usize = 20;

pub(super) fn run(at: &Where, command: &Explain) -> Result<Exit, CommandError> {
    let snapshot = snapshot(at)?;
    let mut explainer = Explainer::new(&snapshot, at.archive()?, Clock::System.now_ms())?;
    let mut out = results();
    let exit = match (&command.id, &command.key, command.window_start_ms) {
        (Some(id), _, _) => event(at, &mut explainer, id, &mut out)?,
        (None, Some(key), Some(start_ms)) => {
            of_window(at, &mut explainer, key, start_ms, &mut out)?
        }
        _ => watermark(at, &explainer, &mut out)?,
    };
    out.flush()?;
    Ok(exit)
}

fn event(
    at: &Where,
    explainer: &mut Explainer<'_>,
    id: &str,
    out: &mut dyn Write,
) -> Result<Exit, CommandError> {
    let answer = explainer.id(id)?;
    if at.json {
        serde_json::to_writer(&mut *out, &answer).map_err(io::Error::from)?;
        writeln!(out)?;
    }
    if !answer.known {
        let known = match answer.forgets_before_ms {
            None => "was never taken in".to_owned(),
            Some(ms) => format!(
                "is not known: it never came, or it lies further behind the watermark than \
                 dedup_horizon_ms and was forgotten (or was counted as expired): ids of events \
                 before {} are no longer known",
                time(ms)
            ),
        };
        let hint = match at.spool() {
            Ok(_) => "; what was refused lies in failed/: see windowflow failed",
            Err(_) => "",
        };
        complain(&format!("the id {id:?} {known}{hint}"));
        return Ok(Exit::Missing);
    }
    if !at.json {
        event_text(&answer, out)?;
    }
    Ok(Exit::Done)
}

fn event_text(answer: &IdAnswer, out: &mut dyn Write) -> io::Result<()> {
    let name = |text: &str| shown(text.as_bytes());
    writeln!(out, "id          {}", name(&answer.id))?;
    if let Some(ms) = answer.timestamp_ms {
        let key = answer.key.as_deref().map_or_else(|| "-".to_owned(), name);
        let value = answer.value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        writeln!(out, "event       key {key}, value {value}, timestamp {}", time(ms))?;
    }
    if let Some(came) = &answer.came {
        let file = came.file.as_deref().unwrap_or("(its receipt was removed)");
        writeln!(
            out,
            "came in     batch {}, file {file}, event {} (from 0)",
            came.batch, came.event_index
        )?;
        match (&came.path, came.line, came.lost) {
            (Some(path), Some(line), _) => writeln!(out, "            line {line} of {path}")?,
            (_, _, Some(lost)) => writeln!(out, "            {file} {}", lost.words())?,
            _ => {}
        }
        if let Some(ms) = came.received_at_ms {
            writeln!(out, "received    {}", time(ms))?;
        }
        if let Some(source) = &came.source {
            writeln!(out, "source      {}", name(source))?;
        }
    }
    answer.fate.as_ref().map_or(Ok(()), |fate| fate_text(fate, out))
}

fn fate_text(fate: &EventFate, out: &mut dyn Write) -> io::Result<()> {
    let (start, end) = (fate.window_start_ms, fate.window_end_ms);
    let window = format!("window [{start}, {end})");
    let is = match (fate.window_state, fate.window_removed, fate.outcome) {
        (_, true, "late") => "is final; it was removed by retention, or held nothing".to_owned(),
        (_, true, _) => "was removed by retention since".to_owned(),
        ("corrected", ..) => format!("is final, corrected {}", times(fate.window_revision)),
        (state, ..) => format!("is {state}"),
    };
    if let Some(settled) = &fate.settled {
        let by = settled.asked_by.as_deref().map_or_else(String::new, |by| format!(" by {by}"));
        let why = settled.reason.as_deref().map_or_else(String::new, |why| format!(" ({why})"));
        let by = shown(format!("{by}{why}").as_bytes());
        let (how, batch, at) = (&settled.settlement, settled.batch, time(settled.at_ms));
        writeln!(
            out,
            "held        as too far ahead of the clock; {how} in batch {batch}{by}, {at}"
        )?;
    }
    match (fate.outcome, fate.ahead_ms) {
        ("future", Some(ahead_ms)) => {
            let ahead = grouped(ahead_ms.unsigned_abs());
            let than = if ahead_ms < 0 { "behind" } else { "ahead of" };
            writeln!(
                out,
                "decided     held: it is {ahead} ms {than} the clock of now; would fall into {window}"
            )?
        }
        ("future", None) => writeln!(out, "decided     dropped for good; it counts nowhere")?,
        ("accepted", _) => writeln!(out, "decided     accepted into {window}, which {is}")?,
        ("late", _) => {
            let at = fate.watermark_ms.map_or_else(String::new, |ms| format!(" at watermark {ms}"));
            writeln!(out, "decided     late{at} for {window}, which {is}")?;
        }
        _ => writeln!(
            out,
            "decided     accepted or late for {window}, which {is}: which of the two can no longer be \
             told"
        )?,
    }
    if let Some(cause) = &fate.closed_by {
        writeln!(out, "closed by   {}", cause_text(cause))?;
    }
    if fate.outcome == "late" {
        let since = match (fate.applied_in, fate.kept) {
            (Some(batch), _) => {
                let by = correction_text(fate.application.as_ref());
                format!("it is part of a revision, made in batch {batch}{by}")
            }
            (None, true) => "kept apart; see: windowflow late".to_owned(),
            (None, false) => "only counted, or no longer kept; it is in no total".to_owned(),
        };
        writeln!(out, "since then  {since}")?;
    }
    Ok(())
}

fn of_window(
    at: &Where,
    explainer: &mut Explainer<'_>,
    key: &str,
    start_ms: i64,
    out: &mut dyn Write,
) -> Result<Exit, CommandError> {
    let window_ms = explainer.summary().settings.window_ms();
    let Some(answer) = explainer.window(key, start_ms)? else {
        let begins_ms = window::start_ms(start_ms, window_ms);
        let hint = match begins_ms == start_ms {
            true if explainer.is_pruned(start_ms) => {
                "removed by retention, or never there".to_owned()
            }
            true => "nothing that counts came for it".to_owned(),
            false => format!("windows begin at multiples of {window_ms}; is {begins_ms} meant?"),
        };
        let text = format!("there is no window of key {key:?} that begins at {start_ms}: {hint}");
        return Err(CommandError::new(Exit::Missing, text));
    };
    if at.json {
        serde_json::to_writer(&mut *out, &answer).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        window_text(&answer, out)?;
    }
    Ok(Exit::Done)
}

fn window_text(answer: &WindowAnswer<'_>, out: &mut dyn Write) -> io::Result<()> {
    let name = |text: &str| shown(text.as_bytes());
    let (start, end) = (answer.window_start_ms, answer.window_end_ms);
    writeln!(
        out,
        "window      [{start}, {end}) of key {}, from {}",
        name(&answer.key),
        utc(start)
    )?;
    match answer.totals {
        Some(totals) => writeln!(
            out,
            "holds       {}; {}, revision {}",
            made(totals),
            answer.state,
            answer.revision
        )?,
        None if answer.removed => {
            // what is found in the files once counted in it
            let or_never = match answer.found.count {
                0 => ", or it never held any: late events alone came for it",
                _ => "",
            };
            writeln!(
                out,
                "holds       no numbers any more; {}: removed by retention{or_never}",
                answer.state
            )?
        }
        None => {
            writeln!(out, "holds       nothing; {}: only late events came for it", answer.state)?
        }
    }
    for revision in &answer.revisions {
        let by = correction_text(revision.correction.as_ref());
        writeln!(
            out,
            "revision {}  count {}, sum {}; corrected in batch {}{by}",
            revision.revision, revision.count, revision.sum, revision.corrected_in
        )?;
    }
    match &answer.closed_by {
        Some(cause) => writeln!(out, "closed by   {}", cause_text(cause))?,
        None if answer.state == "open" => {}
        None => writeln!(
            out,
            "closed by   unknown: it held nothing when the watermark passed it, or the note was \
             removed"
        )?,
    }
    for waiting in &answer.waiting_for {
        let at = waiting.watermark_ms.map_or_else(|| "nothing sent".to_owned(), time);
        let since = waiting.since_ms.map_or_else(String::new, |ms| format!(", since {}", utc(ms)));
        writeln!(out, "waits for   source {} ({at}){since}", name(&waiting.source))?;
    }
    if answer.waiting_for_more > 0 {
        writeln!(out, "waits for   {} other sources", answer.waiting_for_more)?;
    }
    brought_text(answer, out)?;
    verdict_text(answer, out)
}

/// What came for a window, and from where.
fn brought_text(answer: &WindowAnswer<'_>, out: &mut dyn Write) -> io::Result<()> {
    let name = |text: &str| shown(text.as_bytes());
    let mut shown = 0;
    let mut written = Ok(());
    let read = answer.late.each(&mut |late| {
        if shown == MOST_LINES as u64 {
            return ControlFlow::Break(());
        }
        shown += 1;
        written = late_text(late, out);
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    written?;
    read.map_err(io::Error::other)?;
    if answer.late.count > shown {
        writeln!(out, "{}", more_text(answer.late.count - shown))?;
    }
    lines(out, answer.files.len(), |n, out| {
        let file = &answer.files[n];
        writeln!(out, "from        batch {}, {}: {}", file.batch, file.path, made(file.made))
    })?;
    for (source, brought) in &answer.sources {
        writeln!(out, "source      {}: {}", name(source), made(*brought))?;
    }
    lines(out, answer.missing.len(), |n, out| {
        let missing = &answer.missing[n];
        writeln!(
            out,
            "not read    batch {}: {} {}",
            missing.batch,
            missing.file,
            missing.why.words()
        )
    })
}

fn late_text(late: &LateOne, out: &mut dyn Write) -> io::Result<()> {
    let since = match late.applied_in {
        Some(batch) => {
            let by = correction_text(late.application.as_ref());
            format!("part of the revision of batch {batch}{by}")
        }
        None => "kept apart".to_owned(),
    };
    writeln!(
        out,
        "late        {} ({}) of batch {}, event {}, at watermark {}: {since}",
        shown(late.id.as_bytes()),
        late.value,
        late.batch,
        late.event_index,
        late.watermark_ms
    )
}

fn verdict_text(answer: &WindowAnswer<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "found       {}", made(answer.found))?;
    if answer.unsure.count > 0 {
        let more = made(answer.unsure);
        writeln!(out, "unsure      {more}: accepted or dropped as late, which cannot be told")?;
    }
    if answer.forgotten.count > 0 {
        writeln!(out, "forgotten   {}: their ids are no longer known", made(answer.forgotten))?;
    }
    let nothing = Made::default();
    match answer.difference {
        None if answer.removed => {
            writeln!(out, "difference  not known: what it held was removed by retention")
        }
        None => writeln!(out, "difference  not counted again: no file of it could be read"),
        Some(difference) if difference != nothing => writeln!(
            out,
            "difference  {}: what the window holds less what was found",
            made(difference)
        ),
        Some(_) if !answer.missing.is_empty() => {
            writeln!(out, "difference  none, by the files that could be read")
        }
        Some(_) => writeln!(out, "difference  none: the files account for all of it"),
    }
}

/// Who corrected, why and when.
fn correction_text(correction: Option<&Correction>) -> String {
    let Some(correction) = correction else { return ", whose receipt was removed".to_owned() };
    if let Some(file) = &correction.file {
        return format!(", {file}");
    }
    let by = correction.asked_by.as_deref().map_or_else(String::new, |by| format!(" by {by}"));
    let why = correction.reason.as_deref().map_or_else(String::new, |why| format!(" ({why})"));
    format!("{}, {}", shown(format!("{by}{why}").as_bytes()), utc(correction.at_ms))
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

fn more_text(more: u64) -> String {
    format!("            and {more} more; --json has all")
}

/// The first lines of a kind, and how many more there are.
fn lines(
    out: &mut dyn Write,
    count: usize,
    mut line: impl FnMut(usize, &mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    (0..count.min(MOST_LINES)).try_for_each(|n| line(n, out))?;
    match count.checked_sub(MOST_LINES) {
        Some(more) if more > 0 => writeln!(out, "{}", more_text(more as u64)),
        _ => Ok(()),
    }
}

fn watermark(
    at: &Where,
    explainer: &Explainer<'_>,
    out: &mut dyn Write,
) -> Result<Exit, CommandError> {
    let mut written = Ok(());
    let mut count = 0_u64;
    explainer.moves(&mut |cause| {
        count += 1;
        written = match at.json {
            true => writeln!(out, "{}", json!(cause)),
            false => writeln!(
                out,
                "{} -> {} ({}): windows closed: {}; {}",
                cause.from_ms,
                cause.to_ms,
                utc(cause.to_ms),
                cause.windows_closed,
                cause_text(cause)
            ),
        };
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written?;
    if !at.json {
        let now = time(explainer.summary().watermark_ms);
        let moves = if count == 0 { "; no move that is kept closed a window" } else { "" };
        writeln!(out, "watermark   {now}{moves}")?;
    }
    Ok(Exit::Done)
}

fn cause_text(cause: &Cause) -> String {
    let at = cause.at_ms.map_or_else(String::new, |ms| format!(", {}", utc(ms)));
    let mut text = match (cause.by.as_deref(), &cause.file, cause.event_index) {
        (Some("event"), Some(file), Some(index)) => {
            let id = cause.event_id.as_deref().map(|id| format!(" (id {})", shown(id.as_bytes())));
            let line = cause.line.map(|line| format!(", line {line}"));
            let (id, line) = (id.unwrap_or_default(), line.unwrap_or_default());
            format!("event {index}{id} of batch {}, {file}{line}", cause.batch)
        }
        (Some(act), _, _) => format!("{act} in batch {}", cause.batch),
        (None, _, _) => format!("batch {}, whose receipt was removed", cause.batch),
    };
    if !cause.sources.is_empty() {
        let names: Vec<String> = cause.sources.iter().map(|one| shown(one.as_bytes())).collect();
        text.push_str(&format!(" of source {}", names.join(", ")));
    }
    if let Some(by) = &cause.asked_by {
        text.push_str(&format!(" by {}", shown(by.as_bytes())));
    }
    if let Some(reason) = &cause.reason {
        text.push_str(&format!(" ({})", shown(reason.as_bytes())));
    }
    text + &at
}

fn made(made: Made) -> String {
    format!("count {}, sum {}", made.count, made.sum)
}

fn time(ms: i64) -> String {
    format!("{ms} ({})", utc(ms))
}
