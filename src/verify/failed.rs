//! The files in failed/: each has its reason beside it.

use std::fs;

use serde::Deserialize;

use crate::spool::Spool;
use crate::spool::shelve::list_failed;
use crate::store::checkup::{Checkup, Code};

/// What of a reason is looked at.
#[derive(Deserialize)]
struct Reason {
    code: String,
    message: String,
}

/// Looks at each refused file. That nothing of it is in through it is looked at from the other side:
/// by the receipts.
pub(super) fn check(spool: &Spool, checkup: &mut Checkup) {
    let files = match list_failed(spool) {
        Ok(files) => files,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
        Err(error) => return checkup.not_checked(format!("files in failed/: {error}")),
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
            Ok(reason) if !reason.code.is_empty() && !reason.message.is_empty() => {}
            Ok(_) => checkup.found(Code::FailedWithoutReason, what, expected, "an empty one"),
            // put back, or another reason by now
            Err(_) if fs::symlink_metadata(&file.path).is_err() => {}
            Err(error) => checkup.found(Code::FailedWithoutReason, what, expected, error),
        }
    }
}
