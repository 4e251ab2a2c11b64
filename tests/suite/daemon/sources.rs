//! Which sources are waited for and which may send: new ones with files in the inbox, retired ones,
//! bounds on their number.

use std::fs;

use serde_json::Value;

use super::{NEVER_SETTLE, accepted, event, look_into, quick_with, write_config};
use crate::world::{Ran, World};

/// `run --once` with that configuration.
fn once(world: &World, settings: &[(&str, &str)]) -> Ran {
    let (config, spool) = (write_config(world, settings), world.spool());
    world.run(&["run", "--once", "--config", &config, "--spool", spool.to_str().unwrap()])
}

/// Three minutes of a source, ten events each.
fn three_minutes(source: &str) -> String {
    let one = |number: i64| event(&format!("{source}{number}"), "k", number * 6000, 1);
    (0..30).map(|number| one(number) + "\n").collect()
}

fn drop_for(world: &World, source: &str, name: &str, content: &str) {
    fs::create_dir_all(world.inbox().join(source)).unwrap();
    world.drop_in(format!("{source}/{name}"), content);
}

/// How sources came and went, in order: `expected a`.
fn notes(world: &World) -> Vec<String> {
    let store = look_into(&world.db());
    let mut rows = store
        .prepare("SELECT presence || ' ' || source FROM presence ORDER BY batch, ordinal")
        .unwrap();
    rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

fn late(world: &World) -> i64 {
    world.report()["totals"]["late"].as_i64().unwrap()
}

fn sources(world: &World) -> Value {
    serde_json::from_str(&world.run(&["sources", "--json"]).ok().out).unwrap()
}

/// Case 110: the first start over a backlog of several folders makes nothing late, and the check of
/// the store plays the same again.
/// Has failed for sources that are not expected.
#[test]
fn case_110_the_first_start_over_many_folders_makes_nothing_late() {
    for folders in [2, 12] {
        let world = World::with_store(60_000, 0);
        let names: Vec<String> = (0..folders).map(|number| format!("s{number:02}")).collect();
        names.iter().for_each(|name| drop_for(&world, name, "d.ndjson", &three_minutes(name)));
        once(&world, &[]).ok();
        assert_eq!((accepted(&world), late(&world)), (30 * folders, 0), "{}", world.told());
        assert_eq!(world.report()["watermark_ms"], 29 * 6000);
        let expected: Vec<String> = names.iter().map(|name| format!("expected {name}")).collect();
        assert_eq!(notes(&world), expected);
        world.run(&["verify"]).ok();
        // known by now: what is late from here on is late
        drop_for(&world, "s00", "e.ndjson", &event("new", "k", 1000, 1));
        drop_for(&world, "s01", "e.ndjson", &event("more", "k", 900_000, 1));
        once(&world, &[]).ok();
        assert_eq!((late(&world), notes(&world).len()), (1, names.len()));
    }
}

/// Case 110: a source whose files bring nothing is not waited for when they have come to an end.
/// Has failed for one that is expected for ever, in this process or by the next, or twice, and for
/// lateness without a warning.
#[test]
fn case_110_an_expected_source_that_brings_nothing_is_waited_for_no_longer() {
    let world = World::with_store(1000, 0);
    // folders that are watched from the start: what is moved into them is ready at once
    for name in ["a", "b", "bad"] {
        fs::create_dir(world.inbox().join(name)).unwrap();
    }
    fs::write(world.inbox().join("b/writing.json"), "[").unwrap();
    let daemon = quick_with(&world, &[NEVER_SETTLE]);
    drop_for(&world, "bad", "1.json", "no event at all");
    drop_for(&world, "a", "1.json", &event("a1", "k", 500, 1));
    drop_for(&world, "a", "2.json", &event("a2", "k", 5000, 1));
    world.eventually("all that is ready was taken", || accepted(&world) == 2);
    world.eventually("the bad one is waited for no longer", || {
        notes(&world).contains(&"not_expected bad".to_owned())
    });
    assert_eq!(world.report()["watermark_ms"], 0, "b is expected, and its file is not ready");
    let report = world.report();
    let waits = &report["windows"][0]["waiting_for"];
    assert_eq!(
        (waits, &report["windows"][0]["state"]),
        (&serde_json::json!(["b"]), &"open".into())
    );
    let status = world.run(&["status", "--spool", world.spool().to_str().unwrap()]).out;
    assert!(status.contains("by source b: expected, and nothing came yet"), "{status}");
    let found = sources(&world);
    let b = found["sources"].as_array().unwrap().iter().find(|row| row["source"] == "b").unwrap();
    assert_eq!((&b["expected"], &b["holds_watermark"]), (&true.into(), &true.into()));

    // a process that was killed leaves it so; the next one ends it when the file has gone
    daemon.kill();
    fs::remove_file(world.inbox().join("b/writing.json")).unwrap();
    let daemon = quick_with(&world, &[]);
    world.eventually("nobody holds it", || world.report()["watermark_ms"] == 5000);
    daemon.stop();
    let all = notes(&world);
    for note in ["expected a", "expected b", "expected bad", "not_expected bad"] {
        assert!(all.iter().any(|one| one == note), "{note}: {all:?}");
    }
    assert_eq!((all.len(), &*all[4]), (5, "not_expected b"));
    assert!(world.log().contains("not expected: b (its files were taken"), "{}", world.log());
    let why = world.run(&["explain", "--key", "k", "--window-start-ms", "0"]).ok().out;
    assert!(why.contains("stop_expecting"), "{why}");

    // once in a store's life: it is late now, and that is said
    drop_for(&world, "b", "1.json", &event("b1", "k", 600, 1));
    drop_for(&world, "a", "3.json", &event("a3", "k", 9000, 1));
    let ran = once(&world, &[]).ok();
    assert_eq!((late(&world), notes(&world).len()), (1, 5));
    assert!(ran.err.contains("WARN") && ran.err.contains("sources --declare b"), "{}", ran.err);
}

/// Case 119: there are as many sources as the bound allows; what is over it is refused whole, and
/// with it nothing of its batch is in.
#[test]
fn case_119_a_batch_that_makes_one_source_too_many_is_refused() {
    let of = |id: &str, source: &str| {
        event(id, "k", 500, 1).replace('}', &format!(",\"source\":\"{source}\"}}"))
    };
    let world = World::with_store(1000, 0);
    let settings = [("sources.max", "3"), ("sources.declared", "['d']")];
    drop_for(&world, "a", "1.json", &event("a1", "k", 500, 1));
    // the same event under many names: each of them would be a source
    let many: String = (0..50).map(|number| of("same", &format!("s{number}")) + "\n").collect();
    drop_for(&world, "b", "1.ndjson", &many);
    drop_for(&world, "c", "1.json", &event("c1", "k", 500, 1));
    once(&world, &settings).exits(65);
    let reason = world.reason("b/1.ndjson");
    assert_eq!((&reason["code"], &reason["event_index"]), (&"too_many_sources".into(), &0.into()));
    let message = reason["message"].as_str().unwrap();
    assert!(
        message.contains("\"s0\"") && message.contains("max") && message.contains('3'),
        "{message}"
    );
    assert_eq!(accepted(&world), 2);
    drop_for(&world, "e", "1.json", &event("e1", "k", 500, 1));
    drop_for(&world, "a", "2.json", &event("a2", "k", 500, 1));
    once(&world, &settings).exits(65);
    assert_eq!(
        (accepted(&world), &world.reason("e/1.json")["code"]),
        (3, &"too_many_sources".into())
    );
    // by hand likewise, when a configuration is given
    let config = write_config(&world, &settings);
    let file = world.root().join("new.json");
    fs::write(&file, event("n1", "k", 500, 1)).unwrap();
    let file = file.to_str().unwrap();
    let args = ["ingest", file, "--source", "new", "--config", &config];
    let refused = world.run(&args).exits(65);
    assert!(
        refused.err.contains("too_many_sources") || refused.out.contains("too_many_sources"),
        "{refused:?}"
    );
    world.run(&args[..4]).ok();
    world.run(&["verify"]).ok();
}

#[test]
fn case_119_only_known_and_declared_sources_may_send_when_new_ones_are_not_accepted() {
    let world = World::with_store(1000, 0);
    drop_for(&world, "a", "1.json", &event("a1", "k", 500, 1));
    once(&world, &[]).ok();
    let settings = [("sources.accept_new", "false"), ("sources.declared", "['d']")];
    // a repeat is an event of its source all the same
    drop_for(&world, "b", "1.json", &event("a1", "k", 500, 1));
    drop_for(&world, "a", "2.json", &event("a2", "k", 500, 1));
    drop_for(&world, "d", "1.json", &event("d1", "k", 500, 1));
    once(&world, &settings).exits(65);
    assert_eq!(accepted(&world), 3);
    let reason = world.reason("b/1.json");
    assert_eq!((&reason["code"], &reason["field"]), (&"unknown_source".into(), &"source".into()));
    assert!(reason["hint"].as_str().unwrap().contains("--declare"), "{reason}");
    assert_eq!(notes(&world), ["declared d"], "nobody is expected who may not send");
    world.run(&["verify"]).ok();
}

/// Case 119: lines of the log, and lists of `status`, do not grow with the number of sources.
#[test]
fn case_119_151_lists_of_sources_are_cut_with_their_count() {
    let world = World::with_store(1000, 0);
    let many: String = (0..50)
        .map(|number| {
            let more =
                format!(",\"source\":\"s{number:02}\",\"producer_version\":\"v{number:02}\"}}");
            event(&format!("e{number}"), "k", 500, 1).replace('}', &more) + "\n"
        })
        .collect();
    world.drop_in("1.ndjson", &many);
    let daemon = quick_with(&world, &[("sources.idle_timeout_ms", "1000")]);
    world.eventually("all are idle", || world.log().contains("idle: s00, s01"));
    let log = world.log();
    let line = log.lines().find(|line| line.contains("idle: s00")).unwrap();
    assert!(line.contains("s19 and 30 others") && !line.contains("s20"), "{line}");
    let spool = world.spool();
    let status = |more: &[&str]| {
        world.run(&[&["status", "--spool", spool.to_str().unwrap()], more].concat()).ok().out
    };
    let found: Value = serde_json::from_str(&status(&["--json"])).unwrap();
    let idle =
        (found["store"]["idle_sources"].clone(), found["store"]["idle_sources_more"].clone());
    let idle = if idle.0.is_null() {
        (found["idle_sources"].clone(), found["idle_sources_more"].clone())
    } else {
        idle
    };
    assert_eq!((idle.0.as_array().unwrap().len(), idle.1), (20, 30.into()), "{found}");
    let text = status(&[]);
    assert!(text.contains("idle        30 other sources"), "{text}");
    assert!(text.contains("version     30 other versions"), "{text}");
    daemon.stop();
}

/// Case 136: a list of sources for a person. Has failed for names that were shown as they are.
#[test]
fn case_136_sources_whose_names_look_alike_are_told_apart() {
    let world = World::with_store(1000, 0);
    drop_for(&world, "Z\u{fc}rich", "1.json", &event("a1", "k", 500, 1));
    drop_for(&world, "Zu\u{308}rich", "1.json", &event("b1", "k", 500, 1));
    once(&world, &[]).ok();
    let text = world.run(&["sources"]).ok().out;
    for name in ["  Z\u{fc}rich", "\"Zu\\u0308rich\""] {
        assert!(text.contains(name), "{name}: {text}");
    }
}

/// Has failed for a source that stayed active, for one that stayed retired after its next file, and
/// for names that nobody knows.
#[test]
fn a_retired_source_is_not_waited_for_until_something_of_it_is_there() {
    let world = World::with_store(1000, 0);
    drop_for(&world, "a", "1.json", &event("a1", "k", 500, 1));
    drop_for(&world, "b", "1.json", &event("b1", "k", 5000, 1));
    once(&world, &[]).ok();
    assert_eq!(world.report()["watermark_ms"], 500);
    let refused = world.run(&["sources", "--retire", "aa"]).exits(66);
    assert!(refused.err.contains("no source is named aa"), "{}", refused.err);
    let out = world.run(&["sources", "--retire", "a", "--reason", "sold"]).ok().out;
    assert!(out.contains("retired since"), "{out}");
    assert_eq!(world.report()["watermark_ms"], 5000);
    let row = &sources(&world)["sources"][0];
    assert_eq!((&row["idle"], &row["retired"]), (&true.into(), &true.into()));
    let why = world.run(&["explain", "--key", "k", "--window-start-ms", "0"]).ok().out;
    assert!(why.contains("retire") && why.contains("sold"), "{why}");
    // a waiting file of it ends it, before another is judged
    drop_for(&world, "a", "2.json", &event("a2", "k", 6000, 1));
    drop_for(&world, "b", "0.json", &event("b2", "k", 9000, 1));
    once(&world, &[]).ok();
    assert_eq!(world.report()["watermark_ms"], 6000);
    assert_eq!(notes(&world)[2..], ["retired a", "active a"]);
    world.run(&["verify"]).ok();
}
