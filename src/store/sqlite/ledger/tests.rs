//! The ledger against a map, with runs so small that all that can happen to them happens.

use std::collections::HashMap;
use std::path::Path;

use super::*;
use crate::model::event::{Event, Place as At};
use crate::store::EventRef;

const KEY: HashKey = HashKey([3; 16]);

const SMALL: Sizes = Sizes {
    tail_entries: 300,
    merged_runs: 3,
    merge_pace: 3,
    least_merge_ids: 100,
    recent_windows: usize::MAX,
    recent_rows: u64::MAX,
    forget_rows: u64::MAX,
};

/// When the event of an id happened; those of two thousand ids later are of the same times.
fn time_ms(id: u64) -> i64 {
    1_700_000_000_000 + (id % 2000) as i64
}

fn database(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    connection.pragma_update(None, "synchronous", "OFF").unwrap();
    let tables = include_str!("../file/schema/0003.sql");
    let from = tables.find("-- what came with ids").unwrap();
    connection.execute_batch(&tables[from..]).unwrap();
    connection.execute_batch("CREATE TABLE store (hash_key BLOB NOT NULL)").unwrap();
    let (_, removed) =
        include_str!("../file/schema/0004.sql").split_once("CREATE TABLE removed").unwrap();
    let (columns, _) = removed.split_once(';').unwrap();
    connection.execute_batch(&format!("CREATE TABLE removed{columns}")).unwrap();
    connection.execute("INSERT INTO store VALUES (?1)", [KEY.0]).unwrap();
    connection
}

/// A ledger, what it must hold, and how batches go on.
struct World {
    folder: tempfile::TempDir,
    connection: Connection,
    ledger: Ledger,
    model: HashMap<u64, (u64, u64)>,
    batch: u64,
    merged_until: u64,
}

/// How chunks are looked at ahead of the writer.
#[derive(Clone, Copy, PartialEq)]
enum Scouted {
    Not,
    /// By the filters only: nothing can be read.
    Blind,
    Well,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let connection = database(&folder.path().join("db"));
        let (ledger, model) = (Ledger::default(), HashMap::new());
        World { folder, connection, ledger, model, batch: 0, merged_until: 0 }
    }

    fn prefetch(&self, scouted: Scouted) -> Box<dyn Prefetch> {
        let path = self.folder.path().join("db");
        let open = move || match scouted {
            Scouted::Well => Some(Connection::open(&path).unwrap()),
            _ => None,
        };
        self.ledger.prefetch(KEY, Box::new(open))
    }

    fn chunk(&self, ids: &[u64]) -> Chunk {
        let mut chunk = Chunk::keyed(KEY);
        chunk.restart(10);
        for id in ids {
            chunk.push(Event {
                id: &format!("id {id}"),
                key: &format!("key {}", id % 7),
                timestamp_ms: time_ms(*id),
                value: *id as i64 - 50,
                source: None,
                producer_version: None,
                place: At::default(),
            });
        }
        chunk
    }

    fn facts(&mut self, chunk: &Chunk) -> Vec<Fact> {
        let mut facts = Vec::new();
        self.ledger.lookup(&self.connection, chunk, KEY, i64::MIN, &mut facts).unwrap();
        facts
    }

    /// One batch with those ids; what is known of them beforehand must be what the model knows.
    fn take(&mut self, ids: &[u64], scouted: Scouted) {
        let mut chunk = self.chunk(ids);
        if scouted != Scouted::Not {
            self.prefetch(scouted).look(&mut [&mut chunk]);
            assert_eq!(chunk.hint().is_some(), !self.ledger.runs.is_empty());
        }
        self.take_chunk(chunk, ids);
    }

    fn take_chunk(&mut self, chunk: Chunk, ids: &[u64]) {
        self.batch += 1;
        self.connection.execute_batch("BEGIN").unwrap();
        let facts = self.facts(&chunk);
        let mut rows = Vec::new();
        for (row, (id, fact)) in ids.iter().zip(facts).enumerate() {
            match self.model.get(id) {
                None => {
                    assert_eq!(fact, Fact::New, "id {id}");
                    rows.push(row);
                }
                Some((batch, event_index)) => {
                    let (batch, event_index) = (*batch, *event_index);
                    let timestamp_ms = time_ms(*id);
                    let seen = Seen { batch, event_index, timestamp_ms, same_payload: true };
                    assert_eq!(fact, Fact::Seen(seen), "id {id}");
                }
            }
        }
        self.ledger.record(&self.connection, &chunk, KEY, &rows, self.batch).unwrap();
        for row in rows {
            self.model.insert(ids[row], (self.batch, 10 + row as u64));
        }
        self.tidy();
        self.ledger.keep();
        self.connection.execute_batch("COMMIT").unwrap();
    }

    fn tidy(&mut self) {
        if self.ledger.tail_entries() >= SMALL.tail_entries {
            self.ledger.make_run(&self.connection).unwrap();
        }
        let next = self.ledger.next_position();
        let owed = SMALL.merge_pace * (next - self.merged_until);
        if owed >= SMALL.least_merge_ids {
            self.ledger.merge_some(&self.connection, &SMALL, owed).unwrap();
            self.merged_until = next;
        }
    }

    fn levels(&self) -> Vec<u64> {
        self.ledger.runs.iter().map(|run| run.facts.new.level).collect()
    }
}

#[test]
fn every_id_is_found_where_it_is_and_no_other() {
    let mut world = World::new();
    let (mut random, mut levels) = (11_u64, std::collections::BTreeSet::new());
    for batch in 0..250_u64 {
        let fresh = (0..20).map(|n| batch * 20 + n);
        let repeats = (0..8).map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % (batch * 20 + 1)
        });
        // a stretch as it came before, from the middle on
        let again = (batch * 7..batch * 7 + 15).filter(|id| *id < batch * 20);
        let mut seen = std::collections::HashSet::new();
        let ids: Vec<u64> =
            fresh.chain(repeats).chain(again).filter(|id| seen.insert(*id)).collect();
        let scouted = [Scouted::Not, Scouted::Blind, Scouted::Well][batch as usize % 3];
        world.take(&ids, scouted);
        levels.extend(world.levels());
        if batch % 60 == 59 {
            // another process reads all of it
            let next = world.ledger.next_position();
            world.ledger = Ledger::default();
            world.ledger.load(&world.connection, next).unwrap();
        }
    }
    assert_eq!(levels.into_iter().collect::<Vec<_>>(), [1, 2]);
    for id in (0..5000).step_by(83) {
        let hash = KEY.hash(&format!("id {id}"));
        let found = remembered(&world.connection, hash, i64::MIN).unwrap().unwrap();
        let (batch, event_index) = world.model[&id];
        assert_eq!(found.event, EventRef { batch, event_index });
        assert_eq!(
            (found.value, found.key),
            (Some(id as i64 - 50), Some(format!("key {}", id % 7)))
        );
        assert_eq!(remembered(&world.connection, hash, i64::MAX).unwrap(), None);
    }
    assert_eq!(remembered(&world.connection, KEY.hash("id 5000"), i64::MIN).unwrap(), None);
}

/// Looked at long ahead: meanwhile runs are made and merged, and ids are forgotten.
#[test]
fn what_was_found_ahead_holds_whatever_happens_meanwhile() {
    let mut world = World::new();
    let batch = |number: u64| (number * 20..number * 20 + 20).collect::<Vec<_>>();
    (0..100).for_each(|number| world.take(&batch(number), Scouted::Not));
    let mut prefetch = world.prefetch(Scouted::Well);
    for round in 0..20_u64 {
        // repeats of old ones among new ones, in many chunks at once
        let new = 2000 + round * 1000;
        let wanted: Vec<Vec<u64>> = (0..40_u64)
            .map(|number| {
                let old = (0..2).map(|n| (n * 197 + number * 31 + round * 7) % 2000);
                let from = new + number * 20;
                let both: std::collections::BTreeSet<u64> = old.chain(from..from + 20).collect();
                both.into_iter().collect()
            })
            .collect();
        let mut chunks: Vec<Chunk> = wanted.iter().map(|ids| world.chunk(ids)).collect();
        prefetch.look(&mut chunks.iter_mut().collect::<Vec<_>>());
        let found = |chunk: &Chunk| {
            chunk.hint().unwrap().downcast_ref::<Hint>().map(|hint| hint.hits.len()).unwrap()
        };
        assert!(chunks.iter().map(found).sum::<usize>() > 40, "it finds little ahead");
        let facts =
            |world: &World| -> Vec<_> { world.ledger.runs.iter().map(|run| run.facts).collect() };
        let before = facts(&world);
        for (chunk, ids) in chunks.into_iter().zip(&wanted) {
            world.take_chunk(chunk, ids);
        }
        assert_ne!(facts(&world), before, "nothing happened meanwhile");
    }
}

/// A run that is not committed yet is known to the writer only.
#[test]
fn a_run_that_is_not_committed_is_not_looked_into_ahead() {
    let mut world = World::new();
    (0..40).for_each(|batch| {
        world.take(&(batch * 20..batch * 20 + 20).collect::<Vec<_>>(), Scouted::Not);
    });
    world.connection.execute_batch("BEGIN").unwrap();
    let fresh = world.chunk(&(5000..5400).collect::<Vec<_>>());
    world.facts(&fresh);
    let rows: Vec<usize> = (0..400).collect();
    world.ledger.record(&world.connection, &fresh, KEY, &rows, 99).unwrap();
    world.ledger.make_run(&world.connection).unwrap();
    // few enough that they would be looked up
    let mut again = world.chunk(&(5000..5400).chain(10_000..14_000).collect::<Vec<_>>());
    world.prefetch(Scouted::Well).look(&mut [&mut again]);
    let hint = again.hint().unwrap().downcast_ref::<Hint>().unwrap();
    assert_eq!((hint.hits.len(), hint.maybe.len() >= 400), (0, true));
    let facts = world.facts(&again);
    assert!(facts[..400].iter().all(|fact| *fact != Fact::New));
    assert!(facts[400..].iter().all(|fact| *fact == Fact::New));
    world.connection.execute_batch("ROLLBACK").unwrap();
}

/// Where all is sent again, two threads look it up together.
#[test]
fn what_is_sent_again_as_a_whole_is_left_to_the_writer() {
    let mut world = World::new();
    let ids: Vec<u64> = (0..400).collect();
    world.take(&ids, Scouted::Not);
    assert!(!world.ledger.runs.is_empty());
    let mut again = world.chunk(&ids);
    world.prefetch(Scouted::Well).look(&mut [&mut again]);
    let hint = again.hint().unwrap().downcast_ref::<Hint>().unwrap();
    assert_eq!((hint.hits.len(), hint.maybe.len()), (0, 400));
    world.take_chunk(again, &ids);
}

#[test]
fn what_is_undone_is_not_found_not_even_by_a_filter() {
    let mut world = World::new();
    (0..10).for_each(|batch| {
        world.take(&(batch * 20..batch * 20 + 20).collect::<Vec<_>>(), Scouted::Not)
    });
    let before = world.ledger.next_position();
    world.connection.execute_batch("BEGIN").unwrap();
    let chunk = world.chunk(&(1000..1200).collect::<Vec<_>>());
    world.facts(&chunk);
    let rows: Vec<usize> = (0..200).collect();
    world.ledger.record(&world.connection, &chunk, KEY, &rows, 11).unwrap();
    assert!(world.facts(&chunk).iter().all(|fact| *fact != Fact::New));
    world.ledger.make_run(&world.connection).unwrap();
    let facts = world.ledger.runs[0].facts;
    world.connection.execute_batch("ROLLBACK").unwrap();
    assert!(!world.ledger.undo(before), "a run was made: all must be read again");
    // meanwhile another process makes a run that looks the same, of other ids
    let mut mine = std::mem::take(&mut world.ledger);
    world.ledger.load(&world.connection, before).unwrap();
    assert!(world.facts(&chunk).iter().all(|fact| *fact == Fact::New));
    world.take(&(3000..3200).collect::<Vec<_>>(), Scouted::Well);
    assert_eq!(world.ledger.runs[0].facts, facts);
    mine.load(&world.connection, world.ledger.next_position()).unwrap();
    world.ledger = mine;
    let chunk = world.chunk(&(3000..3200).collect::<Vec<_>>());
    assert!(world.facts(&chunk).iter().all(|fact| *fact != Fact::New));
}

#[test]
fn a_merge_that_ended_early_is_gone_on_with() {
    let mut world = World::new();
    let mut batch = 0;
    let mut take = |world: &mut World| {
        world.take(&(batch * 20..batch * 20 + 20).collect::<Vec<_>>(), Scouted::Not);
        batch += 1;
    };
    while world.ledger.merging.is_none() {
        take(&mut world);
    }
    let reload = |world: &mut World| {
        let next = world.ledger.next_position();
        world.ledger = Ledger::default();
        world.connection.execute_batch("BEGIN").unwrap();
        world.ledger.load(&world.connection, next).unwrap();
        world.connection.execute_batch("COMMIT").unwrap();
    };
    // after each batch the process ends, and another goes on
    for _ in 0..100 {
        reload(&mut world);
        take(&mut world);
    }
    assert!(world.levels().iter().any(|level| *level > 1), "{:?}", world.levels());
    while world.ledger.merging.is_none() {
        take(&mut world);
    }
    // of one that cannot be gone on with nothing is left
    let first = world.ledger.merging.as_ref().unwrap().merged[0];
    run::remove(&world.connection, &first).unwrap();
    reload(&mut world);
    assert!(world.ledger.merging.is_none());
    let sql = "SELECT COUNT(*) FROM ledger_parts WHERE part >> 24 NOT IN \
               (SELECT run FROM ledger_runs WHERE level > 0)";
    let left: u64 = world.connection.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
    let lost = first.new.from..first.new.to;
    let ids: Vec<u64> = (0..batch * 20).filter(|id| !lost.contains(id)).collect();
    let chunk = world.chunk(&ids);
    assert!(world.facts(&chunk).iter().all(|fact| *fact != Fact::New));
}

#[test]
fn a_run_that_lies_far_off_keeps_no_others_from_being_merged() {
    let mut world = World::new();
    (0..20).for_each(|batch| {
        world.take(&(batch * 20..batch * 20 + 20).collect::<Vec<_>>(), Scouted::Not)
    });
    assert_eq!(world.levels(), [1]);
    // all that came behind it was forgotten meanwhile
    let far = world.ledger.next_position() + run::MAX_ENTRIES;
    world.connection.execute_batch("DELETE FROM ledger_entries WHERE first >= 300").unwrap();
    world.ledger.load(&world.connection, far).unwrap();
    world.merged_until = far;
    (50..300).for_each(|batch| {
        world.take(&(batch * 20..batch * 20 + 20).collect::<Vec<_>>(), Scouted::Well)
    });
    assert!(world.levels().starts_with(&[1, 2]), "{:?}", world.levels());
    let chunk = world.chunk(&(1000..6000).collect::<Vec<_>>());
    assert!(world.facts(&chunk).iter().all(|fact| *fact != Fact::New));
}

#[test]
fn forgotten_stretches_go_with_their_runs() {
    let mut world = World::new();
    (0..80).for_each(|batch| {
        world.take(&(batch * 20..batch * 20 + 20).collect::<Vec<_>>(), Scouted::Well)
    });
    let runs = world.ledger.runs.len();
    let (mut walk, mut gone, mut steps) = (Walk::default(), 0, 0);
    while !walk.is_over {
        walk = forget_some(&world.connection, 1_700_000_001_000, 3, &walk).unwrap();
        gone += walk.gone;
        steps += 1;
    }
    assert!((gone, steps > 5) == (1000, true), "{gone} in {steps} steps");
    let next = world.ledger.next_position();
    world.ledger.load(&world.connection, next).unwrap();
    assert!(world.ledger.runs.len() < runs && !world.ledger.runs.is_empty());
    let chunk = world.chunk(&(0..1600).collect::<Vec<_>>());
    let facts = world.facts(&chunk);
    assert!(facts[..1000].iter().all(|fact| *fact == Fact::New));
    assert!(facts[1000..].iter().all(|fact| *fact != Fact::New));
    // all that is left has nothing so old: it is passed over
    let walk = forget_some(&world.connection, 1_700_000_001_000, 3, &Walk::default()).unwrap();
    assert_eq!(walk.gone, 0);
}
