//! The ids that came last and are in no run yet, in memory: which of them is where.

use super::run::MAX_ENTRIES;
use crate::store::sqlite::codec::Damaged;

/// What stands where an id was forgotten.
const FORGOTTEN: u128 = 0;

/// The fewest slots; a power of two, as all numbers of slots are.
const LEAST_SLOTS: usize = 1 << 10;

/// Ids by position; each has one position at most.
///
/// A table of slots that are probed one behind the other. A slot is 8 bytes, and no more than half of
/// them are taken: to ask for an id and then to add it touches one line of the processor's cache.
#[derive(Debug)]
pub(super) struct Memtable {
    /// The position of the first.
    from: u64,
    hashes: Vec<u128>,
    /// The upper 32 bits of a hash, and its place from 1 on; 0 for an empty one.
    slots: Vec<u64>,
    used: usize,
    least_ms: i64,
}

impl Default for Memtable {
    fn default() -> Memtable {
        Memtable::behind(0)
    }
}

impl Memtable {
    /// An empty one behind what has a run.
    pub(super) fn behind(position: u64) -> Memtable {
        let (hashes, slots) = (Vec::new(), vec![0; LEAST_SLOTS]);
        Memtable { from: position, hashes, slots, used: 0, least_ms: i64::MAX }
    }

    /// The position of its first id.
    pub(super) fn from(&self) -> u64 {
        self.from
    }

    /// The position that the next id gets.
    pub(super) fn next(&self) -> u64 {
        self.from + self.hashes.len() as u64
    }

    /// The least timestamp of all that came, or less.
    pub(super) fn least_ms(&self) -> i64 {
        self.least_ms
    }

    /// Has the memory fetched in which these ids are looked for: all of it at once, where one id after
    /// the other would wait for its own.
    pub(super) fn warm(&self, hashes: &[u128]) {
        let mask = self.slots.len() - 1;
        let all = hashes.iter().map(|hash| self.slots[*hash as usize & mask]);
        std::hint::black_box(all.fold(0, |sum, slot| sum ^ slot));
    }

    pub(super) fn find(&self, hash: u128) -> Option<u64> {
        let place = place_in(self.slots[self.slot(hash)])?;
        Some(self.from + place as u64)
    }

    /// The slot of an id, or the empty one that it would get.
    fn slot(&self, hash: u128) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let held = self.slots[slot];
            let Some(place) = place_in(held) else { return slot };
            if held >> 32 == tag(hash) && self.hashes[place] == hash {
                return slot;
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Adds the next id; where it stood before, if it did.
    pub(super) fn push(&mut self, hash: u128, timestamp_ms: i64) -> Option<u64> {
        self.least_ms = self.least_ms.min(timestamp_ms);
        if (self.used + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let slot = self.slot(hash);
        let before = place_in(self.slots[slot]);
        match before {
            Some(place) => self.hashes[place] = FORGOTTEN,
            None => self.used += 1,
        }
        self.hashes.push(hash);
        self.slots[slot] = tag(hash) << 32 | self.hashes.len() as u64;
        before.map(|place| self.from + place as u64)
    }

    fn grow(&mut self) {
        self.slots = vec![0; self.slots.len() * 2];
        for place in 0..self.hashes.len() {
            let hash = self.hashes[place];
            if hash != FORGOTTEN {
                let slot = self.slot(hash);
                self.slots[slot] = tag(hash) << 32 | (place as u64 + 1);
            }
        }
    }

    /// Leaves the positions up to that one to what was forgotten. Memory is taken for each of them,
    /// so a position that no tail reaches is damage.
    pub(super) fn skip_to(&mut self, position: u64) -> Result<(), Damaged> {
        let places = position.saturating_sub(self.from);
        if places > MAX_ENTRIES {
            return Err(Damaged);
        }
        if places as usize > self.hashes.len() {
            self.hashes.resize(places as usize, FORGOTTEN);
        }
        Ok(())
    }

    /// Empties it, and goes on behind what it held.
    pub(super) fn restart(&mut self) {
        self.from = self.next();
        self.hashes.clear();
        self.slots.fill(0);
        self.used = 0;
        self.least_ms = i64::MAX;
    }

    /// Takes away what came from that position on, unless one of these had stood elsewhere before.
    pub(super) fn truncate(&mut self, position: u64) {
        let left = position.saturating_sub(self.from) as usize;
        // what came last is on the way to nothing that came before it
        while self.hashes.len() > left
            && let Some(hash) = self.hashes.last().copied()
        {
            if hash != FORGOTTEN {
                let slot = self.slot(hash);
                self.slots[slot] = 0;
                self.used -= 1;
            }
            self.hashes.pop();
        }
    }

    /// Each id with its place from the first on.
    pub(super) fn ids(&self) -> impl Iterator<Item = (u128, u32)> {
        let places = self.hashes.iter().zip(0..);
        places.filter(|(hash, _)| **hash != FORGOTTEN).map(|(hash, place)| (*hash, place))
    }

    /// How many ids it holds.
    pub(super) fn len(&self) -> usize {
        self.used
    }
}

fn tag(hash: u128) -> u64 {
    (hash >> 64) as u32 as u64
}

fn place_in(slot: u64) -> Option<usize> {
    (slot as u32).checked_sub(1).map(|place| place as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_has_its_last_position() {
        let mut memtable = Memtable::behind(100);
        assert_eq!([7, 8, 9].map(|hash| memtable.push(hash, 5 - hash as i64)), [None; 3]);
        assert_eq!(memtable.push(8, 9), Some(101));
        memtable.skip_to(105).unwrap();
        memtable.skip_to(1 << 53).unwrap_err();
        assert_eq!(memtable.next(), 105);
        assert_eq!(
            (memtable.find(8), memtable.find(7), memtable.find(5)),
            (Some(103), Some(100), None)
        );
        assert_eq!(
            (memtable.from(), memtable.next(), memtable.len(), memtable.least_ms()),
            (100, 105, 3, -4)
        );
        assert_eq!(memtable.ids().collect::<Vec<_>>(), [(7, 0), (9, 2), (8, 3)]);
        memtable.restart();
        assert_eq!(
            (memtable.from(), memtable.next(), memtable.len(), memtable.find(9)),
            (105, 105, 0, None)
        );
    }

    #[test]
    fn what_is_taken_away_leaves_the_rest() {
        // many that want the same slots, and growth in between
        let hash = |n: u64| u128::from(n % 7) << 64 | u128::from((n << 40) | (n % 13) | (1 << 30));
        let mut memtable = Memtable::behind(0);
        for count in [10, 400, 3000] {
            (0..count).for_each(|n| assert_eq!(memtable.push(hash(n), 0), None, "{n}"));
            let found = |memtable: &Memtable| {
                (0..count).filter_map(|n| memtable.find(hash(n))).count() as u64
            };
            assert_eq!(found(&memtable), count);
            for left in [count / 2, count / 3, 0] {
                memtable.truncate(left);
                assert_eq!((found(&memtable), memtable.len() as u64), (left, left));
                assert!((0..left).all(|n| memtable.find(hash(n)) == Some(n)));
            }
        }
    }
}
