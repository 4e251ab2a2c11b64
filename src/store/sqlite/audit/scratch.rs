//! A store in the temporary folder, in which sums are made again: not in memory, which has a bound.

use std::path::PathBuf;

use crate::engine::settings::Settings;
use crate::model::clock::Clock;
use crate::store::Error;
use crate::store::sqlite::reader::SqliteSnapshot;
use crate::store::sqlite::{Options, SqliteStore};
use crate::store::trusted::Following;

/// A store of its own, which goes with its folder.
#[derive(Debug)]
pub struct Scratch {
    store: SqliteStore,
    path: PathBuf,
    // gone when this is
    _folder: tempfile::TempDir,
}

impl Scratch {
    /// An empty store with those settings.
    ///
    /// # Errors
    /// When the temporary folder cannot be written, or is full.
    pub fn new(settings: Settings) -> Result<Scratch, Error> {
        let folder = tempfile::Builder::new()
            .prefix("windowflow-verify-")
            .tempdir()
            .map_err(|error| Error::Full(format!("cannot make a temporary folder: {error}")))?;
        let path = folder.path().join("scratch.db");
        // nothing in it has to outlive this process
        let options = Options { allow_network_fs: true, ..Options::default() };
        let (store, _) = SqliteStore::create(&path, settings, options)?;
        Ok(Scratch { store, path, _folder: folder })
    }

    /// The store, for writing.
    pub fn store(&mut self) -> &mut SqliteStore {
        &mut self.store
    }

    /// Lets it live at another moment.
    pub fn set_clock(&mut self, clock: Clock) {
        self.store.options.clock = clock;
        self.store.following = Following::new(clock);
    }

    /// What it has come to, all of it in its tables.
    ///
    /// # Errors
    /// By kind.
    pub fn snapshot(&mut self) -> Result<SqliteSnapshot, Error> {
        self.store.take_away("work in what is recent", |_| Ok(()))?;
        let options = Options { allow_network_fs: true, ..Options::default() };
        SqliteStore::snapshot(&self.path, options)
    }
}
