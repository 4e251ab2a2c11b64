//! A spool on an overlay whose files lie in the lower layer: a file is copied up, and gets another
//! time of birth, when it is first renamed or changed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use windowflow::spool::in_flight::{Hand, InFlight};
use windowflow::spool::{Entry, Spool, safe_open};

use super::{accepted, one, write_config};
use crate::world::{World, skip};

/// Has failed for a time of birth that is compared, in a move and in the note of what was in hand.
#[test]
fn case_125_files_in_the_lower_layer_of_an_overlay_are_taken_once() {
    let name = "daemon::overlay::in_the_lower_layer";
    let folder = tempfile::tempdir().unwrap();
    // a disk of our own, seen by this process and its children only; 77: an overlay cannot be had
    let script = "mount -t tmpfs tmpfs \"$1\" && mkdir \"$1/l\" \"$1/u\" \"$1/w\" \"$1/m\" && \
                  mount -t overlay overlay -o \"lowerdir=$1/l,upperdir=$1/u,workdir=$1/w\" \"$1/m\" \
                  && umount \"$1/m\" && rm -r \"$1/u\" \"$1/w\" || exit 77; shift; exec \"$@\"";
    let root = rustix::process::geteuid().is_root();
    let ran = Command::new("unshare")
        .arg(if root { "-m" } else { "-Urm" })
        .args(["sh", "-c", script, "sh"])
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .args([name, "--exact", "--ignored", "--nocapture"])
        .env("TMPDIR", folder.path())
        .output();
    let is_refused = |err: &[u8]| String::from_utf8_lossy(err).contains("unshare:");
    let ran = match ran {
        Ok(ran) if ran.status.code() != Some(77) && !is_refused(&ran.stderr) => ran,
        other => return skip("a spool on an overlay", &format!("none can be mounted: {other:?}")),
    };
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}\n{err}");
    assert!(out.contains("1 passed"), "{name} was not run: {out}");
}

/// Lays an overlay over that folder, whose files are in the lower layer from then on.
fn lay_over(folder: &Path) {
    let beside = folder.parent().unwrap();
    let (upper, work) = (beside.join("upper"), beside.join("work"));
    fs::create_dir(&upper).unwrap();
    fs::create_dir(&work).unwrap();
    let shown = |path: &Path| path.to_str().unwrap().to_owned();
    let layers =
        format!("lowerdir={},upperdir={},workdir={}", shown(folder), shown(&upper), shown(&work));
    let mut mount = Command::new("mount");
    mount.args(["-t", "overlay", "overlay", "-o", &layers]).arg(folder);
    assert!(mount.status().unwrap().success());
}

#[test]
#[ignore = "mounts an overlay; the test of case 125 runs it where that is seen by nobody else"]
fn in_the_lower_layer() {
    let world = World::with_store(1000, 0);
    for name in ["a.json", "gw/b.json", ".poison"] {
        world.drop_in(name, one(name));
    }
    world.drop_in("bad.json", "{");
    symlink("a.json", world.inbox().join("link.json")).unwrap();
    let config = write_config(&world, &[]);
    lay_over(&world.spool());

    // what a process died of is known to the next one, whatever happens to the file's birth
    let spool = Spool::at(&world.spool());
    let entry = Entry::new(None, ".poison");
    let (in_flight, _) = InFlight::begin(&spool).unwrap();
    let opened = safe_open::open_entry(spool.inbox(), &entry).unwrap();
    in_flight.take(Hand::Reader, &entry, &opened);
    drop(in_flight);
    let poison = world.inbox().join(".poison");
    let born = || fs::metadata(&poison).unwrap().created().unwrap();
    let before = born();
    fs::set_permissions(&poison, fs::Permissions::from_mode(0o600)).unwrap();
    assert_ne!(born(), before, "this overlay keeps times of birth: nothing is tried here");
    assert!(
        opened.unchanged().unwrap() && safe_open::leads_to(spool.inbox(), &entry, &opened).unwrap()
    );
    let (_, suspects) = InFlight::begin(&spool).unwrap();
    assert_eq!(suspects.len(), 1);
    fs::remove_file(&poison).unwrap();

    let ran = world.run(&["run", "--once", "--config", &config]).exits(65);
    assert_eq!(world.names("done"), ["a.json", "gw/b.json"], "{}", world.told());
    let failed = ["bad.json", "bad.json.error.json", "link.json", "link.json.error.json"];
    assert_eq!(world.names("failed"), failed, "{}", world.told());
    assert_eq!(world.names("inbox"), Vec::<String>::new());
    assert!(!ran.err.contains("replaced"), "{}", ran.err);
    assert_eq!(accepted(&world), 2);
    let totals = world.report()["totals"].clone();
    let once = (&2.into(), &2.into(), &0.into());
    let got = (&totals["batches"], &totals["refused_batches"], &totals["duplicate"]);
    assert_eq!(got, once, "{totals}");
}
