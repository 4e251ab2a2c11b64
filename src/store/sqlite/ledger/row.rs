//! One row of entries: what came with ids that were taken in one after the other, packed.
//!
//! A row begins with the batch, the index of its first event, the time of that event and the number
//! of its entries. Each entry is the gap to the index before it, its length, and then 12 bytes of
//! the hash of its id, its time and its value as differences, and its key. One that was forgotten
//! keeps its place with a length of nothing.

use crate::engine::Seen;
use crate::model::event::Event;
use crate::store::sqlite::codec::{BlobReader, Damaged, put, put_signed, signed_bytes};

/// The most bytes of a row: with what SQLite adds, it fills a page of 4 KiB.
pub(super) const ROW_BYTES: usize = 4040;

/// What the numbers at the front of a row and of an entry take together, at most.
const MOST_NUMBERS_BYTES: usize = 72;

/// Bytes of a hash that are kept. Of 1,000 million ids two are alike with a probability of 6e-12.
const HASH_BYTES: usize = 12;

/// What came with an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::sqlite) struct Entry<'r> {
    /// The upper 96 bits of the hash of its id.
    pub(super) hash: u128,
    pub(in crate::store::sqlite) batch: u64,
    pub(in crate::store::sqlite) event_index: u64,
    pub(in crate::store::sqlite) timestamp_ms: i64,
    pub(in crate::store::sqlite) value: i64,
    pub(in crate::store::sqlite) key: &'r str,
}

impl Entry<'_> {
    pub(super) fn same_payload(&self, event: &Event<'_>) -> bool {
        self.key == event.key
            && self.timestamp_ms == event.timestamp_ms
            && self.value == event.value
    }
}

impl Seen {
    /// What the entry of an id says of an event that has it, too.
    pub(super) fn of(entry: &Entry<'_>, event: &Event<'_>) -> Seen {
        Seen {
            batch: entry.batch,
            event_index: entry.event_index,
            timestamp_ms: entry.timestamp_ms,
            same_payload: entry.same_payload(event),
        }
    }
}

/// A row in the making.
#[derive(Debug, Default)]
pub(super) struct RowWriter {
    entries: Vec<u8>,
    count: u64,
    batch: u64,
    first_index: u64,
    last_index: u64,
    base_ms: i64,
}

impl RowWriter {
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Whether another entry fits in; into an empty row any does. The entries of a row are of one
    /// batch, in order.
    pub(super) fn has_room_for(&self, entry: &Entry<'_>) -> bool {
        let at_most = MOST_NUMBERS_BYTES + HASH_BYTES + entry.key.len();
        self.count == 0 || (self.batch == entry.batch && self.entries.len() + at_most <= ROW_BYTES)
    }

    /// Adds an entry.
    pub(super) fn push(&mut self, entry: &Entry<'_>) {
        if self.count == 0 {
            (self.batch, self.first_index) = (entry.batch, entry.event_index);
            (self.base_ms, self.last_index) = (entry.timestamp_ms, entry.event_index);
        }
        put(&mut self.entries, entry.event_index - self.last_index);
        let later_ms = entry.timestamp_ms - self.base_ms;
        let numbers = signed_bytes(later_ms) + signed_bytes(entry.value);
        put(&mut self.entries, (HASH_BYTES + numbers + entry.key.len()) as u64);
        let (upper, lower) = ((entry.hash >> 32) as u64, entry.hash as u32);
        self.entries.extend_from_slice(&upper.to_be_bytes());
        self.entries.extend_from_slice(&lower.to_be_bytes());
        put_signed(&mut self.entries, later_ms);
        put_signed(&mut self.entries, entry.value);
        self.entries.extend_from_slice(entry.key.as_bytes());
        self.last_index = entry.event_index;
        self.count += 1;
    }

    /// The row, which is begun anew.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut row = Vec::with_capacity(self.entries.len() + 32);
        for number in [self.batch, self.first_index, self.base_ms as u64, self.count] {
            put(&mut row, number);
        }
        row.extend_from_slice(&self.entries);
        self.entries.clear();
        self.count = 0;
        row
    }
}

/// The entries of a row, in order.
#[derive(Clone, Debug)]
pub(super) struct Entries<'r> {
    row: &'r [u8],
    mark: Mark,
}

/// How far a row was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    batch: u64,
    base_ms: i64,
    count: u64,
    /// How many were read.
    read: u64,
    /// The index of the last that was read.
    index: u64,
    /// Where in the row the next one begins.
    offset: usize,
}

impl<'r> Entries<'r> {
    pub(super) fn of(row: &'r [u8]) -> Result<Entries<'r>, Damaged> {
        let mut reader = BlobReader(row);
        let (batch, index) = (reader.number()?, reader.number()?);
        let (base_ms, count) = (reader.number()? as i64, reader.number()?);
        let offset = row.len() - reader.0.len();
        Ok(Entries { row, mark: Mark { batch, base_ms, count, read: 0, index, offset } })
    }

    /// Goes on in a row where it was left off.
    pub(super) fn resume(row: &'r [u8], mark: Mark) -> Entries<'r> {
        Entries { row, mark }
    }

    pub(super) fn mark(&self) -> Mark {
        self.mark
    }

    /// The batch that brought all of them.
    pub(super) fn batch(&self) -> u64 {
        self.mark.batch
    }

    /// How many there are in all, forgotten ones included.
    pub(super) fn count(&self) -> u64 {
        self.mark.count
    }

    /// Whether all of them were read.
    pub(super) fn is_over(&self) -> bool {
        self.mark.read >= self.mark.count
    }

    /// Whether all of them were read, and nothing stands behind the last.
    pub(super) fn is_whole(&self) -> bool {
        self.is_over() && self.mark.offset == self.row.len()
    }

    /// Goes on to that place, from 0, which must not lie behind.
    pub(super) fn skip_to(&mut self, place: u64) -> Result<(), Damaged> {
        while self.mark.read < place {
            self.raw()?;
        }
        Ok(())
    }

    /// The bytes of the next one behind its gap and length.
    fn raw(&mut self) -> Result<BlobReader<'r>, Damaged> {
        let mark = &mut self.mark;
        if mark.read >= mark.count {
            return Err(Damaged);
        }
        let mut reader = BlobReader(self.row.get(mark.offset..).ok_or(Damaged)?);
        mark.index = mark.index.checked_add(reader.number()?).ok_or(Damaged)?;
        let length = reader.number()?;
        let raw = reader.bytes(length)?;
        mark.read += 1;
        mark.offset = self.row.len() - reader.0.len();
        Ok(BlobReader(raw))
    }

    /// The next one; none when it was forgotten.
    pub(super) fn read(&mut self) -> Result<Option<Entry<'r>>, Damaged> {
        let mut raw = self.raw()?;
        if raw.is_at_end() {
            return Ok(None);
        }
        let mut hash = [0; 16];
        hash[16 - HASH_BYTES..].copy_from_slice(raw.bytes(HASH_BYTES as u64)?);
        let timestamp_ms = self.mark.base_ms.checked_add(raw.signed()?).ok_or(Damaged)?;
        let value = raw.signed()?;
        let key = std::str::from_utf8(raw.0).map_err(|_| Damaged)?;
        let (batch, event_index) = (self.mark.batch, self.mark.index);
        let hash = u128::from_be_bytes(hash);
        Ok(Some(Entry { hash, batch, event_index, timestamp_ms, value, key }))
    }
}

/// The row without those entries for which `forget` says so; none when no entry is left. Also how
/// many it took away.
pub(super) fn without(
    row: &[u8],
    mut forget: impl FnMut(u64, &Entry<'_>) -> bool,
) -> Result<(Option<Vec<u8>>, u64), Damaged> {
    let mut entries = Entries::of(row)?;
    let mut kept = row[..entries.mark.offset].to_vec();
    let (mut left, mut gone) = (0, 0);
    for place in 0..entries.count() {
        let before = entries.mark;
        match entries.read()? {
            Some(entry) if !forget(place, &entry) => {
                left += 1;
                kept.extend_from_slice(&row[before.offset..entries.mark.offset]);
            }
            other => {
                gone += u64::from(other.is_some());
                put(&mut kept, entries.mark.index - before.index);
                put(&mut kept, 0);
            }
        }
    }
    Ok(((left > 0).then_some(kept), gone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u64, key: &str) -> Entry<'_> {
        Entry {
            hash: u128::from(n) << 32 | 5,
            batch: 9,
            event_index: 100 + 3 * n,
            timestamp_ms: 253_402_300_799_999 - n as i64 * 1000,
            value: if n.is_multiple_of(2) { i64::MIN } else { i64::MAX },
            key,
        }
    }

    fn all(row: &[u8]) -> Vec<Option<Entry<'_>>> {
        let mut entries = Entries::of(row).unwrap();
        (0..entries.count()).map(|_| entries.read().unwrap()).collect()
    }

    #[test]
    fn a_row_gives_back_what_was_pushed_until_it_is_full() {
        let key = "k".repeat(512);
        let mut writer = RowWriter::default();
        let mut count = 0;
        while writer.has_room_for(&entry(count, &key)) {
            writer.push(&entry(count, &key));
            count += 1;
        }
        let row = writer.take();
        assert!(row.len() <= ROW_BYTES && row.len() > ROW_BYTES - 700, "{}", row.len());
        let expected: Vec<_> = (0..count).map(|n| Some(entry(n, &key))).collect();
        assert_eq!(all(&row), expected);
        assert_eq!(writer.count(), 0);
        let mut entries = Entries::of(&row).unwrap();
        entries.skip_to(4).unwrap();
        assert_eq!(entries.read().unwrap(), Some(entry(4, &key)));
    }

    #[test]
    fn what_is_forgotten_leaves_its_place_behind() {
        let mut writer = RowWriter::default();
        (0..5).for_each(|n| writer.push(&entry(n, "k")));
        let row = writer.take();
        let (kept, gone) = without(&row, |place, _| place == 1 || place == 3).unwrap();
        let kept = kept.unwrap();
        assert_eq!(gone, 2);
        let expected = [Some(entry(0, "k")), None, Some(entry(2, "k")), None, Some(entry(4, "k"))];
        assert_eq!(all(&kept), expected);
        let (none, gone) = without(&kept, |_, _| true).unwrap();
        assert_eq!((none, gone), (None, 3));
    }

    #[test]
    fn a_damaged_row_is_found_out_or_read_within_its_bounds() {
        let mut writer = RowWriter::default();
        (0..5).for_each(|n| writer.push(&entry(n, "ключ")));
        let row = writer.take();
        for length in 0..row.len() {
            let cut = Entries::of(&row[..length]).and_then(|mut entries| {
                (0..entries.count()).try_for_each(|_| entries.read().map(|_| ()))
            });
            assert!(cut.is_err(), "{length}");
        }
        for place in 0..row.len() {
            let mut bad = row.clone();
            bad[place] ^= 0x80;
            if let Ok(mut entries) = Entries::of(&bad) {
                while entries.read().is_ok() {}
            }
        }
    }
}
