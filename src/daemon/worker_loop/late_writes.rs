//! Files in done/ that are written to after their move: copied back into the inbox, with a warning.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant, SystemTime};

use super::WorkerLoop;
use crate::daemon::faults::FaultPart;
use crate::model::clock::Clock;
use crate::spool::Entry;
use crate::spool::late_writes::{
    self, Changed, Copy, MOST_COPIES, MOST_FILES, Receipt, WATCH_TIME,
};
use crate::spool::name::shown_path;
use crate::store::sqlite::{SqliteSnapshot, SqliteStore};
use crate::store::{self, ReceiptRow, Snapshot};

impl WorkerLoop {
    /// Takes up the files that processes before this one have moved lately.
    pub(super) fn resume_late_writes(&mut self) {
        match self.receipts_of_late() {
            Ok(receipts) => self.late_writes.resume(&self.context.spool, &receipts),
            Err(error) => log::warn!(
                "{error}; files that were moved before this start are not looked at again"
            ),
        }
    }

    fn snapshot(&self) -> Result<SqliteSnapshot, store::Error> {
        SqliteStore::snapshot(&self.context.db, self.context.options.clone())
    }

    fn receipts_of_late(&self) -> Result<Vec<Receipt>, store::Error> {
        let snapshot = self.snapshot()?;
        let last = snapshot.last_batch()?.unwrap_or_default();
        let from = last.saturating_sub(MOST_FILES as u64 - 1);
        let (now, now_ms) = (Instant::now(), Clock::System.now_ms());
        let mut receipts = Vec::new();
        snapshot.receipts(from, &mut |row: &ReceiptRow| {
            // a clock that was set back since makes it no older than it is
            let age_ms = now_ms.saturating_sub(row.committed_at_ms).max(0).unsigned_abs();
            let age = Duration::from_millis(age_ms);
            let entry = Entry::parse(&row.file).filter(|_| row.act.is_none() && age < WATCH_TIME);
            if let (Some(entry), Some(bytes)) = (entry, row.bytes) {
                receipts.push(Receipt {
                    batch: row.batch,
                    entry,
                    bytes,
                    committed_at_ms: row.committed_at_ms,
                    moved: now.checked_sub(age).unwrap_or(now),
                });
            }
            ControlFlow::Continue(())
        })?;
        Ok(receipts)
    }

    /// Looks at files whose turn it is; whether one was copied into the inbox.
    pub(super) fn mind_late_writes(&mut self) -> bool {
        let settle = self.context.config.inbox.settle();
        let done = self.context.spool.done();
        let (now, wall) = (Instant::now(), SystemTime::now());
        let changed = self.late_writes.turn(done, settle, now, wall);
        let mut is_copied = false;
        for changed in changed {
            is_copied |= self.copy_changed(&changed);
        }
        is_copied
    }

    /// The same for a process that ends soon: all files that it knows of.
    pub(super) fn mind_all_late_writes(&mut self) -> bool {
        self.late_writes.hurry(Instant::now());
        let mut is_copied = false;
        while self.late_writes.due().is_some_and(|due| due <= Instant::now()) {
            is_copied |= self.mind_late_writes();
            self.late_writes.no_rest();
        }
        is_copied
    }

    fn copy_changed(&mut self, changed: &Changed) -> bool {
        let (entry, batch) = (&changed.entry, changed.batch);
        if changed.copies >= MOST_COPIES {
            log::warn!(
                "done/{entry} (batch {batch}) changed again after {MOST_COPIES} copies of it were \
                 taken in: it is not copied any more; compare it with `windowflow verify`, and let \
                 its producer write elsewhere and rename the file when it is whole"
            );
            self.late_writes.give_up(changed);
            return false;
        }
        let shared = std::sync::Arc::clone(&self.context.shared);
        let mut goes_on = || {
            shared.beat();
            !shared.stopping()
        };
        let copy = match Copy::make(&self.context.spool, entry, &mut goes_on) {
            Ok(copy) => copy,
            Err(why) => return self.not_copied(changed, &why),
        };
        let copied = copy.copied().clone();
        let receipt = self.snapshot().and_then(|snapshot| snapshot.receipt(batch));
        let was = match receipt {
            Ok(row) => row.and_then(|row| Some((row.sha256?, row.bytes?))),
            Err(error) => {
                copy.discard(&self.context.spool);
                let why = late_writes::NotCopied::Io(error.to_string());
                return self.not_copied(changed, &why);
            }
        };
        if was.as_ref().is_some_and(|(sha256, _)| *sha256 == copied.sha256) {
            copy.discard(&self.context.spool);
            log::debug!("done/{entry} was touched, and holds what it held");
            self.late_writes.same(changed, &copied, Instant::now());
            return false;
        }
        let to = match copy.place(&self.context.spool) {
            Ok(to) => to,
            Err(why) => return self.not_copied(changed, &why),
        };
        let was = was.map_or_else(String::new, |(_, bytes)| format!(" of {bytes} bytes"));
        log::warn!(
            "done/{entry} was written to after it was taken in as batch {batch}{was}: it has {} \
             bytes now, and is copied to {} to be taken in again (its old events are repeats); its \
             producer should write elsewhere and rename the file when it is whole",
            copied.bytes,
            shown_path(&to)
        );
        self.scanner.moved_in(to);
        self.late_writes.copied(changed, &copied, Instant::now());
        self.keep_marks();
        self.context.shared.pass(FaultPart::LateWrites);
        true
    }

    fn not_copied(&mut self, changed: &Changed, why: &late_writes::NotCopied) -> bool {
        let (entry, batch) = (&changed.entry, changed.batch);
        match why {
            late_writes::NotCopied::Io(text) => {
                self.context.shared.meet(FaultPart::LateWrites, "changed", text);
            }
            late_writes::NotCopied::TooLarge(reason) => log::warn!(
                "done/{entry} (batch {batch}) changed after its move and is not copied: {reason}; \
                 what `windowflow verify` finds in it beyond the batch does not count"
            ),
            late_writes::NotCopied::Gone | late_writes::NotCopied::Changing => {}
        }
        self.late_writes.not_copied(changed, why, Instant::now());
        false
    }

    fn keep_marks(&self) {
        let marks = self.late_writes.marks();
        let kept: io::Result<()> = late_writes::keep_marks(self.context.spool.root(), &marks);
        if let Err(error) = kept {
            log::warn!(
                "{}: cannot be written: {error}; after a restart files may be copied again, which \
                 changes no total",
                shown_path(&self.context.spool.root().join(late_writes::MARKS_FILE))
            );
        }
    }
}
