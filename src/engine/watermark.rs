//! How far event time has come, for each source and for the store, and which windows that closes.

use std::collections::HashMap;

use super::window;

/// What the store says of event time before a batch is judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The store's watermark W.
    pub watermark_ms: i64,
    /// For each source that was asked for, in that order, the greatest timestamp of its accepted
    /// and late events; none for a source that has had none.
    pub sources: Vec<Option<i64>>,
    /// The least of these over all sources that were not asked for.
    pub others_least_ms: Option<i64>,
    /// The store's clock.
    pub now_ms: i64,
}

/// A move of W that crosses the end of a window, with the event that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// W before.
    pub from_ms: i64,
    /// W after.
    pub to_ms: i64,
    /// The index in its batch of the event that moved it, from 0; none when an operator did.
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
    others_least_ms: Option<i64>,
    // the least over all sources; none when it has to be found anew
    least_ms: Option<i64>,
}

#[derive(Debug)]
struct Source {
    name: String,
    max_timestamp_ms: Option<i64>,
}

impl Watermark {
    pub(super) fn new(window_ms: i64, lateness_ms: i64) -> Watermark {
        Watermark {
            window_ms,
            lateness_ms,
            watermark_ms: 0,
            sources: Vec::new(),
            by_name: HashMap::new(),
            others_least_ms: None,
            least_ms: None,
        }
    }

    /// Forgets the sources of the chunk before: what it made of them is in the store by now.
    pub(super) fn restart(&mut self) {
        self.sources.clear();
        self.by_name.clear();
        self.least_ms = None;
    }

    /// The place of that source, which is added if this chunk has not named it yet.
    pub(super) fn place(&mut self, source: &str) -> usize {
        if let Some(place) = self.by_name.get(source) {
            return *place;
        }
        let place = self.sources.len();
        self.sources.push(Source { name: source.to_owned(), max_timestamp_ms: None });
        self.by_name.insert(source.to_owned(), place);
        place
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|source| source.name.as_str())
    }

    /// Takes over what the store says, for the sources named by this chunk.
    pub(super) fn learn(&mut self, progress: &Progress) {
        self.watermark_ms = self.watermark_ms.max(progress.watermark_ms);
        self.others_least_ms = progress.others_least_ms;
        for (source, known) in self.sources.iter_mut().zip(&progress.sources) {
            source.max_timestamp_ms = *known;
        }
        self.least_ms = None;
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.watermark_ms
    }

    pub(super) fn max_timestamp_ms(&self, place: usize) -> Option<i64> {
        self.sources[place].max_timestamp_ms
    }

    /// After an accepted or late event of that source; the move, if it crosses a window's end.
    pub(super) fn advance(&mut self, place: usize, timestamp_ms: i64, index: u64) -> Option<Move> {
        let before = self.sources[place].max_timestamp_ms;
        if before.is_some_and(|before| before >= timestamp_ms) {
            return None;
        }
        self.sources[place].max_timestamp_ms = Some(timestamp_ms);
        // of many sources only the furthest behind matters, and most events are not of that one
        self.least_ms = match self.least_ms {
            Some(least_ms) if before.is_none() => Some(least_ms.min(timestamp_ms)),
            Some(least_ms) if before.is_some_and(|before| before > least_ms) => Some(least_ms),
            _ => self.find_least_ms(),
        };
        let least_ms = self.least_ms?;
        let from_ms = self.watermark_ms;
        let to_ms = from_ms.max(least_ms - self.lateness_ms);
        self.watermark_ms = to_ms;
        window::closing_starts_ms(from_ms, to_ms, self.window_ms).map(|_| Move {
            from_ms,
            to_ms,
            event_index: Some(index),
        })
    }

    fn find_least_ms(&self) -> Option<i64> {
        let here = self.sources.iter().filter_map(|source| source.max_timestamp_ms);
        here.chain(self.others_least_ms).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watermark(others_least_ms: Option<i64>) -> Watermark {
        let mut watermark = Watermark::new(1000, 500);
        watermark.place("a");
        watermark.learn(&Progress { sources: vec![None], others_least_ms, ..Progress::default() });
        watermark
    }

    #[test]
    fn one_source_moves_it_alone_and_never_back() {
        let mut w = watermark(None);
        assert_eq!(w.advance(0, 100, 0), None);
        assert_eq!(w.now_ms(), 0);
        let moved = w.advance(0, 1600, 1);
        assert_eq!(moved, Some(Move { from_ms: 0, to_ms: 1100, event_index: Some(1) }));
        assert_eq!(w.advance(0, 900, 2), None);
        assert_eq!(w.now_ms(), 1100);
    }

    #[test]
    fn the_slowest_source_holds_it_back() {
        let mut w = watermark(Some(800));
        w.advance(0, 9000, 0);
        assert_eq!(w.now_ms(), 300);
        let b = w.place("b");
        w.advance(b, 700, 1);
        assert_eq!(w.now_ms(), 300);
    }

    #[test]
    fn each_chunk_begins_with_what_the_store_says() {
        let mut w = watermark(None);
        w.advance(0, 5000, 0);
        w.restart();
        w.place("b");
        // what the chunk before made of "a" is among the others by now
        let sources = vec![Some(4000)];
        let others_least_ms = Some(5000);
        w.learn(&Progress { watermark_ms: 4500, sources, others_least_ms, now_ms: 0 });
        assert_eq!((w.now_ms(), w.max_timestamp_ms(0)), (4500, Some(4000)));
        w.advance(0, 9000, 1);
        assert_eq!(w.now_ms(), 4500);
    }

    #[test]
    fn the_least_is_right_however_sources_overtake_each_other() {
        let mut w = watermark(None);
        let places: Vec<usize> = ["a", "b", "c"].iter().map(|name| w.place(name)).collect();
        let mut greatest = [None; 3];
        let mut expected = 0;
        let mut random = 7_u64;
        for index in 0..2000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (source, timestamp_ms) =
                ((random >> 33) as usize % 3, (random >> 40) as i64 % 50_000);
            greatest[source] = greatest[source].max(Some(timestamp_ms));
            let least = greatest.iter().flatten().min().copied().unwrap_or(0);
            expected = expected.max(least - 500);
            w.advance(places[source], timestamp_ms, index);
            assert_eq!(w.now_ms(), expected, "after event {index}");
        }
    }
}
