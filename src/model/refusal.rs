//! Why a batch is refused: a code for programs; for people what is wrong, where, and what to do.

use serde::Serialize;

use super::event::Place;

/// What a batch can be refused for. The names are public: scripts match on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each name says it, and `hint` says it at length")]
pub enum Code {
    Empty,
    NotUtf8,
    BadJson,
    Truncated,
    TrailingData,
    NotABatch,
    MissingField,
    UnknownField,
    DuplicateField,
    WrongType,
    OutOfRange,
    Blank,
    TooLong,
    EventTooLarge,
    FileTooLarge,
    InflatesTooFar,
    BadCompression,
    Conflict,
    Overflow,
    NotARegularFile,
    Unreadable,
    Crashed,
    UnknownSource,
    TooManySources,
    Seconds,
}

impl Code {
    /// Every code, in the order of the contract.
    pub const ALL: [Code; 25] = [
        Code::Empty,
        Code::NotUtf8,
        Code::BadJson,
        Code::Truncated,
        Code::TrailingData,
        Code::NotABatch,
        Code::MissingField,
        Code::UnknownField,
        Code::DuplicateField,
        Code::WrongType,
        Code::OutOfRange,
        Code::Blank,
        Code::TooLong,
        Code::EventTooLarge,
        Code::FileTooLarge,
        Code::InflatesTooFar,
        Code::BadCompression,
        Code::Conflict,
        Code::Overflow,
        Code::NotARegularFile,
        Code::Unreadable,
        Code::Crashed,
        Code::UnknownSource,
        Code::TooManySources,
        Code::Seconds,
    ];

    /// The public name, as in `NAME.error.json`.
    pub fn name(self) -> &'static str {
        match self {
            Code::Empty => "empty",
            Code::NotUtf8 => "not_utf8",
            Code::BadJson => "bad_json",
            Code::Truncated => "truncated",
            Code::TrailingData => "trailing_data",
            Code::NotABatch => "not_a_batch",
            Code::MissingField => "missing_field",
            Code::UnknownField => "unknown_field",
            Code::DuplicateField => "duplicate_field",
            Code::WrongType => "wrong_type",
            Code::OutOfRange => "out_of_range",
            Code::Blank => "blank",
            Code::TooLong => "too_long",
            Code::EventTooLarge => "event_too_large",
            Code::FileTooLarge => "file_too_large",
            Code::InflatesTooFar => "inflates_too_far",
            Code::BadCompression => "bad_compression",
            Code::Conflict => "conflict",
            Code::Overflow => "overflow",
            Code::NotARegularFile => "not_a_regular_file",
            Code::Unreadable => "unreadable",
            Code::Crashed => "crashed",
            Code::UnknownSource => "unknown_source",
            Code::TooManySources => "too_many_sources",
            Code::Seconds => "seconds",
        }
    }

    /// The code of that public name.
    pub fn from_name(name: &str) -> Option<Code> {
        Code::ALL.into_iter().find(|code| code.name() == name)
    }
}

/// The earlier side of a conflict, as far as the store still knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Other {
    /// The file that brought the id first.
    pub file: Option<String>,
    /// The batch that took it in; none when it stands earlier in the refused batch itself.
    pub batch: Option<u64>,
    /// The source of that batch.
    pub source: Option<String>,
    /// The index of the event in that batch, from 0.
    pub event_index: Option<u64>,
    /// The key that it had.
    pub key: Option<String>,
    /// The timestamp that it had.
    pub timestamp_ms: Option<i64>,
    /// The value that it had.
    pub value: Option<i64>,
}

/// One refusal; what is unknown is none. The message reads well alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// What kind of fault it is.
    pub code: Code,
    /// What is wrong, where, what was expected, what was found.
    pub message: String,
    /// What to do about it.
    pub hint: String,
    /// Which event of the batch, from 0.
    pub event_index: Option<u64>,
    /// Its id, where that is known.
    pub event_id: Option<String>,
    /// The field that is at fault.
    pub field: Option<String>,
    /// Line in the (decompressed) batch, from 1.
    pub line: Option<u64>,
    /// Column in bytes, from 1.
    pub column: Option<u64>,
    /// Byte in the (decompressed) batch, from 0.
    pub byte: Option<u64>,
    /// The other side of a conflict.
    pub other: Option<Other>,
    /// How many events are at fault, where it is more than this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<u64>,
    /// Whether these are all; false where the batch was not read to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_faults: Option<bool>,
    /// The next of them, at most 19.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<Refusal>,
}

impl Refusal {
    /// A refusal of which only the kind and the words are known.
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Refusal {
        Refusal {
            code,
            message: message.into(),
            hint: hint.into(),
            event_index: None,
            event_id: None,
            field: None,
            line: None,
            column: None,
            byte: None,
            other: None,
            faults: None,
            all_faults: None,
            more: Vec::new(),
        }
    }

    /// The same, at a place in the batch.
    pub fn at(mut self, place: Place) -> Refusal {
        self.line = Some(place.line);
        self.column = Some(place.column);
        self.byte = Some(place.byte);
        self
    }

    /// The same, in the event with that index (from 0).
    pub fn in_event(mut self, index: u64, id: Option<&str>) -> Refusal {
        self.event_index = Some(index);
        self.event_id = id.map(str::to_owned);
        self
    }

    /// The same, in that field.
    pub fn in_field(mut self, field: &str) -> Refusal {
        self.field = Some(field.to_owned());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_written() {
        for code in Code::ALL {
            let written = serde_json::to_value(code).unwrap();
            assert_eq!(written, code.name());
            assert_eq!(Code::from_name(code.name()), Some(code));
        }
        assert_eq!(Code::from_name("no_such_code"), None);
    }
}
