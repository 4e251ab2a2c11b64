//! Disks: why something could not be written to one, in words (bytes, inodes, a quota, or a limit of
//! this process), and which of them others can change.

use std::path::Path;

use rustix::fs::StatFs;
use rustix::process::Resource;

/// From so many free bytes on, a disk that is said to be full is not full of bytes.
const MANY_BYTES: u64 = 16 << 20;

/// How many bytes an ordinary user can still write below that folder or beside that file; none when
/// that cannot be told.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let seen = rustix::fs::statvfs(path).ok()?;
    Some(seen.f_bavail.saturating_mul(seen.f_frsize))
}

/// What is free on the file system of a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Free {
    /// How many bytes an ordinary user can still write.
    pub bytes: u64,
    /// How many more files it can hold, and how many it can hold in all; none where it has no
    /// fixed number.
    pub inodes: Option<(u64, u64)>,
}

impl Free {
    /// That of the file system that a folder or file lies on; none when that cannot be told.
    pub fn on(path: &Path) -> Option<Free> {
        let seen = rustix::fs::statvfs(path).ok()?;
        let bytes = seen.f_bavail.saturating_mul(seen.f_frsize);
        let inodes = (seen.f_files > 0).then_some((seen.f_favail, seen.f_files));
        Some(Free { bytes, inodes })
    }
}

/// The words for a disk that has no room at `folder` for what was to be written, such as `disk full:
/// 12,288 bytes free on /state`, and what to do. `is_quota`: the system says that it is a quota.
pub fn no_room(folder: &Path, free: Option<Free>, is_quota: bool) -> (String, &'static str) {
    let place = folder.display();
    let Some(free) = free else {
        let what = if is_quota { "quota used up" } else { "disk full" };
        return (format!("{what}: how much is free on {place} cannot be told"), MAKE_ROOM);
    };
    let bytes = grouped(free.bytes);
    if is_quota {
        let what = format!("quota used up on {place}, though {bytes} bytes are free there");
        return (what, RAISE_QUOTA);
    }
    match free.inodes {
        Some((0, all)) => {
            let what = format!(
                "no inodes left: 0 of {} free on {place}, though {bytes} bytes are",
                grouped(all)
            );
            (what, REMOVE_FILES)
        }
        _ if free.bytes >= MANY_BYTES => {
            let what = format!("no room on {place}, though {bytes} bytes are free there");
            (what, LOOK_AT_QUOTAS)
        }
        _ => (format!("disk full: {bytes} bytes free on {place}"), MAKE_ROOM),
    }
}

/// What to do about a disk without room.
pub const MAKE_ROOM: &str = "free some space there (or raise its quota), and it goes on by itself";

const RAISE_QUOTA: &str = "raise the quota of the user, group or project that windowflow's files \
                           count for (quota, setquota), or remove files that count for it, and it \
                           goes on by itself";

const REMOVE_FILES: &str = "remove files there, however small, or move them to another file \
                            system, and it goes on by itself (df -i shows inodes)";

const LOOK_AT_QUOTAS: &str = "a quota, or room that is kept for root, is used up: look at quota -u, \
                              df and df -i; it goes on by itself";

/// The most bytes that a file may have that this process writes; none when there is no such limit.
pub fn file_limit_bytes() -> Option<u64> {
    rustix::process::getrlimit(Resource::Fsize).current
}

/// The words for a file that would have more bytes than this process may write, and what to do.
pub fn too_large() -> (String, &'static str) {
    let limit = file_limit_bytes().map_or_else(
        || "the file would be larger than the file system takes".to_owned(),
        |bytes| format!("this process may write no file of more than {} bytes", grouped(bytes)),
    );
    (limit, "raise its limit (ulimit -f, or LimitFSIZE= under systemd), then start it again")
}

/// The name of the file system, where it is one of a network, or another that machines or programs
/// can change without this kernel's doing: locks and shared memory cannot be relied on there, and
/// the kernel does not tell of all files that come to it.
pub fn network_file_system(seen: &StatFs) -> Option<&'static str> {
    // the kernel keeps the magic number in 32 bits; some machines widen it with its sign
    network_name(seen.f_type as u32)
}

/// The same by the magic number that `statfs` gives.
fn network_name(f_type: u32) -> Option<&'static str> {
    Some(match f_type {
        0x0000_6969 => "NFS",
        0x0000_517b => "SMB",
        0xff53_4d42 => "CIFS",
        0xfe53_4d42 => "SMB2",
        0x6573_5546 => "FUSE",
        0x0102_1997 => "9P",
        0x00c3_6400 => "Ceph",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x0000_564c => "NCP",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x7461_636f => "OCFS2",
        0x0116_1970 => "GFS2",
        0x786f_4256 => "VirtualBox shared folder",
        0x1983_0326 => "BeeGFS",
        0xaad7_aaea => "PanFS",
        _ => return None,
    })
}

/// The number with its thousands set apart, as `12,288`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let shown = [0, 999, 1000, 12_288, u64::MAX].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "12,288", "18,446,744,073,709,551,615"]);
    }

    #[test]
    fn local_file_systems_are_no_network() {
        let ext4 = 0xef53;
        let (xfs, btrfs, tmpfs, overlay, zfs) =
            (0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1);
        for local in [ext4, xfs, btrfs, tmpfs, overlay, zfs] {
            assert_eq!(network_name(local), None, "{local:#x}");
        }
        assert_eq!(network_name(0x6969), Some("NFS"));
        assert_eq!(network_name(0xff53_4d42_u32 as i32 as i64 as u32), Some("CIFS"));
        assert_eq!(network_name(0x6573_5546), Some("FUSE"));
    }

    #[test]
    fn the_room_of_a_place_is_known_and_that_of_nowhere_is_not() {
        assert!(free_bytes(Path::new("/")).is_some());
        assert_eq!(free_bytes(Path::new("/no/such/place")), None);
        assert!(Free::on(Path::new("/")).is_some());
        assert_eq!(Free::on(Path::new("/no/such/place")), None);
    }

    /// Has failed for each kind taken for full.
    #[test]
    fn case_133_bytes_inodes_and_quotas_are_told_apart() {
        let said = |bytes, inodes, is_quota| {
            let free = Some(Free { bytes, inodes });
            let (what, fix) = no_room(Path::new("/state"), free, is_quota);
            format!("{what}; {fix}")
        };
        let inodes = Some((7, 1024));
        let full = said(12_288, inodes, false);
        assert!(full.starts_with("disk full: 12,288 bytes free on /state; free some"), "{full}");
        assert!(said(12_288, None, false).starts_with("disk full: 12,288"), "without inodes");
        for (text, expected) in [
            (said(56_624_128, Some((0, 1024)), false), "no inodes left: 0 of 1,024 free on /state"),
            (said(56_624_128, inodes, true), "quota used up on /state, though 56,624,128"),
            (said(56_624_128, inodes, false), "no room on /state, though 56,624,128 bytes"),
        ] {
            assert!(text.starts_with(expected) && !text.contains("disk full"), "{text}");
        }
        let (unknown, _) = no_room(Path::new("/state"), None, false);
        assert_eq!(unknown, "disk full: how much is free on /state cannot be told");
    }
}
