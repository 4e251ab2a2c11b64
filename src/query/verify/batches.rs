//! Each batch by itself: its receipt, its file, and the ids that the ledger says it brought.

use std::io::{self, Take};
use std::path::Path;

use super::files::{DoneFile, DoneFiles};
use crate::decode::{Decoder, Fault, Limits};
use crate::engine::{Counts, Fact};
use crate::model::event::{Chunk, Event};
use crate::spool::name::shown;
use crate::store::audit::{Checkup, FindingCode};
use crate::store::sqlite::{Entries, Lookup, SqliteSnapshot};
use crate::store::{Error, ReceiptRow};

/// How many events are looked up at once.
const AT_ONCE: usize = 4096;

/// Walks through receipts, files and ids side by side, in the order of batches.
pub(super) fn compare(
    snapshot: &SqliteSnapshot,
    files: &DoneFiles,
    done: &Path,
    limits: &Limits,
    checkup: &mut Checkup,
) -> Result<(), Error> {
    let limits = Limits { max_file_bytes: None, ..limits.clone() };
    let entries = snapshot.entries()?;
    let mut walk = Walk {
        snapshot,
        entries,
        done,
        limits,
        oldest_ms: snapshot.remembered_from_ms()?,
        has_horizon: snapshot.fixed().dedup_horizon_ms().is_some(),
        elsewhere: Elsewhere::default(),
        lookup: None,
        first: None,
        checkup,
    };
    snapshot.try_each_receipt::<Error>(|receipt| {
        walk.without_receipt(Some(receipt.batch))?;
        walk.first.get_or_insert(receipt.batch);
        walk.batch(receipt, files)
    })?;
    walk.without_receipt(None)
}

struct Walk<'w> {
    snapshot: &'w SqliteSnapshot,
    entries: Entries<'w>,
    done: &'w Path,
    limits: Limits,
    /// The least timestamp whose id is remembered.
    oldest_ms: i64,
    /// Where ids are forgotten, their number does not tell whether one is missing.
    has_horizon: bool,
    elsewhere: Elsewhere,
    /// Made when it is needed: it takes about 3 bytes for each id.
    lookup: Option<Lookup<'w>>,
    /// The first batch that has a receipt.
    first: Option<u64>,
    checkup: &'w mut Checkup,
}

/// Events of a file that have no id of their own in the ledger and are not too old for it: each must
/// be known by another.
#[derive(Default)]
struct Elsewhere {
    events: Chunk,
    indexes: Vec<u64>,
    facts: Vec<Fact>,
}

impl<'w> Walk<'w> {
    /// Passes over ids of batches before that one: those before the first receipt may have lost
    /// theirs in time.
    fn without_receipt(&mut self, before: Option<u64>) -> Result<(), Error> {
        let mut last = None;
        while let Some(at) = self.entries.here()
            && before.is_none_or(|before| at.batch < before)
        {
            if last.replace(at.batch) != Some(at.batch)
                && (self.first.is_some() || before.is_none())
            {
                let what = format!("ids of batch {}", at.batch);
                let (expected, found) = ("a receipt of that batch", "none");
                self.checkup.found(FindingCode::EntryWithoutReceipt, what, expected, found);
            }
            self.entries.advance()?;
        }
        Ok(())
    }

    fn batch(&mut self, receipt: &ReceiptRow, files: &DoneFiles) -> Result<(), Error> {
        let batch = receipt.batch;
        let (mut there, mut is_compared) = (0, false);
        if receipt.act.is_none()
            && let Some(file) = files.of_batch(batch)
        {
            match file.open(self.done) {
                Ok(opened) => {
                    let name = file.entry.shown();
                    self.bytes(receipt, file);
                    there +=
                        self.file(receipt, &name, Decoder::new(opened, self.limits.clone()))?;
                    is_compared = true;
                    self.checkup.checked("batches_against_files", 1);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    self.checkup.not_checked(format!("done/{}: {error}", file.entry));
                }
            }
        }
        while let Some(at) = self.entries.here().filter(|at| at.batch == batch) {
            if is_compared {
                let what = format!("event {} of batch {batch}", at.event_index);
                let expected = "one that its file has";
                self.checkup.found(FindingCode::EntryDiffers, what, expected, "an id more");
            } else {
                // without a file they are only counted
                there = self.count(batch)?;
                break;
            }
            self.entries.advance()?;
        }
        let Counts { accepted, late, future, .. } = receipt.counts;
        let expected = match receipt.act {
            None => accepted.wrapping_add(late).wrapping_add(future),
            Some(_) => 0,
        };
        if there > expected || (there < expected && !self.has_horizon) {
            let what = format!("ids of batch {batch}");
            let expected = format!("{expected}, as its receipt says");
            self.checkup.found(FindingCode::EntryCount, what, expected, there.to_string());
        }
        Ok(())
    }

    /// A file that has the hash of its receipt has its size as well.
    fn bytes(&mut self, receipt: &ReceiptRow, file: &DoneFile) {
        let taken_bytes = file.taken_bytes.unwrap_or(file.bytes);
        if receipt.bytes != Some(taken_bytes) {
            let what = format!("receipt of batch {}", receipt.batch);
            let expected = format!("{taken_bytes} bytes, as done/{}", file.entry);
            let found = format!("{:?}", receipt.bytes);
            self.checkup.found(FindingCode::ReceiptDiffers, what, expected, found);
        }
    }

    fn count(&mut self, batch: u64) -> Result<u64, Error> {
        let mut count = 0;
        while self.entries.here().is_some_and(|at| at.batch == batch) {
            count += 1;
            self.entries.advance()?;
        }
        Ok(count)
    }

    /// Compares the events of a file with the ids of its batch; how many of them there are.
    fn file(
        &mut self,
        receipt: &ReceiptRow,
        name: &str,
        mut decoder: Decoder<Take<std::fs::File>>,
    ) -> Result<u64, Error> {
        let mut chunk = Chunk::default();
        let (mut there, mut events) = (0, 0);
        loop {
            let more = decoder.read_chunk(&mut chunk);
            for (row, event) in chunk.iter().enumerate() {
                events += 1;
                there += self.event(receipt.batch, chunk.first_index() + row as u64, &event)?;
            }
            match more {
                Ok(true) => {}
                Ok(false) => break,
                Err(fault) => {
                    let why = match fault {
                        Fault::Refused(refusal) => shown(refusal.message.as_bytes()),
                        Fault::Io(error) => error.to_string(),
                    };
                    self.checkup.not_checked(format!("done/{name}, read to its end: {why}"));
                    return self.count(receipt.batch).map(|more| there + more);
                }
            }
        }
        self.look_elsewhere(receipt.batch)?;
        self.checkup.checked("events_in_files", events);
        let counts = &receipt.counts;
        let told = [counts.accepted, counts.late, counts.duplicate, counts.future, counts.expired];
        if told.into_iter().fold(0, u64::wrapping_add) != events {
            let what = format!("receipt of batch {}", receipt.batch);
            let expected = format!("{events} events, as in done/{name}");
            self.checkup.found(FindingCode::ReceiptDiffers, what, expected, counts.to_string());
        }
        Ok(there)
    }

    /// Looks up what has no id of its own, and forgets it.
    fn look_elsewhere(&mut self, batch: u64) -> Result<(), Error> {
        let Elsewhere { events, indexes, facts } = &mut self.elsewhere;
        if indexes.is_empty() {
            return Ok(());
        }
        let lookup = match &mut self.lookup {
            Some(lookup) => lookup,
            none => none.insert(self.snapshot.lookup()?),
        };
        lookup.facts(events, facts)?;
        for ((event, fact), index) in events.iter().zip(facts).zip(indexes.iter()) {
            let found = match fact {
                Fact::Seen(seen) if seen.same_payload => continue,
                Fact::Seen(_) => "one with other values",
                Fact::New => "none: a repeat of it would count again",
            };
            let what = format!("event {index} of batch {batch} (id {:?})", event.id);
            let expected = format!("an id that is known: {} is remembered", event.timestamp_ms);
            self.checkup.found(FindingCode::EntryMissing, what, expected, found);
        }
        events.restart(0);
        indexes.clear();
        Ok(())
    }

    /// One where the ledger has an entry of that event.
    fn event(&mut self, batch: u64, index: u64, event: &Event<'_>) -> Result<u64, Error> {
        if self.entries.here().is_none_or(|at| (at.batch, at.event_index) != (batch, index)) {
            if self.has_horizon && event.timestamp_ms >= self.oldest_ms {
                self.elsewhere.events.push(*event);
                self.elsewhere.indexes.push(index);
                if self.elsewhere.indexes.len() == AT_ONCE {
                    self.look_elsewhere(batch)?;
                }
            }
            return Ok(0);
        }
        if !self.entries.is_of(event) {
            let what = format!("event {index} of batch {batch} (id {:?})", event.id);
            let Event { key, timestamp_ms, value, .. } = event;
            let expected = format!("key {key:?}, timestamp_ms {timestamp_ms}, value {value}");
            let found = match self.entries.payload() {
                Some((key, timestamp_ms, value)) => {
                    format!("key {key:?}, timestamp_ms {timestamp_ms}, value {value}")
                }
                None => "nothing that can be read".to_owned(),
            };
            let found = if found == expected { "another id".to_owned() } else { found };
            self.checkup.found(FindingCode::EntryDiffers, what, expected, found);
        }
        self.entries.advance()?;
        Ok(1)
    }
}
