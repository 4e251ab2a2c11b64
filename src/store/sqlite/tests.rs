//! What only a store in a file can get wrong.

use std::path::PathBuf;

use super::*;
use crate::store::Snapshot;
use crate::store::conformance::{Subject, agree_with_the_model, conformance};
use crate::store::sqlite::sizes::Sizes;

mod acts;
mod contention;
mod files;
mod groups;
mod plans;
mod retention;
mod trusted;
mod turns;

/// Stores in a folder of their own, which goes with this.
struct Files {
    folder: tempfile::TempDir,
    made: std::cell::Cell<u32>,
    sizes: Sizes,
}

/// So little that runs are made and merged, and tables written, all the time.
const TINY: Sizes = Sizes {
    tail_entries: 4,
    merged_runs: 2,
    merge_pace: 1000,
    least_merge_ids: 1,
    recent_windows: 2,
    recent_rows: 5,
    forget_rows: 1,
};

impl Files {
    fn new() -> Files {
        Files {
            folder: tempfile::tempdir().unwrap(),
            made: std::cell::Cell::new(0),
            sizes: Sizes::default(),
        }
    }

    /// Another store on the same file.
    fn reopen_beside(&self, store: &SqliteStore) -> SqliteStore {
        let mut other = SqliteStore::open(&store.path, store.options.clone()).unwrap();
        other.memory = Cache::of_sizes(self.sizes);
        other.prune_rows = store.prune_rows;
        other
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn options() -> Options {
    Options { clock: Clock::Fixed(1_000_000), ..Options::default() }
}

impl Subject for Files {
    type Store = SqliteStore;

    fn make(&self, settings: Settings) -> SqliteStore {
        self.made.set(self.made.get() + 1);
        let path = self.path(&format!("{}.db", self.made.get()));
        let (mut store, created) = SqliteStore::create(&path, settings, options()).unwrap();
        assert_eq!(created, Created::Made);
        store.memory = Cache::of_sizes(self.sizes);
        store
    }

    fn snapshot(&self, store: &SqliteStore) -> Box<dyn Snapshot> {
        Box::new(SqliteStore::snapshot(&store.path, store.options.clone()).unwrap())
    }

    fn reopen(&self, store: SqliteStore) -> SqliteStore {
        let (path, options) = (store.path.clone(), store.options.clone());
        drop(store);
        let mut store = SqliteStore::open(&path, options).unwrap();
        store.memory = Cache::of_sizes(self.sizes);
        store
    }

    fn reopen_at(&self, mut store: SqliteStore, now_ms: i64) -> SqliteStore {
        store.options.clock = Clock::Fixed(now_ms);
        let mut store = self.reopen(store);
        // few at once, so that little suffices to show that it goes on
        store.prune_rows = 3;
        store
    }
}

#[test]
fn it_conforms() {
    conformance(&Files::new());
}

#[test]
fn it_agrees_with_the_model() {
    agree_with_the_model(&Files::new(), 200);
}

#[test]
fn it_conforms_with_tiny_runs() {
    conformance(&Files { sizes: TINY, ..Files::new() });
}

#[test]
fn it_agrees_with_the_model_with_tiny_runs() {
    agree_with_the_model(&Files { sizes: TINY, ..Files::new() }, 200);
}
