//! Row 28: the first start over a backlog of many source folders.
//!
//! Each attempt fills 1 to 200 folders (20 at the gate) with files in a random order, some of
//! sources whose events are in order, some not, and drains them into a new store. What is late has to
//! be exactly what a fair merge of the sources finds late: one that waits for each of them from the
//! start. A source that has nothing late alone has nothing late beside others.
//!
//! Seen to fail: with the expectation of new sources taken out of the daemon's look into the inbox,
//! most attempts find late events that the merge does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use rusqlite::{Connection, OpenFlags};

use crate::dice::Dice;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::rows::quick_config;
use crate::world::World;

/// A source is waited for from the moment at which files of it are there.
pub const ROW: Row = Row {
    number: 28,
    fault: "a first start over many source folders",
    promise: "late is what a fair merge finds late",
    figures: Figures { smoke: 60, full: 300, soak: 10_000 },
    lanes: 2,
    begin,
};

const WINDOW_MS: i64 = 60_000;

struct FirstStart {
    most_folders: u64,
}

fn begin(scale: &Scale) -> Result<Box<dyn Trial>, Unable> {
    let most_folders = if *scale == Scale::Smoke { 20 } else { 200 };
    Ok(Box::new(FirstStart { most_folders }))
}

/// An event: its id and time.
type Event = (String, i64);

impl Trial for FirstStart {
    fn attempt(&self, _: u64, mut dice: Dice) -> Result<Tried, String> {
        let lateness_ms = [0, 0, 30_000, 200_000][dice.below(4) as usize];
        let world = World::with_store(WINDOW_MS, lateness_ms);
        let folders = 1 + dice.below(self.most_folders);
        let is_ordered = dice.below(2) == 0;
        let mut files: BTreeMap<String, Vec<Event>> = BTreeMap::new();
        for folder in 0..folders {
            fill(&mut files, folder, is_ordered, &mut dice);
        }
        let mut names: Vec<&String> = files.keys().collect();
        while !names.is_empty() {
            let name = names.swap_remove(dice.below(names.len() as u64) as usize);
            world.drop_in(name, text(&files[name]));
        }
        let (config, spool) = (quick_config(&world, &[]), world.spool());
        let spool = spool.to_str().ok_or("the spool has no name")?;
        let ran = world.run(&["run", "--once", "--config", &config, "--spool", spool]);
        if ran.code != Some(0) {
            return Err(format!("{ran:?}"));
        }
        let (order, late) = taken(&world);
        if order.len() != files.len() {
            return Err(format!("{} of {} files: {}", order.len(), files.len(), world.told()));
        }
        let merged = merge(&order, &files, lateness_ms);
        if late != merged {
            let (found, expected) = (late.len(), merged.len());
            return Err(format!(
                "{folders} folders: {found} late, {expected} by a fair merge, such as {:?}: {}",
                late.symmetric_difference(&merged).next(),
                world.told()
            ));
        }
        if is_ordered && !late.is_empty() {
            return Err(format!("{} late, and each source alone has none", late.len()));
        }
        world.run(&["verify"]).ok();
        Ok(if folders > 1 { Tried::Struck } else { Tried::Missed })
    }
}

/// Files of one source, over about the same ten minutes as those of the others.
fn fill(files: &mut BTreeMap<String, Vec<Event>>, folder: u64, is_ordered: bool, dice: &mut Dice) {
    let (count, mut now_ms) = (1 + dice.below(4), dice.below(120_000) as i64);
    for file in 0..count {
        let events = (0..1 + dice.below(12))
            .map(|event| {
                now_ms += dice.below(30_000) as i64;
                let back_ms = if is_ordered { 0 } else { dice.below(150_000) as i64 };
                (format!("{folder}-{file}-{event}"), (now_ms - back_ms).max(0))
            })
            .collect();
        // files of one source follow on each other by name; those of several come in any order
        let name = format!("s{folder:03}/{file}-{:02}.ndjson", dice.below(100));
        files.insert(name, events);
    }
}

fn text(events: &[Event]) -> String {
    let mut text = String::new();
    for (id, timestamp_ms) in events {
        let _ = writeln!(
            text,
            "{{\"id\":\"{id}\",\"key\":\"k\",\"timestamp_ms\":{timestamp_ms},\"value\":1}}"
        );
    }
    text
}

/// The files in the order in which they took effect, and the ids that were late.
fn taken(world: &World) -> (Vec<String>, BTreeSet<String>) {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let store = Connection::open_with_flags(world.db(), flags).unwrap();
    let all = |sql: &str| -> Vec<String> {
        let mut rows = store.prepare(sql).unwrap();
        rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let order = all("SELECT file FROM batches WHERE kind = 'events' ORDER BY batch");
    (order, all("SELECT id FROM late").into_iter().collect())
}

/// What is late when each source is waited for from the start.
fn merge(
    order: &[String],
    files: &BTreeMap<String, Vec<Event>>,
    lateness_ms: i64,
) -> BTreeSet<String> {
    let source_of = |file: &str| file.split('/').next().unwrap_or_default().to_owned();
    let mut reached: BTreeMap<String, Option<i64>> =
        files.keys().map(|file| (source_of(file), None)).collect();
    let (mut watermark_ms, mut late) = (0, BTreeSet::new());
    for file in order {
        for (id, timestamp_ms) in &files[file] {
            if (timestamp_ms / WINDOW_MS + 1) * WINDOW_MS <= watermark_ms {
                late.insert(id.clone());
            }
            let own = reached.entry(source_of(file)).or_default();
            *own = (*own).max(Some(*timestamp_ms));
            if let Some(least_ms) = reached.values().copied().min().flatten() {
                watermark_ms = watermark_ms.max(least_ms - lateness_ms);
            }
        }
    }
    late
}
