//! One row of what a chunk made of windows and accounts, packed.
//!
//! First the windows, by their start: for each what it holds after the chunk. Then the sources, and
//! for each source and key what the chunk brought. A key stands there once; after that its number.

use rusqlite::Connection;

use crate::engine::Counts;
use crate::engine::totals::Totals;
use crate::store::sqlite::codec::{BlobReader, Damaged, put, put_name, put_signed};

/// What a row tells of, one after the other.
pub(in crate::store::sqlite) trait Visitor {
    /// A window, and what it holds after the chunk.
    fn window(&mut self, _start_ms: i64, _key: &str, _totals: Totals) {}

    /// What a chunk brought of a source and key, and how far event time had come with it.
    fn account(&mut self, _source: &str, _key: &str, _counts: Counts, _last_seen_ms: i64) {}
}

/// The number of a key, or the key itself where it comes first.
pub(super) enum KeyRef<'k> {
    Known(u32),
    New(&'k str),
}

pub(super) fn put_key(to: &mut Vec<u8>, key: &KeyRef<'_>) {
    match key {
        KeyRef::Known(number) => put(to, u64::from(*number) + 1),
        KeyRef::New(name) => {
            put(to, 0);
            put_name(to, name);
        }
    }
}

pub(super) fn put_totals(to: &mut Vec<u8>, totals: &Totals) {
    put_signed(to, totals.count);
    put_signed(to, totals.sum);
    put_signed(to, totals.min);
    // never less than nothing, and it fits where both of them fit
    put(to, totals.max.wrapping_sub(totals.min) as u64);
}

pub(super) fn put_counts(to: &mut Vec<u8>, counts: &Counts) {
    let Counts { accepted, late, duplicate, future, expired } = *counts;
    let all = [accepted, late, duplicate, future, expired];
    let which = all.iter().enumerate().map(|(place, count)| u64::from(*count > 0) << place).sum();
    put(to, which);
    all.iter().filter(|count| **count > 0).for_each(|count| put(to, *count));
}

/// Shows a row to the visitor.
fn read(row: &[u8], visitor: &mut dyn Visitor) -> Result<(), Damaged> {
    let mut reader = BlobReader(row);
    let mut keys: Vec<&str> = Vec::new();
    for _ in 0..reader.number()? {
        let start_ms = reader.number()? as i64;
        for _ in 0..reader.number()? {
            let key = key(&mut reader, &mut keys)?;
            let (count, sum, min) = (reader.signed()?, reader.signed()?, reader.signed()?);
            let max = min.wrapping_add(reader.number()? as i64);
            visitor.window(start_ms, key, Totals { count, sum, min, max });
        }
    }
    let mut sources: Vec<&str> = Vec::new();
    for _ in 0..reader.number()? {
        sources.push(reader.name()?);
    }
    for _ in 0..reader.number()? {
        let source = usize::try_from(reader.number()?).map_err(|_| Damaged)?;
        let source = sources.get(source).ok_or(Damaged)?;
        let key = key(&mut reader, &mut keys)?;
        let counts = counts(&mut reader)?;
        visitor.account(source, key, counts, reader.signed()?);
    }
    if reader.is_at_end() { Ok(()) } else { Err(Damaged) }
}

fn key<'r>(reader: &mut BlobReader<'r>, keys: &mut Vec<&'r str>) -> Result<&'r str, Damaged> {
    match reader.number()? {
        0 => {
            let key = reader.name()?;
            keys.push(key);
            Ok(key)
        }
        number => {
            let place = usize::try_from(number - 1).map_err(|_| Damaged)?;
            keys.get(place).copied().ok_or(Damaged)
        }
    }
}

fn counts(reader: &mut BlobReader<'_>) -> Result<Counts, Damaged> {
    let which = reader.number()?;
    let mut next = |place: u32| if which >> place & 1 == 1 { reader.number() } else { Ok(0) };
    Ok(Counts {
        accepted: next(0)?,
        late: next(1)?,
        duplicate: next(2)?,
        future: next(3)?,
        expired: next(4)?,
    })
}

/// Shows all rows that there are, the oldest first; says how many there were.
pub(in crate::store::sqlite) fn each(
    connection: &Connection,
    visitor: &mut dyn Visitor,
) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached("SELECT changes FROM recent ORDER BY chunk")?;
    let mut rows = statement.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        read(row.get_ref(0)?.as_blob()?, visitor)?;
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct All(Vec<String>);

    impl Visitor for All {
        fn window(&mut self, start_ms: i64, key: &str, totals: Totals) {
            self.0.push(format!("{start_ms} {key} {totals:?}"));
        }

        fn account(&mut self, source: &str, key: &str, counts: Counts, last_seen_ms: i64) {
            self.0.push(format!("{source} {key} {counts:?} {last_seen_ms}"));
        }
    }

    fn row() -> Vec<u8> {
        let mut row = vec![1, 0, 2];
        put_key(&mut row, &KeyRef::New("k"));
        let widest = Totals { count: i64::MAX, sum: i64::MIN, min: i64::MIN, max: i64::MAX };
        put_totals(&mut row, &widest);
        put_key(&mut row, &KeyRef::New("l"));
        put_totals(&mut row, &Totals { count: 1, sum: -3, min: -3, max: -3 });
        put(&mut row, 1);
        put_name(&mut row, "s");
        put(&mut row, 1);
        put(&mut row, 0);
        put_key(&mut row, &KeyRef::Known(1));
        put_counts(&mut row, &Counts { late: 7, expired: u64::MAX, ..Counts::default() });
        put_signed(&mut row, -1);
        row
    }

    #[test]
    fn a_row_tells_what_was_put_in() {
        let mut all = All::default();
        read(&row(), &mut all).unwrap();
        let counts = Counts { late: 7, expired: u64::MAX, ..Counts::default() };
        assert_eq!(all.0.len(), 3);
        assert!(
            all.0[0].contains(&format!("min: {}, max: {}", i64::MIN, i64::MAX)),
            "{all:?}",
            all = all.0
        );
        assert!(all.0[1].starts_with("0 l ") && all.0[1].contains("max: -3"));
        assert_eq!(all.0[2], format!("s l {counts:?} -1"));
    }

    #[test]
    fn a_row_that_is_cut_or_goes_on_is_damaged() {
        let row = row();
        for length in 0..row.len() {
            assert!(read(&row[..length], &mut All::default()).is_err(), "{length}");
        }
        let longer = [&row[..], &[0]].concat();
        assert!(read(&longer, &mut All::default()).is_err());
    }
}
