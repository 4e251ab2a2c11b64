//! Row 11: what the kernel tells of new files is lost, late, or was never told.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::dice::Dice;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::world::{World, has_tool};

/// Whatever is not told of is found by looking.
pub const ROW: Row = Row {
    number: 11,
    fault: "hints lost: overflow, a start, a dead watch, silent events, in turn",
    promise: "all files are taken, each once",
    // five, and two hundred of each
    figures: Figures { smoke: 20, full: 80, soak: 800 },
    lanes: 2,
    begin,
};

/// Long enough never to come: what is found was found without it.
const NEVER: u64 = 3_600_000;

struct LostHints {
    burst: u64,
    has_bindfs: bool,
}

fn begin(scale: &Scale) -> Result<Box<dyn Trial>, Unable> {
    Ok(Box::new(LostHints {
        burst: if *scale == Scale::Smoke { 300 } else { 5000 },
        has_bindfs: has_tool("bindfs", "a file system that tells of nothing"),
    }))
}

impl Trial for LostHints {
    fn attempt(&self, n: u64, dice: Dice) -> Result<Tried, String> {
        match n % 4 {
            0 => overflow(self.burst),
            1 => start(dice),
            2 => dead_watch(dice),
            _ if self.has_bindfs => silent(dice),
            _ => Ok(Tried::Missed),
        }
    }
}

fn event(name: &str) -> String {
    format!("{{\"id\":\"{name}\",\"key\":\"k\",\"timestamp_ms\":1,\"value\":1}}\n")
}

fn config(world: &World, rescan_ms: u64) -> String {
    let path = world.root().join("windowflow.toml");
    let text = format!("[inbox]\nsettle_ms = 100\nrescan_ms = {rescan_ms}\n");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn check(world: &World, files: u64) -> Result<(), String> {
    let totals = world.report()["totals"].clone();
    let done = world.names("done").len() as u64;
    match totals["accepted"] == files && totals["duplicate"] == 0 && done == files {
        true => Ok(()),
        false => Err(format!("of {files} files: {done} in done/, {totals}\n{}", world.told())),
    }
}

/// More events than the queue of the kernel holds, while the daemon stands still.
fn overflow(burst: u64) -> Result<Tried, String> {
    let world = World::with_store(1000, 0);
    let daemon = world.daemon_with(&["--config", &config(&world, NEVER)]);
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: u64 = limit.trim().parse().unwrap();
    daemon.signal("STOP");
    // made, written and removed: at least four events, none of which says anything by itself
    for n in 0..=limit.min(1_000_000) / 4 {
        let path = world.inbox().join(format!(".hidden-{}", n % 2));
        fs::write(&path, "x").unwrap();
        fs::remove_file(&path).unwrap();
    }
    for n in 0..burst {
        world.drop_in(format!("{n:05}.json"), event(&n.to_string()));
    }
    daemon.signal("CONT");
    world.until_drained();
    let rescans = || world.state()["daemon"]["rescans"].as_u64();
    world.eventually("a rescan is counted", || rescans() >= Some(1));
    check(&world, burst)?;
    daemon.stop();
    Ok(Tried::Struck)
}

/// A file every half millisecond, from somewhere in the first moments on.
fn start(mut dice: Dice) -> Result<Tried, String> {
    const FILES: u64 = 40;
    let world = World::with_store(1000, 0);
    let config = config(&world, NEVER);
    let wait = Duration::from_micros(dice.below(60_000));
    std::thread::scope(|scope| {
        let daemon = world.spawn(&["--config", &config]);
        scope.spawn(|| {
            std::thread::sleep(wait);
            for n in 0..FILES {
                world.drop_in(format!("{n:02}.json"), event(&n.to_string()));
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        world.eventually("all are taken", || world.names("done").len() as u64 == FILES);
        check(&world, FILES)?;
        daemon.stop();
        Ok(Tried::Struck)
    })
}

/// The inbox is taken away and made again, at any moment.
fn dead_watch(mut dice: Dice) -> Result<Tried, String> {
    let world = World::with_store(1000, 0);
    let mut daemon = world.daemon_with(&["--config", &config(&world, 200)]);
    let rounds = 1 + dice.below(4);
    for n in 0..rounds {
        world.drop_in(format!("{n}.json"), event(&n.to_string()));
        std::thread::sleep(Duration::from_micros(dice.below(20_000)));
        world.until_drained();
        let aside = world.root().join(format!("inbox-{n}"));
        fs::rename(world.inbox(), aside).unwrap();
        std::thread::sleep(Duration::from_micros(dice.below(20_000)));
        fs::create_dir(world.inbox()).unwrap();
    }
    world.drop_in("last.json", event("last"));
    world.eventually("all are taken", || world.names("done").len() as u64 == rounds + 1);
    if !daemon.runs() {
        return Err(format!("it ended: {}", world.told()));
    }
    check(&world, rounds + 1)?;
    daemon.stop();
    Ok(Tried::Struck)
}

/// A mount that is undone in any case.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// The spool is another view of a folder: what is put into that makes no event here.
fn silent(mut dice: Dice) -> Result<Tried, String> {
    let world = World::new();
    let beneath = world.root().join("beneath");
    fs::create_dir_all(beneath.join("inbox")).unwrap();
    // nothing may lie where it is mounted
    fs::remove_dir(world.inbox()).unwrap();
    let mounted = Command::new("bindfs").arg(&beneath).arg(world.spool()).output().unwrap();
    if !mounted.status.success() {
        return Err(String::from_utf8_lossy(&mounted.stderr).into_owned());
    }
    let _mounted = Mounted(world.spool());
    // no store lies on such a file system
    let db = world.root().join("store.db");
    let db = ["--db", db.to_str().unwrap()];
    let init = ["init", "--window-ms", "1000", "--lateness-ms", "0"];
    world.run(&[&db[..], &init[..]].concat()).ok();
    let config = config(&world, 300);
    let daemon = world.daemon_with(&[&db[..], &["--config", &config]].concat());
    let files = 1 + dice.below(20);
    for n in 0..files {
        std::thread::sleep(Duration::from_micros(dice.below(50_000)));
        let name = format!("{n}.json");
        fs::write(world.root().join("staged"), event(&name)).unwrap();
        fs::rename(world.root().join("staged"), beneath.join("inbox").join(name)).unwrap();
    }
    world.eventually("all are taken", || world.names("done").len() as u64 == files);
    daemon.stop();
    let report = world.run(&[&db[..], &["report", "--json"]].concat()).ok().json();
    match report["totals"]["accepted"] == files {
        true => Ok(Tried::Struck),
        false => Err(format!("of {files} files: {}", report["totals"])),
    }
}
