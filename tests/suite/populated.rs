//! A spool with a store in which all has happened that can, in runs of few ids: what is damaged to
//! see whether that is found.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use windowflow::decode::Limits;
use windowflow::engine::Presence;
use windowflow::engine::settings::{LatePolicy, LateRule, Settings};
use windowflow::engine::window::WindowId;
use windowflow::model::clock::Clock;
use windowflow::model::event::Event;
use windowflow::model::refusal::Code;
use windowflow::pipeline::admin_batch::{self, Asked};
use windowflow::pipeline::ingest::{Ended, Ingest, Mode, Seconds, Unwatched};
use windowflow::query::verify::{Verified, Verify};
use windowflow::spool::Spool;
use windowflow::store::sqlite::{Options, SqliteStore};
use windowflow::store::{
    Delivery, Error, EventRef, ReceiptRow, Refused, SettledRow, Snapshot, Span, Store,
};

/// The time of day in which it all happens.
pub const NOW_MS: i64 = 1_700_000_000_000;

const HOUR_MS: i64 = 3_600_000;

/// How far apart events are that come in order.
const EVENT_EVERY_MS: i64 = 50;

/// A spool that is being filled.
pub struct Populated {
    pub spool: PathBuf,
    settings: Settings,
    store: Option<SqliteStore>,
    events: u64,
    files: u64,
    runs_of: u64,
}

/// Copies a spool, without what readers of its log share in memory.
pub fn copy_all(from: &Path, to: &Path) {
    for found in fs::read_dir(from).unwrap() {
        let found = found.unwrap();
        let to = to.join(found.file_name());
        if found.file_type().unwrap().is_dir() {
            fs::create_dir_all(&to).unwrap();
            copy_all(&found.path(), &to);
        } else if !found.file_name().to_string_lossy().ends_with("-shm") {
            fs::copy(found.path(), to).unwrap();
        }
    }
}

/// How a store is opened here.
pub fn options() -> Options {
    Options { clock: Clock::Fixed(NOW_MS), ..Options::default() }
}

impl Populated {
    /// An empty spool there, with a store of that policy for late events.
    pub fn begin(spool: &Path, policy: LatePolicy) -> Populated {
        Populated::begin_as(spool, LateRule::Window, policy, None)
    }

    /// The same, with that rule, and ids that are forgotten behind that horizon.
    pub fn begin_as(
        spool: &Path,
        rule: LateRule,
        policy: LatePolicy,
        horizon_ms: Option<i64>,
    ) -> Populated {
        for folder in ["inbox", "done", "done/gw", "failed", "reports"] {
            fs::create_dir_all(spool.join(folder)).unwrap();
        }
        let settings = Settings::new(1000, 2000)
            .unwrap()
            .with_late(rule, policy)
            .with_max_future_ms(Some(HOUR_MS))
            .unwrap()
            .with_dedup_horizon_ms(horizon_ms)
            .unwrap();
        let (spool, runs_of) = (spool.to_owned(), 64);
        let path = spool.join("windowflow.db");
        let (store, _) = SqliteStore::create(&path, settings, options()).unwrap();
        let store = Some(store.with_runs_of(runs_of));
        Populated { spool, settings, store, events: 0, files: 0, runs_of }
    }

    pub fn db(&self) -> PathBuf {
        self.spool.join("windowflow.db")
    }

    /// The store, as long as it is open.
    pub fn store(&mut self) -> &mut SqliteStore {
        self.store.as_mut().unwrap()
    }

    /// Closes the store, which copies its log into its file, and opens it again.
    pub fn reopen(&mut self) {
        drop(self.store.take());
        let store = SqliteStore::open(&self.db(), options()).unwrap();
        self.store = Some(store.with_runs_of(self.runs_of));
    }

    /// Closes the store.
    pub fn close(mut self) -> PathBuf {
        drop(self.store.take());
        self.spool
    }

    /// Takes in another file of so many events, which then lies in done/.
    pub fn file(&mut self, events: u64) {
        let number = self.files;
        self.files += 1;
        let folder = if number % 3 == 2 { "gw/" } else { "" };
        let name = format!("{folder}f{number:03}.ndjson");
        let text: String = (0..events).map(|_| self.event()).collect();
        self.take_in(&name, &text);
    }

    /// Takes in a file with that in it.
    pub fn take_in(&mut self, name: &str, text: &str) {
        let source = name.split_once('/').map_or("default", |(folder, _)| folder);
        fs::write(self.spool.join("done").join(name), text).unwrap();
        let delivery = Delivery::fresh(name.to_owned(), source.to_owned()).unwrap();
        let (limits, mode) = (Limits::default(), Mode::Commit);
        let ingest = Ingest {
            delivery: &delivery,
            limits,
            mode,
            admission: None,
            now_ms: NOW_MS,
            seconds: Seconds::Accept,
        };
        let ended = ingest.run(self.store(), text.as_bytes(), &mut Unwatched).unwrap();
        assert!(matches!(ended, Ended::Committed(_)), "{ended:?}");
    }

    /// The next event: mostly in order, now and then late, ahead of the clock, or a repeat; behind a
    /// horizon also one that is too old, and one whose id was forgotten.
    fn event(&mut self) -> String {
        let n = self.events;
        self.events += 1;
        let repeated = (n % 11 == 10).then(|| n - 1 - n % 10 / 2);
        let n = repeated.filter(|n| n % 11 != 10).unwrap_or(n);
        let in_order_ms = NOW_MS - 2 * HOUR_MS + n as i64 * EVENT_EVERY_MS;
        let horizon_ms = self.settings.dedup_horizon_ms();
        // twice as far back as the horizon
        let forgotten = horizon_ms.map(|horizon_ms| horizon_ms as u64 * 2 / EVENT_EVERY_MS as u64);
        let id = match forgotten {
            Some(back) if n % 97 == 83 && n > back => n - back,
            _ => n,
        };
        let timestamp_ms = match (n % 97, horizon_ms) {
            (13 | 50, _) => in_order_ms - 5000,
            (71, Some(horizon_ms)) => in_order_ms - horizon_ms * 3 / 2,
            (31, _) => NOW_MS + 2 * HOUR_MS + n as i64,
            _ => in_order_ms - (n % 7) as i64 * 100,
        };
        let more = match n % 5 {
            0 => r#","producer_version":"1.2""#,
            3 => r#","source":"own""#,
            _ => "",
        };
        let (key, value) = (n * 7 % 13, n as i64 * 31 % 1000 - 300);
        format!(
            "{{\"id\":\"event-{id}\",\"key\":\"key-{key}\",\"timestamp_ms\":{timestamp_ms},\
             \"value\":{value}{more}}}\n"
        )
    }

    /// Each act once: sources that come and go, the watermark set by hand, kept events settled.
    pub fn acts(&mut self) {
        let asked = Asked { by: "a test", reason: Some("to see") };
        let store = self.store();
        admin_batch::change_presence(store, &["slow", "own"], Presence::Declared, asked).unwrap();
        admin_batch::change_presence(store, &["slow"], Presence::Idle, asked).unwrap();
        admin_batch::change_presence(store, &["slow"], Presence::Active, asked).unwrap();
        admin_batch::change_presence(store, &["slow"], Presence::Idle, asked).unwrap();
        let watermark_ms = self.watermark_ms();
        let store = self.store();
        admin_batch::advance(store, watermark_ms + 700, asked).unwrap();
        let mut nth = 0;
        let mut some = |of: u32| {
            nth += 1;
            nth % of == 0
        };
        admin_batch::settle(store, admin_batch::Settling::Discard, &mut |_| some(3), asked)
            .unwrap();
        admin_batch::settle(store, admin_batch::Settling::Correct, &mut |_| some(2), asked)
            .unwrap();
        // those that are held are so far ahead that only a later clock lets them go
        let later = Options { clock: Clock::Fixed(NOW_MS + 3 * HOUR_MS), ..Options::default() };
        drop(self.store.take());
        let mut store = SqliteStore::open(&self.db(), later).unwrap();
        let mut one = 0;
        let mut first = |_: &Event<'_>| {
            one += 1;
            one == 1
        };
        admin_batch::settle(&mut store, admin_batch::Settling::Release, &mut first, asked).unwrap();
        drop(store);
        self.reopen();
    }

    /// A file is refused.
    pub fn refuse(&mut self, name: &str) {
        self.refuse_at(name, NOW_MS);
    }

    /// The same at that moment.
    pub fn refuse_at(&mut self, name: &str, refused_at_ms: i64) {
        let refused = Refused {
            file: name.to_owned(),
            source: "default".to_owned(),
            sha256: None,
            bytes: Some(1),
            refused_at_ms,
            code: Code::BadJson,
            message: "no JSON".to_owned(),
        };
        self.store().record_refusal(&refused).unwrap();
        self.store().sync().unwrap();
        let failed = self.spool.join("failed");
        fs::write(failed.join(name), "?").unwrap();
        let reason = format!(
            "{{\"file\":\"{name}\",\"refused_at_ms\":{refused_at_ms},\"code\":\"bad_json\",\
             \"message\":\"no JSON\"}}"
        );
        fs::write(failed.join(format!("{name}.error.json")), reason).unwrap();
    }

    fn watermark_ms(&self) -> i64 {
        let snapshot = SqliteStore::snapshot(&self.db(), options()).unwrap();
        snapshot.summary().unwrap().watermark_ms
    }

    /// All of it, with so many files of so many events.
    pub fn fill(&mut self, files: u64, events: u64) {
        for number in 0..files {
            self.file(events);
            if number == files / 2 {
                self.acts();
            }
        }
        let settings = self.settings;
        assert_eq!(settings, self.store().settings());
        self.refuse("bad.json");
    }
}

/// Looks through the store of that spool.
pub fn verify(spool: &Path) -> Result<Verified, Error> {
    let db = spool.join("windowflow.db");
    let (options, spool) = (options(), Spool::at(spool));
    Verify { db: &db, options: &options, spool: Some(&spool), limits: Limits::default() }.run()
}

/// All that can be seen of a store, a line each; what went wrong when it cannot be read. What the
/// README says that `verify` cannot see is left out: when and by whom something was done, and why,
/// and how far ahead an event may be.
pub fn visible(db: &Path, spool: &Path) -> Result<Vec<String>, Error> {
    let snapshot = SqliteStore::snapshot(db, options())?;
    let mut summary = snapshot.summary()?;
    summary.settings = summary.settings.with_max_future_ms(None).unwrap();
    let mut seen = vec![format!("{summary:?}")];
    let go_on = ControlFlow::Continue(());
    let sources = snapshot.sources()?;
    for source in &sources {
        let mut notes = snapshot.presence(&source.source)?;
        notes.iter_mut().for_each(|note| note.at_ms = 0);
        seen.push(format!("{source:?} {notes:?}"));
    }
    let mut versions = Vec::new();
    snapshot.versions(&mut |name, counts| {
        versions.push((name.to_owned(), counts));
        go_on
    })?;
    seen.push(format!("{versions:?}"));
    let mut windows = Vec::new();
    snapshot.windows(Span::default(), &mut |row| {
        windows.push((row.start_ms, row.key.to_owned(), format!("{row:?}")));
        go_on
    })?;
    for (start_ms, key, row) in windows {
        let revisions = snapshot.revisions(WindowId { start_ms, key: &key })?;
        seen.push(format!("{row} {revisions:?}"));
    }
    let mut lines = Vec::new();
    let mut push = |line: String| {
        lines.push(line);
        go_on
    };
    snapshot.accounts(&mut |row| push(format!("{row:?}")))?;
    snapshot.late(Span::default(), &mut |row| push(format!("{row:?}")))?;
    snapshot.held(&mut |row| push(format!("{row:?}")))?;
    snapshot.moves(0, &mut |row| push(format!("{row:?}")))?;
    snapshot.receipts(0, &mut |row| {
        let (committed_at_ms, asked_by, reason) = (0, None, None);
        push(format!("{:?}", ReceiptRow { committed_at_ms, asked_by, reason, ..row.clone() }))
    })?;
    seen.append(&mut lines);
    seen.extend(known(&snapshot, spool)?);
    Ok(seen)
}

/// What is known of each id of each file, and what became of those that were held.
fn known(
    snapshot: &windowflow::store::sqlite::SqliteSnapshot,
    spool: &Path,
) -> Result<Vec<String>, Error> {
    let mut lookup = snapshot.lookup()?;
    let (mut seen, mut facts) = (Vec::new(), Vec::new());
    let mut names: Vec<PathBuf> = ["done", "done/gw"]
        .iter()
        .flat_map(|folder| fs::read_dir(spool.join(folder)).unwrap())
        .map(|found| found.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    names.sort();
    for path in names {
        let file = fs::File::open(&path).unwrap();
        let mut decoder = windowflow::decode::Decoder::new(file, Limits::default());
        let mut chunk = windowflow::model::event::Chunk::default();
        loop {
            let more = decoder.read_chunk(&mut chunk).unwrap();
            lookup.facts(&chunk, &mut facts)?;
            for (event, fact) in chunk.iter().zip(&facts) {
                seen.push(format!("{} {fact:?}", event.id));
                if let windowflow::engine::Fact::Seen(at) = fact
                    && event.timestamp_ms > NOW_MS
                {
                    let at = EventRef { batch: at.batch, event_index: at.event_index };
                    let settled = snapshot.settled(at)?;
                    let settled = settled.map(|row| SettledRow { at_ms: 0, ..row });
                    seen.push(format!("{settled:?}"));
                }
            }
            if !more {
                break;
            }
        }
    }
    Ok(seen)
}
