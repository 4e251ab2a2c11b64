//! Tests of the moves: nothing is overwritten, nothing is lost, and only what was read is moved.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::spool::safe_open::open_entry;
use crate::spool::tests::{is_ordinary_user, names, new_spool};
use std::io::Write;

use super::*;

const REASON: &[u8] = br#"{"code": "bad_json", "message": "no"}"#;

/// Drafts the reason and moves the file beside it.
fn to_failed(
    spool: &Spool,
    entry: &Entry,
    opened: Option<&Opened>,
    reason: &[u8],
) -> Result<PathBuf, MoveError> {
    super::to_failed(
        spool,
        entry,
        opened,
        crate::spool::reason_file::draft_reason(spool, 0, reason)?.sync(spool)?,
    )
}

fn entry(name: impl AsRef<OsStr>) -> Entry {
    Entry::new(None, name.as_ref())
}

fn drop_in(spool: &Spool, entry: &Entry, text: &str) -> Opened {
    let path = entry.path_in(spool.inbox());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    open_entry(spool.inbox(), entry).unwrap()
}

fn fail(spool: &Spool, entry: &Entry, text: &str) -> PathBuf {
    let opened = drop_in(spool, entry, text);
    to_failed(spool, entry, Some(&opened), REASON).unwrap()
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn a_taken_name_gets_a_number_and_a_folder_stands_in_nobodys_way() {
    let (_dir, spool) = new_spool();
    let a = entry("a.json");
    let done = |number: &str| spool.done().join(format!("a.json{number}"));
    assert_eq!(to_done(&spool, &a, &drop_in(&spool, &a, "1")).unwrap(), done(""));
    assert_eq!(to_done(&spool, &a, &drop_in(&spool, &a, "2")).unwrap(), done(".1"));
    fs::create_dir(done(".2")).unwrap();
    assert_eq!(to_done(&spool, &a, &drop_in(&spool, &a, "3")).unwrap(), done(".3"));
    assert_eq!(
        (read(done("")), read(done(".1")), read(done(".3"))),
        ("1".into(), "2".into(), "3".into())
    );

    let b = entry("b.json");
    fs::create_dir(spool.done().join("b.json")).unwrap();
    let path = to_done(&spool, &b, &drop_in(&spool, &b, "4")).unwrap();
    assert_eq!(path, spool.done().join("b.json.1"));
    assert!(names(spool.inbox()).is_empty());
}

#[test]
fn a_thousand_files_of_one_name_are_all_kept() {
    let (_dir, spool) = new_spool();
    let a = entry("a");
    let refused = entry("b");
    for number in 0..1000 {
        to_done(&spool, &a, &drop_in(&spool, &a, &number.to_string())).unwrap();
    }
    // fewer, since each reason is synced
    for number in 0..200 {
        fail(&spool, &refused, &number.to_string());
    }
    let texts = |folder: &Path| {
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let data = paths.filter(|path| path.extension().is_none_or(|end| end != "json"));
        let mut texts: Vec<u32> = data.map(|path| read(path).parse().unwrap()).collect();
        texts.sort_unstable();
        texts
    };
    assert!(texts(spool.done()).into_iter().eq(0..1000));
    assert!(texts(spool.failed()).into_iter().eq(0..200));
    let failed = list_failed(&spool).unwrap();
    assert_eq!(failed.len(), 200);
    assert!(failed.iter().all(|failed| failed.has_reason));
    assert_eq!(read(spool.done().join("a.999")), "999");
}

#[test]
fn names_of_any_bytes_and_length_are_kept_or_shortened() {
    let (_dir, spool) = new_spool();
    let long = "x".repeat(255);
    for name in [&b"\xff.json"[..], b"a\nb", b"\x1b[2J", long.as_bytes()] {
        let entry = entry(OsStr::from_bytes(name));
        let path = to_done(&spool, &entry, &drop_in(&spool, &entry, "1")).unwrap();
        assert_eq!(path.file_name().unwrap().as_bytes(), name);
    }
    let long = entry(&long);
    let path = to_done(&spool, &long, &drop_in(&spool, &long, "2")).unwrap();
    assert_eq!(path.file_name().unwrap().len(), 255);
    assert_eq!(read(path), "2");

    // the reason needs 11 bytes more
    let mut seen = HashSet::new();
    for text in ["1", "2", "3"] {
        let path = fail(&spool, &long, text);
        assert_eq!(read(&path), text);
        let reason = path.with_file_name(reason_name(path.file_name().unwrap()));
        assert_eq!(fs::read(&reason).unwrap(), REASON);
        assert!(seen.insert(path));
    }
    // a shortened name that would end like one to be left alone has a number behind it
    let mean = entry(format!("{}.tmp{}", "y".repeat(240), "z".repeat(11)));
    let name = fail(&spool, &mean, "4").file_name().unwrap().to_owned();
    assert!(!name::is_ignored(name.as_bytes()), "{name:?}");
}

#[test]
fn sources_keep_their_folders_and_a_file_of_that_name_steps_aside() {
    let (_dir, spool) = new_spool();
    let (file, ours) = (entry("gw"), Entry::new(Some("gw"), "a"));
    to_done(&spool, &file, &drop_in(&spool, &file, "file")).unwrap();
    fail(&spool, &file, "refused");
    let opened = drop_in(&spool, &ours, "1");
    assert_eq!(to_done(&spool, &ours, &opened).unwrap(), spool.done().join("gw/a"));
    assert_eq!(fail(&spool, &ours, "2"), spool.failed().join("gw/a"));
    assert_eq!(names(spool.done()), ["gw", "gw.1"]);
    assert_eq!(read(spool.done().join("gw.1")), "file");
    assert_eq!(names(spool.failed()), ["gw", "gw.1", "gw.1.error.json"]);
    let failed: Vec<String> =
        list_failed(&spool).unwrap().iter().map(|failed| failed.entry.shown()).collect();
    assert_eq!(count_failed(&spool).unwrap(), failed.len());
    assert_eq!(failed, ["gw/a", "gw.1"]);
}

#[test]
fn a_link_in_place_of_a_folder_does_not_lead_out_of_the_spool() {
    let (dir, spool) = new_spool();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let ours = Entry::new(Some("gw"), "a");
    let opened = drop_in(&spool, &ours, "1");
    symlink(&outside, spool.done().join("gw")).unwrap();
    assert_eq!(to_done(&spool, &ours, &opened).unwrap(), spool.done().join("gw/a"));
    assert!(names(&outside).is_empty());

    fs::write(outside.join("a"), "not ours").unwrap();
    fs::remove_dir(spool.inbox().join("gw")).unwrap();
    symlink(&outside, spool.inbox().join("gw")).unwrap();
    let moved = to_failed(&spool, &ours, None, REASON);
    assert!(matches!(moved, Err(MoveError::Gone)), "{moved:?}");
    assert_eq!(names(&outside), ["a"]);
}

#[test]
fn only_the_file_that_was_read_is_moved() {
    let (dir, spool) = new_spool();
    let a = entry("a");
    let opened = drop_in(&spool, &a, "old");
    let path = a.path_in(spool.inbox());
    let other = dir.path().join("other");
    fs::write(&other, "new").unwrap();
    fs::rename(&other, &path).unwrap();
    for moved in [to_done(&spool, &a, &opened), to_failed(&spool, &a, Some(&opened), REASON)] {
        assert!(matches!(moved, Err(MoveError::Replaced)), "{moved:?}");
    }
    assert_eq!(read(&path), "new");

    let opened = open_entry(spool.inbox(), &a).unwrap();
    let mut writer = File::options().append(true).open(&path).unwrap();
    writer.write_all(b"er").unwrap();
    for moved in [to_done(&spool, &a, &opened), to_failed(&spool, &a, Some(&opened), REASON)] {
        assert!(matches!(moved, Err(MoveError::Changed)), "{moved:?}");
    }
    assert_eq!(read(&path), "newer");

    let opened = open_entry(spool.inbox(), &a).unwrap();
    fs::remove_file(&path).unwrap();
    for moved in [to_done(&spool, &a, &opened), to_failed(&spool, &a, Some(&opened), REASON)] {
        assert!(matches!(moved, Err(MoveError::Gone)), "{moved:?}");
    }
    fs::create_dir(&path).unwrap();
    let moved = to_failed(&spool, &a, None, REASON);
    assert!(matches!(moved, Err(MoveError::Replaced)), "{moved:?}");
    assert!(names(spool.done()).is_empty() && names(spool.failed()).is_empty());
}

#[test]
fn what_took_the_name_just_before_the_move_is_put_back() {
    let (_dir, spool) = new_spool();
    let a = entry("a");
    let opened = drop_in(&spool, &a, "old");
    let ours = *opened.facts();
    // as if the name had changed hands between the check and the move
    fs::rename(spool.inbox().join("a"), spool.root().join("away")).unwrap();
    fs::write(spool.done().join("a.1"), "new").unwrap();
    let from = folder::open(spool.inbox()).unwrap();
    let to = folder::open(spool.done()).unwrap();
    let placed = (&to, spool.done(), &entry("a.1"));
    let moved = check_moved(&spool, (&from, &a), placed, (&ours, Some(&opened)));
    assert!(matches!(moved, Err(MoveError::Replaced)), "{moved:?}");
    assert_eq!(read(spool.inbox().join("a")), "new");

    // and its name is taken once more by then
    fs::write(spool.done().join("a.1"), "newer").unwrap();
    let moved = check_moved(&spool, (&from, &a), placed, (&ours, Some(&opened)));
    assert!(matches!(moved, Err(MoveError::Replaced)), "{moved:?}");
    assert_eq!(read(spool.inbox().join("a")), "new");
    assert_eq!(read(spool.inbox().join("a.1")), "newer");

    // the right file, written to in that moment
    fs::rename(spool.root().join("away"), spool.done().join("a.1")).unwrap();
    fs::write(spool.done().join("a.1"), "longer").unwrap();
    let moved = check_moved(&spool, (&from, &a), placed, (&ours, Some(&opened)));
    assert!(matches!(moved, Err(MoveError::Changed)), "{moved:?}");
    assert_eq!(names(spool.inbox()), ["a", "a.1", "a.2"]);
    assert!(names(spool.done()).is_empty());
}

#[test]
fn links_and_what_cannot_be_read_are_moved_unopened() {
    let (_dir, spool) = new_spool();
    symlink("/etc/passwd", spool.inbox().join("link")).unwrap();
    let path = to_failed(&spool, &entry("link"), None, REASON).unwrap();
    assert_eq!(fs::read_link(path).unwrap(), Path::new("/etc/passwd"));
    assert_eq!(names(spool.failed()), ["link", "link.error.json"]);
    assert_eq!(list_failed(&spool).unwrap().len(), 1);
}

#[test]
fn files_named_like_reasons_do_not_mix_with_them() {
    let (_dir, spool) = new_spool();
    let (a, like) = (entry("a"), entry("a.error.json"));
    fail(&spool, &a, "first");
    // its name is the reason of the other
    assert_eq!(fail(&spool, &like, "data"), spool.failed().join("a.error.json.1"));

    let (_other_dir, other) = new_spool();
    fail(&other, &like, "data");
    // its reason would be the other
    assert_eq!(fail(&other, &a, "first"), other.failed().join("a.1"));

    let (_third_dir, third) = new_spool();
    fail(&third, &a, "first");
    fs::remove_file(third.failed().join("a.error.json")).unwrap();
    // it would be taken for the reason that is missing
    assert_eq!(fail(&third, &like, "data"), third.failed().join("a.error.json.1"));

    for spool in [&spool, &other, &third] {
        let failed = list_failed(spool).unwrap();
        let mut texts: Vec<String> = failed.iter().map(|failed| read(failed.path(spool))).collect();
        texts.sort();
        assert_eq!(texts, ["data", "first"]);
    }
}

#[test]
fn a_reason_whose_file_never_followed_is_written_over_but_no_file_is() {
    let (_dir, spool) = new_spool();
    let a = entry("a");
    let reason = spool.failed().join("a.error.json");
    // a crash after the reason, with a draft of the next one
    fs::write(&reason, br#"{"code": "empty", "message": "before"}"#).unwrap();
    fs::write(spool.failed().join(crate::spool::reason_file::draft_name(0)), "half").unwrap();
    assert!(list_failed(&spool).unwrap().is_empty());
    assert_eq!(fail(&spool, &a, "1"), spool.failed().join("a"));
    assert_eq!(fs::read(&reason).unwrap(), REASON);
    assert_eq!(names(spool.failed()), ["a", "a.error.json"]);

    // the same for a number
    fs::write(spool.failed().join("a.1.error.json"), REASON).unwrap();
    assert_eq!(fail(&spool, &a, "2"), spool.failed().join("a.1"));

    // a producer's file of such a name, whose own reason somebody removed
    for text in ["[]", r#"{"id": "a", "code": "no code of ours"}"#, "no JSON"] {
        let (_dir, spool) = new_spool();
        let path = spool.failed().join("b.error.json");
        fs::write(&path, text).unwrap();
        assert_eq!(fail(&spool, &entry("b"), "3"), spool.failed().join("b.1"));
        assert_eq!(read(&path), text);
        assert_eq!(list_failed(&spool).unwrap().len(), 2);
    }
}

#[test]
fn without_a_reason_nothing_is_moved() {
    let name = "spool::moves::tests::without_a_reason_nothing_is_moved";
    if !is_ordinary_user(name) {
        return;
    }
    let (_dir, spool) = new_spool();
    let a = entry("a");
    let opened = drop_in(&spool, &a, "1");
    let chmod = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    chmod(spool.failed(), 0o500);
    let moved = to_failed(&spool, &a, Some(&opened), REASON);
    assert!(matches!(moved, Err(MoveError::Io(..))), "{moved:?}");
    assert_eq!(read(spool.inbox().join("a")), "1");
    // the file cannot leave: its reason does not stay behind alone
    chmod(spool.failed(), 0o700);
    chmod(spool.inbox(), 0o500);
    let moved = to_failed(&spool, &a, Some(&opened), REASON);
    assert!(matches!(moved, Err(MoveError::Io(..))), "{moved:?}");
    assert!(names(spool.failed()).is_empty());
    chmod(spool.inbox(), 0o700);
    to_failed(&spool, &a, Some(&opened), REASON).unwrap();
}

#[test]
fn retrying_overwrites_nothing_and_takes_the_reason_along() {
    let (_dir, spool) = new_spool();
    let (a, gw) = (entry("a"), Entry::new(Some("gw"), "b"));
    fail(&spool, &a, "1");
    fail(&spool, &gw, "2");
    fs::remove_dir(spool.inbox().join("gw")).unwrap();
    fs::write(spool.inbox().join("a"), "another").unwrap();

    assert_eq!(back_to_inbox(&spool, &a).unwrap(), spool.inbox().join("a.1"));
    assert_eq!(back_to_inbox(&spool, &gw).unwrap(), spool.inbox().join("gw/b"));
    assert_eq!(read(spool.inbox().join("a")), "another");
    assert_eq!(read(spool.inbox().join("a.1")), "1");
    assert_eq!(read(spool.inbox().join("gw/b")), "2");
    assert_eq!(names(spool.failed()), ["gw"]);
    assert!(names(&spool.failed().join("gw")).is_empty());
    let again = back_to_inbox(&spool, &a);
    assert!(matches!(again, Err(MoveError::Gone)), "{again:?}");
    let folder = back_to_inbox(&spool, &entry("gw"));
    assert!(matches!(folder, Err(MoveError::Replaced)), "{folder:?}");
}

#[test]
fn what_is_listed_says_where_and_how_much() {
    let (_dir, spool) = new_spool();
    let path = fail(&spool, &Entry::new(Some("gw"), "a"), "12345");
    let failed = list_failed(&spool).unwrap();
    assert_eq!(
        failed,
        [Failed {
            entry: Entry::new(Some("gw"), "a"),
            has_reason: true,
            bytes: 5,
            modified: fs::metadata(&path).unwrap().modified().unwrap(),
        }]
    );
    assert_eq!(failed[0].path(&spool), path);
    let reason = spool.failed().join("gw/a.error.json");
    assert_eq!(failed[0].reason_path(&spool), Some(reason));
    assert_eq!(count_failed(&spool).unwrap(), 1);
}

#[test]
fn touched_folders_are_synced_once_and_missing_ones_are_no_matter() {
    let (_dir, spool) = new_spool();
    let (a, gw) = (entry("a"), Entry::new(Some("gw"), "b"));
    to_done(&spool, &a, &drop_in(&spool, &a, "1")).unwrap();
    to_done(&spool, &gw, &drop_in(&spool, &gw, "2")).unwrap();
    let clone = spool.clone();
    let gw = || Some("gw".to_owned());
    let (done, inbox) = (spool.done().to_owned(), spool.inbox().to_owned());
    let expected = [(done.clone(), None), (done, gw()), (inbox.clone(), None), (inbox, gw())];
    assert!(clone.touched.lock().unwrap().iter().eq(expected.iter()));
    fs::remove_dir(spool.inbox().join("gw")).unwrap();
    sync_folders(&spool).unwrap();
    assert!(clone.touched.lock().unwrap().is_empty());
}

/// The folder of a source that became a pipe or a link since files were moved out of it is neither
/// waited for nor followed. Has failed, by waiting, for a sync that opened the path.
#[test]
fn a_folder_that_became_a_pipe_or_a_link_is_synced_no_more() {
    let (dir, spool) = new_spool();
    for (n, becomes) in ["pipe", "link"].into_iter().enumerate() {
        let a = Entry::new(Some("press"), format!("{n}.json"));
        to_done(&spool, &a, &drop_in(&spool, &a, "1")).unwrap();
        let folder = spool.inbox().join("press");
        fs::remove_dir(&folder).unwrap();
        match becomes {
            "pipe" => {
                let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
                let kind = rustix::fs::FileType::Fifo;
                rustix::fs::mknodat(rustix::fs::CWD, &folder, kind, mode, 0).unwrap();
            }
            _ => symlink(dir.path(), &folder).unwrap(),
        }
        let (tell, told) = std::sync::mpsc::channel();
        let synced = spool.clone();
        std::thread::spawn(move || tell.send(sync_folders(&synced)));
        told.recv_timeout(std::time::Duration::from_secs(30)).expect(becomes).unwrap();
        fs::remove_file(&folder).unwrap();
    }
}
