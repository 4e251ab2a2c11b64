//! Whether an id has two entries. Ids are looked at in the order of their hashes, a stretch of them
//! at a time, so that memory does not grow with their number.

use rusqlite::Connection;

use super::cursor::Cursor;
use super::scan::Reader;
use super::{SHORT_BITS, run, short_of};
use crate::store::audit::{Checkup, FindingCode};

/// About how many ids are looked at at once: 16 bytes each.
const AT_ONCE: u64 = 1 << 20;

/// Looks for ids that have two entries which are not forgotten.
pub(in crate::store::sqlite) fn check_twice(
    connection: &Connection,
    checkup: &mut Checkup,
) -> rusqlite::Result<()> {
    let mut runs = run::list(connection)?;
    // the others were told of
    runs.retain(run::Facts::are_sound);
    // those that are in no run yet are few
    let mut memtable = Vec::new();
    let mut reader = Reader::new(connection, runs.last().map_or(0, |run| run.new.to))?;
    while reader.advance()? {
        memtable.extend(reader.entry().map(|entry| (short_of(entry.hash), reader.position())));
    }
    let ids = memtable.len() as u64 + runs.iter().map(|run| run.new.ids).sum::<u64>();
    let stretches = u128::from(ids / AT_ONCE + 1);
    let bound = |stretch: u128| ((stretch << SHORT_BITS) / stretches) as u64;
    let mut cursor = Cursor::new(connection)?;
    let (mut all, mut found) = (Vec::new(), Vec::new());
    for stretch in 0..stretches {
        let range = bound(stretch)..bound(stretch + 1);
        all.clear();
        all.extend(memtable.iter().filter(|(short, _)| range.contains(short)));
        for run in &runs {
            found.clear();
            run.ids_in(connection, range.clone(), run.new.from, &mut found)?;
            let positions = found.iter();
            all.extend(positions.map(|(short, place)| (*short, run.new.from + u64::from(*place))));
        }
        all.sort_unstable();
        all.dedup();
        for same in all.chunk_by(|one, other| one.0 == other.0).filter(|same| same.len() > 1) {
            compare(&mut cursor, same, checkup)?;
        }
    }
    Ok(())
}

/// Ids with the same short hash, each with its position: mostly the long one tells them apart, or
/// all but one are forgotten.
fn compare(
    cursor: &mut Cursor<'_>,
    same: &[(u64, u64)],
    checkup: &mut Checkup,
) -> rusqlite::Result<()> {
    let mut seen: Vec<(u128, u64, u64)> = Vec::new();
    for (_, position) in same {
        let Some(entry) = cursor.at(*position)? else { continue };
        let (hash, batch, index) = (entry.hash, entry.batch, entry.event_index);
        if let Some((_, first_batch, first_index)) = seen.iter().find(|one| one.0 == hash) {
            let what = format!("event {index} of batch {batch}");
            let expected = "an id that came before, once";
            let found = format!("the id of event {first_index} of batch {first_batch} again");
            checkup.found(FindingCode::IdTwice, what, expected, found);
        }
        seen.push((hash, batch, index));
    }
    Ok(())
}
