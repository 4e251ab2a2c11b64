//! A store that is gone is never replaced in silence: the start is refused, whatever the way it went.

use std::fs;
use std::path::Path;

use crate::world::{Ran, World};

const CONFIG: &str = "[window]\nwindow_ms = 60000\nlateness_ms = 0\n[inbox]\nsettle_ms = 100\n";

fn event(id: &str) -> String {
    format!(r#"{{"id":"{id}","key":"k","timestamp_ms":1767225600000,"value":1}}"#)
}

fn config(world: &World, more: &str) -> String {
    let path = world.root().join("windowflow.toml");
    fs::write(&path, format!("{more}\n{CONFIG}")).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A world whose daemon has made its store and taken in one file.
fn used() -> (World, String) {
    let world = World::new();
    let config = config(&world, "");
    world.drop_in("a.json", event("a"));
    let ran = world.run(&["run", "--once", "--config", &config]).ok();
    assert!(ran.err.contains("made a new store, "), "announced: {}", ran.err);
    assert!(ran.err.contains("window_ms=60000"), "{}", ran.err);
    world.drop_in("b.json", event("a"));
    (world, config)
}

/// Moves the store and what lies beside it away.
fn move_away(world: &World, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for ending in ["", "-wal", "-shm"] {
        let name = format!("windowflow.db{ending}");
        let from = world.spool().join(&name);
        if from.exists() {
            fs::rename(from, to.join(name)).unwrap();
        }
    }
}

fn assert_refused(world: &World, args: &[&str], parts: &[&str]) -> Ran {
    let ran = world.run(args).exits(66);
    for part in parts {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert_eq!(world.names("inbox"), ["b.json"], "{}", world.told());
    ran
}

#[test]
fn case_111_a_store_that_is_gone_is_not_replaced_until_one_is_made_by_hand() {
    let (world, config) = used();
    move_away(&world, &world.root().join("away"));
    for more in [&["--once"][..], &[]] {
        let args = [&["run", "--config", &config][..], more].concat();
        let parts = ["is gone", "put the store back", "init --window-ms 60000 --lateness-ms 0"];
        assert_refused(&world, &args, &parts);
        assert!(!world.db().exists());
    }
    // without [window] the words are the same
    assert_refused(&world, &["run", "--once"], &["is gone", "init --window-ms N"]);
    // without the state, done/ tells
    fs::remove_file(world.spool().join(".windowflow.lock")).unwrap();
    assert_refused(&world, &["run", "--once", "--config", &config], &["done holds files"]);
    // twice, since the state was written anew meanwhile
    assert_refused(&world, &["run", "--once", "--config", &config], &["done holds files"]);
    world.init(60_000, 0, &[]);
    world.run(&["run", "--once", "--config", &config]).ok();
    assert_eq!(world.names("done"), ["a.json", "b.json"]);
}

#[test]
fn case_111_an_empty_file_and_a_log_without_its_store_are_no_store() {
    let (world, config) = used();
    let away = world.root().join("away");
    move_away(&world, &away);
    fs::write(world.db(), "").unwrap();
    fs::write(world.spool().join("windowflow.db-wal"), "frames").unwrap();
    let args = ["run", "--once", "--config", &config];
    assert_refused(&world, &args, &["is empty", "windowflow.db-wal", "keep it"]);
    assert_eq!(fs::read(world.db()).unwrap(), b"", "nothing was written to it");
    // put back, it goes on
    fs::remove_file(world.spool().join("windowflow.db-wal")).unwrap();
    fs::rename(away.join("windowflow.db"), world.db()).unwrap();
    world.run(&args).ok();
    assert_eq!(world.report()["totals"]["duplicate"], 1);
}

#[test]
fn case_111_a_slip_in_the_name_of_the_store_makes_no_other() {
    let (world, _) = used();
    // done/ may have been tidied up: the state is enough
    fs::remove_file(world.spool().join("done/a.json")).unwrap();
    let slip = world.spool().join("windowfow.db");
    let config = config(&world, &format!("db = {slip:?}"));
    let run = |more: &[&str]| {
        let mut command = world.command(&["run", "--once", "--config", &config]);
        command.env_remove("WINDOWFLOW_DB").args(more);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // twice: the state of the first try names the wrong one
    for _ in 0..2 {
        let (code, said) = run(&[]);
        assert_eq!(code, Some(66), "{said}");
        let own = world.db();
        assert!(said.contains(own.to_str().unwrap()) && said.contains("name right"), "{said}");
        assert!(!slip.exists());
    }
    // one that was moved on purpose is fine
    fs::rename(world.db(), &slip).unwrap();
    let (code, said) = run(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("made a new store"), "{said}");
    // and is the one that is missed from now on
    let away = world.root().join("away.db");
    fs::rename(&slip, &away).unwrap();
    let (code, said) = run(&[]);
    assert!(code == Some(66) && said.contains("is gone"), "{code:?} {said}");
}

#[test]
fn case_111_a_first_start_that_failed_before_there_was_a_store_is_still_a_first_start() {
    let world = World::new();
    let folder = world.root().join("state");
    let db = folder.join("w.db");
    let config = config(&world, &format!("db = {db:?}"));
    let run = || {
        let mut command = world.command(&["run", "--once", "--config", &config]);
        command.env_remove("WINDOWFLOW_DB").output().unwrap().status.code()
    };
    world.drop_in("b.json", event("b"));
    assert_eq!(run(), Some(66), "the folder is not there");
    fs::create_dir(&folder).unwrap();
    assert_eq!(run(), Some(0));
    assert!(db.exists());
}
