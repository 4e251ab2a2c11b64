//! Looks at a spool and its store after the power was cut: what must hold, and what is amiss.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rusqlite::Connection;
use serde_json::Value;

use crate::deliveries::{Dropped, NEVER_LATE_MS, Totals, model};
use crate::world::World;

/// What is to be judged.
pub struct Judge<'j> {
    /// The folder.
    pub spool: &'j Path,
    /// All files that may be there, in the order in which they are taken.
    pub files: &'j [Left<'j>],
    /// A store must be there.
    pub has_store: bool,
}

/// What is known of a file.
pub struct Left<'j> {
    /// As it was dropped.
    pub file: &'j Dropped,
    /// Its producer has made it durable: it must be somewhere.
    pub is_certain: bool,
    /// Its sync has failed while it was read: whatever became of it then, what is in it is as its
    /// producer left it, and nobody can mend that.
    pub is_doubtful: bool,
    /// A run that was to take it has ended well: it has left the inbox, and counts if it may.
    pub is_promised: bool,
}

/// Where a file lies: the folder, and what is in it.
type Found = BTreeMap<String, Vec<(&'static str, Vec<u8>)>>;

impl Judge<'_> {
    /// What the store says, if there is one.
    ///
    /// # Errors
    /// What must not be.
    pub fn look(&self, is_end: bool) -> Result<Option<Totals>, String> {
        let found = self.find()?;
        let db = self.spool.join("windowflow.db");
        let totals = match db.exists() {
            true => match Totals::of(&db)? {
                None if is_end => return Err("the store is of an older version".to_owned()),
                totals => totals,
            },
            false if self.has_store || is_end => return Err("there is no store".to_owned()),
            false => None,
        };
        let none = Totals::default();
        let counted = totals.as_ref().unwrap_or(&none).by_key();
        for left in self.files {
            let name = left.file.name.as_str();
            let lies: &[_] = found.get(name).map_or(&[], Vec::as_slice);
            self.one(left, lies, counted.get(name).copied(), is_end)
                .map_err(|text| format!("{name}: {text}"))?;
        }
        let known = |name: &String| self.files.iter().any(|left| left.file.name == *name);
        if let Some(name) = found.keys().find(|name| !known(name)) {
            return Err(format!("{name}: nobody has dropped it"));
        }
        if db.exists() {
            check_integrity(&db)?;
        }
        Ok(totals)
    }

    /// Looks at one file. `counted`: how many events are in under its name, and their sum as far as
    /// they are not late.
    fn one(
        &self,
        left: &Left<'_>,
        lies: &[(&str, Vec<u8>)],
        counted: Option<(i64, i64)>,
        is_end: bool,
    ) -> Result<(), String> {
        let file = left.file;
        if let Some((events, _)) = counted
            && events != file.events.len() as i64
        {
            return Err(format!("{events} events of {} are in", file.events.len()));
        }
        let folders: Vec<&str> = lies.iter().map(|(folder, _)| *folder).collect();
        let is_whole = lies.iter().all(|(_, bytes)| *bytes == file.bytes);
        if left.is_doubtful && !is_whole {
            return Ok(());
        }
        if left.is_certain && (folders.len() != 1 || !is_whole) {
            return Err(format!("lies in {folders:?}, whole: {is_whole}; in: {counted:?}"));
        }
        match (folders.as_slice(), counted) {
            (["done"], None) => return Err("in done, and its events are not in".to_owned()),
            (["done"], _) if !is_whole => return Err("in done, and not as it was".to_owned()),
            (["failed"], Some(_)) => return Err("in failed, and its events are in".to_owned()),
            (["failed"], None) => check_reason(self.spool, &file.name)?,
            (["inbox"], _) if is_end => return Err("still in the inbox".to_owned()),
            (["inbox"], _) if left.is_promised => return Err("in the inbox again".to_owned()),
            ([_, _, ..], _) => return Err(format!("lies in {folders:?}")),
            _ => {}
        }
        let must_count = left.is_promised || (left.is_certain && is_end);
        match counted {
            None if must_count && file.is_good => Err("its events are not in".to_owned()),
            _ => Ok(()),
        }
    }

    fn find(&self) -> Result<Found, String> {
        let mut found = Found::new();
        for folder in ["inbox", "done", "failed"] {
            find_in(&self.spool.join(folder), folder, "", &mut found)
                .map_err(|error| format!("{folder}: {error}"))?;
        }
        Ok(found)
    }
}

/// Whether all of these were taken, of a producer that has made them durable, and none too late.
///
/// # Errors
/// What must not be.
pub fn all_counted(world: &World, files: &[Dropped]) -> Result<(), String> {
    let left = |file| Left { file, is_certain: true, is_doubtful: false, is_promised: true };
    let all: Vec<Left<'_>> = files.iter().map(left).collect();
    let judge = Judge { spool: &world.spool(), files: &all, has_store: true };
    let told = |text: String| format!("{text}\n{}", world.log());
    let totals = judge.look(true).map_err(told)?.unwrap_or_default();
    // a file may be taken a second time after a commit of unknown fate: that changes no total
    totals.differs(&model(NEVER_LATE_MS, files.iter(), &[])).map_or(Ok(()), |text| Err(told(text)))
}

/// Whether no event was taken a second time, where nothing was sent twice and no process was killed:
/// what becomes of a commit of unknown fate is asked after, it is not simply made again.
///
/// # Errors
/// What must not be.
pub fn none_repeated(world: &World) -> Result<(), String> {
    let sum = "SELECT coalesce(sum(duplicate), 0) FROM batches";
    let repeats = Connection::open(world.spool().join("windowflow.db"))
        .and_then(|store| store.query_row(sum, [], |row| row.get::<_, i64>(0)));
    match repeats {
        Ok(0) => Ok(()),
        Ok(repeats) => Err(format!("{repeats} events were taken twice\n{}", world.log())),
        Err(error) => Err(format!("the store: {error}")),
    }
}

fn find_in(
    path: &Path,
    folder: &'static str,
    before: &str,
    found: &mut Found,
) -> std::io::Result<()> {
    if !path.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || name.ends_with(".error.json") {
            continue;
        }
        let name = format!("{before}{name}");
        if entry.file_type()?.is_dir() {
            find_in(&entry.path(), folder, &format!("{name}/"), found)?;
        } else {
            found.entry(name).or_default().push((folder, fs::read(entry.path())?));
        }
    }
    Ok(())
}

fn check_reason(spool: &Path, name: &str) -> Result<(), String> {
    let path = spool.join("failed").join(format!("{name}.error.json"));
    let text = fs::read(&path).map_err(|error| format!("no reason: {error}"))?;
    let reason: Value =
        serde_json::from_slice(&text).map_err(|error| format!("reason: {error}"))?;
    match reason["code"].as_str() {
        Some(_) => Ok(()),
        None => Err(format!("a reason without a code: {reason}")),
    }
}

fn check_integrity(db: &Path) -> Result<(), String> {
    let said = Connection::open(db).and_then(|store| {
        store.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))
    });
    match said {
        Ok(text) if text == "ok" => Ok(()),
        other => Err(format!("the store is damaged: {other:?}")),
    }
}
