//! Whether entries, runs and filters are what was written, and agree with each other.

use std::ops::Range;

use rusqlite::{Connection, OptionalExtension, params};

use super::bloom::Bloom;
use super::row::Entries;
use super::run::{self, Facts, MAX_ENTRIES, UNFINISHED, least_in};
use super::scan::Reader;
use super::{each_row, short_of};
use crate::model::event::{MAX_TIMESTAMP_MS, check_name};
use crate::store::audit::{Checkup, FindingCode};

/// For how many positions of a run memory is taken at once: 8 bytes each.
const AT_ONCE: u64 = 1 << 21;

/// Looks at each row of entries: that it can be read to its end, in the order of batches, that those
/// which are there and those which were forgotten are all that ever came, and that runs reach over
/// all but the last.
pub(in crate::store::sqlite) fn check_entries(
    connection: &Connection,
    forgotten: i64,
    next_position: u64,
    checkup: &mut Checkup,
) -> rusqlite::Result<()> {
    let runs = run::list(connection)?;
    let has_gaps = forgotten != 0;
    let mut walk = Walk { runs: &runs, expected: 0, last: None, has_gaps, entries: 0, checkup };
    each_row(connection, 0, |first, row| {
        walk.row(first, row);
        Ok(())
    })?;
    let Walk { expected, entries, .. } = walk;
    checkup.checked("ids", entries);
    if expected > next_position || (expected < next_position && !has_gaps) {
        let found = format!("they end at {expected}");
        let expected = format!("up to {next_position}, as the store counts them");
        checkup.found(FindingCode::EntryMissing, "entries of ids", expected, found);
    }
    let left = i128::from(next_position) - i128::from(forgotten);
    if i128::from(entries) != left {
        let expected = format!("{left}: {next_position} ids came, and {forgotten} were forgotten");
        checkup.found(FindingCode::EntryMissing, "entries of ids", expected, entries.to_string());
    }
    Ok(())
}

/// How far the entries were looked through.
struct Walk<'w> {
    runs: &'w [Facts],
    /// The position that the next row should begin with.
    expected: u64,
    /// The batch and index of the last entry.
    last: Option<(u64, u64)>,
    /// Whether ids were forgotten.
    has_gaps: bool,
    entries: u64,
    checkup: &'w mut Checkup,
}

impl Walk<'_> {
    fn row(&mut self, first: u64, row: &[u8]) {
        let what = format!("entries from position {first} on");
        let expected = self.expected;
        if first < expected || (first > expected && !self.has_gaps) {
            let expected = format!("to begin at {expected}, where those before end");
            self.checkup.found(
                FindingCode::EntryMissing,
                &what,
                expected,
                format!("begin at {first}"),
            );
        }
        match self.entries(first, row) {
            Ok(count) => self.expected = first.saturating_add(count),
            Err(found) => {
                let expected = "a packed row that can be read to its end";
                self.checkup.found(FindingCode::EntryDamaged, &what, expected, found);
                let behind = Entries::of(row).map_or(0, |entries| entries.count().min(1 << 20));
                self.expected = first.saturating_add(behind);
            }
        }
        let behind = self.runs.last().map_or(0, |run| run.new.to);
        let within = |run: &Facts| (run.new.from..run.new.to).contains(&first);
        if first < behind && !self.runs.iter().any(within) {
            let expected = "one run that says where these ids are";
            self.checkup.found(
                FindingCode::EntryInNoRun,
                what,
                expected,
                "none: they would be new again",
            );
        }
    }

    fn entries(&mut self, first: u64, row: &[u8]) -> Result<u64, String> {
        let mut entries = Entries::of(row).map_err(|_| "its front cannot be read".to_owned())?;
        let run = self.runs.iter().find(|run| (run.new.from..run.new.to).contains(&first));
        let least_ms = run.map_or(i64::MIN, |run| run.new.least_ms);
        for place in 0..entries.count() {
            let entry = entries.read().map_err(|_| format!("entry {place} cannot be read"))?;
            let Some(entry) = entry else { continue };
            self.entries += 1;
            let at = (entry.batch, entry.event_index);
            let is_time = (0..=MAX_TIMESTAMP_MS).contains(&entry.timestamp_ms);
            if !is_time || check_name(entry.key).is_err() {
                return Err(format!("entry {place} has a time or key that no event can have"));
            }
            if self.last.is_some_and(|last| at <= last) {
                let what = format!("event {} of batch {}", at.1, at.0);
                let (expected, found) = ("in the order of batches", "behind a later one");
                self.checkup.found(FindingCode::EntryOrder, what, expected, found);
            }
            self.last = Some(at);
            if entry.timestamp_ms < least_ms {
                let what = format!("event {} of batch {}", at.1, at.0);
                let expected = format!("nothing before {least_ms} in its run");
                let found = entry.timestamp_ms.to_string();
                self.checkup.found(FindingCode::RunDiffers, what, expected, found);
            }
        }
        if entries.is_whole() { Ok(entries.count()) } else { Err("it goes on".to_owned()) }
    }
}

/// Looks at each run: that its parts and its filter are there as recorded, and that each id of its
/// entries is found by both, at its very place.
pub(in crate::store::sqlite) fn check_runs(
    connection: &Connection,
    checkup: &mut Checkup,
) -> rusqlite::Result<()> {
    let runs = run::all(connection)?;
    let mut behind = 0;
    for facts in &runs {
        let is_finished = facts.new.level != UNFINISHED;
        let what = format!("run {} of ids", facts.run);
        if is_finished && facts.new.from < behind {
            let expected = format!("from position {behind} on, where the one before ends");
            let found = format!("from {}", facts.new.from);
            checkup.found(FindingCode::RunDamaged, &what, expected, found);
        }
        if is_finished {
            behind = facts.new.to;
        }
        if !facts.are_sound() {
            let expected = "sizes that a run can have";
            checkup.found(FindingCode::RunDamaged, &what, expected, format!("{:?}", facts.new));
            continue;
        }
        check_run(connection, facts, checkup)?;
        checkup.checked("runs", u64::from(is_finished));
    }
    check_strays(connection, &runs, checkup)
}

fn check_run(
    connection: &Connection,
    facts: &Facts,
    checkup: &mut Checkup,
) -> rusqlite::Result<()> {
    let is_finished = facts.new.level != UNFINISHED;
    let what = format!("run {} of ids", facts.run);
    let mut filter = Bloom::for_ids(facts.new.ids);
    let mut count = 0;
    let reaches = facts.new.to - facts.new.from;
    for from in (0..reaches).step_by(AT_ONCE as usize) {
        let places = from..reaches.min(from + AT_ONCE);
        let mut slots = vec![0; (places.end - places.start) as usize];
        let is_first = from == 0;
        each_part(connection, facts, &mut |part, ids, rest| {
            if rest != 0 {
                let found = format!("{rest} bytes too many");
                checkup.found(
                    FindingCode::RunDamaged,
                    format!("{what}, part {part}"),
                    "whole ids",
                    found,
                );
            }
            for (short, place) in ids {
                if is_first {
                    count += 1;
                    filter.add(short);
                    let is_of_part = least_in(part, facts.parts)..least_in(part + 1, facts.parts);
                    if !is_of_part.contains(&short) || place >= reaches {
                        let expected = "an id of that part, at a place within the run";
                        let found = format!("{short:012x} at {place}");
                        let what = format!("{what}, part {part}");
                        checkup.found(FindingCode::RunDamaged, what, expected, found);
                        continue;
                    }
                }
                if places.contains(&place) {
                    let slot: &mut u64 = &mut slots[(place - places.start) as usize];
                    if *slot != 0 {
                        let position = facts.new.from + place;
                        let what = format!("{what}, position {position}");
                        checkup.found(FindingCode::RunDiffers, what, "one id", "two");
                    }
                    *slot = short + 1;
                }
            }
        })?;
        check_places(connection, facts, places, &slots, checkup)?;
    }
    if is_finished {
        if count != facts.new.ids {
            let expected = format!("{} ids, as recorded", facts.new.ids);
            checkup.found(FindingCode::RunDiffers, &what, expected, format!("{count}"));
        }
        check_filter(connection, facts, &filter, checkup)?;
    }
    Ok(())
}

/// Whether the ids of the entries in those places are those that the run has there.
fn check_places(
    connection: &Connection,
    facts: &Facts,
    places: Range<u64>,
    slots: &[u64],
    checkup: &mut Checkup,
) -> rusqlite::Result<()> {
    let is_finished = facts.new.level != UNFINISHED;
    let (from, to) = (facts.new.from + places.start, facts.new.from + places.end);
    let row: Option<u64> = connection
        .prepare_cached("SELECT MAX(first) FROM ledger_entries WHERE first <= ?1")?
        .query_row(params![from], |row| row.get(0))?;
    let mut reader = Reader::new(connection, row.unwrap_or(from))?;
    while reader.advance()? && reader.position() < to {
        let Some(entry) = reader.entry().filter(|_| reader.position() >= from) else { continue };
        let slot = slots[(reader.position() - from) as usize];
        // what is being made does not hold all of them yet
        if slot == short_of(entry.hash) + 1 || (slot == 0 && !is_finished) {
            continue;
        }
        let what = format!("event {} of batch {}", entry.event_index, entry.batch);
        let expected = format!("its id in run {}: a repeat of it is known by that", facts.run);
        let found = if slot == 0 { "none there" } else { "another id there" };
        checkup.found(FindingCode::RunDiffers, what, expected, found);
    }
    Ok(())
}

fn check_filter(
    connection: &Connection,
    facts: &Facts,
    built: &Bloom,
    checkup: &mut Checkup,
) -> rusqlite::Result<()> {
    let stored: Option<Vec<u8>> = connection
        .prepare_cached("SELECT bits FROM ledger_filters WHERE run = ?1")?
        .query_row(params![facts.run], |row| row.get(0))
        .optional()?;
    let what = format!("filter of run {}", facts.run);
    let expected = "what the ids of the run make of it";
    let Some(stored) = stored else {
        checkup.found(FindingCode::FilterDiffers, what, expected, "there is none");
        return Ok(());
    };
    let built = built.bytes();
    if stored == built {
        return Ok(());
    }
    let lacks = stored.iter().zip(built).any(|(stored, built)| !stored & built != 0);
    let found = match stored.len() == built.len() {
        true if lacks => "it denies ids that are there: they would count again".to_owned(),
        true => "it claims ids that are not there: slower, and nothing is wrong by it".to_owned(),
        false => format!("{} bytes instead of {}", stored.len(), built.len()),
    };
    checkup.found(FindingCode::FilterDiffers, what, expected, found);
    Ok(())
}

/// What is shown of a part: its number, its ids with their places, and how many bytes are left
/// over.
type EachPart<'e> = dyn FnMut(u64, &mut dyn Iterator<Item = (u64, u64)>, usize) + 'e;

/// Shows each part that there is.
fn each_part(
    connection: &Connection,
    facts: &Facts,
    each: &mut EachPart<'_>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "SELECT part, ids FROM ledger_parts WHERE part >= ?1 AND part < ?2 ORDER BY part",
    )?;
    let (first, behind) = (facts.part(0), facts.part(facts.parts as usize));
    let mut rows = statement.query(params![first, behind])?;
    while let Some(row) = rows.next()? {
        let part = row.get::<_, u64>(0)? & (MAX_ENTRIES - 1);
        let least = least_in(part, facts.parts);
        let (ids, rest) = row.get_ref(1)?.as_blob()?.as_chunks::<8>();
        let mut ids = ids.iter().map(|id| run::unpacked(*id, least));
        each(part, &mut ids, rest.len());
    }
    Ok(())
}

/// Parts and filters of no run are of no use, and nobody leaves them behind.
fn check_strays(
    connection: &Connection,
    runs: &[Facts],
    checkup: &mut Checkup,
) -> rusqlite::Result<()> {
    let mut parts = connection.prepare("SELECT part FROM ledger_parts ORDER BY part")?;
    let mut parts = parts.query([])?;
    let mut strays = 0_u64;
    while let Some(row) = parts.next()? {
        let part: u64 = row.get(0)?;
        let is_of = |run: &Facts| run.run == part >> 24 && part & (MAX_ENTRIES - 1) < run.parts;
        strays += u64::from(!runs.iter().any(is_of));
    }
    let filters: u64 = connection.query_row(
        "SELECT COUNT(*) FROM ledger_filters WHERE run NOT IN (SELECT run FROM ledger_runs)",
        [],
        |row| row.get(0),
    )?;
    if strays + filters > 0 {
        let found = format!("{strays} parts and {filters} filters that belong to no run");
        checkup.found(FindingCode::RunDamaged, "runs of ids", "only what belongs to one", found);
    }
    Ok(())
}
