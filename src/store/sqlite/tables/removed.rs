//! How much retention took away of each kind of row: with what is there it adds up to all that there
//! ever was, so that `verify` can tell a row that retention took from one that damage took.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::engine::Counts;

/// The kinds of rows that retention takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ids in the ledger.
    Ids,
    /// Windows; `up_to` is the greatest start.
    Windows,
    /// Late events that were kept.
    Late,
    /// Moves of the watermark; `up_to` is the greatest watermark that one led to.
    Moves,
    /// Receipts of batches; `up_to` is the greatest batch.
    Receipts,
    /// Receipts of refused batches; all that are gone are from before `up_to`.
    Refusals,
    /// Notes of how held events were settled.
    Settled,
    /// Notes of how sources came and went; all that are gone are from before `up_to`.
    Presence,
}

impl Kind {
    /// Each of them.
    pub(crate) const ALL: [Kind; 8] = [
        Kind::Ids,
        Kind::Windows,
        Kind::Late,
        Kind::Moves,
        Kind::Receipts,
        Kind::Refusals,
        Kind::Settled,
        Kind::Presence,
    ];

    /// Its name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Ids => "ids",
            Kind::Windows => "windows",
            Kind::Late => "late",
            Kind::Moves => "moves",
            Kind::Receipts => "receipts",
            Kind::Refusals => "refusals",
            Kind::Settled => "settled",
            Kind::Presence => "presence",
        }
    }
}

/// What was taken away of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    /// How many rows.
    pub(crate) rows: i64,
    /// How far: see [`Kind`].
    pub(crate) up_to: Option<i64>,
    /// How many of the receipts were of events.
    pub(crate) batches: i64,
    /// What these receipts, and those of releases, had counted.
    pub(crate) counts: Counts,
    /// How many events the receipts had released; of notes, how many said that one was released.
    pub(crate) released: i64,
    /// How many windows the receipts, or the moves, had closed.
    pub(crate) windows_closed: i64,
}

/// Adds to what was taken away of that kind.
pub(crate) fn add(connection: &Connection, kind: Kind, more: &Removed) -> rusqlite::Result<()> {
    if *more == Removed::default() {
        return Ok(());
    }
    let sql = "INSERT INTO removed (kind, rows, up_to, batches, accepted, late, duplicate, future, \
               expired, released, windows_closed) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) \
               ON CONFLICT DO UPDATE SET rows = rows + excluded.rows, \
               up_to = NULLIF(MAX(IFNULL(up_to, ?12), IFNULL(excluded.up_to, ?12)), ?12), \
               batches = batches + excluded.batches, accepted = accepted + excluded.accepted, \
               late = late + excluded.late, duplicate = duplicate + excluded.duplicate, \
               future = future + excluded.future, expired = expired + excluded.expired, \
               released = released + excluded.released, \
               windows_closed = windows_closed + excluded.windows_closed";
    let Counts { accepted, late, duplicate, future, expired } = more.counts;
    connection.prepare_cached(sql)?.execute(params![
        kind.name(),
        more.rows,
        more.up_to,
        more.batches,
        accepted as i64,
        late as i64,
        duplicate as i64,
        future as i64,
        expired as i64,
        more.released,
        more.windows_closed,
        i64::MIN,
    ])?;
    Ok(())
}

/// What was taken away of that kind so far.
pub(crate) fn of(connection: &Connection, kind: Kind) -> rusqlite::Result<Removed> {
    let sql = "SELECT rows, up_to, batches, released, windows_closed, accepted, late, duplicate, \
               future, expired FROM removed WHERE kind = ?1";
    let found = connection.prepare_cached(sql)?.query_row(params![kind.name()], removed);
    Ok(found.optional()?.unwrap_or_default())
}

fn removed(row: &Row<'_>) -> rusqlite::Result<Removed> {
    let count = |at: usize| row.get::<_, i64>(at).map(|count| count as u64);
    Ok(Removed {
        rows: row.get(0)?,
        up_to: row.get(1)?,
        batches: row.get(2)?,
        released: row.get(3)?,
        windows_closed: row.get(4)?,
        // differences that an older version left behind may be below zero
        counts: Counts {
            accepted: count(5)?,
            late: count(6)?,
            duplicate: count(7)?,
            future: count(8)?,
            expired: count(9)?,
        },
    })
}

/// What a query of rows that are about to go adds up to: rows, `up_to`, batches, released, windows
/// closed, and then the five counts.
pub(crate) fn sum(
    connection: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
) -> rusqlite::Result<Removed> {
    connection.prepare_cached(sql)?.query_row(params, removed)
}
