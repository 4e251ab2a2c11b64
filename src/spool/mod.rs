//! The inbox, done and failed folders, when a file is ready, and the durable moves between them.
//! It knows nothing of what the files hold.
//!
//! The order of use: take the [`lock`], [`open`](Spool::open) the spool, start the [`watch`], then
//! [`scan`] (so that nothing falls between the first scan and the watch), [open](safe_open) each file,
//! and [`moves`] it once its fate is durable.

pub mod accepted_seconds;
pub mod advice;
pub mod blame;
mod durable;
mod folder;
mod folder_state;
pub mod in_flight;
mod inbox;
pub mod late_writes;
pub mod lock;
pub mod move_error;
pub mod moves;
pub mod name;
mod probe;
mod readiness;
pub mod reason_file;
pub mod rights;
pub mod safe_open;
pub mod scan;
mod scan_request;
mod scanner;
pub mod watch;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::AtFlags;

use crate::model::event::DEFAULT_SOURCE;
use name::shown_path;

pub use folder::Kind;

/// One of the spool's folders, and the folder of a source in it, if that is meant.
type TouchedFolder = (PathBuf, Option<String>);

/// Where the folders of one spool are. Clones share the list of folders that are yet to be synced.
#[derive(Clone, Debug)]
pub struct Spool {
    root: PathBuf,
    inbox: PathBuf,
    done: PathBuf,
    failed: PathBuf,
    reports: PathBuf,
    // folders in which names came or went since they were last synced: one of the above, and the
    // folder of a source in it
    touched: Arc<Mutex<BTreeSet<TouchedFolder>>>,
    // folders in which a trial file may have been left, since its removal failed
    trials: Arc<Mutex<BTreeSet<TouchedFolder>>>,
}

impl Spool {
    /// Makes the folders where they are missing, and proves that files can be moved from the inbox
    /// to done and failed, and back from failed. Hold the [lock](lock::Lock) while calling it: what
    /// looks left behind by a crash is removed.
    ///
    /// # Errors
    /// When a folder cannot be made or a probe cannot be moved. A full disk, on which no probe can
    /// be made, is logged instead: it may pass, and nothing is lost meanwhile.
    pub fn open(root: &Path) -> Result<Spool, SpoolError> {
        let spool = Spool::at(root);
        spool.prepare()?;
        Ok(spool)
    }

    /// The same for a spool that is [named](Spool::at) already.
    ///
    /// # Errors
    /// As those of [`open`](Spool::open).
    pub fn prepare(&self) -> Result<(), SpoolError> {
        for path in [&self.inbox, &self.done, &self.failed, &self.reports] {
            folder::make_all(path)
                .map_err(|source| SpoolError::Make { path: path.clone(), source })?;
        }
        probe::prove_moves(self)
    }

    /// Names the folders of a spool and touches nothing: for commands that only read.
    pub fn at(root: &Path) -> Spool {
        // the watcher makes paths absolute, and what it reports must begin like the inbox does
        let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        Spool {
            inbox: root.join("inbox"),
            done: root.join("done"),
            failed: root.join("failed"),
            reports: root.join("reports"),
            touched: Arc::default(),
            trials: Arc::default(),
            root,
        }
    }

    /// The folder that holds all others; absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where producers drop files.
    pub fn inbox(&self) -> &Path {
        &self.inbox
    }

    /// Where ingested files go.
    pub fn done(&self) -> &Path {
        &self.done
    }

    /// Where refused files go, each with its reason.
    pub fn failed(&self) -> &Path {
        &self.failed
    }

    /// Where report dumps go.
    pub fn reports(&self) -> &Path {
        &self.reports
    }

    /// Notes that names came or went in that folder, for [`moves::sync_folders`].
    fn touch(&self, base: &Path, source: Option<&str>) {
        let folder = (base.to_owned(), source.map(str::to_owned));
        self.touched.lock().unwrap_or_else(PoisonError::into_inner).insert(folder);
    }
}

/// The names in one of the spool's folders, or in that of a source in it, which is not followed
/// should it be a link; in no order.
///
/// # Errors
/// When it is no folder, or cannot be listed.
pub fn names_in(base: &Path, source: Option<&str>) -> io::Result<Vec<OsString>> {
    let names = scan::list(&folder::open_source(base, source)?)?;
    Ok(names.into_iter().map(|(name, _)| name).collect())
}

/// Removes a file; one that is not there is fine.
fn remove(folder: impl AsFd, name: &OsStr) -> io::Result<()> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Why a spool cannot be used. It is the operator's to mend.
#[derive(Debug)]
pub enum SpoolError {
    /// A folder cannot be made.
    Make {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Two of the folders lie on different mounts, so that a file cannot be moved in one step.
    OtherMount {
        /// Where the probe was.
        from: PathBuf,
        /// Where it could not go.
        to: PathBuf,
    },
    /// A file cannot be made, moved or removed in a folder.
    Probe {
        /// Which folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl fmt::Display for SpoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpoolError::Make { path, source } => write!(
                f,
                "cannot make the spool folder {}: {}",
                shown_path(path),
                advice::explain(path.parent().filter(|_| !path.exists()).unwrap_or(path), source)
            ),
            SpoolError::OtherMount { from, to } => write!(
                f,
                "cannot move a file from {} to {}: they lie on different mounts; inbox, done and \
                 failed must be plain folders on one file system and, under systemd, below one \
                 single ReadWritePaths= or StateDirectory= entry, since each entry is a mount of \
                 its own",
                shown_path(from),
                shown_path(to)
            ),
            SpoolError::Probe { path, source } => write!(
                f,
                "cannot make, move or remove a file in {}: {}",
                shown_path(path),
                advice::explain(path, source)
            ),
        }
    }
}

impl std::error::Error for SpoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SpoolError::Make { source, .. } | SpoolError::Probe { source, .. } => Some(source),
            SpoolError::OtherMount { .. } => None,
        }
    }
}

/// One name in the inbox, in done or in failed: the folder of its source and its own name, which
/// may be any bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The folder under the inbox, which names the source; none for the inbox itself.
    pub folder: Option<String>,
    /// The name in that folder.
    pub name: OsString,
}

impl Entry {
    /// A name in the inbox itself, or in the folder of a source.
    pub fn new(folder: Option<&str>, name: impl Into<OsString>) -> Entry {
        Entry { folder: folder.map(str::to_owned), name: name.into() }
    }

    /// The entry that [`shown`](Entry::shown) writes that way; none when nothing is.
    pub fn parse(shown: &str) -> Option<Entry> {
        let (folder, file) = match shown.split_once('/') {
            None => (None, shown),
            Some((folder, file)) => (Some(String::from_utf8(name::parsed(folder)?).ok()?), file),
        };
        let bytes = name::parsed(file)?;
        let is_name = |part: &[u8]| {
            !matches!(part, b"" | b"." | b"..") && !part.contains(&b'/') && !part.contains(&0)
        };
        let folder_is_name = folder.as_ref().is_none_or(|folder| is_name(folder.as_bytes()));
        (is_name(&bytes) && folder_is_name)
            .then(|| Entry { folder, name: OsString::from_vec(bytes) })
    }

    /// The source that its events belong to.
    pub fn source(&self) -> &str {
        self.folder.as_deref().unwrap_or(DEFAULT_SOURCE)
    }

    /// Its path below one of the spool's folders.
    pub fn path_in(&self, base: &Path) -> PathBuf {
        match &self.folder {
            None => base.join(&self.name),
            Some(folder) => base.join(folder).join(&self.name),
        }
    }

    /// Folder and name for people, logs and JSON, such as `gw1/a\nb.json`: safe on a terminal, and
    /// no two entries are shown alike. [`parse`](Entry::parse) reads it back.
    pub fn shown(&self) -> String {
        let name = name::shown(self.name.as_bytes());
        match &self.folder {
            None => name,
            Some(folder) => format!("{}/{name}", name::shown(folder.as_bytes())),
        }
    }
}

/// By the bytes of the name, then by folder: the order in which files are taken.
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        let by_name = self.name.as_bytes().cmp(other.name.as_bytes());
        by_name.then_with(|| self.folder.cmp(&other.folder))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

#[cfg(test)]
mod tests;
