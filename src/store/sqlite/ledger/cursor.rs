//! Looks at single entries by their position, and cheaply at the one behind the last.

use rusqlite::{Connection, params};

use super::row::{Entries, Entry, Mark};

/// A place among the entries.
pub(super) struct Cursor<'c> {
    connection: &'c Connection,
    row: Vec<u8>,
    /// The position of the first entry of that row.
    first: u64,
    /// How many entries it has.
    count: u64,
    /// Before the entry that is looked at.
    mark: Option<Mark>,
    position: u64,
}

impl<'c> Cursor<'c> {
    pub(super) fn new(connection: &'c Connection) -> Cursor<'c> {
        Cursor { connection, row: Vec::new(), first: 0, count: 0, mark: None, position: 0 }
    }

    pub(super) fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// The position of the entry that is looked at.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Looks at the entry at that position; none when there is none, or it was forgotten.
    pub(super) fn at(&mut self, position: u64) -> rusqlite::Result<Option<Entry<'_>>> {
        let is_here = (self.first..self.first + self.count).contains(&position);
        if !is_here && !self.load(position)? {
            self.mark = None;
            return Ok(None);
        }
        let mut entries = match self.mark {
            Some(mark) if is_here && self.position <= position => Entries::resume(&self.row, mark),
            _ => Entries::of(&self.row)?,
        };
        entries.skip_to(position - self.first)?;
        self.mark = Some(entries.mark());
        self.position = position;
        Ok(entries.read()?)
    }

    /// Looks at the entry behind the one that was looked at last; none when there is none.
    pub(super) fn behind(&mut self) -> rusqlite::Result<Option<Entry<'_>>> {
        match self.mark {
            Some(_) => self.at(self.position + 1),
            None => Ok(None),
        }
    }

    fn load(&mut self, position: u64) -> rusqlite::Result<bool> {
        let mut statement = self.connection.prepare_cached(
            "SELECT first, entries FROM ledger_entries WHERE first <= ?1 \
             ORDER BY first DESC LIMIT 1",
        )?;
        let mut rows = statement.query(params![position])?;
        let Some(row) = rows.next()? else { return Ok(false) };
        self.first = row.get(0)?;
        self.row.clear();
        self.row.extend_from_slice(row.get_ref(1)?.as_blob()?);
        self.count = Entries::of(&self.row)?.count();
        self.mark = None;
        Ok(position < self.first + self.count)
    }
}
