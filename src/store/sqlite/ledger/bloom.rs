//! A filter in memory that says of most new ids, for certain, that a run does not hold them.

use super::{AT_ONCE, SHORT_BITS};

/// Bits for each id. Of ids that a run does not hold about 1 in 4,000 is not told apart.
const BITS_PER_ID: u64 = 20;

/// The words of a block: one line of the processor's cache. Each id sets one bit in each of them.
const WORDS: usize = 8;

/// A block in bytes.
const BLOCK_BYTES: usize = WORDS * 8;

/// A Bloom filter in blocks. Blocks lie in the order of the ids, so that ids that are asked for in
/// order go through it from front to back. Words have their lowest byte first, as they are stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bloom {
    bytes: Vec<u8>,
}

/// The block of an id among so many. There are fewer than 2^32, so its upper 32 bits suffice.
fn block_of(short: u64, blocks: usize) -> usize {
    (((short >> (SHORT_BITS - 32)) * blocks as u64) >> 32) as usize
}

fn word(block: &[u8; BLOCK_BYTES], place: usize) -> u64 {
    u64::from_le_bytes(block.as_chunks::<8>().0[place])
}

impl Bloom {
    /// An empty one for so many ids.
    pub(super) fn for_ids(ids: u64) -> Bloom {
        let blocks = (ids * BITS_PER_ID).div_ceil(BLOCK_BYTES as u64 * 8).max(1);
        Bloom { bytes: vec![0; blocks as usize * BLOCK_BYTES] }
    }

    fn blocks(&self) -> &[[u8; BLOCK_BYTES]] {
        self.bytes.as_chunks().0
    }

    pub(super) fn add(&mut self, short: u64) {
        let (blocks, _) = self.bytes.as_chunks_mut::<BLOCK_BYTES>();
        let block = &mut blocks[block_of(short, blocks.len())];
        let bits = spread(short);
        for (place, word) in block.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = (u64::from_le_bytes(*word) | bit(bits, place)).to_le_bytes();
        }
    }

    /// Whether it may have been added; a no is certain.
    pub(super) fn may_hold(&self, short: u64) -> bool {
        let (bits, blocks) = (spread(short), self.blocks());
        let block = &blocks[block_of(short, blocks.len())];
        (0..WORDS).all(|place| word(block, place) & bit(bits, place) != 0)
    }

    /// Adds to `found` those of the ids that may have been added. Ids come with something of the
    /// caller's.
    pub(super) fn select(&self, ids: &[(u64, u32)], found: &mut Vec<(u64, u32)>) {
        for ids in ids.chunks(AT_ONCE) {
            self.warm(ids);
            self.select_some(ids, found);
        }
    }

    /// Has the blocks of these ids fetched. There is so little to do for each that the processor
    /// waits for more of them at once than where it looks into them.
    fn warm(&self, ids: &[(u64, u32)]) {
        let blocks = self.blocks();
        let all = ids.iter().map(|id| blocks[block_of(id.0, blocks.len())][0]);
        std::hint::black_box(all.fold(0, |sum, byte| sum ^ byte));
    }

    fn select_some(&self, ids: &[(u64, u32)], found: &mut Vec<(u64, u32)>) {
        let blocks = self.blocks();
        let begun = found.len();
        found.resize(begun + ids.len(), (0, 0));
        let mut next = begun;
        // without a branch, so that the processor can wait for many blocks at once; two words rule
        // out nine ids in ten
        for id in ids {
            let (bits, block) = (spread(id.0), &blocks[block_of(id.0, blocks.len())]);
            let has = |place: usize| word(block, place) >> ((bits >> (6 * place + 16)) & 63) & 1;
            found[next] = *id;
            next += (has(0) & has(1)) as usize;
        }
        found.truncate(next);
        let mut place = begun;
        while place < found.len() {
            if self.may_hold(found[place].0) {
                place += 1;
            } else {
                found.swap_remove(place);
            }
        }
    }

    /// What of it is stored.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// None when these are not the bytes of a filter.
    pub(super) fn from_bytes(bytes: Vec<u8>) -> Option<Bloom> {
        let is_whole = !bytes.is_empty() && bytes.len().is_multiple_of(BLOCK_BYTES);
        is_whole.then_some(Bloom { bytes })
    }
}

/// The block takes the upper bits of an id, so what decides within it must depend on all of them.
fn spread(short: u64) -> u64 {
    let mixed = short.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

fn bit(bits: u64, place: usize) -> u64 {
    1 << ((bits >> (6 * place + 16)) & 63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::HashKey;
    use crate::store::sqlite::ledger::short_of;

    fn shorts(range: std::ops::Range<u32>) -> impl Iterator<Item = u64> {
        range.map(|n| short_of(HashKey([7; 16]).hash(&n.to_string()) >> 32))
    }

    #[test]
    fn it_never_denies_what_it_holds_and_rarely_claims_more() {
        let ids = 100_000;
        let mut filter = Bloom::for_ids(u64::from(ids));
        shorts(0..ids).for_each(|short| filter.add(short));
        assert!(shorts(0..ids).all(|short| filter.may_hold(short)));
        let all: Vec<_> = shorts(0..2 * ids).zip(0..).collect();
        let mut found = vec![(0, 9)];
        filter.select(&all, &mut found);
        found[1..].sort_unstable_by_key(|(_, place)| *place);
        let expected = all.iter().filter(|(short, _)| filter.may_hold(*short)).copied();
        assert_eq!(found, [(0, 9)].into_iter().chain(expected).collect::<Vec<_>>());
        let wrong = shorts(ids..3 * ids).filter(|short| filter.may_hold(*short)).count();
        assert!(wrong < 100, "{wrong} of {} are not told apart", 2 * ids);
        assert!(filter.bytes().len() as u32 <= ids * 5 / 2 + 64);
    }

    #[test]
    fn it_comes_back_from_its_bytes() {
        let mut filter = Bloom::for_ids(500);
        shorts(0..500).for_each(|short| filter.add(short));
        assert_eq!(Bloom::from_bytes(filter.bytes().to_vec()), Some(filter));
        assert!(Bloom::from_bytes(vec![0; 63]).is_none());
        assert!(Bloom::from_bytes(Vec::new()).is_none());
    }
}
