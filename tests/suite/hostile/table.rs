//! The two tables of batches, read, tried, and written anew when that is asked for.
//!
//! They have failed for a `-0` that was taken, and for a column that was off by one.

use std::fs;
use std::path::{Path, PathBuf};

use super::judge::{Outcome, judge};
use super::slow;

/// A good event.
const GOOD: &str = r#"{"id":"a","key":"k","timestamp_ms":1,"value":2}"#;

/// Where a shape is put: what the place is called, and the text with the shape at the `@`.
const PLACES: [(&str, &str); 6] = [
    ("value", r#"[$E,{"id":"x","key":"k","timestamp_ms":1,"value":@}]"#),
    ("time", r#"{"value":1,"timestamp_ms":@ ,"key":"k","id":"x"}"#),
    ("id", r#"[{"key":"k","timestamp_ms":1,"value":1,"id":@}]"#),
    ("item", "[$E,@]"),
    ("line", "$E%0A@%0A"),
    ("file", "@"),
];

/// One batch of a table.
pub struct Row {
    /// Where it stands: `file:line place`.
    pub name: String,
    /// The batch itself.
    pub bytes: Vec<u8>,
    /// What the table says of it.
    expected: String,
    /// The offset of the mark in it, where it had one.
    mark: Option<usize>,
}

fn path(table: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/hostile").join(table)
}

/// The bytes that the text of a table stands for, and the offset of its mark.
fn bytes(text: &str) -> (Vec<u8>, Option<usize>) {
    let mut unfolded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("%<") {
        let (count, after) = after.split_once('*').expect("%<N*TEXT>");
        let (part, after) = after.split_once('>').expect("%<N*TEXT>");
        unfolded += before;
        unfolded += &part.repeat(count.parse().expect("%<N*TEXT>"));
        rest = after;
    }
    unfolded += rest;
    let unfolded = unfolded.replace("$E", GOOD);
    let mut bytes = Vec::with_capacity(unfolded.len());
    let mut rest = unfolded.as_bytes();
    let mut mark = None;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%' || *byte == 0xc2) {
        bytes.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("§".as_bytes()) {
            assert!(mark.replace(bytes.len()).is_none(), "two marks: {text}");
            rest = after;
        } else {
            let digits = rest.get(1..3).and_then(|digits| std::str::from_utf8(digits).ok());
            let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            bytes.push(byte.unwrap_or_else(|| panic!("%XX: {text}")));
            rest = &rest[3..];
        }
    }
    bytes.extend_from_slice(rest);
    (bytes, mark)
}

/// The lines of a table that are no remark: their number, what stands before the bar, and behind.
fn lines(table: &str) -> Vec<(usize, String, String)> {
    let text = fs::read_to_string(path(table)).unwrap();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with(['#', '=']));
    let split = |(number, line): (usize, &str)| {
        let (before, after) = line.split_once('|')?;
        Some((number + 1, before.trim().to_owned(), after.to_owned()))
    };
    lines.filter_map(split).collect()
}

/// Every shape in every place.
pub fn shapes() -> Vec<Row> {
    let mut rows = Vec::new();
    for (number, before, shape) in lines("shapes.txt") {
        let mut codes = before.split_whitespace();
        for (place, text) in PLACES {
            let (bytes, mark) = bytes(&text.replace('@', &shape));
            let expected = codes.next().unwrap_or("").to_owned();
            rows.push(Row { name: format!("shapes.txt:{number} {place}"), bytes, expected, mark });
        }
    }
    rows
}

/// Every whole batch.
pub fn batches() -> Vec<Row> {
    let row = |(number, expected, text): (usize, String, String)| {
        let (bytes, mark) = bytes(&text);
        let expected = expected.split_whitespace().collect::<Vec<_>>().join(" ");
        Row { name: format!("batches.txt:{number}"), bytes, expected, mark }
    };
    lines("batches.txt").into_iter().map(row).collect()
}

/// What `batches.txt` says of a batch.
fn told(outcome: &Outcome) -> String {
    match &outcome.refusal {
        None => format!("ok {} -", outcome.events.len()),
        Some(refusal) => {
            let index = refusal.event_index.map_or("-".to_owned(), |index| index.to_string());
            // no white space, and nothing that a terminal would obey
            let field = refusal.field.as_deref().map_or("-".to_owned(), |field| {
                field.chars().take(16).collect::<String>().escape_default().to_string()
            });
            let field = if field.is_empty() { "\"\"".to_owned() } else { field.replace(' ', "_") };
            format!("{} {index} {field}", refusal.code.name())
        }
    }
}

/// Writes what stands before the bars of a table anew.
fn rewrite(table: &str, found: &[String]) {
    let text = fs::read_to_string(path(table)).unwrap();
    let mut found = found.iter();
    let line = |line: &str| match line.split_once('|') {
        Some((_, after)) if !line.starts_with(['#', '=']) => {
            format!("{}|{after}\n", found.next().unwrap())
        }
        _ => format!("{line}\n"),
    };
    fs::write(path(table), text.lines().map(line).collect::<String>()).unwrap();
}

fn is_rewriting() -> bool {
    std::env::var_os("WINDOWFLOW_REWRITE").is_some()
}

/// Every shape in every place gets the code of the table, and is judged alike however it is cut.
#[test]
fn every_shape_in_every_place_gets_its_code() {
    let rows = shapes();
    assert!(rows.len() >= 300, "{}", rows.len());
    let found: Vec<_> = rows.iter().map(|row| judge(&row.bytes).code()).collect();
    if is_rewriting() {
        let in_columns =
            |codes: &[&str]| -> String { codes.iter().map(|code| format!("{code:<16}")).collect() };
        let found: Vec<_> = found.chunks(PLACES.len()).map(in_columns).collect();
        return rewrite("shapes.txt", &found);
    }
    let wrong = rows.iter().zip(&found).filter(|(row, code)| row.expected != **code);
    let wrong: Vec<_> = wrong.map(|(row, code)| format!("{}: {code}", row.name)).collect();
    assert!(wrong.is_empty(), "not as the table says:\n{}", wrong.join("\n"));
}

/// Every whole batch gets its code, event, field and place.
#[test]
fn every_batch_gets_its_code_and_place() {
    let rows = batches();
    let outcomes: Vec<_> = rows.iter().map(|row| judge(&row.bytes)).collect();
    if is_rewriting() {
        let line = |outcome| {
            let told = told(outcome);
            let (code, rest) = told.split_once(' ').unwrap();
            format!("{code:<16}{rest:<20}")
        };
        return rewrite("batches.txt", &outcomes.iter().map(line).collect::<Vec<_>>());
    }
    let mut wrong = Vec::new();
    for (row, outcome) in rows.iter().zip(&outcomes) {
        let found = told(outcome);
        if found != row.expected {
            wrong.push(format!("{}: {found}", row.name));
        }
        let byte = outcome.refusal.as_ref().and_then(|refusal| refusal.byte);
        if byte != row.mark.map(|at| at as u64) {
            wrong.push(format!("{}: at byte {byte:?}, not {:?}", row.name, row.mark));
        }
    }
    assert!(wrong.is_empty(), "not as the table says:\n{}", wrong.join("\n"));
}

/// Packed by gzip or zstd, all of it comes to the same, place and words included.
#[test]
fn packed_it_comes_to_the_same() {
    for row in shapes().iter().chain(&batches()).filter(|row| row.bytes.len() < 4096) {
        // packed, nothing is taken for a packing by itself
        let is_packed = slow::unpacked(&row.bytes, 0).is_none_or(|text| text != row.bytes);
        assert!(!is_packed, "{}", row.name);
        let plain = judge(&row.bytes);
        for packed in [gzip(&row.bytes), zstd(&row.bytes)] {
            assert_eq!(judge(&packed), plain, "{}", row.name);
        }
    }
}

/// Cut off at each byte, a batch is taken only where it ends with an event of lines; it is
/// `truncated`, or `empty` before anything stands there, in every other place. Packed, it is never
/// taken.
#[test]
fn a_batch_that_is_cut_anywhere_is_seen_to_be_cut() {
    let event = r#"{"id":"é\n😀","key":"k","timestamp_ms":1,"value":-12}"#;
    let array = format!("[{event},\n {event}]\n");
    let lines = format!("{event}\n{event}\n");
    for (text, is_array) in [(array, true), (lines, false)] {
        for end in 0..text.len() {
            let cut = &text.as_bytes()[..end];
            let code = judge(cut).code();
            let is_whole = match is_array {
                true => end >= text.len() - 1,
                false => cut.ends_with(b"}") || cut.ends_with(b"}\n"),
            };
            let expected = match end {
                0 => "empty",
                _ if is_whole => "ok",
                _ => "truncated",
            };
            assert_eq!(code, expected, "{end}: {:?}", String::from_utf8_lossy(cut));
        }
        for packed in [gzip(text.as_bytes()), zstd(text.as_bytes())] {
            assert_eq!(judge(&packed).code(), "ok");
            for end in 1..packed.len() {
                assert_eq!(judge(&packed[..end]).code(), "truncated", "{end}");
            }
        }
    }
}

/// Each bit of packed data, flipped: what is taken all the same is what was packed.
#[test]
fn no_flipped_bit_of_packed_data_counts_anything_else() {
    let text = format!("[{GOOD},\n {}]\n", GOOD.replace("\"a\"", "\"b\""));
    let whole = judge(text.as_bytes());
    // the check sum of zstd is an option of whoever packs
    for packed in [gzip(text.as_bytes()), checked_zstd(text.as_bytes())] {
        for bit in 0..8 * packed.len() {
            let mut flipped = packed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let outcome = judge(&flipped);
            assert!(outcome.refusal.is_some() || outcome == whole, "bit {bit}: {outcome:?}");
        }
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

fn checked_zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_checksum(true).unwrap();
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}
