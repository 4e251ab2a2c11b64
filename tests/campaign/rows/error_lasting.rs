//! Row 4: calls of a kind fail for a while, all of them, under a daemon that runs.
//!
//! strace takes hold of a daemon that is idle; then files come in. Within five seconds the daemon
//! has to say what is in the way: in its state, or in its log where the state cannot be written
//! either. When strace lets go it has to come through by itself. Where the store cannot be read at
//! all the daemon may give up with a code and a reason: a lasting fault is not told from damage;
//! the next start must then find all in order.
//!
//! Seen to fail: with `Drain::in_the_way` left out, nothing is said after five seconds.

use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::invariants::Oracle;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::rows::{Ended, drained, is_out_of_memory, quick_config, until_drained};
use crate::strace::{self, Inject};
use crate::workload::Workload;
use crate::world::{Daemon, World};

/// What lasts is shown, and passes.
pub const ROW: Row = Row {
    number: 4,
    fault: "calls fail for a while",
    promise: "said within 5 s, recovers by itself, I1 to I5",
    figures: Figures { smoke: 43, full: 1500, soak: 1500 },
    lanes: 2,
    begin,
};

/// How long it may take until a fault is shown.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same for locks, which SQLite itself tries to take for ten seconds.
const PATIENCE_WITH_LOCKS: Duration = Duration::from_secs(15);

/// Which calls, how they fail, and for which of the spool's files; none: for all.
type Fault = (&'static str, &'static str, &'static [&'static str]);

const STORE: &[&str] = &["windowflow.db", "windowflow.db-wal"];
const DRAFTS: &[&str] = &["failed/.windowflow-reason-0.tmp", "failed/.windowflow-reason-1.tmp"];

const FAULTS: &[Fault] = &[
    ("fsync,fdatasync", "EIO", &[]),
    ("fsync,fdatasync", "ENOSPC", &[]),
    ("fdatasync", "EIO", STORE),
    ("pwrite64", "EIO", STORE),
    ("pwrite64", "ENOSPC", STORE),
    ("pwrite64", "EIO", &[]),
    ("pwrite64", "ENOSPC", &[]),
    ("write", "EIO", DRAFTS),
    ("write", "ENOSPC", DRAFTS),
    ("renameat2", "EIO", &[]),
    ("renameat2", "ENOSPC", &[]),
    ("renameat2", "EACCES", &[]),
    ("openat,open", "EIO", &[]),
    ("openat,open", "EMFILE", &[]),
    ("openat,open", "ENFILE", &[]),
    ("openat,open", "EACCES", &[]),
    ("openat,open", "ENOMEM", &[]),
    ("openat,open", "ENOSPC", &[]),
    ("openat", "EACCES", &["inbox"]),
    ("read", "EIO", &[]),
    ("pread64", "EIO", &[]),
    ("ftruncate", "EIO", &[]),
    ("ftruncate", "ENOSPC", &[]),
    ("fcntl", "ENOLCK", &[]),
    ("statx,newfstatat", "EIO", &[]),
    ("statx,newfstatat", "EACCES", &[]),
    ("statx,newfstatat", "ENOMEM", &[]),
    ("getdents64", "EIO", &[]),
    ("getdents64", "ENOMEM", &[]),
    ("unlinkat,unlink", "EIO", &[]),
    ("unlinkat,unlink", "EACCES", &[]),
    ("mkdir,mkdirat", "ENOSPC", &[]),
    ("mkdir,mkdirat", "EACCES", &[]),
    ("clone3", "EAGAIN", &[]),
    ("clone3", "ENOMEM", &[]),
    ("fallocate,fadvise64", "ENOSPC", &[]),
    ("statfs", "EIO", &[]),
    ("mmap", "ENOMEM", &[]),
    // no single call: everything that writes, everything that a file is opened and read by
    ("pwrite64,fsync,fdatasync,ftruncate,renameat2,mkdirat", "ENOSPC", &[]),
    ("pwrite64,fsync,fdatasync,ftruncate,renameat2,mkdirat", "EIO", &[]),
    ("pwrite64,fsync,fdatasync,ftruncate,renameat2,mkdirat", "EROFS", &[]),
    ("openat,open,statx,newfstatat,getdents64", "EIO", &[]),
    ("openat,open,statx,newfstatat,getdents64", "EACCES", &[]),
    ("fcntl", "EAGAIN", &[]),
    ("fcntl", "EIO", &[]),
];

struct ErrorLasting;

fn begin(_: &Scale) -> Result<Box<dyn Trial>, Unable> {
    strace::is_here()?;
    Ok(Box::new(ErrorLasting))
}

impl Trial for ErrorLasting {
    fn what(&self, n: u64) -> String {
        format!("{:?}", fault(n))
    }

    fn attempt(&self, n: u64, mut dice: Dice) -> Result<Tried, String> {
        let seed = dice.next();
        let tried = attempt(fault(n), seed, &mut dice);
        tried.map_err(|what| format!("files of seed {seed}: {what}"))
    }
}

fn fault(n: u64) -> &'static Fault {
    &FAULTS[(n % FAULTS.len() as u64) as usize]
}

fn attempt((calls, error, paths): &Fault, seed: u64, dice: &mut Dice) -> Result<Tried, String> {
    let mut workload = Workload::of_all_kinds(seed);
    let (world, mut oracle) = Oracle::with_world(&workload);
    // a file that may not be read is refused, whatever may have become of that since
    oracle.may_deny = *error == "EACCES";
    // less patience with others than the five seconds
    let config = quick_config(&world, &[("daemon.busy_timeout_ms", "500")]);
    let some = |oracle: &mut Oracle, workload: &mut Workload, most: u64, dice: &mut Dice| {
        for _ in 0..=dice.below(most) {
            oracle.drop_in(&world, workload.next());
        }
    };
    some(&mut oracle, &mut workload, 4, dice);
    let mut daemon = world.spawn(&["--config", &config]);
    until_drained(&world, &mut daemon, &mut |_| {})?;
    world.eventually("it is idle", || world.state()["daemon"]["phase"] == "idle");
    let paths = paths.iter().map(|path| world.spool().join(path).display().to_string()).collect();
    let inject = Inject { calls, how: format!("error={error}"), paths };
    let said_before = world.log().len();
    let attached = inject.attach(&world, daemon.pid())?;
    some(&mut oracle, &mut workload, 12, dice);
    let patience = if *calls == "fcntl" { PATIENCE_WITH_LOCKS } else { PATIENCE };
    let shown = shown_within(&world, &mut daemon, said_before, patience);
    // to go on failing for a while is what is tried
    std::thread::sleep(Duration::from_millis(dice.below(400)));
    drop(attached);
    let struck = strace::struck(&world, "attached.trace");
    shown?;
    let gave_up = match until_drained(&world, &mut daemon, &mut |_| {})? {
        Ended::Drained => {
            world.eventually("all is well", || world.run(&["status"]).code == Some(0));
            daemon.signal("TERM");
            let code = daemon.wait().code();
            (code != Some(0)).then_some(code)
        }
        Ended::GaveUp(code) => Some(code),
    };
    let log = world.log();
    let is_out_of_memory = gave_up == Some(None) && is_out_of_memory(&log);
    if log.contains("panicked") && !is_out_of_memory {
        return Err(format!("a panic: {log}"));
    }
    if let Some(code) = gave_up {
        // it says that the store is damaged, and that may be all that can be known
        if !(code == Some(1) && log.contains("damaged") || is_out_of_memory) {
            return Err(format!("it gave up with {code:?}: {log}"));
        }
        drained(&world, &config)?;
    }
    let found = oracle.check_end(&world)?;
    if gave_up.is_none() && found.repeats > 0 {
        return Err(format!("{} files were taken twice: {}", found.repeats, world.told()));
    }
    Ok(if struck > 0 { Tried::Struck } else { Tried::Missed })
}

/// Waits until the fault is shown, all is done in spite of it, or it gives up.
fn shown_within(
    world: &World,
    daemon: &mut Daemon<'_>,
    said_before: usize,
    patience: Duration,
) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let state = &world.state()["daemon"];
        let some = |name: &str| state[name].as_u64() > Some(0);
        // a file whose lease is refused is taken for one that is still being written
        let is_shown = !state["fault"].is_null() || some("resting") || some("not_ready");
        let log = world.log();
        let is_logged = log[said_before..].contains("ERROR ");
        let is_done = world.names("inbox").is_empty();
        if is_shown || is_logged || is_done || !daemon.runs() {
            return Ok(());
        }
        if begun.elapsed() > patience {
            return Err(format!("nothing is said after {patience:?}: {state}\n{}", world.told()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
