//! What has to hold of any bytes that are read as a batch: no cut of them changes the outcome, a
//! fault has a place that is there, and a slow reading through serde_json agrees.

use std::io::{self, Read};

use sha2::Digest as _;
use windowflow::decode::{Decoder, Fault, Limits};
use windowflow::model::event::{Chunk, Event};
use windowflow::model::refusal::{Code, Refusal};

use super::slow::{self, Owned, Reading};

/// The most bytes that a batch may unpack to here.
pub const MOST_INFLATED: u64 = 8 << 20;

/// What came of a batch: the good events, and the fault behind them.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub events: Vec<Owned>,
    pub refusal: Option<Refusal>,
}

impl Outcome {
    /// The code, or `ok`.
    pub fn code(&self) -> &'static str {
        self.refusal.as_ref().map_or("ok", |refusal| refusal.code.name())
    }
}

/// Reads a batch in several ways, and says what came of it.
///
/// # Panics
/// When something does not hold.
pub fn judge(bytes: &[u8]) -> Outcome {
    let limits = Limits { max_inflated_bytes: MOST_INFLATED, ..Limits::default() };
    let whole = read(Decoder::new(bytes, limits.clone()), bytes);
    let turn = bytes
        .iter()
        .fold(bytes.len(), |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    // pieces of one byte cost much, and find no more in the middle of what is large
    let (piece, block) = match bytes.len() {
        0..4096 => ([1, 2, 7, 64][turn % 4], [8, 9, 64, 300][turn / 4 % 4]),
        _ => (4096, 5000),
    };
    let cut = Pieces { bytes, piece, calls: turn };
    let other = read(Decoder::with_sizes(cut, limits, block, 1 + turn / 16 % 5), bytes);
    assert!(same(&whole, &other), "blocks of {block}, reads of {piece}: {whole:?}\n{other:?}");
    agrees(bytes, &whole);
    if let Some(refusal) = &whole.refusal {
        check_refusal(bytes, &whole, refusal);
    } else {
        comes_back(&whole.events);
    }
    whole
}

/// Whether two ways of reading come to the same. An unpacker sees damage sooner or later, and may
/// keep to itself some of what came before it: then the place is about, and events may be missing.
fn same(one: &Outcome, two: &Outcome) -> bool {
    let common = one.events.len().min(two.events.len());
    match (&one.refusal, &two.refusal) {
        (Some(first), Some(second)) if first.code == Code::BadCompression => {
            second.code == first.code && one.events[..common] == two.events[..common]
        }
        _ => one == two,
    }
}

/// The outcome of one way of reading; asked again, the decoder has to say the same.
fn read<R: Read>(mut decoder: Decoder<R>, bytes: &[u8]) -> Outcome {
    let (mut chunk, mut events) = (Chunk::default(), Vec::new());
    let refusal = loop {
        let read = decoder.read_chunk(&mut chunk);
        assert_eq!(chunk.first_index(), events.len() as u64);
        events.extend(chunk.iter().map(owned));
        match read {
            Ok(true) => {}
            Ok(false) => break None,
            Err(Fault::Refused(refusal)) => break Some(*refusal),
            Err(Fault::Io(error)) => panic!("memory cannot fail: {error}"),
        }
    };
    match (decoder.read_chunk(&mut chunk), &refusal) {
        (Ok(false), None) => {}
        (Err(Fault::Refused(again)), Some(first)) => assert_eq!(*again, *first),
        (again, first) => panic!("first {first:?}, then {again:?}"),
    }
    assert!(chunk.is_empty());
    let digest = decoder.digest().unwrap();
    assert_eq!((digest.bytes, digest.whole), (bytes.len() as u64, true));
    assert_eq!(digest.sha256, format!("{:x}", sha2::Sha256::digest(bytes)));
    Outcome { events, refusal }
}

fn owned(event: Event<'_>) -> Owned {
    Owned {
        id: event.id.to_owned(),
        key: event.key.to_owned(),
        timestamp_ms: event.timestamp_ms,
        value: event.value,
        source: event.source.map(str::to_owned),
        producer_version: event.producer_version.map(str::to_owned),
    }
}

/// Holds the outcome against the slow reading.
fn agrees(bytes: &[u8], outcome: &Outcome) {
    // these the slow reading does not know
    const BOUNDS: [Code; 2] = [Code::EventTooLarge, Code::InflatesTooFar];
    let code = outcome.refusal.as_ref().map(|refusal| refusal.code);
    match slow::read(bytes, MOST_INFLATED) {
        Reading::Taken(_) if code.is_some_and(|code| BOUNDS.contains(&code)) => {}
        Reading::Taken(events) => {
            assert_eq!(code, None, "the slow reading takes it: {outcome:?}");
            assert_eq!(outcome.events, events);
        }
        Reading::Refused { is_json } => {
            let code = code.unwrap_or_else(|| panic!("the slow reading refuses it: {outcome:?}"));
            let no_json = [Code::BadJson, Code::Truncated, Code::NotUtf8, Code::Empty];
            let says_so = no_json.contains(&code) || code == Code::TrailingData;
            assert!(!(is_json && says_so), "it is JSON: {outcome:?}");
        }
        // what is wrong before it is too large comes first
        Reading::TooFar => assert!(code.is_some(), "it inflates too far"),
    }
}

/// Holds the place and the words of a refusal against the batch.
fn check_refusal(bytes: &[u8], outcome: &Outcome, refusal: &Refusal) {
    let message = &refusal.message;
    assert!(!message.is_empty() && message.len() < 700, "{message}");
    assert!(!message.ends_with('.') && !message.contains(char::is_control), "{message:?}");
    assert!(!refusal.hint.is_empty() && !refusal.hint.contains(char::is_control));
    if let Some(index) = refusal.event_index {
        assert_eq!(index, outcome.events.len() as u64, "{refusal:?}");
    }
    let (Some(byte), Some(line), Some(column)) = (refusal.byte, refusal.line, refusal.column)
    else {
        let none = (refusal.byte, refusal.line, refusal.column) == (None, None, None);
        assert!(none, "half a place: {refusal:?}");
        return;
    };
    // damage that comes later has no place in the batch, and is what is said then
    let text = slow::unpacked(bytes, MOST_INFLATED).expect("a place in a damaged batch");
    let before = text.get(..byte as usize).unwrap_or_else(|| panic!("beyond the end: {refusal:?}"));
    let lines = before.iter().filter(|byte| **byte == b'\n').count() as u64;
    let begin = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1) as u64;
    assert_eq!((line, column), (lines + 1, byte - begin + 1), "{refusal:?}");
}

/// What was taken is written anew in both forms, and is the same when it is read again.
fn comes_back(events: &[Owned]) {
    let written: Vec<String> = events.iter().map(written).collect();
    let mut texts = vec![format!("[{}]", written.join(","))];
    if !written.is_empty() {
        texts.push(written.join("\n"));
    }
    for text in texts {
        let again = read(Decoder::new(text.as_bytes(), Limits::default()), text.as_bytes());
        assert!(again.refusal.is_none() && again.events == events, "{again:?}: {text}");
    }
}

fn written(event: &Owned) -> String {
    let mut members = serde_json::json!({
        "id": event.id,
        "key": event.key,
        "timestamp_ms": event.timestamp_ms,
        "value": event.value,
    });
    let optional = [("source", &event.source), ("producer_version", &event.producer_version)];
    for (name, text) in optional {
        if let Some(text) = text {
            members[name] = text.as_str().into();
        }
    }
    members.to_string()
}

/// Gives a few bytes at once, and is interrupted now and then.
struct Pieces<'a> {
    bytes: &'a [u8],
    piece: usize,
    calls: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.calls = self.calls.wrapping_add(1);
        if self.calls % 11 == 3 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let bytes = into.len().min(self.piece);
        self.bytes.read(&mut into[..bytes])
    }
}
