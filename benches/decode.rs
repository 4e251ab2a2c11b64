//! Raw bytes to chunks of events, the SHA-256 of the bytes included.

use std::io::Write;

use criterion::{Criterion, Throughput};
use flate2::Compression;
use flate2::write::GzEncoder;
use windowflow::decode::{Decoder, Limits};
use windowflow::model::event::Chunk;

use crate::workload;

const EVENTS: usize = 100_000;

pub(crate) fn measure(criterion: &mut Criterion) {
    let events = workload::events(EVENTS);
    let array = format!("[{}]", workload::json(&events, ","));
    let lines = workload::json(&events, "\n");
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(array.as_bytes()).expect("memory takes all that is written");
    let gzip = gzip.finish().expect("memory takes all that is written");
    let zstd = zstd::encode_all(array.as_bytes(), 3).expect("memory takes all that is written");
    let cases: [(&str, &[u8]); 4] = [
        ("array", array.as_bytes()),
        ("lines", lines.as_bytes()),
        ("gzip", &gzip),
        ("zstd", &zstd),
    ];
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(EVENTS as u64));
    for (name, raw) in cases {
        let mut chunk = Chunk::default();
        group.bench_function(name, |bencher| bencher.iter(|| decode(raw, &mut chunk)));
    }
    group.finish();
}

fn decode(raw: &[u8], chunk: &mut Chunk) -> String {
    let mut decoder = Decoder::new(raw, Limits::default());
    while decoder.read_chunk(chunk).expect("the batch is good") {}
    decoder.digest().expect("memory can be read").sha256
}
