//! The files in failed/: each has its reason beside it, and the store knows of its refusal.

use std::fs;
use std::io;

use serde::Deserialize;

use super::Verify;
use crate::spool::Spool;
use crate::spool::shelve::list_failed;
use crate::store::Error;
use crate::store::checkup::{Checkup, Code};
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
    for file in files {
        let what = format!("failed/{}", file.entry);
        let expected = "its reason beside it, in NAME.error.json";
        let Some(path) = file.reason else {
            checkup.found(Code::FailedWithoutReason, what, expected, "none");
            continue;
        };
        let reason = fs::read(&path).map_err(|error| error.to_string()).and_then(|text| {
            serde_json::from_slice::<Reason>(&text).map_err(|error| error.to_string())
        });
        match reason {
            Ok(Reason { code, message, .. }) if code.is_empty() || message.is_empty() => {
                checkup.found(Code::FailedWithoutReason, what, expected, "an empty one");
            }
            Ok(Reason { file, refused_at_ms, code, .. }) => {
                let knows =
                    |store: &SqliteSnapshot| store.knows_refusal(&file, refused_at_ms, &code);
                // one that was refused since this state is no matter of it
                if !knows(snapshot)? && !knows(&verify.look_again()?)? {
                    let expected = format!("a note in the store that it was refused ({code})");
                    checkup.found(Code::RefusalMissing, what, expected, "none");
                }
            }
            // put back, or another reason by now
            Err(_) if fs::symlink_metadata(&file.path).is_err() => {}
            Err(error) => checkup.found(Code::FailedWithoutReason, what, expected, error),
        }
    }
    Ok(())
}
