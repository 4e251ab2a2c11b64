//! A history that bytes decide, in a store in memory and in the model of the test suite.

#![no_main]
#![allow(dead_code, reason = "shared with the test suite, which uses the rest")]

#[path = "../../tests/suite/draw.rs"]
mod draw;
#[path = "../../tests/suite/hostile/history.rs"]
mod history;
#[path = "../../tests/suite/model.rs"]
mod model;
#[path = "../../tests/suite/observed.rs"]
mod observed;
#[path = "../../tests/suite/real.rs"]
mod real;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    history::play(bytes, real::Real::memory);
});
