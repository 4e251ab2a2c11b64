//! Moves between the folders: durable, never overwriting, and only of the very file that was read.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::advice;
use super::folder::{self, Facts, Kind};
use super::move_error::{MoveError, io_at};
use super::reason_file::Reason;
use super::safe_open::{Opened, is_not_that_folder};
use super::{Entry, Spool, name, remove};

use failed::is_left_over;

pub use super::durable::sync_folders;
pub use failed::{Failed, count_failed, list_failed, read_reason, remove_failed};

mod failed;

/// What stands behind the name of a refused file in the name of its reason.
pub const REASON_SUFFIX: &str = ".error.json";

/// The most bytes of a reason that are looked at: more than any that is written.
const REASON_MAX_BYTES: u64 = 1 << 20;

/// How often a name is looked for when others keep taking the one that was free.
const TRIES: usize = 100;

/// Moves an ingested file to done, under its own name or with a number behind it, and answers
/// where it is. The commit that counts it must be durable by now.
///
/// # Errors
/// See [`MoveError`]; the file is then in the inbox, unless the error says otherwise.
pub fn to_done(spool: &Spool, entry: &Entry, opened: &Opened) -> Result<PathBuf, MoveError> {
    let from = open_from(spool.inbox(), entry)?;
    let to = make_to(spool, spool.done(), entry)?;
    let ours = check(&from, spool.inbox(), entry, Some(opened))?;
    let room = room_for(&entry.name, &to);
    let taken = |name: &OsStr| folder::exists(&to, name);
    let name = move_numbered(&from, &entry.name, &to, &entry.name, room, taken)
        .map_err(|error| unmoved(error, (spool.inbox(), entry), spool.done()))?;
    let placed = Entry { folder: entry.folder.clone(), name };
    check_moved(spool, (&from, entry), (&to, spool.done(), &placed), (&ours, Some(opened)))?;
    spool.touch(spool.inbox(), entry.folder.as_deref());
    spool.touch(spool.done(), entry.folder.as_deref());
    Ok(placed.path_in(spool.done()))
}

/// Moves a refused file to failed and answers where it is. Its reason, `NAME.error.json`, is there
/// before it. `opened` is none for what was never opened: a link, or a file that we may not read.
///
/// # Errors
/// See [`MoveError`]; the file is then in the inbox, unless the error says otherwise.
pub fn to_failed(
    spool: &Spool,
    entry: &Entry,
    opened: Option<&Opened>,
    reason: Reason,
) -> Result<PathBuf, MoveError> {
    let moved = move_to_failed(spool, entry, opened, &reason.draft);
    if moved.is_err() {
        reason.remove(spool);
    }
    moved
}

fn move_to_failed(
    spool: &Spool,
    entry: &Entry,
    opened: Option<&Opened>,
    draft: &OsStr,
) -> Result<PathBuf, MoveError> {
    let from = open_from(spool.inbox(), entry)?;
    let drafts = folder::open(spool.failed()).map_err(|error| io_at(spool.failed(), error))?;
    let to = make_to(spool, spool.failed(), entry)?;
    let ours = check(&from, spool.inbox(), entry, opened)?;
    let room = room_for(&entry.name, &to);
    let room = room.saturating_sub(REASON_SUFFIX.len());
    let name = move_with_reason((&from, &entry.name), (&to, room), (&drafts, draft))
        .map_err(|error| unmoved(error, (spool.inbox(), entry), spool.failed()))?;
    let placed = Entry { folder: entry.folder.clone(), name };
    let ours = (&ours, opened);
    let checked = check_moved(spool, (&from, entry), (&to, spool.failed(), &placed), ours);
    if let Err(MoveError::Replaced | MoveError::Changed) = checked {
        let _ = remove(&to, &reason_name(&placed.name));
    }
    checked?;
    spool.touch(spool.inbox(), entry.folder.as_deref());
    spool.touch(spool.failed(), entry.folder.as_deref());
    Ok(placed.path_in(spool.failed()))
}

/// Puts a refused file back into the inbox, where it is taken at once, and answers where it is.
/// Its reason is removed after that.
///
/// # Errors
/// See [`MoveError`]; the file is then in failed still.
pub fn back_to_inbox(spool: &Spool, entry: &Entry) -> Result<PathBuf, MoveError> {
    let from = open_from(spool.failed(), entry)?;
    let to = make_to(spool, spool.inbox(), entry)?;
    check(&from, spool.failed(), entry, None)?;
    let reason = reason_name(&entry.name);
    let reason_before = Facts::at(&from, &reason).ok();
    let room = room_for(&entry.name, &to);
    let taken = |name: &OsStr| folder::exists(&to, name);
    let name = move_numbered(&from, &entry.name, &to, &entry.name, room, taken)
        .map_err(|error| unmoved(error, (spool.failed(), entry), spool.inbox()))?;
    // The daemon may have refused the file again by now: then the reason is a new one, and stays.
    let reason_now = Facts::at(&from, &reason).ok();
    if reason_before.is_some_and(|before| reason_now.is_some_and(|now| now.file == before.file)) {
        let path = Entry { folder: entry.folder.clone(), name: reason.clone() };
        remove(&from, &reason)
            .map_err(|error| MoveError::of(error, path.path_in(spool.failed())))?;
    }
    spool.touch(spool.failed(), entry.folder.as_deref());
    spool.touch(spool.inbox(), entry.folder.as_deref());
    Ok(Entry { folder: entry.folder.clone(), name }.path_in(spool.inbox()))
}

fn open_from(base: &Path, entry: &Entry) -> Result<OwnedFd, MoveError> {
    folder::open_source(base, entry.folder.as_deref()).map_err(|error| {
        if is_not_that_folder(&error) { MoveError::Gone } else { io_at(base, error) }
    })
}

/// A move from the folder of an entry in one of the spool's folders to that in another.
fn unmoved(error: io::Error, (from, entry): (&Path, &Entry), to: &Path) -> MoveError {
    let folder = |base: &Path| match &entry.folder {
        Some(source) => base.join(source),
        None => base.to_owned(),
    };
    let blamed = advice::blamed(entry.path_in(from), &folder(from), &folder(to), &error);
    MoveError::of(error, blamed)
}

/// Opens the folder of the entry's source below `base`, and makes it where it is missing.
pub(super) fn make_to(spool: &Spool, base: &Path, entry: &Entry) -> Result<OwnedFd, MoveError> {
    let held = folder::open(base).map_err(|error| io_at(base, error))?;
    let Some(source) = entry.folder.as_deref() else { return Ok(held) };
    let make = || -> io::Result<OwnedFd> {
        match folder::open_sub(&held, source) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                folder::make_sub(&held, source)?;
                spool.touch(base, None);
                folder::open_sub(&held, source)
            }
            // a file of that name was moved here before, or a link was put here
            Err(error) if is_not_that_folder(&error) && base != spool.inbox() => {
                set_aside(&held, OsStr::new(source))?;
                spool.touch(base, None);
                folder::make_sub(&held, source)?;
                folder::open_sub(&held, source)
            }
            other => other,
        }
    };
    make().map_err(|error| io_at(&base.join(source), error))
}

/// Gives another name to a file, and to its reason, that stands where a folder is needed.
fn set_aside(held: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let room = room_for(name, held) - REASON_SUFFIX.len();
    let free = first_free_name(name, room, |name| {
        Ok(folder::exists(held, name)? || folder::exists(held, &reason_name(name))?)
    })?;
    let reason = reason_name(name);
    if folder::exists(held, &reason)? {
        folder::move_free(held.as_fd(), &reason, held.as_fd(), &reason_name(&free))?;
    }
    folder::move_free(held.as_fd(), name, held.as_fd(), &free)
}

/// Checks that the name still stands for the file that was read, as it was read.
fn check(
    from: &OwnedFd,
    base: &Path,
    entry: &Entry,
    opened: Option<&Opened>,
) -> Result<Facts, MoveError> {
    let failed = |error| MoveError::of(error, entry.path_in(base));
    let here = Facts::at(from, &entry.name).map_err(failed)?;
    match opened {
        Some(opened) if !opened.is_at(&here).map_err(failed)? => Err(MoveError::Replaced),
        Some(opened) if !here.same_bytes(opened.facts()) => Err(MoveError::Changed),
        // never opened, so it was no folder when it was found
        None if here.kind == Kind::Folder => Err(MoveError::Replaced),
        _ => Ok(here),
    }
}

/// Checks the same where the file is now, since the name may have changed hands just before the
/// move; what should not have been moved, or cannot be checked, is put back.
fn check_moved(
    spool: &Spool,
    (from, entry): (&OwnedFd, &Entry),
    (to, base, placed): (&OwnedFd, &Path, &Entry),
    (ours, opened): (&Facts, Option<&Opened>),
) -> Result<(), MoveError> {
    let compared = Facts::at(to, &placed.name).and_then(|there| {
        let is_ours = opened.map_or_else(|| Ok(there.same_inode(ours)), |it| it.is_at(&there))?;
        Ok((is_ours, there.same_bytes(ours)))
    });
    let verdict = match compared {
        Ok((true, true)) => return Ok(()),
        Ok((true, false)) => MoveError::Changed,
        Ok((false, _)) => MoveError::Replaced,
        Err(error) => MoveError::Io(placed.path_in(base), error),
    };
    let room = room_for(&entry.name, from);
    let taken = |name: &OsStr| folder::exists(from, name);
    // under a numbered name if its own is taken again
    move_numbered(to, &placed.name, from, &entry.name, room, taken)
        .map_err(|error| MoveError::Io(placed.path_in(base), error))?;
    spool.touch(spool.inbox(), entry.folder.as_deref());
    Err(verdict)
}

/// Moves a file to the wanted name, or to that with a number behind it, and answers which.
pub(super) fn move_numbered(
    from: &OwnedFd,
    name: &OsStr,
    to: &OwnedFd,
    wanted: &OsStr,
    room: usize,
    is_taken: impl Fn(&OsStr) -> io::Result<bool>,
) -> io::Result<OsString> {
    let mut free = wanted.to_owned();
    for _ in 0..TRIES {
        match folder::move_free(from.as_fd(), name, to.as_fd(), &free) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                free = first_free_name(wanted, room, &is_taken)?;
            }
            other => return other.map(|()| free),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Puts the reason into its place, moves the file beside it, and answers the name of the file.
fn move_with_reason(
    (from, name): (&OwnedFd, &OsStr),
    (to, room): (&OwnedFd, usize),
    (drafts, draft): (&OwnedFd, &OsStr),
) -> io::Result<OsString> {
    for _ in 0..TRIES {
        let free = first_free_name(name, room, |name| is_pair_taken(to, name))?;
        let reason = reason_name(&free);
        let moved = place_reason((drafts, draft), to, &reason).and_then(|()| {
            folder::move_free(from.as_fd(), name, to.as_fd(), &free).inspect_err(|_| {
                // should even this fail, the next refusal of the file writes over it
                let _ = folder::move_free(to.as_fd(), &reason, drafts.as_fd(), draft);
            })
        });
        match moved {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other.map(|()| free),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn first_free_name(
    name: &OsStr,
    room: usize,
    is_taken: impl Fn(&OsStr) -> io::Result<bool>,
) -> io::Result<OsString> {
    let numbered = |number| name::numbered(name.as_bytes(), number, room).map(OsString::from_vec);
    let number = name::first_free(|number| match numbered(number) {
        Some(name) => is_taken(&name),
        None if number == 0 => Ok(true),
        None => Err(io::ErrorKind::InvalidFilename.into()),
    })?;
    numbered(number).ok_or_else(|| io::ErrorKind::InvalidFilename.into())
}

/// How many bytes a name may have in that folder; asked of the system only when it matters.
pub(super) fn room_for(name: &OsStr, held: &OwnedFd) -> usize {
    if name.len() <= 32 { 255 } else { folder::name_room(held) }
}

fn reason_name(name: &OsStr) -> OsString {
    let mut reason = name.to_owned();
    reason.push(REASON_SUFFIX);
    reason
}

/// The name of the file that a name would be the reason of.
fn stem(name: &OsStr) -> Option<&OsStr> {
    name.as_bytes().strip_suffix(REASON_SUFFIX.as_bytes()).map(OsStr::from_bytes)
}

/// Whether a refused file of that name, with its reason, would get in the way of another, or be
/// taken for the reason of another.
fn is_pair_taken(held: &OwnedFd, name: &OsStr) -> io::Result<bool> {
    let reason = reason_name(name);
    Ok(folder::exists(held, name)?
        || (folder::exists(held, &reason)? && !is_left_over(held, &reason)?)
        || stem(name).map_or(Ok(false), |stem| folder::exists(held, stem))?)
}

/// Gives a reason its name: it is there whole, or not at all.
fn place_reason(
    (drafts, draft): (&OwnedFd, &OsStr),
    to: &OwnedFd,
    reason: &OsStr,
) -> io::Result<()> {
    match folder::move_free(drafts.as_fd(), draft, to.as_fd(), reason) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if !is_left_over(to, reason)? {
                return Err(error);
            }
            Ok(rustix::fs::renameat(drafts, draft, to, reason)?)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests;
