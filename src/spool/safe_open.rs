//! Opening one file safely, whether it changes, and whether somebody still writes to it.

use std::fmt;
use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{Access, AtFlags};
use rustix::io::Errno;

use super::Entry;
use super::folder::{self, Facts, Kind};

/// Which signal a broken lease sends; libc does not name it. The same on every Linux.
const F_SETSIG: libc::c_int = 10;

/// A regular file, open for reading, with what was known of it when it was opened.
#[derive(Debug)]
pub struct Opened {
    file: File,
    at_open: Facts,
}

/// Opens an entry below one of the spool's folders. Neither the folder of its source nor the file
/// itself is followed should it be a link, so nothing outside the spool can be reached.
///
/// # Errors
/// See [`OpenError`].
pub fn open_entry(base: &Path, entry: &Entry) -> Result<Opened, OpenError> {
    let folder = match folder::open_source(base, entry.folder.as_deref()) {
        Ok(folder) => folder,
        // the folder went away, or something else has its name
        Err(error) if is_not_that_folder(&error) => return Err(OpenError::Gone),
        Err(error) => return Err(OpenError::Io(error)),
    };
    open_at(&folder, &entry.name)
}

/// Whether the entry still leads to that very file.
///
/// # Errors
/// When the system does not tell.
pub fn leads_to(base: &Path, entry: &Entry, opened: &Opened) -> io::Result<bool> {
    let here = folder::open_source(base, entry.folder.as_deref())
        .and_then(|folder| Facts::at(&folder, &entry.name));
    match here {
        Ok(here) => opened.is_at(&here),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) if is_not_that_folder(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens a file by its path: without following its last name, without blocking on a pipe, and
/// only when it is a regular file.
///
/// # Errors
/// See [`OpenError`].
#[cfg(test)]
pub(super) fn open_regular(path: &Path) -> Result<Opened, OpenError> {
    open_at(rustix::fs::CWD, path.as_os_str())
}

fn open_at(folder: impl AsFd, name: &std::ffi::OsStr) -> Result<Opened, OpenError> {
    let regular = |facts: Facts| match facts.kind {
        Kind::File => Ok(facts),
        other => Err(OpenError::NotRegular(other)),
    };
    // asked before opening: to open a pipe or a device is felt at its other end
    match Facts::at(&folder, name) {
        Ok(facts) => regular(facts)?,
        Err(error) if is_not_that_folder(&error) => return Err(OpenError::Gone),
        // a folder that may not be searched is no fault of the file
        Err(error) => return Err(OpenError::Io(error)),
    };
    let file = folder::open_file(&folder, name).map_err(|error| {
        // a refusal that its rights do not bear out is no reason to set it aside: it may be one that
        // is in already, and was not moved yet
        let flags = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW;
        let may_read = || rustix::fs::accessat(&folder, name, Access::READ_OK, flags).is_ok();
        match Errno::from_io_error(&error) {
            Some(Errno::ACCESS | Errno::PERM) if may_read() => OpenError::Io(error),
            _ => OpenError::new(error),
        }
    })?;
    let at_open = Facts::of(&file).map_err(OpenError::Io).and_then(regular)?;
    Ok(Opened { file, at_open })
}

pub(super) fn is_not_that_folder(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

impl Opened {
    /// The file alone.
    pub fn into_file(self) -> File {
        self.file
    }

    /// The file, to read from; its position is shared with whoever reads.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its size in bytes when it was opened.
    pub fn bytes(&self) -> u64 {
        self.at_open.bytes
    }

    /// Whether size and time of last writing are what they were when it was opened. The time of
    /// the last change of the inode is not looked at: a producer that links a file in and then
    /// removes its own name changes it, and harms nothing.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn unchanged(&self) -> io::Result<bool> {
        Ok(Facts::of(&self.file)?.same_bytes(&self.at_open))
    }

    /// Whether the kernel says that somebody has it open for writing now.
    pub fn is_being_written(&self) -> bool {
        being_written(&self.file) == Some(true)
    }

    /// When it was last written to, as of its opening.
    pub fn modified(&self) -> SystemTime {
        self.at_open.modified()
    }

    /// Begins what [`sync`](Self::sync) ends: with several files that is cheaper. What is in memory
    /// of the file is given up.
    pub fn begin_sync(&self) {
        folder::begin_sync(&self.file);
    }

    /// Makes the producer's bytes durable. To be done before the commit that counts them: a power
    /// cut must not leave their counts without the file.
    ///
    /// The kernel tells of a sync that failed once, calls the pages clean that it could not write,
    /// and lets the next sync go well. The bytes are the producer's, and not ours to write again. So
    /// what memory holds of them is given up: who reads the file after that reads what the disk has.
    ///
    /// # Errors
    /// When the disk refuses: what was read is not to be relied on.
    pub fn sync(&self) -> io::Result<()> {
        let synced = self.file.sync_data();
        if synced.is_err() {
            folder::forget(&self.file);
        }
        synced
    }

    /// What tells the file from others, as it is called by now, with the content that it had when it
    /// was opened; to be kept without keeping it open.
    pub fn seen(&self) -> Seen {
        let file = Facts::of(&self.file).map_or(self.at_open.file, |now| now.file);
        Seen(Facts { file, ..self.at_open })
    }

    /// Whether what was just found under a name is this very file.
    ///
    /// # Errors
    /// When the system does not tell: then it may be.
    pub(super) fn is_at(&self, here: &Facts) -> io::Result<bool> {
        Ok(Facts::of(&self.file)?.file == here.file)
    }

    /// Goes back to the beginning, to read it again.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn rewind(&self) -> io::Result<()> {
        (&self.file).rewind()
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.at_open
    }
}

/// What stands under that name, not followed should it be a link, without opening it.
///
/// # Errors
/// When nothing does, or the system refuses.
pub fn seen_at(base: &Path, entry: &Entry) -> io::Result<Seen> {
    let folder = folder::open_source(base, entry.folder.as_deref())?;
    Ok(Seen(Facts::at(&folder, &entry.name)?))
}

/// A file as it was once seen.
#[derive(Clone, Debug)]
pub struct Seen(Facts);

impl Seen {
    pub(super) fn facts(&self) -> &Facts {
        &self.0
    }

    /// What tells it from other files and from other content of its own, to be written down. The
    /// time of birth is no part of it: it can change until this is read.
    pub fn mark(&self) -> String {
        let Facts { file, bytes, mtime, .. } = &self.0;
        let device = file.device;
        format!("{}:{} {} {bytes} {}.{}", device.0, device.1, file.inode, mtime.0, mtime.1)
    }

    /// Whether this is the same file, with the same content as far as size and time tell.
    pub fn is(&self, opened: &Opened) -> bool {
        self.0.file == opened.at_open.file && self.0.same_content(&opened.at_open)
    }
}

/// Why a file cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Nothing has that name (any more).
    Gone,
    /// It is not a regular file: such are never read.
    NotRegular(Kind),
    /// We may not read it: dropped with umask 077, most often. It can still be moved.
    Denied,
    /// The system refuses: no fault of the file.
    Io(io::Error),
}

impl OpenError {
    fn new(error: io::Error) -> OpenError {
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => OpenError::Gone,
            // it became one after we looked
            Some(Errno::LOOP) => OpenError::NotRegular(Kind::Link),
            Some(Errno::NXIO) => OpenError::NotRegular(Kind::Socket),
            Some(Errno::ACCESS | Errno::PERM) => OpenError::Denied,
            _ => OpenError::Io(error),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Gone => f.write_str("the file is gone"),
            OpenError::NotRegular(kind) => {
                write!(f, "expected a regular file, found {}", kind.name())
            }
            OpenError::Denied => f.write_str(
                "the file cannot be read by the user that runs windowflow; was it dropped with \
                 umask 077? make it readable (chmod g+r) and put it in again",
            ),
            OpenError::Io(error) => write!(f, "cannot open the file: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// Whether somebody has the file open for writing: yes, certainly not, or none when the kernel
/// cannot tell (a file of another user without `CAP_LEASE`, a file system without leases).
///
/// A read lease is asked for and given back at once: the kernel refuses it with `EAGAIN` exactly
/// while there is a writer. The file must be open for reading only.
pub fn being_written(file: &File) -> Option<bool> {
    match take_lease(file) {
        Ok(()) => {
            give_back_lease(file);
            Some(false)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(true),
        Err(_) => None,
    }
}

fn take_lease(file: &File) -> io::Result<()> {
    // Who opens the file for writing in the moment that we hold the lease makes the kernel send us
    // a signal: SIGIO, which would kill, unless another is chosen. SIGURG is ignored by default.
    fcntl(file, F_SETSIG, libc::SIGURG)?;
    fcntl(file, libc::F_SETLEASE, libc::F_RDLCK)
}

fn give_back_lease(file: &File) {
    // What is held can be given back. If it could not, closing the file would do it, and until then
    // a writer would wait, so no harm comes of not looking.
    let _ = fcntl(file, libc::F_SETLEASE, libc::F_UNLCK);
}

#[expect(unsafe_code, reason = "leases have no safe wrapper in std, rustix or nix")]
fn fcntl(file: &File, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open, since `file` is borrowed for the whole call, and both
    // commands that are passed here take an int and touch no memory of ours.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
