//! Every id taken in, and what came with it: one row an id.

use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use crate::engine::{Fact, Seen};
use crate::event::{Chunk, Event};
use crate::refusal::Other;
use crate::store::{EventRef, RememberedRow};

/// Writes into `facts`, one for each event of the chunk, what is known of its id. `order` is
/// scratch space.
pub(super) fn lookup(
    connection: &Connection,
    chunk: &Chunk,
    order: &mut Vec<usize>,
    facts: &mut Vec<Fact>,
) -> rusqlite::Result<()> {
    facts.clear();
    facts.resize(chunk.len(), Fact::New);
    order.clear();
    order.extend(0..chunk.len());
    by_id(chunk, order);
    let mut statement = connection.prepare_cached(
        "SELECT batch, event_index, key, timestamp_ms, value FROM ledger WHERE id = ?1",
    )?;
    for row in order {
        facts[*row] = known(&mut statement, &chunk.event(*row))?;
    }
    Ok(())
}

fn known(statement: &mut CachedStatement<'_>, event: &Event<'_>) -> rusqlite::Result<Fact> {
    let mut rows = statement.query(params![event.id.as_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(Fact::New) };
    let timestamp_ms = row.get(3)?;
    let same_payload = row.get_ref(2)?.as_str()? == event.key
        && timestamp_ms == event.timestamp_ms
        && row.get::<_, i64>(4)? == event.value;
    Ok(Fact::Seen(Seen {
        batch: row.get(0)?,
        event_index: row.get(1)?,
        timestamp_ms,
        same_payload,
    }))
}

/// Remembers the events in those rows; one that was forgotten by the horizon is written over, and
/// of two with one id the last one stays.
pub(super) fn record(
    connection: &Connection,
    chunk: &Chunk,
    rows: &[usize],
    order: &mut Vec<usize>,
    batch: u64,
) -> rusqlite::Result<()> {
    order.clear();
    order.extend_from_slice(rows);
    by_id(chunk, order);
    let mut statement = connection.prepare_cached(
        "INSERT OR REPLACE INTO ledger (id, batch, event_index, key, timestamp_ms, value) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for row in order {
        let event = chunk.event(*row);
        statement.execute(params![
            event.id.as_bytes(),
            batch,
            chunk.first_index() + *row as u64,
            event.key,
            event.timestamp_ms,
            event.value,
        ])?;
    }
    Ok(())
}

/// Neighbours in the tree are touched one after the other; events with one id keep their order.
fn by_id(chunk: &Chunk, order: &mut [usize]) {
    order.sort_unstable_by(|a, b| chunk.event(*a).id.cmp(chunk.event(*b).id).then(a.cmp(b)));
}

/// What is remembered of an id, unless it is older than the horizon, given as the least timestamp
/// that counts.
pub(super) fn remembered(
    connection: &Connection,
    id: &str,
    oldest_ms: Option<i64>,
) -> rusqlite::Result<Option<RememberedRow>> {
    let sql = "SELECT batch, event_index, key, timestamp_ms, value FROM ledger \
               WHERE id = ?1 AND timestamp_ms >= ?2";
    let read = |row: &Row<'_>| {
        Ok(RememberedRow {
            event: EventRef { batch: row.get(0)?, event_index: row.get(1)? },
            key: row.get(2)?,
            timestamp_ms: row.get(3)?,
            value: row.get(4)?,
        })
    };
    let oldest_ms = oldest_ms.unwrap_or(i64::MIN);
    connection.prepare_cached(sql)?.query_row(params![id.as_bytes(), oldest_ms], read).optional()
}

/// Adds to `other` what the ledger still holds of the event that was seen.
pub(super) fn describe(
    connection: &Connection,
    id: &str,
    seen: &Seen,
    other: &mut Other,
) -> rusqlite::Result<()> {
    let sql = "SELECT key, value FROM ledger WHERE id = ?1 AND batch = ?2 AND event_index = ?3";
    let found = connection
        .prepare_cached(sql)?
        .query_row(params![id.as_bytes(), seen.batch, seen.event_index], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    if let Some((key, value)) = found {
        other.key = Some(key);
        other.value = Some(value);
    }
    Ok(())
}
