//! Batches without a file: the watermark set by hand, sources that come and go, kept events that are
//! settled. Each is one transaction.

use crate::engine::settings::Settings;
use crate::engine::{self, Changes, Counts, Fact, Judge, Move, Outcome, Presence, window};
use crate::event::{Chunk, DEFAULT_SOURCE, Event};
use crate::store::{
    self, Act, Batch, Begun, Committed, Delivery, EventRef, Kept, Receipt, Settlement, Store,
};

/// Who asks for it, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked<'a> {
    /// Who.
    pub by: &'a str,
    /// Why, in their words.
    pub reason: Option<&'a str>,
}

/// Why something could not be done.
#[derive(Debug)]
pub enum Error {
    /// The watermark is further already: it never moves back.
    Behind {
        /// W as it is.
        watermark_ms: i64,
        /// What was asked for.
        asked_ms: i64,
    },
    /// The store could not do its part; nothing was done.
    Store(store::Error),
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Error {
        Error::Store(error)
    }
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The batch that did it; none when there was nothing to do.
    pub batch: Option<u64>,
    /// How many sources or kept events it concerned.
    pub concerned: u64,
    /// What became of events that were judged again.
    pub counts: Counts,
    /// W afterwards.
    pub watermark_ms: i64,
    /// How many windows that hold something became final in it.
    pub windows_closed: u64,
}

/// Which kept events are meant.
pub type Wanted<'w> = dyn FnMut(&Event<'_>) -> bool + 'w;

/// Sets the watermark by hand. Nothing is done when it stands there already.
///
/// # Errors
/// [`Error::Behind`] when W is further already.
pub fn advance(store: &mut dyn Store, to_ms: i64, asked: Asked<'_>) -> Result<Done, Error> {
    let settings = store.settings();
    in_batch(store, Act::Advance, asked, |batch| {
        let from_ms = batch.progress(&[])?.watermark_ms;
        if to_ms < from_ms {
            return Err(Error::Behind { watermark_ms: from_ms, asked_ms: to_ms });
        }
        if to_ms == from_ms {
            return Ok(Effect::nothing(from_ms));
        }
        let crosses = window::closing_starts_ms(from_ms, to_ms, settings.window_ms()).is_some();
        let moved = Move { from_ms, to_ms, event_index: None };
        let changes = Changes {
            watermark_ms: to_ms,
            moves: crosses.then_some(moved).into_iter().collect(),
            ..Changes::default()
        };
        batch.apply(&Chunk::default(), &changes)?;
        Ok(Effect { concerned: 1, counts: Counts::default(), watermark_ms: to_ms })
    })
}

/// Lets sources come and go. Nothing is done for those that stand so already.
///
/// # Errors
/// When the store cannot do its part.
pub fn change_presence(
    store: &mut dyn Store,
    sources: &[&str],
    presence: Presence,
    asked: Asked<'_>,
) -> Result<Done, Error> {
    let act = match presence {
        Presence::Declared => Act::Declare,
        Presence::Idle => Act::Idle,
        Presence::Active => Act::Active,
    };
    let settings = store.settings();
    in_batch(store, act, asked, |batch| {
        let mut judge = Judge::new(settings, batch.number(), DEFAULT_SOURCE);
        let progress = batch.progress(&judge.named(sources))?;
        judge.learn(&progress);
        let changes = judge.change_presence(sources, presence);
        if changes.presence.is_empty() {
            return Ok(Effect::nothing(progress.watermark_ms));
        }
        let concerned = changes.presence.len() as u64;
        batch.apply(&Chunk::default(), &changes)?;
        Ok(Effect { concerned, counts: Counts::default(), watermark_ms: changes.watermark_ms })
    })
}

/// Judges held events again, by the rules of this moment; those that are still too far ahead of the
/// clock stay held.
///
/// # Errors
/// When the store cannot do its part; [`store::Error::Overflow`] when a window would leave its
/// range: nothing is released then.
pub fn release(
    store: &mut dyn Store,
    wanted: &mut Wanted<'_>,
    asked: Asked<'_>,
) -> Result<Done, Error> {
    let settings = store.settings();
    in_batch(store, Act::Release, asked, |batch| {
        let mut judge = Judge::release(settings, batch.number());
        let mut effect = Effect::nothing(batch.progress(&[])?.watermark_ms);
        each_kept(batch, Kept::Held, wanted, |batch, chunk, refs| {
            let progress = batch.progress(&judge.sources(chunk))?;
            judge.learn(&progress);
            let judged = judge.judge(chunk, &vec![Fact::New; chunk.len()]);
            batch.apply(chunk, &judged.changes)?;
            let settled: Vec<EventRef> = judged
                .outcomes
                .iter()
                .zip(refs)
                .filter(|(outcome, _)| **outcome != Outcome::Future)
                .map(|(_, kept)| *kept)
                .collect();
            batch.settle(&settled, Settlement::Released)?;
            effect.concerned += settled.len() as u64;
            effect.counts.add(&judged.changes.counts);
            effect.watermark_ms = judged.changes.watermark_ms;
            Ok(())
        })?;
        Ok(effect)
    })
}

/// Drops held events for good. Their ids stay known: when they come again they are repeats.
///
/// # Errors
/// When the store cannot do its part.
pub fn discard(
    store: &mut dyn Store,
    wanted: &mut Wanted<'_>,
    asked: Asked<'_>,
) -> Result<Done, Error> {
    in_batch(store, Act::Discard, asked, |batch| {
        let mut effect = Effect::nothing(batch.progress(&[])?.watermark_ms);
        each_kept(batch, Kept::Held, wanted, |batch, _, refs| {
            batch.settle(refs, Settlement::Discarded)?;
            effect.concerned += refs.len() as u64;
            Ok(())
        })?;
        Ok(effect)
    })
}

/// Turns kept late events into revisions of their windows, each once. One that is late by the
/// stricter rule only waits until its window is final: before, there is nothing to correct.
///
/// # Errors
/// When the store cannot do its part; [`store::Error::Overflow`] when a window would leave its
/// range: nothing is corrected then.
pub fn correct(
    store: &mut dyn Store,
    wanted: &mut Wanted<'_>,
    asked: Asked<'_>,
) -> Result<Done, Error> {
    let settings: Settings = store.settings();
    in_batch(store, Act::Correct, asked, |batch| {
        let watermark_ms = batch.progress(&[])?.watermark_ms;
        let mut effect = Effect::nothing(watermark_ms);
        each_kept(batch, Kept::Late, wanted, |batch, chunk, refs| {
            let corrections = engine::corrections(chunk, &settings);
            let changes = Changes { corrections, watermark_ms, ..Changes::default() };
            batch.apply(chunk, &changes)?;
            batch.settle(refs, Settlement::Applied)?;
            effect.concerned += refs.len() as u64;
            Ok(())
        })?;
        Ok(effect)
    })
}

/// What was done within a batch.
struct Effect {
    concerned: u64,
    counts: Counts,
    watermark_ms: i64,
}

impl Effect {
    fn nothing(watermark_ms: i64) -> Effect {
        Effect { concerned: 0, counts: Counts::default(), watermark_ms }
    }
}

/// Opens a batch, does something in it, and commits it if that changed anything.
fn in_batch(
    store: &mut dyn Store,
    act: Act,
    asked: Asked<'_>,
    work: impl FnOnce(&mut dyn Batch) -> Result<Effect, Error>,
) -> Result<Done, Error> {
    let delivery = Delivery::fresh(act.name().to_owned(), DEFAULT_SOURCE.to_owned())
        .map_err(|error| store::Error::Io(format!("cannot draw a random token: {error}")))?;
    let mut batch = match store.begin(&delivery)? {
        Begun::Open(batch) => batch,
        Begun::Known(committed) => return Ok(Done::of(committed, 0)),
    };
    let effect = work(batch.as_mut())?;
    if effect.concerned == 0 {
        let Effect { concerned, counts, watermark_ms } = effect;
        return Ok(Done { batch: None, concerned, counts, watermark_ms, windows_closed: 0 });
    }
    let receipt = Receipt::Act {
        act,
        counts: effect.counts,
        asked_by: asked.by.to_owned(),
        reason: asked.reason.map(str::to_owned),
    };
    Ok(Done::of(batch.commit(&receipt)?, effect.concerned))
}

impl Done {
    fn of(committed: Committed, concerned: u64) -> Done {
        let Committed { batch, counts, watermark_ms, windows_closed } = committed;
        Done { batch: Some(batch), concerned, counts, watermark_ms, windows_closed }
    }
}

/// Walks over the kept events that are wanted, chunk by chunk, in the order in which they came.
fn each_kept(
    batch: &mut dyn Batch,
    kind: Kept,
    wanted: &mut Wanted<'_>,
    mut work: impl FnMut(&mut dyn Batch, &Chunk, &[EventRef]) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut found, mut found_refs) = (Chunk::default(), Vec::new());
    let (mut chunk, mut refs) = (Chunk::default(), Vec::new());
    let mut first_index = 0;
    let mut after = None;
    loop {
        batch.kept(kind, after, &mut found, &mut found_refs)?;
        let Some(last) = found_refs.last() else { return Ok(()) };
        after = Some(*last);
        // what is set aside again is told apart by its index in this batch
        chunk.restart(first_index);
        refs.clear();
        for (event, kept) in found.iter().zip(&found_refs) {
            if wanted(&event) {
                chunk.push(event);
                refs.push(*kept);
            }
        }
        if !chunk.is_empty() {
            first_index += chunk.len() as u64;
            work(batch, &chunk, &refs)?;
        }
    }
}
