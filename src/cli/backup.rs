//! `backup`: a consistent copy of the store while the daemon runs.

use std::io::Write;

use indicatif::ProgressBar;
use serde_json::json;

use super::args::{Backup, Where};
use super::{CommandError, Exit, results};
use crate::spool::name::shown_path;
use crate::store::sqlite::SqliteStore;

pub(super) fn run(at: &Where, command: &Backup) -> Result<Exit, CommandError> {
    // the bar shows itself on a terminal only, and on standard error
    let bar = ProgressBar::new(0);
    let db = at.db()?;
    SqliteStore::backup(&db, &command.to, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    let mut out = results();
    if at.json {
        let line = json!({"db": db.to_string_lossy(), "backup": command.to.to_string_lossy()});
        writeln!(out, "{line}")?;
    } else {
        let to = shown_path(&command.to);
        writeln!(
            out,
            "{} copied to {to}; look into it with: windowflow --db {to} report",
            shown_path(&db)
        )?;
    }
    out.flush()?;
    Ok(Exit::Done)
}
