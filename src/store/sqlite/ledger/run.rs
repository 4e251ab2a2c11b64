//! A run: the ids of a stretch of entries, each with its place in it, in sorted parts of a page.
//!
//! Of an id the upper 48 bits of its hash are kept. A part holds a range of them: how many parts
//! there are says which part an id is in, and so its upper bits need not be kept. What stands for
//! an id are 8 bytes: the lower 40 of the 48 bits, and its place from the first entry of the run on.
//! What an id is compared by in the end stands in its entry.

use rusqlite::blob::ZeroBlob;
use rusqlite::{Connection, ErrorCode, MAIN_DB, Row, params};

use super::bloom::Bloom;
use super::{SHORT_BITS, slot_of};
use crate::store::sqlite::codec::Damaged;

/// The fewest parts: the upper bits that are not kept are known from the number of the part.
pub(super) const LEAST_PARTS: u64 = 1 << (SHORT_BITS - LOW_BITS);

const LOW_BITS: u32 = 40;
const LOW: u64 = (1 << LOW_BITS) - 1;
const PLACE_BITS: u32 = 64 - LOW_BITS;

/// The most entries that a run can reach over.
pub(super) const MAX_ENTRIES: u64 = 1 << PLACE_BITS;

/// An id on its way into a run: the upper 48 bits of its hash, and its place.
pub(super) type Found = (u64, u32);

/// What stands for an id in a part.
pub(super) fn packed((short, place): Found) -> [u8; 8] {
    ((short & LOW) << PLACE_BITS | u64::from(place)).to_be_bytes()
}

/// The upper bits of the hash of an id and its place, from what stands for it in a part whose least
/// short hash that is.
pub(super) fn unpacked(id: [u8; 8], least: u64) -> (u64, u64) {
    let id = u64::from_be_bytes(id);
    // the first at or above the least of the part that has these lower bits
    let short = least + ((id >> PLACE_BITS).wrapping_sub(least) & LOW);
    // damaged ones may lie behind all that there can be
    let short = short & ((1 << SHORT_BITS) - 1);
    (short, id & (MAX_ENTRIES - 1))
}

/// The level of a run that is being made.
pub(super) const UNFINISHED: u64 = 0;

/// What is known of a run before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct New {
    /// 1 when it is made of what came last, one more than theirs when it is merged from others.
    pub(super) level: u64,
    /// The position of its first entry, and of the first behind it.
    pub(super) from: u64,
    pub(super) to: u64,
    /// How many ids it holds.
    pub(super) ids: u64,
    /// The least timestamp that came with them.
    pub(super) least_ms: i64,
}

/// What is known of a run without looking into its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) run: u64,
    pub(super) parts: u64,
    pub(super) new: New,
}

/// A run with its filter.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) facts: Facts,
    pub(super) filter: Bloom,
}

impl Facts {
    /// Whether these are sizes that a run can have.
    pub(super) fn are_sound(&self) -> bool {
        let reaches = self.new.to.saturating_sub(self.new.from);
        self.run < 1 << (63 - PLACE_BITS)
            && (1..=MAX_ENTRIES).contains(&reaches)
            && (LEAST_PARTS..MAX_ENTRIES).contains(&self.parts)
            && self.new.ids <= reaches
    }

    /// Where a part is kept.
    pub(super) fn part(&self, part: usize) -> u64 {
        self.run << 24 | part as u64
    }

    /// Where the part of an id is kept.
    pub(super) fn part_of(&self, short: u64) -> u64 {
        self.part(slot_of(short, self.parts as usize))
    }

    /// The positions that an id may have, given its part, the last first.
    pub(super) fn positions(&self, part: &[u8], short: u64) -> Vec<u64> {
        let low = short & LOW;
        let (ids, _) = part.as_chunks::<8>();
        let found =
            ids.iter().map(|id| u64::from_be_bytes(*id)).filter(|id| id >> PLACE_BITS == low);
        let mut positions: Vec<u64> =
            found.map(|id| self.new.from + (id & (MAX_ENTRIES - 1))).collect();
        positions.sort_unstable_by_key(|position| std::cmp::Reverse(*position));
        positions
    }

    /// Adds those of its ids that are in the range, with places that count from `from` on.
    pub(super) fn ids_in(
        &self,
        connection: &Connection,
        range: std::ops::Range<u64>,
        from: u64,
        ids: &mut Vec<Found>,
    ) -> rusqlite::Result<()> {
        let parts = self.parts as usize;
        let (first, last) = (slot_of(range.start, parts), slot_of(range.end - 1, parts));
        let before = self.new.from - from;
        self.each_id(connection, first..last + 1, &mut |_, (short, place)| {
            if range.contains(&short) {
                ids.push((short, (before + u64::from(place)) as u32));
            }
        })
    }

    /// Shows the ids of those parts that there are, each with the number of its part.
    pub(super) fn each_id(
        &self,
        connection: &Connection,
        parts: std::ops::Range<usize>,
        each: &mut dyn FnMut(u64, Found),
    ) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(
            "SELECT part, ids FROM ledger_parts WHERE part >= ?1 AND part < ?2 ORDER BY part",
        )?;
        let mut rows = statement.query(params![self.part(parts.start), self.part(parts.end)])?;
        while let Some(row) = rows.next()? {
            let part = row.get::<_, u64>(0)? & (MAX_ENTRIES - 1);
            let least = least_in(part, self.parts);
            for id in row.get_ref(1)?.as_blob()?.as_chunks::<8>().0 {
                let (short, place) = unpacked(*id, least);
                each(part, (short, place as u32));
            }
        }
        Ok(())
    }
}

/// The least short hash that belongs to a part.
pub(super) fn least_in(part: u64, parts: u64) -> u64 {
    (u128::from(part) << SHORT_BITS).div_ceil(u128::from(parts)) as u64
}

/// The runs that there are, the oldest first.
pub(super) fn list(connection: &Connection) -> rusqlite::Result<Vec<Facts>> {
    let mut runs = all(connection)?;
    runs.retain(|run| run.new.level != UNFINISHED);
    Ok(runs)
}

/// The same, with what is unfinished.
pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<Facts>> {
    let sql = "SELECT run, parts, level, first, behind, ids, least_ms FROM ledger_runs";
    let read = |row: &Row<'_>| {
        let new = New {
            level: row.get(2)?,
            from: row.get(3)?,
            to: row.get(4)?,
            ids: row.get(5)?,
            least_ms: row.get(6)?,
        };
        Ok(Facts { run: row.get(0)?, parts: row.get(1)?, new })
    };
    let mut runs: Vec<Facts> =
        connection.prepare_cached(sql)?.query_map([], read)?.collect::<rusqlite::Result<_>>()?;
    runs.sort_unstable_by_key(|run| run.new.from);
    Ok(runs)
}

/// The filter of a run. It is read in place: a query would have a second copy of it made.
pub(super) fn filter(connection: &Connection, run: u64) -> rusqlite::Result<Bloom> {
    let bits = connection.blob_open(MAIN_DB, "ledger_filters", "bits", run as i64, true);
    let bits = bits.map_err(|error| match error.sqlite_error_code() {
        // there is none, or it is a number
        Some(ErrorCode::Unknown) => Damaged.into(),
        _ => error,
    })?;
    let mut bytes = vec![0; bits.len()];
    bits.read_at_exact(&mut bytes, 0)?;
    Bloom::from_bytes(bytes).ok_or_else(|| Damaged.into())
}

/// Keeps the filter of a run. It is written in place, for the same reason.
pub(super) fn put_filter(
    connection: &Connection,
    run: u64,
    filter: &Bloom,
) -> rusqlite::Result<()> {
    let bytes = filter.bytes();
    connection
        .prepare_cached("INSERT INTO ledger_filters (run, bits) VALUES (?1, ?2)")?
        .execute(params![run, ZeroBlob(bytes.len() as i32)])?;
    let mut bits = connection.blob_open(MAIN_DB, "ledger_filters", "bits", run as i64, false)?;
    bits.write_all_at(bytes, 0)
}

/// Takes a run away, not its entries.
pub(super) fn remove(connection: &Connection, facts: &Facts) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM ledger_parts WHERE part BETWEEN ?1 AND ?2")?
        .execute(params![facts.part(0), facts.part(facts.parts as usize - 1)])?;
    for sql in
        ["DELETE FROM ledger_filters WHERE run = ?1", "DELETE FROM ledger_runs WHERE run = ?1"]
    {
        connection.prepare_cached(sql)?.execute(params![facts.run])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_is_not_there_or_is_none_is_damage_not_a_fault_of_the_disk() {
        let store = Connection::open_in_memory().unwrap();
        let table = "CREATE TABLE ledger_filters (run INTEGER PRIMARY KEY, bits BLOB);
                     INSERT INTO ledger_filters VALUES (1, 7), (2, NULL), (3, x'00')";
        store.execute_batch(table).unwrap();
        for run in 1..5 {
            let error = filter(&store, run).unwrap_err();
            assert!(error.sqlite_error().is_none(), "{run}: {error}");
        }
        let whole = Bloom::for_ids(100);
        put_filter(&store, 5, &whole).unwrap();
        assert_eq!(filter(&store, 5).unwrap(), whole);
    }

    #[test]
    fn a_part_begins_where_the_one_before_ends() {
        for parts in [256, 257, 1191, 9091] {
            for part in [0, 1, 100, parts - 1] {
                let least = least_in(part, parts);
                assert_eq!(slot_of(least, parts as usize), part as usize);
                assert!(part == 0 || slot_of(least - 1, parts as usize) == part as usize - 1);
            }
            assert_eq!(least_in(parts, parts), 1 << SHORT_BITS);
        }
    }
}
