//! `bench`, the real command on small workloads: what it prints, and that it leaves nothing behind.
//! How fast it was is nobody's business here.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::world::World;

/// Its JSON; the temporary folder must be gone.
fn bench(world: &World, args: &[&str]) -> Value {
    let temp = world.root().join("temp");
    fs::create_dir_all(&temp).unwrap();
    // whoever runs the command
    fs::set_permissions(&temp, fs::Permissions::from_mode(0o1777)).unwrap();
    let mut all = vec!["bench", "--json", "--dir", temp.to_str().unwrap()];
    all.extend(args);
    let ran = world.run(&all).ok();
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 0, "something is left in {}", temp.display());
    ran.json()
}

/// Each name must be a member that is a number greater than 0.
fn assert_positive(object: &Value, names: &[&str]) {
    for name in names {
        assert!(object[*name].as_f64().is_some_and(|number| number > 0.0), "{name} of {object:#}");
    }
}

const RATES: [&str; 5] =
    ["seconds", "peak_memory_bytes", "write_call_bytes", "events_per_second", "files_per_second"];

#[test]
fn it_prints_what_is_documented_and_the_counts_add_up() {
    let world = World::new();
    let outcome = bench(&world, &["--events", "2000", "--batch-size", "50", "--runs", "1"]);
    assert_positive(&outcome, &["format", "file_bytes"]);
    assert_positive(&outcome["machine"], &["cores", "memory_bytes"]);
    for name in ["kernel", "file_system", "windowflow", "sqlite"] {
        assert_ne!(outcome["machine"][name].as_str().unwrap(), "", "{name}");
    }
    assert_positive(&outcome["settings"], &["events", "batch_size", "runs", "keys", "seed"]);
    assert_eq!(outcome["settings"]["ids"], "random");
    let expected = &outcome["expected"];
    let count = |name: &str| expected[name].as_u64().unwrap();
    assert_eq!(count("accepted") + count("late") + count("duplicate"), 2000, "{expected:#}");
    assert_positive(expected, &["late", "duplicate", "windows", "window_starts", "watermark_ms"]);
    for name in ["windows_checksum", "late_checksum"] {
        assert_eq!(expected[name].as_str().unwrap().len(), 32, "{name}");
    }
    let samples = outcome["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 1);
    assert_positive(&samples[0], &["store_bytes", "store_bytes_per_id"]);
    for part in ["ingest", "replay"] {
        assert_positive(&samples[0][part], &RATES);
        for name in ["cpu_seconds", "disk_write_bytes", "disk_write_bytes_per_event"] {
            assert!(samples[0][part][name].is_number(), "{name} of {part}");
        }
    }
    for part in ["ingest", "replay"] {
        let name = format!("{part}_events_per_second");
        assert_eq!(outcome["median"][&name], samples[0][part]["events_per_second"]);
    }
    assert!(outcome["median"]["ingest_files_per_second"].is_number());
    assert!(outcome["baseline"].as_array().unwrap().is_empty());
    assert!(outcome["comparison"].is_null() && outcome["growth"].is_null());
}

/// The kernel tells root only what a process that has ended has written.
#[test]
fn case_142_an_ordinary_user_can_measure() {
    let args = ["--events", "200", "--batch-size", "50", "--runs", "1"];
    let outcome = bench(&World::unprivileged(), &args);
    for part in ["ingest", "replay"] {
        assert_positive(&outcome["samples"][0][part], &RATES);
    }
}

#[test]
fn the_baseline_does_the_same_and_gives_a_ratio() {
    let args = ["--preset", "small", "--runs", "2", "--baseline", "--ids", "monotonic"];
    let outcome = bench(&World::new(), &args);
    assert_eq!(outcome["settings"]["ids"], "monotonic");
    assert_eq!(outcome["samples"].as_array().unwrap().len(), 2);
    let baseline = outcome["baseline"].as_array().unwrap();
    assert_eq!(baseline.len(), 2);
    assert_positive(&baseline[0], &["seconds", "events_per_second"]);
    assert_eq!(baseline[0]["events"], 10_000);
    assert_positive(&outcome["comparison"], &["baseline_events_per_second", "ratio"]);
    assert_eq!(outcome["comparison"]["over_all_events"], true);
}

#[test]
fn a_seed_decides_what_comes_out_and_files_may_hold_one_event() {
    let world = World::new();
    let one = ["--events", "60", "--batch-size", "1", "--runs", "1"];
    let other = ["--events", "60", "--batch-size", "60", "--runs", "1", "--seed"];
    let cut = bench(&world, &one);
    let same = bench(&world, &[&other[..], &["1"]].concat());
    let second = bench(&world, &[&other[..], &["2"]].concat());
    assert_eq!(cut["expected"], same["expected"]);
    assert_ne!(cut["expected"]["windows_checksum"], second["expected"]["windows_checksum"]);
}

#[test]
fn a_store_grows_round_by_round() {
    let world = World::new();
    let file = world.root().join("growth.json");
    let args = ["--preset", "growth", "--events", "3000", "--batch-size", "50"];
    let args = [&args[..], &["--output", file.to_str().unwrap()]].concat();
    let outcome = bench(&world, &args);
    let points = outcome["growth"]["points"].as_array().unwrap();
    let events: Vec<u64> = points.iter().map(|point| point["events"].as_u64().unwrap()).collect();
    assert_eq!(events, [300, 3000]);
    for point in points {
        assert_eq!(point["round_events"], 300);
        let names = ["ids", "rounds_measured", "round_seconds", "peak_memory_bytes", "store_bytes"];
        assert_positive(point, &names);
        assert_positive(point, &["nanoseconds_per_event"]);
        assert_positive(&point["restart"], &["seconds"]);
    }
    assert_positive(&outcome["growth"], &["cost_ratio"]);
    let written: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(written, outcome);
}

#[test]
fn it_reads_well_at_a_terminal() {
    let world = World::new();
    let args = ["bench", "--events", "500", "--batch-size", "50", "--runs", "1", "--baseline"];
    let out = world.run(&args).ok().out;
    for line in ["machine ", "workload  medium: 500 events", "checked   every run: ", "median  "] {
        assert!(out.lines().any(|found| found.starts_with(line)), "no {line:?} in:\n{out}");
    }
    assert!(out.contains(" times as fast\n"), "{out}");
    let args = ["bench", "--preset", "growth", "--events", "500", "--batch-size", "50"];
    let out = world.run(&args).ok().out;
    assert!(out.contains("times as much at the end as at first\n"), "{out}");
}

#[test]
fn what_cannot_be_done_is_said_before_anything_is_measured() {
    let world = World::new();
    let cases: [(&[&str], i32, &str); 4] = [
        (&["--dir", "nowhere"], 66, "there is no folder nowhere: name another with --dir"),
        (&["--output", "nowhere/a.json"], 1, "cannot write nowhere/a.json: "),
        (&["--preset", "growth", "--baseline"], 2, "leave out --runs and --baseline"),
        (&["--events", "0"], 2, "invalid value '0' for '--events <N>'"),
    ];
    for (args, code, text) in cases {
        let ran = world.run(&[&["bench"][..], args].concat());
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(text), "{args:?}: {}", ran.err);
    }
}

#[test]
fn a_signal_ends_it_and_leaves_nothing_behind() {
    // while files are written, and while the daemon drains them
    for there in ["files", "run/done"] {
        let world = World::new();
        let temp = world.root().join("temp");
        fs::create_dir(&temp).unwrap();
        let args = ["bench", "--events", "100000", "--dir", temp.to_str().unwrap()];
        let mut command = world.command(&args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let folder = || fs::read_dir(&temp).unwrap().next().map(|entry| entry.unwrap().path());
        world.eventually("it has begun", || folder().is_some_and(|dir| dir.join(there).exists()));
        rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{there}");
        assert_eq!(folder(), None, "{there}");
    }
}

/// Stores that are large in one way only, and every command that reads them.
#[test]
fn each_dimension_is_measured_at_three_sizes() {
    let world = World::new();
    let outcome = bench(&world, &["--dimension", "late", "--events", "3000"]);
    let [late] = &outcome["dimensions"].as_array().unwrap()[..] else { panic!("one") };
    assert_eq!(late["sizes"], serde_json::json!([3, 300, 3000]));
    let rows = late["rows"].as_array().unwrap();
    let named = |name: &str| rows.iter().find(|row| row["what"] == name).unwrap();
    for what in ["batch of 2,500", "lone file", "report", "explain --key", "lateness", "verify"] {
        let seconds = named(what)["seconds"].as_array().unwrap();
        assert!(seconds.len() == 3 && seconds.iter().all(Value::is_f64), "{what}: {seconds:?}");
    }
    assert!(named("lone file")["ratio"].as_f64().unwrap() > 0.0);
    assert_eq!(rows.len(), 14);
}

#[test]
fn files_that_wait_are_measured_while_they_wait() {
    let world = World::new();
    let outcome = bench(&world, &["--dimension", "waiting", "--events", "300"]);
    let [waiting] = &outcome["dimensions"].as_array().unwrap()[..] else { panic!("one") };
    assert_eq!(waiting["sizes"], serde_json::json!([1, 30, 300]));
    let rows = waiting["rows"].as_array().unwrap();
    let named = |name: &str| rows.iter().find(|row| row["what"] == name).unwrap();
    for what in ["report", "status", "verify", "first in line", "the backlog"] {
        let seconds = named(what)["seconds"].as_array().unwrap();
        assert!(seconds.len() == 3 && seconds.iter().all(Value::is_f64), "{what}: {seconds:?}");
    }
    assert!(named("first in line")["ratio"].as_f64().unwrap() > 0.0);
    assert_eq!(rows.len(), 14);
}
