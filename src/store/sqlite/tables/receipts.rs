//! What is kept of each batch: of those that took effect, and of those that were refused.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::engine::Counts;
use crate::model::refusal::Other;
use crate::store::{Committed, Delivery, EachReceipt, Receipt, ReceiptRow, Refused};

use super::store_meta::counts;

/// The kind of a batch of events; the others have the name of their act.
const EVENTS: &str = "events";

/// What is known of a delivery with that token.
pub(crate) fn known(
    connection: &Connection,
    token: &[u8; 16],
) -> rusqlite::Result<Option<Committed>> {
    let sql = "SELECT batch, watermark_ms, windows_closed, accepted, late, duplicate, future, \
               expired FROM batches WHERE token = ?1";
    connection
        .prepare_cached(sql)?
        .query_row(params![token], |row| {
            Ok(Committed {
                batch: row.get(0)?,
                watermark_ms: row.get(1)?,
                windows_closed: row.get(2)?,
                counts: counts(row, 3)?,
            })
        })
        .optional()
}

/// Keeps the receipt of a batch that takes effect.
pub(crate) fn keep(
    connection: &Connection,
    delivery: &Delivery,
    receipt: &Receipt,
    committed: &Committed,
    committed_at_ms: i64,
) -> rusqlite::Result<()> {
    let (kind, sha256, bytes, asked_by, reason) = match receipt {
        Receipt::Events { sha256, bytes, counts: _ } => {
            (EVENTS, Some(sha256), Some(*bytes), None, None)
        }
        Receipt::Act { act, counts: _, asked_by, reason } => {
            (act.name(), None, None, Some(asked_by), reason.as_ref())
        }
    };
    let Counts { accepted, late, duplicate, future, expired } = committed.counts;
    let sql = "INSERT INTO batches (batch, kind, token, file, source, sha256, bytes, accepted, \
               late, duplicate, future, expired, watermark_ms, windows_closed, committed_at_ms, \
               asked_by, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, \
               ?14, ?15, ?16, ?17)";
    connection.prepare_cached(sql)?.execute(params![
        committed.batch,
        kind,
        delivery.token,
        delivery.file,
        delivery.source,
        sha256,
        bytes,
        accepted,
        late,
        duplicate,
        future,
        expired,
        committed.watermark_ms,
        committed.windows_closed,
        committed_at_ms,
        asked_by,
        reason,
    ])?;
    Ok(())
}

/// The receipt of that batch.
pub(crate) fn of(connection: &Connection, batch: u64) -> rusqlite::Result<Option<ReceiptRow>> {
    let sql = "SELECT batch, kind, file, source, sha256, bytes, watermark_ms, windows_closed, \
               committed_at_ms, asked_by, reason, accepted, late, duplicate, future, expired \
               FROM batches WHERE batch = ?1";
    connection.prepare_cached(sql)?.query_row(params![batch], receipt).optional()
}

fn receipt(row: &Row<'_>) -> rusqlite::Result<ReceiptRow> {
    let kind: String = row.get(1)?;
    Ok(ReceiptRow {
        batch: row.get(0)?,
        act: (kind != EVENTS).then_some(kind),
        file: row.get(2)?,
        source: row.get(3)?,
        sha256: row.get(4)?,
        bytes: row.get(5)?,
        watermark_ms: row.get(6)?,
        windows_closed: row.get(7)?,
        committed_at_ms: row.get(8)?,
        asked_by: row.get(9)?,
        reason: row.get(10)?,
        counts: counts(row, 11)?,
    })
}

/// Each receipt from that batch on, in order, until told to stop.
pub(crate) fn each(
    connection: &Connection,
    from_batch: u64,
    each: &mut EachReceipt<'_>,
) -> rusqlite::Result<()> {
    let sql = "SELECT batch, kind, file, source, sha256, bytes, watermark_ms, windows_closed, \
               committed_at_ms, asked_by, reason, accepted, late, duplicate, future, expired \
               FROM batches WHERE batch >= ?1 \
               ORDER BY batch";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![from_batch])?;
    while let Some(row) = rows.next()? {
        if each(&receipt(row)?).is_break() {
            break;
        }
    }
    Ok(())
}

/// Adds to `other` the file and the source of its batch, while its receipt is kept.
pub(crate) fn describe(
    connection: &Connection,
    batch: u64,
    other: &mut Other,
) -> rusqlite::Result<()> {
    let found = connection
        .prepare_cached("SELECT file, source FROM batches WHERE batch = ?1")?
        .query_row(params![batch], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if let Some((file, source)) = found {
        other.file = Some(file);
        other.source = Some(source);
    }
    Ok(())
}

/// Keeps the receipt of a refused batch.
pub(crate) fn keep_refusal(connection: &Connection, refused: &Refused) -> rusqlite::Result<()> {
    let sql = "INSERT INTO refusals (file, source, sha256, bytes, refused_at_ms, code, message) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    connection.prepare_cached(sql)?.execute(params![
        refused.file,
        refused.source,
        refused.sha256,
        refused.bytes,
        refused.refused_at_ms,
        refused.code.name(),
        refused.message,
    ])?;
    Ok(())
}

/// Whether this very refusal is among the last ones kept.
pub(crate) fn has_refusal(connection: &Connection, refused: &Refused) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM (SELECT * FROM refusals ORDER BY refusal DESC \
               LIMIT 10000) WHERE file = ?1 AND source = ?2 AND sha256 IS ?3 \
               AND refused_at_ms = ?4 AND code = ?5)";
    connection.prepare_cached(sql)?.query_row(
        params![
            refused.file,
            refused.source,
            refused.sha256,
            refused.refused_at_ms,
            refused.code.name()
        ],
        |row| row.get(0),
    )
}
