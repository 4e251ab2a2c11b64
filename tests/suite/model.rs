//! What the contract says becomes of events, as plain maps: the stupid twin that the real thing is
//! tested against. Written from the contract alone; it shares no code with the product.

use std::collections::{BTreeMap, BTreeSet, HashMap};

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

/// What becomes of late events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Aside,
    Drop,
    Correct,
}

impl Policy {
    /// The public name.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Aside => "aside",
            Policy::Drop => "drop",
            Policy::Correct => "correct",
        }
    }
}

/// The settings of a store.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub window_ms: i64,
    pub lateness_ms: i64,
    /// Late when older than W, not only when the window is final.
    pub strict: bool,
    pub policy: Policy,
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
            policy: Policy::Aside,
            max_future_ms: Some(86_400_000),
            dedup_horizon_ms: None,
        }
    }

    /// What `init` is told beside the widths.
    pub fn flags(&self) -> Vec<String> {
        let or_off = |ms: Option<i64>| ms.map_or_else(|| "off".to_owned(), |ms| ms.to_string());
        let rule = if self.strict { "event" } else { "window" };
        let (guard, horizon) = (or_off(self.max_future_ms), or_off(self.dedup_horizon_ms));
        let policy = self.policy.name();
        ["--late-rule", rule, "--late-policy", policy]
            .into_iter()
            .chain(["--max-future-ms", &guard, "--dedup-horizon-ms", &horizon])
            .map(str::to_owned)
            .collect()
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

impl Counts {
    /// The sum of both.
    pub fn add(&mut self, more: &Counts) {
        self.accepted += more.accepted;
        self.late += more.late;
        self.duplicate += more.duplicate;
        self.future += more.future;
        self.expired += more.expired;
    }
}

/// What a batch that was taken in is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub counts: Counts,
    pub watermark_ms: i64,
    pub windows_closed: u64,
}

/// What an act without a file is answered with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// How many sources or kept events it concerned.
    pub concerned: u64,
    pub counts: Counts,
    pub watermark_ms: i64,
    pub windows_closed: u64,
}

/// A window: its start and its key.
pub type Window = (i64, String);

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
    /// It is part of a revision.
    pub applied: bool,
}

/// All that can be seen of a store, without the numbers of batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub watermark_ms: i64,
    pub counts: Counts,
    /// By start and key.
    pub windows: BTreeMap<Window, Totals>,
    /// In the order of arrival.
    pub late: Vec<Late>,
    /// Which events are held, each with its source beside it, in the order of arrival.
    pub held: Vec<(Event, String)>,
    /// The greatest timestamp of each source that has one.
    pub sources: BTreeMap<String, i64>,
    pub declared: BTreeSet<String>,
    pub idle: BTreeSet<String>,
    /// How each source came and went, in order.
    pub presence: BTreeMap<String, Vec<&'static str>>,
    /// The revision of each window that was corrected.
    pub revisions: BTreeMap<Window, u64>,
    /// What these held before, by revision.
    pub earlier: BTreeMap<Window, Vec<(u64, Totals)>>,
}

/// A store.
#[derive(Clone, Debug)]
pub struct Model {
    pub settings: Settings,
    pub state: State,
    ledger: HashMap<String, (String, i64, i64)>,
    /// The windows that this batch has corrected.
    revised: BTreeSet<Window>,
    /// How many windows this batch has closed.
    closed: u64,
    /// Sources of which only files are known.
    expected: BTreeSet<String>,
}

impl Model {
    /// An empty one.
    pub fn new(settings: Settings) -> Model {
        Model {
            settings,
            state: State::default(),
            ledger: HashMap::new(),
            revised: BTreeSet::new(),
            closed: 0,
            expected: BTreeSet::new(),
        }
    }

    /// Takes a batch of that source in at that time of day, or refuses it and stays as it is.
    pub fn ingest(
        &mut self,
        source: &str,
        batch: &[Event],
        now_ms: i64,
    ) -> Result<Answer, Refusal> {
        let before = self.begin();
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
        self.state.counts.add(&counts);
        let watermark_ms = self.state.watermark_ms;
        Ok(Answer { counts, watermark_ms, windows_closed: self.closed })
    }

    /// Begins a batch; what to go back to.
    fn begin(&mut self) -> State {
        self.revised.clear();
        self.closed = 0;
        self.state.clone()
    }

    /// Sets W by hand; none when that would take it back. Says how many windows that closed.
    pub fn advance(&mut self, to_ms: i64) -> Option<u64> {
        self.begin();
        let moves = to_ms >= self.state.watermark_ms;
        moves.then(|| self.move_to(to_ms)).map(|()| self.closed)
    }

    /// Lets sources come and go: `declared`, `idle`, `active`, `expected` or `not_expected`.
    pub fn change_presence(&mut self, sources: &[String], presence: &'static str) -> Done {
        self.begin();
        let mut concerned = 0;
        for source in sources {
            let changed = match presence {
                "declared" => self.state.declared.insert(source.clone()),
                "expected" => self.expected.insert(source.clone()),
                "not_expected" => self.expected.remove(source),
                "idle" => self.state.idle.insert(source.clone()),
                _ => self.state.idle.remove(source),
            };
            if changed {
                concerned += 1;
                self.state.presence.entry(source.clone()).or_default().push(presence);
            }
        }
        if concerned > 0 {
            self.catch_up();
        }
        self.done(concerned, Counts::default())
    }

    /// Judges the held events that are wanted again.
    pub fn release(
        &mut self,
        wanted: impl Fn(&Event) -> bool,
        now_ms: i64,
    ) -> Result<Done, &'static str> {
        let before = self.begin();
        let (mut counts, mut concerned) = (Counts::default(), 0);
        for (event, source) in std::mem::take(&mut self.state.held) {
            if !wanted(&event) || self.is_future(&event, now_ms) && !self.is_expired(&event) {
                self.state.held.push((event, source));
                continue;
            }
            concerned += 1;
            self.state.counts.future -= 1;
            let outcome = match self.is_expired(&event) {
                true => {
                    counts.expired += 1;
                    Ok(())
                }
                false => self.place(&event, &source, &mut counts),
            };
            if let Err(code) = outcome {
                self.state = before;
                return Err(code);
            }
        }
        self.state.counts.add(&counts);
        Ok(self.done(concerned, counts))
    }

    /// Drops the held events that are wanted.
    pub fn discard(&mut self, wanted: impl Fn(&Event) -> bool) -> Done {
        self.begin();
        let all = self.state.held.len();
        self.state.held.retain(|(event, _)| !wanted(event));
        self.done((all - self.state.held.len()) as u64, Counts::default())
    }

    /// Corrects windows by the late events that are wanted, each once.
    pub fn apply(&mut self, wanted: impl Fn(&str) -> bool) -> Result<Done, &'static str> {
        let before = self.begin();
        let mut concerned = 0;
        for at in 0..self.state.late.len() {
            let late = self.state.late[at].clone();
            if late.applied || !wanted(&late.key) || !self.is_final(late.window_start_ms) {
                continue;
            }
            concerned += 1;
            self.state.late[at].applied = true;
            let event = Event::new(late.id, &late.key, late.timestamp_ms, late.value);
            if let Err(code) = self.correct(late.window_start_ms, &event) {
                self.state = before;
                return Err(code);
            }
        }
        Ok(self.done(concerned, Counts::default()))
    }

    fn done(&self, concerned: u64, counts: Counts) -> Done {
        let watermark_ms = self.state.watermark_ms;
        Done { concerned, counts, watermark_ms, windows_closed: self.closed }
    }

    fn is_expired(&self, event: &Event) -> bool {
        let oldest_ms = self.settings.dedup_horizon_ms.map(|ms| self.state.watermark_ms - ms);
        oldest_ms.is_some_and(|oldest_ms| event.timestamp_ms < oldest_ms)
    }

    fn is_future(&self, event: &Event, now_ms: i64) -> bool {
        self.settings.max_future_ms.is_some_and(|max| event.timestamp_ms > now_ms + max)
    }

    /// Whether a window is final.
    pub fn is_final(&self, start_ms: i64) -> bool {
        self.end_ms(start_ms) <= i128::from(self.state.watermark_ms)
    }

    fn end_ms(&self, start_ms: i64) -> i128 {
        i128::from(start_ms) + i128::from(self.settings.window_ms)
    }

    fn move_to(&mut self, to_ms: i64) {
        let from_ms = std::mem::replace(&mut self.state.watermark_ms, to_ms);
        let ends = self.state.windows.keys().map(|(start_ms, _)| self.end_ms(*start_ms));
        let closed =
            ends.filter(|end| i128::from(from_ms) < *end && *end <= i128::from(to_ms)).count();
        self.closed += closed as u64;
    }

    /// Moves W to where the sources let it be.
    fn catch_up(&mut self) {
        let State { sources, declared, idle, watermark_ms, .. } = &self.state;
        let is_active = |name: &String| !idle.contains(name);
        let mut awaited = declared.iter().chain(&self.expected);
        if awaited.any(|name| is_active(name) && !sources.contains_key(name)) {
            return;
        }
        let active = sources.iter().filter(|(name, _)| is_active(name)).map(|(_, ms)| ms);
        let Some(reached_ms) = active.min().or(sources.values().max()) else { return };
        let to_ms = reached_ms.saturating_sub(self.settings.lateness_ms);
        if to_ms > *watermark_ms {
            self.move_to(to_ms);
        }
    }

    fn take(
        &mut self,
        batch_source: &str,
        event: &Event,
        now_ms: i64,
        counts: &mut Counts,
    ) -> Result<(), &'static str> {
        let source = event.source.clone().unwrap_or_else(|| batch_source.to_owned());
        // it is back, whatever becomes of the event
        if self.state.idle.remove(&source) {
            self.state.presence.entry(source.clone()).or_default().push("active");
        }
        if self.is_expired(event) {
            counts.expired += 1;
            return Ok(());
        }
        let payload = (event.key.clone(), event.timestamp_ms, event.value);
        let is_known = |known: &&(String, i64, i64)| {
            !self.is_expired(&Event::new("", "", known.1, 0)) // else it is forgotten
        };
        if let Some(known) = self.ledger.get(&event.id).filter(is_known) {
            if *known != payload {
                return Err("conflict");
            }
            counts.duplicate += 1;
            return Ok(());
        }
        self.ledger.insert(event.id.clone(), payload);
        if self.is_future(event, now_ms) {
            self.state.held.push((Event { source: None, ..event.clone() }, source));
            counts.future += 1;
            return Ok(());
        }
        self.place(event, &source, counts)
    }

    /// Of an event that is new and not ahead of the clock: late or accepted.
    fn place(
        &mut self,
        event: &Event,
        source: &str,
        counts: &mut Counts,
    ) -> Result<(), &'static str> {
        let watermark_ms = self.state.watermark_ms;
        let start_ms = event.timestamp_ms - event.timestamp_ms % self.settings.window_ms;
        let late = match self.settings.strict {
            true => event.timestamp_ms < watermark_ms,
            false => self.is_final(start_ms),
        };
        *(if late { &mut counts.late } else { &mut counts.accepted }) += 1;
        match self.settings.policy {
            Policy::Aside if late => self.state.late.push(Late {
                id: event.id.clone(),
                key: event.key.clone(),
                timestamp_ms: event.timestamp_ms,
                value: event.value,
                window_start_ms: start_ms,
                watermark_ms,
                source: source.to_owned(),
                applied: false,
            }),
            Policy::Drop if late => {}
            Policy::Correct if late && self.is_final(start_ms) => self.correct(start_ms, event)?,
            _ => self.count(start_ms, event)?,
        }
        let newest = self.state.sources.entry(source.to_owned()).or_insert(event.timestamp_ms);
        *newest = (*newest).max(event.timestamp_ms);
        self.catch_up();
        Ok(())
    }

    /// Adds to a window that is final: one more revision, unless this batch has made one.
    fn correct(&mut self, start_ms: i64, event: &Event) -> Result<(), &'static str> {
        let window = (start_ms, event.key.clone());
        let before = self.state.windows.get(&window).copied();
        self.count(start_ms, event)?;
        if self.revised.insert(window.clone()) {
            let revision = self.state.revisions.entry(window.clone()).or_default();
            if let Some(totals) = before {
                self.state.earlier.entry(window).or_default().push((*revision, totals));
            }
            *revision += 1;
        }
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
