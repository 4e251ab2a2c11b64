//! What the next look into the inbox has to look at: single names, or a whole folder.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::Entry;

/// The most names that are kept; with more the whole inbox is looked at.
const MAX_NAMES: usize = 100_000;

/// What was asked for, by folder of the source.
#[derive(Debug, Default)]
pub(super) struct ScanRequest {
    /// All of it.
    pub(super) whole: bool,
    pub(super) folders: HashMap<Option<String>, Names>,
    count: usize,
}

/// What was asked for of one folder.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// All of it.
    pub(super) all: bool,
    /// Single names, and whether a file came under that name as a whole: renamed in.
    pub(super) names: HashMap<OsString, bool>,
}

impl Names {
    pub(super) fn came(&self, name: &OsStr) -> bool {
        self.names.get(name).is_some_and(|came| *came)
    }
}

impl ScanRequest {
    /// Asks for a path in the inbox. What cannot be attributed asks for everything.
    pub(super) fn path(&mut self, inbox: &Path, path: &Path, came: bool) {
        let Ok(below) = path.strip_prefix(inbox) else { return };
        let (Some(name), Some(above)) = (below.file_name(), below.parent()) else {
            self.whole = true;
            return;
        };
        match above.as_os_str() {
            above if above.is_empty() => self.name(None, name, came),
            // a folder of another name is not the folder of a source
            above => drop(above.to_str().map(|above| self.name(Some(above), name, came))),
        }
    }

    /// Asks for one entry.
    pub(super) fn entry(&mut self, entry: &Entry) {
        self.name(entry.folder.as_deref(), &entry.name, false);
    }

    /// Asks for all of a folder.
    pub(super) fn folder(&mut self, folder: Option<String>) {
        self.folders.entry(folder).or_default().all = true;
    }

    fn name(&mut self, folder: Option<&str>, name: &OsStr, came: bool) {
        if self.count >= MAX_NAMES {
            self.whole = true;
            return;
        }
        let names = &mut self.folders.entry(folder.map(str::to_owned)).or_default().names;
        let before = names.len();
        *names.entry(name.to_owned()).or_default() |= came;
        self.count += names.len() - before;
    }
}
