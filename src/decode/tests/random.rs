//! Random batches come back equal however they are written and cut, and whether something is
//! JSON at all is judged as serde_json judges it.

use proptest::prelude::*;
use proptest::sample::Index;

use super::{Outcome, Owned, compressed, decode_with};
use crate::decode::{BLOCK_BYTES, CHUNK_EVENTS, Fault, Limits};
use crate::model::event::{MAX_TIMESTAMP_MS, Place};
use crate::model::refusal::Code;

#[derive(Clone, Copy, Debug)]
enum Format {
    Array,
    Lines,
}

fn name() -> impl Strategy<Value = String> {
    let any_char = prop_oneof![
        8 => proptest::char::range(' ', '~'),
        1 => proptest::char::range('\0', '\u{1f}'),
        2 => any::<char>(),
    ];
    proptest::collection::vec(any_char, 1..24)
        .prop_map(|chars| chars.into_iter().collect::<String>())
        .prop_filter("blank", |text| !text.trim().is_empty())
}

fn event() -> impl Strategy<Value = Owned> {
    let version = proptest::option::of(name());
    let fields = (name(), name(), 0..=MAX_TIMESTAMP_MS, any::<i64>());
    (fields, proptest::option::of(name()), version).prop_map(
        |(fields, source, producer_version)| {
            let (id, key, timestamp_ms, value) = fields;
            let place = Place::default();
            Owned { id, key, timestamp_ms, value, source, producer_version, place }
        },
    )
}

/// Where the writer has a choice, the next number of a list decides, round and round.
struct Choices<'a>(&'a [u8], usize);

impl Choices<'_> {
    fn next(&mut self, of: u8) -> u8 {
        self.1 += 1;
        self.0[self.1 % self.0.len()] % of
    }

    fn space(&mut self) -> &'static str {
        ["", "", "", " ", "\t", "\r", "\n", " \n\n ", "          "][usize::from(self.next(9))]
    }

    fn text(&mut self, text: &str) -> String {
        match self.next(3) {
            0 | 1 => serde_json::to_string(text).unwrap(),
            _ => {
                let units = text.encode_utf16().map(|unit| format!("\\u{unit:04X}"));
                format!("\"{}\"", units.collect::<String>())
            }
        }
    }

    fn event(&mut self, event: &Owned) -> String {
        let mut members = vec![
            ("id", self.text(&event.id)),
            ("key", self.text(&event.key)),
            ("timestamp_ms", event.timestamp_ms.to_string()),
            ("value", event.value.to_string()),
        ];
        for (name, value) in
            [("source", &event.source), ("producer_version", &event.producer_version)]
        {
            if let Some(value) = value {
                members.push((name, self.text(value)));
            }
        }
        let turn = usize::from(self.next(6)) % members.len();
        members.rotate_left(turn);
        let mut written = String::from("{");
        for (index, (name, value)) in members.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            written += &[comma, self.space(), &self.text(name), self.space(), ":"].concat();
            written += &[self.space(), value, self.space()].concat();
        }
        written + "}"
    }

    /// The batch, and the place of each event.
    fn batch(&mut self, events: &[Owned], format: Format) -> (String, Vec<Place>) {
        let (open, close) = match format {
            Format::Array => ("[", "]"),
            Format::Lines => ("", ""),
        };
        let mut written = [self.space(), open, self.space()].concat();
        let mut places = Vec::new();
        for (index, event) in events.iter().enumerate() {
            if index > 0 {
                written += match format {
                    Format::Array => ",",
                    Format::Lines => "\n",
                };
            }
            written += self.space();
            let line_start = written.rfind('\n').map_or(0, |end| end + 1);
            places.push(Place {
                byte: written.len() as u64,
                line: written.matches('\n').count() as u64 + 1,
                column: (written.len() - line_start) as u64 + 1,
            });
            written += &self.event(event);
            written += self.space();
        }
        (written + close + self.space(), places)
    }
}

/// Gives as many bytes at once as the list says, round and round.
struct Cut<'a>(&'a [u8], &'a [u8], usize);

impl std::io::Read for Cut<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.2 += 1;
        let most = usize::from(self.1[self.2 % self.1.len()]) + 1;
        let bytes = into.len().min(most);
        self.0.read(&mut into[..bytes])
    }
}

fn same(one: &Outcome, two: &Outcome) -> bool {
    one.events == two.events
        && match (&one.fault, &two.fault) {
            (None, None) => true,
            (Some(Fault::Refused(one)), Some(Fault::Refused(two))) => one == two,
            _ => false,
        }
}

fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(bytes).is_ok()
}

fn says_it_is_no_json(outcome: &Outcome) -> bool {
    let codes = [Code::BadJson, Code::Truncated, Code::TrailingData, Code::NotUtf8, Code::Empty];
    outcome.fault.is_some() && codes.contains(&outcome.refusal().code)
}

/// Holds our answer against serde_json's.
fn agrees(bytes: &[u8], outcome: &Outcome) -> Result<(), TestCaseError> {
    let whole = is_json(bytes);
    if says_it_is_no_json(outcome) {
        prop_assert!(!whole, "{:?}: {:?}", String::from_utf8_lossy(bytes), outcome.fault);
    }
    if outcome.fault.is_none() {
        // several objects are JSON one by one
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let values = serde_json::Deserializer::from_slice(bytes).into_iter::<serde_json::Value>();
        let values = values.collect::<Result<Vec<_>, _>>();
        prop_assert!(values.is_ok(), "{:?}", String::from_utf8_lossy(bytes));
        let events = match values.as_deref() {
            Ok([serde_json::Value::Array(events)]) => events.len(),
            Ok(events) => events.len(),
            Err(_) => 0,
        };
        prop_assert_eq!(outcome.events.len(), events);
    }
    Ok(())
}

/// Pieces that, put together at random, are JSON or nearly so.
fn scrap() -> impl Strategy<Value = &'static [u8]> {
    proptest::sample::select(vec![
        &b"{"[..],
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"",
        b"\\",
        b"\n",
        b" ",
        b"\"id\"",
        b"\"id\":\"a\"",
        b"\"key\":\"k\"",
        b"\"timestamp_ms\":1",
        b"\"value\":2",
        b"{\"id\":\"a\",\"key\":\"k\",\"timestamp_ms\":1,\"value\":2}",
        b"\"value\":",
        b"1",
        b"0",
        b"-",
        b".",
        b"e",
        b"+",
        b"true",
        b"null",
        b"\\u",
        b"d83d",
        b"\\ude00",
        b"\\ud83d",
        b"\xc3",
        b"\xa9",
        b"\xff",
        b"\0",
        b"\x7f",
        b"/",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_written_comes_back(
        events in proptest::collection::vec(event(), 0..12),
        format in prop_oneof![Just(Format::Array), Just(Format::Lines)],
        choices in proptest::collection::vec(any::<u8>(), 1..60),
        cuts in proptest::collection::vec(any::<u8>(), 1..8),
        (block_bytes, chunk_events) in (8_usize..300, 1_usize..6),
        packing in 0..3,
    ) {
        prop_assume!(!events.is_empty() || matches!(format, Format::Array));
        let (written, places) = Choices(&choices, 0).batch(&events, format);
        let raw = match packing {
            0 => written.clone().into_bytes(),
            1 => compressed::gzip(written.as_bytes()),
            _ => compressed::zstd(written.as_bytes()),
        };
        let cut = Cut(&raw, &cuts, 0);
        let outcome = decode_with(cut, Limits::default(), block_bytes, chunk_events);
        prop_assert!(outcome.fault.is_none(), "{written:?}: {:?}", outcome.fault);
        let expected = events.into_iter().zip(places);
        let expected = expected.map(|(event, place)| Owned { place, ..event }).collect::<Vec<_>>();
        prop_assert_eq!(outcome.events, expected);
    }

    #[test]
    fn mutated_batches_are_judged_as_by_serde_json(
        events in proptest::collection::vec(event(), 1..4),
        format in prop_oneof![Just(Format::Array), Just(Format::Lines)],
        choices in proptest::collection::vec(any::<u8>(), 1..60),
        changes in proptest::collection::vec((any::<Index>(), scrap(), 0..4), 1..4),
        block_bytes in 8_usize..100,
    ) {
        let mut bytes = Choices(&choices, 0).batch(&events, format).0.into_bytes();
        for (at, scrap, way) in changes {
            let at = at.index(bytes.len() + 1);
            let end = match way {
                0 => at,
                1 => (at + 1).min(bytes.len()),
                2 => (at + scrap.len()).min(bytes.len()),
                _ => (at + 30).min(bytes.len()),
            };
            bytes.splice(at..end, scrap.iter().copied());
        }
        let outcome = decode_with(&bytes[..], Limits::default(), BLOCK_BYTES, CHUNK_EVENTS);
        agrees(&bytes, &outcome)?;
        let other = decode_with(&bytes[..], Limits::default(), block_bytes, 1);
        prop_assert!(same(&outcome, &other), "{outcome:?} is not {other:?}");
    }

    #[test]
    fn scraps_are_judged_as_by_serde_json(
        scraps in proptest::collection::vec(scrap(), 0..14),
        wrap in 0..4,
        max_event_bytes in 1_u64..80,
    ) {
        let inner = scraps.concat();
        let bytes = match wrap {
            0 => inner,
            1 => [b"[", &inner[..], b"]"].concat(),
            2 => [b"{\"value\":", &inner[..], b"}"].concat(),
            _ => [b"[{\"id\":\"", &inner[..], b"\",\"key\":\"k\",\"timestamp_ms\":0,\"value\":1}]"]
                .concat(),
        };
        let outcome = decode_with(&bytes[..], Limits::default(), BLOCK_BYTES, CHUNK_EVENTS);
        agrees(&bytes, &outcome)?;
        let limits = Limits { max_event_bytes, ..Limits::default() };
        let whole = decode_with(&bytes[..], limits.clone(), BLOCK_BYTES, CHUNK_EVENTS);
        let other = decode_with(&bytes[..], limits, 8, 1);
        prop_assert!(same(&whole, &other), "{whole:?} is not {other:?}");
    }
}
