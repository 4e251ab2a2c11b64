//! What the process is told from outside: dump a report, read the configuration again, stop.

use std::io;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, bounded};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::exit::Exit;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// SIGUSR1: a report, now.
    Report,
    /// SIGHUP: the configuration, again.
    Reload,
    /// SIGTERM or SIGINT: stop.
    Stop,
}

/// From here on a write past the size that this process may give a file (`ulimit -f`) fails, with
/// `EFBIG`, instead of ending the process without a word (SIGXFSZ).
pub fn catch_file_limit() {
    // where it cannot be caught, the process ends as it would have
    let _ = signal_hook::flag::register(libc::SIGXFSZ, Arc::default());
}

/// Catches the signals from now on; to be called first of all, so that none is lost or kills while
/// the rest starts. A second signal to stop ends the process at once: whatever was being written is
/// undone when the store is opened again, and its file is still in the inbox.
///
/// # Errors
/// When the system refuses the handlers or the thread.
pub fn start() -> io::Result<Receiver<Asked>> {
    let mut signals = Signals::new([SIGUSR1, SIGHUP, SIGTERM, SIGINT])?;
    let (tell, told) = bounded(16);
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            let asked = match signal {
                SIGUSR1 => Asked::Report,
                SIGHUP => Asked::Reload,
                _ if stopping => {
                    log::warn!("told to stop a second time: stopping at once");
                    std::process::exit(Exit::Failed as i32);
                }
                _ => {
                    stopping = true;
                    Asked::Stop
                }
            };
            // a full queue means that as much is asked for already; a stop is never left out
            let delivered = match asked {
                Asked::Stop => tell.send(asked).is_ok(),
                _ => !matches!(
                    tell.try_send(asked),
                    Err(crossbeam_channel::TrySendError::Disconnected(_))
                ),
            };
            if !delivered && !stopping {
                return;
            }
        }
    })?;
    Ok(told)
}
