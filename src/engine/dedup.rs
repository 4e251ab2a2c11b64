//! Whether an id is new, a repeat, or contradicts what came before.

use crate::model::event::{Chunk, HashedMap};

use super::horizon::Horizon;

/// What the store knows of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Nothing: it never came, or so long ago that it is forgotten.
    New,
    /// It came before.
    Seen(Seen),
}

/// Where an id was taken in, and whether what comes now is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The batch that took it in.
    pub batch: u64,
    /// The index of the event in that batch, from 0.
    pub event_index: u64,
    /// The timestamp that it had.
    pub timestamp_ms: i64,
    /// Whether key, timestamp and value are the same now.
    pub same_payload: bool,
}

/// How an event stands to what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DedupVerdict {
    New,
    Repeat,
    Contradiction(Seen),
}

/// The ids that the chunk in hand has taken in so far, by their hashes.
pub(super) struct Taken {
    batch: u64,
    rows: HashedMap<usize>,
}

impl Taken {
    pub(super) fn new(batch: u64, chunk: &Chunk) -> Taken {
        let rows = HashedMap::with_capacity_and_hasher(chunk.len(), Default::default());
        Taken { batch, rows }
    }

    pub(super) fn take(&mut self, chunk: &Chunk, row: usize) {
        self.rows.insert(chunk.id_hash(row), row);
    }

    /// The chunk's own events count as well as the store's; what is older than the horizon counts
    /// as forgotten, whether or not it is still there.
    pub(super) fn judge(
        &self,
        chunk: &Chunk,
        row: usize,
        fact: Fact,
        horizon: Horizon,
    ) -> DedupVerdict {
        let here = self.rows.get(&chunk.id_hash(row)).map(|first| Seen {
            batch: self.batch,
            event_index: chunk.first_index() + *first as u64,
            timestamp_ms: chunk.timestamp_ms(*first),
            same_payload: chunk.event(*first).same_payload(&chunk.event(row)),
        });
        let before = match fact {
            Fact::New => None,
            Fact::Seen(seen) => Some(seen),
        };
        match here.or(before) {
            Some(seen) if horizon.forgets(seen.timestamp_ms) => DedupVerdict::New,
            Some(seen) if seen.same_payload => DedupVerdict::Repeat,
            Some(seen) => DedupVerdict::Contradiction(seen),
            None => DedupVerdict::New,
        }
    }
}
