//! The store's file: made once, known for what it is, whole after every failure.

use std::fs;
use std::path::Path;

use rusqlite::Connection;

use super::*;
use crate::store::conformance::{
    Dump, Ev, Stopped, deliver, delivery, ev, ingest, refused, settings,
};
use crate::store::{Begun, Committed};

fn raw(path: &Path) -> Connection {
    Connection::open(path).unwrap()
}

fn dump(path: &Path) -> Dump {
    Dump::of(&SqliteStore::snapshot(path, options()).unwrap())
}

fn names_in(files: &Files) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(files.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

/// Whoever uses the library need not set a umask. Has failed for a store made with mode 0644.
#[test]
fn case_122_a_store_is_made_closed_to_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let files = Files::new();
    let _store = files.make(settings());
    for name in names_in(&files) {
        let found = fs::metadata(files.folder.path().join(&name)).unwrap();
        assert_eq!(found.permissions().mode() & 0o777 & !0o640, 0, "{name}");
    }
}

#[test]
fn tables_are_strict_and_commits_are_synced() {
    let files = Files::new();
    let store = files.make(settings());
    let connection = store.connection.as_ref().unwrap();
    let text = |sql: &str| -> String {
        connection.query_row(sql, [], |row| row.get::<_, rusqlite::types::Value>(0)).map_or_else(
            |error| error.to_string(),
            |value| match value {
                rusqlite::types::Value::Text(text) => text,
                other => format!("{other:?}"),
            },
        )
    };
    assert_eq!(text("PRAGMA journal_mode"), "wal");
    assert_eq!(text("PRAGMA synchronous"), "Integer(2)");
    assert_eq!(text("PRAGMA user_version"), format!("Integer({})", schema::LATEST));
    assert_eq!(text("PRAGMA application_id"), format!("Integer({})", 0x5746_6c6f));
    let loose = "SELECT group_concat(name) FROM pragma_table_list WHERE schema = 'main' \
                 AND name NOT LIKE 'sqlite_%' AND strict = 0";
    assert_eq!(text(loose), "Null");
    let all = "SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND strict = 1";
    assert_eq!(text(all), "Integer(20)");
}

#[test]
fn a_missing_store_says_what_to_type_and_is_not_made() {
    let files = Files::new();
    let path = files.path("none.db");
    for error in [
        SqliteStore::open(&path, options()).unwrap_err(),
        SqliteStore::snapshot(&path, options()).unwrap_err(),
        SqliteStore::backup(&path, &files.path("b.db"), &mut |_, _| {}).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(matches!(error, Error::Missing(_)), "{text}");
        let hint = format!("run: windowflow --db {} init --window-ms", path.display());
        assert!(text.contains(&hint), "{text}");
    }
    assert_eq!(names_in(&files), Vec::<String>::new());
    let nowhere = files.path("no/such/w.db");
    let error = SqliteStore::create(&nowhere, settings(), options()).unwrap_err();
    assert!(matches!(error, Error::Missing(_)), "{error}");
}

#[test]
fn a_store_is_made_once_and_confirmed() {
    let files = Files::new();
    let path = files.path("w.db");
    let (mut store, created) = SqliteStore::create(&path, settings(), options()).unwrap();
    assert_eq!(created, Created::Made);
    deliver(&mut store, 1, &[ev("a", "k", 1, 1)]);
    drop(store);
    let (store, created) = SqliteStore::create(&path, settings(), options()).unwrap();
    assert_eq!((created, store.settings()), (Created::Confirmed, settings()));
    drop(store);
    let other = Settings::new(2000, 500).unwrap();
    match SqliteStore::create(&path, other, options()) {
        Err(Error::OtherSettings { stored, asked }) => {
            assert_eq!((stored, asked), (settings(), other));
        }
        other => panic!("expected other settings, found {other:?}"),
    }
    assert_eq!(dump(&path).summary.counts.accepted, 1);
}

#[test]
fn settings_come_back_as_they_were_given() {
    use crate::engine::settings::{LatePolicy, LateRule};
    let files = Files::new();
    let all = Settings::new(i64::MAX, 0)
        .unwrap()
        .with_late(LateRule::Event, LatePolicy::Drop)
        .with_max_future_ms(None)
        .unwrap()
        .with_dedup_horizon_ms(Some(i64::MAX))
        .unwrap();
    let store = files.make(all);
    assert_eq!(files.reopen(store).settings(), all);
}

#[test]
fn of_eight_that_make_a_store_at_once_one_makes_it() {
    for _ in 0..10 {
        let files = Files::new();
        let path = files.path("w.db");
        let barrier = std::sync::Barrier::new(8);
        let made: Vec<Created> = std::thread::scope(|scope| {
            let make = || {
                barrier.wait();
                SqliteStore::create(&path, settings(), options()).unwrap().1
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let makers = made.iter().filter(|created| **created == Created::Made).count();
        assert_eq!(makers, 1, "{made:?}");
        // several that close at the same moment may leave the log, but nobody a half-made store
        let mut names = names_in(&files);
        names.retain(|name| name != "w.db-wal" && name != "w.db-shm");
        assert_eq!(names, ["w.db"]);
    }
}

#[test]
fn what_is_foreign_is_refused_and_left_alone() {
    let files = Files::new();
    fs::write(files.path("text"), "a,b\n1,2\n".repeat(1000)).unwrap();
    fs::write(files.path("empty"), "").unwrap();
    fs::write(files.path("short"), "SQLite format 3\0").unwrap();
    let table = "CREATE TABLE t(x)";
    raw(&files.path("rollback")).execute_batch(table).unwrap();
    let log = format!("PRAGMA journal_mode = WAL; {table}");
    raw(&files.path("wal")).execute_batch(&log).unwrap();
    for name in ["text", "empty", "short", "rollback", "wal"] {
        let path = files.path(name);
        let before = fs::read(&path).unwrap();
        let copy = files.path("copy.db");
        for error in [
            SqliteStore::open(&path, options()).unwrap_err(),
            SqliteStore::create(&path, settings(), options()).unwrap_err(),
            SqliteStore::snapshot(&path, options()).unwrap_err(),
            SqliteStore::backup(&path, &copy, &mut |_, _| {}).unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(matches!(error, Error::Corrupt(_)), "{name}: {text}");
            assert!(text.contains("is not a windowflow store"), "{name}: {text}");
        }
        assert_eq!(fs::read(&path).unwrap(), before, "{name}");
        assert!(!copy.exists());
    }
    let error = SqliteStore::open(files.folder.path(), options()).unwrap_err().to_string();
    assert!(error.contains("is not a windowflow store"), "{error}");
}

#[test]
fn a_newer_store_is_refused_and_left_alone() {
    let files = Files::new();
    let store = files.make(settings());
    let path = store.path.clone();
    drop(store);
    raw(&path).pragma_update(None, "user_version", schema::LATEST + 1).unwrap();
    let before = fs::read(&path).unwrap();
    for error in [
        SqliteStore::open(&path, options()).unwrap_err(),
        SqliteStore::create(&path, settings(), options()).unwrap_err(),
        SqliteStore::snapshot(&path, options()).unwrap_err(),
    ] {
        assert!(matches!(error, Error::NewerSchema(_)), "{error}");
        let newer = format!("newer windowflow (schema {}", schema::LATEST + 1);
        assert!(error.to_string().contains(&newer), "{error}");
    }
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_write_that_fails_anywhere_undoes_the_whole_batch() {
    let files = Files { sizes: TINY, ..Files::new() };
    let mut store = files.make(settings());
    let path = store.path.clone();
    deliver(&mut store, 0, &[ev("a", "k", 2600, 1).by("1")]);
    let ahead = ev("h", "k", 9_999_999, 1);
    let events =
        [ev("b", "k", 9000, 1).by("1"), ev("c", "k", 1, 1), ahead, ev("d", "l", 2, 2).from("s")];
    let mut number = 1;
    let tables = "ledger_entries ledger_runs ledger_parts ledger_filters recent windows accounts \
                  late held sources versions moves batches store";
    for table in tables.split_whitespace() {
        let before = dump(&path);
        let trip = format!(
            "CREATE TRIGGER trip_a BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'trip'); END;
             CREATE TRIGGER trip_b BEFORE UPDATE ON {table} BEGIN SELECT RAISE(ABORT, 'trip'); END;"
        );
        raw(&path).execute_batch(&trip).unwrap();
        let failed = ingest(&mut store, &delivery(number), &[&events]);
        match failed {
            Err(Stopped::Store(Error::Io(text))) => assert!(text.contains("trip"), "{text}"),
            other => panic!("{table}: expected a failure, found {other:?}"),
        }
        assert_eq!(dump(&path), before, "{table}");
        raw(&path).execute_batch("DROP TRIGGER trip_a; DROP TRIGGER trip_b").unwrap();
        number += 1;
    }
    let committed = deliver(&mut store, number, &events);
    assert_eq!((committed.counts.accepted, committed.counts.late), (1, 2));
    assert_eq!(committed.counts.future, 1);
}

#[test]
fn a_commit_that_fails_is_unknown_until_the_store_is_asked() {
    let files = Files::new();
    let mut store = files.make(settings());
    let path = store.path.clone();
    // the check is deferred to the commit, which then fails
    let trip = "CREATE TABLE parent (x INTEGER PRIMARY KEY) STRICT;
        CREATE TABLE child (x INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED) STRICT;
        CREATE TRIGGER trip_a AFTER INSERT ON batches BEGIN INSERT INTO child VALUES (1); END;
        CREATE TRIGGER trip_b AFTER INSERT ON refusals BEGIN INSERT INTO child VALUES (1); END;";
    raw(&path).execute_batch(trip).unwrap();
    let failed = ingest(&mut store, &delivery(1), &[&[ev("a", "k", 1, 1)]]);
    assert!(matches!(failed, Err(Stopped::Store(Error::Unknown(_)))), "{failed:?}");
    assert!(store.in_doubt && store.connection.is_none());
    let refused = refused();
    let failed = store.record_refusal(&refused);
    assert!(matches!(failed, Err(Error::Unknown(_))), "{failed:?}");
    raw(&path).execute_batch("DROP TRIGGER trip_a; DROP TRIGGER trip_b").unwrap();
    match store.begin(&delivery(1)).unwrap() {
        Begun::Open(_) => {}
        Begun::Known(known) => panic!("it was not in: {known:?}"),
    }
    assert!(!store.in_doubt);
    assert_eq!(deliver(&mut store, 1, &[ev("a", "k", 1, 1)]).counts.accepted, 1);
    // the refusal may be in or not: it counts once whichever it is
    store.record_refusal(&refused).unwrap();
    store.refusals_in_doubt.push(refused.clone());
    store.record_refusal(&refused).unwrap();
    assert_eq!(dump(&path).summary.refused_batches, 1);
    store.record_refusal(&refused).unwrap();
    assert_eq!(dump(&path).summary.refused_batches, 2, "no doubt: another one");
}

#[test]
fn in_doubt_the_log_is_written_again_whoever_reads_and_is_not_copied_before() {
    let files = Files::new();
    let mut store = files.make(settings());
    deliver(&mut store, 1, &[ev("a", "k", 1, 1)]);
    let path = store.path.clone();
    let log = file::with_ending(&path, "-wal");
    // as after a sync that failed: the last connection to end copies nothing
    let (before, held) = (fs::read(&path).unwrap(), fs::read(&log).unwrap());
    store.in_doubt = true;
    store.close();
    assert_eq!(fs::read(&log).unwrap(), held);
    assert_eq!(fs::read(&path).unwrap(), before);
    // whoever comes next cannot know how it ended
    drop(store);
    let mut store = SqliteStore::open(&path, options()).unwrap();
    assert!(store.in_doubt);
    let snapshot = SqliteStore::snapshot(&path, options()).unwrap();
    let written_ms = || fs::metadata(&log).unwrap().modified().unwrap();
    let at = written_ms();
    assert!(matches!(store.begin(&delivery(1)).unwrap(), Begun::Known(_)));
    assert!(written_ms() > at, "it was not written again");
    assert!(!store.in_doubt);
    assert_eq!(fs::read(&log).unwrap(), held, "it was written otherwise");
    drop(snapshot);
    deliver(&mut store, 2, &[ev("b", "k", 1, 1)]);
    drop(store);
    assert!(!log.exists(), "well again, the last connection copies it");
}

#[test]
fn a_log_that_cannot_be_copied_is_told_at_the_next_beginning() {
    let files = Files::new();
    let mut store = files.make(settings());
    deliver(&mut store, 1, &[ev("a", "k", 1, 1)]);
    store.complaint = Some(Error::Io("the disk".to_owned()));
    let Some(Error::Io(text)) = store.begin(&delivery(2)).err() else { panic!("it began") };
    assert_eq!(text, "the disk");
    deliver(&mut store, 2, &[ev("b", "k", 1, 1)]);
}

/// Events with long names, so that few of them fill many pages.
fn bulky(prefix: &str, count: usize) -> Vec<Ev> {
    let key = "k".repeat(300);
    (0..count).map(|n| ev(&format!("{prefix}{n}{key}"), &key, n as i64, 1)).collect()
}

#[test]
fn a_process_killed_in_mid_batch_leaves_nothing() {
    let files = Files::new();
    let mut store = files.make(settings());
    let path = store.path.clone();
    deliver(&mut store, 1, &[ev("a", "k", 1, 1)]);
    let before = dump(&path);
    let log = file::with_ending(&path, "-wal");
    let log_before = fs::metadata(&log).unwrap().len();
    // a small cache spills: pages of the open batch reach the log
    store.connection.as_ref().unwrap().pragma_update(None, "cache_size", 5).unwrap();
    let events = bulky("x", 2000);
    let Begun::Open(mut batch) = store.begin(&delivery(2)).unwrap() else { panic!("known") };
    let mut chunk = crate::model::event::Chunk::default();
    for event in &events {
        chunk.push(crate::model::event::Event {
            id: &event.id,
            key: &event.key,
            timestamp_ms: event.timestamp_ms,
            value: event.value,
            source: None,
            producer_version: None,
            place: crate::model::event::Place::default(),
        });
    }
    let recorded = (0..events.len()).collect();
    let changes = crate::engine::Changes { recorded, ..Default::default() };
    batch.apply(&chunk, &changes).unwrap();
    assert!(fs::metadata(&log).unwrap().len() > log_before, "nothing was spilled");
    // what lies on the disk now is what a killed process leaves
    let copy = files.path("copy.db");
    fs::copy(&log, file::with_ending(&copy, "-wal")).unwrap();
    fs::copy(&path, &copy).unwrap();
    drop(batch);
    assert_eq!(dump(&copy), before);
    let mut copied = SqliteStore::open(&copy, options()).unwrap();
    let committed: Committed = deliver(&mut copied, 2, &events);
    assert_eq!(committed.counts.accepted, 2000);
}

#[test]
fn a_store_that_was_moved_or_replaced_takes_no_more_batches() {
    let files = Files::new();
    let (path, away) = (files.path("w.db"), files.path("away.db"));
    let mut store = SqliteStore::create(&path, settings(), options()).unwrap().0;
    deliver(&mut store, 1, &[ev("a", "k", 1, 1)]);
    fs::rename(&path, &away).unwrap();
    let refused = |store: &mut SqliteStore| match store.begin(&delivery(2)) {
        Err(Error::Missing(text)) => assert!(text.contains("moved, removed or replaced"), "{text}"),
        other => panic!("{:?}", other.err()),
    };
    refused(&mut store);
    fs::copy(&away, &path).unwrap();
    refused(&mut store);
    fs::rename(&away, &path).unwrap();
    deliver(&mut store, 3, &[ev("b", "k", 1, 1)]);
    assert_eq!(dump(&path).windows.len(), 1);
}

#[test]
fn a_backup_is_the_state_of_one_moment() {
    let files = Files::new();
    let mut store = files.make(settings());
    let path = store.path.clone();
    let copy = files.path("copy.db");
    deliver(&mut store, 1, &bulky("x", 12_000));
    let before = dump(&path);
    let (mut number, mut steps) = (2, Vec::new());
    SqliteStore::backup(&path, &copy, &mut |done, all| {
        // a commit between any two steps neither waits nor makes it begin again
        deliver(&mut store, number, &[ev(&format!("n{number}"), "k", 1, 1)]);
        number += 1;
        steps.push((done, all));
    })
    .unwrap();
    assert!(steps.len() > 1, "{steps:?}");
    assert!(steps.is_sorted() && steps.last().is_some_and(|(done, all)| done == all), "{steps:?}");
    assert_eq!(dump(&copy), before);
    assert_eq!(dump(&path).summary.batches, number - 1);
    let check: String =
        raw(&copy).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    // it is a store of its own
    let mut copied = SqliteStore::open(&copy, options()).unwrap();
    assert_eq!(deliver(&mut copied, 2, &[ev("n2", "k", 12_500, 1)]).counts.accepted, 1);
}

#[test]
fn a_backup_never_overwrites() {
    let files = Files::new();
    let store = files.make(settings());
    let taken = files.path("taken");
    fs::write(&taken, "mine").unwrap();
    let error = SqliteStore::backup(&store.path, &taken, &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("never overwrites"), "{error}");
    assert_eq!(fs::read(&taken).unwrap(), b"mine");
    // nor when the name is taken while it copies
    let late = files.path("late");
    let error = SqliteStore::backup(&store.path, &late, &mut |_, _| {
        fs::write(&late, "mine").unwrap();
    })
    .unwrap_err();
    assert!(error.to_string().contains("never overwrites"), "{error}");
    assert_eq!(fs::read(&late).unwrap(), b"mine");
    drop(store);
    let names = names_in(&files);
    assert!(names.iter().all(|name| !name.starts_with('.')), "left behind: {names:?}");
}

#[test]
fn the_log_stays_within_its_bound() {
    let files = Files::new();
    let mut store = files.make(settings());
    let path = store.path.clone();
    store.log_bytes = 256 * 1024;
    let mut number = 0;
    let mut longest_after = |store: &mut SqliteStore, batches: u64| {
        let mut longest = 0;
        for _ in 0..batches {
            number += 1;
            deliver(store, number, &bulky(&format!("{number}-"), 100));
            longest = longest.max(connect::log_bytes(&store.path));
        }
        longest
    };
    let free = longest_after(&mut store, 20);
    assert!(free <= 256 * 1024, "{free}");
    // a reader keeps the log, and holds up no commit
    let snapshot = SqliteStore::snapshot(&path, options()).unwrap();
    let before = Dump::of(&snapshot);
    let held = longest_after(&mut store, 20);
    assert!(held > 256 * 1024, "{held}: the bound was never in question");
    assert_eq!(Dump::of(&snapshot), before);
    drop(snapshot);
    longest_after(&mut store, 1);
    assert!(connect::log_bytes(&path) <= 256 * 1024);
    assert_eq!(dump(&path).summary.batches, 41);
}

#[test]
fn reports_and_backups_do_not_take_the_locks_away() {
    let files = Files::new();
    let mut store = files.make(settings());
    deliver(&mut store, 1, &[ev("a", "k", 1, 1)]);
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&store.path).unwrap());
    let locks = || {
        let (pid, file) = (format!(" {} ", std::process::id()), format!(":{inode} "));
        let all = fs::read_to_string("/proc/locks").unwrap();
        let ours = all.lines().filter(|line| line.contains(&pid) && line.contains(&file));
        ours.map(|line| line.split_once(':').unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    let before = locks();
    assert!(!before.is_empty(), "SQLite holds a lock while the store is open");
    // the list is not read in one piece: what others add or take meanwhile can hide a line once,
    // but a lock that is lost stays lost
    let still_held = || (0..100).any(|_| locks() == before);
    for n in 0..20 {
        drop(dump(&store.path));
        let copy = files.path(&format!("copy{n}"));
        SqliteStore::backup(&store.path, &copy, &mut |_, _| {}).unwrap();
        SqliteStore::create(&store.path, settings(), options()).unwrap();
        assert!(still_held(), "after {n}: {:?} is not {before:?}", locks());
    }
}
