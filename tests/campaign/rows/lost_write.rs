//! One write of a real run that never reaches the disk, although it is said to have: of the log, or
//! of the store when the log is copied into it.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::populated::{copy_all, verify};
use crate::row::{Scale, Tried, Unable};
use crate::world::{World, has_tool};

/// How many files a run takes in.
const FILES: u64 = 10;

/// How many of the writes are tried with `cargo test`.
const QUICK_WRITES: u64 = 24;

/// What comes after the run in which a write was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The log was copied into the store, by the process that took it for whole.
    Closed,
    /// The power is cut: whoever opens the store next reads the log from the disk.
    Cut,
}

/// The writes of one run, and what comes of it.
pub struct LostWrites {
    /// How many bytes each of them writes, in their order.
    bytes: Vec<u64>,
    /// Which of them are tried: every so manieth.
    stride: u64,
    /// What the report says when none is lost.
    right: Value,
}

/// A run over the same files as every other.
fn world() -> World {
    let world = World::with_store(1000, 500);
    for file in 0..FILES {
        let event = |n: u64| {
            // one in a while comes too late, and some come again
            let behind_ms = if n == 13 { 3000 } else { n % 5 * 90 };
            let (of, n) = if n == 17 && file > 0 { (file - 1, 3) } else { (file, n) };
            format!(
                "{{\"id\":\"{of}-{n}\",\"key\":\"key-{}\",\"timestamp_ms\":{},\"value\":{}}}\n",
                n % 4,
                (5000 + of * 1000 + n * 40).saturating_sub(behind_ms * u64::from(n != 3)),
                n * 7 + of
            )
        };
        let text: String = (0..25).map(event).collect();
        world.drop_in(format!("{file:02}.ndjson"), text);
    }
    world
}

/// Runs the daemon once; `inject` says what becomes of which write.
fn run(world: &World, trace: &Path, inject: Option<&str>) -> Output {
    let inner = world.command(&["run", "--once"]);
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=pwrite64", "-o"]).arg(trace);
    if let Some(inject) = inject {
        command.args(["-e", &format!("inject={inject}")]);
    }
    let db = world.db();
    command.arg("-P").arg(&db).arg("-P").arg(db.with_extension("db-wal"));
    command.arg(inner.get_program()).args(inner.get_args()).current_dir(world.root());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.output().unwrap()
}

/// The report, without what the clock says and what a file that is taken again changes.
fn told(world: &World, spool: &Path) -> Result<Value, String> {
    let db = spool.join("windowflow.db");
    let ran =
        world.run(&[OsStr::new("--db"), db.as_os_str(), "report".as_ref(), "--json".as_ref()]);
    if ran.code != Some(0) {
        return Err(ran.err);
    }
    let report = ran.json();
    let mut told = serde_json::Map::new();
    for member in ["watermark_ms", "max_timestamp_ms", "windows", "settings"] {
        told.insert(member.to_owned(), report[member].clone());
    }
    let late = report["late"].as_array().unwrap();
    let ids = late.iter().map(|row| row["id"].clone()).collect();
    told.insert("late".to_owned(), ids);
    for member in ["accepted", "late", "late_kept", "held"] {
        told.insert(format!("totals.{member}"), report["totals"][member].clone());
    }
    Ok(Value::Object(told))
}

impl LostWrites {
    /// Counts the writes of a run in which none is lost.
    pub fn count(scale: Scale) -> Result<LostWrites, Unable> {
        if !has_tool("strace", "a write that is lost") {
            return Err(Unable("there is no strace".to_owned()));
        }
        let world = world();
        let trace = world.root().join("trace");
        let ran = run(&world, &trace, None);
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let text = fs::read_to_string(trace).unwrap();
        let calls = text.lines().filter(|line| line.contains("pwrite64("));
        let bytes: Vec<u64> =
            calls.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        let is_of = |size: u64| bytes.iter().filter(|bytes| **bytes == size).count();
        assert!(is_of(24) > 20 && is_of(4096) > is_of(24), "no log was written: {bytes:?}");
        let stride = match scale {
            Scale::Smoke => (bytes.len() as u64).div_ceil(QUICK_WRITES),
            Scale::Full | Scale::Soak => 1,
        };
        Ok(LostWrites { bytes, stride, right: told(&world, &world.spool()).unwrap() })
    }

    /// Which write is lost in the attempt of that number, and what comes then; none when all were
    /// tried.
    pub fn write(&self, attempt: u64) -> Option<(usize, Then)> {
        let write = (attempt / 2).checked_mul(self.stride)? as usize;
        let then = if attempt.is_multiple_of(2) { Then::Closed } else { Then::Cut };
        (write < self.bytes.len()).then_some((write, then))
    }

    /// Loses it, and looks whether that is found if anything differs by it.
    pub fn lose(&self, (write, then): (usize, Then)) -> Result<Tried, String> {
        let world = world();
        // as long as somebody else has it open, the log is not copied into the store
        let other = (then == Then::Cut).then(|| rusqlite::Connection::open(world.db()).unwrap());
        if let Some(other) = &other {
            other.query_row("SELECT 1 FROM store", [], |_| Ok(())).unwrap();
        }
        let inject = format!("pwrite64:retval={}:when={}", self.bytes[write], write + 1);
        let trace = world.root().join("trace");
        let ran = run(&world, &trace, Some(&inject));
        let struck = fs::read_to_string(&trace).unwrap().contains("(INJECTED)");
        let what = format!("write {} of {} bytes, {then:?}", write + 1, self.bytes[write]);
        // what a power cut leaves: the store and its log, and nothing of what was in memory
        let left = tempfile::tempdir().unwrap();
        copy_all(&world.spool(), left.path());
        drop(other);
        let verified = verify(left.path());
        // the daemon itself may have noticed, and left files where they were
        let waits = !world.names("inbox").is_empty();
        let told = told(&world, left.path());
        let is_right = !waits && told.as_ref() == Ok(&self.right);
        let found = match &verified {
            Ok(verified) => verified.checkup.total(),
            Err(_) => 1,
        };
        let told_by_daemon = waits && ran.status.code() != Some(0);
        match (found, is_right) {
            (0, false) if !told_by_daemon => {
                let told = told.unwrap_or_else(Value::String);
                Err(format!("{what} was lost, nothing was found, and yet:\n{told:#}"))
            }
            // what is not where a report looks is damage all the same
            (1.., _) | (_, false) => Ok(Tried::Struck),
            (0, true) if struck => Ok(Tried::Struck),
            (0, true) => Ok(Tried::Missed),
        }
    }
}
