//! A history that bytes decide, played in a store and in the model beside it: settings, events and
//! times at their edges, batches of any size, and acts in between.

use crate::draw::{NOW_MS, Step, Which};
use crate::model::{Counts, Event, Model, Policy, Settings};
use crate::observed::{self, difference};
use crate::real::{Real, act_in_model};

/// The last millisecond that an event may have.
const LAST_MS: i64 = 253_402_300_799_999;

const KEYS: [&str; 4] = ["k", "a\0b", "ключ", "\u{202e}x"];
const SOURCES: [&str; 3] = ["press-1", "press-2", "default"];

/// What is chosen next; the first of all choices when the bytes are used up.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn below(&mut self, bound: u8) -> usize {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(byte % bound)
    }

    fn of<T: Copy>(&mut self, options: &[T]) -> T {
        options[self.below(options.len() as u8)]
    }
}

/// What a history came to.
#[derive(Debug, Default)]
pub struct Played {
    /// What became of the events that were taken in.
    pub counts: Counts,
    /// How many batches were refused.
    pub refused: u64,
    /// How many acts changed something.
    pub acts: u64,
    /// How many windows were corrected.
    pub revisions: u64,
}

/// Plays the history of those bytes in a store of the given kind.
///
/// # Panics
/// When the store and the model differ.
pub fn play(bytes: &[u8], make: fn(Settings) -> Real) -> Played {
    let mut choices = Choices(bytes);
    let settings = settings(&mut choices);
    let (now_ms, earlier) = (NOW_MS, Vec::new());
    let mut teller = Teller { choices, settings, now_ms, watermark_ms: 0, last_ms: 0, earlier };
    let (mut model, mut real) = (Model::new(settings), make(settings));
    let (mut played, mut batch) = (Played::default(), Vec::new());
    while !teller.choices.0.is_empty() {
        match teller.choices.below(16) {
            0..=9 => batch.push(teller.event()),
            10..=12 => played.refused += take(&mut teller, &mut model, &mut real, &mut batch),
            13 => real.reopen(),
            _ => {
                played.refused += take(&mut teller, &mut model, &mut real, &mut batch);
                let step = teller.act();
                let expected = act_in_model(&mut model, &step, teller.now_ms);
                assert_eq!(real.act(&step), expected, "{step:?} under {settings:?}");
                played.acts += u64::from(expected.changed());
            }
        }
        teller.watermark_ms = model.state.watermark_ms;
    }
    played.refused += take(&mut teller, &mut model, &mut real, &mut batch);
    let found = real.state();
    assert!(found == model.state, "{settings:?}\n{}", difference(&found, &model.state));
    played.counts = model.state.counts;
    played.revisions = model.state.revisions.values().sum();
    played
}

/// Takes the batch in, here and there; how many batches were refused.
fn take(
    teller: &mut Teller<'_>,
    model: &mut Model,
    real: &mut Real,
    batch: &mut Vec<Event>,
) -> u64 {
    if batch.is_empty() {
        return 0;
    }
    let text = match teller.choices.below(2) {
        0 => observed::array(batch),
        _ => observed::ndjson(batch),
    };
    let expected = model.ingest("default", batch, teller.now_ms);
    assert_eq!(real.ingest(&text), expected, "{:?}: {text}", teller.settings);
    teller.watermark_ms = model.state.watermark_ms;
    batch.clear();
    u64::from(expected.is_err())
}

fn settings(choices: &mut Choices<'_>) -> Settings {
    let window_ms = choices.of(&[1000, 1, 7, 60_000, LAST_MS, LAST_MS + 1, i64::MAX, 86_400_000]);
    let lateness_ms = choices.of(&[0, 0, 1, 500, 60_000, LAST_MS, i64::MAX]);
    // at least a window and the lateness
    let least_ms = window_ms.saturating_add(lateness_ms);
    let horizon_ms = [None, None, Some(least_ms), Some(least_ms.saturating_add(1)), Some(i64::MAX)];
    Settings {
        strict: choices.below(2) == 1,
        policy: choices.of(&[Policy::Aside, Policy::Correct, Policy::Drop]),
        max_future_ms: choices.of(&[None, Some(86_400_000), Some(0), Some(1), Some(LAST_MS)]),
        dedup_horizon_ms: choices.of(&horizon_ms),
        ..Settings::new(window_ms, lateness_ms)
    }
}

struct Teller<'a> {
    choices: Choices<'a>,
    settings: Settings,
    now_ms: i64,
    watermark_ms: i64,
    last_ms: i64,
    earlier: Vec<Event>,
}

impl Teller<'_> {
    /// A time at or near something that matters.
    fn time_ms(&mut self) -> i64 {
        let Settings { window_ms, lateness_ms, max_future_ms, dedup_horizon_ms, .. } =
            self.settings;
        let guard_ms = self.now_ms.saturating_add(max_future_ms.unwrap_or(0));
        let oldest_ms = self.watermark_ms.saturating_sub(dedup_horizon_ms.unwrap_or(0));
        let window_start_ms = self.last_ms - self.last_ms % window_ms;
        let near = [
            self.last_ms,
            self.watermark_ms,
            window_start_ms,
            window_start_ms.saturating_add(window_ms),
            self.watermark_ms.saturating_add(lateness_ms),
            guard_ms,
            oldest_ms,
            self.now_ms,
            0,
            LAST_MS,
        ];
        let by_ms = [0, -1, 1, window_ms, -window_ms, lateness_ms, 250, -250, 1000];
        self.choices.of(&near).saturating_add(self.choices.of(&by_ms)).clamp(0, LAST_MS)
    }

    fn source(&mut self) -> Option<String> {
        self.choices.of(&[None, Some(0), Some(1), Some(2)]).map(|at: usize| SOURCES[at].to_owned())
    }

    fn event(&mut self) -> Event {
        let values = [1, -1, 0, 7, i64::MAX, i64::MIN, i64::MAX / 2, i64::MIN / 2 - 1];
        if self.choices.below(6) == 0
            && let Some(event) = self.again()
        {
            return event;
        }
        let event = Event {
            id: self.earlier.len().to_string(),
            key: self.choices.of(&KEYS).to_owned(),
            timestamp_ms: self.time_ms(),
            value: self.choices.of(&values),
            source: self.source(),
        };
        self.last_ms = event.timestamp_ms;
        self.earlier.push(event.clone());
        event
    }

    /// One of the last few, now and then with something else.
    fn again(&mut self) -> Option<Event> {
        let back = 1 + self.choices.below(16);
        let mut event = self.earlier.get(self.earlier.len().checked_sub(back)?)?.clone();
        event.source = self.source();
        match self.choices.below(12) {
            0 => event.value ^= 1,
            1 => event.timestamp_ms ^= 1,
            2 => event.key.push('!'),
            _ => {}
        }
        event.timestamp_ms = event.timestamp_ms.min(LAST_MS);
        Some(event)
    }

    fn act(&mut self) -> Step {
        let which = self.choices.of(&[Which::All, Which::Odd]);
        match self.choices.below(8) {
            0 => Step::Advance(self.time_ms()),
            1..=2 => {
                let mask = self.choices.below(8);
                let named = |(at, _): &(usize, &&str)| mask >> at & 1 == 1;
                let sources = SOURCES.iter().enumerate().filter(named);
                let sources = sources.map(|(_, source)| (*source).to_owned()).collect();
                Step::Presence(sources, self.choices.of(&["idle", "active", "declared"]))
            }
            3 => {
                self.now_ms = self.time_ms();
                Step::Clock(self.now_ms)
            }
            4 => Step::Release(which),
            5 => Step::Discard(which),
            _ => Step::Apply(which),
        }
    }
}
