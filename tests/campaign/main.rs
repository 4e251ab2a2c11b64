//! The fault campaign: every fault that the promises are to outlive, tried and counted.
//!
//! `cargo campaign --smoke` takes some minutes, `cargo campaign` hours, `cargo campaign --soak` a
//! night. It ends with one table: faults tried, violations, and the seeds that bring a failure back.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    reason = "tests: a panic is a finding, and nothing here is reached from elsewhere"
)]

mod board;
#[path = "../suite/hostile/bombs.rs"]
mod bombs;
#[path = "../suite/clocked.rs"]
#[expect(dead_code, reason = "shared with the suite, which uses the rest")]
mod clocked;
mod deliveries;
mod dice;
mod disk;
#[path = "../suite/draw.rs"]
mod draw;
#[path = "../suite/hostile/history.rs"]
mod history;
mod invariants;
#[path = "../suite/hostile/judge.rs"]
#[expect(dead_code, reason = "shared with the suite, which uses the rest")]
mod judge;
#[path = "../suite/model.rs"]
mod model;
mod mounted;
#[path = "../suite/hostile/mutate.rs"]
mod mutate;
#[path = "../suite/observed.rs"]
#[expect(dead_code, reason = "shared with the suite, which uses the rest")]
mod observed;
mod outcome;
mod plan;
#[path = "../suite/populated.rs"]
mod populated;
mod presence;
#[path = "../suite/random.rs"]
#[expect(dead_code, unused_imports, reason = "shared with the suite, which uses the rest")]
mod random;
#[path = "../suite/real.rs"]
#[expect(dead_code, reason = "shared with the suite, which uses the rest")]
mod real;
mod recording;
mod row;
mod rows;
mod run;
#[path = "../suite/hostile/slow.rs"]
mod slow;
mod strace;
mod workload;
#[path = "../suite/world.rs"]
#[expect(dead_code, reason = "shared with the suite, which uses the rest")]
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    match plan::read().and_then(|plan| run::all(&plan)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            board::say(&format!("campaign: {text}\n"));
            ExitCode::from(2)
        }
    }
}
