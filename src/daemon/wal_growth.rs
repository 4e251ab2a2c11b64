//! Whether the store's log grows, since somebody reads an old state of the store for too long.

use std::path::Path;
use std::time::{Duration, Instant};

use super::faults::FaultPart;
use super::state::SharedState;
use crate::os::disk_space::grouped;
use crate::spool::name::shown_path;
use crate::store::sqlite::{self, PinnedLog};

/// For how long a reader that is seen may keep a log that is too large from being emptied: a report
/// ends by itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same where it cannot be told whether anybody reads: a large batch ends, too.
const PATIENCE_UNSEEN: Duration = Duration::from_secs(60);

/// Since when the log is too large and read.
#[derive(Debug, Default)]
pub(super) struct WalGrowth {
    since: Option<Instant>,
    is_told: bool,
}

impl WalGrowth {
    /// Looks at the log of the store, and shows when it is not emptied.
    pub(super) fn look(&mut self, shared: &SharedState, db: &Path) {
        let Some(log) = sqlite::pinned_log(db) else {
            if self.is_told {
                shared.pass(FaultPart::Log);
            }
            return *self = WalGrowth::default();
        };
        let since = *self.since.get_or_insert_with(Instant::now);
        let patience = if log.reader.is_some() { PATIENCE } else { PATIENCE_UNSEEN };
        if since.elapsed() >= patience {
            self.is_told = true;
            shared.meet(FaultPart::Log, "log", &text(&log));
        }
    }
}

fn text(log: &PinnedLog) -> String {
    let path = shown_path(&log.path);
    let (bytes, limit) = (grouped(log.bytes), grouped(log.limit_bytes));
    let reader = match &log.reader {
        Some(reader) => format!("{reader} reads an old state of the store: let that end"),
        None => "somebody may be reading an old state of the store, who cannot be seen from here: \
                 look for a program that has the store open"
            .to_owned(),
    };
    format!("the store's log {path} grows: {bytes} bytes, expected at most {limit}; {reader}")
}
