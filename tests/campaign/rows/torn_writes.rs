//! Row 6: the power is cut while sectors are on their way: torn, reordered, lost.
//!
//! Nothing of the program is replaced: `strace` records what real runs of it ask the kernel for,
//! and at each moment of that a model of a disk (`disk.rs`) says what may be there when the power
//! comes back. That is laid into a folder, the store is opened, the daemon drains what is left.
//!
//! Where a sync fails, what it was about is there or not for ever, whatever is synced later.
//!
//! The judge can see: in the first attempts the recording is doctored, as if the program had left
//! out one of its syncs or moved files before it, and then something must be found amiss. A daemon
//! that was really built without the sync before the moves (`tests/power/run.sh --prove` says how)
//! was caught in 50 of 700 cuts.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use windowflow::config::Config;
use windowflow::daemon::{self, Job};
use windowflow::store::sqlite::Options;

use crate::deliveries::{
    Dropped, LATENESS_MS, NEVER_LATE_MS, Totals, WINDOW_MS, in_any_order, model, noted, some,
};
use crate::dice::Dice;
use crate::disk::{self, Event};
use crate::outcome::{Judge, Left};
use crate::recording::{Recorder, Recording, Step, is_kept};
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::strace;
use crate::world::World;

/// Files that are durable are never lost, their events are in once or not yet.
pub const ROW: Row = Row {
    number: 6,
    fault: "power cut with torn, reordered, lost sectors",
    promise: "durable means durable: I1 to I4 of every state that it may leave",
    figures: Figures { smoke: 2400, full: 20_000, soak: 1_000_000 },
    lanes: 2,
    begin,
};

/// How the recording is doctored, and what that stands for.
const DOCTORS: [(&str, Doctor); 5] = [
    ("the log is not synced before files are moved", without_log_sync),
    ("files are moved before the log is synced", moves_first),
    ("the store is not synced before its log is removed", without_store_sync),
    ("reasons of refused files are not synced", without_reason_sync),
    ("the folder of the store is not synced", without_folder_sync),
];

/// Among so many cuts of a doctored recording one at least must be seen.
const CUTS_OF_A_DOCTOR: u64 = 2000;

type Doctor = fn(Vec<Step>) -> Vec<Step>;

/// A recording, and what is known of it.
struct Film {
    recording: Recording,
    config: Config,
    /// What was dropped, with the moment at which that was over.
    dropped: Vec<(u64, Dropped)>,
    /// When a run had ended, and how many files had been dropped by then.
    ended: Vec<(u64, usize)>,
    /// How far the watermark stays behind.
    lateness_ms: i64,
    /// What it all comes to, where the files alone do not say it.
    expected: Option<Totals>,
    /// There was no store before.
    makes_store: bool,
}

struct Films {
    films: Result<Vec<Film>, String>,
    /// Each moment of each of them.
    moments: Vec<(usize, usize)>,
}

fn begin(scale: &Scale) -> Result<Box<dyn Trial>, Unable> {
    strace::is_here()?;
    let films = films(*scale);
    let mut moments = Vec::new();
    for (film, it) in films.iter().flatten().enumerate() {
        let steps = it.recording.steps.iter().enumerate();
        let lasting = steps.filter(|(_, step)| is_kept(&step.name));
        moments.extend(lasting.map(|(at, _)| (film, at)));
    }
    Ok(Box::new(Films { films, moments }))
}

impl Trial for Films {
    fn attempt(&self, n: u64, mut dice: Dice) -> Result<Tried, String> {
        let films = self.films.as_ref().map_err(String::clone)?;
        let Some(n) = n.checked_sub(DOCTORS.len() as u64) else {
            return prove(&films[0], DOCTORS[n as usize], &mut dice);
        };
        let (film, at) = self.moments[(n % self.moments.len() as u64) as usize];
        films[film].cut(&films[film].recording.steps, at, &mut dice)
    }
}

fn films(scale: Scale) -> Result<Vec<Film>, String> {
    // so slow that the second run takes several groups
    let slow = ["-e", "inject=pwrite64:delay_enter=8000"];
    let mut films = vec![from_nothing(&[], &slow, LATENESS_MS)?, old_store()?];
    // then a sync fails in the first run: those of the log, or any. A file that is put off for it
    // is taken behind others, so the order must not matter
    for (call, number, name) in syncs_of_first_run(&films[0]) {
        if scale == Scale::Soak || name.ends_with("-wal") {
            let inject = format!("inject={call}:error=EIO:when={number}");
            films.push(from_nothing(&["-e", &inject], &[], NEVER_LATE_MS)?);
        }
    }
    Ok(films)
}

/// The syncs of the first run, with what they are of. strace counts a call by itself for each
/// thread.
fn syncs_of_first_run(film: &Film) -> Vec<(String, usize, String)> {
    let mut counts = HashMap::new();
    let mut syncs = Vec::new();
    for sync in film.recording.syncs.iter().filter(|sync| sync.moment <= film.ended[0].0) {
        let count = counts.entry((&sync.thread, &sync.call)).or_insert(0);
        *count += 1;
        syncs.push((sync.call.clone(), *count, sync.name.clone()));
    }
    syncs
}

/// A first run without a store, and a second one.
fn from_nothing(first: &[&str], second: &[&str], lateness_ms: i64) -> Result<Film, String> {
    let world = World::new();
    let mut take = Take::new(&world, Some(lateness_ms))?;
    // the same files whatever the seed: it decides where the power is cut
    let dice = |wave| Dice::of_attempt(1, 6, wave);
    let (early, late) = match lateness_ms {
        NEVER_LATE_MS => {
            let mut early = in_any_order(20, 40, &mut dice(0));
            let late = early.split_off(12);
            (early, late)
        }
        _ => (some(0, 12, &mut dice(0)), some(20, 8, &mut dice(1))),
    };
    take.drop_in(early);
    take.run(first, &[0, 1, 65, 75])?;
    take.drop_in(late);
    take.run(second, &[65])?;
    let film = take.end()?;
    let found = Totals::of(&world.db())?.unwrap_or_default();
    let noted = noted(&world.db())?;
    let expected = model(lateness_ms, film.dropped.iter().map(|(_, file)| file), &noted);
    match found.differs(&expected) {
        Some(text) => Err(format!("without a cut: {text}")),
        None => Ok(film),
    }
}

/// A store of the first version, which is brought up to date.
fn old_store() -> Result<Film, String> {
    let world = World::new();
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store-v1.db");
    fs::copy(old, world.db()).map_err(|error| error.to_string())?;
    let mut take = Take::new(&world, None)?;
    let mut files = some(0, 5, &mut Dice::of_attempt(1, 6, 2));
    files.iter_mut().for_each(|file| file.is_synced = true);
    take.drop_in(files);
    take.run(&[], &[65])?;
    let mut film = take.end()?;
    film.expected = Totals::of(&world.db())?;
    Ok(film)
}

/// What makes a film.
struct Take<'w> {
    recorder: Recorder<'w>,
    config: Config,
    dropped: Vec<(u64, Dropped)>,
    ended: Vec<(u64, usize)>,
}

impl<'w> Take<'w> {
    /// With how far the watermark stays behind, where the run is to make the store.
    fn new(world: &'w World, lateness_ms: Option<i64>) -> Result<Take<'w>, String> {
        let mut text = "[inbox]\nsettle_ms = 0\n[daemon]\nlog = \"error\"\n".to_owned();
        if let Some(lateness_ms) = lateness_ms {
            text += &format!("[window]\nwindow_ms = {WINDOW_MS}\nlateness_ms = {lateness_ms}\n");
        }
        let path = world.root().join("windowflow.toml");
        fs::write(&path, text).map_err(|error| error.to_string())?;
        let config = Config::load(&path).map_err(|error| error.to_string())?;
        let (dropped, ended) = (Vec::new(), Vec::new());
        Ok(Take { recorder: Recorder::new(world), config, dropped, ended })
    }

    fn drop_in(&mut self, files: Vec<Dropped>) {
        for file in files {
            self.recorder.drop_in(&file.name, &file.bytes, file.is_synced);
            self.dropped.push((self.recorder.moment(), file));
        }
    }

    fn run(&mut self, inject: &[&str], codes: &[i32]) -> Result<(), String> {
        let args = ["run", "--config", "windowflow.toml", "--once"];
        let code = self.recorder.run(&args, inject, codes)?;
        // what ended otherwise has promised nothing
        if matches!(code, 0 | 65) {
            self.ended.push((self.recorder.moment(), self.dropped.len()));
        }
        Ok(())
    }

    fn end(self) -> Result<Film, String> {
        let Take { recorder, config, dropped, ended } = self;
        let (recording, makes_store) = (recorder.end()?, config.window.is_some());
        let lateness_ms = config.window.map_or(LATENESS_MS, |window| window.lateness_ms());
        let expected = None;
        Ok(Film { recording, config, dropped, ended, lateness_ms, expected, makes_store })
    }
}

/// Cuts the power in a doctored recording until that is seen.
fn prove(film: &Film, (what, doctor): (&str, Doctor), dice: &mut Dice) -> Result<Tried, String> {
    let doctored = doctor(film.recording.steps.clone());
    // where it can show: while files are moved
    let is_move = |step: &Step| matches!(step.event, Event::Move { .. } | Event::Sync { .. });
    let moves: Vec<usize> = (0..doctored.len()).filter(|at| is_move(&doctored[*at])).collect();
    for _ in 0..CUTS_OF_A_DOCTOR {
        let at = moves[dice.below(moves.len() as u64) as usize];
        if film.cut(&doctored, at, dice).is_err() {
            return Ok(Tried::Struck);
        }
    }
    Err(format!("the judge is blind: in {CUTS_OF_A_DOCTOR} cuts it did not see that {what}"))
}

impl Film {
    /// Cuts the power after that step, looks at what is left, and goes on from there.
    fn cut(&self, steps: &[Step], at: usize, dice: &mut Dice) -> Result<Tried, String> {
        let mut disk = self.recording.before.clone();
        let mut now = 0;
        for step in &steps[..=at] {
            disk.apply(&step.event, step.span);
            now = now.max(step.span.ended);
        }
        let told = |error: std::io::Error| format!("in the test: {error}");
        let folder = scratch().map_err(told)?;
        lay(&disk.cut(dice), folder.path()).map_err(told)?;
        match self.judge(folder.path(), now) {
            Ok(()) if disk.is_uncertain() => Ok(Tried::Struck),
            Ok(()) => Ok(Tried::Missed),
            Err(text) => Err(format!("cut after step {at}, {}: {text}", steps[at])),
        }
    }

    fn judge(&self, spool: &Path, now: u64) -> Result<(), String> {
        let ended = self.ended.iter().rfind(|(moment, _)| *moment <= now);
        let ended = ended.map_or(0, |(_, count)| *count);
        let files: Vec<Left> = (self.dropped.iter().enumerate())
            .map(|(at, (moment, file))| Left {
                file,
                is_certain: file.is_synced && *moment <= now,
                is_doubtful: !file.is_synced && self.failed_to_sync(&file.name),
                is_promised: at < ended,
            })
            .collect();
        let judge = Judge { spool, files: &files, has_store: !self.makes_store || ended > 0 };
        judge.look(false).map_err(|text| format!("at once: {text}"))?;
        self.drain(spool)?;
        let totals = judge.look(true).map_err(|text| format!("at the end: {text}"))?;
        let totals = totals.unwrap_or_default();
        let counted = totals.by_key();
        let in_order = files.iter().map(|left| left.file);
        let expected = match &self.expected {
            // what comes in must be in by then; what was never dropped cannot be
            Some(expected) if now >= self.dropped[self.dropped.len() - 1].0 => expected.clone(),
            Some(_) => return Ok(()),
            None => {
                let is_in = |file: &&Dropped| counted.contains_key(file.name.as_str());
                let db = spool.join("windowflow.db");
                let noted = if db.exists() { noted(&db)? } else { Vec::new() };
                model(self.lateness_ms, in_order.filter(is_in), &noted)
            }
        };
        totals.differs(&expected).map_or(Ok(()), Err)
    }

    fn failed_to_sync(&self, name: &str) -> bool {
        let is_it = |step: &Step| matches!(step.event, Event::FailedSync { .. });
        let name = name.rsplit('/').next().unwrap_or(name);
        self.recording.steps.iter().any(|step| is_it(step) && step.name == name)
    }

    /// The daemon itself, within this process, until the inbox is empty.
    fn drain(&self, spool: &Path) -> Result<(), String> {
        // nobody asks it for anything
        let (_open, asked) = crossbeam_channel::bounded(1);
        let job = Job {
            spool: spool.to_owned(),
            db: spool.join("windowflow.db"),
            options: Options::default(),
            config: self.config.clone(),
            config_file: None,
            log_is_fixed: true,
            once: true,
        };
        match daemon::run(job, &asked) {
            Ok(_) => Ok(()),
            Err(stopped) => Err(format!("the next run ended: {}", stopped.text)),
        }
    }
}

/// A folder in memory, where there is one.
fn scratch() -> std::io::Result<tempfile::TempDir> {
    let folder = Some(Path::new("/dev/shm")).filter(|folder| folder.is_dir());
    tempfile::tempdir_in(folder.map_or_else(std::env::temp_dir, Path::to_owned))
}

fn lay(left: &disk::Left, to: &Path) -> std::io::Result<()> {
    let path = |path: &[u8]| to.join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path)));
    left.folders.iter().try_for_each(|folder| fs::create_dir(path(folder)))?;
    let mut files = left.files.iter().filter(|(name, _)| is_kept(&String::from_utf8_lossy(name)));
    files.try_for_each(|(name, bytes)| fs::write(path(name), bytes))
}

/// The recording without the syncs of what `is_it` says, by name.
fn without(steps: Vec<Step>, is_it: impl Fn(&str) -> bool) -> Vec<Step> {
    let is_gone = |step: &Step| matches!(step.event, Event::Sync { .. }) && is_it(&step.name);
    steps.into_iter().filter(|step| !is_gone(step)).collect()
}

fn without_log_sync(steps: Vec<Step>) -> Vec<Step> {
    without(steps, |name| name.ends_with("-wal"))
}

fn without_store_sync(steps: Vec<Step>) -> Vec<Step> {
    without(steps, |name| name == "windowflow.db")
}

fn without_reason_sync(steps: Vec<Step>) -> Vec<Step> {
    without(steps, |name| name.starts_with(".windowflow-reason"))
}

fn without_folder_sync(steps: Vec<Step>) -> Vec<Step> {
    without(steps, str::is_empty)
}

/// Puts off each sync of the log until more is written, behind all moves.
fn moves_first(steps: Vec<Step>) -> Vec<Step> {
    let mut put_off = None;
    let mut doctored = Vec::new();
    for step in steps {
        let of_log = step.name.ends_with("-wal");
        let of_store = of_log || step.name == "windowflow.db";
        match step.event {
            Event::Sync { .. } if of_log => {
                doctored.extend(put_off.replace(step));
                continue;
            }
            Event::Write { .. } if of_store => doctored.extend(put_off.take()),
            _ => {}
        }
        doctored.push(step);
    }
    doctored
}
