//! `advance`: sets the watermark by hand.

use std::io::Write;

use serde_json::json;

use super::args::{Advance, Where};
use super::{Exit, Failure, complain, delivery, results};
use crate::clock::Clock;
use crate::event::DEFAULT_SOURCE;
use crate::ingest::{self, AdvanceError};
use crate::report;

pub(super) fn run(at: &Where, command: &Advance) -> Result<Exit, Failure> {
    let mut store = at.open()?;
    let delivery = delivery("advance".to_owned(), DEFAULT_SOURCE)?;
    let reason = command.reason.as_deref();
    let done = ingest::advance(&mut store, &delivery, command.to_ms, &asked_by(), reason)?;
    let closed = done.as_ref().map_or(0, |committed| committed.windows_closed);
    let mut out = results();
    if at.json {
        let batch = done.map(|committed| committed.batch);
        let line = json!({"batch": batch, "watermark_ms": command.to_ms, "windows_closed": closed});
        writeln!(out, "{line}")?;
    } else {
        let still = if done.is_some() { "" } else { "still " };
        let (to_ms, utc) = (command.to_ms, report::utc(command.to_ms));
        writeln!(out, "watermark {still}{to_ms} ({utc}), windows closed: {closed}")?;
    }
    out.flush()?;
    if command.to_ms > Clock::System.now_ms() {
        complain(
            "note: this is ahead of the clock; whatever comes for a window that ends by then is \
             late",
        );
    }
    Ok(Exit::Done)
}

impl From<AdvanceError> for Failure {
    fn from(error: AdvanceError) -> Failure {
        match error {
            AdvanceError::Store(error) => Failure::from(error),
            AdvanceError::Behind { watermark_ms, asked_ms } => Failure::new(
                Exit::Usage,
                format!(
                    "the watermark is at {watermark_ms} ({}) and never moves back: {asked_ms} is \
                     behind it",
                    report::utc(watermark_ms)
                ),
            ),
        }
    }
}

/// Who is at the keyboard, as well as can be told.
fn asked_by() -> String {
    let uid = rustix::process::getuid().as_raw();
    let named = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    named.map_or_else(|| format!("uid {uid}"), |user| format!("{user} (uid {uid})"))
}
