//! What must hold after every fault, against what the test itself knows of the files it dropped.
//!
//! I1: each file is in exactly one of inbox, done and failed, byte for byte. I2: what lies in
//! done/ has a receipt, what lies in failed/ has a refusal, a reason, and no receipt. I3: the
//! report equals the model, to which the files were given in the order of the receipts; so does
//! each receipt, and each refusal is one that the model makes, too. I4: SQLite finds the store
//! whole. I5: the watermark does not fall, and a final window stays as it is until it gets another
//! revision.
//!
//! Row 0 of the table doctors a spool in each of these ways, and has to be told so.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::model::{Counts, Event, Model, Settings};
use crate::observed::report_differs;
use crate::presence;
use crate::workload::{Content, File, Workload};
use crate::world::World;

/// What the test knows.
pub struct Oracle {
    files: BTreeMap<String, Dropped>,
    settings: Settings,
    /// What the receipts up to now make of the files.
    model: Model,
    receipts: usize,
    // what took effect, in order
    history: Vec<Step>,
    last_batch: i64,
    // up to which batch the model knows how sources came and went
    last_noted: i64,
    /// How often a file had a receipt before, which a crash between commit and move explains.
    repeats: u64,
    watermark_ms: i64,
    /// Whether a file may be refused because it could not be opened.
    pub may_deny: bool,
    /// What was looked at once is not looked at again: for worlds that last.
    lasts: bool,
    /// By start and key: the revision, and the row of the report.
    finals: BTreeMap<(i64, String), (u64, String)>,
}

/// What took effect.
enum Step {
    /// A file, by its name.
    File(String),
    /// A source that came or went.
    Source(presence::Note),
}

/// A file that was dropped.
struct Dropped {
    sha256: String,
    content: Content,
    receipts: u64,
    refused: Option<String>,
    /// Its bytes were looked at where they came to rest.
    settled: bool,
}

/// What was found, when nothing was wrong.
#[derive(Debug)]
pub struct Found {
    /// How many receipts are of a file that had one before.
    pub repeats: u64,
    /// How many files wait that have a receipt: when they are taken again, these are repeats.
    pub owed: u64,
}

/// Where things lie.
#[derive(Default)]
struct Places {
    /// The folders that hold that name.
    of: BTreeMap<String, Vec<&'static str>>,
    /// Names of reasons, without their ending.
    reasons: BTreeSet<String>,
    hidden: Vec<String>,
}

/// A receipt, as it stands in the store.
struct Receipt {
    batch: i64,
    file: String,
    sha256: Option<String>,
    counts: Counts,
    watermark_ms: i64,
    windows_closed: u64,
}

impl Oracle {
    /// Of an empty store with these settings.
    pub fn new(settings: Settings) -> Oracle {
        Oracle {
            files: BTreeMap::new(),
            settings,
            model: Model::new(settings),
            receipts: 0,
            history: Vec::new(),
            last_batch: 0,
            last_noted: 0,
            repeats: 0,
            watermark_ms: 0,
            may_deny: false,
            lasts: false,
            finals: BTreeMap::new(),
        }
    }

    /// For a world with very many files: what came to rest, and what was replayed, is not looked at
    /// again, and events are let go after that.
    pub fn that_lasts(self) -> Oracle {
        Oracle { lasts: true, ..self }
    }

    /// A world with an empty store for that workload, and what is known of it; in memory where
    /// processes die and disks do not.
    pub fn with_world(workload: &Workload) -> (World, Oracle) {
        let memory = Path::new("/dev/shm");
        let is_there = fs::metadata(memory).is_ok_and(|folder| folder.is_dir());
        let temp = std::env::temp_dir();
        let world = World::new_in(if is_there { memory } else { &temp });
        let flags = workload.settings.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        world.init(workload.settings.window_ms, workload.settings.lateness_ms, &flags);
        (world, Oracle::new(workload.settings))
    }

    /// Writes a file where it lies, as a careless producer does, and remembers it.
    pub fn write_in_place(&mut self, world: &World, file: File) {
        let to = world.inbox().join(&file.name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(to, &file.bytes).unwrap();
        self.remember(file);
    }

    /// Drops a file, and remembers it. It was written a minute ago, so that it is taken at once.
    pub fn drop_in(&mut self, world: &World, file: File) {
        let staged = world.root().join(".dropping");
        fs::write(&staged, &file.bytes).unwrap();
        let handle = fs::File::options().write(true).open(&staged).unwrap();
        handle.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
        let to = world.inbox().join(&file.name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(&staged, to).unwrap();
        self.remember(file);
    }

    fn remember(&mut self, file: File) {
        let sha256 = hex(&file.bytes);
        let dropped =
            Dropped { sha256, content: file.content, receipts: 0, refused: None, settled: false };
        assert!(self.files.insert(file.name, dropped).is_none(), "the test drops a name twice");
    }

    /// Checks all of it, while no daemon runs.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&mut self, world: &World) -> Result<Found, String> {
        self.checked(world, false).map_err(|what| format!("{what}\n{}", world.told()))
    }

    /// The same when all work is done: nothing waits, nothing unfinished lies around.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check_end(&mut self, world: &World) -> Result<Found, String> {
        self.checked(world, true).map_err(|what| format!("at the end: {what}\n{}", world.told()))
    }

    fn begin_anew(&mut self) {
        self.model = Model::new(self.settings);
        (self.receipts, self.last_batch, self.last_noted, self.repeats) = (0, 0, 0, 0);
        self.history.clear();
        for dropped in self.files.values_mut() {
            (dropped.receipts, dropped.refused, dropped.settled) = (0, None, false);
        }
    }

    fn forget_settled(&mut self) {
        for dropped in self.files.values_mut().filter(|dropped| dropped.settled) {
            if let Content::Batch(events) = &mut dropped.content {
                *events = Vec::new();
            }
        }
    }

    fn checked(&mut self, world: &World, at_end: bool) -> Result<Found, String> {
        if !self.lasts {
            self.begin_anew();
        }
        let places = Places::of(world)?;
        let waiting = self.check_places(world, &places)?;
        let store = look_into(world)?;
        let verdict: String = store
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .map_err(|error| format!("I4: the store cannot be checked: {error}"))?;
        if verdict != "ok" {
            return Err(format!("I4: integrity_check says {verdict}"));
        }
        let batches = self.replay(&store)?;
        let refusals = self.take_refusals(&store)?;
        self.check_fates(world, &places)?;
        let ran = world.run(&["report", "--json"]);
        if ran.code != Some(0) {
            return Err(format!("I3: there is no report: {:?} {}", ran.code, ran.err));
        }
        let report = ran.json();
        self.check_finals(&report)?;
        if let Some(differs) = report_differs(&report, &self.model) {
            return Err(format!("I3: {differs}"));
        }
        for (name, count) in [("batches", batches), ("refused_batches", refusals)] {
            if report["totals"][name] != count {
                return Err(format!("I3: {count} receipts, but {name}: {}", report["totals"]));
            }
        }
        if at_end {
            self.check_tidy(&places, waiting)?;
        }
        if self.lasts {
            self.forget_settled();
        }
        let has_receipt = |name: &String| self.files[name].receipts > 0;
        let waits = |held: &Vec<&str>| held == &["inbox"];
        let owed = places.of.iter().filter(|(name, held)| waits(held) && has_receipt(name)).count();
        Ok(Found { repeats: self.repeats, owed: owed as u64 })
    }

    /// I1; how many wait.
    fn check_places(&mut self, world: &World, places: &Places) -> Result<usize, String> {
        if let Some(name) = places.of.keys().find(|name| !self.files.contains_key(*name)) {
            return Err(format!("I1: {name} was never dropped: {:?}", places.of[name]));
        }
        let mut waiting = 0;
        for (name, dropped) in &mut self.files {
            let place = match places.of.get(name).map(Vec::as_slice) {
                Some([place]) => *place,
                Some(several) => return Err(format!("I1: {name} is in {several:?}")),
                None => return Err(format!("I1: {name} is lost")),
            };
            waiting += usize::from(place == "inbox");
            if dropped.settled {
                continue;
            }
            let bytes = fs::read(world.spool().join(place).join(name))
                .map_err(|error| format!("I1: {place}/{name}: {error}"))?;
            if hex(&bytes) != dropped.sha256 {
                return Err(format!("I1: {place}/{name} has other bytes than were dropped"));
            }
            dropped.settled = place != "inbox";
        }
        Ok(waiting)
    }

    /// Gives the files of the receipts that are new to the model; how many receipts there are.
    fn replay(&mut self, store: &Connection) -> Result<usize, String> {
        let all = receipts(store, 0).map_err(|error| format!("I3: no receipts: {error}"))?;
        let known = all.iter().filter(|receipt| receipt.batch <= self.last_batch).count();
        if known != self.receipts {
            return Err(format!("I3: of {} receipts {known} are left", self.receipts));
        }
        for receipt in all.iter().skip(known) {
            let Receipt { batch, file, .. } = receipt;
            self.note_sources(store, *batch)?;
            let Some(dropped) = self.files.get_mut(file) else {
                return Err(format!("I3: batch {batch} is of {file}, which was never dropped"));
            };
            if receipt.sha256.as_ref() != Some(&dropped.sha256) {
                return Err(format!("I3: batch {batch} is of other bytes than {file}"));
            }
            let Content::Batch(events) = &dropped.content else {
                return Err(format!("I3: batch {batch}: {file} is no batch"));
            };
            let answer = self.model.ingest(source_of(file), events, now_ms());
            let answer = answer.map_err(|refusal| {
                format!("I3: batch {batch}: {file} is in, but the model refuses it: {refusal:?}")
            })?;
            let found = (receipt.counts, receipt.watermark_ms, receipt.windows_closed);
            let expected = (answer.counts, answer.watermark_ms, answer.windows_closed);
            if found != expected {
                return Err(format!("I3: batch {batch}, {file}: {found:?} and not {expected:?}"));
            }
            self.repeats += u64::from(dropped.receipts > 0);
            dropped.receipts += 1;
            self.receipts += 1;
            self.history.push(Step::File(file.clone()));
            self.last_batch = *batch;
        }
        self.note_sources(store, i64::MAX)?;
        Ok(self.receipts)
    }

    /// Tells the model how sources came and went since the last receipt, before that batch.
    fn note_sources(&mut self, store: &Connection, batch: i64) -> Result<(), String> {
        for note in presence::notes(store, self.last_noted, batch)? {
            self.last_noted = note.batch;
            self.model.change_presence(std::slice::from_ref(&note.source), note.presence);
            self.history.push(Step::Source(note));
        }
        Ok(())
    }

    /// Looks at the refusals that are kept; how many there are.
    fn take_refusals(&mut self, store: &Connection) -> Result<usize, String> {
        let rows = refusals(store).map_err(|error| format!("I3: no refusals: {error}"))?;
        for (file, sha256, code) in &rows {
            let Some(dropped) = self.files.get_mut(file) else {
                return Err(format!("I3: {file} was refused, and never dropped"));
            };
            if dropped.refused.as_ref() == Some(code) {
                continue;
            }
            if sha256.is_none() && code == "unreadable" && self.may_deny {
                dropped.refused = Some(code.clone());
                continue;
            }
            if sha256.as_ref() != Some(&dropped.sha256) {
                return Err(format!("I3: other bytes than those of {file} were refused"));
            }
            dropped.refused = Some(code.clone());
            let Dropped { content, .. } = &self.files[file];
            let is_right = match content {
                Content::Nonsense(expected) => code == expected,
                Content::Batch(events) => self.is_refused_by_model(file, events, code),
            };
            if !is_right {
                return Err(format!("I3: {file} was refused as {code}, and not by the model"));
            }
        }
        Ok(rows.len())
    }

    /// Whether the model refuses it so: now, or after some receipt before.
    fn is_refused_by_model(&self, file: &str, events: &[Event], code: &str) -> bool {
        let (source, now_ms) = (source_of(file), now_ms());
        let refuses = |model: &Model| {
            let answer = model.clone().ingest(source, events, now_ms);
            answer.is_err_and(|(found, _)| found == code)
        };
        if refuses(&self.model) {
            return true;
        }
        let mut model = Model::new(self.settings);
        self.history.iter().any(|step| {
            if refuses(&model) {
                return true;
            }
            match step {
                Step::Source(note) => {
                    model.change_presence(std::slice::from_ref(&note.source), note.presence);
                }
                Step::File(name) => {
                    if let Content::Batch(events) = &self.files[name].content {
                        model.ingest(source_of(name), events, now_ms).unwrap();
                    }
                }
            }
            false
        })
    }

    /// I2.
    fn check_fates(&self, world: &World, places: &Places) -> Result<(), String> {
        for (name, held) in &places.of {
            let dropped = &self.files[name];
            match held[0] {
                "done" if dropped.receipts == 0 => {
                    return Err(format!("I2: {name} is in done/ without its events"));
                }
                "failed" if dropped.receipts > 0 => {
                    return Err(format!("I2: {name} is in failed/, and its events are in"));
                }
                "failed" => check_reason(world, name, dropped.refused.as_deref())?,
                _ => {}
            }
        }
        Ok(())
    }

    fn check_tidy(&self, places: &Places, waiting: usize) -> Result<(), String> {
        if waiting > 0 {
            return Err(format!("{waiting} files still wait in the inbox"));
        }
        if !places.hidden.is_empty() {
            return Err(format!("unfinished things are left: {:?}", places.hidden));
        }
        // killed between its reason and its move, a file is judged again, and may be taken in then
        let was_refused =
            |name: &&String| self.files.get(*name).is_some_and(|dropped| dropped.refused.is_some());
        match places.reasons.iter().find(|name| !was_refused(name)) {
            Some(name) => Err(format!("there is a reason of {name}, which was never refused")),
            None => Ok(()),
        }
    }

    /// I5.
    fn check_finals(&mut self, report: &Value) -> Result<(), String> {
        let watermark_ms = report["watermark_ms"].as_i64().unwrap();
        if watermark_ms < self.watermark_ms {
            let before_ms = self.watermark_ms;
            return Err(format!("I5: the watermark fell from {before_ms} to {watermark_ms}"));
        }
        self.watermark_ms = watermark_ms;
        let mut finals = BTreeMap::new();
        for row in report["windows"].as_array().unwrap() {
            if row["state"] != "open" {
                let start_ms = row["window_start_ms"].as_i64().unwrap();
                let window = (start_ms, row["key"].as_str().unwrap().to_owned());
                finals.insert(window, (row["revision"].as_u64().unwrap(), row.to_string()));
            }
        }
        for (window, (revision, row)) in &self.finals {
            match finals.get(window) {
                Some((later, _)) if later > revision => {}
                Some((_, now)) if now == row => {}
                now => {
                    return Err(format!("I5: window {window:?} was final as {row}, is {now:?}"));
                }
            }
        }
        self.finals = finals;
        Ok(())
    }
}

fn check_reason(world: &World, name: &str, refused: Option<&str>) -> Result<(), String> {
    let Some(code) = refused else {
        return Err(format!("I2: {name} is in failed/, and no refusal is kept"));
    };
    let path = world.spool().join("failed").join(format!("{name}.error.json"));
    let text = fs::read(path).map_err(|error| format!("I2: the reason of {name}: {error}"))?;
    let reason: Value = serde_json::from_slice(&text)
        .map_err(|error| format!("I2: the reason of {name} is not whole: {error}"))?;
    match reason["code"] == code {
        true => Ok(()),
        false => Err(format!("I2: {name} was refused as {code}, its reason says {reason}")),
    }
}

impl Places {
    fn of(world: &World) -> Result<Places, String> {
        let mut places = Places::default();
        for folder in ["inbox", "done", "failed"] {
            places.walk(&world.spool().join(folder), folder, "")?;
        }
        Ok(places)
    }

    fn walk(&mut self, path: &Path, folder: &'static str, prefix: &str) -> Result<(), String> {
        let entries = match fs::read_dir(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|error| format!("I1: {}: {error}", path.display()))?,
        };
        for entry in entries.map(Result::unwrap) {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type().unwrap().is_dir() {
                self.walk(&entry.path(), folder, &format!("{name}/"))?;
            } else if name.rsplit('/').next().unwrap().starts_with('.') {
                self.hidden.push(format!("{folder}/{name}"));
            } else if let Some(of) = name.strip_suffix(".error.json").filter(|_| folder == "failed")
            {
                self.reasons.insert(of.to_owned());
            } else {
                self.of.entry(name).or_default().push(folder);
            }
        }
        Ok(())
    }
}

/// The store, for looking only.
pub fn look_into(world: &World) -> Result<Connection, String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    Connection::open_with_flags(world.db(), flags)
        .map_err(|error| format!("I4: the store cannot be opened: {error}"))
}

fn receipts(store: &Connection, from_batch: i64) -> rusqlite::Result<Vec<Receipt>> {
    let sql = "SELECT batch, file, sha256, accepted, late, duplicate, future, expired, \
               watermark_ms, windows_closed FROM batches WHERE batch >= ?1 AND kind = 'events' \
               ORDER BY batch";
    let mut statement = store.prepare(sql)?;
    let rows = statement.query_map([from_batch], |row| {
        Ok(Receipt {
            batch: row.get(0)?,
            file: row.get(1)?,
            sha256: row.get(2)?,
            counts: Counts {
                accepted: row.get(3)?,
                late: row.get(4)?,
                duplicate: row.get(5)?,
                future: row.get(6)?,
                expired: row.get(7)?,
            },
            watermark_ms: row.get(8)?,
            windows_closed: row.get(9)?,
        })
    })?;
    rows.collect()
}

fn refusals(store: &Connection) -> rusqlite::Result<Vec<(String, Option<String>, String)>> {
    let mut statement =
        store.prepare("SELECT file, sha256, code FROM refusals ORDER BY refusal")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    rows.collect()
}

fn source_of(name: &str) -> &str {
    name.split_once('/').map_or("default", |(source, _)| source)
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn now_ms() -> i64 {
    windowflow::model::clock::Clock::System.now_ms()
}
