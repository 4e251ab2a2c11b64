//! What stands around the events: the array or the lines, the beginning and the end of a batch.

use std::io::Read;
use std::time::Duration;

use super::compress::Source;
use super::flaw::{Flaw, Stop, quote};
use super::format_hint;
use super::frame::Frame;
use super::json::{self, FIELDS_HINT, Fields};
use super::more_faults::{self, Passed, Passing};
use super::token::{First, Tokens, first_char, show_char};
use super::{Fault, GoesOn, Limits};
use crate::model::event::{Chunk, Place};
use crate::model::refusal::{Code, Refusal};

/// How far a batch is read.
pub(super) struct Structure<R> {
    frame: Frame<R>,
    /// None before anything was read.
    state: Option<StructureState>,
    events: u64,
    max_event_bytes: u64,
}

#[derive(Clone, Copy)]
enum StructureState {
    /// Behind the `[`.
    ArrayBegun,
    /// Behind an element.
    InArray,
    /// In a batch of lines; the line on which the last object ended, 0 before the first.
    Lines(u64),
    /// Behind the `]`.
    ArrayEnded,
}

impl<R: Read> Structure<R> {
    pub(super) fn new(raw: R, limits: Limits, block_bytes: usize) -> Structure<R> {
        Structure {
            frame: Frame::new(raw, &limits, block_bytes),
            state: None,
            events: 0,
            max_event_bytes: limits.max_event_bytes,
        }
    }

    /// How many events were read.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    pub(super) fn watch(&mut self, goes_on: GoesOn) {
        self.frame.watch(goes_on);
    }

    pub(super) fn allow_rest(&mut self, time: Duration) {
        self.frame.allow_rest(time);
    }

    /// How many bytes the buffer has.
    #[cfg(test)]
    pub(super) fn buffered(&self) -> usize {
        self.frame.capacity()
    }

    pub(super) fn into_source(self) -> Source<R> {
        self.frame.into_source()
    }

    /// Adds the next event to the chunk; false when the batch ended well instead.
    pub(super) fn next_event(&mut self, chunk: &mut Chunk) -> Result<bool, Fault> {
        let refused = match self.step(chunk) {
            Err(Fault::Refused(refused)) => refused,
            other => return other,
        };
        let (mut refused, events) = (refused, self.events);
        more_faults::add(self, &mut refused);
        self.events = events;
        // damaged data mostly shows as broken JSON first, which would be the wrong thing to say
        Err(self.frame.damage().unwrap_or(Fault::Refused(refused)))
    }

    /// That fault is told to whoever asks whether the packing is damaged.
    pub(super) fn put_back(&mut self, fault: Fault) {
        self.frame.put_back(fault);
    }

    /// Where it has come to in the batch.
    pub(super) fn byte(&self) -> u64 {
        self.frame.place().byte
    }

    /// Passes over the event that begins here and is wrong; false when its end cannot be told, or
    /// is not found before that byte.
    pub(super) fn pass_over(&mut self, before: u64) -> Result<bool, Fault> {
        let mut passing = Passing::default();
        loop {
            let (mut bytes, mut ended) = (0, None);
            for byte in self.frame.unread() {
                match passing.next(*byte) {
                    Passed::More => bytes += 1,
                    Passed::With => ended = Some(bytes + 1),
                    Passed::Before => ended = Some(bytes),
                    Passed::Lost => return Ok(false),
                }
                if ended.is_some() {
                    break;
                }
            }
            self.frame.advance(ended.unwrap_or(bytes));
            if ended.is_some() {
                self.events += 1;
                self.state = self.state.map(|state| match state {
                    StructureState::Lines(_) => StructureState::Lines(self.frame.place().line),
                    _ => StructureState::InArray,
                });
                return Ok(true);
            }
            if self.byte() >= before || !self.frame.more()? {
                return Ok(false);
            }
        }
    }

    /// Adds the next event to the chunk; false when the batch ended well. Of a fault in an event it
    /// stands where that begins.
    pub(super) fn step(&mut self, chunk: &mut Chunk) -> Result<bool, Fault> {
        loop {
            let state = match self.state {
                Some(state) => state,
                None => self.start()?,
            };
            match (state, self.frame.skip_space()?) {
                (StructureState::ArrayBegun, Some(b']')) => self.end_array(),
                (StructureState::ArrayBegun, Some(_)) => {
                    self.event("an event or ]", chunk)?;
                    self.state = Some(StructureState::InArray);
                    return Ok(true);
                }
                (StructureState::InArray, Some(b']')) => self.end_array(),
                (StructureState::InArray, Some(b',')) => {
                    self.frame.advance(1);
                    if self.frame.skip_space()?.is_none() {
                        return Err(self.open_array());
                    }
                    self.event("an event after the comma", chunk)?;
                    return Ok(true);
                }
                (StructureState::InArray, Some(_)) => {
                    return Err(self.unexpected("a comma or ] after the event"));
                }
                (StructureState::ArrayBegun | StructureState::InArray, None) => {
                    return Err(self.open_array());
                }
                (StructureState::Lines(_) | StructureState::ArrayEnded, None) => return Ok(false),
                (StructureState::Lines(line), Some(_)) if line < self.frame.place().line => {
                    self.event("an event", chunk)?;
                    self.state = Some(StructureState::Lines(self.frame.place().line));
                    return Ok(true);
                }
                (StructureState::Lines(_), Some(_)) => {
                    return Err(self.trailing(
                        "the end of the line after an object",
                        "in NDJSON each event stands on a line of its own, without commas \
                         between; in an array, [ and ] stand around them",
                    ));
                }
                (StructureState::ArrayEnded, Some(_)) => {
                    return Err(self.trailing(
                        "nothing after the end of the array",
                        "a batch is one array: were files joined? send each as a file of its own",
                    ));
                }
            }
        }
    }

    fn end_array(&mut self) {
        self.frame.advance(1);
        self.state = Some(StructureState::ArrayEnded);
    }

    /// Tells what the batch is by its first bytes.
    fn start(&mut self) -> Result<StructureState, Fault> {
        if self.frame.head(3) == b"\xef\xbb\xbf" {
            self.frame.advance(3);
        }
        let place = self.frame.place();
        // before any space is passed over: in a wide text half of it is no space
        if let Some(encoding) = wide_encoding(self.frame.head(4)) {
            let message = format!(
                "line {}, column {}: expected UTF-8, found {encoding}",
                place.line, place.column
            );
            let hint = "write the batch as UTF-8; in PowerShell: -Encoding utf8";
            return Err(refused(Refusal::new(Code::NotUtf8, message, hint).at(place)));
        }
        self.frame.skip_space()?;
        let place = self.frame.place();
        let head = self.frame.head(32);
        let state = match head.first() {
            Some(b'[') => {
                self.frame.advance(1);
                StructureState::ArrayBegun
            }
            Some(b'{') => StructureState::Lines(0),
            Some(_) if matches!(first_char(head), First::Cut) => {
                return Err(self.frame.more().err().unwrap_or_else(|| self.cut_event(None)));
            }
            Some(_) => return Err(not_a_batch(place, self.frame.head(format_hint::TELLING_BYTES))),
            None => return Err(empty(place)),
        };
        self.state = Some(state);
        Ok(state)
    }

    /// Adds the event that begins here to the chunk, and uses it up.
    fn event(&mut self, expected: &str, chunk: &mut Chunk) -> Result<(), Fault> {
        let place = self.frame.place();
        loop {
            let unread = self.frame.unread();
            let most = usize::try_from(self.max_event_bytes).unwrap_or(usize::MAX);
            let bytes = &unread[..unread.len().min(most)];
            let mut fields = Fields::default();
            let read = match bytes.first() {
                None => Err(Stop::More),
                Some(b'{') => json::read_event(bytes, &mut fields),
                Some(_) => Err(not_an_object(bytes, expected)),
            };
            match (read, fields.event(place)) {
                (Ok(bytes), Some(event)) => {
                    chunk.push(event);
                    self.frame.advance(bytes);
                    self.events += 1;
                    return Ok(());
                }
                (Err(Stop::Flaw(flaw)), _) => {
                    let at = self.frame.place_at(flaw.at);
                    return Err(self.flawed(*flaw, at, fields.id()));
                }
                _ if bytes.len() == most => {
                    let id = fields.id().map(str::to_owned);
                    return Err(self.event_too_large(id.as_deref()));
                }
                _ => {}
            }
            let id = fields.id().map(str::to_owned);
            if !self.frame.more()? {
                return Err(self.cut_event(id.as_deref()));
            }
        }
    }

    fn flawed(&self, flaw: Flaw, at: Place, id: Option<&str>) -> Fault {
        // of these two the words name the field already
        let named = matches!(flaw.code, Code::MissingField | Code::UnknownField);
        let field = flaw.field.as_ref().filter(|_| !named);
        let field = field.map_or(String::new(), |name| format!("field {}: ", quote(name)));
        let message = format!("{}: {field}{}", self.where_in_event(at, id), flaw.what);
        let mut refusal =
            Refusal::new(flaw.code, message, flaw.hint).at(at).in_event(self.events, id);
        refusal.field = flaw.field;
        refused(refusal)
    }

    fn where_in_event(&self, at: Place, id: Option<&str>) -> String {
        let id = id.map_or(String::new(), |id| format!(" (id {})", quote(id)));
        format!("event {}{id}, line {}, column {}", self.events, at.line, at.column)
    }

    fn event_too_large(&self, id: Option<&str>) -> Fault {
        let at = self.frame.place();
        let message = format!(
            "{}: expected the end of the event within {} bytes, found that it is larger",
            self.where_in_event(at, id),
            self.max_event_bytes
        );
        let hint = "is a closing quote or brace missing? otherwise raise max_event_bytes";
        let refusal = Refusal::new(Code::EventTooLarge, message, hint);
        refused(refusal.at(at).in_event(self.events, id))
    }

    /// The batch ends within the event that begins here.
    fn cut_event(&self, id: Option<&str>) -> Fault {
        let begun = self.frame.place();
        let end = self.frame.place_at(self.frame.unread().len());
        let message = format!(
            "{}: expected the rest of the event, found the end of the file; the event begins on \
             line {}, column {}",
            self.where_in_event(end, id),
            begun.line,
            begun.column
        );
        let refusal = Refusal::new(Code::Truncated, message, CUT_HINT);
        refused(refusal.at(end).in_event(self.events, id))
    }

    /// The batch ends between two events of an array.
    fn open_array(&self) -> Fault {
        let end = self.frame.place();
        let message = format!(
            "line {}, column {}: expected the array to go on or to end with ], found the end of \
             the file after {} events",
            end.line, end.column, self.events
        );
        refused(Refusal::new(Code::Truncated, message, CUT_HINT).at(end))
    }

    /// Something that is no JSON stands between two events of an array.
    fn unexpected(&mut self, expected: &str) -> Fault {
        self.frame.head(4);
        let at = self.frame.place();
        let Stop::Flaw(flaw) = Tokens::new(self.frame.unread()).unexpected(expected) else {
            return self.frame.more().err().unwrap_or_else(|| self.open_array());
        };
        let message = format!("line {}, column {}: {}", at.line, at.column, flaw.what);
        refused(Refusal::new(flaw.code, message, flaw.hint).at(at))
    }

    fn trailing(&mut self, expected: &str, hint: &str) -> Fault {
        let at = self.frame.place();
        let found = match first_char(self.frame.head(4)) {
            First::Char(found) => show_char(found),
            First::NotUtf8(byte) => format!("the byte 0x{byte:02X}"),
            First::Cut => "the beginning of a character".to_owned(),
        };
        let message = format!(
            "line {}, column {}: expected {expected}, found {found}, after {} events",
            at.line, at.column, self.events
        );
        refused(Refusal::new(Code::TrailingData, message, hint.to_owned()).at(at))
    }
}

const CUT_HINT: &str = "send the whole file again; write it under another name and rename it when \
                        it is complete";

fn refused(refusal: Refusal) -> Fault {
    Fault::Refused(Box::new(refusal))
}

fn empty(place: Place) -> Fault {
    refused(Refusal::new(
        Code::Empty,
        match place.byte {
            0 => "the batch is empty: expected an array of events or one event a line",
            _ => "the batch has only white space: expected events",
        },
        "empty: did the sender run out of room? a batch of no events is written []",
    ))
}

/// What is wrong with an element or a line that doesn't begin with `{`.
fn not_an_object(bytes: &[u8], expected: &str) -> Stop {
    let mut tokens = Tokens::new(bytes);
    if matches!(bytes[0], b']' | b'}' | b',' | b':') {
        return tokens.unexpected(expected);
    }
    match tokens.value() {
        Ok(found) => {
            let what = format!("expected an event as an object, found {}", found.found());
            Stop::flaw(Code::WrongType, 0, what, FIELDS_HINT)
        }
        Err(stop) => stop,
    }
}

/// The encoding that the first bytes of a text betray, if it isn't UTF-8.
fn wide_encoding(head: &[u8]) -> Option<&'static str> {
    let begins = |byte: u8| matches!(byte, b'[' | b'{' | b' ' | b'\t' | b'\n' | b'\r');
    match head {
        [0xff, 0xfe, 0, 0, ..] => Some("UTF-32 (little-endian, by its byte order mark)"),
        [0, 0, 0xfe, 0xff, ..] => Some("UTF-32 (big-endian, by its byte order mark)"),
        [0xff, 0xfe, ..] => Some("UTF-16 (little-endian, by its byte order mark)"),
        [0xfe, 0xff, ..] => Some("UTF-16 (big-endian, by its byte order mark)"),
        [first, 0, 0, 0, ..] if begins(*first) => Some("UTF-32 (little-endian)"),
        [0, 0, 0, first, ..] if begins(*first) => Some("UTF-32 (big-endian)"),
        [first, 0, ..] if begins(*first) => Some("UTF-16 (little-endian)"),
        [0, first, ..] if begins(*first) => Some("UTF-16 (big-endian)"),
        _ => None,
    }
}

const NO_UNPACKING: &str = "only gzip and zstd are unpacked: send it so, or unpacked";

/// What other files begin with, what they are, and what to do.
const SIGNATURES: [(&[u8], &str, &str); 12] = [
    (b"\x1f\x8b", "gzip data inside the compressed data", "compress the batch once only"),
    (b"\x28\xb5\x2f\xfd", "zstd data inside the compressed data", "compress the batch once only"),
    (b"PK\x03\x04", "a zip archive", NO_UNPACKING),
    (b"BZh", "bzip2 data", NO_UNPACKING),
    (b"\xfd7zXZ\0", "xz data", NO_UNPACKING),
    (b"\x04\x22\x4d\x18", "lz4 data", NO_UNPACKING),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", NO_UNPACKING),
    (b"PAR1", "a Parquet file", "export the events as NDJSON"),
    (b"Obj\x01", "an Avro file", "export the events as NDJSON"),
    (b"SQLite format 3\0", "an SQLite database", "export the events as NDJSON"),
    (b"<", "HTML or XML", "did a download or a proxy answer with an error page?"),
    (b"\0", "NUL bytes", "did the machine of the sender crash while it wrote?"),
];

fn not_a_batch(place: Place, head: &[u8]) -> Fault {
    let signature = SIGNATURES.iter().find(|(magic, ..)| head.starts_with(magic));
    let known =
        signature.map(|(_, found, hint)| (*found, *hint)).or_else(|| format_hint::of_batch(head));
    let (found, hint) = match known {
        Some((found, hint)) => (found.to_owned(), hint),
        None => (
            match first_char(head) {
                First::Char(_) => {
                    let line = head.split(|byte| *byte == b'\n').next().unwrap_or(head);
                    let valid = match std::str::from_utf8(line) {
                        Ok(text) => text,
                        Err(error) => {
                            std::str::from_utf8(&line[..error.valid_up_to()]).unwrap_or_default()
                        }
                    };
                    format!("text that begins with {}", quote(valid))
                }
                First::NotUtf8(byte) => format!("the byte 0x{byte:02X}"),
                First::Cut => "the end".to_owned(),
            },
            FIELDS_HINT,
        ),
    };
    let message = format!(
        "line {}, column {}: expected a JSON array of events or one event a line, found {found}",
        place.line, place.column
    );
    refused(Refusal::new(Code::NotABatch, message, hint).at(place))
}
