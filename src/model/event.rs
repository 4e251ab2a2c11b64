//! What a source sends: one event, its identity and its payload, and chunks of them.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use siphasher::sip128::{Hasher128, SipHasher13};

/// The greatest timestamp that an event may carry, in milliseconds since the epoch: the last
/// millisecond of the year 9999. The least is 0.
pub const MAX_TIMESTAMP_MS: i64 = 253_402_300_799_999;

/// The most bytes that an `id`, `key`, `source` or `producer_version` may have; the least is 1.
pub const MAX_NAME_BYTES: usize = 512;

/// The source of files that lie in the inbox itself, and of events that name none elsewhere.
pub const DEFAULT_SOURCE: &str = "default";

/// Whether that can be the name of an id, key, source or producer version; if not, why.
///
/// # Errors
/// When it is empty, longer than [`MAX_NAME_BYTES`], or white space only.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    match name {
        "" => Err("must not be empty"),
        _ if name.len() > MAX_NAME_BYTES => Err("must not be longer than 512 bytes of UTF-8"),
        _ if name.chars().all(char::is_whitespace) => Err("must not be white space only"),
        _ => Ok(()),
    }
}

/// Where something stands in a batch, after decompression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Byte offset, from 0; a byte order mark counts.
    pub byte: u64,
    /// Line, from 1.
    pub line: u64,
    /// Column in bytes, from 1.
    pub column: u64,
}

/// One measurement, borrowed from the chunk that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// What identifies it, compared byte for byte; 1 to 512 bytes, not blank.
    pub id: &'a str,
    /// What it is counted under; 1 to 512 bytes, not blank.
    pub key: &'a str,
    /// When it happened, 0 to [`MAX_TIMESTAMP_MS`].
    pub timestamp_ms: i64,
    /// The measured integer.
    pub value: i64,
    /// The event's own source, which wins over the batch's.
    pub source: Option<&'a str>,
    /// The release of the producer that made it.
    pub producer_version: Option<&'a str>,
    /// Where it begins in its batch.
    pub place: Place,
}

impl Event<'_> {
    /// Whether the other event carries the same payload: what is compared when an id comes again.
    pub fn same_payload(&self, other: &Event<'_>) -> bool {
        self.key == other.key
            && self.timestamp_ms == other.timestamp_ms
            && self.value == other.value
    }
}

/// The secret under which a store hashes ids and keys. Nobody outside knows it, so nobody can make
/// up names that collide.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct HashKey(pub [u8; 16]);

impl HashKey {
    /// The hash that stands for a name: SipHash-1-3, 128 bits. Of 10,000 million names two are alike
    /// with a probability of 2e-19.
    pub fn hash(&self, name: &str) -> u128 {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write(name.as_bytes());
        hasher.finish128().as_u128()
    }
}

/// A secret is not for logs.
impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}

/// Maps from what is a keyed hash already.
pub type HashedMap<V> = HashMap<u128, V, BuildHasherDefault<Hashed>>;

/// Hands on a keyed hash as it is: it is spread evenly by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.0 ^= u64::from_le_bytes(word);
        }
    }

    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}

/// Consecutive events of one batch, with their text in one buffer. Ids and keys are hashed when they
/// come in, and equal keys share a slot, so that whoever asks later need not look at the text.
#[derive(Debug, Default)]
pub struct Chunk {
    hash_key: HashKey,
    first_index: u64,
    text: String,
    // what few ask for lies apart: what is asked of all rows takes up less of the caches
    rows: Vec<Row>,
    id_hashes: Vec<u128>,
    places: Vec<Place>,
    slots: HashedMap<u32>,
    // where in the text the key of each slot stands, once for all its events
    keys: Vec<(usize, u16)>,
    // what a store found out ahead of the writer
    hint: Option<Box<dyn Any + Send>>,
}

#[derive(Debug)]
struct Row {
    // an offset into `text`: id, source and producer version stand one after the other
    start: usize,
    id_bytes: u16,
    source_bytes: u16,
    version_bytes: u16,
    key_slot: u32,
    timestamp_ms: i64,
    value: i64,
}

impl Chunk {
    /// An empty chunk that hashes under the secret of the store that it is for.
    pub fn keyed(hash_key: HashKey) -> Chunk {
        Chunk { hash_key, ..Chunk::default() }
    }

    /// Empties the chunk for the events from `first_index` (from 0) of the batch on.
    pub fn restart(&mut self, first_index: u64) {
        self.first_index = first_index;
        self.text.clear();
        self.rows.clear();
        self.id_hashes.clear();
        self.places.clear();
        self.slots.clear();
        self.keys.clear();
        self.hint = None;
    }

    /// Keeps what a store found out about these events ahead of its writer; it knows what it is. It
    /// goes when the chunk is restarted.
    pub fn set_hint(&mut self, hint: Box<dyn Any + Send>) {
        self.hint = Some(hint);
    }

    /// What was kept so.
    pub fn hint(&self) -> Option<&(dyn Any + Send)> {
        self.hint.as_deref()
    }

    /// Adds an event behind the others. Its names must be within [`MAX_NAME_BYTES`].
    pub fn push(&mut self, event: Event<'_>) {
        let key_slot = self.slot(event.key);
        let start = self.text.len();
        let mut put = |name: &str| {
            debug_assert!(name.len() <= MAX_NAME_BYTES);
            self.text.push_str(name);
            name.len() as u16
        };
        let row = Row {
            start,
            id_bytes: put(event.id),
            // a name is never blank, so no bytes means none
            source_bytes: put(event.source.unwrap_or("")),
            version_bytes: put(event.producer_version.unwrap_or("")),
            key_slot,
            timestamp_ms: event.timestamp_ms,
            value: event.value,
        };
        self.rows.push(row);
        self.id_hashes.push(self.hash_key.hash(event.id));
        self.places.push(event.place);
    }

    /// The slot of that key, which is put into the text when it is new.
    fn slot(&mut self, key: &str) -> u32 {
        let next = self.keys.len() as u32;
        let slot = *self.slots.entry(self.hash_key.hash(key)).or_insert(next);
        if slot == next {
            debug_assert!(key.len() <= MAX_NAME_BYTES);
            self.keys.push((self.text.len(), key.len() as u16));
            self.text.push_str(key);
        }
        slot
    }

    /// The secret that it hashes under.
    pub fn hash_key(&self) -> HashKey {
        self.hash_key
    }

    /// The hash that stands for the id of the event in the given row.
    ///
    /// # Panics
    /// When the chunk has no such row.
    pub fn id_hash(&self, row: usize) -> u128 {
        self.id_hashes[row]
    }

    /// The hash under any secret; at no cost under the one that the chunk was made with.
    ///
    /// # Panics
    /// When the chunk has no such row.
    pub fn id_hash_under(&self, row: usize, key: HashKey) -> u128 {
        if key == self.hash_key { self.id_hash(row) } else { key.hash(self.event(row).id) }
    }

    /// The slot of the key of the event in the given row: below [`key_count`](Self::key_count), and
    /// the same for the same key.
    ///
    /// # Panics
    /// When the chunk has no such row.
    pub fn key_slot(&self, row: usize) -> usize {
        self.rows[row].key_slot as usize
    }

    /// How many different keys it holds.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// The key of a slot. Slots are numbered in the order in which keys first come.
    ///
    /// # Panics
    /// When the chunk has no such slot.
    pub fn key(&self, slot: usize) -> &str {
        let (at, bytes) = self.keys[slot];
        &self.text[at..at + usize::from(bytes)]
    }

    /// The index in the batch of the chunk's first event, from 0.
    pub fn first_index(&self) -> u64 {
        self.first_index
    }

    /// How many events it holds.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many bytes of text it holds.
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// The event in the given row, from 0.
    ///
    /// # Panics
    /// When the chunk has no such row.
    pub fn event(&self, row: usize) -> Event<'_> {
        let found = &self.rows[row];
        Event {
            id: &self.text[found.start..found.start + usize::from(found.id_bytes)],
            key: self.key(found.key_slot as usize),
            timestamp_ms: found.timestamp_ms,
            value: found.value,
            source: self.source(row),
            producer_version: self.producer_version(row),
            place: self.places[row],
        }
    }

    /// Its timestamp alone, and so on: whoever needs no text should not pay for it.
    ///
    /// # Panics
    /// When the chunk has no such row, as for those that follow.
    pub fn timestamp_ms(&self, row: usize) -> i64 {
        self.rows[row].timestamp_ms
    }

    /// Its value.
    ///
    /// # Panics
    /// When the chunk has no such row.
    pub fn value(&self, row: usize) -> i64 {
        self.rows[row].value
    }

    /// The source that it names.
    ///
    /// # Panics
    /// When the chunk has no such row.
    pub fn source(&self, row: usize) -> Option<&str> {
        let found = &self.rows[row];
        self.name(found.start + usize::from(found.id_bytes), found.source_bytes)
    }

    /// Its producer version.
    ///
    /// # Panics
    /// When the chunk has no such row.
    pub fn producer_version(&self, row: usize) -> Option<&str> {
        let found = &self.rows[row];
        let before = usize::from(found.id_bytes) + usize::from(found.source_bytes);
        self.name(found.start + before, found.version_bytes)
    }

    fn name(&self, from: usize, bytes: u16) -> Option<&str> {
        (bytes > 0).then(|| &self.text[from..from + usize::from(bytes)])
    }

    /// The events in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Event<'_>> {
        (0..self.rows.len()).map(|row| self.event(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_gives_back_what_was_pushed() {
        let full = Event {
            id: "a\0b",
            key: "ключ",
            timestamp_ms: MAX_TIMESTAMP_MS,
            value: i64::MIN,
            source: Some("gw"),
            producer_version: Some("1.2"),
            place: Place { byte: 7, line: 2, column: 3 },
        };
        let bare = Event { id: "b", source: None, producer_version: None, ..full };
        let mut chunk = Chunk::default();
        chunk.restart(40);
        chunk.push(full);
        chunk.push(bare);
        assert_eq!(chunk.iter().collect::<Vec<_>>(), [full, bare]);
        assert_eq!((chunk.first_index(), chunk.len()), (40, 2));
        assert_eq!((chunk.key_count(), chunk.key(0)), (1, "ключ"));
        assert_eq!((chunk.key_slot(0), chunk.key_slot(1)), (0, 0));
        assert_ne!(chunk.id_hash(0), chunk.id_hash(1));
        chunk.set_hint(Box::new(7_u8));
        assert_eq!(chunk.hint().and_then(|hint| hint.downcast_ref()), Some(&7_u8));
        chunk.restart(42);
        assert!(chunk.hint().is_none());
        assert!(chunk.is_empty());
        assert_eq!(chunk.key_count(), 0);
        assert_eq!(chunk.text_bytes(), 0);
    }

    #[test]
    fn the_secret_decides_the_hashes_and_is_not_shown() {
        let (one, other) = (HashKey([1; 16]), HashKey([2; 16]));
        assert_eq!(one.hash("a"), one.hash("a"));
        assert_ne!(one.hash("a"), other.hash("a"));
        assert_ne!(one.hash("a"), one.hash("b"));
        assert_eq!(format!("{one:?}"), "HashKey(..)");
        let mut map = HashedMap::default();
        map.insert(one.hash("a"), 1);
        assert_eq!((map.get(&one.hash("a")), map.get(&one.hash("b"))), (Some(&1), None));
    }

    #[test]
    fn only_the_payload_is_compared() {
        let one = Event {
            id: "a",
            key: "k",
            timestamp_ms: 1,
            value: 2,
            source: None,
            producer_version: None,
            place: Place::default(),
        };
        assert!(one.same_payload(&Event { source: Some("s"), producer_version: Some("v"), ..one }));
        assert!(!one.same_payload(&Event { key: "other", ..one }));
        assert!(!one.same_payload(&Event { timestamp_ms: 3, ..one }));
        assert!(!one.same_payload(&Event { value: 3, ..one }));
    }
}
