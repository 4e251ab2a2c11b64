//! Random histories: a store and the model, each cutting the batches in its own way, must agree on
//! every answer and on the whole state.

use proptest::prelude::*;

use super::accounts::assert_they_add_up;
use super::acts::*;
use super::progress::advance;
use super::world::*;
use crate::engine::Presence;
use crate::engine::settings::{LatePolicy, LateRule, Settings};
use crate::model::clock::Clock;
use crate::model::event::{Event, Place};
use crate::store::failing::{FailedCall, FailingStore};
use crate::store::memory::MemoryStore;
use crate::store::{Error, EventRef, Pruned, RememberedRow, Retention, Snapshot, Store};

/// What happens next.
#[derive(Clone, Debug)]
struct Step {
    what: What,
    /// Lengths of the chunks, for the model and for the store under test.
    cuts: [usize; 2],
    /// Whether the answer of its commit is lost, or the process begins anew afterwards.
    fate: ModelFate,
    /// The call that fails in an act with such a fate, if there are so many.
    fail_at: usize,
}

#[derive(Clone, Debug)]
enum What {
    Events(Vec<Ev>),
    Presence(&'static str, Presence),
    Advance(i64),
    Release,
    Discard(char),
    ApplyLate,
    Prune(Retention),
    /// The clock stands so much later.
    Later(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelFate {
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

fn a_retention() -> impl Strategy<Value = Retention> {
    let ms = || proptest::option::of(prop_oneof![0i64..5000, Just(i64::MAX)]);
    (any::<bool>(), ms(), ms(), ms(), ms()).prop_map(|(ledger, windows, late, receipts, moves)| {
        Retention {
            ledger,
            windows_before_ms: windows,
            late_before_ms: late,
            receipts_before_ms: receipts,
            moves_before_ms: moves,
        }
    })
}

fn something() -> impl Strategy<Value = What> {
    let source = prop_oneof![Just("a"), Just("b"), Just("default"), Just("new")];
    let presence = prop_oneof![
        Just(Presence::Declared),
        Just(Presence::Idle),
        Just(Presence::Active),
        Just(Presence::Retired),
        Just(Presence::Expected),
        Just(Presence::NotExpected),
    ];
    prop_oneof![
        10 => proptest::collection::vec(an_event(), 0..14).prop_map(What::Events),
        3 => (source, presence).prop_map(|(source, presence)| What::Presence(source, presence)),
        1 => (0i64..5000).prop_map(What::Advance),
        2 => Just(What::Release),
        1 => proptest::char::range('0', '9').prop_map(What::Discard),
        2 => Just(What::ApplyLate),
        2 => a_retention().prop_map(What::Prune),
        1 => (1i64..200).prop_map(What::Later),
    ]
}

fn a_step() -> impl Strategy<Value = Step> {
    let fate = prop_oneof![
        5 => Just(ModelFate::Calm),
        1 => Just(ModelFate::AnswerLost),
        1 => Just(ModelFate::DroppedFirst),
        1 => Just(ModelFate::Reopened),
    ];
    (something(), 1usize..8, 1usize..8, fate, 0usize..9).prop_map(
        |(what, one, other, fate, fail_at)| Step { what, cuts: [one, other], fate, fail_at },
    )
}

fn some_settings() -> impl Strategy<Value = Settings> {
    let policy =
        prop_oneof![Just(LatePolicy::Aside), Just(LatePolicy::Drop), Just(LatePolicy::Correct)];
    (any::<bool>(), policy, any::<bool>(), 0u8..4).prop_map(|(strict, policy, bounded, guard)| {
        let rule = if strict { LateRule::Event } else { LateRule::Window };
        let settings = settings().with_late(rule, policy);
        let settings = settings.with_dedup_horizon_ms(bounded.then_some(1500)).unwrap();
        settings.with_max_future_ms((guard > 0).then_some(100_000)).unwrap()
    })
}

/// The answer without what depends on where the batch was cut.
fn answer<S: Store>(store: &mut S, number: u64, what: &What, cut: usize) -> String {
    let told = match what {
        What::Events(events) => {
            let chunks: Vec<&[Ev]> = events.chunks(cut).collect();
            ingest(store, &delivery(number), &chunks)
        }
        What::Presence(source, presence) => {
            change_presence(store, number, &[source], *presence).map_err(Stopped::Store)
        }
        What::Advance(to_ms) => advance(store, number, *to_ms).map_err(Stopped::Store),
        What::Release => release(store, number, cut).map_err(Stopped::Store),
        What::Discard(first) => {
            discard(store, number, |id| id.starts_with(*first)).map_err(Stopped::Store)
        }
        What::ApplyLate => apply_late(store, number, cut).map_err(Stopped::Store),
        What::Prune(what) => {
            // a batch may have forgotten some ids before
            let pruned = store.prune(what).map(|pruned| Pruned { ids: 0, ..pruned });
            return format!("{pruned:?}");
        }
        What::Later(_) => return String::new(),
    };
    match told {
        Ok(committed) => format!("{committed:?}"),
        Err(Stopped::Conflict { event_index, .. }) => format!("conflict at {event_index}"),
        Err(Stopped::Store(Error::Overflow(_))) => "overflow".to_owned(),
        Err(Stopped::Store(Error::Io(text))) if text.contains("on purpose") => text,
        Err(Stopped::Store(Error::Unknown(text))) => text,
        Err(Stopped::Store(other)) => panic!("delivery {number}: {other}"),
    }
}

/// Lives through the step and answers what came of it.
fn live<T: Subject>(
    subject: &T,
    mut store: T::Store,
    now_ms: &mut i64,
    number: u64,
    step: &Step,
    cut: usize,
) -> (T::Store, String) {
    let failing = match step.fate {
        ModelFate::AnswerLost => Some(FailedCall::LostAfter),
        ModelFate::DroppedFirst => Some(FailedCall::Io),
        ModelFate::Calm | ModelFate::Reopened => None,
    };
    if let Some(failure) = failing {
        let fail_at = match &step.what {
            // the commit
            What::Events(events) => 1 + 3 * events.chunks(cut).len(),
            _ => step.fail_at,
        };
        let mut failing = FailingStore::new(store, fail_at, failure);
        // whatever comes of it: the same delivery is tried again below
        let found = answer(&mut failing, number, &step.what, cut);
        let is_batch = matches!(step.what, What::Events(_));
        assert!(!is_batch || !found.starts_with("Committed"), "the commit fails: {found}");
        store = failing.into_inner();
    }
    let found = answer(&mut store, number, &step.what, cut);
    if let What::Later(by_ms) = step.what {
        *now_ms += by_ms;
        store = subject.reopen_at(store, *now_ms);
    } else if step.fate == ModelFate::Reopened {
        store = subject.reopen(store);
    }
    (store, found)
}

/// The store as plain maps.
struct Model;

impl Subject for Model {
    type Store = MemoryStore;

    fn make(&self, settings: Settings) -> MemoryStore {
        MemoryStore::new(settings, Clock::Fixed(NOW_MS))
    }

    fn snapshot(&self, store: &MemoryStore) -> Box<dyn Snapshot> {
        Box::new(store.snapshot())
    }

    fn reopen(&self, store: MemoryStore) -> MemoryStore {
        store
    }

    fn reopen_at(&self, mut store: MemoryStore, now_ms: i64) -> MemoryStore {
        store.set_clock(Clock::Fixed(now_ms));
        store
    }
}

/// What a whole state says beside its dump: ids, and held events that are settled.
fn details(snapshot: &dyn Snapshot) -> Vec<String> {
    let ids = (0..60).map(|id| format!("{:?}", snapshot.remembered(&id.to_string()).unwrap()));
    let places =
        (1..14).flat_map(|batch| (0..14).map(move |event_index| EventRef { batch, event_index }));
    let settled = places.clone().filter_map(|event| snapshot.settled(event).unwrap());
    let kept = places.clone().map(|event| {
        let (late, held) = (snapshot.late_at(event).unwrap(), snapshot.held_at(event).unwrap());
        format!("{event}: {late:?} {held:?}")
    });
    ids.chain(settled.map(|row| format!("{row:?}"))).chain(kept).chain(firsts(snapshot)).collect()
}

/// Of each id that is remembered and each place whether its event is the first that came in there.
fn firsts(snapshot: &dyn Snapshot) -> Vec<String> {
    let known: Vec<(String, RememberedRow)> = (0..60)
        .map(|id: u32| id.to_string())
        .filter_map(|id| snapshot.remembered(&id).unwrap().map(|row| (id, row)))
        .collect();
    let mut asked = Vec::new();
    for batch in 1..14 {
        for event_index in 0..14 {
            let at = EventRef { batch, event_index };
            for (id, row) in &known {
                let (Some(key), Some(value)) = (&row.key, row.value) else { continue };
                let (timestamp_ms, place) = (row.timestamp_ms, Place::default());
                let (source, producer_version) = (None, None);
                let event = Event { id, key, timestamp_ms, value, source, producer_version, place };
                let is_first = snapshot.is_first(at, &event).unwrap();
                assert_eq!(is_first, row.event == at, "{id} at {at}");
                asked.push(format!("{id} at {at}: {is_first}"));
            }
        }
    }
    asked
}

/// Random histories on the store and on the model. Nothing that is pruned is ever missed: a model
/// that never prunes gives the same answers.
pub(crate) fn agree_with_the_model(subject: &impl Subject, cases: u32) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let steps = proptest::collection::vec(a_step(), 1..14);
    proptest!(config, |(settings in some_settings(), steps in steps)| {
        let (mut model, mut store) = (Model.make(settings), subject.make(settings));
        let mut unpruned = Model.make(settings);
        let (mut now_ms, mut comparable) = ([NOW_MS; 3], true);
        for (number, step) in steps.iter().enumerate() {
            let (expected, found, without);
            let [now, other_now, third_now] = &mut now_ms;
            (model, expected) = live(&Model, model, now, number as u64, step, step.cuts[0]);
            (store, found) = live(subject, store, other_now, number as u64, step, step.cuts[1]);
            prop_assert_eq!(&found, &expected, "answer to step {}", number);
            let dump = subject.dump(&store);
            assert_they_add_up(&dump);
            prop_assert_eq!(dump, Model.dump(&model), "after step {}", number);
            if comparable && !matches!(step.what, What::Prune(_)) {
                (unpruned, without) = live(&Model, unpruned, third_now, number as u64, step, 99);
                // late events that are gone, or whose windows are, cannot make a window overflow
                comparable = without == expected || !matches!(step.what, What::ApplyLate);
                prop_assert!(!comparable || without == expected, "{number}: {without} unpruned");
            }
        }
        let (found, expected) = (subject.snapshot(&store), Model.snapshot(&model));
        prop_assert_eq!(details(&*found), details(&*expected));
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
