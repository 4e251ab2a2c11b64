//! What a batch without a file concerned: the sources that came and went in it, the kept events
//! that it settled.

use std::collections::VecDeque;

use rusqlite::{Row, params};

use crate::store::sqlite::reader::SqliteSnapshot;
use crate::store::sqlite::tables::removed::{self, Kind};
use crate::store::{Error, Kept};

/// How many are read at once.
const AT_ONCE: u64 = 1000;

/// A kept event that was settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptOne {
    /// Its id.
    pub id: String,
    /// Its key.
    pub key: String,
    /// When it happened, or so it said.
    pub timestamp_ms: i64,
    /// What it measured.
    pub value: i64,
}

/// The kept events that one batch settled, in the order in which they had come.
pub struct KeptIn<'s> {
    snapshot: &'s SqliteSnapshot,
    kind: Kept,
    batch: u64,
    after: After,
    page: VecDeque<KeptOne>,
}

/// The window of the event that was shown last, for late ones, and where that came in.
type After = (i64, String, u64, i64);

impl SqliteSnapshot {
    /// The sources that came or went in that batch, in order, each with how it stood from then on.
    ///
    /// # Errors
    /// By kind.
    pub fn presence_in(&self, batch: u64) -> Result<Vec<(String, String)>, Error> {
        self.read("notes of sources", |connection| {
            connection
                .prepare_cached(
                    "SELECT source, presence FROM presence WHERE batch = ?1 ORDER BY ordinal",
                )?
                .query_map(params![batch], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })
    }

    /// How many of the events of that batch were held as too far ahead and are known still, and the
    /// least of their timestamps.
    ///
    /// # Errors
    /// By kind.
    pub fn held_of(&self, batch: u64) -> Result<(u64, Option<i64>), Error> {
        self.read("held events", |connection| {
            let sql = "SELECT COUNT(*), MIN(timestamp_ms) FROM (SELECT timestamp_ms FROM held \
                       WHERE batch = ?1 UNION ALL SELECT timestamp_ms FROM settled \
                       WHERE batch = ?1)";
            connection
                .prepare_cached(sql)?
                .query_row(params![batch], |row| Ok((row.get(0)?, row.get(1)?)))
        })
    }

    /// Whether each event that was kept apart, of those that are settled as well, is known still.
    ///
    /// # Errors
    /// By kind.
    pub fn knows_all_kept(&self, kind: Kept) -> Result<bool, Error> {
        self.read("kept events", |connection| {
            let kind = match kind {
                Kept::Late => Kind::Late,
                Kept::Held => Kind::Settled,
            };
            // that no others are missing is checked elsewhere
            Ok(removed::of(connection, kind)?.rows == 0)
        })
    }

    /// The kept events that were settled in that batch.
    pub fn kept_in(&self, kind: Kept, batch: u64) -> KeptIn<'_> {
        let after = (-1, String::new(), 0, -1);
        KeptIn { snapshot: self, kind, batch, after, page: VecDeque::new() }
    }
}

impl KeptIn<'_> {
    /// The next of them; none when that was the last.
    ///
    /// # Errors
    /// By kind.
    pub fn step(&mut self) -> Result<Option<KeptOne>, Error> {
        if self.page.is_empty() {
            self.read()?;
        }
        Ok(self.page.pop_front())
    }

    fn read(&mut self) -> Result<(), Error> {
        // in the order in which a batch is given them
        let sql = match self.kind {
            Kept::Late => format!(
                "SELECT id, key, timestamp_ms, value, window_start_ms, batch, event_index FROM late \
                 WHERE applied_in = ?1 \
                 AND (window_start_ms, key, batch, event_index) > (?2, ?3, ?4, ?5) \
                 ORDER BY window_start_ms, key, batch, event_index LIMIT {AT_ONCE}"
            ),
            Kept::Held => format!(
                "SELECT id, key, timestamp_ms, value, 0, batch, event_index FROM settled \
                 WHERE settled_in = ?1 AND (batch, event_index) > (?2, ?3) \
                 ORDER BY batch, event_index LIMIT {AT_ONCE}"
            ),
        };
        let read = |row: &Row<'_>| {
            let one = KeptOne {
                id: row.get(0)?,
                key: row.get(1)?,
                timestamp_ms: row.get(2)?,
                value: row.get(3)?,
            };
            let after: After = (row.get(4)?, one.key.clone(), row.get(5)?, row.get(6)?);
            Ok((one, after))
        };
        let (start_ms, key, batch, index) = &self.after;
        let found = self.snapshot.read("settled events", |connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            match self.kind {
                Kept::Late => statement
                    .query_map(params![self.batch, start_ms, key, batch, index], read)?
                    .collect::<rusqlite::Result<Vec<_>>>(),
                Kept::Held => statement
                    .query_map(params![self.batch, batch, index], read)?
                    .collect::<rusqlite::Result<Vec<_>>>(),
            }
        })?;
        for (one, after) in found {
            self.after = after;
            self.page.push_back(one);
        }
        Ok(())
    }
}
