//! What a failure of SQLite means, and what to do about it. Looks at the file system only by name:
//! opening the store's file here would drop SQLite's locks on it.

use std::io::Write;
use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode, ffi};
use rustix::fs::{Access, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

use super::lock_owner::LockOwner;
use super::with_ending;
use crate::os::disk_space::{self, Free};
use crate::os::owner::{Me, Owner, user, user_for_sudo};
use crate::store::Error;

/// Below this many free bytes the shared memory of the log (32 KiB) or a page cannot be added.
const NO_ROOM_BYTES: u64 = 64 * 1024;

/// What SQLite says when the system refuses a lock for another reason than that somebody has it.
const LOCKING: [i32; 5] = [
    ffi::SQLITE_IOERR_LOCK,
    ffi::SQLITE_IOERR_UNLOCK,
    ffi::SQLITE_IOERR_RDLOCK,
    ffi::SQLITE_IOERR_CHECKRESERVEDLOCK,
    ffi::SQLITE_IOERR_SHMLOCK,
];

/// What can be seen of the folder that holds the store, and of this process.
#[derive(Clone, Debug)]
struct Room {
    free: Option<Free>,
    mounted_read_only: bool,
    /// What may not be used as it has to be: the folder, the store, or a file beside it.
    closed: Option<PathBuf>,
    /// What the system says when a file is written in that folder; only looked at where something
    /// could not be written.
    refused: Option<Errno>,
    /// Why nothing can be opened.
    no_files: Option<Errno>,
}

impl Room {
    fn around(path: &Path) -> Room {
        let folder = folder_of(path);
        let seen = rustix::fs::statvfs(folder).ok();
        let may_write = |path: &Path| rustix::fs::access(path, Access::WRITE_OK).is_ok();
        let may_use = |path: &Path| {
            rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK).is_ok() || !path.exists()
        };
        let files = ["", "-wal", "-shm"].map(|ending| with_ending(path, ending));
        let closed = (!may_write(folder)).then(|| folder.to_owned());
        // the file itself says more than the folder
        let closed = files.into_iter().find(|file| !may_use(file)).or(closed);
        Room {
            free: Free::on(folder),
            mounted_read_only: seen
                .is_some_and(|seen| seen.f_flag.contains(StatVfsMountFlags::RDONLY)),
            closed,
            refused: None,
            no_files: rustix::fs::open(
                "/dev/null",
                OFlags::RDONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .err()
            .filter(|errno| matches!(*errno, Errno::MFILE | Errno::NFILE)),
        }
    }

    /// The same, with a try to write: SQLite does not tell why the system refused.
    fn around_a_write(path: &Path) -> Room {
        let mut room = Room::around(path);
        let past_limit = disk_space::file_limit_bytes().is_some_and(|limit| {
            let longest = ["", "-wal"].map(|ending| bytes_of(&with_ending(path, ending)));
            longest.into_iter().any(|bytes| bytes.saturating_add(TRIED_BYTES as u64) > limit)
        });
        room.refused = match past_limit {
            true => Some(Errno::FBIG),
            false => try_to_write(folder_of(path)).err(),
        };
        room
    }

    /// What to do about what the system does not explain.
    fn fix(&self) -> &'static str {
        match self.no_files {
            Some(Errno::MFILE) => {
                "too many files are open in this process: raise its limit (ulimit -n, or \
                 LimitNOFILE= under systemd)"
            }
            Some(_) => {
                "too many files are open on this machine: end something, or raise fs.file-max \
                 (sysctl)"
            }
            None => "look at the disk and at the kernel's log",
        }
    }

    fn is_full(&self) -> bool {
        self.free.is_some_and(|free| {
            free.bytes < NO_ROOM_BYTES || free.inodes.is_some_and(|(left, _)| left == 0)
        })
    }
}

/// How many bytes are tried to be written.
const TRIED_BYTES: usize = 64 << 10;

/// Writes into a file without a name, which is gone at once.
fn try_to_write(folder: &Path) -> Result<(), Errno> {
    let written =
        tempfile::tempfile_in(folder).and_then(|mut file| file.write_all(&[0; TRIED_BYTES]));
    written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// How long a file is; its name is looked at, it is not opened.
fn bytes_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |seen| seen.len())
}

/// The folder that a path lies in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The kind and the words for a failure of SQLite while doing something with the store at `path`.
pub(crate) fn fault(path: &Path, doing: &str, error: &rusqlite::Error) -> Error {
    explain(path, doing, error, || Room::around_a_write(path))
}

/// The same for a failure of the file system itself.
pub(crate) fn io_fault(path: &Path, doing: &str, error: &std::io::Error) -> Error {
    use std::io::ErrorKind as Kind;
    let room = Room::around(path);
    match error.kind() {
        Kind::StorageFull | Kind::QuotaExceeded => no_room(path, doing, room),
        Kind::ReadOnlyFilesystem | Kind::PermissionDenied => no_right(path, doing, room),
        _ => Error::Io(format!("{}: could not {doing}: {error}; {}", path.display(), room.fix())),
    }
}

fn explain(path: &Path, doing: &str, error: &rusqlite::Error, room: impl Fn() -> Room) -> Error {
    let shown = path.display();
    let Some(failure) = error.sqlite_error() else {
        // a row was there, but not of the kind that this program writes
        return match error {
            rusqlite::Error::ToSqlConversionFailure(_) => {
                Error::Io(format!("{shown}: could not {doing}: {error}"))
            }
            _ => damaged(path, doing, error),
        };
    };
    match (failure.code, failure.extended_code) {
        (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _)
        | (ErrorCode::FileLockingProtocolFailed, _) => Error::Busy(format!(
            "{shown}: busy, could not {doing}: it waits for {}; let that end, then try again \
             (`fuser {shown}` names the processes that have it open)",
            LockOwner::of(path)
        )),
        (ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => no_room(path, doing, room()),
        (_, ffi::SQLITE_READONLY_DBMOVED) => Error::Missing(format!(
            "{shown}: could not {doing}: the store was moved or deleted while it was in use; put \
             it back, then start again"
        )),
        (_, ffi::SQLITE_IOERR_CORRUPTFS) => damaged(path, doing, error),
        (ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase, _) => damaged(path, doing, error),
        (ErrorCode::ReadOnly | ErrorCode::PermissionDenied, _) => no_right(path, doing, room()),
        (ErrorCode::SystemIoFailure | ErrorCode::CannotOpen, extended) => {
            let room = room();
            if room.mounted_read_only || room.closed.is_some() {
                no_right(path, doing, room)
            } else if room.is_full() || matches!(room.refused, Some(Errno::DQUOT | Errno::NOSPC)) {
                no_room(path, doing, room)
            } else if room.refused == Some(Errno::FBIG) {
                too_large(path, doing)
            } else if extended == ffi::SQLITE_IOERR_NOMEM {
                no_memory(path, doing)
            } else if LOCKING.contains(&extended) {
                Error::Io(format!(
                    "{shown}: could not {doing}: {error} (code {extended}): the system does not \
                     give out a lock; end whatever holds many locks, and look at the kernel's log"
                ))
            } else {
                let fix = room.fix();
                Error::Io(format!("{shown}: could not {doing}: {error} (code {extended}); {fix}"))
            }
        }
        (ErrorCode::OutOfMemory, _) => no_memory(path, doing),
        (_, extended) => {
            let fix = room().fix();
            Error::Io(format!("{shown}: could not {doing}: {error} (code {extended}); {fix}"))
        }
    }
}

/// A store that is busy although nobody else holds it, and although it was opened again.
pub(crate) fn stuck(path: &Path, lock_owner: LockOwner) -> Error {
    let shown = path.display();
    let why = match lock_owner {
        LockOwner::Ourselves => "this process holds it itself, by a lock that did not come off",
        _ => "no process holds it, but the system does not give out its lock",
    };
    Error::Stuck(format!(
        "{shown}: stuck, could not begin a batch: {why}, and to open it again did not help; start \
         windowflow again, and look at the kernel's log if that does not help"
    ))
}

/// Refuses to do something for which there is no room, before it is begun.
pub(crate) fn refuse_when_full(path: &Path, doing: &str) -> Result<(), Error> {
    let room = Room::around(path);
    if room.is_full() { Err(no_room(path, doing, room)) } else { Ok(()) }
}

fn no_room(path: &Path, doing: &str, room: Room) -> Error {
    let is_quota = room.refused == Some(Errno::DQUOT);
    let (what, fix) = disk_space::no_room(folder_of(path), room.free, is_quota);
    Error::Full(format!("{}: {what}; could not {doing}; {fix}", path.display()))
}

fn too_large(path: &Path, doing: &str) -> Error {
    let (what, fix) = disk_space::too_large();
    Error::Full(format!("{}: {what}; could not {doing}; {fix}", path.display()))
}

fn no_memory(path: &Path, doing: &str) -> Error {
    Error::Io(format!(
        "{}: could not {doing}: out of memory; end something else, or raise the limit of this \
         service (MemoryMax=)",
        path.display()
    ))
}

fn no_right(path: &Path, doing: &str, room: Room) -> Error {
    let folder = folder_of(path).display();
    let fix = if room.mounted_read_only {
        format!(
            "{folder} is on a file system that is mounted read-only; mount it writable, or under \
             systemd name it in StateDirectory= or ReadWritePaths="
        )
    } else {
        match room.closed.as_deref() {
            Some(closed) => not_ours(path, closed),
            None => format!(
                "this user may not write there; give it the right to write the file and the folder \
                 {folder} (SQLite keeps -wal and -shm files beside the store)"
            ),
        }
    };
    Error::Full(format!("{}: not writable, could not {doing}: {fix}", path.display()))
}

/// Whose a file or folder is that this process may not use, and what to type.
fn not_ours(path: &Path, closed: &Path) -> String {
    let (shown, me) = (closed.display(), Me::now());
    let Some(owner) = Owner::of(closed) else {
        return format!("this user, {me}, may not look at {shown}");
    };
    let said = format!("{shown} belongs to {owner}, and this process runs as {me}");
    let store = Owner::of(path).map(|store| store.uid);
    if closed.is_dir() {
        format!("{said}; run: {}", me.command(&owner, "rwx", &shown.to_string(), None))
    } else if owner.uid == me.uid() {
        format!("{said}; run: chmod u+rw {shown}")
    } else if store == Some(me.uid()) {
        // the store is ours: somebody else has used it, and left this
        format!("{said}; run: chown {} {shown}", user(me.uid()))
    } else {
        let owner = user_for_sudo(store.unwrap_or(owner.uid));
        format!("{said}; run it as the owner of the store: sudo -u {owner} windowflow ...")
    }
}

/// Refuses to open a store for writing that this process may not write, or the log of which: SQLite
/// itself would wait for many seconds, and not say which file it is.
pub(crate) fn refuse_foreign(path: &Path) -> Result<(), Error> {
    let room = Room::around(path);
    match &room.closed {
        Some(closed) if !closed.is_dir() => Err(no_right(path, "open it", room)),
        _ => Ok(()),
    }
}

/// Refuses to read a store that this process may not read.
pub(crate) fn refuse_unreadable(path: &Path) -> Result<(), Error> {
    let is_denied =
        |access: Access, path: &Path| rustix::fs::access(path, access) == Err(Errno::ACCESS);
    let folders = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    let folders: Vec<&Path> = folders.collect();
    let closed = folders.into_iter().rev().find(|folder| is_denied(Access::EXEC_OK, folder));
    let closed = closed.or_else(|| is_denied(Access::READ_OK, path).then_some(path));
    match closed {
        Some(closed) => {
            let (shown, why) = (path.display(), not_readable(closed));
            Err(Error::Full(format!("{shown}: not readable: {why}")))
        }
        None => Ok(()),
    }
}

fn not_readable(closed: &Path) -> String {
    let (shown, me) = (closed.display(), Me::now());
    match Owner::of(closed) {
        Some(owner) => format!(
            "{shown} belongs to {owner}, and this process runs as {me}; run it as the owner: sudo \
             -u {} windowflow ...",
            user_for_sudo(owner.uid)
        ),
        None => format!("this user, {me}, may not look at {shown}"),
    }
}

fn damaged(path: &Path, doing: &str, error: &rusqlite::Error) -> Error {
    Error::Corrupt(format!(
        "{}: damaged, could not {doing}: {error}; stop the daemon, keep a copy of this file and \
         its -wal, and restore a backup",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMY: Room = Room {
        free: Some(Free { bytes: 1 << 40, inodes: None }),
        mounted_read_only: false,
        closed: None,
        refused: None,
        no_files: None,
    };

    fn free(bytes: u64) -> Room {
        Room { free: Some(Free { bytes, inodes: None }), ..ROOMY }
    }

    fn kind(code: i32, room: Room) -> (&'static str, String) {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        let found = explain(Path::new("/state/w.db"), "commit", &error, || room.clone());
        let kind = match &found {
            Error::Busy(_) => "busy",
            Error::Full(_) => "full",
            Error::Io(_) => "io",
            Error::Corrupt(_) => "corrupt",
            Error::Missing(_) => "missing",
            _ => "other",
        };
        (kind, found.to_string())
    }

    #[test]
    fn every_code_has_its_kind() {
        let full = || free(0);
        let read_only = || Room { mounted_read_only: true, ..ROOMY };
        let foreign = || Room { closed: Some(PathBuf::from("/state/w.db-shm")), ..ROOMY };
        let refused = |errno| Room { refused: Some(errno), ..ROOMY };
        for (code, room, expected) in [
            (ffi::SQLITE_BUSY, ROOMY, "busy"),
            (ffi::SQLITE_BUSY_RECOVERY, ROOMY, "busy"),
            (ffi::SQLITE_PROTOCOL, ROOMY, "busy"),
            (ffi::SQLITE_FULL, ROOMY, "full"),
            (ffi::SQLITE_IOERR_SHMSIZE, ROOMY, "full"),
            (ffi::SQLITE_IOERR_WRITE, full(), "full"),
            (ffi::SQLITE_IOERR_WRITE, ROOMY, "io"),
            (ffi::SQLITE_IOERR_FSYNC, ROOMY, "io"),
            (ffi::SQLITE_CANTOPEN, full(), "full"),
            (ffi::SQLITE_CANTOPEN, read_only(), "full"),
            (ffi::SQLITE_CANTOPEN, foreign(), "full"),
            (ffi::SQLITE_CANTOPEN, ROOMY, "io"),
            (ffi::SQLITE_IOERR_WRITE, refused(Errno::FBIG), "full"),
            (ffi::SQLITE_IOERR_WRITE, refused(Errno::DQUOT), "full"),
            (ffi::SQLITE_IOERR_WRITE, refused(Errno::IO), "io"),
            (ffi::SQLITE_READONLY, read_only(), "full"),
            (ffi::SQLITE_PERM, foreign(), "full"),
            (ffi::SQLITE_READONLY_DBMOVED, ROOMY, "missing"),
            (ffi::SQLITE_CORRUPT, ROOMY, "corrupt"),
            (ffi::SQLITE_NOTADB, ROOMY, "corrupt"),
            (ffi::SQLITE_IOERR_CORRUPTFS, ROOMY, "corrupt"),
            (ffi::SQLITE_NOMEM, ROOMY, "io"),
        ] {
            let shown = format!("{room:?}");
            let (found, text) = kind(code, room);
            assert_eq!(found, expected, "{code} with {shown}: {text}");
            assert!(text.starts_with("/state/w.db: "), "{text}");
        }
    }

    #[test]
    fn the_words_name_the_place_and_the_fix() {
        let (_, text) = kind(ffi::SQLITE_IOERR_SHMSIZE, free(512));
        assert!(text.contains("disk full: 512 bytes free on /state"), "{text}");
        let (_, text) = kind(ffi::SQLITE_FULL, free(12_288));
        assert!(text.contains("disk full: 12,288 bytes free on /state"), "{text}");
        let (_, text) = kind(ffi::SQLITE_READONLY, Room { mounted_read_only: true, ..ROOMY });
        assert!(text.contains("mounted read-only") && text.contains("StateDirectory="), "{text}");
        let none = Free { bytes: 56_624_128, inodes: Some((0, 1024)) };
        let (_, text) = kind(ffi::SQLITE_CANTOPEN, Room { free: Some(none), ..ROOMY });
        assert!(text.contains("no inodes left") && !text.contains("disk full"), "{text}");
        let (_, text) = kind(ffi::SQLITE_CORRUPT, ROOMY);
        assert!(text.contains("restore a backup"), "{text}");
        for (errno, fix) in [(Errno::MFILE, "LimitNOFILE="), (Errno::NFILE, "fs.file-max")] {
            let (_, text) = kind(ffi::SQLITE_CANTOPEN, Room { no_files: Some(errno), ..ROOMY });
            assert!(text.contains(fix), "{text}");
        }
        for code in [ffi::SQLITE_NOMEM, ffi::SQLITE_IOERR_NOMEM] {
            let (_, text) = kind(code, ROOMY);
            assert!(text.contains("out of memory") && text.contains("MemoryMax="), "{text}");
        }
        for code in LOCKING {
            let (found, text) = kind(code, ROOMY);
            assert!(found == "io" && text.contains("does not give out a lock"), "{text}");
        }
        let (_, text) = kind(ffi::SQLITE_IOERR_FSYNC, ROOMY);
        assert!(text.contains("look at the disk and at the kernel's log"), "{text}");
        let (_, text) = kind(ffi::SQLITE_BUSY, ROOMY);
        assert!(text.contains("busy") && text.contains("fuser /state/w.db"), "{text}");
    }

    #[test]
    fn a_row_of_the_wrong_kind_is_damage() {
        let error = rusqlite::Error::QueryReturnedNoRows;
        let found = explain(Path::new("w.db"), "read", &error, || ROOMY);
        assert!(matches!(found, Error::Corrupt(_)), "{found:?}");
    }

    #[test]
    fn a_bare_name_lies_in_the_current_folder() {
        assert_eq!(folder_of(Path::new("w.db")), Path::new("."));
        assert_eq!(folder_of(Path::new("/a/w.db")), Path::new("/a"));
    }
}
