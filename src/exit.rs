//! How a process ends, for scripts and service managers.

use crate::store;

/// The exit codes. They are public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It did what was asked.
    Done = 0,
    /// It failed for a reason that nobody planned for.
    Failed = 1,
    /// It was called wrongly.
    Usage = 2,
    /// A batch was refused.
    Refused = 65,
    /// There is no such file or store.
    Missing = 66,
    /// It is busy or out of room: try again.
    Again = 75,
    /// The settings or the configuration do not fit.
    Config = 78,
}

impl Exit {
    /// What a fault of the store means for the process.
    pub fn of_store(error: &store::Error) -> Exit {
        match error {
            store::Error::Busy(_)
            | store::Error::Stuck(_)
            | store::Error::Full(_)
            | store::Error::Unknown(_) => Exit::Again,
            store::Error::Missing(_) => Exit::Missing,
            store::Error::NewerSchema(_)
            | store::Error::OlderSchema(_)
            | store::Error::Misplaced(_)
            | store::Error::OtherSettings { .. } => Exit::Config,
            store::Error::Overflow(_) => Exit::Refused,
            store::Error::Io(_) | store::Error::Corrupt(_) => Exit::Failed,
        }
    }
}
