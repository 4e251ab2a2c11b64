//! Hints that something happened in the inbox. They only make a scan come sooner: what they miss,
//! a scan finds.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use notify::event::{AccessKind, AccessMode, CreateKind, ModifyKind, RenameMode};
use notify::{Config, ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::folder::{self, Facts, FileId};
use super::name::shown_path;
use super::{name, scan};
use crate::os::disk_space::network_file_system;

/// The most hints that wait to be heard.
const CAPACITY: usize = 4096;

/// The most files in the making of which it is remembered that a hint was made.
const MAX_WRITING: usize = 1024;

/// What the watch has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Something happened that has no name in the inbox: look at all of it.
    Look,
    /// Something changed at this path, or came to be there: look at it.
    Changed(PathBuf),
    /// A file (or a folder) was renamed to this path: it came as a whole; look at it.
    MovedIn(PathBuf),
    /// The kernel or we lost count: look at all, and do not trust that there were no other hints.
    Rescan,
    /// The watch is no more, and why: look at all by time, and start another watch.
    Dead(String),
}

/// A channel as the watch likes it: bounded, since the watch never waits.
pub fn channel() -> (Sender<Hint>, Receiver<Hint>) {
    crossbeam_channel::bounded(CAPACITY)
}

/// A watch on an inbox and the folders in it. It ends when it is dropped.
#[derive(Debug)]
pub struct Watch {
    // none only while it is dropped
    watcher: Option<RecommendedWatcher>,
    inbox: PathBuf,
    // not held open: the kernel would not tell then that it is removed
    watched: FileId,
    shared: Arc<Shared>,
}

/// What the watch and its thread tell each other.
#[derive(Debug, Default)]
struct Shared {
    // hints were lost, and no `Rescan` could be sent for them yet
    rescan_owed: AtomicBool,
    // a `Dead` that could not be sent yet
    dead_owed: Mutex<Option<String>>,
    // the watch is being dropped: its end is no news
    closing: AtomicBool,
    // the thread is gone
    ended: AtomicBool,
}

/// Starts watching. To be done before the first scan, so that nothing falls in between.
///
/// The hints never block the watch: when `hints` is full they are dropped, and [`Watch::owed`]
/// makes up for them. A capacity of at least 1 is needed; [`channel`] has a good one.
///
/// # Errors
/// See [`WatchError`]. The daemon can go on without a watch, scanning by time.
pub fn start(inbox: &Path, hints: Sender<Hint>) -> Result<Watch, WatchError> {
    let inbox = std::path::absolute(inbox).map_err(|error| WatchError::io(inbox, error))?;
    let watched = which_folder(&inbox).map_err(|error| WatchError::io(&inbox, error))?;
    let shared = Arc::<Shared>::default();
    let handler = Handler {
        inbox: inbox.clone(),
        hints,
        shared: Arc::clone(&shared),
        writing: HashSet::new(),
        last_in: None,
        last: None,
    };
    let config = Config::default().with_follow_symlinks(false);
    let watcher =
        RecommendedWatcher::new(handler, config).map_err(|error| WatchError::new(&inbox, error))?;
    let mut watch = Watch { watcher: Some(watcher), inbox, watched, shared };
    watch.add_folders()?;
    Ok(watch)
}

impl Watch {
    fn add_folders(&mut self) -> Result<(), WatchError> {
        // the library panics when it is asked after its thread ended (or never started)
        if self.shared.ended.load(Ordering::SeqCst) {
            let error = io::Error::other("the thread of the watch could not be started");
            return Err(WatchError::io(&self.inbox, error));
        }
        let Some(watcher) = self.watcher.as_mut() else { return Ok(()) };
        let Err(error) = watcher.watch(&self.inbox, RecursiveMode::Recursive) else {
            return Ok(());
        };
        if is_limit(&error) || error.paths.contains(&self.inbox) {
            return Err(WatchError::new(&self.inbox, error));
        }
        // One folder went away, or may not be read, and the rest was left out: add one by one. The
        // inbox itself, and with it any folder to come, is watched by now.
        let at = |error| WatchError::io(&self.inbox, error);
        let held = folder::open(&self.inbox).map_err(at)?;
        for (name, _) in scan::list(&held).map_err(at)? {
            if folder::open_sub(&held, &name).is_err() {
                continue;
            }
            match watcher.watch(&self.inbox.join(name), RecursiveMode::NonRecursive) {
                Err(error) if is_limit(&error) => return Err(WatchError::new(&self.inbox, error)),
                // what cannot be watched is found by scanning
                _ => {}
            }
        }
        Ok(())
    }

    /// A hint that found no place in the channel. To be asked for when the channel was emptied.
    pub fn owed(&self) -> Option<Hint> {
        let dead = self.shared.dead_owed.lock().unwrap_or_else(PoisonError::into_inner).take();
        match dead {
            Some(why) => Some(Hint::Dead(why)),
            None => self.shared.rescan_owed.swap(false, Ordering::SeqCst).then_some(Hint::Rescan),
        }
    }

    /// Whether the path of the inbox still leads to the folder that is watched. To be asked with
    /// every scan by time: when a folder above is renamed, or a file system is mounted over it or
    /// taken away, the watch stays silent.
    pub fn is_current(&self) -> bool {
        let is_same = which_folder(&self.inbox).is_ok_and(|now| now == self.watched);
        is_same && !self.shared.ended.load(Ordering::SeqCst)
    }
}

fn which_folder(path: &Path) -> io::Result<FileId> {
    Ok(Facts::of(folder::open(path)?)?.file)
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        if self.shared.ended.load(Ordering::SeqCst) {
            // the library would panic when it cannot tell its thread to end
            std::mem::forget(self.watcher.take());
        }
    }
}

/// Lives on the thread of the watch.
struct Handler {
    inbox: PathBuf,
    hints: Sender<Hint>,
    shared: Arc<Shared>,
    // files of which a write was reported, and no end of writing since
    writing: HashSet<PathBuf>,
    // a rename within the inbox is reported twice
    last_in: Option<PathBuf>,
    // the hint that was sent last
    last: Option<Hint>,
}

impl notify::EventHandler for Handler {
    fn handle_event(&mut self, event: notify::Result<Event>) {
        let hint = match event {
            Ok(event) => self.hint_once(&event),
            Err(error) => Some(Hint::Dead(WatchError::new(&self.inbox, error).to_string())),
        };
        if self.shared.rescan_owed.swap(false, Ordering::SeqCst) {
            self.send(Hint::Rescan);
        }
        if let Some(hint) = hint {
            self.send(hint);
        }
    }
}

impl Handler {
    /// The hint of an event, less those that repeat what was said: every block of a file in the
    /// making is an event, and a look for each of them would be a look without end.
    fn hint_once(&mut self, event: &Event) -> Option<Hint> {
        let path = event.paths.last();
        match event.kind {
            EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Any) => {
                let is_news = path.is_none_or(|path| self.begin_writing(path));
                return hint_of(&self.inbox, event).filter(|_| is_news);
            }
            // what is written to it after that is no news until it is closed
            EventKind::Create(kind) if kind != CreateKind::Folder => {
                if let Some(path) = path {
                    self.begin_writing(path);
                }
            }
            EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Create(_)
            | EventKind::Remove(_)
            | EventKind::Modify(ModifyKind::Name(_)) => {
                for path in &event.paths {
                    self.writing.remove(path);
                }
            }
            _ => {}
        }
        let last_in = self.last_in.take();
        let hint = hint_of(&self.inbox, event);
        if let Some(Hint::MovedIn(path)) = &hint {
            let mode = event.kind;
            let is_both = mode == EventKind::Modify(ModifyKind::Name(RenameMode::Both));
            if is_both && last_in.as_ref() == Some(path) {
                return None;
            }
            self.last_in = Some(path.clone());
        }
        hint
    }

    /// Notes that a file is being written; whether that is news.
    fn begin_writing(&mut self, path: &Path) -> bool {
        if self.writing.len() >= MAX_WRITING {
            self.writing.clear();
        }
        self.writing.insert(path.to_owned())
    }

    /// Sends a hint without ever waiting. The same hint twice in a row adds nothing while the first
    /// is yet to be heard: the look that it leads to begins after this moment.
    fn send(&mut self, hint: Hint) {
        let waiting = self.hints.len();
        if waiting > 0 && self.last.as_ref() == Some(&hint) && !matches!(hint, Hint::Dead(_)) {
            return;
        }
        self.last = Some(hint.clone());
        let outcome = match hint {
            // the caller's channel may have no bound
            hint if waiting >= CAPACITY => Err(TrySendError::Full(hint)),
            hint => self.hints.try_send(hint),
        };
        match outcome {
            Err(TrySendError::Full(Hint::Dead(why))) => {
                let owed = &self.shared.dead_owed;
                *owed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            }
            Err(TrySendError::Full(_)) => {
                self.last = None;
                self.shared.rescan_owed.store(true, Ordering::SeqCst);
            }
            // nobody listens any more
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
        }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        if !self.shared.closing.load(Ordering::SeqCst) {
            self.send(Hint::Dead("the thread of the watch ended".to_owned()));
        }
    }
}

/// What an event means. Opening, reading and closing after reading mean nothing: scans do that.
fn hint_of(inbox: &Path, event: &Event) -> Option<Hint> {
    // an overflow has this flag and no path
    if event.need_rescan() {
        return Some(Hint::Rescan);
    }
    // of a rename that names both, the new name
    let path = event.paths.last()?;
    if path == inbox {
        return hint_of_inbox(event.kind, inbox);
    }
    let below = path.strip_prefix(inbox).ok()?;
    let names: Vec<&OsStr> = below.iter().collect();
    let depth = names.len();
    if depth > 2 || names.iter().any(|name| name::is_hidden(name.as_bytes())) {
        return None;
    }
    let is_left_alone = names.last().is_some_and(|name| name::is_ignored(name.as_bytes()));
    match event.kind {
        EventKind::Create(CreateKind::Folder) => Some(Hint::Changed(path.clone())),
        // it may be a folder, which is taken under such a name
        EventKind::Modify(ModifyKind::Name(RenameMode::To | RenameMode::Both))
            if is_left_alone && depth == 1 =>
        {
            Some(Hint::Changed(path.clone()))
        }
        _ if is_left_alone => None,
        EventKind::Modify(ModifyKind::Name(RenameMode::To | RenameMode::Both)) => {
            Some(Hint::MovedIn(path.clone()))
        }
        EventKind::Modify(ModifyKind::Name(RenameMode::From)) | EventKind::Remove(_) => None,
        EventKind::Modify(ModifyKind::Metadata(_)) => None,
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
            Some(Hint::Changed(path.clone()))
        }
        EventKind::Access(_) => None,
        // created, linked in or written to; and what is not told apart is looked at
        EventKind::Create(_) | EventKind::Modify(_) | EventKind::Any | EventKind::Other => {
            Some(Hint::Changed(path.clone()))
        }
    }
}

fn hint_of_inbox(kind: EventKind, inbox: &Path) -> Option<Hint> {
    let gone = |how| Some(Hint::Dead(format!("the inbox {} was {how}", shown_path(inbox))));
    match kind {
        EventKind::Remove(_) => gone("removed"),
        EventKind::Modify(ModifyKind::Name(RenameMode::From)) => gone("renamed"),
        // its rights may have changed
        EventKind::Modify(_) | EventKind::Create(_) => Some(Hint::Look),
        _ => None,
    }
}

/// The file system that the inbox lies on, when files can come to it of which the kernel does not
/// tell.
pub fn far_file_system(inbox: &Path) -> Option<&'static str> {
    let found = rustix::fs::fstatfs(folder::open(inbox).ok()?).ok()?;
    network_file_system(&found)
}

/// Why the inbox cannot be watched. Scanning by time goes on without.
#[derive(Debug)]
pub enum WatchError {
    /// The kernel's limit of watches (folders) per user is reached: nothing to do with disks.
    TooManyWatches(PathBuf),
    /// The kernel's limit of watching programs per user, or of open files, is reached.
    TooManyInstances(PathBuf),
    /// The system refuses.
    Io(PathBuf, io::Error),
}

impl WatchError {
    fn io(inbox: &Path, error: io::Error) -> WatchError {
        WatchError::Io(inbox.to_owned(), error)
    }

    fn new(inbox: &Path, error: notify::Error) -> WatchError {
        let path = error.paths.into_iter().next().unwrap_or_else(|| inbox.to_owned());
        match error.kind {
            ErrorKind::MaxFilesWatch => WatchError::TooManyWatches(path),
            ErrorKind::Io(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                WatchError::TooManyInstances(path)
            }
            ErrorKind::Io(error) => WatchError::Io(path, error),
            ErrorKind::PathNotFound => WatchError::Io(path, io::ErrorKind::NotFound.into()),
            other => WatchError::Io(path, io::Error::other(notify::Error::new(other))),
        }
    }
}

fn is_limit(error: &notify::Error) -> bool {
    matches!(error.kind, ErrorKind::MaxFilesWatch)
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WatchError::TooManyWatches(path) => write!(
                f,
                "cannot watch {}: the limit of inotify watches is reached, which is not a full \
                 disk; raise it with `sysctl fs.inotify.max_user_watches=524288`",
                shown_path(path)
            ),
            WatchError::TooManyInstances(path) => write!(
                f,
                "cannot watch {}: too many inotify instances or open files; raise the limit with \
                 `sysctl fs.inotify.max_user_instances=1024`, or that of open files (LimitNOFILE=)",
                shown_path(path)
            ),
            WatchError::Io(path, error) => {
                write!(f, "cannot watch {}: {error}", shown_path(path))
            }
        }
    }
}

impl std::error::Error for WatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            WatchError::Io(_, error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
