//! The configuration as the daemon uses it: the store made from it, and SIGHUP.

use std::fs;

use super::{NEVER_RESCAN, NEVER_SETTLE, QUICK, accepted, one, quick_with, write_config};
use crate::world::World;

const WINDOW: &[(&str, &str)] = &[("window.window_ms", "1000"), ("window.lateness_ms", "500")];

fn times(world: &World, text: &str) -> usize {
    world.log().matches(text).count()
}

#[test]
fn run_makes_the_store_that_the_configuration_describes() {
    let world = World::new();
    let config = write_config(&world, WINDOW);
    world.drop_in("a.json", one("a"));
    world.run(&["run", "--once", "--config", &config]).ok();
    let settings = &world.report()["settings"];
    assert_eq!(settings["window_ms"], 1000);
    assert_eq!(settings["lateness_ms"], 500);
    assert_eq!(settings["late_rule"], "window");
    assert_eq!(settings["late_policy"], "aside");
    // the same again is fine
    world.run(&["run", "--once", "--config", &config]).ok();
    // and so is a configuration that says nothing of it
    world.run(&["run", "--once", "--config", &write_config(&world, &[])]).ok();
    assert_eq!(accepted(&world), 1);
}

#[test]
fn run_refuses_a_store_that_was_made_with_other_settings() {
    let world = World::with_store(1000, 500);
    world.drop_in("a.json", one("a"));
    for (key, value) in [
        ("window.window_ms", "2000"),
        ("window.lateness_ms", "0"),
        ("window.late_rule", "\"event\""),
        ("window.late_policy", "\"drop\""),
    ] {
        let config = write_config(&world, &[WINDOW[0], WINDOW[1], (key, value)]);
        let ran = world.run(&["run", "--config", &config]).exits(78);
        // both are shown
        assert!(
            ran.err.contains("1000") && ran.err.contains(value.trim_matches('"')),
            "{}",
            ran.err
        );
        assert_eq!(world.names("inbox"), ["a.json"]);
    }
    assert_eq!(world.report()["settings"]["window_ms"], 1000);
}

#[test]
fn a_bad_configuration_starts_nothing_and_says_where_it_is_bad() {
    let world = World::with_store(1000, 0);
    world.drop_in("a.json", one("a"));
    let config = write_config(&world, &[("inbox.settle_ms", "-1")]);
    let ran = world.run(&["run", "--config", &config]).exits(78);
    assert!(ran.err.contains("settle_ms") && ran.err.contains("line "), "{}", ran.err);
    let config = write_config(&world, &[("inbox.setle_ms", "1")]);
    let ran = world.run(&["run", "--config", &config]).exits(78);
    assert!(ran.err.contains("setle_ms") && ran.err.contains("settle_ms"), "{}", ran.err);
    let ran = world.run(&["run", "--config", "no-such.toml"]).exits(78);
    assert!(ran.err.contains("no-such.toml"), "{}", ran.err);
    assert_eq!(world.names("inbox"), ["a.json"]);
}

#[test]
fn a_store_among_the_work_is_refused() {
    let world = World::new();
    let config = write_config(&world, WINDOW);
    for folder in ["inbox", "done", "failed", "reports"] {
        let db = world.spool().join(folder).join("w.db");
        let args = ["run", "--once", "--config", &config, "--db", db.to_str().unwrap()];
        let ran = world.run(&args).exits(78);
        assert!(ran.err.contains(folder), "{}", ran.err);
        assert!(!db.exists());
    }
}

#[test]
fn sighup_changes_what_can_be_changed() {
    let world = World::with_store(1000, 0);
    let mut daemon = quick_with(&world, &[NEVER_SETTLE, ("daemon.log", "\"info\"")]);
    fs::write(world.inbox().join("placed.json"), one("placed")).unwrap();
    world.eventually("it waits", || super::told(&world, "not_ready") == 1);
    write_config(&world, &[("inbox.settle_ms", "50"), ("daemon.log", "\"debug\"")]);
    daemon.signal("HUP");
    world.until_drained();
    assert_eq!(accepted(&world), 1);
    assert_eq!(times(&world, "configuration read again"), 1);
    // bounds and the level of the log
    write_config(&world, &[("limits.max_event_bytes", "64"), ("daemon.log", "\"error\"")]);
    daemon.signal("HUP");
    let large = || {
        let state = world.state();
        state["daemon"]["failed"].as_u64() >= Some(1)
    };
    let mut n = 0;
    world.eventually("a large event is refused", || {
        n += 1;
        let id = format!("{n}-{}", "x".repeat(80));
        world.drop_in(format!("large-{n}.json"), one(&id));
        world.until_drained();
        large()
    });
    let failed = world.names("failed");
    assert_eq!(world.reason(&failed[0])["code"], "event_too_large");
    assert!(daemon.runs());
    daemon.stop();
    // of what came after the last reload only the refusals would be warnings
    assert_eq!(times(&world, "INFO  stopping"), 0, "{}", world.log());
}

/// Has failed for patterns that match nothing, and for a reload without a listing.
#[test]
fn case_135_marker_files_are_left_alone_where_the_configuration_names_them() {
    let world = World::with_store(1000, 0);
    let ignore = |patterns| [NEVER_RESCAN, ("inbox.ignore", patterns)];
    let daemon = quick_with(&world, &ignore(r#"["_SUCCESS", "*.md5"]"#));
    world.drop_in("_SUCCESS", "");
    world.drop_in("gw/a.json.md5", "d41d8cd98f00b204e9800998ecf8427e");
    world.drop_in("gw/a.json", one("a"));
    world.eventually("the data is taken", || world.names("done") == ["gw/a.json"]);
    assert_eq!(world.names("inbox"), ["_SUCCESS", "gw/a.json.md5"]);
    assert_eq!(world.names("failed"), Vec::<String>::new());
    // a reload takes it up, in both directions
    write_config(&world, &ignore(r#"["_SUCCESS"]"#));
    daemon.signal("HUP");
    world.eventually("one is taken", || world.names("failed").len() == 2);
    // names are counted when the whole inbox is listed
    world.eventually("the other is counted", || super::told(&world, "ignored") == 1);
    assert_eq!(world.reason("gw/a.json.md5")["code"], "not_a_batch");
    assert_eq!(world.names("inbox"), ["_SUCCESS"]);
    write_config(&world, &ignore(r#"["[a"]"#));
    daemon.signal("HUP");
    world.eventually("a bad one is refused", || world.log().contains("unclosed character class"));
    assert_eq!(world.names("inbox"), ["_SUCCESS"]);
    daemon.stop();
}

#[test]
fn sighup_with_a_bad_configuration_changes_nothing() {
    let world = World::with_store(1000, 0);
    let mut daemon = quick_with(&world, &[]);
    let path = world.root().join("windowflow.toml");
    let mut expected = 0;
    for bad in ["inbox.settle_ms = 3600001", "inbox.settle_ms = 3600000\nnonsense", "\u{0}", "[win"]
    {
        fs::write(&path, bad).unwrap();
        daemon.signal("HUP");
        expected += 1;
        let said = "going on with the configuration as it was";
        world.eventually("it says so", || times(&world, said) == expected);
        fs::write(world.inbox().join("placed.json"), one(&format!("id-{expected}"))).unwrap();
        world.until_drained();
    }
    fs::remove_file(&path).unwrap();
    daemon.signal("HUP");
    world.eventually("it says so", || world.log().contains("there is no configuration file"));
    assert_eq!(accepted(&world), expected as i64);
    assert!(daemon.runs());
    // and a good one is taken up after all
    write_config(&world, &[]);
    daemon.signal("HUP");
    world.eventually("it is read", || times(&world, "configuration read again") == 1);
    daemon.stop();
}

#[test]
fn sighup_names_what_needs_a_restart() {
    let world = World::new();
    let mut daemon = quick_with(&world, WINDOW);
    world.drop_in("a.json", one("a"));
    world.until_drained();
    let other = [("window.window_ms", "7"), WINDOW[1], ("db", "\"elsewhere.db\"")];
    write_config(&world, &other);
    daemon.signal("HUP");
    world.eventually("it is read", || times(&world, "configuration read again") == 1);
    let log = world.log();
    assert!(log.contains("window.window_ms has changed"), "{log}");
    assert!(log.contains("db has changed"), "{log}");
    world.drop_in("b.json", one("b"));
    world.until_drained();
    assert_eq!(world.report()["settings"]["window_ms"], 1000);
    assert_eq!(accepted(&world), 2);
    // told again as long as it is so, and no more once it is as it was
    daemon.signal("HUP");
    world.eventually("it is read", || times(&world, "configuration read again") == 2);
    assert_eq!(times(&world, "window.window_ms has changed"), 2, "{}", world.log());
    write_config(&world, WINDOW);
    daemon.signal("HUP");
    world.eventually("it is read", || times(&world, "configuration read again") == 3);
    assert_eq!(times(&world, "window.window_ms has changed"), 2, "{}", world.log());
    assert!(daemon.runs());
    daemon.stop();
}

#[test]
fn sighup_without_a_configuration_is_harmless() {
    let world = World::with_store(1000, 0);
    let mut daemon = world.daemon();
    daemon.signal("HUP");
    world.eventually("it says so", || world.log().contains("there is no file"));
    assert!(daemon.runs());
    daemon.stop();
}

#[test]
fn the_spool_and_the_store_can_be_named_by_the_configuration_alone() {
    let world = World::new();
    let path = world.root().join("windowflow.toml");
    // relative to the folder that the file lies in
    let mut text = "spool = \"spool\"\ndb = \"state.db\"\n".to_owned();
    for (key, value) in QUICK.iter().chain(WINDOW) {
        text.push_str(&format!("{key} = {value}\n"));
    }
    fs::write(&path, text).unwrap();
    world.drop_in("a.json", one("a"));
    let mut command = world.command(&["run", "--once", "--config", path.to_str().unwrap()]);
    command.env_remove("WINDOWFLOW_DB").env_remove("WINDOWFLOW_SPOOL").current_dir("/");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(world.root().join("state.db").exists() && !world.db().exists());
    assert_eq!(world.names("done"), ["a.json"]);
}
