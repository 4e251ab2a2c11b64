//! Asks the filters of all runs about a chunk on another thread, ahead of the writer.

use std::sync::{Arc, Mutex, PoisonError};

use super::run::Run;
use super::{kept, short_of};
use crate::event::{Chunk, HashKey};
use crate::store::Scout;

/// The runs that there are, the oldest first. Who looks at them holds up nobody who changes them.
pub(super) type Runs = Arc<Vec<Arc<Run>>>;

/// The runs as the writer last knew them.
pub(super) type Shared = Arc<Mutex<Runs>>;

/// Looks at chunks for a writer.
pub(super) struct Filters {
    pub(super) runs: Shared,
    pub(super) key: HashKey,
}

/// Which rows of a chunk which of these runs may hold.
pub(super) struct Hint {
    runs: Runs,
    /// For each run where its rows end.
    ends: Vec<usize>,
    rows: Vec<u32>,
}

impl Scout for Filters {
    fn look(&mut self, chunk: &mut Chunk) {
        let runs = Arc::clone(&self.runs.lock().unwrap_or_else(PoisonError::into_inner));
        if runs.is_empty() || chunk.hash_key() != self.key {
            return;
        }
        let mut ids: Vec<(u64, u32)> =
            (0..chunk.len()).map(|row| (short_of(kept(chunk.id_hash(row))), row as u32)).collect();
        // a filter lies in the order of the ids
        ids.sort_unstable();
        let (mut ends, mut rows, mut found) = (Vec::with_capacity(runs.len()), Vec::new(), vec![]);
        for run in runs.iter() {
            found.clear();
            run.filter.select(&ids, &mut found);
            rows.extend(found.iter().map(|(_, row)| *row));
            ends.push(rows.len());
        }
        chunk.set_hint(Box::new(Hint { runs, ends, rows }));
    }
}

impl Hint {
    /// The rows that this very run may hold; none when it was not asked about it.
    pub(super) fn rows_for(&self, run: &Arc<Run>) -> Option<&[u32]> {
        let place = self.runs.iter().position(|asked| Arc::ptr_eq(asked, run))?;
        let from = if place == 0 { 0 } else { self.ends[place - 1] };
        Some(&self.rows[from..self.ends[place]])
    }
}
