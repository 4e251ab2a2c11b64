//! Compares windows and accounts, of which a part may be packed apart from the tables: the store
//! shows its own as a stream, beside which the rows of the other are walked through.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rusqlite::{Row, Rows, params};

use super::shown;
use crate::engine::Counts;
use crate::engine::totals::Totals;
use crate::store::audit::{Checkup, FindingCode};
use crate::store::sqlite::file::fault::fault;
use crate::store::sqlite::reader::SqliteSnapshot;
use crate::store::sqlite::tables::store_meta;
use crate::store::sqlite::tables::windows::totals;
use crate::store::{Error, Snapshot, Span};

/// What the other store was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// What came with the ids: revisions are not told by it.
    Ids,
    /// The files, played again.
    Files,
}

impl By {
    fn words(self) -> &'static str {
        match self {
            By::Ids => "so say the ids",
            By::Files => "so say the files, played again",
        }
    }
}

/// The rows of the other store, in their order.
struct Pattern<'p, K, V> {
    rows: Rows<'p>,
    read: fn(&Row<'_>) -> rusqlite::Result<(K, V)>,
    next: Option<(K, V)>,
}

/// Told of each row: what is expected of it, and what is found.
type Tell<'t, K, V> = dyn FnMut(&K, Option<&V>, Option<&V>) + 't;

impl<'p, K: Ord, V> Pattern<'p, K, V> {
    fn new(
        rows: Rows<'p>,
        read: fn(&Row<'_>) -> rusqlite::Result<(K, V)>,
    ) -> rusqlite::Result<Pattern<'p, K, V>> {
        let mut pattern = Pattern { rows, read, next: None };
        pattern.step()?;
        Ok(pattern)
    }

    fn step(&mut self) -> rusqlite::Result<()> {
        self.next = self.rows.next()?.map(self.read).transpose()?;
        Ok(())
    }

    /// The store shows a row: tells of those before it that it lacks, and of itself.
    fn meet(&mut self, key: &K, found: &V, tell: &mut Tell<'_, K, V>) -> rusqlite::Result<()> {
        while let Some((other, expected)) = &self.next
            && other < key
        {
            tell(other, Some(expected), None);
            self.step()?;
        }
        let same = self.next.as_ref().filter(|(other, _)| other == key);
        tell(key, same.map(|(_, expected)| expected), Some(found));
        if same.is_some() { self.step() } else { Ok(()) }
    }

    /// The store shows no more.
    fn end(mut self, tell: &mut Tell<'_, K, V>) -> rusqlite::Result<()> {
        while let Some((other, expected)) = &self.next {
            tell(other, Some(expected), None);
            self.step()?;
        }
        Ok(())
    }
}

/// A window by its start and key, what it holds, and its revision.
type Window = ((i64, String), (Totals, u64));

/// Compares windows from that start on.
pub(super) fn compare_windows(
    store: &SqliteSnapshot,
    other: &SqliteSnapshot,
    by: By,
    from_ms: i64,
    checkup: &mut Checkup,
) -> Result<(), Error> {
    let in_other = |error: rusqlite::Error| fault(other.path(), "read what was made again", &error);
    let sql = "SELECT start_ms, key, count, sum, min, max, revision FROM windows \
               WHERE start_ms >= ?1 ORDER BY start_ms, key";
    let mut statement = other.connection().prepare(sql).map_err(in_other)?;
    let read = |row: &Row<'_>| -> rusqlite::Result<Window> {
        Ok(((row.get(0)?, row.get(1)?), (totals(row, 2)?, row.get(6)?)))
    };
    let rows = statement.query(params![from_ms]).map_err(in_other)?;
    let mut pattern = Pattern::new(rows, read).map_err(in_other)?;
    let pruned_ms = store.read("figures", store_meta::load)?.pruned_start_ms;
    let mut tell = |id: &(i64, String), expected: Option<&_>, found: Option<&_>| {
        // retention removed what is not there
        if found.is_some() || pruned_ms.is_none_or(|ms| id.0 > ms) {
            tell_window(id, by, expected, found, checkup);
        }
    };
    let mut failed = None;
    let span = Span { from_ms: Some(from_ms), to_ms: None };
    let shown = store.windows(span, &mut |window| {
        let id = (window.start_ms, window.key.to_owned());
        go_on(pattern.meet(&id, &(window.totals, window.revision), &mut tell), &mut failed)
    });
    let ended = match (&shown, failed) {
        (_, Some(error)) => Err(error),
        (Ok(()), None) => pattern.end(&mut tell),
        (Err(_), None) => Ok(()),
    };
    ended.map_err(in_other)?;
    readable(shown, "windows", checkup)
}

fn tell_window(
    (start_ms, key): &(i64, String),
    by: By,
    expected: Option<&(Totals, u64)>,
    found: Option<&(Totals, u64)>,
    checkup: &mut Checkup,
) {
    let what = format!("window {start_ms} of key {}", shown(key));
    let words = |one: Option<&(Totals, u64)>| match one {
        Some((Totals { count, sum, min, max }, _)) => {
            format!("count {count}, sum {sum}, min {min}, max {max}")
        }
        None => "none".to_owned(),
    };
    let (totals, revisions) = (
        (expected.map(|one| one.0), found.map(|one| one.0)),
        (expected.map(|one| one.1), found.map(|one| one.1)),
    );
    if totals.0 != totals.1 {
        let expected = format!("{}; {}", words(expected), by.words());
        checkup.found(FindingCode::WindowDiffers, what, expected, words(found));
    } else if by == By::Files && revisions.0 != revisions.1 {
        let words = |revision: Option<u64>| revision.unwrap_or(0).to_string();
        let expected = format!("{}; {}", words(revisions.0), by.words());
        let what = format!("revision of {what}");
        checkup.found(FindingCode::RevisionDiffers, what, expected, words(revisions.1));
    }
}

/// An account by source and key, its counts, and how far event time had come with it.
type Account = ((String, String), (Counts, i64));

/// Compares what each source sent of each key. Where retention added some of it up, that is compared
/// with what is missing of its source.
pub(super) fn compare_accounts(
    store: &SqliteSnapshot,
    other: &SqliteSnapshot,
    checkup: &mut Checkup,
) -> Result<(), Error> {
    let in_other = |error: rusqlite::Error| fault(other.path(), "read what was made again", &error);
    let sql = "SELECT source, key, accepted, late, duplicate, future, expired, last_seen_ms \
               FROM accounts ORDER BY source, key";
    let mut statement = other.connection().prepare(sql).map_err(in_other)?;
    let read = |row: &Row<'_>| -> rusqlite::Result<Account> {
        Ok(((row.get(0)?, row.get(1)?), (store_meta::counts(row, 2)?, row.get(7)?)))
    };
    let rows = statement.query([]).map_err(in_other)?;
    let mut pattern = Pattern::new(rows, read).map_err(in_other)?;
    let pruned = pruned_sources(store)?;
    let mut missing: BTreeMap<String, Counts> = BTreeMap::new();
    let mut tell = |(source, key): &(String, String),
                    expected: Option<&(Counts, i64)>,
                    found: Option<&(Counts, i64)>| {
        if expected == found {
            return;
        }
        // an account that retention removed may have begun anew, and has come as far by now
        let has_come_as_far = found.is_none_or(|one| expected.map(|one| one.1) == Some(one.1));
        if pruned.contains_key(source) && expected.is_some() && has_come_as_far {
            let of = |one: Option<&(Counts, i64)>| one.map_or(Counts::default(), |one| one.0);
            less(missing.entry(source.clone()).or_default(), &of(expected), &of(found));
            return;
        }
        let words = |one: Option<&(Counts, i64)>| match one {
            Some((counts, last_seen_ms)) => format!("{counts}, up to {last_seen_ms}"),
            None => "none".to_owned(),
        };
        let what = format!("account of source {}, key {}", shown(source), shown(key));
        let expected = format!("{}; {}", words(expected), By::Files.words());
        checkup.found(FindingCode::AccountDiffers, what, expected, words(found));
    };
    let mut failed = None;
    let shown = store.accounts(&mut |account| {
        let Some(key) = account.key else { return ControlFlow::Continue(()) };
        let id = (account.source.to_owned(), key.to_owned());
        let found = (account.counts, account.last_seen_ms.unwrap_or(i64::MIN));
        go_on(pattern.meet(&id, &found, &mut tell), &mut failed)
    });
    let ended = match (&shown, failed) {
        (_, Some(error)) => Err(error),
        (Ok(()), None) => pattern.end(&mut tell),
        (Err(_), None) => Ok(()),
    };
    ended.map_err(in_other)?;
    for (source, found) in &pruned {
        let expected = missing.remove(source).unwrap_or_default();
        if shown.is_ok() && *found != expected {
            let what =
                format!("accounts of source {} that retention added up", self::shown(source));
            let expected = format!("{expected}; {}", By::Files.words());
            checkup.found(FindingCode::AccountDiffers, what, expected, found.to_string());
        }
    }
    readable(shown, "accounts", checkup)
}

/// Adds how much less was found of each count; a damaged one can be anything.
fn less(to: &mut Counts, expected: &Counts, found: &Counts) {
    for (to, expected, found) in [
        (&mut to.accepted, expected.accepted, found.accepted),
        (&mut to.late, expected.late, found.late),
        (&mut to.duplicate, expected.duplicate, found.duplicate),
        (&mut to.future, expected.future, found.future),
        (&mut to.expired, expected.expired, found.expired),
    ] {
        *to = to.wrapping_add(expected.wrapping_sub(found));
    }
}

fn pruned_sources(store: &SqliteSnapshot) -> Result<BTreeMap<String, Counts>, Error> {
    let sql = "SELECT source, accepted, late, duplicate, future, expired FROM pruned_accounts";
    store.read("accounts", |connection| {
        let mut statement = connection.prepare(sql)?;
        statement.query_map([], |row| Ok((row.get(0)?, store_meta::counts(row, 1)?)))?.collect()
    })
}

/// Ends the stream where the other one cannot be read.
fn go_on(met: rusqlite::Result<()>, failed: &mut Option<rusqlite::Error>) -> ControlFlow<()> {
    match met {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            *failed = Some(error);
            ControlFlow::Break(())
        }
    }
}

/// What of the store cannot be read is a finding.
fn readable(shown: Result<(), Error>, what: &str, checkup: &mut Checkup) -> Result<(), Error> {
    match shown {
        Err(Error::Corrupt(text)) => {
            checkup.found(FindingCode::StoreUnreadable, what, "rows that can be read", text);
            Ok(())
        }
        other => other,
    }
}
