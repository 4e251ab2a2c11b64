//! The tests of the whole: one program, so that it is linked once.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test ends where it fails")]
#![expect(unreachable_pub, reason = "a program of its own: nothing of it is reached from outside")]

mod accounts;
mod architecture;
mod bench;
mod cases;
mod clocked;
mod daemon;
mod draw;
mod example;
mod explain;
mod faults;
mod field;
mod flat;
mod hostile;
mod idle;
mod lost_store;
mod model;
mod observed;
mod old_stores;
mod populated;
mod random;
mod real;
mod released;
mod scenarios;
mod slips;
mod together;
mod unsure;
mod verify;
mod world;
