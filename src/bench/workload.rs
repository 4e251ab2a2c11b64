//! The workload: every event of it follows from the seed and its place in the stream alone, so that
//! a repeat of any earlier one costs no memory and the same seed gives the same bytes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::model::{Model, ModelState};

/// The width of a window.
pub(super) const WINDOW_MS: i64 = 60_000;

/// How far the watermark stays behind, and by how much at most events that are not late are out of
/// order.
pub(super) const LATENESS_MS: i64 = 5_000;

/// The event time of the first event, 2020-01-01: even a thousand million events later it is behind
/// every clock, so that none is held as ahead of it.
const START_MS: i64 = 1_577_836_800_000;

/// How far event time goes in a hundred events: 312 windows in a million.
const MS_IN_100_EVENTS: u64 = 1_872;

/// Of a hundred events, how many repeat an earlier one, and how many come too late.
const REPEATS_IN_100: u64 = 2;
const LATE_IN_100: u64 = 1;

/// How far back a repeat of the recent past reaches at most, in events.
const RECENT_EVENTS: u64 = 1_000;

/// How far behind its place a late event is at least: its window has ended, and the watermark has
/// passed that end by more than the events around it are out of order.
const LATE_BY_MS: i64 = WINDOW_MS + 2 * LATENESS_MS + 1_000;

/// What ids look like. Both kinds have 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ids {
    /// 128 random bits in hexadecimal: no two lie together in any index.
    Random,
    /// A counter behind a prefix: each is greater than all before.
    Monotonic,
}

impl Ids {
    /// The name, as typed and shown.
    pub fn name(self) -> &'static str {
        match self {
            Ids::Random => "random",
            Ids::Monotonic => "monotonic",
        }
    }
}

/// One event of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) id: String,
    /// Its key is this number, shown by [`key_name`].
    pub(super) key: u32,
    pub(super) timestamp_ms: i64,
    pub(super) value: i64,
}

/// The name of a key.
pub(super) fn key_name(key: u32) -> String {
    format!("meter-{key}")
}

/// What the stream depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) seed: u64,
    pub(super) keys: u32,
    pub(super) ids: Ids,
}

impl Workload {
    /// A number that looks random, for one purpose at one place.
    fn draw(&self, place: u64, purpose: u64) -> u64 {
        mixed(mixed(self.seed ^ mixed(place)).wrapping_add(purpose))
    }

    /// The earlier place whose event this one repeats.
    pub(super) fn repeats(&self, place: u64) -> Option<u64> {
        if place == 0 || self.draw(place, 0) % 100 >= REPEATS_IN_100 {
            return None;
        }
        let (which, back) = (self.draw(place, 1), self.draw(place, 2));
        let reach = if which.is_multiple_of(2) { place.min(RECENT_EVENTS) } else { place };
        let mut of = place - 1 - back % reach;
        // what is repeated was new once; the first event always was
        while self.repeats(of).is_some() {
            of -= 1;
        }
        Some(of)
    }

    /// Whether the event there is made to come too late.
    pub(super) fn is_late(&self, place: u64) -> bool {
        let fate = self.draw(place, 0) % 100;
        place > 0 && (REPEATS_IN_100..REPEATS_IN_100 + LATE_IN_100).contains(&fate)
    }

    /// The event at a place that repeats nothing.
    pub(super) fn event(&self, place: u64) -> Drawn {
        let id = match self.ids {
            Ids::Random => format!("{:016x}{:016x}", self.draw(place, 3), self.draw(place, 4)),
            Ids::Monotonic => format!("event-{place:026}"),
        };
        let came_ms = START_MS + (place * MS_IN_100_EVENTS / 100) as i64;
        let behind_ms = match self.is_late(place) {
            true => LATE_BY_MS + (self.draw(place, 5) % 240_000) as i64,
            false => (self.draw(place, 5) % LATENESS_MS as u64) as i64,
        };
        Drawn {
            id,
            key: (self.draw(place, 6) % u64::from(self.keys)) as u32,
            timestamp_ms: came_ms - behind_ms,
            value: (self.draw(place, 7) % 20_001) as i64 - 10_000,
        }
    }
}

/// One step of SplitMix64: fixed for ever, so that a seed means the same in every version.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Writes the stream into files, and keeps the model of what must become of it.
#[derive(Debug)]
pub(super) struct Generator {
    workload: Workload,
    model: Model,
    place: u64,
}

impl Generator {
    pub(super) fn new(workload: Workload) -> Generator {
        Generator { workload, model: Model::new(workload.keys), place: 0 }
    }

    /// How many events it has written.
    pub(super) fn events(&self) -> u64 {
        self.place
    }

    /// What a store must hold after all that was written.
    pub(super) fn state(&self) -> ModelState {
        self.model.state()
    }

    /// Writes the next events into a new file: a JSON array, one event a line. Returns its bytes.
    pub(super) fn write_file(&mut self, path: &Path, events: u64) -> io::Result<u64> {
        let mut out = BufWriter::with_capacity(256 * 1024, File::create_new(path)?);
        for nth in 0..events {
            let of = self.workload.repeats(self.place);
            let event = self.workload.event(of.unwrap_or(self.place));
            self.model.take(&event, of.is_some());
            let Drawn { id, key, timestamp_ms, value } = event;
            let before = if nth == 0 { "[\n" } else { ",\n" };
            write!(
                out,
                "{before}{{\"id\": \"{id}\", \"key\": \"meter-{key}\", \
                 \"timestamp_ms\": {timestamp_ms}, \"value\": {value}}}"
            )?;
            self.place += 1;
        }
        out.write_all(b"\n]\n")?;
        Ok(out.into_inner()?.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKLOAD: Workload = Workload { seed: 1, keys: 1_000, ids: Ids::Random };

    #[test]
    fn a_seed_gives_the_same_bytes_and_another_seed_others() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, workload| {
            let path = folder.path().join(name);
            let bytes = Generator::new(workload).write_file(&path, 500).unwrap();
            let text = std::fs::read(path).unwrap();
            assert_eq!(text.len() as u64, bytes);
            text
        };
        let first = write("a", WORKLOAD);
        assert_eq!(first, write("b", WORKLOAD));
        assert_ne!(first, write("c", Workload { seed: 2, ..WORKLOAD }));
        assert_ne!(first, write("d", Workload { ids: Ids::Monotonic, ..WORKLOAD }));
    }

    #[test]
    fn how_a_stream_is_cut_into_files_does_not_change_it() {
        let folder = tempfile::tempdir().unwrap();
        let written = |sizes: &[u64]| {
            let mut generator = Generator::new(WORKLOAD);
            let mut lines = Vec::new();
            for (nth, events) in sizes.iter().enumerate() {
                let path = folder.path().join(format!("{}-{nth}", sizes.len()));
                generator.write_file(&path, *events).unwrap();
                let text = std::fs::read_to_string(path).unwrap();
                let events = text.lines().filter(|line| line.starts_with('{'));
                lines.extend(events.map(|line| line.trim_end_matches(',').to_owned()));
            }
            (lines, generator.state())
        };
        let whole = written(&[300]);
        assert_eq!(whole.0.len(), 300);
        assert_eq!(whole, written(&[1, 298, 1]));
    }

    #[test]
    fn the_shares_are_as_said_and_what_is_meant_to_be_late_is_late() {
        let events = 200_000;
        let mut model = Model::new(WORKLOAD.keys);
        let (mut repeats, mut near, mut late) = (0_u64, 0_u64, 0_u64);
        for place in 0..events {
            let of = WORKLOAD.repeats(place);
            assert!(of.is_none_or(|of| of < place && WORKLOAD.repeats(of).is_none()));
            repeats += u64::from(of.is_some());
            near += u64::from(of.is_some_and(|of| place - of <= 2 * RECENT_EVENTS));
            late += u64::from(of.is_none() && WORKLOAD.is_late(place));
            model.take(&WORKLOAD.event(of.unwrap_or(place)), of.is_some());
        }
        let state = model.state();
        assert_eq!((state.duplicate, state.late), (repeats, late));
        assert_eq!(state.accepted, events - repeats - late);
        assert!((3_700..4_300).contains(&repeats), "{repeats} repeats");
        assert!((1_800..2_200).contains(&late), "{late} late");
        assert!((repeats * 45 / 100..repeats * 58 / 100).contains(&near), "{near} of {repeats}");
        // a fifth of a million, and the window that the first one begins in
        assert!((60..66).contains(&state.window_starts), "{} starts", state.window_starts);
    }

    #[test]
    fn ids_are_as_asked_for() {
        let id = WORKLOAD.event(7).id;
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        let monotonic = Workload { ids: Ids::Monotonic, ..WORKLOAD };
        let ids: Vec<String> = (95..105).map(|place| monotonic.event(place).id).collect();
        assert!(ids.is_sorted() && ids.iter().all(|id| id.len() == 32), "{ids:?}");
    }
}
