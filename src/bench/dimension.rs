//! Stores that are large in one dimension only, and how they are made: the same number of keys,
//! windows, late events, receipts or names, small and large.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;

use super::workload::{Generator, Ids, Workload};
use super::{BenchError, Watch, at, going_on};
use crate::spool::Spool;

/// When the first event of every store happens: 2026-01-01.
const BEGUN_MS: i64 = 1_767_225_600_000;

/// The windows of every store, in milliseconds.
const WINDOW_MS: i64 = 60_000;

/// How many events lie in one file.
const EVENTS_A_FILE: u64 = 2_500;

/// One dimension in which a store can be large.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dimension {
    /// Its name on the command line.
    pub(super) name: &'static str,
    /// How large it is made by default; less than a million where that takes minutes to make.
    pub(super) most: u64,
    /// The settings of its store that are not those of all.
    pub(super) settings: &'static [&'static str],
    pub(super) make: Make,
}

/// How it is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Make {
    /// Of events, in files of 2,500: what stands in a line, by the number of the event and of all.
    Events(fn(u64, u64) -> String),
    /// Of events, one a file, with these names.
    Files(fn(u64) -> String),
    /// Of files that come one after the other under one name.
    OneName,
    /// Of files that are refused.
    Refused,
    /// Of names in the inbox that are left there.
    Ignored,
    /// Of files with one event each that still wait in the inbox while it is measured.
    Waiting,
    /// Of the workload of the benchmark, with its repeats and late events.
    Workload,
}

/// All that can be asked for.
pub(super) const ALL: [Dimension; 15] = [
    events("keys", &[], |n, _| event(n, &format!("k{n}"), 0, "")),
    events("open-windows", &["--lateness-ms", "9999999999999"], |n, _| {
        event(n, &format!("k{}", n % 1000), n as i64 / 1000 * WINDOW_MS, "")
    }),
    events("final-windows", &[], |n, _| event(n, "k", n as i64 * WINDOW_MS, "")),
    events("late", &[], |n, _| match n {
        0 => event(n, "first", 100 * 86_400_000, ""),
        _ => event(n, "k", n as i64 % 1000 * WINDOW_MS, ""),
    }),
    events("held", &[], |n, _| event(n, "k", 60 * 365 * 86_400_000 + n as i64, "")),
    events("revisions", &["--late-policy", "correct"], |n, all| {
        // each window once, the end of time, then each window again
        let half = (all / 2).max(1);
        let window = (n % half) as i64 * WINDOW_MS;
        event(n, "k", if n == half { all as i64 * 2 * WINDOW_MS } else { window }, "")
    }),
    Dimension {
        // `[sources] max` is 10,000
        most: 9_000,
        ..events("sources", &[], |n, _| event(n, "k", 0, &format!(r#","source":"s{n}""#)))
    },
    events("versions", &[], |n, _| event(n, "k", 0, &format!(r#","producer_version":"v{n}""#))),
    events("window-events", &[], |n, _| event(n, "k", n as i64 % 1000, "")),
    // the last tenth is remembered
    events("horizon", &["--dedup-horizon-ms", "HORIZON"], |n, _| event(n, "k", n as i64 * 10, "")),
    Dimension {
        name: "receipts",
        most: 50_000,
        settings: &[],
        make: Make::Files(|n| format!("f{n:09}.json")),
    },
    Dimension { name: "reused-name", most: 3_000, settings: &[], make: Make::OneName },
    Dimension { name: "failed", most: 20_000, settings: &[], make: Make::Refused },
    Dimension { name: "ignored", most: 100_000, settings: &[], make: Make::Ignored },
    Dimension { name: "waiting", most: 100_000, settings: &[], make: Make::Waiting },
];

/// Source folders, with one file each.
pub(super) const FOLDERS: Dimension = Dimension {
    name: "folders",
    most: 5_000,
    settings: &[],
    make: Make::Files(|n| format!("folder-{n}/f.json")),
};

/// The workload of the benchmark: what the commands are measured on.
pub(super) const WORKLOAD: Dimension =
    Dimension { name: "events", most: 10_000_000, settings: &[], make: Make::Workload };

const fn events(
    name: &'static str,
    settings: &'static [&'static str],
    line: fn(u64, u64) -> String,
) -> Dimension {
    Dimension { name, most: 1_000_000, settings, make: Make::Events(line) }
}

/// The name of a file that waits. It sorts behind the files with which the time is taken.
pub(super) fn waiting(n: u64) -> String {
    format!("waiting-{n:09}.json")
}

/// One event, so much after the first.
pub(super) fn event(id: impl std::fmt::Display, key: &str, after_ms: i64, more: &str) -> String {
    let at_ms = BEGUN_MS + after_ms;
    format!(r#"{{"id":"id-{id}","key":"{key}","timestamp_ms":{at_ms},"value":1{more}}}"#)
}

impl Dimension {
    /// What was asked for by that name; all for `all`.
    pub(super) fn named(name: &str) -> Vec<Dimension> {
        let all = ALL.into_iter().chain([FOLDERS]);
        all.filter(|one| name == "all" || one.name == name).collect()
    }

    /// The arguments of `init`, for a store of that size.
    pub(super) fn settings(&self, size: u64) -> Vec<String> {
        let horizon_ms = (size as i64).max(2 * WINDOW_MS);
        let mut all = vec!["--window-ms".to_owned(), WINDOW_MS.to_string()];
        if !self.settings.contains(&"--lateness-ms") {
            all.extend(["--lateness-ms".to_owned(), "0".to_owned()]);
        }
        let more = self.settings.iter().map(|one| match *one {
            "HORIZON" => horizon_ms.to_string(),
            other => other.to_owned(),
        });
        all.extend(more);
        all
    }

    /// Puts what makes a store so large into its inbox. What has one name for all is left to who
    /// runs the daemon.
    pub(super) fn fill(
        &self,
        spool: &Path,
        size: u64,
        watch: &mut Watch<'_>,
    ) -> Result<(), BenchError> {
        let inbox = Spool::at(spool).inbox().to_owned();
        let mut going = |done| going_on(watch(&format!("{}: writing", self.name), done, size));
        match self.make {
            Make::Events(line) => {
                for from in (0..size).step_by(EVENTS_A_FILE as usize) {
                    going(from)?;
                    let to = size.min(from + EVENTS_A_FILE);
                    let path = inbox.join(format!("e{from:012}.ndjson"));
                    put(&path, (from..to).map(|n| line(n, size)))?;
                }
            }
            Make::Workload => {
                let workload = Workload { seed: 1, keys: 1000, ids: Ids::Random };
                let mut generator = Generator::new(workload);
                while generator.events() < size {
                    going(generator.events())?;
                    let path = inbox.join(format!("e{:012}.json", generator.events()));
                    let events = EVENTS_A_FILE.min(size - generator.events());
                    generator.write_file(&path, events).map_err(|error| at(&path, &error))?;
                }
            }
            Make::Files(name) => {
                for n in 0..size {
                    going(n)?;
                    put(&inbox.join(name(n)), [event(n, "k", n as i64, "")])?;
                }
            }
            Make::Refused => {
                for n in 0..size {
                    going(n)?;
                    put(&inbox.join(format!("bad{n:09}.json")), [format!("broken {n}")])?;
                }
            }
            Make::Waiting => {
                for n in 0..size {
                    going(n)?;
                    put(&inbox.join(waiting(n)), [event(n, "k", n as i64, "")])?;
                }
            }
            Make::Ignored => {
                for n in 0..size {
                    going(n)?;
                    put(&inbox.join(format!(".ignored-{n}")), [String::new()])?;
                }
            }
            Make::OneName => {}
        }
        Ok(())
    }
}

/// A file with these lines. It has its name only once it is whole.
pub(super) fn put(path: &Path, lines: impl IntoIterator<Item = String>) -> Result<(), BenchError> {
    let folder = path.parent().unwrap_or(path);
    if !folder.is_dir() {
        fs::create_dir(folder).map_err(|error| at(folder, &error))?;
    }
    let staged = folder.join(".staged.tmp");
    let write = || -> std::io::Result<()> {
        let mut out = BufWriter::new(fs::File::create(&staged)?);
        for line in lines {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        fs::rename(&staged, path)
    };
    write().map_err(|error| at(path, &error))
}
