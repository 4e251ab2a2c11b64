//! Which object is to blame for a move that failed: tried out, not read off the error number.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Access, AtFlags, Mode, OFlags};

use super::{Entry, Spool, folder, remove};

/// What keeps a file from being moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The file alone.
    File,
    /// The folder of its source, in the inbox or where it goes to: all files of that source.
    Folder,
    /// The inbox itself, or the folder where files go to: all files.
    Spool,
}

/// The files that are made and moved to try a folder out. Only folders of our own are tried that
/// way, and there is one writer, so the names are free.
const TRIAL: [&str; 2] = [".windowflow-trial", ".windowflow-trial.moved"];

/// Whom to blame that the entry could not be moved from the inbox to `base`, which is done or
/// failed. A producer rules over its own file and folder (any owner, mode, sticky bit), so those
/// are to blame wherever a file of ours can be made, moved and removed in `base`.
pub fn of_move(spool: &Spool, base: &Path, entry: &Entry) -> Blame {
    let inbox = spool.inbox();
    if folder::open(base).and_then(|held| try_out(&held)).is_err() || refuses(inbox, None) {
        return Blame::Spool;
    }
    let Some(source) = entry.folder.as_deref() else { return Blame::File };
    let there = folder::open_source(base, Some(source));
    match there.and_then(|held| try_out(&held)).is_err() || refuses(inbox, Some(source)) {
        true => Blame::Folder,
        false => Blame::File,
    }
}

/// Makes a file in one of our own folders, moves it there and removes it.
fn try_out(held: &OwnedFd) -> io::Result<()> {
    let [made, moved] = TRIAL.map(OsStr::new);
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    drop(rustix::fs::openat(held, made, flags, Mode::RUSR | Mode::WUSR)?);
    remove(held, moved)?;
    let outcome = folder::move_free(held.as_fd(), made, held.as_fd(), moved);
    remove(held, made)?;
    remove(held, moved)?;
    outcome
}

/// Whether files of others cannot be moved out of that folder by us: we may not write to or search
/// it, or it is sticky and belongs to somebody else.
fn refuses(inbox: &Path, source: Option<&str>) -> bool {
    let looked = || -> io::Result<bool> {
        let held = folder::open_source(inbox, source)?;
        let rights = Access::WRITE_OK | Access::EXEC_OK;
        if rustix::fs::accessat(&held, ".", rights, AtFlags::EACCESS).is_err() {
            return Ok(true);
        }
        let found = rustix::fs::fstat(&held)?;
        let us = rustix::process::geteuid();
        let is_sticky = Mode::from_raw_mode(found.st_mode).contains(Mode::SVTX);
        Ok(is_sticky && found.st_uid != us.as_raw() && !us.is_root())
    };
    // what cannot be looked at lets nothing be moved out of it either
    looked().unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_trial_leaves_nothing_and_replaces_what_a_crash_has_left() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        fs::write(spool.done().join(TRIAL[0]), "left").unwrap();
        fs::write(spool.done().join(TRIAL[1]), "left").unwrap();
        let entry = Entry::new(None, "a");
        assert_eq!(of_move(&spool, spool.done(), &entry), Blame::File);
        assert_eq!(fs::read_dir(spool.done()).unwrap().count(), 0);
    }

    #[test]
    fn a_destination_that_is_not_there_is_everybodys_and_that_of_a_source_is_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let (entry, of_source) = (Entry::new(None, "a"), Entry::new(Some("s"), "a"));
        fs::create_dir(spool.inbox().join("s")).unwrap();
        assert_eq!(of_move(&spool, spool.done(), &of_source), Blame::Folder);
        fs::create_dir(spool.done().join("s")).unwrap();
        assert_eq!(of_move(&spool, spool.done(), &of_source), Blame::File);
        fs::remove_dir_all(spool.done()).unwrap();
        assert_eq!(of_move(&spool, spool.done(), &of_source), Blame::Spool);
        assert_eq!(of_move(&spool, spool.done(), &entry), Blame::Spool);
    }
}
