//! Finds entries by where their events came in, asked in that order: the ledger is read once, from
//! front to back, however many are asked for.

use rusqlite::{Connection, OptionalExtension, params};

use super::row::{Entries, Entry, Mark};
use crate::store::EventRef;

/// A place among the entries that goes forward as long as what is asked for does.
#[derive(Debug, Default)]
pub(in crate::store::sqlite) struct InOrder {
    row: Vec<u8>,
    /// From which position on the next row is looked for.
    from: u64,
    /// How far the row was read; none before the first.
    mark: Option<Mark>,
    /// What was asked for last.
    last: Option<EventRef>,
}

impl InOrder {
    /// What `of` makes of the entry of the event that came in there; none when there is none.
    /// Rows of earlier batches are passed over without being decoded. Asked for something in front
    /// of what was asked for last, it begins anew.
    pub(in crate::store::sqlite) fn find<T>(
        &mut self,
        connection: &Connection,
        at: EventRef,
        of: impl FnOnce(&Entry<'_>) -> T,
    ) -> rusqlite::Result<Option<T>> {
        if self.last.is_some_and(|last| at < last) {
            *self = InOrder::default();
        }
        self.last = Some(at);
        loop {
            if let Some(mark) = self.mark {
                let mut entries = Entries::resume(&self.row, mark);
                if entries.batch() > at.batch {
                    return Ok(None);
                }
                while entries.batch() == at.batch && !entries.is_over() {
                    let before = entries.mark();
                    if let Some(entry) = entries.read()?
                        && entry.event_index >= at.event_index
                    {
                        self.mark = Some(before);
                        return Ok((entry.event_index == at.event_index).then(|| of(&entry)));
                    }
                    self.mark = Some(entries.mark());
                }
            }
            if !self.load(connection)? {
                return Ok(None);
            }
        }
    }

    /// Goes on to the next row; false when there is none.
    fn load(&mut self, connection: &Connection) -> rusqlite::Result<bool> {
        let sql =
            "SELECT first, entries FROM ledger_entries WHERE first >= ?1 ORDER BY first LIMIT 1";
        let row = &mut self.row;
        let first: Option<u64> = connection
            .prepare_cached(sql)?
            .query_row(params![self.from], |found| {
                row.clear();
                row.extend_from_slice(found.get_ref(1)?.as_blob()?);
                found.get(0)
            })
            .optional()?;
        let Some(first) = first else { return Ok(false) };
        self.from = first + 1;
        self.mark = Some(Entries::of(&self.row)?.mark());
        Ok(true)
    }
}
