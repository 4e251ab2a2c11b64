//! Batches without a file: the watermark set by hand, sources that come and go, kept events that are
//! settled.
//!
//! Each is one transaction, except where many kept events are settled: these take turns with other
//! writers.

use std::time::{Duration, Instant};

use crate::engine::settings::{DEFAULT_MAX_FUTURE_MS, Settings};
use crate::engine::{self, Changes, Counts, Fact, Judge, Move, Outcome, Presence, window};
use crate::model::event::{Chunk, DEFAULT_SOURCE, Event};
use crate::store::{
    self, Act, Batch, Begun, Committed, Delivery, EventRef, Kept, Receipt, Settlement, Store,
};

/// How many kept events one transaction settles: about a fifth of a second.
const SETTLED_A_TURN: u64 = 20_000;

/// The most of them, where all are late events of one window.
const SETTLED_OF_WINDOW_A_TURN: u64 = 50_000;

/// How many are looked at in one transaction, wanted or not.
const LOOKED_AT_A_TURN: u64 = 100_000;

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
pub enum AdminBatchError {
    /// The watermark is further already: it never moves back.
    Behind {
        /// The watermark as it is.
        watermark_ms: i64,
        /// What was asked for.
        asked_ms: i64,
    },
    /// The store could not do its part; nothing was done.
    Store(store::Error),
}

impl From<store::Error> for AdminBatchError {
    fn from(error: store::Error) -> AdminBatchError {
        AdminBatchError::Store(error)
    }
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The batch that did it, or the last of them; none when there was nothing to do.
    pub batch: Option<u64>,
    /// How many batches did it.
    pub batches: u64,
    /// How many sources or kept events it concerned.
    pub concerned: u64,
    /// The sources that stand in another way now.
    pub sources: Vec<String>,
    /// What became of events that were judged again.
    pub counts: Counts,
    /// The watermark afterwards.
    pub watermark_ms: i64,
    /// How many windows that hold something became final in it.
    pub windows_closed: u64,
}

/// Which kept events are meant.
pub type Wanted<'w> = dyn FnMut(&Event<'_>) -> bool + 'w;

/// How far event time has come in a store.
#[derive(Clone, Copy, Debug)]
pub struct Reached {
    /// The watermark.
    pub watermark_ms: i64,
    /// The greatest timestamp of an accepted or late event; none when there is none.
    pub newest_ms: Option<i64>,
}

/// A watermark so far ahead that it is likely to be a slip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Implausible {
    /// What was asked for.
    pub asked_ms: i64,
    /// The clock.
    pub now_ms: i64,
    /// The greatest timestamp of an accepted or late event; none when there is none.
    pub newest_ms: Option<i64>,
    /// How far ahead of both is allowed.
    pub ahead_ms: i64,
}

/// Refuses a watermark that is further ahead than `max_future_ms` (a day when that is off) of both
/// the clock and the newest event: the step cannot be undone, and everything older would be late.
/// One that is not ahead of the watermark is left to [`advance`].
///
/// # Errors
/// What was asked for, and what it is compared with.
pub fn refuse_implausible(
    to_ms: i64,
    now_ms: i64,
    reached: Reached,
    settings: &Settings,
) -> Result<(), Implausible> {
    let ahead_ms = settings.max_future_ms().unwrap_or(DEFAULT_MAX_FUTURE_MS);
    let newest_ms = reached.newest_ms;
    let most_ms = newest_ms.map_or(now_ms, |newest_ms| newest_ms.max(now_ms));
    if to_ms > reached.watermark_ms && to_ms > most_ms.saturating_add(ahead_ms) {
        return Err(Implausible { asked_ms: to_ms, now_ms, newest_ms, ahead_ms });
    }
    Ok(())
}

/// Sets the watermark by hand. Nothing is done when it stands there already.
///
/// # Errors
/// [`AdminBatchError::Behind`] when the watermark is further already.
pub fn advance(
    store: &mut dyn Store,
    to_ms: i64,
    asked: Asked<'_>,
) -> Result<Done, AdminBatchError> {
    let settings = store.settings();
    in_batch(store, Act::Advance, asked, |batch| {
        let from_ms = batch.progress(&[])?.watermark_ms;
        if to_ms < from_ms {
            return Err(AdminBatchError::Behind { watermark_ms: from_ms, asked_ms: to_ms });
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
        Ok(Effect { concerned: 1, ..Effect::nothing(to_ms) })
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
) -> Result<Done, AdminBatchError> {
    let act = Act::of_presence(presence);
    let settings = store.settings();
    in_batch(store, act, asked, |batch| {
        let mut judge = Judge::new(settings, batch.number(), DEFAULT_SOURCE);
        let progress = batch.progress(&judge.named(sources))?;
        judge.learn(&progress);
        let changes = judge.change_presence(sources, presence);
        if changes.presence.is_empty() {
            return Ok(Effect::nothing(progress.watermark_ms));
        }
        batch.apply(&Chunk::default(), &changes)?;
        Ok(Effect {
            concerned: changes.presence.len() as u64,
            sources: changes.presence.into_iter().map(|change| change.source).collect(),
            counts: Counts::default(),
            watermark_ms: changes.watermark_ms,
        })
    })
}

/// What becomes of kept events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// Held events are judged again, by the rules of this moment; those that are still too far
    /// ahead of the clock stay held.
    Release,
    /// Held events are dropped for good. Their ids stay known: when they come again they are
    /// repeats.
    Discard,
    /// Kept late events become revisions of their windows, each once. One that is late by the
    /// stricter rule only waits until its window is final: before, there is nothing to correct.
    Correct,
}

impl Settling {
    fn act(self) -> Act {
        match self {
            Settling::Release => Act::Release,
            Settling::Discard => Act::Discard,
            Settling::Correct => Act::Correct,
        }
    }

    fn kept(self) -> Kept {
        match self {
            Settling::Release | Settling::Discard => Kept::Held,
            Settling::Correct => Kept::Late,
        }
    }
}

/// Settles the kept events that are wanted, all in one transaction.
///
/// # Errors
/// When the store cannot do its part; [`store::Error::Overflow`] when a window would leave its
/// range: nothing is settled then.
pub fn settle(
    store: &mut dyn Store,
    what: Settling,
    wanted: &mut Wanted<'_>,
    asked: Asked<'_>,
) -> Result<Done, AdminBatchError> {
    one_turn(store, what, wanted, asked, &mut Turn::unbounded())
}

/// The same as [`settle`], in as many transactions of bounded size as are needed, each of which is
/// whole. `rest` is told after each how long it held the store, and gives others their turn. The
/// events are taken in the same order, so that the results are those of one transaction.
///
/// # Errors
/// [`Halted`] when a transaction failed: those before it stand, and to ask again goes on with the
/// rest.
pub fn settle_in_turns(
    store: &mut dyn Store,
    what: Settling,
    wanted: &mut Wanted<'_>,
    asked: Asked<'_>,
    rest: &mut dyn FnMut(Duration),
) -> Result<Done, Box<Halted>> {
    all_turns(store, what, wanted, asked, Turn::bounded(), rest)
}

fn all_turns(
    store: &mut dyn Store,
    what: Settling,
    wanted: &mut Wanted<'_>,
    asked: Asked<'_>,
    mut turn: Turn,
    rest: &mut dyn FnMut(Duration),
) -> Result<Done, Box<Halted>> {
    let mut all: Option<Done> = None;
    loop {
        let begun = Instant::now();
        let done = match one_turn(store, what, wanted, asked, &mut turn) {
            Ok(done) => done,
            Err(error) => return Err(Box::new(Halted { done: all, error })),
        };
        match &mut all {
            Some(all) => all.add(&done),
            none => *none = Some(done),
        }
        if let Some(all) = all.take_if(|_| turn.is_over) {
            return Ok(all);
        }
        rest(begun.elapsed());
    }
}

/// Why kept events were settled only in part.
#[derive(Debug)]
pub struct Halted {
    /// What was done before, over all transactions; none when there was none.
    pub done: Option<Done>,
    /// Why it ended.
    pub error: AdminBatchError,
}

fn one_turn(
    store: &mut dyn Store,
    what: Settling,
    wanted: &mut Wanted<'_>,
    asked: Asked<'_>,
    turn: &mut Turn,
) -> Result<Done, AdminBatchError> {
    let settings = store.settings();
    in_batch(store, what.act(), asked, |batch| {
        let mut judge = Judge::release(settings, batch.number());
        let watermark_ms = batch.progress(&[])?.watermark_ms;
        let mut effect = Effect::nothing(watermark_ms);
        each_kept(batch, what.kept(), wanted, turn, &settings, |batch, chunk, refs| {
            effect.concerned += match what {
                Settling::Release => release(batch, &mut judge, chunk, refs, &mut effect)?,
                Settling::Discard => {
                    batch.settle(refs, Settlement::Discarded)?;
                    refs.len() as u64
                }
                Settling::Correct => {
                    let corrections = engine::corrections(chunk, &settings);
                    let changes = Changes { corrections, watermark_ms, ..Changes::default() };
                    batch.apply(chunk, &changes)?;
                    batch.settle(refs, Settlement::Applied)?;
                    refs.len() as u64
                }
            };
            Ok(())
        })?;
        Ok(effect)
    })
}

/// Judges held events again; how many of them are no longer held.
fn release(
    batch: &mut dyn Batch,
    judge: &mut Judge,
    chunk: &Chunk,
    refs: &[EventRef],
    effect: &mut Effect,
) -> Result<u64, AdminBatchError> {
    let progress = batch.progress(&judge.sources(chunk))?;
    judge.learn(&progress);
    let judged = judge.judge(chunk, &vec![Fact::New; chunk.len()]);
    batch.apply(chunk, &judged.changes)?;
    let released = judged.outcomes.iter().zip(refs);
    let released: Vec<EventRef> = released
        .filter(|(outcome, _)| **outcome != Outcome::Future)
        .map(|(_, kept)| *kept)
        .collect();
    batch.settle(&released, Settlement::Released)?;
    effect.counts.add(&judged.changes.counts);
    effect.watermark_ms = judged.changes.watermark_ms;
    Ok(released.len() as u64)
}

/// What was done within a batch.
struct Effect {
    concerned: u64,
    sources: Vec<String>,
    counts: Counts,
    watermark_ms: i64,
}

impl Effect {
    fn nothing(watermark_ms: i64) -> Effect {
        Effect { concerned: 0, sources: Vec::new(), counts: Counts::default(), watermark_ms }
    }
}

/// Opens a batch, does something in it, and commits it if that changed anything.
fn in_batch(
    store: &mut dyn Store,
    act: Act,
    asked: Asked<'_>,
    work: impl FnOnce(&mut dyn Batch) -> Result<Effect, AdminBatchError>,
) -> Result<Done, AdminBatchError> {
    let delivery = Delivery::fresh(act.name().to_owned(), DEFAULT_SOURCE.to_owned())
        .map_err(|error| store::Error::Io(format!("cannot draw a random token: {error}")))?;
    let mut batch = match store.begin(&delivery)? {
        Begun::Open(batch) => batch,
        Begun::Known(committed) => return Ok(Done::of(committed, 0, Vec::new())),
    };
    let effect = work(batch.as_mut())?;
    if effect.concerned == 0 {
        let Effect { concerned, sources, counts, watermark_ms } = effect;
        let (batch, batches, windows_closed) = (None, 0, 0);
        return Ok(Done {
            batch,
            batches,
            concerned,
            sources,
            counts,
            watermark_ms,
            windows_closed,
        });
    }
    let receipt = Receipt::Act {
        act,
        counts: effect.counts,
        asked_by: asked.by.to_owned(),
        reason: asked.reason.map(str::to_owned),
    };
    Ok(Done::of(batch.commit(&receipt)?, effect.concerned, effect.sources))
}

impl Done {
    fn of(committed: Committed, concerned: u64, sources: Vec<String>) -> Done {
        let Committed { batch, counts, watermark_ms, windows_closed } = committed;
        let (batch, batches) = (Some(batch), 1);
        Done { batch, batches, concerned, sources, counts, watermark_ms, windows_closed }
    }

    /// Adds what the next transaction did.
    fn add(&mut self, next: &Done) {
        self.batch = next.batch.or(self.batch);
        self.batches += next.batches;
        self.concerned += next.concerned;
        self.counts.add(&next.counts);
        self.watermark_ms = next.watermark_ms;
        self.windows_closed += next.windows_closed;
    }
}

/// How far the kept events were walked through, and how many one transaction may settle.
struct Turn {
    after: Option<EventRef>,
    is_over: bool,
    /// How many events are settled before it ends; late ones go on to the end of their window,
    /// which gets one revision a transaction.
    settled: u64,
    settled_of_window: u64,
    /// How many are looked at before it ends.
    looked: u64,
}

impl Turn {
    fn unbounded() -> Turn {
        Turn {
            after: None,
            is_over: false,
            settled: u64::MAX,
            settled_of_window: u64::MAX,
            looked: u64::MAX,
        }
    }

    fn bounded() -> Turn {
        Turn {
            settled: SETTLED_A_TURN,
            settled_of_window: SETTLED_OF_WINDOW_A_TURN,
            looked: LOOKED_AT_A_TURN,
            ..Turn::unbounded()
        }
    }
}

/// Walks over the kept events that are wanted, chunk by chunk, in their order, until all were
/// looked at or the turn is over.
fn each_kept(
    batch: &mut dyn Batch,
    kind: Kept,
    wanted: &mut Wanted<'_>,
    turn: &mut Turn,
    settings: &Settings,
    mut work: impl FnMut(&mut dyn Batch, &Chunk, &[EventRef]) -> Result<(), AdminBatchError>,
) -> Result<(), AdminBatchError> {
    let (mut found, mut found_refs) = (Chunk::default(), Vec::new());
    let (mut chunk, mut refs) = (Chunk::default(), Vec::new());
    let (mut settled, mut looked) = (0, 0);
    let mut is_enough = false;
    // of the last one that was settled, once it is enough
    let mut last_window: Option<(i64, String)> = None;
    while !is_enough {
        batch.kept(kind, turn.after, &mut found, &mut found_refs)?;
        if found_refs.is_empty() {
            turn.is_over = true;
            return Ok(());
        }
        // what is set aside again is told apart by its index in this batch
        chunk.restart(settled);
        refs.clear();
        for (event, kept) in found.iter().zip(&found_refs) {
            let window = || window::start_ms(event.timestamp_ms, settings.window_ms());
            let is_of_last = || {
                last_window.as_ref().is_some_and(|last| (last.0, &*last.1) == (window(), event.key))
            };
            is_enough = looked >= turn.looked
                || settled >= turn.settled_of_window
                || (settled >= turn.settled && !(kind == Kept::Late && is_of_last()));
            if is_enough {
                break;
            }
            turn.after = Some(*kept);
            looked += 1;
            if wanted(&event) {
                chunk.push(event);
                refs.push(*kept);
                settled += 1;
                if settled == turn.settled {
                    last_window = Some((window(), event.key.to_owned()));
                }
            }
        }
        if !chunk.is_empty() {
            work(batch, &chunk, &refs)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
