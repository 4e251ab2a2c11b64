//! Files that somebody has open for writing, and files that are written to after their move.

use std::fs::{self, File};
use std::io::Write;

use super::{accepted, many, one, quick, told, write_config};
use crate::world::World;

/// Renames a file into the inbox that its writer still has open.
fn renamed_while_open(world: &World, name: &str) -> File {
    let staged = world.root().join("staged");
    let mut writer = File::create(&staged).unwrap();
    writer.write_all(one("first").as_bytes()).unwrap();
    fs::rename(&staged, world.inbox().join(name)).unwrap();
    writer
}

/// Has failed for files that were taken however open.
#[test]
fn case_109_a_file_that_is_renamed_in_while_it_is_open_is_taken_when_it_is_closed() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    let mut writer = renamed_while_open(&world, "x.ndjson");
    world.eventually("status shows the open writer", || told(&world, "open_for_writing") == 1);
    let open = world.state()["daemon"]["longest_open"].clone();
    assert_eq!(open["file"], "x.ndjson", "{open}");
    // what others drop goes past it, again and again, for many settle times
    for n in 0..12 {
        let name = format!("other-{n}");
        world.drop_in(&name, one(&name));
        world.eventually("the others are taken", || world.names("inbox") == ["x.ndjson"]);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let text = world.run(&["status"]).ok().out;
    assert!(text.contains("1 file(s); the longest: x.ndjson, open for "), "{text}");
    assert_eq!(accepted(&world), 12);
    writer.write_all(one("second").as_bytes()).unwrap();
    drop(writer);
    world.until_drained();
    assert_eq!(accepted(&world), 14, "{}", world.told());
    world.eventually("nothing is open", || told(&world, "open_for_writing") == 0);
    assert_eq!(world.names("failed"), Vec::<String>::new());
    daemon.stop();
}

/// Has failed for files that were taken however open, and for a run that says nothing of them.
#[test]
fn case_109_a_single_run_leaves_an_open_file_and_says_so() {
    let world = World::with_store(1000, 0);
    let mut writer = renamed_while_open(&world, "x.ndjson");
    world.drop_in("other", many("o", 3));
    let config = write_config(&world, &[]);
    let run = || world.run(&["run", "--once", "--config", &config]).ok();
    let ran = run();
    assert!(ran.err.contains("x.ndjson is still open for writing: left for the next run"));
    assert!(ran.out.contains("left in the inbox: 1"), "{}", ran.out);
    assert_eq!((accepted(&world), world.names("inbox")), (3, vec!["x.ndjson".to_owned()]));
    writer.write_all(one("second").as_bytes()).unwrap();
    drop(writer);
    run();
    assert_eq!(accepted(&world), 5, "{}", world.told());
}

/// Adds to a file in done/, as a producer does that has it open by another name.
fn add(world: &World, name: &str, text: &str) {
    let path = world.spool().join("done").join(name);
    let mut file = File::options().append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn warnings(world: &World) -> usize {
    world.log().matches("was written to after it was taken in").count()
}

/// Has failed for files that are not looked at again, copies without end, copies of what was only
/// touched, and a grown file that is not known or not compared.
#[test]
fn case_109_what_is_written_after_the_move_counts_and_done_is_not_touched() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    // one after the other: of two that wait at once one source would be expected, which is a batch
    world.drop_in("gw/x.ndjson", one("first"));
    world.until_drained();
    world.drop_in("y.ndjson", one("y"));
    // moved is not yet checked: what is written before that is another file to the daemon
    world.eventually("both are done", || world.log().contains("done/y.ndjson"));
    add(&world, "gw/x.ndjson", &one("second"));
    // a file that is only touched holds what it held
    let touched = File::options().write(true).open(world.spool().join("done/y.ndjson")).unwrap();
    touched.set_modified(std::time::SystemTime::now()).unwrap();
    drop(touched);
    world.eventually("the rest counts", || accepted(&world) == 3);
    world.until_drained();
    assert_eq!(world.names("done"), ["gw/x.ndjson", "gw/x.ndjson.changed", "y.ndjson"]);
    let report = world.report();
    assert_eq!(report["totals"]["duplicate"], 1, "{report}");
    assert_eq!(report["sources"].as_array().unwrap().len(), 2, "{report}");
    let grown = fs::read_to_string(world.spool().join("done/gw/x.ndjson")).unwrap();
    assert_eq!(grown, one("first") + &one("second"));
    assert_eq!(warnings(&world), 1, "{}", world.log());

    // three times, then no more
    for n in 2..=4 {
        add(&world, "gw/x.ndjson", &one(&format!("more-{n}")));
        let said = "gw/x.ndjson (batch 1) changed again after 3 copies";
        match n {
            4 => world.eventually("it gives up", || world.log().contains(said)),
            _ => world.eventually("it is copied", || accepted(&world) == 2 + n),
        }
    }
    assert_eq!(accepted(&world), 5);
    assert_eq!(warnings(&world), 3, "{}", world.log());
    daemon.stop();

    // the file still counts as the one of its receipt, and so for all that read done/
    let ran = world.run(&["verify", "--json"]).ok();
    let told = ran.json();
    assert_eq!((&told["findings_in_all"], &told["notes_in_all"]), (&0.into(), &1.into()), "{told}");
    assert_eq!(told["notes"][0]["code"], "file_grown");
    assert_eq!(told["notes"][0]["what"], "done/gw/x.ndjson");
    assert_eq!(told["checked"]["batches_played_again"], 5, "{told}");
    let ran = world.run(&["verify"]).ok();
    assert!(ran.out.contains("note: file_grown: done/gw/x.ndjson: expected"), "{}", ran.out);
    let fate = world.run(&["explain", "--key", "k", "--window-start-ms", "0", "--json"]).ok();
    assert_eq!(fate.json()["missing"], serde_json::json!([]), "{}", fate.out);
    // any other change is a finding
    fs::write(world.spool().join("done/gw/x.ndjson"), one("firsT") + &one("second")).unwrap();
    let told = world.run(&["verify", "--json"]).exits(65).json();
    assert_eq!(told["findings_by_code"], serde_json::json!({"file_changed": 1}), "{told}");
}

/// Has failed for a run that forgets what was moved, or what was copied.
#[test]
fn case_109_what_is_written_while_nothing_runs_is_found_by_the_next_run_once() {
    let world = World::with_store(1000, 0);
    let config = write_config(&world, &[]);
    let run = || world.run(&["run", "--once", "--config", &config]).ok();
    world.drop_in("x.ndjson", one("first"));
    run();
    add(&world, "x.ndjson", &one("second"));
    world.eventually("it has been still for long enough", || {
        let changed = fs::metadata(world.spool().join("done/x.ndjson")).unwrap();
        changed.modified().unwrap().elapsed().is_ok_and(|age| age.as_millis() > 150)
    });
    let ran = run();
    assert!(ran.err.contains("was written to after it was taken in"), "{}", ran.err);
    assert_eq!(accepted(&world), 2, "{}", world.told());
    let ran = run();
    assert!(!ran.err.contains("was written to after"), "{}", ran.err);
    assert_eq!(world.names("done"), ["x.ndjson", "x.ndjson.changed"]);
    // the daemon does the same after a start
    add(&world, "x.ndjson", &one("third"));
    let daemon = quick(&world);
    world.eventually("the rest counts", || accepted(&world) == 3);
    daemon.stop();
}
