//! The proof, at a start, that files can be moved between the folders of a spool.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::name::shown_path;
use super::{Spool, SpoolError, blame, folder, reason_file, remove, scan};

/// The name of the probe file in done and failed. In the inbox, where producers can write, a random
/// number follows it. Scans leave it alone for its leading dot.
pub(super) const PROBE: &str = ".windowflow-probe";

/// How many random bytes follow in a name that nobody can have taken.
const RANDOM_BYTES: usize = 16;

/// One of the folders, and what the probe is called there.
struct Spot<'a> {
    path: &'a Path,
    held: OwnedFd,
    name: OsString,
}

impl<'a> Spot<'a> {
    fn new(path: &'a Path) -> Result<Spot<'a>, SpoolError> {
        let held = folder::open(path).map_err(|error| failed_at(path, error))?;
        Ok(Spot { path, held, name: PROBE.into() })
    }

    fn failed(&self, error: io::Error) -> SpoolError {
        failed_at(self.path, error)
    }

    /// Gives the probe a name that no producer can have taken.
    fn draw_name(&mut self) -> Result<(), SpoolError> {
        self.name = random_name().map_err(|error| self.failed(error))?;
        Ok(())
    }

    /// Removes a probe that was left by a crash. Should something else have its name that cannot be
    /// removed, another name is drawn.
    fn free_name(&mut self) -> Result<(), SpoolError> {
        match remove(&self.held, &self.name) {
            Ok(()) => Ok(()),
            Err(_) => self.draw_name(),
        }
    }

    fn move_to(&self, to: &Spot<'_>) -> Result<(), SpoolError> {
        let moved = folder::move_free(self.held.as_fd(), &self.name, to.held.as_fd(), &to.name);
        moved.map_err(|error| match error.kind() {
            io::ErrorKind::CrossesDevices => {
                SpoolError::OtherMount { from: self.path.to_owned(), to: to.path.to_owned() }
            }
            _ => to.failed(error),
        })
    }

    fn remove(&self) -> Result<(), SpoolError> {
        remove(&self.held, &self.name).map_err(|error| self.failed(error))
    }
}

fn failed_at(path: &Path, source: io::Error) -> SpoolError {
    SpoolError::Probe { path: path.to_owned(), source }
}

/// Moves a probe file from the inbox to failed, back, and to done, and removes it there. Removes what
/// an earlier process left of its own files of passage, too.
pub(super) fn prove_moves(spool: &Spool) -> Result<(), SpoolError> {
    let mut inbox = Spot::new(&spool.inbox)?;
    let mut done = Spot::new(&spool.done)?;
    let mut failed = Spot::new(&spool.failed)?;
    remove_left(&inbox.held).map_err(|error| inbox.failed(error))?;
    inbox.draw_name()?;
    done.free_name()?;
    failed.free_name()?;
    reason_file::remove_drafts(&failed.held).map_err(|error| failed.failed(error))?;
    for spot in [&done, &failed] {
        blame::remove_trial(&spot.held).map_err(|error| spot.failed(error))?;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::openat(&inbox.held, &inbox.name, flags, Mode::RUSR | Mode::WUSR) {
        Ok(_) => {}
        Err(Errno::NOSPC | Errno::DQUOT) => {
            let inbox = shown_path(inbox.path);
            log::warn!("{inbox} has no room for a probe file: whether moving works is unknown");
            return Ok(());
        }
        Err(error) => return Err(inbox.failed(error.into())),
    }
    let mut last = &inbox;
    let mut outcome = Ok(());
    for to in [&failed, &inbox, &done] {
        outcome = last.move_to(to);
        if outcome.is_err() {
            break;
        }
        last = to;
    }
    outcome.and(last.remove())
}

fn random_name() -> io::Result<OsString> {
    let mut bytes = [0; RANDOM_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
    }
    Ok(format!("{PROBE}-{:032x}", u128::from_ne_bytes(bytes)).into())
}

/// Removes the probes that crashes left in the inbox: empty files of our own. What a producer put
/// under such a name is left alone.
fn remove_left(inbox: &OwnedFd) -> io::Result<()> {
    for (name, _) in scan::list(inbox)? {
        if name.as_bytes().starts_with(PROBE.as_bytes()) && is_ours(inbox, &name) {
            // one that stays is in nobody's way
            let _ = remove(inbox, &name);
        }
    }
    Ok(())
}

fn is_ours(inbox: &OwnedFd, name: &OsStr) -> bool {
    rustix::fs::statat(inbox, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
            && found.st_uid == rustix::process::geteuid().as_raw()
            && (found.st_size, found.st_nlink) == (0, 1)
    })
}
