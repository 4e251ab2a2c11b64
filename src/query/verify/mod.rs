//! Whether what the store says is still right: the store by itself, against the files in done/ and
//! failed/, and against what these files come to when they are played again. Only reads; what
//! cannot be told is said to be so.

mod batches;
mod failed;
pub(crate) mod files;
mod replay;

use std::path::Path;

use super::done_files::Archive;
use crate::decode::Limits;
use crate::engine::Fact;
use crate::model::event::Chunk;
use crate::spool::Spool;
use crate::store::audit::{Checkup, FindingCode};
use crate::store::sqlite::{Options, Scratch, SqliteSnapshot, SqliteStore};
use crate::store::{Error, Snapshot};

/// How many files that cannot be read are named.
const MOST_UNREAD: usize = 20;
pub use files::{DoneFile, DoneFiles};

/// What is to be looked through.
pub struct Verify<'v> {
    /// The store.
    pub db: &'v Path,
    /// How it is opened.
    pub options: &'v Options,
    /// Its spool; none: the store is looked through by itself.
    pub spool: Option<&'v Spool>,
    /// The bounds under which files are read again.
    pub limits: Limits,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Verified {
    /// What is wrong, what was looked at, what could not be.
    pub checkup: Checkup,
    /// The last batch of the state that was looked through, and its watermark; none when not even
    /// that could be read.
    pub state: Option<(u64, i64)>,
    /// The files in done/ whose commit is lost, in the order of their names.
    pub lost: Vec<DoneFile>,
    /// Whether each batch of events was compared with its file, from the first on.
    pub all_against_files: bool,
}

impl Verify<'_> {
    /// Looks through one state of the store, whatever is written meanwhile.
    ///
    /// # Errors
    /// [`Error::Missing`] when there is no store, [`Error::NewerSchema`] or [`Error::OlderSchema`]
    /// for one of another version, and what else keeps it from being read. Damage is no error, but a finding.
    pub fn run(&self) -> Result<Verified, Error> {
        let mut all = Verified::default();
        let snapshot = match SqliteStore::look_at(self.db, self.options) {
            Ok(snapshot) => snapshot,
            Err(Error::Corrupt(text)) => {
                let (what, expected) = ("the store", "a store that can be opened");
                all.checkup.found(FindingCode::StoreUnreadable, what, expected, text);
                return Ok(all);
            }
            Err(error) => return Err(error),
        };
        match self.look(&snapshot, &mut all) {
            Err(Error::Corrupt(text)) => {
                let (what, expected) = ("the store", "rows that can be read");
                all.checkup.found(FindingCode::StoreUnreadable, what, expected, text);
            }
            looked => looked?,
        }
        Ok(all)
    }

    fn look(&self, snapshot: &SqliteSnapshot, all: &mut Verified) -> Result<(), Error> {
        snapshot.refuse_older()?;
        let checkup = &mut all.checkup;
        readable(snapshot.check_file(checkup), "the file", checkup)?;
        let ledger = readable(snapshot.check_ledger(checkup), "ids", checkup)?;
        let is_ledger_read = ledger.unwrap_or_default();
        readable(snapshot.check_sums(checkup), "the sums of the store", checkup)?;
        readable(self.make_sums(snapshot, checkup), "windows", checkup)?;
        let head = snapshot.last_number().and_then(|last| Ok((last, snapshot.summary()?)));
        let Some((last, summary)) = readable(head, "the figures of the store", checkup)? else {
            return Ok(());
        };
        all.state = Some((last, summary.watermark_ms));
        match self.spool {
            Some(spool) => self.against_files(snapshot, spool, last, is_ledger_read, all)?,
            None => checkup.not_checked("files in done/ and failed/: no spool was named (--spool)"),
        }
        Ok(())
    }

    fn make_sums(&self, snapshot: &SqliteSnapshot, checkup: &mut Checkup) -> Result<(), Error> {
        let settings = *snapshot.fixed();
        let pattern = Scratch::new(settings).and_then(|mut scratch| {
            let pattern = scratch.snapshot()?;
            Ok((scratch, pattern))
        });
        match pattern {
            Ok((mut scratch, pattern)) => {
                snapshot.check_schema(&pattern, checkup)?;
                drop(pattern);
                snapshot.check_totals(&mut scratch, checkup)
            }
            Err(error) => {
                checkup.not_checked(format!("windows from the ids: {error} (TMPDIR names it)"));
                Ok(())
            }
        }
    }

    fn against_files(
        &self,
        snapshot: &SqliteSnapshot,
        spool: &Spool,
        last: u64,
        is_ledger_read: bool,
        all: &mut Verified,
    ) -> Result<(), Error> {
        let checkup = &mut all.checkup;
        let archive = || Archive::new(Some(spool.done().to_owned()), self.limits.clone());
        let mut files = match DoneFiles::list(spool.done()) {
            Ok(files) => files,
            Err(error) => {
                checkup.not_checked(format!("files in done/: {error}"));
                return Ok(());
            }
        };
        checkup.checked("done_files", files.len() as u64);
        let unread = files.unread();
        for file in unread.iter().take(MOST_UNREAD) {
            checkup.not_checked(file.clone());
        }
        if unread.len() > MOST_UNREAD {
            let more = unread.len() - MOST_UNREAD;
            checkup.not_checked(format!("{more} more files in done/ that cannot be read"));
        }
        let matched = files.match_receipts(snapshot, spool, archive(), checkup);
        let Some(gone) = readable(matched, "receipts", checkup)? else { return Ok(()) };
        let compared = batches::compare(snapshot, &files, spool.done(), &self.limits, checkup);
        readable(compared, "ids and receipts", checkup)?;
        all.all_against_files = gone == 0 && snapshot.has_all_receipts()?;
        let judged = files.judge_others(self, snapshot, last, is_ledger_read, checkup);
        all.lost = readable(judged, "ids", checkup)?.unwrap_or_default();
        let refused = failed::check(self, snapshot, spool, checkup);
        readable(refused, "refusals", checkup)?;
        if gone > 0 {
            checkup.not_checked(format!(
                "the files of {gone} batches: they are not in done/ (removed by retention or by \
                 hand, or taken in by hand from elsewhere), or cannot be read"
            ));
        }
        if !all.all_against_files {
            checkup.not_checked(
                "all batches played again from their files: done/ or the receipts are not complete",
            );
            return Ok(());
        }
        let replayed = replay::replay(snapshot, &files, spool.done(), &self.limits, checkup);
        readable(replayed, "batches to be played again", checkup).map(|_| ())
    }

    /// The state of the store by now.
    pub(crate) fn look_again(&self) -> Result<SqliteSnapshot, Error> {
        SqliteStore::look_at(self.db, self.options)
    }
}

/// What cannot be read is a finding; what else fails ends it.
fn readable<T>(
    result: Result<T, Error>,
    what: &str,
    checkup: &mut Checkup,
) -> Result<Option<T>, Error> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(Error::Corrupt(text)) => {
            checkup.found(FindingCode::StoreUnreadable, what, "rows that can be read", text);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// How the events of a file stand to what a store knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Standing {
    events: u64,
    /// Their id is known, with the same payload.
    known: u64,
    /// Their id is known, with another one.
    contradicting: u64,
    /// So old that it cannot be told.
    forgotten: u64,
}

impl Standing {
    fn add(&mut self, chunk: &Chunk, facts: &[Fact], oldest_ms: i64) {
        for (row, fact) in facts.iter().enumerate().take(chunk.len()) {
            self.events += 1;
            match fact {
                Fact::Seen(seen) if seen.timestamp_ms >= oldest_ms => match seen.same_payload {
                    true => self.known += 1,
                    false => self.contradicting += 1,
                },
                _ if chunk.timestamp_ms(row) < oldest_ms => self.forgotten += 1,
                _ => {}
            }
        }
    }

    fn missing(&self) -> u64 {
        self.events - self.known - self.contradicting - self.forgotten
    }
}
