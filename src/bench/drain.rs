//! One timed run of the daemon, `windowflow run --once`, in a process of its own: how long it took
//! and what it used, from its start until it has ended.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use serde::Serialize;

use super::model::{self, ModelState};
use super::workload::{LATENESS_MS, WINDOW_MS};
use super::{BenchError, at};
use crate::config::DB_FILE_NAME;
use crate::engine::settings::Settings;
use crate::spool::Spool;
use crate::store::sqlite::{Options, SqliteStore};

/// How often the memory of the running process is looked at: at first often, since it may be a
/// short one.
const FIRST_LOOKS: Duration = Duration::from_millis(1);
const LOOKS: Duration = Duration::from_millis(10);

/// What a timed part took.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Usage {
    /// From the start of the process to its end.
    pub seconds: f64,
    /// Of all its threads, in the program and in the kernel.
    pub cpu_seconds: f64,
    /// The most that was resident.
    pub peak_memory_bytes: u64,
    /// What it caused to be written to the disk (`write_bytes` of /proc/self/io).
    pub disk_write_bytes: u64,
    /// What it handed to the kernel to write (`wchar` of /proc/self/io).
    pub write_call_bytes: u64,
}

/// What this process and its children that have ended have written. The account of a process that
/// has ended is readable by root only, but the kernel adds it to that of its parent, which waited
/// for it.
#[derive(Clone, Copy, Debug)]
struct Written {
    disk: u64,
    calls: u64,
}

impl Written {
    fn so_far() -> Result<Written, BenchError> {
        let path = Path::new("/proc/self/io");
        let io = fs::read_to_string(path).map_err(|error| at(path, &error))?;
        let number = |label| number_after(&io, label).unwrap_or(0);
        Ok(Written { disk: number("\nwrite_bytes:"), calls: number("wchar:") })
    }
}

/// A spool with a store, made afresh.
#[derive(Debug)]
pub(super) struct Bed {
    spool: PathBuf,
    db: PathBuf,
}

impl Bed {
    /// Makes it in a folder that is not there yet.
    pub(super) fn make(folder: &Path) -> Result<Bed, BenchError> {
        let bed = Bed { spool: folder.to_owned(), db: folder.join(DB_FILE_NAME) };
        fs::create_dir_all(bed.inbox()).map_err(|error| at(folder, &error))?;
        let settings = Settings::new(WINDOW_MS, LATENESS_MS)
            .map_err(|error| BenchError::Failed(error.to_string()))?;
        SqliteStore::create(&bed.db, settings, Options::default())?;
        Ok(bed)
    }

    fn inbox(&self) -> PathBuf {
        Spool::at(&self.spool).inbox().to_owned()
    }

    /// Links files into the inbox, under a name that begins with that word and keeps their order.
    pub(super) fn drop_in(&self, files: &[PathBuf], word: &str) -> Result<(), BenchError> {
        let inbox = self.inbox();
        for file in files {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let to = inbox.join(format!("{word}-{name}"));
            fs::hard_link(file, &to).map_err(|error| at(&to, &error))?;
        }
        settle(&inbox)
    }

    /// Lets the daemon drain the inbox.
    pub(super) fn drain(
        &self,
        go_on: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Usage, BenchError> {
        let failed =
            |error: std::io::Error| BenchError::Failed(format!("cannot run itself: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let log = self.spool.join("bench.log");
        let said = File::create(&log).map_err(|error| at(&log, &error))?;
        let mut command = Command::new(program);
        command.args(["run", "--once", "--spool"]).arg(&self.spool).arg("--db").arg(&self.db);
        // nothing of the surroundings may change what is measured
        for name in ["WINDOWFLOW_DB", "WINDOWFLOW_SPOOL", "RUST_LOG", "NOTIFY_SOCKET"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let before = Written::so_far()?;
        let begun = Instant::now();
        let child = command.spawn().map_err(failed)?;
        let (usage, status) = watched(child, begun, go_on)?;
        let written = Written::so_far()?;
        let usage = Usage {
            disk_write_bytes: written.disk.saturating_sub(before.disk),
            write_call_bytes: written.calls.saturating_sub(before.calls),
            ..usage
        };
        match status.success() {
            true => Ok(usage),
            false => {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let last: Vec<&str> = said.lines().rev().take(3).collect();
                let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
                Err(BenchError::Failed(format!("the daemon ended with {status}; it said:\n{last}")))
            }
        }
    }

    /// Removes what was done, so that room on the disk is not what ends a long run.
    pub(super) fn clear_done(&self) -> Result<(), BenchError> {
        let done = Spool::at(&self.spool).done().to_owned();
        fs::remove_dir_all(&done).map_err(|error| at(&done, &error))
    }

    /// Compares the store with what it must hold.
    pub(super) fn check(&self, expected: &ModelState, when: &str) -> Result<(), BenchError> {
        let snapshot = SqliteStore::snapshot(&self.db, Options::default())?;
        let differences = model::found(&snapshot)?.differences(expected);
        match differences.is_empty() {
            true => Ok(()),
            false => Err(BenchError::Differs { when: when.to_owned(), differences }),
        }
    }

    /// What the store takes on the disk, with what is left of its log: the daemon writes the one
    /// into the other when it ends. What its readers share in memory does not count.
    pub(super) fn store_bytes(&self) -> Result<u64, BenchError> {
        let store = fs::metadata(&self.db).map_err(|error| at(&self.db, &error))?.len();
        let log = self.spool.join(format!("{DB_FILE_NAME}-wal"));
        Ok(store + fs::metadata(log).map_or(0, |log| log.len()))
    }
}

/// Lets the file system of a folder write out all that waits: what is not timed must not be paid for
/// by what is.
pub(super) fn settle(folder: &Path) -> Result<(), BenchError> {
    let opened = File::open(folder).map_err(|error| at(folder, &error))?;
    rustix::fs::syncfs(&opened).map_err(|error| at(folder, &error.into()))
}

/// Waits for the process, looking at its memory meanwhile; what it wrote is not known here. It is
/// asked to stop when that is asked for here.
fn watched(
    mut child: Child,
    begun: Instant,
    go_on: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<(Usage, ExitStatus), BenchError> {
    let pid = Pid::from_child(&child);
    let (end, ended) = bounded(1);
    // leaves it as it is when it has ended, so that its account can still be read
    let waiter = thread::spawn(move || {
        let over = rustix::process::waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        );
        // the receiver outlives this thread
        let _ = end.send(over.map(|_| begun.elapsed()));
    });
    let proc = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let mut peak_memory_bytes = 0;
    let mut stopped = false;
    let took = loop {
        // an ended process has no memory, and the line is missing
        let status = fs::read_to_string(proc.join("status")).unwrap_or_default();
        let peak = number_after(&status, "VmHWM:").unwrap_or(0) * 1024;
        peak_memory_bytes = peak.max(peak_memory_bytes);
        match ended.recv_timeout((begun.elapsed() / 50).clamp(FIRST_LOOKS, LOOKS)) {
            Ok(took) => break took,
            Err(RecvTimeoutError::Disconnected) => break Err(rustix::io::Errno::CHILD),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if !stopped && go_on().is_break() {
            stopped = true;
            // that it has ended just now is as good
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
    };
    let _ = waiter.join();
    let failed = |error: std::io::Error| BenchError::Failed(format!("cannot wait for it: {error}"));
    let took = took.map_err(|error| failed(error.into()))?;
    let path = proc.join("stat");
    let stat = fs::read_to_string(&path).map_err(|error| at(&path, &error));
    let status = child.wait().map_err(failed)?;
    // a terminal tells the daemon at the same moment, and it may have been faster to obey
    if stopped || go_on().is_break() {
        return Err(BenchError::Stopped);
    }
    let usage = Usage {
        seconds: took.as_secs_f64(),
        cpu_seconds: cpu_seconds(&stat?),
        peak_memory_bytes,
        ..Usage::default()
    };
    Ok((usage, status))
}

/// The number behind a label in a text of the kernel's.
pub(super) fn number_after(text: &str, label: &str) -> Option<u64> {
    let rest = text.split_once(label)?.1;
    rest.split_whitespace().next()?.parse().ok()
}

/// User and system time out of /proc/PID/stat. The name in brackets may hold anything.
fn cpu_seconds(stat: &str) -> f64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::super::workload::{Generator, Ids, Workload};
    use super::*;

    #[test]
    fn a_store_that_is_not_as_expected_is_found_out() {
        let folder = tempfile::tempdir().unwrap();
        let bed = Bed::make(&folder.path().join("spool")).unwrap();
        let mut generator = Generator::new(Workload { seed: 1, keys: 2, ids: Ids::Random });
        bed.check(&generator.state(), "nothing").unwrap();
        generator.write_file(&folder.path().join("file"), 1).unwrap();
        let error = bed.check(&generator.state(), "the first file").unwrap_err().to_string();
        let expected = "wrong after the first file, so that no figure counts: \
                        accepted: expected 1, found 0; ";
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn the_accounts_of_the_kernel_are_read() {
        let io = "rchar: 5\nwchar: 71\nsyscr: 1\nread_bytes: 3\nwrite_bytes: 4096\n\
                  cancelled_write_bytes: 9\n";
        assert_eq!(number_after(io, "wchar:"), Some(71));
        assert_eq!(number_after(io, "\nwrite_bytes:"), Some(4096));
        assert_eq!(number_after("VmHWM:\t    1234 kB\n", "VmHWM:"), Some(1234));
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let stat = "7 (a b) c) Z 1 1 1 0 -1 4227084 338 0 1 0 150 50 0 0 20 0";
        assert_eq!(cpu_seconds(stat), 200.0 / ticks);
    }
}
