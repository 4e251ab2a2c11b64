//! How fast the parts are, each by itself: `cargo bench`, or `cargo bench -- engine` for one part.

#![expect(clippy::expect_used, reason = "a measurement ends where it fails")]

mod decode;
mod engine;
mod hash;
mod ledger;
mod report;
mod workload;

use std::time::Duration;

use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    decode::measure(&mut criterion);
    hash::measure(&mut criterion);
    engine::measure(&mut criterion);
    ledger::measure(&mut criterion);
    report::measure(&mut criterion);
    criterion.final_summary();
}
