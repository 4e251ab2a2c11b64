//! What an event costs to be judged, with what the store would say of it made up.

use criterion::{BenchmarkId, Criterion, Throughput};
use windowflow::engine::settings::Settings;
use windowflow::engine::{Fact, Judge, Known, Progress, Seen};
use windowflow::model::event::Chunk;

use crate::workload;

/// So many different chunks come in turn, as in earnest: what the last one left in the caches is
/// of little use to the next.
const CHUNKS: usize = 16;

pub(crate) fn measure(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine");
    let names: Vec<String> = (0..1000).map(|number| format!("gateway-{number}")).collect();
    for count in [2500, 4096] {
        group.throughput(Throughput::Elements(count as u64));
        let events = workload::events(CHUNKS * count);
        let many: SourceOf<'_> = &|row| Some(&names[row * 7 % names.len()]);
        // which rows came before, in another batch
        let cases: [(&str, SourceOf<'_>, CameBefore); 4] = [
            ("new", &|_| None, |_| false),
            ("repeats of 2 %", &|_| None, |row| row % 50 == 7),
            ("duplicates", &|_| None, |_| true),
            ("many sources", many, |_| false),
        ];
        for (name, source, came_before) in cases {
            let chunks = events.chunks(count).map(|events| workload::chunk(events, source));
            let chunks: Vec<(Chunk, Vec<Fact>)> = chunks
                .map(|chunk| {
                    let facts = (0..count).map(|row| fact(&chunk, row, came_before(row)));
                    let facts = facts.collect();
                    (chunk, facts)
                })
                .collect();
            let mut turn = chunks.iter().cycle();
            group.bench_function(BenchmarkId::new(name, count), |bencher| {
                bencher.iter(|| turn.next().map(|(chunk, facts)| judge(chunk, facts)));
            });
        }
    }
    group.finish();
}

type SourceOf<'s> = &'s dyn Fn(usize) -> Option<&'s str>;
type CameBefore = fn(usize) -> bool;

fn fact(chunk: &Chunk, row: usize, came_before: bool) -> Fact {
    if !came_before {
        return Fact::New;
    }
    let timestamp_ms = chunk.event(row).timestamp_ms;
    Fact::Seen(Seen { batch: 1, event_index: row as u64, timestamp_ms, same_payload: true })
}

fn judge<'c>(chunk: &'c Chunk, facts: &[Fact]) -> windowflow::engine::Judged<'c> {
    let settings = Settings::new(60_000, 60_000).expect("the settings make sense");
    let mut judge = Judge::new(settings, 7, "default");
    let sources = vec![Known::default(); judge.sources(chunk).len()];
    judge.learn(&Progress { sources, ..Progress::default() });
    judge.judge(chunk, facts)
}
