//! Which object is to blame for a move that failed: tried out, not read off the error number.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::PoisonError;

use rustix::fs::{Access, AtFlags, Mode, OFlags};

use super::{Entry, Spool, folder, remove};

/// What keeps a file from being moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveBlame {
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
pub fn of_move(spool: &Spool, base: &Path, entry: &Entry) -> MoveBlame {
    let inbox = spool.inbox();
    if try_out(spool, base, None).is_err() || refuses(inbox, None) {
        return MoveBlame::Spool;
    }
    let Some(source) = entry.folder.as_deref() else { return MoveBlame::File };
    match try_out(spool, base, Some(source)).is_err() || refuses(inbox, Some(source)) {
        true => MoveBlame::Folder,
        false => MoveBlame::File,
    }
}

/// Makes a file in one of our own folders, moves it there and removes it. Where it cannot be removed,
/// the folder is kept in mind for [`remove_trials`].
fn try_out(spool: &Spool, base: &Path, source: Option<&str>) -> io::Result<()> {
    let held = folder::open_source(base, source)?;
    let [made, moved] = TRIAL.map(OsStr::new);
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    drop(rustix::fs::openat(&held, made, flags, Mode::RUSR | Mode::WUSR)?);
    let outcome = remove(&held, moved)
        .and_then(|()| folder::move_free(held.as_fd(), made, held.as_fd(), moved));
    let removed = remove_trial(&held);
    if removed.is_err() {
        let mut trials = spool.trials.lock().unwrap_or_else(PoisonError::into_inner);
        trials.insert((base.to_owned(), source.map(str::to_owned)));
    }
    removed.and(outcome)
}

/// Removes what is left of trials in one of our own folders.
pub(super) fn remove_trial(held: &OwnedFd) -> io::Result<()> {
    TRIAL.iter().try_for_each(|name| remove(held, OsStr::new(name)))
}

/// Removes the trial files that could not be removed at once; costs nothing where there are none.
/// What cannot be removed still is left for the next call.
pub fn remove_trials(spool: &Spool) {
    let mut trials = spool.trials.lock().unwrap_or_else(PoisonError::into_inner);
    trials.retain(|(base, source)| {
        let removed =
            folder::open_source(base, source.as_deref()).and_then(|held| remove_trial(&held));
        removed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
    });
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
        assert_eq!(of_move(&spool, spool.done(), &entry), MoveBlame::File);
        assert_eq!(fs::read_dir(spool.done()).unwrap().count(), 0);
    }

    /// As after a removal that was refused: it is tried again until it works.
    #[test]
    fn a_trial_that_could_not_be_removed_goes_later() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        // a folder cannot be removed as a file, whoever asks
        let in_the_way = spool.failed().join(TRIAL[1]);
        fs::create_dir(&in_the_way).unwrap();
        let entry = Entry::new(None, "a");
        assert_eq!(of_move(&spool, spool.failed(), &entry), MoveBlame::Spool);
        remove_trials(&spool);
        assert!(in_the_way.exists());
        fs::remove_dir(&in_the_way).unwrap();
        fs::write(&in_the_way, "left").unwrap();
        remove_trials(&spool);
        assert_eq!(fs::read_dir(spool.failed()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_crash_left_of_a_trial_goes_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        for folder in [spool.done(), spool.failed()] {
            fs::write(folder.join(TRIAL[0]), "left").unwrap();
        }
        let spool = Spool::open(dir.path()).unwrap();
        for folder in [spool.done(), spool.failed()] {
            assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_destination_that_is_not_there_is_everybodys_and_that_of_a_source_is_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let (entry, of_source) = (Entry::new(None, "a"), Entry::new(Some("s"), "a"));
        fs::create_dir(spool.inbox().join("s")).unwrap();
        assert_eq!(of_move(&spool, spool.done(), &of_source), MoveBlame::Folder);
        fs::create_dir(spool.done().join("s")).unwrap();
        assert_eq!(of_move(&spool, spool.done(), &of_source), MoveBlame::File);
        fs::remove_dir_all(spool.done()).unwrap();
        assert_eq!(of_move(&spool, spool.done(), &of_source), MoveBlame::Spool);
        assert_eq!(of_move(&spool, spool.done(), &entry), MoveBlame::Spool);
    }
}
