//! Row 3: a system call fails once, any of them, with any error that it may have.
//!
//! "Once" is once in each thread, since that is how strace counts, until it was seen to strike.
//! Half of the attempts are single runs, which may give up with a code and a reason and are run
//! again; the other half are daemons, which may give up before they have taken anything, and have
//! to come through by themselves after that. A third of them begin in what a killed run left
//! behind.
//!
//! Seen to fail: with `Worker::keep` left out, which forgets what is known of a file that could
//! not be moved, files are taken twice.

use crate::dice::Dice;
use crate::invariants::Oracle;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::rows::kill_at_call::{FILES, prepared, spread};
use crate::rows::{Ended, drained, is_out_of_memory, quick_config, until_drained};
use crate::strace::{self, Inject};
use crate::world::{Daemon, World};

/// A call fails, and what comes after is right.
pub const ROW: Row = Row {
    number: 3,
    fault: "the N-th call fails once",
    promise: "said, file kept or rightly done, right afterwards, no panic",
    figures: Figures { smoke: 300, full: 1500, soak: 20_000 },
    lanes: 2,
    begin,
};

/// The calls, and how each may fail.
const CALLS: &[(&str, &[&str])] = &[
    ("openat", &["EIO", "ENOSPC", "EMFILE", "EACCES", "ENOMEM"]),
    ("open", &["EIO", "ENOSPC", "EMFILE", "EACCES", "ENOMEM"]),
    ("read", &["EIO"]),
    ("pread64", &["EIO"]),
    ("write", &["EIO", "ENOSPC"]),
    ("pwrite64", &["EIO", "ENOSPC"]),
    ("fsync", &["EIO", "ENOSPC"]),
    ("fdatasync", &["EIO", "ENOSPC"]),
    ("renameat2", &["EIO", "ENOSPC", "EACCES"]),
    ("unlinkat", &["EIO", "EACCES"]),
    ("unlink", &["EIO", "EACCES"]),
    ("mkdir", &["EIO", "ENOSPC", "EACCES"]),
    ("mkdirat", &["EIO", "ENOSPC", "EACCES"]),
    ("fcntl", &["ENOLCK", "EAGAIN"]),
    ("flock", &["ENOLCK", "EAGAIN"]),
    ("ftruncate", &["EIO", "ENOSPC"]),
    ("statx", &["EIO", "ENOMEM", "EACCES"]),
    ("newfstatat", &["EIO", "ENOMEM", "EACCES"]),
    ("statfs", &["EIO"]),
    ("getdents64", &["EIO", "ENOMEM"]),
    ("mmap", &["ENOMEM"]),
    ("clone3", &["EAGAIN", "ENOMEM"]),
];

/// The reason of a refused file in the making.
fn draft(number: usize) -> String {
    format!("failed/.windowflow-reason-{number}.tmp")
}

/// How a call fails: it, its number from 1, and the error.
type Point = (&'static str, u64, &'static str);

struct ErrorOnce {
    points: Vec<Point>,
}

fn begin(_: &Scale) -> Result<Box<dyn Trial>, Unable> {
    strace::is_here()?;
    let (world, _) = prepared(0);
    let calls: Vec<&str> = CALLS.iter().map(|(call, _)| *call).collect();
    let counted = strace::count(&world, &calls);
    let mut points = Vec::new();
    for (call, errors) in CALLS {
        for number in 1..=counted.get(*call).copied().unwrap_or(0) {
            points.extend(errors.iter().map(|error| (*call, number, *error)));
        }
    }
    // those that only a daemon makes
    points.extend([("inotify_init1", 1, "EMFILE"), ("inotify_add_watch", 1, "ENOSPC")]);
    Ok(Box::new(ErrorOnce { points: spread(points) }))
}

impl Trial for ErrorOnce {
    fn note(&self) -> Option<String> {
        Some(format!("of {} points, each in two ways", self.points.len()))
    }

    fn what(&self, n: u64) -> String {
        let (call, number, error) = self.point(n);
        let way = if n.is_multiple_of(2) { "a single run" } else { "a daemon" };
        let begins = if n.is_multiple_of(3) { ", half done" } else { "" };
        format!("{way}{begins}, {call} {number} {error}")
    }

    fn attempt(&self, n: u64, mut dice: Dice) -> Result<Tried, String> {
        let (call, number, error) = self.point(n);
        let is_first_round = n / 2 < self.points.len() as u64;
        let seed = if is_first_round { 0 } else { dice.next() };
        let (world, mut oracle) = prepared(seed);
        // a file that may not be read is refused, whatever may have become of that since
        oracle.may_deny = error == "EACCES";
        if n.is_multiple_of(3) {
            leave_half_done(&world, dice.below(300));
        }
        let how = format!("error={error}:when={number}");
        // the rest that is written by it are messages, and wake-ups of threads, which cannot fail
        let drafts = (0..FILES).map(|n| world.spool().join(draft(n)).display().to_string());
        let paths = if call == "write" { drafts.collect() } else { Vec::new() };
        let inject = Inject { calls: call, how, paths };
        let tried = match n.is_multiple_of(2) {
            true => single_run(&world, oracle, &inject),
            false => daemon(&world, oracle, &inject),
        };
        let tried = tried.map_err(|what| format!("files of seed {seed}: {what}"))?;
        Ok(if strace::struck(&world, TRACE) > 0 { tried } else { Tried::Missed })
    }
}

impl ErrorOnce {
    fn point(&self, n: u64) -> Point {
        self.points[(n / 2 % self.points.len() as u64) as usize]
    }
}

/// What strace writes its calls to.
const TRACE: &str = "injected.trace";

/// A run that is killed somewhere in the middle.
fn leave_half_done(world: &World, number: u64) {
    let how = format!("signal=KILL:when={}", number + 1);
    let wrapper = Inject { calls: "pwrite64", how, paths: Vec::new() }.wrapper("/dev/null");
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    world.run_under(&wrapper, &["run", "--once"]);
}

fn single_run(world: &World, mut oracle: Oracle, inject: &Inject<'_>) -> Result<Tried, String> {
    let config = quick_config(world, &[("daemon.busy_timeout_ms", "200")]);
    let wrapper = inject.wrapper(TRACE);
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let ran = world.run_under(&wrapper, &["run", "--once", "--config", &config]);
    check_end_of_process(ran.code, &ran.err)?;
    let before = oracle.check(world).map_err(|what| format!("{:?}: {what}", ran.code))?;
    drained(world, &config)?;
    let found = oracle.check_end(world)?;
    match found.repeats > before.repeats + before.owed {
        true => Err(format!("{found:?} after {before:?}: files were taken twice")),
        false => Ok(Tried::Struck),
    }
}

/// Whether a process may end like that over a fault that passed.
fn check_end_of_process(code: Option<i32>, said: &str) -> Result<(), String> {
    let is_allocator = code.is_none() && is_out_of_memory(said);
    if said.contains("panicked") && !is_allocator {
        return Err(format!("a panic: {said}"));
    }
    // what the loader and the allocator do is not ours
    let is_loader = code == Some(127) && said.contains("error while loading shared libraries")
        || code.is_none() && said.is_empty();
    match code {
        _ if is_loader || is_allocator => Ok(()),
        Some(0 | 65) => Ok(()),
        Some(1 | 75 | 78) if said.contains("windowflow: ") => Ok(()),
        Some(1 | 75 | 78) => Err(format!("it ended with {code:?} and does not say why: {said}")),
        _ => Err(format!("it ended with {code:?}, which is no code of it: {said}")),
    }
}

fn daemon(world: &World, mut oracle: Oracle, inject: &Inject<'_>) -> Result<Tried, String> {
    let config = quick_config(world, &[("daemon.busy_timeout_ms", "200")]);
    let before = oracle.check(world)?;
    let wrapper = inject.wrapper_beside(TRACE);
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let mut daemon = world.spawn_under(&wrapper, &["--config", &config]);
    // the daemon begins new threads, in each of which it would fail again
    let mut pass = |daemon: &Daemon<'_>| {
        if strace::struck(world, TRACE) > 0 {
            strace::let_go(daemon);
        }
    };
    let code = match until_drained(world, &mut daemon, &mut pass)? {
        Ended::Drained => {
            daemon.signal("TERM");
            daemon.wait().code()
        }
        // nothing but a signal ends it in good order
        Ended::GaveUp(Some(0)) => return Err(format!("it ended unasked: {}", world.log())),
        Ended::GaveUp(code) => code,
    };
    // a daemon that lives knows what only waits for its move
    let mut most_repeats = before.repeats + before.owed;
    if code != Some(0) {
        let log = world.log();
        if log.contains("INFO  batch") || log.contains("WARN  refused") {
            return Err(format!("it gave up with {code:?}: {log}"));
        }
        check_end_of_process(code, &log)?;
        most_repeats = before.repeats + FILES as u64;
    }
    if code == Some(0) && world.log().contains("panicked") {
        return Err(format!("a panic: {}", world.log()));
    }
    drained(world, &config)?;
    let found = oracle.check_end(world)?;
    match found.repeats > most_repeats {
        true => Err(format!("{} repeats, of {most_repeats} at most", found.repeats)),
        false => Ok(Tried::Struck),
    }
}
