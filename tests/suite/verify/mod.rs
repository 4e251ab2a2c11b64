//! `verify`: nothing is found where nothing is wrong, whatever has happened; what is wrong is
//! found.

mod clean;
mod command;
mod damage;
mod repair;

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use tempfile::TempDir;
use windowflow::engine::settings::LatePolicy;

use crate::populated::Populated;

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

fn copy_all(from: &Path, to: &Path) {
    for found in fs::read_dir(from).unwrap() {
        let found = found.unwrap();
        let to = to.join(found.file_name());
        if found.file_type().unwrap().is_dir() {
            fs::create_dir_all(&to).unwrap();
            copy_all(&found.path(), &to);
        } else {
            fs::copy(found.path(), to).unwrap();
        }
    }
}
