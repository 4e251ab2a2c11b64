//! How a store comes to be: made whole under another name, then given its own. Never overwrites.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::OpenFlags;
use tempfile::TempPath;

use crate::engine::settings::Settings;
use crate::store::Error;

use super::connect::{keep_log, open, refuse_other_mode};
use super::fault::{fault, folder_of, io_fault};
use super::location::{refuse_leftovers, refuse_network, sync_folder_of};
use super::schema;
use crate::store::sqlite::Options;

/// Makes a store there unless something has that name; says whether it did.
pub(crate) fn create(path: &Path, settings: &Settings, options: &Options) -> Result<bool, Error> {
    refuse_network(path, options.allow_network_fs)?;
    refuse_leftovers(path)?;
    if path.symlink_metadata().is_ok() {
        return Ok(false);
    }
    let temporary = unused_name_beside(path)?;
    let connection = open(
        &temporary,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        options.busy_timeout,
    )?;
    let made = schema::make(&connection, settings, options.clock.now_ms())
        .and_then(|()| keep_log(&connection));
    let mode = made.map_err(|error| fault(path, "make it", &error))?;
    refuse_other_mode(path, &mode)?;
    connection.close().map_err(|(_, error)| fault(path, "make it", &error))?;
    give_name(temporary, path)
}

/// A name in the same folder that is removed again unless it is made to last.
pub(crate) fn unused_name_beside(path: &Path) -> Result<TempPath, Error> {
    tempfile::Builder::new()
        .prefix(".windowflow-")
        .suffix(".tmp")
        .permissions(Permissions::from_mode(0o640))
        .tempfile_in(folder_of(path))
        .map(tempfile::NamedTempFile::into_temp_path)
        .map_err(|error| io_fault(path, "make a file beside it", &error))
}

/// Syncs the finished file and gives it its name; false when that is taken.
pub(crate) fn give_name(temporary: TempPath, path: &Path) -> Result<bool, Error> {
    // nobody else knows this name, so no lock can be lost by opening it here
    std::fs::File::open(&temporary)
        .and_then(|file| file.sync_all())
        .map_err(|error| io_fault(path, "sync it", &error))?;
    match temporary.persist_noclobber(path) {
        Ok(()) => sync_folder_of(path).map(|()| true),
        Err(failed) if failed.error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(failed) => Err(io_fault(path, "give it its name", &failed.error)),
    }
}
