//! The reading side: one connection, one read transaction, rows as a stream.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, Row, params};

use crate::engine::settings::Settings;
use crate::engine::window;
use crate::engine::{Counts, totals::Totals};
use crate::store::{
    EachLate, EachWindow, Error, LateRow, Snapshot, SourceRow, Span, Summary, WindowRow,
};

use super::Options;
use super::fault::fault;
use super::head::{self, counts};
use super::windows::totals;
use super::{connect, schema};

/// The state of a store at the moment when this was taken.
#[derive(Debug)]
pub struct SqliteSnapshot {
    path: PathBuf,
    settings: Settings,
    connection: Connection,
}

impl SqliteSnapshot {
    pub(super) fn take(path: &Path, options: &Options) -> Result<SqliteSnapshot, Error> {
        let connection = connect::reader(path, options, options.busy_timeout)?;
        // the transaction stands where its first read finds the store
        connection.execute_batch("BEGIN").map_err(|error| fault(path, "begin to read", &error))?;
        schema::identify(&connection, path)?;
        let settings = schema::settings(&connection, path)?;
        Ok(SqliteSnapshot { path: path.to_owned(), settings, connection })
    }

    /// The connection, for a copy of what it sees.
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    fn read<T>(
        &self,
        what: &str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        work(&self.connection)
            .map_err(|error| fault(&self.path, &format!("read the {what}"), &error))
    }
}

impl Snapshot for SqliteSnapshot {
    fn summary(&self) -> Result<Summary, Error> {
        self.read("summary", |connection| {
            let head = head::load(connection)?;
            let first_open_ms = window::start_ms(head.watermark_ms, self.settings.window_ms());
            let open_windows = connection
                .prepare_cached("SELECT COUNT(*) FROM windows WHERE start_ms >= ?1")?
                .query_row(params![first_open_ms], |row| row.get(0))?;
            let max_timestamp_ms = connection
                .prepare_cached("SELECT MAX(max_timestamp_ms) FROM sources")?
                .query_row([], |row| row.get(0))?;
            Ok(Summary {
                settings: self.settings,
                watermark_ms: head.watermark_ms,
                max_timestamp_ms,
                last_batch: head.last_batch,
                last_ingest_at_ms: head.last_ingest_at_ms,
                batches: head.batches,
                refused_batches: head.refused_batches,
                counts: head.counts,
                windows: head.windows,
                open_windows,
                late_kept: head.late_kept,
                held: head.held,
            })
        })
    }

    fn sources(&self) -> Result<Vec<SourceRow>, Error> {
        self.read("sources", |connection| {
            let sql = "SELECT name, max_timestamp_ms, last_batch_at_ms, last_batch, last_file, \
                       accepted, late, duplicate, future, expired FROM sources ORDER BY name";
            let read = |row: &Row<'_>| {
                Ok(SourceRow {
                    source: row.get(0)?,
                    max_timestamp_ms: row.get(1)?,
                    last_batch_at_ms: row.get(2)?,
                    last_batch: row.get(3)?,
                    last_file: row.get(4)?,
                    counts: counts(row, 5)?,
                })
            };
            connection.prepare_cached(sql)?.query_map([], read)?.collect()
        })
    }

    fn versions(&self) -> Result<Vec<(String, Counts)>, Error> {
        self.read("producer versions", |connection| {
            let sql = "SELECT name, accepted, late, duplicate, future, expired FROM versions \
                       ORDER BY name";
            connection
                .prepare_cached(sql)?
                .query_map([], |row| Ok((row.get(0)?, counts(row, 1)?)))?
                .collect()
        })
    }

    fn windows(&self, span: Span, each: &mut EachWindow<'_>) -> Result<(), Error> {
        self.read("windows", |connection| {
            let (from_ms, to_ms) = bounds(span);
            let mut statement = connection.prepare_cached(
                "SELECT key, start_ms, count, sum, min, max FROM windows \
                 WHERE start_ms >= ?1 AND start_ms < ?2 ORDER BY start_ms, key",
            )?;
            let mut rows = statement.query(params![from_ms, to_ms])?;
            while let Some(row) = rows.next()? {
                let totals: Totals = totals(row, 2)?;
                let key = row.get_ref(0)?.as_str()?;
                if each(&WindowRow { key, start_ms: row.get(1)?, totals }) == ControlFlow::Break(())
                {
                    break;
                }
            }
            Ok(())
        })
    }

    fn late(&self, span: Span, each: &mut EachLate<'_>) -> Result<(), Error> {
        self.read("late events", |connection| {
            let (from_ms, to_ms) = bounds(span);
            let mut statement = connection.prepare_cached(
                "SELECT id, key, timestamp_ms, value, window_start_ms, watermark_ms, source, \
                 batch, event_index FROM late WHERE window_start_ms >= ?1 \
                 AND window_start_ms < ?2 ORDER BY batch, event_index",
            )?;
            let mut rows = statement.query(params![from_ms, to_ms])?;
            while let Some(row) = rows.next()? {
                let late = LateRow {
                    id: row.get_ref(0)?.as_str()?,
                    key: row.get_ref(1)?.as_str()?,
                    timestamp_ms: row.get(2)?,
                    value: row.get(3)?,
                    window_start_ms: row.get(4)?,
                    watermark_ms: row.get(5)?,
                    source: row.get_ref(6)?.as_str()?,
                    batch: row.get(7)?,
                    event_index: row.get(8)?,
                };
                if each(&late) == ControlFlow::Break(()) {
                    break;
                }
            }
            Ok(())
        })
    }
}

/// The least start, and the first that is too great: no window begins at the end of the range.
fn bounds(span: Span) -> (i64, i64) {
    (span.from_ms.unwrap_or(i64::MIN), span.to_ms.unwrap_or(i64::MAX))
}
