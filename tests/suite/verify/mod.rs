//! `verify`: nothing is found where nothing is wrong, whatever has happened; what is wrong is
//! found.

mod clean;
mod command;
mod damage;
mod each_column;
mod repair;

use std::sync::OnceLock;

use tempfile::TempDir;
use windowflow::engine::settings::LatePolicy;

use crate::populated::{Populated, copy_all};

/// A copy of a spool in which all has happened, and nothing is wrong.
fn spool() -> TempDir {
    static MADE: OnceLock<TempDir> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let mut all = Populated::begin(folder.path(), LatePolicy::Aside);
        all.fill(12, 120);
        all.close();
        folder
    });
    let copy = tempfile::tempdir().unwrap();
    copy_all(made.path(), copy.path());
    copy
}
