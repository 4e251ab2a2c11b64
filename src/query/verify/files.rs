//! The files in done/, each with the receipt that it has, and what those without one are.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read, Take};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::{Standing, Verify};
use crate::decode::{self, Decoder, Limits};
use crate::engine::Fact;
use crate::model::event::Chunk;
use crate::query::done_files::{self, Archive};
use crate::spool::name::{is_ignored, shown};
use crate::spool::{Entry, Spool};
use crate::store::audit::{Checkup, FindingCode};
use crate::store::sqlite::{Lookup, SqliteSnapshot};
use crate::store::{Error, ReceiptRow};

/// From this length on a name may have been cut to make room for its number, in bytes.
const LONG_NAME_BYTES: usize = 200;

/// The most bytes of a number behind a name, its dot included.
const MAX_SUFFIX_BYTES: usize = 21;

/// A file in done/.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoneFile {
    /// Its folder and name.
    pub entry: Entry,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of its bytes.
    pub sha256: [u8; 32],
    /// How many of its first bytes were taken in, where others were written behind them since.
    pub taken_bytes: Option<u64>,
}

impl DoneFile {
    /// Opens what was taken in of it.
    ///
    /// # Errors
    /// As [`done_files::open`].
    pub(super) fn open(&self, done: &Path) -> io::Result<Take<File>> {
        Ok(done_files::open(done, &self.entry)?.take(self.taken_bytes.unwrap_or(u64::MAX)))
    }
}

/// All files in done/. Memory grows with their number, not with what they hold.
#[derive(Debug, Default)]
pub struct DoneFiles {
    files: Vec<DoneFile>,
    by_hash: HashMap<[u8; 32], Vec<u32>>,
    /// By batch.
    of_batch: HashMap<u64, u32>,
    /// By the place of a file: whether it has a receipt.
    has_receipt: Vec<bool>,
    /// What receipts without a file of their hash name.
    named: HashMap<Entry, u64>,
    /// Whether receipts before the first that is kept were removed.
    is_cut: bool,
    /// What could not be read, and why.
    unread: Vec<String>,
}

impl DoneFiles {
    /// Lists and hashes what lies in done/ and in its folders.
    ///
    /// # Errors
    /// When a folder cannot be read. A file that cannot be read is named by [`Self::unread`], and one
    /// that goes meanwhile is passed over.
    pub fn list(done: &Path) -> io::Result<DoneFiles> {
        let mut all = DoneFiles::default();
        let mut folders = vec![None];
        let mut at = 0;
        while at < folders.len() {
            let folder: Option<String> = folders[at].clone();
            at += 1;
            let path = folder.as_ref().map_or_else(|| done.to_owned(), |name| done.join(name));
            let found = match fs::read_dir(&path) {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for found in found {
                let found = found?;
                let name = found.file_name();
                if name.as_bytes().first() == Some(&b'.') {
                    continue;
                }
                match found.file_type() {
                    Ok(kind) if kind.is_dir() && folder.is_none() => {
                        folders.extend(name.into_string().ok().map(Some));
                    }
                    Ok(kind) if kind.is_file() => {
                        let entry = Entry { folder: folder.clone(), name };
                        if let Err(error) = all.add(done, entry) {
                            all.unread.push(error.to_string());
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(all)
    }

    fn add(&mut self, done: &Path, entry: Entry) -> io::Result<()> {
        let mut hasher = Sha256::new();
        let read =
            done_files::open(done, &entry).and_then(|mut file| io::copy(&mut file, &mut hasher));
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                return Err(io::Error::new(error.kind(), format!("done/{entry}: {error}")));
            }
        };
        let sha256 = hasher.finalize().into();
        self.by_hash.entry(sha256).or_default().push(self.files.len() as u32);
        self.has_receipt.push(false);
        self.files.push(DoneFile { entry, bytes, sha256, taken_bytes: None });
        Ok(())
    }

    /// The files that could not be read, each with the reason.
    pub fn unread(&self) -> &[String] {
        &self.unread
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The file of that batch.
    pub fn of_batch(&self, batch: u64) -> Option<&DoneFile> {
        self.of_batch.get(&batch).map(|at| &self.files[*at as usize])
    }

    /// Gives each receipt its file: by hash, then by name. Says how many have none.
    pub(super) fn match_receipts(
        &mut self,
        snapshot: &SqliteSnapshot,
        spool: &Spool,
        mut archive: Archive,
        checkup: &mut Checkup,
    ) -> Result<u64, Error> {
        let mut first = None;
        snapshot.try_each_receipt::<Error>(|receipt| {
            first.get_or_insert(receipt.batch);
            if let (Some(hash), Some(entry)) = (hash_of(receipt), Entry::parse(&receipt.file)) {
                // one that was taken in by hand for another source is not the one that lies there
                let is_it = |file: &DoneFile| {
                    is_name_of(&file.entry, &entry) && file.entry.source() == receipt.source
                };
                self.take(receipt, &hash, is_it);
            }
            Ok(())
        })?;
        self.is_cut = first.is_some_and(|first| first > 1);
        let mut gone = 0;
        snapshot.try_each_receipt::<Error>(|receipt| {
            if receipt.act.is_some() || self.of_batch.contains_key(&receipt.batch) {
                return Ok(());
            }
            gone += u64::from(!self.find_elsewhere(receipt, spool, &mut archive, checkup));
            Ok(())
        })?;
        Ok(gone)
    }

    /// Gives the receipt one of the files with that hash that has none yet.
    fn take(
        &mut self,
        receipt: &ReceiptRow,
        hash: &[u8; 32],
        is_it: impl Fn(&DoneFile) -> bool,
    ) -> bool {
        let found = self.by_hash.get(hash).and_then(|places| {
            let free = |at: &&u32| !self.has_receipt[**at as usize];
            places.iter().filter(free).find(|at| is_it(&self.files[**at as usize])).copied()
        });
        if let Some(at) = found {
            self.has_receipt[at as usize] = true;
            self.of_batch.insert(receipt.batch, at);
        }
        found.is_some()
    }

    /// Whether a receipt has a file under another name, or one that is on its way.
    fn find_elsewhere(
        &mut self,
        receipt: &ReceiptRow,
        spool: &Spool,
        archive: &mut Archive,
        checkup: &mut Checkup,
    ) -> bool {
        let batch = receipt.batch;
        let Some(hash) = hash_of(receipt) else {
            let what = format!("receipt of batch {batch}");
            let found = format!("{:?}", receipt.sha256);
            checkup.found(FindingCode::ReceiptDiffers, what, "a hash", found);
            return false;
        };
        if self.take(receipt, &hash, |_| true) {
            self.check_name(receipt, checkup);
            return true;
        }
        // what was taken in by hand may have the name of a path
        let Some(entry) = Entry::parse(&receipt.file) else { return false };
        // committed, and not moved yet: it is moved before anything else is taken
        let mut waiting = Archive::new(Some(spool.inbox().to_owned()), Limits::default());
        if waiting.find(receipt).is_ok() {
            return true;
        }
        if let Ok(found) = archive.find(receipt) {
            if found.is_grown {
                return self.take_grown(receipt, &found.entry, checkup);
            }
            // it was moved in since the folder was listed
            let is_added = self.add(spool.done(), entry.clone()).is_ok();
            return is_added && self.take(receipt, &hash, |_| true);
        }
        let mut failed = Archive::new(Some(spool.failed().to_owned()), Limits::default());
        if failed.find(receipt).is_ok() {
            let found = format!("failed/{entry}");
            let what = format!("file of batch {batch}");
            checkup.found(FindingCode::FailedButIn, what, format!("done/{entry}"), found);
        }
        self.named.insert(entry, batch);
        false
    }

    /// Gives a receipt the file that begins with its bytes.
    fn take_grown(&mut self, receipt: &ReceiptRow, entry: &Entry, checkup: &mut Checkup) -> bool {
        let at = self.files.iter().position(|file| file.entry == *entry);
        let Some(at) = at.filter(|at| !self.has_receipt[*at]) else { return false };
        self.has_receipt[at] = true;
        self.of_batch.insert(receipt.batch, at as u32);
        let file = &mut self.files[at];
        file.taken_bytes = receipt.bytes;
        let (batch, taken) = (receipt.batch, receipt.bytes.unwrap_or_default());
        let expected = format!("the file of batch {batch}, of {taken} bytes");
        let found = format!("these, and {} bytes behind them", file.bytes.saturating_sub(taken));
        checkup.note(FindingCode::FileGrown, format!("done/{entry}"), expected, found);
        true
    }

    /// The file of that receipt lies under another name or in the folder of another source: right
    /// for one that was taken in by hand, from wherever.
    fn check_name(&self, receipt: &ReceiptRow, checkup: &mut Checkup) {
        let Some(found) = self.of_batch(receipt.batch).map(|file| &file.entry) else { return };
        let what = format!("file of batch {}", receipt.batch);
        let entry = Entry::parse(&receipt.file);
        if entry.as_ref().is_some_and(|entry| is_name_of(found, entry)) {
            let expected = format!("source {:?}, whose folder it lies in", found.source());
            checkup.found(
                FindingCode::ReceiptDiffers,
                what,
                expected,
                format!("{:?}", receipt.source),
            );
            return;
        }
        let name = receipt.file.rsplit('/').next().and_then(Entry::parse);
        let bare = Entry::new(None, found.name.clone());
        if !name.is_some_and(|name| is_name_of(&bare, &name)) {
            let expected = format!("done/{}", receipt.file);
            checkup.found(FindingCode::ReceiptName, what, expected, format!("done/{found}"));
        }
    }

    /// What the files without a receipt are; answers those whose commit is lost.
    pub(super) fn judge_others(
        &self,
        verify: &Verify<'_>,
        snapshot: &SqliteSnapshot,
        last: u64,
        is_ledger_read: bool,
        checkup: &mut Checkup,
    ) -> Result<Vec<DoneFile>, Error> {
        let others = self.has_receipt.iter().zip(&self.files).filter(|(has, _)| !**has);
        let mut others: Vec<&DoneFile> = others.map(|(_, file)| file).collect();
        if others.is_empty() {
            return Ok(Vec::new());
        }
        // what was taken in since this state is no matter of it
        let mut since = HashSet::new();
        verify.look_again()?.try_each_receipt::<Error>(|receipt| {
            if receipt.batch > last {
                since.extend(hash_of(receipt));
            }
            Ok(())
        })?;
        others.retain(|file| !since.contains(&file.sha256));
        others.sort_by(|one, other| one.entry.cmp(&other.entry));
        let mut lookup = if is_ledger_read { Some(snapshot.lookup()?) } else { None };
        let done = verify.spool.map(|spool| spool.done().to_owned()).unwrap_or_default();
        let (mut lost, mut unknown) = (Vec::new(), 0_u64);
        for file in others {
            match self.judge(file, &done, &verify.limits, lookup.as_mut())? {
                Other::Lost(found) => {
                    let what = format!("done/{}", file.entry);
                    let expected = "a receipt, and all of its events in the store";
                    checkup.found(FindingCode::LostCommit, what, expected, found);
                    lost.push(file.clone());
                }
                Other::Wrong(code, expected, found) => {
                    checkup.found(code, format!("done/{}", file.entry), expected, found);
                }
                Other::Unknown => unknown += 1,
                Other::Gone => {}
            }
        }
        if unknown > 0 {
            checkup.not_checked(format!(
                "{unknown} files in done/: the receipts of their time were removed by retention"
            ));
        }
        Ok(lost)
    }

    fn judge(
        &self,
        file: &DoneFile,
        done: &Path,
        limits: &Limits,
        lookup: Option<&mut Lookup<'_>>,
    ) -> Result<Other, Error> {
        let named = self.named.iter().find(|(entry, _)| is_name_of(&file.entry, entry));
        let changed = named.map(|(_, batch)| {
            let expected = format!("the file of batch {batch}, by the hash of its receipt");
            let found = format!("another hash ({} bytes)", file.bytes);
            Other::Wrong(FindingCode::FileChanged, expected, found)
        });
        let Some(lookup) = lookup else {
            let found = "no receipt; the ledger cannot tell whether its events are in";
            return Ok(Other::Lost(found.to_owned()));
        };
        let standing = match standing(done, &file.entry, limits, lookup)? {
            Ok(standing) => standing,
            Err(Unread::Gone) => return Ok(Other::Gone),
            Err(Unread::NoBatch(_)) if changed.is_some() => {
                return Ok(changed.unwrap_or(Other::Gone));
            }
            Err(Unread::NoBatch(why)) => {
                let found = format!("no receipt; it is no batch: {why}");
                return Ok(Other::Wrong(
                    FindingCode::FileWithoutReceipt,
                    RECEIPT.to_owned(),
                    found,
                ));
            }
        };
        let Standing { events, contradicting, forgotten, .. } = standing;
        let missing = standing.missing();
        // one of that name of which nothing is in is another file, and its own commit is lost
        if let Some(changed) = changed.filter(|_| missing < events) {
            return Ok(changed);
        }
        Ok(match missing {
            1.. => {
                let also = match contradicting {
                    0 => String::new(),
                    _ => format!(", and {contradicting} came under other values"),
                };
                Other::Lost(format!(
                    "no receipt; of its {events} events {missing} are not in the store{also}"
                ))
            }
            0 if self.is_cut => Other::Unknown,
            0 if forgotten > 0 => Other::Lost(format!(
                "no receipt; {forgotten} of its {events} events are older than ids are remembered"
            )),
            0 if events == 0 => Other::Lost("no receipt; it holds no events".to_owned()),
            0 => {
                let found = format!("no receipt; its {events} events are known by other files");
                Other::Wrong(FindingCode::FileWithoutReceipt, RECEIPT.to_owned(), found)
            }
        })
    }
}

const RECEIPT: &str = "a receipt: only what was taken in lies in done/";

/// What a file without a receipt is.
enum Other {
    Lost(String),
    Wrong(FindingCode, String, String),
    Unknown,
    Gone,
}

/// Why a file could not be read to its end.
pub(crate) enum Unread {
    Gone,
    NoBatch(String),
}

/// How the events of a file stand to the store.
fn standing(
    base: &Path,
    entry: &Entry,
    limits: &Limits,
    lookup: &mut Lookup<'_>,
) -> Result<Result<Standing, Unread>, Error> {
    let mut standing = Standing::default();
    let oldest_ms = lookup.oldest_ms();
    let read = read_events(base, entry, limits, lookup, &mut |chunk, facts| {
        standing.add(chunk, facts, oldest_ms);
    })?;
    Ok(read.map(|()| standing))
}

/// Shows the events of a file, with what the store knows of each.
pub(crate) fn read_events(
    base: &Path,
    entry: &Entry,
    limits: &Limits,
    lookup: &mut Lookup<'_>,
    each: &mut dyn FnMut(&Chunk, &[Fact]),
) -> Result<Result<(), Unread>, Error> {
    let file = match done_files::open(base, entry) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err(Unread::Gone)),
        Err(error) => return Ok(Err(Unread::NoBatch(error.to_string()))),
    };
    let mut decoder = Decoder::new(file, Limits { max_file_bytes: None, ..limits.clone() });
    let (mut chunk, mut facts) = (Chunk::default(), Vec::new());
    loop {
        let more = decoder.read_chunk(&mut chunk);
        lookup.facts(&chunk, &mut facts)?;
        each(&chunk, &facts);
        match more {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(())),
            Err(decode::Fault::Io(error)) => return Ok(Err(Unread::NoBatch(error.to_string()))),
            Err(decode::Fault::Refused(refusal)) => {
                return Ok(Err(Unread::NoBatch(shown(refusal.message.as_bytes()))));
            }
        }
    }
}

/// The hash that a receipt of events has.
fn hash_of(receipt: &ReceiptRow) -> Option<[u8; 32]> {
    let hex = receipt.sha256.as_deref().filter(|hex| hex.len() == 64 && hex.is_ascii())?;
    let mut hash = [0; 32];
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(hash)
}

/// Whether a file of that name may be one that came under the other: the same, or with a number
/// behind it, perhaps cut to make room for that.
fn is_name_of(file: &Entry, came: &Entry) -> bool {
    if file.folder != came.folder || is_ignored(came.name.as_bytes()) {
        return false;
    }
    let (file, came) = (file.name.as_bytes(), came.name.as_bytes());
    if file == came {
        return true;
    }
    let Some(dot) = file.iter().rposition(|byte| *byte == b'.') else { return false };
    let (stem, number) = (&file[..dot], &file[dot + 1..]);
    let is_number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
    let is_cut = came.len() >= LONG_NAME_BYTES
        && came.starts_with(stem)
        && stem.len() + MAX_SUFFIX_BYTES >= came.len();
    is_number && (stem == came || is_cut)
}
