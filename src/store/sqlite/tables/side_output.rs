//! Events kept apart from the totals: those that came too late, and those too far ahead.

use rusqlite::{Connection, params};

use crate::engine::SetAside;
use crate::engine::window;
use crate::model::event::Chunk;

/// Where set-aside events come from.
pub(crate) struct Origin<'a> {
    pub(crate) chunk: &'a Chunk,
    pub(crate) batch: u64,
    /// The source of those that name none.
    pub(crate) source: &'a str,
}

/// Keeps late events, each with the window that was final.
pub(crate) fn keep_late(
    connection: &Connection,
    origin: &Origin<'_>,
    window_ms: i64,
    late: &[SetAside],
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO late (batch, event_index, id, key, timestamp_ms, value, window_start_ms, \
         watermark_ms, source) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    for aside in late {
        let event = origin.chunk.event(aside.row);
        statement.execute(params![
            origin.batch,
            origin.chunk.first_index() + aside.row as u64,
            event.id,
            event.key,
            event.timestamp_ms,
            event.value,
            window::start_ms(event.timestamp_ms, window_ms),
            aside.watermark_ms,
            event.source.unwrap_or(origin.source),
        ])?;
    }
    Ok(())
}

/// Holds events that are too far ahead, with all that is needed to judge them again.
pub(crate) fn hold(
    connection: &Connection,
    origin: &Origin<'_>,
    held: &[SetAside],
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO held (batch, event_index, id, key, timestamp_ms, value, source, \
         producer_version, watermark_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    for aside in held {
        let event = origin.chunk.event(aside.row);
        statement.execute(params![
            origin.batch,
            origin.chunk.first_index() + aside.row as u64,
            event.id,
            event.key,
            event.timestamp_ms,
            event.value,
            event.source.unwrap_or(origin.source),
            event.producer_version,
            aside.watermark_ms,
        ])?;
    }
    Ok(())
}
