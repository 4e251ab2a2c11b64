//! What goes from the folders, and what never does.

use super::*;
use crate::clock::Clock;
use crate::decode::Limits;
use crate::engine::settings::Settings;
use crate::ingest::{Ended, Ingest, Mode, Seconds, Unwatched};
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
        let ingest =
            Ingest { delivery: &delivery, limits, mode, now_ms: at_ms, seconds: Seconds::Accept };
        let ended = ingest.run(&mut self.store, content.as_bytes(), &mut Unwatched).unwrap();
        assert!(matches!(ended, Ended::Committed(_)), "{ended:?}");
        let path = self.spool.done().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn files(&self, asked: config::Retention, now_ms: i64) -> Removed {
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

const TEN_DAYS: config::Retention = config::Retention {
    windows_days: None,
    late_days: None,
    receipts_days: None,
    reports_days: Some(10),
    done_days: Some(10),
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
    let young = config::Retention { done_days: Some(30), ..TEN_DAYS };
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
    let off = config::Retention { reports_days: None, ..TEN_DAYS };
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
