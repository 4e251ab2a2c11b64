//! What a failure of SQLite means, and what to do about it. Looks at the file system only by name:
//! opening the store's file here would drop SQLite's locks on it.

use std::path::Path;

use rusqlite::{ErrorCode, ffi};
use rustix::fs::{Access, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

use super::holder::Holder;
use crate::room::{self, MAKE_ROOM};
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
#[derive(Clone, Copy, Debug)]
struct Room {
    free_bytes: Option<u64>,
    mounted_read_only: bool,
    may_write: bool,
    /// Why nothing can be opened.
    no_files: Option<Errno>,
}

impl Room {
    fn around(path: &Path) -> Room {
        let folder = folder_of(path);
        let seen = rustix::fs::statvfs(folder).ok();
        let may_write = |path: &Path| rustix::fs::access(path, Access::WRITE_OK).is_ok();
        Room {
            free_bytes: room::free_bytes(folder),
            mounted_read_only: seen
                .is_some_and(|seen| seen.f_flag.contains(StatVfsMountFlags::RDONLY)),
            may_write: may_write(folder) && (!path.exists() || may_write(path)),
            no_files: rustix::fs::open(
                "/dev/null",
                OFlags::RDONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .err()
            .filter(|errno| matches!(*errno, Errno::MFILE | Errno::NFILE)),
        }
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
        self.free_bytes.is_some_and(|bytes| bytes < NO_ROOM_BYTES)
    }
}

/// The folder that a path lies in.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The kind and the words for a failure of SQLite while doing something with the store at `path`.
pub(super) fn fault(path: &Path, doing: &str, error: &rusqlite::Error) -> Error {
    explain(path, doing, error, || Room::around(path))
}

/// The same for a failure of the file system itself.
pub(super) fn io_fault(path: &Path, doing: &str, error: &std::io::Error) -> Error {
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
            Holder::of(path)
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
            if room.mounted_read_only || !room.may_write {
                no_right(path, doing, room)
            } else if room.is_full() {
                no_room(path, doing, room)
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
pub(super) fn stuck(path: &Path, holder: Holder) -> Error {
    let shown = path.display();
    let why = match holder {
        Holder::Ourselves => "this process holds it itself, by a lock that did not come off",
        _ => "no process holds it, but the system does not give out its lock",
    };
    Error::Stuck(format!(
        "{shown}: stuck, could not begin a batch: {why}, and to open it again did not help; start \
         windowflow again, and look at the kernel's log if that does not help"
    ))
}

/// Refuses to do something for which there is no room, before it is begun.
pub(super) fn refuse_when_full(path: &Path, doing: &str) -> Result<(), Error> {
    let room = Room::around(path);
    if room.is_full() { Err(no_room(path, doing, room)) } else { Ok(()) }
}

fn no_room(path: &Path, doing: &str, room: Room) -> Error {
    let full = room::is_full(folder_of(path), room.free_bytes);
    Error::Full(format!("{}: {full}; could not {doing}; {MAKE_ROOM}", path.display()))
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
        format!(
            "this user may not write there; give it the right to write the file and the folder \
             {folder} (SQLite keeps -wal and -shm files beside the store)"
        )
    };
    Error::Full(format!("{}: not writable, could not {doing}: {fix}", path.display()))
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
        free_bytes: Some(1 << 40),
        mounted_read_only: false,
        may_write: true,
        no_files: None,
    };

    fn kind(code: i32, room: Room) -> (&'static str, String) {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        let found = explain(Path::new("/state/w.db"), "commit", &error, || room);
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
        let full = Room { free_bytes: Some(0), ..ROOMY };
        let read_only = Room { mounted_read_only: true, ..ROOMY };
        let foreign = Room { may_write: false, ..ROOMY };
        for (code, room, expected) in [
            (ffi::SQLITE_BUSY, ROOMY, "busy"),
            (ffi::SQLITE_BUSY_RECOVERY, ROOMY, "busy"),
            (ffi::SQLITE_PROTOCOL, ROOMY, "busy"),
            (ffi::SQLITE_FULL, ROOMY, "full"),
            (ffi::SQLITE_IOERR_SHMSIZE, ROOMY, "full"),
            (ffi::SQLITE_IOERR_WRITE, full, "full"),
            (ffi::SQLITE_IOERR_WRITE, ROOMY, "io"),
            (ffi::SQLITE_IOERR_FSYNC, ROOMY, "io"),
            (ffi::SQLITE_CANTOPEN, full, "full"),
            (ffi::SQLITE_CANTOPEN, read_only, "full"),
            (ffi::SQLITE_CANTOPEN, foreign, "full"),
            (ffi::SQLITE_CANTOPEN, ROOMY, "io"),
            (ffi::SQLITE_READONLY, read_only, "full"),
            (ffi::SQLITE_PERM, foreign, "full"),
            (ffi::SQLITE_READONLY_DBMOVED, ROOMY, "missing"),
            (ffi::SQLITE_CORRUPT, ROOMY, "corrupt"),
            (ffi::SQLITE_NOTADB, ROOMY, "corrupt"),
            (ffi::SQLITE_IOERR_CORRUPTFS, ROOMY, "corrupt"),
            (ffi::SQLITE_NOMEM, ROOMY, "io"),
        ] {
            let (found, text) = kind(code, room);
            assert_eq!(found, expected, "{code} with {room:?}: {text}");
            assert!(text.starts_with("/state/w.db: "), "{text}");
        }
    }

    #[test]
    fn the_words_name_the_place_and_the_fix() {
        let (_, text) = kind(ffi::SQLITE_IOERR_SHMSIZE, Room { free_bytes: Some(512), ..ROOMY });
        assert!(text.contains("disk full: 512 bytes free on /state"), "{text}");
        let (_, text) = kind(ffi::SQLITE_FULL, Room { free_bytes: Some(12_288), ..ROOMY });
        assert!(text.contains("disk full: 12,288 bytes free on /state"), "{text}");
        let (_, text) = kind(ffi::SQLITE_READONLY, Room { mounted_read_only: true, ..ROOMY });
        assert!(text.contains("mounted read-only") && text.contains("StateDirectory="), "{text}");
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
