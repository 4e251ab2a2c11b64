//! `ingest` and `check`: batches by hand, for real or not.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::ops::ControlFlow;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::args::{Check, Ingest as Arguments, Where};
use super::each::{Each, no_copy};
use super::failed::other_faults;
use super::{CommandError, Exit, complain, delivery, results};
use crate::decode::Limits;
use crate::engine::settings::Settings;
use crate::engine::{Admission, Counts, Judged};
use crate::model::event::Chunk;
use crate::model::refusal::Code;
use crate::pipeline::ingest::{self, Ended, Ingest, Mode, RefusedBatch, Seconds, Step, Watcher};
use crate::query::report;
use crate::spool::name::shown;
use crate::store::sqlite::SqliteStore;
use crate::store::{Committed, Delivery, Store};

pub(super) fn run(at: &Where, command: &Arguments) -> Result<Exit, CommandError> {
    all(at, command, Mode::Commit, false)
}

pub(super) fn check(at: &Where, command: &Check) -> Result<Exit, CommandError> {
    all(at, &command.batches, Mode::Check, command.events)
}

fn all(at: &Where, command: &Arguments, mode: Mode, events: bool) -> Result<Exit, CommandError> {
    let config = at.config()?;
    let limits = config.as_ref().map(|config| config.limits.for_decoding()).unwrap_or_default();
    let admission = config.map(|config| config.sources.admission());
    let mut store = match mode {
        // it changes nothing
        Mode::Check => at.open_to_check()?,
        Mode::Commit | Mode::Group => at.open()?,
    };
    let mut out = results();
    let mut exit = Exit::Done;
    for file in &command.files {
        let accept_seconds = command.accept_seconds;
        let source = &command.source;
        let hand = Hand { at, limits: &limits, admission, mode, source, events, accept_seconds };
        match hand.over(&mut store, file, &mut out) {
            Ok(Exit::Done) => {}
            // a refused batch says more than a missing file, whichever came first
            Ok(refused) => exit = refused,
            // the next file may well be there
            Err(CommandError { exit: Exit::Missing, message }) => {
                complain(&message);
                if exit == Exit::Done {
                    exit = Exit::Missing;
                }
            }
            Err(failure) => return Err(failure),
        }
    }
    out.flush()?;
    Ok(exit)
}

/// How each file of a command is handed over.
struct Hand<'a> {
    at: &'a Where,
    limits: &'a Limits,
    admission: Option<Admission>,
    mode: Mode,
    source: &'a str,
    // each event is told of
    events: bool,
    // timestamps that look like seconds are taken as they stand
    accept_seconds: bool,
}

impl Hand<'_> {
    fn over(
        &self,
        store: &mut SqliteStore,
        file: &OsStr,
        out: &mut dyn Write,
    ) -> Result<Exit, CommandError> {
        let (mut raw, name) = open(file)?;
        let delivery = delivery(name, self.source)?;
        let seconds = if self.accept_seconds { Seconds::Accept } else { Seconds::Refuse };
        let mut ended = self.attempt(store, &raw, &delivery, seconds, out)?;
        if let Ended::Refused(refused) = &ended
            && self.mode == Mode::Commit
            && file != "-"
            && is_wanted(refused)?
        {
            raw.rewind().map_err(|error| unread(&delivery.file, &error))?;
            ended = self.attempt(store, &raw, &delivery, Seconds::Accept, out)?;
        }
        let done = match ended {
            Ended::Committed(done) | Ended::Checked(done) => done,
            Ended::Refused(refused) => {
                if self.mode == Mode::Commit {
                    store.record_refusal(&refused.receipt())?;
                    store.sync()?;
                }
                self.print_refused(&refused, out)?;
                return Ok(Exit::Refused);
            }
            Ended::Changed | Ended::Stopped => {
                let text = format!("{} was not taken in", delivery.file);
                return Err(CommandError::new(Exit::Failed, text));
            }
        };
        self.print(&delivery.file, &done, out)?;
        Ok(Exit::Done)
    }

    fn attempt(
        &self,
        store: &mut SqliteStore,
        raw: &File,
        delivery: &Delivery,
        seconds: Seconds<'_>,
        out: &mut dyn Write,
    ) -> Result<Ended, CommandError> {
        let (limits, now_ms) = (self.limits.clone(), store.now_ms());
        let ingest = Ingest {
            delivery,
            limits,
            mode: self.mode,
            admission: self.admission,
            now_ms,
            seconds,
        };
        let mut watched = Watched::new(raw.metadata().map(|meta| meta.len()).ok());
        watched.each = self.events.then(|| Each::new(self.at.json)).transpose()?;
        let reader = watched.bar.wrap_read(raw);
        let ended = ingest.run(store, reader, &mut watched);
        watched.bar.finish_and_clear();
        if let Some(each) = watched.each.take() {
            each.copy_to(out)?;
        }
        ended.map_err(|error| match error {
            ingest::IngestError::Store(error) => CommandError::from(error),
            ingest::IngestError::Read(error) => unread(&delivery.file, &error),
        })
    }

    fn print(&self, file: &str, done: &Committed, out: &mut dyn Write) -> io::Result<()> {
        if self.at.json {
            let line = Line {
                batch: (self.mode == Mode::Commit).then_some(done.batch),
                file,
                source: self.source,
                events: done.counts.events(),
                counts: done.counts,
                watermark_ms: done.watermark_ms,
                windows_closed: done.windows_closed,
            };
            serde_json::to_writer(&mut *out, &line)?;
            return writeln!(out);
        }
        let head = match self.mode {
            Mode::Commit | Mode::Group => format!("batch {}: {file}", done.batch),
            Mode::Check => format!("would take in {file}"),
        };
        writeln!(
            out,
            "{head} (source {}): events: {}; {}; watermark {} ({}), windows closed: {}",
            shown(self.source.as_bytes()),
            done.counts.events(),
            done.counts,
            done.watermark_ms,
            report::utc(done.watermark_ms),
            done.windows_closed
        )
    }

    fn print_refused(&self, refused: &RefusedBatch, out: &mut dyn Write) -> io::Result<()> {
        if self.at.json {
            serde_json::to_writer(&mut *out, refused)?;
            return writeln!(out);
        }
        let (file, refusal) = (&refused.file, &refused.refusal);
        let verb = if self.mode == Mode::Commit { "refused" } else { "would refuse" };
        let message = report::visible(&refusal.message);
        let mut text =
            format!("{verb} {file}: {}: {message}\n  hint: {}", refusal.code.name(), refusal.hint);
        let more = refusal.more.iter().map(|one| &*one.message);
        for line in other_faults(refusal.faults, refusal.all_faults, more) {
            text.push_str("\n  ");
            text.push_str(&line);
        }
        complain(&text);
        Ok(())
    }
}

fn unread(file: &str, error: &io::Error) -> CommandError {
    CommandError::new(Exit::Failed, format!("cannot read {file}: {error}"))
}

/// Asks on a terminal whether a batch that was refused for timestamps that look like seconds is to
/// be taken as it stands. Nothing of it is in, and the store is not held meanwhile.
fn is_wanted(refused: &RefusedBatch) -> Result<bool, CommandError> {
    let is_asked = refused.refusal.code == Code::Seconds
        && io::stdin().is_terminal()
        && io::stderr().is_terminal();
    if !is_asked {
        return Ok(false);
    }
    let message = report::visible(&refused.refusal.message);
    complain(&format!("{}: {message}", refused.file));
    write!(io::stderr(), "take it as it stands, as milliseconds in 1970? [y/N] ")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// One ingested batch, as the contract has it.
#[derive(Serialize)]
struct Line<'a> {
    batch: Option<u64>,
    file: &'a str,
    source: &'a str,
    events: u64,
    #[serde(flatten)]
    counts: Counts,
    watermark_ms: i64,
    windows_closed: u64,
}

/// Opens what is named. What can only be read once is copied first, into a file without a name:
/// its sender may be slow, and must not hold the store.
fn open(file: &OsStr) -> Result<(File, String), CommandError> {
    if file == "-" {
        return Ok((copy(&mut io::stdin().lock())?, "-".to_owned()));
    }
    let path = Path::new(file);
    let name = shown(file.as_encoded_bytes());
    let cannot = |error: io::Error| {
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::Missing,
            _ => Exit::Failed,
        };
        CommandError::new(exit, format!("cannot open {name}: {error}"))
    };
    let mut opened = File::open(path).map_err(cannot)?;
    let meta = opened.metadata().map_err(cannot)?;
    if meta.is_dir() {
        return Err(CommandError::new(
            Exit::Missing,
            format!("{name} is a folder: name the files in it"),
        ));
    }
    Ok((if meta.is_file() { opened } else { copy(&mut opened)? }, name))
}

fn copy(from: &mut dyn Read) -> Result<File, CommandError> {
    let cannot = |error: io::Error| no_copy("cannot copy the input", &error);
    let mut copy = tempfile::tempfile().map_err(cannot)?;
    io::copy(from, &mut copy).map_err(cannot)?;
    copy.rewind().map_err(cannot)?;
    Ok(copy)
}

/// A progress bar, which shows itself on a terminal only, and only when it takes a while.
struct Watched {
    bar: ProgressBar,
    each: Option<Each>,
}

impl Watched {
    fn new(bytes: Option<u64>) -> Watched {
        let bar = ProgressBar::new(bytes.unwrap_or(0));
        let shape = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left, {msg}";
        if let Ok(style) = ProgressStyle::with_template(shape) {
            bar.set_style(style);
        }
        Watched { bar, each: None }
    }
}

impl Watcher for Watched {
    fn step(&mut self, step: Step) -> ControlFlow<()> {
        self.bar.set_message(format!("{} events", step.events));
        ControlFlow::Continue(())
    }

    fn judged(
        &mut self,
        chunk: &Chunk,
        judged: &Judged<'_>,
        closings: &[u64],
        settings: &Settings,
    ) {
        if let Some(each) = &mut self.each {
            each.judged(chunk, judged, closings, settings);
        }
    }

    fn still_the_same(&mut self) -> io::Result<bool> {
        Ok(true)
    }
}
