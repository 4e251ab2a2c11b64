//! Several stores on one file that write in turn: what each has in memory is old every time.

use super::*;
use crate::engine::Presence;
use crate::store::conformance::{Ev, change_presence, deliver, ev, settings};

/// Stores on one file.
fn on_one_file(files: &Files, count: usize) -> Vec<SqliteStore> {
    let first = files.make(settings());
    let path = first.path.clone();
    let more = (1..count).map(|_| {
        let mut store = SqliteStore::open(&path, options()).unwrap();
        store.memory = Memory::of_sizes(files.sizes);
        store
    });
    std::iter::once(first).chain(more).collect()
}

fn some(ids: std::ops::Range<u32>) -> Vec<Ev> {
    ids.map(|id| ev(&format!("id{id}"), "k", 100, 1)).collect()
}

#[test]
fn a_batch_without_ids_leaves_the_positions_that_others_gave() {
    let files = Files { sizes: TINY, ..Files::new() };
    let mut stores = on_one_file(&files, 2);
    let [one, other] = &mut stores[..] else { unreachable!() };
    deliver(one, 1, &some(0..2));
    // enough for a run: nothing is left to tell where the ledger ends but what is written down
    deliver(other, 2, &some(2..12));
    change_presence(one, 3, &["s"], Presence::Declared).unwrap();
    deliver(other, 4, &some(12..14));
    let again = deliver(one, 5, &some(0..14));
    assert_eq!((again.counts.accepted, again.counts.duplicate), (0, 14));
}
