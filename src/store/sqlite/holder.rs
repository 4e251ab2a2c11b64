//! Who holds a store that is busy, as the kernel lists it in `/proc/locks`.
//!
//! Nothing is opened for it: to ask for a lock one needs a descriptor on the store's file, and
//! closing that would drop every lock that this process has on it.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::place::with_ending;

/// The number of the first namespace of processes, which sees all of them (`PROC_PID_INIT_INO`).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Who has a lock on a store that keeps others from writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// That process.
    Other(u32),
    /// This process itself.
    Ourselves,
    /// Nobody at all.
    Nobody,
    /// It cannot be told: what holds it may not be visible from here.
    Unseen,
}

impl Holder {
    /// Who holds the store at `path` at this moment.
    pub(super) fn of(path: &Path) -> Holder {
        let inode = |path: &Path| fs::metadata(path).ok().map(|seen| seen.ino());
        // locks are on the file itself and, where there is a log, on its shared memory
        let inodes = [inode(path), inode(&with_ending(path, "-shm"))];
        let inodes: Vec<u64> = inodes.into_iter().flatten().collect();
        let Ok(locks) = fs::read_to_string("/proc/locks") else { return Holder::Unseen };
        let sees_all = fs::read_link("/proc/self/ns/pid")
            .is_ok_and(|namespace| namespace.as_os_str() == FIRST_NAMESPACE);
        holder(&locks, &inodes, std::process::id(), sees_all)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Other(pid) => {
                write!(f, "process {pid}")?;
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                match name.trim() {
                    "" => Ok(()),
                    name => write!(f, " ({})", name.escape_debug()),
                }
            }
            Holder::Ourselves => f.write_str("this very process"),
            Holder::Nobody => f.write_str("nobody that holds it now"),
            Holder::Unseen => f.write_str("another process"),
        }
    }
}

/// The same from the text of `/proc/locks`. Devices are not compared: some file systems have
/// another number there than `stat` says, and a lock too many only means to wait.
fn holder(locks: &str, inodes: &[u64], ourselves: u32, sees_all: bool) -> Holder {
    let mut is_ours = false;
    for line in locks.lines() {
        // `1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 120 120`; a `->` is one that waits
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "POSIX" | "OFDLCK", _, "WRITE", pid, place, ..] = words[..] else { continue };
        let inode = place.rsplit(':').next().and_then(|inode| inode.parse().ok());
        if !inode.is_some_and(|inode: u64| inodes.contains(&inode)) {
            continue;
        }
        match pid.parse() {
            Ok(pid) if pid == ourselves => is_ours = true,
            Ok(pid) => return Holder::Other(pid),
            // one that belongs to no process, or to one of another namespace
            Err(_) => return Holder::Unseen,
        }
    }
    match (is_ours, sees_all) {
        (true, _) => Holder::Ourselves,
        (false, true) => Holder::Nobody,
        (false, false) => Holder::Unseen,
    }
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

    #[test]
    fn only_locks_to_write_on_that_very_file_count() {
        let of = |inode: u64| holder(LOCKS, &[inode], 100, true);
        assert_eq!(of(7), Holder::Nobody, "one that reads, one of another kind, one that waits");
        assert_eq!(of(8), Holder::Other(200));
        assert_eq!(of(9), Holder::Ourselves);
        assert_eq!(of(10), Holder::Unseen);
        assert_eq!(holder(LOCKS, &[9, 8], 100, true), Holder::Other(200), "others come first");
    }

    #[test]
    fn what_cannot_be_seen_is_not_called_nobody() {
        assert_eq!(holder(LOCKS, &[7], 100, false), Holder::Unseen);
        assert_eq!(holder("", &[], 100, false), Holder::Unseen);
        assert_eq!(holder(LOCKS, &[9], 100, false), Holder::Ourselves);
    }
}
