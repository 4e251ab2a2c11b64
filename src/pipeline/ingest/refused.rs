//! The words for what a batch is refused for once its events are judged.

use crate::engine::NotAdmitted;
use crate::model::event::Event;
use crate::model::refusal::{Code, Other, Refusal};

/// That an event contradicts what came before under its id.
pub(super) fn conflict(event: &Event<'_>, index: u64, other: Other) -> Refusal {
    let place = match (&other.file, other.batch) {
        (Some(file), Some(batch)) => format!("batch {batch}, {file}"),
        (None, Some(batch)) => format!("batch {batch}"),
        (Some(file), None) => format!("{file} itself"),
        (None, None) => "an earlier batch".to_owned(),
    };
    let at = other.event_index.map(|index| format!(", event {index}")).unwrap_or_default();
    let before = match (&other.key, other.timestamp_ms, other.value) {
        (Some(key), Some(timestamp_ms), Some(value)) => {
            format!("key {key:?}, timestamp_ms {timestamp_ms}, value {value}")
        }
        _ => "another payload".to_owned(),
    };
    let message = format!(
        "event {index} at line {} contradicts what came before under its id {:?}: it says key \
            {:?}, timestamp_ms {}, value {}; {place}{at} said {before}",
        event.place.line, event.id, event.key, event.timestamp_ms, event.value,
    );
    let hint = "an id stands for one measurement for ever: if this is another measurement, give \
            it an id of its own; if it is the same, take this event out; then put the file \
            back";
    let mut refusal =
        Refusal::new(Code::Conflict, message, hint).at(event.place).in_event(index, Some(event.id));
    refusal.other = Some(other);
    refusal
}

/// That the source of an event may not send.
pub(super) fn not_admitted(
    event: &Event<'_>,
    index: u64,
    source: &str,
    why: NotAdmitted,
) -> Refusal {
    let line = event.place.line;
    let (code, found, hint) = match why {
        NotAdmitted::Unknown => (
            Code::UnknownSource,
            "which is neither known nor declared, and [sources] accept_new is false".to_owned(),
            "if the source is right, declare it (windowflow sources --declare NAME, or declared in \
             the configuration); if its name is wrong, mend the file or its folder; then put the \
             file back",
        ),
        NotAdmitted::TooMany { max } => (
            Code::TooManySources,
            format!("which would be one more than {max}, the bound of [sources] max"),
            "look for what makes up names (windowflow sources): a source is a sender, not a thing \
             that is measured, which belongs in the key; if all of them are right, set [sources] \
             max higher; then put the file back",
        ),
    };
    let message = format!("event {index} at line {line} is of the source {source:?}, {found}");
    Refusal::new(code, message, hint)
        .at(event.place)
        .in_event(index, Some(event.id))
        .in_field("source")
}
