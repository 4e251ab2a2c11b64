//! The moves of files made durable: the folders in which names came or went are synced.

use std::io;
use std::mem;
use std::sync::PoisonError;

use super::move_error::MoveError;
use super::safe_open::is_not_that_folder;
use super::{Spool, folder};

/// Makes the moves since the last call durable; called once at the end of a drain. A power cut
/// before it leaves files in the inbox, where they are taken again and change nothing.
///
/// A folder whose sync failed is synced again at the next call, and that one may say that all is
/// well, since the kernel tells of an error once. Nothing is built on it: what is moved was durable
/// in the store before, and where a name is lost the file is found under the other.
///
/// # Errors
/// When a folder cannot be synced, and which; what is left is done at the next call.
pub fn sync_folders(spool: &Spool) -> Result<(), MoveError> {
    let take = || spool.touched.lock().unwrap_or_else(PoisonError::into_inner);
    let mut folders: Vec<_> = mem::take(&mut *take()).into_iter().collect();
    // where names came before where they went: a file may stand in both places, never in none
    folders.sort_by_key(|(base, _)| base == spool.inbox());
    let mut failed = None;
    for (base, source) in folders {
        match folder::open_source(&base, source.as_deref()).and_then(folder::sync) {
            // it went away, or something took its name: no link is followed, no pipe waited for
            Err(error) if is_not_that_folder(&error) => {}
            // a producer has closed its own folder: a power cut may bring back what left it, and
            // that is all
            Err(error) if is_denied(&error) && base == spool.inbox() && source.is_some() => {}
            Err(error) => {
                let path = source.as_ref().map_or(base.clone(), |source| base.join(source));
                take().insert((base, source));
                failed.get_or_insert(MoveError::Io(path, error));
            }
            Ok(()) => {}
        }
    }
    failed.map_or(Ok(()), Err)
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}
