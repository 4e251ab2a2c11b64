//! What a source sends: events, why a batch of them is refused, and the time of day.

pub mod clock;
pub mod event;
pub mod refusal;
