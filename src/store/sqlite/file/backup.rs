//! A copy of the store as it stands, while others write.
//!
//! The pages are copied out of one read transaction: it stays where it is however much is written
//! meanwhile, so the copying never begins again, and it holds up no writer.

use std::path::Path;
use std::time::Duration;

use rusqlite::OpenFlags;
use rusqlite::backup::{Backup, StepResult};

use crate::store::Error;

use super::connect::open;
use super::create::{give_name, unused_name_beside};
use super::fault::{fault, io_fault};
use super::location::refuse_leftovers;
use crate::store::sqlite::Options;
use crate::store::sqlite::reader::SqliteSnapshot;

/// Copied between two reports of progress: 4 MiB.
const PAGES_A_STEP: i32 = 1024;

pub(crate) fn backup(
    path: &Path,
    to: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    refuse_taken(to)?;
    refuse_leftovers(to)?;
    let options = Options { allow_network_fs: true, ..Options::default() };
    let snapshot = SqliteSnapshot::as_it_is(path, &options)?;
    let temporary = unused_name_beside(to)?;
    copy(&snapshot, path, &temporary, to, progress)?;
    drop(snapshot);
    if give_name(temporary, to)? { Ok(()) } else { Err(taken(to)) }
}

fn refuse_taken(to: &Path) -> Result<(), Error> {
    match to.symlink_metadata() {
        Ok(_) => Err(taken(to)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_fault(to, "look at it", &error)),
    }
}

fn taken(to: &Path) -> Error {
    Error::Io(format!(
        "{}: exists already, and a backup never overwrites; choose another name",
        to.display()
    ))
}

fn copy(
    snapshot: &SqliteSnapshot,
    path: &Path,
    temporary: &Path,
    to: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let mut copy = open(temporary, OpenFlags::SQLITE_OPEN_READ_WRITE, Duration::ZERO)?;
    let backup = Backup::new(snapshot.connection(), &mut copy)
        .map_err(|error| fault(to, "begin the backup", &error))?;
    loop {
        let step = backup.step(PAGES_A_STEP).map_err(|error| fault(to, "write it", &error))?;
        let at = backup.progress();
        let (left, all) = (at.remaining.max(0) as u64, at.pagecount.max(0) as u64);
        progress(all.saturating_sub(left), all);
        match step {
            StepResult::Done => break,
            StepResult::More => {}
            // nobody else knows the copy, and the original is only read
            _ => {
                return Err(Error::Busy(format!(
                    "{}: busy, could not be copied; try again",
                    path.display()
                )));
            }
        }
    }
    drop(backup);
    copy.close().map_err(|(_, error)| fault(to, "write it", &error))
}
