//! Tests of the spool's folders and entries, and how the other tests run as an ordinary user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{RwLock, RwLockReadGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use super::folder::Facts;
use super::probe::PROBE;
use super::*;

/// Says to go on for an ordinary user. For root, whom no permission stops, it runs the test of that
/// name again as an ordinary user instead, which must succeed.
#[must_use]
pub(super) fn is_ordinary_user(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    // where any user may run it
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut command = Command::new(&copy);
    command.args(["--exact", test, "--nocapture"]).current_dir("/").uid(65534).gid(65534);
    let child = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "as an ordinary user: {said}{errors}");
    assert!(said.contains("1 passed"), "there is no test {test}: {said}");
    false
}

/// Held for reading by tests that look at who has a file open or locked, and for writing while
/// another starts a process: until that runs its own program, it has all our files open, too.
static QUIET: RwLock<()> = RwLock::new(());

/// Starts a process at a moment when no test minds.
pub(super) fn spawn(command: &mut Command) -> Child {
    // not waiting in line for it: that would stop those who hold it already and ask again
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match QUIET.try_write() {
            Ok(_alone) => return command.spawn().unwrap(),
            // a test that failed while it held the lock is no matter here
            Err(TryLockError::Poisoned(_)) => return command.spawn().unwrap(),
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
        assert!(Instant::now() < deadline, "no quiet moment to start a process");
    }
}

/// A temporary folder, while which lives no test starts a process.
pub(super) struct Home {
    dir: tempfile::TempDir,
    _quiet: RwLockReadGuard<'static, ()>,
}

impl Home {
    pub(super) fn new() -> Home {
        let quiet = QUIET.read().unwrap_or_else(PoisonError::into_inner);
        Home { dir: tempfile::tempdir().unwrap(), _quiet: quiet }
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// A spool of its own in a temporary folder.
pub(super) fn new_spool() -> (Home, Spool) {
    let dir = Home::new();
    let spool = Spool::open(&dir.path().join("spool")).unwrap();
    (dir, spool)
}

/// The names in a folder, sorted and as shown.
pub(super) fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .unwrap()
        .map(|entry| name::shown(entry.unwrap().file_name().as_bytes()))
        .collect();
    names.sort();
    names
}

#[test]
fn opening_makes_the_folders_and_leaves_no_probe() {
    let (dir, spool) = new_spool();
    assert_eq!(names(&dir.path().join("spool")), ["done", "failed", "inbox", "reports"]);
    fs::write(spool.inbox().join("a.json"), "[]").unwrap();
    // left by a crash at each step of the probing
    let left = format!("{PROBE}-0123456789abcdef0123456789abcdef");
    for (folder, name) in [(spool.inbox(), &*left), (spool.done(), PROBE), (spool.failed(), PROBE)]
    {
        fs::write(folder.join(name), "").unwrap();
    }
    fs::set_permissions(spool.inbox(), fs::Permissions::from_mode(0o1730)).unwrap();
    let again = Spool::open(spool.root()).unwrap();
    assert_eq!(names(again.inbox()), ["a.json"]);
    assert!(names(again.done()).is_empty() && names(again.failed()).is_empty());
    let mode = fs::metadata(again.inbox()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o1730, "existing folders keep their mode");
    let mode = fs::metadata(again.done()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777 & !0o750, 0, "new ones are for user and group");
}

#[test]
fn folders_on_two_mounts_are_refused_by_name() {
    let elsewhere = Path::new("/dev/shm");
    let dir = tempfile::tempdir().unwrap();
    let device = |path: &Path| Facts::of(folder::open(path).unwrap()).unwrap().file.device;
    let other = tempfile::tempdir_in(elsewhere).expect("/dev/shm is on every Linux");
    let why = "set TMPDIR to another mount than /dev/shm";
    assert_ne!(device(dir.path()), device(other.path()), "{why}");
    symlink(other.path(), dir.path().join("failed")).unwrap();

    let error = Spool::open(dir.path()).unwrap_err();
    let SpoolError::OtherMount { from, to } = &error else { panic!("{error}") };
    assert_eq!((from, to), (&dir.path().join("inbox"), &dir.path().join("failed")));
    assert!(error.to_string().contains("ReadWritePaths="), "{error}");
    assert!(names(&dir.path().join("inbox")).is_empty(), "no probe stays behind");
}

#[test]
fn a_file_in_place_of_a_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("done"), "").unwrap();
    let error = Spool::open(dir.path()).unwrap_err();
    let SpoolError::Make { path, .. } = &error else { panic!("{error}") };
    assert_eq!(path, &dir.path().join("done"));
}

#[test]
fn a_folder_that_may_not_be_written_is_named() {
    if !is_ordinary_user("spool::tests::a_folder_that_may_not_be_written_is_named") {
        return;
    }
    let (_dir, spool) = new_spool();
    fs::set_permissions(spool.done(), fs::Permissions::from_mode(0o500)).unwrap();
    let error = Spool::open(spool.root()).unwrap_err();
    let SpoolError::Probe { path, .. } = &error else { panic!("{error}") };
    assert_eq!(path, spool.done());
    assert!(names(spool.inbox()).is_empty(), "no probe stays behind");
}

#[test]
fn entries_stand_in_order_of_name_and_then_folder() {
    let entry = |folder, name: &[u8]| Entry::new(folder, OsString::from_vec(name.to_vec()));
    let mut entries = [
        entry(Some("a"), b"b"),
        entry(None, b"b"),
        entry(Some("z"), b"a"),
        entry(None, b"\xff"),
        entry(None, b"B"),
    ];
    entries.sort();
    let shown: Vec<String> = entries.iter().map(Entry::shown).collect();
    assert_eq!(shown, ["B", "z/a", "b", "a/b", r"\xff"]);
}

#[test]
fn entries_are_shown_safely_and_read_back() {
    let strange = Entry::new(Some("g\\w"), OsString::from_vec(b"a\n\x1b[2J\xff".to_vec()));
    assert_eq!(strange.shown(), r"g\\w/a\n\x1b[2J\xff");
    assert_eq!(Entry::parse(&strange.shown()), Some(strange.clone()));
    assert_eq!(Entry::parse("a.json"), Some(Entry::new(None, "a.json")));
    for bad in ["", "/a", "a/", "..", "../a", "a/..", "a/b/c", r"a\x00", r"a\x2fb", r"\xff/a"] {
        assert_eq!(Entry::parse(bad), None, "{bad}");
    }
    assert_eq!(strange.source(), "g\\w");
    assert_eq!(Entry::new(None, "a").source(), DEFAULT_SOURCE);
    assert_eq!(Entry::new(Some("g"), "a").path_in(Path::new("/s")), Path::new("/s/g/a"));
}

/// A producer may put anything under any name that a probe could have: a start is not refused for
/// it, and its files are left alone. Has failed for a probe with a hundred names to choose from.
#[test]
fn case_120_no_name_that_a_producer_takes_keeps_the_spool_from_being_opened() {
    let (dir, spool) = new_spool();
    fs::create_dir(spool.inbox().join(PROBE)).unwrap();
    for number in 1..=200 {
        fs::create_dir(spool.inbox().join(format!("{PROBE}.{number}"))).unwrap();
    }
    fs::write(spool.inbox().join(format!("{PROBE}-full")), "[]").unwrap();
    symlink(PROBE, spool.inbox().join(format!("{PROBE}-link"))).unwrap();
    fs::create_dir(spool.done().join(PROBE)).unwrap();
    let before = names(spool.inbox());
    Spool::open(&dir.path().join("spool")).unwrap();
    assert_eq!(names(spool.inbox()), before);
    assert_eq!(names(spool.done()), [PROBE]);
    assert!(names(spool.failed()).is_empty());
}
