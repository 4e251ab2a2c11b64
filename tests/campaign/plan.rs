//! What to run: the arguments of the campaign.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::row::Scale;

/// Tries every fault that the promises are to outlive, and ends with one table.
#[derive(Debug, Parser)]
#[command(name = "campaign")]
pub struct Plan {
    /// Only rows with these numbers.
    #[arg(long, value_delimiter = ',', value_name = "N,N")]
    pub row: Vec<u32>,
    /// A few minutes for the whole table, as at the gate.
    #[arg(long)]
    pub smoke: bool,
    /// As much as a night has room for.
    #[arg(long, conflicts_with = "smoke")]
    pub soak: bool,
    /// Decides what is drawn; without one, the time does. Printed in any case.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Begin with this attempt of each row.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub from: u64,
    /// Make this many attempts of each row.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// End each row after so many minutes, wherever it is.
    #[arg(long, value_name = "N")]
    pub minutes: Option<u64>,
    /// Keep how far it came in this file, and go on from there when it is run again.
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Only list the rows.
    #[arg(long)]
    pub list: bool,
    /// Rows whose fault has this in it, as the test runner passes it on.
    pub filter: Option<String>,
    /// Understood for the test runner's sake, without effect.
    #[arg(long, hide = true)]
    pub nocapture: bool,
}

/// The arguments of this process.
///
/// # Errors
/// Never: a wrong argument ends the process with a usage message.
pub fn read() -> Result<Plan, String> {
    Ok(Plan::parse())
}

impl Plan {
    /// How large it may become.
    pub fn scale(&self) -> Scale {
        match (self.smoke, self.soak) {
            (true, _) => Scale::Smoke,
            (false, true) => Scale::Soak,
            (false, false) => Scale::Full,
        }
    }

    /// How long a row may take; without end when nothing was said.
    pub fn limit(&self) -> Option<Duration> {
        self.minutes.map(|minutes| Duration::from_secs(60 * minutes))
    }
}
