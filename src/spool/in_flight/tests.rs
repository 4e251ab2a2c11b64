//! What a note says of the files that were in hand, by how the process ended.

use std::fs;

use super::*;

struct World {
    _dir: tempfile::TempDir,
    spool: Spool,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        for name in ["a", "b"] {
            fs::write(spool.inbox().join(name), name).unwrap();
        }
        World { _dir: dir, spool }
    }

    /// A process that ends as it is after this; who is suspected by the next one.
    fn after(&self, process: impl FnOnce(&InFlight)) -> Vec<(String, u32)> {
        let (in_flight, _) = InFlight::begin(&self.spool).unwrap();
        process(&in_flight);
        drop(in_flight);
        self.left()
    }

    fn left(&self) -> Vec<(String, u32)> {
        let note = read(&self.spool.root().join(TRYING_FILE)).unwrap();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let found = suspects(&note, boot.trim());
        found.into_iter().map(|suspect| (suspect.file, suspect.deaths)).collect()
    }

    fn opened(&self, name: &str) -> (Entry, Opened) {
        let entry = Entry::new(None, name);
        let opened = safe_open::open_entry(self.spool.inbox(), &entry).unwrap();
        (entry, opened)
    }

    fn take(&self, in_flight: &InFlight, hand: Hand, name: &str) {
        let (entry, opened) = self.opened(name);
        in_flight.take(hand, &entry, &opened);
    }
}

fn one(name: &str, deaths: u32) -> Vec<(String, u32)> {
    vec![(name.to_owned(), deaths)]
}

#[test]
fn who_dies_with_a_file_in_hand_makes_it_suspected_and_who_put_it_down_does_not() {
    let world = World::new();
    assert!(world.after(|_| {}).is_empty());
    let put_down = |in_flight: &InFlight| {
        world.take(in_flight, Hand::Reader, "a");
        in_flight.get_on(Hand::Reader, 3);
        in_flight.put_down(Hand::Reader);
    };
    assert!(world.after(put_down).is_empty());
    for deaths in 1..=3 {
        let both = |in_flight: &InFlight| {
            world.take(in_flight, Hand::Reader, "a");
            world.take(in_flight, Hand::Writer, "a");
        };
        assert_eq!(world.after(both), one("a", deaths));
    }
    // one that has nothing in hand changes nothing
    assert_eq!(world.after(|_| {}), one("a", 3));
}

#[test]
fn the_reader_and_the_writer_are_suspected_together_and_after_a_panic_only_one_of_them() {
    for (excuse, expected) in [
        (Excuse::None, vec![("a".to_owned(), 1), ("b".to_owned(), 1)]),
        (Excuse::Panicked(Hand::Reader), one("a", 1)),
        (Excuse::Panicked(Hand::Writer), one("b", 1)),
        (Excuse::Ending, Vec::new()),
        (Excuse::Stuck, vec![("a".to_owned(), 0), ("b".to_owned(), 0)]),
    ] {
        let world = World::new();
        let both = |in_flight: &InFlight| {
            world.take(in_flight, Hand::Reader, "a");
            world.take(in_flight, Hand::Writer, "b");
            in_flight.excuse(excuse);
        };
        assert_eq!(world.after(both), expected, "{excuse:?}");
    }
}

#[test]
fn deaths_at_other_places_of_a_large_file_do_not_add_up() {
    let world = World::new();
    for step in [2, 30, 60] {
        let far = |in_flight: &InFlight| {
            world.take(in_flight, Hand::Reader, "a");
            in_flight.get_on(Hand::Reader, step);
        };
        assert_eq!(world.after(far), one("a", 1), "{step}");
    }
    for deaths in 2..=3 {
        let there = |in_flight: &InFlight| {
            world.take(in_flight, Hand::Reader, "a");
            in_flight.get_on(Hand::Reader, 60);
            world.take(in_flight, Hand::Writer, "a");
            in_flight.get_on(Hand::Writer, 50 + deaths);
        };
        assert_eq!(world.after(there), one("a", deaths));
    }
    // who was stuck there, and killed for that, adds nothing and takes nothing away
    let stuck = |in_flight: &InFlight| {
        world.take(in_flight, Hand::Reader, "a");
        in_flight.excuse(Excuse::Stuck);
    };
    assert_eq!(world.after(stuck), one("a", 3));
}

#[test]
fn another_file_of_that_name_and_one_that_went_are_not_suspected() {
    let world = World::new();
    let take = |in_flight: &InFlight| world.take(in_flight, Hand::Reader, "a");
    assert_eq!(world.after(take), one("a", 1));
    fs::write(world.spool.root().join("new"), "another").unwrap();
    fs::rename(world.spool.root().join("new"), world.spool.inbox().join("a")).unwrap();
    assert!(InFlight::begin(&world.spool).unwrap().1.is_empty());
    assert_eq!(world.after(take), one("a", 1));
    fs::remove_file(world.spool.inbox().join("a")).unwrap();
    assert!(InFlight::begin(&world.spool).unwrap().1.is_empty());
}

#[test]
fn the_note_of_another_boot_a_damaged_one_and_one_of_the_future_say_nothing() {
    let world = World::new();
    world.after(|in_flight| world.take(in_flight, Hand::Reader, "a"));
    let path = world.spool.root().join(TRYING_FILE);
    let note = fs::read(&path).unwrap();
    assert_eq!(suspects(&note, "another"), []);
    assert_eq!(suspects(&note, ""), []);
    for end in (0..note.len()).step_by(97) {
        let boot = until_nul(&note).to_vec();
        suspects(&note[..end], std::str::from_utf8(&boot).unwrap());
    }
    for noise in [vec![b'x'; 9000], vec![0; 9000], vec![0xff; 5000]] {
        fs::write(&path, noise).unwrap();
        assert!(InFlight::begin(&world.spool).unwrap().1.is_empty());
    }
    // kept suspects stay, whatever the boot
    let suspect = CrashSuspect {
        file: "a".to_owned(),
        deaths: 2,
        stuck: 1,
        panicked: true,
        mark: world.opened("a").1.seen().mark(),
        places: vec!["r0".to_owned()],
    };
    InFlight::begin(&world.spool).unwrap().0.keep(std::slice::from_ref(&suspect)).unwrap();
    assert_eq!(InFlight::begin(&world.spool).unwrap().1, [suspect]);
}

#[test]
fn any_name_that_a_file_can_have_comes_back() {
    let world = World::new();
    let name = std::ffi::OsString::from_vec(
        (1..=255_u8).filter(|byte| *byte != b'/').cycle().take(255).collect(),
    );
    let folder = "ж".repeat(120);
    fs::create_dir(world.spool.inbox().join(&folder)).unwrap();
    fs::write(world.spool.inbox().join(&folder).join(&name), "x").unwrap();
    let entry = Entry::new(Some(&folder), &name);
    let opened = safe_open::open_entry(world.spool.inbox(), &entry).unwrap();
    let found = world.after(|in_flight| in_flight.take(Hand::Writer, &entry, &opened));
    assert_eq!(found, [(entry.shown(), 1)]);
    let (_, suspects) = InFlight::begin(&world.spool).unwrap();
    assert_eq!(suspects[0].entry(), Some(entry));
}
