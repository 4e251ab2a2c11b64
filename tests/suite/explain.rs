//! Why a number is what it is, from the outside: `explain`, `check --events`, `lateness`, `prune`.

use std::fs;

use serde_json::{Value, json};

use crate::world::World;

fn event(id: &str, timestamp_ms: i64, value: i64) -> String {
    format!(r#"{{"id": "{id}", "key": "k", "timestamp_ms": {timestamp_ms}, "value": {value}}}"#)
}

fn lines(events: &[(&str, i64, i64)]) -> String {
    events.iter().map(|(id, ms, value)| event(id, *ms, *value) + "\n").collect()
}

fn by_id(world: &World, id: &str) -> Value {
    world.run(&["explain", "--id", id, "--json"]).ok().json()
}

fn of_window(world: &World, start_ms: i64) -> Value {
    let start_ms = start_ms.to_string();
    world.run(&["explain", "--key", "k", "--window-start-ms", &start_ms, "--json"]).ok().json()
}

/// Two files: the third event of the first closes the window for which the second brings one.
fn worked_example(policy: &str) -> World {
    let world = World::new();
    world.init(1000, 500, &["--late-policy", policy]);
    // a blank line moves the lines, not the indices
    let first = format!("{}\n{}", event("a", 100, 1), lines(&[("b", 200, 2), ("c", 1700, 3)]));
    world.drop_in("1.ndjson", format!("\n{first}"));
    world.drop_in("2.ndjson", lines(&[("a", 100, 1), ("d", 300, 4), ("e", 1300, 5)]));
    world.drain().ok();
    world
}

#[test]
fn an_accepted_event_says_where_it_came_in() {
    let world = worked_example("aside");
    let b = by_id(&world, "b");
    assert_eq!(b["known"], true);
    let came = &b["came"];
    assert_eq!(
        (&came["batch"], &came["event_index"], &came["line"]),
        (&1.into(), &1.into(), &3.into())
    );
    assert_eq!((&came["file"], &came["source"]), (&"1.ndjson".into(), &"default".into()));
    assert!(came["path"].as_str().unwrap().ends_with("done/1.ndjson"), "{came}");
    assert_eq!((&b["key"], &b["timestamp_ms"], &b["value"]), (&"k".into(), &200.into(), &2.into()));
    let fate = &b["fate"];
    assert_eq!((&fate["outcome"], &fate["counts"]), (&"accepted".into(), &true.into()));
    assert_eq!((&fate["window_start_ms"], &fate["window_end_ms"]), (&0.into(), &1000.into()));
    // its file changed: the line is not guessed
    fs::write(world.spool().join("done/1.ndjson"), "other").unwrap();
    let came = by_id(&world, "b")["came"].clone();
    assert_eq!((&came["line"], &came["lost"]), (&Value::Null, &"differs".into()));
    fs::remove_file(world.spool().join("done/1.ndjson")).unwrap();
    let text = world.run(&["explain", "--id", "b"]).ok().out;
    assert!(text.contains("1.ndjson is not in done/"), "{text}");
    let unknown = world.run(&["explain", "--id", "nobody"]).exits(66);
    assert!(unknown.err.contains("never taken in"), "{}", unknown.err);
}

#[test]
fn a_late_event_says_what_had_closed_its_window() {
    let world = worked_example("aside");
    let fate = by_id(&world, "d")["fate"].clone();
    assert_eq!((&fate["outcome"], &fate["watermark_ms"]), (&"late".into(), &1200.into()));
    assert_eq!((&fate["kept"], &fate["counts"]), (&true.into(), &false.into()));
    let cause = &fate["closed_by"];
    assert_eq!((&cause["by"], &cause["file"]), (&"event".into(), &"1.ndjson".into()));
    assert_eq!((&cause["event_index"], &cause["event_id"]), (&2.into(), &"c".into()));
    assert_eq!(cause["line"], 4);
    world.run(&["late", "--apply", "--reason", "agreed"]).ok();
    let fate = by_id(&world, "d")["fate"].clone();
    assert_eq!((&fate["applied_in"], &fate["counts"]), (&3.into(), &true.into()));

    let world = worked_example("drop");
    let fate = by_id(&world, "d")["fate"].clone();
    assert_eq!((&fate["outcome"], &fate["kept"]), (&"late".into(), &false.into()));
    assert_eq!(fate["counts"], false);
    let world = worked_example("correct");
    let fate = by_id(&world, "d")["fate"].clone();
    assert_eq!((&fate["outcome"], &fate["applied_in"]), (&"late".into(), &2.into()));
}

#[test]
fn a_window_is_accounted_for_under_every_policy() {
    for (policy, expected, state) in
        [("aside", (2, 3), "final"), ("drop", (2, 3), "final"), ("correct", (3, 7), "corrected")]
    {
        let world = worked_example(policy);
        let window = of_window(&world, 0);
        let made = json!({"count": expected.0, "sum": expected.1});
        assert_eq!((&window["totals"], &window["found"]), (&made, &made), "{policy}: {window}");
        assert_eq!(window["difference"], json!({"count": 0, "sum": 0}), "{policy}");
        assert_eq!((&window["state"], &window["sources"]["default"]), (&state.into(), &made));
        assert_eq!(window["closed_by"]["event_id"], "c", "{policy}");
        assert_eq!(window["missing"], json!([]), "{policy}");
        let late = window["late"].as_array().unwrap().len();
        assert_eq!(late, usize::from(policy == "aside"));
        let revisions = window["revisions"].as_array().unwrap();
        assert_eq!(revisions.len(), usize::from(policy == "correct"));
        if let Some(first) = revisions.first() {
            assert_eq!((&first["sum"], &first["corrected_in"]), (&3.into(), &2.into()));
            assert_eq!(first["corrected_by"], "2.ndjson");
        }
        // a file that is gone is listed, and what it brought is the difference
        fs::remove_file(world.spool().join("done/1.ndjson")).unwrap();
        let window = of_window(&world, 0);
        let (difference, said) = match policy {
            "correct" => (json!({"count": 2, "sum": 3}), "difference  count 2, sum 3"),
            // the other file was not there in time: there is nothing to count from
            _ => (Value::Null, "difference  not counted again"),
        };
        assert_eq!(window["difference"], difference, "{policy}");
        assert_eq!(window["missing"][0], json!({"batch": 1, "file": "1.ndjson", "why": "gone"}));
        let text = world.run(&["explain", "--key", "k", "--window-start-ms", "0"]).ok().out;
        assert!(text.contains(said), "{policy}: {text}");
    }
}

#[test]
fn an_open_window_says_whom_it_waits_for_and_since_when() {
    let world = World::with_store(1000, 500);
    world.drop_in("slow/1.json", event("s", 100, 1));
    world.drop_in("fast/2.json", event("f", 5000, 1));
    world.drain().ok();
    let window = of_window(&world, 0);
    assert_eq!(window["state"], "open");
    let waiting = window["waiting_for"].as_array().unwrap();
    assert_eq!(waiting.len(), 1, "{window}");
    assert_eq!(
        (&waiting[0]["source"], &waiting[0]["watermark_ms"]),
        (&"slow".into(), &(-400).into())
    );
    assert!(waiting[0]["since_ms"].as_i64().unwrap() > 1_600_000_000_000);
    let text = world.run(&["explain", "--key", "k", "--window-start-ms", "0"]).ok().out;
    assert!(text.contains("waits for   source slow"), "{text}");
    // an operator closes it, and is named
    world.run(&["advance", "1000", "--reason", "slow is off"]).ok();
    let window = of_window(&world, 0);
    let cause = &window["closed_by"];
    assert_eq!((&cause["by"], &cause["reason"]), (&"advance".into(), &"slow is off".into()));
    assert!(cause["asked_by"].is_string(), "{cause}");
    let journal = world.run(&["explain", "--watermark", "--json"]).ok().json_lines();
    assert_eq!(journal.len(), 1);
    assert_eq!((&journal[0]["to_ms"], &journal[0]["windows_closed"]), (&1000.into(), &1.into()));
    let odd = world.run(&["explain", "--key", "k", "--window-start-ms", "10"]).exits(66);
    assert!(odd.err.contains("is 0 meant?"), "{}", odd.err);
    world.run(&["explain", "--key", "other", "--window-start-ms", "0"]).exits(66);
    world.run(&["explain"]).exits(2);
    world.run(&["explain", "--key", "k"]).exits(2);
}

#[test]
fn a_held_event_is_followed_to_its_end() {
    let world = World::new();
    world.init(1000, 500, &["--max-future-ms", "1000"]);
    let ahead = 4_000_000_000_000_i64;
    world.drop_in("1.ndjson", lines(&[("a", 100, 1), ("h", ahead, 2), ("g", ahead, 4)]));
    world.drain().ok();
    let fate = by_id(&world, "h")["fate"].clone();
    assert_eq!((&fate["outcome"], &fate["counts"]), (&"future".into(), &false.into()));
    assert!(fate["ahead_ms"].as_i64().unwrap() > 1_000_000_000_000);
    let text = world.run(&["explain", "--id", "h"]).ok().out;
    assert!(text.contains("; would fall into window [") && !text.contains("open"), "{text}");
    world.run(&["discard", "--id", "h", "--reason", "wrong year"]).ok();
    let fate = by_id(&world, "h")["fate"].clone();
    assert_eq!((&fate["outcome"], &fate["ahead_ms"]), (&"future".into(), &Value::Null));
    let settled = &fate["settled"];
    assert_eq!(
        (&settled["settlement"], &settled["reason"]),
        (&"discarded".into(), &"wrong year".into())
    );
    let text = world.run(&["explain", "--id", "h"]).ok().out;
    assert!(text.contains("discarded in batch 2") && text.contains("dropped for good"), "{text}");
    // neither the held nor the discarded one is in a window
    assert_eq!(of_window(&world, 0)["found"], json!({"count": 1, "sum": 1}));
}

#[test]
fn an_id_behind_the_horizon_is_said_to_be_forgotten() {
    let world = World::new();
    world.init(1000, 500, &["--dedup-horizon-ms", "2000"]);
    world.drop_in("1.ndjson", lines(&[("a", 100, 1), ("z", 9500, 1)]));
    world.drain().ok();
    let gone = world.run(&["explain", "--id", "a"]).exits(66);
    assert!(gone.err.contains("ids of events before 7000 "), "{}", gone.err);
    assert!(gone.err.contains("is not known: it never came, or "), "{}", gone.err);
    assert!(!gone.err.contains("never taken in"), "{}", gone.err);
    // without a spool there is no failed/ to look into
    let db = world.root().join("copy.db");
    world.run(&["backup", db.to_str().unwrap()]).ok();
    let db = db.to_str().unwrap();
    let alone = |id: &str| {
        let mut command = world.command(&["explain", "--db", db, "--id", id]);
        command.env_remove("WINDOWFLOW_SPOOL");
        command.output().unwrap()
    };
    let err = String::from_utf8(alone("a").stderr).unwrap();
    assert!(err.contains("is not known") && !err.contains("windowflow failed"), "{err}");
    let window = of_window(&world, 0);
    assert_eq!(window["forgotten"], json!({"count": 1, "sum": 1}));
    assert_eq!(window["difference"], json!({"count": 1, "sum": 1}));
}

#[test]
fn check_tells_of_each_event_and_changes_nothing() {
    let world = worked_example("aside");
    let before = world.report()["totals"].clone();
    let file = world.root().join("try.ndjson");
    let events = [("a", 100, 1), ("n", 1400, 1), ("o", 2600, 1), ("p", 1500, 1), ("q", 400, 1)];
    fs::write(&file, lines(&events)).unwrap();
    let file = file.to_str().unwrap();
    let told = world.run(&["check", "--events", "--json", file]).ok().json_lines();
    let outcomes: Vec<_> = told.iter().filter_map(|line| line["outcome"].as_str()).collect();
    assert_eq!(outcomes, ["duplicate", "accepted", "accepted", "late", "late"]);
    assert_eq!(told[3]["move"]["event_index"], 2);
    assert_eq!(told[3]["move"]["closes_from_ms"], 1000);
    assert_eq!(told[3]["move"]["closes_before_ms"], 2000);
    assert_eq!(told[3]["move"]["windows_closed"], 1);
    assert_eq!((&told[4]["id"], &told[4]["passed_by_event"]), (&"p".into(), &2.into()));
    assert_eq!((&told[5]["id"], &told[5]["passed_by_event"]), (&"q".into(), &Value::Null));
    assert_eq!((&told[5]["line"], &told[5]["event_index"]), (&5.into(), &4.into()));
    let summary = &told[6];
    assert_eq!((&summary["batch"], &summary["events"]), (&Value::Null, &5.into()));
    assert_eq!(told.len(), 7);
    assert_eq!(world.run(&["check", "--json", file]).ok().json(), *summary);
    assert_eq!(world.report()["totals"], before);
    // a move that passes windows in which nothing is closes none
    let mut empty: Vec<_> = (1..4).map(|n| (format!("m{n}"), n * 10_000)).collect();
    empty.push(("late".to_owned(), 15_000));
    let empty: String = empty.iter().map(|(id, ms)| event(id, *ms, 1) + "\n").collect();
    fs::write(file, empty).unwrap();
    let told = world.run(&["check", "--events", "--json", file]).ok().json_lines();
    let closed: Vec<_> = told.iter().filter_map(|line| line.get("move")).collect();
    assert_eq!(closed.len(), 3, "{told:?}");
    assert_eq!(told.last().unwrap()["windows_closed"], 3);
    let world_2 = World::with_store(1000, 500);
    fs::write(file, event("first", 9_000_000, 1)).unwrap();
    let told = world_2.run(&["check", "--events", file]).ok().out;
    assert!(!told.contains("closes"), "{told}");
    // up to what contradicts
    fs::write(file, lines(&[("n", 1400, 1), ("a", 100, 9)])).unwrap();
    let told = world.run(&["check", "--events", "--json", file]).exits(65).json_lines();
    assert_eq!((&told[0]["id"], &told[1]["code"]), (&"n".into(), &"conflict".into()));
}

#[test]
fn lateness_says_what_other_settings_would_have_done() {
    let world = World::with_store(1, 500);
    let events = [("a", 10_000, 1), ("b", 9900, 1), ("c", 9000, 1), ("d", 11_000, 1)];
    world.drop_in("1.ndjson", lines(&events));
    // a repeat is no late event
    world.drop_in("2.ndjson", lines(&[("a", 10_000, 1), ("e", 11_500, 1)]));
    world.drop_in("gw/3.ndjson", lines(&[("f", 10_000, 1), ("g", 9998, 1)]));
    world.drain().ok();
    let found = world.run(&["lateness", "--json"]).ok().json();
    assert_eq!((&found["events"], &found["left_out"]), (&7.into(), &1.into()));
    let late = |source: &Value, lateness_ms: i64| {
        let settings = source["settings"].as_array().unwrap();
        let setting = settings.iter().find(|setting| setting["lateness_ms"] == lateness_ms);
        setting.unwrap_or_else(|| panic!("{lateness_ms}: {source}"))["late"].clone()
    };
    let default = &found["sources"][0];
    assert_eq!((&default["source"], &default["none_late_ms"]), (&"default".into(), &1000.into()));
    let counts = [0, 50, 100, 500].map(|lateness_ms| late(default, lateness_ms));
    assert_eq!(counts, [2, 2, 1, 1]);
    let gw = world.run(&["lateness", "--json", "--source", "gw"]).ok().json();
    assert_eq!(gw["sources"].as_array().unwrap().len(), 1);
    assert_eq!((&gw["events"], &gw["sources"][0]["none_late_ms"]), (&2.into(), &2.into()));
    let text = world.run(&["lateness"]).ok().out;
    assert!(text.contains("source gw: events: 2, out of order: 1"), "{text}");
    fs::remove_file(world.spool().join("done/1.ndjson")).unwrap();
    let found = world.run(&["lateness", "--json"]).ok().json();
    assert_eq!((&found["batches"], &found["batches_not_read"]), (&2.into(), &1.into()));
}

/// After the horizon has passed it and all that is old was removed, an old file is no danger.
#[test]
fn an_old_file_changes_no_total_behind_the_horizon() {
    for policy in ["aside", "drop", "correct"] {
        for rule in ["window", "event"] {
            let world = World::new();
            let day_ms = 86_400_000_i64;
            let more = ["--late-policy", policy, "--late-rule", rule, "--dedup-horizon-ms", "5000"];
            world.init(1000, 500, &more);
            let config = world.root().join("w.toml");
            let text = "[inbox]\nsettle_ms = 0\n[retention]\nlate_days = 1\nreceipts_days = 1\n";
            fs::write(&config, text).unwrap();
            let config = config.to_str().unwrap();
            let drain = || world.run(&["run", "--once", "--config", config]).ok();
            let old = [("a", 100, 1), ("b", 1900, 2), ("c", 200, 4), ("d", 3000, 8)];
            world.drop_in("1.ndjson", lines(&old));
            drain();
            world.drop_in("2.ndjson", lines(&[("z", 3 * day_ms, 1)]));
            drain();
            let before = world.report();
            let again = |windows: &Value| {
                world.drop_in("1.ndjson", lines(&old));
                drain();
                let report = world.report();
                assert_eq!(&report["windows"], windows, "{policy}, {rule}");
                assert_eq!(report["totals"]["accepted"], before["totals"]["accepted"]);
                report["totals"]["expired"].clone()
            };
            assert_eq!(again(&before["windows"]), 4, "{policy}, {rule}");
            let pruned = world.run(&["prune", "--json", "--config", config]).ok().json();
            assert_eq!(pruned["ids"], 4, "{policy}, {rule}: {pruned}");
            assert_eq!(again(&before["windows"]), 8, "{policy}, {rule}");
            // also when the windows are gone
            fs::write(
                config,
                "[inbox]\nsettle_ms = 0\n[retention]\nwindows_days = 1\nlate_days = 1\n",
            )
            .unwrap();
            let pruned = world.run(&["prune", "--json", "--config", config]).ok().json();
            assert_eq!(pruned["windows"], before["windows"].as_array().unwrap().len() - 1);
            let left = world.report()["windows"].clone();
            assert_eq!(again(&left), 12, "{policy}, {rule}");
        }
    }
}

#[test]
fn the_store_stops_growing_under_steady_load() {
    let world = World::new();
    world.init(1000, 0, &["--dedup-horizon-ms", "86400000"]);
    let config = world.root().join("w.toml");
    fs::write(&config, "[inbox]\nsettle_ms = 0\n[retention]\nwindows_days = 1\n").unwrap();
    let config = config.to_str().unwrap();
    let mut sizes = Vec::new();
    // from 1972 on: before, milliseconds could pass for seconds
    for day in 1000..1024_i64 {
        let events: String = (0..500)
            .map(|n| {
                let at_ms = day * 86_400_000 + n * 1000;
                format!("{}\n", event(&format!("{day}-{n}-{}", "x".repeat(100)), at_ms, 1))
            })
            .collect();
        world.drop_in(format!("{day:03}.ndjson"), events);
        world.run(&["run", "--once", "--config", config]).ok();
        world.run(&["prune", "--config", config]).ok();
        sizes.push(fs::metadata(world.db()).unwrap().len());
    }
    let (early, late) = (sizes[7], sizes[23]);
    assert!(late <= early + early / 8, "{sizes:?}");
    assert!(early > 100_000, "the load is too small to show anything: {sizes:?}");
}

#[test]
fn prune_says_when_nothing_can_be_old() {
    let world = worked_example("aside");
    let ran = world.run(&["prune"]).ok();
    assert!(ran.out.contains("removed nothing") && ran.err.contains("--config"), "{ran:?}");
}

/// The daemon sees to it by itself, at its first pause.
#[test]
fn an_idle_daemon_removes_what_is_old() {
    let world = World::new();
    world.init(1000, 500, &["--dedup-horizon-ms", "2000"]);
    world.drop_in("1.ndjson", lines(&[("a", 100, 1), ("z", 9500, 1)]));
    world.drain().ok();
    let dump = world.spool().join("reports/report-old.json");
    fs::write(&dump, "{}").unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH;
    fs::File::options().write(true).open(&dump).unwrap().set_modified(old).unwrap();
    let config = world.root().join("w.toml");
    fs::write(&config, "[retention]\nreports_days = 1\n").unwrap();
    let daemon = world.daemon_with(&["--config", config.to_str().unwrap()]);
    world.eventually("what is old is removed", || !dump.exists());
    daemon.stop();
    // the batch itself has forgotten what lies behind the horizon
    assert_eq!(world.run(&["prune", "--json"]).ok().json()["ids"], 0);
}

/// A source that falls idle lets go of the watermark, and is named for it.
#[test]
fn idleness_is_named_as_the_cause() {
    let world = World::with_store(1000, 0);
    world.drop_in("slow/1.json", event("s", 100, 1));
    world.drop_in("fast/2.json", event("f", 5000, 1));
    let config = world.root().join("w.toml");
    fs::write(&config, "[sources]\nidle_timeout_ms = 1000\n[inbox]\nrescan_ms = 100\n").unwrap();
    let daemon = world.daemon_with(&["--config", config.to_str().unwrap()]);
    world.until_drained();
    world.eventually("the window is closed", || {
        of_window(&world, 0)["state"].as_str() == Some("final")
    });
    daemon.stop();
    let cause = of_window(&world, 0)["closed_by"].clone();
    assert_eq!((&cause["by"], &cause["asked_by"]), (&"idle".into(), &"windowflow".into()));
    assert!(cause["sources"].as_array().unwrap().contains(&"slow".into()), "{cause}");
    let text = world.run(&["explain", "--watermark"]).ok().out;
    assert!(text.contains("idle in batch 4 of source "), "{text}");
}

/// What was held is judged when it is released, and says so.
#[test]
fn a_released_event_counts_from_then_on() {
    let policies = ["aside", "drop", "correct"];
    let held = policies.map(|policy| {
        let world = World::new();
        world.init(1000, 0, &["--max-future-ms", "0", "--late-policy", policy]);
        let now_ms =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()
                as i64;
        let soon_ms = now_ms + 5000;
        world.drop_in("1.ndjson", lines(&[("h", soon_ms, 2)]));
        world.drain().ok();
        assert_eq!(by_id(&world, "h")["fate"]["outcome"], "future", "{policy}");
        // its window closes while it is held
        let start_ms = soon_ms - soon_ms % 1000;
        let end_ms = (start_ms + 1000).to_string();
        world.run(&["advance", &end_ms, "--beyond-clock"]).ok();
        (policy, world, start_ms)
    });
    for (policy, world, start_ms) in held {
        world.eventually("it is no longer ahead", || {
            world.run(&["release", "--all", "--json"]).ok().json()["events"] == 1
        });
        let fate = by_id(&world, "h")["fate"].clone();
        assert_eq!(fate["settled"]["settlement"], "released", "{policy}: {fate}");
        // nothing was in the window when it was passed, so no move is kept that closed it
        assert_eq!(fate["outcome"], "late", "{policy}: {fate}");
        assert_eq!(fate["counts"], policy == "correct", "{policy}: {fate}");
        if policy != "drop" {
            let window = of_window(&world, start_ms);
            let count = i32::from(policy == "correct");
            assert_eq!(window["found"], json!({"count": count, "sum": 2 * count}), "{policy}");
        }
    }
}

/// Dropped under the stricter rule, an event leaves no trace: that is said, not guessed.
#[test]
fn what_cannot_be_told_is_said_to_be_unknown() {
    let world = World::new();
    world.init(1000, 0, &["--late-rule", "event", "--late-policy", "drop"]);
    world.drop_in("1.ndjson", lines(&[("a", 500, 1), ("b", 400, 2)]));
    world.drain().ok();
    let fate = by_id(&world, "b")["fate"].clone();
    assert_eq!((&fate["outcome"], &fate["counts"]), (&"unknown".into(), &Value::Null));
    let window = of_window(&world, 0);
    assert_eq!(
        (&window["unsure"]["count"], &window["difference"]["count"]),
        (&2.into(), &1.into())
    );
}

const DAY_MS: i64 = 86_400_000;

/// A store of which retention removed the window that began at 0.
fn pruned(policy: &str) -> World {
    let world = World::new();
    world.init(1000, 0, &["--late-policy", policy]);
    world.drop_in("1.ndjson", lines(&[("a", 100, 1)]));
    world.drain().ok();
    world.drop_in("2.ndjson", lines(&[("b", 1100, 2), ("z", 3 * DAY_MS, 1)]));
    world.drain().ok();
    let config = world.root().join("w.toml");
    fs::write(&config, "[retention]\nwindows_days = 1\n").unwrap();
    world.run(&["prune", "--config", config.to_str().unwrap()]).ok();
    world
}

#[test]
fn a_window_that_retention_removed_is_said_to_be() {
    let world = pruned("aside");
    let gone = world.run(&["explain", "--key", "k", "--window-start-ms", "0"]).exits(66);
    assert!(gone.err.contains("removed by retention, or never there"), "{}", gone.err);
    let never = world.run(&["explain", "--key", "k", "--window-start-ms", "2000"]).exits(66);
    assert!(never.err.contains("nothing that counts came for it"), "{}", never.err);
    let fate = by_id(&world, "a")["fate"].clone();
    assert_eq!(
        (&fate["outcome"], &fate["window_removed"]),
        (&"accepted".into(), &true.into()),
        "{fate}"
    );
    let text = world.run(&["explain", "--id", "a"]).ok().out;
    assert!(text.contains("[0, 1000), which was removed by retention since"), "{text}");
    // a late event comes after it
    world.drop_in("3.ndjson", lines(&[("l", 200, 4)]));
    world.drain().ok();
    let window = of_window(&world, 0);
    assert_eq!(
        (&window["totals"], &window["removed"], &window["difference"]),
        (&Value::Null, &true.into(), &Value::Null)
    );
    let of_text =
        || world.run(&["explain", "--key", "k", "--window-start-ms", "0"]).ok().out.clone();
    let text = of_text();
    assert!(text.contains("no numbers any more; final: removed by retention\n"), "{text}");
    assert!(!text.contains("account for all of it"), "{text}");
    fs::remove_file(world.spool().join("done/1.ndjson")).unwrap();
    let text = of_text();
    assert!(text.contains("not read") && text.contains("removed by retention"), "{text}");
    assert!(!text.contains("account for all of it"), "{text}");
    // nor can it be corrected
    let ran = world.run(&["late", "--apply", "--json"]).ok();
    assert_eq!(
        (&ran.json()["events"], &ran.json()["not_applied"]["window_removed"]),
        (&0.into(), &1.into())
    );
    assert!(ran.err.contains("not applied: 1: their windows were removed"), "{}", ran.err);
}

#[test]
fn late_events_that_cannot_be_applied_say_why() {
    let world = World::new();
    world.init(1000, 0, &["--late-rule", "event"]);
    world.drop_in("1.ndjson", lines(&[("a", 500, 1), ("b", 400, 2)]));
    world.drain().ok();
    let ran = world.run(&["late", "--apply"]).ok();
    assert!(ran.err.contains("not applied: 1: their windows are still open"), "{ran:?}");
    let other = world.run(&["late", "--apply", "--key", "other"]).ok();
    assert!(!other.err.contains("not applied"), "{other:?}");
    for policy in ["drop", "correct"] {
        let ran = worked_example(policy).run(&["late", "--apply"]).ok();
        assert!(ran.err.contains(&format!("late_policy is {policy}")), "{ran:?}");
    }
}

#[test]
fn a_revision_says_who_asked_for_it_and_why() {
    let world = worked_example("aside");
    world.run(&["late", "--apply", "--reason", "agreed with billing"]).ok();
    let text = world.run(&["explain", "--key", "k", "--window-start-ms", "0"]).ok().out;
    let revision = text.lines().find(|line| line.starts_with("revision 0")).unwrap();
    assert!(revision.contains("corrected in batch 3 by "), "{text}");
    assert!(revision.contains(" (agreed with billing), 20") && revision.ends_with('Z'), "{text}");
    let late = text.lines().find(|line| line.starts_with("late ")).unwrap();
    assert!(late.contains("batch 3 by ") && late.contains("(agreed with billing)"), "{text}");
    let text = world.run(&["explain", "--id", "d"]).ok().out;
    assert!(text.contains("made in batch 3 by ") && text.contains("(agreed with"), "{text}");
    assert!(text.contains("which is final, corrected once"), "{text}");
    let world = worked_example("correct");
    let text = world.run(&["explain", "--key", "k", "--window-start-ms", "0"]).ok().out;
    assert!(text.contains("corrected in batch 2, 2.ndjson\n"), "{text}");
}

#[test]
fn a_setting_that_cannot_act_is_named() {
    let world = pruned("correct");
    let config = world.root().join("w.toml");
    let config = config.to_str().unwrap();
    let ran = world.run(&["prune", "--config", config]).ok();
    assert!(ran.err.contains("windows_days removes nothing from this store"), "{ran:?}");
    assert_eq!(of_window(&world, 0)["removed"], false);
}

#[test]
fn lateness_knows_no_source_that_never_was_and_merges_rows() {
    let world = World::with_store(1, 500);
    world.drop_in("1.ndjson", lines(&[("a", 10_000, 1), ("b", 9000, 1)]));
    world.drain().ok();
    let nope = world.run(&["lateness", "--source", "nope"]).exits(66);
    assert!(nope.err.contains("no such source"), "{nope:?}");
    let text = world.run(&["lateness"]).ok().out;
    assert!(text.contains(" 0 to 200 "), "{text}");
}

#[test]
fn a_source_in_seconds_of_which_all_expired_is_suspect() {
    let world = World::new();
    world.init(1000, 0, &["--dedup-horizon-ms", "5000"]);
    world.drop_in("1.ndjson", lines(&[("a", 1_790_000_000_000, 1)]));
    world.drain().ok();
    let args = ["ingest", "--source", "gw", "--accept-seconds", "-"];
    world.run_with_input(&args, lines(&[("s", 1_790_000_000, 1)]).as_bytes()).ok();
    for command in ["sources", "status"] {
        let text = world.run(&[command]).out;
        assert!(text.contains("are its timestamps in seconds?"), "{command}: {text}");
    }
}
