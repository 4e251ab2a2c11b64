//! What a look into the inbox tells: what is ready, in which order, what has to wait, and what is
//! left alone.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::FileType;

use super::Entry;
use super::advice;
use super::folder::{self, Kind};
use super::name::shown_path;
pub use super::scanner::Scanner;
use crate::model::event::MAX_NAME_BYTES;

pub use super::readiness::NotReady;

/// In which order ready files are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By the bytes of the name, then by folder.
    #[default]
    Name,
    /// By the time of last writing, then as by name.
    Mtime,
}

/// How much of the inbox is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// What was asked for, by a hint or by time; nothing is listed but new folders.
    Asked,
    /// All names are listed, but a file that is known to be ready is not looked at again: for a
    /// fresh list while a backlog is worked on.
    Names,
    /// Everything.
    Whole,
}

/// What lies in the inbox, as far as it is known after a look.
#[derive(Debug, Default)]
pub struct Scan {
    /// Files to be taken, in order.
    pub ready: Vec<Entry>,
    /// Symbolic links, in order: they are never followed, and belong in failed.
    pub links: Vec<Entry>,
    /// Files that are not ready, in order.
    pub waiting: Vec<(Entry, NotReady)>,
    /// The file that has waited longest for a writer that has it open, and since when.
    pub longest_open: Option<(Entry, Instant)>,
    /// What is neither read nor moved, in order: to be reported.
    pub odd: Vec<Odd>,
    /// How many names were left alone because they say so.
    pub ignored: usize,
    /// After which time to look again even without a hint; none when nothing waits.
    pub look_again_in: Option<Duration>,
    /// Some of the files that this look listed, that no hint had named and no look had seen before.
    pub unannounced: Vec<Entry>,
}

/// Something in the inbox that is left where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Odd {
    /// Where it is.
    pub entry: Entry,
    /// What it is.
    pub oddity: Oddity,
}

/// What is wrong with something that is left where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Oddity {
    /// A pipe, a socket or a device.
    Special(Kind),
    /// A folder in the folder of a source.
    TooDeep,
    /// A folder whose name cannot be a source: not UTF-8, or blank.
    NotASource,
    /// A folder that cannot be listed, or a damaged file, and what the system says.
    Unreadable(String),
    /// The folder of a source that files cannot be moved out of: it, or the one in done or failed
    /// that is named, is a mount of its own.
    OtherMount(String),
}

impl Oddity {
    /// Whether it is a fault that is tried again, rather than something that does not belong there.
    pub fn is_fault(&self) -> bool {
        matches!(self, Oddity::Unreadable(_) | Oddity::OtherMount(_))
    }
}

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = &self.entry;
        match &self.oddity {
            Oddity::Special(kind) => {
                write!(f, "inbox/{entry} is {}: left alone; remove it", kind.name())
            }
            Oddity::TooDeep => write!(
                f,
                "inbox/{entry} is a folder within the folder of a source: nothing in it is taken; \
                 move its files one level up"
            ),
            Oddity::NotASource => write!(
                f,
                "inbox/{entry} is a folder whose name cannot be a source (UTF-8, not blank): \
                 nothing in it is taken; rename it"
            ),
            Oddity::Unreadable(error) => {
                write!(f, "inbox/{entry} cannot be looked into: nothing of it is taken: {error}")
            }
            Oddity::OtherMount(folder) => write!(
                f,
                "nothing of inbox/{entry} is taken, since files cannot be moved out of it: \
                 {folder} is another mount than inbox/: {}",
                advice::OTHER_MOUNT
            ),
        }
    }
}

/// The inbox itself cannot be listed: a fault of ours or the operator's, never an empty inbox.
#[derive(Debug)]
pub struct ScanError {
    /// The inbox.
    pub path: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, source) = (shown_path(&self.path), &self.source);
        write!(f, "inbox unreadable: {path}: {}", advice::explain(&self.path, source))
    }
}

impl std::error::Error for ScanError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The source that a folder in the inbox stands for; none when its name cannot be one.
pub(super) fn source_name(folder: &OsStr) -> Option<String> {
    let name = folder.to_str()?;
    (name.len() <= MAX_NAME_BYTES && !name.trim().is_empty()).then(|| name.to_owned())
}

/// The names in a folder, in no order, without `.` and `..`. Here the right to list it is needed.
pub(super) fn list(held: &OwnedFd) -> io::Result<Vec<(OsString, FileType)>> {
    let mut names = Vec::new();
    for entry in folder::entries(held)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push((OsString::from_vec(name.to_vec()), entry.file_type()));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
