//! Row 8: the disk is full to the last so many KiB, and later there is room again.
//!
//! The judge can see: a daemon that takes a full disk for a lasting fault leaves the inbox as it is
//! (3 of 8); one that opens the store where the index of the log has no room is ended by the kernel
//! (with blocks of 1 KiB, of which 9 to 14 are free: each time). Neither ever says what is wrong. It
//! does not see one that takes an index with a hole for whole (0 of 372): such a hole does not come
//! about here; the test of that guard is in the store.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use crate::deliveries::{Dropped, NEVER_LATE_MS, WINDOW_MS, in_any_order};
use crate::dice::Dice;
use crate::mounted::{self, Mounted, show, stage};
use crate::outcome::{all_counted, none_repeated};
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::world::{Daemon, World};

/// Whatever did not fit waits, is said so, and goes on by itself.
pub const ROW: Row = Row {
    number: 8,
    fault: "full disk, and room again",
    promise: "nothing lost, status says so, goes on by itself, totals right",
    figures: Figures { smoke: 24, full: SIZES, soak: 4 * SIZES },
    lanes: 2,
    begin,
};

/// From none to 512 KiB.
const SIZES: u64 = 513;

/// How large the disk is.
const DISK_MIB: u64 = 24;

struct FullDisk {
    is_all: bool,
}

fn begin(scale: &Scale) -> Result<Box<dyn Trial>, Unable> {
    mounted::must_work()?;
    Ok(Box::new(FullDisk { is_all: *scale != Scale::Smoke }))
}

impl Trial for FullDisk {
    /// A soak tries each size in each way: with a daemon that runs or one that starts by then, and
    /// with blocks as large as a page of memory or smaller.
    fn attempt(&self, n: u64, mut dice: Dice) -> Result<Tried, String> {
        // a third of them with less than the index of the log needs
        let most = if dice.below(3) == 0 { 40 } else { SIZES };
        let drawn = (dice.below(most), dice.below(4));
        let (free_kib, way) = if self.is_all { (n % SIZES, n / SIZES) } else { drawn };
        let (starts, block_bytes) = (way % 2 == 1, if way / 2 % 2 == 1 { 1024 } else { 4096 });
        let full = Full::fill(free_kib, block_bytes, &mut dice);
        full.and_then(|full| full.go_on(starts)).map_err(|text| {
            format!("{free_kib} KiB free, blocks of {block_bytes}, starts on it: {starts}: {text}")
        })
    }
}

/// A world on a disk that is about to be full.
struct Full {
    world: World,
    disk: Mounted,
    files: Vec<Dropped>,
    free_kib: u64,
}

impl Full {
    /// A store with something in it, and files that wait under names that are left alone.
    fn fill(free_kib: u64, block_bytes: u64, dice: &mut Dice) -> Result<Full, String> {
        let disk = Mounted::new(DISK_MIB, block_bytes, "defaults")?;
        let world = disk.world();
        world.init(WINDOW_MS, NEVER_LATE_MS, &[]);
        let text = "[inbox]\nsettle_ms = 0\nrescan_ms = 200\n[daemon]\nbackoff_min_ms = 20\n\
                    backoff_max_ms = 200\n";
        fs::write(world.root().join("windowflow.toml"), text).unwrap();
        let files = in_any_order(10, 1500, dice);
        stage(&world, &files);
        Ok(Full { world, disk, files, free_kib })
    }

    fn daemon(&self) -> Daemon<'_> {
        self.world.daemon_with(&["--config", "windowflow.toml"])
    }

    fn go_on(&self, starts: bool) -> Result<Tried, String> {
        let world = &self.world;
        let mut daemon = self.daemon();
        show(world, &self.files, 0..1);
        world.until_drained();
        if starts {
            daemon.stop();
            self.take_room()?;
            daemon = world.spawn(&["--config", "windowflow.toml"]);
        } else {
            self.take_room()?;
        }
        show(world, &self.files, 1..self.files.len());
        let mut is_struck = false;
        world.eventually("it says so, or has room", || {
            is_struck = is_struck || says_full(world);
            is_struck || world.names("inbox").is_empty()
        });
        if is_struck && world.run(&["status"]).code != Some(75) {
            return Err("status does not end with 75".to_owned());
        }
        if is_struck {
            // each opens the store anew
            daemon.signal("USR1");
            if let Some(command) =
                ["report", "late"].iter().find(|it| world.run(&[it]).code.is_none())
            {
                return Err(format!("the kernel ended `{command}`"));
            }
        }
        let known = |name: &String| self.files.iter().any(|it| it.name == *name && !it.is_good);
        let failed = world.names("failed");
        let data = failed.iter().filter(|name| !name.ends_with(".error.json"));
        if let Some(name) = { data }.find(|name| !known(name)) {
            return Err(format!("{name} was refused for want of room"));
        }
        fs::remove_file(self.filler()).unwrap();
        world.until_drained();
        // a report that was not written stands as a fault until one is
        daemon.signal("USR1");
        world.eventually("the fault is over", || fault(world).is_empty());
        if !daemon.runs() {
            return Err(format!("it has ended: {}", world.told()));
        }
        daemon.stop();
        all_counted(world, &self.files)?;
        none_repeated(world)?;
        Ok(if is_struck { Tried::Struck } else { Tried::Missed })
    }

    fn filler(&self) -> PathBuf {
        self.disk.path().join("filler")
    }

    /// Leaves so much room and no more.
    fn take_room(&self) -> Result<(), String> {
        let mut filler = fs::File::create(self.filler()).unwrap();
        loop {
            let more_kib = self.disk.free_kib().saturating_sub(self.free_kib);
            // what is not written out yet takes room, too, and its bookkeeping some more
            let step_kib = if more_kib > 64 { more_kib / 2 } else { 1 };
            if more_kib == 0 || filler.write_all(&vec![b'x'; (step_kib << 10) as usize]).is_err() {
                break;
            }
            filler.sync_all().map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

fn fault(world: &World) -> String {
    world.state()["daemon"]["fault"]["text"].as_str().unwrap_or_default().to_owned()
}

/// Whether it says what is wrong and where, and with how much room.
fn says_full(world: &World) -> bool {
    let text = fault(world);
    let is_named = text.contains("full") || text.contains("room") || text.contains("space");
    is_named && text.contains(&*world.root().to_string_lossy())
}
