//! Events by hand, a driver that ingests them as the real one does, and the whole of a store.

use std::ops::ControlFlow;

use crate::engine::settings::Settings;
use crate::engine::totals::Totals;
use crate::engine::window::WindowId;
use crate::engine::{Counts, Judge, Stop};
use crate::model::event::{Chunk, DEFAULT_SOURCE, Event, Place};
use crate::model::refusal::{Code, Other};
use crate::store::{
    Begun, Committed, Delivery, Error, EventRef, MoveRow, PresenceRow, Receipt, ReceiptRow,
    Refused, RevisionRow, Snapshot, SourceRow, Span, Store, Summary,
};

/// What makes stores of one kind.
pub(crate) trait Subject {
    type Store: Store;

    /// A fresh store whose clock stands still.
    fn make(&self, settings: Settings) -> Self::Store;
    /// Its state at this moment.
    fn snapshot(&self, store: &Self::Store) -> Box<dyn Snapshot>;
    /// The same store after the process has ended and begun again.
    fn reopen(&self, store: Self::Store) -> Self::Store;
    /// The same store whose clock stands still at another moment.
    fn reopen_at(&self, store: Self::Store, now_ms: i64) -> Self::Store;

    fn dump(&self, store: &Self::Store) -> Dump {
        Dump::of(&*self.snapshot(store))
    }
}

/// What the clock of every store says.
pub(crate) const NOW_MS: i64 = 1_000_000;

/// Windows of a second, half a second of lateness, held from 100 s ahead.
pub(crate) fn settings() -> Settings {
    Settings::new(1000, 500).unwrap().with_max_future_ms(Some(100_000)).unwrap()
}

/// An event that owns its names.
#[derive(Clone, Debug)]
pub(crate) struct Ev {
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) timestamp_ms: i64,
    pub(crate) value: i64,
    pub(crate) source: Option<String>,
    pub(crate) version: Option<String>,
}

pub(crate) fn ev(id: &str, key: &str, timestamp_ms: i64, value: i64) -> Ev {
    let (id, key) = (id.to_owned(), key.to_owned());
    Ev { id, key, timestamp_ms, value, source: None, version: None }
}

impl Ev {
    pub(crate) fn from(self, source: &str) -> Ev {
        Ev { source: Some(source.to_owned()), ..self }
    }

    pub(crate) fn by(self, version: &str) -> Ev {
        Ev { version: Some(version.to_owned()), ..self }
    }

    pub(super) fn event(&self) -> Event<'_> {
        Event {
            id: &self.id,
            key: &self.key,
            timestamp_ms: self.timestamp_ms,
            value: self.value,
            source: self.source.as_deref(),
            producer_version: self.version.as_deref(),
            place: Place::default(),
        }
    }
}

pub(crate) fn chunk(first_index: u64, events: &[Ev]) -> Chunk {
    let mut chunk = Chunk::default();
    chunk.restart(first_index);
    events.iter().for_each(|event| chunk.push(event.event()));
    chunk
}

/// A delivery that is told from others by its number.
pub(crate) fn delivery(number: u64) -> Delivery {
    let mut token = [7; 16];
    token[..8].copy_from_slice(&number.to_be_bytes());
    Delivery { token, file: format!("f{number}.json"), source: DEFAULT_SOURCE.to_owned() }
}

/// Why a batch did not get in.
#[derive(Debug)]
pub(crate) enum Stopped {
    Store(Error),
    Conflict { event_index: u64, other: Box<Other> },
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped::Store(error)
    }
}

/// Ingests a batch that is cut into these chunks.
pub(crate) fn ingest<S: Store + ?Sized>(
    store: &mut S,
    delivery: &Delivery,
    chunks: &[&[Ev]],
) -> Result<Committed, Stopped> {
    let (settings, chunks) = (store.settings(), looked_at(store, chunks));
    take_in(store.begin(delivery)?, settings, delivery, &chunks)
}

/// The same as one of a group, as one chunk.
pub(crate) fn ingest_unsynced<S: Store + ?Sized>(
    store: &mut S,
    delivery: &Delivery,
    events: &[Ev],
) -> Result<Committed, Stopped> {
    let (settings, chunks) = (store.settings(), looked_at(store, &[events]));
    take_in(store.begin_unsynced(delivery)?, settings, delivery, &chunks)
}

/// The chunks, looked at ahead of the writer.
fn looked_at<S: Store + ?Sized>(store: &S, chunks: &[&[Ev]]) -> Vec<Chunk> {
    let mut first_index = 0;
    let one = |events: &&[Ev]| {
        let mut chunk = Chunk::keyed(store.hash_key());
        chunk.restart(first_index);
        events.iter().for_each(|event| chunk.push(event.event()));
        first_index += events.len() as u64;
        chunk
    };
    let mut chunks: Vec<Chunk> = chunks.iter().map(one).collect();
    if let Some(mut prefetch) = store.prefetch() {
        prefetch.look(&mut chunks.iter_mut().collect::<Vec<_>>());
    }
    chunks
}

fn take_in(
    begun: Begun<'_>,
    settings: Settings,
    delivery: &Delivery,
    chunks: &[Chunk],
) -> Result<Committed, Stopped> {
    let mut batch = match begun {
        Begun::Known(committed) => return Ok(committed),
        Begun::Open(batch) => batch,
    };
    let mut judge = Judge::new(settings, batch.number(), &delivery.source);
    let (mut facts, mut counts) = (Vec::new(), Counts::default());
    for chunk in chunks {
        batch.facts(chunk, &mut facts)?;
        let progress = batch.progress(&judge.sources(chunk))?;
        judge.learn(&progress);
        let judged = judge.judge(chunk, &facts);
        batch.apply(chunk, &judged.changes)?;
        if let Some((row, Stop::Conflict(seen))) = judged.stopped {
            let other = Box::new(batch.first_seen(&chunk.event(row), &seen)?);
            return Err(Stopped::Conflict { event_index: chunk.first_index() + row as u64, other });
        }
        counts.add(&judged.changes.counts);
    }
    Ok(batch.commit(&receipt(counts))?)
}

pub(crate) fn receipt(counts: Counts) -> Receipt {
    Receipt::Events { sha256: "00".repeat(32), bytes: 12, counts }
}

/// Ingests a batch that must get in, as one chunk.
pub(crate) fn deliver<S: Store + ?Sized>(store: &mut S, number: u64, events: &[Ev]) -> Committed {
    ingest(store, &delivery(number), &[events]).unwrap()
}

/// All that a snapshot shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dump {
    pub(crate) summary: Summary,
    pub(crate) sources: Vec<SourceRow>,
    pub(crate) accounts: Vec<Account>,
    pub(crate) presence: Vec<Vec<PresenceRow>>,
    pub(crate) versions: Vec<(String, Counts)>,
    pub(crate) windows: Vec<(i64, String, Totals)>,
    pub(crate) revisions: Vec<Revisions>,
    pub(crate) moves: Vec<MoveRow>,
    pub(crate) late: Vec<Late>,
    pub(crate) held: Vec<Held>,
    pub(crate) receipts: Vec<ReceiptRow>,
}

/// A source, a key, their outcomes, and how far event time had come with the last.
pub(crate) type Account = (String, Option<String>, Counts, Option<i64>);

/// A window that was corrected: its start, its key, its revision, and what it held before.
pub(crate) type Revisions = (i64, String, u64, Vec<RevisionRow>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) timestamp_ms: i64,
    pub(crate) value: i64,
    pub(crate) source: String,
    pub(crate) event: EventRef,
    pub(crate) file: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) timestamp_ms: i64,
    pub(crate) value: i64,
    pub(crate) window_start_ms: i64,
    pub(crate) watermark_ms: i64,
    pub(crate) source: String,
    pub(crate) batch: u64,
    pub(crate) event_index: u64,
    pub(crate) applied_in: Option<u64>,
}

impl Dump {
    pub(crate) fn of(snapshot: &dyn Snapshot) -> Dump {
        let sources = snapshot.sources().unwrap();
        let presence = sources.iter().map(|row| snapshot.presence(&row.source).unwrap());
        Dump {
            summary: snapshot.summary().unwrap(),
            accounts: accounts(snapshot, usize::MAX),
            presence: presence.collect(),
            sources,
            versions: versions(snapshot),
            windows: windows(snapshot, Span::default(), usize::MAX),
            revisions: revisions(snapshot),
            moves: moves(snapshot, 0, usize::MAX),
            late: late(snapshot, Span::default(), usize::MAX),
            held: held(snapshot, usize::MAX),
            receipts: (0..60).filter_map(|batch| snapshot.receipt(batch).unwrap()).collect(),
        }
    }
}

/// The receipts from that batch on, at most so many.
pub(crate) fn receipts(snapshot: &dyn Snapshot, from: u64, most: usize) -> Vec<ReceiptRow> {
    let mut rows = Vec::new();
    snapshot
        .receipts(from, &mut |row| {
            rows.push(row.clone());
            go_on(rows.len() < most)
        })
        .unwrap();
    rows
}

/// The accounts, at most so many.
pub(crate) fn accounts(snapshot: &dyn Snapshot, most: usize) -> Vec<Account> {
    let mut found = Vec::new();
    snapshot
        .accounts(&mut |row| {
            let key = row.key.map(str::to_owned);
            found.push((row.source.to_owned(), key, row.counts, row.last_seen_ms));
            go_on(found.len() < most)
        })
        .unwrap();
    found
}

/// The windows in the span, at most so many.
pub(crate) fn windows(
    snapshot: &dyn Snapshot,
    span: Span,
    most: usize,
) -> Vec<(i64, String, Totals)> {
    let mut found = Vec::new();
    snapshot
        .windows(span, &mut |row| {
            found.push((row.start_ms, row.key.to_owned(), row.totals));
            go_on(found.len() < most)
        })
        .unwrap();
    found
}

fn revisions(snapshot: &dyn Snapshot) -> Vec<Revisions> {
    let mut found = Vec::new();
    snapshot
        .windows(Span::default(), &mut |row| {
            if row.revision > 0 {
                found.push((row.start_ms, row.key.to_owned(), row.revision, Vec::new()));
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    for (start_ms, key, _, before) in &mut found {
        *before = snapshot.revisions(WindowId { start_ms: *start_ms, key }).unwrap();
    }
    found
}

/// The moves that reached `from_ms` or more, at most so many.
pub(crate) fn moves(snapshot: &dyn Snapshot, from_ms: i64, most: usize) -> Vec<MoveRow> {
    let mut found = Vec::new();
    snapshot
        .moves(from_ms, &mut |row| {
            found.push(*row);
            go_on(found.len() < most)
        })
        .unwrap();
    found
}

/// The held events, at most so many.
pub(crate) fn held(snapshot: &dyn Snapshot, most: usize) -> Vec<Held> {
    let mut found = Vec::new();
    snapshot
        .held(&mut |row| {
            found.push(Held {
                id: row.id.to_owned(),
                key: row.key.to_owned(),
                timestamp_ms: row.timestamp_ms,
                value: row.value,
                source: row.source.to_owned(),
                event: row.event,
                file: row.file.to_owned(),
            });
            go_on(found.len() < most)
        })
        .unwrap();
    found
}

/// The late events in the span, at most so many.
pub(crate) fn late(snapshot: &dyn Snapshot, span: Span, most: usize) -> Vec<Late> {
    let mut found = Vec::new();
    snapshot
        .late(span, &mut |row| {
            found.push(Late {
                id: row.id.to_owned(),
                key: row.key.to_owned(),
                timestamp_ms: row.timestamp_ms,
                value: row.value,
                window_start_ms: row.window_start_ms,
                watermark_ms: row.watermark_ms,
                source: row.source.to_owned(),
                batch: row.batch,
                event_index: row.event_index,
                applied_in: row.applied_in,
            });
            go_on(found.len() < most)
        })
        .unwrap();
    found
}

fn go_on(more: bool) -> ControlFlow<()> {
    if more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// A refused batch, to be kept.
pub(crate) fn refused() -> Refused {
    Refused {
        file: "bad.json".to_owned(),
        source: "default".to_owned(),
        sha256: None,
        bytes: Some(3),
        refused_at_ms: NOW_MS,
        code: Code::BadJson,
        message: "no".to_owned(),
    }
}

fn versions(snapshot: &dyn Snapshot) -> Vec<(String, Counts)> {
    let mut all = Vec::new();
    let keep = &mut |name: &str, counts| {
        all.push((name.to_owned(), counts));
        ControlFlow::Continue(())
    };
    snapshot.versions(keep).unwrap();
    all
}
