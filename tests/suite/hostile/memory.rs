//! What asks for much is refused within the memory that any file has.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use super::bombs::{BOMBS, CAGE_BYTES, Cage, Reach, write_line};
use super::daemon::peak_kib;
use crate::world::{Daemon, World, skip};

/// A daemon in the cage, where there is one.
fn caged<'w>(world: &'w World, cage: Option<&Cage>, more: &[&str]) -> Daemon<'w> {
    let wrapper = cage.map(Cage::wrapper);
    let daemon = match &wrapper {
        Some(wrapper) => world.spawn_under(&wrapper.each_ref().map(String::as_str), more),
        None => world.spawn(more),
    };
    daemon.until_ready();
    daemon
}

fn cage() -> Option<Cage> {
    let cage = Cage::new(CAGE_BYTES);
    if cage.is_none() && rustix::process::geteuid().is_root() {
        skip("a limit of memory", "no control group can be made; the peak is looked at instead");
    }
    cage
}

/// Has failed for names in gzip headers, and for windows of zstd, that were believed.
#[test]
fn bombs_are_refused_in_little_memory() {
    let world = World::with_store(1000, 0);
    let cage = cage();
    let reach = Reach { allowed_bytes: 24 << 20, many: 100_000 };
    let config = world.root().join("windowflow.toml");
    let text = format!("[limits]\nmax_inflated_bytes = {}\n", reach.allowed_bytes);
    std::fs::write(&config, text).unwrap();
    let mut daemon = caged(&world, cage.as_ref(), &["--config", config.to_str().unwrap()]);
    for bomb in &BOMBS {
        let staged = world.root().join("staged");
        let mut out = BufWriter::new(File::create(&staged).unwrap());
        (bomb.write)(&mut out, &reach).unwrap();
        out.flush().unwrap();
        std::fs::rename(&staged, world.inbox().join(bomb.name)).unwrap();
    }
    world.drop_in("zz-good.json", r#"{"id":"a","key":"k","timestamp_ms":1,"value":1}"#);
    world.until_drained();
    assert!(daemon.runs(), "{}", world.told());
    assert!(peak_kib(daemon.pid()) < 200 << 10, "{} KiB", peak_kib(daemon.pid()));
    daemon.stop();
    for bomb in &BOMBS {
        assert_eq!(world.reason(bomb.name)["code"], bomb.code, "{}", bomb.name);
    }
    let totals = &world.report()["totals"];
    assert_eq!((&totals["accepted"], &totals["refused_batches"]), (&1.into(), &14.into()));
}

/// A file of half a megabyte inflates for minutes and brings no event: the daemon is seen to be
/// alive all the while, and ends when it is told to. Has failed for a reader that told of events alone:
/// under systemd the watchdog would have ended the daemon, again and again, for one small file.
#[test]
fn a_file_that_inflates_for_minutes_neither_looks_dead_nor_holds_up_a_stop() {
    let world = World::with_store(1000, 0);
    let socket = UnixDatagram::bind(world.root().join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let config = world.root().join("windowflow.toml");
    std::fs::write(&config, "daemon.stop_grace_ms = 0\n").unwrap();
    let reach = Reach { allowed_bytes: 16 << 30, many: 0 };
    let mut bomb = Vec::new();
    (BOMBS[1].write)(&mut bomb, &reach).unwrap();
    assert!(bomb.len() < 600_000, "{}", bomb.len());
    let mut command = world.command(&["run", "--config", config.to_str().unwrap()]);
    command.env("NOTIFY_SOCKET", world.root().join("notify"));
    command.env("WATCHDOG_USEC", "2000000");
    let mut daemon = world.start(command);
    daemon.until_ready();
    world.drop_in("bomb", &bomb);
    let is_open = || {
        let handles = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
        let links = handles.filter_map(|handle| std::fs::read_link(handle.ok()?.path()).ok());
        links.into_iter().any(|path| path.ends_with("inbox/bomb"))
    };
    world.eventually("it reads the file", is_open);
    // what it said before is worth nothing
    let mut buffer = [0; 4096];
    while socket.recv(&mut buffer).is_ok() {}
    let mut alive = 0;
    world.eventually("it gives signs of life", || {
        while let Ok(bytes) = socket.recv(&mut buffer) {
            alive += usize::from(buffer[..bytes].starts_with(b"WATCHDOG=1"));
        }
        alive >= 8
    });
    assert!(is_open(), "{}", world.told());
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0), "{}", world.told());
    assert_eq!(world.names("inbox"), ["bomb"]);
    assert!(!world.log().contains("ERROR"), "{}", world.log());
}

#[test]
fn case_052_an_array_on_one_line_is_read_within_the_memory_of_any_file() {
    // a gigabyte in the campaign
    const EVENTS: u64 = 200_000;
    let world = World::with_store(100_000, 0);
    let cage = cage();
    let mut daemon = caged(&world, cage.as_ref(), &[]);
    let staged = world.root().join("staged");
    write_line(&staged, EVENTS).unwrap();
    std::fs::rename(&staged, world.inbox().join("line.json")).unwrap();
    world.until_drained();
    assert!(daemon.runs(), "{}", world.told());
    assert!(peak_kib(daemon.pid()) < 96 << 10, "{} KiB", peak_kib(daemon.pid()));
    daemon.stop();
    assert_eq!(world.report()["totals"]["accepted"], EVENTS);
}
