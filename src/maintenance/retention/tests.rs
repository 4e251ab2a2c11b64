//! What goes from the folders, and what never does.

use super::*;
use crate::decode::Limits;
use crate::engine::settings::Settings;
use crate::model::clock::Clock;
use crate::pipeline::ingest::{Ended, Ingest, Mode, Seconds, Unwatched};
use crate::store::Delivery;
use crate::store::memory::MemoryStore;

struct Place {
    _folder: tempfile::TempDir,
    spool: Spool,
    store: MemoryStore,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(folder.path()).unwrap();
    let settings = Settings::new(1000, 0).unwrap();
    Place { spool, store: MemoryStore::new(settings, Clock::Fixed(0)), _folder: folder }
}

impl Place {
    /// Takes a batch in at that moment, and puts its file into done/ under that name.
    fn take(&mut self, file: &str, name: &str, content: &str, at_ms: i64) {
        self.store.set_clock(Clock::Fixed(at_ms));
        let delivery = Delivery::fresh(file.to_owned(), "default".to_owned()).unwrap();
        let (limits, mode) = (Limits::default(), Mode::Commit);
        let ingest = Ingest {
            delivery: &delivery,
            limits,
            mode,
            admission: None,
            now_ms: at_ms,
            seconds: Seconds::Accept,
        };
        let ended = ingest.run(&mut self.store, content.as_bytes(), &mut Unwatched).unwrap();
        assert!(matches!(ended, Ended::Committed(_)), "{ended:?}");
        let path = self.spool.done().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn files(&self, asked: config::RetentionConfig, now_ms: i64) -> Removed {
        let mut go_on = || ControlFlow::Continue(());
        files(&self.store.snapshot(), &self.spool, &asked, now_ms, &mut go_on).unwrap()
    }

    fn names(&self, folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|found| found.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn batch(id: &str) -> String {
    format!(r#"{{"id":"{id}","key":"k","timestamp_ms":1,"value":1}}"#)
}

const TEN_DAYS: config::RetentionConfig = config::RetentionConfig {
    windows_days: None,
    late_days: None,
    receipts_days: None,
    reports_days: Some(10),
    done_days: Some(10),
    failed_days: None,
    failed_max_bytes: None,
};

#[test]
fn a_done_file_goes_only_by_its_own_receipt_and_when_all_is_old() {
    let mut place = place();
    // files of this test are as young as can be
    let now_ms = Clock::System.now_ms();
    let old_ms = now_ms - 20 * DAY_MS;
    place.take("a.json", "a.json", &batch("1"), old_ms);
    place.take("a.json", "a.json.1", &batch("2"), old_ms);
    place.take("gw/a.json", "gw/a.json", &batch("3"), old_ms);
    place.take("young.json", "young.json", &batch("4"), now_ms);
    place.take("edited.json", "edited.json", &batch("5"), old_ms);
    fs::write(place.spool.done().join("edited.json"), batch("6")).unwrap();
    fs::write(place.spool.done().join("foreign.json"), batch("7")).unwrap();
    fs::write(place.spool.done().join(".hidden"), "x").unwrap();

    assert_eq!(place.files(TEN_DAYS, now_ms), Removed::default(), "moved a moment ago");
    let later_ms = now_ms + 10 * DAY_MS + 60_000;
    let young = config::RetentionConfig { done_days: Some(30), ..TEN_DAYS };
    assert_eq!(place.files(young, later_ms), Removed::default());
    let removed = place.files(TEN_DAYS, later_ms - 120_000);
    assert_eq!(removed, Removed::default(), "by its name too it must be old");
    let removed = place.files(TEN_DAYS, later_ms);
    assert_eq!((removed.done, removed.unknown), (4, 2));
    assert_eq!(place.names(place.spool.done()), [".hidden", "edited.json", "foreign.json", "gw"]);
    assert!(place.names(&place.spool.done().join("gw")).is_empty());
}

#[test]
fn a_young_copy_of_an_old_batch_stays() {
    let mut place = place();
    let now_ms = Clock::System.now_ms();
    place.take("a.json", "a.json", &batch("1"), now_ms - 20 * DAY_MS);
    fs::remove_file(place.spool.done().join("a.json")).unwrap();
    place.take("a.json", "a.json.1", &batch("1"), now_ms);
    assert_eq!(place.files(TEN_DAYS, now_ms).done, 0);
    assert_eq!(place.names(place.spool.done()), ["a.json.1"]);
}

#[test]
fn dumps_go_and_the_latest_report_stays() {
    let place = place();
    let now_ms = Clock::System.now_ms() + 11 * DAY_MS;
    for name in ["report-20260101T000000Z.json", "latest.json", "mine.json", "report-a.txt"] {
        fs::write(place.spool.reports().join(name), "{}").unwrap();
    }
    let off = config::RetentionConfig { reports_days: None, ..TEN_DAYS };
    assert_eq!(place.files(off, now_ms).reports, 0);
    assert_eq!(place.files(TEN_DAYS, now_ms).reports, 1);
    assert_eq!(place.names(place.spool.reports()), ["latest.json", "mine.json", "report-a.txt"]);
}

#[test]
fn work_that_waits_ends_the_turn() {
    let mut place = place();
    let now_ms = Clock::System.now_ms();
    for n in 0..3 {
        let name = format!("{n}.json");
        place.take(&name, &name, &batch(&name), now_ms - 20 * DAY_MS);
    }
    let later_ms = now_ms + 11 * DAY_MS;
    let mut stop = || ControlFlow::Break(());
    let removed = files(&place.store.snapshot(), &place.spool, &TEN_DAYS, later_ms, &mut stop);
    assert_eq!(removed.unwrap().done, 1);
    assert_eq!(place.names(place.spool.done()), ["1.json", "2.json"]);
}

/// Has failed for sizes that were believed: a sparse file that says it has 4 TiB takes nothing.
#[test]
fn case_123_the_oldest_refused_files_go_with_their_reasons_until_the_rest_is_small_enough() {
    let place = place();
    let failed = place.spool.failed().to_owned();
    fs::create_dir(failed.join("gw")).unwrap();
    let put = |name: &str| {
        fs::write(failed.join(name), "x".repeat(5000)).unwrap();
        fs::write(failed.join(format!("{name}.error.json")), "{}").unwrap();
        // the order is that of the changes, whatever the names
        let at = || fs::symlink_metadata(failed.join(name)).unwrap();
        (at().ctime(), at().ctime_nsec())
    };
    let mut last = (0, 0);
    for name in ["z", "gw/y", "x", "w"] {
        let mut at = put(name);
        while at == last {
            at = put(name);
        }
        last = at;
    }
    let sparse = fs::File::create(failed.join("sparse")).unwrap();
    sparse.set_len(1 << 42).unwrap();
    let now_ms = Clock::System.now_ms();
    let of = |name: &str| fs::symlink_metadata(failed.join(name)).unwrap().blocks() * 512;
    let pair = of("w") + of("w.error.json");
    let off = config::RetentionConfig::default();
    assert_eq!(place.files(off, now_ms + 1000 * DAY_MS).failed, 0, "off by default");
    let most = config::RetentionConfig { failed_max_bytes: Some(2 * pair), ..off };
    assert_eq!(place.files(most, now_ms).failed, 2);
    let left = ["gw", "sparse", "w", "w.error.json", "x", "x.error.json"];
    assert_eq!(place.names(&failed), left);
    assert!(place.names(&failed.join("gw")).is_empty());
    let days = config::RetentionConfig { failed_days: Some(10), ..off };
    assert_eq!(place.files(days, now_ms + 9 * DAY_MS).failed, 0);
    assert_eq!(place.files(days, now_ms + 11 * DAY_MS).failed, 3);
    assert_eq!(place.names(&failed), ["gw"]);
}
