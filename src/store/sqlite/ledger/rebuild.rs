//! Makes runs and filters anew from the entries, which hold all that these say.

use rusqlite::{Connection, params};

use super::memtable::Memtable;
use super::row::Entries;
use super::{Ledger, run};
use crate::store::sqlite::sizes::Sizes;

/// Takes all runs away, and makes them anew. The last entries stay without one, as they do when
/// batches come in.
pub(in crate::store::sqlite) fn rebuild(connection: &Connection) -> rusqlite::Result<()> {
    for sql in ["DELETE FROM ledger_filters", "DELETE FROM ledger_parts", "DELETE FROM ledger_runs"]
    {
        connection.execute(sql, [])?;
    }
    let (mut ledger, sizes) = (Ledger::default(), Sizes::default());
    let mut from = 0;
    let mut find = connection.prepare(
        "SELECT first, entries FROM ledger_entries WHERE first >= ?1 ORDER BY first LIMIT 1",
    )?;
    loop {
        let mut rows = find.query(params![from])?;
        let Some(row) = rows.next()? else { return Ok(()) };
        let first: u64 = row.get(0)?;
        // a run ends between two rows
        let is_far = first >= ledger.memtable.from() + MOST;
        if ledger.memtable.len() > 0 && (is_far || ledger.tail_entries() >= sizes.tail_entries) {
            ledger.make_run(connection)?;
            ledger.merge_some(connection, &sizes, u64::MAX)?;
        }
        if ledger.memtable.len() == 0 {
            ledger.memtable = Memtable::behind(first);
        }
        ledger.memtable.skip_to(first)?;
        let mut entries = Entries::of(row.get_ref(1)?.as_blob()?)?;
        for _ in 0..entries.count() {
            match entries.read()? {
                Some(entry) => drop(ledger.memtable.push(entry.hash, entry.timestamp_ms)),
                None => ledger.memtable.skip_to(ledger.memtable.next() + 1)?,
            }
        }
        from = first + 1;
    }
}

/// How many positions the entries of one run may reach over, with a row behind that.
const MOST: u64 = run::MAX_ENTRIES / 2;
