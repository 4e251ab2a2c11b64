//! Refused files that are too old, or too many: failed/ would grow for ever.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{RetentionError, days_before, millis};
use crate::config;
use crate::spool::Spool;
use crate::spool::moves::{self, Failed};
use crate::store::Pace;

/// A refused file that may go.
struct Old {
    failed: Failed,
    // when it was moved there: seconds and nanoseconds
    changed: (i64, i64),
    // that it takes on the disk, with its reason: a sparse file may say that it has any size
    disk_bytes: u64,
}

/// Removes refused files, each with its reason, the oldest first: those that were refused before so
/// many days, then as many as it takes until the rest has no more bytes than asked. Each is logged.
/// How many were removed.
///
/// # Errors
/// When failed/ or a folder in it cannot be listed or written.
pub(super) fn failed(
    spool: &Spool,
    asked: &config::RetentionConfig,
    now_ms: i64,
    pace: &mut Pace<'_>,
) -> Result<u64, RetentionError> {
    if asked.failed_days.is_none() && asked.failed_max_bytes.is_none() {
        return Ok(0);
    }
    let at = |error| RetentionError::File(spool.failed().to_owned(), error);
    let found = moves::list_failed(spool).map_err(at)?;
    let mut files: Vec<Old> =
        found.into_iter().filter_map(|failed| Old::look(spool, failed)).collect();
    files.sort_by(|a, b| (a.changed, &a.failed.entry).cmp(&(b.changed, &b.failed.entry)));
    let mut bytes: u64 = files.iter().map(|file| file.disk_bytes).sum();
    let before_ms = asked.failed_days.map(|days| days_before(now_ms, days));
    let mut removed = 0;
    for file in &files {
        let is_old =
            before_ms.is_some_and(|before_ms| millis(file.changed.0, file.changed.1) < before_ms);
        let is_too_much = asked.failed_max_bytes.is_some_and(|most| bytes > most);
        let bound = match (is_old, is_too_much) {
            (true, _) => "failed_days",
            (false, true) => "failed_max_bytes",
            // all that follow are younger
            (false, false) => break,
        };
        let entry = &file.failed.entry;
        moves::remove_failed(spool, &file.failed)
            .map_err(|error| RetentionError::File(file.failed.path(spool), error))?;
        bytes = bytes.saturating_sub(file.disk_bytes);
        removed += 1;
        log::info!("retention: removed failed/{entry} with its reason, by {bound}");
        if pace().is_break() {
            break;
        }
    }
    Ok(removed)
}

impl Old {
    /// None when it went away.
    fn look(spool: &Spool, failed: Failed) -> Option<Old> {
        let seen = fs::symlink_metadata(failed.path(spool)).ok()?;
        let of_reason = failed.reason_path(spool).map_or(0, |path| disk_bytes(&path));
        let changed = (seen.ctime(), seen.ctime_nsec());
        Some(Old { changed, disk_bytes: seen.blocks() * 512 + of_reason, failed })
    }
}

fn disk_bytes(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |seen| seen.blocks() * 512)
}
