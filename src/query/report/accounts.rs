//! What each source sent of each key: for a person and for programs, as a stream.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;

use serde::Serialize;

use super::json::Read;
use super::table::{Column, line, titles, widen};
use super::{BUFFER_BYTES, ReportError, grouped, json, shown};
use crate::engine::Counts;
use crate::store::{AccountRow, Snapshot};

/// Writes the outcomes of what each source sent of each key, by the names of both. What is not
/// told apart by key stands before the keys of its source.
///
/// # Errors
/// As [`write()`](super::write()).
pub fn write_accounts(
    snapshot: &dyn Snapshot,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    if json {
        list(snapshot, &mut out)?
    } else {
        table(snapshot, &mut out)?
    }
    Ok(out.flush()?)
}

fn each(
    snapshot: &dyn Snapshot,
    each: &mut dyn FnMut(&AccountRow<'_>) -> io::Result<()>,
) -> Result<(), ReportError> {
    let mut outcome = Ok(());
    snapshot.accounts(&mut |row| {
        outcome = each(row);
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(outcome?)
}

#[derive(Serialize)]
struct Account<'a> {
    source: &'a str,
    key: Option<&'a str>,
    #[serde(flatten)]
    read: Read,
    last_seen_ms: Option<i64>,
}

fn list(snapshot: &dyn Snapshot, out: &mut dyn Write) -> Result<(), ReportError> {
    let watermark_ms = snapshot.summary()?.watermark_ms;
    write!(out, "{{\"format\":{},\"watermark_ms\":{watermark_ms}", json::FORMAT)?;
    let mut list = json::List::begin(",\n\"accounts\":[", out)?;
    each(snapshot, &mut |row| {
        let AccountRow { source, key, counts, last_seen_ms } = *row;
        list.push(&Account { source, key, read: Read::of(counts), last_seen_ms })
    })?;
    list.end()?;
    Ok(out.write_all(b"}\n")?)
}

/// In two passes over the same state: the first finds the widths and the sums.
fn table(snapshot: &dyn Snapshot, out: &mut dyn Write) -> Result<(), ReportError> {
    let mut columns = [
        Column::right("read"),
        Column::right("accepted"),
        Column::right("late"),
        Column::right("duplicate"),
        Column::right("future"),
        Column::right("expired"),
        Column::right("last seen_ms"),
        Column::left("source"),
        Column::left("key"),
    ];
    let (mut keys, mut all, mut has_rest) = (0_u64, Counts::default(), false);
    each(snapshot, &mut |row| {
        keys += u64::from(row.key.is_some());
        has_rest |= row.key.is_none();
        all.add(&row.counts);
        widen(&mut columns, &cells(row));
        Ok(())
    })?;
    writeln!(out, "What each source sent of each key: {} listed", grouped(keys))?;
    if all.events() == 0 {
        return Ok(());
    }
    let [read, accepted, late, duplicate, future, expired] = figures(all);
    let (last, name) = (String::new(), "all of them".to_owned());
    let sums = [read, accepted, late, duplicate, future, expired, last, name, String::new()];
    widen(&mut columns, &sums);
    titles(&columns, out)?;
    each(snapshot, &mut |row| line(&columns, &cells(row), out))?;
    line(&columns[..8], &sums[..8], out)?;
    if has_rest {
        writeln!(out, "* not told apart by key: pruned since, or from before keys were counted")?;
    }
    Ok(())
}

fn cells(row: &AccountRow<'_>) -> [String; 9] {
    let [read, accepted, late, duplicate, future, expired] = figures(row.counts);
    let last = row.last_seen_ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string());
    let key = row.key.map_or_else(|| "*".to_owned(), |key| shown(key).into_owned());
    let source = shown(row.source).into_owned();
    [read, accepted, late, duplicate, future, expired, last, source, key]
}

fn figures(counts: Counts) -> [String; 6] {
    let Counts { accepted, late, duplicate, future, expired } = counts;
    [counts.events(), accepted, late, duplicate, future, expired].map(grouped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::report::fake::{Fake, write_to_string};

    #[test]
    fn accounts_stand_by_source_and_key_and_add_up() {
        let found =
            write_to_string(|out| write_accounts(&Fake::example(), false, out)).replace(' ', "_");
        let expected = "\
What_each_source_sent_of_each_key:_1_listed
read__accepted__late__duplicate__future__expired__last_seen_ms__source_______key
___3_________1_____1__________1_______0________0_____________-__default______*
___9_________3_____0__________6_______0________0__________1600__default______checkout
__12_________4_____1__________7_______0________0________________all_of_them
*_not_told_apart_by_key:_pruned_since,_or_from_before_keys_were_counted
";
        assert_eq!(found, expected);
        let none = write_to_string(|out| write_accounts(&Fake::empty(), false, out));
        assert_eq!(none, "What each source sent of each key: 0 listed\n");
    }

    #[test]
    fn programs_get_them_as_a_list() {
        let text = write_to_string(|out| write_accounts(&Fake::example(), true, out));
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(text.lines().count(), 5, "each has a line of its own: {text}");
        let expected = serde_json::json!({"source": "default", "key": "checkout", "read": 9,
            "accepted": 3, "late": 0, "duplicate": 6, "future": 0, "expired": 0,
            "last_seen_ms": 1600});
        assert_eq!(found["accounts"][1], expected);
        assert_eq!(found["accounts"][0]["key"], serde_json::Value::Null);
    }
}
