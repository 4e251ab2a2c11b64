//! Who besides the daemon could change what lies in the spool: folders that are open to everybody,
//! or that belong to somebody else.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use super::name::shown_path;
use super::{Spool, folder};

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

/// The path as it can be typed into a shell.
pub(super) fn typed(path: &Path) -> String {
    let shown = shown_path(path);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    match shown.chars().all(is_plain) {
        true => shown,
        false => format!("'{}'", shown.replace('\'', r"'\''")),
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
    fn what_to_type_can_be_typed() {
        assert_eq!(typed(Path::new("/var/spool/wf-1")), "/var/spool/wf-1");
        assert_eq!(typed(Path::new("/my spool/it's")), r"'/my spool/it'\''s'");
    }
}
