//! Batches that are fine, and the events that come out of them.

use super::{GOOD, decode, marked};
use crate::model::event::{MAX_TIMESTAMP_MS, Place};

#[track_caller]
fn ids_of(text: &str) -> Vec<String> {
    let outcome = decode(text.replace("$E", GOOD).as_bytes());
    outcome.good().iter().map(|event| event.id.clone()).collect()
}

#[test]
fn forms_of_a_batch() {
    for (text, events) in [
        ("[]", 0),
        (" \r\n[\t\n ] \n\n", 0),
        ("[$E]", 1),
        ("[$E,$E]", 2),
        ("\n[ $E\n,\n$E ]\n", 2),
        ("\u{feff}[$E]", 1),
        ("\u{feff}\n $E\n", 1),
        ("\u{feff}[]", 0),
        ("$E", 1),
        ("$E\n", 1),
        ("  $E  ", 1),
        ("$E\n$E", 2),
        ("$E\n$E\n$E\n", 3),
        ("$E\r\n$E\r\n", 2),
        ("\n\n$E\n \t\n\r\n$E\n\n", 2),
        ("{\n\"id\":\"a\",\n\"key\":\"k\",\n\"timestamp_ms\":1,\n\"value\":2\n}\n", 1),
        ("{\"id\":\"a\",\"key\":\"k\",\n\"timestamp_ms\":1,\"value\":2}\n$E\n", 2),
    ] {
        assert_eq!(ids_of(text).len(), events, "{text:?}");
    }
}

#[test]
fn every_field_arrives() {
    let (place, text) = marked(
        "[\n §{\"producer_version\" : \"1.2\", \"value\":-5 ,\"source\":\"gw\",\
         \"timestamp_ms\":253402300799999,\"key\":\"ключ\",\"id\":\"x\"}]",
    );
    let outcome = decode(text.as_bytes());
    let [event] = outcome.good() else { panic!("{outcome:?}") };
    assert_eq!((event.id.as_str(), event.key.as_str()), ("x", "ключ"));
    assert_eq!((event.timestamp_ms, event.value), (MAX_TIMESTAMP_MS, -5));
    assert_eq!(event.source.as_deref(), Some("gw"));
    assert_eq!(event.producer_version.as_deref(), Some("1.2"));
    assert_eq!(Some(event.place), place);
}

#[test]
fn optional_fields_may_be_left_out() {
    let outcome = decode(GOOD.as_bytes());
    let [event] = outcome.good() else { panic!("{outcome:?}") };
    assert_eq!((&event.source, &event.producer_version), (&None, &None));
    assert_eq!(event.place, Place { byte: 0, line: 1, column: 1 });
}

#[test]
fn places_of_events() {
    let text = format!("\u{feff}{GOOD}\r\n\n  {GOOD}\n{GOOD}");
    let places = decode(text.as_bytes()).good().iter().map(|event| event.place).collect::<Vec<_>>();
    let length = GOOD.len() as u64;
    let expected = [
        Place { byte: 3, line: 1, column: 4 },
        Place { byte: 3 + length + 5, line: 3, column: 3 },
        Place { byte: 3 + 2 * length + 6, line: 4, column: 1 },
    ];
    assert_eq!(places, expected);
}

#[test]
fn integers_are_exact() {
    for value in [
        0,
        7,
        -1,
        9_007_199_254_740_993,
        -9_007_199_254_740_993,
        999_999_999_999_999_999,
        1_000_000_000_000_000_000,
        -1_000_000_000_000_000_000,
        i64::MAX,
        i64::MAX - 1,
        i64::MIN,
        i64::MIN + 1,
    ] {
        let text = format!(r#"[{{"id":"a","key":"k","timestamp_ms":0,"value":{value}}}]"#);
        let outcome = decode(text.as_bytes());
        assert_eq!(outcome.good().iter().map(|event| event.value).collect::<Vec<_>>(), [value]);
    }
}

#[test]
fn strings_are_exact() {
    for (written, id) in [
        (r"a\u0000b", "a\0b"),
        (r"\u0000", "\0"),
        (r#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{c}\n\r\t"),
        (r"\u00e9\u00E9", "éé"),
        ("é", "é"),
        ("e\u{301}", "e\u{301}"),
        (r"\ud83d\ude00", "😀"),
        (r"\uD83D\uDE00😀", "😀😀"),
        (r"\udbff\udfff", "\u{10ffff}"),
        (r"\uffff\ufeff", "\u{ffff}\u{feff}"),
        ("\u{feff}", "\u{feff}"),
        ("\u{7f}", "\u{7f}"),
        (" a ", " a "),
        ("\u{200b}", "\u{200b}"),
        ("}],{[", "}],{["),
        ("//", "//"),
    ] {
        let text = format!(r#"[{{"id":"{written}","key":"k","timestamp_ms":0,"value":1}}]"#);
        assert_eq!(decode(text.as_bytes()).good()[0].id, id, "{written}");
    }
}

#[test]
fn ids_that_differ_in_a_nul_stay_distinct() {
    let other = GOOD.replace("\"a\"", r#""a\u0000""#);
    assert_eq!(ids_of(&format!("[$E,{other}]")), ["a", "a\0"]);
}

#[test]
fn field_names_may_be_escaped() {
    assert_eq!(ids_of(&format!("[{}]", GOOD.replace("\"id\"", r#""\u0069\u0064""#))), ["a"]);
}

#[test]
fn names_of_512_bytes_are_fine() {
    let id = "é".repeat(256);
    assert_eq!(ids_of(&GOOD.replace("\"a\"", &format!("\"{id}\""))), [id]);
    let escaped = r"\u00e9".repeat(256);
    assert_eq!(ids_of(&GOOD.replace("\"a\"", &format!("\"{escaped}\""))), ["é".repeat(256)]);
}
