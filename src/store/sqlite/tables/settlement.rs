//! Events that were kept apart and can be settled: late ones applied, held ones released or
//! discarded.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::engine::window;
use crate::model::event::{Chunk, Event, Place};
use crate::store::{EventRef, KEPT_AT_ONCE, Kept, SettledRow, Settlement};

use super::accounts;
use super::store_meta::StoreMeta;

/// Writes into `chunk` and `refs` the next kept events behind `after`.
pub(crate) fn next(
    connection: &Connection,
    kind: Kept,
    after: Option<EventRef>,
    (window_ms, head): (i64, &StoreMeta),
    chunk: &mut Chunk,
    refs: &mut Vec<EventRef>,
) -> rusqlite::Result<()> {
    // batches are numbered from 1 on, and no window begins before 0
    let behind = after.unwrap_or(EventRef { batch: 0, event_index: 0 });
    let first_index = after.map_or(0, |_| chunk.first_index() + chunk.len() as u64);
    chunk.restart(first_index);
    refs.clear();
    let first_open_ms = window::start_ms(head.watermark_ms, window_ms);
    let pruned_ms = head.pruned_start_ms.unwrap_or(-1);
    let sql = match kind {
        Kept::Held => {
            "SELECT batch, event_index, id, key, timestamp_ms, value, source, producer_version \
             FROM held WHERE (batch, event_index) > (?1, ?2) \
             ORDER BY batch, event_index LIMIT ?3"
        }
        Kept::Late => {
            "SELECT batch, event_index, id, key, timestamp_ms, value, source, NULL FROM late \
             WHERE (window_start_ms, key, batch, event_index) > (?6, ?7, ?1, ?2) \
             AND applied_in IS NULL AND window_start_ms < ?4 \
             AND (+window_start_ms > ?5 OR EXISTS (SELECT 1 FROM windows \
             WHERE windows.start_ms = window_start_ms AND windows.key = late.key)) \
             ORDER BY window_start_ms, key, batch, event_index LIMIT ?3"
        }
    };
    let mut statement = connection.prepare_cached(sql)?;
    let (batch, index, limit) = (behind.batch, behind.event_index, KEPT_AT_ONCE as u64);
    let mut rows = match kind {
        Kept::Held => statement.query(params![batch, index, limit])?,
        Kept::Late => {
            let (start_ms, key) = match after {
                Some(after) => window_of(connection, after)?.unwrap_or((-1, String::new())),
                None => (-1, String::new()),
            };
            let from = params![batch, index, limit, first_open_ms, pruned_ms, start_ms, key];
            statement.query(from)?
        }
    };
    while let Some(row) = rows.next()? {
        refs.push(EventRef { batch: row.get(0)?, event_index: row.get(1)? });
        chunk.push(Event {
            id: row.get_ref(2)?.as_str()?,
            key: row.get_ref(3)?.as_str()?,
            timestamp_ms: row.get(4)?,
            value: row.get(5)?,
            source: Some(row.get_ref(6)?.as_str()?),
            producer_version: row.get_ref(7)?.as_str_or_null()?,
            place: Place::default(),
        });
    }
    Ok(())
}

/// The window of a late event; none when it is not kept any more.
fn window_of(connection: &Connection, at: EventRef) -> rusqlite::Result<Option<(i64, String)>> {
    connection
        .prepare_cached(
            "SELECT window_start_ms, key FROM late WHERE batch = ?1 AND event_index = ?2",
        )?
        .query_row(params![at.batch, at.event_index], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

/// Settles these events, in the batch of that number; says which of them was not there to settle.
pub(crate) fn settle(
    connection: &Connection,
    refs: &[EventRef],
    settlement: Settlement,
    batch: u64,
    at_ms: i64,
) -> rusqlite::Result<Option<EventRef>> {
    for event in refs {
        let found = match settlement {
            Settlement::Applied => apply(connection, *event, batch)?,
            Settlement::Released => {
                uncount(connection, *event)?;
                take_out(connection, *event, settlement, batch, at_ms)?
            }
            Settlement::Discarded => take_out(connection, *event, settlement, batch, at_ms)?,
        };
        if !found {
            return Ok(Some(*event));
        }
    }
    Ok(None)
}

fn apply(connection: &Connection, event: EventRef, batch: u64) -> rusqlite::Result<bool> {
    let sql = "UPDATE late SET applied_in = ?3 \
               WHERE batch = ?1 AND event_index = ?2 AND applied_in IS NULL";
    let done =
        connection.prepare_cached(sql)?.execute(params![event.batch, event.event_index, batch])?;
    Ok(done == 1)
}

/// What is released no longer counts as future where it was counted.
fn uncount(connection: &Connection, event: EventRef) -> rusqlite::Result<()> {
    for sql in [
        "UPDATE sources SET future = future - 1 WHERE name = \
         (SELECT source FROM held WHERE batch = ?1 AND event_index = ?2)",
        "UPDATE versions SET future = future - 1 WHERE name = \
         (SELECT producer_version FROM held WHERE batch = ?1 AND event_index = ?2)",
    ] {
        connection.prepare_cached(sql)?.execute(params![event.batch, event.event_index])?;
    }
    accounts::uncount(connection, event)
}

fn take_out(
    connection: &Connection,
    event: EventRef,
    settlement: Settlement,
    batch: u64,
    at_ms: i64,
) -> rusqlite::Result<bool> {
    let sql = "INSERT INTO settled (batch, event_index, settlement, settled_in, at_ms, id, key, \
               timestamp_ms, value, source, producer_version) \
               SELECT batch, event_index, ?3, ?4, ?5, id, key, timestamp_ms, value, source, \
               producer_version FROM held WHERE batch = ?1 AND event_index = ?2";
    connection.prepare_cached(sql)?.execute(params![
        event.batch,
        event.event_index,
        settlement.name(),
        batch,
        at_ms,
    ])?;
    let gone = connection
        .prepare_cached("DELETE FROM held WHERE batch = ?1 AND event_index = ?2")?
        .execute(params![event.batch, event.event_index])?;
    Ok(gone == 1)
}

/// What became of an event that was held.
pub(crate) fn settled(
    connection: &Connection,
    event: EventRef,
) -> rusqlite::Result<Option<SettledRow>> {
    let sql = "SELECT settlement, settled_in, at_ms, id, key, timestamp_ms, value, source \
               FROM settled WHERE batch = ?1 AND event_index = ?2";
    let read = |row: &Row<'_>| {
        Ok(SettledRow {
            settlement: row.get(0)?,
            settled_in: row.get(1)?,
            at_ms: row.get(2)?,
            id: row.get(3)?,
            key: row.get(4)?,
            timestamp_ms: row.get(5)?,
            value: row.get(6)?,
            source: row.get(7)?,
        })
    };
    connection
        .prepare_cached(sql)?
        .query_row(params![event.batch, event.event_index], read)
        .optional()
}
