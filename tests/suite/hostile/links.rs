//! Links, pipes and folders where files are expected: nothing outside of the spool is opened, moved
//! or changed through it, and nobody waits for a pipe. Who opens anything in the folder outside is
//! seen by a watch on it.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use notify::event::{Event, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::world::World;

/// A folder outside of the spool, on the same file system, and who touches it.
struct Outside {
    folder: PathBuf,
    touched: Receiver<notify::Result<Event>>,
    _watcher: RecommendedWatcher,
}

const NAMES: [&str; 4] = ["a.json", "b.json", "victim", "sub/a.json"];

impl Outside {
    fn new(world: &World) -> Outside {
        let folder = world.root().join("outside");
        fs::create_dir_all(folder.join("sub")).unwrap();
        for name in NAMES {
            fs::write(folder.join(name), event(&format!("outside {name}"))).unwrap();
        }
        Outside::watch(folder)
    }

    fn watch(folder: PathBuf) -> Outside {
        let (tell, touched) = channel();
        let mut watcher = notify::recommended_watcher(tell).unwrap();
        for watched in [&folder, &folder.join("sub")] {
            watcher.watch(watched, RecursiveMode::NonRecursive).unwrap();
        }
        Outside { folder, touched, _watcher: watcher }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Panics when anything was opened, changed or moved there; begins to watch anew.
    fn check_untouched(self, world: &World) -> Outside {
        let Outside { folder, touched, _watcher } = self;
        // opened last: what comes before it was told before it
        let end = folder.join("sub/a.json");
        fs::read(&end).unwrap();
        // The library of the watch lists a folder that becomes a link in that very moment, and
        // watches it: nothing but a hint comes of that, and no file is opened.
        let is_listed = |event: &Event| {
            let path = event.paths.first().unwrap();
            matches!(event.kind, EventKind::Access(_))
                && (*path == folder || *path == folder.join("sub"))
        };
        let mut event = || touched.recv_timeout(Duration::from_secs(30)).unwrap().unwrap();
        let first = std::iter::repeat_with(&mut event).find(|event| !is_listed(event)).unwrap();
        assert!(first.paths == [end.as_path()], "{first:?}\n{}", world.told());
        for name in NAMES {
            let text = fs::read_to_string(folder.join(name)).unwrap();
            assert_eq!(text, self::event(&format!("outside {name}")));
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 4);
        Outside::watch(folder)
    }
}

fn event(id: &str) -> String {
    format!("{{\"id\":\"{id}\",\"key\":\"k\",\"timestamp_ms\":1,\"value\":1}}\n")
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn config(world: &World) -> String {
    let path = world.root().join("windowflow.toml");
    let text = "inbox.settle_ms = 50\ninbox.rescan_ms = 100\ndaemon.backoff_min_ms = 20\n";
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Has failed for a lock and a reason that were opened through a link.
#[test]
fn nothing_outside_is_reached_through_links() {
    let world = World::with_store(1000, 0);
    let outside = Outside::new(&world);
    let (inbox, spool) = (world.inbox(), world.spool());
    let there = |name: &str| outside.at(name);
    // who drops files
    symlink(there("a.json"), inbox.join("link.json")).unwrap();
    symlink(&outside.folder, inbox.join("press")).unwrap();
    symlink(there("victim"), inbox.join("nobody.json.error.json")).unwrap();
    symlink("/nowhere", inbox.join("dangling.json")).unwrap();
    symlink("loop.json", inbox.join("loop.json")).unwrap();
    fs::create_dir(inbox.join(".windowflow-probe")).unwrap();
    // names of files, taken by folders, links and pipes
    for folder in ["done", "failed", "reports"] {
        fs::create_dir_all(spool.join(folder)).unwrap();
    }
    symlink(&outside.folder, spool.join("done/gw1")).unwrap();
    symlink(&outside.folder, spool.join("failed/gw2")).unwrap();
    symlink(there("victim"), spool.join("failed/bad-1.json.error.json")).unwrap();
    fs::create_dir(spool.join("failed/bad-2.json.error.json")).unwrap();
    pipe(&spool.join("failed/bad-3.json.error.json"));
    symlink(there("victim"), spool.join("failed/.windowflow-reason-0.tmp")).unwrap();
    symlink(there("victim"), spool.join("done/good.json")).unwrap();
    for name in ["latest.json", ".latest.json.tmp", ".report.json.tmp"] {
        symlink(there("victim"), spool.join("reports").join(name)).unwrap();
    }
    world.drop_in("good.json", event("good"));
    world.drop_in("gw1/good.json", event("gw1"));
    world.drop_in("gw2/bad.json", "[1]");
    for n in 1..=3 {
        world.drop_in(format!("bad-{n}.json"), "[1]");
    }
    let daemon = world.daemon_with(&["--config", &config(&world)]);
    world.until_drained();
    daemon.signal("USR1");
    let latest = spool.join("reports/latest.json");
    world.eventually("the report is no link", || {
        latest.symlink_metadata().is_ok_and(|found| found.is_file())
    });
    daemon.stop();
    let outside = outside.check_untouched(&world);

    assert_eq!(world.report()["totals"]["accepted"], 2, "{}", world.told());
    let read = |path: &str| fs::read_to_string(spool.join(path)).unwrap();
    assert_eq!(read("done/good.json.1"), event("good"));
    assert_eq!(read("done/gw1/good.json"), event("gw1"));
    assert_eq!(read("failed/gw2/bad.json"), "[1]");
    for n in 1..=3 {
        assert_eq!(read(&format!("failed/bad-{n}.json.1")), "[1]");
        assert_eq!(world.reason(&format!("bad-{n}.json.1"))["code"], "wrong_type");
    }
    let links = ["link.json", "press", "dangling.json", "loop.json", "nobody.json.error.json"];
    for link in links {
        assert!(spool.join("failed").join(link).is_symlink(), "{link}: {}", world.told());
        assert_eq!(world.reason(link)["code"], "not_a_regular_file");
    }
    // what reads the spool follows nothing either
    for args in [&["failed"][..], &["failed", "--json"], &["status"], &["explain", "--id", "gw1"]] {
        let ran = world.run(args);
        assert!(!ran.out.contains("outside "), "{}", ran.out);
    }
    world.run(&["retry", "--all"]);
    world.drain();
    outside.check_untouched(&world);
}

/// Somebody who can write into the folder of the spool puts something else where the lock is.
/// Has failed for a link that was followed, a pipe that was waited for, and a hard link that was
/// written through.
#[test]
fn what_stands_in_the_place_of_the_lock_is_neither_followed_nor_written_to() {
    let world = World::with_store(1000, 0);
    let outside = Outside::new(&world);
    let lock = world.spool().join(".windowflow.lock");
    let put: [(&str, &dyn Fn()); 4] = [
        ("a symbolic link", &|| symlink(outside.at("victim"), &lock).unwrap()),
        ("a file that has other names", &|| {
            fs::hard_link(outside.at("victim"), &lock).unwrap();
        }),
        ("a named pipe", &|| pipe(&lock)),
        ("a folder", &|| fs::create_dir(&lock).unwrap()),
    ];
    for (what, put) in put {
        let _ = fs::remove_file(&lock);
        put();
        let refused = world.run(&["run", "--once"]).exits(1);
        assert!(refused.err.contains(lock.to_str().unwrap()), "{what}: {}", refused.err);
        if what != "a folder" {
            assert!(refused.err.contains(what), "{what}: {}", refused.err);
            assert!(refused.err.contains("remove it"), "{what}: {}", refused.err);
        }
        // it says that no daemon runs, and does not wait
        world.run(&["status"]).exits(1);
    }
    assert_eq!(fs::read_to_string(outside.at("victim")).unwrap(), event("outside victim"));
    assert_eq!(fs::metadata(outside.at("victim")).unwrap().nlink(), 1);
    fs::remove_dir(&lock).unwrap();
    world.drain().ok();
}

/// A name that is now a file, now a link to outside, faster than anybody can look and then open:
/// what is taken is what was a file. Has failed for an open that followed links.
#[test]
fn a_file_that_becomes_a_link_between_looking_and_opening_leads_nowhere() {
    const TAKEN: usize = 100;
    let world = World::with_store(1000, 0);
    let outside = Outside::new(&world);
    let (name, other) = (world.inbox().join("a.json"), world.inbox().join(".other"));
    let mut daemon = world.daemon_with(&["--config", &config(&world)]);
    let taken = || world.names("done").len() + world.names("failed").len() / 2;
    let is_over = AtomicBool::new(false);
    let mut has_taken = false;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let flags = RenameFlags::EXCHANGE;
                // one of the two was just taken
                let _ = renameat_with(CWD, &name, CWD, &other, flags);
            }
        });
        for n in 0..100_000 {
            // one that was moved may go back: it is somebody else's by then
            has_taken = taken() >= TAKEN;
            if has_taken {
                break;
            }
            for path in [&name, &other].into_iter().filter(|path| path.symlink_metadata().is_err())
            {
                let staged = world.root().join("staged");
                match name.is_symlink() || other.is_symlink() {
                    true => fs::write(&staged, event(&format!("e{n}"))).unwrap(),
                    false => symlink(outside.at("a.json"), &staged).unwrap(),
                }
                // whoever moved something there meanwhile has the name
                let _ = renameat_with(CWD, &staged, CWD, path, RenameFlags::NOREPLACE);
                let _ = fs::remove_file(&staged);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(has_taken && daemon.runs(), "{}", world.told());
    let _ = fs::remove_file(&name);
    daemon.stop();
    outside.check_untouched(&world);
    let report = world.report();
    for file in world.names("done") {
        let text = fs::read_to_string(world.spool().join("done").join(&file)).unwrap();
        assert!(text.starts_with("{\"id\":\"e"), "{file}: {text}");
    }
    assert!(report["totals"]["accepted"].as_u64() >= Some(1), "{}", world.told());
}

/// The folder of a source that is now a folder, now a link to outside, now a pipe.
#[test]
fn the_folder_of_a_source_that_becomes_something_else_leads_nowhere() {
    let world = World::with_store(1000, 0);
    let outside = Outside::new(&world);
    let folder = world.inbox().join("press");
    let mut daemon = world.daemon_with(&["--config", &config(&world)]);
    for round in 0..300 {
        let _ = fs::create_dir(&folder);
        let _ = fs::write(folder.join(format!("{round}.json")), event(&format!("p{round}")));
        std::thread::sleep(Duration::from_micros(round * 53 % 3000));
        let _ = fs::rename(&folder, world.root().join(format!("press-{round}")));
        match round % 10 {
            5 => pipe(&folder),
            // what was put back into it may have made the folder again
            _ => drop(symlink(&outside.folder, &folder)),
        }
        std::thread::sleep(Duration::from_micros(round * 97 % 3000));
        let _ = fs::remove_file(&folder);
    }
    assert!(daemon.runs(), "{}", world.told());
    world.drop_in("press/last.json", event("last"));
    world.until_drained();
    daemon.stop();
    outside.check_untouched(&world);
    world.run(&["explain", "--id", "last"]).ok();
}
