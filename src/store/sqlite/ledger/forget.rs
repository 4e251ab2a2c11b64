//! Entries that are forgotten: single ones, and those behind the horizon, some rows at a time.

use rusqlite::{Connection, OptionalExtension, params};

use super::row::{Entry, without};
use super::run;

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
    replace(connection, first, without(&row, is_it)?).map(|_| ())
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
    let (from, to) = next_stretch(&runs, walk.from, from_ms);
    let found: Vec<(u64, Vec<u8>)> = connection
        .prepare_cached(
            "SELECT first, entries FROM ledger_entries WHERE first >= ?1 AND first < ?2 \
             ORDER BY first LIMIT ?3",
        )?
        .query_map(params![from, to, rows as u64], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut gone = 0;
    for (first, row) in &found {
        let kept = without(row, |_, entry| entry.timestamp_ms < from_ms)?;
        gone += replace(connection, *first, kept)?;
    }
    let is_over = found.len() < rows && to == END;
    let from = match found.last() {
        Some((first, _)) if found.len() == rows => first + 1,
        _ => to,
    };
    if gone > 0 {
        for run in runs {
            let is_empty: bool = connection
                .prepare_cached(
                    "SELECT NOT EXISTS (SELECT 1 FROM ledger_entries \
                     WHERE first >= ?1 AND first < ?2)",
                )?
                .query_row(params![run.new.from, run.new.to], |row| row.get(0))?;
            if is_empty {
                run::remove(connection, &run)?;
            }
        }
    }
    Ok(Walk { from, gone, is_over })
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
