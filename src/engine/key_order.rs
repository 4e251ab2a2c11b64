//! The order in which what a chunk adds up to is told: by key. Sorted are its few keys, not its many
//! rows.

use crate::model::event::Chunk;

/// The first `rows` rows of the chunk by key, those of one key in the order of the chunk.
pub(super) fn by_key(chunk: &Chunk, rows: usize) -> Vec<usize> {
    // how many rows a key has, and then where in the result the next of them goes
    let mut next = vec![0; chunk.key_count()];
    (0..rows).for_each(|row| next[chunk.key_slot(row)] += 1);
    let mut from = 0;
    for slot in slots_by_key(chunk) {
        from += std::mem::replace(&mut next[slot], from);
    }
    let mut sorted = vec![0; rows];
    for row in 0..rows {
        let at = &mut next[chunk.key_slot(row)];
        sorted[*at] = row;
        *at += 1;
    }
    sorted
}

fn slots_by_key(chunk: &Chunk) -> impl Iterator<Item = usize> {
    // mostly the first bytes decide, and a number is compared at once
    let mut slots: Vec<(u128, usize)> =
        (0..chunk.key_count()).map(|slot| (first_bytes(chunk.key(slot)), slot)).collect();
    slots.sort_unstable_by(|(a_bytes, a), (b_bytes, b)| {
        a_bytes.cmp(b_bytes).then_with(|| chunk.key(*a).cmp(chunk.key(*b)))
    });
    slots.into_iter().map(|(_, slot)| slot)
}

/// A number that is ordered as the first 16 bytes of the text are.
fn first_bytes(text: &str) -> u128 {
    let mut bytes = [0; 16];
    let length = text.len().min(16);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{Event, Place};

    #[test]
    fn rows_come_by_key_and_within_a_key_in_their_order() {
        let long = "a key of which only the end ";
        let keys = ["b", "a", &format!("{long}2"), "a\0", &format!("{long}1"), "a", "", "漢", "b"];
        let mut chunk = Chunk::default();
        for key in keys {
            chunk.push(Event {
                id: "x",
                key,
                timestamp_ms: 0,
                value: 0,
                source: None,
                producer_version: None,
                place: Place::default(),
            });
        }
        for rows in 0..=keys.len() {
            let mut expected: Vec<usize> = (0..rows).collect();
            expected.sort_by_key(|row| keys[*row]);
            assert_eq!(by_key(&chunk, rows), expected);
        }
    }
}
