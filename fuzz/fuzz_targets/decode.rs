//! Any bytes as a batch: what has to hold of them stands in the test suite.

#![no_main]

#[path = "../../tests/suite/hostile/judge.rs"]
mod judge;
#[path = "../../tests/suite/hostile/slow.rs"]
mod slow;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    judge::judge(bytes);
});
