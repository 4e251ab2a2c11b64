//! What the contract says becomes of events, as plain maps: the stupid twin that the real thing is
//! tested against. Written from the contract alone; it shares no code with the product.

use std::collections::{BTreeMap, HashMap};

/// One event, as a producer means it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub id: String,
    pub key: String,
    pub timestamp_ms: i64,
    pub value: i64,
    /// Its own source, which wins over the batch's.
    pub source: Option<String>,
}

impl Event {
    /// An event without a source of its own.
    pub fn new(id: impl Into<String>, key: &str, timestamp_ms: i64, value: i64) -> Event {
        Event { id: id.into(), key: key.to_owned(), timestamp_ms, value, source: None }
    }
}

/// The settings of a store.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub window_ms: i64,
    pub lateness_ms: i64,
    /// Late when older than W, not only when the window is final.
    pub strict: bool,
    /// Late events are kept.
    pub aside: bool,
    pub max_future_ms: Option<i64>,
    pub dedup_horizon_ms: Option<i64>,
}

impl Settings {
    /// Those widths, and the defaults.
    pub fn new(window_ms: i64, lateness_ms: i64) -> Settings {
        Settings {
            window_ms,
            lateness_ms,
            strict: false,
            aside: true,
            max_future_ms: Some(86_400_000),
            dedup_horizon_ms: None,
        }
    }
}

/// Why a batch is refused: the code, and the index of the event.
pub type Refusal = (&'static str, u64);

/// How often each outcome took place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub accepted: u64,
    pub late: u64,
    pub duplicate: u64,
    pub future: u64,
    pub expired: u64,
}

/// What a batch that was taken in is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub counts: Counts,
    pub watermark_ms: i64,
    pub windows_closed: u64,
}

/// What a window holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    pub count: i64,
    pub sum: i64,
    pub min: i64,
    pub max: i64,
}

/// A late event that was kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Late {
    pub id: String,
    pub key: String,
    pub timestamp_ms: i64,
    pub value: i64,
    pub window_start_ms: i64,
    pub watermark_ms: i64,
    pub source: String,
}

/// All that can be seen of a store, without the numbers of batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub watermark_ms: i64,
    pub counts: Counts,
    /// By start and key.
    pub windows: BTreeMap<(i64, String), Totals>,
    /// In the order of arrival.
    pub late: Vec<Late>,
    /// How many events are held.
    pub held: u64,
    /// The greatest timestamp of each source that has one.
    pub sources: BTreeMap<String, i64>,
}

/// A store.
#[derive(Clone, Debug)]
pub struct Model {
    pub settings: Settings,
    pub state: State,
    ledger: HashMap<String, (String, i64, i64)>,
}

impl Model {
    /// An empty one.
    pub fn new(settings: Settings) -> Model {
        Model { settings, state: State::default(), ledger: HashMap::new() }
    }

    /// Takes a batch of that source in at that time of day, or refuses it and stays as it is.
    pub fn ingest(
        &mut self,
        source: &str,
        batch: &[Event],
        now_ms: i64,
    ) -> Result<Answer, Refusal> {
        let before = self.state.clone();
        let mut ledger_before = Vec::new();
        let mut counts = Counts::default();
        for (index, event) in batch.iter().enumerate() {
            ledger_before.push((event.id.clone(), self.ledger.get(&event.id).cloned()));
            if let Err(code) = self.take(source, event, now_ms, &mut counts) {
                self.state = before;
                // backwards: an id may have changed more than once
                for (id, entry) in ledger_before.into_iter().rev() {
                    match entry {
                        Some(entry) => self.ledger.insert(id, entry),
                        None => self.ledger.remove(&id),
                    };
                }
                return Err((code, index as u64));
            }
        }
        let all = &mut self.state.counts;
        all.accepted += counts.accepted;
        all.late += counts.late;
        all.duplicate += counts.duplicate;
        all.future += counts.future;
        all.expired += counts.expired;
        let watermark_ms = self.state.watermark_ms;
        let windows_closed = self.closed(before.watermark_ms, watermark_ms);
        Ok(Answer { counts, watermark_ms, windows_closed })
    }

    /// Sets W by hand; false when that would take it back. Says how many windows that closed.
    pub fn advance(&mut self, to_ms: i64) -> Option<u64> {
        let from_ms = self.state.watermark_ms;
        if to_ms < from_ms {
            return None;
        }
        self.state.watermark_ms = to_ms;
        Some(self.closed(from_ms, to_ms))
    }

    /// Whether a window is final.
    pub fn is_final(&self, start_ms: i64) -> bool {
        self.end_ms(start_ms) <= i128::from(self.state.watermark_ms)
    }

    fn end_ms(&self, start_ms: i64) -> i128 {
        i128::from(start_ms) + i128::from(self.settings.window_ms)
    }

    fn closed(&self, from_ms: i64, to_ms: i64) -> u64 {
        let ends = self.state.windows.keys().map(|(start_ms, _)| self.end_ms(*start_ms));
        ends.filter(|end| i128::from(from_ms) < *end && *end <= i128::from(to_ms)).count() as u64
    }

    fn take(
        &mut self,
        batch_source: &str,
        event: &Event,
        now_ms: i64,
        counts: &mut Counts,
    ) -> Result<(), &'static str> {
        let settings = self.settings;
        let watermark_ms = self.state.watermark_ms;
        let expired = |timestamp_ms: i64| {
            settings.dedup_horizon_ms.is_some_and(|horizon| timestamp_ms < watermark_ms - horizon)
        };
        if expired(event.timestamp_ms) {
            counts.expired += 1;
            return Ok(());
        }
        let payload = (event.key.clone(), event.timestamp_ms, event.value);
        if let Some(known) = self.ledger.get(&event.id).filter(|known| !expired(known.1)) {
            if *known != payload {
                return Err("conflict");
            }
            counts.duplicate += 1;
            return Ok(());
        }
        if settings.max_future_ms.is_some_and(|max| event.timestamp_ms > now_ms + max) {
            self.ledger.insert(event.id.clone(), payload);
            self.state.held += 1;
            counts.future += 1;
            return Ok(());
        }
        let start_ms = event.timestamp_ms - event.timestamp_ms % settings.window_ms;
        let source = event.source.clone().unwrap_or_else(|| batch_source.to_owned());
        let late = match settings.strict {
            true => event.timestamp_ms < watermark_ms,
            false => self.is_final(start_ms),
        };
        if late {
            counts.late += 1;
            if settings.aside {
                self.state.late.push(Late {
                    id: event.id.clone(),
                    key: event.key.clone(),
                    timestamp_ms: event.timestamp_ms,
                    value: event.value,
                    window_start_ms: start_ms,
                    watermark_ms,
                    source: source.clone(),
                });
            }
        } else {
            counts.accepted += 1;
            self.count(start_ms, event)?;
        }
        self.ledger.insert(event.id.clone(), payload);
        let newest = self.state.sources.entry(source).or_insert(event.timestamp_ms);
        *newest = (*newest).max(event.timestamp_ms);
        let slowest_ms = self.state.sources.values().min().unwrap();
        self.state.watermark_ms = watermark_ms.max(slowest_ms.saturating_sub(settings.lateness_ms));
        Ok(())
    }

    fn count(&mut self, start_ms: i64, event: &Event) -> Result<(), &'static str> {
        let value = event.value;
        let window = (start_ms, event.key.clone());
        let after = match self.state.windows.get(&window) {
            None => Totals { count: 1, sum: value, min: value, max: value },
            Some(before) => Totals {
                count: before.count.checked_add(1).ok_or("overflow")?,
                sum: before.sum.checked_add(value).ok_or("overflow")?,
                min: before.min.min(value),
                max: before.max.max(value),
            },
        };
        self.state.windows.insert(window, after);
        Ok(())
    }
}
