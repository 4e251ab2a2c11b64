//! Retention: what the configuration bounds, turned into what the store and the folders let go of.
//! What a promise needs is kept by the store itself, whatever is asked.
//!
//! A file in done/ is removed only when all of this holds: a receipt names it, its hash is that of
//! the receipt, and both the commit and the file's last change of name are older than asked. What
//! has no receipt is never removed.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::config;
use crate::engine::settings::LatePolicy;
use crate::query::done_files::Archive;
use crate::spool::{Entry, Spool, name};
use crate::store::{self, Pace, Pruned, Retention, Snapshot, Store};

/// The milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// What was removed from the folders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Files in done/.
    pub done: u64,
    /// Report dumps.
    pub reports: u64,
    /// Files in failed/, each with its reason.
    pub failed: u64,
    /// Files in done/ that are old enough, but that no receipt names: they stay.
    pub unknown: u64,
}

/// Whether there is anything that these would ever remove.
pub fn is_any(
    settings: &crate::engine::settings::Settings,
    asked: &config::RetentionConfig,
) -> bool {
    settings.dedup_horizon_ms().is_some() || *asked != config::RetentionConfig::default()
}

/// What of this cannot act on a store with these settings, and why.
pub fn cannot_act(
    settings: &crate::engine::settings::Settings,
    asked: &config::RetentionConfig,
) -> Option<&'static str> {
    let keeps_all =
        settings.late_policy() == LatePolicy::Correct && settings.dedup_horizon_ms().is_none();
    (keeps_all && asked.windows_days.is_some()).then_some(
        "[retention] windows_days removes nothing from this store: its late_policy is correct and \
         it has no dedup_horizon_ms, so any window can still be corrected",
    )
}

/// Removes from the store what is older than asked: windows and late events by how far they lie
/// behind the watermark, receipts by the clock, ids by the horizon of the store. For the ids the
/// whole ledger is walked: without `ids` they are left, for when the watermark has not moved since
/// the last walk.
///
/// # Errors
/// When the store cannot do its part; what was removed before stays so.
pub fn rows(
    store: &mut dyn Store,
    asked: &config::RetentionConfig,
    ids: bool,
    watermark_ms: i64,
    now_ms: i64,
    pace: &mut Pace<'_>,
) -> Result<Pruned, store::Error> {
    let before = |days: Option<u64>, from_ms: i64| days.map(|days| days_before(from_ms, days));
    let windows_before_ms = before(asked.windows_days, watermark_ms);
    let nothing = Retention::default();
    let has_horizon = store.settings().dedup_horizon_ms().is_some();
    // late events keep their windows, and windows the moves that closed them
    let steps = [
        Retention { ledger: ids && has_horizon, ..nothing },
        Retention { late_before_ms: before(asked.late_days, watermark_ms), ..nothing },
        Retention { windows_before_ms, ..nothing },
        Retention { moves_before_ms: windows_before_ms, ..nothing },
        Retention { receipts_before_ms: before(asked.receipts_days, now_ms), ..nothing },
    ];
    let mut all = Pruned::default();
    for step in steps.iter().filter(|step| **step != nothing) {
        add(&mut all, &store.prune_paced(step, pace)?);
        if pace().is_break() {
            break;
        }
    }
    Ok(all)
}

/// Removes report dumps and files in done/ that are older than asked, and files in failed/ that are
/// older or more than asked.
///
/// # Errors
/// When the store cannot answer, or a folder cannot be listed or written.
pub fn files(
    snapshot: &dyn Snapshot,
    spool: &Spool,
    asked: &config::RetentionConfig,
    now_ms: i64,
    pace: &mut Pace<'_>,
) -> Result<Removed, RetentionError> {
    let mut removed = Removed::default();
    if let Some(days) = asked.reports_days {
        removed.reports = reports(spool.reports(), days_before(now_ms, days), pace)?;
    }
    removed.failed = failed_files::failed(spool, asked, now_ms, pace)?;
    if let Some(days) = asked.done_days {
        done(snapshot, spool, days_before(now_ms, days), &mut removed, pace)?;
    }
    Ok(removed)
}

/// Why files could not be removed.
#[derive(Debug)]
pub enum RetentionError {
    /// The store could not answer.
    Store(store::Error),
    /// A folder or a file in the way.
    File(PathBuf, io::Error),
}

impl From<store::Error> for RetentionError {
    fn from(error: store::Error) -> RetentionError {
        RetentionError::Store(error)
    }
}

impl std::fmt::Display for RetentionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RetentionError::Store(error) => error.fmt(f),
            RetentionError::File(path, error) => {
                let path = name::shown(path.as_os_str().as_encoded_bytes());
                write!(f, "cannot remove what is old in {path}: {error}; check its rights")
            }
        }
    }
}

impl std::error::Error for RetentionError {}

/// Dumps by their name; `latest.json` is no such name.
fn reports(folder: &Path, before_ms: i64, pace: &mut Pace<'_>) -> Result<u64, RetentionError> {
    let mut gone = 0;
    for (path, meta) in regular_files(folder)? {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_dump = name.starts_with("report-") && name.ends_with(".json");
        if is_dump && millis(meta.mtime(), meta.mtime_nsec()) < before_ms {
            remove(&path)?;
            gone += 1;
            if pace().is_break() {
                break;
            }
        }
    }
    Ok(gone)
}

fn done(
    snapshot: &dyn Snapshot,
    spool: &Spool,
    before_ms: i64,
    removed: &mut Removed,
    pace: &mut Pace<'_>,
) -> Result<(), RetentionError> {
    let mut old = old_files(spool.done(), before_ms)?;
    if old.is_empty() {
        return Ok(());
    }
    // what has no receipt is not read at all
    let stems: HashSet<PathBuf> = old.iter().flat_map(|path| stems(path)).collect();
    let mut archive = Archive::new(Some(spool.done().to_owned()), Default::default());
    let mut outcome = Ok(());
    let mut is_cut = false;
    snapshot.receipts(0, &mut |receipt| {
        if receipt.act.is_some() || receipt.committed_at_ms >= before_ms {
            return ControlFlow::Continue(());
        }
        let named = Entry::parse(&receipt.file).map(|entry| entry.path_in(spool.done()));
        // a long name may have been cut to make room for a number
        let is_there = named.is_some_and(|path| is_long(&path) || stems.contains(&path));
        if !is_there {
            return ControlFlow::Continue(());
        }
        if let Ok(found) = archive.find(receipt)
            && old.remove(&found.path)
        {
            match remove(&found.path) {
                Ok(()) => removed.done += 1,
                Err(error) => outcome = Err(error),
            }
        }
        is_cut = pace().is_break();
        if outcome.is_err() || is_cut || old.is_empty() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    removed.unknown = if is_cut { 0 } else { old.len() as u64 };
    outcome
}

/// The files of done/ and of its folders that were last renamed or changed before that.
fn old_files(done: &Path, before_ms: i64) -> Result<HashSet<PathBuf>, RetentionError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| RetentionError::File(path, error)
    };
    let mut folders = vec![done.to_owned()];
    for found in fs::read_dir(done).map_err(at(done))? {
        let found = found.map_err(at(done))?;
        if found.file_type().map_err(at(done))?.is_dir() {
            folders.push(found.path());
        }
    }
    let mut old = HashSet::new();
    for folder in folders {
        for (path, meta) in regular_files(&folder)? {
            let is_hidden =
                path.file_name().is_some_and(|name| name.as_encoded_bytes().first() == Some(&b'.'));
            if !is_hidden && millis(meta.ctime(), meta.ctime_nsec()) < before_ms {
                old.insert(path);
            }
        }
    }
    Ok(old)
}

fn regular_files(folder: &Path) -> Result<Vec<(PathBuf, fs::Metadata)>, RetentionError> {
    let at = |error| RetentionError::File(folder.to_owned(), error);
    let mut files = Vec::new();
    for found in fs::read_dir(folder).map_err(at)? {
        let found = found.map_err(at)?;
        match found.metadata() {
            Ok(meta) if meta.is_file() => files.push((found.path(), meta)),
            Ok(_) => {}
            // somebody else tidies up too
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(at(error)),
        }
    }
    Ok(files)
}

/// The names that a file can have had: its own, and without the number behind it.
fn stems(path: &Path) -> Vec<PathBuf> {
    let number =
        path.extension().filter(|ending| ending.as_encoded_bytes().iter().all(u8::is_ascii_digit));
    let without = number.map(|_| path.with_extension(""));
    [path.to_owned()].into_iter().chain(without).collect()
}

fn is_long(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.len() >= 200)
}

fn remove(path: &Path) -> Result<(), RetentionError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(RetentionError::File(path.to_owned(), error))
        }
        _ => Ok(()),
    }
}

fn millis(seconds: i64, nanos: i64) -> i64 {
    seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000)
}

fn days_before(from_ms: i64, days: u64) -> i64 {
    let days_ms = i64::try_from(days).unwrap_or(i64::MAX).saturating_mul(DAY_MS);
    from_ms.saturating_sub(days_ms)
}

fn add(to: &mut Pruned, more: &Pruned) {
    let Pruned {
        ids,
        windows,
        revisions,
        accounts,
        late,
        receipts,
        refusals,
        settled,
        presence,
        moves,
    } = more;
    to.ids += ids;
    to.windows += windows;
    to.revisions += revisions;
    to.accounts += accounts;
    to.late += late;
    to.receipts += receipts;
    to.refusals += refusals;
    to.settled += settled;
    to.presence += presence;
    to.moves += moves;
}

mod failed_files;
#[cfg(test)]
mod tests;
