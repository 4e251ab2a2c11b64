//! The bounds: bytes of an event, of a file, of memory and of a read, and faults of the reader.

use std::cell::Cell;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::Digest as _;

use super::{GOOD, decode, decode_with, decode_within};
use crate::decode::{BLOCK_BYTES, CHUNK_EVENTS, Decoder, Fault, Limits};
use crate::model::event::Chunk;
use crate::model::refusal::Code;

fn event_limit(bytes: usize) -> Limits {
    Limits { max_event_bytes: bytes as u64, ..Limits::default() }
}

fn file_limit(bytes: usize) -> Limits {
    Limits { max_file_bytes: Some(bytes as u64), ..Limits::default() }
}

#[test]
fn an_event_may_have_just_as_many_bytes_as_allowed() {
    for text in [GOOD.to_owned(), format!("[{GOOD}]"), format!("\n{GOOD}\n{GOOD}")] {
        let outcome = decode_within(text.as_bytes(), &event_limit(GOOD.len()));
        assert!(!outcome.good().is_empty());
        let outcome = decode_within(text.as_bytes(), &event_limit(GOOD.len() - 1));
        let refusal = outcome.refusal();
        assert_eq!(refusal.code, Code::EventTooLarge);
        assert_eq!(refusal.byte, Some(text.find('{').unwrap() as u64));
        assert_eq!((refusal.event_index, refusal.event_id.as_deref()), (Some(0), Some("a")));
    }
}

#[test]
fn space_counts_only_within_an_event() {
    let between = format!("{}{GOOD}{}\n{}{GOOD}", " ".repeat(500), " ".repeat(500), " ".repeat(9));
    assert_eq!(decode_within(between.as_bytes(), &event_limit(100)).good().len(), 2);
    let within = GOOD.replacen(':', &format!(":{}", " ".repeat(100)), 1);
    let outcome = decode_within(within.as_bytes(), &event_limit(100));
    assert_eq!(outcome.refusal().code, Code::EventTooLarge);
}

#[test]
fn other_faults_within_the_allowed_part_come_first() {
    let long = "x".repeat(1000);
    for (text, code) in [
        (format!("[{{\"id\":1,\"key\":\"{long}\"}}]"), Code::WrongType),
        (format!("[{{\"id\":\"{long}\"}}]"), Code::EventTooLarge),
        (format!("[{{\"id\":\"{long}"), Code::EventTooLarge),
        (format!("[\"{long}\"]"), Code::EventTooLarge),
        (format!("[{{\"id\":\"\x01{long}"), Code::BadJson),
        (format!("[{{\"value\":{}}}]", "1".repeat(1000)), Code::EventTooLarge),
    ] {
        assert_eq!(
            decode_within(text.as_bytes(), &event_limit(100)).refusal().code,
            code,
            "{text}"
        );
    }
}

#[test]
fn nesting_costs_nothing() {
    let deep = format!("{{\"value\":{}", "[".repeat(5_000_000));
    let outcome = decode_with(deep.as_bytes(), Limits::default(), BLOCK_BYTES, CHUNK_EVENTS);
    assert_eq!(outcome.refusal().code, Code::WrongType);
    let deep = "[".repeat(5_000_000);
    let outcome = decode_with(deep.as_bytes(), Limits::default(), BLOCK_BYTES, CHUNK_EVENTS);
    assert_eq!((outcome.refusal().code, outcome.refusal().byte), (Code::WrongType, Some(1)));
}

#[test]
fn a_file_may_have_just_as_many_bytes_as_allowed() {
    let text = format!("{GOOD}\n{GOOD}\n");
    assert_eq!(decode_within(text.as_bytes(), &file_limit(text.len())).good().len(), 2);
    for most in 0..text.len() {
        let outcome = decode_within(text.as_bytes(), &file_limit(most));
        assert_eq!(outcome.refusal().code, Code::FileTooLarge, "{most}");
        let whole = [GOOD.len(), text.len() - 1].iter().filter(|end| **end <= most).count();
        assert_eq!(outcome.events.len(), whole, "{most}");
        assert!(!outcome.digest.unwrap().whole);
    }
    let outcome = decode_within(b"[1] and more", &file_limit(3));
    assert_eq!(outcome.refusal().code, Code::WrongType);
}

#[test]
fn the_rest_of_too_large_a_file_is_not_read() {
    let (asked, given) = (Cell::new(0), Cell::new(0));
    let endless = Watched { left: u64::MAX, asked: &asked, given: &given };
    let outcome = decode_with(endless, file_limit(1 << 20), BLOCK_BYTES, CHUNK_EVENTS);
    assert_eq!(outcome.refusal().code, Code::FileTooLarge);
    assert!(given.get() <= (1 << 20) + BLOCK_BYTES as u64);
}

#[test]
fn reads_are_large_and_memory_is_not() {
    let (asked, given) = (Cell::new(0), Cell::new(0));
    let bytes = 50_000_000;
    let space = Watched { left: bytes, asked: &asked, given: &given };
    let mut decoder = Decoder::new(space, Limits::default());
    let refused = decoder.read_chunk(&mut Chunk::default());
    assert!(matches!(refused, Err(Fault::Refused(refusal)) if refusal.code == Code::Empty));
    assert!(asked.get() <= bytes / (16 << 10), "{} reads", asked.get());
    assert_eq!(decoder.structure.buffered(), BLOCK_BYTES);
    assert_eq!(decoder.digest().unwrap().bytes, bytes);
}

#[test]
fn the_buffer_grows_no_further_than_one_event_needs() {
    let text = format!("[{{\"id\":\"{}", "x".repeat(5 << 20));
    let mut decoder = Decoder::new(text.as_bytes(), Limits::default());
    let refused = decoder.read_chunk(&mut Chunk::default());
    assert!(matches!(refused, Err(Fault::Refused(refusal)) if refusal.code == Code::EventTooLarge));
    assert!(decoder.structure.buffered() <= 2 << 20);
}

#[test]
fn chunks_are_bounded_by_events_and_text() {
    let mut text = String::new();
    for number in 0..10_000 {
        text += &format!("{}\n", GOOD.replace("\"a\"", &format!("\"{number:0>400}\"")));
    }
    let mut decoder = Decoder::new(text.as_bytes(), Limits::default());
    let (mut chunk, mut sizes) = (Chunk::default(), Vec::new());
    while decoder.read_chunk(&mut chunk).unwrap() {
        assert!(chunk.text_bytes() < (1 << 20) + 4 * 512);
        sizes.push(chunk.len());
    }
    sizes.push(chunk.len());
    assert_eq!(sizes.iter().sum::<usize>(), 10_000);
    assert!(sizes.iter().all(|events| *events <= 4096) && sizes.len() == 4, "{sizes:?}");
}

#[test]
fn the_digest_covers_all_raw_bytes() {
    for text in ["", "[]", "[1, and what else", "\u{feff}[] and more"] {
        let text = format!("{text}{}", " ".repeat(300_000));
        for read_first in [false, true] {
            let mut decoder = Decoder::new(text.as_bytes(), Limits::default());
            if read_first {
                // whether it is refused or not
                let _ = decoder.read_chunk(&mut Chunk::default());
            }
            let digest = decoder.digest().unwrap();
            assert_eq!(digest.sha256, format!("{:x}", sha2::Sha256::digest(&text)));
            assert_eq!((digest.bytes, digest.whole), (text.len() as u64, true));
        }
    }
    let empty = decode(b"").digest.unwrap().sha256;
    assert_eq!(empty, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

#[test]
fn a_failing_reader_is_never_the_fault_of_the_file() {
    let plain = format!("[{GOOD},{GOOD}]");
    let packed = [plain.clone().into_bytes(), super::compressed::gzip(plain.as_bytes())];
    for bytes in packed.into_iter().chain([super::compressed::zstd(plain.as_bytes())]) {
        for good in 0..=bytes.len() {
            let failing = (&bytes[..good]).chain(Failing);
            let outcome = decode_with(failing, Limits::default(), BLOCK_BYTES, CHUNK_EVENTS);
            match outcome.fault {
                Some(Fault::Io(error)) => assert_eq!(error.to_string(), "bad sector", "{good}"),
                other => panic!("{good}: {other:?}"),
            }
            assert!(outcome.digest.is_err());
        }
    }
}

#[test]
fn a_failing_read_is_not_taken_for_the_end() {
    for begun in ["", " ", "\u{feff}", "[", "[]", "[$E", "[$E,", "$E", "$E\n{", "[$E "] {
        let begun = begun.replace("$E", GOOD);
        for cut in [&b""[..], b"\xef", b"\xef\xbb"] {
            let failing = [begun.as_bytes(), cut].concat();
            let outcome = decode_with((&failing[..]).chain(Failing), Limits::default(), 64, 1);
            match outcome.fault {
                Some(Fault::Io(_)) => {}
                Some(Fault::Refused(refusal)) if !cut.is_empty() => {
                    assert_eq!(refusal.code, Code::TrailingData, "{begun:?} {cut:?}");
                }
                other => panic!("{begun:?} {cut:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_refusal_that_comes_before_a_failing_read_stands() {
    let failing = (&b"[1"[..]).chain(Failing);
    let outcome = decode_with(failing, Limits::default(), BLOCK_BYTES, CHUNK_EVENTS);
    assert!(matches!(outcome.fault, Some(Fault::Io(_))));
    let failing = (&b"[1,"[..]).chain(Failing);
    let outcome = decode_with(failing, Limits::default(), BLOCK_BYTES, CHUNK_EVENTS);
    assert_eq!(outcome.refusal().code, Code::WrongType);
    assert!(outcome.digest.is_err());
}

/// Gives spaces, and counts what is asked.
struct Watched<'a> {
    left: u64,
    asked: &'a Cell<u64>,
    given: &'a Cell<u64>,
}

impl Read for Watched<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        into[..bytes].fill(b' ');
        self.left -= bytes as u64;
        self.asked.set(self.asked.get() + 1);
        self.given.set(self.given.get() + bytes as u64);
        Ok(bytes)
    }
}

struct Failing;

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("bad sector"))
    }
}

/// Has failed for a question that was asked at raw blocks only: this file is one of them.
#[test]
fn whoever_waits_is_asked_at_each_block_and_can_end_it() {
    let text = [b"[", &vec![b' '; 64 << 20][..]].concat();
    for bytes in [text.clone(), super::compressed::zstd(&text), super::compressed::gzip(&text)] {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let goes_on = Box::new(move || count.fetch_add(1, Ordering::Relaxed) < 10);
        let mut decoder = Decoder::new(&bytes[..], Limits::default()).watched(goes_on);
        let ended = decoder.read_chunk(&mut Chunk::default());
        assert!(matches!(ended, Err(Fault::Io(_))), "{ended:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 11);
    }
}
