//! Looks through a snapshot of the store: that SQLite finds its file whole, that the ledger is what
//! was written, and that all that is told twice is told alike. Nothing is changed.

mod balance;
mod compare;
mod entries;
mod kept;
mod kept_in;
mod mend;
mod scratch;
mod streams;
mod sums;
mod totals;

use rusqlite::{Connection, Row, ffi, params};

use crate::store::audit::{Checkup, FindingCode};
use crate::store::{Error, ReceiptRow};

use super::file::fault::fault;
use super::ledger;
use super::reader::SqliteSnapshot;
use super::tables::removed::{self, Kind};
use super::tables::{receipts, store_meta};
pub use entries::{Entries, Lookup};
pub use kept_in::{KeptIn, KeptOne};
pub use scratch::Scratch;

impl SqliteSnapshot {
    /// What SQLite itself says of its file: pages, indexes, types.
    ///
    /// # Errors
    /// By kind; damage is a finding.
    pub fn check_file(&self, checkup: &mut Checkup) -> Result<(), Error> {
        self.looked("file", checkup, |connection, checkup| {
            let mut statement = connection.prepare("PRAGMA integrity_check(20)")?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let text: String = row.get(0)?;
                if text != "ok" {
                    let expected = "what SQLite finds whole";
                    checkup.found(FindingCode::StoreDamaged, "the store's file", expected, text);
                }
            }
            checkup.checked("pages", connection.query_row("PRAGMA page_count", [], int)?);
            Ok(())
        })
        .map(|_| ())
    }

    /// That the ledger of ids is what was written: its entries, its runs, and that no id is in it
    /// twice. False when it could not be read to the end.
    ///
    /// # Errors
    /// By kind; damage is a finding.
    pub fn check_ledger(&self, checkup: &mut Checkup) -> Result<bool, Error> {
        let entries = self.looked("entries of ids", checkup, |connection, checkup| {
            let next = store_meta::load(connection)?.next_position;
            let forgotten = removed::of(connection, Kind::Ids)?.rows;
            ledger::check_entries(connection, forgotten, next, checkup)
        })?;
        let runs = self.looked("runs of ids", checkup, ledger::check_runs)?;
        Ok(entries && runs && self.looked("order of ids", checkup, ledger::check_twice)?)
    }

    /// That sums, counts and notes which are kept in more than one place agree.
    ///
    /// # Errors
    /// By kind; damage is a finding.
    pub fn check_sums(&self, checkup: &mut Checkup) -> Result<(), Error> {
        let settings = *self.fixed();
        self.looked("receipts", checkup, sums::check_receipts)?;
        self.looked("counts", checkup, sums::check_counts)?;
        self.looked("what retention removed", checkup, |connection, checkup| {
            balance::check(connection, &settings, checkup)
        })?;
        self.looked("accounts", checkup, sums::check_accounts)?;
        self.looked("moves of the watermark", checkup, sums::check_moves)?;
        self.looked("notes of sources", checkup, |connection, checkup| {
            kept::check_sources(connection, &settings, checkup)
        })?;
        self.looked("revisions", checkup, kept::check_revisions)?;
        Ok(())
    }

    /// That each window is what the events of the ledger make of it, and that late and held events
    /// are those of the ledger. The sums are made in `scratch`.
    ///
    /// # Errors
    /// By kind; damage is a finding.
    pub fn check_totals(&self, scratch: &mut Scratch, checkup: &mut Checkup) -> Result<(), Error> {
        totals::check(self, scratch, checkup)
    }

    /// The receipts of events, and their ids, in the order of batches: whether receipts are there
    /// from the first batch on, without a gap.
    ///
    /// # Errors
    /// By kind.
    pub fn has_all_receipts(&self) -> Result<bool, Error> {
        self.read("receipts", |connection| {
            let last = store_meta::load(connection)?.last_number;
            let sql = "SELECT COUNT(*) FROM batches WHERE batch BETWEEN 1 AND ?1";
            let there: u64 = connection.query_row(sql, params![last], int)?;
            Ok(there == last)
        })
    }

    /// The number of the last batch of any kind.
    ///
    /// # Errors
    /// By kind.
    pub fn last_number(&self) -> Result<u64, Error> {
        self.read("last batch", |connection| Ok(store_meta::load(connection)?.last_number))
    }

    /// Shows the file, moment and code of each refusal that is kept, in one pass.
    ///
    /// # Errors
    /// By kind.
    pub fn each_refusal(&self, each: &mut dyn FnMut(String, i64, String)) -> Result<(), Error> {
        self.read("refusals", |connection| {
            let sql = "SELECT file, refused_at_ms, code FROM refusals ORDER BY refusal";
            let mut statement = connection.prepare(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                each(row.get(0)?, row.get(1)?, row.get(2)?);
            }
            Ok(())
        })
    }

    /// How many refusals retention removed, and the moment before which all of these were.
    ///
    /// # Errors
    /// By kind.
    pub fn removed_refusals(&self) -> Result<(i64, i64), Error> {
        self.read("what retention removed", |connection| {
            let gone = removed::of(connection, Kind::Refusals)?;
            Ok((gone.rows, gone.up_to.unwrap_or(i64::MIN)))
        })
    }

    /// Calls `each` with every receipt; one that fails ends it.
    ///
    /// # Errors
    /// By kind, or what `each` answers.
    pub fn try_each_receipt<E: From<Error>>(
        &self,
        mut each: impl FnMut(&ReceiptRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut from = 0;
        // a page of them at a time: the caller may ask this connection for other things meanwhile
        loop {
            let mut page = Vec::new();
            self.read("receipts", |connection| {
                receipts::each(connection, from, &mut |receipt| {
                    page.push(receipt.clone());
                    match page.len() < 256 {
                        true => std::ops::ControlFlow::Continue(()),
                        false => std::ops::ControlFlow::Break(()),
                    }
                })
            })?;
            for receipt in &page {
                each(receipt)?;
            }
            match page.last() {
                Some(last) if page.len() == 256 => from = last.batch + 1,
                _ => return Ok(()),
            }
        }
    }

    /// Does a part of the work. What cannot be read is a finding, and ends that part only: false.
    fn looked(
        &self,
        what: &str,
        checkup: &mut Checkup,
        work: impl FnOnce(&Connection, &mut Checkup) -> rusqlite::Result<()>,
    ) -> Result<bool, Error> {
        match work(self.connection(), checkup) {
            Ok(()) => Ok(true),
            Err(error) => self.unreadable(what, &error, checkup).map(|()| false),
        }
    }

    fn unreadable(
        &self,
        what: &str,
        error: &rusqlite::Error,
        checkup: &mut Checkup,
    ) -> Result<(), Error> {
        // a table or a column that is not there is the work of damage as well
        let is_odd =
            error.sqlite_error().is_some_and(|failure| failure.extended_code == ffi::SQLITE_ERROR);
        match fault(self.path(), "read it", error) {
            Error::Io(_) if !is_odd => Err(fault(self.path(), &format!("read the {what}"), error)),
            other @ (Error::Busy(_) | Error::Full(_) | Error::Missing(_)) => Err(other),
            _ => {
                let expected = "rows that can be read";
                checkup.found(FindingCode::StoreUnreadable, what, expected, error.to_string());
                Ok(())
            }
        }
    }
}

/// The only column of a row, as a number.
fn int(row: &Row<'_>) -> rusqlite::Result<u64> {
    row.get(0)
}

/// A name from outside, safe to be shown.
fn shown(name: &str) -> String {
    format!("{name:?}")
}
