//! What a look through a store found: what is wrong, what was looked at, and what could not be.

use std::collections::BTreeMap;

use serde::Serialize;

/// The most findings that are listed; the rest is counted.
pub const LISTED: usize = 100;

/// What can be wrong. The names are public and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is told by its name and its advice")]
pub enum FindingCode {
    StoreUnreadable,
    StoreDamaged,
    SchemaDiffers,
    EntryDamaged,
    EntryOrder,
    EntryMissing,
    EntryInNoRun,
    EntryWithoutReceipt,
    EntryCount,
    EntryDiffers,
    RunDamaged,
    RunDiffers,
    FilterDiffers,
    IdTwice,
    ReceiptMissing,
    ReceiptName,
    ReceiptDiffers,
    LostCommit,
    FileChanged,
    FileGrown,
    FileWithoutReceipt,
    FailedButIn,
    FailedWithoutReason,
    RefusalMissing,
    CountsDiffer,
    WatermarkDiffers,
    WindowDiffers,
    RevisionDiffers,
    LateDiffers,
    HeldDiffers,
    SettledDiffers,
    AccountDiffers,
    SourceDiffers,
    PresenceDiffers,
    VersionDiffers,
    MoveDiffers,
}

impl FindingCode {
    /// Each of them.
    pub const ALL: [FindingCode; 36] = [
        FindingCode::StoreUnreadable,
        FindingCode::StoreDamaged,
        FindingCode::SchemaDiffers,
        FindingCode::EntryDamaged,
        FindingCode::EntryOrder,
        FindingCode::EntryMissing,
        FindingCode::EntryInNoRun,
        FindingCode::EntryWithoutReceipt,
        FindingCode::EntryCount,
        FindingCode::EntryDiffers,
        FindingCode::RunDamaged,
        FindingCode::RunDiffers,
        FindingCode::FilterDiffers,
        FindingCode::IdTwice,
        FindingCode::ReceiptMissing,
        FindingCode::ReceiptName,
        FindingCode::ReceiptDiffers,
        FindingCode::LostCommit,
        FindingCode::FileChanged,
        FindingCode::FileGrown,
        FindingCode::FileWithoutReceipt,
        FindingCode::FailedButIn,
        FindingCode::FailedWithoutReason,
        FindingCode::RefusalMissing,
        FindingCode::CountsDiffer,
        FindingCode::WatermarkDiffers,
        FindingCode::WindowDiffers,
        FindingCode::RevisionDiffers,
        FindingCode::LateDiffers,
        FindingCode::HeldDiffers,
        FindingCode::SettledDiffers,
        FindingCode::AccountDiffers,
        FindingCode::SourceDiffers,
        FindingCode::PresenceDiffers,
        FindingCode::VersionDiffers,
        FindingCode::MoveDiffers,
    ];

    /// The public name.
    pub fn name(self) -> &'static str {
        match self {
            FindingCode::StoreUnreadable => "store_unreadable",
            FindingCode::StoreDamaged => "store_damaged",
            FindingCode::SchemaDiffers => "schema_differs",
            FindingCode::EntryDamaged => "entry_damaged",
            FindingCode::EntryOrder => "entry_order",
            FindingCode::EntryMissing => "entry_missing",
            FindingCode::EntryInNoRun => "entry_in_no_run",
            FindingCode::EntryWithoutReceipt => "entry_without_receipt",
            FindingCode::EntryCount => "entry_count",
            FindingCode::EntryDiffers => "entry_differs",
            FindingCode::RunDamaged => "run_damaged",
            FindingCode::RunDiffers => "run_differs",
            FindingCode::FilterDiffers => "filter_differs",
            FindingCode::IdTwice => "id_twice",
            FindingCode::ReceiptMissing => "receipt_missing",
            FindingCode::ReceiptName => "receipt_name",
            FindingCode::ReceiptDiffers => "receipt_differs",
            FindingCode::LostCommit => "lost_commit",
            FindingCode::FileChanged => "file_changed",
            FindingCode::FileGrown => "file_grown",
            FindingCode::FileWithoutReceipt => "file_without_receipt",
            FindingCode::FailedButIn => "failed_but_in",
            FindingCode::FailedWithoutReason => "failed_without_reason",
            FindingCode::RefusalMissing => "refusal_missing",
            FindingCode::CountsDiffer => "counts_differ",
            FindingCode::WatermarkDiffers => "watermark_differs",
            FindingCode::WindowDiffers => "window_differs",
            FindingCode::RevisionDiffers => "revision_differs",
            FindingCode::LateDiffers => "late_differs",
            FindingCode::HeldDiffers => "held_differs",
            FindingCode::SettledDiffers => "settled_differs",
            FindingCode::AccountDiffers => "account_differs",
            FindingCode::SourceDiffers => "source_differs",
            FindingCode::PresenceDiffers => "presence_differs",
            FindingCode::VersionDiffers => "version_differs",
            FindingCode::MoveDiffers => "move_differs",
        }
    }

    /// What an operator can do.
    pub fn advice(self) -> &'static str {
        match self {
            FindingCode::FilterDiffers
            | FindingCode::RunDiffers
            | FindingCode::RunDamaged
            | FindingCode::EntryInNoRun => {
                "it is made of what came with the ids: stop the daemon, then `windowflow verify \
                 --repair`, which makes it anew where that is sound"
            }
            FindingCode::LostCommit => {
                "stop the daemon, then `windowflow verify --repair`, which takes the file in again \
                 where that is provably right"
            }
            FindingCode::FileWithoutReceipt => {
                "find out who put it there; a file that was never taken in belongs into inbox/"
            }
            FindingCode::FileChanged => {
                "put the original file back under this name; if there is none, the numbers of its \
                 batch stand on the store alone"
            }
            FindingCode::FileGrown => {
                "nothing is wrong with the numbers; what was added within ten minutes of the move was \
                 taken in again as NAME.changed; of what came later, copy the file into inbox/ under \
                 another name: its old events are repeats"
            }
            FindingCode::ReceiptName => "give the file the name that its receipt has",
            FindingCode::FailedButIn => {
                "its events count already: move it to done/, and report this as a bug"
            }
            FindingCode::FailedWithoutReason => {
                "put it back with `windowflow retry`: it is judged again, and its reason written"
            }
            FindingCode::RefusalMissing => {
                "the store lost what it knew of this, and perhaps more: what else is found tells; \
                 where the file came with a store that was made anew, nothing is wrong"
            }
            FindingCode::IdTwice => {
                "an event may count twice: restore a backup, or make the store anew from done/, \
                 and report this as a bug if the disk is sound"
            }
            _ => {
                "do not rely on this number: check the disk, then restore a backup or make the \
                 store anew from done/ (README, 'Is it still right?')"
            }
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of its [`FindingCode`].
    pub code: &'static str,
    /// What it is about: a key and window, an id, a file, a batch; safe on a terminal.
    pub what: String,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// What to do about it.
    #[serde(rename = "do")]
    pub advice: &'static str,
}

/// What a look through a store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkup {
    findings: Vec<Finding>,
    by_code: BTreeMap<FindingCode, u64>,
    notes: Vec<Finding>,
    notes_in_all: u64,
    checked: Vec<(&'static str, u64)>,
    not_checked: Vec<String>,
}

impl Checkup {
    /// Something is wrong.
    pub fn found(
        &mut self,
        code: FindingCode,
        what: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        *self.by_code.entry(code).or_default() += 1;
        if self.findings.len() < LISTED {
            self.findings.push(Finding {
                code: code.name(),
                what: what.into(),
                expected: expected.into(),
                found: found.into(),
                advice: code.advice(),
            });
        }
    }

    /// Something is not as it was, and nothing is wrong.
    pub fn note(
        &mut self,
        code: FindingCode,
        what: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        self.notes_in_all += 1;
        if self.notes.len() < LISTED {
            self.notes.push(Finding {
                code: code.name(),
                what: what.into(),
                expected: expected.into(),
                found: found.into(),
                advice: code.advice(),
            });
        }
    }

    /// So many of these were looked at.
    pub fn checked(&mut self, what: &'static str, count: u64) {
        match self.checked.iter_mut().find(|(name, _)| *name == what) {
            Some((_, sum)) => *sum += count,
            None => self.checked.push((what, count)),
        }
    }

    /// Something could not be looked at.
    pub fn not_checked(&mut self, what: impl Into<String>) {
        self.not_checked.push(what.into());
    }

    /// What is wrong, at most [`LISTED`] of it.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// How much is wrong, by its code.
    pub fn by_code(&self) -> impl Iterator<Item = (FindingCode, u64)> {
        self.by_code.iter().map(|(code, count)| (*code, *count))
    }

    /// How much is wrong in all.
    pub fn total(&self) -> u64 {
        self.by_code.values().sum()
    }

    /// What is not as it was, without being wrong, at most [`LISTED`] of it.
    pub fn notes(&self) -> &[Finding] {
        &self.notes
    }

    /// How many notes there are in all.
    pub fn notes_in_all(&self) -> u64 {
        self.notes_in_all
    }

    /// How much was looked at, by its kind, in order.
    pub fn figures(&self) -> &[(&'static str, u64)] {
        &self.checked
    }

    /// What could not be looked at, and why.
    pub fn gaps(&self) -> &[String] {
        &self.not_checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_one_name_and_an_advice() {
        let mut names: Vec<_> = FindingCode::ALL.iter().map(|code| code.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FindingCode::ALL.len());
        let is_snake = |name: &&str| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        assert!(
            names.iter().all(is_snake) && FindingCode::ALL.iter().all(|c| !c.advice().is_empty())
        );
    }

    #[test]
    fn what_is_not_listed_is_counted() {
        let mut checkup = Checkup::default();
        (0..250).for_each(|n| checkup.found(FindingCode::IdTwice, n.to_string(), "once", "twice"));
        assert_eq!((checkup.findings().len(), checkup.total()), (LISTED, 250));
        checkup.checked("ids", 2);
        checkup.checked("ids", 3);
        assert_eq!(checkup.figures(), [("ids", 5)]);
    }
}
