//! Each thing that can be wrong is found, under its name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rusqlite::Connection;
use windowflow::engine::settings::{LatePolicy, LateRule};
use windowflow::query::verify::{Verified, Verify};
use windowflow::store::audit::FindingCode;
use windowflow::store::{Retention, Store as _};

use super::clean::{figure, told};
use super::spool;
use crate::populated::{Populated, options, verify};

/// The names of what was found.
fn names(verified: &Verified) -> BTreeSet<&'static str> {
    verified.checkup.by_code().map(|(code, _)| code.name()).collect()
}

fn store(spool: &Path) -> Connection {
    Connection::open(spool.join("windowflow.db")).unwrap()
}

fn alter(spool: &Path, sql: &str) {
    let store = store(spool);
    store.execute_batch(sql).unwrap();
    let changed = store.changes();
    assert!(changed > 0 || sql.starts_with("DROP"), "nothing was damaged by {sql}");
    drop(store.close());
}

/// Changes a blob, the first that the query finds.
fn alter_blob(spool: &Path, table: &str, column: &str, order: &str, change: impl Fn(&mut Vec<u8>)) {
    let store = store(spool);
    let sql = format!("SELECT rowid, {column} FROM {table} ORDER BY {order} LIMIT 1");
    let (row, mut blob): (i64, Vec<u8>) =
        store.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    change(&mut blob);
    let sql = format!("UPDATE {table} SET {column} = ?2 WHERE rowid = ?1");
    store.execute(&sql, rusqlite::params![row, blob]).unwrap();
}

/// What is damaged by a statement, and what is found, with the files at hand.
const STATEMENTS: &[(FindingCode, &str)] = &[
    (FindingCode::SchemaDiffers, "DROP INDEX late_by_window"),
    (FindingCode::EntryMissing, "UPDATE store SET next_position = next_position + 5"),
    (
        FindingCode::EntryMissing,
        "DELETE FROM ledger_entries WHERE first = (SELECT MAX(first) FROM ledger_entries)",
    ),
    (
        FindingCode::EntryOrder,
        "UPDATE ledger_entries SET entries = (SELECT entries FROM ledger_entries WHERE first \
         = 0) WHERE first = (SELECT MIN(first) FROM ledger_entries WHERE first > 0)",
    ),
    (FindingCode::EntryInNoRun, "DELETE FROM ledger_runs WHERE first = 0"),
    (FindingCode::RunDamaged, "DELETE FROM ledger_runs WHERE first = 0"),
    (FindingCode::RunDamaged, "UPDATE ledger_runs SET parts = 0 WHERE first = 0"),
    (FindingCode::RunDiffers, "UPDATE ledger_runs SET ids = ids - 1 WHERE first = 0"),
    (
        FindingCode::RunDiffers,
        "UPDATE ledger_runs SET least_ms = least_ms + 100000 WHERE first = 0",
    ),
    (
        FindingCode::RunDiffers,
        "DELETE FROM ledger_parts WHERE part = (SELECT MIN(part) FROM ledger_parts)",
    ),
    (FindingCode::FilterDiffers, "UPDATE ledger_filters SET bits = zeroblob(length(bits))"),
    (FindingCode::FilterDiffers, "DELETE FROM ledger_filters"),
    (FindingCode::ReceiptMissing, "DELETE FROM batches WHERE batch = 5"),
    (FindingCode::EntryWithoutReceipt, "DELETE FROM batches WHERE batch = 5"),
    (
        FindingCode::LostCommit,
        "DELETE FROM batches WHERE batch = (SELECT MAX(batch) FROM batches); DELETE FROM \
         ledger_entries WHERE first = (SELECT MAX(first) FROM ledger_entries)",
    ),
    (
        FindingCode::EntryCount,
        "UPDATE batches SET accepted = accepted + 1, duplicate = duplicate - 1 WHERE batch = 2",
    ),
    (FindingCode::ReceiptDiffers, "UPDATE batches SET kind = 'advanced' WHERE kind = 'advance'"),
    (FindingCode::ReceiptDiffers, "UPDATE batches SET source = 'gx' WHERE source = 'gw'"),
    (FindingCode::ReceiptDiffers, "UPDATE batches SET duplicate = duplicate + 1 WHERE batch = 2"),
    (FindingCode::RefusalMissing, "DELETE FROM refusals"),
    (FindingCode::CountsDiffer, "UPDATE store SET duplicate = duplicate + 1"),
    (FindingCode::CountsDiffer, "UPDATE store SET windows = windows + 1"),
    (FindingCode::CountsDiffer, "UPDATE store SET refused_batches = 0"),
    (FindingCode::CountsDiffer, "UPDATE store SET last_ingest_at_ms = last_ingest_at_ms + 1"),
    (FindingCode::WatermarkDiffers, "UPDATE store SET watermark_ms = watermark_ms + 1"),
    (
        FindingCode::WatermarkDiffers,
        "UPDATE batches SET watermark_ms = watermark_ms + 1000000 WHERE batch = 2",
    ),
    (
        FindingCode::WindowDiffers,
        "UPDATE windows SET sum = sum + 1 WHERE start_ms = (SELECT MIN(start_ms) FROM windows)",
    ),
    (
        FindingCode::WindowDiffers,
        "DELETE FROM windows WHERE start_ms = (SELECT MIN(start_ms) FROM windows)",
    ),
    (FindingCode::RevisionDiffers, "UPDATE revisions SET sum = sum + 1"),
    (FindingCode::RevisionDiffers, "UPDATE revisions SET revision = revision + 5"),
    (FindingCode::RevisionDiffers, "DELETE FROM revisions"),
    (FindingCode::LateDiffers, "UPDATE late SET value = value + 1"),
    (FindingCode::LateDiffers, "UPDATE late SET source = 'gw'"),
    (FindingCode::LateDiffers, "UPDATE late SET watermark_ms = watermark_ms + 1"),
    (FindingCode::LateDiffers, "DELETE FROM late WHERE applied_in IS NULL"),
    (FindingCode::HeldDiffers, "UPDATE held SET timestamp_ms = timestamp_ms + 1"),
    (FindingCode::HeldDiffers, "DELETE FROM held"),
    (
        FindingCode::SettledDiffers,
        "UPDATE settled SET source = 'gx' WHERE settlement = 'discarded'",
    ),
    (
        FindingCode::SettledDiffers,
        "UPDATE settled SET value = value + 1 WHERE settlement = 'discarded'",
    ),
    (
        FindingCode::AccountDiffers,
        "UPDATE accounts SET duplicate = duplicate + 1 WHERE key = 'key-1'",
    ),
    (
        FindingCode::AccountDiffers,
        "UPDATE accounts SET last_seen_ms = last_seen_ms + 10000000 WHERE key = 'key-1'",
    ),
    (FindingCode::SourceDiffers, "UPDATE sources SET last_file = 'x.json' WHERE name = 'gw'"),
    (
        FindingCode::SourceDiffers,
        "UPDATE sources SET max_timestamp_ms = max_timestamp_ms + 1 WHERE name = 'gw'",
    ),
    (FindingCode::SourceDiffers, "UPDATE sources SET idle = 0 WHERE name = 'slow'"),
    (
        FindingCode::PresenceDiffers,
        "UPDATE presence SET event_index = 7 WHERE presence = 'declared'",
    ),
    (FindingCode::PresenceDiffers, "UPDATE sources SET presence_since_ms = 1 WHERE name = 'slow'"),
    (FindingCode::VersionDiffers, "UPDATE versions SET accepted = accepted + 1"),
    (FindingCode::MoveDiffers, "UPDATE moves SET windows_closed = windows_closed + 1"),
    (FindingCode::MoveDiffers, "UPDATE moves SET event_index = 3 WHERE event_index > 3"),
    (FindingCode::MoveDiffers, "DELETE FROM moves"),
];

#[test]
fn what_a_statement_damages_is_found() {
    for (code, sql) in STATEMENTS {
        let spool = spool();
        alter(spool.path(), sql);
        let verified = verify(spool.path()).unwrap();
        assert!(names(&verified).contains(code.name()), "{sql}: {}", told(&verified));
    }
}

/// What is found of the same without any file: by what the store says twice.
const ALONE: &[(FindingCode, &str)] = &[
    (
        FindingCode::WindowDiffers,
        "UPDATE windows SET sum = sum + 1 WHERE start_ms = (SELECT MIN(start_ms) FROM windows)",
    ),
    (
        FindingCode::WindowDiffers,
        "UPDATE windows SET min = min - 1 WHERE start_ms = (SELECT MIN(start_ms) FROM windows)",
    ),
    (FindingCode::WindowDiffers, "UPDATE late SET applied_in = NULL"),
    (FindingCode::LateDiffers, "UPDATE late SET applied_in = NULL"),
    (FindingCode::LateDiffers, "UPDATE late SET id = 'x'"),
    (FindingCode::LateDiffers, "DELETE FROM late"),
    (FindingCode::HeldDiffers, "UPDATE held SET id = 'x'"),
    (FindingCode::SettledDiffers, "UPDATE settled SET key = 'x' WHERE settlement = 'discarded'"),
    (FindingCode::EntryCount, "UPDATE batches SET accepted = accepted + 1 WHERE batch = 2"),
    (FindingCode::CountsDiffer, "UPDATE batches SET accepted = accepted + 1 WHERE batch = 2"),
    (FindingCode::CountsDiffer, "UPDATE sources SET late = late + 1 WHERE name = 'gw'"),
    (FindingCode::AccountDiffers, "UPDATE sources SET late = late + 1 WHERE name = 'gw'"),
    (
        FindingCode::WatermarkDiffers,
        "UPDATE store SET watermark_ms = 0; UPDATE batches SET watermark_ms = 0",
    ),
    (FindingCode::ReceiptDiffers, "UPDATE batches SET sha256 = 'x' WHERE sha256 IS NOT NULL"),
    (FindingCode::RevisionDiffers, "UPDATE windows SET revision = revision + 3 WHERE revision > 0"),
    (FindingCode::MoveDiffers, "UPDATE moves SET windows_closed = windows_closed + 1"),
    (FindingCode::MoveDiffers, "UPDATE moves SET from_ms = 0"),
    (FindingCode::SourceDiffers, "UPDATE sources SET last_batch_at_ms = 0 WHERE name = 'gw'"),
];

#[test]
fn what_the_store_says_twice_is_compared_without_any_file() {
    for (code, sql) in ALONE {
        let spool = spool();
        alter(spool.path(), sql);
        let (db, options) = (spool.path().join("windowflow.db"), options());
        let nothing = tempfile::tempdir().unwrap();
        let empty = windowflow::spool::Spool::at(nothing.path());
        let verify =
            Verify { db: &db, options: &options, spool: Some(&empty), limits: Default::default() };
        let verified = verify.run().unwrap();
        assert_eq!(figure(&verified, "batches_played_again"), 0);
        assert!(names(&verified).contains(code.name()), "{sql}: {}", told(&verified));
    }
}

/// What is packed is altered byte by byte.
#[test]
fn what_is_packed_is_found_damaged() {
    let entries = ("ledger_entries", "entries");
    let last = |blob: &mut Vec<u8>| *blob.last_mut().unwrap() ^= 1;
    for (code, (table, column), order, change) in [
        (FindingCode::EntryDamaged, entries, "first", (|blob| blob.push(0)) as fn(&mut Vec<u8>)),
        (FindingCode::EntryDamaged, entries, "first", |blob| blob.truncate(blob.len() - 1)),
        // the last letter of a key
        (FindingCode::EntryDiffers, entries, "first", last),
        (FindingCode::EntryDiffers, entries, "first DESC", last),
        // in the midst of the hash of the first id
        (FindingCode::EntryDiffers, entries, "first", |blob| blob[20] ^= 1),
        (FindingCode::RunDiffers, ("ledger_parts", "ids"), "part", last),
        (FindingCode::RunDiffers, ("ledger_parts", "ids"), "part", |blob| blob[4] ^= 1),
        (FindingCode::RunDamaged, ("ledger_parts", "ids"), "part", |blob| blob[5] = 0xff),
        (FindingCode::RunDamaged, ("ledger_parts", "ids"), "part", |blob| blob.push(0)),
        (FindingCode::FilterDiffers, ("ledger_filters", "bits"), "run", |blob| blob[7] ^= 1),
        (FindingCode::FilterDiffers, ("ledger_filters", "bits"), "run", |blob| blob.truncate(8)),
        (FindingCode::StoreUnreadable, ("recent", "changes"), "chunk", |blob| {
            blob.truncate(blob.len() - 1)
        }),
        (FindingCode::AccountDiffers, ("recent", "changes"), "chunk", last),
    ] {
        let spool = spool();
        alter_blob(spool.path(), table, column, order, change);
        let verified = verify(spool.path()).unwrap();
        let name = code.name();
        assert!(names(&verified).contains(name), "{table} {name}: {}", told(&verified));
    }
}

/// Case P4 among them: what lies in done/ and is not in the store.
#[test]
fn case_023_files_that_do_not_fit_are_found() {
    let put = |path: &Path, text: &str| fs::write(path, text).unwrap();
    let one = r#"{"id":"lost","key":"k","timestamp_ms":1699999999000,"value":1}"#;
    let known = |spool: &Path| fs::read_to_string(spool.join("done/f000.ndjson")).unwrap();
    type Change<'c> = &'c dyn Fn(&Path);
    let cases: [(FindingCode, Change<'_>); 10] = [
        (FindingCode::LostCommit, &|spool| put(&spool.join("done/lost.json"), one)),
        (FindingCode::LostCommit, &|spool| put(&spool.join("done/gw/lost.json"), one)),
        (FindingCode::LostCommit, &|spool| put(&spool.join("done/empty.json"), "[]")),
        (FindingCode::FileWithoutReceipt, &|spool| put(&spool.join("done/x.json"), &known(spool))),
        (FindingCode::FileWithoutReceipt, &|spool| put(&spool.join("done/x.json"), "no batch")),
        (FindingCode::FileChanged, &|spool| {
            let text = known(spool).replacen("\"value\":", "\"value\":1", 1);
            put(&spool.join("done/f000.ndjson"), &text);
        }),
        (FindingCode::ReceiptName, &|spool| {
            fs::rename(spool.join("done/f000.ndjson"), spool.join("done/other")).unwrap();
        }),
        (FindingCode::FailedButIn, &|spool| {
            fs::rename(spool.join("done/f000.ndjson"), spool.join("failed/f000.ndjson")).unwrap();
        }),
        (FindingCode::FailedWithoutReason, &|spool| put(&spool.join("failed/x.json"), "?")),
        (FindingCode::FailedWithoutReason, &|spool| {
            put(&spool.join("failed/bad.json.error.json"), "{}");
        }),
    ];
    for (code, change) in cases {
        let spool = spool();
        change(spool.path());
        let verified = verify(spool.path()).unwrap();
        assert!(names(&verified).contains(code.name()), "{code:?}: {}", told(&verified));
    }
}

/// Under another number it is the same file; that it is on its way, or was taken away, is no
/// damage.
#[test]
fn what_can_rightly_be_is_not_found() {
    let spool = spool();
    let done = |name: &str| spool.path().join("done").join(name);
    fs::rename(done("f000.ndjson"), done("f000.ndjson.7")).unwrap();
    let verified = verify(spool.path()).unwrap();
    assert_eq!(verified.checkup.total(), 0, "{}", told(&verified));
    fs::rename(done("f000.ndjson.7"), spool.path().join("inbox/f000.ndjson")).unwrap();
    fs::remove_file(done("f001.ndjson")).unwrap();
    let verified = verify(spool.path()).unwrap();
    assert_eq!(verified.checkup.total(), 0, "{}", told(&verified));
    let gaps = verified.checkup.gaps().join("\n");
    assert!(gaps.contains("the files of 1 batches") && gaps.contains("played again"), "{gaps}");
    assert_eq!(figure(&verified, "batches_played_again"), 0);
}

/// Behind a horizon ids are forgotten, and whole rows of them. One that is lost is found all the same,
/// with its file at hand by its name, without it by the balance.
/// Has failed for ids that were not counted, and for those of files that were not looked up.
#[test]
fn case_137_an_id_that_is_lost_in_front_of_a_horizon_is_found() {
    for has_files in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let rule = LateRule::Window;
        let mut all = Populated::begin_as(folder.path(), rule, LatePolicy::Aside, Some(20_000));
        all.fill(12, 120);
        let what = Retention { ledger: true, ..Retention::default() };
        assert!(all.store().prune(&what).unwrap().ids > 300);
        all.file(60);
        let spool = all.close();
        let clean = verify(&spool).unwrap();
        assert_eq!(clean.checkup.total(), 0, "{}", told(&clean));
        if !has_files {
            for folder in ["done", "done/gw"] {
                for found in fs::read_dir(spool.join(folder)).unwrap() {
                    let path = found.unwrap().path();
                    if path.is_file() {
                        fs::remove_file(path).unwrap();
                    }
                }
            }
        }
        alter(
            &spool,
            "DELETE FROM ledger_entries WHERE first = \
             (SELECT first FROM ledger_entries ORDER BY first DESC LIMIT 1 OFFSET 3)",
        );
        let verified = verify(&spool).unwrap();
        let text = told(&verified);
        assert!(names(&verified).contains("entry_missing"), "files {has_files}: {text}");
        assert!(!has_files || text.contains("(id \\\"event-"), "{text}");
    }
}

/// What stands apart of a batch that is not there is no matter of retention.
#[test]
fn case_137_a_held_event_of_no_batch_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let rule = LateRule::Window;
    let mut all = Populated::begin_as(folder.path(), rule, LatePolicy::Aside, Some(20_000));
    all.fill(12, 120);
    let spool = all.close();
    alter(&spool, "UPDATE held SET batch = 4711 WHERE batch = (SELECT MIN(batch) FROM held)");
    let verified = verify(&spool).unwrap();
    assert!(names(&verified).contains("held_differs"), "{}", told(&verified));
}

#[test]
fn an_id_that_is_there_twice_is_found() {
    let spool = spool();
    let store = store(spool.path());
    let sql = "INSERT INTO ledger_entries (first, entries) \
               SELECT next_position, entries FROM ledger_entries, store WHERE first = 0";
    store.execute(sql, []).unwrap();
    drop(store.close());
    let verified = verify(spool.path()).unwrap();
    assert!(names(&verified).contains("id_twice"), "{}", told(&verified));
}

#[test]
fn a_page_that_is_torn_and_a_file_that_is_none_are_found() {
    let torn = spool();
    let page: u64 = store(torn.path())
        .query_row("SELECT rootpage FROM sqlite_master WHERE name = 'late_by_window'", [], |row| {
            row.get(0)
        })
        .unwrap();
    let path = torn.path().join("windowflow.db");
    let mut bytes = fs::read(&path).unwrap();
    let from = (page as usize - 1) * 4096;
    bytes[from..from + 64].fill(0);
    fs::write(&path, &bytes).unwrap();
    let verified = verify(torn.path()).unwrap();
    assert!(names(&verified).contains("store_damaged"), "{}", told(&verified));
    bytes[..100].fill(7);
    fs::write(&path, &bytes).unwrap();
    let verified = verify(torn.path()).unwrap();
    assert!(names(&verified).contains("store_unreadable"), "{}", told(&verified));
}

/// No code is without a case of its own.
#[test]
fn each_code_has_been_found_here() {
    let mut cases: BTreeSet<&str> =
        STATEMENTS.iter().chain(ALONE).map(|(code, _)| code.name()).collect();
    let text = include_str!("damage.rs");
    cases.extend(FindingCode::ALL.iter().filter_map(|code| {
        let named = format!("(FindingCode::{code:?}, ");
        let by_name = format!("contains(\"{}\")", code.name());
        (text.contains(&named) || text.contains(&by_name)).then_some(code.name())
    }));
    // a note, not a finding: the tests of case 109 have it
    let all = FindingCode::ALL.iter().filter(|code| **code != FindingCode::FileGrown);
    let all: BTreeSet<&str> = all.map(|code| code.name()).collect();
    assert_eq!(cases, all);
}
