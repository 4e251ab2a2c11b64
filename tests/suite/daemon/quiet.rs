//! Sources that fall silent, are back, or are expected.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::{NEVER_SETTLE, event, look_into, quick_with, write_config};
use crate::world::World;

const IDLE: (&str, &str) = ("sources.idle_timeout_ms", "1000");

/// How a source came and went: what it was from then on, in which batch, and whether an event of
/// that batch brought it back.
fn presence(world: &World, source: &str) -> Vec<(String, u64, bool)> {
    let store = look_into(&world.db());
    let sql = "SELECT presence, batch, event_index FROM presence WHERE source = ?1 \
               ORDER BY batch, ordinal";
    let mut rows = store.prepare(sql).unwrap();
    let row = |row: &rusqlite::Row<'_>| {
        Ok((row.get(0)?, row.get(1)?, row.get::<_, Option<u64>>(2)?.is_some()))
    };
    rows.query_map([source], row).unwrap().map(Result::unwrap).collect()
}

fn kinds(world: &World, source: &str) -> Vec<String> {
    presence(world, source).into_iter().map(|(kind, _, _)| kind).collect()
}

/// The batch that a file came in with, by the log.
fn batch_of(world: &World, file: &str) -> u64 {
    let log = world.log();
    let before = log.split(&format!(": {file}: ")).next().unwrap();
    before.rsplit("batch ").next().unwrap().parse().unwrap_or_else(|_| panic!("{log}"))
}

fn until_watermark(world: &World, watermark_ms: i64) {
    world.eventually(&format!("the watermark is at {watermark_ms}"), || {
        world.report()["watermark_ms"] == watermark_ms
    });
}

fn until_done(world: &World, file: &str) {
    let is_done = || world.log().contains(&format!(": {file}: "));
    world.eventually(&format!("{file} is done"), is_done);
}

/// Who is idle, by the report.
fn idle(world: &World) -> Vec<String> {
    let report = world.report();
    let sources = report["sources"].as_array().unwrap().iter();
    let idle = sources.filter(|source| source["idle"] == true);
    idle.map(|source| source["source"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_quiet_source_holds_nothing_until_a_file_of_it_is_there() {
    let world = World::with_store(1000, 0);
    // a file that never settles: as long as it waits, its source is there
    fs::create_dir(world.inbox().join("a")).unwrap();
    fs::create_dir(world.inbox().join("b")).unwrap();
    fs::write(world.inbox().join("b/writing.json"), "[").unwrap();
    let daemon = quick_with(&world, &[IDLE, NEVER_SETTLE]);
    world.drop_in("a/1.json", event("a1", "k", 500, 1));
    until_done(&world, "a/1.json");
    world.drop_in("b/1.json", event("b1", "k", 5000, 1));
    until_done(&world, "b/1.json");
    until_watermark(&world, 5000);
    assert_eq!(idle(&world), ["a"]);
    assert_eq!(kinds(&world, "a"), ["expected", "idle"]);
    assert_eq!(kinds(&world, "b"), ["expected"], "silent as long as a, but a file of it waits");

    // back as soon as a file of it is there, long before that is read
    fs::write(world.inbox().join("a/writing.json"), "[").unwrap();
    world.eventually("a is back", || idle(&world).is_empty());
    world.drop_in("b/2.json", event("b2", "k", 9000, 1));
    until_done(&world, "b/2.json");
    assert_eq!(world.report()["watermark_ms"], 5000, "a is behind, and holds it again");
    world.drop_in("a/2.json", event("a2", "k", 5500, 1));
    until_watermark(&world, 5500);
    let rows = presence(&world, "a");
    assert_eq!(kinds(&world, "a"), ["expected", "idle", "active"]);
    assert!(rows[2].1 < batch_of(&world, "a/2.json") && !rows[2].2, "{rows:?}");
    assert_eq!(world.report()["totals"]["late"], 0, "{}", world.told());

    // with nothing left to wait for, the greatest counts, whoever falls idle last
    fs::remove_file(world.inbox().join("a/writing.json")).unwrap();
    fs::remove_file(world.inbox().join("b/writing.json")).unwrap();
    world.eventually("both are idle", || idle(&world) == ["a", "b"]);
    assert_eq!(world.report()["watermark_ms"], 9000);
    let log = world.log();
    assert!(log.contains("idle: a (nothing came from it for 1000 ms)"), "{log}");
    assert!(log.contains("active: a (a file of it is there)"), "{log}");
    daemon.stop();
}

#[test]
fn a_daemon_that_was_stopped_takes_nobody_for_silent() {
    let world = World::with_store(1000, 0);
    world.drop_in("a/1.json", event("a1", "k", 500, 1));
    let daemon = quick_with(&world, &[("sources.idle_timeout_ms", "3000")]);
    until_done(&world, "a/1.json");
    daemon.signal("STOP");
    let begun = Instant::now();
    // nothing can be polled for: that time passes is what is tested
    while begun.elapsed() < Duration::from_secs(4) {
        thread::sleep(Duration::from_millis(100));
    }
    daemon.signal("CONT");
    world.drop_in("b/1.json", event("b1", "k", 9000, 1));
    until_done(&world, "b/1.json");
    let until = batch_of(&world, "b/1.json");
    let rows = presence(&world, "a");
    assert!(rows.iter().all(|(_, batch, _)| *batch > until), "{rows:?} before {until}");
    // and when nothing comes while it does run, it falls idle all the same
    world.eventually("a is idle", || kinds(&world, "a").first().is_some_and(|kind| kind == "idle"));
    daemon.stop();
}

#[test]
fn without_a_timeout_nobody_falls_idle() {
    let world = World::with_store(1000, 0);
    world.drop_in("a/1.json", event("a1", "k", 500, 1));
    let daemon = quick_with(&world, &[]);
    until_done(&world, "a/1.json");
    write_config(&world, &[IDLE]);
    assert_eq!(kinds(&world, "a"), [""; 0]);
    // a new configuration is taken up while it runs
    daemon.signal("HUP");
    world.eventually("a is idle", || kinds(&world, "a") == ["idle"]);
    daemon.stop();
}

#[test]
fn sources_of_the_configuration_are_waited_for() {
    let world = World::with_store(1000, 0);
    world.drop_in("a/1.json", event("a1", "k", 5000, 1));
    let daemon = quick_with(&world, &[("sources.declared", "[\"b\"]")]);
    until_done(&world, "a/1.json");
    let report = world.report();
    assert_eq!(report["watermark_ms"], 0, "{}", world.told());
    assert_eq!(report["windows"][0]["waiting_for"], serde_json::json!(["a", "b"]));
    assert_eq!(world.state()["held_back_by"], serde_json::json!(["b"]));

    write_config(&world, &[("sources.declared", "[\"b\", \"c\"]")]);
    daemon.signal("HUP");
    world.eventually("c is declared", || kinds(&world, "c") == ["declared"]);
    world.drop_in("b/1.json", event("b1", "k", 2000, 1));
    until_done(&world, "b/1.json");
    assert_eq!(world.report()["watermark_ms"], 0);
    world.drop_in("c/1.json", event("c1", "k", 3000, 1));
    until_watermark(&world, 2000);
    // once is enough, however often it starts
    daemon.stop();
    quick_with(&world, &[("sources.declared", "[\"b\", \"c\"]")]).stop();
    assert_eq!(kinds(&world, "b"), ["declared"]);
}

#[test]
fn a_source_that_was_taken_in_seconds_is_shown() {
    let world = World::with_store(1000, 0);
    fs::write(world.root().join("p.json"), event("p", "k", 1_790_000_000, 1)).unwrap();
    let args = ["ingest", "--source", "press", "--accept-seconds", "p.json"];
    world.run(&args).ok();
    assert_eq!(world.state()["suspected_units"], serde_json::json!({"press": "seconds"}));
}
