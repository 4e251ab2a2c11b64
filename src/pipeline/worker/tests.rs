//! Groups of files against a store that fails: nothing is lost, nothing counts twice, and no file
//! moves before what it brought is durable.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use super::*;
use crate::engine::Known;
use crate::engine::settings::Settings;
use crate::model::clock::Clock;
use crate::model::event::HashKey;
use crate::store::failing::{FailedCall, FailingStore};
use crate::store::memory::MemoryStore;
use crate::store::{
    self, Begun, Error, Pace as PrunePace, Pruned, Refused, Retention, Silent, Snapshot, Span,
};

/// What the store would hold after a power cut: events by key, batches, and refusals.
type Durable = (BTreeMap<String, i64>, u64, u64);

/// A store that fails once, and whose inner one fails another time, and shows what is durable in it.
struct Shown {
    store: FailingStore<FailingStore<MemoryStore>>,
    durable: Arc<Mutex<(Durable, usize)>>,
}

impl Shown {
    fn show(&self) {
        let snapshot = self.store.inner().inner().durable();
        let mut windows = BTreeMap::new();
        let mut add = |row: &store::WindowRow<'_>| {
            windows.insert(row.key.to_owned(), row.totals.count);
            ControlFlow::Continue(())
        };
        snapshot.windows(Span::default(), &mut add).unwrap();
        let summary = snapshot.summary().unwrap();
        let durable = (windows, summary.batches, summary.refused_batches);
        *self.durable.lock().unwrap() = (durable, self.store.calls());
    }
}

impl Store for Shown {
    fn settings(&self) -> Settings {
        self.store.settings()
    }

    fn now_ms(&self) -> i64 {
        self.store.now_ms()
    }

    fn trusted_ms(&self) -> i64 {
        self.store.trusted_ms()
    }

    fn keep_time(&mut self) -> Result<(), store::Error> {
        self.store.keep_time()
    }

    fn trust_now(&mut self) -> Result<(), store::Error> {
        self.store.trust_now()
    }

    fn hash_key(&self) -> HashKey {
        self.store.hash_key()
    }

    fn begin<'s>(&'s mut self, delivery: &Delivery) -> Result<Begun<'s>, Error> {
        self.store.begin(delivery)
    }

    fn begin_unsynced<'s>(&'s mut self, delivery: &Delivery) -> Result<Begun<'s>, Error> {
        self.store.begin_unsynced(delivery)
    }

    fn record_refusal(&mut self, refused: &Refused) -> Result<(), Error> {
        self.store.record_refusal(refused)
    }

    /// The last thing that is asked before files move.
    fn sync(&mut self) -> Result<(), Error> {
        let synced = self.store.sync();
        self.show();
        synced
    }

    fn known(&mut self, sources: &[&str]) -> Result<Vec<Known>, Error> {
        self.store.known(sources)
    }

    fn silent(&mut self, after: Option<&Silent>, most: usize) -> Result<Vec<(u64, Silent)>, Error> {
        self.store.silent(after, most)
    }

    fn expected(&mut self) -> Result<Vec<String>, Error> {
        self.store.expected()
    }

    fn prune_paced(&mut self, what: &Retention, pace: &mut PrunePace<'_>) -> Result<Pruned, Error> {
        self.store.prune_paced(what, pace)
    }
}

struct Steady;

impl Pace for Steady {
    fn begin(&mut self, _: &Entry) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn step(&mut self, _: Step) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

fn event(id: &str, key: &str, value: i64) -> String {
    format!("{{\"id\":\"{id}\",\"key\":\"{key}\",\"timestamp_ms\":1,\"value\":{value}}}\n")
}

struct World {
    _dir: tempfile::TempDir,
    spool: Spool,
    worker: Worker,
    durable: Arc<Mutex<(Durable, usize)>>,
}

impl World {
    fn new(fail_at: usize, failure: FailedCall) -> World {
        World::failing_twice((fail_at, failure), (usize::MAX, FailedCall::Io), 1)
    }

    /// The second failure is counted in calls that the first one lets pass, and is one of so many of
    /// these in a row.
    fn failing_twice(
        first: (usize, FailedCall),
        second: (usize, FailedCall),
        failing_calls: usize,
    ) -> World {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let memory = MemoryStore::new(Settings::new(1000, 0).unwrap(), Clock::Fixed(1000));
        let store = FailingStore::new(memory, second.0, second.1).for_calls(failing_calls);
        let store = FailingStore::new(store, first.0, first.1)
            .losing(|store| store.inner_mut().lose_unsynced());
        let durable = Arc::default();
        let shown = Shown { store, durable: Arc::clone(&durable) };
        let limits = Limits::default();
        let worker = Worker::new(spool.clone(), Box::new(shown), limits, Duration::ZERO);
        let world = World { _dir: dir, spool, worker, durable };
        world.drop_in("1-good", event("a", "1-good", 1) + &event("b", "1-good", 2));
        world.drop_in("2-bad", "{".to_owned());
        // against another of its group, which is not durable yet
        world.drop_in("3-conflict", event("c", "3-conflict", 3) + &event("a", "1-good", 9));
        world.drop_in("4-repeat", event("d", "4-repeat", 4) + &event("b", "1-good", 2));
        world.drop_in("5-good", event("e", "5-good", 5));
        // the last one commits nothing: what syncs the group is the sync
        world.drop_in("6-bad", "[]]".to_owned());
        world
    }

    fn drop_in(&self, name: &str, text: String) {
        fs::write(self.spool.inbox().join(name), text).unwrap();
    }

    fn names(&self, folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Takes what lies in the inbox as long as groups come; what was said of each file.
    fn drain(&mut self, pace: &mut dyn Pace) -> Vec<(String, FileOutcome)> {
        let names = self.names(self.spool.inbox());
        let entries: Vec<Entry> = names.into_iter().map(|name| Entry::new(None, name)).collect();
        let mut ahead = self.worker.read_ahead(entries, unwatched()).unwrap();
        let mut all = Vec::new();
        loop {
            let verdicts = self.worker.take_group(&mut ahead, pace);
            let is_over = verdicts.is_empty();
            for (entry, verdict) in verdicts {
                // what stands in the way of all is waited out, then all is looked at afresh
                if matches!(&verdict, FileOutcome::Failure(failure) if !failure.is_of_one()) {
                    return all;
                }
                all.push((entry.shown(), verdict));
            }
            if is_over {
                return all;
            }
        }
    }

    /// What has left the inbox is durable.
    fn check(&self, case: &str) {
        let ((windows, _, refused), _) = self.durable.lock().unwrap().clone();
        for name in self.names(self.spool.done()) {
            assert!(windows.contains_key(&name), "{name} moved too early: {case}");
        }
        let failed = self.names(self.spool.failed());
        assert!(failed.len() as u64 <= 2 * refused, "{failed:?} moved too early: {case}");
        assert!(failed.iter().all(|name| !name.ends_with("tmp")), "{failed:?}: {case}");
    }

    fn check_end(&self, case: &str) {
        let ((windows, batches, refused), _) = self.durable.lock().unwrap().clone();
        let expected = [("1-good", 2), ("4-repeat", 1), ("5-good", 1)];
        let expected = expected.map(|(key, count)| (key.to_owned(), count));
        assert_eq!(windows, BTreeMap::from(expected), "{case}");
        assert_eq!((batches, refused), (3, 3), "{case}");
        assert_eq!(self.names(self.spool.done()), ["1-good", "4-repeat", "5-good"], "{case}");
        let failed = ["2-bad", "3-conflict", "6-bad"];
        let failed = failed.map(|name| [name.to_owned(), format!("{name}.error.json")]).concat();
        assert_eq!(self.names(self.spool.failed()), failed, "{case}");
        assert!(self.names(self.spool.inbox()).is_empty(), "{case}");
    }
}

/// Who waits for as long as it takes.
fn unwatched() -> Waiting<'static> {
    Box::new(|| ControlFlow::Continue(()))
}

#[test]
fn one_bad_file_in_a_group_keeps_none_of_the_others_back() {
    let mut world = World::new(usize::MAX, FailedCall::Io);
    let verdicts = world.drain(&mut Steady);
    let shown: Vec<String> = verdicts
        .iter()
        .map(|(name, verdict)| match verdict {
            FileOutcome::Done(done, _) => format!("{name}: batch {}, {}", done.batch, done.counts),
            FileOutcome::Failed(refused, _) => format!("{name}: {}", refused.refusal.code.name()),
            other => format!("{name}: {other:?}"),
        })
        .collect();
    let expected = [
        "1-good: batch 1, 2 accepted",
        "2-bad: truncated",
        "3-conflict: conflict",
        "4-repeat: batch 2, 1 accepted, 1 duplicate",
        "5-good: batch 3, 1 accepted",
        "6-bad: trailing_data",
    ];
    assert_eq!(shown, expected);
    world.check_end("all well");
    let FileOutcome::Failed(refused, _) = &verdicts[2].1 else { panic!("{shown:?}") };
    let other = refused.refusal.other.as_ref().unwrap();
    assert_eq!((other.file.as_deref(), other.batch), (Some("1-good"), Some(1)));
    // read to its end for it, although the fault came before
    let bytes = fs::metadata(world.spool.failed().join("3-conflict")).unwrap().len();
    assert_eq!(refused.bytes, Some(bytes));
}

#[test]
fn a_fault_of_the_store_at_any_step_of_a_group_loses_nothing_and_counts_nothing_twice() {
    let mut whole = World::new(usize::MAX, FailedCall::Io);
    whole.drain(&mut Steady);
    let (_, calls) = *whole.durable.lock().unwrap();
    assert!(calls > 20, "only {calls} calls");
    for failure in FailedCall::ALL {
        for fail_at in 0..calls {
            let mut world = World::new(fail_at, failure);
            let case = format!("{failure:?} at call {fail_at} of {calls}");
            let mut rounds = 0;
            while !world.names(world.spool.inbox()).is_empty() {
                world.drain(&mut Steady);
                world.check(&case);
                rounds += 1;
                assert!(rounds < 4, "{case}");
            }
            world.check_end(&case);
            assert!(world.worker.unfinished.is_empty(), "{case}");
        }
    }
}

/// What may be in is asked after until there is an answer, whatever comes in between.
#[test]
fn a_second_fault_while_the_store_is_asked_counts_nothing_twice() {
    let mut whole = World::new(usize::MAX, FailedCall::Io);
    whole.drain(&mut Steady);
    let (_, calls) = *whole.durable.lock().unwrap();
    for lost in [FailedCall::LostBefore, FailedCall::LostAfter] {
        for first in 0..calls {
            for (second, many) in (first..first + 8).flat_map(|at| [1, 5].map(|many| (at, many))) {
                let second_failure = (second, FailedCall::Full);
                let mut world = World::failing_twice((first, lost), second_failure, many);
                let case = format!("{lost:?} at call {first}, then full at {many} from {second}");
                let mut rounds = 0;
                while !world.names(world.spool.inbox()).is_empty() {
                    world.drain(&mut Steady);
                    world.check(&case);
                    rounds += 1;
                    assert!(rounds < 10, "{case}");
                }
                world.check_end(&case);
                assert!(world.worker.unfinished.is_empty(), "{case}");
            }
        }
    }
}

/// Says stop before the n-th file, or in the middle of it.
struct Stopper {
    left: usize,
    within: bool,
}

impl Pace for Stopper {
    fn begin(&mut self, _: &Entry) -> ControlFlow<()> {
        let stops = self.left == 0 && !self.within;
        self.left = self.left.saturating_sub(1);
        if stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn step(&mut self, _: Step) -> ControlFlow<()> {
        let stops = self.left == 0 && self.within;
        if stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[test]
fn a_stop_ends_the_group_and_moves_what_is_in() {
    let mut world = World::new(usize::MAX, FailedCall::Io);
    assert_eq!(world.drain(&mut Stopper { left: 2, within: false }).len(), 2);
    assert_eq!(world.names(world.spool.done()), ["1-good"]);
    assert_eq!(world.names(world.spool.inbox()), ["3-conflict", "4-repeat", "5-good", "6-bad"]);
    world.check("stopped");
    // and in the middle of a file of several chunks, behind one that is in
    let many: String = (0..20_000).map(|n| event(&format!("n{n}"), "6-many", 1)).collect();
    world.drop_in("6-many", many);
    for name in ["3-conflict", "6-bad"] {
        fs::remove_file(world.spool.inbox().join(name)).unwrap();
    }
    let verdicts = world.drain(&mut Stopper { left: 3, within: true });
    assert!(matches!(verdicts[2], (_, FileOutcome::Stopped)), "{verdicts:?}");
    assert_eq!(world.names(world.spool.inbox()), ["6-many"]);
    world.check("stopped within");
    let verdicts = world.drain(&mut Steady);
    let [(_, FileOutcome::Done(done, _))] = &verdicts[..] else { panic!("{verdicts:?}") };
    assert_eq!((done.counts.accepted, done.batch), (20_000, 4));
}

#[test]
fn the_rest_of_a_large_file_is_read_for_its_digest_and_the_next_one_comes_right() {
    let mut world = World::new(usize::MAX, FailedCall::Io);
    let large = |first: &str| {
        let rest: String = (0..30_000).map(|n| event(&format!("n{n}"), "0-large", 1)).collect();
        event("x", "0-large", 1) + first + &rest
    };
    let text = large(&event("x", "0-large", 2));
    world.drop_in("0-large", text.clone());
    let verdicts = world.drain(&mut Steady);
    let FileOutcome::Failed(refused, _) = &verdicts[0].1 else { panic!("{verdicts:?}") };
    assert_eq!(refused.bytes, Some(text.len() as u64));
    assert!(matches!(verdicts[1].1, FileOutcome::Done(..)), "{verdicts:?}");
    assert_eq!(verdicts.len(), 7);
    world.drop_in("0-large", large(""));
    let verdicts = world.drain(&mut Steady);
    let [(_, FileOutcome::Done(done, _))] = &verdicts[..] else { panic!("{verdicts:?}") };
    assert_eq!(done.counts.accepted, 30_001);
}

/// Has failed for a look at the writers at the scan only, of good files and of bad ones.
#[test]
fn case_109_a_file_that_somebody_opened_for_writing_since_the_scan_stays_in_line() {
    let mut world = World::new(usize::MAX, FailedCall::Io);
    world.drop_in("a", event("its-own", "k", 1));
    world.drop_in("bad", "{".to_owned());
    let append =
        |name: &str| fs::File::options().append(true).open(world.spool.inbox().join(name)).unwrap();
    let writers = ["a", "bad"].map(append);
    let verdicts = world.drain(&mut Steady);
    let of =
        |name: &str| verdicts.iter().find(|(file, _)| file == name).map(|(_, verdict)| verdict);
    assert!(matches!(of("1-good"), Some(FileOutcome::Done(..))), "{verdicts:?}");
    assert!(matches!(of("a"), Some(FileOutcome::NotYet)), "{verdicts:?}");
    assert!(matches!(of("bad"), Some(FileOutcome::NotYet)), "{verdicts:?}");
    // what the others came to, and nothing of the open ones
    let ((windows, batches, refused), _) = world.durable.lock().unwrap().clone();
    assert_eq!((windows.contains_key("k"), batches, refused), (false, 3, 3));
    drop(writers);
    let verdicts = world.drain(&mut Steady);
    assert!(matches!(&verdicts[0].1, FileOutcome::Done(..)), "{verdicts:?}");
    assert!(matches!(&verdicts[1].1, FileOutcome::Failed(..)), "{verdicts:?}");
}

#[test]
fn what_went_away_or_cannot_be_a_file_is_told_within_the_group() {
    let mut world = World::new(usize::MAX, FailedCall::Io);
    let entries = ["0-gone", "1-good", "1-nothing", "5-good"].map(|name| Entry::new(None, name));
    fs::create_dir(world.spool.inbox().join("1-nothing")).unwrap();
    let mut ahead = world.worker.read_ahead(entries.into(), unwatched()).unwrap();
    let verdicts = world.worker.take_group(&mut ahead, &mut Steady);
    let is_gone = |at: usize| matches!(verdicts[at].1, FileOutcome::Gone);
    let is_done = |at: usize| matches!(verdicts[at].1, FileOutcome::Done(..));
    assert!(is_gone(0) && is_done(1) && is_gone(2) && is_done(3), "{verdicts:?}");
}

/// Has failed for a line at each try.
#[test]
fn case_141_a_doubt_is_logged_once_and_then_once_a_minute() {
    let (mut said, start) = (None, Instant::now());
    // a try every quarter of a second, for three minutes less one try
    let tries = (0..719).map(|n| start + Duration::from_millis(250 * n));
    let logged = tries.filter(|now| is_due(&mut said, *now)).count();
    assert_eq!(logged, 3);
}
