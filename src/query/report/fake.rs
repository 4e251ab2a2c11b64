//! A snapshot made up for the tests of the reports.

use std::io::Write;
use std::ops::ControlFlow;

use super::{Filter, Format, ReportError, write};
use crate::engine::settings::{LatePolicy, LateRule, Settings};
use crate::engine::totals::Totals;
use crate::engine::window::{self, WindowId};
use crate::engine::{Counts, Expected};
use crate::store::{self, AccountRow, LateRow, Snapshot, SourceRow, Span, Summary, WindowRow};

/// When the reports of the tests are made.
pub(super) const NOW_MS: i64 = 185_250;

pub(super) struct Fake {
    pub(super) summary: Summary,
    pub(super) sources: Vec<SourceRow>,
    versions: Vec<(String, Counts)>,
    windows: Vec<(String, i64, Totals, u64)>,
    late: Vec<OwnedLate>,
}

pub(super) struct OwnedLate {
    id: String,
    key: String,
    timestamp_ms: i64,
    value: i64,
    applied_in: Option<u64>,
}

pub(super) fn late_row(id: &str, key: &str, timestamp_ms: i64, value: i64) -> OwnedLate {
    let (id, key) = (id.to_owned(), key.to_owned());
    OwnedLate { id, key, timestamp_ms, value, applied_in: None }
}

impl Fake {
    pub(super) fn empty() -> Fake {
        let summary = Summary {
            settings: Settings::new(1000, 500).unwrap(),
            watermark_ms: 0,
            max_timestamp_ms: None,
            last_batch: None,
            last_ingest_at_ms: None,
            trusted_ms: None,
            batches: 0,
            refused_batches: 0,
            counts: Counts::default(),
            windows: 0,
            open_windows: 0,
            corrected_windows: 0,
            late_kept: 0,
            late_waiting: 0,
            held: 0,
            pruned_start_ms: None,
        };
        let (sources, versions) = (Vec::new(), Vec::new());
        Fake { summary, sources, versions, windows: Vec::new(), late: Vec::new() }
    }

    /// The store of the contract's example.
    pub(super) fn example() -> Fake {
        let mut fake = Fake::empty();
        fake.summary.watermark_ms = 1100;
        fake.summary.max_timestamp_ms = Some(1600);
        fake.summary.last_batch = Some(2);
        fake.summary.last_ingest_at_ms = Some(5000);
        fake.summary.batches = 2;
        fake.summary.counts = Counts { accepted: 4, late: 1, duplicate: 7, future: 0, expired: 0 };
        fake.source("default", Some(1600))
            .window("checkout", 0, [3, 40, 8, 20])
            .window("checkout", 1000, [1, 5, 5, 5])
            .late(late_row("request-5", "checkout", 900, 99))
    }

    pub(super) fn source(mut self, name: &str, max_timestamp_ms: Option<i64>) -> Fake {
        self.sources.push(SourceRow {
            source: name.to_owned(),
            max_timestamp_ms,
            declared: false,
            idle: false,
            retired: false,
            expected: Expected::Never,
            presence_since_ms: None,
            last_batch_at_ms: Some(5000),
            last_batch: Some(2),
            last_file: Some("b.json".to_owned()),
            counts: Counts { accepted: 4, late: 1, duplicate: 7, future: 0, expired: 0 },
        });
        self.sources.sort_by(|a, b| a.source.cmp(&b.source));
        self
    }

    pub(super) fn version(mut self, name: &str, counts: Counts) -> Fake {
        self.versions.push((name.to_owned(), counts));
        self
    }

    /// Adds a window with that count, sum, min and max.
    pub(super) fn window(mut self, key: &str, start_ms: i64, figures: [i64; 4]) -> Fake {
        let [count, sum, min, max] = figures;
        self.windows.push((key.to_owned(), start_ms, Totals { count, sum, min, max }, 0));
        self.windows.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
        self.summary.windows += 1;
        let (window_ms, watermark_ms) =
            (self.summary.settings.window_ms(), self.summary.watermark_ms);
        let is_final = window::is_final(start_ms, window_ms, watermark_ms);
        self.summary.open_windows += u64::from(!is_final);
        self
    }

    /// The first window has been corrected so often.
    pub(super) fn corrected(mut self, revision: u64) -> Fake {
        self.windows[0].3 = revision;
        self.summary.corrected_windows += 1;
        self
    }

    /// The last late event is part of a revision, made in that batch.
    pub(super) fn applied_in(mut self, batch: u64) -> Fake {
        self.late.last_mut().unwrap().applied_in = Some(batch);
        self.summary.late_waiting -= 1;
        self
    }

    /// How that source stands to the watermark, since a second of 1970.
    pub(super) fn standing(mut self, name: &str, declared: bool, idle: bool) -> Fake {
        let row = self.sources.iter_mut().find(|row| row.source == name).unwrap();
        (row.declared, row.idle, row.presence_since_ms) = (declared, idle, Some(1000));
        self
    }

    pub(super) fn late(mut self, late: OwnedLate) -> Fake {
        self.late.push(late);
        self.summary.late_kept += 1;
        self.summary.late_waiting += 1;
        self
    }

    /// The same store, had it been made with the policy `drop`.
    pub(super) fn dropping_late(mut self) -> Fake {
        let settings = self.summary.settings;
        self.summary.settings = settings.with_late(LateRule::Window, LatePolicy::Drop);
        self.summary.late_kept = 0;
        self.summary.late_waiting = 0;
        self.late.clear();
        self
    }
}

fn holds(span: Span, start_ms: i64) -> bool {
    span.from_ms.is_none_or(|from_ms| start_ms >= from_ms)
        && span.to_ms.is_none_or(|to_ms| start_ms < to_ms)
}

impl Snapshot for Fake {
    fn summary(&self) -> Result<Summary, store::Error> {
        Ok(self.summary.clone())
    }

    fn sources(&self) -> Result<Vec<SourceRow>, store::Error> {
        Ok(self.sources.clone())
    }

    fn versions(&self, each: &mut store::EachVersion<'_>) -> Result<(), store::Error> {
        let _ = self.versions.iter().try_for_each(|(name, counts)| each(name, *counts));
        Ok(())
    }

    /// Each source has sent of one key only, but for one event of each outcome.
    fn accounts(&self, each: &mut store::EachAccount<'_>) -> Result<(), store::Error> {
        let one = Counts { accepted: 1, late: 1, duplicate: 1, future: 0, expired: 0 };
        for SourceRow { source, counts, .. } in &self.sources {
            let rest = AccountRow { source, key: None, counts: one, last_seen_ms: None };
            let Counts { accepted, late, duplicate, .. } = *counts;
            let (accepted, late, duplicate) = (accepted - 1, late - 1, duplicate - 1);
            let counts = Counts { accepted, late, duplicate, ..*counts };
            let row =
                AccountRow { key: Some("checkout"), counts, last_seen_ms: Some(1600), ..rest };
            if each(&rest).is_break() || each(&row).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn windows(
        &self,
        span: Span,
        each: &mut (dyn FnMut(&WindowRow<'_>) -> ControlFlow<()> + '_),
    ) -> Result<(), store::Error> {
        for (key, start_ms, totals, revision) in &self.windows {
            let (start_ms, totals, revision) = (start_ms, *totals, *revision);
            let row = WindowRow { key, start_ms: *start_ms, totals, revision };
            if holds(span, *start_ms) && each(&row) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn late(
        &self,
        span: Span,
        each: &mut (dyn FnMut(&LateRow<'_>) -> ControlFlow<()> + '_),
    ) -> Result<(), store::Error> {
        for (event_index, late) in self.late.iter().enumerate() {
            let window_ms = self.summary.settings.window_ms();
            let window_start_ms = window::start_ms(late.timestamp_ms, window_ms);
            let row = LateRow {
                id: &late.id,
                key: &late.key,
                timestamp_ms: late.timestamp_ms,
                value: late.value,
                window_start_ms,
                watermark_ms: 1100,
                source: "default",
                batch: 1,
                event_index: event_index as u64,
                applied_in: late.applied_in,
            };
            if holds(span, window_start_ms) && each(&row) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn held(&self, _each: &mut store::EachHeld<'_>) -> Result<(), store::Error> {
        Ok(())
    }

    fn revisions(&self, _window: WindowId<'_>) -> Result<Vec<store::RevisionRow>, store::Error> {
        Ok(Vec::new())
    }

    fn moves(&self, _from_ms: i64, _each: &mut store::EachMove<'_>) -> Result<(), store::Error> {
        Ok(())
    }

    fn remembered(&self, _id: &str) -> Result<Option<store::RememberedRow>, store::Error> {
        Ok(None)
    }

    fn receipt(&self, _batch: u64) -> Result<Option<store::ReceiptRow>, store::Error> {
        Ok(None)
    }

    fn receipts(&self, _: u64, _: &mut store::EachReceipt<'_>) -> Result<(), store::Error> {
        Ok(())
    }

    fn settled(&self, _event: store::EventRef) -> Result<Option<store::SettledRow>, store::Error> {
        Ok(None)
    }

    fn presence(&self, _source: &str) -> Result<Vec<store::PresenceRow>, store::Error> {
        Ok(Vec::new())
    }
}

pub(super) fn report(fake: &Fake, format: Format, filter: &Filter) -> String {
    write_to_string(|out| write(fake, format, filter, NOW_MS, out))
}

pub(super) fn write_to_string(
    write: impl FnOnce(&mut dyn Write) -> Result<(), ReportError>,
) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}
