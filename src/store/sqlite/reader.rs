//! The reading side: one connection, one read transaction, rows as a stream.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Row, Rows, params};

use crate::engine::settings::Settings;
use crate::engine::window::{self, WindowId};
use crate::model::event::{Event, HashKey};
use crate::store::{
    EachAccount, EachHeld, EachLate, EachMove, EachReceipt, EachVersion, EachWindow, Error,
    EventRef, HeldRow, LateFacts, LateRow, PresenceRow, ReceiptRow, RememberedRow, RevisionRow,
    SettledRow, Snapshot, SourceRow, Span, Summary, WindowRow,
};

use super::Options;
use super::file::fault::fault;
use super::file::{connect, schema};
use super::tables::store_meta::{self, counts};
use super::tables::windows::totals;
use super::tables::{accounts, receipts, settlement, sources, windows};
use super::{ledger, write_buffer};

/// The state of a store at the moment when this was taken.
#[derive(Debug)]
pub struct SqliteSnapshot {
    path: PathBuf,
    settings: Settings,
    connection: Connection,
    first: RefCell<Option<FirstEntries>>,
}

/// What tells the first event of an id from its repeats.
#[derive(Debug)]
struct FirstEntries {
    entries: ledger::InOrder,
    key: HashKey,
    /// The least timestamp whose id is remembered.
    oldest_ms: i64,
}

impl SqliteSnapshot {
    /// One that can be asked: the tables are those of this version.
    pub(super) fn take(path: &Path, options: &Options) -> Result<SqliteSnapshot, Error> {
        let snapshot = SqliteSnapshot::as_it_is(path, options)?;
        snapshot.refuse_older()?;
        Ok(snapshot)
    }

    /// Refuses a store of an older version.
    ///
    /// # Errors
    /// [`Error::OlderSchema`].
    pub fn refuse_older(&self) -> Result<(), Error> {
        schema::refuse_older(&self.connection, &self.path)
    }

    /// One of whatever version there is, to be copied only.
    pub(super) fn as_it_is(path: &Path, options: &Options) -> Result<SqliteSnapshot, Error> {
        let connection = connect::reader(path, options, options.busy_timeout)?;
        // the transaction stands where its first read finds the store
        connection.execute_batch("BEGIN").map_err(|error| fault(path, "begin to read", &error))?;
        schema::identify(&connection, path)?;
        let settings = schema::settings(&connection, path)?;
        let first = RefCell::default();
        Ok(SqliteSnapshot { path: path.to_owned(), settings, connection, first })
    }

    /// The connection, for a copy of what it sees.
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Where the store lies.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What was fixed when it was made.
    pub fn fixed(&self) -> &Settings {
        &self.settings
    }

    /// The least timestamp whose id is remembered.
    pub(super) fn oldest_ms(&self, connection: &Connection) -> rusqlite::Result<i64> {
        let watermark_ms = store_meta::load(connection)?.watermark_ms;
        let horizon_ms = self.settings.dedup_horizon_ms();
        Ok(horizon_ms.map_or(i64::MIN, |ms| watermark_ms.saturating_sub(ms)))
    }

    /// The number of the last batch of events.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn last_batch(&self) -> Result<Option<u64>, Error> {
        self.read("last batch", |connection| Ok(store_meta::load(connection)?.last_batch))
    }

    pub(super) fn read<T>(
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
            let head = store_meta::load(connection)?;
            let first_open_ms = window::start_ms(head.watermark_ms, self.settings.window_ms());
            let in_table: u64 = connection
                .prepare_cached("SELECT COUNT(*) FROM windows WHERE start_ms >= ?1")?
                .query_row(params![first_open_ms], |row| row.get(0))?;
            let open_windows = in_table + write_buffer::new_windows(connection, first_open_ms)?;
            let max_timestamp_ms = connection
                .prepare_cached(
                    "SELECT MAX(latest_ms) FROM (\
                     SELECT MAX(max_timestamp_ms) AS latest_ms FROM sources WHERE idle = 0 \
                     UNION ALL SELECT MAX(max_timestamp_ms) FROM sources WHERE idle = 1)",
                )?
                .query_row([], |row| row.get(0))?;
            Ok(Summary {
                settings: self.settings,
                watermark_ms: head.watermark_ms,
                max_timestamp_ms,
                last_batch: head.last_batch,
                last_ingest_at_ms: head.last_ingest_at_ms,
                trusted_ms: head.trusted_ms,
                batches: head.batches,
                refused_batches: head.refused_batches,
                counts: head.counts,
                windows: head.windows,
                open_windows,
                corrected_windows: head.corrected_windows,
                late_kept: head.late_kept,
                late_waiting: head.late_kept.saturating_sub(head.late_applied),
                held: head.held,
                pruned_start_ms: head.pruned_start_ms,
            })
        })
    }

    fn sources(&self) -> Result<Vec<SourceRow>, Error> {
        self.read("sources", |connection| {
            let sql = "SELECT name, max_timestamp_ms, last_batch_at_ms, last_batch, last_file, \
                       declared, idle, presence_since_ms, accepted, late, duplicate, future, \
                       expired, retired, expected FROM sources ORDER BY name";
            let read = |row: &Row<'_>| {
                Ok(SourceRow {
                    source: row.get(0)?,
                    max_timestamp_ms: row.get(1)?,
                    last_batch_at_ms: row.get(2)?,
                    last_batch: row.get(3)?,
                    last_file: row.get(4)?,
                    declared: row.get(5)?,
                    idle: row.get(6)?,
                    presence_since_ms: row.get(7)?,
                    counts: counts(row, 8)?,
                    retired: row.get(13)?,
                    expected: sources::expected(row, 14)?,
                })
            };
            connection.prepare_cached(sql)?.query_map([], read)?.collect()
        })
    }

    fn versions(&self, each: &mut EachVersion<'_>) -> Result<(), Error> {
        self.read("producer versions", |connection| {
            let sql = "SELECT name, accepted, late, duplicate, future, expired FROM versions \
                       ORDER BY name";
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                if each(row.get_ref(0)?.as_str()?, counts(row, 1)?).is_break() {
                    break;
                }
            }
            Ok(())
        })
    }

    fn accounts(&self, each: &mut EachAccount<'_>) -> Result<(), Error> {
        self.read("accounts", |connection| {
            accounts::each(connection, &write_buffer::sums(connection)?, each)
        })
    }

    fn windows(&self, span: Span, each: &mut EachWindow<'_>) -> Result<(), Error> {
        self.read("windows", |connection| {
            let (from_ms, to_ms) = bounds(span);
            let mut statement = connection.prepare_cached(
                "SELECT key, start_ms, count, sum, min, max, revision FROM windows \
                 WHERE start_ms >= ?1 AND start_ms < ?2 ORDER BY start_ms, key",
            )?;
            let mut rows = statement.query(params![from_ms, to_ms])?;
            let write_buffer = write_buffer::windows(connection, from_ms..to_ms)?;
            let mut write_buffer = write_buffer
                .iter()
                .map(|((start_ms, key), totals)| WindowRow {
                    key,
                    start_ms: *start_ms,
                    totals: *totals,
                    revision: 0,
                })
                .peekable();
            while let Some(row) = rows.next()? {
                let mut window = WindowRow {
                    key: row.get_ref(0)?.as_str()?,
                    start_ms: row.get(1)?,
                    totals: totals(row, 2)?,
                    revision: row.get(6)?,
                };
                let place = (window.start_ms, window.key);
                while let Some(before) =
                    write_buffer.next_if(|other| (other.start_ms, other.key) < place)
                {
                    if each(&before).is_break() {
                        return Ok(());
                    }
                }
                if let Some(same) =
                    write_buffer.next_if(|other| (other.start_ms, other.key) == place)
                {
                    window.totals = same.totals;
                }
                if each(&window).is_break() {
                    return Ok(());
                }
            }
            let _ = write_buffer.try_for_each(|window| each(&window));
            Ok(())
        })
    }

    fn late(&self, span: Span, each: &mut EachLate<'_>) -> Result<(), Error> {
        self.read("late events", |connection| {
            let (from_ms, to_ms) = bounds(span);
            // the plus keeps SQLite from an index that it would have to sort after
            let mut statement = connection.prepare_cached(
                "SELECT id, key, timestamp_ms, value, window_start_ms, watermark_ms, source, \
                 batch, event_index, applied_in FROM late WHERE +window_start_ms >= ?1 \
                 AND +window_start_ms < ?2 ORDER BY batch, event_index",
            )?;
            each_late(statement.query(params![from_ms, to_ms])?, each)
        })
    }

    fn late_of(&self, window: WindowId<'_>, each: &mut EachLate<'_>) -> Result<(), Error> {
        self.read("late events", |connection| {
            // the index of windows has them in the order of (batch, index)
            let mut statement = connection.prepare_cached(
                "SELECT id, key, timestamp_ms, value, window_start_ms, watermark_ms, source, \
                 batch, event_index, applied_in FROM late WHERE window_start_ms = ?1 \
                 AND key = ?2 ORDER BY batch, event_index",
            )?;
            each_late(statement.query(params![window.start_ms, window.key])?, each)
        })
    }

    fn late_at(&self, at: EventRef) -> Result<Option<LateFacts>, Error> {
        self.read("late events", |connection| {
            let sql = "SELECT source, watermark_ms, applied_in FROM late \
                       WHERE batch = ?1 AND event_index = ?2";
            let read = |row: &Row<'_>| {
                let (source, watermark_ms, applied_in) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(LateFacts { source, watermark_ms, applied_in })
            };
            connection
                .prepare_cached(sql)?
                .query_row(params![at.batch, at.event_index], read)
                .optional()
        })
    }

    fn held_at(&self, at: EventRef) -> Result<Option<String>, Error> {
        self.read("held events", |connection| {
            connection
                .prepare_cached("SELECT source FROM held WHERE batch = ?1 AND event_index = ?2")?
                .query_row(params![at.batch, at.event_index], |row| row.get(0))
                .optional()
        })
    }

    fn held(&self, each: &mut EachHeld<'_>) -> Result<(), Error> {
        self.read("held events", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT held.id, held.key, held.timestamp_ms, held.value, held.source, \
                 held.batch, held.event_index, COALESCE(batches.file, '') FROM held \
                 LEFT JOIN batches ON batches.batch = held.batch \
                 ORDER BY held.batch, held.event_index",
            )?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let held = HeldRow {
                    id: row.get_ref(0)?.as_str()?,
                    key: row.get_ref(1)?.as_str()?,
                    timestamp_ms: row.get(2)?,
                    value: row.get(3)?,
                    source: row.get_ref(4)?.as_str()?,
                    event: EventRef { batch: row.get(5)?, event_index: row.get(6)? },
                    file: row.get_ref(7)?.as_str()?,
                };
                if each(&held) == ControlFlow::Break(()) {
                    break;
                }
            }
            Ok(())
        })
    }

    fn revisions(&self, window: WindowId<'_>) -> Result<Vec<RevisionRow>, Error> {
        self.read("revisions", |connection| windows::revisions(connection, window))
    }

    fn moves(&self, from_ms: i64, each: &mut EachMove<'_>) -> Result<(), Error> {
        self.read("moves of the watermark", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT to_ms, from_ms, batch, event_index, windows_closed FROM moves \
                 WHERE to_ms >= ?1 ORDER BY to_ms",
            )?;
            let mut rows = statement.query(params![from_ms])?;
            while let Some(row) = rows.next()? {
                if each(&windows::move_row(row)?) == ControlFlow::Break(()) {
                    break;
                }
            }
            Ok(())
        })
    }

    fn remembered(&self, id: &str) -> Result<Option<RememberedRow>, Error> {
        self.read("ids", |connection| {
            let oldest_ms = self.oldest_ms(connection)?;
            ledger::remembered(connection, store_meta::hash_key(connection)?.hash(id), oldest_ms)
        })
    }

    fn is_first(&self, at: EventRef, event: &Event<'_>) -> Result<bool, Error> {
        self.read("ids", |connection| {
            let mut first = self.first.borrow_mut();
            let first = match &mut *first {
                Some(first) => first,
                none => none.insert(FirstEntries {
                    entries: ledger::InOrder::default(),
                    key: store_meta::hash_key(connection)?,
                    oldest_ms: self.oldest_ms(connection)?,
                }),
            };
            if event.timestamp_ms < first.oldest_ms {
                return Ok(false);
            }
            let key = first.key;
            let is_it = first.entries.find(connection, at, |entry| entry.is_of(event, key))?;
            Ok(is_it == Some(true))
        })
    }

    fn receipt(&self, batch: u64) -> Result<Option<ReceiptRow>, Error> {
        self.read("receipts", |connection| receipts::of(connection, batch))
    }

    fn receipts(&self, from_batch: u64, each: &mut EachReceipt<'_>) -> Result<(), Error> {
        self.read("receipts", |connection| receipts::each(connection, from_batch, each))
    }

    fn settled(&self, event: EventRef) -> Result<Option<SettledRow>, Error> {
        self.read("settled events", |connection| settlement::settled(connection, event))
    }

    fn presence(&self, source: &str) -> Result<Vec<PresenceRow>, Error> {
        self.read("comings and goings of sources", |connection| {
            sources::presence(connection, source)
        })
    }
}

/// Shows rows of late events, until told to stop.
fn each_late(mut rows: Rows<'_>, each: &mut EachLate<'_>) -> rusqlite::Result<()> {
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
            applied_in: row.get(9)?,
        };
        if each(&late) == ControlFlow::Break(()) {
            break;
        }
    }
    Ok(())
}

/// The least start, and the first that is too great: no window begins at the end of the range.
fn bounds(span: Span) -> (i64, i64) {
    (span.from_ms.unwrap_or(i64::MIN), span.to_ms.unwrap_or(i64::MAX))
}
