//! Reports on request: each under its time, and `latest.json` always whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::state::SharedState;
use crate::model::clock::Clock;
use crate::pipeline::worker::Failure;
use crate::query::report::{self, Filter, Format};
use crate::store::sqlite::{Options, SqliteStore};

/// Who writes reports, from snapshots of its own: it never waits for a batch.
#[derive(Clone, Debug)]
pub(super) struct Dumper {
    pub(super) db: PathBuf,
    pub(super) options: Options,
    pub(super) reports: PathBuf,
    pub(super) shared: Arc<SharedState>,
}

impl Dumper {
    /// Writes one report; its path.
    pub(super) fn dump(&self) -> Result<PathBuf, String> {
        let cannot = |error: io::Error| {
            let what = "cannot write a report";
            Failure::with_spool("report", what, &self.reports, &error).text
        };
        let now_ms = Clock::System.now_ms();
        let unfinished = self.reports.join(".latest.json.tmp");
        // a crash may have left it, perhaps as a second name of a report: never written into
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot(error)),
            _ => {}
        }
        let mut out = BufWriter::new(File::create_new(&unfinished).map_err(cannot)?);
        let snapshot = SqliteStore::snapshot(&self.db, self.options.clone())
            .map_err(|error| error.to_string())?;
        let resting = self.shared.state().resting_json();
        let moment = (now_ms, resting.as_ref());
        let filter = Filter::default();
        report::write_with_resting(&snapshot, Format::Json, &filter, moment, &mut out).map_err(
            |error| match error {
                report::ReportError::Store(error) => error.to_string(),
                report::ReportError::Write(error) => cannot(error),
            },
        )?;
        drop(snapshot);
        out.flush().map_err(cannot)?;
        out.get_ref().sync_all().map_err(cannot)?;
        drop(out);
        let dated = self.under_its_time(&unfinished, now_ms).map_err(cannot)?;
        fs::rename(&unfinished, self.reports.join("latest.json")).map_err(cannot)?;
        File::open(&self.reports).and_then(|folder| folder.sync_all()).map_err(cannot)?;
        Ok(dated)
    }

    /// Gives the finished report its name of its own, never one that is taken.
    fn under_its_time(&self, finished: &Path, now_ms: i64) -> io::Result<PathBuf> {
        let time = report::utc(now_ms).replace(['-', ':'], "");
        for n in 0.. {
            let suffix = if n == 0 { String::new() } else { format!("-{n}") };
            let dated = self.reports.join(format!("report-{time}{suffix}.json"));
            match fs::hard_link(finished, &dated) {
                Ok(()) => return Ok(dated),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                // a file system without hard links: a copy does it
                Err(_) if !dated.exists() => {
                    let copy = self.reports.join(".report.json.tmp");
                    match fs::remove_file(&copy) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                        _ => {}
                    }
                    // never over what stands there, nor through a link
                    io::copy(&mut File::open(finished)?, &mut File::create_new(&copy)?)?;
                    fs::rename(&copy, &dated)?;
                    return Ok(dated);
                }
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}
