//! Row 10: the store of an older version is brought up to date, and the process dies on the way or
//! is refused something.
//!
//! The stores are those that the versions before really left behind. A run is recorded first: then
//! one process is killed at each call of it, or that call fails. Whatever comes of that, the next
//! three starts find a store of this version or bring it there by themselves, and say the same.
//!
//! The judge can see: without the transaction around each step 30 of 60 were found amiss, with half
//! the tables of a step or a store that no start could open any more.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::Value;

use crate::dice::Dice;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::strace;
use crate::world::World;

/// It is taken step by step, each whole or not at all.
pub const ROW: Row = Row {
    number: 10,
    fault: "migration interrupted",
    promise: "old or new tables, the next start goes on, nothing changes",
    figures: Figures { smoke: 240, full: u64::MAX, soak: u64::MAX },
    lanes: 2,
    begin,
};

/// The versions of which a store was kept, but for the present one.
const VERSIONS: [i64; 3] = [1, 2, 3];

/// What is done with a call.
const KILL: &str = "signal=KILL";
const ERRORS: [&str; 2] = ["error=EIO", "error=ENOSPC"];

/// The calls that a disk or the kernel may refuse.
const REFUSED: [&str; 11] = [
    "open",
    "openat",
    "pwrite64",
    "pread64",
    "write",
    "fsync",
    "fdatasync",
    "ftruncate",
    "fcntl",
    "mmap",
    "unlink",
];

struct Migration {
    old: Vec<Old>,
    faults: Vec<Fault>,
    /// All of them, one after the other; otherwise some, by chance.
    is_all: bool,
}

/// A store of an older version, and what it must say.
struct Old {
    version: i64,
    latest: i64,
    /// Its tables before and after.
    tables: [Vec<String>; 2],
    report: Value,
}

struct Fault {
    old: usize,
    call: String,
    /// Which of these calls, from 1.
    number: usize,
    what: &'static str,
}

fn begin(scale: &Scale) -> Result<Box<dyn Trial>, Unable> {
    strace::is_here()?;
    let mut migration =
        Migration { old: Vec::new(), faults: Vec::new(), is_all: *scale != Scale::Smoke };
    for (at, version) in VERSIONS.into_iter().enumerate() {
        let (old, calls) = whole(version);
        for (call, number) in calls {
            let errors = ERRORS.into_iter().filter(|_| REFUSED.contains(&call.as_str()));
            for what in [KILL].into_iter().chain(errors) {
                let call = call.clone();
                migration.faults.push(Fault { old: at, call, number, what });
            }
        }
        migration.old.push(old);
    }
    Ok(Box::new(migration))
}

impl Trial for Migration {
    fn attempts(&self) -> Option<u64> {
        self.is_all.then_some(self.faults.len() as u64)
    }

    fn attempt(&self, n: u64, mut dice: Dice) -> Result<Tried, String> {
        let count = self.faults.len() as u64;
        let at = if self.is_all { n } else { dice.below(count) };
        let fault = &self.faults[at as usize];
        let Fault { call, number, what, .. } = fault;
        let old = &self.old[fault.old];
        old.strike(fault)
            .map_err(|text| format!("version {}, {what} at {call} {number}: {text}", old.version))
    }
}

/// Migrates without any fault: what it comes to, and each call from the first look at the store on.
fn whole(version: i64) -> (Old, Vec<(String, usize)>) {
    let world = world_of(version);
    let before = tables(&world.db());
    let ran = strace::run(&world, &["-o", "trace"], &["prune", "--json"]).unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let trace = fs::read_to_string(world.root().join("trace")).unwrap();
    let mut counts = std::collections::HashMap::new();
    let mut calls = Vec::new();
    let mut has_begun = false;
    for line in trace.lines() {
        let Some((_, rest)) = line.split_once(' ') else { continue };
        let Some((call, args)) = rest.trim_start().split_once('(') else { continue };
        has_begun |= call.starts_with("open") && args.contains("windowflow.db");
        let count = counts.entry(call).or_insert(0);
        *count += 1;
        // what ends the process is not refused, and a kill there comes too late
        if has_begun && call != "exit_group" {
            calls.push((call.to_owned(), *count));
        }
    }
    let report = said(&world).unwrap();
    let connection = Connection::open(world.db()).unwrap();
    let latest = version_of(&connection).unwrap();
    let old = Old { version, latest, tables: [before, tables(&world.db())], report };
    (old, calls)
}

/// A world with a store that this version left behind.
fn world_of(version: i64) -> World {
    let world = World::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fs::copy(fixtures.join(format!("store-v{version}.db")), world.db()).unwrap();
    world
}

fn version_of(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn tables(db: &Path) -> Vec<String> {
    let connection = Connection::open(db).unwrap();
    let sql = "SELECT coalesce(sql, name) FROM sqlite_schema ORDER BY name";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// The report, without the time at which it was made. First a writer brings the store up to date,
/// unless it is.
fn said(world: &World) -> Result<Value, String> {
    let ran = world.run(&["prune"]);
    if ran.code != Some(0) {
        return Err(format!("a start ended with {:?}: {}", ran.code, ran.err));
    }
    let ran = world.run(&["report", "--json"]);
    if ran.code != Some(0) {
        return Err(format!("a start ended with {:?}: {}", ran.code, ran.err));
    }
    let mut report = ran.json();
    report["generated_at_ms"] = Value::Null;
    Ok(report)
}

impl Old {
    fn strike(&self, fault: &Fault) -> Result<Tried, String> {
        let world = world_of(self.version);
        let Fault { call, number, what, .. } = fault;
        let trace = format!("trace={call}");
        let inject = format!("inject={call}:{what}:when={number}");
        let strace = ["-qq", "-o", "trace", "-e", &trace, "-e", &inject];
        let ran = strace::run(&world, &strace, &["prune", "--json"])?;
        let told = String::from_utf8_lossy(&ran.stderr);
        let is_killed = ran.status.signal() == Some(libc::SIGKILL);
        if !is_killed && (told.contains("panicked") || ran.status.signal().is_some()) {
            return Err(format!("it ended with {}: {told}", ran.status));
        }
        let trace = fs::read_to_string(world.root().join("trace")).unwrap_or_default();
        self.look(&world)?;
        for start in 1..=3 {
            let report = said(&world).map_err(|text| format!("start {start}: {text}"))?;
            if report != self.report {
                return Err(format!("start {start} says {report}, not {}", self.report));
            }
        }
        goes_on(&world)?;
        Ok(if is_killed || trace.contains("INJECTED") { Tried::Struck } else { Tried::Missed })
    }

    /// Looks at a copy of what lies there, so that the next start finds it untouched.
    fn look(&self, world: &World) -> Result<(), String> {
        let copy = world.root().join("copy.db");
        let log = |db: &Path| PathBuf::from(format!("{}-wal", db.display()));
        let copied = fs::copy(world.db(), &copy);
        copied.map_err(|error| format!("the store is gone: {error}"))?;
        // there need not be one
        let _ = fs::copy(log(&world.db()), log(&copy));
        let connection = Connection::open(&copy).map_err(|error| error.to_string())?;
        check_integrity(&connection)?;
        let version = version_of(&connection).map_err(|error| error.to_string())?;
        let expected = match version {
            version if version == self.version => &self.tables[0],
            version if version == self.latest => &self.tables[1],
            version if version > self.version && version < self.latest => return Ok(()),
            other => return Err(format!("it has become version {other}")),
        };
        match tables(&copy) == *expected {
            true => Ok(()),
            false => Err(format!("version {version} with other tables")),
        }
    }
}

fn check_integrity(connection: &Connection) -> Result<(), String> {
    let found = connection.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
    match found {
        Ok(text) if text == "ok" => Ok(()),
        other => Err(format!("the store is damaged: {other:?}")),
    }
}

/// Takes in two events that came before and a new one.
fn goes_on(world: &World) -> Result<(), String> {
    let events = concat!(
        r#"{"id": "later-2", "key": "checkout", "timestamp_ms": 9300, "value": 6}"#,
        "\n",
        r#"{"id": "request-1", "key": "checkout", "timestamp_ms": 100, "value": 12}"#,
        "\n",
        r#"{"id": "next-1", "key": "checkout", "timestamp_ms": 9400, "value": 3}"#,
    );
    let ran = world.run_with_input(&["ingest", "--json", "-"], events.as_bytes());
    if ran.code != Some(0) {
        return Err(format!("it takes nothing in: {:?}: {}", ran.code, ran.err));
    }
    let told = ran.json();
    match (told["duplicate"].as_u64(), told["accepted"].as_u64()) {
        (Some(2), Some(1)) => check_integrity(&Connection::open(world.db()).unwrap()),
        _ => Err(format!("it has forgotten what came before: {told}")),
    }
}
