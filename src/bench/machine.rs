//! Where it was measured: without this, no figure says anything.

use std::fs;
use std::path::Path;
use std::thread;

use serde::Serialize;

use super::drain::number_after;

/// The machine, and what runs on it. What cannot be told is left empty.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The model of the processor, as the kernel names it.
    pub cpu: String,
    /// How many of its cores this process may use.
    pub cores: usize,
    /// Main memory.
    pub memory_bytes: u64,
    /// The release of the kernel.
    pub kernel: String,
    /// The type of the file system that the spool and the store lay on.
    pub file_system: String,
    /// This program.
    pub windowflow: &'static str,
    /// The SQLite in it.
    pub sqlite: &'static str,
    /// It was built with all optimisations; figures of any other build say nothing.
    pub optimised: bool,
}

impl Machine {
    /// What can be seen from here; the file system is that of the folder.
    pub(super) fn of(folder: &Path) -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpus = read("/proc/cpuinfo");
        let model = cpus.lines().find_map(|line| {
            line.strip_prefix("model name").or_else(|| line.strip_prefix("Model"))
        });
        let memory_kib = number_after(&read("/proc/meminfo"), "MemTotal:").unwrap_or(0);
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        Machine {
            cpu: model.map_or("", |model| model.trim_start_matches([' ', '\t', ':'])).to_owned(),
            cores: thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: memory_kib * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            file_system: file_system(&read("/proc/self/mountinfo"), &folder),
            windowflow: env!("CARGO_PKG_VERSION"),
            sqlite: rusqlite::version(),
            optimised: !cfg!(debug_assertions),
        }
    }

    /// Whether the folder lies in memory, where a sync costs nothing.
    pub fn is_in_memory(&self) -> bool {
        ["tmpfs", "ramfs"].contains(&self.file_system.as_str())
    }
}

/// The type of the mount that a folder lies on: the one with the longest name, and of those the one
/// that was mounted last.
fn file_system(mounts: &str, folder: &Path) -> String {
    let mounts = mounts.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let point = Path::new(mount.split(' ').nth(4)?);
        let depth = folder.starts_with(point).then(|| point.components().count())?;
        Some((depth, kind.split(' ').next()?))
    });
    mounts.max_by_key(|(depth, _)| *depth).map_or_else(String::new, |(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_lies_on_the_deepest_mount_above_it() {
        let mounts = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                      30 22 0:26 / /run rw shared:1 - tmpfs tmpfs rw\n\
                      31 22 0:27 / /run/disk rw - xfs /dev/vdb rw\n\
                      32 22 0:27 / /run/disk rw - btrfs /dev/vdc rw\n";
        for (folder, kind) in
            [("/tmp/a", "ext4"), ("/run/a", "tmpfs"), ("/run/disk/a", "btrfs"), ("/runner", "ext4")]
        {
            assert_eq!(file_system(mounts, Path::new(folder)), kind, "{folder}");
        }
        assert_eq!(file_system("", Path::new("/tmp")), "");
    }

    #[test]
    fn this_machine_is_known() {
        let machine = Machine::of(Path::new("/"));
        assert!(machine.cores > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(!machine.kernel.is_empty() && !machine.file_system.is_empty(), "{machine:?}");
    }
}
