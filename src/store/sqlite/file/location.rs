//! Where a store may lie: not on a network file system, and not beside another store's log.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::with_ending;
use crate::os::disk_space::network_file_system;
use crate::store::Error;

use super::fault::{folder_of, io_fault, refuse_when_full};

/// Which file a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// That of the file of that name; none when there is none. Asked by name, without opening it.
    pub(crate) fn of(path: &Path) -> Option<FileId> {
        std::fs::metadata(path).ok().map(|seen| FileId::new(&seen))
    }

    /// Whether that name stands for another file by now, or for none. What cannot be told counts as
    /// no: it is for SQLite to say what is wrong.
    pub(crate) fn has_left(self, path: &Path) -> bool {
        match std::fs::metadata(path) {
            Ok(seen) => FileId::new(&seen) != self,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }

    fn new(seen: &std::fs::Metadata) -> FileId {
        FileId { device: seen.dev(), inode: seen.ino() }
    }
}

/// Refuses a folder where a write-ahead log is not safe.
pub(crate) fn refuse_network(path: &Path, allowed: bool) -> Result<(), Error> {
    let folder = folder_of(path);
    let seen = rustix::fs::statfs(folder).map_err(|errno| match errno {
        rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR => Error::Missing(format!(
            "{}: there is no folder {}: make it first (mkdir -p), or name another store with --db",
            path.display(),
            folder.display()
        )),
        other => io_fault(path, "look at its file system", &other.into()),
    })?;
    match network_file_system(&seen) {
        Some(name) if !allowed => Err(Error::Misplaced(format!(
            "{}: lies on a network file system ({name}), where a write-ahead log can be damaged \
             without a sign; keep the store on a local disk (--db), or force it if only this \
             machine uses it",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// The log of a store that is not there itself.
pub(crate) fn left_log(path: &Path) -> Option<PathBuf> {
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    let is_empty = || path.metadata().is_ok_and(|seen| seen.len() == 0);
    let is_gone = !path.exists() || is_empty();
    let logs = ["-wal", "-journal"].map(|ending| with_ending(path, ending));
    logs.into_iter().find(|log| is_gone && is_there(log))
}

/// Refuses to make a store beside the log of one that is gone: SQLite would replay it into the
/// new one.
pub(crate) fn refuse_leftovers(path: &Path) -> Result<(), Error> {
    match left_log(path) {
        Some(log) if !path.exists() => Err(Error::Missing(format!(
            "{}: there is no store, but its log {} is still there: put the store back, or move the \
             log away to begin anew",
            path.display(),
            log.display()
        ))),
        _ => Ok(()),
    }
}

/// How much SQLite maps of the index of the log at a time.
const INDEX_BYTES: u64 = 32 * 1024;

/// Whether the file system gives out less at a time than the kernel maps.
///
/// SQLite makes sure of room for the index of the log by a byte in each page. Where a page is of
/// several blocks, the others may find none when they are written to, and then the kernel ends the
/// process (SIGBUS): nothing is lost, and nobody is told why.
pub(crate) fn has_small_blocks(path: &Path) -> bool {
    let page_bytes = rustix::param::page_size() as u64;
    rustix::fs::statvfs(folder_of(path)).is_ok_and(|seen| seen.f_frsize < page_bytes)
}

/// Whether the index of the log is there with all its blocks, for certain, as it can be while others
/// use the store.
pub(crate) fn has_whole_index(path: &Path) -> bool {
    let seen = std::fs::metadata(with_ending(path, "-shm"));
    let block = rustix::fs::statvfs(folder_of(path)).map_or(u64::MAX, |seen| seen.f_frsize);
    seen.is_ok_and(|seen| seen.len() >= INDEX_BYTES && is_whole(seen.len(), seen.blocks(), block))
}

/// Whether a file of so many bytes has no hole, by how many sectors of 512 bytes it takes: among them
/// are the blocks that say where the others lie, in the place of which one may be missing. It cannot
/// be opened to look: to close it again would take away SQLite's locks on it.
fn is_whole(bytes: u64, sectors: u64, block_bytes: u64) -> bool {
    let map_blocks = 1 + bytes / block_bytes.saturating_mul(64);
    sectors * 512 >= bytes.saturating_add(map_blocks.saturating_mul(block_bytes))
}

/// Refuses to open a store where the index of its log may find no room. `alone`: what there is of
/// one may be left over, and is made anew.
pub(crate) fn refuse_without_room(path: &Path, alone: bool) -> Result<(), Error> {
    if has_small_blocks(path) && (alone || !has_whole_index(path)) {
        return refuse_when_full(path, "open it");
    }
    Ok(())
}

/// Makes the names in the folder of `path` outlive a power cut.
pub(crate) fn sync_folder_of(path: &Path) -> Result<(), Error> {
    std::fs::File::open(folder_of(path))
        .and_then(|folder| folder.sync_all())
        .map_err(|error| io_fault(path, "sync its folder", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_whole_only_where_none_of_its_blocks_can_be_missing() {
        assert!(is_whole(32768, 66, 1024));
        // 31 blocks, and one that says where they are: seen on ext4
        assert!(!is_whole(32768, 64, 1024));
        assert!(!is_whole(32768, 2, 1024));
        assert!(!is_whole(131_072, 258, 1024));
        assert!(is_whole(131_072, 262, 1024));
        assert!(!is_whole(32768, u64::MAX / 512, u64::MAX));
    }

    #[test]
    fn a_log_without_its_store_is_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.db");
        refuse_leftovers(&path).unwrap();
        std::fs::write(folder.path().join("w.db-wal"), "log").unwrap();
        let error = refuse_leftovers(&path).unwrap_err().to_string();
        assert!(error.contains("w.db-wal"), "{error}");
        std::fs::write(&path, "").unwrap();
        refuse_leftovers(&path).unwrap();
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = refuse_network(Path::new("/no/such/w.db"), false).unwrap_err().to_string();
        assert!(error.contains("/no/such") && error.contains("mkdir"), "{error}");
    }
}
