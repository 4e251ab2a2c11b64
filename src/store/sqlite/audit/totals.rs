//! Windows made again from what came with each id, as far as the store still knows what became of
//! it.

use std::ops::ControlFlow;

use rusqlite::{Connection, Row, Rows};

use super::scratch::Scratch;
use super::shown;
use super::streams::{By, compare_windows};
use crate::engine::settings::{LatePolicy, Settings};
use crate::engine::totals::Totals;
use crate::engine::{self, Changes, Counts};
use crate::model::event::{Chunk, Event, HashKey, Place};
use crate::store::audit::{Checkup, FindingCode};
use crate::store::sqlite::ledger;
use crate::store::sqlite::reader::SqliteSnapshot;
use crate::store::sqlite::tables::store_meta;
use crate::store::{Act, Begun, Delivery, Error, Kept, Receipt, Snapshot, Span, Store};

/// How many events are added up at once, and how many of these are one transaction.
const AT_ONCE: usize = 4096;
const CHUNKS: u32 = 64;

/// Which ids stand apart from the windows or once did, in the order of entries: whether they count
/// by now, and whether their entry must be there. What was late when it was released came in
/// elsewhere.
const APART: &str = "SELECT batch, event_index, id, key, timestamp_ms, value, \
    applied_in IS NOT NULL, EXISTS (SELECT 1 FROM batches WHERE batches.batch = late.batch \
    AND kind = 'events'), 'late' FROM late \
    UNION ALL SELECT batch, event_index, id, key, timestamp_ms, value, 0, 1, 'held' FROM held \
    UNION ALL SELECT batch, event_index, id, key, timestamp_ms, value, \
    settlement <> 'discarded' AND NOT EXISTS (SELECT 1 FROM late WHERE late.batch = settled_in \
    AND late.id = settled.id AND late.applied_in IS NULL), 1, settlement FROM settled \
    ORDER BY 1, 2";

/// An id that does not count in a window, or not at once.
#[derive(Debug)]
struct Apart {
    at: (u64, u64),
    id: String,
    key: String,
    timestamp_ms: i64,
    value: i64,
    counts: bool,
    must_be_there: bool,
    kind: String,
}

impl Apart {
    fn of(row: &Row<'_>) -> rusqlite::Result<Apart> {
        Ok(Apart {
            at: (row.get(0)?, row.get(1)?),
            id: row.get(2)?,
            key: row.get(3)?,
            timestamp_ms: row.get(4)?,
            value: row.get(5)?,
            counts: row.get(6)?,
            must_be_there: row.get(7)?,
            kind: row.get(8)?,
        })
    }
}

pub(super) fn check(
    snapshot: &SqliteSnapshot,
    scratch: &mut Scratch,
    checkup: &mut Checkup,
) -> Result<(), Error> {
    let mut failed = None;
    let is_read = snapshot.looked("ids that stand apart", checkup, |connection, checkup| {
        match add_up(connection, snapshot.fixed(), scratch, checkup)? {
            Ok(()) => {}
            Err(error) => failed = Some(error),
        }
        Ok(())
    })?;
    if let Some(error) = failed {
        return match error {
            // in this order a sum may leave its range that did not in the order in which it came
            Error::Overflow(_) if may_overflow(snapshot)? => {
                checkup.not_checked("windows from the ids: their sums leave the 64-bit range");
                Ok(())
            }
            Error::Overflow(_) => {
                let expected = "sums within the 64-bit range: no window is near its ends";
                let found = "the ids add up to more";
                checkup.found(FindingCode::WindowDiffers, "windows", expected, found);
                Ok(())
            }
            other => {
                checkup.not_checked(format!("windows from the ids: {other} (TMPDIR names it)"));
                Ok(())
            }
        };
    }
    let Some(from_ms) = first_told(snapshot, checkup)?.filter(|_| is_read) else { return Ok(()) };
    compare_windows(snapshot, &scratch.snapshot()?, By::Ids, from_ms, checkup)
}

/// Whether some order of the events of a window could lead its sum out of the 64-bit range.
fn may_overflow(snapshot: &SqliteSnapshot) -> Result<bool, Error> {
    let mut may = false;
    snapshot.windows(Span::default(), &mut |window| {
        let Totals { count, min, max, .. } = window.totals;
        let most = i128::from(min.unsigned_abs().max(max.unsigned_abs()));
        may |= most * i128::from(count) > i128::from(i64::MAX);
        if may { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(may)
}

/// From which start on windows can be made from ids; none when from none on.
fn first_told(snapshot: &SqliteSnapshot, checkup: &mut Checkup) -> Result<Option<i64>, Error> {
    let settings = snapshot.fixed();
    let (head, expired) = snapshot.read("counts", |connection| {
        let sql = "SELECT COALESCE(SUM(expired), 0) FROM batches WHERE kind = 'release'";
        Ok((store_meta::load(connection)?, connection.query_row(sql, [], super::int)?))
    })?;
    let why = if settings.late_policy() == LatePolicy::Drop && head.counts.late > 0 {
        Some("late events were dropped, and which ids these are is not kept")
    } else if expired > 0 {
        Some("held events were expired when they were released, and which is not kept")
    } else if !snapshot.knows_all_kept(Kept::Held)? {
        Some("notes of held events were removed by retention")
    } else {
        None
    };
    if let Some(why) = why {
        checkup.not_checked(format!("windows from the ids: {why}"));
        return Ok(None);
    }
    let mut from_ms = i64::MIN;
    if let Some(horizon_ms) = settings.dedup_horizon_ms() {
        from_ms = head.watermark_ms.saturating_sub(horizon_ms);
        checkup.not_checked(format!(
            "windows from the ids, where they begin before {from_ms}: ids are forgotten there"
        ));
    }
    if !snapshot.knows_all_kept(Kept::Late)? {
        from_ms = from_ms.max(head.watermark_ms.saturating_sub(settings.window_ms()) + 1);
        checkup.not_checked("final windows from the ids: retention removed late events of theirs");
    }
    Ok(Some(from_ms))
}

/// Adds up what came with the ids, window by window, in the scratch store.
fn add_up(
    connection: &Connection,
    settings: &Settings,
    scratch: &mut Scratch,
    checkup: &mut Checkup,
) -> rusqlite::Result<Result<(), Error>> {
    let key = store_meta::hash_key(connection)?;
    let mut reader = ledger::Reader::new(connection, 0)?;
    let mut statement = connection.prepare(APART)?;
    let horizon_ms = settings.dedup_horizon_ms();
    let watermark_ms = store_meta::load(connection)?.watermark_ms;
    let oldest_ms = horizon_ms.map_or(i64::MIN, |ms| watermark_ms.saturating_sub(ms));
    let mut apart = Aparts { rows: statement.query([])?, next: None, key, oldest_ms };
    apart.step()?;
    let mut chunk = Chunk::default();
    let mut more = true;
    while more {
        let begun = Delivery::fresh("sums".to_owned(), "verify".to_owned())
            .map_err(|error| Error::Io(format!("cannot draw a random token: {error}")))
            .and_then(|delivery| scratch.store().begin(&delivery).map(Some));
        let mut batch = match begun {
            Ok(Some(Begun::Open(batch))) => batch,
            Ok(_) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        };
        for _ in 0..CHUNKS {
            more = fill(&mut reader, &mut apart, &mut chunk, checkup)?;
            let windows = engine::corrections(&chunk, settings);
            let changes = Changes { windows, ..Changes::default() };
            if let Err(error) = batch.apply(&Chunk::default(), &changes) {
                return Ok(Err(error));
            }
            if !more {
                break;
            }
        }
        let (act, counts) = (Act::Correct, Counts::default());
        let receipt = Receipt::Act { act, counts, asked_by: String::new(), reason: None };
        if let Err(error) = batch.commit(&receipt) {
            return Ok(Err(error));
        }
    }
    apart.rest(checkup)?;
    Ok(Ok(()))
}

/// Fills the chunk with entries that count in a window; whether there are more.
fn fill(
    reader: &mut ledger::Reader<'_>,
    apart: &mut Aparts<'_>,
    chunk: &mut Chunk,
    checkup: &mut Checkup,
) -> rusqlite::Result<bool> {
    chunk.restart(0);
    while chunk.len() < AT_ONCE {
        if !reader.advance()? {
            return Ok(false);
        }
        let Some(entry) = reader.entry() else { continue };
        let event = Event {
            id: "x",
            key: entry.key,
            timestamp_ms: entry.timestamp_ms,
            value: entry.value,
            source: None,
            producer_version: None,
            place: Place::default(),
        };
        let at = (entry.batch, entry.event_index);
        let same = |one: &Apart, key: HashKey| {
            entry.has_id(&one.id, key)
                && (one.key.as_str(), one.timestamp_ms, one.value)
                    == (entry.key, entry.timestamp_ms, entry.value)
        };
        if apart.counts(at, same, checkup)? {
            chunk.push(event);
        }
    }
    Ok(true)
}

/// The ids that stand apart, as the entries are walked through.
struct Aparts<'r> {
    rows: Rows<'r>,
    next: Option<Apart>,
    key: HashKey,
    /// The least timestamp whose id is remembered.
    oldest_ms: i64,
}

impl Aparts<'_> {
    fn step(&mut self) -> rusqlite::Result<()> {
        self.next = self.rows.next()?.map(Apart::of).transpose()?;
        Ok(())
    }

    /// Whether the entry at that place counts in a window.
    fn counts(
        &mut self,
        at: (u64, u64),
        same: impl Fn(&Apart, HashKey) -> bool,
        checkup: &mut Checkup,
    ) -> rusqlite::Result<bool> {
        let mut counts = true;
        while let Some(one) = self.next.take() {
            if one.at > at {
                self.next = Some(one);
                break;
            }
            if one.at < at {
                self.absent(&one, checkup);
            } else {
                counts &= one.counts;
                if !same(&one, self.key) {
                    let expected = "the id, key, timestamp and value of its ledger entry";
                    let found = format!("{}, {}, {}", shown(&one.key), one.timestamp_ms, one.value);
                    checkup.found(one.code(), one.what(), expected, found);
                }
            }
            self.step()?;
        }
        Ok(counts)
    }

    /// What is left behind the last entry.
    fn rest(&mut self, checkup: &mut Checkup) -> rusqlite::Result<()> {
        while let Some(one) = self.next.take() {
            self.absent(&one, checkup);
            self.step()?;
        }
        Ok(())
    }

    /// No entry is at that place: it may be forgotten.
    fn absent(&self, one: &Apart, checkup: &mut Checkup) {
        if one.timestamp_ms >= self.oldest_ms && one.must_be_there {
            let expected = "a ledger entry of its id";
            checkup.found(one.code(), one.what(), expected, "none");
        }
    }
}

impl Apart {
    fn code(&self) -> FindingCode {
        match self.kind.as_str() {
            "held" => FindingCode::HeldDiffers,
            "late" => FindingCode::LateDiffers,
            _ => FindingCode::SettledDiffers,
        }
    }

    fn what(&self) -> String {
        let (batch, index) = self.at;
        format!("{} event {} (event {index} of batch {batch})", self.kind, shown(&self.id))
    }
}
