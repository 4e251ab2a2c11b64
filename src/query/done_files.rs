//! Files in done/, found again by their receipt: by name, then by hash. One that cannot be found so
//! is said to be gone or changed, never guessed. Nothing is changed here.

mod grown;

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Take};
use std::mem;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::decode::{Decoder, Fault, Limits};
use crate::model::event::{Chunk, Event};
use crate::spool::safe_open::{self, OpenError, Opened};
use crate::spool::{self, Entry};
use crate::store::ReceiptRow;
use grown::Written;

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
    /// Where it lies, below done/.
    pub entry: Entry,
    /// It was written to behind what was taken in: only its first bytes are the file of the receipt,
    /// and only those are read.
    pub is_grown: bool,
    file: Take<File>,
}

impl Found {
    fn whole(done: &Path, entry: &Entry, file: File) -> Found {
        let (path, entry) = (entry.path_in(done), entry.clone());
        Found { path, entry, is_grown: false, file: file.take(u64::MAX) }
    }
}

/// The done folder of a spool.
#[derive(Debug)]
pub struct Archive {
    done: Option<PathBuf>,
    limits: Limits,
    // by folder of the source, listed once
    numbered: HashMap<Option<String>, Numbered>,
    // of files that were once found to be another than that of a receipt of their name
    hashes: HashMap<PathBuf, String>,
    #[cfg(test)]
    opened: u64,
}

/// The files in one folder that have a number behind their name, by the name without it.
type Numbered = HashMap<Vec<u8>, Group>;

/// The files that have the same name but for the number behind it. Each is looked at and hashed at
/// most once, however many receipts have that name.
#[derive(Debug, Default)]
struct Group {
    // in the order of the numbers; not looked at yet
    names: Vec<OsString>,
    // by size in bytes; not hashed yet
    sized: HashMap<u64, VecDeque<OsString>>,
    hashed: HashMap<String, VecDeque<OsString>>,
    // those of which the last change may have been a write
    written: Vec<Written>,
    // something that is no regular file has such a name
    has_odd: bool,
}

impl Archive {
    /// That folder; none where no spool is known: nothing is found then. `limits` are those under
    /// which its files are read again.
    pub fn new(done: Option<PathBuf>, limits: Limits) -> Archive {
        let (numbered, hashes) = (HashMap::new(), HashMap::new());
        Archive {
            done,
            limits,
            numbered,
            hashes,
            #[cfg(test)]
            opened: 0,
        }
    }

    /// The file of that receipt: of its name, or of its name with a number behind it, and of its
    /// size and hash. Where there is none, one that was written to since and begins with the bytes
    /// of the receipt.
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
        for stem in stems(entry.name.as_bytes()) {
            let found = self.try_group(&done, &entry, stem, sha256, receipt.bytes, &mut lost);
            if let Some(found) = found {
                return Ok(found);
            }
        }
        match lost {
            Lost::Differs => self.find_grown(&done, &entry, receipt).ok_or(lost),
            lost => Err(lost),
        }
    }

    fn find_grown(&self, done: &Path, entry: &Entry, receipt: &ReceiptRow) -> Option<Found> {
        let numbered = self.numbered.get(&entry.folder);
        let groups = stems(entry.name.as_bytes()).filter_map(|stem| numbered?.get(stem));
        let others = groups.flat_map(|group| grown::likely(&group.written, receipt));
        let others = others.map(|name| Entry { folder: entry.folder.clone(), name });
        let mut all = [entry.clone()].into_iter().chain(others);
        all.find_map(|entry| grown::begins_with(done, &entry, receipt).ok().flatten())
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
        match self.hash(done, entry, sha256, bytes) {
            Ok(Some(file)) => return Some(Found::whole(done, entry, file)),
            Ok(None) => *lost = Lost::Differs,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) if *lost == Lost::Gone => *lost = Lost::Unreadable,
            Err(_) => {}
        }
        None
    }

    /// The file, at its beginning, when it has that size and hash; none when it is another.
    fn hash(
        &mut self,
        done: &Path,
        entry: &Entry,
        sha256: &str,
        bytes: Option<u64>,
    ) -> io::Result<Option<File>> {
        let mut file = self.open(done, entry)?;
        let path = entry.path_in(done);
        if bytes.is_some_and(|bytes| file.metadata().is_ok_and(|meta| meta.len() != bytes)) {
            return Ok(None);
        }
        if let Some(hash) = self.hashes.get(&path) {
            return Ok((hash == sha256).then_some(file));
        }
        let hash = hash_of(&mut file)?;
        if hash == sha256 {
            return Ok(Some(file));
        }
        self.hashes.insert(path, hash);
        Ok(None)
    }

    /// The same among the files that have a number behind that stem.
    fn try_group(
        &mut self,
        done: &Path,
        entry: &Entry,
        stem: &[u8],
        sha256: &str,
        bytes: Option<u64>,
        lost: &mut Lost,
    ) -> Option<Found> {
        let folder = &entry.folder;
        let list = || numbered(done, folder.as_deref()).unwrap_or_default();
        let numbered = self.numbered.entry(folder.clone()).or_insert_with(list);
        // taken out, since each file is opened by `self`
        let mut group = numbered.remove(stem)?;
        group.look(done, folder.as_deref());
        let found = self.find_in(&mut group, done, folder.as_deref(), sha256, bytes);
        let (is_empty, has_odd) = (group.is_empty(), group.has_odd);
        self.numbered.entry(folder.clone()).or_default().insert(stem.to_vec(), group);
        match *lost {
            _ if !is_empty => *lost = Lost::Differs,
            Lost::Gone if has_odd => *lost = Lost::Unreadable,
            _ => {}
        }
        found
    }

    fn find_in(
        &mut self,
        group: &mut Group,
        done: &Path,
        folder: Option<&str>,
        sha256: &str,
        bytes: Option<u64>,
    ) -> Option<Found> {
        let Group { sized, hashed, has_odd, .. } = group;
        while let Some(name) = hashed.get(sha256).and_then(VecDeque::front) {
            let entry = Entry::new(folder, name);
            if let Ok(file) = self.open(done, &entry) {
                return Some(Found::whole(done, &entry, file));
            }
            // it was removed since
            hashed.get_mut(sha256).and_then(VecDeque::pop_front);
        }
        for (_, names) in sized.iter_mut().filter(|(size, _)| bytes.is_none_or(|b| b == **size)) {
            while let Some(name) = names.pop_front() {
                let entry = Entry::new(folder, &name);
                let hash = self.open(done, &entry).and_then(|mut file| {
                    let hash = hash_of(&mut file)?;
                    Ok((hash, file))
                });
                match hash {
                    Ok((hash, file)) => {
                        let is_it = hash == sha256;
                        hashed.entry(hash).or_default().push_back(name);
                        if is_it {
                            return Some(Found::whole(done, &entry, file));
                        }
                    }
                    Err(error) => *has_odd |= error.kind() != io::ErrorKind::NotFound,
                }
            }
        }
        None
    }

    fn open(&mut self, done: &Path, entry: &Entry) -> io::Result<File> {
        #[cfg(test)]
        {
            self.opened += 1;
        }
        open(done, entry)
    }
}

impl Group {
    /// Sorts the files by size, so that only those are hashed that can be meant.
    fn look(&mut self, done: &Path, folder: Option<&str>) {
        for name in mem::take(&mut self.names) {
            let path = Entry::new(folder, &name).path_in(done);
            match fs::symlink_metadata(path) {
                Ok(meta) if meta.is_file() => {
                    self.written.push(Written::new(&name, &meta));
                    self.sized.entry(meta.len()).or_default().push_back(name);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                _ => self.has_odd = true,
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.sized.values().chain(self.hashed.values()).all(VecDeque::is_empty)
    }
}

/// The hash of a file that is at its beginning, and is so again after that.
fn hash_of(file: &mut File) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(file, &mut hasher)?;
    file.rewind()?;
    Ok(format!("{:x}", hasher.finalize()))
}

/// What can stand before the number of a file of that name: a long one may have been cut.
fn stems(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let least = match name.len() {
        LONG_NAME_BYTES.. => name.len() - MAX_SUFFIX_BYTES,
        whole => whole,
    };
    (least..=name.len()).rev().map(|bytes| &name[..bytes])
}

/// Opens a regular file; never a link, and never waiting for a pipe.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] when nothing has that name, another kind for what is no regular file.
pub fn open(folder: &Path, entry: &Entry) -> io::Result<File> {
    safe_open::open_entry(folder, entry).map(Opened::into_file).map_err(|error| match error {
        OpenError::Gone => io::ErrorKind::NotFound.into(),
        OpenError::Io(error) => error,
        other => io::Error::other(other),
    })
}

/// The names in a folder that end in a dot and a number, by what stands before that.
fn numbered(done: &Path, source: Option<&str>) -> io::Result<Numbered> {
    let mut by_stem = Numbered::new();
    for name in spool::names_in(done, source)? {
        let name = name.into_vec();
        let dot = name.iter().rposition(|byte| *byte == b'.');
        if let Some(dot) = dot.filter(|dot| is_number(&name[dot + 1..])) {
            let group = by_stem.entry(name[..dot].to_vec()).or_default();
            group.names.push(OsString::from_vec(name));
        }
    }
    for group in by_stem.values_mut() {
        group.names.sort_unstable_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    }
    Ok(by_stem)
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::engine::Counts;

    pub(crate) fn text(mut found: Found) -> String {
        let mut text = String::new();
        found.file.read_to_string(&mut text).unwrap();
        text
    }

    pub(crate) fn receipt(file: &str, content: &str) -> ReceiptRow {
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

    /// One name that comes again and again: each file is opened a few times in all, and not once for
    /// each receipt. Has failed for each receipt that tried every number from the start.
    #[test]
    fn case_146_a_name_that_was_taken_a_thousand_times_is_found_in_as_many_steps() {
        const FILES: u64 = 1000;
        let done = tempfile::tempdir().unwrap();
        let content = |number: u64| format!("{number:04}");
        let name = |number: u64| match number {
            0 => "data.json".to_owned(),
            number => format!("data.json.{number}"),
        };
        for number in 0..FILES {
            fs::write(done.path().join(name(number)), content(number)).unwrap();
        }
        let mut archive = Archive::new(Some(done.path().to_owned()), Limits::default());
        for number in (0..FILES).chain((0..FILES).rev()) {
            let found = archive.find(&receipt("data.json", &content(number))).unwrap();
            assert_eq!(found.path, done.path().join(name(number)));
            assert_eq!(text(found), content(number));
        }
        assert!(archive.opened <= 5 * FILES, "{} files opened", archive.opened);
        // of two with the same content the next is found when one is removed
        fs::write(done.path().join("data.json.1000"), content(7)).unwrap();
        let mut archive = Archive::new(Some(done.path().to_owned()), Limits::default());
        for left in [7, 1000] {
            let found = archive.find(&receipt("data.json", &content(7))).unwrap();
            assert_eq!(found.path, done.path().join(name(left)));
            fs::remove_file(found.path).unwrap();
        }
        let gone = archive.find(&receipt("data.json", &content(7)));
        assert_eq!(gone.unwrap_err(), Lost::Differs);
    }
}
