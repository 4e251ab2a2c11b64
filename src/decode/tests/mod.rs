//! What the decoder takes and refuses; here, how the tests read a batch and say what they got.

mod bounds;
mod compressed;
mod good;
mod random;
mod refused;
mod refused_bytes;

use std::io::{self, Read};

use super::{Decoder, Digest, Fault, Limits};
use crate::model::event::{Chunk, Event, Place};
use crate::model::refusal::Refusal;

/// A good event for the tests that need any.
const GOOD: &str = r#"{"id":"a","key":"k","timestamp_ms":1,"value":2}"#;

/// An event that stands on its own.
#[derive(Clone, Debug, PartialEq)]
struct Owned {
    id: String,
    key: String,
    timestamp_ms: i64,
    value: i64,
    source: Option<String>,
    producer_version: Option<String>,
    place: Place,
}

impl From<Event<'_>> for Owned {
    fn from(event: Event<'_>) -> Owned {
        Owned {
            id: event.id.to_owned(),
            key: event.key.to_owned(),
            timestamp_ms: event.timestamp_ms,
            value: event.value,
            source: event.source.map(str::to_owned),
            producer_version: event.producer_version.map(str::to_owned),
            place: event.place,
        }
    }
}

/// What came of a batch: the good events, and the fault behind them.
#[derive(Debug)]
struct Outcome {
    events: Vec<Owned>,
    fault: Option<Fault>,
    digest: io::Result<Digest>,
}

impl Outcome {
    #[track_caller]
    fn refusal(&self) -> &Refusal {
        match &self.fault {
            Some(Fault::Refused(refusal)) => refusal,
            other => panic!("expected a refusal, found {other:?}"),
        }
    }

    #[track_caller]
    fn good(&self) -> &[Owned] {
        assert!(self.fault.is_none(), "{:?}", self.fault);
        &self.events
    }

    fn ids(&self) -> Vec<&str> {
        self.events.iter().map(|event| event.id.as_str()).collect()
    }
}

/// Reads to the end or the fault, with blocks and chunks of the given sizes.
fn decode_with(raw: impl Read, limits: Limits, block_bytes: usize, chunk_events: usize) -> Outcome {
    let mut decoder = Decoder::with_sizes(raw, limits, block_bytes, chunk_events);
    let (mut chunk, mut events) = (Chunk::default(), Vec::new());
    let fault = loop {
        let read = decoder.read_chunk(&mut chunk);
        assert_eq!(chunk.first_index(), events.len() as u64);
        assert!(chunk.len() <= chunk_events);
        events.extend(chunk.iter().map(Owned::from));
        match read {
            Ok(true) => assert!(!chunk.is_empty()),
            Ok(false) => break None,
            Err(fault) => break Some(fault),
        }
    };
    // asked again it says the same
    match (decoder.read_chunk(&mut chunk), &fault) {
        (Ok(false), None) => {}
        (Err(Fault::Refused(again)), Some(Fault::Refused(first))) => assert_eq!(&again, first),
        (Err(Fault::Io(again)), Some(Fault::Io(first))) => assert_eq!(again.kind(), first.kind()),
        (again, first) => panic!("first {first:?}, then {again:?}"),
    }
    assert!(chunk.is_empty());
    Outcome { events, fault, digest: decoder.digest() }
}

/// Decodes as a user does, and checks that no other cut of the bytes gives anything else.
#[track_caller]
fn decode(bytes: &[u8]) -> Outcome {
    decode_within(bytes, &Limits::default())
}

#[track_caller]
fn decode_within(bytes: &[u8], limits: &Limits) -> Outcome {
    let whole = decode_with(bytes, limits.clone(), super::BLOCK_BYTES, super::CHUNK_EVENTS);
    let cuts: [(usize, usize, usize); 5] =
        [(1, 8, 1), (3, 9, 2), (7, 64, 3), (1, super::BLOCK_BYTES, 7), (usize::MAX, 16, 4096)];
    for (step, block_bytes, chunk_events) in cuts {
        let other = decode_with(Steps(bytes, step), limits.clone(), block_bytes, chunk_events);
        let cut = format!("reads of {step}, blocks of {block_bytes}, chunks of {chunk_events}");
        assert_eq!(other.events, whole.events, "{cut}");
        match (&other.fault, &whole.fault) {
            (None, None) => {}
            (Some(Fault::Refused(one)), Some(Fault::Refused(two))) => assert_eq!(one, two, "{cut}"),
            (one, two) => panic!("{cut}: {one:?} is not {two:?}"),
        }
    }
    let digest = whole.digest.as_ref().unwrap();
    if digest.whole {
        assert_eq!(digest.bytes, bytes.len() as u64);
    }
    whole
}

/// A reader that gives at most so many bytes at once, and is interrupted in between.
struct Steps<'a>(&'a [u8], usize);

impl Read for Steps<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.0.len() % 5 == 3 && self.1 == 3 {
            self.1 = 4;
            return Err(io::ErrorKind::Interrupted.into());
        }
        let bytes = into.len().min(self.1);
        self.0.read(&mut into[..bytes])
    }
}

/// The place of the mark § in the text, and the text without it.
fn marked(text: &str) -> (Option<Place>, String) {
    let bare = text.replacen('§', "", 1);
    let place = text.find('§').map(|byte| {
        let before = &text[..byte];
        let line = before.matches('\n').count() as u64 + 1;
        let column = (byte - before.rfind('\n').map_or(0, |end| end + 1)) as u64 + 1;
        Place { byte: byte as u64, line, column }
    });
    (place, bare)
}

#[test]
fn a_decoder_can_move_to_another_thread() {
    fn is_send<T: Send>(_: &T) {}
    is_send(&Decoder::new(io::empty(), Limits::default()));
}
