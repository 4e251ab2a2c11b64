//! Row 29: what surrounds the daemon is in its way, at its start or later: limits of its process,
//! a spool that is read-only, mounts of their own for single folders, log files of another user, an
//! overlay. It has to name that, to stay (a fault that passes ends no start), and to go on by itself
//! when it is lifted; a spool of two mounts ends the start with 78. Nothing is lost or counted twice.
//!
//! Seen to fail: with `Mounts::other` answering none, files of a folder that is a mount of its own
//! are said not to be moved only after they were counted ("taken before it can be moved"); with the
//! error of `Spool::prepare` made a lasting one, the daemon is gone ("it ended by itself").

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::invariants::Oracle;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::rows::{Ended, drained, quick_config, until_drained};
use crate::workload::{File, Workload};
use crate::world::{Daemon, World};

/// Right class, right words, no restart loop, nothing lost.
pub const ROW: Row = Row {
    number: 29,
    fault: "limits, mounts, owners around the daemon",
    promise: "named, waited out at start and later, nothing lost",
    figures: Figures { smoke: 20, full: 400, soak: 2000 },
    lanes: 2,
    begin,
};

/// How long it may take until a fault is named.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is in the way, and what one of the words of the daemon has to be; none: it notices nothing.
const SURROUNDINGS: &[(How, &str)] = &[
    (How::Limit("nofile"), "ulimit -n"),
    (How::Limit("fsize"), "LimitFSIZE="),
    (How::Limit("as"), ""),
    (How::Limit("nproc"), "ulimit -u"),
    (How::ReadOnly, "ead-only"),
    (How::Mount("inbox/press-1"), "mount of its own"),
    (How::Mount("done/press-1"), "mount of its own"),
    (How::Mount("failed/press-2"), "mount of its own"),
    (How::Mount("done"), "mount"),
    (How::Foreign, "chown "),
    (How::Overlay, ""),
];

/// In which way it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// A limit of the process.
    Limit(&'static str),
    /// The spool cannot be written to.
    ReadOnly,
    /// That folder of the spool is a mount of its own.
    Mount(&'static str),
    /// The log of the store belongs to root, and the daemon is not root.
    Foreign,
    /// The spool lies on an overlay, with files in its lower layer.
    Overlay,
}

struct Surroundings;

fn begin(_: &Scale) -> Result<Box<dyn Trial>, Unable> {
    let folder = tempfile::tempdir().map_err(|error| Unable(error.to_string()))?;
    let unable = |text: String| Unable(format!("mounts (root is needed): {text}"));
    let bound = Bound::new(folder.path()).map_err(unable)?;
    drop(bound);
    run(Command::new("prlimit").arg("--version")).map_err(Unable)?;
    Ok(Box::new(Surroundings))
}

impl Trial for Surroundings {
    fn what(&self, n: u64) -> String {
        let (how, is_later) = surrounding(n);
        format!("{:?} {}", how.0, if is_later { "later" } else { "at the start" })
    }

    fn attempt(&self, n: u64, mut dice: Dice) -> Result<Tried, String> {
        let (&(how, words), is_later) = surrounding(n);
        match how {
            How::Overlay => on_overlay(is_later, &mut dice),
            How::Limit("as") => without_memory(is_later, &mut dice),
            How::Mount("done") if !is_later => two_mounts(&mut dice),
            _ => Attempt { how, words, is_later }.make(&mut dice),
        }
    }
}

fn surrounding(n: u64) -> (&'static (How, &'static str), bool) {
    let at = (n / 2) as usize % SURROUNDINGS.len();
    (&SURROUNDINGS[at], n % 2 == 1)
}

struct Attempt {
    how: How,
    words: &'static str,
    is_later: bool,
}

impl Attempt {
    fn make(&self, dice: &mut Dice) -> Result<Tried, String> {
        let mut workload = Workload::of_all_kinds(dice.next());
        let is_ordinary = matches!(self.how, How::Foreign | How::Limit("nproc"));
        let (world, mut oracle) = match is_ordinary {
            true => with_ordinary_user(&workload),
            false => Oracle::with_world(&workload),
        };
        let config = quick_config(&world, &[]);
        some(&world, &mut oracle, &mut workload, 6, dice);
        let mut put = Put::default();
        let mut daemon = if self.is_later {
            let mut daemon = world.spawn(&["--config", &config]);
            until_drained(&world, &mut daemon, &mut |_| {})?;
            if self.how == How::ReadOnly {
                // what is dropped is seen when nothing can be moved any more
                daemon.signal("STOP");
                some(&world, &mut oracle, &mut workload, 12, dice);
            }
            self.put(&world, &mut put, Some(&daemon), dice)?;
            daemon.signal("CONT");
            daemon
        } else {
            self.put(&world, &mut put, None, dice)?;
            let limit = put.limit.clone();
            let mut wrapper: Vec<&str> = limit.iter().flat_map(|at| ["prlimit", at]).collect();
            if self.how == How::Limit("nproc") {
                // root has as many processes as it likes
                wrapper.splice(0..0, AS_NOBODY);
            }
            match wrapper.is_empty() {
                true => world.spawn(&["--config", &config]),
                false => world.spawn_under(&wrapper, &["--config", &config]),
            }
        };
        if self.how == How::Limit("nproc") && !self.is_later {
            return no_threads(&world, daemon, oracle, &config);
        }
        // nobody can drop a file where nothing can be written
        if self.how != How::ReadOnly {
            some(&world, &mut oracle, &mut workload, 12, dice);
            oracle.write_in_place(&world, large(&self.how));
        }
        let is_named = self.is_named(&world, &mut daemon)?;
        if let How::Mount(folder) = self.how
            && folder != "done"
        {
            self.nothing_is_taken(&world)?;
        }
        put.lift(&daemon)?;
        match until_drained(&world, &mut daemon, &mut |_| {})? {
            Ended::Drained => {}
            Ended::GaveUp(code) => {
                return Err(format!("it ended by itself, with {code:?}: {}", world.told()));
            }
        }
        world.eventually("all is well", || world.run(&["status"]).code == Some(0));
        daemon.stop();
        let found = oracle.check_end(&world)?;
        if found.repeats > 0 {
            return Err(format!("{} files were taken twice: {}", found.repeats, world.told()));
        }
        Ok(if is_named { Tried::Struck } else { Tried::Missed })
    }

    fn put(
        &self,
        world: &World,
        put: &mut Put,
        daemon: Option<&Daemon<'_>>,
        dice: &mut Dice,
    ) -> Result<(), String> {
        let spool = world.spool();
        match self.how {
            How::Limit(name) => {
                let most = match name {
                    // below that not even the configuration can be read
                    "nofile" => 6 + dice.below(12),
                    "fsize" => 200_000 + dice.below(100_000),
                    _ => 1,
                };
                // the soft limit alone, which anybody may lower
                put.limit = Some(format!("--{name}={most}:"));
                put.name = name;
                if let (Some(daemon), Some(limit)) = (daemon, &put.limit) {
                    set_limit(daemon, limit)?;
                }
            }
            How::ReadOnly => put.bound = Some(Bound::read_only(&spool)?),
            How::Mount(folder) => {
                let path = spool.join(folder);
                fs::create_dir_all(&path).map_err(|error| error.to_string())?;
                put.bound = Some(Bound::new(&path)?);
            }
            How::Foreign => {
                for ending in ["-wal", "-shm"] {
                    let path = PathBuf::from(format!("{}{ending}", world.db().display()));
                    if !path.exists() {
                        fs::write(&path, "").map_err(|error| error.to_string())?;
                    }
                    chown(&path, Some(0), Some(0)).map_err(|error| error.to_string())?;
                    put.foreign.push(path);
                }
            }
            How::Overlay => {}
        }
        Ok(())
    }

    /// Waits until it says what is in the way; false where it need not notice, and has done all.
    fn is_named(&self, world: &World, daemon: &mut Daemon<'_>) -> Result<bool, String> {
        // its threads run, and its files are open
        let need_not = self.is_later && matches!(self.how, How::Limit("nproc") | How::Foreign);
        let begun = Instant::now();
        loop {
            if !daemon.runs() {
                return Err(format!("it ended by itself: {}", world.told()));
            }
            if world.log().contains(self.words) {
                return Ok(true);
            }
            if need_not && world.names("inbox").is_empty() {
                return Ok(false);
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("{:?} is not named: {}", self.words, world.told()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What cannot be moved is not counted.
    fn nothing_is_taken(&self, world: &World) -> Result<(), String> {
        match world.log().contains("but not moved") {
            true => Err(format!("taken before it can be moved: {}", world.told())),
            false => Ok(()),
        }
    }
}

/// What was put in the way, which is lifted again in any case.
#[derive(Default)]
struct Put {
    limit: Option<String>,
    name: &'static str,
    bound: Option<Bound>,
    foreign: Vec<PathBuf>,
}

impl Put {
    fn lift(mut self, daemon: &Daemon<'_>) -> Result<(), String> {
        // all threads are there by then
        if self.limit.is_some() && self.name != "nproc" {
            let most = if self.name == "nofile" { "4096" } else { "unlimited" };
            set_limit(daemon, &format!("--{}={most}:{most}", self.name))?;
        }
        if let Some(bound) = self.bound.take() {
            bound.end()?;
        }
        for path in self.foreign.drain(..).filter(|path| path.exists()) {
            chown(&path, Some(NOBODY), Some(NOBODY)).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// Who the daemon is where root would be too much.
const NOBODY: u32 = 65534;

/// Runs a command as an ordinary user.
const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

fn set_limit(daemon: &Daemon<'_>, limit: &str) -> Result<(), String> {
    let pid = daemon.pid().to_string();
    let mut command = Command::new("prlimit");
    if limit.starts_with("--nproc") {
        // only the user of a process may change its limits, where root has not all of its rights
        command = Command::new(AS_NOBODY[0]);
        command.args(&AS_NOBODY[1..]).arg("prlimit");
    }
    run(command.args(["--pid", &pid, limit]))
}

fn some(world: &World, oracle: &mut Oracle, workload: &mut Workload, most: u64, dice: &mut Dice) {
    for _ in 0..=dice.below(most) {
        // a file cannot be renamed into a mount of its own
        oracle.write_in_place(world, workload.next());
    }
}

/// More than any limit on the size of a file lets through, in the folder that is in the way.
fn large(how: &How) -> File {
    let folder = match how {
        How::Mount(folder) if *folder != "done" => folder.split('/').nth(1).unwrap_or_default(),
        _ => "",
    };
    let events: Vec<crate::model::Event> = (0..8000)
        .map(|n| crate::model::Event::new(format!("large-{n}"), "large", 1000, 1))
        .collect();
    let bytes = crate::observed::ndjson(&events).into_bytes();
    let name = format!("{folder}/large.json");
    let name = name.trim_start_matches('/').to_owned();
    File { name, bytes, content: crate::workload::Content::Batch(events) }
}

/// A world of an ordinary user, and what is known of it.
fn with_ordinary_user(workload: &Workload) -> (World, Oracle) {
    let world = World::unprivileged();
    let flags = workload.settings.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    world.init(workload.settings.window_ms, workload.settings.lateness_ms, &flags);
    for folder in ["press-1", "press-2"] {
        let path = world.inbox().join(folder);
        fs::create_dir_all(&path).unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    (world, Oracle::new(workload.settings))
}

/// Without a thread there is no daemon: it ends, and says which limit it is.
fn no_threads(
    world: &World,
    mut daemon: Daemon<'_>,
    mut oracle: Oracle,
    config: &str,
) -> Result<Tried, String> {
    let code = daemon.wait().code();
    let log = world.log();
    if code != Some(75) || !log.contains("ulimit -u") || log.contains("panicked") {
        return Err(format!("without a thread: {code:?}: {log}"));
    }
    drained(world, config)?;
    oracle.check_end(world)?;
    Ok(Tried::Struck)
}

/// Folders of a spool on two mounts: no file can be moved, which a restart does not change.
fn two_mounts(dice: &mut Dice) -> Result<Tried, String> {
    let mut workload = Workload::of_all_kinds(dice.next());
    let (world, mut oracle) = Oracle::with_world(&workload);
    let config = quick_config(&world, &[]);
    some(&world, &mut oracle, &mut workload, 6, dice);
    let done = world.spool().join("done");
    fs::create_dir_all(&done).map_err(|error| error.to_string())?;
    let bound = Bound::new(&done)?;
    let mut daemon = world.spawn(&["--config", &config]);
    let code = daemon.wait().code();
    if code != Some(78) || !world.log().contains("different mounts") {
        return Err(format!("on two mounts: {code:?}: {}", world.told()));
    }
    bound.end()?;
    drained(&world, &config)?;
    oracle.check_end(&world)?;
    Ok(Tried::Struck)
}

/// So little memory that a request for it fails, which nothing in a process need outlive: what is
/// tried is that it says so and that nothing is lost.
fn without_memory(is_later: bool, dice: &mut Dice) -> Result<Tried, String> {
    let mut workload = Workload::of_all_kinds(dice.next());
    let (world, mut oracle) = Oracle::with_world(&workload);
    let config = quick_config(&world, &[]);
    some(&world, &mut oracle, &mut workload, 6, dice);
    let mut daemon = if is_later {
        let mut daemon = world.spawn(&["--config", &config]);
        until_drained(&world, &mut daemon, &mut |_| {})?;
        let kib = daemon.proc_status("VmSize").unwrap_or_default();
        let kib: u64 = kib.trim_end_matches(" kB").trim().parse().unwrap_or(0);
        set_limit(&daemon, &format!("--as={}:", (kib + dice.below(4096)) << 10))?;
        daemon
    } else {
        let limit = format!("--as={}:", (24 + dice.below(60)) << 20);
        world.spawn_under(&["prlimit", &limit], &["--config", &config])
    };
    some(&world, &mut oracle, &mut workload, 12, dice);
    oracle.write_in_place(&world, large(&How::Limit("as")));
    let begun = Instant::now();
    while daemon.runs() && !world.names("inbox").is_empty() && begun.elapsed() < PATIENCE / 4 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let is_struck = !daemon.runs() || !world.names("inbox").is_empty();
    let log = world.log().to_lowercase();
    let is_said = ["memory", "resource temporarily unavailable"].iter().any(|it| log.contains(it));
    if is_struck && !is_said {
        return Err(format!("nothing is said of memory: {}", world.told()));
    }
    if daemon.runs() {
        set_limit(&daemon, "--as=unlimited:unlimited")?;
        if let Ended::Drained = until_drained(&world, &mut daemon, &mut |_| {})? {
            daemon.stop();
        }
    }
    drained(&world, &config)?;
    oracle.check_end(&world)?;
    Ok(if is_struck { Tried::Struck } else { Tried::Missed })
}

/// The whole spool on an overlay. Files of the lower layer become others at their first change; it
/// is the same file all the same.
fn on_overlay(is_later: bool, dice: &mut Dice) -> Result<Tried, String> {
    let mut workload = Workload::of_all_kinds(dice.next());
    let (world, mut oracle) = Oracle::with_world(&workload);
    let config = quick_config(&world, &[]);
    some(&world, &mut oracle, &mut workload, 6, dice);
    let layers = tempfile::tempdir_in("/dev/shm").map_err(|error| error.to_string())?;
    let at = |name: &str| {
        let path = layers.path().join(name);
        fs::create_dir_all(&path).map(|()| path).map_err(|error| error.to_string())
    };
    let (lower, upper, work) = (at("lower")?, at("upper")?, at("work")?);
    run(Command::new("cp").arg("-a").arg(format!("{}/.", world.spool().display())).arg(&lower))?;
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let spool = world.spool();
    let mount = || Command::new("mount");
    run(mount().args(["-t", "overlay", "overlay", "-o", &options]).arg(&spool))?;
    let bound = Bound(Some(spool));
    let tried = (|| {
        if is_later {
            drained(&world, &config)?;
            some(&world, &mut oracle, &mut workload, 12, dice);
        }
        let mut daemon = world.spawn(&["--config", &config]);
        until_drained(&world, &mut daemon, &mut |_| {})?;
        daemon.stop();
        let found = oracle.check_end(&world)?;
        match found.repeats {
            0 => Ok(Tried::Struck),
            more => Err(format!("{more} files were taken twice: {}", world.told())),
        }
    })();
    bound.end()?;
    tried
}

/// A folder that is bound onto itself, until this is dropped.
struct Bound(Option<PathBuf>);

impl Bound {
    fn new(path: &Path) -> Result<Bound, String> {
        run(Command::new("mount").arg("--bind").arg(path).arg(path))?;
        Ok(Bound(Some(path.to_owned())))
    }

    fn read_only(path: &Path) -> Result<Bound, String> {
        let bound = Bound::new(path)?;
        run(Command::new("mount").args(["-o", "remount,ro,bind"]).arg(path))?;
        Ok(bound)
    }

    fn end(mut self) -> Result<(), String> {
        self.0.take().map_or(Ok(()), |path| unmount(&path))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // the attempt has failed already
            let _ = unmount(&path);
        }
    }
}

fn unmount(path: &Path) -> Result<(), String> {
    run(Command::new("umount").arg("-l").arg(path))
}

fn run(command: &mut Command) -> Result<(), String> {
    let ran = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match ran.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&ran.stderr).trim())),
    }
}
