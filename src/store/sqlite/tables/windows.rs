//! What each window holds, what it held before it was corrected, and the moves of the watermark
//! that closed some.

use std::collections::HashMap;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use crate::engine::totals::{Delta, Totals};
use crate::engine::window::{self, WindowId};
use crate::engine::{Changes, Move};
use crate::store::{MoveRow, Overflowing, RevisionRow};

/// What a chunk did to the windows.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// How many held nothing before.
    pub(crate) new: u64,
    /// How many that hold something became final, by each move.
    pub(crate) closed: Vec<u64>,
    /// How many have their first revision.
    pub(crate) corrected: u64,
}

/// For a chunk that corrects final windows, when all that is known of windows is in the table: adds to
/// each window what the chunk brings, keeps the moves that closed some, then corrects what is
/// final. Otherwise the windows that would leave their range: nothing is to be relied on then.
pub(crate) fn write(
    connection: &Connection,
    window_ms: i64,
    changes: &Changes<'_>,
    batch: u64,
) -> rusqlite::Result<Result<Written, Vec<Overflowing>>> {
    let mut written = Written::default();
    let mut overflowing = Vec::new();
    // only a window that is corrected in the very chunk that it closed in is in both lists
    let mut before: Before<'_> = changes.corrections.iter().map(|(id, _)| (*id, None)).collect();
    add(connection, &changes.windows, &mut before, &mut written, &mut overflowing)?;
    written.closed = close(connection, window_ms, &changes.moves, batch, &|_, _| 0)?;
    correct(connection, &changes.corrections, batch, &before, &mut written, &mut overflowing)?;
    overflowing.sort_unstable_by(|a, b| (a.start_ms, &a.key).cmp(&(b.start_ms, &b.key)));
    Ok(if overflowing.is_empty() { Ok(written) } else { Err(overflowing) })
}

/// For each window that is corrected, what it held before the chunk, if the chunk adds to it as
/// well.
type Before<'c> = HashMap<WindowId<'c>, Option<Option<Totals>>>;

fn add<'c>(
    connection: &Connection,
    windows: &[(WindowId<'c>, Delta)],
    corrected: &mut Before<'c>,
    written: &mut Written,
    overflowing: &mut Vec<Overflowing>,
) -> rusqlite::Result<()> {
    let (mut find, mut put) = (Find::new(connection)?, Put::new(connection)?);
    for (id, delta) in windows {
        let before = find.totals(id)?;
        if let Some(held) = corrected.get_mut(id) {
            *held = Some(before);
        }
        let Ok(after) = delta.added_to(before) else {
            overflowing.push(overflow(id, before));
            continue;
        };
        written.new += u64::from(before.is_none());
        put.totals(id, &after)?;
    }
    Ok(())
}

/// Asks what windows hold.
pub(crate) struct Find<'c>(CachedStatement<'c>);

impl<'c> Find<'c> {
    pub(crate) fn new(connection: &'c Connection) -> rusqlite::Result<Find<'c>> {
        let sql = "SELECT count, sum, min, max FROM windows WHERE start_ms = ?1 AND key = ?2";
        connection.prepare_cached(sql).map(Find)
    }

    pub(crate) fn totals(&mut self, id: &WindowId<'_>) -> rusqlite::Result<Option<Totals>> {
        self.0.query_row(params![id.start_ms, id.key], |row| totals(row, 0)).optional()
    }
}

/// How many new windows are written by one statement: it finds the place of the next beside that of
/// the one before.
const NEW_AT_ONCE: usize = 64;

/// Writes what windows hold; their revisions stay.
pub(crate) struct Put<'c> {
    any: CachedStatement<'c>,
    new: CachedStatement<'c>,
    many: CachedStatement<'c>,
}

impl<'c> Put<'c> {
    pub(crate) fn new(connection: &'c Connection) -> rusqlite::Result<Put<'c>> {
        let sql = "INSERT INTO windows (start_ms, key, count, sum, min, max) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE SET \
                   count = excluded.count, sum = excluded.sum, min = excluded.min, \
                   max = excluded.max";
        let new = "INSERT INTO windows (start_ms, key, count, sum, min, max) \
                   VALUES (?, ?, ?, ?, ?, ?)";
        let many = format!("{new}{}", ", (?, ?, ?, ?, ?, ?)".repeat(NEW_AT_ONCE - 1));
        Ok(Put {
            any: connection.prepare_cached(sql)?,
            new: connection.prepare_cached(new)?,
            many: connection.prepare_cached(&many)?,
        })
    }

    pub(crate) fn totals(&mut self, id: &WindowId<'_>, totals: &Totals) -> rusqlite::Result<()> {
        let Totals { count, sum, min, max } = totals;
        self.any.execute(params![id.start_ms, id.key, count, sum, min, max]).map(|_| ())
    }

    /// The same for windows that are not there, in their order, at less cost.
    pub(crate) fn new_totals(&mut self, all: &[(WindowId<'_>, Totals)]) -> rusqlite::Result<()> {
        let (many, rest) = all.as_chunks::<NEW_AT_ONCE>();
        for windows in many {
            for (place, (id, totals)) in windows.iter().enumerate() {
                let Totals { count, sum, min, max } = totals;
                let first = 6 * place + 1;
                self.many.raw_bind_parameter(first, id.start_ms)?;
                self.many.raw_bind_parameter(first + 1, id.key)?;
                for (number, column) in [count, sum, min, max].into_iter().zip(first + 2..) {
                    self.many.raw_bind_parameter(column, number)?;
                }
            }
            self.many.raw_execute()?;
        }
        for (id, Totals { count, sum, min, max }) in rest {
            self.new.execute(params![id.start_ms, id.key, count, sum, min, max])?;
        }
        Ok(())
    }
}

fn correct<'c>(
    connection: &Connection,
    corrections: &[(WindowId<'c>, Delta)],
    batch: u64,
    added: &Before<'c>,
    written: &mut Written,
    overflowing: &mut Vec<Overflowing>,
) -> rusqlite::Result<()> {
    let mut find = connection.prepare_cached(
        "SELECT count, sum, min, max, revision, revised_in FROM windows \
         WHERE start_ms = ?1 AND key = ?2",
    )?;
    let mut keep = connection.prepare_cached(
        "INSERT INTO revisions (start_ms, key, revision, count, sum, min, max, corrected_in) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let mut put = connection.prepare_cached(
        "INSERT INTO windows (start_ms, key, count, sum, min, max, revision, revised_in) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO UPDATE SET \
         count = excluded.count, sum = excluded.sum, min = excluded.min, max = excluded.max, \
         revision = excluded.revision, revised_in = excluded.revised_in",
    )?;
    for (id, delta) in corrections {
        let read = |row: &Row<'_>| {
            Ok((totals(row, 0)?, row.get::<_, u64>(4)?, row.get::<_, Option<u64>>(5)?))
        };
        let found = find.query_row(params![id.start_ms, id.key], read).optional()?;
        let held = found.map(|(totals, _, _)| totals);
        let Ok(after) = delta.added_to(held) else {
            if !overflowing.iter().any(|one| (one.start_ms, &*one.key) == (id.start_ms, id.key)) {
                let before = added.get(id).copied().flatten().unwrap_or(held);
                overflowing.push(overflow(id, before));
            }
            continue;
        };
        let revision = match found {
            None => 1,
            Some((_, revision, Some(revised_in))) if revised_in == batch => revision,
            Some((Totals { count, sum, min, max }, revision, _)) => {
                let (start_ms, key) = (id.start_ms, id.key);
                keep.execute(params![start_ms, key, revision, count, sum, min, max, batch])?;
                revision + 1
            }
        };
        written.new += u64::from(found.is_none());
        written.corrected += u64::from(found.is_none_or(|(_, revision, _)| revision == 0));
        let Totals { count, sum, min, max } = after;
        put.execute(params![id.start_ms, id.key, count, sum, min, max, revision, batch])?;
    }
    Ok(())
}

pub(crate) fn overflow(id: &WindowId<'_>, before: Option<Totals>) -> Overflowing {
    Overflowing { key: id.key.to_owned(), start_ms: id.start_ms, before }
}

/// Four columns that stand side by side in a row: count, sum, min, max.
pub(crate) fn totals(row: &Row<'_>, first: usize) -> rusqlite::Result<Totals> {
    Ok(Totals {
        count: row.get(first)?,
        sum: row.get(first + 1)?,
        min: row.get(first + 2)?,
        max: row.get(first + 3)?,
    })
}

/// Keeps the moves that closed windows which hold something; says how many each of them closed.
/// `elsewhere` says how many there are between two starts that are not in the table. The chunk's own
/// windows must be there already.
pub(crate) fn close(
    connection: &Connection,
    window_ms: i64,
    moves: &[Move],
    batch: u64,
    elsewhere: &dyn Fn(i64, i64) -> u64,
) -> rusqlite::Result<Vec<u64>> {
    let mut count = connection
        .prepare_cached("SELECT COUNT(*) FROM windows WHERE start_ms >= ?1 AND start_ms < ?2")?;
    let mut keep = connection.prepare_cached(
        "INSERT INTO moves (to_ms, from_ms, batch, event_index, windows_closed) \
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let mut closings = Vec::with_capacity(moves.len());
    for moved in moves {
        let Some((first_ms, after_ms)) =
            window::closing_starts_ms(moved.from_ms, moved.to_ms, window_ms)
        else {
            closings.push(0);
            continue;
        };
        let in_table: u64 = count.query_row(params![first_ms, after_ms], |row| row.get(0))?;
        let closed = in_table + elsewhere(first_ms, after_ms);
        if closed > 0 {
            keep.execute(params![moved.to_ms, moved.from_ms, batch, moved.event_index, closed])?;
        }
        closings.push(closed);
    }
    Ok(closings)
}

/// What the window held in each revision but the present one.
pub(crate) fn revisions(
    connection: &Connection,
    id: WindowId<'_>,
) -> rusqlite::Result<Vec<RevisionRow>> {
    let sql = "SELECT revision, corrected_in, count, sum, min, max FROM revisions \
               WHERE start_ms = ?1 AND key = ?2 ORDER BY revision";
    let read = |row: &Row<'_>| {
        Ok(RevisionRow {
            revision: row.get(0)?,
            corrected_in: row.get(1)?,
            totals: totals(row, 2)?,
        })
    };
    connection.prepare_cached(sql)?.query_map(params![id.start_ms, id.key], read)?.collect()
}

/// One row of the moves: `to_ms, from_ms, batch, event_index, windows_closed`.
pub(crate) fn move_row(row: &Row<'_>) -> rusqlite::Result<MoveRow> {
    Ok(MoveRow {
        to_ms: row.get(0)?,
        from_ms: row.get(1)?,
        batch: row.get(2)?,
        event_index: row.get(3)?,
        windows_closed: row.get(4)?,
    })
}
