//! Takes over the ids of a store that kept one row for each of them.

use rusqlite::{Connection, params};

use super::row::{Entry, RowWriter};
use super::{Ledger, kept};
use crate::model::event::HashKey;
use crate::store::sqlite::sizes::Sizes;

/// Writes the entries of the table `ledger`, in the order in which they came, and makes runs of
/// them; answers the position behind the last.
pub(in crate::store::sqlite) fn take_over(
    connection: &Connection,
    key: HashKey,
) -> rusqlite::Result<u64> {
    let (mut ledger, sizes) = (Ledger::default(), Sizes::default());
    let mut writer = RowWriter::default();
    let mut first = 0;
    let mut insert =
        connection.prepare("INSERT INTO ledger_entries (first, entries) VALUES (?1, ?2)")?;
    let mut rows = connection.prepare(
        "SELECT CAST(id AS TEXT), batch, event_index, key, timestamp_ms, value FROM ledger \
         ORDER BY batch, event_index",
    )?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let entry = Entry {
            hash: kept(key.hash(row.get_ref(0)?.as_str()?)),
            batch: row.get(1)?,
            event_index: row.get(2)?,
            key: row.get_ref(3)?.as_str()?,
            timestamp_ms: row.get(4)?,
            value: row.get(5)?,
        };
        if !writer.has_room_for(&entry) {
            insert.execute(params![first, writer.take()])?;
            first = ledger.next_position();
            if ledger.tail_entries() >= sizes.tail_entries {
                ledger.make_run(connection)?;
                ledger.merge_some(connection, &sizes, u64::MAX)?;
            }
        }
        writer.push(&entry);
        ledger.memtable.push(entry.hash, entry.timestamp_ms);
    }
    if writer.count() > 0 {
        insert.execute(params![first, writer.take()])?;
    }
    Ok(ledger.next_position())
}
