//! Who owns a file and who runs this process, in the names that an operator types.

use std::fmt;
use std::fs;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, Stat};

/// Who owns a file or a folder, and what its mode lets others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The number of the user.
    pub uid: u32,
    /// The number of the group.
    pub gid: u32,
    /// The permission bits, with those for setuid, setgid and sticky.
    pub mode: u32,
}

/// The user and the groups as which this process acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Me {
    uid: u32,
    // the first one is that of new files
    gids: Vec<u32>,
}

impl Owner {
    /// That of the file or folder of that name; a link is not followed. None when it cannot be
    /// looked at.
    pub fn of(path: &Path) -> Option<Owner> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::statat(rustix::fs::CWD, path, flags).ok().map(|found| Owner::new(&found))
    }

    fn new(found: &Stat) -> Owner {
        let mode = Mode::from_raw_mode(found.st_mode).bits() & 0o7777;
        Owner { uid: found.st_uid, gid: found.st_gid, mode }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}, mode {:04o}", user(self.uid), group(self.gid), self.mode)
    }
}

impl Me {
    /// As which this process acts now.
    pub fn now() -> Me {
        let mut gids = vec![rustix::process::getegid().as_raw()];
        let more = rustix::process::getgroups().unwrap_or_default();
        gids.extend(more.into_iter().map(rustix::process::Gid::as_raw));
        Me { uid: rustix::process::geteuid().as_raw(), gids }
    }

    /// The number of the user.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The number of the group that new files get.
    pub fn gid(&self) -> u32 {
        self.gids.first().copied().unwrap_or_default()
    }

    /// Whether it is in that group.
    pub fn is_in(&self, gid: u32) -> bool {
        self.gids.contains(&gid)
    }

    /// What to type so that this user may use the file in that way (`r`, `rw`, `rwx`): the least
    /// change for which owner, group and mode leave room. `path` stands as it is to be typed;
    /// `gid` is the group that producers and this user share, if they do.
    pub fn command(&self, owner: &Owner, rights: &str, path: &str, gid: Option<u32>) -> String {
        let bits = rights.chars().fold(0, |bits, c| bits | "xwr".find(c).map_or(0, |at| 1 << at));
        let shared = gid.filter(|gid| self.is_in(*gid)).unwrap_or_else(|| self.gid());
        if owner.uid == self.uid {
            format!("chmod u+{rights} {path}")
        } else if self.is_in(owner.gid) {
            format!("chmod g+{rights} {path}")
        } else if owner.mode >> 3 & bits == bits {
            format!("chgrp {} {path}", group(shared))
        } else if bits & 2 == 0 {
            format!("chgrp {} {path} && chmod g+{rights} {path}", group(shared))
        } else {
            format!("chown {} {path}", user(self.uid))
        }
    }
}

impl fmt::Display for Me {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut groups: Vec<u32> = self.gids.clone();
        groups.dedup();
        let groups: Vec<String> = groups.into_iter().take(8).map(group).collect();
        write!(f, "{} (groups: {})", user(self.uid), groups.join(", "))
    }
}

/// The name of a user; its number where the machine's own list has none.
pub fn user(uid: u32) -> String {
    name_in("/etc/passwd", uid).unwrap_or_else(|| uid.to_string())
}

/// The name of a group; its number where the machine's own list has none.
pub fn group(gid: u32) -> String {
    name_in("/etc/group", gid).unwrap_or_else(|| gid.to_string())
}

/// A user as `sudo -u` takes it.
pub fn user_for_sudo(uid: u32) -> String {
    name_in("/etc/passwd", uid).unwrap_or_else(|| format!("'#{uid}'"))
}

fn name_in(list: &str, id: u32) -> Option<String> {
    find_name(&fs::read_to_string(list).ok()?, id)
}

/// Both lists have the name first and the number third.
fn find_name(list: &str, id: u32) -> Option<String> {
    list.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_number() {
        let list = "root:x:0:0:root:/root:/bin/sh\n#\n\nwf:x:998:997::/:/bin/false\n";
        assert_eq!(find_name(list, 0).as_deref(), Some("root"));
        assert_eq!(find_name(list, 998).as_deref(), Some("wf"));
        assert_eq!(find_name(list, 997), None);
        assert_eq!(user(4_000_000_001), "4000000001");
        assert_eq!(user_for_sudo(4_000_000_001), "'#4000000001'");
    }

    /// Has failed for each of its rules left out.
    #[test]
    fn case_133_the_command_fits_owner_group_and_mode() {
        let me = Me { uid: 4_000_000_001, gids: vec![4_000_000_002, 4_000_000_003] };
        let owner = |uid: u32, gid: u32, mode| Owner { uid, gid, mode };
        let (mine, other) = (4_000_000_001, 4_000_000_009);
        for (owner, rights, expected) in [
            (owner(mine, other, 0o000), "r", "chmod u+r p"),
            (owner(other, 4_000_000_003, 0o600), "r", "chmod g+r p"),
            // the group may read already: the group is what is wrong
            (owner(other, other, 0o640), "r", "chgrp 4000000003 p"),
            (owner(other, other, 0o600), "r", "chgrp 4000000003 p && chmod g+r p"),
            (owner(other, other, 0o644), "rw", "chown 4000000001 p"),
            (owner(other, other, 0o770), "rwx", "chgrp 4000000003 p"),
        ] {
            let typed = me.command(&owner, rights, "p", Some(4_000_000_003));
            assert_eq!(typed, expected, "{owner}");
        }
        // a group that is not shared is of no use
        let typed = me.command(&owner(other, other, 0o640), "r", "p", Some(other));
        assert_eq!(typed, "chgrp 4000000002 p");
    }
}
