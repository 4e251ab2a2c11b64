//! What the judged rows of a chunk come to, added up once all of them are judged: in memory that is
//! walked in order, without looking up a name for every row.

use std::collections::HashMap;

use super::accounts;
use super::dedup::Taken;
use super::key_order;
use super::settings::Settings;
use super::watermark::Watermark;
use super::window::{self, WindowId};
use super::{Changes, Counts, Delta, Move, Outcome, Presence, PresenceChange, SetAside};
use crate::model::event::Chunk;

/// What an event has a part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TallyPart {
    /// Nothing: it is as if it had not come.
    None,
    /// The counts of its source and key.
    Count,
    /// These, and its window.
    Window,
    /// These, and another revision of its window.
    Correction,
}

/// What became of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judgement {
    pub(super) outcome: Outcome,
    pub(super) part: TallyPart,
    /// The watermark when it was judged.
    pub(super) watermark_ms: i64,
}

/// What a chunk has come to so far.
pub(super) struct Tally<'c> {
    pub(super) chunk: &'c Chunk,
    pub(super) taken: Taken,
    judgements: Vec<Judgement>,
    pub(super) recorded: Vec<usize>,
    presence: Vec<PresenceChange>,
    pub(super) late: Vec<SetAside>,
    pub(super) held: Vec<SetAside>,
    pub(super) moves: Vec<Move>,
}

impl<'c> Tally<'c> {
    pub(super) fn new(batch: u64, chunk: &'c Chunk) -> Tally<'c> {
        Tally {
            chunk,
            taken: Taken::new(batch, chunk),
            judgements: Vec::with_capacity(chunk.len()),
            recorded: Vec::with_capacity(chunk.len()),
            presence: Vec::new(),
            late: Vec::new(),
            held: Vec::new(),
            moves: Vec::new(),
        }
    }

    /// What became of the next row.
    pub(super) fn count(&mut self, outcome: Outcome, part: TallyPart, watermark_ms: i64) {
        self.judgements.push(Judgement { outcome, part, watermark_ms });
    }

    /// The source is back with that row.
    pub(super) fn back(&mut self, source: &str, row: usize) {
        let (source, presence) = (source.to_owned(), Presence::Active);
        let event_index = Some(self.chunk.first_index() + row as u64);
        self.presence.push(PresenceChange { source, presence, event_index });
    }

    /// The outcomes of the rows that were judged, and what they do.
    pub(super) fn end(
        self,
        places: &[usize],
        watermark: &Watermark,
        window_ms: i64,
    ) -> (Vec<Outcome>, Changes<'c>) {
        let (chunk, judgements) = (self.chunk, &self.judgements);
        let by_key = key_order::by_key(chunk, judgements.len());
        let rows_of =
            |part| by_key.iter().copied().filter(move |row| judgements[*row].part == part);
        let (sources, accounts) = accounts::add_up(chunk, &by_key, judgements, places, watermark);
        let mut counts = Counts::default();
        sources.iter().for_each(|source| counts.add(&source.counts));
        let changes = Changes {
            sources,
            accounts,
            windows: add_up(chunk, rows_of(TallyPart::Window), window_ms),
            corrections: add_up(chunk, rows_of(TallyPart::Correction), window_ms),
            versions: versions(chunk, judgements),
            recorded: self.recorded,
            presence: self.presence,
            late: self.late,
            held: self.held,
            moves: self.moves,
            watermark_ms: watermark.now_ms(),
            counts,
            ..Changes::default()
        };
        (judgements.iter().map(|judgement| judgement.outcome).collect(), changes)
    }
}

/// What the rows add to their windows; they come by key.
fn add_up(
    chunk: &Chunk,
    rows: impl Iterator<Item = usize>,
    window_ms: i64,
) -> Vec<(WindowId<'_>, Delta)> {
    let mut parts: Vec<(i64, usize, i64)> = rows
        .map(|row| {
            let start_ms = window::start_ms(chunk.timestamp_ms(row), window_ms);
            (start_ms, chunk.key_slot(row), chunk.value(row))
        })
        .collect();
    // stable: what starts together stays by key, and what is of one window in its order
    parts.sort_by_key(|(start_ms, ..)| *start_ms);
    let mut deltas: Vec<(WindowId<'_>, Delta)> =
        Vec::with_capacity(parts.len().min(chunk.key_count()));
    let mut last = None;
    for (start_ms, slot, value) in parts {
        match deltas.last_mut() {
            Some((_, delta)) if last == Some((start_ms, slot)) => delta.add(value),
            _ => deltas.push((WindowId { start_ms, key: chunk.key(slot) }, Delta::of(value))),
        }
        last = Some((start_ms, slot));
    }
    deltas
}

/// What kept late events, given in order, make of final windows: what `late --apply` writes.
pub fn corrections<'c>(chunk: &'c Chunk, settings: &Settings) -> Vec<(WindowId<'c>, Delta)> {
    add_up(chunk, key_order::by_key(chunk, chunk.len()).into_iter(), settings.window_ms())
}

/// What each producer version sent, by name.
fn versions<'c>(chunk: &'c Chunk, judgements: &[Judgement]) -> Vec<(&'c str, Counts)> {
    let mut all: HashMap<&str, Counts> = HashMap::new();
    // mostly the one before it is of the same version
    let (mut last, mut counts) = (None, Counts::default());
    let mut put = |version: Option<&'c str>, counts: Counts| {
        if let Some(version) = version {
            all.entry(version).or_default().add(&counts);
        }
    };
    for (row, judgement) in judgements.iter().enumerate() {
        if judgement.part == TallyPart::None {
            continue;
        }
        let version = chunk.producer_version(row);
        if version != last {
            put(last, std::mem::take(&mut counts));
            last = version;
        }
        counts.count(judgement.outcome);
    }
    put(last, counts);
    let mut sorted: Vec<_> = all.into_iter().collect();
    sorted.sort_unstable_by_key(|(version, _)| *version);
    sorted
}
