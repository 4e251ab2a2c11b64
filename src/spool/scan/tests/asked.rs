//! Tests of looks at what hints name, and of nothing else: what is asked for is found, the rest is
//! as it was seen last, and both together are what a listing of all finds.

use super::*;

fn look(scanner: &mut Scanner, spool: &Spool, at: Duration) -> Scan {
    let (now, wall) = (Instant::now() + at, SystemTime::now() + at);
    scanner.look(spool, Depth::Asked, now, wall).unwrap()
}

fn look_now(scanner: &mut Scanner, spool: &Spool) -> Scan {
    look(scanner, spool, Duration::ZERO)
}

#[test]
fn case_148_a_hint_costs_a_look_at_that_name_and_at_no_other() {
    let (_dir, spool) = new_spool();
    let inbox = spool.inbox();
    for folder in ["gw1", "gw2"] {
        fs::create_dir(inbox.join(folder)).unwrap();
    }
    let mut scanner = Scanner::new(SETTLE, Order::Name);
    assert!(scanner.needs_whole());
    scan_now(&mut scanner, &spool);
    assert!(!scanner.needs_whole());
    for name in ["a", "b", "gw1/a", "gw1/b", "gw2/a"] {
        write_old(&inbox.join(name));
    }
    scanner.changed(inbox.join("gw1/b"));
    assert_eq!(shown(&look_now(&mut scanner, &spool).ready), ["gw1/b"]);
    scanner.moved_in(inbox.join("b"));
    assert_eq!(shown(&look_now(&mut scanner, &spool).ready), ["b", "gw1/b"]);
    // what no hint named is found when all is listed, and named
    let scan = scan_now(&mut scanner, &spool);
    assert_eq!(shown(&scan.ready), ["a", "gw1/a", "gw2/a", "b", "gw1/b"]);
    let mut unannounced = scan.unannounced;
    unannounced.sort();
    assert_eq!(shown(&unannounced), ["a", "gw1/a", "gw2/a"]);
}

#[test]
fn case_148_what_waits_is_looked_at_again_by_name_when_its_time_has_come() {
    let (_dir, spool) = new_spool();
    let mut scanner = Scanner::new(SETTLE, Order::Name);
    scan_now(&mut scanner, &spool);
    let path = spool.inbox().join("a");
    let writer = File::create(&path).unwrap();
    scanner.changed(path.clone());
    let scan = look_now(&mut scanner, &spool);
    let entry = Entry::new(None, "a");
    assert_eq!(scan.waiting, [(entry.clone(), NotReady::StillChanging)]);
    let scan = look(&mut scanner, &spool, SETTLE);
    assert_eq!(scan.waiting, [(entry.clone(), NotReady::OpenForWriting)]);
    drop(writer);
    let scan = look(&mut scanner, &spool, SETTLE + ms(1));
    assert_eq!(scan.waiting, [(entry.clone(), NotReady::OpenForWriting)], "its time has not come");
    // the hint that it was closed
    scanner.changed(path);
    assert_eq!(shown(&look(&mut scanner, &spool, SETTLE + ms(2)).ready), ["a"]);
    scanner.put_back(&entry, 1, Instant::now() + SETTLE);
    let scan = look(&mut scanner, &spool, SETTLE + ms(3));
    assert_eq!(scan.waiting, [(entry.clone(), NotReady::StillChanging)]);
    assert_eq!(shown(&look(&mut scanner, &spool, 3 * SETTLE).ready), ["a"]);
    scanner.left(&entry);
    assert_eq!(look(&mut scanner, &spool, 3 * SETTLE).ready, []);
}

#[test]
fn a_file_is_ready_since_the_look_that_found_it_so() {
    let (_dir, spool) = new_spool();
    let (first, other) = (Entry::new(Some("gw"), "first"), Entry::new(Some("gw"), "other"));
    fs::create_dir(spool.inbox().join("gw")).unwrap();
    write_old(&spool.inbox().join("gw/first"));
    let mut scanner = Scanner::new(SETTLE, Order::Name);
    scan_now(&mut scanner, &spool);
    let since = scanner.ready_since(&first).unwrap();
    fs::write(spool.inbox().join("gw/other"), "[]").unwrap();
    scanner.changed(spool.inbox().join("gw/first"));
    scanner.changed(spool.inbox().join("gw/other"));
    look(&mut scanner, &spool, ms(5000));
    assert_eq!((scanner.ready_since(&first), scanner.ready_since(&other)), (Some(since), None));
    let at = Instant::now() + 3 * SETTLE;
    scanner.look(&spool, Depth::Whole, at, SystemTime::now() + 3 * SETTLE).unwrap();
    assert_eq!(scanner.ready_since(&first), Some(since));
    assert_eq!(scanner.ready_since(&other), Some(at), "and not since it was seen");
    // another file of that name
    write_old(&spool.inbox().join("new"));
    fs::rename(spool.inbox().join("new"), spool.inbox().join("gw/first")).unwrap();
    scanner.look(&spool, Depth::Whole, at + ms(1), SystemTime::now() + 3 * SETTLE).unwrap();
    assert_eq!(scanner.ready_since(&first), Some(at + ms(1)));
}

#[test]
fn case_148_a_new_folder_is_listed_and_listed_again() {
    let (_dir, spool) = new_spool();
    let inbox = spool.inbox();
    let mut scanner = Scanner::new(SETTLE, Order::Name);
    scan_now(&mut scanner, &spool);
    fs::create_dir(inbox.join("gw")).unwrap();
    write_old(&inbox.join("gw/first"));
    scanner.changed(inbox.join("gw"));
    let scan = look_now(&mut scanner, &spool);
    assert_eq!(shown(&scan.ready), ["gw/first"]);
    assert_eq!(scan.look_again_in, Some(NEW_FOLDER_WAIT));
    // before the watch on it began
    write_old(&inbox.join("gw/second"));
    let scan = look(&mut scanner, &spool, NEW_FOLDER_WAIT + ms(1));
    assert_eq!(shown(&scan.ready), ["gw/first", "gw/second"]);
    // a file in a folder that is not known says that the folder is there
    fs::create_dir(inbox.join("new")).unwrap();
    write_old(&inbox.join("new/a"));
    write_old(&inbox.join("new/b"));
    scanner.moved_in(inbox.join("new/b"));
    let scan = look(&mut scanner, &spool, NEW_FOLDER_WAIT + ms(2));
    assert_eq!(shown(&scan.ready), ["new/a", "new/b", "gw/first", "gw/second"]);
}

#[test]
fn what_cannot_be_attributed_asks_for_everything() {
    let (_dir, spool) = new_spool();
    let mut scanner = Scanner::new(SETTLE, Order::Name);
    scan_now(&mut scanner, &spool);
    scanner.changed(spool.inbox().to_owned());
    look_now(&mut scanner, &spool);
    assert!(scanner.needs_whole(), "and goes on to ask until all was looked at");
    look_now(&mut scanner, &spool);
    assert!(scanner.needs_whole());
    scan_now(&mut scanner, &spool);
    assert!(!scanner.needs_whole());
    // more names than are kept
    for number in 0..=100_000 {
        scanner.changed(spool.inbox().join(format!("{number}")));
    }
    look_now(&mut scanner, &spool);
    assert!(scanner.needs_whole());
    scan_now(&mut scanner, &spool);
    scanner.set_settle(SETTLE * 2);
    assert!(scanner.needs_whole(), "when to look again is another time now");
}

#[test]
fn an_inbox_that_is_another_folder_is_looked_at_as_a_whole() {
    let (dir, spool) = new_spool();
    let mut scanner = Scanner::new(SETTLE, Order::Name);
    write_old(&spool.inbox().join("old"));
    scan_now(&mut scanner, &spool);
    fs::rename(spool.inbox(), dir.path().join("away")).unwrap();
    fs::create_dir(spool.inbox()).unwrap();
    write_old(&spool.inbox().join("new"));
    assert_eq!(shown(&look_now(&mut scanner, &spool).ready), ["new"]);
}

#[test]
fn a_fresh_list_believes_what_is_ready() {
    let (_dir, spool) = new_spool();
    let inbox = spool.inbox();
    let mut scanner = Scanner::new(SETTLE, Order::Name);
    write_old(&inbox.join("b"));
    write_old(&inbox.join("c"));
    scan_now(&mut scanner, &spool);
    let (now, wall) = (Instant::now(), SystemTime::now());
    write_old(&inbox.join("a"));
    fs::write(inbox.join("b"), "[ ]").unwrap();
    fs::remove_file(inbox.join("c")).unwrap();
    let scan = scanner.look(&spool, Depth::Names, now, wall).unwrap();
    assert_eq!(shown(&scan.ready), ["a", "b"]);
    assert_eq!(shown(&scan_now(&mut scanner, &spool).ready), ["a"], "b changes");
}

#[test]
fn a_folder_that_is_passed_over_is_listed_when_it_is_not_any_more() {
    let (_dir, spool) = new_spool();
    let inbox = spool.inbox();
    fs::create_dir(inbox.join("gw")).unwrap();
    write_old(&inbox.join("gw/a"));
    let mut scanner = Scanner::new(SETTLE, Order::Name);
    assert_eq!(shown(&scan_now(&mut scanner, &spool).ready), ["gw/a"]);
    scanner.pass_over(["gw"].into_iter());
    write_old(&inbox.join("b"));
    write_old(&inbox.join("gw/c"));
    for path in ["b", "gw/c"] {
        scanner.changed(inbox.join(path));
    }
    assert_eq!(shown(&look_now(&mut scanner, &spool).ready), ["b"]);
    assert_eq!(shown(&scan_now(&mut scanner, &spool).ready), ["b"]);
    scanner.pass_over([].into_iter());
    assert_eq!(shown(&look_now(&mut scanner, &spool).ready), ["gw/a", "b", "gw/c"]);
}

/// Whatever happens, told by the hints that the watch gives for it, looking at what they name finds
/// what a listing of everything finds.
#[test]
fn hinted_looks_find_what_listings_find() {
    let (_dir, spool) = new_spool();
    let inbox = spool.inbox();
    let outside = spool.root().join("outside");
    let mut random = 7_u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let mut scanner = Scanner::new(Duration::ZERO, Order::Name);
    scan_now(&mut scanner, &spool);
    for step in 0..600 {
        let (top, sub) = (draw(4).to_string(), draw(3).to_string());
        let name = if draw(2) == 0 { top.clone() } else { format!("{top}/{sub}") };
        let path = inbox.join(&name);
        let entry = Entry::parse(&name).unwrap();
        match draw(7) {
            0 | 1 => drop(fs::write(&path, "[]").map(|()| scanner.changed(path.clone()))),
            2 => {
                fs::write(&outside, "[]").unwrap();
                drop(fs::rename(&outside, &path).map(|()| scanner.moved_in(path.clone())));
            }
            3 => drop(fs::create_dir(&path).map(|()| scanner.changed(path.clone()))),
            4 => drop(symlink("/nowhere/at-all", &path).map(|()| scanner.changed(path.clone()))),
            5 => {
                let to = inbox.join(draw(4).to_string());
                if fs::rename(&path, &to).is_ok() {
                    scanner.moved_in(to);
                    scanner.look_at(&entry);
                }
            }
            _ => {
                // of removals there are no hints: whoever takes the file says so
                if fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).is_ok() {
                    scanner.look_at(&entry);
                }
            }
        }
        if draw(3) > 0 {
            let found = look(&mut scanner, &spool, Duration::from_secs(10));
            let all = scan_now(&mut Scanner::new(Duration::ZERO, Order::Name), &spool);
            assert_eq!(shown(&found.ready), shown(&all.ready), "step {step}");
            assert_eq!(found.links, all.links, "step {step}");
            assert_eq!(found.odd, all.odd, "step {step}");
        }
    }
}
