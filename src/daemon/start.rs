//! What a start does before there is a worker: it takes the lock of the spool, waits out what may
//! pass, and leaves a note where it fails.

use std::path::Path;
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::backoff::Backoff;
use super::faults::ShownFault;
use super::faults::{FaultPart, Faults};
use super::lost_store::last_state;
use super::signals::Asked;
use super::state::{DaemonState, Phase};
use super::systemd::Notifier;
use super::{Job, Stopped};
use crate::exit::Exit;
use crate::model::clock::Clock;
use crate::spool::lock::{self, Lock, LockError};
use crate::spool::name::shown_path;

/// Takes the lock of the spool. What is in the way and may pass is waited out, as it is while the
/// daemon runs, unless it is to run once; none when it was told to stop meanwhile.
pub(super) fn lock(
    job: &Job,
    notifier: &Notifier,
    asked: &Receiver<Asked>,
) -> Result<Option<Lock>, Stopped> {
    let (mut backoff, mut faults) = (Backoff::new(&job.config), Faults::default());
    loop {
        let error = match Lock::take(&job.spool) {
            Ok(lock) => {
                if let Some(line) = faults.pass(FaultPart::Spool) {
                    line.log();
                }
                return Ok(Some(lock));
            }
            Err(error) if !error.is_passing() => return Err(not_locked(&error)),
            Err(error) => error.to_string(),
        };
        if job.once {
            return Err(Stopped::new(Exit::Again, error));
        }
        backoff.next();
        if let Some(line) = faults.meet(FaultPart::Spool, "lock", &error, Instant::now()) {
            line.log();
        }
        // nothing can be published without the lock, but systemd can be told
        notifier.status(&format!("{}: {error}", Phase::BackingOff.name()));
        notifier.ready();
        if is_stopped(asked, &backoff, notifier) {
            return Ok(None);
        }
    }
}

/// Waits until the next try; whether it was told to stop meanwhile.
fn is_stopped(asked: &Receiver<Asked>, backoff: &Backoff, notifier: &Notifier) -> bool {
    loop {
        notifier.watchdog();
        match asked.recv_timeout(backoff.left(Instant::now())) {
            Ok(Asked::Report | Asked::Reload) => {}
            Ok(Asked::Stop) | Err(RecvTimeoutError::Disconnected) => {
                notifier.stopping();
                return true;
            }
            Err(RecvTimeoutError::Timeout) => return false,
        }
    }
}

fn not_locked(error: &LockError) -> Stopped {
    let LockError::Held { root, by } = error else {
        return Stopped::new(Exit::Failed, error.to_string());
    };
    let holder = by.as_deref().and_then(|state| serde_json::from_str::<DaemonState>(state).ok());
    let holder = holder.map_or_else(String::new, |state| format!(" (pid {})", state.pid));
    let text = format!(
        "another daemon{holder} has the spool {}: stop it first, or give this one a spool of its \
         own",
        shown_path(root)
    );
    Stopped::new(Exit::Again, text)
}

/// Leaves in the spool why a start failed before there was a daemon, for `status`. A running daemon,
/// a spool that is not there and one that cannot be written to are left alone.
pub fn note_failure(spool: &Path, text: &str) {
    let last = match lock::peek(spool) {
        // the state of the last daemon is there: this is a spool
        Ok(peek) if !peek.held => peek.state,
        _ => None,
    };
    let Some(last) = last else { return };
    let Ok(mut lock) = Lock::take(spool) else { return };
    let state = last_state(&last).unwrap_or_default();
    let now_ms = Clock::System.now_ms();
    let state = DaemonState {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at_ms: now_ms,
        updated_at_ms: now_ms,
        phase: Phase::Stopped,
        fault: Some(ShownFault { text: text.to_owned(), since_ms: now_ms, tries: 1 }),
        also: Vec::new(),
        file: None,
        ..state
    };
    // it is told to whoever started it in any case
    let _ = lock.publish(&state.published());
}
