//! Files that are written to after their move: found, left alone while they change, copied once.

use std::fs::{self, File};
use std::io::Write;

use super::*;
use crate::spool::{Spool, moves};

const SETTLE: Duration = Duration::from_secs(1);

struct World {
    _dir: tempfile::TempDir,
    spool: Spool,
    writes: LateWrites,
    start: Instant,
    wall: SystemTime,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let (start, wall) = (Instant::now(), SystemTime::now());
        World { _dir: dir, spool, writes: LateWrites::default(), start, wall }
    }

    /// Puts a file through the inbox, as the worker does.
    fn take_in(&mut self, entry: &Entry, content: &str, batch: u64) -> Moved {
        let path = entry.path_in(self.spool.inbox());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let opened = safe_open::open_entry(self.spool.inbox(), entry).unwrap();
        let moved =
            Moved::new(entry, moves::to_done(&self.spool, entry, &opened).unwrap(), &opened);
        self.writes.moved(&moved, batch, self.start);
        moved
    }

    fn turn(&mut self, after_ms: u64) -> Vec<Changed> {
        let after = Duration::from_millis(after_ms);
        let (now, wall) = (self.start + after, self.wall + after);
        self.writes.turn(self.spool.done(), SETTLE, now, wall)
    }

    fn copy(&mut self, changed: &Changed, after_ms: u64) -> String {
        let copy = Copy::make(&self.spool, &changed.entry, &mut || true).unwrap();
        let copied = copy.copied().clone();
        let to = copy.place(&self.spool).unwrap();
        self.writes.copied(changed, &copied, self.start + Duration::from_millis(after_ms));
        to.strip_prefix(self.spool.inbox()).unwrap().to_str().unwrap().to_owned()
    }
}

fn append(path: &Path, text: &str) {
    File::options().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// Has failed for files that are never looked at again, and for files that always are.
#[test]
fn case_109_a_file_that_grows_after_its_move_is_copied_once_it_stands_still() {
    let mut world = World::new();
    let entry = Entry::new(Some("gw"), "a.json");
    let moved = world.take_in(&entry, "one\n", 7);
    let other = world.take_in(&Entry::new(None, "b.json"), "b\n", 8);
    assert_eq!(world.turn(499), [], "it is not looked at again at once");
    assert_eq!(world.turn(600), []);
    append(&moved.path, "two\n");
    let written = File::options().write(true).open(&moved.path).unwrap();
    written.set_modified(world.wall + Duration::from_millis(1400)).unwrap();
    drop(written);
    assert_eq!(world.turn(1500), [], "it has not been still for long enough");
    let changed = world.turn(60_000);
    let [changed] = &changed[..] else { panic!("{changed:?}") };
    assert_eq!((&changed.entry, changed.batch, changed.copies), (&entry, 7, 0));
    assert_eq!(world.copy(changed, 60_000), "gw/a.json.changed");
    let copy = world.spool.inbox().join("gw/a.json.changed");
    assert_eq!(fs::read_to_string(copy).unwrap(), "one\ntwo\n");
    assert_eq!(fs::read_to_string(&moved.path).unwrap(), "one\ntwo\n", "done/ is not touched");
    assert_eq!(world.turn(120_000), [], "it is as it was copied");
    append(&moved.path, "three\n");
    let changed = world.turn(200_000);
    assert_eq!(changed[0].copies, 1);
    assert_eq!(world.copy(&changed[0], 200_000), "gw/a.json.changed.1");
    // its ten minutes are over
    assert_eq!(world.turn(700_000), []);
    append(&moved.path, "four\n");
    append(&other.path, "more\n");
    assert_eq!(world.turn(800_000), []);
    assert_eq!(world.writes.due(), None);
}

/// Has failed for writers that were not asked about, before the copy and after it.
#[test]
fn case_109_a_changed_file_that_is_open_for_writing_is_left_until_it_is_closed() {
    let mut world = World::new();
    let moved = world.take_in(&Entry::new(None, "a.json"), "one\n", 1);
    let mut writer = File::options().append(true).open(&moved.path).unwrap();
    writer.write_all(b"two\n").unwrap();
    assert_eq!(world.turn(60_000), []);
    assert_eq!(world.turn(500_000), []);
    // one that is opened after it was looked at is not copied either
    let changed = Changed { entry: moved.entry.clone(), batch: 1, copies: 0, key: 0 };
    let made = Copy::make(&world.spool, &changed.entry, &mut || true);
    assert!(matches!(made, Err(NotCopied::Changing)), "{made:?}");
    assert_eq!(fs::read_dir(world.spool.failed()).unwrap().count(), 0, "a draft was left");
    drop(writer);
    // the ten minutes are over, but it changed within them
    assert_eq!(world.turn(900_000).len(), 1);
}

/// Has failed for a copy of a file with a hole as large as the disk.
#[test]
fn case_109_a_file_that_was_made_larger_than_the_disk_is_not_copied() {
    let mut world = World::new();
    let moved = world.take_in(&Entry::new(None, "a.json"), "one\n", 1);
    let free_bytes = crate::os::disk_space::free_bytes(world.spool.root()).unwrap();
    let file = File::options().write(true).open(&moved.path).unwrap();
    file.set_len(free_bytes).unwrap();
    drop(file);
    let made = Copy::make(&world.spool, &moved.entry, &mut || true);
    let Err(NotCopied::TooLarge(text)) = made else { panic!("{made:?}") };
    assert!(text.contains("more than half"), "{text}");
    assert_eq!(fs::read_dir(world.spool.failed()).unwrap().count(), 0);
}

#[test]
fn files_that_are_gone_or_replaced_by_the_next_of_their_name_are_forgotten() {
    let mut world = World::new();
    let entry = Entry::new(None, "a.json");
    let first = world.take_in(&entry, "one\n", 1);
    fs::remove_file(&first.path).unwrap();
    world.take_in(&entry, "another\n", 2);
    let gone = world.take_in(&Entry::new(None, "gone"), "x", 3);
    fs::remove_file(&gone.path).unwrap();
    assert_eq!(world.turn(60_000), []);
    assert_eq!(world.writes.files.len(), 1);
    for n in 0..MOST_FILES as u64 + 50 {
        let name = Entry::new(None, format!("n{n}"));
        let stamp = Some(Stamp { bytes: 0, mtime: (0, 0) });
        let (moved, observation) = (world.start, None);
        world.writes.watch(Watched { entry: name, batch: n, stamp, moved, observation, copies: 0 });
    }
    assert_eq!((world.writes.files.len(), world.writes.keys.len()), (MOST_FILES, MOST_FILES));
    // many looks are spread out
    let first = world.writes.files.len();
    assert_eq!(world.turn(60_200), []);
    assert!(first - world.writes.files.len() <= LOOKS);
    assert_eq!(world.turn(60_250), [], "two turns at once");
    assert!(first - world.writes.files.len() <= LOOKS);
}

fn receipt(world: &World, name: &str, batch: u64, bytes: u64, at: SystemTime) -> Receipt {
    let committed_at_ms = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64;
    let entry = Entry::new(None, name);
    Receipt { batch, entry, bytes, committed_at_ms, moved: world.start }
}

/// Has failed for a start that forgets what was moved or copied before, and for times of writing
/// that were left out.
#[test]
fn case_109_after_a_restart_receipts_tell_which_files_changed() {
    let mut world = World::new();
    let (wall, second) = (world.wall - Duration::from_secs(60), Duration::from_secs(1));
    let put = |world: &World, name: &str, text: &str, at: SystemTime| {
        let path = world.spool.done().join(name);
        fs::write(&path, text).unwrap();
        File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
    };
    // as they were: the same name three times, the second of them gone
    put(&world, "d", "1", wall);
    put(&world, "d.1", "three", wall + 5 * second);
    // grown, rewritten at the same size, removed, and one of long ago in its place
    put(&world, "grown", "1\n2\n", wall + 30 * second);
    put(&world, "rewritten", "2", wall + 30 * second);
    put(&world, "old", "of long ago", wall - 3600 * second);
    let receipts = [
        receipt(&world, "d", 1, 1, wall + second),
        receipt(&world, "d", 2, 2, wall + 3 * second),
        receipt(&world, "d", 3, 5, wall + 6 * second),
        receipt(&world, "grown", 4, 2, wall + second),
        receipt(&world, "rewritten", 5, 1, wall + second),
        receipt(&world, "gone", 6, 1, wall + second),
        receipt(&world, "old", 7, 1, wall + second),
    ];
    let spool = world.spool.clone();
    world.writes.resume(&spool, &receipts);
    let files = |world: &World| {
        let files = world.writes.files.values();
        files.map(|file| (file.batch, file.entry.shown())).collect::<Vec<_>>()
    };
    let expected = [(1, "d"), (3, "d.1"), (4, "grown"), (5, "rewritten")];
    assert_eq!(files(&world), expected.map(|(batch, name)| (batch, name.to_owned())));
    let changed = world.turn(100);
    let names: Vec<_> = changed.iter().map(|changed| changed.entry.shown()).collect();
    assert_eq!(names, ["grown", "rewritten"]);

    // what was copied is known to the next process
    world.copy(&changed[0], 100);
    keep_marks(spool.root(), &world.writes.marks()).unwrap();
    world.writes = LateWrites::default();
    world.writes.resume(&spool, &receipts);
    world.writes.hurry(world.start + second);
    let changed = world.turn(60_000);
    let names: Vec<_> = changed.iter().map(|changed| changed.entry.shown()).collect();
    assert_eq!(names, ["rewritten"]);
    append(&spool.done().join("grown"), "3\n");
    world.writes.hurry(world.start + second);
    let again = world.turn(120_000);
    assert_eq!((again[0].entry.shown(), again[0].copies), ("grown".to_owned(), 1));
}

#[test]
fn a_copy_has_a_name_that_fits_and_what_a_crash_left_is_removed() {
    let mut world = World::new();
    let long = Entry::new(None, "ж".repeat(127));
    let moved = world.take_in(&long, "one\n", 1);
    append(&moved.path, "two\n");
    let changed = world.turn(60_000);
    let name = world.copy(&changed[0], 60_000);
    assert!(name.len() <= 255 && name.ends_with("ж.changed"), "{name}");
    let draft = world.spool.failed().join(crate::spool::reason_file::COPY_NAME);
    fs::write(&draft, "half").unwrap();
    Spool::open(world.spool.root()).unwrap();
    assert!(!draft.exists());
}
