//! What may be typed, and the help that teaches it.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::model::event::MAX_TIMESTAMP_MS;
use clap::builder::PossibleValuesParser;
use clap::{Args as ClapArgs, Parser, Subcommand};

/// Turns batch files in a folder into exact, replay-safe event-time totals.
///
/// Batch files (JSON array, NDJSON, also gzip or zstd) hold events with an id, a key, a timestamp
/// and an integer value. Each file is taken in whole or not at all; every id counts once.
#[derive(Debug, Parser)]
#[command(
    name = "windowflow",
    version,
    after_help = "Begin with:\n  \
        windowflow --db totals.db init --window-ms 60000 --lateness-ms 5000\n  \
        windowflow --db totals.db ingest events.json\n  \
        windowflow --db totals.db report\n\n\
        or, as a daemon that watches SPOOL/inbox:\n  \
        windowflow run --spool SPOOL\n\n\
        Exit codes: 0 done, 1 unexpected failure, 2 usage, 65 a batch was refused or verify found \
        something, 66 no such file or store, 75 busy or out of room: try again, 78 settings or \
        configuration."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) at: Where,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where things are, and how results are printed.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Where and how")]
pub(crate) struct Where {
    /// The store [default: windowflow.db in the spool]
    #[arg(long, global = true, value_name = "PATH", env = "WINDOWFLOW_DB")]
    pub(crate) db: Option<PathBuf>,
    /// The spool: the folder with inbox/, done/, failed/ and reports/
    #[arg(long, global = true, value_name = "DIR", env = "WINDOWFLOW_SPOOL")]
    pub(crate) spool: Option<PathBuf>,
    /// The spool was typed, and the store was not: a variable names it.
    #[arg(skip)]
    pub(crate) db_by_variable_only: bool,
    /// A configuration file (TOML); what is typed here wins over it
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print results as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make the store, or confirm that it has these settings
    ///
    /// Settings are given once and never change: the same again is fine, others are refused with
    /// both shown, and nothing is ever reset.
    #[command(after_help = "Example: minutes, closed 5 seconds after their end:\n  \
        windowflow --db totals.db init --window-ms 60000 --lateness-ms 5000")]
    Init(Init),
    /// Take in batch files by hand; `-` is standard input
    ///
    /// Each file is one transaction: all of it or nothing. The files stay where they are. What is
    /// read from standard input is first copied, so that a slow sender does not hold the store.
    #[command(after_help = "Examples:\n  \
        windowflow --db totals.db ingest monday.json tuesday.ndjson.gz\n  \
        produce | windowflow --db totals.db ingest --source press-3 -")]
    Ingest(Ingest),
    /// Say what `ingest` would do, on the real state, changing nothing
    ///
    /// Each file is judged by itself, on the store as it is now. While it is, others that want to
    /// write have to wait.
    #[command(after_help = "Example:\n  windowflow --db totals.db check suspicious.json")]
    Check(Check),
    /// Print what is known: windows, sources, late events
    #[command(after_help = "Examples:\n  \
        windowflow --db totals.db report\n  \
        windowflow --db totals.db report --format csv --key 'meter-*' --state final > final.csv")]
    Report(Report),
    /// List the late events that were kept apart, or turn them into corrections
    #[command(after_help = "Examples:\n  \
        windowflow --db totals.db late --key checkout\n  \
        windowflow --db totals.db late --apply --key checkout --reason 'agreed with billing'")]
    Late(Late),
    /// List the events that are held as too far ahead of the clock
    #[command(after_help = "Example:\n  windowflow --db totals.db held")]
    Held,
    /// Judge held events again, by the rules of this moment
    ///
    /// Those that are still too far ahead of the clock stay held.
    #[command(after_help = "Examples:\n  \
        windowflow --db totals.db release --all --reason 'clock of press-3 was set'\n  \
        windowflow --db totals.db release --id press-3/17")]
    Release(Settle),
    /// Drop held events for good; when their ids come again they count as repeats
    #[command(after_help = "Example:\n  \
        windowflow --db totals.db discard --id press-3/17 --reason 'wrong year'")]
    Discard(Settle),
    /// List the sources: how far each has come, and which one holds the watermark back
    #[command(after_help = "Examples:\n  \
        windowflow --db totals.db sources\n  \
        windowflow --db totals.db sources --keys --json\n  \
        windowflow --db totals.db sources --declare press-4 --reason 'starts on Monday'")]
    Sources(Sources),
    /// Say why a number is what it is: of an event, of a window, of the watermark
    ///
    /// Reads the store, and the files in done/ whose hash is still that of their receipt. What is
    /// no longer there is said to be so, never guessed. Exit code 66: no such id or window.
    #[command(after_help = "Examples:\n  \
        windowflow --spool ./spool explain --id press-3/17\n  \
        windowflow --spool ./spool explain --key press-3 --window-start-ms 1767225600000\n  \
        windowflow --spool ./spool explain --watermark")]
    Explain(Explain),
    /// Say how many events would have been late under other lateness settings
    ///
    /// Reads the files in done/ in the order in which they were taken in, each event once, and says
    /// how far behind its own source each one was. Nothing is changed: `lateness_ms` of a store is
    /// fixed, so this is for the next one.
    #[command(after_help = "Examples:\n  \
        windowflow --spool ./spool lateness\n  \
        windowflow --spool ./spool lateness --source press-3 --json")]
    Lateness(Lateness),
    /// Remove what is older than the configuration says, now
    ///
    /// Forgets ids behind the horizon of the store, and what [retention] in the configuration
    /// bounds: windows, late events, receipts, report dumps and files in done/. What a promise
    /// needs is kept whatever is set. The daemon does the same by itself when it is idle.
    #[command(after_help = "Example:\n  \
        windowflow --config /etc/windowflow/windowflow.toml prune")]
    Prune(Prune),
    /// Set the watermark by hand: windows that end by then are final
    ///
    /// For when nothing more will come. It never moves back; who asked is recorded. A step further
    /// ahead of the clock and of the newest event than max_future_ms (a day when that is off) needs
    /// --beyond-clock.
    #[command(after_help = "Example:\n  \
        windowflow --db totals.db advance 1767225600000 --reason 'year closed'")]
    Advance(Advance),
    /// Watch a spool folder: the daemon
    ///
    /// Takes batch files from inbox/, one transaction each, and moves them to done/ or failed/.
    /// SIGUSR1 writes a report into reports/, SIGHUP reads the configuration again, SIGTERM and
    /// SIGINT stop after the current file; a second one stops at once, and loses nothing.
    #[command(after_help = "Examples:\n  \
        windowflow run --spool /var/spool/windowflow --config /etc/windowflow/windowflow.toml\n  \
        windowflow run --spool ./spool --once")]
    Run(Run),
    /// List what lies in failed/, by reason
    #[command(after_help = "Example:\n  windowflow --spool ./spool failed")]
    Failed,
    /// Put failed files back into the inbox
    #[command(after_help = "Examples:\n  \
        windowflow --spool ./spool retry ./spool/failed/monday.json\n  \
        windowflow --spool ./spool retry --all")]
    Retry(Retry),
    /// Say whether the daemon runs, how far behind it is, and what holds the watermark back
    ///
    /// Exit code 0: it runs and is well. 75: it runs, but a fault that may pass is in its way.
    /// 1: it does not run. 66: there is no spool or no store. 78: the store is of another version.
    #[command(after_help = "Example:\n  windowflow --spool ./spool status || echo unwell")]
    Status,
    /// Copy the store to a new file, whole, while the daemon runs
    #[command(after_help = "Example:\n  windowflow --db totals.db backup totals-monday.db")]
    Backup(Backup),
    /// Look whether what the store says is still right
    ///
    /// Looks through the store by itself, compares it with the files in done/ and failed/, and
    /// plays all files again into a store of its own in the temporary folder (TMPDIR). Reads only;
    /// the daemon may run. Exit code 0: nothing was found. 65: something is wrong, and is listed.
    /// What could not be looked at is said, and counts as neither.
    #[command(after_help = "Examples:\n  \
        windowflow --spool ./spool verify\n  \
        windowflow --spool ./spool verify --json\n  \
        windowflow --spool ./spool verify --repair")]
    Verify(Verify),
    /// Measure how fast this machine is, and check every number that comes out
    ///
    /// Writes a workload into a temporary folder, lets the daemon drain it (`run --once`) into a
    /// fresh store, then a second time, and compares all of the store with a model. Exit code 1:
    /// a number was wrong. Your stores and spools are not touched.
    #[command(after_help = "Examples:\n  \
        windowflow bench --baseline\n  \
        windowflow bench --events 10000 --batch-size 1 --dir /var/tmp\n  \
        windowflow bench --preset growth --events 10000000 --output growth.json\n  \
        windowflow bench --dimension all\n\n\
        Presets: small 10,000 events in files of 250, medium 1,000,000 of 2,500, large 10,000,000 \
        of 25,000, growth one store up to 100,000,000.")]
    Bench(Bench),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Init {
    /// Width of a window in milliseconds, at least 1
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) window_ms: i64,
    /// How far the watermark stays behind the greatest timestamp, in milliseconds, at least 0
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) lateness_ms: i64,
    /// An event is late when its window is final, or already when it is older than the watermark
    #[arg(long, value_name = "RULE", default_value = "window",
        value_parser = PossibleValuesParser::new(["window", "event"]))]
    pub(crate) late_rule: String,
    /// Late events are kept in the side output, or only counted, or correct their window
    #[arg(long, value_name = "POLICY", default_value = "aside",
        value_parser = PossibleValuesParser::new(["aside", "drop", "correct"]))]
    pub(crate) late_policy: String,
    /// Events further ahead of the clock than this many milliseconds are held; or off
    #[arg(long, value_name = "N|off", allow_negative_numbers = true,
        default_value = "86400000", value_parser = or_off)]
    pub(crate) max_future_ms: OrOff,
    /// How far behind the watermark ids are remembered, in milliseconds; or off, for ever
    #[arg(long, value_name = "N|off", allow_negative_numbers = true,
        default_value = "off", value_parser = or_off)]
    pub(crate) dedup_horizon_ms: OrOff,
}

/// A number of milliseconds, or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrOff(pub(crate) Option<i64>);

fn or_off(given: &str) -> Result<OrOff, String> {
    if given == "off" {
        return Ok(OrOff(None));
    }
    match given.parse() {
        Ok(ms) if ms >= 0 => Ok(OrOff(Some(ms))),
        _ => Err("expected a whole number of milliseconds from 0 on, or off".to_owned()),
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Ingest {
    /// Batch files, or - for standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<OsString>,
    /// Whose events these are, where they do not say so themselves
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = source)]
    pub(crate) source: String,
    /// Take timestamps that look like seconds as they stand, as milliseconds in 1970
    #[arg(long)]
    pub(crate) accept_seconds: bool,
}

fn source(given: &str) -> Result<String, String> {
    crate::model::event::check_name(given).map(|()| given.to_owned()).map_err(str::to_owned)
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) batches: Ingest,
    /// One line for each event, and for each move of the watermark that would close windows which
    /// hold something
    #[arg(long)]
    pub(crate) events: bool,
}

#[derive(Debug, ClapArgs)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["id", "key", "watermark"]))]
pub(crate) struct Explain {
    /// Where the event with this id came from, and what was decided
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// What the window of this key is made of, what closed it, what came after
    #[arg(long, value_name = "K", requires = "window_start_ms")]
    pub(crate) key: Option<String>,
    /// Where that window begins
    #[arg(long, value_name = "N", requires = "key", allow_negative_numbers = true)]
    pub(crate) window_start_ms: Option<i64>,
    /// The moves of the watermark that closed windows, the newest last
    #[arg(long)]
    pub(crate) watermark: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Lateness {
    /// Only this source
    #[arg(long, value_name = "NAME", value_parser = source)]
    pub(crate) source: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Filters {
    /// Only keys that match, such as 'meter-*'
    #[arg(long, value_name = "GLOB")]
    pub(crate) key: Option<String>,
    /// Only windows that begin at or after this millisecond
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) from_ms: Option<i64>,
    /// Only windows that begin before this millisecond
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) to_ms: Option<i64>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Report {
    /// text, json or csv [default: text, or json with --json]
    #[arg(long, value_name = "FORMAT",
        value_parser = PossibleValuesParser::new(["text", "json", "csv"]))]
    pub(crate) format: Option<String>,
    #[command(flatten)]
    pub(crate) filters: Filters,
    /// Only windows that are open, or final, or corrected since they were final
    #[arg(long, value_name = "STATE",
        value_parser = PossibleValuesParser::new(["open", "final", "corrected"]))]
    pub(crate) state: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Late {
    /// text, json or csv [default: text, or json with --json]
    #[arg(long, value_name = "FORMAT",
        value_parser = PossibleValuesParser::new(["text", "json", "csv"]))]
    pub(crate) format: Option<String>,
    #[command(flatten)]
    pub(crate) filters: Filters,
    /// Turn them into revisions of their windows, each once, all in one transaction
    #[arg(long, conflicts_with = "format")]
    pub(crate) apply: bool,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", requires = "apply")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Settle {
    /// The id of a held event; may be given more than once
    #[arg(long = "id", value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) ids: Vec<String>,
    /// All of them
    #[arg(long)]
    pub(crate) all: bool,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, ClapArgs)]
#[command(group = clap::ArgGroup::new("acts").args(["declare", "retire"]).multiple(true))]
pub(crate) struct Sources {
    /// What each source sent of each key, by outcome, instead of how far it has come
    #[arg(long)]
    pub(crate) keys: bool,
    /// Expect a source: the watermark waits for its first event
    #[arg(long, value_name = "NAME", value_parser = source)]
    pub(crate) declare: Vec<String>,
    /// Do not wait for a source until its next event, or until a file of it waits in the inbox
    #[arg(long, value_name = "NAME", value_parser = source)]
    pub(crate) retire: Vec<String>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", requires = "acts")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Prune {
    /// Set the trusted time of the store, by which age is measured, to the clock first
    #[arg(long)]
    pub(crate) trust_clock: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Advance {
    /// The new watermark, in milliseconds since 1970-01-01T00:00:00Z
    #[arg(value_name = "T", allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(0..=MAX_TIMESTAMP_MS))]
    pub(crate) to_ms: i64,
    /// Also further ahead of the clock and of the newest event than max_future_ms: everything that
    /// is older would be late, and the step cannot be undone
    #[arg(long)]
    pub(crate) beyond_clock: bool,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Run {
    /// Drain the inbox, then exit; 65 when a file was refused
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Retry {
    /// Files in failed/, by path or by the name that `failed` shows
    #[arg(value_name = "FILE", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) files: Vec<OsString>,
    /// All of them
    #[arg(long)]
    pub(crate) all: bool,
    /// Take what was refused as `seconds` as it stands: this very content, under any name
    #[arg(long)]
    pub(crate) accept_seconds: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Backup {
    /// The new file; one that exists is not overwritten
    #[arg(value_name = "FILE")]
    pub(crate) to: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Verify {
    /// Mend what can be mended without a doubt, with a backup made first; the daemon must not run
    #[arg(long)]
    pub(crate) repair: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Bench {
    /// Sizes to begin with: small, medium, large, growth
    #[arg(long, value_name = "NAME", default_value = "medium",
        value_parser = PossibleValuesParser::new(["small", "medium", "large", "growth"]))]
    pub(crate) preset: String,
    /// How many events, at least 1 [default: of the preset]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_EVENTS))]
    pub(crate) events: Option<u64>,
    /// How many events in one file, at least 1 [default: of the preset]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_EVENTS))]
    pub(crate) batch_size: Option<u64>,
    /// How often, each time with a fresh store [default: 3, for large 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: Option<u32>,
    /// How many keys, at least 1
    #[arg(long, value_name = "N", default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) keys: u32,
    /// Ids of random bits, or counted up
    #[arg(long, value_name = "KIND", default_value = "random",
        value_parser = PossibleValuesParser::new(["random", "monotonic"]))]
    pub(crate) ids: String,
    /// Decides all that looks random: the same seed gives the same files
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Measure the obvious way too, an engine that works event by event, on the same files
    #[arg(long)]
    pub(crate) baseline: bool,
    /// Measure stores that are small and large in one dimension only: a batch, a lone file and every
    /// command that reads
    #[arg(long, value_name = "NAME", conflicts_with = "commands",
        value_parser = PossibleValuesParser::new(["all", "keys", "open-windows", "final-windows",
            "late", "held", "revisions", "sources", "versions", "window-events", "horizon",
            "receipts", "reused-name", "failed", "ignored", "waiting", "folders"]))]
    pub(crate) dimension: Option<String>,
    /// Measure every command that reads, with a hundredth, a tenth and all of 10,000,000 events
    #[arg(long)]
    pub(crate) commands: bool,
    /// Write the result as JSON into this file too
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Where the temporary folder is made [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Event time stays behind every clock up to here.
const MOST_EVENTS: u64 = 1_000_000_000;
