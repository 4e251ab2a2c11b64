//! What a look through a store found: what is wrong, what was looked at, and what could not be.

use std::collections::BTreeMap;

use serde::Serialize;

/// The most findings that are listed; the rest is counted.
pub const LISTED: usize = 100;

/// What can be wrong. The names are public and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is told by its name and its advice")]
pub enum Code {
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

impl Code {
    /// Each of them.
    pub const ALL: [Code; 36] = [
        Code::StoreUnreadable,
        Code::StoreDamaged,
        Code::SchemaDiffers,
        Code::EntryDamaged,
        Code::EntryOrder,
        Code::EntryMissing,
        Code::EntryInNoRun,
        Code::EntryWithoutReceipt,
        Code::EntryCount,
        Code::EntryDiffers,
        Code::RunDamaged,
        Code::RunDiffers,
        Code::FilterDiffers,
        Code::IdTwice,
        Code::ReceiptMissing,
        Code::ReceiptName,
        Code::ReceiptDiffers,
        Code::LostCommit,
        Code::FileChanged,
        Code::FileGrown,
        Code::FileWithoutReceipt,
        Code::FailedButIn,
        Code::FailedWithoutReason,
        Code::RefusalMissing,
        Code::CountsDiffer,
        Code::WatermarkDiffers,
        Code::WindowDiffers,
        Code::RevisionDiffers,
        Code::LateDiffers,
        Code::HeldDiffers,
        Code::SettledDiffers,
        Code::AccountDiffers,
        Code::SourceDiffers,
        Code::PresenceDiffers,
        Code::VersionDiffers,
        Code::MoveDiffers,
    ];

    /// The public name.
    pub fn name(self) -> &'static str {
        match self {
            Code::StoreUnreadable => "store_unreadable",
            Code::StoreDamaged => "store_damaged",
            Code::SchemaDiffers => "schema_differs",
            Code::EntryDamaged => "entry_damaged",
            Code::EntryOrder => "entry_order",
            Code::EntryMissing => "entry_missing",
            Code::EntryInNoRun => "entry_in_no_run",
            Code::EntryWithoutReceipt => "entry_without_receipt",
            Code::EntryCount => "entry_count",
            Code::EntryDiffers => "entry_differs",
            Code::RunDamaged => "run_damaged",
            Code::RunDiffers => "run_differs",
            Code::FilterDiffers => "filter_differs",
            Code::IdTwice => "id_twice",
            Code::ReceiptMissing => "receipt_missing",
            Code::ReceiptName => "receipt_name",
            Code::ReceiptDiffers => "receipt_differs",
            Code::LostCommit => "lost_commit",
            Code::FileChanged => "file_changed",
            Code::FileGrown => "file_grown",
            Code::FileWithoutReceipt => "file_without_receipt",
            Code::FailedButIn => "failed_but_in",
            Code::FailedWithoutReason => "failed_without_reason",
            Code::RefusalMissing => "refusal_missing",
            Code::CountsDiffer => "counts_differ",
            Code::WatermarkDiffers => "watermark_differs",
            Code::WindowDiffers => "window_differs",
            Code::RevisionDiffers => "revision_differs",
            Code::LateDiffers => "late_differs",
            Code::HeldDiffers => "held_differs",
            Code::SettledDiffers => "settled_differs",
            Code::AccountDiffers => "account_differs",
            Code::SourceDiffers => "source_differs",
            Code::PresenceDiffers => "presence_differs",
            Code::VersionDiffers => "version_differs",
            Code::MoveDiffers => "move_differs",
        }
    }

    /// What an operator can do.
    pub fn advice(self) -> &'static str {
        match self {
            Code::FilterDiffers | Code::RunDiffers | Code::RunDamaged | Code::EntryInNoRun => {
                "it is made of what came with the ids: stop the daemon, then `windowflow verify \
                 --repair`, which makes it anew where that is sound"
            }
            Code::LostCommit => {
                "stop the daemon, then `windowflow verify --repair`, which takes the file in again \
                 where that is provably right"
            }
            Code::FileWithoutReceipt => {
                "find out who put it there; a file that was never taken in belongs into inbox/"
            }
            Code::FileChanged => {
                "put the original file back under this name; if there is none, the numbers of its \
                 batch stand on the store alone"
            }
            Code::FileGrown => {
                "nothing is wrong with the numbers; what was added within ten minutes of the move was \
                 taken in again as NAME.changed; of what came later, copy the file into inbox/ under \
                 another name: its old events are repeats"
            }
            Code::ReceiptName => "give the file the name that its receipt has",
            Code::FailedButIn => {
                "its events count already: move it to done/, and report this as a bug"
            }
            Code::FailedWithoutReason => {
                "put it back with `windowflow retry`: it is judged again, and its reason written"
            }
            Code::RefusalMissing => {
                "the store lost what it knew of this, and perhaps more: what else is found tells; \
                 where the file came with a store that was made anew, nothing is wrong"
            }
            Code::IdTwice => {
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
    /// The name of its [`Code`].
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
    by_code: BTreeMap<Code, u64>,
    notes: Vec<Finding>,
    notes_in_all: u64,
    checked: Vec<(&'static str, u64)>,
    not_checked: Vec<String>,
}

impl Checkup {
    /// Something is wrong.
    pub fn found(
        &mut self,
        code: Code,
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
        code: Code,
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
    pub fn by_code(&self) -> impl Iterator<Item = (Code, u64)> {
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
        let mut names: Vec<_> = Code::ALL.iter().map(|code| code.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
        let is_snake = |name: &&str| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        assert!(names.iter().all(is_snake) && Code::ALL.iter().all(|c| !c.advice().is_empty()));
    }

    #[test]
    fn what_is_not_listed_is_counted() {
        let mut checkup = Checkup::default();
        (0..250).for_each(|n| checkup.found(Code::IdTwice, n.to_string(), "once", "twice"));
        assert_eq!((checkup.findings().len(), checkup.total()), (LISTED, 250));
        checkup.checked("ids", 2);
        checkup.checked("ids", 3);
        assert_eq!(checkup.figures(), [("ids", 5)]);
    }
}
