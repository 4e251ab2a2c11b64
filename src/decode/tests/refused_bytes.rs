//! Bytes that are no UTF-8, and the words of refusals.

use super::{GOOD, decode, decode_with};
use crate::decode::{BLOCK_BYTES, CHUNK_EVENTS, Limits};
use crate::model::refusal::{Code, Refusal};

#[track_caller]
fn refusal_of(bytes: &[u8]) -> Refusal {
    decode(bytes).refusal().clone()
}

#[test]
fn invalid_utf8() {
    for (bytes, byte, index, field) in [
        (&b"[{\"id\":\"caf\xe9\"}]"[..], 11, 0, Some("id")),
        (b"[{\"id\":\"\xff\"}]", 8, 0, Some("id")),
        (b"[{\"id\":\"\xc3\"}]", 8, 0, Some("id")),
        (b"[{\"id\":\"a\xe2\x82\"}]", 9, 0, Some("id")),
        (b"[{\"id\":\"\xc0\x80\"}]", 8, 0, Some("id")),
        (b"[{\"id\":\"\xed\xa0\x80\"}]", 8, 0, Some("id")),
        (b"[{\"id\":\"\xf4\x90\x80\x80\"}]", 8, 0, Some("id")),
        (b"[{\"id\":\"\\n\x80\"}]", 10, 0, Some("id")),
        (b"[{\"id\":\"a\xe9", 9, 0, None),
        (b"[{\"id\":\"a\x80", 9, 0, Some("id")),
        (b"[{\"\xe4\x20\":1}]", 3, 0, None),
        (b"[{\xff}]", 2, 0, None),
        (b"[{\"id\":\xff}]", 7, 0, Some("id")),
        (b"[\xff]", 1, 0, None),
        (b"[{\"value\":\"\xff\"}]", 11, 0, Some("value")),
    ] {
        let refusal = refusal_of(bytes);
        // a character that is only begun at the very end may be cut off
        let cut = bytes.ends_with(b"\xe9");
        let code = if cut { Code::Truncated } else { Code::NotUtf8 };
        let at = if cut { bytes.len() as u64 } else { byte };
        assert_eq!(refusal.code, code, "{refusal:?}");
        assert_eq!((refusal.byte, refusal.column), (Some(at), Some(at + 1)), "{refusal:?}");
        assert_eq!(refusal.event_index, Some(index));
        assert_eq!(refusal.field.as_deref(), field, "{refusal:?}");
    }
}

#[test]
fn invalid_utf8_outside_of_events() {
    for (before, bytes, code) in [
        ("[", &b"\xff,"[..], Code::NotUtf8),
        ("", b"\xff[]", Code::NotABatch),
        ("", b"\xe9t\xe9", Code::NotABatch),
    ] {
        let text = [before.as_bytes(), bytes].concat();
        let refusal = refusal_of(&text);
        assert_eq!((refusal.code, refusal.byte), (code, Some(before.len() as u64)));
    }
    let refusal = refusal_of(&[b"[", GOOD.as_bytes(), b"\xfe]"].concat());
    assert_eq!(refusal.code, Code::NotUtf8);
    assert_eq!(refusal.byte, Some(1 + GOOD.len() as u64));
    let refusal = refusal_of(b"[]\xff");
    assert_eq!((refusal.code, refusal.byte), (Code::TrailingData, Some(2)));
    assert!(refusal.message.contains("0xFF"), "{}", refusal.message);
    let refusal = refusal_of(b"\xef\xbb");
    assert_eq!((refusal.code, refusal.byte), (Code::Truncated, Some(2)));
}

#[test]
fn wide_encodings_are_named() {
    let wide = |unit: fn(u32) -> Vec<u8>, begin: &str| {
        format!("{begin}[{GOOD}]").chars().flat_map(|c| unit(u32::from(c))).collect::<Vec<u8>>()
    };
    for mark in ["", "\u{feff}", " ", "\n"] {
        for (bytes, name, order) in [
            (wide(|c| (c as u16).to_le_bytes().to_vec(), mark), "UTF-16", "little"),
            (wide(|c| (c as u16).to_be_bytes().to_vec(), mark), "UTF-16", "big"),
            (wide(|c| c.to_le_bytes().to_vec(), mark), "UTF-32", "little"),
            (wide(|c| c.to_be_bytes().to_vec(), mark), "UTF-32", "big"),
        ] {
            let refusal = refusal_of(&bytes);
            assert_eq!(refusal.code, Code::NotUtf8);
            assert_eq!(refusal.byte, Some(0));
            let named = format!("{name} ({order}-endian");
            assert!(refusal.message.contains(&named), "{}", refusal.message);
        }
    }
}

#[test]
fn the_id_is_named_once_it_is_known() {
    for (text, id) in [
        (r#"{"id":"x","key":1}"#, Some("x")),
        (r#"{"key":1,"id":"x"}"#, None),
        (r#"{"id":"x","id":"y"}"#, Some("x")),
        (r#"{"id":" ","key":"k"}"#, None),
        (r#"{"id":"a\u0000"}"#, Some("a\0")),
        (r#"{"id":"x","ke"#, Some("x")),
        (r#"{"id":"x","nope":"#, Some("x")),
        (r#"{"id":"x",}"#, Some("x")),
    ] {
        assert_eq!(refusal_of(text.as_bytes()).event_id.as_deref(), id, "{text}");
    }
}

#[test]
fn the_good_events_before_a_fault_arrive() {
    let text = format!("{GOOD}\n{}\nnope", GOOD.replace("\"a\"", "\"b\""));
    assert_eq!(decode(text.as_bytes()).ids(), ["a", "b"]);
}

#[test]
fn unknown_fields_bring_the_nearest_to_mind() {
    for (name, meant) in [
        ("Id", Some("id")),
        ("timestamp", Some("timestamp_ms")),
        ("timestampMs", Some("timestamp_ms")),
        ("timestmap_ms", Some("timestamp_ms")),
        ("val", Some("value")),
        ("keys", Some("key")),
        ("producerVersion", Some("producer_version")),
        ("sources", Some("source")),
        ("qqq", None),
        ("", None),
    ] {
        let refusal = refusal_of(format!("{{{name:?}:1}}").as_bytes());
        let hint = &refusal.hint;
        match meant {
            Some(meant) => assert!(hint.contains(&format!("did you mean {meant:?}")), "{hint}"),
            None => assert!(!hint.contains("did you mean"), "{hint}"),
        }
    }
}

#[test]
fn messages_read_well_alone() {
    for (text, message) in [
        (
            "[{\"id\":\"a\",\n \"value\":\"12\"}]",
            "event 0 (id \"a\"), line 2, column 10: field \"value\": expected an integer, found \
             the string \"12\"",
        ),
        (
            "{\"id\":\"a\",\"kye\":1}",
            "event 0 (id \"a\"), line 1, column 11: expected a field of an event, found \"kye\"",
        ),
        (
            "[{}]",
            "event 0, line 1, column 2: expected the fields id, key, timestamp_ms, value before \
             the end of the event",
        ),
        (
            "[] x",
            "line 1, column 4: expected nothing after the end of the array, found \"x\", after 0 \
             events",
        ),
        (
            "[{\"id\":\"a\u{1b}[31m\"}]",
            "event 0, line 1, column 10: field \"id\": expected the rest of a string, found an \
             unescaped control character (0x1B)",
        ),
        (
            "a\u{1b}[31m",
            "line 1, column 1: expected a JSON array of events or one event a line, found text \
             that begins with \"a\\u{1b}[31m\"",
        ),
    ] {
        assert_eq!(refusal_of(text.as_bytes()).message, message);
    }
}

#[test]
fn long_texts_are_shortened() {
    let long = "x".repeat(100_000);
    for text in [
        format!("[{{\"{long}\":1}}]"),
        format!("[{{\"id\":\"{long}\"}}]"),
        format!("[{{\"value\":\"{long}\"}}]"),
        format!("[{{\"value\":{}}}]", "1".repeat(100_000)),
        format!("[{{\"value\":{long}}}]"),
        long.clone(),
    ] {
        let whole = decode_with(text.as_bytes(), Limits::default(), BLOCK_BYTES, CHUNK_EVENTS);
        let refusal = whole.refusal();
        assert!(refusal.message.len() < 300, "{}", refusal.message);
        assert!(refusal.field.as_ref().is_none_or(|field| field.len() <= 100));
    }
}
