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
pub struct Trouble {
    /// How far it reaches.
    pub reach: Reach,
    /// The exit code of a process that gives up over it.
    pub exit: Exit,
    /// Its kind, by which it is known again: `busy`, `unread EIO`.
    pub kind: String,
    /// What is wrong, where, and what to do.
    pub text: String,
}

/// How far a fault of ours reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
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
pub(super) enum Whose {
    /// The file's: it is refused with that code.
    TheFiles(Code),
    /// Ours, so far.
    Ours(Reach),
}

/// What the system refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// To open, read or sync a file of the inbox.
    File,
    /// Anything with the folders of the spool, or to have a thread.
    Spool,
}

/// What one answer of the system means.
struct Row {
    errno: Errno,
    name: &'static str,
    of_file: Whose,
    of_spool: Reach,
}

const fn row(errno: Errno, name: &'static str, of_file: Reach) -> Row {
    Row { errno, name, of_file: Whose::Ours(of_file), of_spool: Reach::Spool }
}

const LEASE: &str = "its writer holds a lease on it (F_SETLEASE), and it is taken when that ends";

/// Every answer that means something of its own. A fault with one file leaves the others alone,
/// unless what is missing is missing for all of them.
#[rustfmt::skip]
const ERRNOS: &[Row] = &[
    Row {
        errno: Errno::ACCESS,
        name: "EACCES",
        of_file: Whose::TheFiles(Code::Unreadable),
        of_spool: Reach::Spool,
    },
    Row {
        errno: Errno::PERM,
        name: "EPERM",
        of_file: Whose::TheFiles(Code::Unreadable),
        of_spool: Reach::Spool,
    },
    row(Errno::NOSPC,       "ENOSPC",       Reach::Spool),
    // what a file may take is counted for its owner
    row(Errno::DQUOT,       "EDQUOT",       Reach::File),
    row(Errno::ROFS,        "EROFS",        Reach::Spool),
    row(Errno::MFILE,       "EMFILE",       Reach::Spool),
    row(Errno::NFILE,       "ENFILE",       Reach::Spool),
    row(Errno::NOMEM,       "ENOMEM",       Reach::Spool),
    row(Errno::NOLCK,       "ENOLCK",       Reach::Spool),
    // somebody else holds a lease on it; with a thread, there is no room for one
    row(Errno::AGAIN,       "EAGAIN",       Reach::File),
    row(Errno::IO,          "EIO",          Reach::File),
    row(Errno::UCLEAN,      "EUCLEAN",      Reach::File),
    row(Errno::BADMSG,      "EBADMSG",      Reach::File),
    row(Errno::STALE,       "ESTALE",       Reach::File),
    row(Errno::NOTCONN,     "ENOTCONN",     Reach::File),
    row(Errno::TIMEDOUT,    "ETIMEDOUT",    Reach::File),
    row(Errno::NAMETOOLONG, "ENAMETOOLONG", Reach::File),
    row(Errno::NOENT,       "ENOENT",       Reach::File),
    // the limit of this process, which holds for every file that it writes
    row(Errno::FBIG,        "EFBIG",        Reach::Spool),
    row(Errno::XDEV,        "EXDEV",        Reach::File),
];

/// Any other.
const OTHER: Row = row(Errno::IO, "other", Reach::File);

fn of_errno(error: &io::Error) -> &'static Row {
    let errno = advice::errno(error);
    let found = errno.and_then(|errno| ERRNOS.iter().find(|row| row.errno == errno));
    found.unwrap_or(&OTHER)
}

/// Whose fault it is.
pub(super) fn whose(error: &io::Error) -> Whose {
    of_errno(error).of_file
}

/// The kind of a fault of the store, how far it reaches, and the exit code of who gives up over it.
#[rustfmt::skip]
fn of_store(error: &store::Error) -> (&'static str, Reach, Exit) {
    use store::Error as E;
    match error {
        E::Busy(_)              => ("busy",           Reach::Spool,   Exit::Again),
        E::Full(_)              => ("full",           Reach::Spool,   Exit::Again),
        E::Io(_)                => ("io",             Reach::Spool,   Exit::Failed),
        E::Unknown(_)           => ("unknown",        Reach::Spool,   Exit::Again),
        // a lock that others hold where it cannot be seen looks the same
        E::Stuck(_)             => ("stuck",          Reach::Suspect, Exit::Again),
        // SQLite calls a page that could not be read damaged, too
        E::Corrupt(_)           => ("damaged",        Reach::Suspect, Exit::Failed),
        E::Missing(_)           => ("missing",        Reach::Lasting, Exit::Missing),
        E::NewerSchema(_)       => ("newer",          Reach::Lasting, Exit::Config),
        E::OlderSchema(_)       => ("older",          Reach::Lasting, Exit::Config),
        E::Misplaced(_)         => ("misplaced",      Reach::Lasting, Exit::Config),
        E::OtherSettings { .. } => ("other settings", Reach::Lasting, Exit::Config),
        // one that an act meets; that of a batch is the file's
        E::Overflow(_)          => ("overflow",       Reach::Lasting, Exit::Refused),
    }
}

impl From<&store::Error> for Trouble {
    fn from(error: &store::Error) -> Trouble {
        let (kind, reach, exit) = of_store(error);
        Trouble { reach, exit, kind: kind.to_owned(), text: error.to_string() }
    }
}

impl Trouble {
    /// A refusal of the system that stands in the way of all files: what kind of thing could not be
    /// done, what exactly, and where.
    pub fn with_spool(kind: &str, what: &str, path: &Path, error: &io::Error) -> Trouble {
        Trouble::of_system(Doing::Spool, kind, what, path, error)
    }

    /// A fault that may pass and stands in the way of all files, of a kind of its own.
    pub fn passing(kind: &str, text: impl Into<String>) -> Trouble {
        let kind = kind.to_owned();
        Trouble { reach: Reach::Spool, exit: Exit::Again, kind, text: text.into() }
    }

    pub(super) fn of_system(
        doing: Doing,
        kind: &str,
        what: &str,
        path: &Path,
        error: &io::Error,
    ) -> Trouble {
        let row = of_errno(error);
        let reach = match (doing, row.of_file) {
            (Doing::File, Whose::Ours(reach)) => reach,
            // open for reading all the same: the file is not to blame any more
            (Doing::File, Whose::TheFiles(_)) => Reach::File,
            (Doing::Spool, _) => row.of_spool,
        };
        let text = match (doing, row.errno) {
            (Doing::File, Errno::AGAIN) => {
                format!("{what}: {}: {error}; {LEASE}", path.display())
            }
            _ => format!("{what}: {}: {}", path.display(), advice::explain(path, error)),
        };
        Trouble { reach, exit: Exit::Again, kind: format!("{kind} {}", row.name), text }
    }

    /// Whether trying again is of no use.
    pub fn is_final(&self) -> bool {
        matches!(self.reach, Reach::Suspect | Reach::Lasting)
    }

    /// Whether the files of other producers are not concerned: they go on.
    pub fn is_of_one(&self) -> bool {
        matches!(self.reach, Reach::File | Reach::Folder)
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
        use Reach::{File, Spool};
        let refused = Whose::TheFiles(Code::Unreadable);
        let ours = Whose::Ours;
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
            assert_eq!((row.name, whose(&error)), (name, of_file));
            let trouble = Trouble::with_spool("not moved", "cannot move a", folder, &error);
            let kind = format!("not moved {name}");
            assert_eq!((trouble.kind, trouble.reach, trouble.exit), (kind, Spool, Exit::Again));
            let text = &trouble.text;
            assert!(text.starts_with("cannot move a: /: ") && text.contains(fix), "{text}");
            let is_full = matches!(name, "ENOSPC" | "EDQUOT");
            assert_eq!(
                text.contains("free on /") || text.contains("free there"),
                is_full,
                "{text}"
            );
        }
        let leased = io::Error::from(Errno::AGAIN);
        let trouble = Trouble::of_system(Doing::File, "unread", "cannot read a", folder, &leased);
        assert!(trouble.text.ends_with(LEASE) && trouble.reach == File, "{}", trouble.text);
        let odd = io::Error::from(Errno::RANGE);
        assert_eq!(whose(&odd), ours(File));
        let trouble = Trouble::of_system(Doing::File, "unread", "cannot read a", folder, &odd);
        assert_eq!((trouble.kind.as_str(), trouble.reach), ("unread other", File));
        assert!(trouble.text.ends_with("the kernel's log"), "{}", trouble.text);
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
        use Reach::{Lasting, Spool, Suspect};
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
            let trouble = Trouble::from(&error);
            let found = (trouble.kind.as_str(), trouble.reach, trouble.exit as i32);
            assert_eq!(found, (kind, reach, exit));
            // a command that is no daemon ends with the same code
            assert_eq!(trouble.exit, Exit::of_store(&error), "{kind}");
            assert_eq!(trouble.text, error.to_string());
            assert_eq!(trouble.is_final(), matches!(reach, Suspect | Lasting), "{kind}");
        }
    }
}
