//! Who besides the daemon could change or read what lies in the spool: folders that are open to
//! everybody or belong to somebody else, and the modes of the files that are made there.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use super::name::{shown_path, typed};
use super::{Spool, folder};

/// The most that files of ours may be used for: read and written by the owner, read by the group.
const FILE_MODE: u32 = 0o640;

/// Makes files that this process creates 0640 and folders 0750, whatever the umask was.
pub fn set_umask() {
    rustix::process::umask(Mode::from_raw_mode(0o027));
}

/// Takes from the files of the store and from those in which the daemon keeps notes what others may
/// do with them: who may read a store can lock it. Only files of our own are changed; says what was
/// done, and what was left since it belongs to somebody else.
pub fn tighten(spool: &Spool, db: &Path) -> Vec<String> {
    let beside = |ending: &str| {
        let mut name = db.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let notes = [super::lock::STATE_FILE, super::in_flight::TRYING_FILE];
    let files = [db.to_owned(), beside("-wal"), beside("-shm")];
    let files = files.into_iter().chain(notes.map(|name| spool.root().join(name)));
    let uid = rustix::process::geteuid().as_raw();
    files.filter_map(|path| tighten_one(&path, uid)).collect()
}

/// By name: to open and close the file of a store would drop locks on it.
fn tighten_one(path: &Path, uid: u32) -> Option<String> {
    let stat = rustix::fs::stat(path).ok()?;
    let mode = Mode::from_raw_mode(stat.st_mode).bits();
    if mode & 0o777 & !FILE_MODE == 0 {
        return None;
    }
    let tight = mode & 0o777 & FILE_MODE;
    let (shown, typed) = (shown_path(path), typed(path));
    let what = format!("{shown} had mode {mode:04o}, by which others can read or lock it");
    let is_done = stat.st_uid == uid && rustix::fs::chmod(path, Mode::from_raw_mode(tight)).is_ok();
    Some(match is_done {
        true => format!("{what}; it is {tight:04o} now"),
        false => format!(
            "{what}; expected: {tight:04o}; it belongs to uid {}; run: chmod {tight:04o} {typed}",
            stat.st_uid
        ),
    })
}

/// A folder that others can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loose {
    path: PathBuf,
    is_inbox: bool,
    // who runs windowflow
    uid: u32,
    found: Found,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Everybody may write to it; with these bits of its mode.
    OpenToAll(u32),
    /// Its owner, who is neither root nor who runs windowflow.
    Foreign(u32),
}

/// The folders of the spool, and the one that the store lies in, that others can change. One that
/// cannot be looked at is left out: whoever needs it says so.
pub fn loose(spool: &Spool, db: &Path) -> Vec<Loose> {
    let uid = rustix::process::geteuid().as_raw();
    let (root, inbox) = (spool.root(), spool.inbox());
    let mut folders = vec![root, inbox, spool.done(), spool.failed(), spool.reports()];
    folders.extend(db.parent().filter(|folder| *folder != root && !folder.as_os_str().is_empty()));
    let look = |path: &Path| {
        let stat = rustix::fs::fstat(folder::open(path).ok()?).ok()?;
        let mode = Mode::from_raw_mode(stat.st_mode).bits();
        let path = path.to_owned();
        Some(judge(stat.st_uid, mode, uid).map(|found| Loose {
            is_inbox: path == inbox,
            path,
            uid,
            found,
        }))
    };
    folders.into_iter().filter_map(look).flatten().collect()
}

/// The more dangerous comes first: an owner can open a folder to all, too.
fn judge(owner: u32, mode: u32, uid: u32) -> Option<Found> {
    if owner != 0 && owner != uid {
        return Some(Found::Foreign(owner));
    }
    (mode & 0o002 != 0).then_some(Found::OpenToAll(mode & 0o7777))
}

impl fmt::Display for Loose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loose { path, uid, .. } = self;
        let (shown, typed) = (shown_path(path), typed(path));
        match self.found {
            Found::Foreign(owner) => write!(
                f,
                "the folder {shown} belongs to uid {owner}, who can rename and remove all that \
                 lies in it; expected: uid {uid}, which runs windowflow, or root; run: chown {uid} \
                 {typed}"
            ),
            Found::OpenToAll(mode) if self.is_inbox => write!(
                f,
                "everybody on this machine can put files into {shown} (mode {mode:04o}){}; \
                 expected: only a group of producers, as with mode 3730; run: chmod o-w {typed}",
                // without it, they can also do so with the files of others
                if mode & 0o1000 == 0 { ", and remove or replace those of others" } else { "" }
            ),
            Found::OpenToAll(mode) => write!(
                f,
                "everybody on this machine can change what lies in {shown} (mode {mode:04o}); \
                 expected: only uid {uid}, which runs windowflow; run: chmod o-w {typed}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_others_can_change_is_told() {
        let me = 100;
        for (owner, mode, expected) in [
            (me, 0o755, None),
            (0, 0o755, None),
            // the recommended inbox, and a shared one
            (me, 0o3730, None),
            (me, 0o2775, None),
            (me, 0o777, Some(Found::OpenToAll(0o777))),
            (0, 0o1777, Some(Found::OpenToAll(0o1777))),
            (101, 0o700, Some(Found::Foreign(101))),
            (101, 0o777, Some(Found::Foreign(101))),
        ] {
            assert_eq!(judge(owner, mode, me), expected, "{owner} {mode:o}");
        }
        assert_eq!(judge(0, 0o700, 0), None);
        assert_eq!(judge(me, 0o700, 0), Some(Found::Foreign(me)));
    }

    #[test]
    fn case_122_files_of_the_store_are_closed_to_others_and_no_right_is_added() {
        use std::fs;
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let db = dir.path().join("w.db");
        let modes = [("w.db", 0o644), ("w.db-wal", 0o666), ("w.db-shm", 0o600), ("other", 0o666)];
        for (name, mode) in modes {
            let path = dir.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let said = tighten(&spool, &db);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("mode 0644") && said[0].ends_with("it is 0640 now"), "{said:?}");
        let mode =
            |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(modes.map(|(name, _)| mode(name)), [0o640, 0o640, 0o600, 0o666]);
        assert!(tighten(&spool, &db).is_empty());
    }

    #[test]
    fn what_to_type_can_be_typed() {
        assert_eq!(typed(Path::new("/var/spool/wf-1")), "/var/spool/wf-1");
        assert_eq!(typed(Path::new("/my spool/it's")), r"'/my spool/it'\''s'");
    }
}
