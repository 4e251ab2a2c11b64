//! A filter in memory that says of most new ids, for certain, that a run does not hold them.

use super::SHORT_BITS;

/// Bits for each id. Of ids that a run does not hold about 1 in 4,000 is not told apart.
const BITS_PER_ID: u64 = 20;

/// The words of a block: one line of the processor's cache. Each id sets one bit in each of them.
const WORDS: usize = 8;

/// A Bloom filter in blocks. Blocks lie in the order of the ids, so that ids that are asked for in
/// order go through it from front to back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    words: Vec<[u64; WORDS]>,
}

impl Filter {
    /// An empty one for so many ids.
    pub(super) fn for_ids(ids: u64) -> Filter {
        let blocks = (ids * BITS_PER_ID).div_ceil(WORDS as u64 * 64).max(1);
        Filter { words: vec![[0; WORDS]; blocks as usize] }
    }

    /// The block of an id. There are fewer than 2^32 blocks, so its upper 32 bits suffice.
    fn block(&self, short: u64) -> usize {
        (((short >> (SHORT_BITS - 32)) * self.words.len() as u64) >> 32) as usize
    }

    pub(super) fn add(&mut self, short: u64) {
        let block = self.block(short);
        let bits = spread(short);
        for (place, word) in self.words[block].iter_mut().enumerate() {
            *word |= bit(bits, place);
        }
    }

    /// Whether it may have been added; a no is certain.
    pub(super) fn may_hold(&self, short: u64) -> bool {
        let bits = spread(short);
        let block = &self.words[self.block(short)];
        (0..WORDS).all(|place| block[place] & bit(bits, place) != 0)
    }

    /// Adds to `found` those of the ids that may have been added. Ids come with something of the
    /// caller's.
    pub(super) fn select(&self, ids: &[(u64, u32)], found: &mut Vec<(u64, u32)>) {
        let begun = found.len();
        found.resize(begun + ids.len(), (0, 0));
        let mut next = begun;
        // without a branch, so that the processor can wait for many blocks at once; two words rule
        // out nine ids in ten
        for id in ids {
            let (bits, block) = (spread(id.0), &self.words[self.block(id.0)]);
            let has = |place: usize| block[place] >> ((bits >> (6 * place + 16)) & 63) & 1;
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

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.words.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// None when these are not the bytes of a filter.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Filter> {
        let (blocks, rest) = bytes.as_chunks::<{ WORDS * 8 }>();
        let words = blocks
            .iter()
            .map(|block| {
                let (words, _) = block.as_chunks::<8>();
                std::array::from_fn(|place| u64::from_le_bytes(words[place]))
            })
            .collect::<Vec<_>>();
        (rest.is_empty() && !words.is_empty()).then_some(Filter { words })
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
    use crate::event::HashKey;
    use crate::store::sqlite::ledger::short_of;

    fn shorts(range: std::ops::Range<u32>) -> impl Iterator<Item = u64> {
        range.map(|n| short_of(HashKey([7; 16]).hash(&n.to_string()) >> 32))
    }

    #[test]
    fn it_never_denies_what_it_holds_and_rarely_claims_more() {
        let ids = 100_000;
        let mut filter = Filter::for_ids(u64::from(ids));
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
        assert!(filter.to_bytes().len() as u32 <= ids * 5 / 2 + 64);
    }

    #[test]
    fn it_comes_back_from_its_bytes() {
        let mut filter = Filter::for_ids(500);
        shorts(0..500).for_each(|short| filter.add(short));
        assert_eq!(Filter::from_bytes(&filter.to_bytes()), Some(filter));
        assert_eq!(Filter::from_bytes(&[0; 63]), None);
        assert_eq!(Filter::from_bytes(&[]), None);
    }
}
