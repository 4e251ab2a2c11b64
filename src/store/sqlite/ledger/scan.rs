//! Reads all entries one after the other, in the order in which they came, a row at a time.

use rusqlite::{CachedStatement, Connection, params};

use super::kept;
use super::row::{Entries, Entry, Mark};
use crate::model::event::{Event, HashKey};

/// A place among the entries that only goes forward.
pub(in crate::store::sqlite) struct Reader<'c> {
    find: CachedStatement<'c>,
    row: Vec<u8>,
    /// The position of the first entry of that row, and from where on the next row is looked for.
    first: u64,
    from: u64,
    /// Before the entry that is looked at.
    here: Option<Mark>,
    /// Behind it.
    behind: Option<Mark>,
    place: u64,
}

impl<'c> Reader<'c> {
    /// One that stands before the first entry of the first row from that position on.
    pub(in crate::store::sqlite) fn new(
        connection: &'c Connection,
        from: u64,
    ) -> rusqlite::Result<Reader<'c>> {
        let find = connection.prepare_cached(
            "SELECT first, entries FROM ledger_entries WHERE first >= ?1 ORDER BY first LIMIT 1",
        )?;
        let (row, first, place) = (Vec::new(), 0, 0);
        Ok(Reader { find, row, first, from, here: None, behind: None, place })
    }

    /// Goes on to the next entry that was not forgotten; false when there is none.
    pub(in crate::store::sqlite) fn advance(&mut self) -> rusqlite::Result<bool> {
        loop {
            if let Some(mark) = self.behind {
                let mut entries = Entries::resume(&self.row, mark);
                if !entries.is_over() {
                    let is_there = entries.read()?.is_some();
                    self.behind = Some(entries.mark());
                    self.place += 1;
                    if is_there {
                        self.here = Some(mark);
                        return Ok(true);
                    }
                    continue;
                }
            }
            self.here = None;
            let mut rows = self.find.query(params![self.from])?;
            let Some(row) = rows.next()? else {
                self.behind = None;
                return Ok(false);
            };
            self.first = row.get(0)?;
            self.from = self.first + 1;
            self.row.clear();
            self.row.extend_from_slice(row.get_ref(1)?.as_blob()?);
            self.behind = Some(Entries::of(&self.row)?.mark());
            self.place = 0;
        }
    }

    /// The entry that is looked at.
    pub(in crate::store::sqlite) fn entry(&self) -> Option<Entry<'_>> {
        Entries::resume(&self.row, self.here?).read().ok()?
    }

    /// Its position.
    pub(in crate::store::sqlite) fn position(&self) -> u64 {
        self.first + self.place.saturating_sub(1)
    }
}

impl Entry<'_> {
    /// Whether it is of that very event.
    pub(in crate::store::sqlite) fn is_of(&self, event: &Event<'_>, key: HashKey) -> bool {
        self.hash == kept(key.hash(event.id)) && self.same_payload(event)
    }

    /// Whether it is of that id.
    pub(in crate::store::sqlite) fn has_id(&self, id: &str, key: HashKey) -> bool {
        self.hash == kept(key.hash(id))
    }
}
