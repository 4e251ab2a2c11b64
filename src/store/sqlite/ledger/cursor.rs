//! Looks at single entries by their position, and cheaply at the one behind the last.

use rusqlite::{CachedStatement, Connection, params};

use super::row::{Entries, Entry, Mark};
use super::run::Facts;

/// A place among the entries.
pub(super) struct Cursor<'c> {
    find_row: CachedStatement<'c>,
    find_part: CachedStatement<'c>,
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
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Cursor<'c>> {
        let find_row = connection.prepare_cached(
            "SELECT first, entries FROM ledger_entries WHERE first <= ?1 \
             ORDER BY first DESC LIMIT 1",
        )?;
        let find_part =
            connection.prepare_cached("SELECT ids FROM ledger_parts WHERE part = ?1")?;
        let (row, first, count, mark, position) = (Vec::new(), 0, 0, None, 0);
        Ok(Cursor { find_row, find_part, row, first, count, mark, position })
    }

    /// The positions that an id may have in a run, the last first; there is seldom more than one.
    pub(super) fn positions(&mut self, run: &Facts, short: u64) -> rusqlite::Result<Vec<u64>> {
        let mut rows = self.find_part.query(params![run.part_of(short)])?;
        match rows.next()? {
            Some(row) => Ok(run.positions(row.get_ref(0)?.as_blob()?, short)),
            None => Ok(Vec::new()),
        }
    }

    /// The position of the entry that is looked at.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Looks at the entry at that position; none when there is none, or it was forgotten.
    pub(super) fn at(&mut self, position: u64) -> rusqlite::Result<Option<Entry<'_>>> {
        let is_here = (self.first..self.first.saturating_add(self.count)).contains(&position);
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

    /// What `of` makes of the first entry of that id at one of those positions.
    pub(super) fn find<T>(
        &mut self,
        positions: &[u64],
        hash: u128,
        of: impl Fn(&Entry<'_>) -> T,
    ) -> rusqlite::Result<Option<T>> {
        for position in positions {
            if let Some(entry) = self.at(*position)?.filter(|entry| entry.hash == hash) {
                return Ok(Some(of(&entry)));
            }
        }
        Ok(None)
    }

    /// Looks at the entry behind the one that was looked at last; none when there is none.
    pub(super) fn behind(&mut self) -> rusqlite::Result<Option<Entry<'_>>> {
        match self.mark {
            Some(_) => self.at(self.position + 1),
            None => Ok(None),
        }
    }

    fn load(&mut self, position: u64) -> rusqlite::Result<bool> {
        let mut rows = self.find_row.query(params![position])?;
        let Some(row) = rows.next()? else { return Ok(false) };
        self.first = row.get(0)?;
        self.row.clear();
        self.row.extend_from_slice(row.get_ref(1)?.as_blob()?);
        self.count = Entries::of(&self.row)?.count();
        self.mark = None;
        Ok(position < self.first.saturating_add(self.count))
    }
}
