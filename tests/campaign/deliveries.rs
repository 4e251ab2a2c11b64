//! Files that a producer drops, what a model says that they come to, and what a store says.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use serde_json::json;
use windowflow::store::sqlite::{Options, SqliteStore};
use windowflow::store::{Snapshot, Span};

use crate::dice::Dice;
use crate::presence::{self, Note};

/// The settings of all stores that are filled with these.
pub const WINDOW_MS: i64 = 1000;
/// How far the watermark stays behind where some are to be late.
pub const LATENESS_MS: i64 = 500;
/// The same where none is, in whatever order files are taken.
pub const NEVER_LATE_MS: i64 = 1_000_000;

/// A file that is dropped.
#[derive(Clone, Debug)]
pub struct Dropped {
    /// Its name in the inbox, behind the folder of its source where it has one. It is the key of
    /// all its events, too.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
    /// The id, time and value of its events; none where it is to be refused.
    pub events: Vec<(String, i64, i64)>,
    /// Whether it counts; otherwise it is to be refused.
    pub is_good: bool,
    /// Whether its producer has made it durable before it said so.
    pub is_synced: bool,
}

/// What a store comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// By start and key: count, sum, min, max.
    pub windows: BTreeMap<(i64, String), (i64, i64, i64, i64)>,
    /// The ids of the late events that are kept, with their keys.
    pub late: BTreeSet<(String, String)>,
    /// How far event time has come.
    pub watermark_ms: i64,
    /// How many events count.
    pub accepted: u64,
}

/// So many files that begin with this number, of which every fifth is refused. The model holds for
/// them when they are taken in the order of their numbers.
pub fn some(first: u64, count: u64, dice: &mut Dice) -> Vec<Dropped> {
    let most = |number: u64| if number.is_multiple_of(7) { 200 } else { 8 };
    // the last one before it that counts and is there for certain
    let other = |number| (first..number).rev().find(|it| is_good(*it) && it.is_multiple_of(2));
    let one = |number: u64| {
        let contradicts = other(number).filter(|_| number.is_multiple_of(2));
        one(number, contradicts, most(number), dice)
    };
    (first..first + count).map(one).collect()
}

/// Other files, from number 0 on, with up to so many events in each, to be taken in any order.
pub fn in_any_order(count: u64, most: u64, dice: &mut Dice) -> Vec<Dropped> {
    (0..count).map(|number| one(number, None, most, dice)).collect()
}

/// One of them. Where it is to be refused, it contradicts that other one at its end, or is cut
/// short.
fn one(number: u64, contradicts: Option<u64>, most: u64, dice: &mut Dice) -> Dropped {
    let folder = if number % 3 == 2 { "press/" } else { "" };
    let name = format!("{folder}{number:04}.ndjson");
    let id = |number: u64, event: u64| format!("{number}-{event}");
    let mut events = Vec::new();
    for event in 0..1 + dice.below(most) {
        // some of them are too late for their window
        let back_ms = if dice.below(6) == 0 { 2500 } else { dice.below(400) };
        let ms = 10_000 + (number * 300 + event * 10).saturating_sub(back_ms);
        events.push((id(number, event), ms as i64, dice.below(1000) as i64 - 300));
    }
    let line = |(id, ms, value): &(String, i64, i64), key: &str| {
        json!({"id": id, "key": key, "timestamp_ms": ms, "value": value}).to_string() + "\n"
    };
    let mut text: String = events.iter().map(|event| line(event, &name)).collect();
    let is_good = is_good(number);
    if !is_good {
        match contradicts {
            Some(other) => text += &line(&(id(other, 0), 1, 1), &name),
            None => text.truncate(text.len() - 3),
        }
        events.clear();
    }
    let is_synced = number.is_multiple_of(2) || !is_good;
    Dropped { name, bytes: text.into_bytes(), events, is_good, is_synced }
}

fn is_good(number: u64) -> bool {
    !matches!(number % 10, 4 | 7)
}

/// What the store there notes of how sources came and went, each note with how many files were in
/// before it.
///
/// # Errors
/// When it cannot be read.
pub fn noted(db: &Path) -> Result<Vec<(usize, Note)>, String> {
    let told = |error: rusqlite::Error| format!("no notes of sources: {error}");
    let store = Connection::open_with_flags(db, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(told)?;
    let sql = "SELECT count(DISTINCT file) FROM batches WHERE kind = 'events' AND batch < ?1";
    let before = |batch: i64| store.query_row(sql, [batch], |row| row.get::<_, i64>(0));
    let notes = presence::notes(&store, 0, i64::MAX)?.into_iter();
    notes.map(|note| Ok((before(note.batch).map_err(told)? as usize, note))).collect()
}

/// What these files come to, taken in this order, with sources that came and went by themselves.
pub fn model<'d>(
    lateness_ms: i64,
    files: impl Iterator<Item = &'d Dropped>,
    noted: &'d [(usize, Note)],
) -> Totals {
    let mut totals = Totals::default();
    // an expected source of which nothing came has not begun
    let mut sources: BTreeMap<&str, i64> = BTreeMap::new();
    let mut noted = noted.iter().peekable();
    let mut note_until = |files: usize, sources: &mut BTreeMap<&'d str, i64>| {
        while let Some((_, note)) = noted.next_if(|(before, _)| *before <= files) {
            match note.presence {
                "expected" => {
                    sources.entry(note.source.as_str()).or_insert(i64::MIN);
                }
                _ => sources.retain(|source, own| *source != note.source || *own > i64::MIN),
            }
        }
    };
    for (before, file) in files.enumerate() {
        note_until(before, &mut sources);
        let source = file.name.split_once('/').map_or("default", |(source, _)| source);
        for (id, ms, value) in &file.events {
            let start_ms = ms.div_euclid(WINDOW_MS) * WINDOW_MS;
            if start_ms + WINDOW_MS <= totals.watermark_ms {
                totals.late.insert((id.clone(), file.name.clone()));
            } else {
                let new = (0, 0, i64::MAX, i64::MIN);
                let window = totals.windows.entry((start_ms, file.name.clone())).or_insert(new);
                let (count, sum, min, max) = *window;
                *window = (count + 1, sum + value, min.min(*value), max.max(*value));
                totals.accepted += 1;
            }
            let own = sources.entry(source).or_insert(i64::MIN);
            *own = (*own).max(ms - lateness_ms);
            totals.watermark_ms = totals.watermark_ms.max(least(&sources));
        }
    }
    note_until(usize::MAX, &mut sources);
    totals.watermark_ms = totals.watermark_ms.max(least(&sources));
    totals
}

/// How far all sources have come.
fn least(sources: &BTreeMap<&str, i64>) -> i64 {
    sources.values().min().copied().unwrap_or_default()
}

impl Totals {
    /// What the store there says; none while it is of an older version, which only a writer brings
    /// up to date.
    ///
    /// # Errors
    /// When it does not.
    pub fn of(db: &Path) -> Result<Option<Totals>, String> {
        let said = |error: windowflow::store::Error| error.to_string();
        let snapshot = match SqliteStore::snapshot(db, Options::default()) {
            Err(windowflow::store::Error::OlderSchema(_)) => return Ok(None),
            snapshot => snapshot.map_err(said)?,
        };
        let mut totals = Totals::default();
        let all = Span::default();
        let windows = &mut totals.windows;
        let each_window = &mut |row: &windowflow::store::WindowRow<'_>| {
            let of = row.totals;
            windows.insert((row.start_ms, row.key.to_owned()), (of.count, of.sum, of.min, of.max));
            ControlFlow::Continue(())
        };
        snapshot.windows(all, each_window).map_err(said)?;
        let late = &mut totals.late;
        let each_late = &mut |row: &windowflow::store::LateRow<'_>| {
            late.insert((row.id.to_owned(), row.key.to_owned()));
            ControlFlow::Continue(())
        };
        snapshot.late(all, each_late).map_err(said)?;
        let summary = snapshot.summary().map_err(said)?;
        totals.watermark_ms = summary.watermark_ms;
        totals.accepted = summary.counts.accepted;
        Ok(Some(totals))
    }

    /// How many events of each key are in, and what they add up to as far as they count.
    pub fn by_key(&self) -> BTreeMap<&str, (i64, i64)> {
        let mut keys: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for ((_, key), (count, sum, ..)) in &self.windows {
            let (all, total) = keys.entry(key).or_default();
            (*all, *total) = (*all + count, *total + sum);
        }
        for (_, key) in &self.late {
            keys.entry(key).or_default().0 += 1;
        }
        keys
    }

    /// What is not as expected, in few words; none when it is.
    pub fn differs(&self, expected: &Totals) -> Option<String> {
        if self == expected {
            return None;
        }
        let mut text = format!(
            "watermark {}, accepted {}, late {}; expected {}, {}, {}",
            self.watermark_ms,
            self.accepted,
            self.late.len(),
            expected.watermark_ms,
            expected.accepted,
            expected.late.len()
        );
        let both = self.windows.keys().chain(expected.windows.keys()).collect::<BTreeSet<_>>();
        for id in both {
            let (found, wanted) = (self.windows.get(id), expected.windows.get(id));
            if found != wanted {
                text += &format!("\n  window {id:?}: {found:?}, expected {wanted:?}");
            }
        }
        Some(text)
    }
}
