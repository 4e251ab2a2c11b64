//! Row 5: the power is cut on real file systems, ext4 and xfs, by the script `tests/power/run.sh`,
//! which says what must hold.
//!
//! The judge can see: `tests/power/run.sh --prove` builds a daemon that moves files before the sync
//! and ends well only when that was caught on both.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::dice::Dice;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};

/// Durable means durable. An attempt is ten cuts on one of the two.
pub const ROW: Row = Row {
    number: 5,
    fault: "power cut on ext4 and xfs, ten an attempt",
    promise: "durable means durable: I1 to I4",
    figures: Figures { smoke: 6, full: 50, soak: 2000 },
    // each has its own disk, but the script looks at how long the daemon takes
    lanes: 1,
    begin,
};

const CUTS: &str = "10";

struct PowerCut {
    script: PathBuf,
}

fn begin(_: &Scale) -> Result<Box<dyn Trial>, Unable> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/power/run.sh");
    let probe = run(Command::new(&script).arg("--probe")).map_err(Unable)?;
    if !probe.status.success() {
        return Err(Unable(said(&probe)));
    }
    Ok(Box::new(PowerCut { script }))
}

impl Trial for PowerCut {
    fn attempt(&self, n: u64, mut dice: Dice) -> Result<Tried, String> {
        let mut command = Command::new(&self.script);
        command.arg(env!("CARGO_BIN_EXE_windowflow")).env("ROUNDS", CUTS);
        command.env("KINDS", if n.is_multiple_of(2) { "ext4" } else { "xfs" });
        command.env("WINDOWFLOW_SEED", dice.below(1 << 31).to_string());
        let ran = run(&mut command)?;
        if ran.status.success() { Ok(Tried::Struck) } else { Err(said(&ran)) }
    }
}

fn run(command: &mut Command) -> Result<Output, String> {
    let output = command.stdin(Stdio::null()).output();
    output.map_err(|error| format!("tests/power/run.sh: {error}"))
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    format!("{}: {}", output.status, String::from_utf8_lossy(&both).trim())
}
