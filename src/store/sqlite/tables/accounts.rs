//! What each source sent of each key, and what of it is no longer told apart by key.

use std::collections::HashSet;

use rusqlite::{Connection, params};

use crate::engine::Counts;
use crate::store::{AccountRow, EachAccount, Error, EventRef, Pace, Pruned};

use super::store_meta::counts;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::write_buffer::Sums;

/// Adds what came, by source and key.
pub(crate) fn add(connection: &Connection, sums: &Sums) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO accounts (source, key, accepted, late, duplicate, future, expired, \
         last_seen_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO UPDATE SET \
         accepted = accepted + excluded.accepted, late = late + excluded.late, \
         duplicate = duplicate + excluded.duplicate, future = future + excluded.future, \
         expired = expired + excluded.expired, \
         last_seen_ms = MAX(last_seen_ms, excluded.last_seen_ms)",
    )?;
    for (source, keys) in sums {
        for (key, (counts, last_seen_ms)) in keys {
            let Counts { accepted, late, duplicate, future, expired } = counts;
            let counts =
                params![source, key, accepted, late, duplicate, future, expired, last_seen_ms];
            statement.execute(counts)?;
        }
    }
    Ok(())
}

/// A held event no longer counts as future. What a process of the version before holds is in no
/// account, while it still runs.
pub(crate) fn uncount(connection: &Connection, event: EventRef) -> rusqlite::Result<()> {
    let sql = "UPDATE accounts SET future = future - 1 WHERE (source, key) = \
               (SELECT source, key FROM held WHERE batch = ?1 AND event_index = ?2) \
               AND future > 0";
    connection.prepare_cached(sql)?.execute(params![event.batch, event.event_index])?;
    Ok(())
}

/// Each account, by source and key; what is not told apart by key stands before the keys. To those
/// in the table is added what came lately.
pub(crate) fn each(
    connection: &Connection,
    lately: &Sums,
    each: &mut EachAccount<'_>,
) -> rusqlite::Result<()> {
    let rest: Vec<(String, Counts)> = connection
        .prepare_cached(
            "SELECT source, accepted, late, duplicate, future, expired FROM pruned_accounts \
             ORDER BY source",
        )?
        .query_map([], |row| Ok((row.get(0)?, counts(row, 1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut rest = rest.iter().peekable();
    let mut show = |account: &AccountRow<'_>| {
        while let Some((source, counts)) =
            rest.next_if(|(source, _)| source.as_str() <= account.source)
        {
            each(&AccountRow { source, key: None, counts: *counts, last_seen_ms: None })?;
        }
        each(account)
    };
    let all = lately.iter().flat_map(|(source, keys)| {
        keys.iter().map(move |(key, (counts, last_seen_ms))| AccountRow {
            source,
            key: Some(key),
            counts: *counts,
            last_seen_ms: Some(*last_seen_ms),
        })
    });
    let mut lately = all.peekable();
    let mut statement = connection.prepare_cached(
        "SELECT source, key, accepted, late, duplicate, future, expired, last_seen_ms \
         FROM accounts ORDER BY source, key",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let mut account = AccountRow {
            source: row.get_ref(0)?.as_str()?,
            key: Some(row.get_ref(1)?.as_str()?),
            counts: counts(row, 2)?,
            last_seen_ms: Some(row.get(7)?),
        };
        let name = (account.source, account.key);
        while let Some(before) = lately.next_if(|lately| (lately.source, lately.key) < name) {
            if show(&before).is_break() {
                return Ok(());
            }
        }
        if let Some(same) = lately.next_if(|lately| (lately.source, lately.key) == name) {
            account.counts.add(&same.counts);
            account.last_seen_ms = account.last_seen_ms.max(same.last_seen_ms);
        }
        if show(&account).is_break() {
            return Ok(());
        }
    }
    for last in lately {
        if show(&last).is_break() {
            return Ok(());
        }
    }
    for (source, counts) in rest {
        if each(&AccountRow { source, key: None, counts: *counts, last_seen_ms: None }).is_break() {
            break;
        }
    }
    Ok(())
}

/// An account that was looked at, and whether it may be old enough.
type Looked = (String, String, bool);

/// Adds up by source what nothing came for since `from_ms`, and for which nothing is left. The
/// windows must have been pruned before. The table is walked from end to end, without an index that
/// each batch would pay for.
pub(crate) fn prune(
    store: &mut SqliteStore,
    from_ms: i64,
    pruned: &mut Pruned,
    pace: &mut Pace<'_>,
) -> Result<(), Error> {
    let (mut source, mut key) = (String::new(), String::new());
    loop {
        let limit = store.prune_rows;
        let (looked, gone) = store.take_away("remove old accounts", |connection| {
            let looked: Vec<Looked> = connection
                .prepare_cached(
                    "SELECT source, key, last_seen_ms < ?3 AND NOT EXISTS (SELECT 1 FROM held \
                     WHERE held.source = accounts.source AND held.key = accounts.key) \
                     FROM accounts WHERE (source, key) > (?1, ?2) ORDER BY source, key LIMIT ?4",
                )?
                .query_map(params![source, key, from_ms, limit as u64], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })?
                .collect::<rusqlite::Result<_>>()?;
            let gone = remove(connection, &looked, from_ms)?;
            Ok((looked, gone))
        })?;
        pruned.accounts += gone;
        let more = looked.len() == limit && pace().is_continue();
        match looked.into_iter().next_back() {
            Some((last_source, last_key, _)) if more => (source, key) = (last_source, last_key),
            _ => return Ok(()),
        }
    }
}

fn remove(connection: &Connection, looked: &[Looked], from_ms: i64) -> rusqlite::Result<u64> {
    let old = || looked.iter().filter(|(_, _, is_old)| *is_old);
    let mut goes: HashSet<&str> = old().map(|(_, key, _)| key.as_str()).collect();
    if goes.is_empty() {
        return Ok(0);
    }
    // after the pruning these are few: those that late events wait for
    let mut left = connection.prepare_cached("SELECT key FROM windows WHERE start_ms < ?1")?;
    let mut rows = left.query(params![from_ms])?;
    while let Some(row) = rows.next()? {
        goes.remove(row.get_ref(0)?.as_str()?);
    }
    let mut gone = 0;
    let mut add_up = connection.prepare_cached(
        "INSERT INTO pruned_accounts (source, accepted, late, duplicate, future, expired) \
         SELECT source, accepted, late, duplicate, future, expired FROM accounts \
         WHERE source = ?1 AND key = ?2 ON CONFLICT DO UPDATE SET \
         accepted = accepted + excluded.accepted, late = late + excluded.late, \
         duplicate = duplicate + excluded.duplicate, future = future + excluded.future, \
         expired = expired + excluded.expired",
    )?;
    let mut delete =
        connection.prepare_cached("DELETE FROM accounts WHERE source = ?1 AND key = ?2")?;
    for (source, key, _) in old().filter(|(_, key, _)| goes.contains(key.as_str())) {
        add_up.execute(params![source, key])?;
        delete.execute(params![source, key])?;
        gone += 1;
    }
    Ok(gone)
}
