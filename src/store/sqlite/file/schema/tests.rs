//! Stores of older versions: brought up to date whole, or left as they were.

use std::path::{Path, PathBuf};

use rusqlite::types::Value;

use super::*;
use crate::model::clock::Clock;
use crate::store::conformance::{Dump, assert_they_add_up, deliver, ev, release};
use crate::store::sqlite::file::with_ending;
use crate::store::sqlite::{Options, SqliteStore};
use crate::store::{Begun, Delivery, Snapshot, Store};

/// A copy of the store that version 1 of the tables left behind.
fn version_1(folder: &Path) -> PathBuf {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store-v1.db");
    let path = folder.join("w.db");
    std::fs::copy(fixture, &path).unwrap();
    path
}

fn options() -> Options {
    Options { clock: Clock::Fixed(1_000_000), ..Options::default() }
}

fn raw(path: &Path) -> Connection {
    Connection::open(path).unwrap()
}

/// The statements of the steps from version 1 on, and for each the one that says that it was taken.
fn statements() -> usize {
    let folder = tempfile::tempdir().unwrap();
    let mut count = 0;
    let connection = raw(&version_1(folder.path()));
    migrate_watched(&connection, &mut || {
        count += 1;
        Ok(())
    })
    .unwrap();
    count
}

/// Every row of every table as it was in version 1, and the tables themselves.
fn whole(path: &Path) -> Vec<String> {
    let connection = raw(path);
    let list = |sql: &str| -> Vec<Vec<Value>> {
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let row = |row: &Row<'_>| (0..columns).map(|column| row.get(column)).collect();
        statement.query_map([], row).unwrap().map(Result::unwrap).collect()
    };
    let tables = list("SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY name");
    let mut lines = vec![format!("{:?}", list("PRAGMA user_version"))];
    for table in &tables {
        let Value::Text(name) = &table[0] else { panic!("{table:?}") };
        lines.push(format!("{table:?}: {:?}", list(&format!("SELECT * FROM {name}"))));
    }
    lines
}

/// Migrates, and fails where the statement with that number, from 0 on, has run; whether it did.
fn fails_at(path: &Path, statement: usize) -> bool {
    let connection = raw(path);
    let mut at = 0;
    let migrated = migrate_watched(&connection, &mut || {
        at += 1;
        if at > statement { Err(rusqlite::Error::QueryReturnedNoRows) } else { Ok(()) }
    });
    migrated.is_err()
}

/// Step by step, since what a step draws at random differs from one run to the next.
#[test]
fn case_061_a_migration_that_fails_anywhere_leaves_the_old_version_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (mut base, path) = (version_1(folder.path()), folder.path().join("copy.db"));
    let (mut tried, mut versions) = (0, 0);
    for have in 1..LATEST {
        let before = whole(&base);
        let mut next = None;
        for statement in 0.. {
            std::fs::copy(&base, &path).unwrap();
            if !fails_at(&path, statement) {
                break;
            }
            tried += 1;
            if version(&raw(&path)).unwrap() > have {
                // the step was taken whole, and the next has just begun
                next = Some(folder.path().join(format!("v{}.db", have + 1)));
                break;
            }
            assert_eq!(whole(&path), before, "version {have}, after statement {statement}");
        }
        versions += 1;
        assert_eq!(next.is_some(), have + 1 < LATEST, "version {have}");
        if let Some(next) = next {
            std::fs::copy(&path, &next).unwrap();
            base = next;
        }
    }
    assert!(tried > 12 && versions == LATEST - 1, "{tried} statements, {versions} versions");
    drop(SqliteStore::open(&base, options()).unwrap());
    assert_eq!(version(&raw(&base)).unwrap(), LATEST);
}

#[test]
fn a_migration_without_room_leaves_the_old_version_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = version_1(folder.path());
    let before = whole(&path);
    let pages: i64 = raw(&path).query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    let mut failures = 0;
    for more in 0.. {
        let connection = raw(&path);
        let limit = format!("PRAGMA max_page_count = {}", pages + more);
        connection.query_row(&limit, [], |_| Ok(())).unwrap();
        let migrated = migrate(&connection);
        drop(connection);
        if migrated.is_ok() {
            break;
        }
        if version(&raw(&path)).unwrap() > 1 {
            break;
        }
        failures += 1;
        assert_eq!(whole(&path), before, "with room for {more} more pages");
    }
    assert!(failures > 1, "only {failures} times there was no room");
    drop(SqliteStore::open(&path, options()).unwrap());
    assert_eq!(version(&raw(&path)).unwrap(), LATEST);
}

#[test]
fn case_062_what_was_killed_in_a_migration_is_migrated_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = version_1(folder.path());
    let connection = raw(&path);
    connection.pragma_update(None, "cache_size", 1).unwrap();
    let (mut at, last, copy) = (0, statements() - 1, folder.path().join("copy.db"));
    migrate_watched(&connection, &mut || {
        at += 1;
        if at == last {
            // what lies on the disk now is what a killed process leaves
            let log = with_ending(&path, "-wal");
            assert!(std::fs::metadata(&log).unwrap().len() > 0, "nothing was spilled");
            std::fs::copy(log, with_ending(&copy, "-wal")).unwrap();
            std::fs::copy(&path, &copy).unwrap();
        }
        Ok(())
    })
    .unwrap();
    drop(connection);
    assert_eq!(version(&raw(&copy)).unwrap(), LATEST - 1);
    let dump = |path: &Path| {
        drop(SqliteStore::open(path, options()).unwrap());
        Dump::of(&SqliteStore::snapshot(path, options()).unwrap())
    };
    assert_eq!(dump(&copy), dump(&path));
}

#[test]
fn all_that_an_old_store_held_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = version_1(folder.path());
    let token: [u8; 16] = raw(&path)
        .query_row("SELECT token FROM batches WHERE batch = 11", [], |row| row.get(0))
        .unwrap();
    drop(SqliteStore::open(&path, options()).unwrap());
    let snapshot = SqliteStore::snapshot(&path, options()).unwrap();
    let found = Dump::of(&snapshot);
    drop(snapshot);
    let summary = &found.summary;
    assert_eq!((summary.watermark_ms, summary.batches, summary.refused_batches), (6000, 10, 3));
    assert_eq!((summary.late_kept, summary.late_waiting, summary.held), (4, 4, 2));
    assert_eq!((summary.windows, summary.open_windows, summary.corrected_windows), (10, 2, 0));
    assert_eq!((found.windows.len(), found.late.len(), found.held.len()), (10, 4, 2));
    assert_eq!(found.held[0].file, "future.ndjson");
    assert_eq!((found.sources.len(), found.versions.len()), (6, 4));
    assert!(found.sources.iter().all(|row| row.last_batch.is_some() && !row.idle));
    assert_eq!(found.receipts.len(), 11);
    assert_eq!(found.receipts[9].act.as_deref(), Some("advance"));
    assert_eq!(found.receipts[9].reason.as_deref(), Some("end of the day"));
    assert!(!found.moves.is_empty() && found.revisions.is_empty());

    let mut store = SqliteStore::open(&path, options()).unwrap();
    let (file, source) = ("again".to_owned(), "default".to_owned());
    let known = matches!(
        store.begin(&Delivery { token, file, source }).unwrap(),
        Begun::Known(known) if known.batch == 11
    );
    assert!(known, "a delivery of then is known now");
    let events = [ev("later-2", "checkout", 9300, 6), ev("x", "new", 9301, 1)];
    let counts = deliver(&mut store, 1, &events).counts;
    assert_eq!((counts.duplicate, counts.accepted), (1, 1));
    assert_eq!(Dump::of(&SqliteStore::snapshot(&path, options()).unwrap()).windows.len(), 11);
}

#[test]
fn what_came_before_there_were_accounts_is_counted_without_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    let path = version_1(folder.path());
    drop(SqliteStore::open(&path, options()).unwrap());
    let dump = || Dump::of(&SqliteStore::snapshot(&path, options()).unwrap());
    let before = dump();
    assert_they_add_up(&before);
    let keyed = |dump: &Dump| dump.accounts.iter().filter(|row| row.1.is_some()).count();
    assert_eq!(keyed(&before), before.held.len(), "only of held events the key is there");
    // far enough ahead for all that is held
    let later = Options { clock: Clock::Fixed(i64::MAX), ..Options::default() };
    let mut store = SqliteStore::open(&path, later).unwrap();
    release(&mut store, 1, 1).unwrap();
    deliver(&mut store, 2, &[ev("x", "new", 9301, 1)]);
    let after = dump();
    assert_they_add_up(&after);
    assert_eq!((after.held.len(), after.summary.counts.future), (0, 0));
    assert_eq!(keyed(&after), before.held.len() + 1);
}

#[test]
fn a_backup_of_an_old_store_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = version_1(folder.path());
    let (before, copy) = (whole(&path), folder.path().join("copy.db"));
    SqliteStore::backup(&path, &copy, &mut |_, _| {}).unwrap();
    assert_eq!(whole(&copy), before);
    assert_eq!(whole(&path), before, "it was only read");
    drop(SqliteStore::open(&copy, options()).unwrap());
    let summary = SqliteStore::snapshot(&copy, options()).unwrap().summary().unwrap();
    assert_eq!(summary.batches, 10);
}

#[test]
fn a_process_of_the_version_before_goes_on_rightly() {
    let folder = tempfile::tempdir().unwrap();
    let path = version_1(folder.path());
    drop(SqliteStore::open(&path, options()).unwrap());
    // as version 1 writes: it had the store open all the time
    let writes = "
        INSERT INTO windows (start_ms, key, count, sum, min, max) VALUES (7000, 'k', 1, 1, 1, 1)
            ON CONFLICT DO UPDATE SET count = excluded.count;
        INSERT INTO late (batch, event_index, id, key, timestamp_ms, value, window_start_ms,
            watermark_ms, source) VALUES (12, 0, 'old', 'k', 5, 1, 0, 6000, 'default');
        INSERT INTO sources (name, max_timestamp_ms, accepted, late, duplicate, future, expired,
            last_batch, last_batch_at_ms, last_file) VALUES ('old', 7000, 1, 1, 0, 0, 0, 12, 0, 'f')
            ON CONFLICT DO UPDATE SET accepted = accepted + excluded.accepted;
        UPDATE store SET windows = windows + 1, late_kept = late_kept + 1, last_number = 12;";
    raw(&path).execute_batch(writes).unwrap();
    let found = Dump::of(&SqliteStore::snapshot(&path, options()).unwrap());
    assert_eq!((found.summary.late_kept, found.summary.late_waiting), (5, 5));
    assert_eq!((found.summary.windows, found.windows.len()), (11, 11));
    let old = found.sources.iter().find(|row| row.source == "old").unwrap();
    assert_eq!((old.idle, old.declared, old.last_batch), (false, false, Some(12)));
}

#[test]
fn case_131_a_reader_leaves_an_old_store_as_it_is_and_a_writer_says_what_it_did() {
    let folder = tempfile::tempdir().unwrap();
    let path = version_1(folder.path());
    let before = std::fs::read(&path).unwrap();
    let error = SqliteStore::snapshot(&path, options()).unwrap_err();
    assert!(matches!(error, Error::OlderSchema(_)), "{error:?}");
    let latest = format!("(schema 1, this one reads {LATEST})");
    for part in ["older windowflow", &latest, "start the daemon", "w.db prune"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let migration = SqliteStore::open(&path, options()).unwrap().migration().unwrap();
    let steps = format!("from schema 1 to {LATEST}");
    assert!(migration.contains(&steps) && migration.contains("w.db"), "{migration}");
    assert_eq!(SqliteStore::open(&path, options()).unwrap().migration(), None);
}
