//! One batch: one transaction, from its beginning to its commit or its undoing.

use rusqlite::Connection;

use crate::engine::{Changes, Fact, Progress, Seen};
use crate::model::event::{Chunk, Event};
use crate::model::refusal::Other;
use crate::store::{
    Act, Batch, Committed, Delivery, Error, EventRef, Kept, Overflowing, Receipt, Settlement,
};

use super::SqliteStore;
use super::cache::Cache;
use super::tables::side_output::Origin;
use super::tables::sources::Delivered;
use super::tables::store_meta::{Stamp, StoreMeta};
use super::tables::windows::Written;
use super::tables::{receipts, settlement, side_output, sources, store_meta, windows};

/// A batch whose transaction is open; dropping it undoes it.
pub(super) struct SqliteBatch<'s> {
    store: &'s mut SqliteStore,
    delivery: Delivery,
    number: u64,
    head: StoreMeta,
    /// The state of the store in which it began.
    begun: Stamp,
    now_ms: Option<i64>,
    windows_closed: u64,
    closings: Vec<u64>,
    presence_changes: u64,
    state: BatchState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchState {
    Open,
    /// A window would leave its range, or an event was settled twice: it can only be dropped.
    Spoilt,
    Ended,
}

impl<'s> SqliteBatch<'s> {
    /// The batch after those that `head` tells of; the transaction is open.
    pub(super) fn new(store: &'s mut SqliteStore, delivery: Delivery, head: StoreMeta) -> Self {
        store.memory.begin(head.stamp());
        SqliteBatch {
            store,
            delivery,
            number: head.last_number.saturating_add(1),
            begun: head.stamp(),
            head,
            now_ms: None,
            windows_closed: 0,
            closings: Vec::new(),
            presence_changes: 0,
            state: BatchState::Open,
        }
    }

    /// The clock is read once, so that all chunks are judged by the same moment.
    fn now_ms(&mut self) -> i64 {
        let (following, kept_ms) = (self.store.following, self.head.trusted_ms);
        *self.now_ms.get_or_insert_with(|| following.now_ms(kept_ms))
    }
}

impl Batch for SqliteBatch<'_> {
    fn number(&self) -> u64 {
        self.number
    }

    fn facts(&mut self, chunk: &Chunk, facts: &mut Vec<Fact>) -> Result<(), Error> {
        let (key, head) = (self.store.hash_key, &self.head);
        let horizon_ms = self.store.settings.dedup_horizon_ms();
        let oldest_ms = horizon_ms.map_or(i64::MIN, |ms| head.watermark_ms.saturating_sub(ms));
        self.store.attempt_in_memory("look up ids", |connection, memory| {
            memory.ledger(connection, head)?.lookup(connection, chunk, key, oldest_ms, facts)
        })
    }

    fn progress(&mut self, asked: &[&str]) -> Result<Progress, Error> {
        let now_ms = self.now_ms();
        let (watermark_ms, source_count) = (self.head.watermark_ms, self.head.sources);
        self.store.attempt("read how far event time has come", |connection| {
            Ok(Progress {
                watermark_ms,
                sources: sources::known(connection, asked)?,
                others: sources::others(connection, asked)?,
                source_count,
                now_ms,
            })
        })
    }

    fn apply(&mut self, chunk: &Chunk, changes: &Changes<'_>) -> Result<u64, Error> {
        let window_ms = self.store.settings.window_ms();
        let (now_ms, presence_changes) = (self.now_ms(), self.presence_changes);
        let (batch, delivery, head) = (self.number, &self.delivery, &self.head);
        let (key, begun) = (self.store.hash_key, self.begun);
        let origin = Origin { chunk, batch, source: &delivery.source };
        let doing = "write what a batch changes";
        let written = self.store.attempt_in_memory(doing, |connection, memory| {
            let written = write_windows(connection, memory, begun, window_ms, changes, batch)?;
            if written.is_ok() {
                if !changes.recorded.is_empty() {
                    let ledger = memory.ledger(connection, head)?;
                    ledger.record(connection, chunk, key, &changes.recorded, batch)?;
                }
                side_output::keep_late(connection, &origin, window_ms, &changes.late)?;
                side_output::hold(connection, &origin, &changes.held)?;
                let delivered = Delivered { batch, file: &delivery.file };
                let delivered = changes.is_delivery.then_some(delivered);
                sources::add(connection, &changes.sources, delivered)?;
                let presence = &changes.presence;
                sources::change_presence(connection, presence, batch, presence_changes, now_ms)?;
                sources::add_versions(connection, &changes.versions)?;
                // a batch may have more than memory
                memory.tidy(connection, false)?;
            }
            Ok(written)
        })?;
        let written = written.map_err(|overflowing| {
            self.state = BatchState::Spoilt;
            Error::Overflow(overflowing)
        })?;
        let closed = written.closed.iter().sum();
        self.closings = written.closed;
        self.windows_closed += closed;
        self.presence_changes += changes.presence.len() as u64;
        self.head.windows += written.new;
        self.head.corrected_windows += written.corrected;
        self.head.late_kept += changes.late.len() as u64;
        self.head.held += changes.held.len() as u64;
        self.head.watermark_ms = self.head.watermark_ms.max(changes.watermark_ms);
        self.head.sources += changes.new_sources;
        Ok(closed)
    }

    fn closings(&self) -> &[u64] {
        &self.closings
    }

    fn kept(
        &mut self,
        kind: Kept,
        after: Option<EventRef>,
        chunk: &mut Chunk,
        refs: &mut Vec<EventRef>,
    ) -> Result<(), Error> {
        let now = (self.store.settings.window_ms(), &self.head);
        let begun = self.begun;
        self.store.attempt_in_memory("read what was kept", |connection, memory| {
            memory.write_buffer(connection, begun)?.work_in(connection)?;
            settlement::next(connection, kind, after, now, chunk, refs)
        })
    }

    fn settle(&mut self, refs: &[EventRef], settlement: Settlement) -> Result<(), Error> {
        let (batch, now_ms) = (self.number, self.now_ms());
        let begun = self.begun;
        let absent =
            self.store.attempt_in_memory("settle what was kept", |connection, memory| {
                memory.write_buffer(connection, begun)?.work_in(connection)?;
                settlement::settle(connection, refs, settlement, batch, now_ms)
            })?;
        if let Some(event) = absent {
            self.state = BatchState::Spoilt;
            return Err(Error::Io(format!(
                "{}: {event} is not kept, or was {} before; drop the batch",
                self.store.path.display(),
                settlement.name(),
            )));
        }
        let settled = refs.len() as u64;
        let less = |count: &mut u64| *count = count.saturating_sub(settled);
        match settlement {
            Settlement::Applied => self.head.late_applied += settled,
            Settlement::Released => {
                less(&mut self.head.held);
                less(&mut self.head.counts.future);
            }
            Settlement::Discarded => less(&mut self.head.held),
        }
        Ok(())
    }

    fn first_seen(&mut self, event: &Event<'_>, seen: &Seen) -> Result<Other, Error> {
        let mut other = Other {
            event_index: Some(seen.event_index),
            timestamp_ms: Some(seen.timestamp_ms),
            ..Other::default()
        };
        if seen.batch == self.number {
            other.file = Some(self.delivery.file.clone());
            other.source = Some(self.delivery.source.clone());
        } else {
            other.batch = Some(seen.batch);
        }
        let (id_hash, head) = (self.store.hash_key.hash(event.id), &self.head);
        self.store.attempt_in_memory("look up where an id came from", |connection, memory| {
            receipts::describe(connection, seen.batch, &mut other)?;
            let ledger = memory.ledger(connection, head)?;
            ledger.describe(connection, id_hash, seen, &mut other)?;
            Ok(other)
        })
    }

    fn commit(mut self: Box<Self>, receipt: &Receipt) -> Result<Committed, Error> {
        if self.state == BatchState::Spoilt {
            return Err(Error::Io(format!(
                "{}: could not commit: a part of the batch was refused; drop the batch",
                self.store.path.display()
            )));
        }
        let following = self.store.following;
        let committed_at_ms = following.now_ms(self.head.trusted_ms);
        let mut head = self.head.clone();
        let (trusted_ms, followed) = following.step(head.trusted_ms);
        head.trusted_ms = Some(trusted_ms);
        head.last_number = self.number;
        let counts = match receipt {
            Receipt::Act { act, counts, .. } => {
                if *act == Act::Release {
                    head.counts.add(counts);
                }
                *counts
            }
            Receipt::Events { counts, .. } => {
                head.batches += 1;
                head.counts.add(counts);
                head.last_batch = Some(self.number);
                head.last_ingest_at_ms = Some(committed_at_ms);
                *counts
            }
        };
        let committed = Committed {
            batch: self.number,
            counts,
            watermark_ms: head.watermark_ms,
            windows_closed: self.windows_closed,
        };
        let delivery = &self.delivery;
        let is_delivery = matches!(receipt, Receipt::Events { .. });
        let ended = &mut head;
        let horizon_ms = self.store.settings.dedup_horizon_ms();
        let forgotten_ms = horizon_ms.map(|ms| ended.watermark_ms.saturating_sub(ms));
        self.store.attempt_in_memory("keep the receipt of a batch", |connection, memory| {
            memory.measure(ended);
            memory.tidy(connection, true)?;
            if let Some(from_ms) = forgotten_ms {
                memory.forget(connection, from_ms)?;
            }
            if is_delivery {
                sources::stamp(connection, committed.batch, committed_at_ms)?;
            }
            receipts::keep(connection, delivery, receipt, &committed, committed_at_ms)?;
            store_meta::save(connection, ended)
        })?;
        // whatever comes of it, there is nothing left to undo
        self.state = BatchState::Ended;
        if let Err(error) = self.store.finish() {
            self.store.memory.distrust();
            return Err(error);
        }
        self.store.memory.keep(head.stamp());
        self.store.unsynced.wrote();
        self.store.kept_ms = head.trusted_ms;
        self.store.following = followed.unwrap_or(following);
        Ok(committed)
    }
}

impl Drop for SqliteBatch<'_> {
    fn drop(&mut self) {
        if self.state != BatchState::Ended {
            self.store.undo();
            self.store.memory.undo();
        }
    }
}

/// Adds what a chunk brings to windows and accounts. They stay apart from the tables, unless final
/// windows are corrected: their revisions need all of them there.
fn write_windows(
    connection: &Connection,
    memory: &mut Cache,
    begun: Stamp,
    window_ms: i64,
    changes: &Changes<'_>,
    batch: u64,
) -> rusqlite::Result<Result<Written, Vec<Overflowing>>> {
    let write_buffer = memory.write_buffer(connection, begun)?;
    if changes.corrections.is_empty() {
        let new = match write_buffer.add(connection, &changes.windows, changes)? {
            Ok(new) => new,
            Err(overflowing) => return Ok(Err(overflowing)),
        };
        let elsewhere = |first_ms, after_ms| write_buffer.new_windows(first_ms, after_ms);
        let closed = windows::close(connection, window_ms, &changes.moves, batch, &elsewhere)?;
        return Ok(Ok(Written { new, closed, corrected: 0 }));
    }
    write_buffer.work_in(connection)?;
    let written = windows::write(connection, window_ms, changes, batch)?;
    let both = [changes.windows.last(), changes.corrections.last()];
    write_buffer.table_grew(both.into_iter().flatten().map(|(id, _)| id.start_ms).max());
    Ok(match write_buffer.add(connection, &[], changes)? {
        Ok(_) => written,
        Err(overflowing) => Err(overflowing),
    })
}
