//! A store that fails at the n-th call, to show that a failure anywhere leaves nothing behind. For
//! tests only.

use std::cell::Cell;

use crate::engine::settings::Settings;
use crate::engine::{Changes, Fact, Known, Progress, Seen};
use crate::model::event::{Chunk, Event, HashKey};
use crate::model::refusal::Other;
use crate::store::{
    Batch, Begun, Committed, Delivery, Error, EventRef, Kept, Pace, Prefetch, Pruned, Receipt,
    Refused, Retention, Settlement, Silent, Store,
};

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedCall {
    /// [`Error::Busy`], and nothing was done.
    Busy,
    /// [`Error::Full`], and nothing was done.
    Full,
    /// [`Error::Io`], and nothing was done.
    Io,
    /// [`Error::Corrupt`], and nothing was done.
    Corrupt,
    /// The answer of a commit or a sync is lost before it was done, and with it what was not synced,
    /// as far as the store [can lose it](FailingStore::losing); for other calls as [`FailedCall::Io`].
    LostBefore,
    /// The answer of a commit or a sync is lost after it was done; for other calls as
    /// [`FailedCall::Io`].
    LostAfter,
}

impl FailedCall {
    /// Every one.
    pub const ALL: [FailedCall; 6] = [
        FailedCall::Busy,
        FailedCall::Full,
        FailedCall::Io,
        FailedCall::Corrupt,
        FailedCall::LostBefore,
        FailedCall::LostAfter,
    ];

    fn error(self) -> Error {
        let text = "failed on purpose".to_owned();
        match self {
            FailedCall::Busy => Error::Busy(text),
            FailedCall::Full => Error::Full(text),
            FailedCall::Io | FailedCall::LostBefore | FailedCall::LostAfter => Error::Io(text),
            FailedCall::Corrupt => Error::Corrupt(text),
        }
    }
}

/// A store whose n-th call fails; all others are passed on.
#[derive(Debug)]
pub struct FailingStore<S> {
    inner: S,
    plan: Plan,
    lose: fn(&mut S),
    // since the last sync; those of them that are in although the answer was lost
    refusals: Vec<Refused>,
    known: Vec<Refused>,
}

#[derive(Debug)]
struct Plan {
    calls: Cell<usize>,
    // something is in and not durable
    unsynced: Cell<bool>,
    fail_at: usize,
    failing_calls: usize,
    failure: FailedCall,
}

impl Plan {
    /// Counts a call; whether it is one to fail.
    fn is_due(&self) -> bool {
        let call = self.calls.get();
        self.calls.set(call + 1);
        call.checked_sub(self.fail_at).is_some_and(|since| since < self.failing_calls)
    }

    fn pass(&self) -> Result<(), Error> {
        if self.is_due() { Err(self.failure.error()) } else { Ok(()) }
    }

    fn watch<'s>(&'s self, begun: Begun<'s>, synced: bool) -> Begun<'s> {
        match begun {
            Begun::Open(inner) => Begun::Open(Box::new(FailingBatch { inner, plan: self, synced })),
            known @ Begun::Known(_) => known,
        }
    }
}

impl<S: Store> FailingStore<S> {
    /// The call with that number fails, counted from 0 over `begin`, `record_refusal`, `prune`,
    /// `sync` when there is something to do, and all that batches are asked. A number that is never reached lets all pass.
    pub fn new(inner: S, fail_at: usize, failure: FailedCall) -> FailingStore<S> {
        let (calls, unsynced) = (Cell::new(0), Cell::new(false));
        let plan = Plan { calls, unsynced, fail_at, failing_calls: 1, failure };
        FailingStore { inner, plan, lose: |_| {}, refusals: Vec::new(), known: Vec::new() }
    }

    /// The same, with what loses all that is not durable.
    pub fn losing(self, lose: fn(&mut S)) -> FailingStore<S> {
        FailingStore { lose, ..self }
    }

    /// The same, which fails at so many calls in a row.
    pub fn for_calls(mut self, failing_calls: usize) -> FailingStore<S> {
        self.plan.failing_calls = failing_calls;
        self
    }

    /// How many calls there were.
    pub fn calls(&self) -> usize {
        self.plan.calls.get()
    }

    /// Whether the failure has happened.
    pub fn has_failed(&self) -> bool {
        self.calls() > self.plan.fail_at
    }

    /// The store behind it.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The same, to be changed.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The store behind it, which no longer fails.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Store> Store for FailingStore<S> {
    fn settings(&self) -> Settings {
        self.inner.settings()
    }

    fn prefetch(&self) -> Option<Box<dyn Prefetch>> {
        self.inner.prefetch()
    }

    fn now_ms(&self) -> i64 {
        self.inner.now_ms()
    }

    fn trusted_ms(&self) -> i64 {
        self.inner.trusted_ms()
    }

    fn keep_time(&mut self) -> Result<(), Error> {
        self.inner.keep_time()
    }

    fn trust_now(&mut self) -> Result<(), Error> {
        self.inner.trust_now()
    }

    fn hash_key(&self) -> HashKey {
        self.inner.hash_key()
    }

    fn begin<'s>(&'s mut self, delivery: &Delivery) -> Result<Begun<'s>, Error> {
        let FailingStore { inner, plan, .. } = self;
        plan.pass()?;
        Ok(plan.watch(inner.begin(delivery)?, true))
    }

    fn begin_unsynced<'s>(&'s mut self, delivery: &Delivery) -> Result<Begun<'s>, Error> {
        let FailingStore { inner, plan, .. } = self;
        plan.pass()?;
        Ok(plan.watch(inner.begin_unsynced(delivery)?, false))
    }

    fn record_refusal(&mut self, refused: &Refused) -> Result<(), Error> {
        self.plan.pass()?;
        if let Some(at) = self.known.iter().position(|known| known == refused) {
            self.known.remove(at);
            return Ok(());
        }
        if !self.plan.unsynced.replace(true) {
            self.refusals.clear();
        }
        self.refusals.push(refused.clone());
        self.inner.record_refusal(refused)
    }

    fn sync(&mut self) -> Result<(), Error> {
        if !self.plan.unsynced.get() {
            return self.inner.sync();
        }
        match (self.plan.is_due(), self.plan.failure) {
            (false, _) => {
                self.plan.unsynced.set(false);
                self.inner.sync()
            }
            (true, FailedCall::LostBefore) => {
                (self.lose)(&mut self.inner);
                Err(lost())
            }
            (true, FailedCall::LostAfter) => {
                self.known = std::mem::take(&mut self.refusals);
                self.inner.sync().and(Err(lost()))
            }
            (true, other) => Err(other.error()),
        }
    }

    fn known(&mut self, sources: &[&str]) -> Result<Vec<Known>, Error> {
        self.inner.known(sources)
    }

    fn silent(&mut self, after: Option<&Silent>, most: usize) -> Result<Vec<(u64, Silent)>, Error> {
        self.inner.silent(after, most)
    }

    fn expected(&mut self) -> Result<Vec<String>, Error> {
        self.inner.expected()
    }

    fn prune_paced(&mut self, what: &Retention, pace: &mut Pace<'_>) -> Result<Pruned, Error> {
        self.plan.pass()?;
        self.inner.prune_paced(what, pace)
    }
}

fn lost() -> Error {
    Error::Unknown("the answer was lost on purpose".to_owned())
}

struct FailingBatch<'s> {
    inner: Box<dyn Batch + 's>,
    plan: &'s Plan,
    synced: bool,
}

impl Batch for FailingBatch<'_> {
    fn number(&self) -> u64 {
        self.inner.number()
    }

    fn facts(&mut self, chunk: &Chunk, facts: &mut Vec<Fact>) -> Result<(), Error> {
        self.plan.pass()?;
        self.inner.facts(chunk, facts)
    }

    fn progress(&mut self, sources: &[&str]) -> Result<Progress, Error> {
        self.plan.pass()?;
        self.inner.progress(sources)
    }

    fn kept(
        &mut self,
        kind: Kept,
        after: Option<EventRef>,
        chunk: &mut Chunk,
        refs: &mut Vec<EventRef>,
    ) -> Result<(), Error> {
        self.plan.pass()?;
        self.inner.kept(kind, after, chunk, refs)
    }

    fn settle(&mut self, refs: &[EventRef], settlement: Settlement) -> Result<(), Error> {
        self.plan.pass()?;
        self.inner.settle(refs, settlement)
    }

    fn apply(&mut self, chunk: &Chunk, changes: &Changes<'_>) -> Result<u64, Error> {
        self.plan.pass()?;
        self.inner.apply(chunk, changes)
    }

    fn closings(&self) -> &[u64] {
        self.inner.closings()
    }

    fn first_seen(&mut self, event: &Event<'_>, seen: &Seen) -> Result<Other, Error> {
        self.plan.pass()?;
        self.inner.first_seen(event, seen)
    }

    fn commit(self: Box<Self>, receipt: &Receipt) -> Result<Committed, Error> {
        let FailingBatch { inner, plan, synced } = *self;
        let commit = || {
            let committed = inner.commit(receipt)?;
            plan.unsynced.set(!synced);
            Ok(committed)
        };
        match (plan.is_due(), plan.failure) {
            (false, _) => commit(),
            (true, FailedCall::LostBefore) => Err(lost()),
            (true, FailedCall::LostAfter) => commit().and(Err(lost())),
            (true, other) => Err(other.error()),
        }
    }
}
