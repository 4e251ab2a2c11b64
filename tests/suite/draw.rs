//! Draws histories from a seed: events of all kinds, repeats, contradictions, and acts without
//! a file.

use crate::model::{Event, Policy, Settings};

/// The time of day in which they begin.
pub const NOW_MS: i64 = 50_000_000;

/// Numbers from a seed (splitmix64).
pub struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: i64) -> i64 {
        (self.next() % bound as u64) as i64
    }

    pub fn one_in(&mut self, bound: i64) -> bool {
        self.below(bound) == 0
    }

    fn of<'o, T>(&mut self, options: &'o [T]) -> &'o T {
        &options[self.below(options.len() as i64) as usize]
    }
}

/// What happens to a store.
#[derive(Clone, Debug)]
pub enum Step {
    Event(Event),
    Advance(i64),
    /// These sources are declared, fall idle or are back.
    Presence(Vec<String>, &'static str),
    /// The time of day is another.
    Clock(i64),
    /// Held events are judged again.
    Release(Which),
    /// Held events are dropped.
    Discard(Which),
    /// Late events become corrections.
    Apply(Which),
}

/// Which of the kept events are meant: all, or those whose length of id or key is odd.
#[derive(Clone, Copy, Debug)]
pub enum Which {
    All,
    Odd,
}

impl Which {
    pub fn takes(self, name: &str) -> bool {
        match self {
            Which::All => true,
            Which::Odd => name.len() % 2 == 1,
        }
    }
}

/// How events are drawn.
pub struct Draw {
    pub random: Random,
    pub settings: Settings,
    earlier: Vec<Event>,
    /// About which time events are by now.
    pub time_ms: i64,
    pub now_ms: i64,
    /// Whether some values are so large that sums leave their range.
    pub huge: bool,
    /// How far events are out of order, in ms.
    spread_ms: i64,
    /// Whether there are acts without a file.
    pub acts: bool,
}

const KEYS: [&str; 7] = ["checkout", "search", "a\0b", "a", "ключ", "\"quoted\"\n", " "];
const SOURCES: [&str; 4] = ["press-1", "press-2", "default", "slow"];

impl Draw {
    pub fn new(seed: u64) -> Draw {
        let mut random = Random(seed);
        let window_ms = *random.of(&[1, 7, 1000, 1000, 60_000]);
        let lateness_ms = *random.of(&[0, 0, 1, 500, 5000]);
        let settings = Settings {
            strict: random.one_in(2),
            policy: *random.of(&[Policy::Aside, Policy::Correct, Policy::Drop]),
            max_future_ms: *random.of(&[Some(86_400_000), Some(0), Some(1000), None]),
            dedup_horizon_ms: *random.of(&[None, None, Some(0), Some(3000)]),
            ..Settings::new(window_ms, lateness_ms)
        };
        // a horizon is at least a window and the lateness
        let least_ms = window_ms + lateness_ms;
        let dedup_horizon_ms = settings.dedup_horizon_ms.map(|more_ms| least_ms + more_ms);
        let spread_ms = 1 + *random.of(&[0, lateness_ms, 2 * (window_ms + lateness_ms)]);
        Draw {
            settings: Settings { dedup_horizon_ms, ..settings },
            earlier: Vec::new(),
            time_ms: 0,
            now_ms: NOW_MS,
            huge: random.one_in(2),
            spread_ms,
            acts: true,
            random,
        }
    }

    pub fn step(&mut self) -> Step {
        if self.acts && self.random.one_in(25) {
            return self.act();
        }
        let event = match self.random.below(20) {
            0..=2 if !self.earlier.is_empty() => self.again(),
            _ => self.new_event(),
        };
        Step::Event(event)
    }

    fn act(&mut self) -> Step {
        let which = *self.random.of(&[Which::All, Which::Odd]);
        match self.random.below(20) {
            0..=3 => {
                let near_ms = self.time_ms - self.settings.lateness_ms;
                Step::Advance((near_ms + self.random.below(800) - 400).max(0))
            }
            4..=11 => {
                let sources = SOURCES.iter().filter(|_| self.random.one_in(2));
                let sources = sources.map(|source| (*source).to_owned()).collect();
                let kinds = ["idle", "idle", "idle", "active", "active", "declared"];
                let kind: &&str = self.random.of(&kinds);
                Step::Presence(sources, kind)
            }
            12..=13 => {
                self.now_ms = self.now_ms.max(self.time_ms) + 800_000;
                Step::Clock(self.now_ms)
            }
            14..=15 => Step::Release(which),
            16 => Step::Discard(which),
            _ => Step::Apply(which),
        }
    }

    /// Events are about that time from now on, if that is later: what was released is far ahead.
    pub fn reach(&mut self, watermark_ms: i64) {
        self.time_ms = self.time_ms.max(watermark_ms);
    }

    fn again(&mut self) -> Event {
        let back = self.earlier.len().min(*self.random.of(&[5, 500, 100_000]));
        let at = self.earlier.len() - 1 - self.random.below(back as i64) as usize;
        let mut event = self.earlier[at].clone();
        // another source is no contradiction
        event.source = self.source();
        match self.random.below(60) {
            0 => event.value = event.value.wrapping_add(1),
            1 => event.timestamp_ms += 1,
            2 => event.key.push('!'),
            _ => {}
        }
        event
    }

    fn source(&mut self) -> Option<String> {
        let named = self.random.one_in(3);
        // the slow one comes late, and rarely
        let known = if self.random.one_in(20) { 4 } else { 3 };
        named.then(|| (*self.random.of(&SOURCES[..known])).to_owned())
    }

    fn new_event(&mut self) -> Event {
        self.time_ms += self.random.below(1 + self.settings.window_ms.min(1000) / 4);
        let late_ms = if self.random.one_in(30) { 10 * self.spread_ms } else { self.spread_ms };
        let mut timestamp_ms = (self.time_ms - self.random.below(late_ms)).max(0);
        if self.random.one_in(10) {
            timestamp_ms -= timestamp_ms % self.settings.window_ms;
        }
        if let Some(max_future_ms) = self.settings.max_future_ms
            && self.random.one_in(100)
        {
            timestamp_ms = self.now_ms + max_future_ms + 1 + self.random.below(2) * 1_000_000;
        }
        let small = self.random.below(201) - 100;
        let huge = [i64::MAX, i64::MIN, i64::MAX / 2, i64::MIN / 2, 1, -1, 0];
        let value = match self.huge && self.random.one_in(4) {
            true => *self.random.of(&huge),
            false => small,
        };
        let event = Event {
            id: format!("{}-{}", self.random.of(&KEYS), self.earlier.len()),
            key: (*self.random.of(&KEYS[..6])).to_owned(),
            timestamp_ms,
            value,
            source: self.source(),
        };
        self.earlier.push(event.clone());
        event
    }
}
