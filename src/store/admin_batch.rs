//! What batches without a file do, by name.

use crate::engine::Presence;

/// What a batch without a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The watermark was set.
    Advance,
    /// Sources were declared.
    Declare,
    /// Sources fell idle.
    Idle,
    /// Sources are back, before their first event is judged.
    Active,
    /// Sources were retired: they are not waited for until their next event.
    Retire,
    /// Sources are expected, since files of them wait in the inbox.
    Expect,
    /// The files of expected sources brought nothing: these are not waited for any more.
    StopExpecting,
    /// Held events were judged again.
    Release,
    /// Held events were dropped for good.
    Discard,
    /// Kept late events became corrections.
    Correct,
}

impl Act {
    /// Every act.
    pub const ALL: [Act; 10] = [
        Act::Advance,
        Act::Declare,
        Act::Idle,
        Act::Active,
        Act::Retire,
        Act::Expect,
        Act::StopExpecting,
        Act::Release,
        Act::Discard,
        Act::Correct,
    ];

    /// The act of that name.
    pub fn from_name(name: &str) -> Option<Act> {
        Act::ALL.into_iter().find(|act| act.name() == name)
    }

    /// How the sources that it concerns stand afterwards; none for an act of another kind.
    pub fn presence(self) -> Option<Presence> {
        match self {
            Act::Declare => Some(Presence::Declared),
            Act::Idle => Some(Presence::Idle),
            Act::Active => Some(Presence::Active),
            Act::Retire => Some(Presence::Retired),
            Act::Expect => Some(Presence::Expected),
            Act::StopExpecting => Some(Presence::NotExpected),
            Act::Advance | Act::Release | Act::Discard | Act::Correct => None,
        }
    }

    /// The act after which sources stand so.
    pub fn of_presence(presence: Presence) -> Act {
        match presence {
            Presence::Declared => Act::Declare,
            Presence::Idle => Act::Idle,
            Presence::Active => Act::Active,
            Presence::Retired => Act::Retire,
            Presence::Expected => Act::Expect,
            Presence::NotExpected => Act::StopExpecting,
        }
    }

    /// The name, as stored and shown.
    pub fn name(self) -> &'static str {
        match self {
            Act::Advance => "advance",
            Act::Declare => "declare",
            Act::Idle => "idle",
            Act::Active => "active",
            Act::Retire => "retire",
            Act::Expect => "expect",
            Act::StopExpecting => "stop_expecting",
            Act::Release => "release",
            Act::Discard => "discard",
            Act::Correct => "correct",
        }
    }
}
