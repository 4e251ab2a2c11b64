//! What a writer has in memory of its store, and whether that is still so.

use rusqlite::Connection;

use super::ledger::{self, Ledger};
use super::tables::store_meta::{Stamp, StoreMeta};
use super::write_buffer::WriteBuffer;
use crate::model::event::HashKey;
use crate::store::Prefetch;
use crate::store::sqlite::sizes::Sizes;

/// It is read when it is asked for, and again when others have written.
#[derive(Debug, Default)]
pub(super) struct Cache {
    sizes: Sizes,
    ledger: Ledger,
    write_buffer: WriteBuffer,
    /// The states of the store that these are of; none when they have to be read.
    ledger_at: Option<Stamp>,
    recent_at: Option<Stamp>,
    /// Where the entries of the batch in hand begin.
    position: u64,
    /// Up to which entries merging has kept up.
    merged_until: u64,
}

impl Cache {
    pub(super) fn of_sizes(sizes: Sizes) -> Cache {
        Cache { sizes, ..Cache::default() }
    }

    /// A batch begins in that state of the store: what is of another one is not to be relied on.
    pub(super) fn begin(&mut self, at: Stamp) {
        for known in [&mut self.ledger_at, &mut self.recent_at] {
            *known = known.filter(|known| *known == at);
        }
    }

    /// The ledger, as the batch that began with that head has left it.
    pub(super) fn ledger(
        &mut self,
        connection: &Connection,
        head: &StoreMeta,
    ) -> rusqlite::Result<&mut Ledger> {
        let at = Some(head.stamp());
        if self.ledger_at != at {
            self.ledger_at = None;
            self.ledger.load(connection, head.next_position)?;
            self.ledger_at = at;
            self.position = self.ledger.next_position();
            self.merged_until = self.position;
        }
        Ok(&mut self.ledger)
    }

    /// What is not in the tables yet, likewise.
    pub(super) fn write_buffer(
        &mut self,
        connection: &Connection,
        at: Stamp,
    ) -> rusqlite::Result<&mut WriteBuffer> {
        if self.recent_at != Some(at) {
            self.recent_at = None;
            self.write_buffer.load(connection)?;
            self.recent_at = Some(at);
        }
        Ok(&mut self.write_buffer)
    }

    /// Forgets some of what is older than that, in step with what the batch that ends has added.
    pub(super) fn forget(&mut self, connection: &Connection, from_ms: i64) -> rusqlite::Result<()> {
        match self.ledger_at {
            Some(_) => self.ledger.forget_in_step(connection, from_ms, self.sizes.forget_rows),
            None => Ok(()),
        }
    }

    /// Makes runs, goes on merging them, and works into the tables what there is too much of. Of a
    /// batch that goes on only what is far too much: to undo that takes long.
    pub(super) fn tidy(&mut self, connection: &Connection, is_end: bool) -> rusqlite::Result<()> {
        let sizes = self.sizes;
        let factor = if is_end { 1 } else { 2 };
        if self.ledger_at.is_some() {
            if self.ledger.tail_entries() >= factor * sizes.tail_entries {
                self.ledger.make_run(connection)?;
            }
            let next = self.ledger.next_position();
            let owed = sizes.merge_pace * next.saturating_sub(self.merged_until);
            if is_end && self.ledger.is_behind(&sizes) {
                self.ledger.merge_some(connection, &sizes, u64::MAX)?;
            } else if owed >= factor * sizes.least_merge_ids {
                self.ledger.merge_some(connection, &sizes, owed)?;
                self.merged_until = next;
            }
        }
        let write_buffer = &mut self.write_buffer;
        let is_much = write_buffer.size() >= factor as usize * sizes.recent_windows
            || write_buffer.rows() >= factor * sizes.recent_rows;
        if self.recent_at.is_some() && is_much {
            write_buffer.work_in(connection)?;
        }
        Ok(())
    }

    /// A batch that began in the one state ended in the other: writes down in its head how far the
    /// ledger has come.
    pub(super) fn measure(&self, head: &mut StoreMeta) {
        if self.ledger_at.is_some() {
            head.next_position = self.ledger.next_position();
        }
    }

    /// The batch is in: what it added stays.
    pub(super) fn keep(&mut self, ended: Stamp) {
        for at in [&mut self.ledger_at, &mut self.recent_at] {
            *at = at.map(|_| ended);
        }
        self.ledger.keep();
        self.write_buffer.keep();
        self.position = self.ledger.next_position();
    }

    /// The batch is undone: so is what it added.
    pub(super) fn undo(&mut self) {
        if self.ledger_at.is_some() && !self.ledger.undo(self.position) {
            self.ledger_at = None;
        }
        if !self.write_buffer.undo() {
            self.recent_at = None;
        }
    }

    /// What looks at chunks ahead of the writer.
    pub(super) fn prefetch(&self, key: HashKey, open: ledger::Open) -> Box<dyn Prefetch> {
        self.ledger.prefetch(key, open)
    }

    /// Nothing of it can be relied on.
    pub(super) fn distrust(&mut self) {
        self.undo();
        (self.ledger_at, self.recent_at) = (None, None);
    }
}
