//! `advance`: sets the watermark by hand.

use std::io::Write;

use serde_json::json;

use super::args::{Advance, Where};
use super::{Exit, Failure, asked_by, complain, results};
use crate::act::{self, Asked};
use crate::clock::Clock;
use crate::report;

pub(super) fn run(at: &Where, command: &Advance) -> Result<Exit, Failure> {
    let mut store = at.open()?;
    let by = asked_by();
    let asked = Asked { by: &by, reason: command.reason.as_deref() };
    let done = act::advance(&mut store, command.to_ms, asked)?;
    let mut out = results();
    let (to_ms, closed) = (done.watermark_ms, done.windows_closed);
    if at.json {
        let line = json!({"batch": done.batch, "watermark_ms": to_ms, "windows_closed": closed});
        writeln!(out, "{line}")?;
    } else {
        let still = if done.batch.is_some() { "" } else { "still " };
        writeln!(
            out,
            "watermark {still}{to_ms} ({}), windows closed: {closed}",
            report::utc(to_ms)
        )?;
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
