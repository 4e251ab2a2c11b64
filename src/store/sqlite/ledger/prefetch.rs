//! Looks up the ids of chunks on another thread, ahead of the writer: asks the filters of all runs
//! about many chunks at once, and reads what they do not rule out over a connection of its own.
//!
//! Only runs that are committed just as the writer knew them are looked into. What is found there
//! holds for as long as the writer has that very run: entries are never changed, and one that is
//! taken away is behind the horizon, whatever is found of it.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;

use super::cursor::Cursor;
use super::row::Entry;
use super::run::{self, Run};
use super::{kept, short_of};
use crate::engine::Seen;
use crate::model::event::{Chunk, HashKey};
use crate::store::Prefetch;
use crate::store::sqlite::tables::store_meta;

/// From how many runs on it is worth the wait to look at many chunks at once: a filter is then read
/// from front to back, in place of here and there.
const MANY_RUNS: usize = 4;

/// How many ids are looked at once then.
const IDS_AT_ONCE: usize = 1 << 16;

/// Of how many ids one may be there for what is there to be looked up ahead. Where most are, as when
/// all is sent again, the writer has little else to do, and both together are faster.
const IDS_A_MAYBE: usize = 8;

/// The runs that there are, the oldest first. Who looks at them holds up nobody who changes them.
pub(super) type Runs = Arc<Vec<Arc<Run>>>;

/// The runs as the writer last knew them.
pub(super) type Shared = Arc<Mutex<Runs>>;

/// Opens a connection that can only read; none when that cannot be done now.
pub(in crate::store::sqlite) type Open = Box<dyn Fn() -> Option<Connection> + Send>;

/// Looks at chunks for a writer.
pub(super) struct Ahead {
    runs: Shared,
    key: HashKey,
    open: Open,
    connection: Option<Connection>,
}

/// What was found out about the rows of a chunk.
pub(super) struct Hint {
    /// The runs that were asked, and of each whether it was looked into.
    runs: Runs,
    read: Arc<Vec<bool>>,
    /// Rows, and the runs that may hold them: those that were not looked into.
    pub(super) maybe: Vec<(u32, usize)>,
    /// What is there, by row.
    pub(super) hits: Vec<Hit>,
}

/// An id that is there already.
#[derive(Clone, Copy)]
pub(super) struct Hit {
    pub(super) row: u32,
    pub(super) run: usize,
    pub(super) position: u64,
    pub(super) seen: Seen,
}

impl Hint {
    /// Where the runs that were asked stand among those; none for what is not there any more.
    pub(super) fn places_in(&self, runs: &[Arc<Run>]) -> Vec<Option<usize>> {
        let place = |asked: &Arc<Run>| runs.iter().position(|run| Arc::ptr_eq(run, asked));
        self.runs.iter().map(place).collect()
    }
}

/// An id that a filter does not rule out: its number among all, and the run, the last one first.
type Maybe = (u32, Reverse<usize>);

impl Prefetch for Ahead {
    fn ids_at_once(&self) -> usize {
        if self.runs().len() < MANY_RUNS { 1 } else { IDS_AT_ONCE }
    }

    fn look(&mut self, chunks: &mut [&mut Chunk]) {
        let runs = self.runs();
        if runs.is_empty() || chunks.iter().any(|chunk| chunk.hash_key() != self.key) {
            return;
        }
        let maybe = ask(&runs, chunks);
        let ids: usize = chunks.iter().map(|chunk| chunk.len()).sum();
        let is_much = maybe.len() * IDS_A_MAYBE > ids;
        let found = if is_much { None } else { self.read(&runs, chunks, &maybe) };
        let mut hints = match found {
            Some(hints) => hints,
            None => hints(&runs, Arc::new(vec![false; runs.len()]), chunks.len()),
        };
        let mut maybe = maybe.into_iter().peekable();
        let mut behind = 0;
        for (chunk, mut hint) in chunks.iter_mut().zip(hints.drain(..)) {
            let first = behind;
            behind += chunk.len() as u32;
            while let Some((id, Reverse(run))) = maybe.next_if(|(id, _)| *id < behind) {
                if !hint.read[run] {
                    hint.maybe.push((id - first, run));
                }
            }
            chunk.set_hint(Box::new(hint));
        }
    }
}

/// One for each chunk, with nothing found yet.
fn hints(runs: &Runs, read: Arc<Vec<bool>>, chunks: usize) -> Vec<Hint> {
    let hint = || Hint {
        runs: Arc::clone(runs),
        read: Arc::clone(&read),
        maybe: Vec::new(),
        hits: Vec::new(),
    };
    (0..chunks).map(|_| hint()).collect()
}

/// What the filters do not rule out, in the order of the ids.
fn ask(runs: &Runs, chunks: &[&mut Chunk]) -> Vec<Maybe> {
    let shorts = chunks.iter().flat_map(|chunk| {
        let short = |row| short_of(kept(chunk.id_hash(row)));
        (0..chunk.len()).map(short)
    });
    let mut ids: Vec<(u64, u32)> = shorts.zip(0..).collect();
    // a filter lies in the order of the ids
    ids.sort_unstable();
    let (mut maybe, mut found) = (Vec::new(), Vec::new());
    for (place, run) in runs.iter().enumerate() {
        found.clear();
        run.filter.select(&ids, &mut found);
        maybe.extend(found.iter().map(|(_, id)| (*id, Reverse(place))));
    }
    maybe.sort_unstable();
    maybe
}

impl Ahead {
    pub(super) fn new(runs: Shared, key: HashKey, open: Open) -> Ahead {
        Ahead { runs, key, open, connection: None }
    }

    fn runs(&self) -> Runs {
        Arc::clone(&self.runs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks up what may be there; none when it cannot be read now: then the writer does, and says
    /// what is wrong.
    fn read(&mut self, runs: &Runs, chunks: &[&mut Chunk], maybe: &[Maybe]) -> Option<Vec<Hint>> {
        if maybe.is_empty() {
            // nothing to look up: what was ruled out is ruled out
            return Some(hints(runs, Arc::new(vec![true; runs.len()]), chunks.len()));
        }
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => (self.open)()?,
        };
        let found = find(&connection, self.key, runs, chunks, maybe).ok()?;
        self.connection = Some(connection);
        Some(found)
    }
}

/// Looks into the runs that are there in one state of the store.
fn find(
    connection: &Connection,
    key: HashKey,
    runs: &Runs,
    chunks: &[&mut Chunk],
    maybe: &[Maybe],
) -> rusqlite::Result<Vec<Hint>> {
    // ends when it goes out of scope
    let snapshot = connection.unchecked_transaction()?;
    let is_same = store_meta::hash_key(&snapshot)? == key;
    let there = run::list(&snapshot)?;
    let read = runs.iter().map(|run| is_same && there.contains(&run.facts)).collect();
    let read: Arc<Vec<bool>> = Arc::new(read);
    let mut hints = hints(runs, Arc::clone(&read), chunks.len());
    let mut cursor = Cursor::new(&snapshot)?;
    let (mut number, mut first) = (0, 0);
    for maybe in maybe.chunk_by(|one, other| one.0 == other.0) {
        let id = maybe[0].0;
        while id >= first + chunks[number].len() as u32 {
            first += chunks[number].len() as u32;
            number += 1;
        }
        let (chunk, row) = (&chunks[number], (id - first) as usize);
        let hash = kept(chunk.id_hash(row));
        let seen = |entry: &Entry<'_>| Seen::of(entry, &chunk.event(row));
        // what is sent again comes in the order in which it came before
        let next = cursor.behind()?.filter(|next| next.hash == hash).map(|next| seen(&next));
        let next_at = cursor.position();
        for Reverse(run) in maybe.iter().map(|(_, run)| *run).filter(|run| read[run.0]) {
            let facts = &runs[run].facts;
            let is_next = (facts.new.from..facts.new.to).contains(&next_at);
            let found = match next.filter(|_| is_next) {
                Some(seen) => Some(seen),
                None => {
                    let positions = cursor.positions(facts, short_of(hash))?;
                    cursor.find(&positions, hash, seen)?
                }
            };
            if let Some(seen) = found {
                let (row, position) = (row as u32, cursor.position());
                hints[number].hits.push(Hit { row, run, position, seen });
                break;
            }
        }
    }
    Ok(hints)
}
