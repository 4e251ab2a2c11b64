//! A small disk of its own: an ext4 file system in a file, mounted for as long as this lives.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::deliveries::Dropped;
use crate::row::Unable;
use crate::world::World;

/// A file system that is mounted.
pub struct Mounted {
    folder: tempfile::TempDir,
    image: PathBuf,
    /// Serves the image, where that can be told to fail.
    server: Option<Child>,
}

/// Whether such a disk can be made here.
///
/// # Errors
/// Why not.
pub fn must_work() -> Result<(), Unable> {
    match Mounted::new(8, 1024, "defaults") {
        Ok(_) => Ok(()),
        Err(text) => Err(Unable(format!("no disk can be made (root, loop, e2fsprogs): {text}"))),
    }
}

impl Mounted {
    /// An empty one of so many MiB, in blocks of so many bytes.
    ///
    /// # Errors
    /// What a command said that failed.
    pub fn new(mib: u64, block_bytes: u64, options: &str) -> Result<Mounted, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let image = folder.path().join("image");
        let file = fs::File::create(&image).and_then(|file| file.set_len(mib << 20));
        file.map_err(|error| format!("{}: {error}", image.display()))?;
        Mounted { folder, image, server: None }.begin(block_bytes, options)
    }

    /// One that fails whenever it is told to.
    ///
    /// # Errors
    /// What a command said that failed.
    pub fn faulty(mib: u64) -> Result<Mounted, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let served = folder.path().join("served");
        fs::create_dir(&served).map_err(|error| error.to_string())?;
        let image = served.join("image");
        let mut server = Command::new("nbdfuse");
        server.arg(&image).args(["--command", "nbdkit", "-s", "--exit-with-parent"]);
        server.args(["--filter=error", "memory", &format!("{mib}M"), "error=EIO"]);
        server.arg("error-rate=100%").arg(format!("error-file={}", bad(folder.path()).display()));
        let server = server.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let server = server.map_err(|error| format!("nbdfuse: {error}"))?;
        let mut mounted = Mounted { folder, image, server: Some(server) };
        let until = Instant::now() + Duration::from_secs(30);
        while !mounted.image.exists() {
            let ended =
                mounted.server.as_mut().is_some_and(|it| !matches!(it.try_wait(), Ok(None)));
            if ended || Instant::now() > until {
                return Err("nbdfuse serves nothing: is there FUSE, and nbdkit?".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        mounted.begin(4096, "defaults")
    }

    fn begin(self, block_bytes: u64, options: &str) -> Result<Mounted, String> {
        fs::create_dir(self.path()).map_err(|error| error.to_string())?;
        let block_bytes = block_bytes.to_string();
        let mut mkfs = Command::new("mkfs.ext4");
        run(mkfs.args(["-qF", "-m", "0", "-b", &block_bytes]).arg(&self.image))?;
        let options = format!("loop,{options}");
        run(Command::new("mount").args(["-o", &options]).arg(&self.image).arg(self.path()))?;
        Ok(self)
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// A world whose spool lies on it. What the daemon says is kept elsewhere.
    pub fn world(&self) -> World {
        let world = World::new();
        let spool = self.path().join("spool");
        fs::create_dir_all(spool.join("inbox")).unwrap();
        fs::remove_dir_all(world.spool()).unwrap();
        std::os::unix::fs::symlink(spool, world.spool()).unwrap();
        world
    }

    /// How many KiB are free.
    pub fn free_kib(&self) -> u64 {
        let seen = rustix::fs::statvfs(self.path()).unwrap();
        seen.f_bavail * seen.f_frsize / 1024
    }

    /// From now on, or no longer, each read and write of the disk fails.
    ///
    /// # Errors
    /// When that cannot be said.
    pub fn set_bad(&self, is_bad: bool) -> Result<(), String> {
        let bad = bad(self.folder.path());
        let done = if is_bad { fs::write(bad, "") } else { fs::remove_file(bad) };
        done.map_err(|error| format!("the switch of the disk: {error}"))
    }

    /// Whether the kernel lets nobody write any more.
    pub fn is_read_only(&self) -> bool {
        let probe = self.path().join("probe");
        let written = fs::write(&probe, "x").and_then(|()| fs::remove_file(&probe));
        written.is_err_and(|error| error.kind() == std::io::ErrorKind::ReadOnlyFilesystem)
    }

    /// Has the kernel meet an error within the file system.
    ///
    /// # Errors
    /// When it cannot be asked for.
    pub fn trigger_error(&self) -> Result<(), String> {
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(|error| error.to_string())?;
        let shown = self.path().display().to_string();
        let device = mounts.lines().find_map(|line| {
            let (device, rest) = line.split_once(' ')?;
            rest.starts_with(&format!("{shown} ")).then_some(device)
        });
        let name = device.and_then(|device| Path::new(device).file_name()).unwrap_or_default();
        let trigger = Path::new("/sys/fs/ext4").join(name).join("trigger_fs_error");
        fs::write(&trigger, "1").map_err(|error| format!("{}: {error}", trigger.display()))
    }

    /// The kernel may take a moment longer than a process to close its files.
    fn unmount(&self) -> Result<(), String> {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            match run(Command::new("umount").arg(self.path())) {
                Err(text) if Instant::now() > until => return Err(text),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Checks it and mounts it again, writable: what is seen then is what lies on it.
    ///
    /// # Errors
    /// What a command said that failed.
    pub fn mend(&self) -> Result<(), String> {
        self.unmount()?;
        // 1: it found something and mended it
        let checked = Command::new("fsck.ext4").arg("-fp").arg(&self.image).output();
        let checked = checked.map_err(|error| format!("fsck.ext4: {error}"))?;
        if checked.status.code().is_none_or(|code| code >= 4) {
            return Err(format!("fsck.ext4: {}", String::from_utf8_lossy(&checked.stdout)));
        }
        run(Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(self.path()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // whatever still uses it: the folder must go
        let umount = |path: &Path| {
            let mut umount = Command::new("umount");
            let _ = umount.args(["-q", "-l"]).arg(path).stderr(Stdio::null()).status();
        };
        umount(&self.path());
        if let Some(mut server) = self.server.take() {
            umount(&self.folder.path().join("served"));
            // it ends with its mount; if not, so
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Writes files into the inbox under names that are left alone, durable.
pub fn stage(world: &World, files: &[Dropped]) {
    fs::create_dir_all(world.inbox().join("press")).unwrap();
    for (number, file) in files.iter().enumerate() {
        let path = world.inbox().join(format!(".{number}"));
        fs::write(&path, &file.bytes).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
    }
    fs::File::open(world.inbox()).unwrap().sync_all().unwrap();
}

/// Gives some of these their names, in order; answers whether it could.
pub fn show(world: &World, files: &[Dropped], which: std::ops::Range<usize>) -> bool {
    which.into_iter().all(|number| {
        let from = world.inbox().join(format!(".{number}"));
        let shown = fs::rename(from, world.inbox().join(&files[number].name));
        // it has it already
        shown.is_ok() || shown.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    })
}

/// The file that makes the disk fail as long as it is there.
fn bad(folder: &Path) -> PathBuf {
    folder.join("bad")
}

/// Runs a command to its end.
///
/// # Errors
/// What it said, when it failed.
pub fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{name}: {error}")),
    }
}
