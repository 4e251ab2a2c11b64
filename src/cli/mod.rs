//! Arguments in, words and an exit code out.

mod advance;
mod args;
mod backup;
mod bench;
mod each;
mod explain;
mod failed;
mod ingest;
mod init;
mod lateness;
mod owner;
mod prune;
mod report;
mod run;
mod settle;
mod status;
mod verify;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::{ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};

use crate::config::{Config, ConfigError, DB_FILE_NAME};
use crate::daemon::signals;
use crate::daemon::state::DaemonState;
use crate::exit::Exit;
use crate::pipeline::admin_batch;
use crate::query::done_files::Archive;
use crate::query::report::{visible, visible_lines};
use crate::spool::{Spool, advice, lock, name, rights};
use crate::store::sqlite::{Options, SqliteStore};
use crate::store::{self, Delivery};
use args::{Args, Command, Where};

/// Why a command failed: its exit code, and what is said about it.
#[derive(Debug)]
pub(crate) struct CommandError {
    exit: Exit,
    message: String,
}

impl CommandError {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> CommandError {
        CommandError { exit, message: message.into() }
    }
}

impl From<store::Error> for CommandError {
    fn from(error: store::Error) -> CommandError {
        CommandError::new(Exit::of_store(&error), error.to_string())
    }
}

impl From<ConfigError> for CommandError {
    fn from(error: ConfigError) -> CommandError {
        let exit = if error.is_passing() { Exit::Again } else { Exit::Config };
        CommandError::new(exit, error.to_string())
    }
}

impl From<io::Error> for CommandError {
    /// What remains once files are opened with errors of their own: results that cannot be
    /// written. Who closes the pipe has read enough.
    fn from(error: io::Error) -> CommandError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CommandError::new(Exit::Done, ""),
            _ => CommandError::new(Exit::Failed, format!("cannot write the results: {error}")),
        }
    }
}

/// Runs the command line and says how the process is to end.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    rights::set_umask();
    let args = match parse(arguments) {
        Ok(args) => args,
        Err(mut error) => {
            let help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            if !help {
                // it repeats what was given, whatever that was
                escape(&mut error);
                let _ = write!(io::stderr(), "{}", visible_lines(&error.render().to_string()));
                return ExitCode::from(Exit::Usage as u8);
            }
            // a closed pipe is no reason to say more
            let _ = error.print();
            return ExitCode::from(Exit::Done as u8);
        }
    };
    // a file that would grow past the limit of this process is an error, not the end of it
    signals::catch_file_limit();
    match dispatch(args) {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(failure) => {
            if !failure.message.is_empty() {
                complain(&failure.message);
            }
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    let matches = Args::command().try_get_matches_from(arguments)?;
    let args = Args::from_arg_matches(&matches);
    let mut args = args.map_err(|error| error.format(&mut Args::command()))?;
    let by = |name| matches.value_source(name);
    args.at.db_by_variable_only =
        by("db") == Some(ValueSource::EnvVariable) && by("spool") == Some(ValueSource::CommandLine);
    Ok(args)
}

/// Escapes what was given where the error repeats it, line ends included.
fn escape(error: &mut clap::Error) {
    let given = error.context().filter_map(|(kind, value)| match value {
        ContextValue::String(given) => Some((kind, visible(given).into_owned())),
        _ => None,
    });
    for (kind, given) in given.collect::<Vec<_>>() {
        error.insert(kind, ContextValue::String(given));
    }
}

fn dispatch(args: Args) -> Result<Exit, CommandError> {
    let at = &args.at;
    match args.command {
        Command::Init(command) => init::run(at, &command),
        Command::Ingest(command) => ingest::run(at, &command),
        Command::Check(command) => ingest::check(at, &command),
        Command::Report(command) => report::run(at, &command),
        Command::Late(command) if command.apply => settle::apply_late(at, &command),
        Command::Late(command) => report::late(at, &command),
        Command::Held => settle::held(at),
        Command::Release(command) => settle::release(at, &command),
        Command::Discard(command) => settle::discard(at, &command),
        Command::Sources(command) => report::sources(at, &command),
        Command::Explain(command) => explain::run(at, &command),
        Command::Lateness(command) => lateness::run(at, &command),
        Command::Prune(command) => prune::run(at, &command),
        Command::Advance(command) => advance::run(at, &command),
        Command::Run(command) => run::run(at, &command),
        Command::Failed => failed::list(at),
        Command::Retry(command) => failed::retry(at, &command),
        Command::Status => status::run(at),
        Command::Backup(command) => backup::run(at, &command),
        Command::Verify(command) => verify::run(at, &command),
        Command::Bench(command) => bench::run(at, &command),
    }
}

/// Says something to the person; that nobody may be listening is no fault.
pub(crate) fn complain(message: &str) {
    // what came from outside stands escaped in it already, but for paths that the caller named
    let _ = writeln!(io::stderr(), "windowflow: {}", visible_lines(message));
}

/// Standard output, buffered: what it cannot write is an error, not a panic.
fn results() -> io::BufWriter<io::StdoutLock<'static>> {
    io::BufWriter::new(io::stdout().lock())
}

impl Where {
    /// The configuration file, where one was named.
    fn config(&self) -> Result<Option<Config>, CommandError> {
        Ok(self.config.as_deref().map(Config::load).transpose()?)
    }

    /// The spool: named, or in the configuration, or the folder that the store lies in.
    fn spool(&self) -> Result<PathBuf, CommandError> {
        if let Some(spool) = &self.spool {
            return Ok(spool.clone());
        }
        if let Some(spool) = self.config()?.and_then(|config| config.spool) {
            return Ok(spool);
        }
        let beside = self.db.as_deref().map(|db| db.parent().unwrap_or(Path::new("")));
        match beside.filter(|folder| folder.join("inbox").is_dir()) {
            Some(folder) if folder.as_os_str().is_empty() => Ok(PathBuf::from(".")),
            Some(folder) => Ok(folder.to_owned()),
            None => Err(CommandError::new(
                Exit::Usage,
                "which spool? name it with --spool DIR, with WINDOWFLOW_SPOOL, or with --config \
                 FILE",
            )),
        }
    }

    /// The store: named, or in the configuration, or in the spool.
    fn db(&self) -> Result<PathBuf, CommandError> {
        if let Some(db) = &self.db {
            return match (&self.spool, self.db_by_variable_only) {
                (Some(spool), true) => own_or(spool, db),
                _ => Ok(db.clone()),
            };
        }
        let config = self.config()?;
        if let Some(db) = config.as_ref().and_then(|config| config.db.clone()) {
            return Ok(db);
        }
        let spool = self.spool.clone().or(config.and_then(|config| config.spool));
        let spool = spool.ok_or_else(|| {
            CommandError::new(
                Exit::Usage,
                "which store? name it with --db PATH or WINDOWFLOW_DB, or name its spool with \
                 --spool DIR or --config FILE",
            )
        })?;
        store_of(&spool)
    }

    /// The files in done/, where the spool is known. One that only the configuration could name is
    /// not missed while the store alone is asked.
    fn archive(&self) -> Result<Archive, CommandError> {
        let limits = self.config()?.map(|config| config.limits.for_decoding()).unwrap_or_default();
        Ok(Archive::new(self.spool().ok().map(|spool| Spool::at(&spool).done().to_owned()), limits))
    }

    /// How the store is to be opened.
    fn options(&self) -> Result<Options, CommandError> {
        Ok(self.config()?.map_or_else(Options::default, |config| options(&config)))
    }

    /// The store, for writing; one of an older version is brought up to date, and that is said.
    fn open(&self) -> Result<SqliteStore, CommandError> {
        owner::refuse_other(self)?;
        let store = SqliteStore::open(&self.db()?, self.options()?)?;
        if let Some(migration) = store.migration() {
            complain(&migration);
        }
        Ok(store)
    }

    /// The store as for writing, by who will write nothing; one of an older version is refused.
    fn open_to_check(&self) -> Result<SqliteStore, CommandError> {
        drop(SqliteStore::snapshot(&self.db()?, self.options()?)?);
        Ok(SqliteStore::open(&self.db()?, self.options()?)?)
    }
}

/// Where the store of a spool lies unless told otherwise.
fn store_in(spool: &Path) -> PathBuf {
    spool.join(DB_FILE_NAME)
}

/// The store that the daemon of a spool uses, or used last: it may have been named elsewhere. What
/// nobody stands for any more may come from another spool, which this one is a copy of: the store
/// that lies in the spool goes before it.
fn store_of(spool: &Path) -> Result<PathBuf, CommandError> {
    let here = store_in(spool);
    let peek = match lock::peek(spool) {
        // it may be elsewhere, and only what we may not read says where
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !here.exists() => {
            let said = spool.join(lock::STATE_FILE);
            let text = format!(
                "which store? cannot read {}: {}; or name the store with --db PATH",
                name::shown_path(&said),
                advice::explain(&said, &error)
            );
            return Err(CommandError::new(Exit::Again, text));
        }
        peek => peek.ok().filter(|peek| peek.held || !here.exists()),
    };
    let state = peek.and_then(|peek| peek.state);
    let state = state.and_then(|state| serde_json::from_slice::<DaemonState>(&state).ok());
    let db = state.and_then(|state| name::parsed(&state.db)).filter(|db| !db.is_empty());
    Ok(db.map_or(here, |db| PathBuf::from(OsString::from_vec(db))))
}

/// The store that a variable names for a spool that was typed; refused when the spool has one of its
/// own. The variable may be left over from other work, and files would go into the wrong store.
fn own_or(spool: &Path, db: &Path) -> Result<PathBuf, CommandError> {
    let own = store_of(spool)?;
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if !own.exists() || real(&own) == real(db) {
        return Ok(db.to_owned());
    }
    Err(CommandError::new(
        Exit::Usage,
        format!(
            "WINDOWFLOW_DB names the store {}, but the spool {} has its own, {}: unset \
             WINDOWFLOW_DB, or say with --db PATH which one is meant",
            db.display(),
            spool.display(),
            own.display()
        ),
    ))
}

fn options(config: &Config) -> Options {
    Options {
        busy_timeout: config.daemon.busy_timeout(),
        allow_network_fs: config.daemon.allow_network_fs,
        ..Options::default()
    }
}

/// A delivery by hand, with a token of its own.
fn delivery(file: String, source: &str) -> Result<Delivery, CommandError> {
    Delivery::fresh(file, source.to_owned()).map_err(|error| {
        CommandError::new(Exit::Failed, format!("cannot draw a random token: {error}"))
    })
}

/// Who is at the keyboard, as well as can be told.
fn asked_by() -> String {
    let uid = rustix::process::getuid().as_raw();
    let named = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    named.map_or_else(|| format!("uid {uid}"), |user| format!("{user} (uid {uid})"))
}

impl From<admin_batch::AdminBatchError> for CommandError {
    fn from(error: admin_batch::AdminBatchError) -> CommandError {
        match error {
            admin_batch::AdminBatchError::Store(store::Error::Overflow(windows)) => {
                let named = windows.iter().take(3).map(|window| {
                    format!("the window of key {:?} from {}", window.key, window.start_ms)
                });
                let named = named.collect::<Vec<_>>().join(", ");
                let text = format!(
                    "nothing was done: {named} would leave the signed 64-bit range; leave out the \
                     events of these windows"
                );
                CommandError::new(Exit::Refused, text)
            }
            admin_batch::AdminBatchError::Store(error) => CommandError::from(error),
            admin_batch::AdminBatchError::Behind { watermark_ms, asked_ms } => CommandError::new(
                Exit::Usage,
                format!(
                    "the watermark is at {watermark_ms} ({}) and never moves back: {asked_ms} is \
                     behind it",
                    crate::query::report::utc(watermark_ms)
                ),
            ),
        }
    }
}
