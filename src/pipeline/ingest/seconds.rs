//! What becomes of a batch with timestamps that look like seconds.

use std::collections::HashSet;

use crate::engine::{LikeSeconds, SecondsRule};
use crate::model::clock::utc;
use crate::model::event::Event;
use crate::model::refusal::{Code, Refusal};

/// What becomes of a batch with timestamps that look like seconds, from sources that have sent
/// milliseconds or nothing.
#[derive(Clone, Copy, Debug)]
pub enum Seconds<'a> {
    /// They are taken as they stand.
    Accept,
    /// The batch is refused.
    Refuse,
    /// The batch is refused unless the SHA-256 of its raw bytes, in lower-case hexadecimal, is one
    /// of these.
    RefuseUnless(&'a HashSet<String>),
}

impl Seconds<'_> {
    /// What the engine is to do.
    pub(super) fn rule(self) -> SecondsRule {
        match self {
            Seconds::Accept => SecondsRule::Accept,
            Seconds::RefuseUnless(accepted) if !accepted.is_empty() => SecondsRule::Name,
            Seconds::Refuse | Seconds::RefuseUnless(_) => SecondsRule::Stop,
        }
    }

    /// Whether a batch of that hash is taken as it stands.
    pub(super) fn accepts(self, sha256: &str) -> bool {
        match self {
            Seconds::Accept => true,
            Seconds::Refuse => false,
            Seconds::RefuseUnless(accepted) => accepted.contains(sha256),
        }
    }
}

/// The refusal of a batch for that event.
pub(super) fn refusal(
    event: &Event<'_>,
    index: u64,
    source: &str,
    suspect: LikeSeconds,
) -> Refusal {
    let ms = event.timestamp_ms;
    let sent = match suspect.greatest_ms {
        Some(greatest_ms) => {
            format!("has sent milliseconds so far, up to {greatest_ms} ({})", utc(greatest_ms))
        }
        None => "has sent nothing so far".to_owned(),
    };
    let message = format!(
        "event {index} at line {} (id {:?}): timestamp_ms {ms} looks like seconds: read as \
         milliseconds it is {}, read as seconds {}; its source {source:?} {sent}",
        event.place.line,
        event.id,
        utc(ms),
        utc(ms.saturating_mul(1000)),
    );
    let hint = "timestamp_ms counts milliseconds since 1970: multiply by 1000 in the producer and in \
                this file, then put the file back; if the event really is of 1970, take the batch as \
                it stands: windowflow retry --accept-seconds FILE, or ingest --accept-seconds FILE";
    Refusal::new(Code::Seconds, message, hint)
        .at(event.place)
        .in_event(index, Some(event.id))
        .in_field("timestamp_ms")
}
