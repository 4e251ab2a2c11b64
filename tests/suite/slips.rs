//! Slips of the hand that could not be undone: refused, or asked about, before anything is done.

use std::fs;

use crate::world::{World, has_tool};

const DAY_MS: i64 = 86_400_000;

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

fn event(id: &str, timestamp_ms: i64) -> String {
    format!(r#"{{"id":"{id}","key":"k","timestamp_ms":{timestamp_ms},"value":1}}"#)
}

#[test]
fn case_112_a_watermark_far_ahead_is_refused_unless_it_is_meant() {
    let world = World::with_store(60_000, 0);
    let newest_ms = 1_767_225_600_000;
    world.run_with_input(&["ingest", "-"], event("e1", newest_ms).as_bytes()).ok();
    // one zero too many, and nanoseconds
    let ran = world.run(&["advance", "17672257000000"]).exits(2);
    for part in ["2530-01-05", "the clock", "2026-01-01T00:00:00", "--beyond-clock"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    world.run(&["advance", "1767225700000000000"]).exits(2);
    world.run(&["advance", "1767225700000000000", "--beyond-clock"]).exits(2);
    world.run(&["advance", &(now_ms() + 2 * DAY_MS).to_string()]).exits(2);
    assert_eq!(world.report()["watermark_ms"], newest_ms, "nothing was done");
    world.run(&["advance", &(now_ms() + DAY_MS / 2).to_string()]).ok();
    world.run(&["advance", "17672257000000", "--beyond-clock"]).ok();
    assert_eq!(world.report()["watermark_ms"], 17_672_257_000_000_i64);
    // no step any more
    let ran = world.run(&["advance", "17672257000000"]).ok();
    assert!(ran.out.contains("still"), "{}", ran.out);
}

#[test]
fn case_112_a_store_made_with_seconds_says_so_while_it_is_empty() {
    let world = World::new();
    let ran = world.run(&["init", "--window-ms", "60", "--lateness-ms", "5"]).ok();
    assert!(ran.err.contains("a minute is 60000"), "{}", ran.err);
    let ran = world.run(&["init", "--window-ms", "60", "--lateness-ms", "5"]).ok();
    assert_eq!(ran.err, "", "it is there already");
}

const SECONDS: i64 = 1_767_225_600;

fn write(world: &World, name: &str, events: &[(&str, i64)]) {
    let lines: Vec<String> = events.iter().map(|(id, ms)| event(id, *ms)).collect();
    fs::write(world.root().join(name), lines.join("\n")).unwrap();
}

#[test]
fn case_113_seconds_are_told_before_the_commit_by_hand() {
    let world = World::with_store(60_000, 0);
    write(&world, "a", &[("r", SECONDS)]);
    for command in ["check", "ingest"] {
        let ran = world.run(&[command, "a"]).exits(65);
        let parts = ["event 0", "looks like seconds", "1970-01-21T10:53:45.600Z", "2026-01-01T"];
        for part in parts.into_iter().chain(["--accept-seconds", "has sent nothing"]) {
            assert!(ran.err.contains(part), "{command}: {part}: {}", ran.err);
        }
    }
    let refused = world.run(&["ingest", "--json", "a"]).exits(65).json();
    assert_eq!(refused["code"], "seconds", "{refused}");
    assert_eq!((&refused["event_index"], &refused["field"]), (&0.into(), &"timestamp_ms".into()));
    // the mended file is no conflict: nothing was taken in
    write(&world, "b", &[("r", SECONDS * 1000)]);
    world.run(&["ingest", "b"]).ok();
    // a source that sends milliseconds is not believed either
    write(&world, "c", &[("s", SECONDS)]);
    let ran = world.run(&["ingest", "c"]).exits(65);
    assert!(ran.err.contains("has sent milliseconds"), "{}", ran.err);
    world.run(&["check", "--accept-seconds", "c"]).ok();
    world.run(&["ingest", "--accept-seconds", "c"]).ok();
    // a replay of what was accepted is refused by nobody
    world.run(&["ingest", "c"]).ok();
    let args = ["ingest", "--source", "lab", "--accept-seconds", "-"];
    world.run_with_input(&args, event("t", SECONDS).as_bytes()).ok();
    let args = ["ingest", "--source", "lab", "-"];
    world.run_with_input(&args, event("u", SECONDS + 60).as_bytes()).ok();
}

#[test]
fn case_113_on_a_terminal_it_is_asked() {
    if !has_tool("script", "the question on a terminal") {
        return;
    }
    let world = World::with_store(60_000, 0);
    write(&world, "a", &[("r", SECONDS)]);
    let binary = env!("CARGO_BIN_EXE_windowflow");
    for (answer, code, accepted) in [("n\n", 65, 0), ("y\n", 0, 1)] {
        let db = world.db();
        let typed = format!("{binary} --db {} ingest a", db.display());
        let mut command = std::process::Command::new("script");
        command.args(["-qec", &typed, "/dev/null"]).current_dir(world.root());
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, answer.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        drop(stdin);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains("take it as it stands") && said.contains("1970-01-21"), "{said}");
        assert_eq!(world.report()["totals"]["accepted"], accepted, "{said}");
    }
}

#[test]
fn case_113_139_the_daemon_refuses_seconds_beside_milliseconds_and_retry_takes_them() {
    let world = World::with_store(60_000, 0);
    let batch = |last: i64| {
        let events = [event("m", SECONDS * 1000), event("n", SECONDS), event("o", last)];
        events.join("\n")
    };
    world.drop_in("press/mixed.ndjson", batch(SECONDS * 1000 + 1));
    world.drain().exits(65);
    let reason = world.reason("press/mixed.ndjson");
    assert_eq!((&reason["code"], &reason["event_index"]), (&"seconds".into(), &1.into()));
    assert_eq!((&reason["event_id"], &reason["line"]), (&"n".into(), &2.into()), "{reason}");
    let message = reason["message"].as_str().unwrap();
    assert!(message.contains("press") && message.contains("1970-01-21"), "{message}");
    assert!(reason["hint"].as_str().unwrap().contains("retry --accept-seconds"), "{reason}");
    assert_eq!(world.report()["totals"]["accepted"], 0);
    // put back as it is, it is refused again
    world.run(&["retry", "--all"]).ok();
    world.drain().exits(65);
    world.run(&["retry", "--all", "--accept-seconds"]).ok();
    // other content under the same name is not meant
    let inbox = world.inbox().join("press/mixed.ndjson");
    let accepted = fs::read(&inbox).unwrap();
    fs::remove_file(&inbox).unwrap();
    world.drop_in("press/mixed.ndjson", batch(SECONDS * 1000 + 2));
    world.drain().exits(65);
    world.drop_in("press/again.ndjson", &accepted);
    world.drain().ok();
    let totals = world.report()["totals"].clone();
    assert_eq!((&totals["accepted"], &totals["late"]), (&2.into(), &1.into()), "{totals}");
    // by any name, as often as it comes; and a check of all of it finds nothing wrong
    world.drop_in("press/third.ndjson", &accepted);
    world.drain().ok();
    world.run(&["verify"]).ok();
    world.run(&["lateness"]).ok();
    world.run(&["explain", "--id", "n"]).ok();
}

/// Has failed for the first fault alone.
#[test]
fn case_134_by_hand_the_other_faults_are_named_too() {
    let world = World::with_store(1000, 0);
    let bad =
        |n: u32| format!("{{\"id\":\"e{n}\",\"key\":\"k\",\"timestamp_ms\":{n},\"value\":1.5}}\n");
    let path = world.root().join("bad.ndjson");
    fs::write(&path, (0..30).map(bad).collect::<String>()).unwrap();
    for command in ["ingest", "check"] {
        let said = world.run(&[command, path.to_str().unwrap()]).exits(65).err;
        assert!(said.contains("30 events are at fault; the next of them:"), "{said}");
        assert_eq!(
            said.lines().filter(|line| line.contains("found the number 1.5")).count(),
            20,
            "{said}"
        );
        assert!(said.contains("line 20,") && !said.contains("line 21,"), "{said}");
    }
}
