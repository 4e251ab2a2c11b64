//! What came from outside, through everything that is said: no output for people holds a control
//! character, a mark that turns the direction of text, or a line that a name made up, and JSON is
//! valid.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use serde_json::{Value, json};

use crate::world::World;

/// What a name may do to a terminal, a log or a table. Each begins a line of its own, where it can.
const NASTY: [&str; 16] = [
    "\u{1b}[2J\u{1b}[31mred",
    "a\nFORGED line",
    "a\r\nFORGED line",
    "back\u{8}\u{8}space\u{7}",
    "nul\0nul",
    "del\u{7f}",
    "c1 \u{9b}2J \u{85}FORGED",
    "\u{202e}fdp.exe",
    "\u{2066}isolate\u{2069}",
    "\u{61c}arabic mark\u{200f}",
    "line\u{2028}FORGED\u{2029}FORGED",
    "\u{feff}mark\u{200b}",
    "tag\u{e0041}\u{e007f}",
    "soft\u{ad}hyphen",
    "tab\tFORGED",
    "=HYPERLINK(\"x\")",
];

/// Panics when a text for people holds what a terminal would obey, or a line that a name made up.
fn check_text(what: &str, text: &str) {
    let is_bad = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c,
                '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
                | '\u{e0000}'..='\u{e007f}')
    };
    if let Some(bad) = text.chars().find(|c| is_bad(*c)) {
        let line = text.lines().find(|line| line.contains(bad)).unwrap_or_default();
        panic!("{what}: {bad:?} in {line:?}");
    }
    let forged = text.lines().find(|line| line.trim_start().starts_with("FORGED"));
    assert!(forged.is_none(), "{what}: {text}");
}

fn check_json(what: &str, text: &str) {
    for line in text.lines() {
        // one value over all lines, or one a line
        let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
        assert!(is_json(line) || is_json(text), "{what}: {text}");
    }
}

fn event(id: &str, key: &str, timestamp_ms: i64, source: &str) -> Value {
    json!({"id": id, "key": key, "timestamp_ms": timestamp_ms, "value": 1, "source": source,
           "producer_version": source})
}

fn lines(events: &[Value]) -> String {
    events.iter().map(|event| format!("{event}\n")).collect()
}

/// Names of files: those of the list, and bytes that are no text.
fn file_names() -> Vec<OsString> {
    let names = NASTY.iter().map(|name| name.replace(['/', '\0'], "_"));
    let raw = [&b"\xff\x1b[31m\xfe"[..], b"\x9b2J\xc2"].map(|name| OsString::from_vec(name.into()));
    names.map(OsString::from).chain(raw).collect()
}

/// Fills a store and a spool with nasty names, through the daemon; what it says meanwhile.
fn fill(world: &World, now_ms: i64) -> String {
    let socket = UnixDatagram::bind(world.root().join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let config = world.root().join("windowflow.toml");
    let settings = "inbox.settle_ms = 50\ninbox.rescan_ms = 100\ndaemon.log = \"debug\"\n";
    fs::write(&config, settings).unwrap();
    for (n, name) in NASTY.iter().enumerate() {
        let first = [event(&format!("{name} 1"), name, 100_000, name)];
        let good = [
            event(&format!("{name} late"), name, 100, name),
            event(&format!("{name} held"), name, now_ms + 900_000_000, name),
        ];
        world.drop_in(format!("{n:02}"), lines(&first));
        // what is refused names what it found
        let unknown = json!({"id": name, "key": name, *name: 1});
        let wrong = json!({"id": name, "key": 1, "timestamp_ms": name, "value": name});
        let conflict = event(&format!("{name} 1"), name, 100_001, name);
        world.drop_in(format!("{n:02}-late"), lines(&good));
        world.drop_in(format!("{n:02}-unknown"), lines(&[unknown]));
        world.drop_in(format!("{n:02}-wrong"), lines(&[wrong]));
        world.drop_in(format!("{n:02}-conflict"), lines(&[conflict]));
        world.drop_in(format!("{n:02}-raw"), name);
    }
    for (n, name) in file_names().iter().enumerate() {
        let path = |prefix: &str| [OsStr::new(prefix), name].iter().copied().collect::<OsString>();
        world.drop_in(path("good "), lines(&[event(&format!("file {n}"), "k", 100_000, "s")]));
        world.drop_in(path("bad "), "[1]");
        std::os::unix::fs::symlink("/nowhere", world.inbox().join(path("link "))).unwrap();
        fs::create_dir(world.inbox().join(path("folder "))).unwrap();
        fs::write(world.inbox().join(path("folder ")).join(path("bad ")), "[1]").unwrap();
        fs::create_dir(world.inbox().join(path("folder ")).join(path("deep "))).unwrap();
        let pipe = world.inbox().join(path("pipe "));
        assert!(
            std::process::Command::new("mkfifo").arg("--").arg(pipe).status().unwrap().success()
        );
    }
    let mut command = world.command(&["run", "--config", config.to_str().unwrap()]);
    command.env("NOTIFY_SOCKET", world.root().join("notify"));
    let daemon = world.start(command);
    let mut said = String::new();
    let mut buffer = vec![0; 65536];
    world.eventually("all that can be taken is taken", || {
        while let Ok(bytes) = socket.recv(&mut buffer) {
            said += &String::from_utf8_lossy(&buffer[..bytes]);
            said.push('\n');
        }
        world
            .names("inbox")
            .iter()
            .all(|name| name.starts_with("pipe ") || name.starts_with("folder \\x"))
            && world.state()["daemon"]["phase"] == "idle"
    });
    daemon.signal("HUP");
    daemon.signal("USR1");
    let latest = world.spool().join("reports/latest.json");
    world.eventually("the report is there", || latest.exists());
    daemon.stop();
    said
}

/// Runs a command for a person and for a program; how the first ended.
fn check<S: AsRef<OsStr>>(world: &World, args: &[S]) -> Option<i32> {
    let args: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
    let run = |args: &[&OsStr]| {
        let mut command = world.command(args);
        command.env("USER", "\u{1b}[31m\nFORGED").env_remove("SUDO_USER");
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap_or_else(|_| panic!("{args:?}: bytes"));
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = run(&args);
    check_text(&format!("{args:?}"), &out);
    check_text(&format!("{args:?}"), &err);
    let with_json = [&[OsStr::new("--json")], &args[..]].concat();
    let (_, out, err) = run(&with_json);
    check_json(&format!("{with_json:?}"), &out);
    check_text(&format!("{with_json:?}"), &err);
    code
}

const REASON: &str = "--reason=\u{1b}[31m\nFORGED \u{202e}";

/// Commands that name what is nasty, those of which it is known, and those that lead nowhere.
fn check_commands(world: &World) {
    for name in NASTY.iter().filter(|name| !name.contains('\0')) {
        let [first, late, held] = ["1", "late", "held"].map(|what| format!("{name} {what}"));
        for args in [
            &["explain", "--id", &first][..],
            &["explain", "--id", &late],
            &["explain", "--window-start-ms", "100000", "--key", name],
            &["release", "--id", &held],
            &["discard", "--id", &held],
            &["sources", "--declare", name, REASON],
        ] {
            assert_eq!(check(world, args), Some(0), "{args:?}");
        }
        for args in [
            &["report", "--key", name][..],
            &["retry", name],
            &["ingest", name],
            &["check", name],
            &["advance", name],
        ] {
            check(world, args);
        }
        // a path that the caller names may have lines: it is the caller who reads it
        if !name.contains('\n') {
            check(world, &["report", "--db", name]);
            check(world, &["status", "--spool", name]);
            check(world, &["report", "--config", name]);
        }
    }
    for name in file_names() {
        let by_hand = event("by hand", "\u{1b}[31m", 300_000, "\nFORGED");
        fs::write(world.root().join(&name), lines(&[by_hand])).unwrap();
        for command in [&["check"][..], &["check", "--events"], &["ingest"]] {
            let args = command.iter().map(OsStr::new).chain([OsStr::new("--"), name.as_os_str()]);
            assert_eq!(check(world, &args.collect::<Vec<_>>()), Some(0), "{command:?} {name:?}");
        }
    }
}

/// Has failed for a path in an error that was printed as it is, and for a soft hyphen and an Arabic
/// letter mark in the name of a folder.
#[test]
fn nothing_from_outside_reaches_a_terminal_as_it_is() {
    let world = World::new();
    world.init(1000, 0, &["--max-future-ms", "1000"]);
    let now_ms = windowflow::model::clock::Clock::System.now_ms();
    check_text("notified", &fill(&world, now_ms));
    let log = world.log();
    check_text("the log", &log);
    assert!(log.contains("FORGED") && log.contains("red"), "{log}");
    for entry in fs::read_dir(world.spool().join("failed")).unwrap() {
        let path = entry.unwrap().path();
        if path.as_os_str().as_bytes().ends_with(b".error.json") && path.is_file() {
            let reason: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            check_text("a message", reason["message"].as_str().unwrap());
            check_text("a hint", reason["hint"].as_str().unwrap());
        }
    }
    check_json("latest", &fs::read_to_string(world.spool().join("reports/latest.json")).unwrap());
    let each = |all: &[&str]| {
        for args in all {
            let args: Vec<&str> = args.split(' ').collect();
            assert!(check(&world, &args).is_some(), "{args:?}");
        }
    };
    each(&["report", "late", "held", "sources", "sources --keys", "status", "failed", "lateness"]);
    assert_eq!(check(&world, &["advance", "200000", REASON]), Some(0));
    check_commands(&world);
    assert_eq!(check(&world, &["late", "--apply", REASON]), Some(0));
    each(&["report", "sources", "explain --watermark", "retry --all", "prune", "status"]);
    let ran = world.run(&["run", "--once"]);
    check_text("run --once", &ran.out);
    check_text("run --once", &ran.err);
}
