//! Which files of done/ were copied after a change, kept in the spool: so that the next process
//! does not copy them again. It is written when one is copied, which is rare.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Stamp, Watched};

/// The file in the spool that holds the marks.
pub const MARKS_FILE: &str = ".windowflow.changed";

/// The most that is read of it.
const MAX_BYTES: u64 = 16 << 20;

/// A file that was copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Where it lies below done/, as shown.
    pub file: String,
    /// The batch that it brought when it was moved.
    pub batch: u64,
    /// How often it was copied.
    pub copies: u32,
    bytes: u64,
    mtime_s: i64,
    mtime_ns: u32,
}

impl Mark {
    pub(super) fn of(file: &Watched) -> Option<Mark> {
        let stamp = file.stamp?;
        Some(Mark {
            file: file.entry.shown(),
            batch: file.batch,
            copies: file.copies,
            bytes: stamp.bytes,
            mtime_s: stamp.mtime.0,
            mtime_ns: stamp.mtime.1,
        })
    }

    pub(super) fn stamp(&self) -> Stamp {
        Stamp { bytes: self.bytes, mtime: (self.mtime_s, self.mtime_ns) }
    }
}

/// What was kept; nothing where nothing can be read, which costs a copy of repeats at worst.
pub(super) fn read(root: &Path) -> Vec<Mark> {
    use std::io::Read;
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut text = Vec::new();
    let read = options.open(root.join(MARKS_FILE));
    let read = read.and_then(|file| file.take(MAX_BYTES).read_to_end(&mut text));
    read.ok().and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

pub(super) fn keep(root: &Path, marks: &[Mark]) -> io::Result<()> {
    let path = root.join(MARKS_FILE);
    let beside = root.join(format!("{MARKS_FILE}.tmp"));
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o640);
    let mut file = options.custom_flags(libc::O_NOFOLLOW).open(&beside)?;
    file.write_all(&serde_json::to_vec(marks)?)?;
    file.sync_data()?;
    fs::rename(beside, path)
}
