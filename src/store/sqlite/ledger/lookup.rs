//! What is remembered of one id, for readers: nothing of the ledger is in memory.

use rusqlite::Connection;

use super::cursor::Cursor;
use super::row::{Entries, Entry};
use super::{each_row, kept, run, short_of};
use crate::store::{EventRef, RememberedRow};

/// What is remembered of an id, unless it is older than the horizon, given as the least timestamp
/// that counts.
pub(in crate::store::sqlite) fn remembered(
    connection: &Connection,
    id_hash: u128,
    oldest_ms: i64,
) -> rusqlite::Result<Option<RememberedRow>> {
    let hash = kept(id_hash);
    let of = |entry: &Entry<'_>| RememberedRow {
        event: EventRef { batch: entry.batch, event_index: entry.event_index },
        key: Some(entry.key.to_owned()),
        timestamp_ms: entry.timestamp_ms,
        value: Some(entry.value),
    };
    let mut found = None;
    let runs = run::list(connection)?;
    each_row(connection, runs.last().map_or(0, |run| run.new.to), |_, row| {
        let mut entries = Entries::of(row)?;
        for _ in 0..entries.count() {
            let entry = entries.read()?.filter(|entry| entry.hash == hash);
            found = entry.as_ref().map(of).or(found.take());
        }
        Ok(())
    })?;
    let mut cursor = Cursor::new(connection)?;
    for run in runs.iter().rev() {
        if found.is_some() {
            break;
        }
        let positions = cursor.positions(run, short_of(hash))?;
        found = cursor.find(&positions, hash, of)?;
    }
    Ok(found.filter(|row| row.timestamp_ms >= oldest_ms))
}
