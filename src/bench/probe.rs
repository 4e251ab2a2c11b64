//! What a store costs that is large in one dimension, against one that is small: a batch, a lone
//! event and every command that reads, each through the real program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::dimension::{Dimension, Make, event, put, waiting};
use super::drain::number_after;
use super::{BenchError, Watch, at, going_on};
use crate::config::DB_FILE_NAME;
use crate::spool::Spool;

/// How often a file is timed; the median counts.
const FILES: usize = 5;

/// A command that takes longer is ended, and says so.
const LONGEST: Duration = Duration::from_secs(60);

/// For how long a file, or a daemon, is waited for.
const PATIENCE: Duration = Duration::from_secs(600);

/// How often it is looked at what is waited for.
const LOOKS: Duration = Duration::from_micros(200);

/// What stands for the spread of the machine: smaller differences of time are none.
const NOISE_SECONDS: f64 = 0.02;

/// One dimension: what was measured at each size.
#[derive(Clone, Debug, Serialize)]
pub struct Dimensional {
    /// Its name.
    pub dimension: &'static str,
    /// The sizes, smallest first.
    pub sizes: Vec<u64>,
    /// How long each took to make, in seconds: the files, and the daemon that takes them.
    pub made_seconds: Vec<f64>,
    /// The store, with its log, at each size.
    pub store_bytes: Vec<u64>,
    /// Reading all files of the spool once, at each size, in seconds.
    pub read_seconds: Vec<f64>,
    /// What was measured.
    pub rows: Vec<Probed>,
}

/// One thing that was measured, at each size.
#[derive(Clone, Debug, Serialize)]
pub struct Probed {
    /// `batch` and `lone file` through a running daemon, or the name of a command. Where files
    /// wait: `first in line`, a file that comes later and sorts first, and `the backlog`, all of it.
    pub what: String,
    /// How long it took, in seconds; none where it was ended after a minute.
    pub seconds: Vec<Option<f64>>,
    /// The most memory that the command needed.
    pub peak_memory_bytes: Vec<u64>,
    /// For a file: its time in the largest store over that in the smallest. For a command: what a
    /// row costs up to the largest store, over what it costs up to the middle one, 1 where the
    /// difference is less than the machine's noise; so for the backlog. For what is first in line:
    /// its time in the largest backlog over that in the middle one. None where it was ended.
    pub ratio: Option<f64>,
}

/// Builds and measures one dimension at those sizes.
pub(super) fn run(
    dimension: &Dimension,
    sizes: &[u64],
    folder: &Path,
    watch: &mut Watch<'_>,
) -> Result<Dimensional, BenchError> {
    let mut outcome = Dimensional {
        dimension: dimension.name,
        sizes: sizes.to_vec(),
        made_seconds: Vec::new(),
        store_bytes: Vec::new(),
        read_seconds: Vec::new(),
        rows: Vec::new(),
    };
    for size in sizes {
        let spool = folder.join(format!("{}-{size}", dimension.name));
        let begun = Instant::now();
        let probe = Probe::make(dimension, *size, &spool, watch)?;
        outcome.made_seconds.push(begun.elapsed().as_secs_f64());
        let db = |suffix: &str| {
            let path = spool.join(format!("{DB_FILE_NAME}{suffix}"));
            fs::metadata(path).map_or(0, |meta| meta.len())
        };
        outcome.store_bytes.push(db("") + db("-wal"));
        let begun = Instant::now();
        read_all(&spool)?;
        outcome.read_seconds.push(begun.elapsed().as_secs_f64());
        for (number, (what, seconds, peak)) in
            probe.measure(dimension.name, watch)?.into_iter().enumerate()
        {
            if outcome.rows.len() == number {
                let (seconds, peak_memory_bytes) = (Vec::new(), Vec::new());
                outcome.rows.push(Probed { what, seconds, peak_memory_bytes, ratio: None });
            }
            outcome.rows[number].seconds.push(seconds);
            outcome.rows[number].peak_memory_bytes.push(peak);
        }
        fs::remove_dir_all(&spool).map_err(|error| at(&spool, &error))?;
    }
    for row in &mut outcome.rows {
        row.ratio = ratio(row, sizes);
    }
    Ok(outcome)
}

fn ratio(row: &Probed, sizes: &[u64]) -> Option<f64> {
    let seconds: Option<Vec<f64>> = row.seconds.iter().copied().collect();
    let seconds = seconds?;
    let (first, last) = (*seconds.first()?, *seconds.last()?);
    if row.what == BATCH || row.what == LONE {
        return Some(last / first);
    }
    let middle = seconds.len().checked_sub(2)?;
    if row.what == FIRST {
        // in the smallest store nothing waits any more
        return if middle == 0 { None } else { Some(last / seconds[middle]) };
    }
    if last - first < NOISE_SECONDS {
        return Some(1.0);
    }
    // from the smallest on, so that the start of the program has no part in it
    let per_row = |at: usize| {
        let more = (seconds[at] - first).max(NOISE_SECONDS / 2.0);
        more / (sizes[at] - sizes[0]).max(1) as f64
    };
    if middle == 0 { None } else { Some(per_row(seconds.len() - 1) / per_row(middle)) }
}

const BATCH: &str = "batch of 2,500";
const LONE: &str = "lone file";
const FIRST: &str = "first in line";
const BACKLOG: &str = "the backlog";

/// What was measured, its seconds, and the memory at most.
type Row = (String, Option<f64>, u64);

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A spool and its store.
struct Probe {
    spool: PathBuf,
    files: u64,
    // how many files wait in its inbox
    waiting: u64,
}

impl Probe {
    fn make(
        dimension: &Dimension,
        size: u64,
        spool: &Path,
        watch: &mut Watch<'_>,
    ) -> Result<Probe, BenchError> {
        let inbox = Spool::at(spool).inbox().to_owned();
        fs::create_dir_all(&inbox).map_err(|error| at(&inbox, &error))?;
        let mut probe = Probe { spool: spool.to_owned(), files: 0, waiting: 0 };
        let mut init = vec!["init".to_owned()];
        init.extend(dimension.settings(size));
        if probe.ran(&init, watch)?.0.is_none() {
            return Err(BenchError::Failed("init took more than a minute".to_owned()));
        }
        dimension.fill(spool, size, watch)?;
        if let Make::Waiting = dimension.make {
            probe.waiting = size;
            return Ok(probe);
        }
        let mut daemon = probe.daemon()?;
        if let Make::OneName = dimension.make {
            for n in 0..size {
                going_on(watch("one name", n, size))?;
                put(&inbox.join("data.json"), [event(n, "k", n as i64, "")])?;
                daemon.until("data.json is taken", || !inbox.join("data.json").exists())?;
            }
        }
        let is_taken = || {
            let left = fs::read_dir(&inbox).map_or(0, |names| {
                let waits = |name: &std::ffi::OsStr| !name.as_encoded_bytes().starts_with(b".");
                let folder = |path: &Path| path.read_dir().map_or(0, Iterator::count);
                let count = |found: fs::DirEntry| match found.path().is_dir() {
                    true => folder(&found.path()),
                    false => usize::from(waits(&found.file_name())),
                };
                names.flatten().map(count).sum::<usize>()
            });
            // what is looked for is far from free where there are many
            thread::sleep(Duration::from_millis(20));
            left == 0
        };
        daemon.until("the inbox is empty", is_taken)?;
        Ok(probe)
    }

    /// What is measured, with the seconds it took and its memory.
    fn measure(mut self, what: &str, watch: &mut Watch<'_>) -> Result<Vec<Row>, BenchError> {
        let mut rows = if self.waiting == 0 { self.time_files(what, watch)? } else { Vec::new() };
        let sample = self.spool.join("sample.json");
        put(&sample, (0..2_500).map(|n| event(format!("sample-{n}"), "k", n, "")))?;
        let sample = sample.to_string_lossy().into_owned();
        let start = "1767225600000";
        let window = &["explain", "--key", "k", "--window-start-ms", start, "--json"][..];
        for (name, args) in [
            ("report --json", &["report", "--json"][..]),
            ("report", &["report", "--format", "text"]),
            ("status", &["status", "--json"]),
            ("sources", &["sources", "--json"]),
            ("late", &["late", "--json"]),
            ("held", &["held", "--json"]),
            ("explain --id", &["explain", "--id", "id-7", "--json"]),
            ("explain --key", window),
            ("lateness", &["lateness", "--json"]),
            ("check", &["check", &sample]),
            ("failed", &["failed", "--json"]),
            ("verify", &["verify", "--json"]),
        ] {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            let (seconds, peak) = self.ran(&args, watch)?;
            rows.push((name.to_owned(), seconds, peak));
        }
        if self.waiting > 0 {
            rows.extend(self.time_backlog(watch)?);
        }
        Ok(rows)
    }

    /// How long a batch and a lone file take while nothing else is in the inbox.
    fn time_files(&mut self, what: &str, watch: &mut Watch<'_>) -> Result<Vec<Row>, BenchError> {
        let mut rows = Vec::new();
        let mut daemon = self.daemon()?;
        // the first one waits until the daemon is ready
        self.time_file(&mut daemon, 1)?;
        for (name, events) in [(BATCH, 2_500), (LONE, 1)] {
            let mut times = Vec::new();
            for _ in 0..FILES {
                going_on(watch(&format!("{what}: {name}"), 0, 1))?;
                times.push(self.time_file(&mut daemon, events)?);
            }
            rows.push((name.to_owned(), Some(median(times)), daemon.peak_bytes()));
        }
        Ok(rows)
    }

    /// How long files that sort first wait while there is a backlog, and how long a daemon takes
    /// for all of it.
    fn time_backlog(&mut self, watch: &mut Watch<'_>) -> Result<Vec<Row>, BenchError> {
        let last = Spool::at(&self.spool).done().join(waiting(self.waiting - 1));
        let begun = Instant::now();
        let mut daemon = self.daemon()?;
        let mut times = Vec::new();
        while times.is_empty() || (times.len() < FILES && !last.exists()) {
            going_on(watch(FIRST, times.len() as u64, FILES as u64))?;
            times.push(self.time_file(&mut daemon, 1)?);
        }
        daemon.until("the last file of the backlog is taken", || last.exists())?;
        let (seconds, peak) = (begun.elapsed().as_secs_f64(), daemon.peak_bytes());
        let first = (FIRST.to_owned(), Some(median(times)), peak);
        Ok(vec![first, (BACKLOG.to_owned(), Some(seconds), peak)])
    }

    /// How long a file with so many new events takes, from its rename to its place in done/.
    fn time_file(&mut self, daemon: &mut Daemon, events: u64) -> Result<f64, BenchError> {
        self.files += 1;
        let name = format!("probe-{}.ndjson", self.files);
        let staged = self.spool.join(&name);
        let id = |n: u64| format!("probe-{}-{n}", self.files);
        put(&staged, (0..events).map(|n| event(id(n), "k", n as i64 % 1000, "")))?;
        let spool = Spool::at(&self.spool);
        let (to, done) = (spool.inbox().join(&name), spool.done().join(&name));
        let begun = Instant::now();
        fs::rename(&staged, &to).map_err(|error| at(&to, &error))?;
        daemon.until("a file is taken", || done.exists())?;
        Ok(begun.elapsed().as_secs_f64())
    }

    fn command(&self, args: &[String]) -> Result<Command, BenchError> {
        let program = std::env::current_exe()
            .map_err(|error| BenchError::Failed(format!("cannot run itself: {error}")))?;
        let mut command = Command::new(program);
        command.arg("--spool").arg(&self.spool).arg("--db").arg(self.spool.join(DB_FILE_NAME));
        for name in ["WINDOWFLOW_DB", "WINDOWFLOW_SPOOL", "RUST_LOG", "NOTIFY_SOCKET"] {
            command.env_remove(name);
        }
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }

    fn daemon(&self) -> Result<Daemon, BenchError> {
        Daemon::start(self.command(&["run".to_owned()])?)
    }

    /// Runs a command to its end, whatever it answers; its seconds, or none when it was ended after
    /// a minute, and its memory.
    fn ran(
        &self,
        args: &[String],
        watch: &mut Watch<'_>,
    ) -> Result<(Option<f64>, u64), BenchError> {
        let begun = Instant::now();
        let mut child = Daemon::start(self.command(args)?)?;
        let mut peak = 0;
        while !child.has_ended()? {
            peak = child.peak_bytes().max(peak);
            going_on(watch(&args.join(" "), 0, 1))?;
            if begun.elapsed() > LONGEST {
                return Ok((None, peak));
            }
            thread::sleep(LOOKS);
        }
        Ok((Some(begun.elapsed().as_secs_f64()), peak))
    }
}

/// A process that is killed when it goes out of scope.
struct Daemon(Child);

impl Daemon {
    fn start(mut command: Command) -> Result<Daemon, BenchError> {
        let child = command.spawn();
        child.map(Daemon).map_err(|error| BenchError::Failed(format!("cannot run itself: {error}")))
    }

    fn has_ended(&mut self) -> Result<bool, BenchError> {
        let ended = self.0.try_wait();
        let ended =
            ended.map_err(|error| BenchError::Failed(format!("cannot wait for it: {error}")))?;
        Ok(ended.is_some())
    }

    fn peak_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.0.id());
        let status = fs::read_to_string(path).unwrap_or_default();
        number_after(&status, "VmHWM:").unwrap_or(0) * 1024
    }

    /// Waits until that holds, while the process lives.
    fn until(&mut self, what: &str, holds: impl Fn() -> bool) -> Result<(), BenchError> {
        let begun = Instant::now();
        while !holds() {
            if self.has_ended()? {
                return Err(BenchError::Failed(format!("the daemon ended before {what}")));
            }
            if begun.elapsed() > PATIENCE {
                return Err(BenchError::Failed(format!("not within {PATIENCE:?}: {what}")));
            }
            thread::sleep(LOOKS);
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // it may have ended already
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads all files below a folder once.
fn read_all(folder: &Path) -> Result<(), BenchError> {
    for found in fs::read_dir(folder).map_err(|error| at(folder, &error))?.flatten() {
        let path = found.path();
        match found.file_type() {
            Ok(kind) if kind.is_dir() => read_all(&path)?,
            Ok(kind) if kind.is_file() => {
                // what goes away meanwhile need not be read
                if let Ok(mut file) = fs::File::open(&path) {
                    std::io::copy(&mut file, &mut std::io::sink())
                        .map_err(|error| at(&path, &error))?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_tells_linear_from_more() {
        let sizes = [1_000, 100_000, 1_000_000];
        let of = |what: &str, seconds: [f64; 3]| {
            let (what, seconds) = (what.to_owned(), seconds.map(Some).to_vec());
            ratio(&Probed { what, seconds, peak_memory_bytes: Vec::new(), ratio: None }, &sizes)
        };
        assert_eq!(of("report", [0.01, 0.011, 0.012]), Some(1.0), "noise");
        let linear = of("report", [0.01, 0.11, 1.01]).unwrap();
        assert!((0.9..1.1).contains(&linear), "{linear}");
        let square = of("report", [0.01, 0.11, 10.01]).unwrap();
        assert!(square > 9.0, "{square}");
        assert_eq!(of(LONE, [0.001, 0.002, 0.004]), Some(4.0));
    }
}
