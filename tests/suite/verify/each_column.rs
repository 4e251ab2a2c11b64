//! Damages each column of each table, and rows as a whole, in stores of all settings: each damage is
//! found, or stands in a list of what cannot be seen, with its reason. What is found is mended, or
//! left as it is with a word why.
//!
//! The columns are those of the schema itself: a new one is damaged as soon as it is there. The test
//! says what to do where that is not found.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, params};
use windowflow::decode::Limits;
use windowflow::engine::settings::{LatePolicy, LateRule};
use windowflow::maintenance::repair::repair;
use windowflow::query::verify::Verify;
use windowflow::spool::Spool;
use windowflow::store::{Retention, Store};

use super::clean::{figure, told};
use crate::draw::Draw;
use crate::populated::{NOW_MS, Populated, copy_all, options, verify, visible};

/// How many times all columns are damaged: each time another row, in another way, in another store.
fn rounds() -> u64 {
    std::env::var("WINDOWFLOW_DAMAGES").map_or(1, |text| text.parse().unwrap())
}

/// Why a damage cannot be seen: each stands in the README, under "What it cannot see".
const WHEN_AND_WHO: &str = "when, by whom and why something was done";
const FROM_WHERE: &str = "from which folder a file came";
const SETTINGS: &str = "settings that would have made no difference so far";
const WITHOUT_FILES: &str = "without its file in `done/`";
const NO_BEARING: &str = "what has no bearing on any number";
const ONLY_PLAYED: &str = "where batches are not played again";
const NOT_BY_IDS: &str = "where windows do not rest on the ids";
const NOTED_ONCE: &str = "how far retention went";

/// What cannot be seen whatever is at hand: table, column, reason.
const UNSEEN: &[(&str, &str, &str)] = &[
    ("store", "max_future_ms", SETTINGS),
    ("store", "dedup_horizon_ms", SETTINGS),
    ("store", "lateness_ms", SETTINGS),
    ("store", "late_rule", SETTINGS),
    ("store", "late_policy", SETTINGS),
    ("store", "removals", NO_BEARING),
    ("store", "trusted_ms", WHEN_AND_WHO),
    ("batches", "committed_at_ms", WHEN_AND_WHO),
    ("batches", "asked_by", WHEN_AND_WHO),
    ("batches", "reason", WHEN_AND_WHO),
    ("batches", "token", NO_BEARING),
    ("batches", "file", FROM_WHERE),
    ("settled", "at_ms", WHEN_AND_WHO),
    ("presence", "at_ms", WHEN_AND_WHO),
    ("refusals", "source", WHEN_AND_WHO),
    ("refusals", "sha256", WHEN_AND_WHO),
    ("refusals", "bytes", WHEN_AND_WHO),
    ("refusals", "message", WHEN_AND_WHO),
    ("recent", "chunk", NO_BEARING),
    ("accounts", "last_seen_ms", NO_BEARING),
    ("ledger_runs", "level", NO_BEARING),
    ("ledger_runs", "least_ms", NO_BEARING),
    ("removed", "rows", NOTED_ONCE),
    ("removed", "up_to", NOTED_ONCE),
];

/// What cannot be seen where batches are not played again: files of done/ or notes are gone.
const UNPLAYED: &[(&str, &str, &str)] = &[
    ("accounts", "key", ONLY_PLAYED),
    ("batches", "bytes", WITHOUT_FILES),
    ("batches", "sha256", WITHOUT_FILES),
    ("held", "source", WITHOUT_FILES),
    ("held", "producer_version", WITHOUT_FILES),
    ("held", "watermark_ms", ONLY_PLAYED),
    ("late", "source", WITHOUT_FILES),
    ("late", "watermark_ms", ONLY_PLAYED),
    ("moves", "event_index", ONLY_PLAYED),
    ("moves", "from_ms", ONLY_PLAYED),
    ("moves", "to_ms", ONLY_PLAYED),
    ("batches", "source", ONLY_PLAYED),
    ("revisions", "count", ONLY_PLAYED),
    ("revisions", "sum", ONLY_PLAYED),
    ("revisions", "min", ONLY_PLAYED),
    ("revisions", "max", ONLY_PLAYED),
    ("settled", "source", WITHOUT_FILES),
    ("settled", "producer_version", WITHOUT_FILES),
    ("sources", "max_timestamp_ms", ONLY_PLAYED),
    ("sources", "heard_in", ONLY_PLAYED),
    ("sources", "idle", ONLY_PLAYED),
    ("sources", "declared", ONLY_PLAYED),
    ("sources", "retired", ONLY_PLAYED),
    ("sources", "expected", ONLY_PLAYED),
    ("versions", "name", WITHOUT_FILES),
    ("versions", "accepted", WITHOUT_FILES),
    ("versions", "late", WITHOUT_FILES),
    ("versions", "duplicate", WITHOUT_FILES),
    ("versions", "future", WITHOUT_FILES),
    ("versions", "expired", WITHOUT_FILES),
    ("versions", "a row is gone", WITHOUT_FILES),
    ("versions", "a row more", WITHOUT_FILES),
    ("windows", "start_ms", NOT_BY_IDS),
    ("windows", "key", NOT_BY_IDS),
    ("windows", "count", NOT_BY_IDS),
    ("windows", "sum", NOT_BY_IDS),
    ("windows", "min", NOT_BY_IDS),
    ("windows", "max", NOT_BY_IDS),
];

/// What SQLite itself does not let happen.
const UNTRIED: &[(&str, &str)] = &[("store", "only_row"), ("store", "a row more")];

/// One store, and what it says.
struct Made {
    name: String,
    spool: PathBuf,
    /// Whether all batches are played again from their files.
    is_played: bool,
    visible: Vec<String>,
}

/// Stores of all rules, policies, horizons, with and without retention and files. In a single round
/// half of them: of each two settings and each policy all combinations are among them.
fn stores(folder: &Path) -> Vec<Made> {
    let mut made = Vec::new();
    for (nth, policy) in
        [LatePolicy::Aside, LatePolicy::Drop, LatePolicy::Correct].iter().enumerate()
    {
        for rule in [LateRule::Window, LateRule::Event] {
            for horizon_ms in [None, Some(8000)] {
                for is_pruned in [false, true] {
                    let ones = [rule == LateRule::Event, horizon_ms.is_some(), is_pruned];
                    let ones = nth + ones.iter().filter(|is_one| **is_one).count();
                    if rounds() == 1 && ones % 2 == 1 {
                        continue;
                    }
                    let name = format!("{policy:?}-{rule:?}-{horizon_ms:?}-{is_pruned}");
                    let spool = folder.join(&name);
                    fill(&spool, rule, *policy, horizon_ms, is_pruned);
                    for has_files in [true, false] {
                        let name = format!("{name}-{has_files}");
                        let copy = folder.join(&name);
                        fs::create_dir_all(&copy).unwrap();
                        copy_all(&spool, &copy);
                        if !has_files {
                            fs::remove_file(copy.join("done/f001.ndjson")).unwrap();
                            fs::remove_file(copy.join("done/gw/f005.ndjson")).unwrap();
                        }
                        let verified = verify(&copy).unwrap();
                        assert_eq!(verified.checkup.total(), 0, "{name}: {}", told(&verified));
                        let is_played = figure(&verified, "batches_played_again") > 0;
                        let visible = visible(&copy.join("windowflow.db"), &copy).unwrap();
                        made.push(Made { name, spool: copy, is_played, visible });
                    }
                }
            }
        }
    }
    made
}

fn fill(
    spool: &Path,
    rule: LateRule,
    policy: LatePolicy,
    horizon_ms: Option<i64>,
    is_pruned: bool,
) {
    fs::create_dir_all(spool).unwrap();
    let mut all = Populated::begin_as(spool, rule, policy, horizon_ms);
    all.refuse("worse.json");
    all.refuse("bad.json");
    // an account that can be old: nothing more comes of its key
    let begin_ms = NOW_MS - 2 * 3_600_000;
    let once = format!(r#"{{"id":"once","key":"once","timestamp_ms":{begin_ms},"value":3}}"#);
    all.take_in("once.json", &once);
    (0..6).for_each(|_| all.file(50));
    all.acts();
    all.file(50);
    if is_pruned {
        let what = Retention {
            ledger: true,
            windows_before_ms: Some(begin_ms + 5000),
            late_before_ms: Some(begin_ms + 5000),
            // without its notes batches are not played again
            receipts_before_ms: (rule == LateRule::Window).then_some(NOW_MS + 1),
            moves_before_ms: Some(begin_ms + 5000),
        };
        all.store().prune(&what).unwrap();
    }
    all.file(50);
    all.refuse_at("other.json", NOW_MS + 5);
    (0..4).for_each(|_| all.file(25));
    all.close();
}

/// A column as the schema has it.
struct Column {
    table: String,
    name: String,
    kind: String,
}

fn connect(spool: &Path) -> Connection {
    Connection::open(spool.join("windowflow.db")).unwrap()
}

fn columns(store: &Connection) -> Vec<Column> {
    let sql = "SELECT m.name, c.name, c.type FROM sqlite_schema m, pragma_table_info(m.name) c \
               WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, c.cid";
    let mut statement = store.prepare(sql).unwrap();
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Column { table: row.get(0)?, name: row.get(1)?, kind: row.get(2)? })
    };
    statement.query_map([], read).unwrap().map(Result::unwrap).collect()
}

/// The condition that tells one row from the others.
fn key_of(store: &Connection, table: &str) -> Vec<String> {
    let sql = "SELECT name FROM pragma_table_info(?1) WHERE pk > 0 ORDER BY pk";
    let mut statement = store.prepare(sql).unwrap();
    let names = statement.query_map(params![table], |row| row.get(0)).unwrap();
    names.map(Result::unwrap).collect()
}

/// One row of a table, by its key.
struct Picked {
    condition: String,
    key: Vec<Value>,
}

fn pick(store: &Connection, table: &str, draw: &mut Draw) -> Option<Picked> {
    let count: i64 =
        store.query_row(&format!("SELECT COUNT(*) FROM {table}"), [], |row| row.get(0)).unwrap();
    if count == 0 {
        return None;
    }
    let names = key_of(store, table);
    let list = names.join(", ");
    let at = draw.random.below(count);
    let sql = format!("SELECT {list} FROM {table} ORDER BY {list} LIMIT 1 OFFSET {at}");
    let read = |row: &rusqlite::Row<'_>| (0..names.len()).map(|at| row.get(at)).collect();
    let key: Vec<Value> = store.query_row(&sql, [], read).unwrap();
    let condition = (names.iter().enumerate()).map(|(at, name)| format!("{name} = ?{}", at + 1));
    Some(Picked { condition: condition.collect::<Vec<_>>().join(" AND "), key })
}

/// A value for that column that is not the one that it has; plausible ones first.
fn other_value(store: &Connection, column: &Column, now: &Value, draw: &mut Draw) -> Vec<Value> {
    let Column { table, name, kind } = column;
    let sql = format!(
        "SELECT {name} FROM {table} WHERE {name} IS NOT ?1 ORDER BY {name} LIMIT 1 OFFSET ?2"
    );
    let at = draw.random.below(4);
    let read = |at: i64| store.query_row(&sql, params![now, at], |row| row.get(0)).ok();
    let of_another: Option<Value> = read(at).or_else(|| read(0));
    let mut values = Vec::new();
    match (kind.as_str(), now) {
        ("INTEGER", Value::Integer(number)) => {
            let more = draw.random.below(1000) + 1;
            values.extend(of_another.clone());
            values.push(Value::Integer(number.wrapping_add(1)));
            values.push(Value::Integer(number.wrapping_sub(1)));
            values.push(Value::Integer(number.wrapping_add(more)));
            values.push(Value::Integer(0));
            values.push(Value::Integer(i64::MAX));
            values.push(Value::Integer(-more));
            values.push(Value::Integer(number ^ 1 << draw.random.below(62)));
            values.push(Value::Null);
        }
        ("INTEGER", _) => {
            values.extend(of_another.clone());
            values.extend([Value::Integer(0), Value::Integer(NOW_MS), Value::Integer(3)]);
        }
        ("TEXT", Value::Text(text)) => {
            values.extend(of_another.clone());
            values.push(Value::Text(format!("{text}x")));
            values.push(Value::Text(String::new()));
            values.push(Value::Text(text.chars().skip(1).collect()));
            values.push(Value::Null);
        }
        ("TEXT", _) => {
            values.extend(of_another.clone());
            values.push(Value::Text("x".to_owned()));
        }
        ("BLOB", Value::Blob(bytes)) => {
            let at = draw.random.below(bytes.len().max(1) as i64) as usize;
            let mut flipped = bytes.clone();
            if let Some(byte) = flipped.get_mut(at) {
                *byte ^= 1 << draw.random.below(8);
            }
            values.push(Value::Blob(flipped));
            values.push(Value::Blob(bytes[..at].to_vec()));
            values.push(Value::Blob([&bytes[..], &[7]].concat()));
            values.push(Value::Blob(vec![0; bytes.len()]));
            values.push(Value::Blob(Vec::new()));
            values.extend(of_another.clone());
        }
        other => panic!("{table}.{name}: nothing is known of a column like {other:?}"),
    }
    values.retain(|value| value != now);
    let turn = draw.random.below(values.len().max(1) as i64) as usize;
    values.rotate_left(turn);
    values
}

/// Changes that column of one row; what was done, if anything could be.
fn change(store: &Connection, column: &Column, draw: &mut Draw) -> Option<String> {
    let Column { table, name, .. } = column;
    let Picked { condition, mut key } = pick(store, table, draw)?;
    let sql = format!("SELECT {name} FROM {table} WHERE {condition}");
    let now: Value =
        store.query_row(&sql, rusqlite::params_from_iter(&key), |row| row.get(0)).unwrap();
    let sql = format!("UPDATE {table} SET {name} = ?{} WHERE {condition}", key.len() + 1);
    let told = format!("{table}.{name} where {condition} of {key:?}: {now:?}");
    for value in other_value(store, column, &now, draw) {
        key.push(value.clone());
        // a value that SQLite refuses is none that damage leaves behind
        if store.execute(&sql, rusqlite::params_from_iter(&key)).is_ok_and(|rows| rows > 0) {
            return Some(format!("{told} became {value:?}"));
        }
        key.pop();
    }
    None
}

/// Deletes one row.
fn delete(store: &Connection, table: &str, draw: &mut Draw) -> Option<String> {
    let Picked { condition, key } = pick(store, table, draw)?;
    let sql = format!("DELETE FROM {table} WHERE {condition}");
    assert_eq!(store.execute(&sql, rusqlite::params_from_iter(&key)).unwrap(), 1);
    Some(format!("{table} lost {key:?}"))
}

/// Adds a row that is another but for its key.
fn duplicate(store: &Connection, table: &str, draw: &mut Draw) -> Option<String> {
    let Picked { condition, key } = pick(store, table, draw)?;
    let names: Vec<String> =
        columns(store).into_iter().filter(|one| one.table == table).map(|one| one.name).collect();
    let keys = key_of(store, table);
    let by = draw.random.below(3) + 1;
    let values = names.iter().map(|name| match keys.contains(name) {
        true if *name == keys[keys.len() - 1] => {
            format!("CASE typeof({name}) WHEN 'integer' THEN {name} + {by} ELSE {name} || 'x' END")
        }
        _ if name == "token" => "randomblob(16)".to_owned(),
        _ => name.clone(),
    });
    let values = values.collect::<Vec<_>>().join(", ");
    let sql = format!("INSERT INTO {table} SELECT {values} FROM {table} WHERE {condition}");
    let added = store.execute(&sql, rusqlite::params_from_iter(&key)).is_ok_and(|rows| rows == 1);
    added.then(|| format!("{table} has {key:?} once more, {by} behind"))
}

/// A number of that column's own (FNV-1a): another column changes nothing about it.
fn seed(table: &str, name: &str) -> u64 {
    let bytes = table.bytes().chain([0]).chain(name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Every row of every table.
fn whole(spool: &Path) -> String {
    let store = connect(spool);
    let mut text = String::new();
    let tables: BTreeSet<String> = columns(&store).into_iter().map(|one| one.table).collect();
    for table in tables {
        let mut statement = store.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let count = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            for at in 0..count {
                text += &format!("{table} {:?}\n", row.get_ref(at).unwrap());
            }
        }
    }
    text
}

/// What became of one damage.
enum Seen {
    Found,
    Unseen,
}

/// Looks for the damage, and tries to mend it.
fn look(made: &Made, spool: &Path, mended: &mut u64) -> Result<Seen, String> {
    let verified = match verify(spool) {
        Ok(verified) => verified,
        // it cannot be opened at all
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return Ok(Seen::Found);
        }
    };
    if verified.checkup.total() == 0 {
        return Ok(Seen::Unseen);
    }
    let before = whole(spool);
    let (db, options, at) = (spool.join("windowflow.db"), options(), Spool::at(spool));
    let asked = Verify { db: &db, options: &options, spool: Some(&at), limits: Limits::default() };
    match repair(&asked, &at, verified) {
        Ok((_, after)) if after.checkup.total() == 0 => {
            *mended += 1;
            let now = visible(&db, spool).unwrap();
            let differs = now.iter().zip(&made.visible).find(|(now, before)| now != before);
            if let Some((now, before)) = differs {
                return Err(format!("mended into something else:\n{now}\ninstead of\n{before}"));
            }
        }
        Ok((done, after)) if done.left.is_empty() => {
            return Err(format!("not mended, and no word why:\n{}", told(&after)));
        }
        Ok((_, after)) if whole(spool) != before => {
            return Err(format!("changed, and not mended:\n{}", told(&after)));
        }
        Err(error) if whole(spool) != before => {
            return Err(format!("changed, and then: {error}"));
        }
        _ => {}
    }
    Ok(Seen::Found)
}

/// Case 137: no damage switches off the check that would find it.
#[test]
fn case_137_each_damage_is_found_or_stands_in_the_manual() {
    let folder = tempfile::tempdir().unwrap();
    let stores = stores(folder.path());
    let all = columns(&connect(&stores[0].spool));
    let tables: BTreeSet<&str> = all.iter().map(|one| one.table.as_str()).collect();
    type Damage<'d> = Box<dyn Fn(&Connection, &mut Draw) -> Option<String> + 'd>;
    let mut damages: Vec<(String, String, Damage<'_>)> = Vec::new();
    for column in &all {
        let damage = move |store: &Connection, draw: &mut Draw| change(store, column, draw);
        damages.push((column.table.clone(), column.name.clone(), Box::new(damage)));
    }
    for table in tables {
        let lose = move |store: &Connection, draw: &mut Draw| delete(store, table, draw);
        damages.push((table.to_owned(), "a row is gone".to_owned(), Box::new(lose)));
        let more = move |store: &Connection, draw: &mut Draw| duplicate(store, table, draw);
        damages.push((table.to_owned(), "a row more".to_owned(), Box::new(more)));
    }
    let (mut found, mut mended, mut wrong) = (0, 0, Vec::new());
    let mut unseen: BTreeMap<(String, String, bool), u64> = BTreeMap::new();
    let mut tried = BTreeSet::new();
    for round in 0..rounds() {
        for (table, name, damage) in &damages {
            let mut draw = Draw::new(seed(table, name).wrapping_add(round));
            let first = draw.random.below(stores.len() as i64) as usize;
            // the first store from there on that has such a row
            let done = (0..stores.len()).find_map(|at| {
                let made = &stores[(first + at) % stores.len()];
                let copy = tempfile::tempdir().unwrap();
                copy_all(&made.spool, copy.path());
                let store = connect(copy.path());
                let what = damage(&store, &mut draw)?;
                drop(store.close());
                Some((made, copy, what))
            });
            let Some((made, copy, what)) = done else { continue };
            tried.insert((table.as_str(), name.as_str()));
            match look(made, copy.path(), &mut mended) {
                Err(odd) => wrong.push(format!("{}: {what}: {odd}", made.name)),
                Ok(Seen::Found) => found += 1,
                Ok(Seen::Unseen) => {
                    let is_it = |one: &&(&str, &str, &str)| (one.0, one.1) == (table, name);
                    let listed = UNSEEN
                        .iter()
                        .find(is_it)
                        .or_else(|| UNPLAYED.iter().find(is_it).filter(|_| !made.is_played));
                    if listed.is_none() {
                        wrong.push(format!("{}: {what}", made.name));
                    }
                    *unseen.entry((table.clone(), name.clone(), made.is_played)).or_default() += 1;
                }
            }
        }
    }
    eprintln!("{found} damages found, {mended} mended, {} unseen", unseen.values().sum::<u64>());
    assert!(
        wrong.is_empty(),
        "verify did not find these. For a new column: let verify compare it with what the files, \
         the ids or another value say (src/store/sqlite/audit, src/query/verify); only if the store says \
         it once and nothing else tells, add it to UNSEEN with its reason, and to the README \
         ('What it cannot see'):\n{}",
        wrong.join("\n")
    );
    let untried: Vec<_> = (damages.iter())
        .filter(|(table, name, _)| !UNTRIED.contains(&(table.as_str(), name.as_str())))
        .filter(|(table, name, _)| !tried.contains(&(table.as_str(), name.as_str())))
        .map(|(table, name, _)| format!("{table}: {name}"))
        .collect();
    assert!(untried.is_empty(), "no store has such a row to be damaged: {untried:?}");
    assert!(mended > 0, "nothing was mended");
    if rounds() >= 20 {
        let is_unseen = |one: &&(&str, &str, &str)| {
            !unseen.keys().any(|(table, name, _)| (table.as_str(), name.as_str()) == (one.0, one.1))
        };
        let stale: Vec<_> = UNSEEN.iter().chain(UNPLAYED).filter(is_unseen).collect();
        assert!(stale.is_empty(), "always found, so no longer to be listed: {stale:?}");
    }
}

#[test]
fn the_readme_says_what_cannot_be_seen() {
    let readme = include_str!("../../../README.md");
    let (_, rest) = readme.split_once("What it cannot see").unwrap();
    let (list, _) = rest.split_once("\n`cargo campaign").unwrap();
    let list = list.split_whitespace().collect::<Vec<_>>().join(" ");
    for (table, column, reason) in UNSEEN.iter().chain(UNPLAYED) {
        assert!(list.contains(reason), "{table}.{column}: {reason}");
    }
}
