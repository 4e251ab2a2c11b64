//! How far event time has come, for each source and for the store, and which windows that closes.

use std::collections::HashMap;

use super::window;

/// What the store says of event time before a batch is judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The watermark of the store.
    pub watermark_ms: i64,
    /// Each source that was asked for, in that order.
    pub sources: Vec<Known>,
    /// All sources that were not asked for, taken together.
    pub others: Others,
    /// How many sources are known: see [`Known::is_known`].
    pub source_count: u64,
    /// The store's clock.
    pub now_ms: i64,
}

/// What is known of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The greatest timestamp of its accepted and late events; none when it has had none.
    pub max_timestamp_ms: Option<i64>,
    /// Events of it came, or it was declared: it counts among the sources.
    pub is_known: bool,
    /// It was declared: it holds the watermark back even before its first event.
    pub declared: bool,
    /// Nothing came from it for too long, or it was retired: it does not hold the watermark back.
    pub idle: bool,
    /// It is idle because an operator retired it.
    pub retired: bool,
    /// Whether it holds the watermark back because files of it wait in the inbox.
    pub expected: Expected,
}

impl Known {
    /// The watermark stays where it is until the first accepted or late event of this source.
    pub fn is_awaited(&self) -> bool {
        let is_named = self.declared || self.expected == Expected::Now;
        is_named && !self.idle && self.max_timestamp_ms.is_none()
    }
}

/// Whether a source is expected because files of it wait in the inbox: once in a store's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// It never was.
    #[default]
    Never,
    /// It is: the watermark waits for its first accepted or late event.
    Now,
    /// It was. It sent something, or its files brought nothing.
    Over,
}

/// Sources taken together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// The least of the greatest timestamps of those that are not idle.
    pub least_active_ms: Option<i64>,
    /// The greatest of the greatest timestamps of all, idle or not.
    pub greatest_ms: Option<i64>,
    /// One of them is declared or expected, has sent nothing, and is not idle: the watermark stays
    /// where it is.
    pub any_awaited: bool,
}

/// How a source comes and goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is expected: the watermark waits for its first event.
    Declared,
    /// Nothing came from it for too long: the watermark no longer waits for it.
    Idle,
    /// It is back: the watermark waits for it again.
    Active,
    /// An operator retired it: the watermark does not wait for it until its next event.
    Retired,
    /// Files of it wait in the inbox: the watermark waits for its first event. Only a source that
    /// is not known and was never expected becomes so.
    Expected,
    /// The files for which it was expected brought nothing: the watermark no longer waits for it.
    NotExpected,
}

impl Presence {
    /// The name, as stored and shown.
    pub fn name(self) -> &'static str {
        match self {
            Presence::Declared => "declared",
            Presence::Idle => "idle",
            Presence::Active => "active",
            Presence::Retired => "retired",
            Presence::Expected => "expected",
            Presence::NotExpected => "not_expected",
        }
    }
}

/// A move of the watermark that crosses the end of a window, with the event that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The watermark before.
    pub from_ms: i64,
    /// The watermark after.
    pub to_ms: i64,
    /// The index in its batch of the event that moved it, from 0; none when no event did.
    pub event_index: Option<u64>,
}

/// The watermark while one batch is judged. It never moves back.
#[derive(Debug)]
pub(super) struct Watermark {
    window_ms: i64,
    lateness_ms: i64,
    watermark_ms: i64,
    sources: Vec<Source>,
    by_name: HashMap<String, usize>,
    others: Others,
    // over all sources; none when it has to be found anew
    waited_for: Option<WaitedFor>,
}

#[derive(Debug)]
struct Source {
    name: String,
    known: Known,
}

/// What those sources have come to that the watermark waits for.
#[derive(Clone, Copy, Debug)]
struct WaitedFor {
    least_ms: Option<i64>,
    any_awaited: bool,
}

impl Watermark {
    pub(super) fn new(window_ms: i64, lateness_ms: i64) -> Watermark {
        Watermark {
            window_ms,
            lateness_ms,
            watermark_ms: 0,
            sources: Vec::new(),
            by_name: HashMap::new(),
            others: Others::default(),
            waited_for: None,
        }
    }

    /// Forgets the sources of the chunk before: what it made of them is in the store by now.
    pub(super) fn restart(&mut self) {
        self.sources.clear();
        self.by_name.clear();
        self.waited_for = None;
    }

    /// The place of that source, which is added if this chunk has not named it yet.
    pub(super) fn place(&mut self, source: &str) -> usize {
        if let Some(place) = self.by_name.get(source) {
            return *place;
        }
        let place = self.sources.len();
        let known = Known::default();
        self.sources.push(Source { name: source.to_owned(), known });
        self.by_name.insert(source.to_owned(), place);
        place
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|source| source.name.as_str())
    }

    /// For each place where its source stands in the order of the names.
    pub(super) fn ranks(&self) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.sources.len()).collect();
        places.sort_unstable_by_key(|place| self.name(*place));
        let mut ranks = vec![0; places.len()];
        for (rank, place) in places.into_iter().enumerate() {
            ranks[place] = rank;
        }
        ranks
    }

    pub(super) fn name(&self, place: usize) -> &str {
        &self.sources[place].name
    }

    /// Takes over what the store says, for the sources named by this chunk.
    pub(super) fn learn(&mut self, progress: &Progress) {
        self.watermark_ms = self.watermark_ms.max(progress.watermark_ms);
        self.others = progress.others;
        for (source, known) in self.sources.iter_mut().zip(&progress.sources) {
            source.known = *known;
        }
        self.waited_for = None;
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.watermark_ms
    }

    pub(super) fn known(&self, place: usize) -> Known {
        self.sources[place].known
    }

    /// Changes how a source stands to the watermark; says whether that was a change.
    pub(super) fn set_presence(&mut self, place: usize, presence: Presence) -> bool {
        let known = &mut self.sources[place].known;
        let before = *known;
        match presence {
            Presence::Declared => (known.declared, known.is_known) = (true, true),
            Presence::Idle => known.idle = true,
            Presence::Active => (known.idle, known.retired) = (false, false),
            Presence::Retired => (known.idle, known.retired) = (true, true),
            Presence::Expected if before.is_known || before.expected != Expected::Never => {}
            Presence::Expected => known.expected = Expected::Now,
            Presence::NotExpected if before.expected != Expected::Now => {}
            Presence::NotExpected => known.expected = Expected::Over,
        }
        let is_change = *known != before;
        if is_change {
            self.waited_for = None;
        }
        is_change
    }

    /// The source is known from now on.
    pub(super) fn admit(&mut self, place: usize) {
        self.sources[place].known.is_known = true;
    }

    /// After an accepted or late event of that source; the move, if it crosses a window's end.
    pub(super) fn advance(&mut self, place: usize, timestamp_ms: i64, index: u64) -> Option<Move> {
        let known = &mut self.sources[place].known;
        let before = known.max_timestamp_ms;
        if before.is_some_and(|before| before >= timestamp_ms) {
            return None;
        }
        let was_awaited = known.is_awaited();
        known.max_timestamp_ms = Some(timestamp_ms);
        if known.expected == Expected::Now {
            known.expected = Expected::Over;
        }
        // of many sources only the furthest behind matters, and most events are not of that one
        self.waited_for = match (self.waited_for, before) {
            _ if known.idle => None,
            (Some(all), None) if !was_awaited => {
                let least_ms = all.least_ms.map_or(timestamp_ms, |least| least.min(timestamp_ms));
                Some(WaitedFor { least_ms: Some(least_ms), ..all })
            }
            (Some(all), Some(_)) if before > all.least_ms => Some(all),
            _ => None,
        };
        self.catch_up(Some(index))
    }

    /// Moves the watermark to where the sources let it be; the move, if it crosses a window's end.
    pub(super) fn catch_up(&mut self, event_index: Option<u64>) -> Option<Move> {
        let from_ms = self.watermark_ms;
        let to_ms = from_ms.max(self.reached_ms()? - self.lateness_ms);
        self.watermark_ms = to_ms;
        window::closing_starts_ms(from_ms, to_ms, self.window_ms).map(|_| Move {
            from_ms,
            to_ms,
            event_index,
        })
    }

    /// The timestamp that all sources which are waited for have reached; when none is waited for,
    /// the greatest of all. None when one is awaited that has sent nothing yet.
    fn reached_ms(&mut self) -> Option<i64> {
        let all = match self.waited_for {
            Some(all) => all,
            None => self.find_waited_for(),
        };
        self.waited_for = Some(all);
        match all.least_ms {
            _ if all.any_awaited => None,
            None => {
                let here = self.sources.iter().filter_map(|source| source.known.max_timestamp_ms);
                here.chain(self.others.greatest_ms).max()
            }
            least_ms => least_ms,
        }
    }

    fn find_waited_for(&self) -> WaitedFor {
        let Others { least_active_ms, any_awaited, .. } = self.others;
        let mut all = WaitedFor { least_ms: least_active_ms, any_awaited };
        for Source { known, .. } in self.sources.iter().filter(|source| !source.known.idle) {
            match known.max_timestamp_ms {
                Some(ms) => all.least_ms = Some(all.least_ms.map_or(ms, |least| least.min(ms))),
                None => all.any_awaited |= known.is_awaited(),
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watermark(others: Others) -> Watermark {
        let mut watermark = Watermark::new(1000, 500);
        watermark.place("a");
        let sources = vec![Known::default()];
        watermark.learn(&Progress { sources, others, ..Progress::default() });
        watermark
    }

    fn others(least_active_ms: Option<i64>) -> Others {
        Others { least_active_ms, greatest_ms: least_active_ms, any_awaited: false }
    }

    #[test]
    fn one_source_moves_it_alone_and_never_back() {
        let mut w = watermark(Others::default());
        assert_eq!(w.advance(0, 100, 0), None);
        assert_eq!(w.now_ms(), 0);
        let moved = w.advance(0, 1600, 1);
        assert_eq!(moved, Some(Move { from_ms: 0, to_ms: 1100, event_index: Some(1) }));
        assert_eq!(w.advance(0, 900, 2), None);
        assert_eq!(w.now_ms(), 1100);
    }

    #[test]
    fn the_slowest_source_holds_it_back() {
        let mut w = watermark(others(Some(800)));
        w.advance(0, 9000, 0);
        assert_eq!(w.now_ms(), 300);
        let b = w.place("b");
        w.advance(b, 700, 1);
        assert_eq!(w.now_ms(), 300);
    }

    #[test]
    fn each_chunk_begins_with_what_the_store_says() {
        let mut w = watermark(Others::default());
        w.advance(0, 5000, 0);
        w.restart();
        w.place("b");
        // what the chunk before made of "a" is among the others by now
        let sources = vec![Known { max_timestamp_ms: Some(4000), ..Known::default() }];
        let others = others(Some(5000));
        w.learn(&Progress { watermark_ms: 4500, sources, others, ..Progress::default() });
        assert_eq!((w.now_ms(), w.known(0).max_timestamp_ms), (4500, Some(4000)));
        w.advance(0, 9000, 1);
        assert_eq!(w.now_ms(), 4500);
    }

    #[test]
    fn the_watermark_is_right_however_sources_overtake_each_other() {
        let mut w = watermark(Others::default());
        let places: Vec<usize> = ["a", "b", "c"].iter().map(|name| w.place(name)).collect();
        let mut model = [Known::default(); 3];
        let mut expected = 0;
        let mut random = 7_u64;
        for index in 0..5000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (of, ms) = ((random >> 33) as usize % 3, (random >> 40) as i64 % 50_000);
            let presence = match (random >> 20) % 16 {
                0 => Some(Presence::Declared),
                1..4 => Some(Presence::Idle),
                4..9 => Some(Presence::Active),
                _ => None,
            };
            if let Some(presence) = presence {
                w.set_presence(places[of], presence);
                model[of].declared |= presence == Presence::Declared;
                model[of].idle = match presence {
                    Presence::Declared => model[of].idle,
                    other => other == Presence::Idle,
                };
                w.catch_up(None);
            } else {
                model[of].max_timestamp_ms = model[of].max_timestamp_ms.max(Some(ms));
                w.advance(places[of], ms, index);
            }
            let active = || model.iter().filter(|known| !known.idle);
            let awaited = active().any(|k| k.declared && k.max_timestamp_ms.is_none());
            let least = active().filter_map(|known| known.max_timestamp_ms).min();
            let greatest = model.iter().filter_map(|known| known.max_timestamp_ms).max();
            if let (false, Some(reached)) = (awaited, least.or(greatest)) {
                expected = expected.max(reached - 500);
            }
            assert_eq!(w.now_ms(), expected, "after step {index}");
        }
    }

    #[test]
    fn an_idle_source_holds_nothing_until_it_is_back() {
        let mut w = watermark(Others { greatest_ms: Some(100), ..Others::default() });
        w.advance(0, 3000, 0);
        assert_eq!(w.now_ms(), 2500, "the other one is idle at 100");
        let b = w.place("b");
        w.set_presence(b, Presence::Idle);
        w.advance(0, 4000, 1);
        assert_eq!(w.now_ms(), 3500);
        assert!(w.set_presence(b, Presence::Active));
        assert!(!w.set_presence(b, Presence::Active), "it is active already");
        w.advance(b, 200, 2);
        w.advance(0, 9000, 3);
        assert_eq!(w.now_ms(), 3500);
    }

    #[test]
    fn when_all_are_idle_the_greatest_counts_in_any_order() {
        for order in [[0, 1], [1, 0]] {
            let mut w = watermark(Others::default());
            w.place("b");
            w.advance(0, 5500, 0);
            w.sources[1].known.max_timestamp_ms = Some(4500);
            for place in order {
                w.set_presence(place, Presence::Idle);
                w.catch_up(None);
            }
            assert_eq!(w.now_ms(), 5000, "{order:?}");
        }
    }

    #[test]
    fn a_declared_source_is_waited_for() {
        let mut w = watermark(Others::default());
        let b = w.place("b");
        w.set_presence(b, Presence::Declared);
        w.advance(0, 9000, 0);
        assert_eq!(w.now_ms(), 0);
        w.set_presence(b, Presence::Idle);
        let moved = w.catch_up(None);
        assert_eq!(moved, Some(Move { from_ms: 0, to_ms: 8500, event_index: None }));
        let mut w = watermark(Others { any_awaited: true, ..Others::default() });
        w.advance(0, 9000, 0);
        assert_eq!(w.now_ms(), 0);
    }
}
