//! What each window holds, and the moves of the watermark that closed some.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::engine::Move;
use crate::engine::totals::{Delta, Totals};
use crate::engine::window::{self, WindowId};
use crate::store::Overflowing;

/// What became of the windows of a chunk.
pub(super) enum Added {
    /// They hold it now; so many of them held nothing before.
    All {
        /// How many are new.
        new: u64,
    },
    /// These would leave their range: nothing else is to be relied on.
    Overflowing(Vec<Overflowing>),
}

/// Adds to each window what a chunk brings.
pub(super) fn add(
    connection: &Connection,
    windows: &[(WindowId<'_>, Delta)],
) -> rusqlite::Result<Added> {
    let mut find = connection.prepare_cached(
        "SELECT count, sum, min, max FROM windows WHERE start_ms = ?1 AND key = ?2",
    )?;
    let mut put = connection.prepare_cached(
        "INSERT INTO windows (start_ms, key, count, sum, min, max) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
         ON CONFLICT DO UPDATE SET count = excluded.count, sum = excluded.sum, \
         min = excluded.min, max = excluded.max",
    )?;
    let mut new = 0;
    let mut overflowing = Vec::new();
    for (id, delta) in windows {
        let before =
            find.query_row(params![id.start_ms, id.key], |row| totals(row, 0)).optional()?;
        match delta.added_to(before) {
            Ok(after) => {
                new += u64::from(before.is_none());
                put.execute(params![
                    id.start_ms,
                    id.key,
                    after.count,
                    after.sum,
                    after.min,
                    after.max
                ])?;
            }
            Err(_) => overflowing.push(Overflowing {
                key: id.key.to_owned(),
                start_ms: id.start_ms,
                before,
            }),
        }
    }
    if overflowing.is_empty() {
        Ok(Added::All { new })
    } else {
        Ok(Added::Overflowing(overflowing))
    }
}

/// Four columns that stand side by side in a row: count, sum, min, max.
pub(super) fn totals(row: &Row<'_>, first: usize) -> rusqlite::Result<Totals> {
    Ok(Totals {
        count: row.get(first)?,
        sum: row.get(first + 1)?,
        min: row.get(first + 2)?,
        max: row.get(first + 3)?,
    })
}

/// Keeps the moves that closed windows which hold something; says how many windows that were.
/// The chunk's own windows must be there already.
pub(super) fn close(
    connection: &Connection,
    window_ms: i64,
    moves: &[Move],
    batch: u64,
) -> rusqlite::Result<u64> {
    let mut count = connection
        .prepare_cached("SELECT COUNT(*) FROM windows WHERE start_ms >= ?1 AND start_ms < ?2")?;
    let mut keep = connection.prepare_cached(
        "INSERT INTO moves (to_ms, from_ms, batch, event_index, windows_closed) \
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let mut all = 0;
    for moved in moves {
        let Some((first_ms, after_ms)) =
            window::closing_starts_ms(moved.from_ms, moved.to_ms, window_ms)
        else {
            continue;
        };
        let closed: u64 = count.query_row(params![first_ms, after_ms], |row| row.get(0))?;
        if closed > 0 {
            keep.execute(params![moved.to_ms, moved.from_ms, batch, moved.event_index, closed])?;
            all += closed;
        }
    }
    Ok(all)
}
