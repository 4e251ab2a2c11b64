//! The store as plain maps: the model that the others are tested against. For tests only: nothing
//! outlives the process, and a batch copies the whole state.

mod batch;
mod prune;
mod read;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::engine::settings::Settings;
use crate::engine::totals::Totals;
use crate::engine::{Counts, Expected, Known};
use crate::model::clock::Clock;
use crate::model::event::HashKey;
use crate::store::trusted::Following;
use crate::store::{
    Begun, Committed, Delivery, Error, EventRef, MoveRow, Pace, PresenceRow, Pruned, Receipt,
    Refused, Retention, RevisionRow, SettledRow, Silent, SourceRow, Store,
};
use batch::MemoryBatch;
pub use read::MemorySnapshot;

/// The writing side.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    clock: Clock,
    following: Following,
    state: MemoryState,
    // what a power cut would leave
    durable: Box<MemoryState>,
}

/// All that there is; a snapshot is a copy of it.
#[derive(Clone, Debug)]
struct MemoryState {
    settings: Settings,
    watermark_ms: i64,
    last_number: u64,
    last_batch: Option<u64>,
    last_ingest_at_ms: Option<i64>,
    trusted_ms: Option<i64>,
    batches: u64,
    refused_batches: u64,
    counts: Counts,
    windows: BTreeMap<(i64, String), Window>,
    pruned_start_ms: Option<i64>,
    moves: Vec<MoveRow>,
    ledger: HashMap<String, Remembered>,
    late: BTreeMap<EventRef, Aside>,
    held: BTreeMap<EventRef, Aside>,
    settled: BTreeMap<EventRef, SettledRow>,
    sources: BTreeMap<String, SourceRow>,
    heard: BTreeMap<String, u64>,
    accounts: BTreeMap<(String, String), Account>,
    pruned_accounts: BTreeMap<String, Counts>,
    presence: Vec<(String, PresenceRow)>,
    versions: BTreeMap<String, Counts>,
    tokens: HashMap<[u8; 16], Committed>,
    receipts: BTreeMap<u64, Kept>,
    refusals: Vec<Refused>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    counts: Counts,
    last_seen_ms: i64,
}

#[derive(Clone, Debug)]
struct Window {
    totals: Totals,
    revision: u64,
    revised_in: Option<u64>,
    before: Vec<RevisionRow>,
}

#[derive(Clone, Debug)]
struct Remembered {
    event: EventRef,
    key: String,
    timestamp_ms: i64,
    value: i64,
}

#[derive(Clone, Debug)]
struct Aside {
    id: String,
    key: String,
    timestamp_ms: i64,
    value: i64,
    watermark_ms: i64,
    source: String,
    version: Option<String>,
    applied_in: Option<u64>,
}

/// A receipt, with the delivery that brought it and what came of it.
#[derive(Clone, Debug)]
struct Kept {
    delivery: Delivery,
    receipt: Receipt,
    committed: Committed,
    committed_at_ms: i64,
}

impl MemoryStore {
    /// An empty store.
    pub fn new(settings: Settings, clock: Clock) -> MemoryStore {
        let state = MemoryState {
            settings,
            watermark_ms: 0,
            last_number: 0,
            last_batch: None,
            last_ingest_at_ms: None,
            trusted_ms: Some(clock.now_ms()),
            batches: 0,
            refused_batches: 0,
            counts: Counts::default(),
            windows: BTreeMap::new(),
            pruned_start_ms: None,
            moves: Vec::new(),
            ledger: HashMap::new(),
            late: BTreeMap::new(),
            held: BTreeMap::new(),
            settled: BTreeMap::new(),
            sources: BTreeMap::new(),
            heard: BTreeMap::new(),
            accounts: BTreeMap::new(),
            pruned_accounts: BTreeMap::new(),
            presence: Vec::new(),
            versions: BTreeMap::new(),
            tokens: HashMap::new(),
            receipts: BTreeMap::new(),
            refusals: Vec::new(),
        };
        MemoryStore {
            clock,
            following: Following::new(clock),
            durable: Box::new(state.clone()),
            state,
        }
    }

    /// Lets it live at another moment.
    pub fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
        self.following = self.following.with_clock(clock);
    }

    /// Loses what is not durable, as a power cut does.
    pub fn lose_unsynced(&mut self) {
        self.state = (*self.durable).clone();
    }

    /// What is durable.
    pub fn durable(&self) -> MemorySnapshot {
        MemorySnapshot::of((*self.durable).clone())
    }

    fn open<'s>(&'s mut self, delivery: &Delivery, synced: bool) -> Begun<'s> {
        if let Some(committed) = self.state.tokens.get(&delivery.token) {
            return Begun::Known(committed.clone());
        }
        let state = self.state.clone();
        Begun::Open(Box::new(MemoryBatch {
            number: state.last_number + 1,
            state,
            now_ms: self.now_ms(),
            delivery: delivery.clone(),
            named: BTreeSet::new(),
            windows_closed: 0,
            closings: Vec::new(),
            spoilt: false,
            synced,
            store: self,
        }))
    }

    /// The state of this moment.
    pub fn snapshot(&self) -> MemorySnapshot {
        MemorySnapshot::of(self.state.clone())
    }

    /// What was refused, in order.
    pub fn refusals(&self) -> &[Refused] {
        &self.state.refusals
    }

    /// The receipt of a batch, with the delivery that brought it.
    pub fn receipt(&self, batch: u64) -> Option<(&Delivery, &Receipt)> {
        self.state.receipts.get(&batch).map(|kept| (&kept.delivery, &kept.receipt))
    }
}

impl Store for MemoryStore {
    fn settings(&self) -> Settings {
        self.state.settings
    }

    fn hash_key(&self) -> HashKey {
        HashKey::default()
    }

    fn now_ms(&self) -> i64 {
        self.following.now_ms(self.state.trusted_ms)
    }

    fn trusted_ms(&self) -> i64 {
        self.following.trusted_ms(self.state.trusted_ms)
    }

    fn keep_time(&mut self) -> Result<(), Error> {
        self.state.trusted_ms = Some(self.trusted_ms());
        self.following = Following::new(self.clock);
        self.sync()
    }

    fn trust_now(&mut self) -> Result<(), Error> {
        self.state.trusted_ms = Some(self.clock.now_ms());
        self.following = Following::new(self.clock);
        self.sync()
    }

    fn begin<'s>(&'s mut self, delivery: &Delivery) -> Result<Begun<'s>, Error> {
        Ok(self.open(delivery, true))
    }

    fn begin_unsynced<'s>(&'s mut self, delivery: &Delivery) -> Result<Begun<'s>, Error> {
        Ok(self.open(delivery, false))
    }

    fn record_refusal(&mut self, refused: &Refused) -> Result<(), Error> {
        self.state.refusals.push(refused.clone());
        self.state.refused_batches += 1;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Error> {
        *self.durable = self.state.clone();
        Ok(())
    }

    fn known(&mut self, sources: &[&str]) -> Result<Vec<Known>, Error> {
        Ok(sources.iter().map(|source| batch::known(&self.state.sources, source)).collect())
    }

    fn silent(&mut self, after: Option<&Silent>, most: usize) -> Result<Vec<(u64, Silent)>, Error> {
        let state = &self.state;
        let waited_for =
            state.sources.values().filter(|row| !row.idle && row.expected != Expected::Now);
        let mut all: Vec<(u64, &str)> = waited_for
            .map(|row| (state.heard.get(&row.source).copied().unwrap_or(0), row.source.as_str()))
            .collect();
        all.sort_unstable();
        let is_behind = |(heard_in, source): &(u64, &str)| {
            after.is_none_or(|after| (*heard_in, *source) > (after.heard_in, &after.source))
        };
        let silent = |(heard_in, source): (u64, &str)| {
            (state.last_number, Silent { source: source.to_owned(), heard_in })
        };
        Ok(all.into_iter().filter(is_behind).take(most).map(silent).collect())
    }

    fn expected(&mut self) -> Result<Vec<String>, Error> {
        let is_it = |row: &&SourceRow| row.expected == Expected::Now && !row.idle;
        Ok(self.state.sources.values().filter(is_it).map(|row| row.source.clone()).collect())
    }

    fn prune_paced(&mut self, what: &Retention, _: &mut Pace<'_>) -> Result<Pruned, Error> {
        let now_ms = self.trusted_ms();
        Ok(prune::prune(&mut self.state, what, now_ms))
    }
}
