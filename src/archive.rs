//! Files in done/, found again by their receipt: by name, then by hash. One that cannot be found so
//! is said to be gone or changed, never guessed. Nothing is changed here.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::decode::{Decoder, Fault, Limits};
use crate::event::{Chunk, Event};
use crate::spool::ready::{self, OpenError, Opened};
use crate::spool::{self, Entry};
use crate::store::ReceiptRow;

/// From this length on a name may have been cut to make room for its number, in bytes.
const LONG_NAME_BYTES: usize = 200;

/// The most bytes of a number behind a name, its dot included.
const MAX_SUFFIX_BYTES: usize = 21;

/// Why the file of a batch is not there to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// No file of its name lies in done/: it was removed, or taken in by hand from elsewhere.
    Gone,
    /// What lies there under its name has another hash.
    Differs,
    /// A file of its name is there, but cannot be read.
    Unreadable,
}

impl Lost {
    /// In words, behind the name of the file.
    pub fn words(self) -> &'static str {
        match self {
            Lost::Gone => "is not in done/ (removed, or taken in by hand from elsewhere)",
            Lost::Differs => "in done/ is another file: its hash is not that of the receipt",
            Lost::Unreadable => "in done/ cannot be read",
        }
    }
}

/// A file that is the one of its receipt, open at its beginning.
#[derive(Debug)]
pub struct Found {
    /// Where it lies.
    pub path: PathBuf,
    file: File,
}

/// The done folder of a spool.
#[derive(Debug)]
pub struct Archive {
    done: Option<PathBuf>,
    limits: Limits,
    // by folder of the source: the files that have a number behind that name
    numbered: HashMap<Option<String>, HashMap<Vec<u8>, Vec<OsString>>>,
    hashes: HashMap<PathBuf, String>,
}

impl Archive {
    /// That folder; none where no spool is known: nothing is found then. `limits` are those under
    /// which its files are read again.
    pub fn new(done: Option<PathBuf>, limits: Limits) -> Archive {
        Archive { done, limits, numbered: HashMap::new(), hashes: HashMap::new() }
    }

    /// The file of that receipt: of its name, or of its name with a number behind it, and of its
    /// size and hash.
    ///
    /// # Errors
    /// Why it is not there.
    pub fn find(&mut self, receipt: &ReceiptRow) -> Result<Found, Lost> {
        let entry = Entry::parse(&receipt.file).ok_or(Lost::Gone)?;
        let done = self.done.clone().ok_or(Lost::Gone)?;
        let sha256 = receipt.sha256.as_deref().ok_or(Lost::Gone)?;
        let mut lost = Lost::Gone;
        // most lie under their own name: the folder is only listed when one does not
        if let Some(found) = self.try_entry(&done, &entry, sha256, receipt.bytes, &mut lost) {
            return Ok(found);
        }
        for other in self.others(&done, &entry) {
            if let Some(found) = self.try_entry(&done, &other, sha256, receipt.bytes, &mut lost) {
                return Ok(found);
            }
        }
        Err(lost)
    }

    /// Calls `each` with every event of a file that was found, with its index from 0, until told to
    /// stop.
    ///
    /// # Errors
    /// When it cannot be read to the end, or by what it says.
    pub fn events(
        &self,
        found: &mut Found,
        each: &mut dyn FnMut(u64, &Event<'_>) -> ControlFlow<()>,
    ) -> Result<(), Lost> {
        // a bound that was lowered since must not hide what was taken in
        let limits = Limits { max_file_bytes: None, ..self.limits.clone() };
        let mut decoder = Decoder::new(&mut found.file, limits);
        let mut chunk = Chunk::default();
        loop {
            let more = decoder.read_chunk(&mut chunk);
            for (row, event) in chunk.iter().enumerate() {
                if each(chunk.first_index() + row as u64, &event).is_break() {
                    return Ok(());
                }
            }
            match more {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(Fault::Refused(_) | Fault::Io(_)) => return Err(Lost::Unreadable),
            }
        }
    }

    fn try_entry(
        &mut self,
        done: &Path,
        entry: &Entry,
        sha256: &str,
        bytes: Option<u64>,
        lost: &mut Lost,
    ) -> Option<Found> {
        match self.hash(done, entry, bytes) {
            Ok(Some((hash, file))) if hash == sha256 => {
                return Some(Found { path: entry.path_in(done), file });
            }
            Ok(_) => *lost = Lost::Differs,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) if *lost == Lost::Gone => *lost = Lost::Unreadable,
            Err(_) => {}
        }
        None
    }

    /// The hash of a regular file and the file itself, at its beginning; none when its size tells
    /// already that it is another.
    fn hash(
        &mut self,
        done: &Path,
        entry: &Entry,
        bytes: Option<u64>,
    ) -> io::Result<Option<(String, File)>> {
        let mut file = open(done, entry)?;
        let path = entry.path_in(done);
        if bytes.is_some_and(|bytes| file.metadata().is_ok_and(|meta| meta.len() != bytes)) {
            return Ok(None);
        }
        if let Some(hash) = self.hashes.get(&path) {
            return Ok(Some((hash.clone(), file)));
        }
        let mut hasher = Sha256::new();
        io::copy(&mut file, &mut hasher)?;
        file.rewind()?;
        let hash = format!("{:x}", hasher.finalize());
        self.hashes.insert(path, hash.clone());
        Ok(Some((hash, file)))
    }

    /// The files that stand under that name with a number behind it. A folder is listed once.
    fn others(&mut self, done: &Path, entry: &Entry) -> Vec<Entry> {
        let by_name = self
            .numbered
            .entry(entry.folder.clone())
            .or_insert_with(|| numbered(done, entry.folder.as_deref()).unwrap_or_default());
        let name = entry.name.as_bytes();
        let least = match name.len() {
            LONG_NAME_BYTES.. => name.len() - MAX_SUFFIX_BYTES,
            whole => whole,
        };
        let stems = (least..=name.len()).rev().map(|bytes| &name[..bytes]);
        let names = stems.filter_map(|stem| by_name.get(stem)).flatten();
        let at = |name: &OsString| Entry { folder: entry.folder.clone(), name: name.clone() };
        names.map(at).collect()
    }
}

/// Opens a regular file; never a link, and never waiting for a pipe.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] when nothing has that name, another kind for what is no regular file.
pub fn open(folder: &Path, entry: &Entry) -> io::Result<File> {
    ready::open_entry(folder, entry).map(Opened::into_file).map_err(|error| match error {
        OpenError::Gone => io::ErrorKind::NotFound.into(),
        OpenError::Io(error) => error,
        other => io::Error::other(other),
    })
}

/// The names in a folder that end in a dot and a number, by what stands before that.
fn numbered(done: &Path, source: Option<&str>) -> io::Result<HashMap<Vec<u8>, Vec<OsString>>> {
    let mut by_name: HashMap<Vec<u8>, Vec<OsString>> = HashMap::new();
    for name in spool::names_in(done, source)? {
        let name = name.into_vec();
        let dot = name.iter().rposition(|byte| *byte == b'.');
        if let Some(dot) = dot.filter(|dot| is_number(&name[dot + 1..])) {
            by_name.entry(name[..dot].to_vec()).or_default().push(OsString::from_vec(name));
        }
    }
    for names in by_name.values_mut() {
        names.sort_unstable_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    }
    Ok(by_name)
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;

    use super::*;
    use crate::engine::Counts;

    fn text(mut found: Found) -> String {
        let mut text = String::new();
        found.file.read_to_string(&mut text).unwrap();
        text
    }

    fn receipt(file: &str, content: &str) -> ReceiptRow {
        ReceiptRow {
            batch: 1,
            act: None,
            file: file.to_owned(),
            source: "default".to_owned(),
            sha256: Some(format!("{:x}", Sha256::digest(content))),
            bytes: Some(content.len() as u64),
            counts: Counts::default(),
            watermark_ms: 0,
            windows_closed: 0,
            committed_at_ms: 0,
            asked_by: None,
            reason: None,
        }
    }

    #[test]
    fn a_file_is_found_under_its_name_or_a_numbered_one_by_its_hash() {
        let done = tempfile::tempdir().unwrap();
        let put = |name: &str, content: &str| {
            let path = done.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        put("a.json", "one");
        put("a.json.1", "two");
        put("a.json.12", "six");
        put("gw/a.json", "own");
        let long = "x".repeat(255);
        put(&format!("{}.3", "x".repeat(253)), "long");
        let mut archive = Archive::new(Some(done.path().to_owned()), Limits::default());
        let mut find = |file: &str, content: &str| archive.find(&receipt(file, content)).map(text);
        for (file, content) in [
            ("a.json", "one"),
            ("a.json", "two"),
            ("a.json", "six"),
            ("gw/a.json", "own"),
            (&*long, "long"),
        ] {
            assert_eq!(find(file, content).as_deref(), Ok(content), "{file}");
        }
        assert_eq!(find("a.json", "ten"), Err(Lost::Differs));
        assert_eq!(find("a.json", "other"), Err(Lost::Differs));
        assert_eq!(find("b.json", "one"), Err(Lost::Gone));
        assert_eq!(find("gw/b.json", "own"), Err(Lost::Gone));
        assert_eq!(find("../a.json", "one"), Err(Lost::Gone));
        std::os::unix::fs::symlink("a.json", done.path().join("link.json")).unwrap();
        assert_eq!(find("link.json", "one"), Err(Lost::Unreadable), "links are never followed");
        let mut nowhere = Archive::new(None, Limits::default());
        assert_eq!(nowhere.find(&receipt("a.json", "one")).unwrap_err(), Lost::Gone);
    }
}
