//! Syncs that fail, at each call that makes one: nothing is moved on the strength of one that was
//! tried again, and what may be in memory only is written anew before anything is built on it.

use std::collections::HashMap;
use std::fs;

use super::{accepted, many, write_config};
use crate::world::{World, has_tool};

/// What a run with a sync that failed did, as strace saw it; none when there were not so many syncs.
fn run_with(call: &str, number: usize) -> Option<Vec<String>> {
    let world = World::with_store(1000, 0);
    let config = write_config(&world, &[]);
    for n in 0..3 {
        world.drop_in(format!("{n}.json"), many(&format!("id-{n}"), 5));
    }
    world.drop_in("bad.json", "{");
    let trace = world.root().join("trace");
    let inject = format!("inject={call}:error=EIO:when={number}");
    let calls = "trace=openat,pwrite64,fsync,fdatasync,renameat2,fadvise64";
    let wrapper = ["strace", "-D", "-f", "-y", "-qq", "-o", trace.to_str().unwrap(), "-e", calls];
    let wrapper = [&wrapper[..], &["-e", &inject]].concat();
    let mut daemon = world.spawn_under(&wrapper, &["--config", &config]);
    let mut ended = None;
    // calls are counted by thread, and each look into the inbox has its own that reads: what fails
    // there fails each time
    let unread = || world.log().contains("cannot read inbox/") && world.names("inbox").len() == 1;
    world.eventually("all is taken, or the daemon could not start", || {
        ended = (!daemon.runs()).then(|| daemon.wait());
        ended.is_some() || world.names("inbox").is_empty() || unread()
    });
    match ended {
        Some(status) => assert_eq!(status.code(), Some(1), "{call} {number}: {}", world.told()),
        None => daemon.stop(),
    }
    let lines = whole_calls(&fs::read_to_string(&trace).unwrap());
    let has_failed = lines.iter().any(|line| line.contains("INJECTED"));
    let log = world.log();
    let is_told = ["Input/output error", "disk I/O error"].iter().any(|said| log.contains(said));
    let failed = lines.iter().filter(|line| line.contains("INJECTED")).cloned();
    let failed: Vec<String> = failed.collect();
    // when the store is closed, SQLite copies its log and removes it, and keeps to itself what fails:
    // then the log is left, and whoever opens the store next does not rely on it
    let at_the_end = ["/spool>)", "/windowflow.db>)", "/windowflow.db-wal>)"];
    let is_closing = |line: &String| at_the_end.iter().any(|path| line.contains(path));
    let is_at_the_end = call == "fsync" && failed.iter().all(is_closing);
    assert!(is_told == has_failed || is_at_the_end, "{call} {number}: {failed:?}\n{log}");
    world.run(&["run", "--once", "--config", &config]);
    assert_eq!(world.names("done"), ["0.json", "1.json", "2.json"], "{call} {number}");
    assert_eq!(world.names("failed"), ["bad.json", "bad.json.error.json"], "{call} {number}");
    assert_eq!(accepted(&world), 15, "{call} {number}: {}", world.told());
    has_failed.then_some(lines)
}

/// The calls of a trace, each on one line where it ended: of one that another thread's came between
/// strace tells in two lines, and only the first of them has its arguments.
fn whole_calls(trace: &str) -> Vec<String> {
    let (mut begun, mut calls) = (HashMap::new(), Vec::new());
    for line in trace.lines() {
        let (thread, call) = line.split_once(' ').unwrap();
        let call = call.trim_start();
        if let Some(head) = call.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, head);
        } else if let Some((_, tail)) =
            call.split_once(" resumed>").filter(|_| call.starts_with("<..."))
        {
            // one that was begun before strace came has no head
            let head = begun.remove(thread).unwrap_or_default();
            calls.push(format!("{thread} {head}{tail}"));
        } else {
            calls.push(format!("{thread} {call}"));
        }
    }
    calls
}

#[test]
fn a_call_that_others_came_between_is_one_line() {
    let trace = "1  fsync(3</a> <unfinished ...>\n2 openat(4) = 5\n\
                 1  <... fsync resumed>) = -1 EIO (INJECTED)\n";
    assert_eq!(whole_calls(trace), ["2 openat(4) = 5", "1 fsync(3</a>) = -1 EIO (INJECTED)"]);
}

/// After a sync of the log that failed, the next thing to be synced of it was written again as a
/// whole, and no file has moved before that.
fn check_log(lines: &[String]) -> bool {
    let is_log = |line: &str| line.contains("windowflow.db-wal>");
    let failed = lines.iter().position(|line| line.contains("INJECTED") && is_log(line));
    let Some(failed) = failed else { return false };
    let mut is_written_again = false;
    for line in &lines[failed + 1..] {
        assert!(!line.contains("renameat2("), "moved before it is durable: {line}");
        is_written_again |= line.contains("pwrite64(") && is_log(line) && line.contains(", 0) = ");
        if line.contains("sync(") && is_log(line) {
            assert!(is_written_again, "the same was synced again: {line}");
            return true;
        }
    }
    // when the store is closed
    false
}

/// After a sync of a producer's file that failed, what memory holds of it is given up. How many
/// there were.
fn check_files(lines: &[String]) -> usize {
    let mut files = 0;
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.contains("INJECTED")) {
        let name = line.split(['<', '>']).nth(1).unwrap_or_default();
        if !name.contains("/inbox/") {
            continue;
        }
        files += 1;
        let thread = line.split(' ').next();
        let next = lines[at + 1..].iter().find(|next| next.split(' ').next() == thread).unwrap();
        assert!(next.contains("fadvise64(") && next.contains("DONTNEED"), "{line}\n{next}");
        assert!(next.contains(name), "{line}\n{next}");
    }
    files
}

#[test]
fn a_sync_that_fails_once_at_any_call_is_never_just_tried_again() {
    if !has_tool("strace", "a sync that fails at each call") {
        return;
    }
    let (mut calls, mut of_the_log, mut of_files) = (0, 0, 0);
    for call in ["fdatasync", "fsync"] {
        for number in 1.. {
            let Some(lines) = run_with(call, number) else { break };
            calls += 1;
            of_the_log += usize::from(check_log(&lines));
            of_files += check_files(&lines);
        }
    }
    assert!(calls > 5 && of_the_log > 0 && of_files > 0, "{calls} {of_the_log} {of_files}");
}
