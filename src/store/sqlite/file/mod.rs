//! The store as a file: making, opening, syncing and copying it, its schema, and what its failures
//! mean.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(crate) mod backup;
pub(crate) mod connect;
pub(crate) mod create;
pub(crate) mod fault;
pub(crate) mod location;
pub(crate) mod lock_owner;
pub(crate) mod schema;
pub(crate) mod sync;

/// The name of a file that SQLite keeps beside the store.
pub(crate) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}
