//! Tests of opening files and of telling whether they are written to.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use super::*;
use crate::spool::tests::{Home, is_ordinary_user, new_spool};

fn kind_refused(path: &Path) -> Kind {
    match open_regular(path) {
        Err(OpenError::NotRegular(kind)) => kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_regular_files_are_opened_and_nothing_blocks() {
    let dir = Home::new();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "[]").unwrap();
    symlink("file", at("link")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();

    let opened = open_regular(&at("file")).unwrap();
    assert_eq!(opened.bytes(), 2);
    assert_eq!(opened.modified(), fs::metadata(at("file")).unwrap().modified().unwrap());
    opened.sync().unwrap();
    assert_eq!(kind_refused(&at("link")), Kind::Link);
    assert_eq!(kind_refused(&at("dangling")), Kind::Link);
    assert_eq!(kind_refused(&at("folder")), Kind::Folder);
    assert_eq!(kind_refused(&at("pipe")), Kind::Pipe);
    assert_eq!(kind_refused(&at("socket")), Kind::Socket);
    assert_eq!(kind_refused(Path::new("/dev/null")), Kind::Device);
    let gone = open_regular(&at("none"));
    assert!(matches!(gone, Err(OpenError::Gone)), "{gone:?}");
}

#[test]
fn a_link_in_place_of_a_source_folder_leads_nowhere() {
    let (dir, spool) = new_spool();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a"), "secret").unwrap();
    fs::create_dir(spool.inbox().join("gw")).unwrap();
    fs::write(spool.inbox().join("gw/a"), "ours").unwrap();
    let entry = Entry::new(Some("gw"), "a");
    assert_eq!(open_entry(spool.inbox(), &entry).unwrap().bytes(), 4);

    fs::rename(spool.inbox().join("gw"), spool.inbox().join("moved")).unwrap();
    symlink(&outside, spool.inbox().join("gw")).unwrap();
    let opened = open_entry(spool.inbox(), &entry);
    assert!(matches!(opened, Err(OpenError::Gone)), "{opened:?}");
}

#[test]
fn a_file_that_we_may_not_read_is_denied_and_a_folder_is_not_its_fault() {
    let name = "spool::safe_open::tests::\
                a_file_that_we_may_not_read_is_denied_and_a_folder_is_not_its_fault";
    if !is_ordinary_user(name) {
        return;
    }
    let (_dir, spool) = new_spool();
    fs::create_dir(spool.inbox().join("gw")).unwrap();
    let path = spool.inbox().join("gw/a");
    fs::write(&path, "[]").unwrap();
    let entry = Entry::new(Some("gw"), "a");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let opened = open_entry(spool.inbox(), &entry);
    assert!(matches!(opened, Err(OpenError::Denied)), "{opened:?}");
    fs::set_permissions(spool.inbox().join("gw"), fs::Permissions::from_mode(0o000)).unwrap();
    let opened = open_entry(spool.inbox(), &entry);
    assert!(matches!(opened, Err(OpenError::Io(_))), "{opened:?}");
    fs::set_permissions(spool.inbox().join("gw"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_change_after_opening_is_seen_and_a_lost_link_is_none() {
    let dir = Home::new();
    let (path, other) = (dir.path().join("a"), dir.path().join("b"));
    fs::write(&path, "one").unwrap();
    fs::hard_link(&path, &other).unwrap();
    let opened = open_regular(&path).unwrap();
    fs::remove_file(&other).unwrap();
    assert!(opened.unchanged().unwrap());
    // the same size, dated otherwise
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(opened.modified() - Duration::from_nanos(1000)).unwrap();
    assert!(!opened.unchanged().unwrap());
    file.set_modified(opened.modified()).unwrap();
    assert!(opened.unchanged().unwrap());
    // another size, dated the same
    file.set_len(5).unwrap();
    file.set_modified(opened.modified()).unwrap();
    assert!(!opened.unchanged().unwrap());
    assert_eq!(opened.bytes(), 3);
}

#[test]
fn a_writer_is_seen_for_as_long_as_it_has_the_file_open() {
    let dir = Home::new();
    let path = dir.path().join("a");
    let writer = File::create(&path).unwrap();
    let opened = open_regular(&path).unwrap();
    assert_eq!(being_written(opened.file()), Some(true));
    let appender = File::options().append(true).open(&path).unwrap();
    drop(writer);
    assert_eq!(being_written(opened.file()), Some(true));
    drop(appender);
    let _reader = File::open(&path).unwrap();
    assert_eq!(being_written(opened.file()), Some(false));
    // the lease was given back: nobody waits for it
    let again = File::options().write(true).open(&path).unwrap();
    assert_eq!(being_written(opened.file()), Some(true));
    drop(again);
    assert_eq!(being_written(opened.file()), Some(false));
}

#[test]
fn where_the_kernel_cannot_tell_it_does_not_say() {
    // opened for writing ourselves: no lease for such a descriptor, and none for what is no file
    let dir = Home::new();
    assert_eq!(being_written(&File::open(dir.path()).unwrap()), None);
    assert_eq!(being_written(&File::open("/dev/null").unwrap()), None);
}

#[test]
fn who_breaks_the_lease_kills_nobody_and_waits_no_longer_than_it_is_held() {
    let dir = Home::new();
    let path = dir.path().join("a");
    fs::write(&path, "").unwrap();
    let opened = open_regular(&path).unwrap();
    take_lease(opened.file()).unwrap();
    // the kernel sends the signal while this is refused
    let mut options = File::options();
    let writer = options.write(true).custom_flags(libc::O_NONBLOCK).open(&path);
    assert_eq!(writer.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    give_back_lease(opened.file());
    let _writer = options.open(&path).unwrap();
    assert_eq!(being_written(opened.file()), Some(true));
}

#[test]
fn a_file_that_was_taken_back_or_replaced_is_not_led_to() {
    let dir = tempfile::tempdir().unwrap();
    let (inbox, entry) = (dir.path(), Entry::new(Some("gw"), "a.json"));
    fs::create_dir(inbox.join("gw")).unwrap();
    fs::write(inbox.join("gw/a.json"), "old").unwrap();
    let opened = open_entry(inbox, &entry).unwrap();
    assert!(leads_to(inbox, &entry, &opened).unwrap());
    fs::write(inbox.join("gw/new"), "new").unwrap();
    fs::rename(inbox.join("gw/new"), inbox.join("gw/a.json")).unwrap();
    assert!(!leads_to(inbox, &entry, &opened).unwrap());
    fs::remove_dir_all(inbox.join("gw")).unwrap();
    assert!(!leads_to(inbox, &entry, &opened).unwrap());
}
