//! Retention: what may be removed is removed in transactions of bounded size. What may is decided
//! elsewhere.

use rusqlite::{Connection, params};

use crate::engine::window;
use crate::store::retention::{Bounds, ReceiptBound};
use crate::store::{Error, Pace, Pruned, Retention};

use super::SqliteStore;
use super::ledger::{self, Walk};
use super::tables::removed::{self, Kind, Removed};
use super::tables::{accounts, store_meta};

/// Rows looked at or removed in one transaction.
pub(super) const ROWS_AT_ONCE: usize = 5000;

/// Removes what is asked, as far as it may go.
pub(super) fn prune(
    store: &mut SqliteStore,
    what: &Retention,
    pace: &mut Pace<'_>,
) -> Result<Pruned, Error> {
    let bounds = store.retention_bounds(what)?;
    let mut pruned = Pruned::default();
    ids(store, &bounds, &mut pruned, pace)?;
    // late events keep their windows, and windows the moves that closed them
    late(store, &bounds, &mut pruned, pace)?;
    windows(store, &bounds, &mut pruned, pace)?;
    if let Some(from_ms) = bounds.windows_from_ms {
        accounts::prune(store, from_ms, &mut pruned, pace)?;
    }
    moves(store, &bounds, &mut pruned, pace)?;
    if let Some(bound) = bounds.receipts {
        receipts(store, bound, &mut pruned, pace)?;
        notes(store, bound, &mut pruned, pace)?;
    }
    Ok(pruned)
}

/// Runs that hold nothing so old are passed over.
fn ids(
    store: &mut SqliteStore,
    bounds: &Bounds,
    pruned: &mut Pruned,
    pace: &mut Pace<'_>,
) -> Result<(), Error> {
    let Some(from_ms) = bounds.ids_from_ms else { return Ok(()) };
    let mut walk = Walk { from: std::mem::take(&mut store.prune_from), ..Walk::default() };
    loop {
        let rows = store.prune_rows;
        walk = store.take_away("remove forgotten ids", |connection| {
            ledger::forget_some(connection, from_ms, rows, &walk)
        })?;
        pruned.ids += walk.gone;
        if walk.is_over {
            return Ok(());
        }
        if pace().is_break() {
            store.prune_from = walk.from;
            return Ok(());
        }
    }
}

fn late(
    store: &mut SqliteStore,
    bounds: &Bounds,
    pruned: &mut Pruned,
    pace: &mut Pace<'_>,
) -> Result<(), Error> {
    let Some(from_ms) = bounds.late_from_ms else { return Ok(()) };
    loop {
        let limit = store.prune_rows;
        let gone = store.transact("remove old late events", |connection| {
            let found: Vec<(u64, u64, bool)> = connection
                .prepare_cached(
                    "SELECT batch, event_index, applied_in IS NOT NULL FROM late \
                     WHERE window_start_ms < ?1 ORDER BY window_start_ms LIMIT ?2",
                )?
                .query_map(params![from_ms, limit as u64], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })?
                .collect::<rusqlite::Result<_>>()?;
            let mut delete = connection
                .prepare_cached("DELETE FROM late WHERE batch = ?1 AND event_index = ?2")?;
            let mut head = store_meta::load(connection)?;
            for (batch, index, applied) in &found {
                delete.execute(params![batch, index])?;
                head.late_kept = head.late_kept.saturating_sub(1);
                head.late_applied = head.late_applied.saturating_sub(u64::from(*applied));
            }
            store_meta::save(connection, &head)?;
            removed::add(connection, Kind::Late, &rows(found.len(), None))?;
            Ok(found.len())
        })?;
        pruned.late += gone as u64;
        if gone < limit || pace().is_break() {
            return Ok(());
        }
    }
}

/// A window that was looked at: whether it is corrected, and whether late events wait for it.
type Looked = (i64, String, bool, bool);

fn windows(
    store: &mut SqliteStore,
    bounds: &Bounds,
    pruned: &mut Pruned,
    pace: &mut Pace<'_>,
) -> Result<(), Error> {
    let Some(from_ms) = bounds.windows_from_ms else { return Ok(()) };
    let mut behind = (-1, String::new());
    loop {
        let limit = store.prune_rows;
        let (looked, (windows, revisions)) =
            store.take_away("remove old windows", |connection| {
                let looked: Vec<Looked> = connection
                    .prepare_cached(
                        "SELECT start_ms, key, revision > 0, EXISTS (SELECT 1 FROM late \
                         WHERE late.window_start_ms = start_ms AND late.key = windows.key \
                         AND applied_in IS NULL) FROM windows \
                         WHERE (start_ms, key) > (?1, ?2) AND start_ms < ?3 \
                         ORDER BY start_ms, key LIMIT ?4",
                    )?
                    .query_map(params![behind.0, behind.1, from_ms, limit as u64], |row| {
                        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                    })?
                    .collect::<rusqlite::Result<_>>()?;
                let removed = remove_windows(connection, &looked)?;
                Ok((looked, removed))
            })?;
        pruned.windows += windows;
        pruned.revisions += revisions;
        let more = looked.len() == limit && pace().is_continue();
        match looked.into_iter().next_back() {
            Some((start_ms, key, _, _)) if more => behind = (start_ms, key),
            _ => return Ok(()),
        }
    }
}

/// Removes those for which nothing waits, with their revisions; says how many of each.
fn remove_windows(connection: &Connection, looked: &[Looked]) -> rusqlite::Result<(u64, u64)> {
    let mut head = store_meta::load(connection)?;
    let mut delete =
        connection.prepare_cached("DELETE FROM windows WHERE start_ms = ?1 AND key = ?2")?;
    let mut forget =
        connection.prepare_cached("DELETE FROM revisions WHERE start_ms = ?1 AND key = ?2")?;
    let (mut windows, mut revisions) = (0, 0);
    for (start_ms, key, corrected, _) in looked.iter().filter(|(_, _, _, awaited)| !awaited) {
        delete.execute(params![start_ms, key])?;
        windows += 1;
        head.windows = head.windows.saturating_sub(1);
        head.pruned_start_ms = head.pruned_start_ms.max(Some(*start_ms));
        if *corrected {
            revisions += forget.execute(params![start_ms, key])? as u64;
            head.corrected_windows = head.corrected_windows.saturating_sub(1);
        }
    }
    if windows > 0 {
        store_meta::save(connection, &head)?;
        let up_to = head.pruned_start_ms;
        removed::add(connection, Kind::Windows, &rows(windows as usize, up_to))?;
    }
    Ok((windows, revisions))
}

fn moves(
    store: &mut SqliteStore,
    bounds: &Bounds,
    pruned: &mut Pruned,
    pace: &mut Pace<'_>,
) -> Result<(), Error> {
    let Some(asked_ms) = bounds.moves_from_ms else { return Ok(()) };
    let window_ms = store.settings.window_ms();
    remove(
        store,
        "remove old moves of the watermark",
        &mut pruned.moves,
        pace,
        |connection, limit| {
            let oldest_ms: Option<i64> =
                connection.query_row("SELECT MIN(start_ms) FROM windows", [], |row| row.get(0))?;
            let oldest_ms = oldest_ms.map_or(i64::MAX, |ms| window::end_ms(ms, window_ms));
            let before_ms = asked_ms.min(oldest_ms);
            let sql = "SELECT COUNT(*), MAX(to_ms), 0, 0, COALESCE(SUM(windows_closed), 0), 0, 0, \
                       0, 0, 0 FROM (SELECT to_ms, windows_closed FROM moves WHERE to_ms < ?1 \
                       ORDER BY to_ms LIMIT ?2)";
            let more = removed::sum(connection, sql, params![before_ms, limit])?;
            removed::add(connection, Kind::Moves, &more)?;
            connection
                .prepare_cached(
                    "DELETE FROM moves WHERE to_ms IN \
                 (SELECT to_ms FROM moves WHERE to_ms < ?1 ORDER BY to_ms LIMIT ?2)",
                )?
                .execute(params![before_ms, limit])
        },
    )
}

/// What the receipts that are about to go add up to: those of releases speak of events that had come
/// before.
const RECEIPTS: &str = "SELECT COUNT(*), MAX(batch), COALESCE(SUM(kind = 'events'), 0), \
    COALESCE(SUM(CASE kind WHEN 'release' THEN accepted + late + duplicate + future + expired \
    END), 0), COALESCE(SUM(windows_closed), 0), \
    COALESCE(SUM(CASE WHEN kind IN ('events', 'release') THEN accepted END), 0), \
    COALESCE(SUM(CASE WHEN kind IN ('events', 'release') THEN late END), 0), \
    COALESCE(SUM(CASE WHEN kind IN ('events', 'release') THEN duplicate END), 0), \
    COALESCE(SUM(CASE WHEN kind IN ('events', 'release') THEN future END), 0), \
    COALESCE(SUM(CASE WHEN kind IN ('events', 'release') THEN expired END), 0) \
    FROM batches WHERE batch > ?1 AND batch <= ?2 AND committed_at_ms < ?3";

/// From the oldest on, up to the first stretch in which none is old enough.
fn receipts(
    store: &mut SqliteStore,
    bound: ReceiptBound,
    pruned: &mut Pruned,
    pace: &mut Pace<'_>,
) -> Result<(), Error> {
    let mut behind = 0;
    loop {
        let limit = store.prune_rows as u64;
        let (last, gone) = store.transact("remove old receipts", |connection| {
            let last: Option<u64> = connection
                .prepare_cached(
                    "SELECT MAX(batch) FROM (SELECT batch FROM batches \
                     WHERE batch > ?1 AND batch <= ?2 ORDER BY batch LIMIT ?3)",
                )?
                .query_row(params![behind, bound.last_number, limit], |row| row.get(0))?;
            let (from, to) = (behind, last.unwrap_or(behind));
            let more = removed::sum(connection, RECEIPTS, params![from, to, bound.from_ms])?;
            removed::add(connection, Kind::Receipts, &more)?;
            let gone = connection
                .prepare_cached(
                    "DELETE FROM batches WHERE batch > ?1 AND batch <= ?2 AND committed_at_ms < ?3",
                )?
                .execute(params![from, to, bound.from_ms])?;
            Ok((last, gone))
        })?;
        pruned.receipts += gone as u64;
        match last {
            Some(last) if gone > 0 && pace().is_continue() => behind = last,
            _ => return Ok(()),
        }
    }
}

fn notes(
    store: &mut SqliteStore,
    bound: ReceiptBound,
    pruned: &mut Pruned,
    pace: &mut Pace<'_>,
) -> Result<(), Error> {
    let from_ms = bound.notes_from_ms;
    for (doing, count, kind, sum, delete) in [
        (
            "remove old refusals",
            &mut pruned.refusals,
            Kind::Refusals,
            "SELECT COUNT(*), ?1, 0, 0, 0, 0, 0, 0, 0, 0 FROM (SELECT 1 FROM refusals \
             WHERE refused_at_ms < ?1 AND refusal < (SELECT MAX(refusal) FROM refusals) \
             ORDER BY refusal LIMIT ?2)",
            "DELETE FROM refusals WHERE refusal IN (SELECT refusal FROM refusals \
             WHERE refused_at_ms < ?1 AND refusal < (SELECT MAX(refusal) FROM refusals) \
             ORDER BY refusal LIMIT ?2)",
        ),
        (
            "remove old notes of held events",
            &mut pruned.settled,
            Kind::Settled,
            "SELECT COUNT(*), ?1, 0, COALESCE(SUM(settlement = 'released'), 0), 0, 0, 0, 0, 0, 0 \
             FROM (SELECT settlement FROM settled WHERE at_ms < ?1 \
             ORDER BY batch, event_index LIMIT ?2)",
            "DELETE FROM settled WHERE (batch, event_index) IN (SELECT batch, event_index \
             FROM settled WHERE at_ms < ?1 ORDER BY batch, event_index LIMIT ?2)",
        ),
        (
            "remove old notes of sources",
            &mut pruned.presence,
            Kind::Presence,
            "SELECT COUNT(*), ?1, 0, 0, 0, 0, 0, 0, 0, 0 FROM (SELECT 1 FROM presence \
             WHERE at_ms < ?1 ORDER BY batch, ordinal LIMIT ?2)",
            "DELETE FROM presence WHERE (batch, ordinal) IN (SELECT batch, ordinal \
             FROM presence WHERE at_ms < ?1 ORDER BY batch, ordinal LIMIT ?2)",
        ),
    ] {
        remove(store, doing, count, pace, |connection, limit| {
            let more = removed::sum(connection, sum, params![from_ms, limit])?;
            if more.rows > 0 {
                removed::add(connection, kind, &more)?;
            }
            connection.prepare_cached(delete)?.execute(params![from_ms, limit])
        })?;
    }
    Ok(())
}

/// So many rows that went, up to there.
fn rows(count: usize, up_to: Option<i64>) -> Removed {
    Removed { rows: count as i64, up_to, ..Removed::default() }
}

/// Removes so many at once until there are fewer.
fn remove(
    store: &mut SqliteStore,
    doing: &str,
    count: &mut u64,
    pace: &mut Pace<'_>,
    mut some: impl FnMut(&Connection, u64) -> rusqlite::Result<usize>,
) -> Result<(), Error> {
    loop {
        let limit = store.prune_rows;
        let gone = store.take_away(doing, |connection| some(connection, limit as u64))?;
        *count += gone as u64;
        if gone < limit || pace().is_break() {
            return Ok(());
        }
    }
}
