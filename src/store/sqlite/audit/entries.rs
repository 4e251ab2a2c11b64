//! The entries of the ledger for who compares them with the files that they came from.

use crate::engine::Fact;
use crate::model::event::{Chunk, Event, HashKey};
use crate::store::sqlite::file::fault::fault;
use crate::store::sqlite::ledger;
use crate::store::sqlite::reader::SqliteSnapshot;
use crate::store::sqlite::tables::store_meta;
use crate::store::{Error, EventRef};

/// A place among the entries of a snapshot, which are in the order of batches.
pub struct Entries<'s> {
    snapshot: &'s SqliteSnapshot,
    reader: ledger::Reader<'s>,
    key: HashKey,
    here: Option<EventRef>,
}

impl SqliteSnapshot {
    /// The entries of the ledger, from the first on.
    ///
    /// # Errors
    /// By kind.
    pub fn entries(&self) -> Result<Entries<'_>, Error> {
        let open = || Ok((ledger::Reader::new(self.connection(), 0)?, self.hash_key()?));
        let (reader, key) = open().map_err(|error| fault(self.path(), "read ids", &error))?;
        let mut entries = Entries { snapshot: self, reader, key, here: None };
        entries.advance()?;
        Ok(entries)
    }

    fn hash_key(&self) -> rusqlite::Result<HashKey> {
        store_meta::hash_key(self.connection())
    }
}

impl Entries<'_> {
    /// Where the entry came in; none behind the last.
    pub fn here(&self) -> Option<EventRef> {
        self.here
    }

    /// Whether it is the one of that event.
    pub fn is_of(&self, event: &Event<'_>) -> bool {
        self.reader.entry().is_some_and(|entry| entry.is_of(event, self.key))
    }

    /// Its key, timestamp and value.
    pub fn payload(&self) -> Option<(String, i64, i64)> {
        self.reader.entry().map(|entry| (entry.key.to_owned(), entry.timestamp_ms, entry.value))
    }

    /// Goes on to the next.
    ///
    /// # Errors
    /// By kind.
    pub fn advance(&mut self) -> Result<(), Error> {
        let more = self
            .reader
            .advance()
            .map_err(|error| fault(self.snapshot.path(), "read ids", &error))?;
        let entry = self.reader.entry().filter(|_| more);
        self.here =
            entry.map(|entry| EventRef { batch: entry.batch, event_index: entry.event_index });
        Ok(())
    }
}

/// What the ledger of a snapshot knows of ids, asked as a batch asks it.
pub struct Lookup<'s> {
    snapshot: &'s SqliteSnapshot,
    ledger: ledger::Ledger,
    key: HashKey,
    oldest_ms: i64,
}

impl SqliteSnapshot {
    /// The least timestamp whose id is remembered.
    ///
    /// # Errors
    /// By kind.
    pub fn remembered_from_ms(&self) -> Result<i64, Error> {
        self.read("the watermark", |connection| self.oldest_ms(connection))
    }

    /// Makes the ledger ready to be asked: about 3 bytes of memory for each id.
    ///
    /// # Errors
    /// By kind.
    pub fn lookup(&self) -> Result<Lookup<'_>, Error> {
        let oldest_ms = self.remembered_from_ms()?;
        self.read("ids", |connection| {
            let head = store_meta::load(connection)?;
            let ledger = ledger::Ledger::for_reading(connection, head.next_position)?;
            Ok(Lookup { snapshot: self, ledger, key: self.hash_key()?, oldest_ms })
        })
    }
}

impl Lookup<'_> {
    /// The least timestamp whose id is remembered.
    pub fn oldest_ms(&self) -> i64 {
        self.oldest_ms
    }

    /// Writes into `facts`, one for each event of the chunk, what is known of its id.
    ///
    /// # Errors
    /// By kind.
    pub fn facts(&mut self, chunk: &Chunk, facts: &mut Vec<Fact>) -> Result<(), Error> {
        let (key, oldest_ms) = (self.key, self.oldest_ms);
        let ledger = &mut self.ledger;
        self.snapshot
            .read("ids", |connection| ledger.lookup(connection, chunk, key, oldest_ms, facts))
    }
}
