//! What every form of a report keeps to, and the form for programs.

use serde_json::{Value, json};

use super::fake::{Fake, late_row, report, write_to_string};
use super::shown::is_hidden;
use super::*;
use crate::engine::Counts;

fn parsed(fake: &Fake, filter: &Filter) -> Value {
    let text = report(fake, Format::Json, filter);
    assert!(text.ends_with("}\n"), "{text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn keyed(pattern: &str) -> Filter {
    Filter { key: Some(Filter::key_glob(pattern).unwrap()), ..Filter::default() }
}

#[test]
fn json_is_that_of_the_contract_field_by_field() {
    let expected = [
        r#"{"format":1,"generated_at_ms":185250,"watermark_ms":1100,"max_timestamp_ms":1600,"#,
        r#""last_batch":2,"last_ingest_at_ms":5000,"#,
        "\n",
        r#""settings":{"window_ms":1000,"lateness_ms":500,"late_rule":"window","#,
        r#""late_policy":"aside","max_future_ms":86400000,"dedup_horizon_ms":null},"#,
        "\n",
        r#""totals":{"batches":2,"refused_batches":0,"accepted":4,"late":1,"duplicate":7,"#,
        r#""future":0,"expired":0,"late_kept":1,"late_waiting":1,"held":0},"#,
        "\n\"sources\":[\n",
        r#"{"source":"default","watermark_ms":1100,"max_timestamp_ms":1600,"idle":false,"#,
        r#""last_batch_at_ms":5000,"declared":false,"expected":false,"retired":false,"#,
        r#""presence_since_ms":null,"#,
        r#""counts":{"read":12,"accepted":4,"late":1,"duplicate":7,"future":0,"expired":0}}"#,
        "\n],\n\"windows\":[\n",
        r#"{"key":"checkout","window_start_ms":0,"window_end_ms":1000,"count":3,"sum":40,"#,
        r#""min":8,"max":20,"state":"final","revision":0,"waiting_for":[],"#,
        r#""waiting_for_more":0},"#,
        "\n",
        r#"{"key":"checkout","window_start_ms":1000,"window_end_ms":2000,"count":1,"sum":5,"#,
        r#""min":5,"max":5,"state":"open","revision":0,"waiting_for":["default"],"#,
        r#""waiting_for_more":0}"#,
        "\n],\n\"late\":[\n",
        r#"{"id":"request-5","key":"checkout","timestamp_ms":900,"value":99,"#,
        r#""window_start_ms":0,"watermark_ms":1100,"source":"default","batch":1,"#,
        r#""event_index":0,"applied_in":null}"#,
        "\n]}\n",
    ]
    .concat();
    assert_eq!(report(&Fake::example(), Format::Json, &Filter::default()), expected);
}

#[test]
fn json_of_an_empty_store_says_null_for_what_is_unknown() {
    let found = parsed(&Fake::empty(), &Filter::default());
    for name in ["max_timestamp_ms", "last_batch", "last_ingest_at_ms"] {
        assert_eq!(found.get(name), Some(&Value::Null), "{name}");
    }
    for name in ["sources", "windows", "late"] {
        assert_eq!(found[name], json!([]), "{name}");
    }
}

#[test]
fn every_digit_of_every_number_is_kept() {
    let (max, min) = (i64::MAX, i64::MIN);
    let numbers =
        [1 << 31, (1 << 31) + 1, 1 << 32, (1 << 32) + 1, (1 << 53) + 1, -(1 << 53) - 1, max, min];
    for number in numbers {
        let count = number.max(1);
        let fake = Fake::empty()
            .window("k", 0, [count, number, number, number])
            .late(late_row("i", "k", 0, number));
        let text = report(&fake, Format::Json, &Filter::default());
        let figures = format!(
            "\"count\":{count},\"sum\":{number},\"min\":{number},\"max\":{number},\"state\""
        );
        assert!(text.contains(&figures), "no {figures} in {text}");
        assert!(text.contains(&format!("\"value\":{number},")), "{text}");
        let text = report(&fake, Format::Csv, &Filter::default());
        assert!(
            text.contains(&format!(",{count},{number},{number},{number},open,0\r\n")),
            "{text}"
        );
        let text = report(&fake, Format::Text, &Filter::default());
        let words: Vec<String> =
            text.split_whitespace().map(|word| word.replace('_', "")).collect();
        let expected = [count, number, number, number].map(|number| number.to_string());
        assert!(words.windows(4).any(|found| found == expected), "{text}");
    }
}

#[test]
fn strings_come_back_from_json_as_they_were_and_hold_no_commands() {
    let names =
        ["a\0b", "\u{7f}", "\u{9b}31m", "q\"\\/", "\u{202e}x", "漢字 😀", "\u{e0041}", "\n\t"];
    let mut fake = Fake::empty();
    for name in names {
        fake = fake
            .window(name, 0, [1, 1, 1, 1])
            .source(name, Some(0))
            .late(late_row(name, name, 0, 1));
    }
    let text = report(&fake, Format::Json, &Filter::default());
    let raw: Vec<char> = text.chars().filter(|c| *c != '\n' && is_hidden(*c)).collect();
    assert_eq!(raw, [], "in {text}");
    let found: Value = serde_json::from_str(&text).unwrap();
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    let strings = |list: &str, name: &str| -> Vec<String> {
        let rows = found[list].as_array().unwrap().iter();
        rows.map(|row| row[name].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(strings("windows", "key"), sorted);
    assert_eq!(strings("sources", "source"), sorted);
    assert_eq!(strings("late", "id"), names);
}

#[test]
fn an_open_window_names_the_sources_that_it_waits_for() {
    // lateness 500: the sources stand at 1100, 200 and 3500; one has sent nothing that counts
    let fake = Fake::example()
        .source("behind", Some(700))
        .source("ahead", Some(4000))
        .source("silent", None)
        .window("checkout", 3000, [1, 1, 1, 1]);
    let found = parsed(&fake, &Filter::default());
    let waits: Vec<&Value> =
        found["windows"].as_array().unwrap().iter().map(|window| &window["waiting_for"]).collect();
    let both = json!(["behind", "default"]);
    assert_eq!(waits, [&json!([]), &both, &json!(["ahead", "behind", "default"])]);
    let silent = &found["sources"][3];
    assert_eq!((&silent["source"], &silent["watermark_ms"]), (&json!("silent"), &Value::Null));
}

/// Case 121: a report grows with its windows and its sources, not with their product.
#[test]
fn case_121_an_open_window_names_few_of_the_sources_that_it_waits_for() {
    let mut fake = Fake::example().window("checkout", 3000, [1, 1, 1, 1]);
    for number in 0..12 {
        fake = fake.source(&format!("s{number:02}"), Some(2400 - 10 * number));
    }
    let found = parsed(&fake, &Filter::default());
    // the ten that are furthest behind
    let mut names = vec!["default".to_owned()];
    names.extend((3..12).map(|number| format!("s{number:02}")));
    assert_eq!(found["windows"][2]["waiting_for"], json!(names));
    let more: Vec<&Value> = found["windows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|window| &window["waiting_for_more"])
        .collect();
    assert_eq!(more, [&json!(0), &json!(3), &json!(3)]);
}

#[test]
fn a_source_that_has_reached_the_end_of_a_window_is_not_waited_for() {
    let fake = Fake::example().source("level", Some(2500)).source("short", Some(2499));
    let found = parsed(&fake, &Filter::default());
    assert_eq!(found["windows"][1]["window_end_ms"], json!(2000));
    assert_eq!(found["windows"][1]["waiting_for"], json!(["default", "short"]));
}

#[test]
fn when_nobody_has_sent_an_open_window_waits_for_all() {
    let fake = Fake::empty().source("b", None).source("a", None).window("k", 0, [1, 1, 1, 1]);
    let found = parsed(&fake, &Filter::default());
    assert_eq!(found["windows"][0]["waiting_for"], json!(["a", "b"]));
}

#[test]
fn an_idle_source_keeps_no_window_open_and_an_awaited_one_all() {
    // lateness 500: default stands at 1100, quiet at 200
    let fake = |awaited_idle: bool| {
        Fake::example()
            .source("quiet", Some(700))
            .standing("quiet", false, true)
            .source("new", None)
            .standing("new", true, awaited_idle)
    };
    let waits = |fake: &Fake| parsed(fake, &Filter::default())["windows"][1]["waiting_for"].clone();
    assert_eq!(waits(&fake(false)), json!(["default", "new"]));
    assert_eq!(waits(&fake(true)), json!(["default"]));
    let found = parsed(&fake(true), &Filter::default());
    let idle: Vec<&Value> =
        found["sources"].as_array().unwrap().iter().map(|source| &source["idle"]).collect();
    assert_eq!(idle, [&json!(false), &json!(true), &json!(true)]);
    // when all are idle, nobody in particular is waited for
    assert_eq!(waits(&fake(true).standing("default", false, true)), json!([]));
}

#[test]
fn who_holds_the_watermark_is_never_an_idle_one() {
    let holders = |fake: &Fake| -> Vec<String> {
        let rows = fake.sources().unwrap();
        let holding = Holding::of(&rows, &fake.summary);
        rows.into_iter().filter(|row| holding.holds(row)).map(|row| row.source).collect()
    };
    let fake = || Fake::example().source("quiet", Some(700));
    assert_eq!(holders(&fake()), ["quiet"]);
    let idle = || fake().standing("quiet", true, true);
    assert_eq!(holders(&idle()), ["default"]);
    assert_eq!(holders(&idle().standing("default", false, true)), [""; 0]);
    // the watermark is at 1100, where default is: both have to move
    let awaited = || idle().source("new", None).standing("new", true, false);
    assert_eq!(holders(&awaited()), ["default", "new"]);
    // and here it is the awaited one alone that keeps the watermark where it is
    let mut behind = awaited();
    behind.summary.watermark_ms = 1000;
    assert_eq!(holders(&behind), ["new"]);
}

#[test]
fn a_source_of_which_all_is_expired_is_named() {
    let mut fake = Fake::empty().source("s", None);
    assert!(!is_all_expired(&fake.sources().unwrap()[0]));
    fake.sources[0].counts = Counts { expired: 2, ..Counts::default() };
    assert!(is_all_expired(&fake.sources().unwrap()[0]));
    let mut out = Vec::new();
    write_sources(&fake, false, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("are its timestamps in seconds? s\n"), "{text}");
    fake.sources[0].counts.accepted = 1;
    assert!(!is_all_expired(&fake.sources().unwrap()[0]));
}

#[test]
fn timestamps_in_seconds_are_told_by_their_size() {
    let unit = |max_timestamp_ms: Option<i64>| {
        suspected_unit(&Fake::empty().source("s", max_timestamp_ms).sources().unwrap()[0])
    };
    // 2001 and 2026 in seconds
    for ms in [1_000_000_000, 1_790_000_000, 9_999_999_999] {
        assert_eq!(unit(Some(ms)), Some("seconds"), "{ms}");
    }
    // small ones, as in examples, milliseconds of 2026, and nothing yet
    for ms in [Some(0), Some(999_999_999), Some(10_000_000_000), Some(1_790_000_000_000), None] {
        assert_eq!(unit(ms), None, "{ms:?}");
    }
}

#[test]
fn a_filter_cuts_the_lists_and_never_the_totals() {
    let fake = Fake::example().window("basket", 1000, [2, 2, 1, 1]).late(late_row(
        "request-6",
        "basket",
        950,
        1,
    ));
    let keys = |filter: &Filter| {
        let found = parsed(&fake, filter);
        assert_eq!(found["totals"]["accepted"], json!(4));
        let windows = found["windows"].as_array().unwrap().iter();
        let windows: Vec<String> =
            windows.map(|row| format!("{}@{}", row["key"], row["window_start_ms"])).collect();
        let late = found["late"].as_array().unwrap().iter();
        let late: Vec<String> = late.map(|row| row["id"].to_string()).collect();
        (windows.join(" ").replace('"', ""), late.join(" ").replace('"', ""))
    };
    let of = |windows: &str, late: &str| (windows.to_owned(), late.to_owned());
    assert_eq!(keys(&keyed("b*")), of("basket@1000", "request-6"));
    let span = Span { from_ms: Some(1), to_ms: Some(1001) };
    let from_1 = Filter { span, ..Filter::default() };
    assert_eq!(keys(&from_1), of("basket@1000 checkout@1000", ""));
    let open = Filter { state: Some(WindowState::Open), ..Filter::default() };
    assert_eq!(keys(&open), of("basket@1000 checkout@1000", "request-5 request-6"));
    let closed = Filter { state: Some(WindowState::Final), ..Filter::default() };
    assert_eq!(keys(&closed), of("checkout@0", "request-5 request-6"));
    let state = |state: WindowState, fake: &Fake| {
        let found = parsed(fake, &Filter { state: Some(state), ..Filter::default() });
        let window = &found["windows"][0];
        format!("{} {} {}", window["key"], window["state"], window["revision"])
    };
    let fake = Fake::example().corrected(3);
    assert_eq!(state(WindowState::Corrected, &fake), "\"checkout\" \"corrected\" 3");
    assert_eq!(state(WindowState::Final, &fake), "null null null");
}

#[test]
fn the_span_of_a_state_leaves_out_no_window_of_it() {
    for (window_ms, watermark_ms) in [(1, 0), (3, 7), (3, 6), (i64::MAX, 5), (i64::MAX, i64::MAX)] {
        for state in WindowState::ALL {
            let filter = Filter { state: Some(state), ..Filter::default() };
            let span = span_of_state(&filter, window_ms, watermark_ms);
            for start_ms in (0..20).filter(|start_ms| start_ms % window_ms == 0) {
                let is_final = window::is_final(start_ms, window_ms, watermark_ms);
                let wanted = is_final == (state != WindowState::Open);
                let inside = span.from_ms.is_none_or(|from_ms| from_ms <= start_ms)
                    && span.to_ms.is_none_or(|to_ms| start_ms < to_ms);
                assert!(inside || !wanted, "{start_ms} of {window_ms} at {watermark_ms}: {span:?}");
            }
        }
    }
    let open = Filter { state: Some(WindowState::Open), ..Filter::default() };
    assert_eq!(span_of_state(&open, 1000, 5000).from_ms, Some(4001));
}

#[test]
fn a_key_pattern_takes_whole_keys() {
    let takes = |pattern: &str, key: &str| keyed(pattern).takes_key(key);
    assert!(takes("check*", "checkout"));
    assert!(!takes("check", "checkout"));
    assert!(!takes("Check*", "checkout"));
    assert!(takes("a*c", "a/b\nc"));
    assert!(takes("{a,b}", "b"));
    assert!(takes("\\*", "*") && !takes("\\*", "x"));
    assert!(takes("[!a]", "b") && !takes("[!a]", "a"));
    assert!(takes("caf??", "café"), "one question mark for each byte");
    assert!(takes("é*", "été"));
}

#[test]
fn a_key_pattern_that_is_none_is_named() {
    let error = Filter::key_glob("a[").unwrap_err();
    assert_eq!(error.pattern, "a[");
    assert!(error.to_string().starts_with("a[ is no pattern for keys: unclosed"), "{error}");
    for pattern in ["[é]", "x[a-é]", "[!é]", "\\[[]é]"] {
        let error = Filter::key_glob(pattern).unwrap_err();
        assert!(error.reason.contains("ASCII"), "{pattern}: {error}");
    }
    for pattern in ["é[a-z]é", "\\[é]", "[]]é"] {
        assert!(Filter::key_glob(pattern).is_ok(), "{pattern}");
    }
}

#[test]
fn names_of_formats_and_states_lead_back() {
    for format in Format::ALL {
        assert_eq!(Format::from_name(format.name()), Some(format));
    }
    for state in WindowState::ALL {
        assert_eq!(WindowState::from_name(state.name()), Some(state));
    }
    assert_eq!((Format::from_name("JSON"), WindowState::from_name("")), (None, None));
}

#[test]
fn the_sources_command_adds_what_a_report_leaves_out() {
    let counts = Counts { accepted: 1, duplicate: 2, ..Counts::default() };
    let fake = Fake::example().source("ahead", Some(9000)).version("1.2", counts);
    let found: Value =
        serde_json::from_str(&write_to_string(|out| write_sources(&fake, true, out))).unwrap();
    assert_eq!(found["watermark_ms"], json!(1100));
    let default = json!({
        "source": "default", "watermark_ms": 1100, "max_timestamp_ms": 1600, "idle": false,
        "last_batch_at_ms": 5000, "declared": false, "expected": false, "retired": false,
        "presence_since_ms": null, "last_batch": 2,
        "last_file": "b.json", "holds_watermark": true,
        "accepted": 4, "late": 1, "duplicate": 7, "future": 0, "expired": 0,
        "counts": {
            "read": 12, "accepted": 4, "late": 1, "duplicate": 7, "future": 0, "expired": 0,
        },
    });
    assert_eq!(found["sources"][1], default);
    assert_eq!(found["sources"][0]["holds_watermark"], json!(false));
    let version = json!({
        "producer_version": "1.2",
        "accepted": 1, "late": 0, "duplicate": 2, "future": 0, "expired": 0,
    });
    assert_eq!(found["producer_versions"], json!([version]));
    let text = write_to_string(|out| write_sources(&fake, false, out));
    assert!(text.contains("What each producer version sent"), "{text}");
}

#[test]
fn late_events_alone_are_a_document_too() {
    let text =
        write_to_string(|out| write_late(&Fake::example(), Format::Json, &Filter::default(), out));
    let found: Value = serde_json::from_str(&text).unwrap();
    let whole = parsed(&Fake::example(), &Filter::default());
    assert_eq!(found, json!({"format": 1, "watermark_ms": 1100, "late": whole["late"]}));
    let none = write_to_string(|out| write_late(&Fake::example(), Format::Text, &keyed("x"), out));
    assert_eq!(none, "\nLate events: 0 listed of 1 kept, key x\n");
}

/// Takes so many bytes, then says that nobody reads any more.
struct Closing(usize);

impl Write for Closing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A store with windows without end, that counts how many it was asked for.
struct Endless(std::cell::Cell<u64>);

impl Snapshot for Endless {
    fn summary(&self) -> Result<Summary, store::Error> {
        Fake::example().summary()
    }

    fn sources(&self) -> Result<Vec<SourceRow>, store::Error> {
        Fake::example().sources()
    }

    fn versions(&self, _each: &mut store::EachVersion<'_>) -> Result<(), store::Error> {
        Ok(())
    }

    fn accounts(&self, _each: &mut store::EachAccount<'_>) -> Result<(), store::Error> {
        Ok(())
    }

    fn windows(
        &self,
        _span: Span,
        each: &mut (dyn FnMut(&store::WindowRow<'_>) -> ControlFlow<()> + '_),
    ) -> Result<(), store::Error> {
        let totals = Totals { count: 1, sum: 1, min: 1, max: 1 };
        for number in 0..20_000 {
            self.0.set(number);
            let row =
                store::WindowRow { key: "k", start_ms: number as i64 * 1000, totals, revision: 0 };
            if each(&row).is_break() {
                return Ok(());
            }
        }
        Err(store::Error::Io("the disk went away".to_owned()))
    }

    fn late(
        &self,
        _span: Span,
        _each: &mut (dyn FnMut(&LateRow<'_>) -> ControlFlow<()> + '_),
    ) -> Result<(), store::Error> {
        Ok(())
    }

    fn held(&self, _each: &mut store::EachHeld<'_>) -> Result<(), store::Error> {
        Ok(())
    }

    fn revisions(
        &self,
        _window: crate::engine::window::WindowId<'_>,
    ) -> Result<Vec<store::RevisionRow>, store::Error> {
        Ok(Vec::new())
    }

    fn moves(&self, _from_ms: i64, _each: &mut store::EachMove<'_>) -> Result<(), store::Error> {
        Ok(())
    }

    fn remembered(&self, _id: &str) -> Result<Option<store::RememberedRow>, store::Error> {
        Ok(None)
    }

    fn receipt(&self, _batch: u64) -> Result<Option<store::ReceiptRow>, store::Error> {
        Ok(None)
    }

    fn receipts(&self, _: u64, _: &mut store::EachReceipt<'_>) -> Result<(), store::Error> {
        Ok(())
    }

    fn settled(&self, _event: store::EventRef) -> Result<Option<store::SettledRow>, store::Error> {
        Ok(None)
    }

    fn presence(&self, _source: &str) -> Result<Vec<store::PresenceRow>, store::Error> {
        Ok(Vec::new())
    }
}

#[test]
fn a_reader_who_has_seen_enough_stops_the_report() {
    for format in [Format::Json, Format::Csv] {
        let endless = Endless(std::cell::Cell::new(0));
        let outcome = write(&endless, format, &Filter::default(), 0, &mut Closing(10));
        let Err(ReportError::Write(error)) = outcome else { panic!("{format:?}: {outcome:?}") };
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        let asked = endless.0.get();
        assert!(asked < 10_000, "{format:?} went on to window {asked}");
    }
}

#[test]
fn a_report_that_is_short_of_bytes_never_passes_for_whole() {
    for format in Format::ALL {
        let whole = report(&Fake::example(), format, &Filter::default()).len();
        for bytes in 0..whole {
            let out = &mut Closing(bytes);
            let outcome = write(&Fake::example(), format, &Filter::default(), fake::NOW_MS, out);
            let is_write = outcome.is_err_and(|error| matches!(error, ReportError::Write(_)));
            assert!(is_write, "{format:?} cut after {bytes} of {whole} bytes");
        }
    }
}

#[test]
fn a_store_that_fails_midway_is_not_taken_for_its_end() {
    for format in Format::ALL {
        let endless = Endless(std::cell::Cell::new(0));
        let outcome = write(&endless, format, &Filter::default(), 0, &mut io::sink());
        let Err(ReportError::Store(error)) = outcome else { panic!("{format:?}: {outcome:?}") };
        assert_eq!(error.to_string(), "the disk went away");
    }
}
