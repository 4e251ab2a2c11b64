//! Row 27: the machine's clock is wrong at a start, or steps while the daemon runs, with retention on.
//!
//! An attempt is a store made under a right clock and three runs of the daemon over it, each of which
//! begins in 1970, now, or ten years ahead, and has its clock set anew while it runs. Files come in
//! all the time, of events that are in time by the true clock; retention of a month is applied in
//! each run. Nothing may be removed, nothing late, nothing held, and a clock that is behind is told
//! of with the time that is believed instead.
//!
//! Seen to fail: with retention that measures age by the clock, what is a month old by a clock ten
//! years ahead is gone; with events judged by the clock, a run in 1970 holds them. What it found: a
//! stop that came in the moment in which a file of done/ was to be looked at again was slept over.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::clocked::{self, Clocked, DAY_MS, MINUTE_MS, now_ms};
use crate::dice::Dice;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::rows::{Ended, quick_config, until_drained};
use crate::world::World;

/// A wrong clock removes nothing and makes nothing late.
pub const ROW: Row = Row {
    number: 27,
    fault: "a wrong clock at a start, and steps, with retention on",
    promise: "nothing removed, late or held; status names both clocks",
    figures: Figures { smoke: 4, full: 40, soak: 1000 },
    lanes: 2,
    begin,
};

/// How often the daemon starts in an attempt.
const STARTS: u64 = 3;

/// Where the clock is set to, and whether it is behind then. With none of these is it right by chance.
const CLOCKS: [(&str, bool); 5] =
    [("-20000d", true), ("-3h", true), ("+0", false), ("+40d", false), ("+3650d", false)];

/// How old the oldest event is: retention keeps it under a right clock.
const OLDEST_MS: i64 = 20 * DAY_MS;

struct WrongClock {
    preload: PathBuf,
}

fn begin(_: &Scale) -> Result<Box<dyn Trial>, Unable> {
    Ok(Box::new(WrongClock { preload: clocked::preload().map_err(Unable)? }))
}

impl Trial for WrongClock {
    fn attempt(&self, _: u64, mut dice: Dice) -> Result<Tried, String> {
        let world = World::new();
        world.init(60_000, 0, &[]);
        let clocked = Clocked::of(world, self.preload.clone());
        let world = &clocked.world;
        let config = quick_config(
            world,
            &[
                // nothing is found by a look that a clock could put off
                ("inbox.rescan_ms", "3600000"),
                ("retention.done_days", "30"),
                ("retention.receipts_days", "30"),
                ("retention.windows_days", "30"),
                ("retention.late_days", "30"),
                ("daemon.log", "\"debug\""),
            ],
        );
        let mut source = Source { event_ms: now_ms() - OLDEST_MS, files: 0 };
        for _ in 0..STARTS {
            let (offset, is_behind) = CLOCKS[dice.below(CLOCKS.len() as u64) as usize];
            clocked.set(offset);
            let prunings = applied(world);
            let mut daemon = clocked.spawn(&config);
            daemon.until_ready();
            source.drop_some(world, &mut dice);
            drain(world, &mut daemon, offset)?;
            until(world, offset, "retention is applied", || applied(world) > prunings)?;
            check_status(&clocked, offset, is_behind)?;
            let (offset, is_behind) = CLOCKS[dice.below(CLOCKS.len() as u64) as usize];
            clocked.set(offset);
            source.drop_some(world, &mut dice);
            drain(world, &mut daemon, offset)?;
            check_status(&clocked, offset, is_behind)?;
            daemon.stop();
            source.check(world).map_err(|what| format!("{offset}: {what}\n{}", world.told()))?;
        }
        Ok(Tried::Times(2 * STARTS))
    }
}

/// One source, whose events come in order.
struct Source {
    event_ms: i64,
    files: u64,
}

impl Source {
    fn drop_some(&mut self, world: &World, dice: &mut Dice) {
        for _ in 0..=dice.below(3) {
            let name = format!("{:03}.json", self.files);
            let time_ms = self.event_ms;
            let event = format!(
                "{{\"id\":\"{name}\",\"key\":\"k\",\"timestamp_ms\":{time_ms},\"value\":1}}"
            );
            world.drop_in(&name, event);
            self.files += 1;
            // soon they are of the present
            let step_ms = (now_ms() - self.event_ms) / 3;
            self.event_ms += step_ms.max(1);
        }
    }

    /// All that was dropped is there, once, in time, with its receipt and its window.
    fn check(&self, world: &World) -> Result<(), String> {
        let report = world.report();
        let total = |name: &str| report["totals"][name].as_u64();
        for (name, expected) in
            [("accepted", self.files), ("late", 0), ("future", 0), ("duplicate", 0), ("expired", 0)]
        {
            if total(name) != Some(expected) {
                return Err(format!("{expected} {name} expected: {}", report["totals"]));
            }
        }
        let windows = report["windows"].as_array().map(Vec::as_slice).unwrap_or_default();
        let counted: u64 = windows.iter().filter_map(|window| window["count"].as_u64()).sum();
        if counted != self.files {
            return Err(format!("windows count {counted} of {} events", self.files));
        }
        let done = world.names("done").len() as u64;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let receipts: u64 = Connection::open_with_flags(world.db(), flags)
            .and_then(|store| store.query_row("SELECT count(*) FROM batches", [], |row| row.get(0)))
            .map_err(|error| error.to_string())?;
        if (done, receipts) != (self.files, self.files) {
            return Err(format!("{done} files and {receipts} receipts of {} files", self.files));
        }
        Ok(())
    }
}

/// How often retention was applied, whatever it removed.
fn applied(world: &World) -> usize {
    world.log().matches("retention: ").count()
}

fn drain(world: &World, daemon: &mut crate::world::Daemon<'_>, offset: &str) -> Result<(), String> {
    match until_drained(world, daemon, &mut |_| {}).map_err(|what| format!("{offset}: {what}"))? {
        Ended::Drained => Ok(()),
        Ended::GaveUp(code) => Err(format!("{offset}: it ended with {code:?}: {}", world.told())),
    }
}

fn until(
    world: &World,
    offset: &str,
    what: &str,
    mut holds: impl FnMut() -> bool,
) -> Result<(), String> {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > Duration::from_secs(30) {
            return Err(format!("{offset}: not within 30 s: {what}\n{}", world.told()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A clock that is behind is 75 and both times, and one that is not is neither.
fn check_status(clocked: &Clocked, offset: &str, is_behind: bool) -> Result<(), String> {
    let told = clocked.run(&["status", "--json"]);
    let status: Value = serde_json::from_str(&told.out).unwrap_or_default();
    if status["clock_is_behind"] != is_behind {
        return Err(format!("{offset}: status says {status}"));
    }
    if !is_behind {
        return Ok(());
    }
    let told = clocked.run(&["status"]);
    let year = |ms: i64| 1970 + ms / (365 * DAY_MS + DAY_MS / 4);
    let believed = format!("{}-", year(now_ms() + MINUTE_MS));
    match told.code == Some(75)
        && told.out.contains("is not believed")
        && told.out.contains(&believed)
    {
        true => Ok(()),
        false => Err(format!("{offset}: {told:?}")),
    }
}
