//! The keyed hash of names, and what pushing an event into a chunk costs with it.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use windowflow::model::event::{Chunk, HashKey};

use crate::workload;

const EVENTS: usize = 4096;

pub(crate) fn measure(criterion: &mut Criterion) {
    let events = workload::events(EVENTS);
    let hash_key = HashKey([7; 16]);
    let mut group = criterion.benchmark_group("hash");
    group.throughput(Throughput::Elements(EVENTS as u64));
    group.bench_function("id", |bencher| {
        bencher.iter(|| events.iter().fold(0, |all, made| all ^ hash_key.hash(&made.id)));
    });
    let mut chunk = Chunk::keyed(hash_key);
    group.bench_function("push", |bencher| {
        bencher.iter(|| {
            chunk.restart(0);
            workload::push_all(&events, |_| None, &mut chunk);
            black_box(&chunk).len()
        });
    });
    group.finish();
}
