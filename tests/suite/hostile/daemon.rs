//! The bad batches of the table as files in an inbox, among good ones: each lies in failed/ with a
//! whole reason, and only the good ones count.

use serde_json::Value;
use sha2::Digest as _;

use super::judge::judge;
use super::table::{batches, gzip, shapes, zstd};
use crate::model::{Event, Model, Settings};
use crate::observed::{assert_report, ndjson};
use crate::world::World;

/// What a reason has, and nothing else.
const MEMBERS: [&str; 14] = [
    "file",
    "source",
    "sha256",
    "bytes",
    "refused_at_ms",
    "code",
    "message",
    "hint",
    "event_index",
    "event_id",
    "field",
    "line",
    "column",
    "byte",
];

/// The most memory that the daemon may ever have had, in KiB; it has 34 MB of its own for a file of
/// any size, in a build with optimisation.
const MOST_KIB: u64 = 80 << 10;

#[test]
fn what_is_bad_fails_with_a_whole_reason_and_counts_nothing() {
    let world = World::with_store(1000, 0);
    let mut model = Model::new(Settings::new(1000, 0));
    let mut bad = Vec::new();
    for (number, row) in batches().into_iter().chain(shapes()).enumerate() {
        let outcome = judge(&row.bytes);
        // in the other places they differ little
        let is_sampled = !row.name.starts_with("shapes")
            || row.name.ends_with(" value")
            || row.name.ends_with(" line");
        let Some(refusal) = outcome.refusal.filter(|_| is_sampled) else { continue };
        let (ending, bytes) = match number % 3 {
            0 => ("json", row.bytes),
            1 => ("json.gz", gzip(&row.bytes)),
            _ => ("json.zst", zstd(&row.bytes)),
        };
        let name = format!("{number:04}.{ending}");
        world.drop_in(&name, &bytes);
        bad.push((row.name, name, bytes, refusal));
        if bad.len() % 20 == 0 {
            let good = [Event::new(format!("good-{number}"), "k", number as i64, 1)];
            world.drop_in(format!("{number:04}.ndjson"), ndjson(&good));
            model.ingest("default", &good, 0).unwrap();
        }
    }
    assert!(bad.len() >= 300, "{}", bad.len());
    let mut daemon = world.daemon();
    world.until_drained();
    let memory_kib = peak_kib(daemon.pid());
    assert!(daemon.runs(), "{}", world.told());
    daemon.stop();
    assert!(memory_kib < MOST_KIB, "{memory_kib} KiB");
    for (row, name, bytes, refusal) in &bad {
        let reason = world.reason(name);
        let members: Vec<_> = reason.as_object().unwrap().keys().map(String::as_str).collect();
        assert!(MEMBERS.iter().all(|member| members.contains(member)), "{row}: {reason}");
        // where an event has a fault, the others of the file are told too
        let of_all = ["faults", "all_faults", "more"];
        let of_first = members.iter().filter(|member| !of_all.contains(member)).count();
        assert_eq!(of_first, MEMBERS.len() + 1, "{row}: {reason}");
        assert_eq!(
            (&reason["file"], &reason["source"]),
            (&Value::from(&**name), &"default".into())
        );
        assert_eq!(reason["sha256"], format!("{:x}", sha2::Sha256::digest(bytes)), "{row}");
        assert_eq!(reason["bytes"], bytes.len(), "{row}");
        // the rest is what the decoder says
        let Value::Object(said) = serde_json::to_value(refusal).unwrap() else { panic!() };
        for (member, value) in said {
            assert_eq!(reason[&member], value, "{row}: {member}");
        }
        let kept = std::fs::read(world.spool().join("failed").join(name)).unwrap();
        assert!(kept == *bytes, "{row}: {name} is not what was dropped");
    }
    assert_eq!(world.names("failed").len(), 2 * bad.len(), "{}", world.told());
    assert_report(&world.report(), &model, &|| world.told());
}

/// The most memory that a process ever had.
pub fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
