//! Killed at any moment, and two at once: no file in done/ without its events, nothing twice.

use std::fs;
use std::time::Duration;

use super::{accepted, look_into, many, one, soaking, summed, write_config};
use crate::world::World;

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Every event of every file in done/ is in the store.
fn check_done(world: &World) {
    let done = world.spool().join("done");
    let names = world.names("done");
    if names.is_empty() {
        return;
    }
    let files: Vec<String> =
        names.iter().map(|name| done.join(name).display().to_string()).collect();
    let mut args = vec!["check", "--json"];
    args.extend(files.iter().map(String::as_str));
    let checked = world.run(&args).ok();
    let mut events = 0;
    for line in checked.out.lines() {
        let batch: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(batch["duplicate"], batch["events"], "not all of {batch}\n{}", world.told());
        events += batch["events"].as_u64().unwrap();
    }
    assert_eq!(checked.out.lines().count(), names.len());
    assert!(events > 0);
}

#[test]
fn case_022_killed_at_any_moment_it_loses_nothing_and_counts_nothing_twice() {
    let world = World::with_store(10, 1_000_000);
    let config = write_config(&world, &[("inbox.settle_ms", "20")]);
    let rounds = if soaking() { 1000 } else { 25 };
    let mut dice = Dice(22);
    let mut expected = 0;
    let mut watermark_ms = 0;
    let mut interrupted = 0;
    for round in 0..rounds {
        for n in 0..4 {
            let size = 1 + dice.below(300) as usize;
            world.drop_in(format!("{round:04}-{n}.json"), many(&format!("{round}-{n}"), size));
            expected += size as i64;
        }
        // and one that came before, under another name
        world.drop_in(format!("{round:04}-repeat.json"), many(&format!("{round}-0"), 1));
        world.drop_in(format!("{round:04}-bad.json"), "{");
        let daemon = world.spawn(&["--config", &config]);
        world.eventually("it starts", || daemon.catches(libc::SIGTERM));
        std::thread::sleep(Duration::from_micros(dice.below(60_000)));
        daemon.kill();
        check_done(&world);
        interrupted += usize::from(!world.names("inbox").is_empty());
        let report = world.report();
        let now_ms = report["watermark_ms"].as_i64().unwrap();
        assert!(now_ms >= watermark_ms, "the watermark fell from {watermark_ms} to {now_ms}");
        watermark_ms = now_ms;
    }
    // 65 if one of the bad ones was left
    let last = world.run(&["run", "--once", "--config", &config]);
    assert!(matches!(last.code, Some(0 | 65)), "{last:?}");
    assert!(interrupted > rounds / 5, "only {interrupted} of {rounds} kills came in time");
    check_done(&world);
    assert_eq!(world.names("inbox"), Vec::<String>::new());
    assert_eq!(world.names("done").len(), 5 * rounds);
    // each bad file and its reason, and no draft of one
    assert_eq!(world.names("failed").len(), 2 * rounds, "{}", world.told());
    assert_eq!(accepted(&world), expected);
    assert_eq!(summed(&world), expected);
    let verdict: String =
        look_into(&world.db()).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}

#[test]
fn a_second_daemon_is_refused_and_told_who_the_first_is() {
    let world = World::with_store(1000, 0);
    let daemon = super::quick(&world);
    let second = world.run(&["run"]).exits(75);
    assert!(second.err.contains("has the spool"), "{}", second.err);
    assert!(
        second.err.contains(&format!("another daemon (pid {})", daemon.pid())),
        "{}",
        second.err
    );
    // a single run is a daemon too
    world.run(&["run", "--once"]).exits(75);
    // removing what looks like a stale lock helps nobody
    fs::remove_file(world.spool().join(".windowflow.lock")).unwrap();
    world.run(&["run", "--once"]).exits(75);
    world.drop_in("a.json", one("a"));
    world.until_drained();
    assert_eq!(accepted(&world), 1);
    daemon.stop();
    world.run(&["run", "--once"]).ok();
}

#[test]
fn the_lock_of_a_killed_daemon_is_never_stale() {
    let world = World::with_store(1000, 0);
    let config = write_config(&world, &[]);
    for round in 0..20 {
        let daemon = world.spawn(&["--config", &config]);
        daemon.until_ready();
        // under a name of its own: one that still lies there must not be replaced
        world.drop_in(format!("{round:02}.json"), one(&format!("id-{round}")));
        if round % 2 == 0 {
            world.until_drained();
        }
        daemon.kill();
        assert_eq!(world.run(&["status"]).code, Some(1));
    }
    world.drain().ok();
    assert_eq!(accepted(&world), 20);
}
