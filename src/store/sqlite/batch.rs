//! One batch: one transaction, from its beginning to its commit or its undoing.

use std::collections::BTreeSet;

use crate::engine::{Changes, Fact, Progress, Seen};
use crate::event::{Chunk, Event};
use crate::refusal::Other;
use crate::store::{Act, Batch, Committed, Delivery, Error, EventRef, Kept, Receipt, Settlement};

use super::head::Head;
use super::late::Origin;
use super::{SqliteStore, accounts, head, kept, late, ledger, receipts, sources, windows};

/// A batch whose transaction is open; dropping it undoes it.
pub(super) struct SqliteBatch<'s> {
    store: &'s mut SqliteStore,
    delivery: Delivery,
    number: u64,
    head: Head,
    now_ms: Option<i64>,
    windows_closed: u64,
    closings: Vec<u64>,
    presence_changes: u64,
    sources: BTreeSet<String>,
    order: Vec<usize>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// A window would leave its range, or an event was settled twice: it can only be dropped.
    Spoilt,
    Ended,
}

impl<'s> SqliteBatch<'s> {
    /// The batch after those that `head` tells of; the transaction is open.
    pub(super) fn new(store: &'s mut SqliteStore, delivery: Delivery, head: Head) -> Self {
        SqliteBatch {
            store,
            delivery,
            number: head.last_number.saturating_add(1),
            head,
            now_ms: None,
            windows_closed: 0,
            closings: Vec::new(),
            presence_changes: 0,
            sources: BTreeSet::new(),
            order: Vec::new(),
            state: State::Open,
        }
    }

    /// The clock is read once, so that all chunks are judged by the same moment.
    fn now_ms(&mut self) -> i64 {
        let clock = self.store.options.clock;
        *self.now_ms.get_or_insert_with(|| clock.now_ms())
    }
}

impl Batch for SqliteBatch<'_> {
    fn number(&self) -> u64 {
        self.number
    }

    fn facts(&mut self, chunk: &Chunk, facts: &mut Vec<Fact>) -> Result<(), Error> {
        let order = &mut self.order;
        self.store
            .attempt("look up ids", |connection| ledger::lookup(connection, chunk, order, facts))
    }

    fn progress(&mut self, asked: &[&str]) -> Result<Progress, Error> {
        let now_ms = self.now_ms();
        let watermark_ms = self.head.watermark_ms;
        self.store.attempt("read how far event time has come", |connection| {
            Ok(Progress {
                watermark_ms,
                sources: sources::known(connection, asked)?,
                others: sources::others(connection, asked)?,
                now_ms,
            })
        })
    }

    fn apply(&mut self, chunk: &Chunk, changes: &Changes<'_>) -> Result<u64, Error> {
        let window_ms = self.store.settings.window_ms();
        let (now_ms, presence_changes) = (self.now_ms(), self.presence_changes);
        let (batch, delivery, order) = (self.number, &self.delivery, &mut self.order);
        let origin = Origin { chunk, batch, source: &delivery.source };
        let written = self.store.attempt("write what a batch changes", |connection| {
            let written = windows::write(connection, window_ms, changes, batch)?;
            if written.is_ok() {
                ledger::record(connection, chunk, &changes.recorded, order, batch)?;
                late::keep_late(connection, &origin, window_ms, &changes.late)?;
                late::hold(connection, &origin, &changes.held)?;
                sources::add(connection, &changes.sources)?;
                accounts::add(connection, changes)?;
                let presence = &changes.presence;
                sources::change_presence(connection, presence, batch, presence_changes, now_ms)?;
                sources::add_versions(connection, &changes.versions)?;
            }
            Ok(written)
        })?;
        let written = written.map_err(|overflowing| {
            self.state = State::Spoilt;
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
        self.sources.extend(changes.sources.iter().map(|change| change.source.clone()));
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
        self.store.attempt("read what was kept", |connection| {
            kept::next(connection, kind, after, now, chunk, refs)
        })
    }

    fn settle(&mut self, refs: &[EventRef], settlement: Settlement) -> Result<(), Error> {
        let (batch, now_ms) = (self.number, self.now_ms());
        let absent = self.store.attempt("settle what was kept", |connection| {
            kept::settle(connection, refs, settlement, batch, now_ms)
        })?;
        if let Some(event) = absent {
            self.state = State::Spoilt;
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
        self.store.attempt("look up where an id came from", |connection| {
            receipts::describe(connection, seen.batch, &mut other)?;
            ledger::describe(connection, event.id, seen, &mut other)?;
            Ok(other)
        })
    }

    fn commit(mut self: Box<Self>, receipt: &Receipt) -> Result<Committed, Error> {
        if self.state == State::Spoilt {
            return Err(Error::Io(format!(
                "{}: could not commit: a part of the batch was refused; drop the batch",
                self.store.path.display()
            )));
        }
        let committed_at_ms = self.store.options.clock.now_ms();
        let mut head = self.head.clone();
        head.last_number = self.number;
        let counts = match receipt {
            Receipt::Act { act, counts, .. } => {
                if *act == Act::Release {
                    head.counts.add(counts);
                }
                self.sources.clear();
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
        let (delivery, named) = (&self.delivery, &self.sources);
        self.store.attempt("keep the receipt of a batch", |connection| {
            sources::stamp(connection, named, committed.batch, &delivery.file, committed_at_ms)?;
            receipts::keep(connection, delivery, receipt, &committed, committed_at_ms)?;
            head::save(connection, &head)
        })?;
        // whatever comes of it, there is nothing left to undo
        self.state = State::Ended;
        self.store.finish()?;
        Ok(committed)
    }
}

impl Drop for SqliteBatch<'_> {
    fn drop(&mut self) {
        if self.state != State::Ended {
            self.store.undo();
        }
    }
}
