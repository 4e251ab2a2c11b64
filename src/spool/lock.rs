//! One daemon per spool: the lock, what its holder says of itself, and a look at both.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::Digest;

use super::advice;
use super::folder::{self, Facts, Kind};
use super::name::shown_path;

/// The file in the spool in which the daemon says how it is.
pub const STATE_FILE: &str = ".windowflow.lock";

/// The most bytes that can be published.
pub const STATE_MAX_BYTES: usize = BLOCK_BYTES - SEAL_BYTES - 1;

/// The size of that file, in bytes, written in one step. A reader that sees half of it sees that by
/// the check sum.
const BLOCK_BYTES: usize = 20_480;

/// How many bytes of white space at its end hold the check sum, one bit each.
const SEAL_BYTES: usize = 32;

/// How often to read a state that is being written, and how long to wait in between.
const READS: usize = 100;
const READ_PAUSE: Duration = Duration::from_millis(1);

/// For how long to try while only those who look at the lock are in the way.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long to leave them alone in between.
const PAUSE: Duration = Duration::from_micros(200);

/// The hold on a spool. It ends when it is dropped and when the process ends, however it ends.
///
/// What is locked is the spool folder itself, and not a file in it: a file can be removed by a
/// helpful hand that takes it for a stale one, and then two daemons would hold two locks.
#[derive(Debug)]
pub struct Lock {
    root: File,
    // locked as long as nothing can be written there: that can be seen on a disk that refuses
    state: File,
    is_mute: bool,
}

impl Lock {
    /// Takes the lock of a spool, and makes the folder where it is missing.
    ///
    /// # Errors
    /// [`LockError::Held`] when another process has it; at once, without waiting.
    pub fn take(root: &Path) -> Result<Lock, LockError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| LockError::Io { path, source }
        };
        folder::make_all(root).map_err(at(root))?;
        let held = File::open(root).map_err(at(root))?;
        let pause = || thread::sleep(PAUSE);
        if !try_exclusive(&held, PATIENCE, pause).map_err(at(root))? {
            let by = peek(root).ok().and_then(|peek| peek.state);
            let by = by.map(|state| String::from_utf8_lossy(&state).into_owned());
            return Err(LockError::Held { root: root.to_owned(), by });
        }
        let path = root.join(STATE_FILE);
        let state = open_state(&path).map_err(at(&path))?;
        Ok(Lock { root: held, state, is_mute: false })
    }

    /// Says how the daemon is: one JSON text of at most [`STATE_MAX_BYTES`], written in place
    /// and in one step over blocks that are there already, so that a full disk is no hindrance.
    ///
    /// # Errors
    /// When the text is too long, or the disk refuses. Whoever [peeks](peek) is told of that.
    pub fn publish(&mut self, state: &[u8]) -> io::Result<()> {
        let written = self.write(state);
        self.is_mute = match (&written, self.is_mute) {
            // who looks just now is in the way for a moment: then the next time
            (Err(_), false) => is_locked(self.state.try_lock())?,
            (Ok(()), true) => self.state.unlock().is_err(),
            (_, is_mute) => is_mute,
        };
        written
    }

    fn write(&self, state: &[u8]) -> io::Result<()> {
        if state.len() > STATE_MAX_BYTES {
            let text = format!("a state of {} bytes, of at most {STATE_MAX_BYTES}", state.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.state.write_all_at(&sealed(state.trim_ascii_end()), 0)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the files is not enough: a process that another thread has just forked keeps them
        // open until it runs its own program. An error has no consequence, since closing follows.
        let _ = self.state.unlock();
        let _ = self.root.unlock();
    }
}

/// Whether another has that file locked for itself alone. The lock is shared for this moment only:
/// it is given back here, and not by closing the file, for the reason that `Lock::drop` has.
fn is_held(file: &File) -> io::Result<bool> {
    let is_free = is_locked(file.try_lock_shared())?;
    if is_free {
        file.unlock()?;
    }
    Ok(!is_free)
}

/// Takes the lock for ourselves alone; says whether that was possible.
///
/// Whoever [peeks](peek) shares the lock for a moment, and must not keep a daemon from starting.
/// So when it is refused we ask to share it, too: that is refused only if another has it alone.
fn try_exclusive(held: &File, patience: Duration, pause: impl Fn()) -> io::Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        if is_locked(held.try_lock())? {
            return Ok(true);
        }
        if !is_locked(held.try_lock_shared())? || Instant::now() >= deadline {
            return Ok(false);
        }
        held.unlock()?;
        pause();
    }
}

fn is_locked(outcome: Result<(), TryLockError>) -> io::Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Opens the file for the state, with its blocks allocated unless the disk is full just now.
fn open_state(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o640);
    let state = options.custom_flags(CAREFUL).open(path).map_err(explain_link)?;
    let found = Facts::of(&state)?;
    if found.kind != Kind::File || found.links != 1 {
        // what is written here must not be written anywhere else
        return Err(not_ours(match found.kind {
            Kind::File => "a file that has other names, too",
            other => other.name(),
        }));
    }
    if found.bytes != BLOCK_BYTES as u64 {
        match state.set_len(0).and_then(|()| state.write_all_at(&sealed(b""), 0)) {
            Err(error) if !is_full(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(state)
}

/// Neither following a link nor waiting for a pipe.
const CAREFUL: libc::c_int = libc::O_NOFOLLOW | libc::O_NONBLOCK;

fn not_ours(found: &str) -> io::Error {
    let text = format!("expected a regular file of our own, found {found}");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn explain_link(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ELOOP) => not_ours(Kind::Link.name()),
        Some(libc::ENXIO) => not_ours(Kind::Socket.name()),
        _ => error,
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The state, padded with white space that holds its check sum: a reader may come while it is
/// written, and half of this and half of the last one can be JSON, too. To any other reader the
/// file is JSON and white space.
fn sealed(state: &[u8]) -> [u8; BLOCK_BYTES] {
    let mut block = [b' '; BLOCK_BYTES];
    block[..state.len()].copy_from_slice(state);
    block[BLOCK_BYTES - 1] = b'\n';
    let seal = &mut block[STATE_MAX_BYTES..BLOCK_BYTES - 1];
    let sum = sha2::Sha256::digest(state);
    for (bit, byte) in seal.iter_mut().enumerate() {
        if sum[bit / 8] >> (bit % 8) & 1 == 1 {
            *byte = b'\t';
        }
    }
    block
}

/// What can be seen of a spool's daemon from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peek {
    /// Whether one holds the lock.
    pub held: bool,
    /// What it (or, when none holds the lock, the last one) said of itself: JSON, without padding.
    /// None when nothing was said.
    pub state: Option<Vec<u8>>,
    /// Whether it has tried to say something else since, and could not.
    pub is_mute: bool,
}

/// Looks at the lock without getting in the way of a daemon that starts at the same moment. A spool
/// that is not there is not held.
///
/// # Errors
/// When the spool or the state cannot be read.
pub fn peek(root: &Path) -> io::Result<Peek> {
    let held = match File::open(root) {
        Ok(folder) => is_held(&folder)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Peek::default()),
        Err(error) => return Err(error),
    };
    let mut options = OpenOptions::new();
    let opened = options.read(true).custom_flags(CAREFUL).open(root.join(STATE_FILE));
    let (state, is_mute) = match opened.map_err(explain_link) {
        Ok(state) if Facts::of(&state)?.kind == Kind::File => {
            (read_state(&state)?, is_held(&state)?)
        }
        // nothing was said, or something else has the name
        Ok(_) => (None, false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (None, false),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => (None, false),
        Err(error) => return Err(error),
    };
    Ok(Peek { held, state, is_mute: held && is_mute })
}

/// Reads the state again until it is whole; none when there is none, or it never is.
fn read_state(file: &File) -> io::Result<Option<Vec<u8>>> {
    for attempt in 0..READS {
        if attempt > 0 {
            thread::sleep(READ_PAUSE);
        }
        let mut block = [0; BLOCK_BYTES];
        match file.read_exact_at(&mut block, 0) {
            Ok(()) => {}
            // the disk was full when it was made
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let state = block[..STATE_MAX_BYTES].trim_ascii_end();
        if sealed(state) == block {
            return Ok((!state.is_empty()).then(|| state.to_vec()));
        }
    }
    Ok(None)
}

/// Why a spool could not be locked.
#[derive(Debug)]
pub enum LockError {
    /// Another process has it.
    Held {
        /// The spool.
        root: PathBuf,
        /// What the holder says of itself (JSON), if it said anything.
        by: Option<String>,
    },
    /// The system refuses.
    Io {
        /// Where.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
}

impl LockError {
    /// Whether it may pass: the system refuses, and nothing that somebody put there is in the way.
    pub fn is_passing(&self) -> bool {
        match self {
            LockError::Held { .. } => false,
            // what we found ourselves, and a folder that has the name
            LockError::Io { source, .. } => {
                !matches!(source.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory)
            }
        }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::Held { root, by } => {
                write!(f, "another daemon holds the spool {}", shown_path(root))?;
                let state = by.as_deref().and_then(|by| serde_json::from_str::<Value>(by).ok());
                if let Some(pid) = state.and_then(|state| state["pid"].as_u64()) {
                    write!(f, " (pid {pid})")?;
                }
                f.write_str("; stop it first, or give this one a spool of its own")
            }
            LockError::Io { path, source } => {
                write!(f, "cannot lock the spool at {}: ", shown_path(path))?;
                match self.is_passing() {
                    true => f.write_str(&advice::explain(path, source)),
                    false => write!(f, "{source}; somebody else put it there: remove it"),
                }
            }
        }
    }
}

impl std::error::Error for LockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LockError::Io { source, .. } => Some(source),
            LockError::Held { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
