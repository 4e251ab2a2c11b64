//! The example that a newcomer runs first gives what is written beside it, and what the README
//! shows.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::world::World;

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("spool-example")
}

fn copy_inbox(world: &World) {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let target = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy(&entry.path(), &target);
            } else {
                fs::copy(entry.path(), target).unwrap();
            }
        }
    }
    copy(&example().join("inbox"), &world.inbox());
}

fn drained() -> World {
    let world = World::new();
    copy_inbox(&world);
    let config = example().join("windowflow.toml");
    world.run(&["run", "--once", "--config", config.to_str().unwrap()]).exits(65);
    world
}

/// Times of the day replaced by 0: all else must be the same every time.
fn without_clock(report: &mut Value) {
    report["generated_at_ms"] = json!(0);
    report["last_ingest_at_ms"] = json!(0);
    for source in report["sources"].as_array_mut().unwrap() {
        source["last_batch_at_ms"] = json!(0);
        source["presence_since_ms"] = json!(0);
    }
}

#[test]
fn the_example_gives_its_expected_report() {
    let world = drained();
    let mut report = world.report();
    without_clock(&mut report);
    let path = example().join("expected-report.json");
    if std::env::var_os("WINDOWFLOW_REWRITE").is_some() {
        fs::write(&path, serde_json::to_string_pretty(&report).unwrap() + "\n").unwrap();
        panic!("written anew: {}", path.display());
    }
    let expected: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!(report, expected);
    assert_eq!(world.names("inbox"), Vec::<String>::new());
    let failed = world.names("failed");
    assert_eq!(failed.len(), 4, "{failed:?}");
    assert_eq!(world.reason("05-conflict.json")["code"], "conflict");
    assert_eq!(world.reason("05-conflict.json")["other"]["file"], "01-worked-example.json");
    assert_eq!(world.reason("06-bad-input.json")["code"], "unknown_field");
    assert!(world.names("done").contains(&"press-3/00-shift.ndjson".to_owned()));
}

/// The report as a person sees it, with one and the same moment for whatever the clock said.
fn as_shown(report: &str) -> String {
    const UTC: &str = "2026-01-01T12:00:00.000Z";
    const MS: &str = "1767268800000";
    let with_moment = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_ms = bare.len() == MS.len() && bare.bytes().all(|byte| byte.is_ascii_digit());
        let is_utc = bare.len() == UTC.len() && bare.starts_with("20") && bare.ends_with('Z');
        match (is_utc, is_ms) {
            (true, _) => word.replace(bare, UTC),
            (_, true) => word.replace(bare, MS),
            _ => word.to_owned(),
        }
    };
    let mut shown = String::new();
    for line in report.split_inclusive('\n') {
        let line: String = line.split_inclusive(' ').map(with_moment).collect();
        match line.rsplit_once(", ").filter(|(_, age)| age.ends_with("before this report\n")) {
            Some((before, _)) => shown += &format!("{before}, 0.100 s before this report\n"),
            None => shown += &line,
        }
    }
    shown
}

#[test]
fn the_readme_shows_the_report_of_the_example() {
    let world = drained();
    let shown = as_shown(&world.run(&["report"]).ok().out);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let after = "The report of that example:\n\n```text\n";
    let start = readme.find(after).unwrap() + after.len();
    let end = start + readme[start..].find("```").unwrap();
    if std::env::var_os("WINDOWFLOW_REWRITE").is_some() {
        let anew = format!("{}{shown}{}", &readme[..start], &readme[end..]);
        fs::write(&path, anew).unwrap();
        panic!("written anew: {}", path.display());
    }
    assert_eq!(&readme[start..end], shown);
}

#[test]
fn the_readme_shows_what_verify_finds_in_the_example() {
    let world = drained();
    let lost = r#"{"id":"request-77","key":"checkout","timestamp_ms":4200,"value":5}"#;
    fs::write(world.spool().join("done/09-lost.json"), lost).unwrap();
    let db = "spool/windowflow.db";
    let said = world.run(&["verify", "--spool", "spool", "--db", db]).exits(65).out;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let after = "windowflow verify --spool spool\n```\n\n```text\n";
    let start = readme.find(after).unwrap() + after.len();
    let end = start + readme[start..].find("```").unwrap();
    if std::env::var_os("WINDOWFLOW_REWRITE").is_some() {
        let anew = format!("{}{said}{}", &readme[..start], &readme[end..]);
        fs::write(&path, anew).unwrap();
        panic!("written anew: {}", path.display());
    }
    assert_eq!(&readme[start..end], said);
}

/// Words of a command line, single quotes and all.
fn words(line: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 {
            all.last_mut().unwrap().push_str(part);
            continue;
        }
        let mut pieces = part.split(' ');
        all.last_mut().unwrap().push_str(pieces.next().unwrap());
        all.extend(pieces.map(str::to_owned));
    }
    all.into_iter().filter(|word| !word.is_empty()).collect()
}

#[test]
fn the_walk_through_three_sources_prints_what_the_readme_shows() {
    let world = World::new();
    for entry in fs::read_dir(example().join("event-time")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), world.root().join(entry.file_name())).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = fs::read_to_string(path).unwrap();
    let blocks = readme.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let (mut said, mut commands) = (String::new(), 0);
    for line in blocks.flat_map(str::lines) {
        if let Some(command) = line.strip_prefix("$ windowflow ") {
            said = world.run(&words(command)).ok().out;
            commands += 1;
            continue;
        }
        // each line that is shown stands in the rest of what was printed
        let at = said.lines().position(|said| said == line);
        let at = at.unwrap_or_else(|| panic!("no line {line:?} in:\n{said}\n{}", world.told()));
        said = said.lines().skip(at + 1).collect::<Vec<_>>().join("\n");
    }
    assert!(commands > 10, "only {commands} commands found");
}

#[test]
fn the_worked_example() {
    let world = World::with_store(1000, 500);
    let batch = example().join("inbox/01-worked-example.json");
    let batch = batch.to_str().unwrap();
    let first = world.run(&["ingest", "--json", batch]).ok().json();
    let expected = json!({"batch": 1, "file": batch, "source": "default", "events": 6,
        "accepted": 4, "late": 1, "duplicate": 1, "future": 0, "expired": 0,
        "watermark_ms": 1100, "windows_closed": 1});
    assert_eq!(first, expected);
    let again = world.run(&["ingest", "--json", batch]).ok().json();
    assert_eq!((&again["duplicate"], &again["windows_closed"]), (&json!(6), &json!(0)));
    let report = world.report();
    let first = json!({"key": "checkout", "window_start_ms": 0, "window_end_ms": 1000, "count": 3,
        "sum": 40, "min": 8, "max": 20, "state": "final", "revision": 0, "waiting_for": [],
        "waiting_for_more": 0});
    assert_eq!(report["windows"][0], first);
    assert_eq!(report["windows"][1]["state"], "open");
    assert_eq!(report["windows"][1]["waiting_for"], json!(["default"]));
    assert_eq!(report["late"][0]["value"], 99);
    let advanced = world.run(&["advance", "2000", "--json"]).ok().json();
    assert_eq!((&advanced["watermark_ms"], &advanced["windows_closed"]), (&json!(2000), &json!(1)));
    assert_eq!(world.report()["windows"][1]["state"], "final");
}
