//! `verify --repair`: mends what is certain, leaves the rest, and changes nothing without a copy.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use windowflow::engine::settings::LatePolicy;

use super::spool;
use crate::populated::{NOW_MS, Populated, copy_all, visible};
use crate::world::{Ran, World};

fn run(world: &World, spool: &Path, args: &[&str]) -> Ran {
    let spool = spool.to_str().unwrap();
    let db = format!("{spool}/windowflow.db");
    world.run(&[&["--spool", spool, "--db", &db], args].concat())
}

/// The names of the copies that were made.
fn copies(spool: &Path) -> Vec<String> {
    let names = fs::read_dir(spool).unwrap().map(|found| found.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.contains("before-repair") && !name.contains("-shm")).collect()
}

/// What the report says, without the clock and the numbers of batches.
fn told(world: &World, spool: &Path) -> Value {
    let report = run(world, spool, &["report", "--json"]).ok().json();
    let members = ["watermark_ms", "windows", "late", "totals", "max_timestamp_ms"];
    members.iter().map(|name| report[*name].clone()).collect()
}

/// Files by name, with the times of their events.
type Files<'f> = &'f [(&'f str, &'f [i64])];

/// A spool whose store has lost the last files, and what it said before that.
fn lost(world: &World, files: Files<'_>) -> (TempDir, Value) {
    let folder = tempfile::tempdir().unwrap();
    let mut all = Populated::begin(folder.path(), LatePolicy::Aside);
    all.fill(4, 80);
    // each source is there, and nobody waits for one that is not
    all.reopen();
    let before = tempfile::tempdir().unwrap();
    copy_all(folder.path(), before.path());
    for (name, times_ms) in files {
        // far ahead of the others stands an event of each source
        let line = |ms: &i64| {
            let sources: &[&str] = if *ms == FAR_MS { &["default", "own", "gw"] } else { &[""] };
            let one = |source: &&str| {
                let own = format!(r#","source":"{source}""#);
                let own = if source.is_empty() { "" } else { &own };
                format!(
                    "{{\"id\":\"{name}-{ms}{source}\",\"key\":\"key-1\",\
                     \"timestamp_ms\":{ms},\"value\":2{own}}}\n"
                )
            };
            sources.iter().map(one).collect::<String>()
        };
        all.take_in(name, &times_ms.iter().map(line).collect::<String>());
    }
    all.close();
    let right = told(world, folder.path());
    for name in ["windowflow.db", "windowflow.db-wal", "windowflow.db-shm"] {
        let _ = fs::remove_file(folder.path().join(name));
        let _ = fs::copy(before.path().join(name), folder.path().join(name));
    }
    (folder, right)
}

/// Far behind that.
const FAR_MS: i64 = THEN_MS + 9000;

/// About where event time has come after those files.
const THEN_MS: i64 = NOW_MS - 2 * 3_600_000 + 4 * 80 * 50;

#[test]
fn case_p4_lost_files_are_taken_in_again_where_their_order_does_not_matter() {
    let world = World::new();
    let t = THEN_MS;
    let files: Files<'_> =
        &[("l1.json", &[t, t + 10]), ("gw/l2.json", &[t + 20]), ("l3.json", &[t + 5, t + 700])];
    let (spool, right) = lost(&world, files);
    assert_ne!(told(&world, spool.path()), right);
    let found = run(&world, spool.path(), &["verify", "--json"]).exits(65).json();
    assert_eq!(found["findings_by_code"], serde_json::json!({"lost_commit": 3}));
    let ran = run(&world, spool.path(), &["verify", "--repair"]).ok();
    for part in [
        "copied to ",
        "done/l1.json: taken in again",
        "done/gw/l2.json",
        "do it again",
        "nothing wrong",
    ] {
        assert!(ran.out.contains(part), "{part} is not in {}", ran.out);
    }
    assert_eq!(told(&world, spool.path()), right);
    assert_eq!(copies(spool.path()), ["windowflow.db.before-repair-1"]);
    // once more there is nothing to do, and so no copy
    let ran = run(&world, spool.path(), &["verify", "--repair"]).ok();
    assert!(ran.out.contains("nothing to mend"), "{}", ran.out);
    assert_eq!(copies(spool.path()).len(), 1);
}

/// A repair that was cut short has taken in some of them: the next one goes on.
#[test]
fn a_repair_that_was_cut_short_goes_on() {
    let world = World::new();
    let t = THEN_MS;
    let (spool, right) = lost(&world, &[("l1.json", &[t]), ("l2.json", &[t + 20])]);
    let first = spool.path().join("done/l1.json");
    run(&world, spool.path(), &["ingest", first.to_str().unwrap()]).ok();
    let ran = run(&world, spool.path(), &["verify", "--repair", "--json"]).ok().json();
    let taken = ran["repair"]["taken_in_again"].as_array().unwrap();
    assert_eq!((taken.len(), &taken[0]["file"]), (1, &"l2.json".into()), "{ran}");
    assert_eq!(told(&world, spool.path()), right);
}

/// Where it could matter when a file comes, nothing is changed, and it is said why.
#[test]
fn what_is_not_certain_is_left() {
    let world = World::new();
    let t = THEN_MS;
    let cases: &[(Files<'_>, &str)] = &[
        // the second closes the window of the first
        (
            &[("l1.json", &[t, t + 9000]), ("gw/l2.json", &[t + 9000]), ("l3.json", &[t + 1])],
            "whether they came late",
        ),
        (&[("l1.json", &[NOW_MS + 3_700_000])], "too far ahead"),
        (&[("l1.json", &[t]), ("l2.json", &[t, t])], "comes more than once"),
    ];
    for (files, why) in cases {
        // an id twice in one file is a repeat when it is first taken in
        let (spool, _) = lost(&world, files);
        let before = visible(&spool.path().join("windowflow.db"), spool.path()).unwrap();
        let ran = run(&world, spool.path(), &["verify", "--repair"]).exits(65);
        assert!(ran.out.contains("left as it is") && ran.out.contains(why), "{why}: {}", ran.out);
        assert!(ran.out.contains("windowflow init --spool NEW"), "{}", ran.out);
        let after = visible(&spool.path().join("windowflow.db"), spool.path()).unwrap();
        assert!(before == after, "{why}");
        assert_eq!(copies(spool.path()), Vec::<String>::new(), "{why}");
    }
    // what lies wrong in failed/ is no damage of the store
    let (spool, _) = lost(&world, &[("l1.json", &[t])]);
    std::fs::create_dir_all(spool.path().join("failed")).unwrap();
    std::fs::write(spool.path().join("failed/no-reason.json"), "{").unwrap();
    let ran = run(&world, spool.path(), &["verify", "--repair"]).exits(65);
    assert!(ran.out.contains("failed_without_reason"), "{}", ran.out);
    assert!(!ran.out.contains("left as it is"), "{}", ran.out);
    assert_eq!(copies(spool.path()).len(), 1);
    // other damage beside it
    let (spool, _) = lost(&world, &[("l1.json", &[t])]);
    let store = rusqlite::Connection::open(spool.path().join("windowflow.db")).unwrap();
    store.execute_batch("UPDATE versions SET accepted = accepted + 1").unwrap();
    drop(store);
    let ran = run(&world, spool.path(), &["verify", "--repair"]).exits(65);
    assert!(ran.out.contains("other damage: version_differs"), "{}", ran.out);
}

#[test]
fn runs_and_filters_are_made_anew() {
    let world = World::new();
    for sql in [
        "DELETE FROM ledger_filters",
        "UPDATE ledger_filters SET bits = zeroblob(length(bits))",
        "DELETE FROM ledger_parts WHERE part = (SELECT MIN(part) FROM ledger_parts)",
        "DELETE FROM ledger_runs WHERE first = 0",
        "UPDATE ledger_runs SET least_ms = least_ms + 100000",
    ] {
        let spool = spool();
        let db = spool.path().join("windowflow.db");
        let right = visible(&db, spool.path()).unwrap();
        let store = rusqlite::Connection::open(&db).unwrap();
        store.execute_batch(sql).unwrap();
        drop(store);
        run(&world, spool.path(), &["verify"]).exits(65);
        let ran = run(&world, spool.path(), &["verify", "--repair"]).ok();
        assert!(ran.out.contains("made anew"), "{sql}: {}", ran.out);
        assert!(visible(&db, spool.path()).unwrap() == right, "{sql}");
        assert_eq!(copies(spool.path()).len(), 1);
    }
    // without the files it is not certain which side is right
    let spool = spool();
    let store = rusqlite::Connection::open(spool.path().join("windowflow.db")).unwrap();
    store.execute_batch("UPDATE ledger_runs SET ids = ids - 1").unwrap();
    drop(store);
    fs::remove_file(spool.path().join("done/f003.ndjson")).unwrap();
    let ran = run(&world, spool.path(), &["verify", "--repair"]).exits(65);
    assert!(ran.out.contains("which side is damaged"), "{}", ran.out);
}

#[test]
fn while_a_daemon_holds_the_spool_nothing_is_mended() {
    let world = World::with_store(1000, 0);
    let daemon = world.daemon();
    let ran = world.run(&["verify", "--repair"]).exits(75);
    assert!(ran.err.contains("another daemon holds the spool"), "{}", ran.err);
    daemon.stop();
    world.run(&["verify", "--repair"]).ok();
    let nowhere = world.root().join("nowhere");
    run(&world, &nowhere, &["verify", "--repair"]).exits(66);
    assert!(!nowhere.exists());
}
