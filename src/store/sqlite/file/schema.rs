//! The tables and their versions: numbered steps, each in one transaction, never edited once
//! released.

use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::{Batch, Connection, Row, params};

use crate::engine::settings::{LatePolicy, LateRule, Settings};
use crate::store::Error;

use std::path::Path;

use super::fault::fault;
use crate::store::sqlite::ledger;
use crate::store::sqlite::tables::removed::{self, Removed};
use crate::store::sqlite::tables::store_meta;

/// What marks a file as a store of this program, in the header of the database: "WFlo".
pub(crate) const APPLICATION_ID: i32 = 0x5746_6c6f;

/// The step at place n leads from version n to version n + 1.
const STEPS: [&str; 4] = [
    include_str!("schema/0001.sql"),
    include_str!("schema/0002.sql"),
    include_str!("schema/0003.sql"),
    include_str!("schema/0004.sql"),
];

/// The version that this program writes.
pub(crate) const LATEST: i64 = STEPS.len() as i64;

/// Refuses what is no store, or one of a newer program; reads only.
pub(crate) fn identify(connection: &Connection, path: &Path) -> Result<(), Error> {
    let number = |pragma: &str| -> rusqlite::Result<i64> {
        connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0))
    };
    let read = number("application_id").and_then(|id| Ok((id, number("user_version")?)));
    match read {
        Ok((id, version)) if id == i64::from(APPLICATION_ID) => {
            if version > LATEST {
                return Err(Error::NewerSchema(format!(
                    "{}: was written by a newer windowflow (schema {version}, this one knows up to \
                     {LATEST}); use that version, nothing was changed",
                    path.display()
                )));
            }
            Ok(())
        }
        Ok(_) => Err(no_store(path)),
        // a rollback journal that waits to be played back is never ours: a store keeps a log
        Err(error) => match error.sqlite_error().map(|failure| failure.extended_code) {
            Some(rusqlite::ffi::SQLITE_NOTADB | rusqlite::ffi::SQLITE_READONLY_ROLLBACK) => {
                Err(no_store(path))
            }
            _ => Err(fault(path, "read what it is", &error)),
        },
    }
}

/// The answer to a file of something else.
pub(crate) fn no_store(path: &Path) -> Error {
    Error::Corrupt(format!(
        "{}: is not a windowflow store; nothing was changed; name another file with --db",
        path.display()
    ))
}

/// Brings an older store up to this version, step by step: what was interrupted goes on from the
/// last step that was taken whole.
pub(crate) fn migrate(connection: &Connection) -> rusqlite::Result<()> {
    migrate_watched(connection, &mut || Ok(()))
}

/// The same, which asks after every statement of a step whether to go on. When it fails, the
/// connection must be closed, which undoes the step.
fn migrate_watched(
    connection: &Connection,
    go_on: &mut dyn FnMut() -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    while version(connection)? < LATEST {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        // somebody else may have taken the step while this one waited
        let have = version(connection)?;
        if let Some(step) = usize::try_from(have).ok().and_then(|have| STEPS.get(have)) {
            let mut statements = Batch::new(connection, step);
            while let Some(mut statement) = statements.next()? {
                statement.execute([])?;
                go_on()?;
            }
            if have + 1 == RUNS {
                take_over_ids(connection)?;
                go_on()?;
            }
            if have + 1 == ACCOUNTED {
                account_for_ids(connection)?;
                go_on()?;
            }
            connection.pragma_update(None, "user_version", have + 1)?;
            go_on()?;
        }
        connection.execute_batch("COMMIT")?;
    }
    Ok(())
}

/// The version from which on the ledger is kept as entries and runs.
const RUNS: i64 = 3;

/// Ids are hashed by the program, so this is no matter for SQL.
fn take_over_ids(connection: &Connection) -> rusqlite::Result<()> {
    let next_position = ledger::take_over(connection, store_meta::hash_key(connection)?)?;
    connection.execute("UPDATE store SET next_position = ?1", params![next_position])?;
    connection.execute("DROP TABLE ledger", []).map(|_| ())
}

/// The version from which on what retention takes away is counted.
const ACCOUNTED: i64 = 4;

/// Ids are packed by the program: which are missing is no matter for SQL. Only behind a horizon any
/// are forgotten.
fn account_for_ids(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "SELECT dedup_horizon_ms IS NOT NULL, next_position FROM store";
    let (has_horizon, next): (bool, u64) =
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if !has_horizon {
        return Ok(());
    }
    let gone = next as i64 - ledger::count(connection)? as i64;
    let more = Removed { rows: gone, ..Removed::default() };
    removed::add(connection, removed::Kind::Ids, &more)
}

/// Refuses a store of an older version than this program reads, which only a writer brings up to
/// date.
pub(crate) fn refuse_older(connection: &Connection, path: &Path) -> Result<(), Error> {
    let found = version(connection).map_err(|error| fault(path, "read its version", &error))?;
    if found == LATEST {
        return Ok(());
    }
    Err(Error::OlderSchema(format!(
        "{0}: was written by an older windowflow (schema {found}, this one reads {LATEST}), and \
         reading leaves it as it is; bring it up to date once: start the daemon, or run: windowflow \
         --db {0} prune",
        path.display()
    )))
}

/// The version of the tables.
pub(crate) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Fills an empty database in one transaction.
pub(crate) fn make(
    connection: &Connection,
    settings: &Settings,
    now_ms: i64,
) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    for step in STEPS {
        connection.execute_batch(step)?;
    }
    connection.execute_batch("DROP TABLE ledger")?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", LATEST)?;
    connection.execute(
        "INSERT INTO store (only_row, window_ms, lateness_ms, late_rule, late_policy, \
         max_future_ms, dedup_horizon_ms, hash_key, trusted_ms) \
         VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, randomblob(16), ?7)",
        params![
            settings.window_ms(),
            settings.lateness_ms(),
            settings.late_rule().name(),
            settings.late_policy().name(),
            settings.max_future_ms(),
            settings.dedup_horizon_ms(),
            now_ms,
        ],
    )?;
    connection.execute_batch("COMMIT")
}

/// What was fixed when the store was made.
pub(crate) fn settings(connection: &Connection, path: &Path) -> Result<Settings, Error> {
    let read = |row: &Row<'_>| -> rusqlite::Result<Option<Settings>> {
        let rule = LateRule::from_name(row.get_ref(2)?.as_str()?);
        let policy = LatePolicy::from_name(row.get_ref(3)?.as_str()?);
        let (Some(rule), Some(policy)) = (rule, policy) else { return Ok(None) };
        let (max_future_ms, horizon_ms) = (row.get(4)?, row.get(5)?);
        Ok(Settings::new(row.get(0)?, row.get(1)?)
            .map(|settings| settings.with_late(rule, policy))
            .and_then(|settings| settings.with_max_future_ms(max_future_ms))
            .and_then(|settings| settings.with_dedup_horizon_ms(horizon_ms))
            .ok())
    };
    let sql = "SELECT window_ms, lateness_ms, late_rule, late_policy, max_future_ms, \
               dedup_horizon_ms FROM store";
    match connection.query_row(sql, [], read) {
        Ok(Some(settings)) => Ok(settings),
        Ok(None) => Err(Error::Corrupt(format!(
            "{}: damaged: its settings contradict each other; restore a backup",
            path.display()
        ))),
        Err(error) => Err(fault(path, "read its settings", &error)),
    }
}

#[cfg(test)]
mod tests;
