//! Who sent how much, how far each source has come in event time, and how it came and went.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::engine::{Counts, Expected, Known, Others, Presence, PresenceChange, SourceChange};
use crate::store::{Error, PresenceRow, Silent};

use crate::store::sqlite::SqliteStore;

impl SqliteStore {
    /// Reads between batches, holding up nobody and waiting for nobody who writes.
    pub(crate) fn look<T>(
        &mut self,
        doing: &str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.refuse_other_file()?;
        if self.connection.is_none() {
            self.connection = Some(self.reconnect(self.options.busy_timeout)?);
        }
        self.attempt(doing, work)
    }
}

/// How `expected` is stored.
const EXPECTED: [Expected; 3] = [Expected::Never, Expected::Now, Expected::Over];

/// What is known of each of these sources, in that order.
pub(crate) fn known(connection: &Connection, sources: &[&str]) -> rusqlite::Result<Vec<Known>> {
    let mut statement = connection.prepare_cached(
        "SELECT max_timestamp_ms, declared, idle, declared = 1 OR last_batch IS NOT NULL, \
         retired, expected FROM sources WHERE name = ?1",
    )?;
    let read = |row: &Row<'_>| {
        Ok(Known {
            max_timestamp_ms: row.get(0)?,
            declared: row.get(1)?,
            idle: row.get(2)?,
            is_known: row.get(3)?,
            retired: row.get(4)?,
            expected: expected(row, 5)?,
        })
    };
    let known = |source: &&str| {
        let found = statement.query_row(params![source], read).optional()?;
        Ok(found.unwrap_or_default())
    };
    sources.iter().map(known).collect()
}

/// Whether a source is expected, from that column.
pub(crate) fn expected(row: &Row<'_>, column: usize) -> rusqlite::Result<Expected> {
    Ok(EXPECTED.get(row.get::<_, usize>(column)?).copied().unwrap_or_default())
}

/// All sources but these, taken together.
pub(crate) fn others(connection: &Connection, sources: &[&str]) -> rusqlite::Result<Others> {
    let but: BTreeSet<&str> = sources.iter().copied().collect();
    // each walks along an index of its own, from the end that matters, and looks at no more rows
    // than there are names to leave out
    let least = "SELECT name, max_timestamp_ms FROM sources \
                 WHERE idle = 0 AND max_timestamp_ms IS NOT NULL ORDER BY max_timestamp_ms";
    let greatest = "SELECT name, max_timestamp_ms FROM sources \
                    WHERE idle = 0 AND max_timestamp_ms IS NOT NULL \
                    ORDER BY max_timestamp_ms DESC";
    let greatest_idle = "SELECT name, max_timestamp_ms FROM sources \
                         WHERE idle = 1 AND max_timestamp_ms IS NOT NULL \
                         ORDER BY max_timestamp_ms DESC";
    // an index holds exactly these: those that have sent nothing can be many
    let awaited = "SELECT name, 0 FROM sources INDEXED BY sources_awaited \
                   WHERE idle = 0 AND max_timestamp_ms IS NULL AND (declared = 1 OR expected = 1)";
    Ok(Others {
        least_active_ms: first_but(connection, least, &but)?,
        greatest_ms: first_but(connection, greatest, &but)?.max(first_but(
            connection,
            greatest_idle,
            &but,
        )?),
        any_awaited: first_but(connection, awaited, &but)?.is_some(),
    })
}

fn first_but(
    connection: &Connection,
    sql: &str,
    but: &BTreeSet<&str>,
) -> rusqlite::Result<Option<i64>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if !but.contains(row.get_ref(0)?.as_str()?) {
            return row.get(1).map(Some);
        }
    }
    Ok(None)
}

/// The delivery that is the last of each source that it names.
#[derive(Clone, Copy)]
pub(crate) struct Delivered<'d> {
    pub(crate) batch: u64,
    pub(crate) file: &'d str,
}

/// Adds what a chunk says of its sources; those of a delivery are yet to be [stamped](stamp).
pub(crate) fn add(
    connection: &Connection,
    changes: &[SourceChange],
    delivered: Option<Delivered<'_>>,
) -> rusqlite::Result<()> {
    // NULL is a source that has had no event yet; MAX of a NULL would be NULL
    let mut statement = connection.prepare_cached(
        "INSERT INTO sources (name, max_timestamp_ms, accepted, late, duplicate, future, expired, \
         last_batch, last_file, heard_in) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, COALESCE(?8, 0)) ON CONFLICT DO UPDATE SET \
         max_timestamp_ms = MAX(COALESCE(max_timestamp_ms, excluded.max_timestamp_ms), \
         COALESCE(excluded.max_timestamp_ms, max_timestamp_ms)), \
         accepted = accepted + excluded.accepted, late = late + excluded.late, \
         duplicate = duplicate + excluded.duplicate, future = future + excluded.future, \
         expired = expired + excluded.expired, \
         last_batch = COALESCE(excluded.last_batch, last_batch), \
         last_file = COALESCE(excluded.last_file, last_file), \
         heard_in = MAX(heard_in, excluded.heard_in), \
         expected = IIF(expected = 1 AND excluded.max_timestamp_ms IS NOT NULL, 2, expected)",
    )?;
    for change in changes {
        let counts = &change.counts;
        statement.execute(params![
            change.source,
            change.max_timestamp_ms,
            counts.accepted,
            counts.late,
            counts.duplicate,
            counts.future,
            counts.expired,
            delivered.map(|delivered| delivered.batch),
            delivered.map(|delivered| delivered.file),
        ])?;
    }
    Ok(())
}

/// Writes to the sources that a batch of events named when it was committed. None of them is idle:
/// an index finds them, so that nobody has to remember their names.
pub(crate) fn stamp(
    connection: &Connection,
    batch: u64,
    committed_at_ms: i64,
) -> rusqlite::Result<()> {
    let sql = "UPDATE sources INDEXED BY sources_by_heard SET last_batch_at_ms = ?2 \
               WHERE idle = 0 AND heard_in = ?1 AND last_batch = ?1";
    connection.prepare_cached(sql)?.execute(params![batch, committed_at_ms])?;
    Ok(())
}

/// The sources for which the watermark waits, but the expected ones, and which batch was the last
/// to be heard of each: the longest ago first, from `after` on; with the number of the last batch
/// of all.
pub(crate) fn silent(
    connection: &Connection,
    after: Option<&Silent>,
    most: usize,
) -> rusqlite::Result<Vec<(u64, Silent)>> {
    let sql = "SELECT (SELECT last_number FROM store), name, heard_in \
               FROM sources INDEXED BY sources_by_heard WHERE idle = 0 \
               AND heard_in >= ?1 AND (heard_in, name) > (?1, ?2) AND expected <> 1 \
               ORDER BY heard_in, name LIMIT ?3";
    let (heard_in, name) = match after {
        Some(silent) => (silent.heard_in as i64, silent.source.as_str()),
        None => (-1, ""),
    };
    let read =
        |row: &Row<'_>| Ok((row.get(0)?, Silent { source: row.get(1)?, heard_in: row.get(2)? }));
    connection.prepare_cached(sql)?.query_map(params![heard_in, name, most], read)?.collect()
}

/// The names of the sources that are expected.
pub(crate) fn all_expected(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT name FROM sources INDEXED BY sources_awaited \
               WHERE idle = 0 AND max_timestamp_ms IS NULL AND (declared = 1 OR expected = 1) AND expected = 1";
    connection.prepare_cached(sql)?.query_map([], |row| row.get(0))?.collect()
}

/// Changes how sources stand to the watermark, and keeps that they did; `ordinal` counts the
/// changes of the batch before these.
pub(crate) fn change_presence(
    connection: &Connection,
    changes: &[PresenceChange],
    batch: u64,
    ordinal: u64,
    at_ms: i64,
) -> rusqlite::Result<()> {
    let mut stand = connection.prepare_cached(
        "INSERT INTO sources (name, declared, idle, retired, expected, heard_in, \
         presence_since_ms) VALUES (?1, COALESCE(?2, 0), COALESCE(?3, 0), COALESCE(?4, 0), \
         COALESCE(?5, 0), ?6, ?7) ON CONFLICT DO UPDATE SET \
         declared = COALESCE(?2, declared), idle = COALESCE(?3, idle), \
         retired = COALESCE(?4, retired), expected = COALESCE(?5, expected), \
         heard_in = MAX(heard_in, excluded.heard_in), \
         presence_since_ms = excluded.presence_since_ms",
    )?;
    let mut keep = connection.prepare_cached(
        "INSERT INTO presence (batch, ordinal, source, presence, event_index, at_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for (change, ordinal) in changes.iter().zip(ordinal..) {
        let PresenceChange { source, presence, event_index } = change;
        let (mut declared, mut idle, mut retired, mut expected) = (None, None, None, None);
        match presence {
            Presence::Declared => declared = Some(true),
            Presence::Idle => idle = Some(true),
            Presence::Active => (idle, retired) = (Some(false), Some(false)),
            Presence::Retired => (idle, retired) = (Some(true), Some(true)),
            Presence::Expected => expected = Some(1),
            Presence::NotExpected => expected = Some(2),
        }
        let is_heard = matches!(presence, Presence::Declared | Presence::Active);
        let heard_in = if is_heard { batch } else { 0 };
        stand.execute(params![source, declared, idle, retired, expected, heard_in, at_ms])?;
        keep.execute(params![batch, ordinal, source, presence.name(), event_index, at_ms])?;
    }
    Ok(())
}

/// How that source came and went, in order.
pub(crate) fn presence(
    connection: &Connection,
    source: &str,
) -> rusqlite::Result<Vec<PresenceRow>> {
    let sql = "SELECT presence, batch, event_index, at_ms FROM presence WHERE source = ?1 \
               ORDER BY batch, ordinal";
    let read = |row: &Row<'_>| {
        Ok(PresenceRow {
            presence: row.get(0)?,
            batch: row.get(1)?,
            event_index: row.get(2)?,
            at_ms: row.get(3)?,
        })
    };
    connection.prepare_cached(sql)?.query_map(params![source], read)?.collect()
}

/// Adds what each producer version sent.
pub(crate) fn add_versions(
    connection: &Connection,
    versions: &[(&str, Counts)],
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO versions (name, accepted, late, duplicate, future, expired) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE SET \
         accepted = accepted + excluded.accepted, late = late + excluded.late, \
         duplicate = duplicate + excluded.duplicate, future = future + excluded.future, \
         expired = expired + excluded.expired",
    )?;
    for (version, counts) in versions {
        statement.execute(params![
            version,
            counts.accepted,
            counts.late,
            counts.duplicate,
            counts.future,
            counts.expired,
        ])?;
    }
    Ok(())
}
