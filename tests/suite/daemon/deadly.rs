//! Threads that panic and processes that die: nothing that is broken looks alive, and a file that
//! kills does not stand in the way of the others.

use std::os::unix::process::ExitStatusExt as _;

use super::{accepted, many, one, write_config};
use crate::world::{World, has_tool};

/// The daemon under strace, which gets out of the way: signals reach the daemon itself.
fn strace<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["strace", "-D", "-f", "-qq", "-o", "/dev/null"], more].concat()
}

/// Reading one certain file kills the process, as a crash in the middle of it would. Without the
/// note of what is in hand, this goes on for ever, and what comes after the file is never taken. The
/// first death alone takes no file out of its turn: whoever kills may have another reason, and what
/// is taken later can be late.
#[test]
fn a_file_that_kills_comes_last_and_after_three_deaths_it_is_set_aside() {
    if !has_tool("strace", "a file that kills who reads it") {
        return;
    }
    for signal in ["ABRT", "KILL"] {
        let world = World::with_store(1000, 0);
        let config = write_config(&world, &[]);
        // found at the start, it came a while ago
        let names = ["1-good.json", "2-deadly.json", "3-good.json", "4-good.json"];
        for name in names {
            world.drop_in(name, many(name, 3));
        }
        let deadly = world.inbox().join("2-deadly.json");
        let inject = format!("inject=read:signal={signal}:when=1");
        let wrapper = strace(&["-P", deadly.to_str().unwrap(), "-e", "trace=read", "-e", &inject]);
        let mut deaths = 0;
        let last = loop {
            let mut daemon = world.spawn_under(&wrapper, &["--config", &config]);
            let mut ended = None;
            world.eventually("it dies or has them all", || {
                ended = (!daemon.runs()).then(|| daemon.wait());
                ended.is_some() || world.names("inbox").is_empty()
            });
            let Some(status) = ended else { break daemon };
            assert!(status.signal().is_some(), "{status} {}", world.told());
            deaths += 1;
            let left = world.names("inbox");
            if deaths == 2 {
                assert_eq!(left[..2], names[1..3], "others came first: {}", world.told());
            }
            if deaths == 3 {
                assert_eq!(left, ["2-deadly.json"], "it came before others: {}", world.told());
            }
            assert!(deaths <= 3, "{}", world.told());
        };
        assert_eq!(deaths, 3);
        assert_eq!(world.names("done"), ["1-good.json", "3-good.json", "4-good.json"]);
        let reason = world.reason("2-deadly.json");
        assert_eq!(reason["code"], "crashed", "{reason}");
        assert!(reason["message"].as_str().unwrap().contains("3 times"), "{reason}");
        assert!(reason["hint"].as_str().unwrap().contains("windowflow retry"), "{reason}");
        assert_eq!(accepted(&world), 9);
        last.stop();
        // put back, it has a fresh start
        world.run(&["retry", "2-deadly.json"]).ok();
        world.drain().ok();
        assert_eq!(accepted(&world), 12);
        assert_eq!(world.names("failed"), Vec::<String>::new());
    }
}

/// A death of which the file was not the reason is not held against it, however often it comes.
#[test]
fn who_is_killed_for_another_reason_blames_no_file() {
    let world = World::with_store(1000, 0);
    let config = write_config(&world, &[("daemon.busy_timeout_ms", "60000")]);
    let other = rusqlite::Connection::open(world.db()).unwrap();
    world.drop_in("a.json", one("a"));
    for _ in 0..4 {
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let daemon = world.spawn(&["--config", &config]);
        // it is seen to wait for the store: then whoever loses patience kills it
        world.eventually("it is stuck", || super::fault(&world).contains("nothing moves for"));
        daemon.kill();
        other.execute_batch("ROLLBACK").unwrap();
    }
    // told to stop, and killed while it does
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for _ in 0..4 {
        let mut daemon = world.spawn(&["--config", &config]);
        world.eventually("it has it in hand", || {
            let state = world.state();
            state["daemon"]["pid"] == daemon.pid() && state["daemon"]["file"] == "a.json"
        });
        daemon.signal("TERM");
        world.eventually("it stops", || world.state()["daemon"]["phase"] == "stopping");
        daemon.signal("KILL");
        daemon.wait();
    }
    other.execute_batch("ROLLBACK").unwrap();
    world.drain().ok();
    assert_eq!(world.names("failed"), Vec::<String>::new());
    assert_eq!(accepted(&world), 1);
}

/// The library panics when a folder cannot be closed: that ends the process, with a code, and the
/// state says why. Without the hook the main thread notices too, but cannot say what it was.
#[test]
fn a_thread_that_panics_ends_the_process() {
    if !has_tool("strace", "a thread that panics") {
        return;
    }
    let world = World::with_store(1000, 0);
    world.drop_in("a.json", one("a"));
    world.drain().ok();
    let config = write_config(&world, &[("retention.done_days", "1")]);
    let (done, fault) = (world.spool().join("done"), "inject=close:error=EIO");
    let wrapper = strace(&["-P", done.to_str().unwrap(), "-e", "trace=close", "-e", fault]);
    let mut daemon = world.spawn_under(&wrapper, &["--config", &config]);
    let status = daemon.wait();
    assert_eq!(status.code(), Some(1), "{status}\n{}", world.told());
    let log = world.log();
    assert!(log.contains("the thread 'worker' panicked at "), "{log}");
    let status = world.run(&["status"]).exits(1);
    assert!(status.out.contains("at its end: the thread 'worker' panicked"), "{}", status.out);
    world.drop_in("b.json", one("b"));
    world.drain().ok();
    assert_eq!(accepted(&world), 2);
}
