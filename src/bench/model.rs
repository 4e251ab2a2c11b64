//! What must become of the workload, told without any code of the engine, and what a store really
//! holds, in the same terms. Memory grows with the open windows only.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::ops::ControlFlow;

use serde::Serialize;
use siphasher::sip128::{Hasher128, SipHasher13};

use super::workload::{Drawn, LATENESS_MS, WINDOW_MS, key_name};
use crate::store::{self, Snapshot, Span};

/// What a store holds, small enough to be compared and printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelState {
    /// Events that count in a window.
    pub accepted: u64,
    /// Events that came for a final window.
    pub late: u64,
    /// Repeats.
    pub duplicate: u64,
    /// Events ahead of the clock: there must be none.
    pub future: u64,
    /// Events behind a horizon: there must be none.
    pub expired: u64,
    /// Windows, by start and key.
    pub windows: u64,
    /// How many starts these have.
    pub window_starts: u64,
    /// The watermark.
    pub watermark_ms: i64,
    /// Over start, key, count, sum, min and max of every window; the order does not matter.
    pub windows_checksum: String,
    /// Over id, key, timestamp and value of every late event that is kept.
    pub late_checksum: String,
}

impl ModelState {
    /// What differs from what was expected, a line each; none when nothing does.
    pub(super) fn differences(&self, expected: &ModelState) -> Vec<String> {
        let members = |state: &ModelState| match serde_json::to_value(state) {
            Ok(serde_json::Value::Object(members)) => members,
            _ => serde_json::Map::new(),
        };
        let (found, expected) = (members(self), members(expected));
        let differ = expected.iter().filter(|(name, value)| found.get(*name) != Some(value));
        differ
            .map(|(name, value)| format!("{name}: expected {value}, found {}", found[name]))
            .collect()
    }

    /// The same after all of it came a second time.
    pub(super) fn replayed(&self, events: u64) -> ModelState {
        ModelState { duplicate: self.duplicate + events, ..self.clone() }
    }
}

/// What one window holds; nothing while the count is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) count: i64,
    pub(super) sum: i64,
    pub(super) min: i64,
    pub(super) max: i64,
}

/// A sum of hashes: rows may come in any order, and each counts as often as it comes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Checksums {
    windows: u64,
    windows_sum: u128,
    late_sum: u128,
}

impl Checksums {
    pub(super) fn window(&mut self, start_ms: i64, key: &str, sums: &Sums) {
        let mut hasher = SipHasher13::new();
        for number in [start_ms, sums.count, sums.sum, sums.min, sums.max] {
            hasher.write(&number.to_le_bytes());
        }
        hasher.write(key.as_bytes());
        self.windows += 1;
        self.windows_sum = self.windows_sum.wrapping_add(hasher.finish128().as_u128());
    }

    pub(super) fn late(&mut self, id: &str, key: &str, timestamp_ms: i64, value: i64) {
        let mut hasher = SipHasher13::new();
        for number in [timestamp_ms, value, id.len() as i64] {
            hasher.write(&number.to_le_bytes());
        }
        hasher.write(id.as_bytes());
        hasher.write(key.as_bytes());
        self.late_sum = self.late_sum.wrapping_add(hasher.finish128().as_u128());
    }

    /// Puts what was gathered beside the other figures.
    pub(super) fn into_state(self, rest: ModelState) -> ModelState {
        ModelState {
            windows: self.windows,
            windows_checksum: format!("{:032x}", self.windows_sum),
            late_checksum: format!("{:032x}", self.late_sum),
            ..rest
        }
    }
}

/// What the contract says becomes of the stream.
#[derive(Clone, Debug)]
pub(super) struct Model {
    keys: u32,
    // the windows that are open, by start; in each one place for every key
    open: BTreeMap<i64, Vec<Sums>>,
    // counts and watermark
    state: ModelState,
    // over what cannot change any more
    checksums: Checksums,
}

impl Model {
    pub(super) fn new(keys: u32) -> Model {
        let (open, state, checksums) =
            (BTreeMap::new(), ModelState::default(), Checksums::default());
        Model { keys, open, state, checksums }
    }

    /// Takes one event. Whether it is a repeat is known to who made it.
    pub(super) fn take(&mut self, event: &Drawn, is_repeat: bool) {
        let Drawn { id, key, timestamp_ms, value } = event;
        if is_repeat {
            self.state.duplicate += 1;
            return;
        }
        let start_ms = timestamp_ms - timestamp_ms.rem_euclid(WINDOW_MS);
        if start_ms + WINDOW_MS <= self.state.watermark_ms {
            self.state.late += 1;
            self.checksums.late(id, &key_name(*key), *timestamp_ms, *value);
        } else {
            self.state.accepted += 1;
            let keys = self.keys as usize;
            let window = self.open.entry(start_ms).or_insert_with(|| vec![Sums::default(); keys]);
            let sums = &mut window[*key as usize];
            *sums = match sums.count {
                0 => Sums { count: 1, sum: *value, min: *value, max: *value },
                _ => Sums {
                    count: sums.count + 1,
                    sum: sums.sum + value,
                    min: sums.min.min(*value),
                    max: sums.max.max(*value),
                },
            };
        }
        self.state.watermark_ms = self.state.watermark_ms.max(timestamp_ms - LATENESS_MS);
        while let Some(first) = self.open.first_entry()
            && first.key() + WINDOW_MS <= self.state.watermark_ms
        {
            let (start_ms, window) = first.remove_entry();
            self.close(start_ms, &window);
        }
    }

    fn close(&mut self, start_ms: i64, window: &[Sums]) {
        self.state.window_starts += 1;
        for (key, sums) in (0..).zip(window).filter(|(_, sums)| sums.count > 0) {
            self.checksums.window(start_ms, &key_name(key), sums);
        }
    }

    /// All of it, with what is open as it stands.
    pub(super) fn state(&self) -> ModelState {
        let mut all = self.clone();
        for (start_ms, window) in std::mem::take(&mut all.open) {
            all.close(start_ms, &window);
        }
        all.checksums.into_state(all.state)
    }
}

/// What a store holds, row by row as a report reads it.
pub(super) fn found(snapshot: &dyn Snapshot) -> Result<ModelState, store::Error> {
    let summary = snapshot.summary()?;
    let mut checksums = Checksums::default();
    let (mut window_starts, mut last_ms) = (0, None);
    snapshot.windows(Span::default(), &mut |row| {
        let totals = row.totals;
        let sums = Sums { count: totals.count, sum: totals.sum, min: totals.min, max: totals.max };
        checksums.window(row.start_ms, row.key, &sums);
        window_starts += u64::from(last_ms.replace(row.start_ms) != Some(row.start_ms));
        ControlFlow::Continue(())
    })?;
    snapshot.late(Span::default(), &mut |row| {
        checksums.late(row.id, row.key, row.timestamp_ms, row.value);
        ControlFlow::Continue(())
    })?;
    Ok(checksums.into_state(ModelState {
        accepted: summary.counts.accepted,
        late: summary.counts.late,
        duplicate: summary.counts.duplicate,
        future: summary.counts.future,
        expired: summary.counts.expired,
        window_starts,
        watermark_ms: summary.watermark_ms,
        ..ModelState::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(id: &str, key: u32, timestamp_ms: i64, value: i64) -> Drawn {
        Drawn { id: id.to_owned(), key, timestamp_ms, value }
    }

    fn taken(events: &[Drawn]) -> ModelState {
        let mut model = Model::new(3);
        for event in events {
            model.take(event, false);
        }
        model.state()
    }

    #[test]
    fn it_judges_by_the_contract() {
        let mut model = Model::new(3);
        model.take(&drawn("a", 0, 59_999, 5), false);
        model.take(&drawn("a", 0, 59_999, 5), true);
        model.take(&drawn("b", 0, 64_999, -7), false);
        // the watermark is at 59,999: the first window is open still
        model.take(&drawn("c", 0, 0, 2), false);
        model.take(&drawn("d", 1, 65_000, 1), false);
        model.take(&drawn("e", 1, 59_999, 1), false);
        let state = model.state();
        assert_eq!((state.accepted, state.late, state.duplicate), (4, 1, 1));
        assert_eq!((state.windows, state.window_starts, state.watermark_ms), (3, 2, 60_000));
        let mut checksums = Checksums::default();
        checksums.window(0, "meter-0", &Sums { count: 2, sum: 7, min: 2, max: 5 });
        checksums.window(60_000, "meter-0", &Sums { count: 1, sum: -7, min: -7, max: -7 });
        checksums.window(60_000, "meter-1", &Sums { count: 1, sum: 1, min: 1, max: 1 });
        checksums.late("e", "meter-1", 59_999, 1);
        assert_eq!(checksums.into_state(state.clone()), state);
    }

    #[test]
    fn a_report_that_was_tampered_with_is_found_out() {
        let windows = [
            (0, "meter-0", Sums { count: 2, sum: 7, min: 2, max: 5 }),
            (0, "meter-1", Sums { count: 1, sum: 4, min: 4, max: 4 }),
        ];
        let state = |windows: &[(i64, &str, Sums)], late_value| {
            let mut checksums = Checksums::default();
            for (start_ms, key, sums) in windows {
                checksums.window(*start_ms, key, sums);
            }
            checksums.late("e", "meter-1", 59_999, late_value);
            checksums.into_state(ModelState { accepted: 3, late: 1, ..ModelState::default() })
        };
        let right = state(&windows, 1);
        let swapped = [windows[1], windows[0]];
        assert_eq!(state(&swapped, 1).differences(&right), Vec::<String>::new());
        let (start_ms, key, sums) = windows[0];
        for tampered in [
            (start_ms + 60_000, key, sums),
            (start_ms, "meter-2", sums),
            (start_ms, key, Sums { count: 3, ..sums }),
            (start_ms, key, Sums { sum: 8, ..sums }),
            (start_ms, key, Sums { min: 1, ..sums }),
            (start_ms, key, Sums { max: 6, ..sums }),
        ] {
            let other = [tampered, windows[1]];
            let differences = state(&other, 1).differences(&right);
            assert_eq!(differences.len(), 1, "{differences:?}");
            assert!(differences[0].starts_with("windows_checksum: expected \""));
        }
        let lost = state(&windows[..1], 1).differences(&right);
        assert!(lost.contains(&"windows: expected 2, found 1".to_owned()), "{lost:?}");
        assert_eq!(state(&windows, 2).differences(&right).len(), 1, "another late event");
    }

    #[test]
    fn a_replay_changes_the_number_of_repeats_alone() {
        let once = taken(&[drawn("a", 0, 100, 5), drawn("b", 0, 200, 5)]);
        let differences = once.replayed(2).differences(&once);
        assert_eq!(differences, ["duplicate: expected 0, found 2"]);
    }
}
