//! Tries, from inside the unit's sandbox, what the daemon must and must not be able to do.
//!
//! Prints one line per attempt, `NAME allowed` or `NAME denied: REASON`; judges nothing. Built with
//! plain `rustc`: it must start where the daemon starts, with nothing beside it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::ptr;

unsafe extern "C" {
    fn fcntl(fd: i32, command: i32, ...) -> i32;
    fn mmap(at: *mut u8, len: usize, prot: i32, flags: i32, fd: i32, offset: i64) -> *mut u8;
    fn unshare(flags: i32) -> i32;
    fn mlock(at: *const u8, len: usize) -> i32;
    fn sethostname(name: *const u8, len: usize) -> i32;
    fn setuid(uid: u32) -> i32;
}

fn main() {
    let spool = Path::new("/var/spool/windowflow");
    say("write-spool", write(&spool.join("done/probe")));
    say("rename-inbox-to-done", rename_to_done(spool));
    say("write-store-folder", write(Path::new("/var/lib/windowflow/probe")));
    say("write-tmp", write(Path::new("/tmp/probe")));
    say("unix-socket", UnixDatagram::unbound().map(drop));
    say("run-kill", run("/usr/bin/kill", &["-0", "1"]));
    say("read-drop", File::open(spool.join("inbox/.foreign")).map(drop));
    say("lease-foreign", lease(&spool.join("inbox/.foreign")));

    say("write-usr", write(Path::new("/usr/probe")));
    say("write-etc", write(Path::new("/etc/probe")));
    say("write-var-lib", write(Path::new("/var/lib/probe")));
    say("write-open-folder", write(Path::new("/srv/open/probe")));
    say("read-home", fs::read_dir("/home/alice").map(drop));
    say("udp-socket", UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map(drop));
    say("tcp-socket", TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(drop));
    say("run-true", run("/usr/bin/true", &[]));
    for folder in ["/var/lib/windowflow", "/var/spool/windowflow/done", "/tmp", "/dev/shm"] {
        say(&format!("run-own-file-in-{folder}"), run_own_file(folder));
    }
    say("see-other-processes", File::open("/proc/1/comm").map(drop));
    say("read-proc-sys", fs::read("/proc/sys/kernel/osrelease").map(drop));
    say("setuid-file", setuid_file());
    // SAFETY: the calls touch no memory of this program but what they are given
    unsafe {
        let page = mmap(ptr::null_mut(), 4096, 7, 0x22, -1, 0);
        say("write-and-execute-memory", check(if page as isize == -1 { -1 } else { 0 }));
        say("user-namespace", check(unshare(0x1000_0000)));
        say("lock-memory", check(mlock(ptr::from_ref(&0).cast(), 1)));
        say("host-name", check(sethostname(b"probe".as_ptr(), 5)));
        say("become-root", check(setuid(0)));
    }
}

fn say(name: &str, outcome: io::Result<()>) {
    match outcome {
        Ok(()) => println!("{name} allowed"),
        Err(error) => println!("{name} denied: {error}"),
    }
}

fn check(status: i32) -> io::Result<()> {
    if status == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn write(path: &Path) -> io::Result<()> {
    fs::write(path, "probe")?;
    fs::remove_file(path)
}

fn rename_to_done(spool: &Path) -> io::Result<()> {
    let from = spool.join("inbox/.probe");
    fs::write(&from, "probe")?;
    let moved = fs::rename(&from, spool.join("done/.probe"));
    let _ = fs::remove_file(&from);
    moved?;
    fs::remove_file(spool.join("done/.probe"))
}

fn run(program: &str, arguments: &[&str]) -> io::Result<()> {
    // that it was started is the question, not how it ended
    Command::new(program).args(arguments).output().map(drop)
}

fn run_own_file(folder: &str) -> io::Result<()> {
    let path = format!("{folder}/probe-copy");
    fs::copy("/usr/bin/true", &path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    let ran = run(&path, &[]);
    fs::remove_file(&path)?;
    ran
}

fn setuid_file() -> io::Result<()> {
    let path = "/var/lib/windowflow/probe-setuid";
    File::create(path)?;
    let changed = fs::set_permissions(path, fs::Permissions::from_mode(0o4755));
    fs::remove_file(path)?;
    changed
}

/// A read lease and its release, on a file that another user owns.
fn lease(path: &Path) -> io::Result<()> {
    const F_SETLEASE: i32 = 1024;
    const F_RDLCK: i32 = 0;
    const F_UNLCK: i32 = 2;
    let file = OpenOptions::new().read(true).open(path)?;
    // SAFETY: plain calls on a descriptor that is open for as long as `file` lives
    unsafe {
        check(fcntl(file.as_raw_fd(), F_SETLEASE, F_RDLCK))?;
        check(fcntl(file.as_raw_fd(), F_SETLEASE, F_UNLCK))
    }
}
