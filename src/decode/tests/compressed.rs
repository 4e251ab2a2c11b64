//! gzip and zstd: members and frames, garbage, cuts, damage, and what inflates too far.

use std::io::Write;

use super::{GOOD, Outcome, Steps, decode, decode_with, decode_within};
use crate::decode::{BLOCK_BYTES, CHUNK_EVENTS, Limits};
use crate::model::refusal::Code;

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

pub(super) fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut to = zstd::Encoder::new(Vec::new(), 3).unwrap();
    to.include_checksum(true).unwrap();
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

type Packer = fn(&[u8]) -> Vec<u8>;

const PACKERS: [Packer; 2] = [gzip, zstd];

fn skippable(bytes: usize) -> Vec<u8> {
    let mut frame = vec![0x5a, 0x2a, 0x4d, 0x18];
    frame.extend((bytes as u32).to_le_bytes());
    frame.resize(8 + bytes, b'!');
    frame
}

/// So many events, one a line, that don't compress too well.
fn lines(events: usize) -> String {
    (0..events)
        .map(|number| GOOD.replace("\"a\"", &format!("\"{}\"", number * 7_919_191)) + "\n")
        .collect()
}

#[track_caller]
fn code_of(bytes: &[u8]) -> Code {
    decode(bytes).refusal().code
}

/// Decodes with usual sizes only: for inputs that are many.
fn decode_once(bytes: &[u8]) -> Outcome {
    decode_with(bytes, Limits::default(), BLOCK_BYTES, CHUNK_EVENTS)
}

/// Case 134: what is in it is named, and what to type fits the packed file as well. Has failed for a
/// tar that was not looked for.
#[test]
fn case_134_a_compressed_tar_is_told_what_to_do() {
    let mut header = [0; 512];
    header[..11].copy_from_slice(b"events.json");
    header[257..263].copy_from_slice(b"ustar\0");
    let mut content = [0; 512];
    content[..GOOD.len()].copy_from_slice(GOOD.as_bytes());
    let tar = [&header[..], &content, &[0; 1024]].concat();
    for pack in PACKERS {
        let outcome = decode(&pack(&tar));
        let refusal = outcome.refusal();
        assert_eq!(refusal.code, Code::NotABatch, "{refusal:?}");
        assert!(refusal.message.contains("found a tar archive"), "{refusal:?}");
        assert!(refusal.hint.contains("tar -xf FILE"), "{refusal:?}");
    }
}

#[test]
fn all_members_and_frames_count() {
    for pack in PACKERS {
        let array = pack(format!("[{GOOD},{GOOD}]").as_bytes());
        assert_eq!(decode(&array).good().len(), 2);
        let two = [pack(lines(10).as_bytes()), pack(lines(20).as_bytes())].concat();
        assert_eq!(decode(&two).good().len(), 30);
        // a member may end anywhere, and be empty
        let text = format!("[{GOOD},{GOOD}]");
        let mut packed = Vec::new();
        for byte in text.bytes() {
            packed.extend(pack(&[byte]));
            packed.extend(pack(b""));
        }
        assert_eq!(decode(&packed).good().len(), 2);
        assert_eq!(decode(&pack(lines(3000).as_bytes())).good().len(), 3000);
    }
}

#[test]
fn skippable_frames_are_skipped() {
    let frame = zstd(lines(2).as_bytes());
    for packed in [
        [skippable(0), frame.clone()].concat(),
        [skippable(1000), frame.clone(), skippable(3)].concat(),
        [frame.clone(), skippable(9), skippable(9), frame.clone()].concat(),
    ] {
        let frames = packed.windows(4).filter(|bytes| *bytes == &frame[..4]).count();
        assert_eq!(decode(&packed).good().len(), 2 * frames);
    }
    assert_eq!(code_of(&skippable(20)), Code::Empty);
}

#[test]
fn a_packed_batch_has_its_places_after_unpacking() {
    for pack in PACKERS {
        let outcome = decode(&pack(b"\xef\xbb\xbf[\n 1]"));
        let refusal = outcome.refusal();
        assert_eq!(refusal.code, Code::WrongType);
        let place = (refusal.byte, refusal.line, refusal.column);
        assert_eq!(place, (Some(6), Some(2), Some(2)));
        assert_eq!(code_of(&pack(b"")), Code::Empty);
        assert_eq!(code_of(&pack(b"[] []")), Code::TrailingData);
        assert_eq!(code_of(&pack(b"[")), Code::Truncated);
        assert_eq!(code_of(&pack(b"{\0\"\0")), Code::NotUtf8);
    }
}

#[test]
fn nothing_is_unpacked_twice() {
    for pack in PACKERS {
        for inner in PACKERS {
            let outcome = decode(&pack(&inner(b"[]")));
            assert_eq!(outcome.refusal().code, Code::NotABatch);
            assert!(outcome.refusal().message.contains("inside the compressed data"));
        }
    }
}

#[test]
fn garbage_behind_the_data_is_refused() {
    for (pack, other) in [(gzip as Packer, zstd as Packer), (zstd, gzip)] {
        let good = pack(lines(5).as_bytes());
        for garbage in [&b"\0"[..], b"\n", b"0123456789", b"(", b"\0\0\0\0\0\0\0\0", b"[]"] {
            // a lone "(" may be the beginning of one more zstd frame
            let expected = match garbage {
                b"(" if good[0] == b'(' => Code::Truncated,
                _ => Code::BadCompression,
            };
            let packed = [&good, garbage].concat();
            let outcome = decode(&packed);
            assert_eq!(outcome.refusal().code, expected, "{garbage:?}");
            assert_eq!(outcome.events.len(), 5);
            assert_eq!(outcome.digest.unwrap().bytes, packed.len() as u64);
        }
        assert_eq!(code_of(&[&good[..], &other(b"[]")].concat()), Code::BadCompression);
    }
}

#[test]
fn a_cut_anywhere_is_truncated() {
    for pack in PACKERS {
        let first = pack(lines(3).as_bytes());
        let packed = [&first[..], &pack(lines(3).as_bytes())].concat();
        for end in 1..packed.len() {
            let outcome = decode_once(&packed[..end]);
            if end == first.len() {
                assert_eq!(outcome.good().len(), 3);
            } else {
                assert_eq!(outcome.refusal().code, Code::Truncated, "{end} of {}", packed.len());
                assert_eq!(outcome.digest.unwrap().bytes, end as u64);
            }
        }
    }
    let frames = [skippable(30), zstd(b"[]")].concat();
    for end in 2..frames.len() {
        // the skippable frame alone is an empty batch
        let expected = if end == 38 { Code::Empty } else { Code::Truncated };
        assert_eq!(decode_once(&frames[..end]).refusal().code, expected, "{end}");
    }
}

#[test]
fn damage_is_never_taken_in() {
    let text = lines(200);
    for pack in PACKERS {
        let good = pack(text.as_bytes());
        let whole = decode_once(&good).good().to_vec();
        for at in 0..good.len() {
            let mut packed = good.clone();
            packed[at] ^= 0x55;
            let outcome = decode_once(&packed);
            let code = outcome.fault.as_ref().map(|_| outcome.refusal().code);
            match code {
                // not all bytes matter: names and times in headers, bits behind a block
                None => assert_eq!(outcome.events, whole, "byte {at}"),
                Some(Code::BadCompression | Code::Truncated) => {}
                Some(code) => assert!(at < 4 && code == Code::NotABatch, "byte {at}: {code:?}"),
            }
        }
    }
}

#[test]
fn wrong_checks_are_refused() {
    for pack in PACKERS {
        let good = pack(lines(5).as_bytes());
        // the CRC, and behind it, in gzip, the length
        for from_end in 1..=if good[0] == 0x1f { 8 } else { 4 } {
            let mut packed = good.clone();
            packed[good.len() - from_end] ^= 1;
            let followed = [&packed[..], &good].concat();
            let refused_before = [&pack(b"[1, "), &packed[..]].concat();
            for packed in [packed, followed, refused_before] {
                // how much comes out before the damage is seen depends on the block, not on reads
                let outcome = decode_once(&packed);
                let cut = Steps(&packed, 1);
                let other = decode_with(cut, Limits::default(), BLOCK_BYTES, CHUNK_EVENTS);
                assert_eq!(outcome.refusal().code, Code::BadCompression, "{from_end}");
                assert_eq!(outcome.refusal(), other.refusal());
                assert_eq!(outcome.events, other.events);
            }
        }
    }
}

#[test]
fn a_file_may_inflate_just_as_far_as_allowed() {
    let text = lines(50);
    for pack in PACKERS {
        let two = [pack(text.as_bytes()), pack(b""), pack(text.as_bytes())].concat();
        for (packed, bytes) in [(pack(text.as_bytes()), text.len()), (two, 2 * text.len())] {
            let limits =
                |bytes: usize| Limits { max_inflated_bytes: bytes as u64, ..Limits::default() };
            assert!(!decode_within(&packed, &limits(bytes)).good().is_empty());
            for most in [bytes - 1, bytes - GOOD.len(), text.len() / 2, 1, 0] {
                let outcome = decode_within(&packed, &limits(most));
                assert_eq!(outcome.refusal().code, Code::InflatesTooFar, "{most} of {bytes}");
                let whole = outcome.digest.unwrap();
                assert_eq!((whole.bytes, whole.whole), (packed.len() as u64, true));
            }
        }
    }
    let limits = Limits { max_inflated_bytes: 3, ..Limits::default() };
    assert_eq!(decode_within(GOOD.as_bytes(), &limits).good().len(), 1);
}

#[test]
fn bombs_are_cheap() {
    let limits = Limits { max_inflated_bytes: 5_000_000, ..Limits::default() };
    for pack in PACKERS {
        let bomb = pack(&vec![b' '; 30_000_000]);
        assert!(bomb.len() < 40_000);
        let outcome = decode_with(&bomb[..], limits.clone(), BLOCK_BYTES, CHUNK_EVENTS);
        assert_eq!(outcome.refusal().code, Code::InflatesTooFar);
    }
}

#[test]
fn too_wide_a_zstd_window_is_refused() {
    // magic, no checksum, no content size, a window of 2^28 bytes, one empty last block
    let wide = [0x28, 0xb5, 0x2f, 0xfd, 0x00, (28 - 10) << 3, 0x01, 0x00, 0x00];
    let outcome = decode(&wide);
    assert_eq!(outcome.refusal().code, Code::BadCompression);
    assert!(outcome.refusal().hint.contains("128 MiB"));
    let mut right = wide;
    right[5] = (27 - 10) << 3;
    assert_eq!(code_of(&right), Code::Empty);
}

#[test]
fn the_bound_of_a_file_is_for_its_raw_bytes() {
    for pack in PACKERS {
        let packed = pack(lines(100).as_bytes());
        let limits =
            |bytes: usize| Limits { max_file_bytes: Some(bytes as u64), ..Limits::default() };
        assert_eq!(decode_within(&packed, &limits(packed.len())).good().len(), 100);
        for most in 0..packed.len() {
            let outcome = decode_with(&packed[..], limits(most), BLOCK_BYTES, CHUNK_EVENTS);
            assert_eq!(outcome.refusal().code, Code::FileTooLarge, "{most}");
        }
    }
}
