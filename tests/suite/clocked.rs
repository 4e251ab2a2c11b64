//! A world whose daemon and commands believe a time of day of the test's own: libfaketime tells
//! them another one than there is, and another one again while they run.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::world::{Daemon, Ran, World};

/// In milliseconds.
pub const MINUTE_MS: i64 = 60_000;
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
pub const DAY_MS: i64 = 24 * HOUR_MS;

/// A world with a clock of its own.
pub struct Clocked {
    pub world: World,
    preload: PathBuf,
}

/// What tells another time, where it is installed.
///
/// # Errors
/// What is missing.
pub fn preload() -> Result<PathBuf, String> {
    let folders = fs::read_dir("/usr/lib").unwrap().flatten();
    let mut libraries = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let missing = "there is no libfaketimeMT.so.1 (Debian: apt-get install faketime)";
    libraries.find(|library| library.exists()).ok_or_else(|| missing.to_owned())
}

impl Clocked {
    /// That world, with the true time to begin with.
    pub fn of(world: World, preload: PathBuf) -> Clocked {
        let clocked = Clocked { world, preload };
        clocked.set("+0");
        clocked
    }

    /// How far the clock is from what it is in truth, from now on.
    pub fn set(&self, offset: &str) {
        let (to, staged) = (self.world.root().join("offset"), self.world.root().join(".offset"));
        // at once and whole: it is read all the time
        fs::write(&staged, format!("{offset}\n")).unwrap();
        fs::rename(staged, to).unwrap();
    }

    /// Sets it, and waits until the daemon has seen it.
    pub fn step(&self, offset: &str, offset_ms: i64) {
        self.set(offset);
        self.world.eventually(&format!("its clock is set by {offset}"), || {
            let seen_ms =
                self.world.state()["daemon"]["updated_at_ms"].as_i64().unwrap_or_default();
            (seen_ms - now_ms() - offset_ms).abs() < 10 * MINUTE_MS
        });
    }

    fn variables(&self) -> Vec<(String, String)> {
        let offset = self.world.root().join("offset");
        [
            ("LD_PRELOAD", self.preload.to_str().unwrap()),
            ("FAKETIME_TIMESTAMP_FILE", offset.to_str().unwrap()),
            ("FAKETIME_NO_CACHE", "1"),
            // the clock that only ever goes on is not what steps; its name in two versions
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }

    /// A daemon with that configuration, which may not have begun yet.
    pub fn spawn(&self, config: &str) -> Daemon<'_> {
        let set: Vec<_> =
            self.variables().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut wrapper = vec!["env"];
        wrapper.extend(set.iter().map(String::as_str));
        self.world.spawn_under(&wrapper, &["--config", config])
    }

    /// A command that believes it, too.
    pub fn run(&self, args: &[&str]) -> Ran {
        let mut command: Command = self.world.command(args);
        let output = command.envs(self.variables()).output().unwrap();
        Ran {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Waits until that file is done.
    pub fn until_done(&self, name: &str) {
        let is_done = || self.world.spool().join("done").join(name).exists();
        self.world.eventually(&format!("{name} is done"), is_done);
    }
}

/// The true time of day.
pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}
