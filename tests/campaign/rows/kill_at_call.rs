//! Row 1: SIGKILL at any system call that leaves something behind.
//!
//! One run over 20 files is counted call by call; then each attempt has a run of its own, which is
//! killed as it enters its N-th call of a kind, and a run after it that goes to the end. Every
//! second time the store is looked at in between, too, by a process that recovers it before the
//! daemon does. In a soak the files are others in each round.
//!
//! Seen to fail: with a move just before the commit, a file is in done/ without its events.

use crate::dice::Dice;
use crate::invariants::Oracle;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::strace::{self, Inject};
use crate::workload::Workload;
use crate::world::World;

/// Killed at any call, nothing is lost or counted twice.
pub const ROW: Row = Row {
    number: 1,
    fault: "SIGKILL at any system call",
    promise: "I1 to I5 after the restart",
    figures: Figures { smoke: 350, full: u64::MAX, soak: 10_000 },
    lanes: 2,
    begin,
};

/// The calls that change what outlives the process.
const CALLS: [&str; 12] = [
    "write",
    "pwrite64",
    "fsync",
    "fdatasync",
    "renameat2",
    "openat",
    "open",
    "unlinkat",
    "unlink",
    "ftruncate",
    "mkdir",
    "fallocate",
];

/// How many files a run takes.
pub const FILES: usize = 20;

struct KillAtCall {
    /// Each call and its number, from 1, in an order that spreads over all.
    points: Vec<(&'static str, u64)>,
    left_out: Option<String>,
}

fn begin(scale: &Scale) -> Result<Box<dyn Trial>, Unable> {
    strace::is_here()?;
    let (world, _) = prepared(0);
    let counted = strace::count(&world, &CALLS);
    let all: Vec<_> = CALLS
        .iter()
        .flat_map(|call| (1..=counted.get(*call).copied().unwrap_or(0)).map(move |n| (*call, n)))
        .collect();
    let points = spread(all);
    let left_out = (*scale == Scale::Smoke && points.len() as u64 > ROW.figures.smoke).then(|| {
        let (some, all) = (ROW.figures.smoke, points.len());
        format!("of {all} points, rounded up, {some}, spread evenly: all of them without --smoke")
    });
    Ok(Box::new(KillAtCall { points, left_out }))
}

impl KillAtCall {
    fn point(&self, n: u64) -> (&'static str, u64) {
        self.points[(n % self.points.len() as u64) as usize]
    }
}

/// The same in an order in which the first ones of it lie everywhere.
pub fn spread<T: Clone>(all: Vec<T>) -> Vec<T> {
    let len = all.len();
    let is_coprime = |step: usize| {
        let (mut a, mut b) = (step, len);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a == 1
    };
    // the golden section, as near as it gets
    let near = (len as f64 * 0.618) as usize;
    let step = (near.max(1)..).find(|step| is_coprime(*step)).unwrap_or(1);
    (0..len).map(|n| all[n * step % len].clone()).collect()
}

/// A world with files in its inbox.
pub fn prepared(seed: u64) -> (World, Oracle) {
    let mut workload = Workload::of_all_kinds(seed);
    let (world, mut oracle) = Oracle::with_world(&workload);
    for _ in 0..FILES {
        oracle.drop_in(&world, workload.next());
    }
    (world, oracle)
}

impl Trial for KillAtCall {
    fn note(&self) -> Option<String> {
        self.left_out.clone()
    }

    fn what(&self, n: u64) -> String {
        let (call, number) = self.point(n);
        format!("killed at {call} {number}")
    }

    fn attempt(&self, n: u64, mut dice: Dice) -> Result<Tried, String> {
        let round = n / self.points.len() as u64;
        let (call, number) = self.point(n);
        let seed = if round == 0 { 0 } else { dice.next() };
        let (world, mut oracle) = prepared(seed);
        let inject =
            Inject { calls: call, how: format!("signal=KILL:when={number}"), paths: Vec::new() };
        let wrapper = inject.wrapper("/dev/null");
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        let ran = world.run_under(&wrapper, &["run", "--once"]);
        let told = |what: String| format!("files of seed {seed}: {what}");
        if !matches!(ran.code, None | Some(0 | 65)) {
            return Err(told(format!("it ended with {:?}: {}", ran.code, ran.err)));
        }
        let was_killed = ran.code.is_none();
        let mut most_repeats = FILES as u64;
        if n.is_multiple_of(2) {
            let found = oracle.check(&world);
            let found = found.map_err(|what| told(format!("after the kill: {what}")))?;
            most_repeats = found.owed;
        }
        let again = world.drain();
        if !matches!(again.code, Some(0 | 65)) {
            return Err(told(format!("the restart ended with {:?}: {}", again.code, again.err)));
        }
        let found = oracle.check_end(&world).map_err(told)?;
        if found.repeats > most_repeats {
            return Err(told(format!("{} files were taken twice", found.repeats)));
        }
        Ok(if was_killed { Tried::Struck } else { Tried::Missed })
    }
}
