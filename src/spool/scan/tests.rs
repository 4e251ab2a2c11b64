//! Tests of scanning: the rules of readiness with made-up times, and the inbox on a real disk.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Instant, SystemTime};

use super::super::Spool;
use super::super::scanner::{LEAST_WAIT, NEW_FOLDER_LAST_WAIT, NEW_FOLDER_WAIT};
use super::super::tests::{is_ordinary_user, new_spool};
use super::*;

mod asked;

/// So long that a slow machine does not matter: the tests move the clocks themselves.
const SETTLE: Duration = Duration::from_secs(1000);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn shown(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(Entry::shown).collect()
}

/// Writes a file that has been still for long enough.
fn write_old(path: &Path) {
    fs::write(path, "[]").unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - 2 * SETTLE).unwrap();
}

fn scan_now(scanner: &mut Scanner, spool: &Spool) -> Scan {
    scanner.scan(spool, Instant::now(), SystemTime::now()).unwrap()
}

#[test]
fn exactly_the_documented_names_are_taken_whatever_their_bytes() {
    let (_dir, spool) = new_spool();
    let long = "x".repeat(255);
    let taken: [&[u8]; 7] =
        [b"A.JSON", b"\xff.json", b"a\nb.json", b"\x1b[31m", b"a.json ", b"json", long.as_bytes()];
    for name in taken {
        write_old(&spool.inbox().join(OsStr::from_bytes(name)));
    }
    for name in ["xa.json.part", "a.json~", ".a.json.swp", "a.json.gz.tmp"] {
        write_old(&spool.inbox().join(name));
    }
    fs::create_dir(spool.inbox().join(".hidden")).unwrap();
    let scan = scan_now(&mut Scanner::new(SETTLE, Order::Name), &spool);
    let mut expected = taken.map(|name| Entry::new(None, OsStr::from_bytes(name)));
    expected.sort();
    assert_eq!(scan.ready, expected);
    assert_eq!((scan.ignored, scan.odd, scan.look_again_in), (5, vec![], None));
}

#[test]
fn sources_are_one_level_deep_and_oddities_are_left() {
    let (_dir, spool) = new_spool();
    let inbox = spool.inbox();
    for folder in ["gw1", "gw2.tmp", "gw1/deeper", " ", "gw1/.git"] {
        fs::create_dir(inbox.join(folder)).unwrap();
    }
    fs::create_dir(inbox.join(OsStr::from_bytes(b"\xff"))).unwrap();
    for file in ["b", "gw1/b", "gw1/a", "gw2.tmp/a", "gw1/deeper/lost", " /lost"] {
        write_old(&inbox.join(file));
    }
    symlink("gw1", inbox.join("linked-folder")).unwrap();
    symlink("/etc/passwd", inbox.join("gw1/link")).unwrap();
    symlink("nowhere", inbox.join("left.tmp")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, inbox.join("pipe"), fifo, mode, 0).unwrap();
    let _socket = UnixListener::bind(inbox.join("gw1/socket")).unwrap();

    let scan = scan_now(&mut Scanner::new(SETTLE, Order::Name), &spool);
    assert_eq!(shown(&scan.ready), ["gw1/a", "gw2.tmp/a", "b", "gw1/b"]);
    assert_eq!(shown(&scan.links), ["gw1/link", "linked-folder"].map(str::to_owned));
    let odd: Vec<_> = scan.odd.iter().map(|odd| (odd.entry.shown(), odd.oddity.clone())).collect();
    let expected = [
        (" ", Oddity::NotASource),
        ("gw1/deeper", Oddity::TooDeep),
        ("pipe", Oddity::Special(Kind::Pipe)),
        ("gw1/socket", Oddity::Special(Kind::Socket)),
        (r"\xff", Oddity::NotASource),
    ];
    assert_eq!(odd, expected.map(|(name, oddity)| (name.to_owned(), oddity)));
    assert_eq!(scan.ignored, 2);
    let said = scan.odd[2].to_string();
    assert_eq!(said, "inbox/pipe is a named pipe: left alone; remove it");
}

#[test]
fn the_order_is_by_name_or_by_time_on_request() {
    let (_dir, spool) = new_spool();
    for (name, age) in [("b", 30), ("a", 10), ("c", 20), ("d", 20)] {
        write_old(&spool.inbox().join(name));
        let file = File::options().write(true).open(spool.inbox().join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1000 - age)).unwrap();
    }
    let mut scanner = Scanner::new(SETTLE, Order::Name);
    assert_eq!(shown(&scan_now(&mut scanner, &spool).ready), ["a", "b", "c", "d"]);
    scanner.set_order(Order::Mtime);
    assert_eq!(shown(&scan_now(&mut scanner, &spool).ready), ["b", "c", "d", "a"]);
}

#[test]
fn hints_and_links_make_a_young_file_ready_and_writers_keep_it_back() {
    let (dir, spool) = new_spool();
    fs::create_dir(spool.inbox().join("gw")).unwrap();
    for name in ["moved", "plain", "gw/moved"] {
        fs::write(spool.inbox().join(name), "[]").unwrap();
    }
    let outside = dir.path().join("outside");
    fs::write(&outside, "[]").unwrap();
    fs::hard_link(&outside, spool.inbox().join("linked")).unwrap();
    let writer = File::create(spool.inbox().join("open")).unwrap();
    let outside = dir.path().join("outside-open");
    let linker = File::create(&outside).unwrap();
    fs::hard_link(&outside, spool.inbox().join("linked-open")).unwrap();
    let (now, wall) = (Instant::now(), SystemTime::now());

    let mut scanner = Scanner::new(SETTLE, Order::Name);
    for name in ["moved", "gw/moved", "gone"] {
        scanner.moved_in(spool.inbox().join(name));
    }
    scanner.moved_in(PathBuf::from("/somewhere/else"));
    let scan = scanner.scan(&spool, now, wall).unwrap();
    assert_eq!(shown(&scan.ready), ["linked", "moved", "gw/moved"]);
    let waiting = |name| Entry::new(None, name);
    let open = |name| (waiting(name), NotReady::OpenForWriting);
    let changing = |name| (waiting(name), NotReady::StillChanging);
    assert_eq!(scan.waiting, [open("linked-open"), changing("open"), changing("plain")]);
    let longest = Some((waiting("linked-open"), now));
    assert_eq!(scan.longest_open, longest);
    assert!(scan.look_again_in.is_some_and(|wait| wait <= SETTLE), "{:?}", scan.look_again_in);

    // the hint for a name that was not there does not wait for one to come
    let gone = File::create(spool.inbox().join("gone")).unwrap();
    gone.set_modified(wall + ms(500)).unwrap();
    drop(gone);
    let scan = scanner.scan(&spool, now + SETTLE, wall + SETTLE).unwrap();
    assert_eq!(shown(&scan.ready), ["linked", "moved", "gw/moved", "plain"]);
    assert_eq!(scan.waiting, [changing("gone"), open("linked-open"), open("open")]);
    assert_eq!(scan.longest_open, longest);

    drop((writer, linker));
    let later = 3 * SETTLE;
    let scan = scanner.scan(&spool, now + later, wall + later).unwrap();
    assert_eq!(scan.waiting, []);
    assert_eq!(scan.longest_open, None);
    assert_eq!(scan.look_again_in, None);
}

#[test]
fn what_is_put_back_waits_anew_even_if_it_came_whole() {
    let (dir, spool) = new_spool();
    fs::write(dir.path().join("outside"), "[").unwrap();
    fs::hard_link(dir.path().join("outside"), spool.inbox().join("a")).unwrap();
    let (now, wall) = (Instant::now(), SystemTime::now());
    let mut scanner = Scanner::new(SETTLE, Order::Name);
    let entry = Entry::new(None, "a");
    let scan = scanner.scan(&spool, now, wall).unwrap();
    assert_eq!(scan.ready, std::slice::from_ref(&entry));
    scanner.put_back(&entry, 1, now);
    scanner.put_back(&Entry::new(Some("no"), "such"), 1, now);
    let scan = scanner.scan(&spool, now + SETTLE - ms(1), wall + SETTLE - ms(1)).unwrap();
    assert_eq!(scan.waiting, [(entry.clone(), NotReady::StillChanging)]);
    assert_eq!(scan.look_again_in, Some(LEAST_WAIT));
    let scan = scanner.scan(&spool, now + SETTLE, wall + SETTLE).unwrap();
    assert_eq!(scan.ready, [entry]);
}

#[test]
fn a_clock_that_is_set_is_not_believed_until_all_was_watched() {
    let (_dir, spool) = new_spool();
    fs::write(spool.inbox().join("a"), "[").unwrap();
    let (now, wall) = (Instant::now(), SystemTime::now());
    let day = Duration::from_secs(86_400);
    let mut scanner = Scanner::new(SETTLE, Order::Name);
    scanner.scan(&spool, now, wall).unwrap();
    fs::write(spool.inbox().join("b"), "[").unwrap();
    // forward: both look a day old
    let scan = scanner.scan(&spool, now + ms(10), wall + day).unwrap();
    assert_eq!((scan.ready.len(), scan.waiting.len()), (0, 2));
    let scan = scanner.scan(&spool, now + SETTLE, wall + day + SETTLE - ms(10)).unwrap();
    assert_eq!(shown(&scan.ready), ["a"]);
    let scan = scanner.scan(&spool, now + SETTLE + ms(10), wall + day + SETTLE).unwrap();
    assert_eq!(shown(&scan.ready), ["a", "b"]);
    // back again: both are dated in the future
    fs::write(spool.inbox().join("c"), "[").unwrap();
    let scan = scanner.scan(&spool, now + SETTLE + ms(20), wall).unwrap();
    assert_eq!((shown(&scan.ready), scan.waiting.len()), (vec!["a".into(), "b".into()], 1));
}

#[test]
fn a_new_folder_is_looked_into_again_since_its_watch_starts_late() {
    let (_dir, spool) = new_spool();
    fs::create_dir(spool.inbox().join("first")).unwrap();
    let mut scanner = Scanner::new(SETTLE, Order::Name);
    assert_eq!(scan_now(&mut scanner, &spool).look_again_in, None);
    fs::create_dir(spool.inbox().join("second")).unwrap();
    let (now, wall) = (Instant::now(), SystemTime::now());
    let mut again = |at| scanner.scan(&spool, now + at, wall + at).unwrap().look_again_in;
    assert_eq!(again(ms(0)), Some(NEW_FOLDER_WAIT));
    let last = NEW_FOLDER_LAST_WAIT - NEW_FOLDER_WAIT;
    assert_eq!(again(NEW_FOLDER_WAIT), Some(last), "on a busy machine it takes longer");
    assert_eq!(again(NEW_FOLDER_LAST_WAIT), None);
}

#[test]
fn what_went_away_is_forgotten() {
    let (_dir, spool) = new_spool();
    fs::create_dir(spool.inbox().join("gw")).unwrap();
    let mut scanner = Scanner::new(SETTLE, Order::Name);
    for number in 0..3000 {
        fs::write(spool.inbox().join(format!("gw/{number}")), "").unwrap();
    }
    assert_eq!(scan_now(&mut scanner, &spool).waiting.len(), 3000);
    fs::remove_dir_all(spool.inbox().join("gw")).unwrap();
    fs::write(spool.inbox().join("one"), "").unwrap();
    scan_now(&mut scanner, &spool);
    assert_eq!(scanner.seen.len(), 1);
    assert_eq!(scanner.seen[&None].files.len(), 1);
    assert!(scanner.hinted.is_empty());
}

#[test]
fn a_missing_inbox_is_an_error_of_its_own() {
    let (_dir, spool) = new_spool();
    let mut scanner = Scanner::new(SETTLE, Order::Name);
    fs::remove_dir(spool.inbox()).unwrap();
    let error = scanner.scan(&spool, Instant::now(), SystemTime::now()).unwrap_err();
    assert!(error.to_string().starts_with("inbox unreadable: /"), "{error}");
    fs::create_dir(spool.inbox()).unwrap();
    write_old(&spool.inbox().join("a"));
    assert_eq!(scan_now(&mut scanner, &spool).ready.len(), 1);
}

#[test]
fn an_unreadable_folder_is_never_an_empty_one() {
    if !is_ordinary_user("spool::scan::tests::an_unreadable_folder_is_never_an_empty_one") {
        return;
    }
    let (_dir, spool) = new_spool();
    let gw = spool.inbox().join("gw");
    fs::create_dir(&gw).unwrap();
    write_old(&gw.join("a"));
    write_old(&spool.inbox().join("b"));
    let chmod = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let mut scanner = Scanner::new(SETTLE, Order::Name);
    // neither without listing nor without searching
    for mode in [0o000, 0o300, 0o600] {
        chmod(&gw, mode);
        let scan = scan_now(&mut scanner, &spool);
        assert_eq!(shown(&scan.ready), ["b"]);
        assert_eq!(scan.odd.len(), 1, "mode {mode:o}");
        assert_eq!(scan.odd[0].entry, Entry::new(None, "gw"));
        assert!(matches!(scan.odd[0].oddity, Oddity::Unreadable(_)), "{:?}", scan.odd);

        chmod(&gw, 0o700);
        chmod(spool.inbox(), mode);
        let error = scanner.scan(&spool, Instant::now(), SystemTime::now()).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::PermissionDenied, "mode {mode:o}");
        chmod(spool.inbox(), 0o700);
        assert_eq!(shown(&scan_now(&mut scanner, &spool).ready), ["gw/a", "b"]);
    }
    // what may not be read is ready all the same: it has to be refused, not waited for
    chmod(&gw.join("a"), 0o000);
    assert_eq!(
        shown(&scan_now(&mut Scanner::new(SETTLE, Order::Name), &spool).ready),
        ["gw/a", "b"]
    );
}
