//! What the daemon uses: processor, handles, threads, memory.
//!
//! That a file of a backlog of 100,000 costs as much as one of 100 is measured by the benches.

use std::fs;
use std::io::{BufWriter, Write};
use std::time::Duration;

use super::{accepted, one, quick, quick_with, soaking};
use crate::world::{Daemon, World, has_tool};

/// Ticks of the processor that it has used, in units of 10 ms.
fn ticks(daemon: &Daemon<'_>) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
    // the name of the program, in brackets, may hold spaces
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn handles(daemon: &Daemon<'_>) -> usize {
    fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count()
}

fn kib(daemon: &Daemon<'_>, name: &str) -> u64 {
    let value = daemon.proc_status(name).unwrap();
    value.trim_end_matches(" kB").parse().unwrap()
}

/// The one place where something is measured: processor time, which a loaded machine changes little.
/// Looked at from the moment that all is quiet, over about twenty looks into the inbox. Where the
/// machine makes each look dearer, a quieter moment is waited for: a daemon that has work to do takes
/// no less in any.
#[test]
fn an_idle_daemon_uses_no_processor() {
    let world = World::with_store(1000, 0);
    let daemon = quick_with(&world, &[("inbox.rescan_ms", "100")]);
    // things that stay, and must not be looked at over and over for it
    world.drop_in("left.tmp", "x");
    world.drop_in("press/deeper/a.json", one("too deep"));
    for n in 0..10 {
        world.drop_in(format!("{n}.json"), one(&format!("id-{n}")));
    }
    world.eventually("all are in", || world.names("done").len() == 10);
    world.eventually("it is idle", || world.state()["daemon"]["phase"] == "idle");
    let in_two_seconds = || {
        let before = ticks(&daemon);
        std::thread::sleep(Duration::from_secs(2));
        ticks(&daemon) - before
    };
    let tried: Vec<u64> = (0..10).map(|_| in_two_seconds()).take_while(|used| *used > 2).collect();
    assert!(tried.len() < 10, "{tried:?} ticks of 10 ms in two idle seconds\n{}", world.told());
    daemon.stop();
}

#[test]
fn handles_do_not_grow_and_threads_have_names() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    let round = |from: usize, to: usize| {
        for n in from..to {
            let folder = ["", "press/", "meter/"][n % 3];
            let content = if n % 10 == 9 { "{".to_owned() } else { one(&format!("id-{n}")) };
            world.drop_in(format!("{folder}{n}.json"), content);
        }
        daemon.signal("USR1");
        world.until_drained();
        world.eventually("it is idle", || world.state()["daemon"]["phase"] == "idle");
    };
    round(0, 30);
    let reports = world.spool().join("reports/latest.json");
    world.eventually("a report is written", || reports.exists());
    // the report's own handles are closed a moment after
    let mut before = usize::MAX;
    world.eventually("its handles stand still", || {
        let now = handles(&daemon);
        std::mem::replace(&mut before, now) == now
    });
    round(30, if soaking() { 10_000 } else { 600 });
    world.eventually("no handle is left over", || handles(&daemon) <= before);
    let mut names: Vec<String> = fs::read_dir(format!("/proc/{}/task", daemon.pid()))
        .unwrap()
        .map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap())
        .map(|name| name.trim().to_owned())
        .collect();
    names.sort();
    for name in ["reports", "signals", "windowflow", "worker"] {
        assert!(names.iter().any(|found| found == name), "no thread {name}: {names:?}");
    }
    // the library names the one of the watch
    assert!(names.iter().all(|name| name != "unnamed"), "{names:?}");
    assert_eq!(names.iter().filter(|name| *name == "windowflow").count(), 1, "{names:?}");
    daemon.stop();
}

/// A file of that many events of about 600 bytes each.
fn write_large(world: &World, name: &str, events: usize) -> u64 {
    let path = world.root().join("large.json");
    let mut file = BufWriter::new(fs::File::create(&path).unwrap());
    let version = "v".repeat(500);
    for n in 0..events {
        writeln!(
            file,
            "{{\"id\":\"{name}-{n}\",\"key\":\"k{}\",\"timestamp_ms\":{n},\"value\":1,\
             \"producer_version\":\"{version}\"}}",
            n % 100
        )
        .unwrap();
    }
    file.into_inner().unwrap().sync_all().unwrap();
    let bytes = fs::metadata(&path).unwrap().len();
    fs::rename(&path, world.inbox().join(name)).unwrap();
    bytes
}

#[test]
fn memory_does_not_grow_with_the_file() {
    let world = World::with_store(100_000, 0);
    let daemon = quick(&world);
    let small = write_large(&world, "small.json", 5_000);
    world.until_drained();
    let after_small = kib(&daemon, "VmHWM");
    let events = if soaking() { 350_000 } else { 60_000 };
    let large = write_large(&world, "large.json", events);
    assert!(large > 10 * small);
    world.until_drained();
    let after_large = kib(&daemon, "VmHWM");
    assert_eq!(accepted(&world), events as i64 + 5_000);
    // the store's own cache fills up to 8 MiB, and the index of its log is mapped
    let bound = after_small + 24 * 1024;
    assert!(
        after_large < bound && after_large < 96 * 1024,
        "{after_small} KiB at most with {small} bytes, {after_large} KiB with {large}"
    );
    daemon.stop();
}

/// Has failed for blocks of 8 KiB.
#[test]
fn case_053_a_large_file_is_read_in_large_pieces() {
    if !has_tool("strace", "how a large file is read") {
        return;
    }
    let world = World::with_store(100_000, 0);
    let bytes = write_large(&world, "large.json", if soaking() { 170_000 } else { 34_000 });
    let trace = world.root().join("trace");
    let strace = ["strace", "-f", "-y", "-e", "trace=read,pread64,readv", "-o"];
    let wrapper = [&strace[..], &[trace.to_str().unwrap()]].concat();
    let mut daemon = world.spawn_under(&wrapper, &["--once"]);
    assert_eq!(daemon.wait().code(), Some(0), "{}", world.told());
    let trace = fs::read_to_string(&trace).unwrap();
    let reads = trace.lines().filter(|line| line.contains("/large.json>")).count() as u64;
    assert!(reads > 0 && reads <= bytes / (16 << 10), "{reads} reads of {bytes} bytes");
    assert_eq!(world.names("done"), ["large.json"]);
}
