//! Row 20: signals at any time: one a millisecond from exec on.
//!
//! Attempt n of the first 200 tells a daemon to stop n milliseconds after it was started, while it
//! has files to take. Where it catches the signal by then, it has to end with 0 and leave every
//! file in one place; before that, in the first moments of a program, the signal may end it. Every
//! 201st has one SIGUSR1 a millisecond, a thousand of them.
//!
//! Seen to fail: with SIGINT not caught, the daemon does not end in order.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use crate::dice::Dice;
use crate::invariants::Oracle;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::rows::{drained, quick_config};
use crate::workload::Workload;
use crate::world::World;

/// Survives what asks for something, stops in good order for what asks for that.
pub const ROW: Row = Row {
    number: 20,
    fault: "signals at any time",
    promise: "SIGUSR1 is survived, SIGTERM ends it with 0",
    figures: Figures { smoke: POINTS + 1, full: POINTS + 1, soak: 10 * (POINTS + 1) },
    lanes: 2,
    begin,
};

/// At how many milliseconds a daemon is told to stop.
const POINTS: u64 = 200;

/// How many reports are asked for.
const REPORTS: u64 = 1000;

struct Signals;

fn begin(_: &Scale) -> Result<Box<dyn Trial>, Unable> {
    Ok(Box::new(Signals))
}

impl Trial for Signals {
    fn attempt(&self, n: u64, mut dice: Dice) -> Result<Tried, String> {
        let mut workload = Workload::of_all_kinds(dice.next());
        let (world, mut oracle) = Oracle::with_world(&workload);
        let config = quick_config(&world, &[]);
        for _ in 0..40 {
            oracle.drop_in(&world, workload.next());
        }
        let tried = match n % (POINTS + 1) {
            POINTS => reports(&world, &config, &mut oracle, &mut workload)?,
            point => stop_at(&world, &config, point)?,
        };
        oracle.check(&world)?;
        drained(&world, &config)?;
        let found = oracle.check_end(&world)?;
        match (tried, found.repeats) {
            (tried, 0) => Ok(tried),
            // what a signal ends before it is caught had not taken anything
            (_, repeats) => Err(format!("{repeats} files were taken twice: {}", world.told())),
        }
    }
}

fn stop_at(world: &World, config: &str, point_ms: u64) -> Result<Tried, String> {
    let name = ["TERM", "INT"][(point_ms % 2) as usize];
    let number = [libc::SIGTERM, libc::SIGINT][(point_ms % 2) as usize];
    let mut daemon = world.spawn(&["--config", config]);
    std::thread::sleep(Duration::from_millis(point_ms));
    // once it has said anything, there is no excuse
    let is_young = !daemon.catches(number) && world.log().is_empty();
    daemon.signal(name);
    let status = daemon.wait();
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(Tried::Struck),
        (None, Some(signal)) if signal == number && is_young => Ok(Tried::Missed),
        _ => Err(format!("{name} after {point_ms} ms: {status}\n{}", world.told())),
    }
}

fn reports(
    world: &World,
    config: &str,
    oracle: &mut Oracle,
    workload: &mut Workload,
) -> Result<Tried, String> {
    let mut daemon = world.spawn(&["--config", config]);
    world.eventually("it catches SIGUSR1", || daemon.catches(libc::SIGUSR1));
    for n in 0..REPORTS {
        daemon.signal("USR1");
        if n % 10 == 0 {
            oracle.drop_in(world, workload.next());
        }
        std::thread::sleep(Duration::from_millis(1));
        if !daemon.runs() {
            return Err(format!("SIGUSR1 {n} ended it: {}", world.told()));
        }
    }
    let latest = world.spool().join("reports/latest.json");
    world.eventually("there is a report", || latest.exists());
    world.until_drained();
    daemon.stop();
    Ok(Tried::Times(REPORTS))
}
