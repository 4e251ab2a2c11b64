//! Cases from the field that need other files than text, the daemon's folders, or the time of day.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::model::{Event, Model, Settings};
use crate::observed::{array, assert_report, ndjson};
use crate::world::World;

fn events(name: &str, count: i64) -> Vec<Event> {
    (0..count).map(|n| Event::new(format!("{name}-{n}"), "k", n * 10, n)).collect()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd_frame(text: &str) -> Vec<u8> {
    zstd::encode_all(text.as_bytes(), 3).unwrap()
}

/// Case 49, for gzip and zstd, whatever the name.
#[test]
fn case_049_all_members_of_compressed_data_are_read() {
    let world = World::with_store(1000, 500);
    let mut model = Model::new(Settings::new(1000, 500));
    let (a, b, c) = (events("a", 10), events("b", 20), events("c", 5));
    let joined = |parts: [Vec<u8>; 2]| parts.concat();
    world.drop_in("1.ndjson.gz", joined([gzip(&ndjson(&a)), gzip(&ndjson(&b))]));
    let more = (events("d", 10), events("e", 20));
    world.drop_in("2.zst", joined([zstd_frame(&ndjson(&more.0)), zstd_frame(&ndjson(&more.1))]));
    // one array over two members, under a name that says nothing
    let text = array(&c);
    let (head, tail) = text.split_at(text.len() / 2);
    world.drop_in("3", joined([gzip(head), gzip(tail)]));
    world.drain().ok();
    for (batch, count) in [([&a[..], &b].concat(), 30), ([more.0, more.1].concat(), 30), (c, 5)] {
        let answer = model.ingest("default", &batch, 0).unwrap();
        assert_eq!(answer.counts.accepted, count);
    }
    assert_report(&world.report(), &model, &|| world.told());
}

/// Cases 37, 38, 40, 46, 50, P1 and P6: nothing of a bad file counts, and the good ones go on.
#[test]
fn case_037_038_040_046_050_p1_p6_bad_files_fail_whole_and_the_others_go_on() {
    let world = World::with_store(1000, 500);
    let mut model = Model::new(Settings::new(1000, 500));
    let good = events("good", 9);
    let with = |bad: &str| format!("{}{bad}\n", ndjson(&good));
    let value = |value: &str| {
        with(&format!(r#"{{"id": "x", "key": "k", "timestamp_ms": 1, "value": {value}}}"#))
    };
    let one = array(&good);
    let whole = gzip(&one);
    let mut wrong_sum = whole.clone();
    let at = wrong_sum.len() - 8;
    wrong_sum[at] ^= 1;
    let cut = whole[..whole.len() - 5].to_vec();
    let bad: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", Vec::new(), "empty"),
        ("field-twice", value(r#"1, "value": 2"#).into(), "duplicate_field"),
        ("point", value("12.0").into(), "wrong_type"),
        ("exponent", value("1e3").into(), "wrong_type"),
        ("minus-zero", value("-0").into(), "wrong_type"),
        ("huge", value("1e400").into(), "wrong_type"),
        ("surrogate", value(r#"1, "source": "\ud800""#).into(), "bad_json"),
        ("two-arrays", format!("{one}{one}").into(), "trailing_data"),
        ("two-lines", format!("{one}\n{one}").into(), "trailing_data"),
        ("as-array", br#"[["a","k",1,2]]"#.to_vec(), "wrong_type"),
        ("gz-and-more.gz", [&whole[..], b"0123456789"].concat(), "bad_compression"),
        ("gz-cut.gz", cut, "truncated"),
        ("gz-sum.gz", wrong_sum, "bad_compression"),
    ];
    for (number, (name, content, _)) in bad.iter().enumerate() {
        world.drop_in(name, content);
        world.drop_in(format!("{name}-good"), ndjson(&events(&format!("g{number}"), 3)));
        model.ingest("default", &events(&format!("g{number}"), 3), 0).unwrap();
    }
    let daemon = world.daemon();
    world.until_drained();
    daemon.stop();
    for (name, content, code) in &bad {
        let reason = world.reason(name);
        assert_eq!(reason["code"], *code, "{reason}");
        assert_eq!(reason["file"], *name, "{reason}");
        assert_eq!(reason["bytes"], content.len(), "{reason}");
        assert_eq!(reason["sha256"].as_str().map(str::len), Some(64), "{reason}");
        let kept = std::fs::read(world.spool().join("failed").join(name)).unwrap();
        assert!(kept == *content, "{name} is not what was dropped");
        if ["duplicate_field", "wrong_type"].contains(code) && *name != "as-array" {
            assert_eq!((&reason["event_index"], &reason["field"]), (&9.into(), &"value".into()));
        }
    }
    let hint = world.reason("empty")["hint"].to_string();
    assert!(hint.contains("empty: did the sender run out of room?"), "{hint}");
    assert_eq!(world.names("failed").len(), 2 * bad.len(), "{}", world.told());
    assert_eq!(world.names("done").len(), bad.len(), "{}", world.told());
    assert_report(&world.report(), &model, &|| world.told());
}

/// What unpacks to more than is allowed is refused before it fills anything.
#[test]
fn what_inflates_too_far_is_refused() {
    let world = World::with_store(1000, 500);
    let config = world.root().join("small.toml");
    std::fs::write(&config, "[limits]\nmax_inflated_bytes = 1000000\n").unwrap();
    let config = config.to_str().unwrap();
    // of the same size when unpacked, to the byte: one fits, the other is a byte too long
    let padded = |bytes: usize| format!("[{}]", " ".repeat(bytes - 2));
    for (name, bytes) in [("fits.gz", 1_000_000), ("one-more.gz", 1_000_001)] {
        std::fs::write(world.root().join(name), gzip(&padded(bytes))).unwrap();
    }
    std::fs::write(world.root().join("far.zst"), zstd_frame(&padded(50_000_000))).unwrap();
    world.run(&["--config", config, "ingest", "fits.gz"]).ok();
    for name in ["one-more.gz", "far.zst"] {
        let refused = world.run(&["--config", config, "ingest", "--json", name]).exits(65).json();
        assert_eq!(refused["code"], "inflates_too_far", "{refused}");
        world.run(&["ingest", name]).ok();
    }
}

/// Each file of one command is a batch of its own: what is refused or missing stops no other.
#[test]
fn several_files_by_hand_are_several_batches() {
    let world = World::with_store(1000, 500);
    let write = |name: &str, text: &str| std::fs::write(world.root().join(name), text).unwrap();
    write("a", &ndjson(&events("a", 3)));
    write("bad", "[{}]");
    write("b", &array(&events("b", 4)));
    let refused = world.run(&["ingest", "--json", "a", "bad", "b"]).exits(65).json_lines();
    let shown: Vec<_> = refused.iter().map(|line| (&line["file"], &line["accepted"])).collect();
    let null = serde_json::Value::Null;
    assert_eq!(shown, [(&"a".into(), &3.into()), (&"bad".into(), &null), (&"b".into(), &4.into())]);
    write("c", &ndjson(&events("c", 5)));
    let missing = world.run(&["ingest", "--json", "nowhere", "c"]).exits(66);
    assert_eq!(missing.json()["accepted"], 5);
    assert!(missing.err.contains("nowhere"), "{}", missing.err);
    assert_eq!(world.report()["totals"]["accepted"], 12);
}

/// Case 41: an id with a NUL stays itself, and the files after it go through.
#[test]
fn case_041_a_nul_in_an_id_harms_nothing() {
    let world = World::with_store(1000, 500);
    let mut model = Model::new(Settings::new(1000, 500));
    let nul = [Event::new("a\0b", "k\0", 1, 1), Event::new("a", "k", 1, 2)];
    world.drop_in("00", array(&nul));
    model.ingest("default", &nul, 0).unwrap();
    for number in 1..=50 {
        let batch = events(&format!("n{number}"), 2);
        world.drop_in(format!("{number:02}"), ndjson(&batch));
        model.ingest("default", &batch, 0).unwrap();
    }
    world.drain().ok();
    assert_report(&world.report(), &model, &|| world.told());
    let text = world.run(&["report"]).ok().out;
    assert!(!text.contains('\0'), "{text}");
}

/// Case 106: who closes the pipe has read enough.
#[test]
fn case_106_a_closed_pipe_ends_a_command_quietly() {
    let world = World::with_store(10, 0);
    let many: Vec<Event> =
        (0..20_000).map(|n| Event::new(format!("e{n}"), "k", n * 10, 1)).collect();
    let late = (0..10_000).map(|n| Event::new(format!("l{n}"), "k", 5, 1));
    let all: Vec<Event> = many.into_iter().chain(late).collect();
    std::fs::write(world.root().join("many"), ndjson(&all)).unwrap();
    world.run(&["ingest", "many"]).ok();
    let csv = ["report", "--format", "csv"];
    for args in [&["report"][..], &["report", "--json"], &csv, &["late"], &["late", "--json"]] {
        let mut command = world.command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut head = BufReader::with_capacity(64, child.stdout.take().unwrap());
        head.read_line(&mut line).unwrap();
        drop(head);
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = child.wait().unwrap();
        assert!(!line.is_empty(), "{args:?}");
        assert_eq!((status.code(), said.as_str()), (Some(0), ""), "{args:?}");
    }
}

/// Case 68: one clock that is a day ahead does not make everybody else late.
#[test]
fn case_068_one_event_far_ahead_is_held_and_ten_minutes_of_others_count() {
    const MINUTE_MS: i64 = 60_000;
    let world = World::new();
    world.init(MINUTE_MS, 5000, &["--max-future-ms", "300000"]);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let begin_ms = now_ms / MINUTE_MS * MINUTE_MS - 10 * MINUTE_MS;
    let ahead = Event::new("ahead", "k", now_ms + 24 * 60 * MINUTE_MS + 1, 1_000_000);
    let first = Event::new("first", "k", begin_ms, 1);
    world.drop_in("00-mixed.ndjson", ndjson(&[ahead, first]));
    for minute in 0..10 {
        let seconds = minute * 60..(minute + 1) * 60;
        let event = |n: i64| Event::new(format!("e{n}"), "k", begin_ms + n * 1000, 1);
        let events: Vec<Event> = seconds.map(event).collect();
        world.drop_in(format!("{:02}.ndjson", 1 + minute), ndjson(&events));
    }
    world.drain().ok();
    let report = world.report();
    let totals = &report["totals"];
    assert_eq!((&totals["accepted"], &totals["future"]), (&601.into(), &1.into()), "{totals}");
    assert_eq!((&totals["late"], &totals["held"]), (&0.into(), &1.into()), "{totals}");
    assert_eq!(report["watermark_ms"], begin_ms + 599_000 - 5000);
    let windows = report["windows"].as_array().unwrap();
    let counts: Vec<_> = windows.iter().map(|window| window["count"].as_i64().unwrap()).collect();
    assert_eq!(counts, [61, 60, 60, 60, 60, 60, 60, 60, 60, 60]);
    let held = world.run(&["held", "--json"]).ok().json();
    assert_eq!(held["held"][0]["id"], "ahead", "{held}");
}

/// The same file again and again changes nothing, whatever happened in between. Has failed for a
/// ledger that forgot what it held when it was opened again.
#[test]
fn case_085_the_same_file_counts_once_before_and_after_a_restart_and_an_advance() {
    let world = World::with_store(1000, 500);
    let mut model = Model::new(Settings::new(1000, 500));
    let batch = events("a", 30);
    let take = |names: &[&str], model: &mut Model| {
        for name in names {
            world.drop_in(name, ndjson(&batch));
            model.ingest("default", &batch, 0).unwrap();
        }
        world.drain().ok();
        assert_report(&world.report(), model, &|| world.told());
    };
    take(&["1.json", "2.json"], &mut model);
    // another process
    take(&["3.json"], &mut model);
    world.run(&["advance", "5000"]).ok();
    model.advance(5000).unwrap();
    take(&["1.json"], &mut model);
    let totals = &world.report()["totals"];
    assert_eq!((&totals["accepted"], &totals["duplicate"]), (&30.into(), &90.into()), "{totals}");
    assert_eq!(world.names("done"), ["1.json", "1.json.1", "2.json", "3.json"]);
}

/// Cases 97 and 98: a period that is closed by hand within the lateness is closed once, however
/// often it is asked for and whoever is restarted; what it cut off is shown.
#[test]
fn case_097_098_closing_by_hand_again_closes_once_and_shows_what_it_cut_off() {
    let world = World::with_store(1000, 5000);
    world.drop_in("1.ndjson", ndjson(&events("a", 150)));
    world.drain().ok();
    let mut closed = Vec::new();
    let mut earlier = None;
    for _ in 0..4 {
        let daemon = world.daemon();
        let answer = world.run(&["advance", "1000", "--json"]).ok().json();
        closed.push(answer["windows_closed"].as_u64().unwrap());
        let report = world.report();
        let state = (report["windows"].clone(), report["watermark_ms"].clone());
        assert_eq!(*earlier.get_or_insert_with(|| state.clone()), state);
        daemon.kill();
    }
    assert_eq!(closed, [1, 0, 0, 0]);
    let lines = |report: &serde_json::Value| -> Vec<(i64, String, i64)> {
        let windows = report["windows"].as_array().unwrap().iter();
        let line = |window: &serde_json::Value| {
            let state = window["state"].as_str().unwrap().to_owned();
            (window["window_start_ms"].as_i64().unwrap(), state, window["count"].as_i64().unwrap())
        };
        windows.map(line).collect()
    };
    let expected = [(0, "final".to_owned(), 100), (1000, "open".to_owned(), 50)];
    assert_eq!(lines(&world.report()), expected);

    // within the lateness still, by which they would be on time
    let on_time: Vec<_> =
        (0..7).map(|n| Event::new(format!("b{n}"), "k", 990 + n * 2, 1)).collect();
    world.drop_in("2.ndjson", ndjson(&on_time));
    world.drain().ok();
    let report = world.report();
    let expected = [(0, "final".to_owned(), 100), (1000, "open".to_owned(), 52)];
    assert_eq!(lines(&report), expected);
    let late: Vec<_> = report["late"].as_array().unwrap().iter().map(|row| &row["id"]).collect();
    assert_eq!(late, ["b0", "b1", "b2", "b3", "b4"]);
    assert_eq!(report["totals"]["late"], 5);
    let told = world.run(&["explain", "--id", "b0", "--json"]).ok().json();
    assert_eq!(told["fate"]["outcome"], "late", "{told}");
    assert_eq!(told["fate"]["closed_by"]["by"], "advance", "{told}");
    let args = ["explain", "--key", "k", "--window-start-ms", "0", "--json"];
    let window = world.run(&args).ok().json();
    assert_eq!(window["closed_by"]["windows_closed"], 1, "{window}");
}
