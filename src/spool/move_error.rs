//! Why a file was not moved from one folder of the spool to another.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use super::advice;
use super::name::shown_path;

/// Why a file was not moved.
#[derive(Debug)]
pub enum MoveError {
    /// Another file has the name now. It is left in the inbox, to be taken as a file of its own.
    Replaced,
    /// The file was written to since it was opened. It is left in the inbox, to be read again.
    Changed,
    /// Nothing has that name any more.
    Gone,
    /// The system refuses, at that path: no fault of the file.
    Io(PathBuf, io::Error),
}

impl MoveError {
    pub(super) fn of(error: io::Error, path: PathBuf) -> MoveError {
        match error.kind() {
            io::ErrorKind::NotFound => MoveError::Gone,
            _ => MoveError::Io(path, error),
        }
    }
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MoveError::Replaced => f.write_str(
                "another file took the name while this one was read; it is left in place and taken \
                 next",
            ),
            MoveError::Changed => f.write_str(
                "the file was written to while it was read; it is left in place and read again \
                 (write under a name that ends in .tmp and rename when done)",
            ),
            MoveError::Gone => f.write_str("the file is gone"),
            MoveError::Io(path, error) => write!(
                f,
                "cannot move a file at {}: {}",
                shown_path(path),
                advice::explain(path, error)
            ),
        }
    }
}

impl std::error::Error for MoveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MoveError::Io(_, error) => Some(error),
            _ => None,
        }
    }
}

pub(super) fn io_at(path: &Path, error: io::Error) -> MoveError {
    MoveError::Io(path.to_owned(), error)
}
