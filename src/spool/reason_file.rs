//! Reasons of refused files in the making: written for a whole group, then synced, then put into
//! their places one by one.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

use super::move_error::{MoveError, io_at};
use super::{Spool, folder, remove};

/// How many reasons can be in the making at once.
pub const DRAFTS: usize = 128;

/// The name of a copy in the making, which [`late_writes`](super::late_writes) makes.
pub(super) const COPY_NAME: &str = ".windowflow-copy.tmp";

/// A reason in the making: written, but neither durable nor in its place.
#[derive(Debug)]
pub struct ReasonDraft {
    name: OsString,
    file: File,
}

/// Writes a reason for a file that is going to be moved to failed. `number` is below [`DRAFTS`],
/// and tells it from the others of its group: there is one writer.
///
/// # Errors
/// [`MoveError::Io`] when the disk refuses.
pub fn draft_reason(spool: &Spool, number: usize, json: &[u8]) -> Result<ReasonDraft, MoveError> {
    let name = draft_name(number);
    let write = || {
        let held = folder::open(spool.failed())?;
        remove(&held, &name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o640);
        let mut file = File::from(rustix::fs::openat(&held, &name, flags, mode)?);
        if let Err(error) = file.write_all(json) {
            // leave the room that a full disk may need
            let _ = remove(&held, &name);
            return Err(error);
        }
        folder::begin_sync(&file);
        Ok(file)
    };
    let written = write();
    let file = written.map_err(|error| io_at(&spool.failed().join(&name), error))?;
    Ok(ReasonDraft { name, file })
}

impl ReasonDraft {
    /// Makes it durable. With several, draft all of them, then sync all of them, then move the
    /// first: that is cheaper.
    ///
    /// # Errors
    /// [`MoveError::Io`] when the disk refuses.
    pub fn sync(self, spool: &Spool) -> Result<Reason, MoveError> {
        match self.file.sync_data() {
            Ok(()) => Ok(Reason { draft: self.name }),
            Err(error) => {
                let path = spool.failed().join(&self.name);
                remove_draft(spool, &self.name);
                Err(io_at(&path, error))
            }
        }
    }
}

/// A reason that is durable, and not in its place.
#[derive(Debug)]
pub struct Reason {
    pub(super) draft: OsString,
}

impl Reason {
    /// It is not needed after all.
    pub(super) fn remove(&self, spool: &Spool) {
        remove_draft(spool, &self.draft);
    }
}

fn remove_draft(spool: &Spool, name: &OsStr) {
    // leave the room that a full disk may need; what stays is removed at the next start
    let _ = folder::open(spool.failed()).and_then(|held| remove(held, name));
}

pub(super) fn draft_name(number: usize) -> OsString {
    format!(".windowflow-reason-{number}.tmp").into()
}

/// Removes the drafts that a crash has left.
pub(super) fn remove_drafts(failed: &OwnedFd) -> io::Result<()> {
    remove(failed, OsStr::new(COPY_NAME))?;
    (0..DRAFTS).try_for_each(|number| remove(failed, &draft_name(number)))
}
