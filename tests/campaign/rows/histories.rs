//! Row 14: random histories against the model: duplicates, conflicts, overlap, reordering, acts
//! without a file, sums and event times at their edges.
//!
//! An attempt is a history of some thirty batches through the library: most with the store in
//! memory, one in twenty in SQLite, every fourth with event times, widths and lateness at the ends
//! of their ranges.
//!
//! Seen to fail: with `window::is_final` saying `<` instead of `<=`, windows and late events
//! differ.

use crate::dice::Dice;
use crate::model::{Event, Model, Policy, Settings};
use crate::observed::{array, ndjson};
use crate::random::{assert_same, play_batches};
use crate::real::Real;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};

/// Whatever comes, the totals are those of the model.
pub const ROW: Row = Row {
    number: 14,
    fault: "duplicates, conflicts, overlap, disorder, times at their edges",
    promise: "I3, batch by batch",
    figures: Figures { smoke: 500, full: 3_600, soak: 370_000 },
    lanes: 2,
    begin,
};

/// The greatest timestamp that there is: the end of the year 9999.
const LAST_MS: i64 = 253_402_300_799_999;

/// The events of a history of [`play_batches`].
const EVENTS: usize = 800;

struct Histories;

fn begin(_: &Scale) -> Result<Box<dyn Trial>, Unable> {
    Ok(Box::new(Histories))
}

impl Trial for Histories {
    fn note(&self) -> Option<String> {
        Some("figures are batches; 10,000,000 in a soak".to_owned())
    }

    fn attempt(&self, n: u64, mut dice: Dice) -> Result<Tried, String> {
        let make = if n.is_multiple_of(20) { Real::sqlite } else { Real::memory };
        Ok(Tried::Times(match n % 4 {
            3 => play_edges(&mut dice, make),
            _ => play_batches(dice.next(), EVENTS, make),
        }))
    }
}

/// Batches of events at the edges of everything; how many.
fn play_edges(dice: &mut Dice, make: fn(Settings) -> Real) -> u64 {
    let settings = edgy_settings(dice);
    let (mut model, mut real) = (Model::new(settings), make(settings));
    let mut earlier: Vec<Event> = Vec::new();
    let batches = 30;
    for batch in 0..batches {
        let events: Vec<Event> = (0..dice.below(30))
            .map(|n| {
                if dice.below(6) == 0 && !earlier.is_empty() {
                    return earlier[dice.below(earlier.len() as u64) as usize].clone();
                }
                let key = ["a", "b"][dice.below(2) as usize];
                let value = *of(dice, &[i64::MIN, i64::MAX, -1, 0, 1, 1, 7, -7]);
                let timestamp_ms = edgy_time(dice, &settings);
                let event = Event::new(format!("{batch}-{n}"), key, timestamp_ms, value);
                earlier.push(event.clone());
                event
            })
            .collect();
        if events.is_empty() {
            continue;
        }
        let text = if dice.below(2) == 0 { array(&events) } else { ndjson(&events) };
        let expected = model.ingest("default", &events, crate::draw::NOW_MS);
        assert_eq!(real.ingest(&text), expected, "batch {batch} of {settings:?}:\n{text:.5000}");
        if dice.below(4) == 0 {
            assert_same(&real.state(), &model.state);
        }
    }
    assert_same(&real.state(), &model.state);
    batches
}

fn of<'o, T>(dice: &mut Dice, options: &'o [T]) -> &'o T {
    &options[dice.below(options.len() as u64) as usize]
}

fn edgy_settings(dice: &mut Dice) -> Settings {
    let widths_ms = [1, 2, 1000, 86_400_000, LAST_MS, LAST_MS + 1, LAST_MS + 2, i64::MAX];
    let lateness_ms = [0, 0, 1, 999, 1000, LAST_MS - 1, LAST_MS, LAST_MS + 1, i64::MAX];
    let (window_ms, lateness_ms) = (*of(dice, &widths_ms), *of(dice, &lateness_ms));
    // at least a window and the lateness, where that can be written down at all
    let least_ms = window_ms.checked_add(lateness_ms);
    let more_ms = *of(dice, &[None, None, Some(0), Some(1), Some(LAST_MS)]);
    let dedup_horizon_ms = least_ms.zip(more_ms).and_then(|(least, more)| least.checked_add(more));
    Settings {
        strict: dice.below(2) == 0,
        policy: *of(dice, &[Policy::Aside, Policy::Correct, Policy::Drop]),
        max_future_ms: *of(dice, &[None, None, Some(0), Some(LAST_MS)]),
        dedup_horizon_ms,
        ..Settings::new(window_ms, lateness_ms)
    }
}

/// A time at the edge of all times, or of a window, or of what is too far ahead.
fn edgy_time(dice: &mut Dice, settings: &Settings) -> i64 {
    let anywhere = dice.below(LAST_MS as u64 + 1) as i64;
    let window_ms = settings.window_ms;
    let near = *of(
        dice,
        &[
            0,
            LAST_MS,
            window_ms,
            window_ms.saturating_mul(2),
            settings.lateness_ms,
            anywhere - anywhere % window_ms,
            crate::draw::NOW_MS.saturating_add(settings.max_future_ms.unwrap_or(0)),
            anywhere,
        ],
    );
    near.saturating_add(dice.below(5) as i64 - 2).clamp(0, LAST_MS)
}
