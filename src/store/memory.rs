//! The store as plain maps: the model that the others are tested against. For tests only: nothing
//! outlives the process, and a batch copies the whole state.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use crate::clock::Clock;
use crate::engine::settings::Settings;
use crate::engine::totals::Totals;
use crate::engine::window;
use crate::engine::{Changes, Counts, Fact, Move, Progress, Seen, SetAside};
use crate::event::{Chunk, Event};
use crate::refusal::Other;
use crate::store::{
    Batch, Begun, Committed, Delivery, EachLate, EachWindow, Error, LateRow, Overflowing, Receipt,
    Refused, Snapshot, SourceRow, Span, Store, Summary, WindowRow,
};

/// The writing side.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    clock: Clock,
    state: State,
}

/// All that there is; a snapshot is a copy of it.
#[derive(Clone, Debug)]
struct State {
    settings: Settings,
    watermark_ms: i64,
    last_number: u64,
    last_batch: Option<u64>,
    last_ingest_at_ms: Option<i64>,
    batches: u64,
    counts: Counts,
    windows: BTreeMap<(i64, String), Totals>,
    ledger: HashMap<String, Known>,
    late: BTreeMap<(u64, u64), Kept>,
    held: BTreeMap<(u64, u64), Kept>,
    sources: BTreeMap<String, SourceRow>,
    versions: BTreeMap<String, Counts>,
    tokens: HashMap<[u8; 16], Committed>,
    receipts: BTreeMap<u64, (Delivery, Receipt)>,
    refusals: Vec<Refused>,
}

#[derive(Clone, Debug)]
struct Known {
    batch: u64,
    event_index: u64,
    key: String,
    timestamp_ms: i64,
    value: i64,
}

#[derive(Clone, Debug)]
struct Kept {
    id: String,
    key: String,
    timestamp_ms: i64,
    value: i64,
    watermark_ms: i64,
    source: String,
}

impl MemoryStore {
    /// An empty store.
    pub fn new(settings: Settings, clock: Clock) -> MemoryStore {
        let state = State {
            settings,
            watermark_ms: 0,
            last_number: 0,
            last_batch: None,
            last_ingest_at_ms: None,
            batches: 0,
            counts: Counts::default(),
            windows: BTreeMap::new(),
            ledger: HashMap::new(),
            late: BTreeMap::new(),
            held: BTreeMap::new(),
            sources: BTreeMap::new(),
            versions: BTreeMap::new(),
            tokens: HashMap::new(),
            receipts: BTreeMap::new(),
            refusals: Vec::new(),
        };
        MemoryStore { clock, state }
    }

    /// The state of this moment.
    pub fn snapshot(&self) -> MemorySnapshot {
        MemorySnapshot { state: self.state.clone() }
    }

    /// What was refused, in order.
    pub fn refusals(&self) -> &[Refused] {
        &self.state.refusals
    }

    /// The receipt of a batch, with the delivery that brought it.
    pub fn receipt(&self, batch: u64) -> Option<&(Delivery, Receipt)> {
        self.state.receipts.get(&batch)
    }
}

impl Store for MemoryStore {
    fn settings(&self) -> Settings {
        self.state.settings
    }

    fn begin<'s>(&'s mut self, delivery: &Delivery) -> Result<Begun<'s>, Error> {
        if let Some(committed) = self.state.tokens.get(&delivery.token) {
            return Ok(Begun::Known(committed.clone()));
        }
        let state = self.state.clone();
        Ok(Begun::Open(Box::new(MemoryBatch {
            number: state.last_number + 1,
            state,
            now_ms: self.clock.now_ms(),
            delivery: delivery.clone(),
            named: BTreeSet::new(),
            windows_closed: 0,
            overflowed: false,
            store: self,
        })))
    }

    fn record_refusal(&mut self, refused: &Refused) -> Result<(), Error> {
        self.state.refusals.push(refused.clone());
        Ok(())
    }
}

/// A copy of the state, which takes the place of the original at the commit.
struct MemoryBatch<'s> {
    store: &'s mut MemoryStore,
    number: u64,
    state: State,
    now_ms: i64,
    delivery: Delivery,
    named: BTreeSet<String>,
    windows_closed: u64,
    overflowed: bool,
}

impl MemoryBatch<'_> {
    fn keep(&self, chunk: &Chunk, aside: &SetAside) -> ((u64, u64), Kept) {
        let event = chunk.event(aside.row);
        let kept = Kept {
            id: event.id.to_owned(),
            key: event.key.to_owned(),
            timestamp_ms: event.timestamp_ms,
            value: event.value,
            watermark_ms: aside.watermark_ms,
            source: event.source.unwrap_or(&self.delivery.source).to_owned(),
        };
        ((self.number, chunk.first_index() + aside.row as u64), kept)
    }

    fn add_windows(&mut self, changes: &Changes<'_>) -> Result<(), Error> {
        let mut overflowing = Vec::new();
        for (id, delta) in &changes.windows {
            let place = (id.start_ms, id.key.to_owned());
            let before = self.state.windows.get(&place).copied();
            match delta.added_to(before) {
                Ok(after) => {
                    self.state.windows.insert(place, after);
                }
                Err(_) => overflowing.push(Overflowing {
                    key: id.key.to_owned(),
                    start_ms: id.start_ms,
                    before,
                }),
            }
        }
        self.overflowed = !overflowing.is_empty();
        if self.overflowed { Err(Error::Overflow(overflowing)) } else { Ok(()) }
    }

    fn closed_by(&self, moved: &Move) -> u64 {
        let closes = |start_ms: i64| {
            let window_ms = self.state.settings.window_ms();
            window::is_final(start_ms, window_ms, moved.to_ms)
                && !window::is_final(start_ms, window_ms, moved.from_ms)
        };
        self.state.windows.keys().filter(|(start_ms, _)| closes(*start_ms)).count() as u64
    }
}

impl Batch for MemoryBatch<'_> {
    fn number(&self) -> u64 {
        self.number
    }

    fn facts(&mut self, chunk: &Chunk, facts: &mut Vec<Fact>) -> Result<(), Error> {
        facts.clear();
        facts.extend(chunk.iter().map(|event| match self.state.ledger.get(event.id) {
            None => Fact::New,
            Some(known) => Fact::Seen(Seen {
                batch: known.batch,
                event_index: known.event_index,
                timestamp_ms: known.timestamp_ms,
                same_payload: known.key == event.key
                    && known.timestamp_ms == event.timestamp_ms
                    && known.value == event.value,
            }),
        }));
        Ok(())
    }

    fn progress(&mut self, sources: &[&str]) -> Result<Progress, Error> {
        let all = &self.state.sources;
        let greatest = |name: &&str| all.get(*name).and_then(|source| source.max_timestamp_ms);
        let others = all.values().filter(|source| !sources.contains(&source.source.as_str()));
        Ok(Progress {
            watermark_ms: self.state.watermark_ms,
            sources: sources.iter().map(greatest).collect(),
            others_least_ms: others.filter_map(|source| source.max_timestamp_ms).min(),
            now_ms: self.now_ms,
        })
    }

    fn apply(&mut self, chunk: &Chunk, changes: &Changes<'_>) -> Result<u64, Error> {
        self.add_windows(changes)?;
        for row in &changes.recorded {
            let event = chunk.event(*row);
            let known = Known {
                batch: self.number,
                event_index: chunk.first_index() + *row as u64,
                key: event.key.to_owned(),
                timestamp_ms: event.timestamp_ms,
                value: event.value,
            };
            self.state.ledger.insert(event.id.to_owned(), known);
        }
        let late: Vec<_> = changes.late.iter().map(|aside| self.keep(chunk, aside)).collect();
        self.state.late.extend(late);
        let held: Vec<_> = changes.held.iter().map(|aside| self.keep(chunk, aside)).collect();
        self.state.held.extend(held);
        for change in &changes.sources {
            self.named.insert(change.source.clone());
            let row = self.state.sources.entry(change.source.clone()).or_insert(SourceRow {
                source: change.source.clone(),
                max_timestamp_ms: None,
                last_batch_at_ms: 0,
                last_batch: 0,
                last_file: String::new(),
                counts: Counts::default(),
            });
            row.max_timestamp_ms = row.max_timestamp_ms.max(change.max_timestamp_ms);
            row.last_batch = self.number;
            row.last_file.clone_from(&self.delivery.file);
            row.counts.add(&change.counts);
        }
        for (version, counts) in &changes.versions {
            self.state.versions.entry((*version).to_owned()).or_default().add(counts);
        }
        let closed = changes.moves.iter().map(|moved| self.closed_by(moved)).sum();
        self.windows_closed += closed;
        self.state.watermark_ms = self.state.watermark_ms.max(changes.watermark_ms);
        Ok(closed)
    }

    fn first_seen(&mut self, event: &Event<'_>, seen: &Seen) -> Result<Other, Error> {
        let here = seen.batch == self.number;
        let delivery = if here {
            Some(&self.delivery)
        } else {
            self.state.receipts.get(&seen.batch).map(|(delivery, _)| delivery)
        };
        let known = self
            .state
            .ledger
            .get(event.id)
            .filter(|known| (known.batch, known.event_index) == (seen.batch, seen.event_index));
        Ok(Other {
            file: delivery.map(|delivery| delivery.file.clone()),
            batch: (!here).then_some(seen.batch),
            source: delivery.map(|delivery| delivery.source.clone()),
            event_index: Some(seen.event_index),
            key: known.map(|known| known.key.clone()),
            timestamp_ms: Some(seen.timestamp_ms),
            value: known.map(|known| known.value),
        })
    }

    fn commit(mut self: Box<Self>, receipt: &Receipt) -> Result<Committed, Error> {
        if self.overflowed {
            return Err(Error::Io("could not commit: a window would leave its range".to_owned()));
        }
        let committed_at_ms = self.store.clock.now_ms();
        let counts = match receipt {
            Receipt::Advance { .. } => Counts::default(),
            Receipt::Events { counts, .. } => {
                self.state.batches += 1;
                self.state.counts.add(counts);
                self.state.last_batch = Some(self.number);
                self.state.last_ingest_at_ms = Some(committed_at_ms);
                *counts
            }
        };
        for source in &self.named {
            if let Some(row) = self.state.sources.get_mut(source) {
                row.last_batch_at_ms = committed_at_ms;
            }
        }
        let committed = Committed {
            batch: self.number,
            counts,
            watermark_ms: self.state.watermark_ms,
            windows_closed: self.windows_closed,
        };
        self.state.last_number = self.number;
        self.state.tokens.insert(self.delivery.token, committed.clone());
        self.state.receipts.insert(self.number, (self.delivery.clone(), receipt.clone()));
        self.store.state = self.state;
        Ok(committed)
    }
}

/// The reading side: a copy.
#[derive(Clone, Debug)]
pub struct MemorySnapshot {
    state: State,
}

impl Snapshot for MemorySnapshot {
    fn summary(&self) -> Result<Summary, Error> {
        let state = &self.state;
        let window_ms = state.settings.window_ms();
        let is_open = |start_ms: i64| !window::is_final(start_ms, window_ms, state.watermark_ms);
        let open = state.windows.keys().filter(|(start_ms, _)| is_open(*start_ms)).count();
        Ok(Summary {
            settings: state.settings,
            watermark_ms: state.watermark_ms,
            max_timestamp_ms: state.sources.values().filter_map(|row| row.max_timestamp_ms).max(),
            last_batch: state.last_batch,
            last_ingest_at_ms: state.last_ingest_at_ms,
            batches: state.batches,
            refused_batches: state.refusals.len() as u64,
            counts: state.counts,
            windows: state.windows.len() as u64,
            open_windows: open as u64,
            late_kept: state.late.len() as u64,
            held: state.held.len() as u64,
        })
    }

    fn sources(&self) -> Result<Vec<SourceRow>, Error> {
        Ok(self.state.sources.values().cloned().collect())
    }

    fn versions(&self) -> Result<Vec<(String, Counts)>, Error> {
        Ok(self.state.versions.iter().map(|(name, counts)| (name.clone(), *counts)).collect())
    }

    fn windows(&self, span: Span, each: &mut EachWindow<'_>) -> Result<(), Error> {
        for ((start_ms, key), totals) in &self.state.windows {
            let row = WindowRow { key, start_ms: *start_ms, totals: *totals };
            if holds(span, *start_ms) && each(&row) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn late(&self, span: Span, each: &mut EachLate<'_>) -> Result<(), Error> {
        for ((batch, event_index), kept) in &self.state.late {
            let row = LateRow {
                id: &kept.id,
                key: &kept.key,
                timestamp_ms: kept.timestamp_ms,
                value: kept.value,
                window_start_ms: window::start_ms(
                    kept.timestamp_ms,
                    self.state.settings.window_ms(),
                ),
                watermark_ms: kept.watermark_ms,
                source: &kept.source,
                batch: *batch,
                event_index: *event_index,
            };
            if holds(span, row.window_start_ms) && each(&row) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }
}

fn holds(span: Span, start_ms: i64) -> bool {
    span.from_ms.is_none_or(|from_ms| start_ms >= from_ms)
        && span.to_ms.is_none_or(|to_ms| start_ms < to_ms)
}
