//! Many at once on one store: deliveries, the daemon, reports, backups, and somebody who holds the
//! lock. `WINDOWFLOW_ROUNDS=N` makes the long ones N times as long.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use windowflow::store::sqlite::{Options, SqliteStore};

use crate::model::{Event, Model, Settings};
use crate::observed::{assert_report, ndjson};
use crate::unsure::take_text;
use crate::world::World;

/// So wide that nothing is late in whatever order it comes.
const LATENESS_MS: i64 = 1_000_000_000;

pub fn rounds() -> usize {
    std::env::var("WINDOWFLOW_ROUNDS").map_or(1, |text| text.parse().unwrap())
}

fn unhurried() -> (World, Model) {
    let world = World::with_store(1000, LATENESS_MS);
    (world, Model::new(Settings::new(1000, LATENESS_MS)))
}

fn batch(name: &str, events: i64) -> Vec<Event> {
    let event = |n| Event::new(format!("{name}-{n}"), ["a", "b"][n as usize % 2], n * 300, n - 7);
    (0..events).map(event).collect()
}

/// Ingests the same or different files from as many processes at once; what each of them printed.
fn deliver(world: &World, files: &[String]) -> Vec<Value> {
    let children: Vec<_> = files
        .iter()
        .map(|file| {
            let mut command = world.command(&["ingest", "--json", file]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let end = |child: std::process::Child| {
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{told}\n{}", world.told());
        serde_json::from_slice(&output.stdout).unwrap()
    };
    children.into_iter().map(end).collect()
}

fn sum(lines: &[Value], name: &str) -> u64 {
    lines.iter().map(|line| line[name].as_u64().unwrap()).sum()
}

#[test]
fn one_id_from_24_processes_counts_once() {
    let (world, mut model) = unhurried();
    let daemon = world.daemon();
    // the daemon has work of its own meanwhile
    for number in 0..30 {
        let others = batch(&format!("other-{number}"), 40);
        world.drop_in(format!("{number:02}.ndjson"), ndjson(&others));
        model.ingest("default", &others, 0).unwrap();
    }
    let one = [Event::new("the-one", "a", 5, 11)];
    fs::write(world.root().join("one.json"), ndjson(&one)).unwrap();
    let lines = deliver(&world, &vec!["one.json".to_owned(); 24]);
    assert_eq!((sum(&lines, "accepted"), sum(&lines, "duplicate")), (1, 23), "{lines:?}");
    for _ in 0..24 {
        model.ingest("default", &one, 0).unwrap();
    }
    let mut batches: Vec<_> = lines.iter().map(|line| line["batch"].as_u64().unwrap()).collect();
    batches.sort_unstable();
    batches.dedup();
    assert_eq!(batches.len(), 24, "two batches have one number");
    world.until_drained();
    daemon.stop();
    assert_report(&world.report(), &model, &|| world.told());
}

#[test]
fn one_id_from_24_threads_counts_once() {
    let (world, mut model) = unhurried();
    let one = [Event::new("the-one", "a", 5, 11)];
    let text = ndjson(&one);
    let (db, together) = (world.db(), Barrier::new(24));
    let accepted: u64 = thread::scope(|scope| {
        let deliver = || {
            let mut store = SqliteStore::open(&db, Options::default()).unwrap();
            together.wait();
            take_text(&mut store, &text).counts.accepted
        };
        let threads: Vec<_> = (0..24).map(|_| scope.spawn(deliver)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(accepted, 1);
    for _ in 0..24 {
        model.ingest("default", &one, 0).unwrap();
    }
    assert_report(&world.report(), &model, &|| world.told());
}

#[test]
fn of_40_deliveries_at_once_nothing_is_lost() {
    let (world, mut model) = unhurried();
    let daemon = world.daemon();
    let mut files = Vec::new();
    for number in 0..40 {
        let mine = batch(&format!("mine-{number}"), 50);
        let others = batch(&format!("other-{number}"), 50);
        files.push(format!("{number}.ndjson"));
        fs::write(world.root().join(&files[number]), ndjson(&mine)).unwrap();
        world.drop_in(&files[number], ndjson(&others));
        model.ingest("default", &mine, 0).unwrap();
        model.ingest("default", &others, 0).unwrap();
    }
    let lines = deliver(&world, &files);
    assert_eq!(sum(&lines, "accepted"), 40 * 50);
    world.until_drained();
    daemon.stop();
    assert_eq!(world.names("done").len(), 40, "{}", world.told());
    assert_report(&world.report(), &model, &|| world.told());
}

/// Case 56: somebody takes the write lock again and again.
#[test]
fn a_lock_held_by_another_makes_files_wait_and_fail_not() {
    let (world, mut model) = unhurried();
    let files = 20 * rounds();
    let daemon = world.daemon();
    let (db, done, over) = (world.db(), world.spool().join("done"), AtomicBool::new(false));
    let holds = AtomicUsize::new(0);
    let files = thread::scope(|scope| {
        scope.spawn(|| {
            let other = rusqlite::Connection::open(&db).unwrap();
            other.busy_timeout(Duration::from_secs(60)).unwrap();
            let done = || fs::read_dir(&done).unwrap().count();
            while !over.load(Ordering::Relaxed) {
                other.execute_batch("BEGIN IMMEDIATE").unwrap();
                let before = done();
                // holding it for a while is what is tried here
                thread::sleep(Duration::from_millis(300));
                other.execute_batch("COMMIT").unwrap();
                holds.fetch_add(1, Ordering::Relaxed);
                while done() == before && !over.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(5));
                }
            }
        });
        let mut number = 0;
        while number < files || holds.load(Ordering::Relaxed) < 3 {
            let events = batch(&format!("file-{number}"), 20);
            world.drop_in(format!("{number:04}.ndjson"), ndjson(&events));
            model.ingest("default", &events, 0).unwrap();
            if number % 4 == 0 {
                world.until_drained();
            }
            number += 1;
        }
        world.until_drained();
        over.store(true, Ordering::Relaxed);
        number
    });
    daemon.stop();
    assert_eq!(world.names("failed"), Vec::<String>::new(), "{}", world.told());
    assert_eq!(world.names("done").len(), files, "{}", world.told());
    assert_report(&world.report(), &model, &|| world.told());
}

/// Events that cancel out: in every consistent state the sum is 0.
fn balanced(name: &str, pairs: i64) -> Vec<Event> {
    let side = |pair: i64, sign: i64| {
        Event::new(format!("{name}-{pair}-{sign}"), "k", pair % 7000, sign * (pair + 1))
    };
    // one side of all comes first, so that half a batch is far off
    let pairs = 0..pairs;
    let first = pairs.clone().map(|pair| side(pair, 1));
    first.chain(pairs.map(|pair| side(pair, -1))).collect()
}

fn assert_balanced(report: &Value, pairs: u64, told: &dyn Fn() -> String) {
    let rows = report["windows"].as_array().unwrap();
    let sum: i128 = rows.iter().map(|row| i128::from(row["sum"].as_i64().unwrap())).sum();
    let count: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
    assert_eq!(sum, 0, "half a batch is seen\n{}", told());
    assert_eq!(count % (2 * pairs), 0, "half a batch is seen\n{}", told());
    assert_eq!(report["totals"]["accepted"], count, "{}", told());
}

/// Cases 55 and 64, and backups: each sees one consistent state, the log stays bounded, and the
/// store is whole afterwards.
#[test]
fn case_055_064_reports_and_backups_during_ingest_see_whole_batches() {
    const PAIRS: u64 = 1500;
    /// What the README promises, and a batch.
    const MOST_LOG_BYTES: u64 = (64 << 20) + (8 << 20);
    let (world, mut model) = unhurried();
    let mut number = 0;
    let mut drop_more = |model: &mut Model| {
        for _ in 0..25 * rounds() {
            let events = balanced(&format!("f{number}"), PAIRS as i64);
            world.drop_in(format!("{number:04}.ndjson"), ndjson(&events));
            model.ingest("default", &events, 0).unwrap();
            number += 1;
        }
    };
    drop_more(&mut model);
    let daemon = world.daemon();
    let (mut reports, mut seen, mut most_log_bytes) = (0, Vec::new(), 0);
    let log = world.spool().join("windowflow.db-wal");
    // on a machine where a report takes longer than the files do, more of them have to come
    while reports < 5 || !world.names("inbox").is_empty() {
        if world.names("inbox").is_empty() {
            drop_more(&mut model);
        }
        let report = world.report();
        assert_balanced(&report, PAIRS, &|| world.told());
        seen.push(report["totals"]["batches"].as_u64().unwrap());
        daemon.signal("USR1");
        most_log_bytes = most_log_bytes.max(fs::metadata(&log).map_or(0, |log| log.len()));
        if reports % 3 == 0 {
            let copy = format!("copy-{reports}.db");
            world.run(&["backup", &copy]).ok();
            let report = world.run(&["--db", &copy, "report", "--json"]).ok().json();
            assert_balanced(&report, PAIRS, &|| world.told());
            assert_whole(&world.root().join(&copy));
        }
        reports += 1;
    }
    daemon.stop();
    assert!(seen.is_sorted(), "a later report knew less: {seen:?}");
    assert!(most_log_bytes <= MOST_LOG_BYTES, "the log grew to {most_log_bytes} bytes");
    assert_whole(&world.db());
    assert_report(&world.report(), &model, &|| world.told());
}

fn assert_whole(db: &Path) {
    let connection = rusqlite::Connection::open(db).unwrap();
    let answer: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(answer, "ok", "{}", db.display());
}

/// Case 64: a report from inside the daemon must not drop the locks that its batch holds.
#[test]
fn case_064_143_a_report_in_the_middle_of_a_batch_leaves_the_locks_alone() {
    // how many reports fit into a batch depends on the machine: a larger batch has room for more
    let sizes = (0..8).map(|doubled| (60_000 << doubled) * rounds() as i64);
    let tried: Vec<usize> = sizes.map(reports_within_a_batch).take_while(|n| *n < 3).collect();
    assert!(tried.len() < 8, "never three reports within a batch: {tried:?}");
}

/// How many reports were taken while a batch of that many pairs of events was open.
fn reports_within_a_batch(pairs: i64) -> usize {
    let (world, mut model) = unhurried();
    let daemon = world.daemon();
    let events = balanced("large", pairs);
    world.drop_in("large.ndjson", ndjson(&events));
    let latest = world.spool().join("reports/latest.json");
    let shm = world.spool().join("windowflow.db-shm");
    let is_done = || !world.names("done").is_empty();
    world.eventually("the batch holds the lock", || {
        is_done() || holds_lock(&shm, "WRITE", daemon.pid())
    });
    let mut dumps = 0;
    loop {
        let before = fs::metadata(&latest).map(|meta| meta.ino()).ok();
        daemon.signal("USR1");
        world.eventually("the report is there", || {
            fs::metadata(&latest).map(|meta| meta.ino()).ok() != before
        });
        // that a connection has the file open at all: without it another process that ends would
        // take itself for the last one, and remove the log
        assert!(holds_lock(&world.db(), "READ", daemon.pid()), "{}", world.told());
        let held = holds_lock(&shm, "WRITE", daemon.pid());
        // the lock goes only after the commit, so it is asked for first
        if world.report()["totals"]["batches"] == 1 {
            break;
        }
        assert!(held, "the lock was dropped during the batch\n{}", world.told());
        dumps += 1;
    }
    world.until_drained();
    daemon.stop();
    assert_whole(&world.db());
    // only now: while this takes its time the batch would end unseen
    model.ingest("default", &events, 0).unwrap();
    assert_report(&world.report(), &model, &|| world.told());
    dumps
}

/// Whether that process holds a lock of that kind on that file, as the kernel tells it.
fn holds_lock(file: &Path, kind: &str, pid: u32) -> bool {
    let Ok(meta) = fs::metadata(file) else { return false };
    let (pid, inode) = (pid.to_string(), format!(":{}", meta.ino()));
    fs::read_to_string("/proc/locks").unwrap().lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let held = words.get(1) == Some(&"POSIX") && words.get(3) == Some(&kind);
        held && words.get(4) == Some(&pid.as_str()) && words[5].ends_with(&inode)
    })
}
