//! Tests of the watch: what events mean, and that real ones arrive, neither too few nor too many.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use notify::EventHandler;
use notify::event::{DataChange, Flag, MetadataKind, RemoveKind};

use super::super::Spool;
use super::super::scan::{Order, Scanner};
use super::super::tests::{Home, new_spool};
use super::*;

const TO: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::To));
const FROM: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::From));
const BOTH: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::Both));
const DATA: EventKind = EventKind::Modify(ModifyKind::Data(DataChange::Any));
const CREATE: EventKind = EventKind::Create(CreateKind::File);
const CLOSE_WRITE: EventKind = EventKind::Access(AccessKind::Close(AccessMode::Write));

fn event(kind: EventKind, paths: &[&str]) -> Event {
    let event = Event::new(kind);
    paths.iter().fold(event, |event, path| event.add_path(PathBuf::from(path)))
}

fn meaning(kind: EventKind, paths: &[&str]) -> Option<Hint> {
    hint_of(Path::new("/s/inbox"), &event(kind, paths))
}

fn changed(path: &str) -> Option<Hint> {
    Some(Hint::Changed(PathBuf::from(path)))
}

fn moved(path: &str) -> Option<Hint> {
    Some(Hint::MovedIn(PathBuf::from(path)))
}

#[test]
fn case_002_an_overflow_has_no_path_and_is_read_from_the_flag() {
    let overflow = Event::new(EventKind::Other).set_flag(Flag::Rescan);
    assert_eq!(hint_of(Path::new("/s/inbox"), &overflow), Some(Hint::Rescan));
    assert_eq!(meaning(EventKind::Other, &[]), None);
}

#[test]
fn case_007_created_written_and_linked_files_are_looked_at() {
    for kind in [DATA, CREATE, CLOSE_WRITE, EventKind::Any] {
        for path in ["/s/inbox/a.json", "/s/inbox/gw/a.json"] {
            assert_eq!(meaning(kind, &[path]), changed(path), "{kind:?}");
        }
        for left in ["a.part", ".a", ".git/a", "gw/.a", "gw/a~", "gw/deep/a"] {
            assert_eq!(meaning(kind, &[&format!("/s/inbox/{left}")]), None, "{kind:?} {left}");
        }
    }
    // a folder may have such a name
    let folder = EventKind::Create(CreateKind::Folder);
    assert_eq!(meaning(folder, &["/s/inbox/gw.part"]), changed("/s/inbox/gw.part"));
    assert_eq!(meaning(TO, &["/s/inbox/gw.part"]), changed("/s/inbox/gw.part"));
}

#[test]
fn renames_name_the_file_that_came() {
    assert_eq!(meaning(TO, &["/s/inbox/a.json"]), moved("/s/inbox/a.json"));
    assert_eq!(meaning(TO, &["/s/inbox/gw/a.json"]), moved("/s/inbox/gw/a.json"));
    let both = ["/s/inbox/a.json.tmp", "/s/inbox/a.json"];
    assert_eq!(meaning(BOTH, &both), moved("/s/inbox/a.json"));
    assert_eq!(meaning(TO, &["/s/inbox/gw/a.tmp"]), None);
    assert_eq!(meaning(FROM, &["/s/inbox/a.json"]), None);
}

#[test]
fn what_scans_and_moves_do_means_nothing() {
    for kind in [
        EventKind::Access(AccessKind::Open(AccessMode::Any)),
        EventKind::Access(AccessKind::Read),
        EventKind::Access(AccessKind::Close(AccessMode::Read)),
        EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any)),
        EventKind::Remove(RemoveKind::File),
        FROM,
    ] {
        assert_eq!(meaning(kind, &["/s/inbox/a.json"]), None, "{kind:?}");
    }
    let open = EventKind::Access(AccessKind::Open(AccessMode::Any));
    assert_eq!(meaning(open, &["/s/inbox"]), None);
    assert_eq!(meaning(CREATE, &["/elsewhere/a"]), None);
}

#[test]
fn an_inbox_that_goes_away_ends_the_watch() {
    for kind in [EventKind::Remove(RemoveKind::Folder), FROM] {
        let hint = meaning(kind, &["/s/inbox"]);
        assert!(matches!(hint, Some(Hint::Dead(_))), "{hint:?}");
    }
    // it became readable, perhaps
    let metadata = EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any));
    assert_eq!(meaning(metadata, &["/s/inbox"]), Some(Hint::Look));
}

fn handler(capacity: Option<usize>) -> (Handler, Receiver<Hint>) {
    let (hints, heard) = match capacity {
        Some(capacity) => crossbeam_channel::bounded(capacity),
        None => crossbeam_channel::unbounded(),
    };
    let shared = Arc::default();
    let inbox = PathBuf::from("/s/inbox");
    let writing = HashSet::new();
    (Handler { inbox, hints, shared, writing, last_in: None, last: None }, heard)
}

#[test]
fn hints_neither_pile_up_nor_repeat() {
    let (mut handler, heard) = handler(Some(8));
    let mut tell = |kind, paths: &[&str]| handler.handle_event(Ok(event(kind, paths)));
    let hear = || heard.try_iter().collect::<Vec<_>>();
    for _ in 0..100 {
        tell(CREATE, &["/s/inbox/a"]);
    }
    let changed = |name: &str| Hint::Changed(Path::new("/s/inbox").join(name));
    assert_eq!(hear(), [changed("a")]);
    // made, written and closed: two hints
    for kind in [CREATE, DATA, DATA, CLOSE_WRITE] {
        tell(kind, &["/s/inbox/a"]);
    }
    assert_eq!(hear(), [changed("a")]);
    tell(CREATE, &["/s/inbox/a"]);
    tell(CREATE, &["/s/inbox/x"]);
    tell(CREATE, &["/s/inbox/a"]);
    assert_eq!(hear(), ["a", "x", "a"].map(changed));
    tell(CLOSE_WRITE, &["/s/inbox/x"]);
    assert_eq!(hear(), [changed("x")]);
    // one rename, reported twice
    tell(TO, &["/s/inbox/b"]);
    tell(BOTH, &["/s/inbox/b.tmp", "/s/inbox/b"]);
    assert_eq!(hear(), [Hint::MovedIn("/s/inbox/b".into())]);
    // a large file in the making, heard of once, and again when it is closed
    tell(DATA, &["/s/inbox/c"]);
    assert_eq!(hear(), [changed("c")]);
    tell(DATA, &["/s/inbox/c"]);
    assert_eq!(hear(), []);
    tell(CLOSE_WRITE, &["/s/inbox/c"]);
    assert_eq!(hear(), [changed("c")]);
    tell(DATA, &["/s/inbox/c"]);
    assert_eq!(hear(), [changed("c")]);
}

#[test]
fn lost_hints_are_made_up_for_and_no_channel_grows_without_end() {
    for capacity in [Some(4), None] {
        let (mut handler, heard) = handler(capacity);
        for number in 0..2 * CAPACITY {
            let path = format!("/s/inbox/{number}");
            handler.handle_event(Ok(event(TO, &[&path])));
        }
        let waiting = heard.try_iter().count();
        assert!(waiting <= CAPACITY, "{waiting} hints wait");
        assert!(handler.shared.rescan_owed.load(Ordering::SeqCst));
        handler.handle_event(Ok(event(FROM, &["/s/inbox/1"])));
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [Hint::Rescan]);
        assert!(!handler.shared.rescan_owed.load(Ordering::SeqCst));
    }
}

#[test]
fn a_limit_of_the_kernel_is_named_and_is_no_full_disk() {
    let error = notify::Error::new(ErrorKind::MaxFilesWatch);
    let text = WatchError::new(Path::new("/s/inbox"), error).to_string();
    assert!(text.contains("fs.inotify.max_user_watches"), "{text}");
    let error = notify::Error::io(io::Error::from_raw_os_error(libc::EMFILE));
    let text = WatchError::new(Path::new("/s/inbox"), error).to_string();
    assert!(text.contains("fs.inotify.max_user_instances"), "{text}");

    let (mut handler, heard) = handler(Some(1));
    handler.handle_event(Err(notify::Error::new(ErrorKind::MaxFilesWatch)));
    handler.handle_event(Err(notify::Error::new(ErrorKind::MaxFilesWatch)));
    let Ok(Hint::Dead(why)) = heard.try_recv() else { panic!("no hint") };
    assert!(why.contains("max_user_watches"), "{why}");
    assert!(handler.shared.dead_owed.lock().unwrap().is_some());
}

/// A watch on a spool of its own.
struct World {
    _dir: Home,
    spool: Spool,
    watch: Watch,
    heard: Receiver<Hint>,
}

impl World {
    fn new(prepare: impl FnOnce(&Path)) -> World {
        let (dir, spool) = new_spool();
        prepare(spool.inbox());
        let (hints, heard) = channel();
        let watch = start(spool.inbox(), hints).unwrap();
        World { _dir: dir, spool, watch, heard }
    }

    /// Listens until the hint comes, and answers what came before it.
    fn wait_for(&self, wanted: impl Fn(&Hint) -> bool) -> Vec<Hint> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut before = Vec::new();
        loop {
            match self.heard.recv_deadline(deadline) {
                Ok(hint) if wanted(&hint) => return before,
                Ok(hint) => before.push(hint),
                Err(_) => panic!("the hint never came; instead: {before:?}"),
            }
        }
    }

    /// Renames a file in, whose hint comes after those of all that was done before.
    fn mark(&self) -> Vec<Hint> {
        let outside = self.spool.root().join("mark");
        let inside = self.spool.inbox().join("mark");
        fs::write(&outside, "").unwrap();
        fs::rename(&outside, &inside).unwrap();
        let heard = self.wait_for(|hint| *hint == Hint::MovedIn(inside.clone()));
        fs::remove_file(inside).unwrap();
        heard
    }
}

#[test]
fn a_hundred_scans_of_a_quiet_inbox_make_no_hint() {
    let world = World::new(|inbox| {
        fs::create_dir(inbox.join("gw")).unwrap();
        fs::write(inbox.join("a"), "[]").unwrap();
        fs::write(inbox.join("gw/b"), "[]").unwrap();
    });
    let mut opens = 0;
    for _ in 0..100 {
        // a new scanner each time, without patience: every file is opened for the lease
        let mut scanner = Scanner::new(Duration::ZERO, Order::Name);
        let scan = scanner.scan(&world.spool, Instant::now(), SystemTime::now()).unwrap();
        for entry in scan.ready {
            let opened = crate::spool::safe_open::open_entry(world.spool.inbox(), &entry).unwrap();
            io::copy(&mut opened.file(), &mut io::sink()).unwrap();
            opens += 1;
        }
    }
    assert_eq!(opens, 200);
    assert_eq!(world.mark(), []);
}

#[test]
fn files_are_heard_of_however_they_come() {
    let world = World::new(|inbox| fs::create_dir(inbox.join("gw")).unwrap());
    let inbox = world.spool.inbox();
    let outside = world.spool.root().join("outside");
    fs::write(&outside, "[]").unwrap();

    fs::hard_link(&outside, inbox.join("linked")).unwrap();
    world.wait_for(|hint| *hint == Hint::Changed(inbox.join("linked")));
    world.mark();
    fs::write(inbox.join("gw/written"), "[]").unwrap();
    world.wait_for(|hint| *hint == Hint::Changed(inbox.join("gw/written")));
    world.mark();
    fs::write(inbox.join("a.json.tmp"), "[]").unwrap();
    assert_eq!(world.mark(), []);
    fs::rename(inbox.join("a.json.tmp"), inbox.join("a.json")).unwrap();
    world.wait_for(|hint| *hint == Hint::MovedIn(inbox.join("a.json")));
    fs::rename(&outside, inbox.join("gw/moved")).unwrap();
    world.wait_for(|hint| *hint == Hint::MovedIn(inbox.join("gw/moved")));
}

#[test]
fn new_folders_are_watched_and_looked_into() {
    let world = World::new(|_| {});
    let inbox = world.spool.inbox();
    fs::create_dir(inbox.join("gw")).unwrap();
    world.wait_for(|hint| *hint == Hint::Changed(inbox.join("gw")));
    // the watch on the folder starts soon: until then, and after that, files in it are found
    let deadline = Instant::now() + Duration::from_secs(20);
    let path = inbox.join("gw/a");
    loop {
        fs::write(world.spool.root().join("a"), "[]").unwrap();
        fs::rename(world.spool.root().join("a"), &path).unwrap();
        if world.mark().contains(&Hint::MovedIn(path.clone())) {
            break;
        }
        assert!(Instant::now() < deadline, "the new folder is not watched");
    }
}

#[test]
fn an_inbox_removed_and_made_again_is_noticed() {
    let world = World::new(|_| {});
    assert!(world.watch.is_current());
    fs::remove_dir(world.spool.inbox()).unwrap();
    world.wait_for(|hint| matches!(hint, Hint::Dead(_)));
    assert!(!world.watch.is_current());
    assert_eq!(world.watch.owed(), None);
    fs::create_dir(world.spool.inbox()).unwrap();

    let (hints, heard) = channel();
    let watch = start(world.spool.inbox(), hints).unwrap();
    assert!(watch.is_current());
    fs::write(world.spool.inbox().join("a"), "").unwrap();
    let hint = heard.recv_timeout(Duration::from_secs(20));
    assert_eq!(hint, Ok(Hint::Changed(world.spool.inbox().join("a"))));
}

#[test]
fn a_folder_above_that_is_renamed_is_noticed_by_asking() {
    let world = World::new(|_| {});
    assert!(world.watch.is_current());
    fs::rename(world.spool.root(), world.spool.root().with_file_name("away")).unwrap();
    assert!(!world.watch.is_current());
    fs::create_dir_all(world.spool.inbox()).unwrap();
    assert!(!world.watch.is_current(), "another folder has its path");
}

#[test]
fn dropping_the_watch_is_no_news_and_its_end_is() {
    let (hints, heard) = channel();
    let (_dir, spool) = new_spool();
    drop(start(spool.inbox(), hints).unwrap());
    // the thread ends, and with it the only sender
    let said = heard.recv_timeout(Duration::from_secs(20));
    assert_eq!(said, Err(crossbeam_channel::RecvTimeoutError::Disconnected));

    let (handler, heard) = handler(Some(1));
    drop(handler);
    assert!(matches!(heard.try_recv(), Ok(Hint::Dead(_))), "its end was not told");
}

#[test]
fn a_missing_inbox_cannot_be_watched() {
    let dir = tempfile::tempdir().unwrap();
    let watch = start(&dir.path().join("none"), channel().0);
    assert!(matches!(watch, Err(WatchError::Io(..))), "{watch:?}");
}

#[test]
fn a_folder_that_may_not_be_read_does_not_end_the_watch_on_the_others() {
    use std::os::unix::fs::PermissionsExt;
    let name = "spool::watch::tests::\
                a_folder_that_may_not_be_read_does_not_end_the_watch_on_the_others";
    if !super::super::tests::is_ordinary_user(name) {
        return;
    }
    let folders = ["a", "b", "c", "d", "e"];
    let world = World::new(|inbox| {
        for name in folders {
            fs::create_dir(inbox.join(name)).unwrap();
        }
        fs::set_permissions(inbox.join("c"), fs::Permissions::from_mode(0o000)).unwrap();
    });
    for name in folders.into_iter().filter(|name| *name != "c") {
        let path = world.spool.inbox().join(name).join("file");
        fs::write(&path, "").unwrap();
        world.wait_for(|hint| *hint == Hint::Changed(path.clone()));
        world.mark();
    }
    fs::set_permissions(world.spool.inbox().join("c"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn where_there_is_no_inbox_there_is_no_file_system_to_name() {
    let (_dir, spool) = new_spool();
    assert_eq!(far_file_system(&spool.root().join("nowhere")), None);
}
