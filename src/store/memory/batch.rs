//! One batch: a copy of the state, which takes the place of the original at the commit.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::window;
use crate::engine::{
    Changes, Counts, Expected, Fact, Known, Move, Others, Presence, Progress, Seen, SetAside,
};
use crate::model::event::{Chunk, Event, Place};
use crate::model::refusal::Other;
use crate::store::{
    Act, Batch, Committed, Delivery, Error, EventRef, KEPT_AT_ONCE, Kept as Kind, MoveRow,
    Overflowing, PresenceRow, Receipt, RevisionRow, SettledRow, Settlement, SourceRow,
};

use super::{Aside, Kept, MemoryState, MemoryStore, Remembered, Window};

pub(super) struct MemoryBatch<'s> {
    pub(super) store: &'s mut MemoryStore,
    pub(super) number: u64,
    pub(super) state: MemoryState,
    pub(super) now_ms: i64,
    pub(super) delivery: Delivery,
    pub(super) named: BTreeSet<String>,
    pub(super) windows_closed: u64,
    pub(super) closings: Vec<u64>,
    pub(super) spoilt: bool,
    pub(super) synced: bool,
}

impl MemoryBatch<'_> {
    fn keep(&self, chunk: &Chunk, aside: &SetAside) -> (EventRef, Aside) {
        let event = chunk.event(aside.row);
        let kept = Aside {
            id: event.id.to_owned(),
            key: event.key.to_owned(),
            timestamp_ms: event.timestamp_ms,
            value: event.value,
            watermark_ms: aside.watermark_ms,
            source: event.source.unwrap_or(&self.delivery.source).to_owned(),
            version: event.producer_version.map(str::to_owned),
            applied_in: None,
        };
        (self.place(chunk, aside.row), kept)
    }

    fn place(&self, chunk: &Chunk, row: usize) -> EventRef {
        EventRef { batch: self.number, event_index: chunk.first_index() + row as u64 }
    }

    /// Adds, counts what closes, and corrects, in this order.
    fn write_windows(&mut self, changes: &Changes<'_>) -> Result<u64, Error> {
        let unchanged = self.state.windows.clone();
        let mut overflowing = BTreeSet::new();
        for (id, delta) in &changes.windows {
            let place = (id.start_ms, id.key.to_owned());
            let window = self.state.windows.get(&place);
            match delta.added_to(window.map(|window| window.totals)) {
                Ok(totals) => {
                    let new = || Window { totals, revision: 0, revised_in: None, before: vec![] };
                    self.state.windows.entry(place).or_insert_with(new).totals = totals;
                }
                Err(_) => {
                    overflowing.insert(place);
                }
            }
        }
        self.closings = changes.moves.iter().map(|moved| self.close(moved)).collect();
        for (id, delta) in &changes.corrections {
            let place = (id.start_ms, id.key.to_owned());
            let window = self.state.windows.get(&place).cloned();
            match delta.added_to(window.as_ref().map(|window| window.totals)) {
                Ok(totals) => {
                    let (revision, before) = self.revise(window);
                    let revised_in = Some(self.number);
                    let window = Window { totals, revision, revised_in, before };
                    self.state.windows.insert(place, window);
                }
                Err(_) => {
                    overflowing.insert(place);
                }
            }
        }
        if overflowing.is_empty() {
            return Ok(self.closings.iter().sum());
        }
        self.spoilt = true;
        let as_it_was = |place: (i64, String)| Overflowing {
            before: unchanged.get(&place).map(|window| window.totals),
            start_ms: place.0,
            key: place.1,
        };
        Err(Error::Overflow(overflowing.into_iter().map(as_it_was).collect()))
    }

    /// The number of the revision that a correction makes, and those before it.
    fn revise(&self, window: Option<Window>) -> (u64, Vec<RevisionRow>) {
        let Some(mut window) = window else { return (1, vec![]) };
        if window.revised_in == Some(self.number) {
            return (window.revision, window.before);
        }
        let Window { totals, revision, .. } = window;
        window.before.push(RevisionRow { revision, totals, corrected_in: self.number });
        (revision + 1, window.before)
    }

    fn close(&mut self, moved: &Move) -> u64 {
        let Move { from_ms, to_ms, event_index } = *moved;
        let window_ms = self.state.settings.window_ms();
        let closes = |start_ms: i64| {
            window::is_final(start_ms, window_ms, to_ms)
                && !window::is_final(start_ms, window_ms, from_ms)
        };
        let windows = self.state.windows.keys();
        let windows_closed = windows.filter(|(start_ms, _)| closes(*start_ms)).count() as u64;
        let batch = self.number;
        if windows_closed > 0 {
            let row = MoveRow { from_ms, to_ms, batch, event_index, windows_closed };
            self.state.moves.push(row);
        }
        windows_closed
    }

    fn source(&mut self, source: &str) -> &mut SourceRow {
        self.state.sources.entry(source.to_owned()).or_insert_with(|| SourceRow {
            source: source.to_owned(),
            max_timestamp_ms: None,
            declared: false,
            idle: false,
            retired: false,
            expected: Expected::Never,
            presence_since_ms: None,
            last_batch_at_ms: None,
            last_batch: None,
            last_file: None,
            counts: Counts::default(),
        })
    }

    fn change_presence(&mut self, changes: &Changes<'_>) {
        let (batch, at_ms) = (self.number, self.now_ms);
        for change in &changes.presence {
            let row = self.source(&change.source);
            row.presence_since_ms = Some(at_ms);
            match change.presence {
                Presence::Declared => row.declared = true,
                Presence::Idle => row.idle = true,
                Presence::Active => (row.idle, row.retired) = (false, false),
                Presence::Retired => (row.idle, row.retired) = (true, true),
                Presence::Expected => row.expected = Expected::Now,
                Presence::NotExpected => row.expected = Expected::Over,
            }
            if matches!(change.presence, Presence::Declared | Presence::Active) {
                self.state.heard.insert(change.source.clone(), batch);
            }
            let presence = change.presence.name().to_owned();
            let row = PresenceRow { presence, batch, event_index: change.event_index, at_ms };
            self.state.presence.push((change.source.clone(), row));
        }
    }

    /// Whether a late event can become a correction.
    fn can_be_applied(&self, aside: &Aside) -> bool {
        let state = &self.state;
        let window_ms = state.settings.window_ms();
        let start_ms = window::start_ms(aside.timestamp_ms, window_ms);
        let pruned = state.pruned_start_ms.is_some_and(|pruned_ms| start_ms <= pruned_ms);
        aside.applied_in.is_none()
            && window::is_final(start_ms, window_ms, state.watermark_ms)
            && (!pruned || state.windows.contains_key(&(start_ms, aside.key.clone())))
    }

    /// Settles one event; false when there is none to settle.
    fn settle_one(&mut self, event: EventRef, settlement: Settlement) -> bool {
        if settlement == Settlement::Applied {
            let late = self.state.late.get_mut(&event).filter(|late| late.applied_in.is_none());
            let Some(late) = late else { return false };
            late.applied_in = Some(self.number);
            return true;
        }
        let Some(held) = self.state.held.remove(&event) else { return false };
        if settlement == Settlement::Released {
            self.state.counts.future -= 1;
            self.source(&held.source).counts.future -= 1;
            let version = held.version.and_then(|version| self.state.versions.get_mut(&version));
            version.into_iter().for_each(|counts| counts.future -= 1);
            let account = (held.source.clone(), held.key.clone());
            self.state.accounts.entry(account).or_default().counts.future -= 1;
        }
        let row = SettledRow {
            settlement: settlement.name().to_owned(),
            settled_in: self.number,
            at_ms: self.now_ms,
            id: held.id,
            key: held.key,
            timestamp_ms: held.timestamp_ms,
            value: held.value,
            source: held.source,
        };
        self.state.settled.insert(event, row);
        true
    }
}

/// What is known of a source.
pub(super) fn known(all: &BTreeMap<String, SourceRow>, source: &str) -> Known {
    all.get(source).map_or_else(Known::default, |row| Known {
        max_timestamp_ms: row.max_timestamp_ms,
        is_known: is_known(row),
        declared: row.declared,
        idle: row.idle,
        retired: row.retired,
        expected: row.expected,
    })
}

fn is_known(row: &SourceRow) -> bool {
    row.declared || row.last_batch.is_some()
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
                batch: known.event.batch,
                event_index: known.event.event_index,
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
        let known = |name: &&str| known(all, name);
        let is_other = |row: &&SourceRow| !sources.contains(&row.source.as_str());
        let others: Vec<_> = all.values().filter(is_other).collect();
        let active = || others.iter().filter(|row| !row.idle);
        Ok(Progress {
            watermark_ms: self.state.watermark_ms,
            sources: sources.iter().map(known).collect(),
            others: Others {
                least_active_ms: active().filter_map(|row| row.max_timestamp_ms).min(),
                greatest_ms: others.iter().filter_map(|row| row.max_timestamp_ms).max(),
                any_awaited: active().any(|row| {
                    let is_named = row.declared || row.expected == Expected::Now;
                    is_named && row.max_timestamp_ms.is_none()
                }),
            },
            source_count: all.values().filter(|row| is_known(row)).count() as u64,
            now_ms: self.now_ms,
        })
    }

    fn apply(&mut self, chunk: &Chunk, changes: &Changes<'_>) -> Result<u64, Error> {
        let closed = self.write_windows(changes)?;
        for row in &changes.recorded {
            let event = chunk.event(*row);
            let known = Remembered {
                event: self.place(chunk, *row),
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
            let (number, file) = (self.number, self.delivery.file.clone());
            let row = self.source(&change.source);
            row.max_timestamp_ms = row.max_timestamp_ms.max(change.max_timestamp_ms);
            if row.expected == Expected::Now && row.max_timestamp_ms.is_some() {
                row.expected = Expected::Over;
            }
            row.counts.add(&change.counts);
            if changes.is_delivery {
                (row.last_batch, row.last_file) = (Some(number), Some(file));
                self.state.heard.insert(change.source.clone(), number);
                self.named.insert(change.source.clone());
            }
        }
        for change in &changes.accounts {
            let source = changes.sources[change.source].source.clone();
            let account = self.state.accounts.entry((source, change.key.to_owned())).or_default();
            account.counts.add(&change.counts);
            account.last_seen_ms = account.last_seen_ms.max(change.last_seen_ms);
        }
        self.change_presence(changes);
        for (version, counts) in &changes.versions {
            self.state.versions.entry((*version).to_owned()).or_default().add(counts);
        }
        self.windows_closed += closed;
        self.state.watermark_ms = self.state.watermark_ms.max(changes.watermark_ms);
        Ok(closed)
    }

    fn closings(&self) -> &[u64] {
        &self.closings
    }

    fn kept(
        &mut self,
        kind: Kind,
        after: Option<EventRef>,
        chunk: &mut Chunk,
        refs: &mut Vec<EventRef>,
    ) -> Result<(), Error> {
        chunk.restart(after.map_or(0, |_| chunk.first_index() + chunk.len() as u64));
        refs.clear();
        let all = match kind {
            Kind::Late => &self.state.late,
            Kind::Held => &self.state.held,
        };
        let window_ms = self.state.settings.window_ms();
        let mut all: Vec<_> = all.iter().collect();
        if kind == Kind::Late {
            let start_ms = |aside: &Aside| window::start_ms(aside.timestamp_ms, window_ms);
            all.sort_by_key(|(event, aside)| (start_ms(aside), &aside.key, **event));
        }
        let behind = after.and_then(|after| all.iter().position(|(event, _)| **event == after));
        let is_next = |event: &EventRef| match kind {
            Kind::Late => true,
            Kind::Held => after.is_none_or(|after| *event > after),
        };
        let behind = behind.filter(|_| kind == Kind::Late).map_or(0, |behind| behind + 1);
        let next = all[behind..]
            .iter()
            .filter(|(event, _)| is_next(event))
            .filter(|(_, aside)| kind == Kind::Held || self.can_be_applied(aside))
            .take(KEPT_AT_ONCE);
        for (event, aside) in next {
            refs.push(**event);
            chunk.push(Event {
                id: &aside.id,
                key: &aside.key,
                timestamp_ms: aside.timestamp_ms,
                value: aside.value,
                source: Some(&aside.source),
                producer_version: aside.version.as_deref().filter(|_| kind == Kind::Held),
                place: Place::default(),
            });
        }
        Ok(())
    }

    fn settle(&mut self, refs: &[EventRef], settlement: Settlement) -> Result<(), Error> {
        for event in refs {
            if !self.settle_one(*event, settlement) {
                self.spoilt = true;
                let settlement = settlement.name();
                return Err(Error::Io(format!("{event} is not kept, or was {settlement} before")));
            }
        }
        Ok(())
    }

    fn first_seen(&mut self, event: &Event<'_>, seen: &Seen) -> Result<Other, Error> {
        let here = seen.batch == self.number;
        let delivery = if here {
            Some(&self.delivery)
        } else {
            self.state.receipts.get(&seen.batch).map(|kept| &kept.delivery)
        };
        let place = EventRef { batch: seen.batch, event_index: seen.event_index };
        let known = self.state.ledger.get(event.id).filter(|known| known.event == place);
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
        if self.spoilt {
            return Err(Error::Io("could not commit: a part of the batch was refused".to_owned()));
        }
        let following = self.store.following;
        let committed_at_ms = following.now_ms(self.state.trusted_ms);
        let (trusted_ms, followed) = following.step(self.state.trusted_ms);
        self.state.trusted_ms = Some(trusted_ms);
        self.store.following = followed.unwrap_or(following);
        let counts = match receipt {
            Receipt::Act { act, counts, .. } => {
                if *act == Act::Release {
                    self.state.counts.add(counts);
                }
                *counts
            }
            Receipt::Events { counts, .. } => {
                self.state.batches += 1;
                self.state.counts.add(counts);
                self.state.last_batch = Some(self.number);
                self.state.last_ingest_at_ms = Some(committed_at_ms);
                for source in &self.named {
                    if let Some(row) = self.state.sources.get_mut(source) {
                        row.last_batch_at_ms = Some(committed_at_ms);
                    }
                }
                *counts
            }
        };
        let committed = Committed {
            batch: self.number,
            counts,
            watermark_ms: self.state.watermark_ms,
            windows_closed: self.windows_closed,
        };
        self.state.last_number = self.number;
        self.state.tokens.insert(self.delivery.token, committed.clone());
        let kept = Kept {
            delivery: self.delivery,
            receipt: receipt.clone(),
            committed: committed.clone(),
            committed_at_ms,
        };
        self.state.receipts.insert(self.number, kept);
        self.store.state = self.state;
        if self.synced {
            *self.store.durable = self.store.state.clone();
        }
        Ok(committed)
    }
}
