//! What lies in failed/: which of its files are refused ones, and which are their reasons.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::SystemTime;

use rustix::fs::FileType;

use super::{REASON_MAX_BYTES, reason_name, stem};
use crate::model::refusal::Code;
use crate::spool::folder::{self, Facts, Kind};
use crate::spool::safe_open::is_not_that_folder;
use crate::spool::{Entry, Spool, name, remove, scan};

/// A refused file. Its paths are not kept: there can be a hundred thousand of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The folder of its source, and its name in failed.
    pub entry: Entry,
    /// Whether its reason lies beside it.
    pub has_reason: bool,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was last written to.
    pub modified: SystemTime,
}

impl Failed {
    /// Where it lies.
    #[must_use]
    pub fn path(&self, spool: &Spool) -> PathBuf {
        self.entry.path_in(spool.failed())
    }

    /// Where its reason lies, when it has one.
    #[must_use]
    pub fn reason_path(&self, spool: &Spool) -> Option<PathBuf> {
        let name = self.has_reason.then(|| reason_name(&self.entry.name))?;
        Some(Entry { folder: self.entry.folder.clone(), name }.path_in(spool.failed()))
    }
}

/// The refused files, in order, with those of each source. Reasons whose file is gone are left out.
///
/// # Errors
/// When failed or a folder in it cannot be listed.
pub fn list_failed(spool: &Spool) -> io::Result<Vec<Failed>> {
    let mut failed = Vec::new();
    for_each_folder(spool, |held, source, names| {
        for_each_refused(held, names, |name, has_reason| {
            let facts = match Facts::at(held, name) {
                Ok(facts) => facts,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            };
            let (entry, modified) = (Entry::new(source, name.to_owned()), facts.modified());
            failed.push(Failed { entry, has_reason, bytes: facts.bytes, modified });
            Ok(())
        })
    })?;
    failed.sort_unstable_by(|a, b| a.entry.cmp(&b.entry));
    Ok(failed)
}

/// How many refused files there are. Looks at names only, one folder after the other.
///
/// # Errors
/// When failed or a folder in it cannot be listed.
pub fn count_failed(spool: &Spool) -> io::Result<usize> {
    let mut count = 0;
    for_each_folder(spool, |held, _, names| {
        for_each_refused(held, names, |_, _| {
            count += 1;
            Ok(())
        })
    })?;
    Ok(count)
}

/// Removes a refused file, then its reason. What is not there any more is fine.
///
/// # Errors
/// When the folder cannot be opened or written to.
pub fn remove_failed(spool: &Spool, failed: &Failed) -> io::Result<()> {
    let held = folder::open_source(spool.failed(), failed.entry.folder.as_deref())?;
    remove(&held, &failed.entry.name)?;
    if failed.has_reason { remove(&held, &reason_name(&failed.entry.name)) } else { Ok(()) }
}

/// What stands in the reason of a refused file: JSON, where nobody else wrote it.
///
/// # Errors
/// When it has none, or it is no regular file or cannot be read.
pub fn read_reason(spool: &Spool, failed: &Failed) -> io::Result<Vec<u8>> {
    let held = folder::open_source(spool.failed(), failed.entry.folder.as_deref())?;
    let reason = folder::open_file(&held, &reason_name(&failed.entry.name))?;
    if Facts::of(&reason)?.kind != Kind::File {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = Vec::new();
    reason.take(REASON_MAX_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

/// Shows the names in failed, then those in the folder of each source.
fn for_each_folder(
    spool: &Spool,
    mut show: impl FnMut(&OwnedFd, Option<&str>, &[OsString]) -> io::Result<()>,
) -> io::Result<()> {
    let held = folder::open(spool.failed())?;
    let (files, folders) = list(&held)?;
    show(&held, None, &files)?;
    drop(files);
    for folder in folders {
        let Some(source) = folder.to_str() else { continue };
        match folder::open_sub(&held, &folder) {
            Ok(sub) => show(&sub, Some(source), &list(&sub)?.0)?,
            Err(error) if is_not_that_folder(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The files in a folder of failed, and the folders.
fn list(held: &OwnedFd) -> io::Result<(Vec<OsString>, Vec<OsString>)> {
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for (name, kind) in scan::list(held)? {
        if name::is_hidden(name.as_bytes()) {
            continue;
        }
        let is_folder = match kind {
            // not every file system tells it with the name
            FileType::Unknown => match Facts::at(held, &name) {
                Ok(facts) => facts.kind == Kind::Folder,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            },
            kind => kind == FileType::Directory,
        };
        if is_folder { folders.push(name) } else { files.push(name) }
    }
    Ok((files, folders))
}

/// Shows which of these names are refused files, and whether each has its reason.
fn for_each_refused(
    held: &OwnedFd,
    files: &[OsString],
    mut show: impl FnMut(&OsStr, bool) -> io::Result<()>,
) -> io::Result<()> {
    let names: HashSet<&OsStr> = files.iter().map(OsString::as_os_str).collect();
    for name in files {
        let has_reason = names.contains(reason_name(name).as_os_str());
        // the reason of another file, or one whose file is gone
        let is_reason = stem(name).is_some_and(|stem| names.contains(stem));
        if is_reason || (!has_reason && stem(name).is_some() && is_left_over(held, name)?) {
            continue;
        }
        show(name, has_reason)?;
    }
    Ok(())
}

/// Whether that file is a reason of ours whose file never followed it, or has left.
pub(super) fn is_left_over(held: &OwnedFd, reason: &OsStr) -> io::Result<bool> {
    let is_data = folder::exists(held, &reason_name(reason))?
        || stem(reason).map_or(Ok(true), |stem| folder::exists(held, stem))?;
    if is_data || Facts::at(held, reason)?.kind != Kind::File {
        return Ok(false);
    }
    // a producer may call its files like this too: never write over such a one
    let mut text = Vec::new();
    folder::open_file(held, reason)?.take(REASON_MAX_BYTES).read_to_end(&mut text)?;
    let value: Option<serde_json::Value> = serde_json::from_slice(&text).ok();
    let code = value.as_ref().and_then(|value| value.get("code")?.as_str());
    Ok(code.and_then(Code::from_name).is_some())
}
