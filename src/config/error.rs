//! Why a configuration is refused: all that is wrong with it, each with its place.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::spool::advice;

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The key with its table, as `inbox.settle_ms`; none for a file that is no TOML.
    pub key: Option<String>,
    /// What was expected and what was found.
    pub message: String,
}

/// Why a file is refused as a whole. It has no effect then.
#[derive(Debug)]
pub enum ConfigError {
    /// It cannot be read.
    Unreadable {
        /// Its path as given.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It says what cannot be.
    Invalid {
        /// Its path as given; none for a text from elsewhere.
        path: Option<PathBuf>,
        /// All that is wrong, in the order of the file; never empty.
        problems: Vec<Problem>,
    },
}

impl ConfigError {
    pub(super) fn invalid(problems: Vec<Problem>) -> ConfigError {
        ConfigError::Invalid { path: None, problems }
    }

    /// Whether it is not the file that is wrong: the machine or a limit of this process is.
    pub fn is_passing(&self) -> bool {
        let ConfigError::Unreadable { error, .. } = self else { return false };
        let limits = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO];
        advice::errno(error).is_some_and(|errno| limits.contains(&errno))
    }

    pub(super) fn in_file(self, path: &Path) -> ConfigError {
        match self {
            ConfigError::Invalid { problems, .. } => {
                ConfigError::Invalid { path: Some(path.to_owned()), problems }
            }
            unreadable => unreadable,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Unreadable { path, error } if error.kind() == io::ErrorKind::NotFound => {
                write!(f, "there is no configuration file {path:?}: check the path")
            }
            ConfigError::Unreadable { path, error } => {
                write!(f, "the configuration file {path:?} cannot be read: ")?;
                match advice::errno(error) {
                    Some(Errno::ACCESS | Errno::PERM) => f.write_str(&advice::explain(path, error)),
                    _ if self.is_passing() => f.write_str(&advice::explain(path, error)),
                    _ => write!(f, "{error}"),
                }
            }
            ConfigError::Invalid { path, problems } => {
                for (at, problem) in problems.iter().enumerate() {
                    let Problem { line, column, key, message } = problem;
                    f.write_str(if at == 0 { "" } else { "\n" })?;
                    match path {
                        Some(path) => write!(f, "{path:?}, line {line}, column {column}: ")?,
                        None => write!(f, "line {line}, column {column}: ")?,
                    }
                    match key {
                        Some(key) => write!(f, "{key}: {message}")?,
                        None => f.write_str(message)?,
                    }
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ConfigError {}
