//! How a group of commits becomes durable by one sync, and what is known of them until then.

use std::mem;

use rusqlite::Connection;

use super::connect;
use super::fault::io_fault;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::tables::{receipts, store_meta};
use crate::store::{Error, Refused};

/// What is in and not durable yet.
#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    /// The commits of this connection are not synced.
    is_lax: bool,
    /// There were commits that no sync has followed.
    pending: bool,
    /// The connection was given up since: what of them is in cannot be told.
    lost: bool,
    /// The refusals among them.
    refusals: Vec<Refused>,
}

impl Unsynced {
    /// Makes the next commits of that connection synced ones, or not.
    pub(crate) fn set_up(&mut self, connection: &Connection, synced: bool) -> rusqlite::Result<()> {
        if self.is_lax == synced {
            connect::set_synced(connection, synced)?;
            self.is_lax = !synced;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn pending(&self) -> bool {
        self.pending
    }

    /// A commit went well; whether it was a synced one.
    pub(crate) fn committed(&mut self) -> bool {
        self.pending |= self.is_lax;
        !self.is_lax
    }

    /// A commit went well that wrote something: if it was a synced one, so is all before it.
    pub(crate) fn wrote(&mut self) {
        if !self.is_lax {
            self.pending = false;
            self.refusals.clear();
        }
    }
}

impl SqliteStore {
    /// Gives the connection up, which undoes what is open in it.
    pub(crate) fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            connect::leave_log(&connection, true);
        }
        self.memory.distrust();
        self.unsynced.is_lax = false;
        if mem::take(&mut self.unsynced.pending) {
            // no sync will follow on this connection, which could have told of an error
            self.in_doubt = true;
            self.unsynced.lost = true;
            self.refusals_in_doubt.append(&mut self.unsynced.refusals);
        }
    }

    /// Makes durable what the log holds, within the transaction that was begun: nobody else changes
    /// the log meanwhile.
    ///
    /// A sync that failed is never tried again, since the next one may say that all is well: the
    /// kernel tells of an error once, and calls the pages clean that it could not write. What they
    /// held is in memory still, so that recovery may find batches there which a power cut would
    /// take away. They must not be copied into the store's file either, as a checkpoint (or the
    /// closing of the last connection) does: cut off in the middle of that, the store would be half
    /// old and half new, and the log that mends it gone. So the log is written again, byte for byte
    /// what it is, which makes its pages ones to be written, and then synced by a descriptor that
    /// has seen no error. Only after that is it built on. What memory did not keep, recovery did not
    /// find: then the batch is not in, and whoever asks for it is told so.
    pub(crate) fn prove_log(&mut self) -> Result<(), Error> {
        if let Err(error) = connect::write_log_again(&self.path) {
            let error = io_fault(&self.path, "make its log durable", &error);
            self.close();
            return Err(error);
        }
        if let Some(connection) = &self.connection {
            connect::leave_log(connection, false);
        }
        self.in_doubt = false;
        Ok(())
    }

    /// Makes durable what was committed unsynced.
    pub(crate) fn sync_commits(&mut self) -> Result<(), Error> {
        let synced = match self.unsynced.pending {
            true => self.transact("make batches durable", connect::touch),
            false => Ok(()),
        };
        match synced {
            // this answers for all of them
            Err(Error::Unknown(_)) => self.unsynced.lost = false,
            Ok(()) => self.unsynced.wrote(),
            Err(_) => return synced,
        }
        match synced {
            Ok(()) if mem::take(&mut self.unsynced.lost) => Err(Error::Unknown(format!(
                "{}: had to be opened again before its last batches were durable; whether they \
                     are in cannot be told yet: begin them again, and the store answers",
                self.path.display()
            ))),
            other => other,
        }
    }

    /// Keeps a refusal; one whose fate is unknown, only if it is not there.
    pub(crate) fn keep_refusal(&mut self, refused: &Refused) -> Result<(), Error> {
        self.start(false)?;
        let doubted = self.refusals_in_doubt.iter().position(|doubted| doubted == refused);
        let kept = self.attempt("keep a refusal", |connection| {
            if doubted.is_some() && receipts::has_refusal(connection, refused)? {
                return Ok(());
            }
            let mut head = store_meta::load(connection)?;
            head.refused_batches += 1;
            receipts::keep_refusal(connection, refused)?;
            store_meta::save(connection, &head)
        });
        let ended = kept.and_then(|()| self.finish());
        match (&ended, doubted) {
            (Ok(()), doubted) => {
                self.unsynced.refusals.push(refused.clone());
                doubted.map(|at| self.refusals_in_doubt.remove(at));
            }
            (Err(Error::Unknown(_)), None) => self.refusals_in_doubt.push(refused.clone()),
            // an attempt that did nothing leaves the doubt as it was
            (Err(_), _) => {}
        }
        ended
    }
}
