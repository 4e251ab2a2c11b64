//! The store in SQLite: one file, a write-ahead log, one writer at a time, readers that never wait.

mod audit;
mod batch;
mod cache;
mod codec;
mod file;
mod ledger;
mod prune;
mod reader;
mod sizes;
mod tables;
mod write_buffer;

use file::backup;
use file::connect;
use file::create;
use file::location;
use file::schema;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use tables::receipts;
use tables::sources;
use tables::store_meta;

use rusqlite::Connection;

pub use audit::{Entries, KeptIn, KeptOne, Lookup, Scratch};
pub use reader::SqliteSnapshot;

use crate::engine::Known;
use crate::engine::settings::Settings;
use crate::model::clock::Clock;
use crate::model::event::HashKey;
use crate::store::retention::{Bounds, Moment};
use crate::store::trusted::Following;
use crate::store::{
    Begun, Delivery, Error, Pace, Prefetch, Pruned, Refused, Retention, Silent, Store,
};
use batch::SqliteBatch;
use cache::Cache;
use file::connect::Writer;
use file::fault::{fault, stuck};
use file::location::FileId;
use file::lock_owner::LockOwner;
use file::sync::Unsynced;
use file::with_ending;
use tables::store_meta::StoreMeta;

/// Which other process holds the store in the file of that name at this moment, so that nobody else
/// can write to it: such as `process 1234 (sqlite3)`. None when none is seen to.
pub fn held_by(path: &Path) -> Option<String> {
    match LockOwner::of(path) {
        lock_owner @ LockOwner::Other(_) => Some(lock_owner.to_string()),
        LockOwner::Ourselves | LockOwner::Nobody | LockOwner::Unseen => None,
    }
}

/// A log that a reader keeps from being emptied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedLog {
    /// Its file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// What it should not exceed for long.
    pub limit_bytes: u64,
    /// Who reads an old state of the store, such as `process 1234 (sqlite3)`; none where it cannot be
    /// told.
    pub reader: Option<String>,
}

/// The log of the store in the file of that name, when it is larger than it should be and another
/// process reads the store, or may do so.
pub fn pinned_log(path: &Path) -> Option<PinnedLog> {
    let (bytes, limit_bytes) = (connect::log_bytes(path), connect::LOG_BYTES);
    if bytes <= limit_bytes {
        return None;
    }
    let reader = match LockOwner::reading(path) {
        lock_owner @ LockOwner::Other(_) => Some(lock_owner.to_string()),
        LockOwner::Unseen => None,
        // it is only waiting for the next commit, or for a report
        LockOwner::Ourselves | LockOwner::Nobody => return None,
    };
    Some(PinnedLog { path: with_ending(path, "-wal"), bytes, limit_bytes, reader })
}

/// The log of a store that is gone, or of which only an empty file is left; none when there is none.
pub fn left_log(path: &Path) -> Option<PathBuf> {
    location::left_log(path)
}

/// How a store is used; nothing of it is kept in the store.
#[derive(Clone, Debug)]
pub struct Options {
    /// What stamps batches and judges what is too far ahead.
    pub clock: Clock,
    /// How long to wait while others write before saying that the store is busy.
    pub busy_timeout: Duration,
    /// Whether the store may lie on a network file system, where a write-ahead log can be damaged
    /// without a sign as soon as a second machine opens it.
    pub allow_network_fs: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            clock: Clock::System,
            busy_timeout: Duration::from_secs(10),
            allow_network_fs: false,
        }
    }
}

/// What became of a wish to have a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// There was none: it was made.
    Made,
    /// There was one with these very settings.
    Confirmed,
}

/// For how long others are waited for at once; in between it is looked who that is.
const WAIT_AT_ONCE: Duration = Duration::from_millis(500);

/// How long is waited at least, where SQLite does not wait by itself.
const LEAST_WAIT: Duration = Duration::from_millis(20);

/// How long a connection that was opened again waits for others, which were waited for before.
const SECOND_WAIT: Duration = Duration::from_millis(100);

/// The writing side of a store in an SQLite file.
///
/// After a failure that leaves a connection in doubt it is closed, which undoes what was open; the
/// next batch opens another. Nothing is ever tried again on a connection that failed.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    options: Options,
    settings: Settings,
    /// The version of the tables when it was opened.
    found_version: i64,
    /// The trusted time as it was last seen in the store, and how it goes on from there.
    kept_ms: Option<i64>,
    following: Following,
    hash_key: HashKey,
    connection: Option<Connection>,
    /// Which file that is.
    file: Option<FileId>,
    /// What the log may grow to before a commit insists on emptying it.
    log_bytes: u64,
    /// How many rows retention looks at or removes in one transaction.
    prune_rows: usize,
    /// From which position on the ledger is walked, where that was cut short.
    prune_from: u64,
    memory: Cache,
    /// What the log holds may be in memory only: it is made durable before anything else is done.
    in_doubt: bool,
    /// What went wrong after a commit that stands: told at the next beginning.
    complaint: Option<Error>,
    /// What is in and not durable yet.
    unsynced: Unsynced,
    /// The refusals that may be in or not.
    refusals_in_doubt: Vec<Refused>,
}

impl SqliteStore {
    /// Makes a store in a file of that name, or confirms the one that is there. Any number of
    /// processes may try at once: one makes it. A crash leaves none, or a whole one.
    ///
    /// # Errors
    /// [`Error::OtherSettings`] when the store there was made with others; [`Error::Missing`] when
    /// there is no folder to make it in; as [`open`](Self::open) for the rest.
    pub fn create(
        path: &Path,
        settings: Settings,
        options: Options,
    ) -> Result<(SqliteStore, Created), Error> {
        let made = create::create(path, &settings, &options)?;
        let store = SqliteStore::open(path, options)?;
        if store.settings != settings {
            return Err(Error::OtherSettings { stored: store.settings, asked: settings });
        }
        Ok((store, if made { Created::Made } else { Created::Confirmed }))
    }

    /// Opens the store in the file of that name, and brings one of an older version up to date.
    /// Never makes a file.
    ///
    /// # Errors
    /// [`Error::Missing`] when there is none; [`Error::Corrupt`] for a file of something else and
    /// [`Error::NewerSchema`] for a store of a newer version, both of which stay as they are;
    /// [`Error::Misplaced`] on a network file system; the rest by kind.
    pub fn open(path: &Path, options: Options) -> Result<SqliteStore, Error> {
        let opened = connect::writer(path, &options, options.busy_timeout);
        let opened = opened.map_err(|error| match (error, LockOwner::of(path)) {
            (Error::Busy(_), lock_owner @ (LockOwner::Ourselves | LockOwner::Nobody)) => {
                stuck(path, lock_owner)
            }
            (error, _) => error,
        })?;
        let Writer { connection, settings, found_version } = opened;
        let hash_key = store_meta::hash_key(&connection)
            .map_err(|error| fault(path, "read its secret", &error))?;
        let kept_ms = store_meta::load(&connection).map(|head| head.trusted_ms);
        let kept_ms = kept_ms.map_err(|error| fault(path, "read its time", &error))?;
        let following = Following::new(options.clock);
        // whoever left a log may have ended over a sync that failed, and told nobody
        let in_doubt = connect::log_bytes(path) > 0;
        if in_doubt {
            connect::leave_log(&connection, true);
        }
        Ok(SqliteStore {
            path: path.to_owned(),
            options,
            settings,
            found_version,
            kept_ms,
            following,
            hash_key,
            connection: Some(connection),
            file: FileId::of(path),
            log_bytes: connect::LOG_BYTES,
            prune_rows: prune::ROWS_AT_ONCE,
            prune_from: 0,
            memory: Cache::default(),
            in_doubt,
            complaint: None,
            unsynced: Unsynced::default(),
            refusals_in_doubt: Vec::new(),
        })
    }

    /// What was done to a store of an older version when it was opened, in one line; none when it
    /// was of this version.
    pub fn migration(&self) -> Option<String> {
        (self.found_version < schema::LATEST).then(|| {
            format!(
                "{}: was written by an older windowflow: brought up to date, from schema {} to {}",
                self.path.display(),
                self.found_version,
                schema::LATEST
            )
        })
    }

    /// The same store, which makes runs of so many ids: for measurements.
    #[doc(hidden)]
    pub fn with_runs_of(mut self, ids: u64) -> SqliteStore {
        let least_merge_ids = ids / 8;
        self.memory = Cache::of_sizes(sizes::Sizes {
            tail_entries: ids,
            least_merge_ids,
            ..sizes::Sizes::default()
        });
        self
    }

    /// The state of the store at this moment, for reading as long as the snapshot lives, whatever
    /// is written meanwhile. It holds up no writer; while it lives the log grows.
    ///
    /// # Errors
    /// [`Error::OlderSchema`] for a store of an older version, which stays as it is; as
    /// [`open`](Self::open) for the rest.
    pub fn snapshot(path: &Path, options: Options) -> Result<SqliteSnapshot, Error> {
        SqliteSnapshot::take(path, &options)
    }

    /// The same, but a store of an older version is left as it is: to be looked through, not to be
    /// asked what only this version knows.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn look_at(path: &Path, options: &Options) -> Result<SqliteSnapshot, Error> {
        SqliteSnapshot::as_it_is(path, options)
    }

    /// Copies the state of this moment into a new file, while others may write. `progress` is told
    /// the pages done and the pages in all. The copy has its name only once it is whole and synced.
    /// It can be taken wherever the store lies: that is how to move one off a network file system.
    ///
    /// # Errors
    /// [`Error::Io`] when something has that name already; as [`open`](Self::open) for the rest.
    pub fn backup(path: &Path, to: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
        backup::backup(path, to, progress)
    }

    /// Begins a transaction that may write, and whose commit is synced or not. Waits for others who
    /// write, and finds out what it waits for: a lock of ours that failed to come off is in the way
    /// of nobody but us, for ever, and only closing the connection frees it.
    fn start(&mut self, synced: bool) -> Result<(), Error> {
        if let Some(error) = self.complaint.take() {
            return Err(error);
        }
        let deadline = Instant::now() + self.options.busy_timeout;
        let mut is_new = false;
        loop {
            let begun = Instant::now();
            let left = deadline.saturating_duration_since(begun);
            let least = if is_new { self.options.busy_timeout.min(SECOND_WAIT) } else { left };
            let started = self.try_start(synced, left.max(least).min(WAIT_AT_ONCE));
            let Err(Error::Busy(text)) = started else { return started };
            match (LockOwner::of(&self.path), Instant::now() >= deadline) {
                (LockOwner::Other(_) | LockOwner::Unseen, true) => return Err(Error::Busy(text)),
                (LockOwner::Ourselves, _) | (LockOwner::Nobody, true) if !is_new => {
                    self.close();
                    is_new = true;
                }
                (lock_owner, true) => return Err(stuck(&self.path, lock_owner)),
                (_, false) => thread::sleep(LEAST_WAIT.saturating_sub(begun.elapsed())),
            }
        }
    }

    fn try_start(&mut self, synced: bool, wait: Duration) -> Result<(), Error> {
        self.refuse_other_file()?;
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.reconnect(wait)?,
        };
        let begun = connection
            .busy_timeout(wait)
            .and_then(|()| self.unsynced.set_up(&connection, synced))
            .and_then(|()| connection.prepare_cached("BEGIN IMMEDIATE")?.execute([]));
        self.connection = Some(connection);
        let begun = begun.map_err(|error| fault(&self.path, "begin a batch", &error));
        if !matches!(begun, Ok(_) | Err(Error::Busy(_))) {
            self.close();
        }
        begun?;
        if self.in_doubt { self.prove_log() } else { Ok(()) }
    }

    /// A file that was renamed away would go on taking batches, and nobody would find them.
    fn refuse_other_file(&mut self) -> Result<(), Error> {
        if self.file.is_some_and(|file| file.has_left(&self.path)) {
            self.close();
            return Err(Error::Missing(format!(
                "{}: the store was moved, removed or replaced while it was in use; stop whatever \
                 uses it, put it back, then start again",
                self.path.display()
            )));
        }
        Ok(())
    }

    fn reconnect(&mut self, wait: Duration) -> Result<Connection, Error> {
        let writer = connect::writer(&self.path, &self.options, wait)?;
        let Writer { connection, settings, .. } = writer;
        if settings != self.settings {
            return Err(Error::OtherSettings { stored: settings, asked: self.settings });
        }
        if self.in_doubt {
            connect::leave_log(&connection, true);
        }
        Ok(connection)
    }

    /// Does something within the open transaction. When it fails, the connection is closed, which
    /// undoes all of it.
    fn attempt<T>(
        &mut self,
        doing: &str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.attempt_in_memory(doing, |connection, _| work(connection))
    }

    /// The same, with what is in memory.
    fn attempt_in_memory<T>(
        &mut self,
        doing: &str,
        work: impl FnOnce(&Connection, &mut Cache) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let Some(connection) = &self.connection else {
            return Err(Error::Io(format!(
                "{}: could not {doing}: the batch failed before; begin again",
                self.path.display()
            )));
        };
        work(connection, &mut self.memory).map_err(|error| {
            let error = fault(&self.path, doing, &error);
            self.close();
            error
        })
    }

    /// Undoes the open transaction.
    fn undo(&mut self) {
        if let Some(connection) = &self.connection {
            let undone = connection.prepare_cached("ROLLBACK").and_then(|mut it| it.execute([]));
            if undone.is_err() {
                self.close();
            }
        }
    }

    /// Ends the open transaction: durable when this returns, if it was started so.
    fn finish(&mut self) -> Result<(), Error> {
        self.refuse_other_file()?;
        let Some(connection) = &self.connection else {
            return self.attempt("commit", |_| Ok(()));
        };
        let ended = connection.prepare_cached("COMMIT").and_then(|mut it| it.execute([]));
        let Err(error) = ended else {
            if self.unsynced.committed() {
                self.trim_log();
            }
            return Ok(());
        };
        let open_still = !connection.is_autocommit();
        match fault(&self.path, "commit", &error) {
            // refused before anything was written: the transaction is still there to undo
            Error::Busy(text) if open_still => {
                self.undo();
                Err(Error::Busy(text))
            }
            other => {
                self.in_doubt = true;
                self.close();
                Err(Error::Unknown(format!(
                    "{other}; whether the batch is in cannot be told yet: begin it again, and the \
                     store answers"
                )))
            }
        }
    }

    fn begin_batch<'s>(
        &'s mut self,
        delivery: &Delivery,
        synced: bool,
    ) -> Result<Begun<'s>, Error> {
        self.start(synced)?;
        let known = self.attempt("look for its receipt", |connection| {
            let known = receipts::known(connection, &delivery.token)?;
            Ok((known, store_meta::load(connection)?))
        })?;
        match known {
            (Some(committed), _) => {
                self.undo();
                Ok(Begun::Known(committed))
            }
            (None, head) => {
                self.kept_ms = head.trusted_ms;
                Ok(Begun::Open(Box::new(SqliteBatch::new(self, delivery.clone(), head))))
            }
        }
    }

    /// One transaction of its own.
    fn transact<T>(
        &mut self,
        doing: &str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.start(true)?;
        let done = self.attempt(doing, work)?;
        self.finish()?;
        Ok(done)
    }

    /// One transaction of its own that takes something away from the tables, in which all that is
    /// known of windows and accounts stands by then.
    fn take_away<T>(
        &mut self,
        doing: &str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.start(true)?;
        let done = self.attempt_in_memory(doing, |connection, memory| {
            let mut head = store_meta::load(connection)?;
            memory.write_buffer(connection, head.stamp())?.work_in(connection)?;
            head.removals += 1;
            store_meta::save(connection, &head)?;
            work(connection)
        })?;
        self.memory.distrust();
        self.finish()?;
        self.unsynced.wrote();
        Ok(done)
    }

    /// Keeps another trusted time, which is found from the one that is there.
    fn set_time(&mut self, time: impl FnOnce(Option<i64>) -> i64) -> Result<(), Error> {
        let following = Following::new(self.options.clock);
        let kept_ms = self.transact("keep its time", |connection| {
            let mut head = store_meta::load(connection)?;
            head.trusted_ms = Some(time(head.trusted_ms));
            store_meta::save(connection, &head)?;
            Ok(head.trusted_ms)
        })?;
        self.unsynced.wrote();
        (self.kept_ms, self.following) = (kept_ms, following);
        Ok(())
    }

    /// What retention may remove at this moment.
    fn retention_bounds(&mut self, what: &Retention) -> Result<Bounds, Error> {
        let settings = self.settings;
        let head = self.transact("see what may be removed", store_meta::load)?;
        let now_ms = self.following.trusted_ms(head.trusted_ms);
        let StoreMeta { watermark_ms, last_number, .. } = head;
        Ok(what.bounds(&settings, Moment { watermark_ms, last_number, now_ms }))
    }

    /// Keeps the log within its bound where no reader is in the way. The commit before it stands,
    /// whatever comes of this: what goes wrong is told at the next beginning, and what was copied
    /// into the store's file is copied anew then, since the log still has it.
    fn trim_log(&mut self) {
        if let Some(connection) = &self.connection
            && connect::log_bytes(&self.path) > self.log_bytes
            && let Err(error) = connect::empty_log(connection, Duration::ZERO)
        {
            let error = fault(&self.path, "copy its log into it", &error);
            self.close();
            self.complaint = Some(error).filter(|error| !matches!(error, Error::Busy(_)));
        }
    }
}

impl Store for SqliteStore {
    fn settings(&self) -> Settings {
        self.settings
    }

    fn hash_key(&self) -> HashKey {
        self.hash_key
    }

    fn now_ms(&self) -> i64 {
        self.following.now_ms(self.kept_ms)
    }

    fn trusted_ms(&self) -> i64 {
        self.following.trusted_ms(self.kept_ms)
    }

    fn keep_time(&mut self) -> Result<(), Error> {
        let following = self.following;
        self.set_time(|kept_ms| following.trusted_ms(kept_ms))
    }

    fn trust_now(&mut self) -> Result<(), Error> {
        let now_ms = self.options.clock.now_ms();
        self.set_time(|_| now_ms)
    }

    fn prefetch(&self) -> Option<Box<dyn Prefetch>> {
        let (path, options) = (self.path.clone(), self.options.clone());
        let open = move || connect::prefetch(&path, &options).ok();
        Some(self.memory.prefetch(self.hash_key, Box::new(open)))
    }

    fn begin<'s>(&'s mut self, delivery: &Delivery) -> Result<Begun<'s>, Error> {
        self.begin_batch(delivery, true)
    }

    fn begin_unsynced<'s>(&'s mut self, delivery: &Delivery) -> Result<Begun<'s>, Error> {
        self.begin_batch(delivery, false)
    }

    fn record_refusal(&mut self, refused: &Refused) -> Result<(), Error> {
        self.keep_refusal(refused)
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.sync_commits()
    }

    fn known(&mut self, sources: &[&str]) -> Result<Vec<Known>, Error> {
        self.look("read what is known of sources", |it| sources::known(it, sources))
    }

    fn silent(&mut self, after: Option<&Silent>, most: usize) -> Result<Vec<(u64, Silent)>, Error> {
        self.look("read which sources are silent", |it| sources::silent(it, after, most))
    }

    fn expected(&mut self) -> Result<Vec<String>, Error> {
        self.look("read which sources are expected", sources::all_expected)
    }

    fn prune_paced(&mut self, what: &Retention, pace: &mut Pace<'_>) -> Result<Pruned, Error> {
        prune::prune(self, what, pace)
    }
}

#[cfg(test)]
mod tests;
