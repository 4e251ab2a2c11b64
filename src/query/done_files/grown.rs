//! Files in done/ that were written to behind what was taken in of them.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::{self, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::{Found, open};
use crate::spool::Entry;
use crate::store::ReceiptRow;

/// How many of the files with a number behind their name are read for one receipt at most.
const MOST_READ: usize = 8;

/// What tells cheaply whether a file can have grown since a receipt.
#[derive(Debug)]
pub(super) struct Written {
    name: OsString,
    bytes: u64,
    mtime_ms: i64,
    // how long after the last write its name or rights were changed last: a move comes after that
    // write, unless it was written to after its move
    quiet_ns: i128,
}

impl Written {
    pub(super) fn new(name: &OsStr, meta: &Metadata) -> Written {
        let ns = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
        let quiet_ns = ns(meta.ctime(), meta.ctime_nsec()) - ns(meta.mtime(), meta.mtime_nsec());
        Written { name: name.to_owned(), bytes: meta.len(), mtime_ms: mtime_ms(meta), quiet_ns }
    }
}

fn mtime_ms(meta: &Metadata) -> i64 {
    meta.mtime().saturating_mul(1000).saturating_add(meta.mtime_nsec() / 1_000_000)
}

/// Whether a file of that size, written to then, can be the one of the receipt and more.
fn can_be(bytes: u64, mtime_ms: i64, receipt: &ReceiptRow) -> bool {
    receipt.bytes.is_some_and(|taken| bytes > taken) && mtime_ms >= receipt.committed_at_ms
}

/// The files that are most likely to have grown since that receipt.
pub(super) fn likely(written: &[Written], receipt: &ReceiptRow) -> Vec<OsString> {
    let can_be = |file: &&Written| can_be(file.bytes, file.mtime_ms, receipt);
    let mut files: Vec<&Written> = written.iter().filter(can_be).collect();
    files.sort_by_key(|file| file.quiet_ns.abs());
    files.into_iter().take(MOST_READ).map(|file| file.name.clone()).collect()
}

/// The file, if it is longer than the receipt says, was written to since, and begins with the bytes
/// of the receipt.
pub(super) fn begins_with(
    done: &Path,
    entry: &Entry,
    receipt: &ReceiptRow,
) -> io::Result<Option<Found>> {
    let (Some(taken), Some(sha256)) = (receipt.bytes, &receipt.sha256) else { return Ok(None) };
    let file = open(done, entry)?;
    let meta = file.metadata()?;
    if !can_be(meta.len(), mtime_ms(&meta), receipt) {
        return Ok(None);
    }
    let mut file = file.take(taken);
    let mut hasher = Sha256::new();
    io::copy(&mut file, &mut hasher)?;
    if format!("{:x}", hasher.finalize()) != *sha256 {
        return Ok(None);
    }
    let mut file = file.into_inner();
    file.rewind()?;
    let (path, entry, file) = (entry.path_in(done), entry.clone(), file.take(taken));
    Ok(Some(Found { path, entry, is_grown: true, file }))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::decode::Limits;
    use crate::query::done_files::tests::{receipt, text};
    use crate::query::done_files::{Archive, Lost};

    /// Has failed for each of: no look at grown files, none at their time, none at their hash, and
    /// for reading on behind the first bytes.
    #[test]
    fn case_109_of_a_file_that_grew_the_bytes_of_its_receipt_are_read() {
        let done = tempfile::tempdir().unwrap();
        let path = done.path().join("a.json");
        let archive = || Archive::new(Some(done.path().to_owned()), Limits::default());
        fs::write(&path, "one and more").unwrap();
        let found = archive().find(&receipt("a.json", "one")).unwrap();
        assert!(found.is_grown);
        assert_eq!(text(found), "one");
        // what is whole is found first, and one with a number is found as well
        fs::write(done.path().join("a.json.1"), "one").unwrap();
        fs::write(done.path().join("a.json.2"), "two and more").unwrap();
        let found = archive().find(&receipt("a.json", "one")).unwrap();
        assert_eq!((found.is_grown, found.path), (false, done.path().join("a.json.1")));
        assert_eq!(text(archive().find(&receipt("a.json", "two")).unwrap()), "two");
        assert_eq!(archive().find(&receipt("a.json", "six")).unwrap_err(), Lost::Differs);
        // one that was not written to since is another file
        fs::remove_file(done.path().join("a.json.1")).unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        fs::File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        let receipt = ReceiptRow { committed_at_ms: 6000, ..receipt("a.json", "one") };
        assert_eq!(archive().find(&receipt).unwrap_err(), Lost::Differs);
    }
}
