//! What the last batches made of windows and accounts: kept packed with each batch, added up in
//! memory, and worked into the tables when there is enough of it.
//!
//! Whoever reads the tables must look here first: a window that is found here holds what is said
//! here, and to an account is added what is found here.

mod row;

use std::collections::BTreeMap;
use std::ops::Range;

use foldhash::HashMap;
use rusqlite::{Connection, OptionalExtension, params};

use crate::engine::Changes;
use crate::engine::Counts;
use crate::engine::totals::{Delta, Totals};
use crate::engine::window::WindowId;
use crate::store::Overflowing;

use super::tables::{accounts, windows};
use row::KeyRef;
use row::Visitor;

/// What a writer has in memory of it.
#[derive(Debug, Default)]
pub(super) struct WriteBuffer {
    keys: Keys,
    sources: Keys,
    /// By the numbers of source and key.
    accounts: HashMap<(u32, u32), Account>,
    starts: BTreeMap<i64, Start>,
    windows: usize,
    rows: u64,
    /// The greatest start in the table of windows.
    table_greatest_ms: Option<i64>,
    /// What stood there before the batch in hand, the last change last.
    undo: Vec<(i64, u32, Option<Sum>)>,
    undo_accounts: Vec<((u32, u32), Option<Account>)>,
    rows_before: u64,
    /// Tables were written since the batch began: to undo that, all must be read again.
    worked_in: bool,
}

/// The windows of one start, by the number of their key.
#[derive(Debug, Default)]
struct Start {
    held: HashMap<u32, Sum>,
    /// How many of them are not in the table.
    new: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sum {
    totals: Totals,
    in_table: bool,
}

/// Keys by number.
#[derive(Debug, Default)]
struct Keys {
    numbers: HashMap<Box<str>, u32>,
    names: Vec<Box<str>>,
    /// For each the last row that it stands in, and its number there.
    in_row: Vec<(u64, u32)>,
    row: u64,
    row_keys: u32,
}

impl Keys {
    fn number(&mut self, key: &str) -> u32 {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.numbers.insert(key.into(), number);
        self.names.push(key.into());
        self.in_row.push((0, 0));
        number
    }

    /// For each number the place of its key in the order of the keys.
    fn ranks(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..self.names.len() as u32).collect();
        numbers.sort_unstable_by_key(|number| &self.names[*number as usize]);
        let mut ranks = vec![0; numbers.len()];
        for (number, rank) in numbers.into_iter().zip(0..) {
            ranks[number as usize] = rank;
        }
        ranks
    }

    fn begin_row(&mut self) {
        self.row += 1;
        self.row_keys = 0;
    }

    fn put(&mut self, to: &mut Vec<u8>, number: u32) {
        let in_row = &mut self.in_row[number as usize];
        if in_row.0 == self.row {
            return row::put_key(to, &KeyRef::Known(in_row.1));
        }
        *in_row = (self.row, self.row_keys);
        self.row_keys += 1;
        row::put_key(to, &KeyRef::New(&self.names[number as usize]));
    }
}

impl WriteBuffer {
    /// Brings what is in memory up to what the store holds.
    pub(super) fn load(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        *self = WriteBuffer {
            table_greatest_ms: greatest_start_ms(connection)?,
            ..WriteBuffer::default()
        };
        self.rows = row::each(connection, self)?;
        self.rows_before = self.rows;
        let mut find =
            connection.prepare_cached("SELECT 1 FROM windows WHERE start_ms = ?1 AND key = ?2")?;
        let table_greatest_ms = self.table_greatest_ms;
        for (start_ms, start) in &mut self.starts {
            for (key, held) in &mut start.held {
                let name = &self.keys.names[*key as usize];
                held.in_table = table_greatest_ms.is_some_and(|ms| ms >= *start_ms)
                    && find.exists(params![start_ms, name])?;
                start.new += u64::from(!held.in_table);
            }
        }
        Ok(())
    }

    /// How many windows there are, or accounts, or changes of either that a long batch would have to
    /// undo: the greatest of these.
    pub(super) fn size(&self) -> usize {
        let undo = self.undo.len().max(self.undo_accounts.len());
        self.windows.max(self.accounts.len()).max(undo)
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// What was added since the batch began stays.
    pub(super) fn keep(&mut self) {
        self.undo.clear();
        self.undo_accounts.clear();
        self.rows_before = self.rows;
        self.worked_in = false;
    }

    /// Forgets what a batch that is undone has added; false when that cannot be done without reading
    /// all again.
    pub(super) fn undo(&mut self) -> bool {
        while let Some((start_ms, key, before)) = self.undo.pop() {
            let Some(start) = self.starts.get_mut(&start_ms) else { continue };
            let after = match before {
                Some(held) => start.held.insert(key, held),
                None => start.held.remove(&key),
            };
            if let (None, Some(after)) = (before, after) {
                self.windows -= 1;
                start.new -= u64::from(!after.in_table);
            }
            if start.held.is_empty() {
                self.starts.remove(&start_ms);
            }
        }
        while let Some((name, before)) = self.undo_accounts.pop() {
            match before {
                Some(account) => drop(self.accounts.insert(name, account)),
                None => drop(self.accounts.remove(&name)),
            }
        }
        self.rows = self.rows_before;
        !std::mem::take(&mut self.worked_in)
    }

    /// Adds what a chunk brings to those windows and to accounts, and keeps it; says how many windows
    /// held nothing before. Otherwise the windows that would leave their range: nothing is to be
    /// relied on then.
    pub(super) fn add(
        &mut self,
        connection: &Connection,
        windows: &[(WindowId<'_>, Delta)],
        changes: &Changes<'_>,
    ) -> rusqlite::Result<Result<u64, Vec<Overflowing>>> {
        if windows.is_empty() && changes.accounts.is_empty() {
            return Ok(Ok(0));
        }
        let mut blob = Vec::new();
        self.keys.begin_row();
        let new = match self.add_windows(connection, windows, &mut blob)? {
            Ok(new) => new,
            Err(overflowing) => return Ok(Err(overflowing)),
        };
        self.put_accounts(changes, &mut blob);
        connection
            .prepare_cached("INSERT INTO recent (changes) VALUES (?1)")?
            .execute(params![blob])?;
        self.rows += 1;
        Ok(Ok(new))
    }

    fn add_windows(
        &mut self,
        connection: &Connection,
        windows: &[(WindowId<'_>, Delta)],
        blob: &mut Vec<u8>,
    ) -> rusqlite::Result<Result<u64, Vec<Overflowing>>> {
        let by_start = || windows.chunk_by(|one, other| one.0.start_ms == other.0.start_ms);
        super::codec::put(blob, by_start().count() as u64);
        let (mut new, mut overflowing) = (0, Vec::new());
        let mut find = windows::Find::new(connection)?;
        for windows in by_start() {
            let start_ms = windows[0].0.start_ms;
            super::codec::put(blob, start_ms as u64);
            super::codec::put(blob, windows.len() as u64);
            let start = self.starts.entry(start_ms).or_default();
            let may_be_in_table = self.table_greatest_ms.is_some_and(|ms| ms >= start_ms);
            for (id, delta) in windows {
                let key = self.keys.number(id.key);
                let held = start.held.get(&key).copied();
                let in_table = match held {
                    None if may_be_in_table => find.totals(id)?,
                    _ => None,
                };
                let before = held.map(|held| held.totals).or(in_table);
                let Ok(totals) = delta.added_to(before) else {
                    overflowing.push(windows::overflow(id, before));
                    continue;
                };
                let is_in_table = held.map_or(in_table.is_some(), |held| held.in_table);
                self.undo.push((start_ms, key, held));
                start.held.insert(key, Sum { totals, in_table: is_in_table });
                self.windows += usize::from(held.is_none());
                start.new += u64::from(held.is_none() && !is_in_table);
                new += u64::from(before.is_none());
                self.keys.put(blob, key);
                row::put_totals(blob, &totals);
            }
        }
        Ok(if overflowing.is_empty() { Ok(new) } else { Err(overflowing) })
    }

    fn put_accounts(&mut self, changes: &Changes<'_>, blob: &mut Vec<u8>) {
        super::codec::put(blob, changes.sources.len() as u64);
        let mut sources = Vec::with_capacity(changes.sources.len());
        for change in &changes.sources {
            super::codec::put_name(blob, &change.source);
            sources.push(self.sources.number(&change.source));
        }
        super::codec::put(blob, changes.accounts.len() as u64);
        for account in &changes.accounts {
            super::codec::put(blob, account.source as u64);
            let key = self.keys.number(account.key);
            self.keys.put(blob, key);
            row::put_counts(blob, &account.counts);
            super::codec::put_signed(blob, account.last_seen_ms);
            let name = (sources[account.source], key);
            let before = self.accounts.get(&name).copied();
            self.undo_accounts.push((name, before));
            self.accounts.insert(name, joined(before, (account.counts, account.last_seen_ms)));
        }
    }

    /// How many windows with a start from the first to before the second are not in the table.
    pub(super) fn new_windows(&self, first_ms: i64, after_ms: i64) -> u64 {
        self.starts.range(first_ms..after_ms).map(|(_, start)| start.new).sum()
    }

    /// Works all of it into the tables. What stays in memory is nothing.
    pub(super) fn work_in(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut put = windows::Put::new(connection)?;
        let ranks = self.keys.ranks();
        let mut new = Vec::new();
        for (start_ms, start) in &self.starts {
            let mut held: Vec<_> = start.held.iter().collect();
            held.sort_unstable_by_key(|(key, _)| ranks[**key as usize]);
            for (key, Sum { totals, in_table }) in held {
                let id = WindowId { start_ms: *start_ms, key: &self.keys.names[*key as usize] };
                match in_table {
                    true => put.totals(&id, totals)?,
                    false => new.push((id, *totals)),
                }
            }
        }
        put.new_totals(&new)?;
        accounts::add(connection, &self.sums())?;
        connection.prepare_cached("DELETE FROM recent")?.execute([])?;
        let greatest_ms = self.starts.keys().next_back().copied();
        let table_greatest_ms = self.table_greatest_ms.max(greatest_ms);
        *self = WriteBuffer { table_greatest_ms, worked_in: true, ..WriteBuffer::default() };
        Ok(())
    }

    fn sums(&self) -> Sums {
        let (sources, keys) = (self.sources.ranks(), self.keys.ranks());
        let mut all: Vec<_> = self.accounts.iter().collect();
        let place = |(source, key): &(u32, u32)| (sources[*source as usize], keys[*key as usize]);
        all.sort_unstable_by_key(|(name, _)| place(name));
        let by_source = all.chunk_by(|one, other| one.0.0 == other.0.0);
        let name = |names: &Keys, number: u32| String::from(&*names.names[number as usize]);
        by_source
            .map(|accounts| {
                let keys = accounts.iter().map(|((_, key), sum)| (name(&self.keys, *key), **sum));
                (name(&self.sources, accounts[0].0.0), keys.collect())
            })
            .collect()
    }

    /// Windows were written into the table directly, up to that start.
    pub(super) fn table_grew(&mut self, greatest_ms: Option<i64>) {
        self.table_greatest_ms = self.table_greatest_ms.max(greatest_ms);
        self.worked_in = true;
    }
}

impl Visitor for WriteBuffer {
    fn window(&mut self, start_ms: i64, key: &str, totals: Totals) {
        let key = self.keys.number(key);
        let held = Sum { totals, in_table: false };
        let start = self.starts.entry(start_ms).or_default();
        self.windows += usize::from(start.held.insert(key, held).is_none());
    }

    fn account(&mut self, source: &str, key: &str, counts: Counts, last_seen_ms: i64) {
        let name = (self.sources.number(source), self.keys.number(key));
        let before = self.accounts.get(&name).copied();
        self.accounts.insert(name, joined(before, (counts, last_seen_ms)));
    }
}

/// What a source sent of a key, and how far event time had come with it.
type Account = (Counts, i64);

fn joined(before: Option<Account>, (mut counts, mut last_seen_ms): Account) -> Account {
    if let Some((sum, last_ms)) = before {
        counts.add(&sum);
        last_seen_ms = last_seen_ms.max(last_ms);
    }
    (counts, last_seen_ms)
}

fn greatest_start_ms(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT start_ms FROM windows ORDER BY start_ms DESC LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()
}

/// What is to be added to the accounts, by source and key.
pub(super) type Sums = Vec<(String, Vec<(String, Account)>)>;

/// What is to be added to the accounts: for readers.
pub(super) fn sums(connection: &Connection) -> rusqlite::Result<Sums> {
    let mut write_buffer = WriteBuffer::default();
    row::each(connection, &mut write_buffer)?;
    Ok(write_buffer.sums())
}

/// What windows hold, by start and key.
pub(super) type Held = BTreeMap<(i64, String), Totals>;

/// What windows hold that are found here and begin within the range: for readers.
pub(super) fn windows(connection: &Connection, starts_ms: Range<i64>) -> rusqlite::Result<Held> {
    let mut windows = Windows { starts_ms, held: Held::new() };
    row::each(connection, &mut windows)?;
    Ok(windows.held)
}

/// How many windows from that start on are found here only: for readers.
pub(super) fn new_windows(connection: &Connection, first_ms: i64) -> rusqlite::Result<u64> {
    let table_greatest_ms = greatest_start_ms(connection)?;
    let mut find = windows::Find::new(connection)?;
    let mut new = 0;
    for (start_ms, key) in self::windows(connection, first_ms..i64::MAX)?.keys() {
        let id = WindowId { start_ms: *start_ms, key };
        let may_be_there = table_greatest_ms.is_some_and(|ms| ms >= *start_ms);
        new += u64::from(!may_be_there || find.totals(&id)?.is_none());
    }
    Ok(new)
}

struct Windows {
    starts_ms: Range<i64>,
    held: Held,
}

impl Visitor for Windows {
    fn window(&mut self, start_ms: i64, key: &str, totals: Totals) {
        if self.starts_ms.contains(&start_ms) {
            self.held.insert((start_ms, key.to_owned()), totals);
        }
    }
}
