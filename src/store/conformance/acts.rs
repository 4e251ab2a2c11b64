//! Batches without a file, made as the real ones are.

use crate::engine::{Changes, Counts, Fact, Judge, Outcome, Presence, corrections};
use crate::model::event::Chunk;
use crate::store::{
    Act, Batch, Begun, Committed, Error, EventRef, Kept, Receipt, Settlement, Store,
};

use super::world::delivery;

pub(crate) fn act_receipt(act: Act, counts: Counts) -> Receipt {
    let reason = Some("spring cleaning".to_owned());
    Receipt::Act { act, counts, asked_by: "ann".to_owned(), reason }
}

/// Lets sources come and go.
pub(crate) fn change_presence<S: Store + ?Sized>(
    store: &mut S,
    number: u64,
    sources: &[&str],
    presence: Presence,
) -> Result<Committed, Error> {
    let settings = store.settings();
    let mut batch = match store.begin(&delivery(number))? {
        Begun::Known(committed) => return Ok(committed),
        Begun::Open(batch) => batch,
    };
    let mut judge = Judge::new(settings, batch.number(), "default");
    let progress = batch.progress(&judge.named(sources))?;
    judge.learn(&progress);
    batch.apply(&Chunk::default(), &judge.change_presence(sources, presence))?;
    batch.commit(&act_receipt(Act::of_presence(presence), Counts::default()))
}

/// A piece of what was kept: its events, and which they are.
type Piece = (Chunk, Vec<EventRef>);

/// The next kept events, in chunks of at most `cut`.
fn next_pieces(
    batch: &mut dyn Batch,
    kind: Kept,
    after: Option<EventRef>,
    chunk: &mut Chunk,
    cut: usize,
) -> Result<Vec<Piece>, Error> {
    let mut refs = Vec::new();
    batch.kept(kind, after, chunk, &mut refs)?;
    assert_eq!(refs.len(), chunk.len());
    let rows: Vec<usize> = (0..chunk.len()).collect();
    let piece = |rows: &[usize]| {
        let mut piece = Chunk::default();
        piece.restart(chunk.first_index() + rows[0] as u64);
        rows.iter().for_each(|row| piece.push(chunk.event(*row)));
        (piece, rows.iter().map(|row| refs[*row]).collect())
    };
    Ok(rows.chunks(cut).map(piece).collect())
}

/// Judges held events again.
pub(crate) fn release<S: Store + ?Sized>(
    store: &mut S,
    number: u64,
    cut: usize,
) -> Result<Committed, Error> {
    let settings = store.settings();
    let mut batch = match store.begin(&delivery(number))? {
        Begun::Known(committed) => return Ok(committed),
        Begun::Open(batch) => batch,
    };
    let mut judge = Judge::release(settings, batch.number());
    let (mut after, mut counts, mut all) = (None, Counts::default(), Chunk::default());
    loop {
        let pieces = next_pieces(&mut *batch, Kept::Held, after, &mut all, cut)?;
        if pieces.is_empty() {
            return batch.commit(&act_receipt(Act::Release, counts));
        }
        for (chunk, refs) in pieces {
            let progress = batch.progress(&judge.sources(&chunk))?;
            judge.learn(&progress);
            let judged = judge.judge(&chunk, &vec![Fact::New; chunk.len()]);
            batch.apply(&chunk, &judged.changes)?;
            let is_released = |(_, outcome): &(_, &Outcome)| **outcome != Outcome::Future;
            let released: Vec<_> =
                refs.iter().zip(&judged.outcomes).filter(is_released).map(|(r, _)| *r).collect();
            batch.settle(&released, Settlement::Released)?;
            counts.add(&judged.changes.counts);
            after = refs.last().copied();
        }
    }
}

/// Drops held events for good, each of which `is_unwanted` says so.
pub(crate) fn discard<S: Store + ?Sized>(
    store: &mut S,
    number: u64,
    is_unwanted: impl Fn(&str) -> bool,
) -> Result<Committed, Error> {
    let mut batch = match store.begin(&delivery(number))? {
        Begun::Known(committed) => return Ok(committed),
        Begun::Open(batch) => batch,
    };
    let (mut chunk, mut refs, mut after) = (Chunk::default(), Vec::new(), None);
    loop {
        batch.kept(Kept::Held, after, &mut chunk, &mut refs)?;
        let Some(last) = refs.last() else { break };
        after = Some(*last);
        let unwanted = refs.iter().zip(chunk.iter()).filter(|(_, event)| is_unwanted(event.id));
        let unwanted: Vec<_> = unwanted.map(|(event, _)| *event).collect();
        batch.settle(&unwanted, Settlement::Discarded)?;
    }
    batch.commit(&act_receipt(Act::Discard, Counts::default()))
}

/// Makes corrections of late events that were set aside.
pub(crate) fn apply_late<S: Store + ?Sized>(
    store: &mut S,
    number: u64,
    cut: usize,
) -> Result<Committed, Error> {
    let settings = store.settings();
    let mut batch = match store.begin(&delivery(number))? {
        Begun::Known(committed) => return Ok(committed),
        Begun::Open(batch) => batch,
    };
    let (mut after, mut all) = (None, Chunk::default());
    loop {
        let pieces = next_pieces(&mut *batch, Kept::Late, after, &mut all, cut)?;
        if pieces.is_empty() {
            return batch.commit(&act_receipt(Act::Correct, Counts::default()));
        }
        for (chunk, refs) in pieces {
            let corrections = corrections(&chunk, &settings);
            batch.apply(&chunk, &Changes { corrections, ..Changes::default() })?;
            batch.settle(&refs, Settlement::Applied)?;
            after = refs.last().copied();
        }
    }
}
