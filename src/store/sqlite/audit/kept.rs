//! Notes of sources against receipts, and revisions against their windows.

use rusqlite::{Connection, Row, params};

use super::shown;
use crate::engine::settings::Settings;
use crate::store::audit::{Checkup, FindingCode};
use crate::store::sqlite::tables::removed::{self, Kind};
use crate::store::sqlite::tables::store_meta;

/// What is said of each source agrees with the receipt of its last batch and with its last note,
/// and the watermark is not behind where they let it be.
pub(super) fn check_sources(
    connection: &Connection,
    settings: &Settings,
    checkup: &mut Checkup,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(
        "SELECT name, last_batch_at_ms, last_file, batch, committed_at_ms, file FROM sources \
         LEFT JOIN batches ON batch = last_batch WHERE (last_batch IS NOT NULL \
         AND (last_batch_at_ms IS NOT committed_at_ms OR last_file IS NOT batches.file) \
         AND (batch IS NOT NULL OR last_batch NOT BETWEEN 1 AND ?1)) OR (last_batch IS NULL AND \
         (last_batch_at_ms IS NOT NULL OR last_file IS NOT NULL OR sources.accepted <> 0 OR \
         sources.late <> 0 OR sources.duplicate <> 0 OR sources.future <> 0 OR \
         sources.expired <> 0 OR max_timestamp_ms IS NOT NULL))",
    )?;
    let gone_up_to = removed::of(connection, Kind::Receipts)?.up_to.unwrap_or(0);
    let mut rows = statement.query(params![gone_up_to])?;
    while let Some(row) = rows.next()? {
        let told = |first: usize| -> rusqlite::Result<String> {
            let (at_ms, file): (Option<i64>, Option<String>) =
                (row.get(first)?, row.get(first + 1)?);
            Ok(format!("{} at {}", shown(&file.unwrap_or_default()), at_ms.unwrap_or(-1)))
        };
        let what = format!("last file of source {}", shown(&row.get::<_, String>(0)?));
        let expected = match row.get::<_, Option<u64>>(3)? {
            Some(batch) => format!("{}, as the receipt of batch {batch} says", told(4)?),
            None => "one whose receipt is there".to_owned(),
        };
        checkup.found(FindingCode::SourceDiffers, what, expected, told(1)?);
    }
    let mut statement = connection.prepare(
        "SELECT name, presence_since_ms, at_ms FROM sources JOIN (SELECT source, at_ms, \
         row_number() OVER (PARTITION BY source ORDER BY batch DESC, ordinal DESC) AS nth \
         FROM presence) ON source = name WHERE nth = 1 AND presence_since_ms IS NOT at_ms",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let what = format!("since when source {} stands so", shown(&row.get::<_, String>(0)?));
        let expected = format!("{}, as its last note says", row.get::<_, i64>(2)?);
        let found = format!("{:?}", row.get::<_, Option<i64>>(1)?);
        checkup.found(FindingCode::PresenceDiffers, what, expected, found);
    }
    check_reach(connection, settings, checkup)
}

/// The watermark is at least where the sources let it be.
fn check_reach(
    connection: &Connection,
    settings: &Settings,
    checkup: &mut Checkup,
) -> rusqlite::Result<()> {
    let sql = "SELECT COUNT(*), \
               EXISTS (SELECT 1 FROM sources WHERE (declared OR expected = 1) AND NOT idle \
               AND max_timestamp_ms IS NULL), \
               (SELECT MIN(max_timestamp_ms) FROM sources WHERE NOT idle), MAX(max_timestamp_ms) \
               FROM sources";
    let read = |row: &Row<'_>| {
        let (least, greatest): (Option<i64>, Option<i64>) = (row.get(2)?, row.get(3)?);
        Ok((row.get(0)?, row.get(1)?, least.or(greatest)))
    };
    let (sources, is_awaited, reached_ms): (u64, bool, _) = connection.query_row(sql, [], read)?;
    checkup.checked("sources", sources);
    let watermark_ms = store_meta::load(connection)?.watermark_ms;
    let least_ms = reached_ms.map_or(0, |ms| ms.saturating_sub(settings.lateness_ms()));
    if !is_awaited && watermark_ms < least_ms {
        let expected = format!("at least {least_ms}, where its sources let it be");
        checkup.found(
            FindingCode::WatermarkDiffers,
            "the watermark",
            expected,
            watermark_ms.to_string(),
        );
    }
    Ok(())
}

/// Each corrected window has what it held before, revision by revision, and no other window has.
pub(super) fn check_revisions(
    connection: &Connection,
    checkup: &mut Checkup,
) -> rusqlite::Result<()> {
    let last_number = store_meta::load(connection)?.last_number;
    let mut statement = connection.prepare(
        "SELECT r.start_ms, r.key, r.revision, r.count, r.corrected_in, w.revision, w.count, \
         w.revised_in FROM revisions r LEFT JOIN windows w USING (start_ms, key) \
         ORDER BY r.start_ms, r.key, r.revision",
    )?;
    let mut rows = statement.query([])?;
    let mut last: Option<(i64, String, u64, i64, u64)> = None;
    let mut all = 0_u64;
    while let Some(row) = rows.next()? {
        all += 1;
        let (start_ms, key): (i64, String) = (row.get(0)?, row.get(1)?);
        let (revision, count, batch): (u64, i64, u64) = (row.get(2)?, row.get(3)?, row.get(4)?);
        let (newest, held): (Option<u64>, Option<i64>) = (row.get(5)?, row.get(6)?);
        let revised_in: Option<u64> = row.get(7)?;
        let follows = match last.as_ref().filter(|last| (last.0, &last.1) == (start_ms, &key)) {
            Some((_, _, before, less, in_batch)) => {
                revision == before + 1 && count > *less && batch > *in_batch
            }
            None => revision <= 1 && count > 0,
        };
        let has_next = newest.is_some_and(|newest| revision < newest)
            && held.is_some_and(|held| count < held)
            && revised_in.is_some_and(|revised_in| match newest == Some(revision + 1) {
                true => batch == revised_in,
                false => batch < revised_in,
            })
            && batch <= last_number;
        if !follows || !has_next {
            let what = format!("window {start_ms} of key {}, revision {revision}", shown(&key));
            let expected = "one that follows on the one before, and is followed by more";
            let found = format!("count {count}, corrected in batch {batch}");
            checkup.found(FindingCode::RevisionDiffers, what, expected, found);
        }
        last = Some((start_ms, key, revision, count, batch));
    }
    checkup.checked("revisions", all);
    // one for which nothing had come before begins with revision 1
    let mut statement = connection.prepare(
        "SELECT start_ms, key, revision, (SELECT COUNT(*) FROM revisions r \
         WHERE r.start_ms = w.start_ms AND r.key = w.key) AS kept FROM windows w \
         WHERE (revision > 0 OR revised_in IS NOT NULL) AND (kept NOT IN (revision, revision - 1) \
         OR revised_in IS NULL OR revision = 0)",
    )?;
    let mut rows = statement.query(params![])?;
    while let Some(row) = rows.next()? {
        let key: String = row.get(1)?;
        let what = format!("window {} of key {}", row.get::<_, i64>(0)?, shown(&key));
        let (revision, kept): (i64, i64) = (row.get(2)?, row.get(3)?);
        let expected = format!("{revision} earlier revisions");
        checkup.found(FindingCode::RevisionDiffers, what, expected, kept.to_string());
    }
    Ok(())
}
