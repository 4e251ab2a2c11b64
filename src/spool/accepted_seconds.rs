//! The files whose timestamps in seconds an operator takes as they stand: by the hash of their raw
//! bytes, so that it holds for this content only, under any name and however often it comes.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::Spool;
use super::folder::{Facts, Kind};

/// The file in the spool that lists them: one SHA-256 a line, in lower-case hexadecimal.
const FILE: &str = ".windowflow-accepted-seconds";

/// How much of it is read: about 15,000 hashes.
const MOST_BYTES: u64 = 1 << 20;

/// Takes a file of that hash as it stands from now on. Durable when this returns.
///
/// # Errors
/// When it cannot be noted.
pub fn accept(spool: &Spool, sha256: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o640);
    let mut file = open(spool, &mut options)?;
    let (seen, root) = (file.metadata()?, spool.root().metadata()?);
    if (seen.uid(), seen.gid()) != (root.uid(), root.gid()) && rustix::process::geteuid().is_root()
    {
        // made by root, to be read by the daemon's user
        fchown(&file, Some(root.uid()), Some(root.gid()))?;
    }
    file.write_all(format!("{sha256}\n").as_bytes())?;
    file.sync_all()?;
    File::open(spool.root())?.sync_all()
}

fn path(spool: &Spool) -> PathBuf {
    spool.root().join(FILE)
}

/// Opens the list, neither following a link nor waiting for a pipe.
fn open(spool: &Spool, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path(spool))?;
    match Facts::of(&file)?.kind {
        Kind::File => Ok(file),
        other => Err(io::Error::other(format!("expected a regular file, found {}", other.name()))),
    }
}

/// The list as it was last read.
#[derive(Debug, Default)]
pub struct Accepted {
    // when the list was written, and how long it was
    seen: Option<(SystemTime, u64)>,
}

impl Accepted {
    /// The hashes, if the list has changed since the last look. One that cannot be read counts as
    /// empty, and is logged once.
    pub fn look(&mut self, spool: &Spool) -> Option<Arc<HashSet<String>>> {
        let seen = path(spool).symlink_metadata().ok();
        let seen = seen.and_then(|seen| Some((seen.modified().ok()?, seen.len())));
        if seen == self.seen {
            return None;
        }
        self.seen = seen;
        let hashes = read(spool).unwrap_or_else(|error| {
            log::warn!(
                "{}: cannot be read: {error}; files whose timestamps look like seconds are refused",
                path(spool).display()
            );
            HashSet::new()
        });
        Some(Arc::new(hashes))
    }
}

fn read(spool: &Spool) -> io::Result<HashSet<String>> {
    let file = match open(spool, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashSet::new()),
        opened => opened?,
    };
    let mut text = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let is_hash = |line: &&str| line.len() == 64 && line.bytes().all(|b| b.is_ascii_hexdigit());
    Ok(text.lines().filter(is_hash).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted_is_seen_at_the_next_look_and_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::at(folder.path());
        let mut accepted = Accepted::default();
        assert_eq!(accepted.look(&spool), None, "there is no list");
        let hash = "a1".repeat(32);
        accept(&spool, &hash).unwrap();
        assert!(accepted.look(&spool).unwrap().contains(&hash));
        assert_eq!(accepted.look(&spool), None, "nothing is new");
        accept(&spool, &"b2".repeat(32)).unwrap();
        std::fs::write(path(&spool), format!("{hash}\nnot a hash\n")).unwrap();
        assert_eq!(accepted.look(&spool).unwrap().len(), 1);
        std::fs::remove_file(path(&spool)).unwrap();
        assert!(accepted.look(&spool).unwrap().is_empty());
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::at(folder.path());
        let target = folder.path().join("target");
        std::fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, path(&spool)).unwrap();
        assert!(accept(&spool, &"a1".repeat(32)).is_err());
        assert!(Accepted::default().look(&spool).unwrap().is_empty());
        assert_eq!(std::fs::read(&target).unwrap(), b"");
    }
}
