//! Texts that are refused, with the code, the event, the field and the place of each.
//!
//! § marks the place that must be named (none: no place); $E stands for a good event.

use super::{GOOD, decode, marked};
use crate::model::refusal::Code::{self, *};

/// A text, its code, the index of the event and the field at fault.
type Row = (&'static str, Code, Option<u64>, Option<&'static str>);

#[track_caller]
fn check(rows: &[Row]) {
    for (text, code, event, field) in rows {
        let (place, bare) = marked(&text.replace("$E", GOOD));
        let outcome = decode(bare.as_bytes());
        let refusal = outcome.refusal();
        assert_eq!(
            (refusal.code, refusal.event_index, refusal.field.as_deref()),
            (*code, *event, *field),
            "{text}: {refusal:?}"
        );
        assert_eq!(refusal.byte, place.map(|place| place.byte), "{text}: {refusal:?}");
        assert_eq!(refusal.line, place.map(|place| place.line), "{text}: {refusal:?}");
        assert_eq!(refusal.column, place.map(|place| place.column), "{text}: {refusal:?}");
        let before = event.unwrap_or(outcome.events.len() as u64);
        assert_eq!(outcome.events.len() as u64, before, "{text}");
        let message = &refusal.message;
        assert!(message.contains("expected"), "{message}");
        assert!(message.contains("found") || *code == MissingField || *code == Empty, "{message}");
        assert!(!message.ends_with('.') && message.len() < 400, "{message}");
        assert!(!refusal.hint.is_empty() && !message.contains(char::is_control), "{message}");
    }
}

/// Puts each value where `VALUE` stands in the text.
#[track_caller]
fn check_each(text: &str, values: &[&str], code: Code, field: Option<&str>) {
    for value in values {
        let (place, bare) = marked(&text.replace("VALUE", value));
        let outcome = decode(bare.as_bytes());
        let refusal = outcome.refusal();
        let found = (refusal.code, refusal.field.as_deref(), refusal.byte);
        assert_eq!(found, (code, field, place.map(|place| place.byte)), "{bare}: {refusal:?}");
        assert_eq!(refusal.event_index, Some(0), "{bare}");
    }
}

#[test]
fn whole_batches() {
    check(&[
        ("", Empty, None, None),
        (" ", Empty, None, None),
        (" \r\n\t\n", Empty, None, None),
        ("\u{feff}", Empty, None, None),
        ("\u{feff} \n", Empty, None, None),
        ("§null", NotABatch, None, None),
        ("§true", NotABatch, None, None),
        ("§12", NotABatch, None, None),
        ("§-1", NotABatch, None, None),
        ("§\"id\"", NotABatch, None, None),
        ("\n  §id,key,timestamp_ms,value\n", NotABatch, None, None),
        ("§<html><body>502</body></html>", NotABatch, None, None),
        ("§// events\n[]", NotABatch, None, None),
        ("§# events\n[]", NotABatch, None, None),
        ("§}", NotABatch, None, None),
        ("§]", NotABatch, None, None),
        ("§,[]", NotABatch, None, None),
        (" §\u{feff}[]", NotABatch, None, None),
        ("\u{feff}§\u{feff}[]", NotABatch, None, None),
        ("§\u{1e}{}", NotABatch, None, None),
        ("§\0\0\0\0\0\0\0\0", NotABatch, None, None),
        ("§PK\u{3}\u{4}", NotABatch, None, None),
        ("§\u{a0}[]", NotABatch, None, None),
        ("§\u{c}[]", NotABatch, None, None),
        ("§---\n- id: a\n", NotABatch, None, None),
    ]);
}

#[test]
fn what_follows_a_batch() {
    check(&[
        ("[]§[]", TrailingData, None, None),
        ("[$E]§[$E]", TrailingData, None, None),
        ("[$E]\n§[$E]", TrailingData, None, None),
        ("[$E]\n§$E", TrailingData, None, None),
        ("[$E]§]", TrailingData, None, None),
        ("[$E]§,", TrailingData, None, None),
        ("[$E]  §x", TrailingData, None, None),
        ("[$E] §// end", TrailingData, None, None),
        ("[$E]§\0", TrailingData, None, None),
        ("[$E]\n§\u{feff}", TrailingData, None, None),
        ("[]\n\n§1", TrailingData, None, None),
        ("$E§$E", TrailingData, None, None),
        ("$E §$E", TrailingData, None, None),
        ("$E\r§$E", TrailingData, None, None),
        ("$E§,\n$E", TrailingData, None, None),
        ("$E§]", TrailingData, None, None),
        ("$E§}", TrailingData, None, None),
        ("$E\n$E §x", TrailingData, None, None),
        ("$E §// note", TrailingData, None, None),
    ]);
}

#[test]
fn cut_off_texts() {
    check(&[
        ("[§", Truncated, None, None),
        ("[\n§", Truncated, None, None),
        ("[$E§", Truncated, None, None),
        ("[$E,§", Truncated, None, None),
        ("[$E\n,\n $E \n§", Truncated, None, None),
        ("{§", Truncated, Some(0), None),
        ("[{§", Truncated, Some(0), None),
        ("[$E,{\"id\"§", Truncated, Some(1), None),
        ("[$E,{\"id\":§", Truncated, Some(1), None),
        ("[$E,{\"id\":\"§", Truncated, Some(1), None),
        ("[$E,{\"id\":\"a\\§", Truncated, Some(1), None),
        ("[$E,{\"id\":\"a\\u00§", Truncated, Some(1), None),
        ("[$E,{\"id\":\"a\\ud800§", Truncated, Some(1), None),
        ("[$E,{\"id\":\"a\\ud800\\§", Truncated, Some(1), None),
        ("$E\n{\"id\":\"a\",§", Truncated, Some(1), None),
        ("{\"id\":\"a\",\"value\":1§", Truncated, Some(0), None),
        ("{\"id\":\"a\",\"value\":-§", Truncated, Some(0), None),
        ("{\"id\":\"a\",\"value\":1.§", Truncated, Some(0), None),
        ("{\"id\":\"a\",\"value\":tru§", Truncated, Some(0), None),
        ("{\"id\":\"a\",\n\"value\":1 \n§", Truncated, Some(0), None),
        ("[12§", Truncated, Some(0), None),
        ("[nul§", Truncated, Some(0), None),
        ("[\"a§", Truncated, Some(0), None),
    ]);
}

#[test]
fn broken_structure() {
    check(&[
        ("[§,$E]", BadJson, Some(0), None),
        ("[$E,§]", BadJson, Some(1), None),
        ("[$E,\n§]", BadJson, Some(1), None),
        ("[$E,§,$E]", BadJson, Some(1), None),
        ("[$E§$E]", BadJson, None, None),
        ("[$E §}", BadJson, None, None),
        ("[$E§;$E]", BadJson, None, None),
        ("[$E\n§\u{feff}$E]", BadJson, None, None),
        ("[§}", BadJson, Some(0), None),
        ("[§:]", BadJson, Some(0), None),
        ("[§// one\n$E]", BadJson, Some(0), None),
        ("[§/* one */$E]", BadJson, Some(0), None),
        ("[§'a']", BadJson, Some(0), None),
        ("[§nope]", BadJson, Some(0), None),
        ("[§NaN]", BadJson, Some(0), None),
        ("[§01]", BadJson, Some(0), None),
        ("$E\n§]", BadJson, Some(1), None),
        ("$E\n§,\n$E", BadJson, Some(1), None),
        ("$E\n§\u{feff}$E", BadJson, Some(1), None),
        ("$E\n§\0\0\0\0", BadJson, Some(1), None),
        ("$E\n§# note\n$E", BadJson, Some(1), None),
        ("$E\n§id=a", BadJson, Some(1), None),
        ("{§,}", BadJson, Some(0), None),
        ("{§id:\"a\"}", BadJson, Some(0), None),
        ("{§'id':\"a\"}", BadJson, Some(0), None),
        ("{§“id”:\"a\"}", BadJson, Some(0), None),
        ("{§1:\"a\"}", BadJson, Some(0), None),
        ("{§{}}", BadJson, Some(0), None),
        ("{§]", BadJson, Some(0), None),
        ("{\"id\":\"a\",§}", BadJson, Some(0), None),
        ("{\"id\":\"a\",§,\"key\":\"k\"}", BadJson, Some(0), None),
        ("{\"id\":\"a\"§;\"key\":\"k\"}", BadJson, Some(0), None),
        ("{\"id\":\"a\" §\"key\":\"k\"}", BadJson, Some(0), None),
        ("{\"id\":\"a\"§]", BadJson, Some(0), None),
        ("{\"id\":\"a\", §/* key */\"key\":\"k\"}", BadJson, Some(0), None),
        ("{\"id\"§}", BadJson, Some(0), Some("id")),
        ("{\"id\"§=\"a\"}", BadJson, Some(0), Some("id")),
        ("{\"id\":§}", BadJson, Some(0), Some("id")),
        ("{\"id\":§,", BadJson, Some(0), Some("id")),
        ("{\"id\":§:\"a\"}", BadJson, Some(0), Some("id")),
        ("{\"id\":§'a'}", BadJson, Some(0), Some("id")),
        ("{\"id\":§a}", BadJson, Some(0), Some("id")),
        ("{\"id\":§/**/\"a\"}", BadJson, Some(0), Some("id")),
        ("{\"id\":\"a\",\"key\"\n§{\"id\":\"b\"", BadJson, Some(0), Some("key")),
        ("{\"id\":\"a\",\"key\":\"k\"\n§{\"id\":\"b\"", BadJson, Some(0), None),
    ]);
}

#[test]
fn broken_strings() {
    check(&[
        ("[{\"id\":\"§\n\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"a§\tb\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"a§\0b\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"a§\u{1f}b\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"a§\\x41\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"a§\\'\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"a§\\\n\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"a§\\U0041\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"a§\\u12\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"a§\\u+123\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"a§\\u12g4\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"§\\ud800\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"§\\ud801x\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"é§\\udc00\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"§\\ud800\\n\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"§\\ud800\\ud800\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"§\\ud800\\u0041\"}]", BadJson, Some(0), Some("id")),
        ("[{\"id\":\"§\\udfff\\ud800\"}]", BadJson, Some(0), Some("id")),
        ("[{\"i§\\d\":\"a\"}]", BadJson, Some(0), None),
        ("[{\"id§\n\":\"a\"}]", BadJson, Some(0), None),
        ("[{\"value\":\"a§\\q\"}]", BadJson, Some(0), Some("value")),
    ]);
}

#[test]
fn missing_fields() {
    check(&[
        ("§{}", MissingField, Some(0), Some("id")),
        ("[§{}]", MissingField, Some(0), Some("id")),
        ("$E\n  §{ }", MissingField, Some(1), Some("id")),
        ("[§{\"key\":\"k\",\"timestamp_ms\":1,\"value\":2}]", MissingField, Some(0), Some("id")),
        ("[§{\"id\":\"a\",\"timestamp_ms\":1,\"value\":2}]", MissingField, Some(0), Some("key")),
        (
            "[§{\"id\":\"a\",\"key\":\"k\",\"value\":2}]",
            MissingField,
            Some(0),
            Some("timestamp_ms"),
        ),
        (
            "[$E,§{\"id\":\"b\",\"key\":\"k\",\"timestamp_ms\":1}]",
            MissingField,
            Some(1),
            Some("value"),
        ),
        ("§{\"source\":\"s\",\"producer_version\":\"1\"}", MissingField, Some(0), Some("id")),
    ]);
}

#[test]
fn unknown_fields() {
    check(&[
        ("{§\"ID\":\"a\"}", UnknownField, Some(0), Some("ID")),
        ("{§\"\":\"a\"}", UnknownField, Some(0), Some("")),
        ("{§\"id \":\"a\"}", UnknownField, Some(0), Some("id ")),
        ("{§\"timestamp\":1}", UnknownField, Some(0), Some("timestamp")),
        ("{\"id\":\"a\",\n§\"val\":[[[[", UnknownField, Some(0), Some("val")),
        ("[$E,{\"id\":\"b\",§\"x\\u0000\":1}]", UnknownField, Some(1), Some("x\0")),
        ("[{§\"id\\u0000\":\"a\"}]", UnknownField, Some(0), Some("id\0")),
    ]);
}

#[test]
fn duplicate_fields() {
    check(&[
        ("{\"id\":\"a\",§\"id\":\"a\"}", DuplicateField, Some(0), Some("id")),
        ("{\"id\":\"a\",§\"\\u0069d\":\"a\"}", DuplicateField, Some(0), Some("id")),
        ("{\"\\u0069\\u0064\":\"a\",§\"id\":\"a\"}", DuplicateField, Some(0), Some("id")),
        ("[$E,{\"value\":1,\"key\":\"k\",§\"value\":2}]", DuplicateField, Some(1), Some("value")),
        ("{\"timestamp_ms\":1,§\"timestamp_ms\":1", DuplicateField, Some(0), Some("timestamp_ms")),
        ("{\"source\":\"a\",§\"source\":null}", DuplicateField, Some(0), Some("source")),
        ("{\"key\":\"a\",§\"key\":1}", DuplicateField, Some(0), Some("key")),
        (
            "{\"producer_version\":\"a\",§\"producer_version\":\"b\"}",
            DuplicateField,
            Some(0),
            Some("producer_version"),
        ),
    ]);
}

#[test]
fn elements_that_are_no_objects() {
    check(&[
        ("[§1]", WrongType, Some(0), None),
        ("[§\"a\"]", WrongType, Some(0), None),
        ("[§null,$E]", WrongType, Some(0), None),
        ("[$E, §true]", WrongType, Some(1), None),
        ("[§-0.5e3]", WrongType, Some(0), None),
        ("[§[]]", WrongType, Some(0), None),
        ("[§[\"a\",\"k\",1,2]]", WrongType, Some(0), None),
        ("[§\"a\",\"k\",1,2]", WrongType, Some(0), None),
        ("[$E,\n§[$E]]", WrongType, Some(1), None),
        ("$E\n§[\"a\",\"k\",1,2]", WrongType, Some(1), None),
        ("$E\n§12\n", WrongType, Some(1), None),
        ("$E\n§null\n$E", WrongType, Some(1), None),
    ]);
}

#[test]
fn values_of_the_wrong_type() {
    let no_integers = [
        "\"12\"",
        "\"\"",
        "true",
        "false",
        "null",
        "[]",
        "[1]",
        "{}",
        "{\"a\":1}",
        "12.0",
        "0.0",
        "-0",
        "-0.0",
        "1e3",
        "1E3",
        "1e+3",
        "1e-3",
        "1e400",
        "1.5e400",
        "12.50",
        "-1.0",
    ];
    check_each("[{\"value\":§VALUE}]", &no_integers, WrongType, Some("value"));
    check_each("{\"timestamp_ms\" : §VALUE }", &no_integers, WrongType, Some("timestamp_ms"));
    let no_strings = ["1", "-0", "1.5", "1e400", "true", "false", "null", "[\"a\"]", "{}"];
    for field in ["id", "key", "source", "producer_version"] {
        let text = format!("[{{\"{field}\":§VALUE}}]");
        check_each(&text, &no_strings, WrongType, Some(field));
    }
}

#[test]
fn malformed_numbers() {
    let malformed = [
        "01",
        "00",
        "-01",
        "-00",
        "-",
        "--1",
        "1.",
        "1.e3",
        "1e",
        "1e+",
        "1e1.5",
        "1.2.3",
        "0x10",
        "1_000",
        "1-2",
        "10n",
        "1+1",
        "NaN",
        "nan",
        "Infinity",
        "-Infinity",
        "-inf",
        "True",
        "None",
        "nulL",
        "undefined",
        ".5",
        "+1",
        "+",
        "'1'",
        "0b1",
    ];
    check_each("[{\"value\":§VALUE}]", &malformed, BadJson, Some("value"));
    check_each("[{\"timestamp_ms\":§VALUE ,", &malformed, BadJson, Some("timestamp_ms"));
    check_each("[{\"id\":§VALUE}]", &malformed, BadJson, Some("id"));
}

#[test]
fn integers_out_of_range() {
    let long = "1".repeat(5000);
    let beyond = [
        "9223372036854775808",
        "-9223372036854775809",
        "10000000000000000000",
        "18446744073709551616",
        "340282366920938463463374607431768211456",
        &long,
    ];
    check_each("[{\"value\":§VALUE}]", &beyond, OutOfRange, Some("value"));
    check_each("[{\"timestamp_ms\":§VALUE}]", &beyond, OutOfRange, Some("timestamp_ms"));
    let times = ["-1", "253402300800000", "1700000000000000000", "-9223372036854775808"];
    check_each("[{\"timestamp_ms\":§VALUE}]", &times, OutOfRange, Some("timestamp_ms"));
}

#[test]
fn blank_and_long_names() {
    let blank = [
        "\"\"",
        "\" \"",
        "\"\\t\\n\\r\"",
        "\"\u{a0}\"",
        "\"\u{2003}\u{3000}\"",
        "\"\\u2028\"",
        "\"\u{85}\"",
        "\"\\u000b\"",
        "\"\u{1680}\"",
    ];
    let (plain, wide) = (format!("\"{}\"", "a".repeat(513)), format!("\"{}\"", "é".repeat(257)));
    let (escaped, space) = (format!("\"{}a\"", "\\n".repeat(512)), format!("\"{:600}\"", ""));
    for field in ["id", "key", "source", "producer_version"] {
        let text = format!("[{{\"{field}\":§VALUE}}]");
        check_each(&text, &blank, Blank, Some(field));
        check_each(&text, &[&plain, &wide, &escaped, &space], TooLong, Some(field));
    }
}

/// What is refused in the formats that people really drop, and what the hint must say.
/// Has failed for each of the hints left out.
#[test]
fn case_134_hints_say_what_to_do_with_what_people_drop() {
    let event = |time: &str, value: &str| {
        format!(r#"{{"id":"a","key":"k","timestamp_ms":{time},"value":{value}}}"#)
    };
    let mut tar = vec![b'x'; 600];
    tar[257..262].copy_from_slice(b"ustar");
    for (text, code, parts) in [
        (event("\"2026-01-01T00:00:00Z\"", "1"), WrongType, &["1767225600000", "fromdate"][..]),
        (event("\"2026-01-01 00:00:00\"", "1"), WrongType, &["if it is UTC", "1767225600000"]),
        (event("1767225600.5", "1"), WrongType, &["seconds", "1767225600500"]),
        (event("1", "12.5"), WrongType, &["12500 thousandths"]),
        (event("1", "1e3"), WrongType, &["without fraction or exponent"]),
        (event("\"soon\"", "1"), WrongType, &["like 42"]),
        ("{\"id\":\"a\0\"".to_owned(), BadJson, &["\\u0000"]),
        ("{\"id\":\"a\u{1}\"".to_owned(), BadJson, &["\\u0001"]),
        (
            format!("{{\"events\": [{}]}}", event("1", "1")),
            UnknownField,
            &["alone", "jq -c .events[]"],
        ),
        (r#"{"data": 5}"#.to_owned(), UnknownField, &["an event has the fields"]),
        (r#"{"specversion":"1.0"}"#.to_owned(), UnknownField, &["CloudEvent", "jq -c"]),
        ("id,key,timestamp_ms,value\na,k,1,2\n".to_owned(), NotABatch, &["csv.DictReader"]),
        ("\"id\";\"value\"\n".to_owned(), NotABatch, &["csv.DictReader"]),
        (String::from_utf8(tar).unwrap(), NotABatch, &["tar -xf"]),
    ] {
        let outcome = decode(text.as_bytes());
        let refusal = outcome.refusal();
        assert_eq!(refusal.code, code, "{text}: {refusal:?}");
        for part in parts {
            assert!(refusal.hint.contains(part), "{text}: {part} is not in {}", refusal.hint);
        }
    }
    // a member that may wrap events is judged alike, however much of it is there
    assert_eq!(decode(br#"{"events""#).refusal().code, Truncated);
}

/// Behind the first fault up to 19 others are named, and all are counted.
/// Has failed for the first fault alone, for all of them named, and for broken JSON taken for the
/// end.
#[test]
fn case_134_up_to_twenty_faults_of_a_batch_are_named_with_the_count() {
    let bad = |n: usize| match n % 4 {
        0 => r#"{"id":"a]","key":{"x":["}"]},"timestamp_ms":1,"value":1}"#,
        1 => r#"{"id":"b","key":"k","timestamp_ms":"soon","value":1}"#,
        2 => "17",
        _ => r#"{"id":"c\"","key":"k","timestamp_ms":1}"#,
    };
    let events: Vec<&str> = (0..60).map(|n| if n % 2 == 0 { bad(n / 2) } else { GOOD }).collect();
    for text in [events.join("\n"), format!("[{}]", events.join(" ,\n "))] {
        let outcome = decode(text.as_bytes());
        let refusal = outcome.refusal();
        assert_eq!((refusal.code, refusal.event_index), (WrongType, Some(0)), "{refusal:?}");
        assert_eq!((refusal.faults, refusal.all_faults), (Some(30), Some(true)), "{refusal:?}");
        assert_eq!(refusal.more.len(), 19);
        let codes: Vec<Code> = refusal.more.iter().take(4).map(|one| one.code).collect();
        assert_eq!(codes, [WrongType, WrongType, MissingField, WrongType]);
        let at: Vec<u64> = refusal.more.iter().filter_map(|one| one.event_index).collect();
        assert_eq!(at, (1..20).map(|n| n * 2).collect::<Vec<_>>());
        assert!(outcome.events.is_empty());
    }
    // one fault alone is told as before; broken JSON ends the search
    let one = decode(format!("{GOOD}\n{}\n{GOOD}", bad(0)).as_bytes());
    assert_eq!((one.refusal().faults, one.refusal().more.len()), (None, 0));
    let broken = decode(format!("{}\n{}\n{{\"id\":,", bad(0), bad(1)).as_bytes());
    assert_eq!((broken.refusal().faults, broken.refusal().all_faults), (Some(2), Some(false)));
}
