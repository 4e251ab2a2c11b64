//! Files that are taken together: one sync for all of them, before the first of them moves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{accepted, event, one, quick, write_config};
use crate::world::{World, has_tool};

/// How many files lie in the inbox; every tenth is refused, in turn for itself and for another.
const FILES: usize = 60;

fn drop_all(world: &World) {
    for n in 0..FILES {
        let content = match n {
            _ if n % 20 == 9 => "{".to_owned(),
            // what the file before says otherwise
            _ if n % 20 == 19 => event(&format!("id-{}", n - 1), "k", 500, 2),
            _ => one(&format!("id-{n}")),
        };
        world.drop_in(format!("{n:02}.json"), content);
    }
}

fn check_all(world: &World) {
    assert_eq!(world.names("inbox"), Vec::<String>::new());
    let refused = FILES / 10;
    assert_eq!(world.names("done").len(), FILES - refused, "{}", world.told());
    assert_eq!(world.names("failed").len(), 2 * refused, "{}", world.told());
    assert_eq!(accepted(world), (FILES - refused) as i64);
    let report = world.report();
    assert_eq!(report["totals"]["refused_batches"], refused);
    assert_eq!(report["totals"]["duplicate"], 0);
    assert_eq!(world.reason("19.json")["code"], "conflict");
    assert_eq!(world.reason("19.json")["other"]["file"], "18.json");
}

/// What a traced system call did, as far as it matters here. `strace -y` names the file behind each
/// descriptor.
struct Call<'a> {
    name: &'a str,
    /// The paths between angle brackets and the names in quotes, as they come.
    files: Vec<&'a str>,
}

/// The calls of a trace in the order in which they took effect: a sync when it ends, all others
/// when they begin.
fn calls(trace: &str) -> Vec<Call<'_>> {
    let mut begun: BTreeMap<&str, &str> = BTreeMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        let is_sync = |text: &str| text.starts_with("fdatasync(") || text.starts_with("fsync(");
        let text = if rest.starts_with("<... ") {
            match begun.remove(thread) {
                Some(text) if rest.ends_with("= 0") => text,
                _ => continue,
            }
        } else if is_sync(rest) && rest.ends_with("<unfinished ...>") {
            begun.insert(thread, rest);
            continue;
        } else {
            rest
        };
        let Some((name, arguments)) = text.split_once('(') else { continue };
        let arguments = arguments.trim_end_matches("<unfinished ...>");
        let files = arguments.split(['<', '>', '"']).skip(1).step_by(2).collect();
        calls.push(Call { name, files });
    }
    calls
}

#[test]
fn nothing_moves_before_it_is_durable_and_one_sync_does_for_all() {
    if !has_tool("strace", "the order of syncs and moves") {
        return;
    }
    let world = World::with_store(1000, 0);
    drop_all(&world);
    let config = write_config(&world, &[("inbox.settle_ms", "0")]);
    let trace = world.root().join("trace");
    let wrapper = [
        "strace",
        "-f",
        "-y",
        "-qq",
        "-s",
        "256",
        "-e",
        "trace=pwrite64,fdatasync,fsync,renameat2",
        "-o",
        trace.to_str().unwrap(),
    ];
    let mut run = world.spawn_under(&wrapper, &["--once", "--config", &config]);
    world.eventually("it has ended", || !run.runs());
    check_all(&world);

    let trace = fs::read_to_string(&trace).unwrap();
    let mut log_is_dirty = false;
    let (mut log_syncs, mut moves) = (0, 0);
    let mut synced = BTreeSet::new();
    for Call { name, files } in calls(&trace) {
        let is_log = files.first().is_some_and(|file| file.ends_with("windowflow.db-wal"));
        match name {
            "pwrite64" if is_log => log_is_dirty = true,
            "fdatasync" | "fsync" if is_log => {
                log_is_dirty = false;
                log_syncs += 1;
            }
            "fdatasync" | "fsync" => drop(synced.insert(files[0].to_owned())),
            // from folder, name, to folder, name
            "renameat2" if files[0].ends_with("/inbox") && files[1].ends_with(".json") => {
                let [_, name, to, _] = files[..] else { panic!("{files:?}") };
                assert!(!log_is_dirty, "{name} moved before the log was synced");
                let path = format!("{}/{name}", files[0]);
                let is_done = to.ends_with("/done");
                assert!(!is_done || synced.contains(&path), "{name} moved unsynced");
                moves += 1;
            }
            // a reason takes its place
            "renameat2" if files[1].starts_with(".windowflow-reason") => {
                let path = format!("{}/{}", files[0], files[1]);
                assert!(synced.contains(&path), "{path} took its place unsynced");
            }
            _ => {}
        }
    }
    assert_eq!(moves, FILES);
    // a machine under load may need more than one group
    assert!(log_syncs <= FILES / 3, "{log_syncs} syncs of the log for {FILES} files");
}

#[test]
fn a_group_of_a_running_daemon_leaves_each_file_where_it_belongs() {
    let world = World::with_store(1000, 0);
    let daemon = quick(&world);
    drop_all(&world);
    world.until_drained();
    world.eventually("all is told", || super::told(&world, "failed") == FILES as u64 / 10);
    check_all(&world);
    daemon.stop();
}
