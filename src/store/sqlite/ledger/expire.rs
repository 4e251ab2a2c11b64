//! Entries that are forgotten: single ones, and those behind the horizon, some rows at a time.
//!
//! With a horizon, each batch forgets in step with what it adds: for each row that it writes, two
//! are looked at, round and round. So the ledger never holds more than about twice what the horizon
//! remembers, in whatever order times come. What is forgotten has no part in any answer by then:
//! when it goes changes no result.

use rusqlite::{Connection, OptionalExtension, params};

use super::row::{Entry, without};
use super::scan::Reader;
use super::{Ledger, run};
use crate::store::sqlite::tables::removed::{self, Kind, Removed};

/// How many rows are looked at for each that was added.
const ROWS_A_ROW: u64 = 2;

/// The most rows that one batch looks at: about a tenth of a second.
const MOST_ROWS: u64 = 1 << 14;

/// How far the entries were walked through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store::sqlite) struct Walk {
    /// The position from which on it goes on.
    pub(in crate::store::sqlite) from: u64,
    /// How many ids went in this step.
    pub(in crate::store::sqlite) gone: u64,
    /// Whether all was looked at.
    pub(in crate::store::sqlite) is_over: bool,
}

/// Forgets the entry of that id at a position.
pub(super) fn forget_one(
    connection: &Connection,
    position: u64,
    hash: u128,
) -> rusqlite::Result<()> {
    let found: Option<(u64, Vec<u8>)> = connection
        .prepare_cached(
            "SELECT first, entries FROM ledger_entries WHERE first <= ?1 \
             ORDER BY first DESC LIMIT 1",
        )?
        .query_row(params![position], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((first, row)) = found else { return Ok(()) };
    let is_it = |place: u64, entry: &Entry<'_>| first + place == position && entry.hash == hash;
    let gone = replace(connection, first, without(&row, is_it)?)?;
    count_out(connection, gone)
}

/// Notes how many ids are forgotten: with those that are there they are all that ever came.
fn count_out(connection: &Connection, gone: u64) -> rusqlite::Result<()> {
    let more = Removed { rows: gone as i64, ..Removed::default() };
    removed::add(connection, Kind::Ids, &more)
}

/// Forgets what is older than `from_ms` in at most `rows` rows behind `walk`. Runs that hold nothing
/// so old are passed over, and one of which all is forgotten goes as a whole.
pub(in crate::store::sqlite) fn forget_some(
    connection: &Connection,
    from_ms: i64,
    rows: usize,
    walk: &Walk,
) -> rusqlite::Result<Walk> {
    let runs = run::list(connection)?;
    let (step, _) = forget_rows(connection, &runs, from_ms, rows as u64, walk.from..END)?;
    if step.gone > 0 {
        for run in &runs {
            if is_empty(connection, run)? {
                run::remove(connection, run)?;
            }
        }
    }
    Ok(step)
}

/// Forgets in at most so many rows of the first stretch within `within` that may hold something so
/// old; also how many rows it looked at.
fn forget_rows(
    connection: &Connection,
    runs: &[run::Facts],
    from_ms: i64,
    rows: u64,
    within: std::ops::Range<u64>,
) -> rusqlite::Result<(Walk, u64)> {
    let (from, to) = next_stretch(runs, within.start, from_ms);
    let to = to.min(within.end);
    let found: Vec<(u64, Vec<u8>)> = connection
        .prepare_cached(
            "SELECT first, entries FROM ledger_entries WHERE first >= ?1 AND first < ?2 \
             ORDER BY first LIMIT ?3",
        )?
        .query_map(params![from, to, rows], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut gone = 0;
    for (first, row) in &found {
        let kept = without(row, |_, entry| entry.timestamp_ms < from_ms)?;
        gone += replace(connection, *first, kept)?;
    }
    count_out(connection, gone)?;
    let is_over = (found.len() as u64) < rows && to == within.end;
    let from = match found.last() {
        Some((first, _)) if found.len() as u64 == rows => first + 1,
        _ => to,
    };
    Ok((Walk { from, gone, is_over }, found.len() as u64))
}

/// Whether all entries of a run are forgotten.
fn is_empty(connection: &Connection, run: &run::Facts) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(
            "SELECT NOT EXISTS (SELECT 1 FROM ledger_entries WHERE first >= ?1 AND first < ?2)",
        )?
        .query_row(params![run.new.from, run.new.to], |row| row.get(0))
}

impl Ledger {
    /// What has begun anew forgets at its first batch already, from some row on: processes that take
    /// in one small batch each keep up as well, whatever is left of old rows at the front.
    pub(super) fn begin_to_forget(
        &mut self,
        connection: &Connection,
        next_position: u64,
    ) -> rusqlite::Result<()> {
        let first: Option<u64> = connection
            .prepare_cached("SELECT MIN(first) FROM ledger_entries")?
            .query_row([], |row| row.get(0))?;
        let first = first.unwrap_or(next_position);
        // another place after each batch
        let mixed = next_position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.walked = first + mixed % (next_position - first).max(1);
        self.is_fresh = true;
        Ok(())
    }

    /// Forgets some of what is older than `from_ms`, in step with the rows that were added: nothing
    /// before at least `least_rows` are to be looked at. To be called at the end of a batch, whose
    /// events are all judged.
    pub(in crate::store::sqlite) fn forget_in_step(
        &mut self,
        connection: &Connection,
        from_ms: i64,
        least_rows: u64,
    ) -> rusqlite::Result<()> {
        let owed = (ROWS_A_ROW * self.rows_added).min(MOST_ROWS);
        if least_rows == u64::MAX || (owed < least_rows && !self.is_fresh) {
            return Ok(());
        }
        (self.rows_added, self.is_fresh) = (0, false);
        let mut left = owed.max(least_rows);
        let runs: Vec<run::Facts> = self.runs.iter().map(|run| run.facts).collect();
        // what came last is mostly young
        let end = if self.memtable.least_ms() < from_ms { END } else { self.memtable.from() };
        let mut gone = 0;
        while left > 0 {
            let within = self.walked.min(end)..end;
            let (step, looked) = forget_rows(connection, &runs, from_ms, left, within)?;
            (gone, left) = (gone + step.gone, left - looked);
            self.walked = if step.is_over { 0 } else { step.from };
            if step.is_over {
                break;
            }
        }
        if gone > 0 {
            self.drop_empty_runs(connection, &runs)?;
        }
        Ok(())
    }

    /// Takes away the runs of which all is forgotten; what is being merged waits until it is.
    fn drop_empty_runs(
        &mut self,
        connection: &Connection,
        runs: &[run::Facts],
    ) -> rusqlite::Result<()> {
        for run in runs {
            let is_merged = self.merging.as_ref().is_some_and(|now| now.merged.contains(run));
            if !is_merged && is_empty(connection, run)? {
                run::remove(connection, run)?;
                self.must_load = true;
                self.runs.retain(|known| known.facts != *run);
                self.publish();
            }
        }
        Ok(())
    }
}

/// How many ids are there, by walking through all of them.
pub(in crate::store::sqlite) fn count(connection: &Connection) -> rusqlite::Result<u64> {
    let mut reader = Reader::new(connection, 0)?;
    let mut count = 0;
    while reader.advance()? {
        count += u64::from(reader.entry().is_some());
    }
    Ok(count)
}

/// Behind all positions.
const END: u64 = i64::MAX as u64;

/// The next positions that may hold something older, from `from` on: up to a run that does not.
fn next_stretch(runs: &[run::Facts], mut from: u64, from_ms: i64) -> (u64, u64) {
    for run in runs.iter().map(|run| run.new).filter(|run| run.least_ms >= from_ms) {
        if run.from > from {
            return (from, run.from);
        }
        from = from.max(run.to);
    }
    (from, END)
}

/// Puts what is left of a row in its place; how many entries went.
fn replace(
    connection: &Connection,
    first: u64,
    (kept, gone): (Option<Vec<u8>>, u64),
) -> rusqlite::Result<u64> {
    match kept {
        _ if gone == 0 => {}
        Some(row) => {
            connection
                .prepare_cached("UPDATE ledger_entries SET entries = ?2 WHERE first = ?1")?
                .execute(params![first, row])?;
        }
        None => {
            connection
                .prepare_cached("DELETE FROM ledger_entries WHERE first = ?1")?
                .execute(params![first])?;
        }
    }
    Ok(gone)
}
