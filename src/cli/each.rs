//! `check --events`: what each event of a batch would become, in the order of the batch.

use std::collections::VecDeque;
use std::env;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};

use serde_json::json;

use super::{CommandError, Exit};
use crate::engine::settings::{LateRule, Settings};
use crate::engine::{Judged, Move, Outcome, window};
use crate::model::event::{Chunk, Event};
use crate::spool::advice;
use crate::spool::name::{shown, shown_path};

/// How many moves of the watermark are remembered, to say which event made another late.
const MOST_MOVES: usize = 65_536;

/// Lines on their way: into a file without a name first, since whoever reads them may be slow, and
/// must not hold the store.
pub(super) struct Each {
    lines: BufWriter<File>,
    json: bool,
    moves: VecDeque<Move>,
    written: io::Result<()>,
}

impl Each {
    pub(super) fn new(json: bool) -> Result<Each, CommandError> {
        let file =
            tempfile::tempfile().map_err(|error| no_copy("cannot keep the lines", &error))?;
        Ok(Each { lines: BufWriter::new(file), json, moves: VecDeque::new(), written: Ok(()) })
    }

    /// Takes down what was judged. What cannot be written is said at the end.
    pub(super) fn judged(
        &mut self,
        chunk: &Chunk,
        judged: &Judged<'_>,
        closings: &[u64],
        settings: &Settings,
    ) {
        if self.written.is_ok() {
            self.written = self.take_down(chunk, judged, closings, settings);
        }
    }

    fn take_down(
        &mut self,
        chunk: &Chunk,
        judged: &Judged<'_>,
        closings: &[u64],
        settings: &Settings,
    ) -> io::Result<()> {
        let mut moves = judged.changes.moves.iter().zip(closings).peekable();
        for (row, outcome) in judged.outcomes.iter().enumerate() {
            let index = chunk.first_index() + row as u64;
            self.event(index, &chunk.event(row), *outcome, settings)?;
            while let Some((moved, closed)) =
                moves.next_if(|(moved, _)| moved.event_index == Some(index))
            {
                self.moved(moved, *closed, settings)?;
                if self.moves.len() == MOST_MOVES {
                    self.moves.pop_front();
                }
                self.moves.push_back(*moved);
            }
        }
        Ok(())
    }

    fn event(
        &mut self,
        index: u64,
        event: &Event<'_>,
        outcome: Outcome,
        settings: &Settings,
    ) -> io::Result<()> {
        let start_ms = window::start_ms(event.timestamp_ms, settings.window_ms());
        let end_ms = window::end_ms(start_ms, settings.window_ms());
        let passed_by = match outcome {
            Outcome::Late => self.passed_by(event.timestamp_ms, end_ms, settings.late_rule()),
            _ => None,
        };
        if self.json {
            let line = json!({
                "event_index": index,
                "line": event.place.line,
                "id": event.id,
                "key": event.key,
                "outcome": outcome.name(),
                "window_start_ms": start_ms,
                "window_end_ms": end_ms,
                "passed_by_event": passed_by,
            });
            return writeln!(self.lines, "{line}");
        }
        let why = match (outcome, passed_by) {
            (Outcome::Late, Some(by)) => format!(", passed by event {by} of this file"),
            // the watermark can pass an event without passing the end of a window: by whom is not
            // kept
            (Outcome::Late, None) if settings.late_rule() == LateRule::Event => {
                ", older than the watermark".to_owned()
            }
            (Outcome::Late, None) => ", passed before this file".to_owned(),
            _ => String::new(),
        };
        writeln!(
            self.lines,
            "event {index}, line {}: {}: {}, window [{start_ms}, {end_ms}) of key {}{why}",
            event.place.line,
            shown(event.id.as_bytes()),
            outcome.name(),
            shown(event.key.as_bytes()),
        )
    }

    /// The event of this batch that moved the watermark past the window, or by the stricter rule
    /// past the event.
    fn passed_by(&self, timestamp_ms: i64, end_ms: i64, rule: LateRule) -> Option<u64> {
        // the first watermark under which it is late
        let late_from_ms = match rule {
            LateRule::Window => end_ms,
            LateRule::Event => timestamp_ms.saturating_add(1),
        };
        let first = self.moves.partition_point(|moved| moved.to_ms < late_from_ms);
        let moved = self.moves.get(first).filter(|moved| moved.from_ms < late_from_ms)?;
        moved.event_index
    }

    /// Only of what closes windows that hold something, in the store or in this file.
    fn moved(&mut self, moved: &Move, closed: u64, settings: &Settings) -> io::Result<()> {
        if closed == 0 {
            return Ok(());
        }
        let Move { from_ms, to_ms, event_index } = *moved;
        let closing = window::closing_starts_ms(from_ms, to_ms, settings.window_ms());
        let Some((first_ms, after_ms)) = closing else { return Ok(()) };
        if self.json {
            let line = json!({"move": {
                "event_index": event_index,
                "from_ms": from_ms,
                "to_ms": to_ms,
                "closes_from_ms": first_ms,
                "closes_before_ms": after_ms,
                "windows_closed": closed,
            }});
            return writeln!(self.lines, "{line}");
        }
        writeln!(
            self.lines,
            "  watermark {from_ms} -> {to_ms}: closes windows that begin in [{first_ms}, \
             {after_ms}): {closed}"
        )
    }

    /// Gives the lines on.
    pub(super) fn copy_to(self, out: &mut dyn Write) -> Result<(), CommandError> {
        let cannot = |error: io::Error| no_copy("cannot keep the lines", &error);
        self.written.map_err(cannot)?;
        let mut file = self.lines.into_inner().map_err(|error| cannot(error.into_error()))?;
        file.rewind().map_err(cannot)?;
        io::copy(&mut file, out)?;
        Ok(())
    }
}

/// A file without a name that cannot be made or written: where that is, and who says so.
pub(super) fn no_copy(what: &str, error: &io::Error) -> CommandError {
    let folder = env::temp_dir();
    let shown = shown_path(&folder);
    let why = match folder.is_dir() {
        false => format!("there is no folder {shown}: make it"),
        true => advice::explain(&folder, error),
    };
    let text = format!("{what} into {shown}: {why}, or name another folder in TMPDIR");
    CommandError::new(Exit::Again, text)
}
