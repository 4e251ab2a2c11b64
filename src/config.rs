//! What an operator may set, and what is fixed for ever when the store is made.
//!
//! One TOML file, read whole or refused whole: every fault in it is named with its place, what was
//! expected and what was found. Flags that win over it are the caller's affair.

mod error;
mod reader;

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{self, Path, PathBuf};
use std::time::Duration;

use log::Level;
use toml::de::DeTable;

use crate::decode;
use crate::engine::Admission;
use crate::engine::settings::{
    DEFAULT_MAX_FUTURE_MS, LatePolicy, LateRule, Settings, SettingsError,
};
use crate::spool::name::{Ignored, shown_path};
use crate::spool::scan::Order;
pub use error::{ConfigError, Problem};

use reader::{Section, TableReader, place_of};

/// The store's file name in the spool, where nothing names another.
pub const DB_FILE_NAME: &str = "windowflow.db";

/// The folders of a spool in which the store must not lie: files there are work, or were.
pub const WORK_FOLDERS: [&str; 4] = ["inbox", "done", "failed", "reports"];

/// What bounds a wait: one hour.
const HOUR_MS: u64 = 3_600_000;

/// What bounds a silence: one year.
const YEAR_MS: u64 = 31_536_000_000;

/// What bounds retention: a hundred years.
const CENTURY_DAYS: u64 = 36_500;

/// The greatest whole number of a TOML file.
const MAX: u64 = i64::MAX as u64;

/// Everything that can be set. The default is what an empty file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// `spool`: the folder that holds inbox, done and failed; absolute if the file was loaded.
    /// None: the command line names it.
    pub spool: Option<PathBuf>,
    /// `db`: the store; absolute if the file was loaded. None: see [`Config::db_path`].
    pub db: Option<PathBuf>,
    /// `[window]`: what a store is made with, and must have been made with. None: what the store
    /// says holds.
    pub window: Option<Settings>,
    /// `[inbox]`.
    pub inbox: InboxConfig,
    /// `[sources]`.
    pub sources: SourcesConfig,
    /// `[limits]`.
    pub limits: LimitsConfig,
    /// `[retention]`.
    pub retention: RetentionConfig,
    /// `[daemon]`.
    pub daemon: DaemonConfig,
}

/// When a file is ready, and which one comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxConfig {
    /// How long size and mtime of a file that is written in place must have been still, 0 to
    /// 3600000 ms; 1000 by default.
    pub settle_ms: u64,
    /// How often the whole inbox is looked through, whatever was or was not notified, 100 to
    /// 3600000 ms; 10000 by default.
    pub rescan_ms: u64,
    /// What comes first.
    pub order: InboxOrder,
    /// Patterns for names of files that are left alone, beside those that always are.
    pub ignore: Vec<String>,
}

/// The order in which ready files are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InboxOrder {
    /// By name, byte by byte.
    #[default]
    Name,
    /// The least recently changed first.
    Mtime,
}

/// Which sources are waited for, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcesConfig {
    /// After how long without anything from it a source is idle, 1000 to 31536000000 ms (a year);
    /// none, the default: never.
    pub idle_timeout_ms: Option<u64>,
    /// Sources that are expected: the watermark waits for their first event.
    pub declared: Vec<String>,
    /// How many sources may be known, from 1 on; 10000 by default. A batch that would make one more
    /// is refused.
    pub max: u64,
    /// Whether a source that is neither known nor declared may send; it may by default. If not, its
    /// batch is refused.
    pub accept_new: bool,
}

impl Default for SourcesConfig {
    fn default() -> SourcesConfig {
        SourcesConfig { idle_timeout_ms: None, declared: Vec::new(), max: 10_000, accept_new: true }
    }
}

impl SourcesConfig {
    /// After how long without anything from it a source is idle.
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout_ms.map(Duration::from_millis)
    }

    /// Which sources may send, as the engine has it.
    pub fn admission(&self) -> Admission {
        Admission { max: self.max, accept_new: self.accept_new }
    }
}

/// How large what is read may be. Beyond it a batch is refused, with a code of its own for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Bytes of one event, 64 to 1073741824; 1048576 by default. It is held in memory whole.
    pub max_event_bytes: u64,
    /// Bytes of a file as it lies in the inbox, from 1 on; none, the default, is no bound.
    pub max_file_bytes: Option<u64>,
    /// Bytes after decompression, from 1 on; 17179869184 by default.
    pub max_inflated_bytes: u64,
}

/// After how many days what is removed, each 1 to 36500; none, the default: never. What a promise
/// needs is kept all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionConfig {
    /// Final windows, by how far they end behind the watermark.
    pub windows_days: Option<u64>,
    /// Late events in the side output, by how far their window ends behind the watermark.
    pub late_days: Option<u64>,
    /// Receipts, by when they were written. At least `done_days`: a file in done/ is told by its
    /// receipt.
    pub receipts_days: Option<u64>,
    /// Report dumps, by when they were written.
    pub reports_days: Option<u64>,
    /// Files in done/, by when they were taken in.
    pub done_days: Option<u64>,
    /// Files in failed/, by when they were refused.
    pub failed_days: Option<u64>,
    /// The most bytes that the files in failed/ and their reasons may take on the disk, 1 and more;
    /// beyond it the oldest go.
    pub failed_max_bytes: Option<u64>,
}

/// How the daemon waits, gives up and speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaemonConfig {
    /// How long a batch in hand may take to end after a first request to stop, 0 to 3600000 ms;
    /// 10000 by default. Then it is undone.
    pub stop_grace_ms: u64,
    /// The first pause after a passing fault, 10 to 3600000 ms; 250 by default. Each further one
    /// is longer, up to `backoff_max_ms`.
    pub backoff_min_ms: u64,
    /// The longest such pause, at least `backoff_min_ms` and at most 3600000 ms; 30000 by default.
    pub backoff_max_ms: u64,
    /// How long to wait for others who hold the store before that counts as a passing fault, 0 to
    /// 60000 ms; 10000 by default.
    pub busy_timeout_ms: u64,
    /// Whether a store on a network file system is opened all the same; not by default.
    pub allow_network_fs: bool,
    /// The least important kind of message that is still logged; info by default.
    pub log: Level,
}

impl InboxConfig {
    /// For how long a file that is written in place must have been still.
    pub fn settle(&self) -> Duration {
        Duration::from_millis(self.settle_ms)
    }

    /// How often the whole inbox is looked through.
    pub fn rescan(&self) -> Duration {
        Duration::from_millis(self.rescan_ms)
    }

    /// The names that are left alone. Patterns that are none add nothing: they are refused when the
    /// file is read.
    pub fn ignored(&self) -> Ignored {
        Ignored::new(&self.ignore).unwrap_or_default()
    }

    /// The order, as the scanner has it.
    pub fn scan_order(&self) -> Order {
        match self.order {
            InboxOrder::Name => Order::Name,
            InboxOrder::Mtime => Order::Mtime,
        }
    }
}

impl LimitsConfig {
    /// The bounds, as the decoder has them.
    pub fn for_decoding(&self) -> decode::Limits {
        decode::Limits {
            max_event_bytes: self.max_event_bytes,
            max_file_bytes: self.max_file_bytes,
            max_inflated_bytes: self.max_inflated_bytes,
        }
    }
}

impl DaemonConfig {
    /// How long a batch in hand may take to end after a first request to stop.
    pub fn stop_grace(&self) -> Duration {
        Duration::from_millis(self.stop_grace_ms)
    }

    /// The shortest and the longest pause after a passing fault.
    pub fn backoff(&self) -> (Duration, Duration) {
        (Duration::from_millis(self.backoff_min_ms), Duration::from_millis(self.backoff_max_ms))
    }

    /// How long to wait for others who hold the store.
    pub fn busy_timeout(&self) -> Duration {
        Duration::from_millis(self.busy_timeout_ms)
    }
}

impl Default for InboxConfig {
    fn default() -> InboxConfig {
        InboxConfig {
            settle_ms: 1000,
            rescan_ms: 10_000,
            order: InboxOrder::default(),
            ignore: Vec::new(),
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> LimitsConfig {
        LimitsConfig {
            max_event_bytes: 1 << 20,
            max_file_bytes: None,
            max_inflated_bytes: 16 << 30,
        }
    }
}

impl Default for DaemonConfig {
    fn default() -> DaemonConfig {
        DaemonConfig {
            stop_grace_ms: 10_000,
            backoff_min_ms: 250,
            backoff_max_ms: 30_000,
            busy_timeout_ms: 10_000,
            allow_network_fs: false,
            log: Level::Info,
        }
    }
}

impl Config {
    /// Reads the file. Relative paths in it start from the folder in which it lies.
    ///
    /// # Errors
    /// When it cannot be read, or says anything that cannot be.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let unreadable = |error| ConfigError::Unreadable { path: path.to_owned(), error };
        // a pipe would be waited for, and nothing could end that
        let seen = fs::metadata(path).map_err(unreadable)?.file_type();
        if seen.is_fifo() || seen.is_socket() {
            return Err(unreadable(io::Error::other("it is a pipe or a socket, not a file")));
        }
        let bytes = fs::read(path).map_err(unreadable)?;
        let absolute = path::absolute(path).map_err(unreadable)?;
        let base = absolute.parent().unwrap_or(Path::new("/"));
        let config = match str::from_utf8(&bytes) {
            Ok(text) => Config::parse(text, base),
            Err(error) => Err(ConfigError::invalid(vec![not_utf8(&bytes, error.valid_up_to())])),
        };
        config.map_err(|error| error.in_file(path))
    }

    /// Reads the text of a file. Relative paths in it start from `base`.
    ///
    /// # Errors
    /// When it says anything that cannot be; all that is wrong is named at once.
    pub fn parse(text: &str, base: &Path) -> Result<Config, ConfigError> {
        // some editors put a byte order mark first
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let table = DeTable::parse(text).map_err(|error| {
            let (line, column) = place_of(text, error.span().map_or(text.len(), |span| span.start));
            let message = format!("this is no TOML: {}", error.message());
            ConfigError::invalid(vec![Problem { line, column, key: None, message }])
        })?;
        let mut reader = TableReader::new(text, base);
        let config = Config::read(&mut reader, table.get_ref());
        let problems = reader.into_problems(table.get_ref());
        if problems.is_empty() { Ok(config) } else { Err(ConfigError::invalid(problems)) }
    }

    /// The store's path: `db`, else `windowflow.db` in the spool; none while neither is named.
    pub fn db_path(&self) -> Option<PathBuf> {
        self.db.clone().or_else(|| Some(self.spool.as_ref()?.join(DB_FILE_NAME)))
    }

    /// The keys that `new` sets otherwise and that cannot change while the daemon runs: it would
    /// have to be started again.
    pub fn fixed_differences(&self, new: &Config) -> Vec<&'static str> {
        let mut keys = Vec::new();
        let mut compare = |key: &'static str, is_same: bool| {
            if !is_same {
                keys.push(key);
            }
        };
        compare("spool", self.spool == new.spool);
        compare("db", self.db == new.db);
        match (&self.window, &new.window) {
            (Some(old), Some(new)) => {
                compare("window.window_ms", old.window_ms() == new.window_ms());
                compare("window.lateness_ms", old.lateness_ms() == new.lateness_ms());
                compare("window.late_rule", old.late_rule() == new.late_rule());
                compare("window.late_policy", old.late_policy() == new.late_policy());
                compare("window.max_future_ms", old.max_future_ms() == new.max_future_ms());
                let (old, new) = (old.dedup_horizon_ms(), new.dedup_horizon_ms());
                compare("window.dedup_horizon_ms", old == new);
            }
            (old, new) => compare("window", old == new),
        }
        let (old, new) = (&self.daemon, &new.daemon);
        compare("daemon.allow_network_fs", old.allow_network_fs == new.allow_network_fs);
        compare("daemon.busy_timeout_ms", old.busy_timeout_ms == new.busy_timeout_ms);
        keys
    }

    fn read(reader: &mut TableReader<'_>, table: &DeTable<'_>) -> Config {
        let mut top = reader.top(table);
        let spool = top.path("spool");
        let db = top.path("db");
        if let (Some(spool), Some(db)) = (&spool, &db) {
            let folders = WORK_FOLDERS.map(|folder| spool.join(folder));
            if let Some(folder) = folders.iter().find(|folder| db.starts_with(folder)) {
                let folder = shown_path(folder);
                let expected = format!("a path outside {folder}, where files are work");
                top.refuse("db", &expected);
            }
        }
        let window = read_window(top.section("window"));
        Config {
            spool,
            db,
            window,
            inbox: read_inbox(top.section("inbox")),
            sources: read_sources(top.section("sources")),
            limits: read_limits(top.section("limits")),
            retention: read_retention(top.section("retention"), window.as_ref()),
            daemon: read_daemon(top.section("daemon")),
        }
    }
}

fn read_window(mut window: Section<'_, '_, '_>) -> Option<Settings> {
    let window_ms = window.required_ms("window_ms", 1..=MAX);
    let lateness_ms = window.required_ms("lateness_ms", 0..=MAX);
    let rules = [LateRule::Window, LateRule::Event].map(|rule| (rule.name(), rule));
    let late_rule = window.choice("late_rule", &rules, LateRule::default());
    let policies = [LatePolicy::Aside, LatePolicy::Drop, LatePolicy::Correct];
    let policies = policies.map(|policy| (policy.name(), policy));
    let late_policy = window.choice("late_policy", &policies, LatePolicy::default());
    let guard_ms = Some(DEFAULT_MAX_FUTURE_MS.unsigned_abs());
    let max_future_ms = window.number_or_off("max_future_ms", 0..=MAX, guard_ms);
    let horizon_ms = window.number_or_off("dedup_horizon_ms", 1..=MAX, None);
    // within the range of a TOML integer, as all of them were checked to be
    let signed = |ms: Option<u64>| ms.and_then(|ms| i64::try_from(ms).ok());
    let settings = Settings::new(window_ms?, lateness_ms?)
        .map(|settings| settings.with_late(late_rule, late_policy))
        .and_then(|settings| settings.with_max_future_ms(signed(max_future_ms)))
        .and_then(|settings| settings.with_dedup_horizon_ms(signed(horizon_ms)));
    match settings {
        Ok(settings) => Some(settings),
        Err(SettingsError::HorizonTooShort { least_ms, .. }) => {
            let expected = format!(
                "at least window_ms + lateness_ms, which is {least_ms} (a repeat could be counted \
                 twice in a window that is still open)"
            );
            window.refuse("dedup_horizon_ms", &expected);
            None
        }
        Err(error) => {
            window.refuse_whole(&error.to_string());
            None
        }
    }
}

fn read_inbox(mut inbox: Section<'_, '_, '_>) -> InboxConfig {
    let default = InboxConfig::default();
    let orders = [("name", InboxOrder::Name), ("mtime", InboxOrder::Mtime)];
    InboxConfig {
        settle_ms: inbox.number("settle_ms", 0..=HOUR_MS, default.settle_ms),
        rescan_ms: inbox.number("rescan_ms", 100..=HOUR_MS, default.rescan_ms),
        order: inbox.choice("order", &orders, default.order),
        ignore: read_ignore(&mut inbox),
    }
}

fn read_ignore(inbox: &mut Section<'_, '_, '_>) -> Vec<String> {
    let patterns = inbox.strings("ignore", "patterns for names in brackets, each in quotes");
    match Ignored::new(&patterns) {
        Ok(_) => patterns,
        Err((pattern, why)) => {
            let message =
                format!("expected patterns for names, such as \"*.md5\", found {pattern:?}: {why}");
            inbox.refuse_with("ignore", message);
            Vec::new()
        }
    }
}

fn read_sources(mut sources: Section<'_, '_, '_>) -> SourcesConfig {
    let default = SourcesConfig::default();
    SourcesConfig {
        idle_timeout_ms: sources.number_or_off("idle_timeout_ms", 1000..=YEAR_MS, None),
        declared: sources.names("declared"),
        max: sources.number("max", 1..=MAX, default.max),
        accept_new: sources.flag("accept_new", default.accept_new),
    }
}

fn read_limits(mut limits: Section<'_, '_, '_>) -> LimitsConfig {
    let default = LimitsConfig::default();
    LimitsConfig {
        // no event has fewer bytes than the least
        max_event_bytes: limits.number("max_event_bytes", 64..=1 << 30, default.max_event_bytes),
        max_file_bytes: limits.number_or_off("max_file_bytes", 1..=MAX, None),
        max_inflated_bytes: limits.number(
            "max_inflated_bytes",
            1..=MAX,
            default.max_inflated_bytes,
        ),
    }
}

fn read_retention(
    mut retention: Section<'_, '_, '_>,
    window: Option<&Settings>,
) -> RetentionConfig {
    let failed_max_bytes = retention.number_or_off("failed_max_bytes", 1..=MAX, None);
    let mut days = |key| retention.number_or_off(key, 1..=CENTURY_DAYS, None);
    let read = RetentionConfig {
        windows_days: days("windows_days"),
        late_days: days("late_days"),
        receipts_days: days("receipts_days"),
        reports_days: days("reports_days"),
        done_days: days("done_days"),
        failed_days: days("failed_days"),
        failed_max_bytes,
    };
    if let Some(receipts_days) = read.receipts_days {
        match read.done_days {
            Some(done_days) if done_days > receipts_days => {
                let expected = format!(
                    "at most receipts_days, which is {receipts_days}: a file in done/ is told by \
                     its receipt"
                );
                retention.refuse("done_days", &expected);
            }
            _ => {}
        }
    }
    let corrects = window.is_some_and(|settings| {
        settings.late_policy() == LatePolicy::Correct && settings.dedup_horizon_ms().is_none()
    });
    if corrects && read.windows_days.is_some() {
        let expected = "\"off\" where late_policy is \"correct\" and there is no dedup_horizon_ms: \
                        the next revision of a window needs what it held";
        retention.refuse("windows_days", expected);
    }
    read
}

fn read_daemon(mut daemon: Section<'_, '_, '_>) -> DaemonConfig {
    let default = DaemonConfig::default();
    let levels = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];
    let names = ["error", "warn", "info", "debug", "trace"];
    let levels: Vec<(&'static str, Level)> = names.into_iter().zip(levels).collect();
    let read = DaemonConfig {
        stop_grace_ms: daemon.number("stop_grace_ms", 0..=HOUR_MS, default.stop_grace_ms),
        backoff_min_ms: daemon.number("backoff_min_ms", 10..=HOUR_MS, default.backoff_min_ms),
        backoff_max_ms: daemon.number("backoff_max_ms", 10..=HOUR_MS, default.backoff_max_ms),
        busy_timeout_ms: daemon.number("busy_timeout_ms", 0..=60_000, default.busy_timeout_ms),
        allow_network_fs: daemon.flag("allow_network_fs", default.allow_network_fs),
        log: daemon.choice("log", &levels, default.log),
    };
    let (min_ms, max_ms) = (read.backoff_min_ms, read.backoff_max_ms);
    if min_ms > max_ms {
        // one of them may be a default that stands nowhere in the file
        if daemon.has("backoff_min_ms") {
            let expected = format!("at most backoff_max_ms, which is {max_ms}");
            daemon.refuse("backoff_min_ms", &expected);
        } else {
            let expected = format!("at least backoff_min_ms, which is {min_ms}");
            daemon.refuse("backoff_max_ms", &expected);
        }
    }
    read
}

fn not_utf8(bytes: &[u8], at: usize) -> Problem {
    let before = String::from_utf8_lossy(&bytes[..at]);
    let (line, column) = place_of(&before, before.len());
    let found = bytes[at];
    let message = format!("expected UTF-8, found the byte {found:#04x}: save the file as UTF-8");
    Problem { line, column, key: None, message }
}

#[cfg(test)]
mod tests;
