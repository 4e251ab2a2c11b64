//! Row 0: the checks themselves. Each thing that they are to see is done to a spool that is in
//! order, and they have to name it.
//!
//! Seen to fail: when the checks looked at a file or a receipt only once, a byte that changed in
//! done/ and a receipt that changed were not seen.

use std::fs;
use std::path::PathBuf;

use crate::dice::Dice;
use crate::invariants::Oracle;
use crate::model::{Policy, Settings};
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::workload::Workload;
use crate::world::World;

/// What is doctored is seen.
pub const ROW: Row = Row {
    number: 0,
    fault: "doctored spools and stores",
    promise: "the checks of the other rows see each of them",
    figures: Figures { smoke: u64::MAX, full: u64::MAX, soak: u64::MAX },
    lanes: 2,
    begin,
};

/// What is done, and what the finding begins with.
type Doctoring = (&'static str, &'static str, fn(&World));

const DOCTORINGS: &[Doctoring] = &[
    ("a file of done/ is gone", "I1", |world| fs::remove_file(any(world, "done", false)).unwrap()),
    ("a byte of a file in done/ is another", "I1", |world| {
        let path = any(world, "done", false);
        let mut bytes = fs::read(&path).unwrap();
        bytes[0] ^= 1;
        fs::write(path, bytes).unwrap();
    }),
    ("a file is in done/ and in the inbox", "I1", |world| {
        let path = any(world, "done", false);
        fs::copy(&path, world.inbox().join(path.file_name().unwrap())).unwrap();
    }),
    ("a file that nobody dropped", "I1", |world| {
        fs::write(world.spool().join("failed/alien"), "x").unwrap();
    }),
    ("a refused file lies in done/", "I2", |world| {
        let from = any(world, "failed", false);
        fs::rename(&from, world.spool().join("done").join(from.file_name().unwrap())).unwrap();
    }),
    ("an ingested file lies in failed/", "I2", |world| {
        let from = any(world, "done", false);
        fs::rename(&from, world.spool().join("failed").join(from.file_name().unwrap())).unwrap();
    }),
    ("a reason is gone", "I2", |world| fs::remove_file(any(world, "failed", true)).unwrap()),
    ("a reason is cut off", "I2", |world| {
        let path = any(world, "failed", true);
        let text = fs::read(&path).unwrap();
        fs::write(path, &text[..text.len() / 2]).unwrap();
    }),
    ("a receipt is gone", "I2", |world| {
        edit(
            world,
            "DELETE FROM batches WHERE batch = (SELECT min(batch) FROM batches \
              WHERE kind = 'events')",
        );
    }),
    ("a file is counted twice", "I3", |world| {
        let path = any(world, "done", false);
        world.run(&["ingest", path.to_str().unwrap()]).ok();
    }),
    ("a receipt counts one more", "I3", |world| {
        edit(world, "UPDATE batches SET duplicate = duplicate + 1");
    }),
    ("a total counts one more", "I3", |world| {
        edit(world, "UPDATE store SET duplicate = duplicate + 1");
    }),
    ("a refusal is forgotten", "I3", |world| {
        edit(world, "UPDATE store SET refused_batches = refused_batches - 1");
    }),
    ("a file is refused for another reason", "I3", |world| {
        edit(world, "UPDATE refusals SET code = 'overflow'");
    }),
    ("an open window is one too many", "I3", |world| {
        edit(
            world,
            "INSERT INTO windows (start_ms, key, count, sum, min, max) \
             VALUES (9000000000000, 'alien', 1, 1, 1, 1); UPDATE store SET windows = windows + 1",
        );
    }),
    ("a late event is another", "I3", |world| edit(world, "UPDATE late SET value = value + 1")),
    ("a page of the store is damaged", "I4", |world| {
        // what is still in the log would hide it
        edit(world, "PRAGMA wal_checkpoint(TRUNCATE)");
        let mut bytes = fs::read(world.db()).unwrap();
        let at = root_page(world, "batches") * 4096;
        bytes[at..at + 4096].fill(0xa5);
        fs::write(world.db(), bytes).unwrap();
    }),
    ("the watermark is lower", "I5", |world| {
        edit(world, "UPDATE store SET watermark_ms = watermark_ms - 1");
        edit(world, "UPDATE sources SET max_timestamp_ms = max_timestamp_ms - 1");
    }),
    ("a final window is another", "I5", |world| edit(world, "UPDATE windows SET sum = sum + 1")),
    ("final windows are gone", "I5", |world| edit(world, "DELETE FROM windows")),
    ("the last windows are gone", "I", |world| edit(world, "DELETE FROM recent")),
    ("the draft of a reason is left over", "unfinished", |world| {
        fs::write(world.spool().join("failed/.windowflow-reason-0.tmp"), "{").unwrap();
    }),
    ("a reason without its file", "there is a reason", |world| {
        fs::write(world.spool().join("failed/none.error.json"), "{}").unwrap();
    }),
    ("a file was not taken", "1 files still wait", |_| {}),
];

struct Doctored;

fn begin(_: &Scale) -> Result<Box<dyn Trial>, Unable> {
    Ok(Box::new(Doctored))
}

impl Trial for Doctored {
    fn attempts(&self) -> Option<u64> {
        Some(DOCTORINGS.len() as u64)
    }

    fn attempt(&self, n: u64, _: Dice) -> Result<Tried, String> {
        let (what, expected, doctor) = &DOCTORINGS[n as usize];
        // corrections have windows worked into their table, where they can be doctored
        let is_aside = what.contains("late event") || what.contains("last windows");
        let policy = if is_aside { Policy::Aside } else { Policy::Correct };
        let mut workload = Workload::new(1, Settings { policy, ..Settings::new(1000, 500) });
        let (world, mut oracle) = Oracle::with_world(&workload);
        for _ in 0..60 {
            oracle.drop_in(&world, workload.next());
        }
        world.drain().exits(65);
        oracle.check_end(&world).map_err(|found| format!("a sound spool: {found}"))?;
        doctor(&world);
        if *what == "a file was not taken" {
            oracle.drop_in(&world, workload.next());
        }
        match oracle.check_end(&world) {
            Err(found) if found.starts_with(&format!("at the end: {expected}")) => {
                Ok(Tried::Struck)
            }
            other => Err(format!("{what}: not seen as {expected}: {other:?}")),
        }
    }
}

/// The first file of that folder itself, or the first reason.
fn any(world: &World, folder: &str, reason: bool) -> PathBuf {
    let names = world.names(folder);
    let is_it = |name: &&String| !name.contains('/') && name.ends_with(".error.json") == reason;
    let name = names.iter().find(is_it).unwrap();
    world.spool().join(folder).join(name)
}

fn edit(world: &World, sql: &str) {
    let store = rusqlite::Connection::open(world.db()).unwrap();
    store.execute_batch(sql).unwrap();
}

/// The number of the first page of a table, from 0.
fn root_page(world: &World, table: &str) -> usize {
    let store = rusqlite::Connection::open(world.db()).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let root: i64 = store.query_row(sql, [table], |row| row.get(0)).unwrap();
    root as usize - 1
}
