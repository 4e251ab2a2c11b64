//! Tests of the lock and of what is published beside it.

use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::tests::{Home, spawn};
use super::*;

const CHILD: &str = "WINDOWFLOW_TEST_LOCK_CHILD";

/// Ends the other threads of a test however it ends.
struct StopWhenDropped<'a>(&'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn one_at_a_time_and_the_state_outlives_its_holder() {
    let dir = Home::new();
    let root = dir.path().join("deep/spool");
    assert_eq!(peek(&root).unwrap(), Peek::default());
    let mut lock = Lock::take(&root).unwrap();
    assert_eq!(peek(&root).unwrap(), Peek { held: true, state: None, is_mute: false });
    lock.publish(br#"{"pid": 1, "long": "xxxxxxxxxxxxxxxxxxxxxxxxxx"}"#).unwrap();
    lock.publish(br#"{"pid": 2}"#).unwrap();
    let state = Some(br#"{"pid": 2}"#.to_vec());
    assert_eq!(peek(&root).unwrap(), Peek { held: true, state: state.clone(), is_mute: false });

    let refused = Lock::take(&root).unwrap_err();
    assert!(refused.to_string().contains("(pid 2)"), "{refused}");
    let LockError::Held { by: Some(by), .. } = refused else { panic!("{refused}") };
    assert_eq!(by, r#"{"pid": 2}"#);

    drop(lock);
    assert_eq!(peek(&root).unwrap(), Peek { held: false, state, is_mute: false });
    let again = Lock::take(&root).unwrap();
    assert_eq!(std::fs::metadata(root.join(STATE_FILE)).unwrap().len(), BLOCK_BYTES as u64);
    drop(again);
}

#[test]
fn removing_the_file_does_not_give_the_lock_away() {
    let dir = Home::new();
    let _lock = Lock::take(dir.path()).unwrap();
    std::fs::remove_file(dir.path().join(STATE_FILE)).unwrap();
    let second = Lock::take(dir.path());
    assert!(matches!(second, Err(LockError::Held { by: None, .. })), "{second:?}");
    assert_eq!(peek(dir.path()).unwrap(), Peek { held: true, state: None, is_mute: false });
}

#[test]
fn a_state_must_fit() {
    let dir = Home::new();
    let mut lock = Lock::take(dir.path()).unwrap();
    let longest = format!("\"{}\"", "x".repeat(STATE_MAX_BYTES - 2)).into_bytes();
    lock.publish(&longest).unwrap();
    assert_eq!(peek(dir.path()).unwrap().state, Some(longest.clone()));
    let error = lock.publish(&[longest, b" ".to_vec()].concat()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let bytes = std::fs::metadata(dir.path().join(STATE_FILE)).unwrap().len();
    assert_eq!(bytes, BLOCK_BYTES as u64);
}

#[test]
fn who_shares_the_lock_is_waited_for_and_who_has_it_alone_is_not() {
    let dir = Home::new();
    let ours = File::open(dir.path()).unwrap();
    let other = File::open(dir.path()).unwrap();
    let pauses = Cell::new(0);
    let leave = || {
        pauses.set(pauses.get() + 1);
        other.unlock().unwrap();
    };
    other.try_lock_shared().unwrap();
    assert!(try_exclusive(&ours, PATIENCE, leave).unwrap());
    assert_eq!(pauses.get(), 1);
    ours.unlock().unwrap();
    // one that never leaves
    other.try_lock_shared().unwrap();
    assert!(!try_exclusive(&ours, Duration::ZERO, leave).unwrap());
    ours.unlock().unwrap();
    other.unlock().unwrap();
    // a daemon
    other.try_lock().unwrap();
    assert!(!try_exclusive(&ours, PATIENCE, leave).unwrap());
    assert_eq!(pauses.get(), 1);
}

#[test]
fn looking_never_keeps_a_daemon_from_starting() {
    let dir = Home::new();
    drop(Lock::take(dir.path()).unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopWhenDropped(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    peek(dir.path()).unwrap();
                }
            });
        }
        for _ in 0..1000 {
            Lock::take(dir.path()).unwrap();
        }
    });
}

#[test]
fn of_many_that_start_together_one_gets_it() {
    let dir = Home::new();
    for _ in 0..50 {
        let taken = std::thread::scope(|scope| {
            let starts: Vec<_> =
                (0..4).map(|_| scope.spawn(|| Lock::take(dir.path()).ok())).collect();
            let locks: Vec<_> = starts.into_iter().map(|start| start.join().unwrap()).collect();
            locks.iter().flatten().count()
        });
        assert_eq!(taken, 1);
    }
}

#[test]
fn a_state_half_written_is_not_taken_for_one() {
    let dir = Home::new();
    let mut lock = Lock::take(dir.path()).unwrap();
    lock.publish(br#""1111""#).unwrap();
    // half of it and half of another: JSON still
    lock.state.write_all_at(br#""22"#, 0).unwrap();
    let text = std::fs::read(dir.path().join(STATE_FILE)).unwrap();
    assert_eq!(serde_json::from_slice::<String>(&text).unwrap(), "2211");
    assert_eq!(peek(dir.path()).unwrap(), Peek { held: true, state: None, is_mute: false });
    lock.publish(br#""2222""#).unwrap();
    assert_eq!(peek(dir.path()).unwrap().state.unwrap(), br#""2222""#);
}

#[test]
fn a_reader_sees_whole_states_only() {
    let dir = Home::new();
    let mut lock = Lock::take(dir.path()).unwrap();
    let stop = AtomicBool::new(false);
    let mut seen = 0;
    std::thread::scope(|scope| {
        let _stop = StopWhenDropped(&stop);
        scope.spawn(|| {
            let mut number = 0_usize;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                let digit = (number % 10).to_string();
                let text = format!("\"{}\"", digit.repeat(1 + number * 37 % 4000));
                lock.publish(text.as_bytes()).unwrap();
            }
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        while seen < 100 {
            assert!(Instant::now() < deadline, "only {seen} states could be read");
            // one that is being written just now is told from a whole one, and not shown
            let Some(state) = peek(dir.path()).unwrap().state else { continue };
            let text: String = serde_json::from_slice(&state).unwrap();
            let first = text.chars().next().unwrap();
            assert!(text.chars().all(|char| char == first), "a mixture: {text}");
            seen += 1;
        }
    });
}

#[test]
fn the_lock_dies_with_its_process() {
    if let Some(root) = std::env::var_os(CHILD) {
        let mut lock = Lock::take(Path::new(&root)).unwrap();
        lock.publish(b"{}").unwrap();
        println!("\nheld");
        // until killed: the other end of standard input stays open
        io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let name = "spool::lock::tests::the_lock_dies_with_its_process";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(CHILD, dir.path());
    let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let said = BufReader::new(child.stdout.take().unwrap()).lines();
    let held = said.map_while(Result::ok).any(|line| line == "held");
    assert!(held, "the child never had the lock");
    let refused = Lock::take(dir.path());
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");

    child.kill().unwrap();
    child.wait().unwrap();
    Lock::take(dir.path()).unwrap();
}

#[test]
fn whoever_looks_is_told_that_nothing_can_be_said() {
    let dir = Home::new();
    let mut lock = Lock::take(dir.path()).unwrap();
    lock.publish(b"{}").unwrap();
    assert!(!peek(dir.path()).unwrap().is_mute);
    for _ in 0..2 {
        lock.publish(&[b'1'; STATE_MAX_BYTES + 1]).unwrap_err();
        let seen = peek(dir.path()).unwrap();
        assert_eq!((seen.is_mute, seen.state.as_deref()), (true, Some(&b"{}"[..])));
    }
    lock.publish(b"[]").unwrap();
    assert!(!peek(dir.path()).unwrap().is_mute);
    lock.publish(&[b'1'; STATE_MAX_BYTES + 1]).unwrap_err();
    drop(lock);
    assert!(!peek(dir.path()).unwrap().is_mute);
}

/// A forked process has the same open files until it runs its own program; so has a clone.
#[test]
fn a_forked_process_keeps_no_lock() {
    let dir = Home::new();
    let mut lock = Lock::take(dir.path()).unwrap();
    lock.publish(b"{}").unwrap();
    let looked = File::open(dir.path().join(STATE_FILE)).unwrap();
    let inherited = looked.try_clone().unwrap();
    assert!(!is_held(&looked).unwrap());
    drop(looked);
    lock.publish(&[b'1'; STATE_MAX_BYTES + 1]).unwrap_err();
    assert!(peek(dir.path()).unwrap().is_mute, "who only looked kept the lock");
    drop(inherited);

    let inherited = [lock.root.try_clone().unwrap(), lock.state.try_clone().unwrap()];
    drop(lock);
    let state = File::open(dir.path().join(STATE_FILE)).unwrap();
    assert!(!is_held(&state).unwrap(), "who ended kept the lock of the state");
    assert!(!peek(dir.path()).unwrap().held, "who ended kept the lock");
    drop(inherited);
    Lock::take(dir.path()).unwrap();
}
