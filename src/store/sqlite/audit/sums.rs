//! What is told twice: receipts and the running totals, sources and accounts, moves and receipts.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rusqlite::{Connection, OptionalExtension, params};

use super::int;
use crate::engine::Counts;
use crate::store::audit::{Checkup, FindingCode};
use crate::store::sqlite::tables::removed::{self, Kind};
use crate::store::sqlite::tables::{accounts, receipts, store_meta};
use crate::store::sqlite::write_buffer;
use crate::store::{Act, ReceiptRow};

/// What all receipts come to.
#[derive(Default)]
struct Sum {
    last: Option<ReceiptRow>,
    last_events: Option<ReceiptRow>,
    batches: u64,
    counts: Counts,
    released: u64,
    receipts: u64,
    /// The greatest batch whose receipt retention removed.
    gone_up_to: u64,
}

/// Receipts follow each other without a gap, up to the last batch, and add up to the totals.
pub(super) fn check_receipts(
    connection: &Connection,
    checkup: &mut Checkup,
) -> rusqlite::Result<()> {
    let head = store_meta::load(connection)?;
    let gone = removed::of(connection, Kind::Receipts)?;
    let gone_up_to = gone.up_to.and_then(|up_to| u64::try_from(up_to).ok()).unwrap_or(0);
    let mut sum = Sum { gone_up_to, ..Sum::default() };
    receipts::each(connection, 0, &mut |receipt| {
        sum.add(receipt, checkup);
        ControlFlow::Continue(())
    })?;
    checkup.checked("receipts", sum.receipts);
    let last = sum.last.as_ref();
    let number = last.map_or(0, |last| last.batch);
    if number != head.last_number {
        let expected = format!("up to batch {}, the last of the store", head.last_number);
        checkup.found(
            FindingCode::ReceiptMissing,
            "receipts",
            expected,
            format!("up to batch {number}"),
        );
    }
    let watermark_ms = last.map_or(0, |last| last.watermark_ms);
    if watermark_ms != head.watermark_ms {
        let expected = format!("{watermark_ms}, as the last receipt says");
        let found = head.watermark_ms.to_string();
        checkup.found(FindingCode::WatermarkDiffers, "the watermark", expected, found);
    }
    let last_batch = sum.last_events.as_ref().map(|last| last.batch);
    let last_at_ms = sum.last_events.as_ref().map(|last| last.committed_at_ms);
    // only where the receipts of all events are removed it is not known
    let is_known = last_batch.is_some() || head.last_batch.is_none_or(|batch| batch > gone_up_to);
    if is_known && (last_batch, last_at_ms) != (head.last_batch, head.last_ingest_at_ms) {
        let expected = format!("batch {last_batch:?} at {last_at_ms:?}, as its receipt says");
        let found = format!("batch {:?} at {:?}", head.last_batch, head.last_ingest_at_ms);
        checkup.found(FindingCode::CountsDiffer, "the last batch of events", expected, found);
    }
    let all = i128::from(sum.receipts) + i128::from(gone.rows);
    if all != i128::from(head.last_number) {
        let expected = format!("{}, and {} that retention removed", sum.receipts, gone.rows);
        let found = format!("{} batches", head.last_number);
        checkup.found(FindingCode::ReceiptMissing, "the number of receipts", expected, found);
    }
    add(&mut sum.counts, &gone.counts);
    let released = sum.released.wrapping_add(gone.released as u64);
    let counts = Counts { future: sum.counts.future.wrapping_sub(released), ..sum.counts };
    let expected = (sum.batches.wrapping_add(gone.batches as u64), counts);
    if expected != (head.batches, head.counts) {
        let expected = format!(
            "{} batches: {}, the sum of all receipts, and of those that retention removed",
            expected.0, expected.1
        );
        let found = format!("{} batches: {}", head.batches, head.counts);
        checkup.found(FindingCode::CountsDiffer, "the totals of the store", expected, found);
    }
    Ok(())
}

impl Sum {
    fn add(&mut self, receipt: &ReceiptRow, checkup: &mut Checkup) {
        let batch = receipt.batch;
        let before = self.last.as_ref().map_or(0, |last| last.batch);
        let next = (before + 1).max(self.gone_up_to + 1);
        if batch > next {
            let what = format!("batches {next} to {}", batch - 1);
            let expected = "a receipt of each: numbers follow on one another";
            checkup.found(FindingCode::ReceiptMissing, what, expected, "none");
        }
        let what = format!("receipt of batch {batch}");
        if let Some(last) = &self.last
            && last.watermark_ms > receipt.watermark_ms
        {
            let expected = format!("a watermark of at least {}", last.watermark_ms);
            let found = receipt.watermark_ms.to_string();
            checkup.found(FindingCode::WatermarkDiffers, &what, expected, found);
        }
        let is_hash = |hash: &String| {
            hash.len() == 64 && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let is_sound = match &receipt.act {
            None => receipt.sha256.as_ref().is_some_and(is_hash) && receipt.bytes.is_some(),
            Some(act) => {
                let counts_any = act == Act::Release.name();
                Act::from_name(act).is_some()
                    && (counts_any || receipt.counts == Counts::default())
                    && (receipt.sha256.is_none() && receipt.bytes.is_none())
                    && receipt.file == *act
                    && receipt.asked_by.is_some()
            }
        };
        if !is_sound || receipt.committed_at_ms < 0 {
            let found = format!("{receipt:?}");
            checkup.found(
                FindingCode::ReceiptDiffers,
                what,
                "what such a batch leaves behind",
                found,
            );
        }
        self.receipts += 1;
        match receipt.act.as_deref() {
            None => {
                self.batches += 1;
                add(&mut self.counts, &receipt.counts);
                self.last_events = Some(receipt.clone());
            }
            Some(act) if act == Act::Release.name() => {
                add(&mut self.counts, &receipt.counts);
                let one = &receipt.counts;
                let all = [one.accepted, one.late, one.duplicate, one.future, one.expired];
                let released = all.into_iter().fold(0, u64::wrapping_add);
                self.released = self.released.wrapping_add(released);
            }
            Some(_) => {}
        }
        self.last = Some(receipt.clone());
    }
}

/// Adds without a panic: a damaged count can be anything.
fn add(to: &mut Counts, more: &Counts) {
    for (to, more) in [
        (&mut to.accepted, more.accepted),
        (&mut to.late, more.late),
        (&mut to.duplicate, more.duplicate),
        (&mut to.future, more.future),
        (&mut to.expired, more.expired),
    ] {
        *to = to.wrapping_add(more);
    }
}

/// The counts that the store keeps of its rows are those of its rows.
pub(super) fn check_counts(connection: &Connection, checkup: &mut Checkup) -> rusqlite::Result<()> {
    let head = store_meta::load(connection)?;
    let count = |sql: &str| connection.query_row(sql, [], int);
    let windows = count("SELECT COUNT(*) FROM windows")?;
    let windows = windows + write_buffer::new_windows(connection, i64::MIN)?;
    let late = count("SELECT COUNT(*) FROM late")?;
    for (what, code, rows, stored) in [
        ("windows", FindingCode::CountsDiffer, windows, head.windows),
        (
            "corrected windows",
            FindingCode::CountsDiffer,
            count("SELECT COUNT(*) FROM windows WHERE revision > 0")?,
            head.corrected_windows,
        ),
        ("late events that are kept", FindingCode::LateDiffers, late, head.late_kept),
        (
            "late events that are part of a revision",
            FindingCode::LateDiffers,
            count("SELECT COUNT(*) FROM late WHERE applied_in IS NOT NULL")?,
            head.late_applied,
        ),
        ("held events", FindingCode::HeldDiffers, count("SELECT COUNT(*) FROM held")?, head.held),
        (
            "refused batches",
            FindingCode::CountsDiffer,
            count("SELECT COALESCE(MAX(refusal), 0) FROM refusals")?,
            head.refused_batches,
        ),
    ] {
        if rows != stored {
            let expected = format!("{rows}, as many as there are rows");
            checkup.found(code, format!("the number of {what}"), expected, stored.to_string());
        }
    }
    checkup.checked("windows", windows);
    checkup.checked("late_events", late);
    checkup.checked("held_events", head.held);
    Ok(())
}

/// What each source sent of each key adds up to what it sent, and all sources to the totals.
pub(super) fn check_accounts(
    connection: &Connection,
    checkup: &mut Checkup,
) -> rusqlite::Result<()> {
    let mut by_source: BTreeMap<String, Counts> = BTreeMap::new();
    let mut all = 0;
    accounts::each(connection, &write_buffer::sums(connection)?, &mut |account| {
        all += 1;
        match by_source.get_mut(account.source) {
            Some(counts) => add(counts, &account.counts),
            None => drop(by_source.insert(account.source.to_owned(), account.counts)),
        }
        ControlFlow::Continue(())
    })?;
    checkup.checked("accounts", all);
    let mut total = Counts::default();
    let mut statement = connection.prepare(
        "SELECT name, accepted, late, duplicate, future, expired FROM sources ORDER BY name",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (name, counts): (String, Counts) = (row.get(0)?, store_meta::counts(row, 1)?);
        add(&mut total, &counts);
        let sum = by_source.remove(&name).unwrap_or_default();
        if sum != counts {
            let what = format!("source {name:?}");
            let expected = format!("{sum}, the sum of its keys");
            checkup.found(FindingCode::AccountDiffers, what, expected, counts.to_string());
        }
    }
    for (name, counts) in by_source {
        let what = format!("source {name:?}");
        checkup.found(FindingCode::SourceDiffers, what, format!("a row with {counts}"), "none");
    }
    let head = store_meta::load(connection)?;
    let known: u64 = connection.query_row(
        "SELECT COUNT(*) FROM sources WHERE declared = 1 OR last_batch IS NOT NULL",
        [],
        |row| row.get(0),
    )?;
    if known != head.sources {
        let (expected, found) =
            (format!("{known}, as many as are there"), head.sources.to_string());
        checkup.found(FindingCode::CountsDiffer, "the number of sources", expected, found);
    }
    if total != head.counts {
        let expected = format!("{total}, the sum of all sources");
        let found = head.counts.to_string();
        checkup.found(FindingCode::CountsDiffer, "the totals of the store", expected, found);
    }
    Ok(())
}

/// Moves of the watermark follow each other, and close as many windows as the receipts say.
pub(super) fn check_moves(connection: &Connection, checkup: &mut Checkup) -> rusqlite::Result<()> {
    let head = store_meta::load(connection)?;
    let gone = removed::of(connection, Kind::Moves)?.up_to;
    let mut statement = connection.prepare(
        "SELECT to_ms, from_ms, batch, windows_closed, event_index FROM moves ORDER BY to_ms",
    )?;
    let mut rows = statement.query([])?;
    let (mut last_ms, mut last_batch, mut first_batch, mut moves) = (0, 0, None, 0);
    let mut in_batch = 0_u64;
    let mut closed_in = connection
        .prepare("SELECT windows_closed FROM batches WHERE batch = ?1 AND windows_closed != ?2")?;
    let mut compare = |batch: u64, closed: u64, checkup: &mut Checkup| -> rusqlite::Result<()> {
        let receipt: Option<u64> = closed_in.query_row(params![batch, closed], int).optional()?;
        if let Some(receipt) = receipt {
            let what = format!("windows closed by batch {batch}");
            let expected = format!("{closed}, as its moves of the watermark say");
            checkup.found(FindingCode::MoveDiffers, what, expected, receipt.to_string());
        }
        Ok(())
    };
    while let Some(row) = rows.next()? {
        let (to_ms, from_ms): (i64, i64) = (row.get(0)?, row.get(1)?);
        let (batch, closed): (u64, u64) = (row.get(2)?, row.get(3)?);
        moves += 1;
        let is_behind = batch >= last_batch && batch <= head.last_number;
        let is_forward = last_ms <= from_ms && from_ms < to_ms && to_ms <= head.watermark_ms;
        if !is_behind || !is_forward || closed == 0 {
            let what = format!("move of the watermark to {to_ms}");
            let expected = format!("one behind {last_ms} of batch {last_batch} that closes some");
            let found = format!("from {from_ms} in batch {batch}, windows closed: {closed}");
            checkup.found(FindingCode::MoveDiffers, what, expected, found);
        }
        if batch != last_batch {
            // of the first one some may have been removed
            if last_batch > 0 && (first_batch != Some(last_batch) || gone.is_none()) {
                compare(last_batch, in_batch, checkup)?;
            }
            first_batch.get_or_insert(batch);
            in_batch = 0;
        }
        in_batch = in_batch.wrapping_add(closed);
        (last_ms, last_batch) = (to_ms, batch);
    }
    if last_batch > 0 && (first_batch != Some(last_batch) || gone.is_none()) {
        compare(last_batch, in_batch, checkup)?;
    }
    checkup.checked("moves", moves);
    let mut without = connection.prepare(
        "SELECT batch, windows_closed FROM batches b WHERE windows_closed > 0 AND \
         COALESCE((SELECT watermark_ms FROM batches WHERE batch = b.batch - 1), 0) >= ?1 \
         AND batch NOT IN (SELECT batch FROM moves) ORDER BY batch",
    )?;
    let mut rows = without.query(params![gone.unwrap_or(i64::MIN)])?;
    while let Some(row) = rows.next()? {
        let (batch, closed): (u64, u64) = (row.get(0)?, row.get(1)?);
        let what = format!("windows closed by batch {batch}");
        checkup.found(
            FindingCode::MoveDiffers,
            what,
            format!("a move that closed {closed}"),
            "none",
        );
    }
    Ok(())
}
