//! A million windows written as a report, to nowhere.

use std::io;
use std::ops::ControlFlow;

use criterion::{Criterion, Throughput};
use windowflow::engine::settings::Settings;
use windowflow::engine::totals::Totals;
use windowflow::engine::window::WindowId;
use windowflow::engine::{Counts, Expected};
use windowflow::query::report::{self, Filter, Format};
use windowflow::store::{
    EachAccount, EachHeld, EachLate, EachMove, EachReceipt, EachVersion, EachWindow, Error,
    EventRef, PresenceRow, ReceiptRow, RememberedRow, RevisionRow, SettledRow, Snapshot, SourceRow,
    Span, Summary, WindowRow,
};

const WINDOWS: u64 = 1_000_000;
const KEYS: u64 = 1000;
const WINDOW_MS: i64 = 60_000;
const BEGUN_MS: i64 = 1_700_000_040_000;

pub(crate) fn measure(criterion: &mut Criterion) {
    let snapshot = Windows { keys: (0..KEYS).map(|key| format!("meter-{key:04}")).collect() };
    let mut group = criterion.benchmark_group("report");
    group.throughput(Throughput::Elements(WINDOWS)).sample_size(10);
    for format in Format::ALL {
        group.bench_function(format.name(), |bencher| {
            bencher.iter(|| {
                let filter = Filter::default();
                report::write(&snapshot, format, &filter, BEGUN_MS, &mut io::sink())
                    .expect("nothing can fail")
            });
        });
    }
    group.finish();
}

/// A store of a million windows that are made up as they are read; half of them are open.
struct Windows {
    keys: Vec<String>,
}

impl Snapshot for Windows {
    fn summary(&self) -> Result<Summary, Error> {
        let half_ms = (WINDOWS / KEYS / 2) as i64 * WINDOW_MS;
        Ok(Summary {
            settings: Settings::new(WINDOW_MS, 0).expect("the settings make sense"),
            watermark_ms: BEGUN_MS + half_ms,
            max_timestamp_ms: Some(BEGUN_MS + half_ms),
            last_batch: Some(1),
            last_ingest_at_ms: Some(BEGUN_MS),
            trusted_ms: None,
            batches: 1,
            refused_batches: 0,
            counts: Counts::default(),
            windows: WINDOWS,
            open_windows: WINDOWS / 2,
            corrected_windows: 0,
            late_kept: 0,
            late_waiting: 0,
            held: 0,
            pruned_start_ms: None,
        })
    }

    fn sources(&self) -> Result<Vec<SourceRow>, Error> {
        Ok(vec![SourceRow {
            source: "default".to_owned(),
            max_timestamp_ms: self.summary()?.max_timestamp_ms,
            declared: false,
            idle: false,
            retired: false,
            expected: Expected::Never,
            presence_since_ms: None,
            last_batch_at_ms: Some(BEGUN_MS),
            last_batch: Some(1),
            last_file: None,
            counts: Counts::default(),
        }])
    }

    fn windows(&self, _: Span, each: &mut EachWindow<'_>) -> Result<(), Error> {
        for number in 0..WINDOWS as i64 {
            let (start, key) = (number / KEYS as i64, number as usize % KEYS as usize);
            let (min, max) = (number % 90 - 40, number % 90 + 1000);
            let totals = Totals { count: 3, sum: min + max + 500, min, max };
            let start_ms = BEGUN_MS + start * WINDOW_MS;
            let row = WindowRow { key: &self.keys[key], start_ms, totals, revision: 0 };
            if each(&row) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn versions(&self, _each: &mut EachVersion<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn accounts(&self, _: &mut EachAccount<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn late(&self, _: Span, _: &mut EachLate<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn held(&self, _: &mut EachHeld<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn revisions(&self, _: WindowId<'_>) -> Result<Vec<RevisionRow>, Error> {
        Ok(Vec::new())
    }

    fn moves(&self, _: i64, _: &mut EachMove<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn remembered(&self, _: &str) -> Result<Option<RememberedRow>, Error> {
        Ok(None)
    }

    fn receipt(&self, _: u64) -> Result<Option<ReceiptRow>, Error> {
        Ok(None)
    }

    fn receipts(&self, _: u64, _: &mut EachReceipt<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn settled(&self, _: EventRef) -> Result<Option<SettledRow>, Error> {
        Ok(None)
    }

    fn presence(&self, _: &str) -> Result<Vec<PresenceRow>, Error> {
        Ok(Vec::new())
    }
}
