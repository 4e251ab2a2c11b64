//! Who sent how much, and how far each source has come in event time.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};

use crate::engine::{Counts, SourceChange};

/// The greatest timestamp of each of these sources, in that order.
pub(super) fn greatest(
    connection: &Connection,
    sources: &[&str],
) -> rusqlite::Result<Vec<Option<i64>>> {
    let mut statement =
        connection.prepare_cached("SELECT max_timestamp_ms FROM sources WHERE name = ?1")?;
    let greatest = |source: &&str| {
        let found = statement.query_row(params![source], |row| row.get(0)).optional()?;
        Ok(found.flatten())
    };
    sources.iter().map(greatest).collect()
}

/// The least of the greatest timestamps of all sources but these.
pub(super) fn least_of_others(
    connection: &Connection,
    sources: &[&str],
) -> rusqlite::Result<Option<i64>> {
    let but: BTreeSet<&str> = sources.iter().copied().collect();
    // from the furthest behind on, along the index: few rows are looked at
    let mut statement = connection.prepare_cached(
        "SELECT max_timestamp_ms, name FROM sources WHERE max_timestamp_ms IS NOT NULL \
         ORDER BY max_timestamp_ms",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if !but.contains(row.get_ref(1)?.as_str()?) {
            return row.get(0);
        }
    }
    Ok(None)
}

/// Adds what a chunk says of its sources; when the batch is committed is yet to be
/// [stamped](stamp).
pub(super) fn add(
    connection: &Connection,
    changes: &[SourceChange],
    batch: u64,
    file: &str,
) -> rusqlite::Result<()> {
    // NULL is a source that has had no event yet; MAX of a NULL would be NULL
    let mut statement = connection.prepare_cached(
        "INSERT INTO sources (name, max_timestamp_ms, accepted, late, duplicate, future, expired, \
         last_batch, last_batch_at_ms, last_file) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, ?9) \
         ON CONFLICT DO UPDATE SET \
         max_timestamp_ms = MAX(COALESCE(max_timestamp_ms, excluded.max_timestamp_ms), \
         COALESCE(excluded.max_timestamp_ms, max_timestamp_ms)), \
         accepted = accepted + excluded.accepted, late = late + excluded.late, \
         duplicate = duplicate + excluded.duplicate, future = future + excluded.future, \
         expired = expired + excluded.expired, last_batch = excluded.last_batch, \
         last_file = excluded.last_file",
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
            batch,
            file,
        ])?;
    }
    Ok(())
}

/// Writes when the batch was committed to the sources that it named.
pub(super) fn stamp(
    connection: &Connection,
    sources: &BTreeSet<String>,
    committed_at_ms: i64,
) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare_cached("UPDATE sources SET last_batch_at_ms = ?2 WHERE name = ?1")?;
    for source in sources {
        statement.execute(params![source, committed_at_ms])?;
    }
    Ok(())
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
