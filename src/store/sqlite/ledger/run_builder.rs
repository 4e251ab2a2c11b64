//! Makes a run, part by part: a large one in steps, between which batches come in.
//!
//! While it is made it is of no level, and nobody asks it. Whoever finds one goes on with it.

use std::ops::Range;

use rusqlite::{Connection, params};

use super::bloom::Bloom;
use super::run::{self, Facts, Found, LEAST_PARTS, New, Run, UNFINISHED, least_in, packed};
use super::slot_of;

/// How many ids a part has on average: 8 bytes each, and seldom more than a page of 4 KiB.
const IDS_PER_PART: u64 = 440;

/// Adds the ids of a range, in any order.
type Gather<'g> = dyn FnMut(Range<u64>, &mut Vec<Found>) -> rusqlite::Result<()> + 'g;

/// A run in the making.
#[derive(Debug)]
pub(super) struct RunBuilder {
    facts: Facts,
    filter: Bloom,
    /// The next part to be made.
    next: u64,
}

impl RunBuilder {
    /// Begins.
    pub(super) fn begin(connection: &Connection, new: New) -> rusqlite::Result<RunBuilder> {
        let parts = new.ids.div_ceil(IDS_PER_PART).max(LEAST_PARTS);
        let New { from, to, ids, least_ms, .. } = new;
        connection
            .prepare_cached(
                "INSERT INTO ledger_runs (parts, level, first, behind, ids, least_ms) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![parts, UNFINISHED, from, to, ids, least_ms])?;
        let run = connection.last_insert_rowid() as u64;
        Ok(RunBuilder { facts: Facts { run, parts, new }, filter: Bloom::for_ids(ids), next: 0 })
    }

    /// Goes on with what was begun: what is not made in one transaction is merged, and so of the second
    /// level.
    pub(super) fn resume(connection: &Connection, begun: Facts) -> rusqlite::Result<RunBuilder> {
        let facts = Facts { new: New { level: 2, ..begun.new }, ..begun };
        let mut build = RunBuilder { facts, filter: Bloom::for_ids(begun.new.ids), next: 0 };
        begun.each_id(connection, 0..begun.parts as usize, &mut |part, (short, _)| {
            build.filter.add(short);
            build.next = part + 1;
        })?;
        Ok(build)
    }

    /// Makes parts for about so many ids, at least one; says whether these were the last. `gather` is
    /// asked range by range.
    pub(super) fn step(
        &mut self,
        connection: &Connection,
        ids: u64,
        gather: &mut Gather<'_>,
    ) -> rusqlite::Result<bool> {
        let Facts { parts, new, .. } = self.facts;
        // a part of a small run holds few
        let so_many = ids.min(new.ids) * parts / new.ids.max(1);
        let behind = (self.next + so_many.max(1)).min(parts);
        let mut found = Vec::new();
        gather(least_in(self.next, parts)..least_in(behind, parts), &mut found)?;
        found.iter().for_each(|(short, _)| self.filter.add(*short));
        let mut insert =
            connection.prepare_cached("INSERT INTO ledger_parts (part, ids) VALUES (?1, ?2)")?;
        let by_part = ByPart::of(&found, self.next as usize..behind as usize, parts as usize);
        for (part, ids) in by_part.parts().filter(|(_, ids)| !ids.is_empty()) {
            insert.execute(params![self.facts.part(part), ids.as_flattened()])?;
        }
        self.next = behind;
        Ok(behind == parts)
    }

    /// Makes the run known.
    pub(super) fn end(self, connection: &Connection) -> rusqlite::Result<Run> {
        let Facts { run, new, .. } = self.facts;
        connection
            .prepare_cached("UPDATE ledger_runs SET level = ?2 WHERE run = ?1")?
            .execute(params![run, new.level])?;
        run::put_filter(connection, run, &self.filter)?;
        Ok(Run { facts: self.facts, filter: self.filter })
    }
}

/// Ids put into their parts. Within a part they have no order.
struct ByPart {
    first: usize,
    /// For each part where it ends, and one more.
    ends: Vec<usize>,
    ids: Vec<[u8; 8]>,
}

impl ByPart {
    fn of(found: &[Found], range: Range<usize>, parts: usize) -> ByPart {
        let part_of = |short| slot_of(short, parts) - range.start;
        let mut ends = vec![0; range.len() + 1];
        for (short, _) in found {
            ends[part_of(*short) + 1] += 1;
        }
        for part in 0..range.len() {
            ends[part + 1] += ends[part];
        }
        let mut ids = vec![[0; 8]; found.len()];
        // what was the end of the part before is where the next id goes, and so becomes the end
        for id in found {
            let next = &mut ends[part_of(id.0)];
            ids[*next] = packed(*id);
            *next += 1;
        }
        ByPart { first: range.start, ends, ids }
    }

    fn parts(&self) -> impl Iterator<Item = (usize, &[[u8; 8]])> {
        (0..self.ends.len() - 1).map(|part| {
            let from = if part == 0 { 0 } else { self.ends[part - 1] };
            (self.first + part, &self.ids[from..self.ends[part]])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_is_in_its_part() {
        let parts = 300;
        let found: Vec<Found> =
            (0..1000).map(|n| ((n * 277_777_777_777_777) % (1 << 48), 0)).collect();
        let range = 40..90;
        let within = least_in(40, parts)..least_in(90, parts);
        let mine: Vec<Found> = found.into_iter().filter(|id| within.contains(&id.0)).collect();
        let by_part = ByPart::of(&mine, range.clone(), parts as usize);
        let mut count = 0;
        for (part, ids) in by_part.parts() {
            let expected = mine.iter().filter(|id| slot_of(id.0, parts as usize) == part);
            assert_eq!(ids, expected.map(|id| packed(*id)).collect::<Vec<_>>());
            assert!(range.contains(&part));
            count += ids.len();
        }
        assert!(count == mine.len() && count > 100, "{count} of {}", mine.len());
    }
}
