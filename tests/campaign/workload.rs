//! Files as producers drop them: good ones, repeats, overlaps, late events, contradictions,
//! nonsense, of several sources; each with what it holds, as the test means it.

use std::io::Write as _;

use crate::draw::{Draw, Step};
use crate::model::{Event, Policy, Settings};
use crate::observed::{array, ndjson};

/// The folders of the sources that files are dropped for.
const FOLDERS: [&str; 3] = ["", "press-1/", "press-2/"];

/// What is no batch, and the code that it is refused with.
const NONSENSE: [(&str, &str); 7] = [
    ("{", "truncated"),
    ("", "empty"),
    ("[{\"id\":\"a\"}]", "missing_field"),
    ("{\"id\":\"x\",\"key\":\"k\",\"timestamp_ms\":1,\"value\":1.5}", "wrong_type"),
    ("[{\"id\":\"x\",\"key\":\"k\",\"timestamp_ms\":1,\"value\":1}],", "trailing_data"),
    ("{\"id\":\" \",\"key\":\"k\",\"timestamp_ms\":1,\"value\":1}", "blank"),
    ("\u{feff}\u{feff}[", "not_a_batch"),
];

/// After so many files the draw is begun anew, since it remembers all events that it drew.
const FILES_A_DRAW: usize = 2000;

/// One file.
#[derive(Clone, Debug)]
pub struct File {
    /// Its name below the inbox, with the folder of its source.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
    /// What that means.
    pub content: Content,
}

/// What a file means.
#[derive(Clone, Debug)]
pub enum Content {
    /// A batch, which may be refused for what came before it.
    Batch(Vec<Event>),
    /// No batch: refused with that code.
    Nonsense(&'static str),
}

/// Draws files, one after the other.
pub struct Workload {
    /// What the store is made with.
    pub settings: Settings,
    draw: Draw,
    seed: u64,
    number: usize,
    // the last good ones, to be repeated
    earlier: Vec<Vec<Event>>,
}

impl Workload {
    /// With settings of all kinds, and sums that leave their range.
    pub fn of_all_kinds(seed: u64) -> Workload {
        let draw = Draw::new(seed);
        let settings = Settings { max_future_ms: Some(86_400_000), ..draw.settings };
        Workload::new(seed, settings)
    }

    /// For many files: few windows for many events, and nothing that a store keeps of each.
    pub fn that_lasts(seed: u64) -> Workload {
        let settings = Settings { policy: Policy::Drop, ..Settings::new(600_000, 5_000) };
        let mut workload = Workload::new(seed, settings);
        workload.draw.huge = false;
        workload
    }

    /// With these settings.
    pub fn new(seed: u64, settings: Settings) -> Workload {
        let mut draw = Draw::new(seed);
        (draw.settings, draw.acts) = (settings, false);
        Workload { settings, draw, seed, number: 0, earlier: Vec::new() }
    }

    /// The next file; by its name it comes behind those before it.
    pub fn next(&mut self) -> File {
        let folder = FOLDERS[self.draw.random.below(FOLDERS.len() as i64) as usize];
        let name = format!("{folder}{:07}.json", self.number);
        self.number += 1;
        if self.number.is_multiple_of(FILES_A_DRAW) {
            self.begin_anew();
        }
        if self.draw.random.one_in(8) {
            let which = self.draw.random.below(NONSENSE.len() as i64) as usize;
            let (text, code) = NONSENSE[which];
            return File { name, bytes: text.into(), content: Content::Nonsense(code) };
        }
        let events = match self.draw.random.below(6) {
            0 if !self.earlier.is_empty() => self.again(),
            _ => self.fresh(),
        };
        let text = if self.draw.random.one_in(2) { array(&events) } else { ndjson(&events) };
        let text = if events.is_empty() { "[]".to_owned() } else { text };
        let bytes = if self.draw.random.one_in(5) { gzip(&text) } else { text.into_bytes() };
        File { name, bytes, content: Content::Batch(events) }
    }

    fn fresh(&mut self) -> Vec<Event> {
        let most = if self.draw.random.one_in(10) { 200 } else { 12 };
        let steps = (0..self.draw.random.below(most)).map(|_| self.draw.step());
        let drawn = steps.filter_map(|step| match step {
            Step::Event(event) => Some(event),
            _ => None,
        });
        let epoch = self.number / FILES_A_DRAW;
        let mut events: Vec<Event> =
            drawn.map(|event| Event { id: format!("{epoch}.{}", event.id), ..event }).collect();
        if self.draw.random.one_in(12) {
            events.push(Event::new(format!("far-{}", self.number), "k", 253_402_300_799_999, 1));
        }
        self.earlier.push(events.clone());
        if self.earlier.len() > 30 {
            self.earlier.remove(0);
        }
        events
    }

    /// An earlier file whole, or a part of it with something new behind.
    fn again(&mut self) -> Vec<Event> {
        let at = self.draw.random.below(self.earlier.len() as i64) as usize;
        let mut events = self.earlier[at].clone();
        if self.draw.random.one_in(2) {
            let half = events.len() / 2;
            events.drain(..half);
            events.extend(self.fresh());
        }
        events
    }

    fn begin_anew(&mut self) {
        let (huge, reached) = (self.draw.huge, self.draw.time_ms);
        let mut draw = Draw::new(self.seed ^ self.number as u64);
        (draw.settings, draw.huge, draw.acts) = (self.settings, huge, false);
        draw.reach(reached);
        self.draw = draw;
    }
}

fn gzip(text: &str) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(text.as_bytes()).unwrap();
    writer.finish().unwrap()
}
