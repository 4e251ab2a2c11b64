//! The files in failed/: each has its reason beside it, and the store knows of its refusal.

use std::collections::HashMap;
use std::fs;
use std::io;

use serde::Deserialize;

use super::Verify;
use crate::spool::Spool;
use crate::spool::moves::{list_failed, read_reason};
use crate::store::Error;
use crate::store::audit::{Checkup, FindingCode};
use crate::store::sqlite::SqliteSnapshot;

/// What of a reason is looked at.
#[derive(Deserialize)]
struct Reason {
    file: String,
    refused_at_ms: i64,
    code: String,
    message: String,
}

/// Looks at each refused file. That nothing of it is in through it is looked at from the other
/// side: by the receipts.
pub(super) fn check(
    verify: &Verify<'_>,
    snapshot: &SqliteSnapshot,
    spool: &Spool,
    checkup: &mut Checkup,
) -> Result<(), Error> {
    let files = match list_failed(spool) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            checkup.not_checked(format!("files in failed/: {error}"));
            return Ok(());
        }
    };
    checkup.checked("failed_files", files.len() as u64);
    let mut wanted = Wanted::default();
    for file in files {
        let what = format!("failed/{}", file.entry);
        let expected = "its reason beside it, in NAME.error.json";
        if !file.has_reason {
            checkup.found(FindingCode::FailedWithoutReason, what, expected, "none");
            continue;
        }
        let reason =
            read_reason(spool, &file).map_err(|error| error.to_string()).and_then(|text| {
                serde_json::from_slice::<Reason>(&text).map_err(|error| error.to_string())
            });
        match reason {
            Ok(Reason { code, message, .. }) if code.is_empty() || message.is_empty() => {
                checkup.found(FindingCode::FailedWithoutReason, what, expected, "an empty one");
            }
            Ok(reason) => wanted.add(what, reason),
            // put back, or another reason by now
            Err(_) if fs::symlink_metadata(file.path(spool)).is_err() => {}
            Err(error) => checkup.found(FindingCode::FailedWithoutReason, what, expected, error),
        }
    }
    wanted.take_from(snapshot)?;
    // one that was refused since this state is no matter of it
    if !wanted.refusals.is_empty() {
        wanted.take_from(&verify.look_again()?)?;
    }
    let (gone, before_ms) = snapshot.removed_refusals()?;
    wanted.tell(gone, before_ms, checkup);
    Ok(())
}

/// The refusals that files in failed/ tell of, until the store is seen to know them. Memory grows
/// with the number of files, as their list does.
#[derive(Default)]
struct Wanted {
    /// By file, moment and code: the files that tell of it.
    refusals: HashMap<(String, i64, String), Vec<String>>,
}

impl Wanted {
    fn add(&mut self, what: String, reason: Reason) {
        let Reason { file, refused_at_ms, code, .. } = reason;
        self.refusals.entry((file, refused_at_ms, code)).or_default().push(what);
    }

    /// Takes away what the store knows, in one pass.
    fn take_from(&mut self, store: &SqliteSnapshot) -> Result<(), Error> {
        store.each_refusal(&mut |file, refused_at_ms, code| {
            self.refusals.remove(&(file, refused_at_ms, code));
        })
    }

    /// Tells of what the store does not know. Retention removed so many, all from before that
    /// moment: where that does not explain all that are so old, none of them is explained.
    fn tell(mut self, gone: i64, before_ms: i64, checkup: &mut Checkup) {
        let old = self.refusals.keys().filter(|(_, at_ms, _)| *at_ms < before_ms).count();
        if i64::try_from(old).is_ok_and(|old| old <= gone) {
            self.refusals.retain(|(_, at_ms, _), _| *at_ms >= before_ms);
        }
        let of = |(name, files): ((_, _, String), Vec<String>)| {
            files.into_iter().map(move |what| (what, name.2.clone()))
        };
        let mut unknown: Vec<(String, String)> = self.refusals.into_iter().flat_map(of).collect();
        unknown.sort_unstable();
        for (what, code) in unknown {
            let expected = format!("a note in the store that it was refused ({code})");
            checkup.found(FindingCode::RefusalMissing, what, expected, "none");
        }
    }
}
