//! The one row that says how far the store has come, with its running totals.

use rusqlite::{Connection, Row, params};

use crate::engine::Counts;
use crate::model::event::HashKey;

/// How far the store has come. It is read when a batch begins and written when it ends: nobody
/// else can change it in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreMeta {
    pub(crate) watermark_ms: i64,
    /// The number of the last batch of any kind.
    pub(crate) last_number: u64,
    /// The number of the last batch of events.
    pub(crate) last_batch: Option<u64>,
    pub(crate) last_ingest_at_ms: Option<i64>,
    pub(crate) batches: u64,
    pub(crate) refused_batches: u64,
    pub(crate) counts: Counts,
    pub(crate) windows: u64,
    pub(crate) corrected_windows: u64,
    pub(crate) late_kept: u64,
    /// How many of these are part of a revision.
    pub(crate) late_applied: u64,
    pub(crate) held: u64,
    /// How many sources are known.
    pub(crate) sources: u64,
    /// The greatest start of a window that was pruned.
    pub(crate) pruned_start_ms: Option<i64>,
    /// The position behind all that were ever given to entries of the ledger.
    pub(crate) next_position: u64,
    /// How often something was taken away without a batch.
    pub(crate) removals: u64,
    /// The trusted time as it was last kept; none when no version that knows it has written yet.
    pub(crate) trusted_ms: Option<i64>,
}

impl StoreMeta {
    /// What differs as soon as anybody wrote what a writer has in memory.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp { last_number: self.last_number, removals: self.removals }
    }
}

/// A state of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    last_number: u64,
    removals: u64,
}

/// Reads it.
pub(crate) fn load(connection: &Connection) -> rusqlite::Result<StoreMeta> {
    let sql = "SELECT watermark_ms, last_number, last_batch, last_ingest_at_ms, batches, \
               refused_batches, windows, late_kept, held, accepted, late, duplicate, future, \
               expired, corrected_windows, late_applied, pruned_start_ms, next_position, removals, \
               trusted_ms, sources FROM store";
    connection.prepare_cached(sql)?.query_row([], |row| {
        Ok(StoreMeta {
            watermark_ms: row.get(0)?,
            last_number: row.get(1)?,
            last_batch: row.get(2)?,
            last_ingest_at_ms: row.get(3)?,
            batches: row.get(4)?,
            refused_batches: row.get(5)?,
            windows: row.get(6)?,
            late_kept: row.get(7)?,
            held: row.get(8)?,
            counts: counts(row, 9)?,
            corrected_windows: row.get(14)?,
            late_applied: row.get(15)?,
            pruned_start_ms: row.get(16)?,
            next_position: row.get(17)?,
            removals: row.get(18)?,
            trusted_ms: row.get(19)?,
            sources: row.get(20)?,
        })
    })
}

/// The secret under which ids are hashed.
pub(crate) fn hash_key(connection: &Connection) -> rusqlite::Result<HashKey> {
    connection
        .prepare_cached("SELECT hash_key FROM store")?
        .query_row([], |row| row.get(0))
        .map(HashKey)
}

/// Writes it.
pub(crate) fn save(connection: &Connection, head: &StoreMeta) -> rusqlite::Result<()> {
    let sql = "UPDATE store SET watermark_ms = ?1, last_number = ?2, last_batch = ?3, \
               last_ingest_at_ms = ?4, batches = ?5, refused_batches = ?6, windows = ?7, \
               late_kept = ?8, held = ?9, accepted = ?10, late = ?11, duplicate = ?12, \
               future = ?13, expired = ?14, corrected_windows = ?15, late_applied = ?16, \
               pruned_start_ms = ?17, next_position = ?18, removals = ?19, trusted_ms = ?20, \
               sources = ?21";
    connection.prepare_cached(sql)?.execute(params![
        head.watermark_ms,
        head.last_number,
        head.last_batch,
        head.last_ingest_at_ms,
        head.batches,
        head.refused_batches,
        head.windows,
        head.late_kept,
        head.held,
        head.counts.accepted,
        head.counts.late,
        head.counts.duplicate,
        head.counts.future,
        head.counts.expired,
        head.corrected_windows,
        head.late_applied,
        head.pruned_start_ms,
        head.next_position,
        head.removals,
        head.trusted_ms,
        head.sources,
    ])?;
    Ok(())
}

/// Five outcomes that stand side by side in a row: accepted, late, duplicate, future, expired.
pub(crate) fn counts(row: &Row<'_>, first: usize) -> rusqlite::Result<Counts> {
    Ok(Counts {
        accepted: row.get(first)?,
        late: row.get(first + 1)?,
        duplicate: row.get(first + 2)?,
        future: row.get(first + 3)?,
        expired: row.get(first + 4)?,
    })
}
