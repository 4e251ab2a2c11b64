//! Random histories: a store and the model, each cutting the batches in its own way, must agree on
//! every answer and on the whole state.

use proptest::prelude::*;

use super::world::*;
use crate::clock::Clock;
use crate::engine::settings::{LatePolicy, LateRule, Settings};
use crate::store::failing::{FailingStore, Failure};
use crate::store::memory::MemoryStore;
use crate::store::{Error, Store};

/// What happens to one batch.
#[derive(Clone, Debug)]
struct Step {
    events: Vec<Ev>,
    /// Lengths of the chunks, for the model and for the store under test.
    cuts: [usize; 2],
    /// Whether the answer of its commit is lost, or the process begins anew afterwards.
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Calm,
    AnswerLost,
    DroppedFirst,
    Reopened,
}

fn an_event() -> impl Strategy<Value = Ev> {
    let value = prop_oneof![8 => -3i64..3, 1 => Just(i64::MAX), 1 => Just(i64::MIN)];
    let timestamp_ms = prop_oneof![12 => 0i64..4000, 1 => Just(NOW_MS + 100_001)];
    let name = prop_oneof![Just("a"), Just("b"), Just("a\0"), Just("é")];
    (0u32..60, name.clone(), timestamp_ms, value, proptest::option::of(name), any::<bool>())
        .prop_map(|(id, key, timestamp_ms, value, source, versioned)| {
            // few ids with few payloads: repeats are common, contradictions rare
            let timestamp_ms = if id % 3 == 0 { i64::from(id) * 50 } else { timestamp_ms };
            let (key, value) = if id % 3 == 0 { ("a", 1) } else { (key, value) };
            let id = if id % 3 == 0 { format!("{id}") } else { format!("{id}-{timestamp_ms}") };
            let mut event = ev(&id, key, timestamp_ms, value);
            event.source = source.map(str::to_owned);
            if versioned { event.by(key) } else { event }
        })
}

fn a_step() -> impl Strategy<Value = Step> {
    let fate = prop_oneof![
        5 => Just(Fate::Calm),
        1 => Just(Fate::AnswerLost),
        1 => Just(Fate::DroppedFirst),
        1 => Just(Fate::Reopened),
    ];
    (proptest::collection::vec(an_event(), 0..14), 1usize..8, 1usize..8, fate)
        .prop_map(|(events, one, other, fate)| Step { events, cuts: [one, other], fate })
}

fn some_settings() -> impl Strategy<Value = Settings> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(strict, drop, bounded)| {
        let rule = if strict { LateRule::Event } else { LateRule::Window };
        let policy = if drop { LatePolicy::Drop } else { LatePolicy::Aside };
        let horizon_ms = bounded.then_some(1500);
        settings().with_late(rule, policy).with_dedup_horizon_ms(horizon_ms).unwrap()
    })
}

/// The answer without what depends on where the batch was cut.
fn answer<S: Store>(store: &mut S, number: u64, step: &Step, cut: usize) -> String {
    let chunks: Vec<&[Ev]> = step.events.chunks(cut).collect();
    match ingest(store, &delivery(number), &chunks) {
        Ok(committed) => format!("{committed:?}"),
        Err(Stopped::Conflict { event_index, .. }) => format!("conflict at {event_index}"),
        Err(Stopped::Store(Error::Overflow(_))) => "overflow".to_owned(),
        Err(Stopped::Store(other)) => panic!("delivery {number}: {other}"),
    }
}

/// Lives through the step and answers what came of it.
fn live<T: Subject>(
    subject: &T,
    mut store: T::Store,
    number: u64,
    step: &Step,
    cut: usize,
) -> (T::Store, String) {
    let chunks: Vec<&[Ev]> = step.events.chunks(cut).collect();
    let commit = 1 + 3 * chunks.len();
    let failing = match step.fate {
        Fate::AnswerLost => Some(Failure::LostAfter),
        Fate::DroppedFirst => Some(Failure::Io),
        Fate::Calm | Fate::Reopened => None,
    };
    if let Some(failure) = failing {
        let mut failing = FailingStore::new(store, commit, failure);
        // whatever comes of it: the same delivery is tried again below
        let stopped = ingest(&mut failing, &delivery(number), &chunks).is_err();
        assert!(stopped, "the commit fails unless something else did before");
        store = failing.into_inner();
    }
    let found = answer(&mut store, number, step, cut);
    if step.fate == Fate::Reopened {
        store = subject.reopen(store);
    }
    (store, found)
}

struct Model;

impl Subject for Model {
    type Store = MemoryStore;

    fn make(&self, settings: Settings) -> MemoryStore {
        MemoryStore::new(settings, Clock::Fixed(NOW_MS))
    }

    fn snapshot(&self, store: &MemoryStore) -> Box<dyn crate::store::Snapshot> {
        Box::new(store.snapshot())
    }

    fn reopen(&self, store: MemoryStore) -> MemoryStore {
        store
    }
}

/// Random histories on the store and on the model.
pub(crate) fn agree_with_the_model(subject: &impl Subject, cases: u32) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let steps = proptest::collection::vec(a_step(), 1..12);
    proptest!(config, |(settings in some_settings(), steps in steps)| {
        let (mut model, mut store) = (Model.make(settings), subject.make(settings));
        for (number, step) in steps.iter().enumerate() {
            let (expected, found);
            (model, expected) = live(&Model, model, number as u64, step, step.cuts[0]);
            (store, found) = live(subject, store, number as u64, step, step.cuts[1]);
            prop_assert_eq!(&found, &expected, "answer to batch {}", number);
            prop_assert_eq!(subject.dump(&store), Model.dump(&model), "after batch {}", number);
        }
    });
}

#[test]
fn the_model_conforms() {
    super::conformance(&Model);
}

#[test]
fn the_model_does_not_depend_on_cuts() {
    agree_with_the_model(&Model, 300);
}
