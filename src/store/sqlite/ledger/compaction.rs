//! Merges runs of the first level into one of the second, in steps beside the batches.

use std::sync::Arc;

use rusqlite::Connection;

use super::run::{self, Facts, New, Run};
use super::run_builder::RunBuilder;
use crate::store::sqlite::sizes::Sizes;

/// For how many ids memory is taken at once.
const IDS_AT_ONCE: u64 = 1 << 19;

/// A merge that is under way.
#[derive(Debug)]
pub(super) struct Compaction {
    pub(super) merged: Vec<Facts>,
    build: RunBuilder,
}

impl Compaction {
    /// Begins with the oldest runs of the first level that stand together, if there are enough. Those of the second are
    /// merged no more: it would cost more than it saves to ask fewer filters.
    pub(super) fn begin(
        connection: &Connection,
        runs: &[Arc<Run>],
        sizes: &Sizes,
    ) -> rusqlite::Result<Option<Compaction>> {
        // what lies too far apart does not go into one: ids that a far-off time keeps from being
        // forgotten, say
        let of_first = |run: &Arc<Run>| run.facts.new.level == 1;
        let Some(merged) = runs.windows(sizes.merged_runs).find(|runs| {
            let span = runs[runs.len() - 1].facts.new.to - runs[0].facts.new.from;
            runs.iter().all(of_first) && span <= run::MAX_ENTRIES
        }) else {
            return Ok(None);
        };
        let merged: Vec<Facts> = merged.iter().map(|run| run.facts).collect();
        let (from, to) = (merged[0].new.from, merged[merged.len() - 1].new.to);
        let new = New {
            level: 2,
            from,
            to,
            ids: merged.iter().map(|run| run.new.ids).sum(),
            least_ms: merged.iter().map(|run| run.new.least_ms).min().unwrap_or(0),
        };
        Ok(Some(Compaction { build: RunBuilder::begin(connection, new)?, merged }))
    }

    /// Goes on with what was begun; none when one of the runs that it is made of is gone.
    pub(super) fn resume(
        connection: &Connection,
        begun: Facts,
        runs: &[Arc<Run>],
    ) -> rusqlite::Result<Option<Compaction>> {
        let within = begun.new.from..begun.new.to;
        let merged = runs.iter().map(|run| run.facts).filter(|run| within.contains(&run.new.from));
        let merged: Vec<Facts> = merged.collect();
        let (Some(first), Some(last)) = (merged.first(), merged.last()) else { return Ok(None) };
        let ids: u64 = merged.iter().map(|run| run.new.ids).sum();
        if (first.new.from, last.new.to, ids) != (begun.new.from, begun.new.to, begun.new.ids) {
            return Ok(None);
        }
        Ok(Some(Compaction { build: RunBuilder::resume(connection, begun)?, merged }))
    }

    /// Goes on for about so many ids; says whether that was all.
    pub(super) fn step(&mut self, connection: &Connection, mut ids: u64) -> rusqlite::Result<bool> {
        let (merged, from) = (&self.merged, self.merged[0].new.from);
        while ids > 0 {
            let some = ids.min(IDS_AT_ONCE);
            let is_over = self.build.step(connection, some, &mut |range, found| {
                merged.iter().try_for_each(|run| run.ids_in(connection, range.clone(), from, found))
            })?;
            if is_over {
                return Ok(true);
            }
            ids -= some;
        }
        Ok(false)
    }

    /// Puts the run that is made in the place of those that it is made of; answers them, and it.
    pub(super) fn end(self, connection: &Connection) -> rusqlite::Result<(Vec<Facts>, Run)> {
        let made = self.build.end(connection)?;
        for facts in &self.merged {
            run::remove(connection, facts)?;
        }
        Ok((self.merged, made))
    }
}
