//! What a fault means: the file's own, or ours; how far it reaches, whether it may pass, and what to
//! do. All of it stands in the two tables here, and nothing else decides.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::exit::Exit;
use crate::model::refusal::Code;
use crate::spool::advice;
use crate::store;

/// A fault that is not the file's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How far it reaches.
    pub reach: Scope,
    /// The exit code of a process that gives up over it.
    pub exit: Exit,
    /// Its kind, by which it is known again: `busy`, `unread EIO`.
    pub kind: String,
    /// What is wrong, where, and what to do.
    pub text: String,
}

/// How far a fault of ours reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// It may pass, and stands in the way of this file only.
    File,
    /// It may pass, and stands in the way of the files in the folder of this file's source.
    Folder,
    /// It may pass, and stands in the way of all.
    Spool,
    /// It looks lasting, but what passes can look the same: worth one more try.
    Suspect,
    /// It does not pass by itself.
    Lasting,
}

/// Whose fault it is that the system refuses something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// The file's: it is refused with that code.
    TheFiles(Code),
    /// Ours, so far.
    Ours(Scope),
}

/// What the system refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// To open, read or sync a file of the inbox.
    File,
    /// Anything with the folders of the spool, or to have a thread.
    Spool,
}

/// What one answer of the system means.
struct ErrorRow {
    errno: Errno,
    name: &'static str,
    of_file: Blame,
    of_spool: Scope,
}

const fn row(errno: Errno, name: &'static str, of_file: Scope) -> ErrorRow {
    ErrorRow { errno, name, of_file: Blame::Ours(of_file), of_spool: Scope::Spool }
}

const LEASE: &str = "its writer holds a lease on it (F_SETLEASE), and it is taken when that ends";

/// Every answer that means something of its own. A fault with one file leaves the others alone,
/// unless what is missing is missing for all of them.
#[rustfmt::skip]
const ERRNOS: &[ErrorRow] = &[
    ErrorRow {
        errno: Errno::ACCESS,
        name: "EACCES",
        of_file: Blame::TheFiles(Code::Unreadable),
        of_spool: Scope::Spool,
    },
    ErrorRow {
        errno: Errno::PERM,
        name: "EPERM",
        of_file: Blame::TheFiles(Code::Unreadable),
        of_spool: Scope::Spool,
    },
    row(Errno::NOSPC,       "ENOSPC",       Scope::Spool),
    // what a file may take is counted for its owner
    row(Errno::DQUOT,       "EDQUOT",       Scope::File),
    row(Errno::ROFS,        "EROFS",        Scope::Spool),
    row(Errno::MFILE,       "EMFILE",       Scope::Spool),
    row(Errno::NFILE,       "ENFILE",       Scope::Spool),
    row(Errno::NOMEM,       "ENOMEM",       Scope::Spool),
    row(Errno::NOLCK,       "ENOLCK",       Scope::Spool),
    // somebody else holds a lease on it; with a thread, there is no room for one
    row(Errno::AGAIN,       "EAGAIN",       Scope::File),
    row(Errno::IO,          "EIO",          Scope::File),
    row(Errno::UCLEAN,      "EUCLEAN",      Scope::File),
    row(Errno::BADMSG,      "EBADMSG",      Scope::File),
    row(Errno::STALE,       "ESTALE",       Scope::File),
    row(Errno::NOTCONN,     "ENOTCONN",     Scope::File),
    row(Errno::TIMEDOUT,    "ETIMEDOUT",    Scope::File),
    row(Errno::NAMETOOLONG, "ENAMETOOLONG", Scope::File),
    row(Errno::NOENT,       "ENOENT",       Scope::File),
    // the limit of this process, which holds for every file that it writes
    row(Errno::FBIG,        "EFBIG",        Scope::Spool),
    row(Errno::XDEV,        "EXDEV",        Scope::File),
];

/// Any other.
const OTHER: ErrorRow = row(Errno::IO, "other", Scope::File);

fn of_errno(error: &io::Error) -> &'static ErrorRow {
    let errno = advice::errno(error);
    let found = errno.and_then(|errno| ERRNOS.iter().find(|row| row.errno == errno));
    found.unwrap_or(&OTHER)
}

/// Whose fault it is.
pub(super) fn blame_of(error: &io::Error) -> Blame {
    of_errno(error).of_file
}

/// The kind of a fault of the store, how far it reaches, and the exit code of who gives up over it.
#[rustfmt::skip]
fn of_store(error: &store::Error) -> (&'static str, Scope, Exit) {
    use store::Error as E;
    match error {
        E::Busy(_)              => ("busy",           Scope::Spool,   Exit::Again),
        E::Full(_)              => ("full",           Scope::Spool,   Exit::Again),
        E::Io(_)                => ("io",             Scope::Spool,   Exit::Failed),
        E::Unknown(_)           => ("unknown",        Scope::Spool,   Exit::Again),
        // a lock that others hold where it cannot be seen looks the same
        E::Stuck(_)             => ("stuck",          Scope::Suspect, Exit::Again),
        // SQLite calls a page that could not be read damaged, too
        E::Corrupt(_)           => ("damaged",        Scope::Suspect, Exit::Failed),
        E::Missing(_)           => ("missing",        Scope::Lasting, Exit::Missing),
        E::NewerSchema(_)       => ("newer",          Scope::Lasting, Exit::Config),
        E::OlderSchema(_)       => ("older",          Scope::Lasting, Exit::Config),
        E::Misplaced(_)         => ("misplaced",      Scope::Lasting, Exit::Config),
        E::OtherSettings { .. } => ("other settings", Scope::Lasting, Exit::Config),
        // one that an act meets; that of a batch is the file's
        E::Overflow(_)          => ("overflow",       Scope::Lasting, Exit::Refused),
    }
}

impl From<&store::Error> for Failure {
    fn from(error: &store::Error) -> Failure {
        let (kind, reach, exit) = of_store(error);
        Failure { reach, exit, kind: kind.to_owned(), text: error.to_string() }
    }
}

impl Failure {
    /// A refusal of the system that stands in the way of all files: what kind of thing could not be
    /// done, what exactly, and where.
    pub fn with_spool(kind: &str, what: &str, path: &Path, error: &io::Error) -> Failure {
        Failure::of_system(Operation::Spool, kind, what, path, error)
    }

    /// A fault that may pass and stands in the way of all files, of a kind of its own.
    pub fn passing(kind: &str, text: impl Into<String>) -> Failure {
        let kind = kind.to_owned();
        Failure { reach: Scope::Spool, exit: Exit::Again, kind, text: text.into() }
    }

    pub(super) fn of_system(
        doing: Operation,
        kind: &str,
        what: &str,
        path: &Path,
        error: &io::Error,
    ) -> Failure {
        let row = of_errno(error);
        let reach = match (doing, row.of_file) {
            (Operation::File, Blame::Ours(reach)) => reach,
            // open for reading all the same: the file is not to blame any more
            (Operation::File, Blame::TheFiles(_)) => Scope::File,
            (Operation::Spool, _) => row.of_spool,
        };
        let text = match (doing, row.errno) {
            (Operation::File, Errno::AGAIN) => {
                format!("{what}: {}: {error}; {LEASE}", path.display())
            }
            _ => format!("{what}: {}: {}", path.display(), advice::explain(path, error)),
        };
        Failure { reach, exit: Exit::Again, kind: format!("{kind} {}", row.name), text }
    }

    /// Whether trying again is of no use.
    pub fn is_final(&self) -> bool {
        matches!(self.reach, Scope::Suspect | Scope::Lasting)
    }

    /// Whether the files of other producers are not concerned: they go on.
    pub fn is_of_one(&self) -> bool {
        matches!(self.reach, Scope::File | Scope::Folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::settings::Settings;

    /// All of the first table: what it means for one file, and for the spool, and the words of the
    /// fix.
    #[test]
    fn every_answer_of_the_system_has_its_class_and_its_fix() {
        use Scope::{File, Spool};
        let refused = Blame::TheFiles(Code::Unreadable);
        let ours = Blame::Ours;
        let expected = [
            ("EACCES", refused, "the right to read, write and search"),
            ("EPERM", refused, "the right to read, write and search"),
            ("ENOSPC", ours(Spool), "it goes on by itself"),
            ("EDQUOT", ours(File), "raise the quota"),
            ("EROFS", ours(Spool), "ReadWritePaths="),
            ("EMFILE", ours(Spool), "LimitNOFILE="),
            ("ENFILE", ours(Spool), "fs.file-max"),
            ("ENOMEM", ours(Spool), "MemoryMax="),
            ("ENOLCK", ours(Spool), "no more locks"),
            ("EAGAIN", ours(File), "TasksMax="),
            ("EIO", ours(File), "kernel's log"),
            ("EUCLEAN", ours(File), "fsck"),
            ("EBADMSG", ours(File), "fsck"),
            ("ESTALE", ours(File), "mount it again"),
            ("ENOTCONN", ours(File), "mount it again"),
            ("ETIMEDOUT", ours(File), "mount it again"),
            ("ENAMETOOLONG", ours(File), "shorter name"),
            ("ENOENT", ours(File), "make the folder again"),
            ("EFBIG", ours(Spool), "LimitFSIZE="),
            ("EXDEV", ours(File), "mount of its own"),
        ];
        assert_eq!(ERRNOS.len(), expected.len());
        let folder = Path::new("/");
        for (row, (name, of_file, fix)) in ERRNOS.iter().zip(expected) {
            let error = io::Error::from(row.errno);
            assert_eq!((row.name, blame_of(&error)), (name, of_file));
            let failure = Failure::with_spool("not moved", "cannot move a", folder, &error);
            let kind = format!("not moved {name}");
            assert_eq!((failure.kind, failure.reach, failure.exit), (kind, Spool, Exit::Again));
            let text = &failure.text;
            assert!(text.starts_with("cannot move a: /: ") && text.contains(fix), "{text}");
            let is_full = matches!(name, "ENOSPC" | "EDQUOT");
            assert_eq!(
                text.contains("free on /") || text.contains("free there"),
                is_full,
                "{text}"
            );
        }
        let leased = io::Error::from(Errno::AGAIN);
        let failure =
            Failure::of_system(Operation::File, "unread", "cannot read a", folder, &leased);
        assert!(failure.text.ends_with(LEASE) && failure.reach == File, "{}", failure.text);
        let odd = io::Error::from(Errno::RANGE);
        assert_eq!(blame_of(&odd), ours(File));
        let failure = Failure::of_system(Operation::File, "unread", "cannot read a", folder, &odd);
        assert_eq!((failure.kind.as_str(), failure.reach), ("unread other", File));
        assert!(failure.text.ends_with("the kernel's log"), "{}", failure.text);
    }

    #[test]
    fn what_has_no_number_is_known_by_its_kind() {
        for (kind, name) in [
            (io::ErrorKind::PermissionDenied, "EACCES"),
            (io::ErrorKind::OutOfMemory, "ENOMEM"),
            (io::ErrorKind::InvalidFilename, "ENAMETOOLONG"),
            (io::ErrorKind::UnexpectedEof, "other"),
        ] {
            assert_eq!(of_errno(&kind.into()).name, name);
        }
    }

    /// All of the second table.
    #[test]
    fn every_fault_of_the_store_has_its_class_and_its_exit_code() {
        use Scope::{Lasting, Spool, Suspect};
        use store::Error as E;
        let text = || "the place; the fix".to_owned();
        let settings = Settings::new(1, 0).unwrap();
        for (error, kind, reach, exit) in [
            (E::Busy(text()), "busy", Spool, 75),
            (E::Full(text()), "full", Spool, 75),
            (E::Io(text()), "io", Spool, 1),
            (E::Unknown(text()), "unknown", Spool, 75),
            (E::Stuck(text()), "stuck", Suspect, 75),
            (E::Corrupt(text()), "damaged", Suspect, 1),
            (E::Missing(text()), "missing", Lasting, 66),
            (E::NewerSchema(text()), "newer", Lasting, 78),
            (E::Misplaced(text()), "misplaced", Lasting, 78),
            (E::OtherSettings { stored: settings, asked: settings }, "other settings", Lasting, 78),
            (E::Overflow(Vec::new()), "overflow", Lasting, 65),
        ] {
            let failure = Failure::from(&error);
            let found = (failure.kind.as_str(), failure.reach, failure.exit as i32);
            assert_eq!(found, (kind, reach, exit));
            // a command that is no daemon ends with the same code
            assert_eq!(failure.exit, Exit::of_store(&error), "{kind}");
            assert_eq!(failure.text, error.to_string());
            assert_eq!(failure.is_final(), matches!(reach, Suspect | Lasting), "{kind}");
        }
    }
}
