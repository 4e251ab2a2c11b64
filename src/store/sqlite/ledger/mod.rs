//! Every id taken in, and what came with it: entries in the order in which they came, and runs that
//! say where an id is.
//!
//! Entries are written once and never moved. Their ids are kept in memory until there are enough of
//! them for a run, and runs are merged into larger ones. A filter for each run says of nearly every
//! new id that the run does not hold it. What a filter does not rule out is looked up, and compared
//! with its entry. An id that came again after it was forgotten has one entry still: its last.

mod audit;
mod bloom;
mod compaction;
mod cursor;
mod duplicate_check;
mod expire;
mod lookup;
mod memtable;
mod old;
mod ordered_lookup;
mod prefetch;
mod rebuild;
mod row;
mod run;
mod run_builder;
mod scan;

use std::cmp::Reverse;
use std::sync::{Arc, PoisonError};

use rusqlite::{Connection, params};

use crate::engine::{Fact, Seen};
use crate::model::event::{Chunk, HashKey};
use crate::model::refusal::Other;
use crate::store::Prefetch;

use crate::store::sqlite::sizes::Sizes;
pub(super) use audit::{check_entries, check_runs};
use compaction::Compaction;
use cursor::Cursor;
pub(super) use duplicate_check::check_twice;
pub(super) use expire::{Walk, count, forget_some};
pub(super) use lookup::remembered;
use memtable::Memtable;
pub(super) use old::take_over;
pub(super) use ordered_lookup::InOrder;
pub(super) use prefetch::Open;
use prefetch::{Ahead, Hint, Shared};
pub(super) use rebuild::rebuild;
use row::{Entries, Entry, RowWriter};
use run::{New, Run};
use run_builder::RunBuilder;
pub(super) use scan::Reader;

/// For how many ids memory is fetched ahead.
const AT_ONCE: usize = 256;

/// Bits of the hash of an id by which runs are sorted.
const SHORT_BITS: u32 = 48;

/// The bits of a hash that are kept.
fn kept(hash: u128) -> u128 {
    hash >> 32
}

/// The upper bits of what is kept.
fn short_of(kept: u128) -> u64 {
    (kept >> (96 - SHORT_BITS)) as u64
}

/// Into which of so many equal slots a short hash falls; greater ones into later slots.
fn slot_of(short: u64, slots: usize) -> usize {
    ((u128::from(short) * slots as u128) >> SHORT_BITS) as usize
}

/// What a writer has in memory of the ledger.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    memtable: Memtable,
    /// The oldest first.
    runs: Vec<Arc<Run>>,
    /// The same, for who looks ahead of the writer.
    shared: Shared,
    /// The numbers of those that were made since the batch began.
    made: Vec<u64>,
    merging: Option<Compaction>,
    /// How many rows were added since some were forgotten, and how far the entries were walked.
    rows_added: u64,
    walked: u64,
    /// It was loaded, and has forgotten nothing since.
    is_fresh: bool,
    /// Something was done since the batch began that to undo all must be read again.
    must_load: bool,
    /// Rows of the chunk that was looked up last whose ids are known, with their positions.
    hits: Vec<(usize, u64)>,
    // scratch
    hashes: Vec<u128>,
    new: Vec<(u64, u32)>,
    maybe: Vec<(u64, u32)>,
    asked: Vec<(u32, LedgerPosition)>,
    /// For each run whether it was asked ahead.
    is_asked: Vec<bool>,
}

/// Where an id may be; the last that came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LedgerPosition {
    Tail(u64),
    /// With what was found there ahead, if it was: the number of the hit.
    Run(Reverse<usize>, Option<usize>),
}

impl Ledger {
    /// Brings what is in memory up to what the store holds. Filters that are there already are not
    /// read again. `next_position` is the one behind all that were ever given.
    pub(super) fn load(
        &mut self,
        connection: &Connection,
        next_position: u64,
    ) -> rusqlite::Result<()> {
        let mut known = std::mem::take(&mut self.runs);
        let all = run::all(connection)?;
        let (unfinished, finished): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|run| run.new.level == run::UNFINISHED);
        for facts in finished {
            let run = match known.iter().position(|run| run.facts == facts) {
                Some(at) => known.swap_remove(at),
                None => Arc::new(Run { facts, filter: run::filter(connection, facts.run)? }),
            };
            self.runs.push(run);
        }
        self.publish();
        self.must_load = false;
        self.merging = None;
        for begun in unfinished {
            let merging = Compaction::resume(connection, begun, &self.runs)?;
            if merging.is_none() || self.merging.is_some() {
                run::remove(connection, &begun)?;
            }
            self.merging = self.merging.take().or(merging);
        }
        self.hits.clear();
        self.begin_to_forget(connection, next_position)?;
        self.load_tail(connection, next_position)
    }

    /// One that is only asked: what is being merged is left alone.
    pub(super) fn for_reading(
        connection: &Connection,
        next_position: u64,
    ) -> rusqlite::Result<Ledger> {
        let mut ledger = Ledger::default();
        for facts in run::list(connection)? {
            let filter = run::filter(connection, facts.run)?;
            ledger.runs.push(Arc::new(Run { facts, filter }));
        }
        ledger.load_tail(connection, next_position)?;
        Ok(ledger)
    }

    fn load_tail(&mut self, connection: &Connection, next_position: u64) -> rusqlite::Result<()> {
        self.memtable = Memtable::behind(next_position);
        let mut is_first = true;
        let memtable = &mut self.memtable;
        each_row(connection, self.runs.last().map_or(0, |run| run.facts.new.to), |first, row| {
            if std::mem::take(&mut is_first) {
                *memtable = Memtable::behind(first);
            }
            memtable.skip_to(first)?;
            let mut entries = Entries::of(row)?;
            for _ in 0..entries.count() {
                match entries.read()? {
                    Some(entry) => drop(memtable.push(entry.hash, entry.timestamp_ms)),
                    None => memtable.skip_to(memtable.next() + 1)?,
                }
            }
            Ok(())
        })?;
        memtable.skip_to(next_position)?;
        Ok(())
    }

    /// The position that the next entry gets; never given twice.
    pub(super) fn next_position(&self) -> u64 {
        self.memtable.next()
    }

    fn publish(&self) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        *shared = Arc::new(self.runs.clone());
    }

    /// What looks at chunks ahead of the writer.
    pub(super) fn prefetch(&self, key: HashKey, open: Open) -> Box<dyn Prefetch> {
        Box::new(Ahead::new(Arc::clone(&self.shared), key, open))
    }

    /// What was added since the batch began stays.
    pub(super) fn keep(&mut self) {
        self.made.clear();
        self.must_load = false;
        self.hits.clear();
    }

    /// Forgets what a batch that is undone has added from that position on; false when that cannot
    /// be done without reading all again.
    pub(super) fn undo(&mut self, position: u64) -> bool {
        self.hits.clear();
        // what is made another time may look the same, and hold something else
        let made = std::mem::take(&mut self.made);
        self.runs.retain(|run| !made.contains(&run.facts.run));
        let can = !self.must_load && position >= self.memtable.from();
        if can {
            self.memtable.truncate(position);
        }
        can
    }

    /// Writes into `facts`, one for each event of the chunk, what is known of its id. What is older
    /// than `oldest_ms` counts as forgotten.
    pub(super) fn lookup(
        &mut self,
        connection: &Connection,
        chunk: &Chunk,
        key: HashKey,
        oldest_ms: i64,
        facts: &mut Vec<Fact>,
    ) -> rusqlite::Result<()> {
        facts.clear();
        facts.resize(chunk.len(), Fact::New);
        let hint = chunk.hint().and_then(|hint| hint.downcast_ref::<Hint>());
        self.ask(chunk, key, hint);
        let mut cursor = Cursor::new(connection)?;
        for places in self.asked.chunk_by(|one, other| one.0 == other.0) {
            let row = places[0].0 as usize;
            let hash = self.hashes[row];
            let seen = |entry: &Entry<'_>| Fact::Seen(Seen::of(entry, &chunk.event(row)));
            // what is sent again comes in the order in which it came before; an entry that is not
            // forgotten is the only one of its id
            let next = cursor.behind()?;
            if let Some(entry) =
                next.filter(|next| next.hash == hash && next.timestamp_ms >= oldest_ms)
            {
                facts[row] = seen(&entry);
                self.hits.push((row, cursor.position()));
                continue;
            }
            for (_, place) in places {
                if let (LedgerPosition::Run(_, Some(hit)), Some(hint)) = (place, hint) {
                    facts[row] = Fact::Seen(hint.hits[*hit].seen);
                    self.hits.push((row, hint.hits[*hit].position));
                    break;
                }
                let found = self.find_at(&mut cursor, *place, hash, |entry| seen(entry))?;
                if let Some(fact) = found {
                    facts[row] = fact;
                    self.hits.push((row, cursor.position()));
                    break;
                }
            }
        }
        Ok(())
    }

    /// Finds out where ids of the chunk may be: by row, and for each the last place first.
    fn ask(&mut self, chunk: &Chunk, key: HashKey, hint: Option<&Hint>) {
        self.hits.clear();
        self.new.clear();
        self.asked.clear();
        self.hashes.clear();
        self.hashes.extend((0..chunk.len()).map(|row| kept(chunk.id_hash_under(row, key))));
        let mut rows = 0..;
        for hashes in self.hashes.chunks(AT_ONCE) {
            self.memtable.warm(hashes);
            for (hash, row) in hashes.iter().zip(&mut rows) {
                match self.memtable.find(*hash) {
                    Some(position) => self.asked.push((row, LedgerPosition::Tail(position))),
                    None => self.new.push((short_of(*hash), row)),
                }
            }
        }
        self.is_asked.clear();
        self.is_asked.resize(self.runs.len(), false);
        if let Some(hint) = hint {
            let places = hint.places_in(&self.runs);
            places.iter().flatten().for_each(|place| self.is_asked[*place] = true);
            // what was found in a run that is gone is found again in the one that took its place
            let maybe = hint.maybe.iter().map(|(row, run)| (*row, *run, None));
            let hits = hint.hits.iter().enumerate().map(|(hit, of)| (of.row, of.run, Some(hit)));
            self.asked.extend(maybe.chain(hits).filter_map(|(row, run, hit)| {
                places[run].map(|place| (row, LedgerPosition::Run(Reverse(place), hit)))
            }));
        }
        let mut is_sorted = false;
        for (place, run) in self.runs.iter().enumerate().filter(|(place, _)| !self.is_asked[*place])
        {
            if !std::mem::replace(&mut is_sorted, true) {
                // a filter lies in the order of the ids
                self.new.sort_unstable();
            }
            self.maybe.clear();
            run.filter.select(&self.new, &mut self.maybe);
            let place = LedgerPosition::Run(Reverse(place), None);
            self.asked.extend(self.maybe.iter().map(|(_, row)| (*row, place)));
        }
        self.asked.sort_unstable();
    }

    /// What `of` makes of the entry of that id, if it is in that place; the cursor then stands there.
    fn find_at<T>(
        &self,
        cursor: &mut Cursor<'_>,
        place: LedgerPosition,
        hash: u128,
        of: impl Fn(&Entry<'_>) -> T,
    ) -> rusqlite::Result<Option<T>> {
        let positions = match place {
            LedgerPosition::Tail(position) => vec![position],
            LedgerPosition::Run(Reverse(run), _) => {
                cursor.positions(&self.runs[run].facts, short_of(hash))?
            }
        };
        cursor.find(&positions, hash, of)
    }

    /// Remembers the events in those rows. Where an id is known, be it forgotten by the horizon, its
    /// entry before goes; of two rows with one id the last one stays.
    pub(super) fn record(
        &mut self,
        connection: &Connection,
        chunk: &Chunk,
        key: HashKey,
        rows: &[usize],
        batch: u64,
    ) -> rusqlite::Result<()> {
        let mut again: Vec<(u64, u128)> = Vec::new();
        let mut writer = RowWriter::default();
        let mut first = self.memtable.next();
        let mut insert = connection
            .prepare_cached("INSERT INTO ledger_entries (first, entries) VALUES (?1, ?2)")?;
        let mut hits = self.hits.iter().peekable();
        for rows in rows.chunks(AT_ONCE) {
            self.hashes.clear();
            self.hashes.extend(rows.iter().map(|row| kept(chunk.id_hash_under(*row, key))));
            self.memtable.warm(&self.hashes);
            for (row, hash) in rows.iter().zip(&self.hashes) {
                let hash = *hash;
                let entry = Entry {
                    hash,
                    batch,
                    event_index: chunk.first_index() + *row as u64,
                    timestamp_ms: chunk.timestamp_ms(*row),
                    value: chunk.value(*row),
                    key: chunk.key(chunk.key_slot(*row)),
                };
                if !writer.has_room_for(&entry) {
                    insert.execute(params![first, writer.take()])?;
                    self.rows_added += 1;
                    first = self.memtable.next();
                }
                writer.push(&entry);
                while hits.next_if(|(hit, _)| hit < row).is_some() {}
                again.extend(hits.next_if(|(hit, _)| hit == row).map(|(_, at)| (*at, hash)));
                again.extend(self.memtable.push(hash, entry.timestamp_ms).map(|at| (at, hash)));
            }
        }
        if writer.count() > 0 {
            insert.execute(params![first, writer.take()])?;
            self.rows_added += 1;
        }
        self.hits.clear();
        again.sort_unstable();
        again.dedup();
        for (position, hash) in again {
            self.must_load = true;
            expire::forget_one(connection, position, hash)?;
        }
        Ok(())
    }

    /// How many entries are in no run yet.
    pub(super) fn tail_entries(&self) -> u64 {
        self.memtable.next() - self.memtable.from()
    }

    /// Makes a run of what came last.
    pub(super) fn make_run(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.must_load = true;
        let memtable = &self.memtable;
        let new = New {
            level: 1,
            from: memtable.from(),
            to: memtable.next(),
            ids: memtable.len() as u64,
            least_ms: memtable.least_ms(),
        };
        let mut build = RunBuilder::begin(connection, new)?;
        build.step(connection, u64::MAX, &mut |_, ids| {
            ids.extend(memtable.ids().map(|(hash, place)| (short_of(hash), place)));
            Ok(())
        })?;
        let made = build.end(connection)?;
        self.made.push(made.facts.run);
        self.runs.push(Arc::new(made));
        self.publish();
        self.memtable.restart();
        Ok(())
    }

    /// Whether there are many more runs than a merge takes: where others write all the time, none that
    /// is done in steps comes to its end.
    pub(super) fn is_behind(&self, sizes: &Sizes) -> bool {
        let of_first = self.runs.iter().filter(|run| run.facts.new.level == 1).count();
        of_first >= 3 * sizes.merged_runs
    }

    /// Goes on merging, for about so many ids, where there are enough runs of one level.
    pub(super) fn merge_some(
        &mut self,
        connection: &Connection,
        sizes: &Sizes,
        ids: u64,
    ) -> rusqlite::Result<()> {
        let mut merging = match self.merging.take() {
            Some(merging) => merging,
            None => match Compaction::begin(connection, &self.runs, sizes)? {
                Some(merging) => merging,
                None => return Ok(()),
            },
        };
        self.must_load = true;
        if !merging.step(connection, ids)? {
            self.merging = Some(merging);
            return Ok(());
        }
        let (merged, made) = merging.end(connection)?;
        self.runs.retain(|run| !merged.contains(&run.facts));
        let place = self.runs.partition_point(|run| run.facts.new.from < made.facts.new.from);
        self.made.push(made.facts.run);
        self.runs.insert(place, Arc::new(made));
        self.publish();
        Ok(())
    }

    /// What the ledger holds of an id, for a conflict.
    pub(super) fn describe(
        &self,
        connection: &Connection,
        id_hash: u128,
        seen: &Seen,
        other: &mut Other,
    ) -> rusqlite::Result<()> {
        let hash = kept(id_hash);
        let mut cursor = Cursor::new(connection)?;
        let memtable = self.memtable.find(hash).map(LedgerPosition::Tail).into_iter();
        let runs = (0..self.runs.len())
            .rev()
            .filter(|place| self.runs[*place].filter.may_hold(short_of(hash)));
        for place in memtable.chain(runs.map(|place| LedgerPosition::Run(Reverse(place), None))) {
            let found = self.find_at(&mut cursor, place, hash, |entry| {
                ((entry.batch, entry.event_index), entry.key.to_owned(), entry.value)
            })?;
            if let Some((event, key, value)) = found
                && event == (seen.batch, seen.event_index)
            {
                other.key = Some(key);
                other.value = Some(value);
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Shows each row of entries from that position on.
fn each_row(
    connection: &Connection,
    from: u64,
    mut each: impl FnMut(u64, &[u8]) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "SELECT first, entries FROM ledger_entries WHERE first >= ?1 ORDER BY first",
    )?;
    let mut rows = statement.query(params![from])?;
    while let Some(row) = rows.next()? {
        each(row.get(0)?, row.get_ref(1)?.as_blob()?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
