//! How much a writer keeps in memory and works on at once.

/// Bounds of what is kept in memory and of what is done at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// How many entries of the ledger make a run: at most 2^24.
    pub(super) tail_entries: u64,
    /// How many runs of the first level make one of the second.
    pub(super) merged_runs: usize,
    /// For how many ids a merge goes on for each one that comes, and the fewest at once.
    pub(super) merge_pace: u64,
    pub(super) least_merge_ids: u64,
    /// Windows, or accounts, from which on all that is recent is worked into the tables.
    pub(super) recent_windows: usize,
    /// Rows from which on it is.
    pub(super) recent_rows: u64,
    /// Rows of the ledger that are looked at together, at the least, for what is forgotten.
    pub(super) forget_rows: u64,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            tail_entries: 500_000,
            merged_runs: 16,
            merge_pace: 4,
            least_merge_ids: 1 << 16,
            recent_windows: 1 << 16,
            recent_rows: 1 << 14,
            forget_rows: 64,
        }
    }
}
