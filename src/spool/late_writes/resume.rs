//! The files that were moved before this process began, found again by their receipts: by name,
//! size and time of last writing, at the cost of about one look at each.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Instant;

use super::{LateWrites, Stamp, Watched, marks};
use crate::spool::folder::{self, Facts, Kind};
use crate::spool::{Entry, Spool, name};

/// What is known of a file that was taken in.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// The batch that it brought.
    pub batch: u64,
    /// The name that it came under.
    pub entry: Entry,
    /// Its size.
    pub bytes: u64,
    /// When it was committed, in milliseconds since the epoch.
    pub committed_at_ms: i64,
    /// About when that was on the steady clock.
    pub moved: Instant,
}

impl Receipt {
    /// Whether a file can be the one of the receipt, unchanged.
    fn fits(&self, facts: &Facts) -> bool {
        facts.bytes == self.bytes && !self.is_before(facts)
    }

    /// Whether a file was written to since.
    fn is_before(&self, facts: &Facts) -> bool {
        let (seconds, nanos) = facts.mtime;
        let mtime_ms = seconds.saturating_mul(1000).saturating_add(i64::from(nanos) / 1_000_000);
        mtime_ms > self.committed_at_ms
    }
}

impl LateWrites {
    /// Takes up what a process before this one has moved: the receipts of the last
    /// [`WATCH_TIME`](super::WATCH_TIME), oldest first.
    pub fn resume(&mut self, spool: &Spool, receipts: &[Receipt]) {
        let kept = marks::read(spool.root());
        let kept: HashMap<(&str, u64), &marks::Mark> =
            kept.iter().map(|mark| ((mark.file.as_str(), mark.batch), mark)).collect();
        let mut by_name: HashMap<&Entry, Vec<&Receipt>> = HashMap::new();
        for receipt in receipts {
            by_name.entry(&receipt.entry).or_default().push(receipt);
        }
        let mut found = Vec::new();
        for (entry, receipts) in by_name {
            pair(spool, entry, receipts, &mut found);
        }
        found.sort_by_key(|file| file.batch);
        for mut file in found {
            if let Some(mark) = kept.get(&(file.entry.shown().as_str(), file.batch)) {
                file.stamp = Some(mark.stamp());
                file.copies = mark.copies;
            }
            self.watch(file);
        }
    }
}

/// Pairs the receipts of one name with the files that lie under it, or with a number behind it. The
/// numbers rise in the order of the receipts; a file that fits none and was written to since is not
/// what it was.
fn pair(spool: &Spool, entry: &Entry, mut receipts: Vec<&Receipt>, found: &mut Vec<Watched>) {
    let Ok(held) = folder::open_source(spool.done(), entry.folder.as_deref()) else { return };
    let mut unpaired = Vec::new();
    let mut keep = |name: OsString, receipt: &Receipt, facts: Option<&Facts>| {
        found.push(Watched {
            entry: Entry { folder: entry.folder.clone(), name },
            batch: receipt.batch,
            stamp: facts.map(Stamp::of),
            moved: receipt.moved,
            observation: None,
            copies: 0,
        });
    };
    for (name, facts) in files(&held, entry, receipts.len()) {
        match receipts.iter().rposition(|receipt| receipt.fits(&facts)) {
            Some(at) => keep(name, receipts.remove(at), Some(&facts)),
            None => unpaired.push((name, facts)),
        }
    }
    // the newest with the newest; what was not written to since is a file of before
    for (name, facts) in unpaired {
        if let Some(at) = receipts.iter().rposition(|receipt| receipt.is_before(&facts)) {
            keep(name, receipts.remove(at), None);
        }
    }
}

/// The files that so many receipts of one name can have, the newest first.
fn files(held: &OwnedFd, entry: &Entry, receipts: usize) -> Vec<(OsString, Facts)> {
    let bytes = entry.name.as_bytes();
    let name = |number| name::numbered(bytes, number, 255).map(OsString::from_vec);
    let file = |number| {
        let name = name(number)?;
        let facts = Facts::at(held, &name).ok().filter(|facts| facts.kind == Kind::File)?;
        Some((name, facts))
    };
    if receipts == 1 && !name(1).is_some_and(|name| folder::exists(held, &name).unwrap_or(false)) {
        return file(0).into_iter().collect();
    }
    let is_taken = |number| match name(number) {
        Some(name) => folder::exists(held, &name),
        None => Ok(number == 0),
    };
    let free = name::first_free(is_taken).unwrap_or(0);
    (free.saturating_sub(receipts as u64)..free).rev().filter_map(file).collect()
}
