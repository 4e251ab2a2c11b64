//! Compares what a store says, row by row, with what another one has come to.

use std::cmp::Ordering;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Row, Rows};

use super::{shown, streams};
use crate::store::Error;
use crate::store::audit::{Checkup, FindingCode};
use crate::store::sqlite::file::fault::fault;
use crate::store::sqlite::reader::SqliteSnapshot;
use crate::store::sqlite::tables::removed::{self, Kind};

/// Which rows retention may have removed.
#[derive(Clone, Copy, Debug, Default)]
struct Allowed {
    /// Windows that begin up to there.
    pruned_start_ms: Option<i64>,
    /// Late events.
    late: bool,
    /// Moves of the watermark up to there.
    moves_up_to_ms: Option<i64>,
}

/// One table, as it is compared.
struct Table {
    code: FindingCode,
    /// What a row is.
    what: &'static str,
    /// How many of the columns tell one row from another; they stand first, and rows are in their
    /// order.
    keys: usize,
    sql: &'static str,
}

/// All that is said of events by rows, but when it was said.
const TABLES: [Table; 11] = [
    Table {
        code: FindingCode::ReceiptDiffers,
        what: "receipt",
        keys: 1,
        sql: "SELECT batch, kind, file, source, accepted, late, duplicate, future, expired, \
              watermark_ms, windows_closed, sha256, bytes FROM batches ORDER BY batch",
    },
    Table {
        code: FindingCode::MoveDiffers,
        what: "move of the watermark",
        keys: 1,
        sql: "SELECT to_ms, from_ms, batch, event_index, windows_closed FROM moves ORDER BY to_ms",
    },
    Table {
        code: FindingCode::LateDiffers,
        what: "late event",
        keys: 2,
        sql: "SELECT batch, event_index, id, key, timestamp_ms, value, window_start_ms, \
              watermark_ms, source, applied_in FROM late \
              WHERE batch NOT IN (SELECT batch FROM batches WHERE kind = 'release') \
              ORDER BY batch, event_index",
    },
    // those that stayed ahead have an index of their own, too
    Table {
        code: FindingCode::LateDiffers,
        what: "late event that was released",
        keys: 4,
        sql: "SELECT batch, id, timestamp_ms, value, key, window_start_ms, watermark_ms, source, \
              applied_in FROM late \
              WHERE batch IN (SELECT batch FROM batches WHERE kind = 'release') \
              ORDER BY batch, id, timestamp_ms, value",
    },
    Table {
        code: FindingCode::HeldDiffers,
        what: "held event",
        keys: 2,
        sql: "SELECT batch, event_index, id, key, timestamp_ms, value, source, producer_version, \
              watermark_ms FROM held ORDER BY batch, event_index",
    },
    Table {
        code: FindingCode::SettledDiffers,
        what: "note of a held event",
        keys: 2,
        sql: "SELECT batch, event_index, settlement, settled_in, id, key, timestamp_ms, value, \
              source, producer_version FROM settled ORDER BY batch, event_index",
    },
    Table {
        code: FindingCode::PresenceDiffers,
        what: "note of a source",
        keys: 2,
        sql: "SELECT batch, ordinal, source, presence, event_index FROM presence \
              ORDER BY batch, ordinal",
    },
    Table {
        code: FindingCode::SourceDiffers,
        what: "source",
        keys: 1,
        sql: "SELECT name, max_timestamp_ms, declared, idle, retired, expected, accepted, late, \
              duplicate, future, expired, last_batch, last_file, heard_in FROM sources \
              ORDER BY name",
    },
    Table {
        code: FindingCode::VersionDiffers,
        what: "producer version",
        keys: 1,
        sql: "SELECT name, accepted, late, duplicate, future, expired FROM versions ORDER BY name",
    },
    // nothing of a corrected window is packed apart from the tables
    Table {
        code: FindingCode::RevisionDiffers,
        what: "corrected window",
        keys: 2,
        sql: "SELECT start_ms, key, revision, revised_in FROM windows WHERE revision > 0 \
              ORDER BY start_ms, key",
    },
    Table {
        code: FindingCode::RevisionDiffers,
        what: "earlier revision",
        keys: 3,
        sql: "SELECT start_ms, key, revision, count, sum, min, max, corrected_in FROM revisions \
              ORDER BY start_ms, key, revision",
    },
];

/// The tables and indexes, as they were made.
const SCHEMA: Table = Table {
    code: FindingCode::SchemaDiffers,
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
            let may_lack = |row: &[Value]| match (table.code, row) {
                (FindingCode::MoveDiffers, [Value::Integer(to_ms), ..]) => {
                    allowed.moves_up_to_ms.is_some_and(|up_to_ms| *to_ms <= up_to_ms)
                }
                (FindingCode::RevisionDiffers, [Value::Integer(start_ms), ..]) => {
                    allowed.pruned_start_ms.is_some_and(|ms| *start_ms <= ms)
                }
                (FindingCode::LateDiffers, _) => allowed.late,
                _ => false,
            };
            compare(self, replayed, table, "the files, played again,", &may_lack, checkup)?;
        }
        let figures = if allowed.pruned_start_ms.is_some() || allowed.late {
            "SELECT 'figures', watermark_ms, last_number, last_batch, batches, accepted, late, \
             duplicate, future, expired, held, sources FROM store"
        } else {
            "SELECT 'figures', watermark_ms, last_number, last_batch, batches, accepted, late, \
             duplicate, future, expired, held, sources, windows, corrected_windows, late_kept, \
             late_applied FROM store"
        };
        let what = "the store's";
        let store = Table { code: FindingCode::CountsDiffer, what, keys: 1, sql: figures };
        compare(self, replayed, &store, "the files, played again,", &|_| false, checkup)?;
        streams::compare_windows(self, replayed, streams::By::Files, i64::MIN, checkup)?;
        streams::compare_accounts(self, replayed, checkup)
    }

    fn allowed(&self) -> Result<Allowed, Error> {
        self.read("what retention removed", |connection| {
            Ok(Allowed {
                pruned_start_ms: removed::of(connection, Kind::Windows)?.up_to,
                late: removed::of(connection, Kind::Late)?.rows != 0,
                moves_up_to_ms: removed::of(connection, Kind::Moves)?.up_to,
            })
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
