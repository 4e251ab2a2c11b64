//! Decides what an event does. Pure: no file, no clock, no database, no log; time and facts come
//! in as arguments, decisions go out as values.

mod accounts;
mod admission;
mod dedup;
mod horizon;
mod key_order;
mod late;
mod seconds_as_millis;
pub mod settings;
mod tally;
pub mod totals;
mod watermark;
pub mod window;

use std::fmt;

use serde::Serialize;

pub use crate::engine::seconds_as_millis::{LIKE_SECONDS, LikeSeconds, SecondsRule};
pub use accounts::AccountChange;
pub use admission::{Admission, NotAdmitted};
pub use dedup::{Fact, Seen};
pub use tally::corrections;
pub use watermark::{Expected, Known, Move, Others, Presence, Progress};

use crate::model::event::{Chunk, DEFAULT_SOURCE};
use dedup::DedupVerdict;
use horizon::Horizon;
use settings::{LatePolicy, Settings};
use tally::{Tally, TallyPart};
use totals::Delta;
use watermark::Watermark;
use window::WindowId;

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It counts in its window.
    Accepted,
    /// Its window was final: the totals are untouched.
    Late,
    /// The same event came before.
    Duplicate,
    /// It is too far ahead of the clock, and is held.
    Future,
    /// It is older than the memory for ids reaches, and is only counted.
    Expired,
}

impl Outcome {
    /// The public name.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Accepted => "accepted",
            Outcome::Late => "late",
            Outcome::Duplicate => "duplicate",
            Outcome::Future => "future",
            Outcome::Expired => "expired",
        }
    }
}

/// How many events had each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "one for each outcome, described there")]
pub struct Counts {
    pub accepted: u64,
    pub late: u64,
    pub duplicate: u64,
    pub future: u64,
    pub expired: u64,
}

impl Counts {
    /// Counts one event.
    pub fn count(&mut self, outcome: Outcome) {
        *match outcome {
            Outcome::Accepted => &mut self.accepted,
            Outcome::Late => &mut self.late,
            Outcome::Duplicate => &mut self.duplicate,
            Outcome::Future => &mut self.future,
            Outcome::Expired => &mut self.expired,
        } += 1;
    }

    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Counts) {
        self.accepted += other.accepted;
        self.late += other.late;
        self.duplicate += other.duplicate;
        self.future += other.future;
        self.expired += other.expired;
    }

    /// All of them: every event that was read has exactly one outcome.
    pub fn events(&self) -> u64 {
        self.accepted + self.late + self.duplicate + self.future + self.expired
    }
}

/// The outcomes that took place, in words: `4 accepted, 1 late`.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.accepted, "accepted"),
            (self.late, "late"),
            (self.duplicate, "duplicate"),
            (self.future, "future"),
            (self.expired, "expired"),
        ];
        let mut comma = "";
        for (count, outcome) in all.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{comma}{count} {outcome}")?;
            comma = ", ";
        }
        if comma.is_empty() { f.write_str("no events") } else { Ok(()) }
    }
}

/// What a chunk does to the store, all of it or nothing. Rows are those of the chunk, from 0.
#[derive(Debug, Default)]
pub struct Changes<'c> {
    /// Rows whose ids are remembered from now on, in order; an id that was forgotten can stand
    /// here again.
    pub recorded: Vec<usize>,
    /// What each window gets, by (start, key).
    pub windows: Vec<(WindowId<'c>, Delta)>,
    /// What late events add to windows that were final before: each makes, once a batch, another
    /// revision. They apply after `windows` and `moves`.
    pub corrections: Vec<(WindowId<'c>, Delta)>,
    /// Late events that are kept.
    pub late: Vec<SetAside>,
    /// Events that are held as too far ahead.
    pub held: Vec<SetAside>,
    /// Each source that sent something.
    pub sources: Vec<SourceChange>,
    /// What each of them sent of each key, by the names of both; it adds up to their counts.
    pub accounts: Vec<AccountChange<'c>>,
    /// How sources came and went, in order.
    pub presence: Vec<PresenceChange>,
    /// How many sources are known from now on that were not.
    pub new_sources: u64,
    /// Its events came with this batch, which is the last of each source that they name; held
    /// events that are judged again came with another.
    pub is_delivery: bool,
    /// What each producer version sent.
    pub versions: Vec<(&'c str, Counts)>,
    /// The moves of the watermark that crossed the end of a window, in order.
    pub moves: Vec<Move>,
    /// The watermark after the chunk.
    pub watermark_ms: i64,
    /// All outcomes of the chunk.
    pub counts: Counts,
}

/// An event that was kept apart, and the watermark that decided so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Its row in the chunk.
    pub row: usize,
    /// The watermark when it was judged.
    pub watermark_ms: i64,
}

/// What a chunk says of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceChange {
    /// Its name.
    pub source: String,
    /// The greatest timestamp of its accepted and late events, ever; none while it has had none.
    pub max_timestamp_ms: Option<i64>,
    /// Its outcomes in this chunk.
    pub counts: Counts,
}

/// A source that came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceChange {
    /// Its name.
    pub source: String,
    /// How it stands to the watermark from now on.
    pub presence: Presence,
    /// The index in its batch of the event that brought it back, from 0; none without an event.
    pub event_index: Option<u64>,
}

/// A chunk judged: up to its end, or up to the event that contradicts what is known.
#[derive(Debug)]
pub struct Judged<'c> {
    /// The outcome of each row that was judged.
    pub outcomes: Vec<Outcome>,
    /// What they do to the store.
    pub changes: Changes<'c>,
    /// The row that stopped it, and why.
    pub stopped: Option<(usize, Stop)>,
    /// The first row whose timestamp looks like seconds, if such are to be told: it stopped it, or
    /// it is only named, as the rule says.
    pub seconds: Option<LikeSeconds>,
}

/// Why a chunk is judged no further: the batch is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The event contradicts what is known of its id.
    Conflict(Seen),
    /// Its source may not send.
    Source(NotAdmitted),
    /// Its timestamp looks like seconds.
    Seconds,
}

/// The judgement of one batch, chunk by chunk: the results do not depend on where it is cut.
#[derive(Debug)]
pub struct Judge {
    settings: Settings,
    batch: u64,
    source: String,
    now_ms: i64,
    watermark: Watermark,
    // of the source of each row of the chunk in hand
    places: Vec<usize>,
    ids: Ids,
    seconds_rule: SecondsRule,
    // of the chunk in hand
    seconds: Option<LikeSeconds>,
    // which sources may send; none: all
    admission: Option<Admission>,
    source_count: u64,
}

/// What becomes of the ids of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ids {
    /// They are remembered from now on.
    Recorded,
    /// They are remembered already: held events are judged again.
    Released,
}

impl Judge {
    /// Begins with the batch of that number, whose events belong to `source` where they do not
    /// name another.
    pub fn new(settings: Settings, batch: u64, source: &str) -> Judge {
        let watermark = Watermark::new(settings.window_ms(), settings.lateness_ms());
        Judge {
            settings,
            batch,
            source: source.to_owned(),
            now_ms: 0,
            watermark,
            places: Vec::new(),
            ids: Ids::Recorded,
            seconds_rule: SecondsRule::Accept,
            seconds: None,
            admission: None,
            source_count: 0,
        }
    }

    /// The same with another rule for timestamps that look like seconds.
    pub fn with_seconds(self, seconds_rule: SecondsRule) -> Judge {
        Judge { seconds_rule, ..self }
    }

    /// The same, by a rule for the sources that may send.
    pub fn admitting(self, admission: Option<Admission>) -> Judge {
        Judge { admission, ..self }
    }

    /// Begins with a batch of held events that are judged again, by the rules of this moment. Their
    /// ids are remembered already. Those that are still too far ahead stay held: they have no part
    /// in the changes.
    pub fn release(settings: Settings, batch: u64) -> Judge {
        Judge { ids: Ids::Released, ..Judge::new(settings, batch, DEFAULT_SOURCE) }
    }

    /// Whether the first timestamp that looks like seconds stops the batch.
    pub fn stops_at_seconds(&self) -> bool {
        self.seconds_rule == SecondsRule::Stop
    }

    /// Lets sources come and go, without an event; the watermark moves to where that lets it be. To
    /// be told what is known of these sources first: [`named`](Self::named),
    /// [`learn`](Self::learn).
    pub fn change_presence(&mut self, sources: &[&str], presence: Presence) -> Changes<'static> {
        let mut changes = Changes::default();
        for source in sources {
            let place = self.watermark.place(source);
            let was_known = self.watermark.known(place).is_known;
            if self.watermark.set_presence(place, presence) {
                let is_new = self.watermark.known(place).is_known && !was_known;
                changes.new_sources += u64::from(is_new);
                let source = (*source).to_owned();
                changes.presence.push(PresenceChange { source, presence, event_index: None });
            }
        }
        changes.moves.extend(self.watermark.catch_up(None));
        changes.watermark_ms = self.watermark.now_ms();
        changes
    }

    /// Names sources, as [`sources`](Self::sources) does for those of a chunk.
    pub fn named<'s>(&'s mut self, sources: &[&str]) -> Vec<&'s str> {
        for source in sources {
            self.watermark.place(source);
        }
        self.watermark.names().collect()
    }

    /// The sources that the chunk names: what [`learn`](Self::learn) is to be told of, in this
    /// order, from a store in which the chunks before have been applied.
    pub fn sources<'s>(&'s mut self, chunk: &Chunk) -> Vec<&'s str> {
        self.watermark.restart();
        self.places.clear();
        // mostly the one before it is of the same source
        let mut last = None;
        for row in 0..chunk.len() {
            let source = chunk.source(row);
            let place = match last {
                Some((name, place)) if name == source => place,
                _ => self.watermark.place(source.unwrap_or(&self.source)),
            };
            last = Some((source, place));
            self.places.push(place);
        }
        self.watermark.names().collect()
    }

    /// Takes over how far event time had come.
    pub fn learn(&mut self, progress: &Progress) {
        self.now_ms = progress.now_ms;
        self.source_count = progress.source_count;
        self.watermark.learn(progress);
    }

    /// What it judges by.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The watermark as it stands.
    pub fn watermark_ms(&self) -> i64 {
        self.watermark.now_ms()
    }

    /// Judges the events of the chunk in order; `facts` says of each what is known of its id. To be
    /// asked for the [`sources`](Self::sources) of this chunk first.
    ///
    /// # Panics
    /// When there are fewer facts than events, or the sources were not asked for.
    pub fn judge<'c>(&mut self, chunk: &'c Chunk, facts: &[Fact]) -> Judged<'c> {
        let mut tally = Tally::new(self.batch, chunk);
        let mut stopped = None;
        let known_before = self.source_count;
        for (row, fact) in facts[..chunk.len()].iter().enumerate() {
            if let Err(stop) = self.judge_event(row, *fact, &mut tally) {
                stopped = Some((row, stop));
                break;
            }
        }
        let (outcomes, mut changes) =
            tally.end(&self.places, &self.watermark, self.settings.window_ms());
        changes.new_sources = self.source_count - known_before;
        changes.is_delivery = self.ids == Ids::Recorded;
        Judged { outcomes, changes, stopped, seconds: self.seconds.take() }
    }

    /// The first row of the contract's table that fits decides.
    fn judge_event(&mut self, row: usize, fact: Fact, tally: &mut Tally<'_>) -> Result<(), Stop> {
        let chunk = tally.chunk;
        let watermark_ms = self.watermark.now_ms();
        let horizon = Horizon::at(watermark_ms, self.settings.dedup_horizon_ms());
        let place = self.places[row];
        if self.ids == Ids::Recorded && !self.watermark.known(place).is_known {
            self.admit(place)?;
        }
        // what is released came long ago: its source is no more there than before
        if self.ids == Ids::Recorded && self.watermark.set_presence(place, Presence::Active) {
            tally.back(self.watermark.name(place), row);
        }
        let timestamp_ms = chunk.timestamp_ms(row);
        let outcome = if horizon.forgets(timestamp_ms) {
            Outcome::Expired
        } else {
            match tally.taken.judge(chunk, row, fact, horizon) {
                DedupVerdict::Contradiction(seen) => return Err(Stop::Conflict(seen)),
                DedupVerdict::Repeat => Outcome::Duplicate,
                DedupVerdict::New if self.is_future(timestamp_ms) => Outcome::Future,
                DedupVerdict::New if late::is_late(&self.settings, timestamp_ms, watermark_ms) => {
                    Outcome::Late
                }
                DedupVerdict::New => Outcome::Accepted,
            }
        };
        if LIKE_SECONDS.contains(&timestamp_ms) && outcome != Outcome::Duplicate {
            self.meet_seconds(row, timestamp_ms)?;
        }
        let aside = SetAside { row, watermark_ms };
        let part = match (outcome, self.settings.late_policy()) {
            (Outcome::Future, _) if self.ids == Ids::Released => TallyPart::None,
            (Outcome::Expired | Outcome::Duplicate, _) => TallyPart::Count,
            (Outcome::Future, _) => {
                tally.held.push(aside);
                TallyPart::Count
            }
            (Outcome::Late, LatePolicy::Aside) => {
                tally.late.push(aside);
                TallyPart::Count
            }
            (Outcome::Late, LatePolicy::Drop) => TallyPart::Count,
            (Outcome::Late, LatePolicy::Correct) => self.correction(timestamp_ms, watermark_ms),
            (Outcome::Accepted, _) => TallyPart::Window,
        };
        tally.count(outcome, part, watermark_ms);
        if part == TallyPart::None || matches!(outcome, Outcome::Expired | Outcome::Duplicate) {
            return Ok(());
        }
        if self.ids == Ids::Recorded {
            tally.taken.take(chunk, row);
            tally.recorded.push(row);
        }
        if outcome != Outcome::Future {
            let index = chunk.first_index() + row as u64;
            tally.moves.extend(self.watermark.advance(place, timestamp_ms, index));
        }
        Ok(())
    }

    /// Takes up a source of which nothing is known yet.
    fn admit(&mut self, place: usize) -> Result<(), Stop> {
        if let Some(admission) = self.admission {
            admission.one_more(self.source_count).map_err(Stop::Source)?;
        }
        self.watermark.admit(place);
        self.source_count += 1;
        Ok(())
    }

    /// Notes the first row that looks like seconds, where that is asked for.
    fn meet_seconds(&mut self, row: usize, timestamp_ms: i64) -> Result<(), Stop> {
        let greatest_ms = self.watermark.known(self.places[row]).max_timestamp_ms;
        if self.seconds_rule != SecondsRule::Accept
            && seconds_as_millis::is_suspect(timestamp_ms, greatest_ms)
        {
            self.seconds.get_or_insert(LikeSeconds { row, greatest_ms });
            if self.seconds_rule == SecondsRule::Stop {
                return Err(Stop::Seconds);
            }
        }
        Ok(())
    }

    /// Late by the stricter rule is not yet late for its window: while that is open, there is
    /// nothing final to correct.
    fn correction(&self, timestamp_ms: i64, watermark_ms: i64) -> TallyPart {
        let window_ms = self.settings.window_ms();
        let start_ms = window::start_ms(timestamp_ms, window_ms);
        if window::is_final(start_ms, window_ms, watermark_ms) {
            TallyPart::Correction
        } else {
            TallyPart::Window
        }
    }

    fn is_future(&self, timestamp_ms: i64) -> bool {
        let bound_ms = self.settings.max_future_ms().map(|ms| self.now_ms.saturating_add(ms));
        bound_ms.is_some_and(|bound_ms| timestamp_ms > bound_ms)
    }
}

#[cfg(test)]
mod tests;
