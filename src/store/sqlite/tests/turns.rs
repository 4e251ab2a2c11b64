//! Several stores on one file that write in turn: what each has in memory is old every time.

use std::cell::Cell;

use super::*;
use crate::engine::Presence;
use crate::store::conformance::{Ev, change_presence, deliver, ev, settings};

/// Three processes with a store, one of which is asked at a time.
struct Turns {
    stores: Vec<SqliteStore>,
    turn: Cell<u32>,
}

impl Turns {
    /// The next one. Which that is has no order that a history could fall in with.
    fn next(&self) -> usize {
        self.turn.set(self.turn.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        (self.turn.get() >> 16) as usize % self.stores.len()
    }

    fn one(&mut self) -> &mut SqliteStore {
        let next = self.next();
        &mut self.stores[next]
    }
}

impl Store for Turns {
    fn settings(&self) -> Settings {
        self.stores[0].settings
    }

    fn now_ms(&self) -> i64 {
        self.stores[0].now_ms()
    }

    fn trusted_ms(&self) -> i64 {
        self.stores[0].trusted_ms()
    }

    fn keep_time(&mut self) -> Result<(), Error> {
        self.one().keep_time()
    }

    fn trust_now(&mut self) -> Result<(), Error> {
        self.one().trust_now()
    }

    fn hash_key(&self) -> HashKey {
        self.stores[0].hash_key
    }

    fn prefetch(&self) -> Option<Box<dyn Prefetch>> {
        // mostly that of another than the one that is asked next
        self.stores[self.next()].prefetch()
    }

    fn begin<'s>(&'s mut self, delivery: &Delivery) -> Result<Begun<'s>, Error> {
        self.one().begin(delivery)
    }

    fn begin_unsynced<'s>(&'s mut self, delivery: &Delivery) -> Result<Begun<'s>, Error> {
        self.one().begin_unsynced(delivery)
    }

    fn record_refusal(&mut self, refused: &Refused) -> Result<(), Error> {
        self.one().record_refusal(refused)
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.stores.iter_mut().try_for_each(SqliteStore::sync)
    }

    fn known(&mut self, sources: &[&str]) -> Result<Vec<Known>, Error> {
        self.one().known(sources)
    }

    fn silent(&mut self, after: Option<&Silent>, most: usize) -> Result<Vec<(u64, Silent)>, Error> {
        self.one().silent(after, most)
    }

    fn expected(&mut self) -> Result<Vec<String>, Error> {
        self.one().expected()
    }

    fn prune_paced(&mut self, what: &Retention, pace: &mut Pace<'_>) -> Result<Pruned, Error> {
        self.one().prune_paced(what, pace)
    }
}

/// Makes such stores.
struct InTurn(Files);

impl Subject for InTurn {
    type Store = Turns;

    fn make(&self, settings: Settings) -> Turns {
        let mut store = self.0.make(settings);
        store.prune_rows = 2;
        let another = || self.0.reopen_beside(&store);
        Turns { stores: vec![another(), another(), store], turn: Cell::new(self.0.made.get()) }
    }

    fn snapshot(&self, store: &Turns) -> Box<dyn Snapshot> {
        self.0.snapshot(&store.stores[0])
    }

    fn reopen(&self, mut store: Turns) -> Turns {
        let ended = store.next();
        store.stores[ended] = self.0.reopen_beside(&store.stores[ended]);
        store
    }

    fn reopen_at(&self, mut store: Turns, now_ms: i64) -> Turns {
        let clock = Clock::Fixed(now_ms);
        for one in &mut store.stores {
            one.options.clock = clock;
            one.following = one.following.with_clock(clock);
        }
        self.reopen(store)
    }
}

/// So that a merge takes many batches.
const SLOW: Sizes = Sizes { merge_pace: 1, recent_windows: 9, recent_rows: 20, ..TINY };

#[test]
fn processes_in_turn_agree_with_the_model() {
    agree_with_the_model(&InTurn(Files { sizes: TINY, ..Files::new() }), 10);
    agree_with_the_model(&InTurn(Files { sizes: SLOW, ..Files::new() }), 10);
}

/// Stores on one file.
fn on_one_file(files: &Files, count: usize) -> Vec<SqliteStore> {
    let first = files.make(settings());
    let more: Vec<_> = (1..count).map(|_| files.reopen_beside(&first)).collect();
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
