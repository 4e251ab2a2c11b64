//! One batch: one transaction, from its beginning to its commit or its undoing.

use std::collections::BTreeSet;

use crate::engine::{Changes, Fact, Progress, Seen};
use crate::event::{Chunk, Event};
use crate::refusal::Other;
use crate::store::{Batch, Committed, Delivery, Error, Receipt};

use super::head::Head;
use super::late::Origin;
use super::windows::Added;
use super::{SqliteStore, head, late, ledger, receipts, sources, windows};

/// A batch whose transaction is open; dropping it undoes it.
pub(super) struct SqliteBatch<'s> {
    store: &'s mut SqliteStore,
    delivery: Delivery,
    number: u64,
    head: Head,
    now_ms: Option<i64>,
    windows_closed: u64,
    sources: BTreeSet<String>,
    order: Vec<usize>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// A window would leave its range: it can only be dropped.
    Overflowed,
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
                sources: sources::greatest(connection, asked)?,
                others_least_ms: sources::least_of_others(connection, asked)?,
                now_ms,
            })
        })
    }

    fn apply(&mut self, chunk: &Chunk, changes: &Changes<'_>) -> Result<u64, Error> {
        let window_ms = self.store.settings.window_ms();
        let (batch, delivery, order) = (self.number, &self.delivery, &mut self.order);
        let origin = Origin { chunk, batch, source: &delivery.source };
        let written = self.store.attempt("write what a batch changes", |connection| {
            let new = match windows::add(connection, &changes.windows)? {
                Added::All { new } => new,
                Added::Overflowing(windows) => return Ok(Err(windows)),
            };
            ledger::record(connection, chunk, &changes.recorded, order, batch)?;
            late::keep_late(connection, &origin, window_ms, &changes.late)?;
            late::hold(connection, &origin, &changes.held)?;
            sources::add(connection, &changes.sources, batch, &delivery.file)?;
            sources::add_versions(connection, &changes.versions)?;
            let closed = windows::close(connection, window_ms, &changes.moves, batch)?;
            Ok(Ok((new, closed)))
        })?;
        match written {
            Ok((new, closed)) => {
                self.windows_closed += closed;
                self.head.windows += new;
                self.head.late_kept += changes.late.len() as u64;
                self.head.held += changes.held.len() as u64;
                self.head.watermark_ms = self.head.watermark_ms.max(changes.watermark_ms);
                self.sources.extend(changes.sources.iter().map(|change| change.source.clone()));
                Ok(closed)
            }
            Err(overflowing) => {
                self.state = State::Overflowed;
                Err(Error::Overflow(overflowing))
            }
        }
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
        if self.state == State::Overflowed {
            return Err(Error::Io(format!(
                "{}: could not commit: a window would leave its range; drop the batch",
                self.store.path.display()
            )));
        }
        let committed_at_ms = self.store.options.clock.now_ms();
        let mut head = self.head.clone();
        head.last_number = self.number;
        let counts = match receipt {
            Receipt::Advance { .. } => crate::engine::Counts::default(),
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
            sources::stamp(connection, named, committed_at_ms)?;
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
