//! Who sent how much, how far each source has come in event time, and how it came and went.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::engine::{Counts, Known, Others, Presence, PresenceChange, SourceChange};
use crate::store::PresenceRow;

/// What is known of each of these sources, in that order.
pub(super) fn known(connection: &Connection, sources: &[&str]) -> rusqlite::Result<Vec<Known>> {
    let mut statement = connection
        .prepare_cached("SELECT max_timestamp_ms, declared, idle FROM sources WHERE name = ?1")?;
    let read = |row: &Row<'_>| {
        Ok(Known { max_timestamp_ms: row.get(0)?, declared: row.get(1)?, idle: row.get(2)? })
    };
    let known = |source: &&str| {
        let found = statement.query_row(params![source], read).optional()?;
        Ok(found.unwrap_or_default())
    };
    sources.iter().map(known).collect()
}

/// All sources but these, taken together.
pub(super) fn others(connection: &Connection, sources: &[&str]) -> rusqlite::Result<Others> {
    let but: BTreeSet<&str> = sources.iter().copied().collect();
    // each walks along an index of its own, from the end that matters: few rows are looked at
    let least = "SELECT name, max_timestamp_ms FROM sources \
                 WHERE idle = 0 AND max_timestamp_ms IS NOT NULL ORDER BY max_timestamp_ms";
    let greatest = "SELECT name, max_timestamp_ms FROM sources \
                    WHERE max_timestamp_ms IS NOT NULL ORDER BY max_timestamp_ms DESC";
    let awaited = "SELECT name, 0 FROM sources \
                   WHERE declared = 1 AND idle = 0 AND max_timestamp_ms IS NULL";
    Ok(Others {
        least_active_ms: first_but(connection, least, &but)?,
        greatest_ms: first_but(connection, greatest, &but)?,
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

/// Adds what a chunk says of its sources; a batch of events is yet to be [stamped](stamp).
pub(super) fn add(connection: &Connection, changes: &[SourceChange]) -> rusqlite::Result<()> {
    // NULL is a source that has had no event yet; MAX of a NULL would be NULL
    let mut statement = connection.prepare_cached(
        "INSERT INTO sources (name, max_timestamp_ms, accepted, late, duplicate, future, expired) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO UPDATE SET \
         max_timestamp_ms = MAX(COALESCE(max_timestamp_ms, excluded.max_timestamp_ms), \
         COALESCE(excluded.max_timestamp_ms, max_timestamp_ms)), \
         accepted = accepted + excluded.accepted, late = late + excluded.late, \
         duplicate = duplicate + excluded.duplicate, future = future + excluded.future, \
         expired = expired + excluded.expired",
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
        ])?;
    }
    Ok(())
}

/// Writes to the sources that a batch of events named that it was their last.
pub(super) fn stamp(
    connection: &Connection,
    sources: &BTreeSet<String>,
    batch: u64,
    file: &str,
    committed_at_ms: i64,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "UPDATE sources SET last_batch = ?2, last_file = ?3, last_batch_at_ms = ?4 \
         WHERE name = ?1",
    )?;
    for source in sources {
        statement.execute(params![source, batch, file, committed_at_ms])?;
    }
    Ok(())
}

/// Changes how sources stand to W, and keeps that they did; `ordinal` counts the changes of the
/// batch before these.
pub(super) fn change_presence(
    connection: &Connection,
    changes: &[PresenceChange],
    batch: u64,
    ordinal: u64,
    at_ms: i64,
) -> rusqlite::Result<()> {
    let mut stand = connection.prepare_cached(
        "INSERT INTO sources (name, declared, idle, presence_since_ms) \
         VALUES (?1, COALESCE(?2, 0), COALESCE(?3, 0), ?4) ON CONFLICT DO UPDATE SET \
         declared = COALESCE(?2, declared), idle = COALESCE(?3, idle), \
         presence_since_ms = excluded.presence_since_ms",
    )?;
    let mut keep = connection.prepare_cached(
        "INSERT INTO presence (batch, ordinal, source, presence, event_index, at_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for (change, ordinal) in changes.iter().zip(ordinal..) {
        let PresenceChange { source, presence, event_index } = change;
        let (declared, idle) = match presence {
            Presence::Declared => (Some(true), None),
            Presence::Idle => (None, Some(true)),
            Presence::Active => (None, Some(false)),
        };
        stand.execute(params![source, declared, idle, at_ms])?;
        keep.execute(params![batch, ordinal, source, presence.name(), event_index, at_ms])?;
    }
    Ok(())
}

/// How that source came and went, in order.
pub(super) fn presence(
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
pub(super) fn add_versions(
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
