//! Balances each kind of row: what is there and what retention took away are all that there ever
//! was. Without that, a row that damage took would pass for one that retention took.

use rusqlite::{Connection, Row, params};

use super::shown;
use crate::engine::settings::{LatePolicy, Settings};
use crate::store::audit::{Checkup, FindingCode};
use crate::store::sqlite::tables::removed::{self, Kind, Removed};
use crate::store::sqlite::tables::store_meta::{self, StoreMeta};

/// Between the moment of a note and the commit of its batch there may be so much time.
const NOTE_TO_COMMIT_MS: i64 = 3_600_000;

/// What is compared by it.
struct Balance<'b> {
    connection: &'b Connection,
    head: StoreMeta,
    is_aside: bool,
    receipts: Removed,
    late: Removed,
    settled: Removed,
    checkup: &'b mut Checkup,
}

/// Balances all but ids and receipts, which are balanced where they are walked through.
pub(super) fn check(
    connection: &Connection,
    settings: &Settings,
    checkup: &mut Checkup,
) -> rusqlite::Result<()> {
    let of = |kind| removed::of(connection, kind);
    let mut balance = Balance {
        connection,
        head: store_meta::load(connection)?,
        is_aside: settings.late_policy() == LatePolicy::Aside,
        receipts: of(Kind::Receipts)?,
        late: of(Kind::Late)?,
        settled: of(Kind::Settled)?,
        checkup,
    };
    balance.kinds()?;
    balance.rows_that("windows", settings)?;
    balance.refusals(&of(Kind::Refusals)?)?;
    balance.windows(&of(Kind::Windows)?, settings)?;
    balance.moves(&of(Kind::Moves)?)?;
    balance.rows_that("moves", settings)?;
    balance.late()?;
    balance.rows_that("late", settings)?;
    balance.held()?;
    balance.rows_that("held", settings)?;
    balance.settled_in()?;
    balance.notes(&of(Kind::Presence)?)
}

impl Balance<'_> {
    fn count(&self, sql: &str) -> rusqlite::Result<i128> {
        self.connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i128::from)
    }

    /// Tells of it unless both are the same.
    fn same(&mut self, code: FindingCode, what: &str, expected: i128, so: &str, found: i128) {
        if expected != found {
            let expected = format!("{expected}, {so}");
            self.checkup.found(code, what, expected, found.to_string());
        }
    }

    fn kinds(&mut self) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare(
            "SELECT kind, (kind <> 'receipts' AND (batches <> 0 OR accepted <> 0 OR late <> 0 OR \
             duplicate <> 0 OR future <> 0 OR expired <> 0)) OR \
             (kind NOT IN ('receipts', 'settled') AND released <> 0) OR \
             (kind NOT IN ('receipts', 'moves') AND windows_closed <> 0) OR \
             (kind IN ('ids', 'late') AND up_to IS NOT NULL) FROM removed ORDER BY kind",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (kind, has_more): (String, bool) = (row.get(0)?, row.get(1)?);
            if has_more || !Kind::ALL.iter().any(|known| known.name() == kind) {
                let expected = "a kind of row that retention removes, and only what goes with it";
                let what = "what retention removed";
                self.checkup.found(FindingCode::CountsDiffer, what, expected, shown(&kind));
            }
        }
        Ok(())
    }

    /// Rows that no event and no watermark of their batch could have left behind.
    fn rows_that(&mut self, table: &str, settings: &Settings) -> rusqlite::Result<()> {
        // the watermark was between those of the batch before and of its own
        let range = "COALESCE((SELECT watermark_ms FROM batches p WHERE p.batch = b.batch - 1), 0)";
        let (code, sql) = match table {
            "windows" => (
                FindingCode::WindowDiffers,
                "SELECT 'window ' || start_ms || ' of key ' || key FROM windows \
                 WHERE start_ms % ?1 <> 0 OR start_ms < 0"
                    .to_owned(),
            ),
            "moves" => (
                FindingCode::MoveDiffers,
                format!(
                    "SELECT 'move of the watermark to ' || to_ms FROM moves m JOIN batches b \
                     USING (batch) WHERE (to_ms > b.watermark_ms OR from_ms < {range}) AND ?1 > 0"
                ),
            ),
            "late" => (
                FindingCode::LateDiffers,
                format!(
                    "SELECT 'late event ' || event_index || ' of batch ' || l.batch FROM late l \
                     JOIN batches b USING (batch) WHERE l.watermark_ms > b.watermark_ms OR \
                     l.watermark_ms < {range} OR window_start_ms <> timestamp_ms - \
                     timestamp_ms % ?1"
                ),
            ),
            _ => (
                FindingCode::HeldDiffers,
                format!(
                    "SELECT 'held event ' || event_index || ' of batch ' || h.batch FROM held h \
                     JOIN batches b USING (batch) WHERE (h.watermark_ms > b.watermark_ms OR \
                     h.watermark_ms < {range}) AND ?1 > 0"
                ),
            ),
        };
        let mut statement = self.connection.prepare(&sql)?;
        let mut rows = statement.query(params![settings.window_ms()])?;
        while let Some(row) = rows.next()? {
            let what = shown(&row.get::<_, String>(0)?);
            let expected = "a start and a watermark that it can have";
            self.checkup.found(code, what, expected, "others");
        }
        Ok(())
    }

    fn refusals(&mut self, gone: &Removed) -> rusqlite::Result<()> {
        let there = self.count("SELECT COUNT(*) FROM refusals")?;
        let expected = i128::from(self.head.refused_batches) - i128::from(gone.rows);
        let before = self.count("SELECT COUNT(*) FROM refusals WHERE refusal < 1")?;
        let so = "since they are numbered from 1 on";
        self.same(
            FindingCode::RefusalMissing,
            "the number of refusals before the first",
            0,
            so,
            before,
        );
        let so = format!("with {} that retention removed all that there were", gone.rows);
        self.same(FindingCode::RefusalMissing, "the number of refusals", expected, &so, there);
        Ok(())
    }

    fn windows(&mut self, gone: &Removed, settings: &Settings) -> rusqlite::Result<()> {
        let start_ms = self.head.pruned_start_ms;
        if gone.up_to != start_ms || (gone.rows != 0 && start_ms.is_none()) {
            let what = "the last start of a window that retention removed";
            let expected = format!("{:?}, as was noted when it was removed", gone.up_to);
            self.checkup.found(FindingCode::WindowDiffers, what, expected, format!("{start_ms:?}"));
        }
        let corrected = self.count("SELECT COUNT(*) FROM windows WHERE revision > 0")?;
        if settings.late_policy() == LatePolicy::Drop && corrected > 0 {
            let what = "the number of corrected windows";
            let so = "since late events are dropped";
            self.same(FindingCode::RevisionDiffers, what, 0, so, corrected);
        }
        Ok(())
    }

    /// Each window that a batch closed was closed by a move of the watermark.
    fn moves(&mut self, gone: &Removed) -> rusqlite::Result<()> {
        let moved = self.count("SELECT COALESCE(SUM(windows_closed), 0) FROM moves")?;
        let closed = self.count("SELECT COALESCE(SUM(windows_closed), 0) FROM batches")?;
        let all = moved + i128::from(gone.windows_closed);
        let expected = closed + i128::from(self.receipts.windows_closed);
        let what = "windows that all moves of the watermark closed";
        self.same(FindingCode::MoveDiffers, what, expected, "as all receipts say", all);
        let first_ms: Option<i64> =
            self.connection.query_row("SELECT MIN(to_ms) FROM moves", [], |row| row.get(0))?;
        if first_ms.zip(gone.up_to).is_some_and(|(first_ms, up_to_ms)| first_ms <= up_to_ms) {
            let expected = format!("behind {:?}, up to where retention removed them", gone.up_to);
            let what = "the first move of the watermark";
            self.checkup.found(FindingCode::MoveDiffers, what, expected, format!("{first_ms:?}"));
        }
        Ok(())
    }

    fn late(&mut self) -> rusqlite::Result<()> {
        let there = self.count("SELECT COUNT(*) FROM late")?;
        let counted = if self.is_aside { i128::from(self.head.counts.late) } else { 0 };
        let gone = i128::from(self.late.rows);
        let so = format!("with {gone} that retention removed all that were counted");
        let what = "late events that are kept";
        self.same(FindingCode::LateDiffers, what, counted - gone, &so, there);
        if gone > 0 {
            self.checkup.not_checked(format!("{gone} late events: removed by retention"));
        }
        if !self.is_aside {
            return Ok(());
        }
        self.by_batch(
            "late",
            "SELECT batch, COUNT(*) AS there FROM late GROUP BY batch",
            "kind IN ('events', 'release')",
            FindingCode::LateDiffers,
            gone == 0,
        )?;
        self.in_act(
            "SELECT l.batch, event_index, 'applied', applied_in, b.kind FROM late l \
             LEFT JOIN batches b ON b.batch = applied_in WHERE applied_in IS NOT NULL",
        )
    }

    /// What was held is held still or settled.
    fn held(&mut self) -> rusqlite::Result<()> {
        let count = |sql: &str| self.count(sql);
        let held = count("SELECT COUNT(*) FROM held")?;
        let discarded = count("SELECT COUNT(*) FROM settled WHERE settlement = 'discarded'")?;
        let notes = count("SELECT COUNT(*) FROM settled WHERE settlement = 'released'")?;
        let released = count(
            "SELECT COALESCE(SUM(accepted + late + duplicate + future + expired), 0) \
             FROM batches WHERE kind = 'release'",
        )?;
        let (rows, freed) = (i128::from(self.settled.rows), i128::from(self.settled.released));
        // what was discarded still counts as ahead
        let ahead = held + discarded + rows - freed;
        let (code, what) = (FindingCode::HeldDiffers, "events that are held or were discarded");
        self.same(code, what, i128::from(self.head.counts.future), "as were counted", ahead);
        let expected = released + i128::from(self.receipts.released);
        let (code, what) = (FindingCode::SettledDiffers, "events that were released");
        self.same(code, what, expected, "as the receipts of releases say", notes + freed);
        self.by_batch(
            "future",
            "SELECT batch, COUNT(*) AS there FROM (SELECT batch FROM held UNION ALL \
             SELECT batch FROM settled) GROUP BY batch",
            "kind = 'events'",
            FindingCode::HeldDiffers,
            rows == 0,
        )
    }

    /// Compares how many events of each batch stand apart with what its receipt counted.
    fn by_batch(
        &mut self,
        counted: &str,
        apart: &str,
        kinds: &str,
        code: FindingCode,
        must_be_there: bool,
    ) -> rusqlite::Result<()> {
        let sql = format!(
            "SELECT a.batch, there, {counted} FROM ({apart}) a LEFT JOIN \
             (SELECT batch, {counted} FROM batches WHERE {kinds}) b USING (batch) \
             WHERE {counted} IS NULL OR there > {counted} OR (?1 AND there < {counted}) \
             UNION ALL SELECT b.batch, 0, {counted} FROM batches b WHERE {kinds} \
             AND {counted} > 0 AND ?1 AND batch NOT IN (SELECT batch FROM ({apart})) ORDER BY 1"
        );
        let mut statement = self.connection.prepare(&sql)?;
        let mut rows = statement.query(params![must_be_there])?;
        while let Some(row) = rows.next()? {
            let (batch, there): (i64, i64) = (row.get(0)?, row.get(1)?);
            let counted_in: Option<i64> = row.get(2)?;
            if counted_in.is_none() && self.is_gone(batch) {
                continue;
            }
            let what = format!("{counted} events that are kept of batch {batch}");
            let expected = match counted_in {
                Some(count) if must_be_there => format!("{count}, as its receipt says"),
                Some(count) => format!("at most {count}, as its receipt says"),
                None => "none: there is no receipt of such a batch".to_owned(),
            };
            self.checkup.found(code, what, expected, there.to_string());
        }
        Ok(())
    }

    /// Whether retention may have removed the receipt of that batch.
    fn is_gone(&self, batch: i64) -> bool {
        self.receipts.up_to.is_some_and(|up_to| (1..=up_to).contains(&batch))
    }

    /// What was settled was so in a batch of that kind.
    fn settled_in(&mut self) -> rusqlite::Result<()> {
        self.in_act(
            "SELECT s.batch, event_index, settlement, settled_in, b.kind FROM settled s \
             LEFT JOIN batches b ON b.batch = settled_in",
        )?;
        if self.settled.rows != 0 {
            return Ok(());
        }
        let mut statement = self.connection.prepare(
            "SELECT batch, accepted + late + duplicate + future + expired AS released, \
             (SELECT COUNT(*) FROM settled WHERE settled_in = batches.batch) AS there \
             FROM batches WHERE kind = 'release' AND released <> there",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let what = format!("notes of what batch {} released", row.get::<_, i64>(0)?);
            let expected = format!("{}, as its receipt says", row.get::<_, i64>(1)?);
            let found = row.get::<_, i64>(2)?.to_string();
            self.checkup.found(FindingCode::SettledDiffers, what, expected, found);
        }
        Ok(())
    }

    /// Looks at rows of an event, what became of it, the batch in which it did, and its kind.
    fn in_act(&mut self, sql: &str) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let settlement: String = row.get(2)?;
            let (batch, kind): (i64, Option<String>) = (row.get(3)?, row.get(4)?);
            let act = match settlement.as_str() {
                "released" => "release",
                "discarded" => "discard",
                "applied" => "correct",
                _ => "",
            };
            let is_right = match &kind {
                Some(kind) => kind == act,
                None => self.is_gone(batch),
            };
            if !is_right {
                let (of, index): (i64, i64) = (row.get(0)?, row.get(1)?);
                let what = format!("event {index} of batch {of}, {settlement:?} in batch {batch}");
                let expected = "a batch that did such a thing";
                let found = kind.map_or("none".to_owned(), |kind| shown(&kind));
                self.checkup.found(FindingCode::SettledDiffers, what, expected, found);
            }
        }
        Ok(())
    }

    /// Batches that changed how sources stand left notes, and sources stand as their notes say.
    fn notes(&mut self, gone: &Removed) -> rusqlite::Result<()> {
        let from_ms = gone.up_to.unwrap_or(i64::MIN);
        let acts_from_ms = from_ms.saturating_add(NOTE_TO_COMMIT_MS);
        let acts_from_ms = if gone.up_to.is_some() { acts_from_ms } else { from_ms };
        let without = "SELECT 'batch ' || batch || ' (' || kind || ')' FROM batches \
                       WHERE kind IN ('declare', 'idle', 'active', 'retire', 'expect', \
                       'stop_expecting') AND committed_at_ms >= ?1 \
                       AND batch NOT IN (SELECT batch FROM presence)";
        self.notes_that(without, acts_from_ms, "a note of which sources came or went in it")?;
        let others = "SELECT 'the note of ' || p.source || ' in batch ' || p.batch FROM presence p \
                      JOIN batches b USING (batch) WHERE ?1 IS NOT NULL AND (presence <> \
                      CASE kind WHEN 'declare' THEN 'declared' WHEN 'idle' THEN 'idle' \
                      WHEN 'active' THEN 'active' WHEN 'retire' THEN 'retired' \
                      WHEN 'expect' THEN 'expected' WHEN 'stop_expecting' THEN 'not_expected' END \
                      OR (kind = 'events') <> (event_index IS NOT NULL))";
        self.notes_that(others, from_ms, "one that such a batch leaves")?;
        let nowhere = "SELECT 'the note of ' || source || ' in batch ' || batch FROM presence \
                       WHERE batch > ?1 AND (batch NOT IN (SELECT batch FROM batches) \
                       OR source NOT IN (SELECT name FROM sources))";
        let up_to = self.receipts.up_to.unwrap_or(i64::MIN);
        self.notes_that(nowhere, up_to, "one of a batch and a source that are there")?;
        let in_order = "SELECT 'notes of sources in batch ' || batch FROM presence \
                        WHERE ?1 IS NOT NULL GROUP BY batch \
                        HAVING MIN(ordinal) <> 0 OR MAX(ordinal) <> COUNT(*) - 1";
        self.notes_that(in_order, from_ms, "notes that follow on one another")?;
        let stands = "SELECT 'source ' || name FROM sources WHERE \
                      declared NOT IN (0, 1) OR idle NOT IN (0, 1) OR \
                      (presence_since_ms >= ?1 AND name NOT IN (SELECT source FROM presence)) OR \
                      (declared AND ?1 = ?2 \
                      AND name NOT IN (SELECT source FROM presence WHERE presence = 'declared')) \
                      OR (NOT declared AND name IN (SELECT source FROM presence \
                      WHERE presence = 'declared')) OR idle <> COALESCE((SELECT presence <> 'active' \
                      FROM presence WHERE source = name \
                      AND presence IN ('idle', 'retired', 'active') \
                      ORDER BY batch DESC, ordinal DESC LIMIT 1), CASE WHEN ?1 = ?2 THEN 0 \
                      ELSE idle END)";
        self.notes_that(stands, from_ms, "to stand as its notes say")?;
        let waits = "SELECT 'source ' || name FROM sources WHERE \
                     retired <> COALESCE((SELECT presence = 'retired' FROM presence \
                     WHERE source = name AND presence IN ('idle', 'retired', 'active') \
                     ORDER BY batch DESC, ordinal DESC LIMIT 1), CASE WHEN ?1 = ?2 THEN 0 \
                     ELSE retired END) \
                     OR expected <> CASE \
                     WHEN EXISTS (SELECT 1 FROM presence WHERE source = name \
                     AND presence = 'not_expected') THEN 2 \
                     WHEN NOT EXISTS (SELECT 1 FROM presence WHERE source = name \
                     AND presence = 'expected') THEN CASE WHEN ?1 = ?2 THEN 0 ELSE expected END \
                     WHEN max_timestamp_ms IS NULL THEN 1 ELSE 2 END \
                     OR retired NOT IN (0, 1) OR expected NOT IN (0, 1, 2) OR retired > idle";
        self.notes_that(waits, from_ms, "to stand as its notes say")?;
        let heard = "SELECT 'when source ' || name || ' was heard of' FROM (SELECT name, heard_in, \
                     presence_since_ms, MAX(COALESCE(last_batch, 0), COALESCE((SELECT MAX(batch) \
                     FROM presence WHERE source = name AND presence IN ('declared', 'active')), \
                     0)) AS told FROM sources) WHERE heard_in < told \
                     OR heard_in > (SELECT last_number FROM store) \
                     OR (heard_in > told AND (?1 = ?2 OR presence_since_ms IS NULL))";
        self.notes_that(heard, from_ms, "as its last batch and its notes say")
    }

    /// Each row that is shown contradicts what is expected.
    fn notes_that(&mut self, sql: &str, from: i64, expected: &str) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare(sql)?;
        let read = |row: &Row<'_>| row.get::<_, String>(0);
        let found: Vec<String> = match statement.parameter_count() {
            1 => statement.query_map(params![from], read)?.collect::<rusqlite::Result<_>>()?,
            _ => statement
                .query_map(params![from, i64::MIN], read)?
                .collect::<rusqlite::Result<_>>()?,
        };
        for what in found {
            self.checkup.found(FindingCode::PresenceDiffers, shown(&what), expected, "another");
        }
        Ok(())
    }
}
