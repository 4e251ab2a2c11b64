//! Mends what is made of other rows of the store.

use crate::store::Error;
use crate::store::sqlite::{SqliteStore, ledger};

impl SqliteStore {
    /// Makes the runs and filters of the ledger anew from its entries, in one transaction.
    ///
    /// # Errors
    /// By kind; nothing is changed then.
    pub fn rebuild_runs(&mut self) -> Result<(), Error> {
        self.take_away("make the runs of ids anew", ledger::rebuild)
    }
}
