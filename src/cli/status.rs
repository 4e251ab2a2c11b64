//! `status`: whether the daemon runs and is well, how far behind it is, and what holds the
//! watermark back.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::args::Where;
use super::{CommandError, Exit, results};
use crate::daemon::state::DaemonState;
use crate::engine::Counts;
use crate::model::clock::Clock;
use crate::query::report::{
    self, Holding, MOST_NAMES, awaited_as, is_all_expired, is_awaited, suspected_unit,
};
use crate::spool::name::{shown, shown_path};
use crate::spool::{Spool, lock, moves};
use crate::store::sqlite::{Options, SqliteStore};
use crate::store::{self, Snapshot, SourceRow, Summary, is_behind};

/// For how long the daemon may give no sign of life before it counts as stuck, in seconds.
const MOST_SILENT_S: i64 = 45;

pub(super) fn run(at: &Where) -> Result<Exit, CommandError> {
    let spool = at.spool()?;
    if !spool.is_dir() {
        let text = format!("there is no folder {}: is the name right?", shown_path(&spool));
        return Err(CommandError::new(Exit::Missing, text));
    }
    let peek = lock::peek(&spool).map_err(|error| {
        CommandError::new(
            Exit::Missing,
            format!("cannot look into {}: {error}", shown_path(&spool)),
        )
    })?;
    let state = peek.state.as_deref().and_then(|state| serde_json::from_slice(state).ok());
    let db = at.db()?;
    // a store that cannot be read does not hide the daemon, who may be waiting for it
    let (known, error) = match Known::of(&db, at.options()?) {
        Ok(known) => (Some(known), None),
        Err(error) => (None, Some(error)),
    };
    let status = Status {
        running: peek.held,
        is_mute: peek.is_mute,
        state,
        known,
        failed_files: moves::count_failed(&Spool::at(&spool)).map_err(|error| error.to_string()),
        spool: shown_path(&spool),
        db: shown(db.as_os_str().as_encoded_bytes()),
        db_bytes: bytes(&db),
        wal_bytes: bytes(&with_suffix(&db, "-wal")),
    };
    let mut out = results();
    if at.json {
        status.json(&mut out)?
    } else {
        status.text(&mut out)?
    }
    out.flush()?;
    error.map_or_else(|| Ok(status.exit()), |error| Err(CommandError::from(error)))
}

/// From where on a clock ahead of the trusted time is worth naming: a day.
const FAR_AHEAD_MS: i64 = 86_400_000;

/// What the store says.
struct Known {
    summary: Summary,
    sources: Vec<SourceRow>,
    versions: First<(String, Counts)>,
}

/// All that is told.
struct Status {
    running: bool,
    /// The daemon cannot write what it says of itself.
    is_mute: bool,
    state: Option<DaemonState>,
    known: Option<Known>,
    /// How many files lie in failed/ now, or why that cannot be told.
    failed_files: Result<usize, String>,
    spool: String,
    db: String,
    db_bytes: u64,
    wal_bytes: u64,
}

impl Known {
    fn of(db: &Path, options: Options) -> Result<Known, store::Error> {
        let snapshot = SqliteStore::snapshot(db, options)?;
        let mut versions = First { listed: Vec::new(), more: 0 };
        snapshot.versions(&mut |name, counts| {
            if versions.listed.len() < MOST_NAMES {
                versions.listed.push((name.to_owned(), counts));
            } else {
                versions.more += 1;
            }
            ControlFlow::Continue(())
        })?;
        Ok(Known { summary: snapshot.summary()?, sources: snapshot.sources()?, versions })
    }

    /// The sources that hold the watermark back: as long as they stand still, so does the
    /// watermark.
    fn held_back_by(&self) -> Vec<&SourceRow> {
        let holding = Holding::of(&self.sources, &self.summary);
        self.sources.iter().filter(|source| holding.holds(source)).collect()
    }

    /// The sources whose timestamps seem to be in another unit, with that.
    fn suspects(&self) -> impl Iterator<Item = (&SourceRow, &'static str)> {
        self.sources.iter().filter_map(|source| Some((source, suspected_unit(source)?)))
    }

    /// The trusted time, where the clock is too far behind it to be believed.
    fn disbelieved_by(&self) -> Option<i64> {
        self.summary.trusted_ms.filter(|ms| is_behind(*ms, Clock::System.now_ms()))
    }

    /// Where the trusted time and the clock are far apart: what follows from that.
    fn clock_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(trusted_ms) = self.summary.trusted_ms else { return Ok(()) };
        let now_ms = Clock::System.now_ms();
        let what = match () {
            () if self.disbelieved_by().is_some() => {
                "the clock is behind, and is not believed: events are judged by the trusted time"
            }
            () if now_ms.saturating_sub(trusted_ms) > FAR_AHEAD_MS => {
                "age is measured by the trusted time, which follows the clock while the daemon runs"
            }
            () => return Ok(()),
        };
        let (clock, trusted) = (report::utc(now_ms), report::utc(trusted_ms));
        writeln!(
            out,
            "clock       {clock}; trusted time of the store: {trusted}: {what}; if the clock is \
             right: windowflow prune --trust-clock"
        )
    }

    fn members(&self) -> Value {
        let name = |source: &SourceRow| source.source.clone();
        let held_back_by = First::of(self.held_back_by().into_iter().map(name));
        let idle = First::of(self.sources.iter().filter(|source| source.idle).map(name));
        let expired = First::of(self.sources.iter().filter(|row| is_all_expired(row)).map(name));
        let versions = self.versions.listed.iter();
        let versions = versions.map(|(name, counts)| (name.clone(), json!(counts)));
        let suspects =
            First::of(self.suspects().map(|(row, unit)| (row.source.clone(), json!(unit))));
        json!({
            "watermark_ms": self.summary.watermark_ms,
            "max_timestamp_ms": self.summary.max_timestamp_ms,
            "held_back_by": held_back_by.listed,
            "held_back_by_more": held_back_by.more,
            "last_batch": self.summary.last_batch,
            "last_ingest_at_ms": self.summary.last_ingest_at_ms,
            "clock_ms": Clock::System.now_ms(),
            "trusted_ms": self.summary.trusted_ms,
            "clock_is_behind": self.disbelieved_by().is_some(),
            "batches": self.summary.batches,
            "refused_batches": self.summary.refused_batches,
            "counts": self.summary.counts,
            "windows": self.summary.windows,
            "open_windows": self.summary.open_windows,
            "corrected_windows": self.summary.corrected_windows,
            "late_kept": self.summary.late_kept,
            "late_waiting": self.summary.late_waiting,
            "held": self.summary.held,
            "idle_sources": idle.listed,
            "idle_sources_more": idle.more,
            "suspected_units": members_of(suspects.listed),
            "suspected_units_more": suspects.more,
            "all_expired_sources": expired.listed,
            "all_expired_sources_more": expired.more,
            "producer_versions": members_of(versions.collect()),
            "producer_versions_more": self.versions.more,
        })
    }

    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        let summary = &self.summary;
        self.clock_text(out)?;
        writeln!(
            out,
            "watermark   {} ({})",
            summary.watermark_ms,
            report::utc(summary.watermark_ms)
        )?;
        let held_back_by = self.held_back_by();
        for source in held_back_by.iter().take(MOST_NAMES) {
            let name = shown(source.source.as_bytes());
            if is_awaited(source) {
                writeln!(
                    out,
                    "held back   by source {name}: {}, and nothing came yet",
                    awaited_as(source)
                )?;
                continue;
            }
            let file = report::visible(source.last_file.as_deref().unwrap_or("-"));
            let at = source.last_batch_at_ms.map_or_else(|| "-".to_owned(), report::utc);
            writeln!(out, "held back   by source {name}: its last file was {file}, at {at}")?;
        }
        others(held_back_by.len(), "held back   by", "sources", out)?;
        let idle = || self.sources.iter().filter(|source| source.idle);
        for source in idle().take(MOST_NAMES) {
            let how = if source.retired { "retired     source" } else { "idle        source" };
            let since = source.presence_since_ms.map_or_else(|| "-".to_owned(), report::utc);
            let name = shown(source.source.as_bytes());
            writeln!(out, "{how} {name}, since {since}: it does not hold back")?;
        }
        others(idle().count(), "idle       ", "sources", out)?;
        for (source, unit) in self.suspects().take(MOST_NAMES) {
            let name = shown(source.source.as_bytes());
            writeln!(out, "suspect     source {name}: timestamps look like {unit}")?;
        }
        others(self.suspects().count(), "suspect    ", "sources", out)?;
        let expired = || self.sources.iter().filter(|source| is_all_expired(source));
        for source in expired().take(MOST_NAMES) {
            let name = shown(source.source.as_bytes());
            writeln!(
                out,
                "suspect     source {name}: all its events are behind the horizon: are its \
                 timestamps in seconds?"
            )?;
        }
        others(expired().count(), "suspect    ", "sources", out)?;
        let last = summary.last_ingest_at_ms.map(report::utc);
        let last = last.map_or_else(String::new, |at| format!("; the last one at {at}"));
        writeln!(
            out,
            "batches     {} ingested{last}; {} refused",
            summary.batches, summary.refused_batches
        )?;
        let counts = &summary.counts;
        writeln!(out, "events      {}: {counts}", report::grouped(counts.events()))?;
        writeln!(
            out,
            "windows     {}, of which open: {}, corrected: {}; late events kept: {}, of which not \
             applied: {}; held as too far ahead: {}",
            summary.windows,
            summary.open_windows,
            summary.corrected_windows,
            summary.late_kept,
            summary.late_waiting,
            summary.held
        )?;
        for (version, counts) in &self.versions.listed {
            let version = shown(version.as_bytes());
            writeln!(out, "version     {version}: {counts}")?;
        }
        others(self.versions.listed.len() + self.versions.more, "version    ", "versions", out)
    }
}

fn members_of(listed: Vec<(String, Value)>) -> serde_json::Map<String, Value> {
    listed.into_iter().collect()
}

/// How many of so many are not listed, where that is any.
fn others(all: usize, before: &str, what: &str, out: &mut dyn Write) -> io::Result<()> {
    match all.saturating_sub(MOST_NAMES) {
        0 => Ok(()),
        more => writeln!(out, "{before} {more} other {what}; see: windowflow sources"),
    }
}

/// The first of a list, at most [`MOST_NAMES`], and how many others it has.
struct First<T> {
    listed: Vec<T>,
    more: usize,
}

impl<T> First<T> {
    fn of(mut all: impl Iterator<Item = T>) -> First<T> {
        let listed = all.by_ref().take(MOST_NAMES).collect();
        First { listed, more: all.count() }
    }
}

impl Status {
    fn exit(&self) -> Exit {
        let is_hindered = |state: &DaemonState| state.is_hindered() || silent_s(state).is_some();
        let is_behind = self.known.as_ref().is_some_and(|known| known.disbelieved_by().is_some());
        let fault = is_behind || self.is_mute || self.state.as_ref().is_some_and(is_hindered);
        match (self.running, fault) {
            (false, _) => Exit::Failed,
            (true, true) => Exit::Again,
            (true, false) => Exit::Done,
        }
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut status = json!({
            "running": self.running,
            "state_is_old": self.is_mute,
            "healthy": self.known.is_some() && self.exit() == Exit::Done,
            "daemon": self.state,
            "failed_files": self.failed_files.as_ref().ok(),
            "db": self.db,
            "db_bytes": self.db_bytes,
            "wal_bytes": self.wal_bytes,
        });
        let known = self.known.as_ref().map(Known::members);
        if let (Some(status), Some(Value::Object(known))) = (status.as_object_mut(), known) {
            status.extend(known);
        }
        writeln!(out, "{status}")
    }

    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.is_mute {
            writeln!(
                out,
                "mute        the daemon cannot write into the spool: what it says of itself below is \
                 old; see its log and the kernel's: is the file system read-only, or the disk broken?"
            )?;
        }
        self.daemon_text(out)?;
        let spool = &self.spool;
        match &self.failed_files {
            Ok(0) => {}
            Ok(files) => {
                writeln!(
                    out,
                    "failed/     files: {files}; see: windowflow failed --spool {spool}"
                )?;
            }
            Err(error) => writeln!(out, "failed/     {spool}/failed cannot be listed: {error}")?,
        }
        if let Some(known) = &self.known {
            known.text(out)?;
        }
        let (db, wal) = (report::grouped(self.db_bytes), report::grouped(self.wal_bytes));
        writeln!(out, "store       {}: {db} bytes, {wal} more in its log", self.db)
    }

    fn daemon_text(&self, out: &mut dyn Write) -> io::Result<()> {
        match (&self.state, self.running) {
            (Some(state), true) => {
                let since = report::utc(state.started_at_ms);
                writeln!(
                    out,
                    "daemon      runs (pid {}, {}) since {since}",
                    state.pid, state.version
                )?;
                writeln!(out, "state       {}", report::visible(&state.line()))?;
                if let Some(seconds) = silent_s(state) {
                    writeln!(
                        out,
                        "no life     for {seconds} s: it was stopped, or is stuck; if it lasts, \
                         restart it"
                    )?;
                }
                if let Some(fault) = &state.fault {
                    let since = report::utc(fault.since_ms);
                    writeln!(out, "in the way  since {since}; tries: {}", fault.tries)?;
                }
                writeln!(
                    out,
                    "inbox       ready: {}, still being written: {}, not files (see the log): {}, \
                     ignored by name: {}, not readable or movable for now: {}",
                    state.ready, state.not_ready, state.odd, state.ignored, state.resting,
                )?;
                if let Some(open) = &state.longest_open {
                    let files = state.open_for_writing;
                    let (file, since) = (report::visible(&open.file), report::utc(open.since_ms));
                    let open_s = (Clock::System.now_ms() - open.since_ms).max(0) / 1000;
                    writeln!(
                        out,
                        "waiting     until its writer closes it: {files} file(s); the longest: \
                         {file}, open for {open_s} s (since {since})"
                    )?;
                }
                for line in state.resting_lines() {
                    writeln!(out, "resting     {line}")?;
                }
                if state.loose > 0 {
                    let loose = state.loose;
                    writeln!(out, "rights      {loose} folder(s) others can change: see the log")?;
                }
                let how = how_watched(state);
                writeln!(out, "watch       {how}; full scans after lost events: {}", state.rescans)
            }
            (_, true) => writeln!(out, "daemon      runs, and has not said anything yet"),
            (Some(state), false) => {
                let last = report::utc(state.updated_at_ms);
                writeln!(out, "daemon      does not run; the last one was seen at {last}")?;
                match &state.fault {
                    Some(fault) => {
                        writeln!(out, "in the way  at its end: {}", report::visible(&fault.text))
                    }
                    None => Ok(()),
                }
            }
            (None, false) => writeln!(out, "daemon      does not run, and never did"),
        }
    }
}

/// How the daemon learns of new files, and what to do where that is slow.
fn how_watched(state: &DaemonState) -> String {
    let on = state.inbox_on.as_ref().map(|name| format!("inbox/ is on {name}"));
    match (state.watching, state.untold) {
        (false, _) => {
            "looks for new files by the clock: the kernel does not tell of them".to_owned()
        }
        (true, true) => format!(
            "looks for new files by the clock, each second or [inbox] rescan_ms: the kernel did not \
             tell of some{}",
            on.map_or_else(String::new, |on| format!(" ({on})"))
        ),
        (true, false) => match on {
            None => "told of new files by the kernel".to_owned(),
            Some(on) => format!(
                "told of new files by the kernel, but {on}: what comes from elsewhere is found each \
                 [inbox] rescan_ms"
            ),
        },
    }
}

/// For how many seconds a daemon that gives a sign of life every 15 has given none; none while that
/// is nothing to speak of.
fn silent_s(state: &DaemonState) -> Option<i64> {
    let seconds = (Clock::System.now_ms() - state.updated_at_ms) / 1000;
    (seconds > MOST_SILENT_S).then_some(seconds)
}

fn bytes(path: &Path) -> u64 {
    // asked by name, not opened: to close the store's file would drop the locks of this process
    std::fs::metadata(path).map_or(0, |meta| meta.len())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_without_a_sign_of_life_is_not_well() {
        let now_ms = Clock::System.now_ms();
        let seen = |age_ms: i64| {
            silent_s(&DaemonState { updated_at_ms: now_ms - age_ms, ..DaemonState::default() })
        };
        assert_eq!(seen(30_000), None);
        assert!(seen(60_000).is_some_and(|seconds| seconds >= 60));
        assert_eq!(seen(-3_600_000), None, "a clock that was set back is no silence");
    }
}
