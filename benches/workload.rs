//! The events that are measured with: the same ones each time, 1,000 keys, random ids of 32
//! hexadecimal digits, event time that runs on with some disorder, so that a chunk of 2,500 spans
//! 47 s.

use std::fmt::Write;

use windowflow::model::event::{Chunk, Event, Place};

/// One event that owns its text.
pub(crate) struct Made {
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) timestamp_ms: i64,
    pub(crate) value: i64,
}

const BEGUN_MS: i64 = 1_700_000_000_000;

/// The first so many events.
pub(crate) fn events(count: usize) -> Vec<Made> {
    let mut random = Random(42);
    let made = |index: usize| Made {
        id: format!("{:016x}{:016x}", random.next(), random.next()),
        key: format!("meter-{:04}", random.next() % 1000),
        timestamp_ms: BEGUN_MS + index as i64 * 47_000 / 2500 + (random.next() % 5000) as i64,
        value: (random.next() % 2000) as i64 - 500,
    };
    (0..count).map(made).collect()
}

/// The events in a chunk of their own, each with the source that `source` gives it.
pub(crate) fn chunk<'s>(events: &[Made], source: impl Fn(usize) -> Option<&'s str>) -> Chunk {
    let mut chunk = Chunk::default();
    push_all(events, source, &mut chunk);
    chunk
}

/// Pushes the events behind those that the chunk has.
pub(crate) fn push_all<'s>(
    events: &[Made],
    source: impl Fn(usize) -> Option<&'s str>,
    chunk: &mut Chunk,
) {
    for (row, made) in events.iter().enumerate() {
        chunk.push(Event {
            id: &made.id,
            key: &made.key,
            timestamp_ms: made.timestamp_ms,
            value: made.value,
            source: source(row),
            producer_version: None,
            place: Place::default(),
        });
    }
}

/// The events as JSON objects with `between` between them.
pub(crate) fn json(events: &[Made], between: &str) -> String {
    let mut text = String::new();
    for (row, Made { id, key, timestamp_ms, value }) in events.iter().enumerate() {
        let before = if row == 0 { "" } else { between };
        write!(
            text,
            "{before}{{\"id\":\"{id}\",\"key\":\"{key}\",\"timestamp_ms\":{timestamp_ms},\
             \"value\":{value}}}"
        )
        .expect("a string takes all that is written");
    }
    text
}

/// Xorshift: any sequence that is the same each time does.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
