//! Compares what a store says, row by row, with what another one has come to.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Row, Rows, params};

use super::shown;
use crate::engine::Counts;
use crate::engine::totals::Totals;
use crate::store::checkup::{Checkup, Code};
use crate::store::sqlite::read::SqliteSnapshot;
use crate::store::sqlite::windows::totals;
use crate::store::sqlite::{fault::fault, head};
use crate::store::{Error, Snapshot, Span};

/// Which rows retention may have removed.
#[derive(Clone, Copy, Debug, Default)]
struct Allowed {
    /// Windows that begin up to there.
    pruned_start_ms: Option<i64>,
    /// So many late events.
    late: u64,
    /// Moves of the watermark to before that.
    moves_before_ms: i64,
}

/// One table, as it is compared.
struct Table {
    code: Code,
    /// What a row is.
    what: &'static str,
    /// How many of the columns tell one row from another; they stand first, and rows are in their
    /// order.
    keys: usize,
    sql: &'static str,
}

/// All that is said of events by rows, but when it was said.
const TABLES: [Table; 10] = [
    Table {
        code: Code::ReceiptDiffers,
        what: "receipt",
        keys: 1,
        sql: "SELECT batch, kind, file, source, accepted, late, duplicate, future, expired, \
              watermark_ms, windows_closed, sha256, bytes FROM batches ORDER BY batch",
    },
    Table {
        code: Code::MoveDiffers,
        what: "move of the watermark",
        keys: 1,
        sql: "SELECT to_ms, from_ms, batch, event_index, windows_closed FROM moves ORDER BY to_ms",
    },
    Table {
        code: Code::LateDiffers,
        what: "late event",
        keys: 2,
        sql: "SELECT batch, event_index, id, key, timestamp_ms, value, window_start_ms, \
              watermark_ms, source, applied_in FROM late \
              WHERE batch NOT IN (SELECT batch FROM batches WHERE kind = 'release') \
              ORDER BY batch, event_index",
    },
    // those that stayed ahead have an index of their own, too
    Table {
        code: Code::LateDiffers,
        what: "late event that was released",
        keys: 2,
        sql: "SELECT batch, row_number() OVER (PARTITION BY batch ORDER BY event_index) AS nth, \
              id, key, timestamp_ms, value, window_start_ms, watermark_ms, source, applied_in \
              FROM late WHERE batch IN (SELECT batch FROM batches WHERE kind = 'release') \
              ORDER BY batch, event_index",
    },
    Table {
        code: Code::HeldDiffers,
        what: "held event",
        keys: 2,
        sql: "SELECT batch, event_index, id, key, timestamp_ms, value, source, producer_version, \
              watermark_ms FROM held ORDER BY batch, event_index",
    },
    Table {
        code: Code::SettledDiffers,
        what: "note of a held event",
        keys: 2,
        sql: "SELECT batch, event_index, settlement, settled_in, id, key, timestamp_ms, value, \
              source, producer_version FROM settled ORDER BY batch, event_index",
    },
    Table {
        code: Code::PresenceDiffers,
        what: "note of a source",
        keys: 2,
        sql: "SELECT batch, ordinal, source, presence, event_index FROM presence \
              ORDER BY batch, ordinal",
    },
    Table {
        code: Code::SourceDiffers,
        what: "source",
        keys: 1,
        sql: "SELECT name, max_timestamp_ms, declared, idle, accepted, late, duplicate, future, \
              expired, last_batch, last_file FROM sources ORDER BY name",
    },
    Table {
        code: Code::VersionDiffers,
        what: "producer version",
        keys: 1,
        sql: "SELECT name, accepted, late, duplicate, future, expired FROM versions ORDER BY name",
    },
    Table {
        code: Code::RevisionDiffers,
        what: "earlier revision",
        keys: 3,
        sql: "SELECT start_ms, key, revision, count, sum, min, max, corrected_in FROM revisions \
              ORDER BY start_ms, key, revision",
    },
];

/// The tables and indexes, as they were made.
const SCHEMA: Table = Table {
    code: Code::SchemaDiffers,
    what: "table or index",
    keys: 2,
    sql: "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name",
};

impl SqliteSnapshot {
    /// That its tables are those of this version, with `scratch` as the pattern.
    ///
    /// # Errors
    /// By kind; damage is a finding.
    pub fn check_schema(
        &self,
        scratch: &SqliteSnapshot,
        checkup: &mut Checkup,
    ) -> Result<(), Error> {
        compare(self, scratch, &SCHEMA, "a new store", &|_| false, checkup)
    }

    /// That it says the same as `replayed`, in which all batches were played again.
    ///
    /// # Errors
    /// By kind; damage is a finding.
    pub fn compare_with(
        &self,
        replayed: &SqliteSnapshot,
        checkup: &mut Checkup,
    ) -> Result<(), Error> {
        let allowed = self.allowed()?;
        for table in &TABLES {
            if table.what == "late event that was released" && allowed.late > 0 {
                continue;
            }
            let may_lack = |row: &[Value]| match (table.code, row) {
                (Code::MoveDiffers, [Value::Integer(to_ms), ..]) => {
                    *to_ms < allowed.moves_before_ms
                }
                (Code::RevisionDiffers, [Value::Integer(start_ms), ..]) => {
                    allowed.pruned_start_ms.is_some_and(|ms| *start_ms <= ms)
                }
                (Code::LateDiffers, _) => allowed.late > 0,
                _ => false,
            };
            compare(self, replayed, table, "the files, played again,", &may_lack, checkup)?;
        }
        let figures = if allowed.pruned_start_ms.is_some() || allowed.late > 0 {
            "SELECT 'figures', watermark_ms, last_number, last_batch, batches, accepted, late, \
             duplicate, future, expired, held FROM store"
        } else {
            "SELECT 'figures', watermark_ms, last_number, last_batch, batches, accepted, late, \
             duplicate, future, expired, held, windows, corrected_windows, late_kept, late_applied \
             FROM store"
        };
        let what = "the store's";
        let store = Table { code: Code::CountsDiffer, what, keys: 1, sql: figures };
        compare(self, replayed, &store, "the files, played again,", &|_| false, checkup)?;
        compare_windows(self, replayed, "the files, played again,", i64::MIN, checkup)?;
        compare_accounts(self, replayed, checkup)
    }

    fn allowed(&self) -> Result<Allowed, Error> {
        self.read("what retention removed", |connection| {
            let head = head::load(connection)?;
            let is_aside = self.fixed().late_policy() == crate::engine::settings::LatePolicy::Aside;
            let late = if is_aside { head.counts.late.saturating_sub(head.late_kept) } else { 0 };
            let first_ms: Option<i64> =
                connection.query_row("SELECT MIN(to_ms) FROM moves", [], |row| row.get(0))?;
            let moves_before_ms = match head.pruned_start_ms {
                Some(_) => first_ms.unwrap_or(i64::MAX),
                None => i64::MIN,
            };
            Ok(Allowed { pruned_start_ms: head.pruned_start_ms, late, moves_before_ms })
        })
    }
}

/// Compares the rows of one table; `may_lack` says which of them need not be there.
fn compare(
    store: &SqliteSnapshot,
    other: &SqliteSnapshot,
    table: &Table,
    by: &str,
    may_lack: &dyn Fn(&[Value]) -> bool,
    checkup: &mut Checkup,
) -> Result<(), Error> {
    let in_other = |error: rusqlite::Error| fault(other.path(), "read what was made again", &error);
    let mut pattern = other.connection().prepare(table.sql).map_err(in_other)?;
    let mut pattern = pattern.query([]).map_err(in_other)?;
    let mut expected = next(&mut pattern).map_err(in_other)?;
    store.looked(table.what, checkup, |connection, checkup| {
        let mut statement = connection.prepare(table.sql)?;
        let names: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
        let differs = Differs { table, by, names: &names };
        let mut rows = statement.query([])?;
        let mut found = next(&mut rows)?;
        loop {
            let order = match (&expected, &found) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(expected), Some(found)) => {
                    order(&expected[..table.keys], &found[..table.keys])
                }
            };
            match (order, &expected, &found) {
                (Ordering::Less, Some(row), _) if !may_lack(row) => {
                    differs.tell(row, Some(row), None, checkup);
                }
                (Ordering::Greater, _, Some(row)) => differs.tell(row, None, Some(row), checkup),
                (Ordering::Equal, Some(one), Some(other)) if one != other => {
                    differs.tell(one, Some(one), Some(other), checkup);
                }
                _ => {}
            }
            if order != Ordering::Greater {
                // it was made by this program a moment ago
                expected = next(&mut pattern)?;
            }
            if order != Ordering::Less {
                found = next(&mut rows)?;
            }
        }
    })?;
    Ok(())
}

fn next(rows: &mut Rows<'_>) -> rusqlite::Result<Option<Vec<Value>>> {
    let read = |row: &Row<'_>| (0..row.as_ref().column_count()).map(|at| value(row, at)).collect();
    rows.next()?.map(read).transpose()
}

/// A column as it is; text that is damaged is an error, where `Row::get` would panic.
fn value(row: &Row<'_>, at: usize) -> rusqlite::Result<Value> {
    match row.get_ref(at)? {
        text @ ValueRef::Text(_) => Ok(Value::Text(text.as_str()?.to_owned())),
        other => Ok(other.into()),
    }
}

/// The order in which SQLite sorts values of these kinds.
fn order(one: &[Value], other: &[Value]) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Null => 0,
        Value::Integer(_) | Value::Real(_) => 1,
        Value::Text(_) => 2,
        Value::Blob(_) => 3,
    };
    one.iter()
        .zip(other)
        .map(|pair| match pair {
            (Value::Integer(one), Value::Integer(other)) => one.cmp(other),
            (Value::Text(one), Value::Text(other)) => one.as_bytes().cmp(other.as_bytes()),
            (one, other) => rank(one).cmp(&rank(other)),
        })
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// How a row that differs is told.
struct Differs<'d> {
    table: &'d Table,
    by: &'d str,
    names: &'d [String],
}

impl Differs<'_> {
    fn tell(
        &self,
        key: &[Value],
        expected: Option<&[Value]>,
        found: Option<&[Value]>,
        checkup: &mut Checkup,
    ) {
        let keys = self.table.keys;
        let what = format!("{} {}", self.table.what, self.words(0..keys, key));
        let columns = keys..self.names.len();
        let (expected, found) = match (expected, found) {
            (Some(one), Some(other)) => {
                let differing: Vec<usize> = columns.filter(|at| one[*at] != other[*at]).collect();
                let words = |row| self.words(differing.iter().copied(), row);
                (words(one), words(other))
            }
            (one, other) => {
                let words = |row: Option<&[Value]>| {
                    row.map_or("none".to_owned(), |row| self.words(columns.clone(), row))
                };
                (words(one), words(other))
            }
        };
        let expected = format!("{expected}; so says what {} make of it", self.by);
        checkup.found(self.table.code, what, expected, found);
    }

    fn words(&self, columns: impl Iterator<Item = usize>, row: &[Value]) -> String {
        let one = |at: usize| {
            let value = match &row[at] {
                Value::Null => "none".to_owned(),
                Value::Integer(number) => number.to_string(),
                Value::Real(number) => number.to_string(),
                Value::Text(text) => shown(text),
                Value::Blob(bytes) => format!("{} bytes", bytes.len()),
            };
            format!("{} {value}", self.names[at])
        };
        columns.map(one).collect::<Vec<_>>().join(", ")
    }
}

/// Compares windows from that start on. `by` says what the others were made of.
pub(super) fn compare_windows(
    store: &SqliteSnapshot,
    other: &SqliteSnapshot,
    by: &str,
    from_ms: i64,
    checkup: &mut Checkup,
) -> Result<(), Error> {
    let in_other = |error: rusqlite::Error| fault(other.path(), "read what was made again", &error);
    let has_revisions = by != "the ids";
    let sql = "SELECT start_ms, key, count, sum, min, max, revision FROM windows \
               WHERE start_ms >= ?1 ORDER BY start_ms, key";
    let mut pattern = other.connection().prepare(sql).map_err(in_other)?;
    let mut pattern = pattern.query(params![from_ms]).map_err(in_other)?;
    let read = |row: &Row<'_>| -> rusqlite::Result<Window> {
        Ok(((row.get(0)?, row.get(1)?), totals(row, 2)?, row.get(6)?))
    };
    let mut step = || pattern.next()?.map(read).transpose();
    let mut expected = step().map_err(in_other)?;
    let pruned_ms = store.read("figures", head::load)?.pruned_start_ms;
    let lacks = |(id, totals, _): &Window, checkup: &mut Checkup| {
        if pruned_ms.is_none_or(|ms| id.0 > ms) {
            let expected = format!("{}; so say {by}", words(totals));
            checkup.found(Code::WindowDiffers, named(id), expected, "none");
        }
    };
    let mut failed = None;
    let span = Span { from_ms: Some(from_ms), to_ms: None };
    let told = store.windows(span, &mut |window| {
        let id = (window.start_ms, window.key);
        while let Some(one) = expected.take_if(|one| (one.0.0, one.0.1.as_str()) < id) {
            lacks(&one, checkup);
            match step() {
                Ok(next) => expected = next,
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
        }
        let same = expected.take_if(|one| (one.0.0, one.0.1.as_str()) == id);
        let expected_totals = same.as_ref().map(|one| one.1);
        let revision = same.as_ref().map_or(0, |one| one.2);
        let id = (window.start_ms, window.key.to_owned());
        if expected_totals != Some(window.totals) {
            let expected = expected_totals.map_or("none".to_owned(), |totals| words(&totals));
            let expected = format!("{expected}; so say {by}");
            checkup.found(Code::WindowDiffers, named(&id), expected, words(&window.totals));
        } else if has_revisions && revision != window.revision {
            let (expected, found) = (revision.to_string(), window.revision.to_string());
            let what = format!("revision of {}", named(&id));
            checkup.found(Code::RevisionDiffers, what, expected, found);
        }
        if same.is_some() {
            match step() {
                Ok(next) => expected = next,
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    });
    if let Some(error) = failed {
        return Err(in_other(error));
    }
    match told {
        Ok(()) => {}
        Err(Error::Corrupt(text)) => {
            checkup.found(Code::StoreUnreadable, "windows", "rows that can be read", text);
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    while let Some(one) = expected {
        lacks(&one, checkup);
        expected = step().map_err(in_other)?;
    }
    Ok(())
}

/// A window by its start and key, what it holds, and its revision.
type Window = ((i64, String), Totals, u64);

fn named((start_ms, key): &(i64, String)) -> String {
    format!("window {start_ms} of key {}", shown(key))
}

fn words(totals: &Totals) -> String {
    let Totals { count, sum, min, max } = totals;
    format!("count {count}, sum {sum}, min {min}, max {max}")
}

/// Compares what each source sent of each key. Where retention added some of it up, only that its
/// sum is right.
fn compare_accounts(
    store: &SqliteSnapshot,
    other: &SqliteSnapshot,
    checkup: &mut Checkup,
) -> Result<(), Error> {
    let in_other = |error: rusqlite::Error| fault(other.path(), "read what was made again", &error);
    let sql = "SELECT source, key, accepted, late, duplicate, future, expired, last_seen_ms \
               FROM accounts ORDER BY source, key";
    let mut pattern = other.connection().prepare(sql).map_err(in_other)?;
    let mut pattern = pattern.query([]).map_err(in_other)?;
    let read = |row: &Row<'_>| -> rusqlite::Result<Account> {
        Ok(((row.get(0)?, row.get(1)?), head::counts(row, 2)?, row.get(7)?))
    };
    let mut step = || {
        let row = pattern.next().and_then(|row| row.map(read).transpose());
        row.map_err(in_other)
    };
    let pruned: BTreeMap<String, Counts> = store.read("accounts", |connection| {
        connection
            .prepare(
                "SELECT source, accepted, late, duplicate, future, expired FROM pruned_accounts",
            )?
            .query_map([], |row| Ok((row.get(0)?, head::counts(row, 1)?)))?
            .collect()
    })?;
    let mut expected = step()?;
    let mut failed = None;
    let told = store.accounts(&mut |account| {
        let Some(key) = account.key else { return ControlFlow::Continue(()) };
        let id = (account.source, key);
        let lacking = |one: &Account, checkup: &mut Checkup| lacks(one, &pruned, checkup);
        loop {
            let Some(one) = expected.take_if(|one| (one.0.0.as_str(), one.0.1.as_str()) <= id)
            else {
                if !pruned.contains_key(account.source) {
                    let found = format!("{} ({:?})", account.counts, account.last_seen_ms);
                    checkup.found(Code::AccountDiffers, account_of(id), "none", found);
                }
                return ControlFlow::Continue(());
            };
            let is_same = (one.0.0.as_str(), one.0.1.as_str()) == id;
            let found = (account.counts, account.last_seen_ms);
            if !is_same {
                lacking(&one, checkup);
            } else if found != (one.1, Some(one.2)) && !pruned.contains_key(account.source) {
                let expected = format!("{}, up to {}; so say the files", one.1, one.2);
                let found = format!("{}, up to {:?}", found.0, found.1.unwrap_or(-1));
                checkup.found(Code::AccountDiffers, account_of(id), expected, found);
            }
            match step() {
                Ok(next) => expected = next,
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            if is_same {
                return ControlFlow::Continue(());
            }
        }
    });
    if let Some(error) = failed {
        return Err(error);
    }
    match told {
        Err(Error::Corrupt(text)) => {
            checkup.found(Code::StoreUnreadable, "accounts", "rows that can be read", text);
            return Ok(());
        }
        other => other?,
    }
    while let Some(one) = expected {
        lacks(&one, &pruned, checkup);
        expected = step()?;
    }
    Ok(())
}

/// An account by source and key, its counts, and how far event time had come with it.
type Account = ((String, String), Counts, i64);

fn lacks(one: &Account, pruned: &BTreeMap<String, Counts>, checkup: &mut Checkup) {
    let ((source, key), counts, _) = one;
    if !pruned.contains_key(source) {
        let expected = format!("{counts}; so say the files, played again");
        checkup.found(Code::AccountDiffers, account_of((source, key)), expected, "none");
    }
}

fn account_of((source, key): (&str, &str)) -> String {
    format!("account of source {}, key {}", shown(source), shown(key))
}
