//! Connections to the store's file, all of them by SQLite: a second descriptor on the file, once
//! closed, would take the locks of every connection in this process with it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::engine::settings::Settings;
use crate::store::Error;

use super::fault::{fault, io_fault, refuse_foreign, refuse_unreadable};
use super::location::{
    has_small_blocks, has_whole_index, refuse_network, refuse_without_room, sync_folder_of,
};
use super::schema;
use crate::store::sqlite::Options;
use crate::store::sqlite::file::with_ending;

/// After this many pages of 4 KiB a commit copies the log into the store: 16 MiB.
const CHECKPOINT_PAGES: i64 = 4096;

/// What the log may grow to before a commit insists on emptying it: 64 MiB. It can stay longer by
/// what one batch writes, and by what is written while one report or backup is being read.
pub(crate) const LOG_BYTES: u64 = 64 << 20;

/// How much of the log is written again at once.
const BLOCK_BYTES: usize = 1 << 20;

/// Kept in memory of the store's pages: up to 32 MiB, in units of 1024 bytes as SQLite counts them. The
/// upper pages of the ledger's tables fit in, for more than a hundred million ids.
const CACHE_KIB: i64 = 32 * 1024;

/// The same for who only looks up ids: up to 16 MiB.
const SCOUT_CACHE_KIB: i64 = 16 * 1024;

/// A connection that may write.
pub(crate) struct Writer {
    pub(crate) connection: Connection,
    /// The settings found there.
    pub(crate) settings: Settings,
    /// The version of the tables before they were brought up to date.
    pub(crate) found_version: i64,
}

/// A connection that may write. The store is brought up to this version. `wait` is how long others
/// may hold it.
pub(crate) fn writer(path: &Path, options: &Options, wait: Duration) -> Result<Writer, Error> {
    refuse_foreign(path)?;
    refuse_without_room(path, true)?;
    let had_log = with_ending(path, "-wal").exists();
    // what is foreign must be left as it is, and one that may write would play back its journal
    drop(reader(path, options, wait)?);
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE, wait)?;
    schema::identify(&connection, path)?;
    prepare(&connection, path)?;
    if !had_log {
        // SQLite does so itself, and keeps it to itself when that fails: then a power cut takes the
        // name of the log, and with it what was synced there
        sync_folder_of(path)?;
    }
    let found_version =
        schema::version(&connection).map_err(|error| fault(path, "read its version", &error))?;
    schema::migrate(&connection).map_err(|error| fault(path, "bring it up to date", &error))?;
    let settings = schema::settings(&connection, path)?;
    if has_small_blocks(path) && !has_whole_index(path) {
        // the first write to the log writes to all of its index, for which there is room now
        let touched = connection
            .execute_batch("BEGIN IMMEDIATE")
            .and_then(|()| touch(&connection))
            .and_then(|()| connection.execute_batch("COMMIT"));
        touched.map_err(|error| fault(path, "set it up", &error))?;
    }
    Ok(Writer { connection, settings, found_version })
}

/// A connection that can only read; what it is was checked.
pub(crate) fn reader(path: &Path, options: &Options, wait: Duration) -> Result<Connection, Error> {
    refuse_unreadable(path)?;
    refuse_network(path, options.allow_network_fs)?;
    match std::fs::metadata(path) {
        Ok(seen) if !seen.is_file() => return Err(schema::no_store(path)),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(missing(path)),
        Err(error) => return Err(io_fault(path, "look at it", &error)),
    }
    refuse_without_room(path, false)?;
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY, wait)?;
    schema::identify(&connection, path)?;
    Ok(connection)
}

/// A connection that looks up ids ahead of the writer. It waits for nobody.
pub(crate) fn prefetch(path: &Path, options: &Options) -> Result<Connection, Error> {
    let connection = reader(path, options, Duration::ZERO)?;
    connection
        .pragma_update(None, "cache_size", -SCOUT_CACHE_KIB)
        .map_err(|error| fault(path, "set it up", &error))?;
    Ok(connection)
}

fn missing(path: &Path) -> Error {
    Error::Missing(format!(
        "there is no store at {0}; if there was one, restore a backup, since a new store would count \
         again what comes again; for a new one, run: windowflow --db {0} init --window-ms ... \
         --lateness-ms ...",
        path.display()
    ))
}

/// Opens the file by its name, byte for byte: it never becomes a URI or a store in memory.
pub(crate) fn open(path: &Path, flags: OpenFlags, wait: Duration) -> Result<Connection, Error> {
    let named = std::path::absolute(path)
        .map_err(|error| io_fault(path, "find the current folder", &error))?;
    let open = || {
        let connection =
            Connection::open_with_flags(named, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(wait)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    };
    open().map_err(|error| fault(path, "open it", &error))
}

/// Sets what a writer relies on.
fn prepare(connection: &Connection, path: &Path) -> Result<(), Error> {
    let set = || -> rusqlite::Result<String> {
        set_synced(connection, true)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        let limit = i64::try_from(LOG_BYTES).unwrap_or(i64::MAX);
        connection.pragma_update_and_check(None, "journal_size_limit", limit, |_| Ok(()))?;
        keep_log(connection)
    };
    match set() {
        Ok(mode) => refuse_other_mode(path, &mode),
        Err(error) => Err(fault(path, "set it up", &error)),
    }
}

/// Has the store keep a write-ahead log, and answers what mode SQLite says it is in then.
///
/// The answer comes before the change is written: only the end of the statement tells whether that
/// went well.
pub(crate) fn keep_log(connection: &Connection) -> rusqlite::Result<String> {
    let mut statement = connection.prepare("PRAGMA journal_mode = WAL")?;
    let mut answers = statement.query([])?;
    let mut mode = String::new();
    while let Some(answer) = answers.next()? {
        mode = answer.get(0)?;
    }
    Ok(mode)
}

/// Refuses a file system on which there can be no write-ahead log.
pub(crate) fn refuse_other_mode(path: &Path, mode: &str) -> Result<(), Error> {
    if mode == "wal" {
        return Ok(());
    }
    Err(Error::Misplaced(format!(
        "{}: the file system does not let SQLite keep a write-ahead log (it answered journal mode \
         '{mode}'); keep the store on an ordinary local disk (--db)",
        path.display()
    )))
}

/// Makes the next commits of that connection synced ones, or such whose sync comes with that of a
/// later one: the sync of the log is about all that is in it.
///
/// Nothing is copied from the log while commits are not synced. That begins with a sync of the log,
/// too, and SQLite keeps it to itself when it fails; the next one would then go well, although the
/// kernel had given up what was to be written.
pub(crate) fn set_synced(connection: &Connection, synced: bool) -> rusqlite::Result<()> {
    let (level, pages) = if synced { ("FULL", CHECKPOINT_PAGES) } else { ("NORMAL", 0) };
    connection.pragma_update(None, "wal_autocheckpoint", pages)?;
    connection.pragma_update(None, "synchronous", level)
}

/// Writes a page of the store as it is. A row that is written as it is would not do: SQLite sees
/// that nothing changes, and then the commit neither writes nor syncs.
pub(crate) fn touch(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", schema::APPLICATION_ID)
}

/// How long the log is; its name is looked at, it is not opened.
pub(crate) fn log_bytes(path: &Path) -> u64 {
    std::fs::metadata(with_ending(path, "-wal")).map_or(0, |log| log.len())
}

/// Empties the log into the store; false when a reader or a writer is in the way for longer than
/// `wait`.
pub(crate) fn empty_log(connection: &Connection, wait: Duration) -> rusqlite::Result<bool> {
    connection.busy_timeout(wait)?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
        row.get::<_, i64>(0).map(|busy| busy == 0)
    })
}

/// Whether the last connection to end leaves the log as it is, instead of copying it into the store.
pub(crate) fn leave_log(connection: &Connection, leave: bool) {
    // it knows the setting, so it cannot refuse it
    let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, leave);
}

/// Writes the log again as it is, and syncs it. SQLite has no locks on this file, so that closing
/// it takes none away. To be called by who may write to the store.
pub(crate) fn write_log_again(path: &Path) -> io::Result<()> {
    let log = match File::options().read(true).write(true).open(with_ending(path, "-wal")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut block = vec![0; BLOCK_BYTES];
    let mut at = 0;
    loop {
        match log.read_at(&mut block, at) {
            Ok(0) => break,
            Ok(read) => {
                log.write_all_at(&block[..read], at)?;
                at += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    log.sync_data()
}
