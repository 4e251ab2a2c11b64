//! What an id costs in the SQLite store: to be looked up, to be remembered, and to be moved into
//! larger and larger runs.

use std::path::Path;

use criterion::{Criterion, Throughput};
use windowflow::engine::settings::Settings;
use windowflow::engine::{Counts, Fact, Judge};
use windowflow::model::event::{Chunk, HashKey};
use windowflow::store::sqlite::{Options, SqliteStore};
use windowflow::store::{Begun, Delivery, Receipt, Store};

use crate::workload::{self, Made};

/// Events of a chunk.
const COUNT: usize = 2500;

/// Chunks in the store that is asked.
const CHUNKS: usize = 500;

pub(crate) fn measure(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let events = workload::events((2 * CHUNKS + 1) * COUNT);
    let (known, new) = events.split_at(CHUNKS * COUNT);
    let mut group = criterion.benchmark_group("ledger");
    group.throughput(Throughput::Elements(COUNT as u64));

    let mut store = make(&folder.path().join("asked.db"));
    let key = store.hash_key();
    for (number, events) in known.chunks(COUNT).enumerate() {
        take(&mut store, number, &chunk(events.iter(), key));
    }
    let mut prefetch = store.prefetch().expect("this store has one");
    let every = |step: usize| known.iter().step_by(step).take(COUNT);
    let asked = [
        ("look up new ids", chunk(new.iter().take(COUNT), key)),
        ("look up ids that come again in their order", chunk(every(1), key)),
        ("look up ids that come again from anywhere", chunk(every(CHUNKS), key)),
    ];
    for (name, mut chunk) in asked {
        group.bench_function(name, |bencher| bencher.iter(|| facts(&mut store, &chunk)));
        prefetch.look(&mut [&mut chunk]);
        let name = format!("{name}, looked at ahead");
        group.bench_function(name, |bencher| bencher.iter(|| facts(&mut store, &chunk)));
    }
    let mut ahead = chunk(new.iter().take(COUNT), key);
    group.bench_function("look at a chunk ahead", |bencher| {
        bencher.iter(|| prefetch.look(&mut [&mut ahead]));
    });

    // runs so small that many are made and merged while this is measured
    let mut store = make(&folder.path().join("merged.db")).with_runs_of(10 * COUNT as u64);
    let key = store.hash_key();
    let mut chunks = new.chunks_exact(COUNT).cycle();
    let mut number = 0;
    group.bench_function("judge, remember and merge", |bencher| {
        bencher.iter(|| {
            number += 1;
            let events = chunks.next().expect("they come again and again");
            take(&mut store, number, &renamed(events, number, key));
        });
    });
    group.finish();
}

fn make(path: &Path) -> SqliteStore {
    let settings = Settings::new(60_000, 60_000).expect("the settings make sense");
    let made = SqliteStore::create(path, settings, Options::default());
    made.expect("there is room for a store").0
}

fn chunk<'e>(events: impl Iterator<Item = &'e Made>, key: HashKey) -> Chunk {
    let mut chunk = Chunk::keyed(key);
    for made in events {
        workload::push_all(std::slice::from_ref(made), |_| None, &mut chunk);
    }
    chunk
}

/// The events under ids that were never there.
fn renamed(events: &[Made], number: usize, key: HashKey) -> Chunk {
    let made =
        |made: &Made| Made { id: format!("{number}-{}", made.id), key: made.key.clone(), ..*made };
    let events: Vec<Made> = events.iter().map(made).collect();
    chunk(events.iter(), key)
}

fn facts(store: &mut SqliteStore, chunk: &Chunk) -> Vec<Fact> {
    let mut facts = Vec::new();
    match store.begin_unsynced(&delivery(usize::MAX)).expect("nobody else has it") {
        Begun::Open(mut batch) => batch.facts(chunk, &mut facts).expect("it is well"),
        Begun::Known(_) => unreachable!("it is never committed"),
    }
    facts
}

/// One batch, as ingest does it; one in 32 is synced, with all before it.
fn take(store: &mut SqliteStore, number: usize, chunk: &Chunk) {
    let settings = store.settings();
    let begun = match number % 32 {
        0 => store.begin(&delivery(number)),
        _ => store.begin_unsynced(&delivery(number)),
    };
    let begun = begun.expect("nobody else has it");
    let Begun::Open(mut batch) = begun else { unreachable!("each is new") };
    let mut facts = Vec::new();
    batch.facts(chunk, &mut facts).expect("it is well");
    let mut judge = Judge::new(settings, batch.number(), "default");
    let progress = batch.progress(&judge.sources(chunk)).expect("it is well");
    judge.learn(&progress);
    let judged = judge.judge(chunk, &facts);
    batch.apply(chunk, &judged.changes).expect("there is room");
    let counts: Counts = judged.changes.counts;
    let receipt = Receipt::Events { sha256: String::new(), bytes: 0, counts };
    batch.commit(&receipt).expect("there is room");
}

fn delivery(number: usize) -> Delivery {
    let mut token = [0; 16];
    token[..8].copy_from_slice(&(number as u64).to_be_bytes());
    Delivery { token, file: format!("{number}.json"), source: "default".to_owned() }
}
