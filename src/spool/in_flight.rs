//! Which files are in hand, noted where the note outlives the process: a file that processes die of
//! comes after the others, and is not tried for ever.
//!
//! A crash is what this is about, not a power cut: a plain write that nobody syncs is enough, and
//! costs next to nothing. What is noted counts against a file only when nothing else explains how
//! the process ended: see [`Excuse`], and the note of another boot counts for nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use super::safe_open::{self, Opened};
use super::{Entry, Spool};

/// The file in the spool that holds the note.
pub const TRYING_FILE: &str = ".windowflow.trying";

/// After how many deaths at the same place of a file it is not tried again.
pub const DEATHS: u32 = 3;

/// Where in the note stands what: the boot and the excuse, who has what in hand, the suspects.
const EXCUSE_AT: u64 = 64;
const HANDS_AT: u64 = 1024;
const HAND_BYTES: u64 = 1024;
const SUSPECTS_AT: u64 = 4096;

/// The most that is read of a note.
const NOTE_MAX_BYTES: usize = 1 << 20;

/// The most suspects that are kept; the oldest go.
const MOST_SUSPECTS: usize = 100;

/// Who has a file in hand: each has one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// The thread that opens and decodes.
    Reader,
    /// The thread that judges and writes.
    Writer,
}

/// What explains an end of the process other than the files in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excuse {
    /// Nothing so far.
    None,
    /// It was told to stop, or ends for another reason: no file is to blame.
    Ending,
    /// It did not get on, by a disk or a store that did not answer: whoever kills it then has a
    /// reason. The file comes after the others, but is not to blame.
    Stuck,
    /// A thread panicked, and only what that one had in hand is to blame.
    Panicked(Hand),
}

impl Excuse {
    fn sign(self) -> u8 {
        match self {
            Excuse::None => b'-',
            Excuse::Ending => b'e',
            Excuse::Stuck => b's',
            Excuse::Panicked(Hand::Reader) => b'r',
            Excuse::Panicked(Hand::Writer) => b'w',
        }
    }

    fn of_sign(sign: u8) -> Excuse {
        match sign {
            b'-' => Excuse::None,
            b's' => Excuse::Stuck,
            b'r' => Excuse::Panicked(Hand::Reader),
            b'w' => Excuse::Panicked(Hand::Writer),
            _ => Excuse::Ending,
        }
    }
}

/// The note. What cannot be written is not: it is worth no fault.
#[derive(Debug, Default)]
pub struct InFlight {
    file: Option<File>,
    // by hand; only to write nothing twice
    is_held: [AtomicBool; 2],
}

/// A file that was in hand when a process died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashSuspect {
    /// The file, as shown.
    pub file: String,
    /// How often in a row a process died at the same place of it.
    pub deaths: u32,
    /// How often a process was ended that did not get on with it in hand.
    #[serde(default)]
    pub stuck: u32,
    /// The last one panicked over it, rather than ended without a word.
    #[serde(default)]
    pub panicked: bool,
    /// Which file of that name it was.
    mark: String,
    /// How far the threads were that had it in hand.
    places: Vec<String>,
}

impl InFlight {
    /// Reads what the last process left, and begins a note of its own; what is suspected now.
    /// Hold the [lock](super::lock::Lock) while calling it.
    ///
    /// # Errors
    /// When the note cannot be made; all goes on without it.
    pub fn begin(spool: &Spool) -> io::Result<(InFlight, Vec<CrashSuspect>)> {
        let path = spool.root().join(TRYING_FILE);
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let left = read(&path)?;
        let mut suspects = suspects(&left, boot.trim());
        suspects.retain(|suspect| suspect.is_there(spool.inbox()));
        let beside = path.with_extension("trying.tmp");
        let file = make(&beside)?;
        let mut note = vec![0; SUSPECTS_AT as usize];
        let known = boot.trim().as_bytes().iter().take(EXCUSE_AT as usize);
        note.iter_mut().zip(known).for_each(|(to, from)| *to = *from);
        note[EXCUSE_AT as usize] = Excuse::None.sign();
        file.write_all_at(&note, 0)?;
        let in_flight = InFlight { file: Some(file), ..InFlight::default() };
        in_flight.keep(&suspects)?;
        std::fs::rename(&beside, &path)?;
        Ok((in_flight, suspects))
    }

    /// Notes who has which file in hand from now on, at its beginning.
    pub fn take(&self, hand: Hand, entry: &Entry, opened: &Opened) {
        let Some(file) = &self.file else { return };
        let mut note = Vec::with_capacity(256);
        note.extend_from_slice(step_text(0).as_bytes());
        let folder = entry.folder.as_deref().unwrap_or_default().as_bytes();
        for part in [opened.seen().mark().as_bytes(), folder, entry.name.as_bytes()] {
            note.push(0);
            note.extend_from_slice(part);
        }
        note.push(0);
        if note.len() as u64 <= HAND_BYTES {
            let _ = file.write_all_at(&note, place_of(hand));
            self.is_held[hand as usize].store(true, Ordering::Relaxed);
        }
    }

    /// Notes how far it has come with that, which it has in hand again if it was put down.
    pub fn get_on(&self, hand: Hand, step: u32) {
        if let Some(file) = &self.file {
            let _ = file.write_all_at(step_text(step).as_bytes(), place_of(hand));
            self.is_held[hand as usize].store(true, Ordering::Relaxed);
        }
    }

    /// Notes that it has nothing in hand any more.
    pub fn put_down(&self, hand: Hand) {
        if let Some(file) = &self.file
            && self.is_held[hand as usize].swap(false, Ordering::Relaxed)
        {
            let _ = file.write_all_at(&[0], place_of(hand));
        }
    }

    /// Notes what would explain the end of the process, should it end now.
    pub fn excuse(&self, excuse: Excuse) {
        if let Some(file) = &self.file {
            let _ = file.write_all_at(&[excuse.sign()], EXCUSE_AT);
        }
    }

    /// Keeps who is suspected from now on.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn keep(&self, suspects: &[CrashSuspect]) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let text = serde_json::to_vec(suspects)?;
        file.write_all_at(&text, SUSPECTS_AT)?;
        file.set_len(SUSPECTS_AT + text.len() as u64)
    }
}

impl CrashSuspect {
    /// Where it is.
    pub fn entry(&self) -> Option<Entry> {
        Entry::parse(&self.file)
    }

    /// Whether that very file still lies there.
    pub fn is_there(&self, inbox: &Path) -> bool {
        let seen = self.entry().and_then(|entry| safe_open::seen_at(inbox, &entry).ok());
        seen.is_some_and(|seen| seen.mark() == self.mark)
    }
}

fn place_of(hand: Hand) -> u64 {
    match hand {
        Hand::Reader => HANDS_AT,
        Hand::Writer => HANDS_AT + HAND_BYTES,
    }
}

/// As long for each step, so that it can be written over.
fn step_text(step: u32) -> String {
    format!("{step:010}")
}

fn make(path: &PathBuf) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).mode(0o640);
    options.custom_flags(libc::O_NOFOLLOW).open(path)
}

/// What is there; nothing when there is nothing.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut note = Vec::new();
    file.take(NOTE_MAX_BYTES as u64).read_to_end(&mut note)?;
    Ok(note)
}

/// Who is suspected by what a process left that was not put down.
fn suspects(note: &[u8], boot: &str) -> Vec<CrashSuspect> {
    let Some((note, kept)) = note.split_at_checked(SUSPECTS_AT as usize) else { return Vec::new() };
    let mut known: Vec<CrashSuspect> = serde_json::from_slice(kept).unwrap_or_default();
    // without a boot it cannot be told whether the machine itself went down
    if boot.is_empty() || until_nul(note) != boot.as_bytes() {
        return known;
    }
    let excuse = Excuse::of_sign(note[EXCUSE_AT as usize]);
    let held = |hand: Hand| {
        let at = place_of(hand) as usize;
        let blamed = !matches!(excuse, Excuse::Panicked(other) if other != hand);
        held(&note[at..at + HAND_BYTES as usize]).filter(|_| blamed && excuse != Excuse::Ending)
    };
    let mut found: Vec<CrashSuspect> = Vec::new();
    for (hand, sign) in [(Hand::Reader, 'r'), (Hand::Writer, 'w')] {
        let Some((step, mark, entry)) = held(hand) else { continue };
        let (file, place) = (entry.shown(), format!("{sign}{step}"));
        match found.iter_mut().find(|suspect| suspect.file == file) {
            Some(suspect) => suspect.places.push(place),
            None => {
                let panicked = matches!(excuse, Excuse::Panicked(_));
                let is_stuck = excuse == Excuse::Stuck;
                let (deaths, stuck) = (u32::from(!is_stuck), u32::from(is_stuck));
                found.push(CrashSuspect {
                    file,
                    deaths,
                    stuck,
                    panicked,
                    mark,
                    places: vec![place],
                });
            }
        }
    }
    for mut suspect in found {
        let before = known.iter().position(|known| known.file == suspect.file);
        let before = before.map(|at| known.remove(at)).filter(|was| was.mark == suspect.mark);
        if let Some(before) = before {
            // one that came further before was not at fault there: whoever kills at random hits
            // a large file here and there
            let is_same = before.places.iter().any(|place| suspect.places.contains(place));
            if suspect.stuck > 0 {
                suspect.deaths = before.deaths;
                suspect.places = before.places;
            } else if is_same {
                suspect.deaths += before.deaths;
            }
            suspect.stuck += before.stuck;
        }
        known.push(suspect);
    }
    known.drain(..known.len().saturating_sub(MOST_SUSPECTS));
    known
}

/// What stands in one hand's part of the note.
fn held(note: &[u8]) -> Option<(u32, String, Entry)> {
    let mut parts = note.split(|byte| *byte == 0);
    let mut next = || parts.next();
    let step = std::str::from_utf8(next()?).ok()?.parse().ok()?;
    let mark = String::from_utf8(next()?.to_vec()).ok()?;
    let folder = String::from_utf8(next()?.to_vec()).ok()?;
    let name = std::ffi::OsString::from_vec(next()?.to_vec());
    let folder = Some(folder.as_str()).filter(|folder| !folder.is_empty());
    (!name.is_empty()).then(|| (step, mark, Entry::new(folder, name)))
}

fn until_nul(note: &[u8]) -> &[u8] {
    note.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
