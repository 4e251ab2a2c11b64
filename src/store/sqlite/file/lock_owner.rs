//! Who holds a store that is busy, or reads an old state of it, as the kernel lists it in
//! `/proc/locks`.
//!
//! Nothing is opened for it: to ask for a lock one needs a descriptor on the store's file, and
//! closing that would drop every lock that this process has on it.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::with_ending;

/// The number of the first namespace of processes, which sees all of them (`PROC_PID_INIT_INO`).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Where in the shared memory of a log the locks of readers lie, in bytes: from the first to the last.
const READERS: std::ops::RangeInclusive<u64> = 123..=127;

/// The inodes that locks of a store are on.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    store: Option<u64>,
    memory: Option<u64>,
}

/// The bytes of the shared memory whose locks SQLite takes alone to write, to empty the log and to
/// recover. Each process that uses the store has others to read, by which it hinders nobody.
const TAKEN_ALONE: std::ops::RangeInclusive<u64> = 120..=122;

/// Who has a lock on a store that keeps others from writing, or its log from being emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockOwner {
    /// That process.
    Other(u32),
    /// This process itself.
    Ourselves,
    /// Nobody at all.
    Nobody,
    /// It cannot be told: what holds it may not be visible from here.
    Unseen,
}

impl LockOwner {
    /// Who holds the store at `path` at this moment.
    pub(crate) fn of(path: &Path) -> LockOwner {
        // locks are on the file itself and, where there is a log, on its shared memory
        let places = Places { store: inode(path), memory: inode(&with_ending(path, "-shm")) };
        let Ok(locks) = fs::read_to_string("/proc/locks") else { return LockOwner::Unseen };
        lock_owner(&locks, places, std::process::id(), sees_all())
    }

    /// Who reads the store at `path` at this moment.
    pub(crate) fn reading(path: &Path) -> LockOwner {
        let inode = inode(&with_ending(path, "-shm"));
        let Ok(locks) = fs::read_to_string("/proc/locks") else { return LockOwner::Unseen };
        reader(&locks, inode.unwrap_or_default(), std::process::id(), sees_all())
    }
}

fn inode(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|seen| seen.ino())
}

/// Whether the locks of all processes of this machine are told.
fn sees_all() -> bool {
    fs::read_link("/proc/self/ns/pid")
        .is_ok_and(|namespace| namespace.as_os_str() == FIRST_NAMESPACE)
}

impl fmt::Display for LockOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockOwner::Other(pid) => {
                write!(f, "process {pid}")?;
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                match name.trim() {
                    "" => Ok(()),
                    name => write!(f, " ({})", name.escape_debug()),
                }
            }
            LockOwner::Ourselves => f.write_str("this very process"),
            LockOwner::Nobody => f.write_str("nobody that holds it now"),
            LockOwner::Unseen => f.write_str("another process"),
        }
    }
}

/// The same from the text of `/proc/locks`. Devices are not compared: some file systems have
/// another number there than `stat` says, and a lock too many only means to wait.
fn lock_owner(locks: &str, places: Places, ourselves: u32, sees_all: bool) -> LockOwner {
    let is_meant = |lock: &Seen<'_>| match lock.mode {
        "WRITE" => [places.store, places.memory].contains(&Some(lock.inode)),
        // nobody who uses the store by SQLite has one there
        "READ" => places.memory == Some(lock.inode) && covers(lock.from, lock.to),
        _ => false,
    };
    owner(locks, &is_meant, ourselves, sees_all)
}

/// The same of those who read a store, from the shared memory of its log.
fn reader(locks: &str, shared: u64, ourselves: u32, sees_all: bool) -> LockOwner {
    let is_meant = |lock: &Seen<'_>| {
        let from = lock.from.parse().unwrap_or_default();
        lock.mode == "READ" && lock.inode == shared && READERS.contains(&from)
    };
    owner(locks, &is_meant, ourselves, sees_all)
}

/// A lock that somebody has: its kind, and on which bytes of which inode it is.
struct Seen<'l> {
    mode: &'l str,
    inode: u64,
    from: &'l str,
    to: &'l str,
}

/// Who has a lock that is meant.
fn owner(
    locks: &str,
    is_meant: &dyn Fn(&Seen<'_>) -> bool,
    ourselves: u32,
    sees_all: bool,
) -> LockOwner {
    let mut is_ours = false;
    for line in locks.lines() {
        // `1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 120 120`; a `->` is one that waits
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "POSIX" | "OFDLCK", _, mode, pid, place, from, to] = words[..] else { continue };
        let inode = place.rsplit(':').next().and_then(|inode| inode.parse().ok());
        if !inode.is_some_and(|inode| is_meant(&Seen { mode, inode, from, to })) {
            continue;
        }
        match pid.parse() {
            Ok(pid) if pid == ourselves => is_ours = true,
            Ok(pid) => return LockOwner::Other(pid),
            // one that belongs to no process, or to one of another namespace
            Err(_) => return LockOwner::Unseen,
        }
    }
    match (is_ours, sees_all) {
        (true, _) => LockOwner::Ourselves,
        (false, true) => LockOwner::Nobody,
        (false, false) => LockOwner::Unseen,
    }
}

/// Whether a lock from that byte to that one, which may be `EOF`, is on one of those that SQLite
/// takes alone.
fn covers(from: &str, to: &str) -> bool {
    let from: u64 = from.parse().unwrap_or(0);
    let to: u64 = to.parse().unwrap_or(u64::MAX);
    from <= *TAKEN_ALONE.end() && to >= *TAKEN_ALONE.start()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "\
        1: POSIX  ADVISORY  READ 100 fe:00:7 128 128\n\
        2: FLOCK  ADVISORY  WRITE 300 fe:00:7 0 EOF\n\
        2: -> POSIX  ADVISORY  WRITE 300 fe:00:7 120 120\n\
        3: POSIX  ADVISORY  WRITE 200 fe:00:8 120 120\n\
        4: POSIX  ADVISORY  WRITE 100 fe:00:9 120 120\n\
        5: OFDLCK ADVISORY  WRITE -1 fe:00:10 0 EOF\n";

    fn on(inode: u64) -> Places {
        Places { store: Some(inode), memory: None }
    }

    #[test]
    fn only_locks_to_write_on_that_very_file_count() {
        let of = |inode: u64| lock_owner(LOCKS, on(inode), 100, true);
        assert_eq!(of(7), LockOwner::Nobody, "one that reads, one of another kind, one that waits");
        assert_eq!(of(8), LockOwner::Other(200));
        assert_eq!(of(9), LockOwner::Ourselves);
        assert_eq!(of(10), LockOwner::Unseen);
        let both = Places { store: Some(9), memory: Some(8) };
        assert_eq!(lock_owner(LOCKS, both, 100, true), LockOwner::Other(200), "others come first");
    }

    #[test]
    fn case_122_a_lock_to_read_where_sqlite_needs_one_alone_counts_too() {
        let of = |lock: &str| {
            let locks = format!("1: POSIX  ADVISORY  READ 200 fe:00:7 {lock}\n");
            let places = Places { store: Some(6), memory: Some(7) };
            (lock_owner(&locks, places, 100, true), lock_owner(&locks, on(7), 100, true))
        };
        for (lock, is_held) in [
            ("0 EOF", true),
            ("120 120", true),
            ("100 121", true),
            ("122 122", true),
            ("128 128", false),
            ("123 127", false),
            ("0 119", false),
        ] {
            let expected = if is_held { LockOwner::Other(200) } else { LockOwner::Nobody };
            assert_eq!(of(lock), (expected, LockOwner::Nobody), "{lock}");
        }
    }

    #[test]
    fn case_138_who_reads_is_told_by_the_locks_of_readers_only() {
        let locks = "\
            1: POSIX  ADVISORY  READ 200 fe:00:7 128 128\n\
            2: POSIX  ADVISORY  READ 300 fe:00:7 125 125\n\
            3: POSIX  ADVISORY  WRITE 400 fe:00:8 124 124\n\
            4: POSIX  ADVISORY  READ 100 fe:00:9 123 123\n";
        let of = |inode: u64, sees_all| reader(locks, inode, 100, sees_all);
        assert_eq!(of(7, true), LockOwner::Other(300));
        assert_eq!(of(8, true), LockOwner::Nobody);
        assert_eq!(of(9, true), LockOwner::Ourselves);
        assert_eq!(of(8, false), LockOwner::Unseen);
    }

    #[test]
    fn what_cannot_be_seen_is_not_called_nobody() {
        assert_eq!(lock_owner(LOCKS, on(7), 100, false), LockOwner::Unseen);
        assert_eq!(lock_owner("", on(7), 100, false), LockOwner::Unseen);
        assert_eq!(lock_owner(LOCKS, on(9), 100, false), LockOwner::Ourselves);
    }
}
