//! Writes that fail and processes that die: a batch is in whole or not at all, its file stays where
//! it is, and what comes after finds everything right.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::model::{Counts, Event, Model, Settings, State};
use crate::observed::{array, assert_report, ndjson};
use crate::together::rounds;
use crate::world::{Daemon, World, has_tool, under};

/// Events in order, with a late one now and then.
fn batch(name: &str, from_ms: i64, events: i64) -> Vec<Event> {
    let event = |n: i64| {
        let key = ["checkout", "search", "basket"][n as usize % 3];
        let behind_ms = if n % 50 == 49 { 3000 } else { n % 5 * 90 };
        Event::new(format!("{name}-{n}"), key, (from_ms + n * 10 - behind_ms).max(0), n * 3 - 50)
    };
    (0..events).map(event).collect()
}

fn world() -> (World, Model) {
    (World::with_store(1000, 500), Model::new(Settings::new(1000, 500)))
}

/// The report without what the clock says.
fn state(world: &World) -> Value {
    let mut report = world.report();
    report["generated_at_ms"] = Value::Null;
    report
}

fn raw(world: &World) -> rusqlite::Connection {
    rusqlite::Connection::open(world.db()).unwrap()
}

/// Makes writing fail from some row on, by a trigger in the store's file.
fn break_store(world: &World, table: &str, what: &str, when: &str) {
    let text = format!(
        "CREATE TRIGGER broken BEFORE {what} ON {table} WHEN {when} \
         BEGIN SELECT RAISE(ABORT, 'broken on purpose'); END"
    );
    raw(world).execute_batch(&text).unwrap();
}

fn mend_store(world: &World) {
    raw(world).execute_batch("DROP TRIGGER broken").unwrap();
}

#[test]
fn a_write_that_fails_in_any_table_undoes_the_whole_batch() {
    let (world, mut model) = world();
    let first = batch("first", 0, 300);
    fs::write(world.root().join("first"), ndjson(&first)).unwrap();
    world.run(&["ingest", "first"]).ok();
    model.ingest("default", &first, 0).unwrap();

    // repeats, new ones, late ones, a new source, an event from the future, in several chunks
    let mut second = first[200..].to_vec();
    second.extend(batch("second", 3000, 4500));
    second.push(Event::new("far-ahead", "k", 253_402_300_799_999, 1));
    second.push(Event { source: Some("new".into()), ..Event::new("other", "k", 60_000, 1) });
    fs::write(world.root().join("second"), ndjson(&second)).unwrap();
    let before = state(&world);
    let mut tables = raw(&world)
        .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        .unwrap()
        .query_map([], |row| row.get::<_, String>(0))
        .unwrap()
        .map(Result::unwrap)
        .collect::<Vec<String>>();
    tables.sort();
    let base = world.root().join("base.db");
    world.run(&["backup", "base.db"]).ok();
    let mut broken = Vec::new();
    for (table, what) in tables.iter().flat_map(|t| ["INSERT", "UPDATE"].map(|what| (t, what))) {
        break_store(&world, table, what, "true");
        let ran = world.run(&["ingest", "second"]);
        if ran.code == Some(0) {
            // this batch writes nothing of the kind: begin again without it
            for ending in ["-wal", "-shm"] {
                let _ = fs::remove_file(world.spool().join(format!("windowflow.db{ending}")));
            }
            fs::copy(&base, world.db()).unwrap();
            continue;
        }
        mend_store(&world);
        assert!(ran.err.contains("broken on purpose"), "{what} {table}: {}", ran.err);
        assert_eq!(state(&world), before, "{what} {table} left something behind");
        broken.push(format!("{what} {table}"));
    }
    assert!(broken.len() >= 8, "only these were written to: {broken:?}");
    world.run(&["ingest", "second"]).ok();
    model.ingest("default", &second, 1_700_000_000_000).unwrap();
    assert_report(&world.report(), &model, &|| world.told());
}

#[test]
fn a_write_that_fails_leaves_the_file_in_the_inbox_until_it_can_be_written() {
    let (world, mut model) = world();
    let mut daemon = world.daemon();
    let before = state(&world);
    break_store(&world, "ledger_entries", "INSERT", "NEW.first > 5000");
    let events = batch("a", 0, 9000);
    world.drop_in("a.ndjson", ndjson(&events));
    world.eventually("the daemon says what is wrong", || {
        let fault = world.state()["daemon"]["fault"]["text"].to_string();
        fault.contains("broken on purpose")
    });
    assert_eq!(world.names("inbox"), ["a.ndjson"], "{}", world.told());
    assert_eq!(world.names("failed"), Vec::<String>::new(), "{}", world.told());
    assert_eq!(state(&world), before, "{}", world.told());
    assert_ne!(world.run(&["status"]).code, Some(0));
    assert!(daemon.runs(), "{}", world.told());
    mend_store(&world);
    world.until_drained();
    model.ingest("default", &events, 0).unwrap();
    assert_report(&world.report(), &model, &|| world.told());
    world.eventually("the fault is gone", || world.run(&["status"]).code == Some(0));
    daemon.stop();
}

/// No file may grow beyond a bound: writes fail anywhere, or the process dies in the middle of one.
#[test]
fn a_batch_that_runs_out_of_room_anywhere_leaves_nothing_behind() {
    if !has_tool("prlimit", "a file that may not grow") {
        return;
    }
    for ignored in [true, false] {
        let (world, mut model) = world();
        let events = batch("a", 0, 12_000);
        fs::write(world.root().join("a"), array(&events)).unwrap();
        let before = state(&world);
        let mut failures = 0;
        let signal = ["env", "--ignore-signal=XFSZ"];
        let signal = if ignored { &signal[..] } else { &signal[..1] };
        for kib in (20..20_000).step_by(50) {
            let bound = format!("--fsize={}", kib * 1024);
            let wrapper = [signal, &["prlimit", &bound]].concat();
            let ran = world.run_under(&wrapper, &["ingest", "a"]);
            if ran.code == Some(0) {
                break;
            }
            failures += 1;
            let code = ran.code;
            assert!(code.is_none() || code == Some(75) || code == Some(1), "{ran:?}");
            if code.is_none() && state(&world) != before {
                // it died while it tidied up after the commit: then all of it must be there
                break;
            }
            let nothing = state(&world) == before;
            assert!(nothing, "a bound of {kib} KiB left something behind: {ran:?}");
        }
        assert!(failures >= 5, "only {failures} bounds were too small");
        // it got in under the last of the bounds
        model.ingest("default", &events, 0).unwrap();
        assert_report(&world.report(), &model, &|| world.told());
    }
}

/// How far a process has read that file, in bytes; none when it does not have it open.
fn read_so_far(pid: u32, file: &Path) -> Option<u64> {
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        if fs::read_link(entry.path()).is_ok_and(|target| target == file) {
            let number = entry.file_name();
            let info = format!("/proc/{pid}/fdinfo/{}", number.to_str()?);
            let info = fs::read_to_string(info).ok()?;
            let position = info.lines().find_map(|line| line.strip_prefix("pos:"))?;
            return position.trim().parse().ok();
        }
    }
    None
}

#[test]
fn a_process_that_is_killed_in_the_middle_of_a_batch_leaves_nothing_behind() {
    let (world, mut model) = world();
    let first = batch("first", 0, 100);
    world.drop_in("0.ndjson", ndjson(&first));
    world.drain().ok();
    model.ingest("default", &first, 0).unwrap();
    let before = state(&world);

    let events = batch("large", 2000, 60_000 * rounds() as i64);
    let text = ndjson(&events);
    world.drop_in("large.ndjson", &text);
    let file = world.inbox().join("large.ndjson");
    // not three times: on a busy machine the writer may stand at the same place each time, and after
    // three deaths there the file is to blame
    for percent in [10, 70] {
        let daemon = world.daemon();
        let far = text.len() as u64 * percent / 100;
        world.eventually("the daemon is in the middle of the file", || {
            let position = read_so_far(daemon.pid(), &file);
            assert!(file.exists(), "it went through before it could be killed\n{}", world.told());
            position.is_some_and(|position| position >= far)
        });
        daemon.kill();
        assert_eq!(world.names("inbox"), ["large.ndjson"], "{}", world.told());
        assert_eq!(state(&world), before, "killed after {percent} %\n{}", world.told());
    }
    let daemon = world.daemon();
    world.until_drained();
    daemon.stop();
    model.ingest("default", &events, 0).unwrap();
    assert_eq!(world.names("done"), ["0.ndjson", "large.ndjson"]);
    assert_report(&world.report(), &model, &|| world.told());
}

/// Case 76: the watermark never falls, and what is final stays as it is.
#[test]
fn case_076_killed_after_each_of_50_files_it_ends_as_if_nothing_had_happened() {
    let (world, mut model) = world();
    let mut earlier = State::default();
    for number in 0..50 {
        let name = format!("{number:02}.json");
        let mut events = batch(&name, number * 400, 60);
        // a repeat of something in the file before
        events.extend(batch(&format!("{:02}.json", number - 1), (number - 1) * 400, 5));
        if number == 0 {
            events.truncate(60);
        }
        let daemon = world.daemon();
        drop_settled(&world, &name, &array(&events));
        model.ingest("default", &events, 0).unwrap();
        kill_at_some_point(&world, daemon, number, &name);
        let now = State::of_report(&world.report());
        assert!(now.watermark_ms >= earlier.watermark_ms, "W fell\n{}", world.told());
        for (window, totals) in &earlier.windows {
            if window.0 + 1000 <= earlier.watermark_ms {
                assert_eq!(now.windows.get(window), Some(totals), "{window:?} was final");
            }
        }
        earlier = now;
    }
    let daemon = world.daemon();
    world.until_drained();
    daemon.stop();
    assert_eq!(world.names("done").len(), 50, "{}", world.told());
    // a file whose move was lost came twice: more repeats, and nothing else
    let mut found = State::of_report(&world.report());
    assert!(found.counts.duplicate >= model.state.counts.duplicate);
    found.counts = Counts { duplicate: model.state.counts.duplicate, ..found.counts };
    assert!(found == model.state, "{}", crate::observed::difference(&found, &model.state));
}

/// Drops a file that was written a while ago: found at a start it is taken at once, before what
/// comes in later, so that the order is the one of the names.
fn drop_settled(world: &World, name: &str, text: &str) {
    let staged = world.root().join("staged");
    fs::write(&staged, text).unwrap();
    let file = fs::File::options().write(true).open(&staged).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    fs::rename(&staged, world.inbox().join(name)).unwrap();
}

/// At once, when the file is opened, when it is in, or when it is moved.
fn kill_at_some_point(world: &World, daemon: Daemon<'_>, number: i64, name: &str) {
    let is_in = || {
        let sources = world.run(&["sources", "--json"]).ok().json();
        sources["sources"][0]["last_file"] == name
    };
    match number % 3 {
        0 => {}
        1 => world.eventually("it is in", is_in),
        _ => world.eventually("it is moved", || !world.inbox().join(name).exists()),
    }
    daemon.kill();
}

/// Case 22: killed at any write, sync or rename, the file is in the inbox or in done/, never in
/// done/ without its events, and the next run counts it once. The calls are counted by thread.
#[test]
fn case_022_killed_at_each_step_of_a_file_it_counts_once() {
    if !has_tool("strace", "a kill at each step of a file") {
        return;
    }
    let mut steps = 0;
    for (call, stride) in
        [("pwrite64", 4), ("fdatasync", 1), ("fsync", 1), ("ftruncate", 1), ("renameat2", 1)]
    {
        for step in (1..).step_by(stride) {
            let when = format!("{call}:signal=KILL:when={step}");
            if killed_run(call, &when, None).is_none() {
                break;
            }
            steps += 1;
        }
    }
    assert!(steps > 15, "only {steps} steps were there to be killed at");
}

#[test]
fn killed_between_commit_and_move_a_file_counts_once() {
    if !has_tool("strace", "a kill between commit and move") {
        return;
    }
    let between = killed_run("renameat2", "renameat2:signal=KILL:when=1", Some("a.ndjson"));
    assert_eq!(between, Some(true), "it is committed, and still in the inbox");
}

/// Kills the daemon at that system call (if given, only one that names the path), then lets it run
/// again and checks everything. Whether the file was committed but not moved; none when the call
/// was not made that often.
fn killed_run(call: &str, when: &str, path: Option<&str>) -> Option<bool> {
    let (world, mut model) = world();
    let events = batch("a", 0, 200);
    drop_settled(&world, "a.ndjson", &ndjson(&events));
    model.ingest("default", &events, 0).unwrap();
    let (trace, inject) = (format!("trace={call}"), format!("inject={when}"));
    let mut strace = vec!["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    strace.extend(path.iter().flat_map(|path| ["-P", path]));
    let ran = under(&strace, &world.command(&["run", "--once"])).output().unwrap();
    let told = String::from_utf8_lossy(&ran.stderr);
    let batches = world.report()["totals"]["batches"].as_u64().unwrap();
    let waits = world.names("inbox") == ["a.ndjson"];
    if ran.status.success() {
        assert!(batches == 1 && !waits, "{told}");
        return None;
    }
    assert_eq!(ran.status.signal(), Some(libc::SIGKILL), "{when}: {told}");
    assert!(waits || batches == 1, "{when}: in done/ without its events");
    world.drain().ok();
    assert_eq!(world.names("done"), ["a.ndjson"], "{when}: {}", world.told());
    let mut found = State::of_report(&world.report());
    found.counts.duplicate = 0;
    let differs = crate::observed::difference(&found, &model.state);
    assert!(found == model.state, "{when}: {differs}");
    Some(waits && batches == 1)
}

/// A change of the journal mode whose end nobody looked at gave a store its name without a log.
#[test]
fn a_store_whose_making_cannot_be_synced_is_whole_or_not_there() {
    if !has_tool("strace", "a sync that fails") {
        return;
    }
    let mut failures = 0;
    for at in 1..20 {
        let world = World::new();
        let inject = format!("inject=fsync,fdatasync:error=EIO:when={at}");
        let calls = ["-e", "trace=?open,openat,fsync,fdatasync", "-e", &inject];
        let strace = [&["strace", "-f", "-qq", "-o", "trace"], &calls[..]].concat();
        let command = world.command(&["init", "--window-ms", "1000", "--lateness-ms", "0"]);
        let ran = under(&strace, &command).output().unwrap();
        let trace = fs::read_to_string(world.root().join("trace")).unwrap();
        if !trace.contains("INJECTED") {
            assert!(ran.status.success());
            break;
        }
        if !ran.status.success() {
            failures += 1;
            let told = String::from_utf8_lossy(&ran.stderr);
            assert!(told.contains("disk I/O error") || told.contains("os error 5"), "{told}");
        }
        // SQLite does without the sync of a folder; and one that failed may be that of its name
        assert!(world.db().exists() || !ran.status.success(), "sync {at}: no store");
        // a power cut would leave that behind, and no program takes such a thing for a store of ours
        let journal = format!("{}-journal", world.db().display());
        assert!(!trace.contains(&journal), "sync {at}: it had its name before it had a log");
        world.init(1000, 0, &[]);
    }
    assert!(failures >= 5, "only {failures} syncs failed");
}
