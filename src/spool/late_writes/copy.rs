//! The copy of a file of done/ into the inbox: written under a hidden name, synced, then renamed.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use sha2::{Digest as _, Sha256};

use super::Stamp;
use crate::os::disk_space::free_bytes;
use crate::spool::move_error::{self, MoveError};
use crate::spool::moves;
use crate::spool::safe_open::{self, OpenError};
use crate::spool::{Entry, Spool, folder, reason_file, remove};

/// What stands behind the name of a file in the name of its copy.
const SUFFIX: &str = ".changed";

/// How many bytes are copied at once.
const BLOCK_BYTES: usize = 1 << 20;

/// A copy in the making, durable under a hidden name in failed/, where a start removes what a crash
/// has left.
#[derive(Debug)]
pub struct Copy {
    copied: Copied,
    entry: Entry,
}

/// What was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// How many bytes.
    pub bytes: u64,
    /// SHA-256 of them, in lower-case hexadecimal.
    pub sha256: String,
    pub(super) stamp: Stamp,
}

/// Why there is no copy.
#[derive(Debug)]
pub enum NotCopied {
    /// The file is gone.
    Gone,
    /// It changed while it was read, or somebody has it open for writing.
    Changing,
    /// A copy would take too much of the disk, with the reason.
    TooLarge(String),
    /// The system refuses.
    Io(String),
}

impl fmt::Display for NotCopied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotCopied::Gone => f.write_str("the file is gone"),
            NotCopied::Changing => f.write_str("the file changes while it is read"),
            NotCopied::TooLarge(reason) | NotCopied::Io(reason) => f.write_str(reason),
        }
    }
}

impl From<MoveError> for NotCopied {
    fn from(error: MoveError) -> NotCopied {
        NotCopied::Io(error.to_string())
    }
}

impl Copy {
    /// Copies a file of done/ to a hidden name. `goes_on` is asked between the blocks.
    ///
    /// # Errors
    /// See [`NotCopied`]; nothing is left behind then.
    pub fn make(
        spool: &Spool,
        entry: &Entry,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Copy, NotCopied> {
        let made = make(spool, entry, goes_on);
        if made.is_err() {
            discard(spool);
        }
        Ok(Copy { copied: made?, entry: entry.clone() })
    }

    /// What was copied.
    pub fn copied(&self) -> &Copied {
        &self.copied
    }

    /// Gives it its name in the inbox, in the folder of its source: `NAME.changed`, with a number
    /// behind it should that be taken; answers where it is. It is durable then.
    ///
    /// # Errors
    /// See [`NotCopied`]; nothing is left behind then.
    pub fn place(self, spool: &Spool) -> Result<PathBuf, NotCopied> {
        let placed = self.try_place(spool);
        if placed.is_err() {
            discard(spool);
        }
        Ok(placed?)
    }

    fn try_place(&self, spool: &Spool) -> Result<PathBuf, MoveError> {
        let from = folder::open(spool.failed())
            .map_err(|error| move_error::io_at(spool.failed(), error))?;
        let to = moves::make_to(spool, spool.inbox(), &self.entry)?;
        let room = moves::room_for(&self.entry.name, &to);
        let wanted = wanted_name(&self.entry.name, room);
        let entry = Entry { folder: self.entry.folder.clone(), name: wanted };
        let path = entry.path_in(spool.inbox());
        let draft = OsStr::new(reason_file::COPY_NAME);
        let taken = |name: &OsStr| folder::exists(&to, name);
        let name = moves::move_numbered(&from, draft, &to, &entry.name, room, taken)
            .map_err(|error| move_error::io_at(&path, error))?;
        folder::sync(&to).map_err(|error| move_error::io_at(&path, error))?;
        Ok(Entry { name, ..entry }.path_in(spool.inbox()))
    }

    /// It is not needed after all.
    pub fn discard(self, spool: &Spool) -> Copied {
        discard(spool);
        self.copied
    }
}

fn discard(spool: &Spool) {
    // what stays is removed by the next copy, or the next start
    let _ = folder::open(spool.failed())
        .and_then(|held| remove(held, OsStr::new(reason_file::COPY_NAME)));
}

fn make(
    spool: &Spool,
    entry: &Entry,
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<Copied, NotCopied> {
    let opened = safe_open::open_entry(spool.done(), entry).map_err(|error| match error {
        OpenError::Gone | OpenError::NotRegular(_) => NotCopied::Gone,
        other => NotCopied::Io(format!("done/{entry}: {other}")),
    })?;
    let io = |error: io::Error| NotCopied::Io(format!("cannot copy done/{entry}: {error}"));
    let size_bytes = opened.bytes();
    if let Some(free_bytes) = free_bytes(spool.failed()).filter(|free| size_bytes > free / 2) {
        // a producer may make its own file as large as it likes, at no cost
        return Err(NotCopied::TooLarge(format!(
            "it has {size_bytes} bytes by now, and a copy would take more than half of the \
             {free_bytes} bytes of disk space that are free"
        )));
    }
    let mut draft = create(spool).map_err(io)?;
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let read = match opened.file().read(&mut block) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(io(error)),
        };
        hasher.update(&block[..read]);
        draft.write_all(&block[..read]).map_err(io)?;
        bytes += read as u64;
        if bytes > size_bytes || !goes_on() {
            return Err(NotCopied::Changing);
        }
    }
    draft.sync_all().map_err(io)?;
    // asked first, so that what such a writer wrote and closed is seen, too
    if opened.is_being_written() || !opened.unchanged().map_err(io)? {
        return Err(NotCopied::Changing);
    }
    let sha256 = format!("{:x}", hasher.finalize());
    Ok(Copied { bytes, sha256, stamp: Stamp::of(opened.facts()) })
}

fn create(spool: &Spool) -> io::Result<File> {
    let held = folder::open(spool.failed())?;
    let name = OsStr::new(reason_file::COPY_NAME);
    remove(&held, name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(&held, name, flags, Mode::from_raw_mode(0o640))?))
}

/// The name of the copy: the end of the file's own is cut where both would be too long.
fn wanted_name(name: &OsStr, room: usize) -> OsString {
    let bytes = name.as_bytes();
    let mut keep = bytes.len().min(room.saturating_sub(SUFFIX.len()));
    if let Ok(text) = std::str::from_utf8(bytes) {
        keep = text.floor_char_boundary(keep);
    }
    OsString::from_vec([&bytes[..keep], SUFFIX.as_bytes()].concat())
}
