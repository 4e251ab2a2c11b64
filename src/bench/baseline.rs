//! The obvious way to do the same, kept for ever to measure against: each event is looked up in and
//! put into a B-tree of ids and adds to its window's row, by SQL; one transaction a file, each
//! synced. It does not move files, keeps no receipts and no accounts, and knows one source.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rusqlite::{Connection, Transaction, params};
use serde::Deserialize;

use super::model::{Checksums, ModelState, Sums};
use super::workload::{LATENESS_MS, WINDOW_MS};
use super::{BenchError, at};

const SCHEMA: &str = "
    CREATE TABLE ids (id TEXT PRIMARY KEY, key TEXT NOT NULL, timestamp_ms INTEGER NOT NULL,
        value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE windows (key TEXT NOT NULL, start_ms INTEGER NOT NULL, count INTEGER NOT NULL,
        sum INTEGER NOT NULL, min INTEGER NOT NULL, max INTEGER NOT NULL,
        PRIMARY KEY (key, start_ms)) STRICT, WITHOUT ROWID;
    CREATE TABLE late (id TEXT NOT NULL, key TEXT NOT NULL, timestamp_ms INTEGER NOT NULL,
        value INTEGER NOT NULL) STRICT;
    CREATE TABLE totals (accepted INTEGER NOT NULL, late INTEGER NOT NULL,
        duplicate INTEGER NOT NULL, watermark_ms INTEGER NOT NULL) STRICT;
    INSERT INTO totals VALUES (0, 0, 0, 0);";

const ADD: &str = "
    INSERT INTO windows VALUES (?1, ?2, 1, ?3, ?3, ?3)
    ON CONFLICT (key, start_ms) DO UPDATE SET count = count + 1, sum = sum + excluded.sum,
        min = min(min, excluded.min), max = max(max, excluded.max)";

#[derive(Debug, Deserialize)]
struct Event<'a> {
    id: &'a str,
    key: &'a str,
    timestamp_ms: i64,
    value: i64,
}

impl From<rusqlite::Error> for BenchError {
    fn from(error: rusqlite::Error) -> BenchError {
        BenchError::Failed(format!("the baseline's own database: {error}"))
    }
}

/// Takes the files in, in this order, into a database in that folder. Returns the seconds that it
/// took, from opening it until it is closed, and what it then held.
pub(super) fn run(
    files: &[PathBuf],
    folder: &Path,
    each: &mut dyn FnMut() -> Result<(), BenchError>,
) -> Result<(f64, ModelState), BenchError> {
    let db = folder.join("baseline.db");
    let begun = Instant::now();
    let mut connection = Connection::open(&db)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.set_prepared_statement_cache_capacity(16);
    connection.execute_batch(SCHEMA)?;
    for path in files {
        let file = fs::read(path).map_err(|error| at(path, &error))?;
        let events: Vec<Event<'_>> = serde_json::from_slice(&file)
            .map_err(|error| BenchError::Failed(format!("{}: {error}", path.display())))?;
        let transaction = connection.transaction()?;
        take(&transaction, &events)?;
        transaction.commit()?;
        each()?;
    }
    connection.close().map_err(|(_, error)| error)?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok((seconds, found(&Connection::open(&db)?)?))
}

fn take(transaction: &Transaction<'_>, events: &[Event<'_>]) -> Result<(), BenchError> {
    let mut insert = transaction.prepare_cached("INSERT OR IGNORE INTO ids VALUES (?, ?, ?, ?)")?;
    let mut look_up = transaction.prepare_cached(
        "SELECT key = ?2 AND timestamp_ms = ?3 AND value = ?4 FROM ids WHERE id = ?1",
    )?;
    let mut add = transaction.prepare_cached(ADD)?;
    let mut keep_late = transaction.prepare_cached("INSERT INTO late VALUES (?, ?, ?, ?)")?;
    let mut watermark_ms: i64 =
        transaction.query_row("SELECT watermark_ms FROM totals", [], |row| row.get(0))?;
    let (mut accepted, mut late, mut duplicate) = (0_u64, 0_u64, 0_u64);
    for Event { id, key, timestamp_ms, value } in events {
        let event = params![id, key, timestamp_ms, value];
        if insert.execute(event)? == 0 {
            if !look_up.query_row(event, |row| row.get::<_, bool>(0))? {
                return Err(BenchError::Failed(format!("the baseline found a conflict at {id}")));
            }
            duplicate += 1;
            continue;
        }
        let start_ms = timestamp_ms - timestamp_ms.rem_euclid(WINDOW_MS);
        if start_ms + WINDOW_MS <= watermark_ms {
            late += 1;
            keep_late.execute(event)?;
        } else {
            accepted += 1;
            add.execute(params![key, start_ms, value])?;
        }
        watermark_ms = watermark_ms.max(timestamp_ms - LATENESS_MS);
    }
    transaction.execute(
        "UPDATE totals SET accepted = accepted + ?, late = late + ?, duplicate = duplicate + ?,
         watermark_ms = ?",
        params![accepted, late, duplicate, watermark_ms],
    )?;
    Ok(())
}

fn found(connection: &Connection) -> Result<ModelState, BenchError> {
    let totals = connection.query_row("SELECT * FROM totals", [], |row| {
        Ok(ModelState {
            accepted: row.get(0)?,
            late: row.get(1)?,
            duplicate: row.get(2)?,
            watermark_ms: row.get(3)?,
            ..ModelState::default()
        })
    })?;
    let starts = "SELECT count(DISTINCT start_ms) FROM windows";
    let window_starts = connection.query_row(starts, [], |row| row.get(0))?;
    let mut checksums = Checksums::default();
    let mut windows = connection.prepare("SELECT * FROM windows")?;
    let mut rows = windows.query([])?;
    while let Some(row) = rows.next()? {
        let (count, sum, min, max) = (row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?);
        let key: String = row.get(0)?;
        checksums.window(row.get(1)?, &key, &Sums { count, sum, min, max });
    }
    let mut late = connection.prepare("SELECT * FROM late")?;
    let mut rows = late.query([])?;
    while let Some(row) = rows.next()? {
        let (id, key): (String, String) = (row.get(0)?, row.get(1)?);
        checksums.late(&id, &key, row.get(2)?, row.get(3)?);
    }
    Ok(checksums.into_state(ModelState { window_starts, ..totals }))
}
