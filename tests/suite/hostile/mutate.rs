//! Makes other bytes of given ones, as numbers decide: what a fuzzer does, without one.

use std::io::Write;

/// Pieces that matter to a batch.
const PIECES: [&[u8]; 40] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\\",
    b"\n",
    b"\r",
    b" ",
    b"\0",
    b"-",
    b"0",
    b"-0",
    b".",
    b"e",
    b"1e3",
    b"9223372036854775807",
    b"9223372036854775808",
    b"253402300800000",
    b"null",
    b"true",
    b"NaN",
    b"\\u0000",
    b"\\ud800",
    b"\\udc00",
    b"\\\\",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\"id\":\"a\"",
    b"\"value\":1",
    b"\"source\":\"s\"",
    b"{\"id\":\"b\",\"key\":\"k\",\"timestamp_ms\":1,\"value\":2}",
    b"\x1f\x8b\x08\0",
    b"\x28\xb5\x2f\xfd",
    b"\x50\x2a\x4d\x18\x04\0\0\0",
];

/// The most bytes that come of it.
const MAX_BYTES: usize = 1 << 16;

/// One mutant of a seed, and of another seed to cross it with; `next` gives the numbers.
pub fn mutant(seed: &[u8], other: &[u8], mut next: impl FnMut() -> u64) -> Vec<u8> {
    let mut below = |bound: usize| (next() % bound.max(1) as u64) as usize;
    let mut bytes = seed.to_vec();
    for _ in 0..=below(4) {
        let at = below(bytes.len() + 1);
        let end = (at + 1 + below(8)).min(bytes.len());
        match below(9) {
            0 if at < bytes.len() => bytes[at] ^= 1 << below(8),
            1 if at < bytes.len() => bytes[at] = below(256) as u8,
            2 | 3 => drop(bytes.splice(at..at, PIECES[below(PIECES.len())].iter().copied())),
            4 => drop(bytes.splice(at..end, PIECES[below(PIECES.len())].iter().copied())),
            5 => drop(bytes.drain(at..end)),
            6 => bytes.truncate(at),
            7 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            _ => {
                let from = below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
        bytes.truncate(MAX_BYTES);
    }
    match below(12) {
        0 => packed(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()), &bytes)
            .finish(),
        1 => zstd::encode_all(&bytes[..], 1),
        _ => Ok(bytes),
    }
    .unwrap_or_default()
}

fn packed<W: Write>(mut encoder: W, bytes: &[u8]) -> W {
    // into memory, which takes it
    let _ = encoder.write_all(bytes);
    encoder
}
