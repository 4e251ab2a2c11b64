//! `advance`: sets the watermark by hand.

use std::io::Write;

use serde_json::json;

use super::args::{Advance, Where};
use super::report::snapshot;
use super::{CommandError, Exit, asked_by, complain, results};
use crate::model::clock::Clock;
use crate::pipeline::admin_batch::{self, Asked, Implausible, Reached};
use crate::query::report;
use crate::store::{Snapshot, Store, Summary};

pub(super) fn run(at: &Where, command: &Advance) -> Result<Exit, CommandError> {
    let mut store = at.open()?;
    if !command.beyond_clock {
        let summary = snapshot(at)?.summary()?;
        let Summary { watermark_ms, max_timestamp_ms: newest_ms, settings, .. } = summary;
        let reached = Reached { watermark_ms, newest_ms };
        admin_batch::refuse_implausible(command.to_ms, store.now_ms(), reached, &settings)
            .map_err(implausible)?;
    }
    let by = asked_by();
    let asked = Asked { by: &by, reason: command.reason.as_deref() };
    let done = admin_batch::advance(&mut store, command.to_ms, asked)?;
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

fn implausible(refused: Implausible) -> CommandError {
    let Implausible { asked_ms, now_ms, newest_ms, ahead_ms } = refused;
    let at = |ms| format!("{ms} ({})", report::utc(ms));
    let newest = match newest_ms {
        Some(ms) => format!("the newest event, {}", at(ms)),
        None => "any event (there is none yet)".to_owned(),
    };
    let text = format!(
        "{} is more than {ahead_ms} ms ahead of the clock, {}, and of {newest}: whatever is older \
         would be late for ever, and the watermark never moves back; check the number, or add \
         --beyond-clock if it is meant",
        at(asked_ms),
        at(now_ms)
    );
    CommandError::new(Exit::Usage, text)
}
