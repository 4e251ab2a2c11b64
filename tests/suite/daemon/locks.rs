//! Locks that fail, once and for good, at every call that takes or gives one.

use super::{accepted, one, write_config};
use crate::world::{World, has_tool};

/// Three batches, one after the other, with the n-th call for a lock failing in the thread that
/// writes. Whether there were so many calls at all.
fn run_with(inject: &str) -> bool {
    let world = World::with_store(1000, 0);
    let config = write_config(&world, &[("daemon.busy_timeout_ms", "300")]);
    let trace = world.root().join("trace");
    let strace = ["strace", "-D", "-f", "-qq", "-o", trace.to_str().unwrap(), "-e", "trace=fcntl"];
    let wrapper = [&strace[..], &["-e", inject]].concat();
    let mut daemon = world.spawn_under(&wrapper, &["--config", &config]);
    for n in 0..3 {
        world.drop_in(format!("{n}.json"), one(&format!("id-{n}")));
        world.eventually("it is in", || {
            assert!(daemon.runs(), "{inject}: it gave up: {}", world.told());
            world.names("inbox").is_empty()
        });
    }
    let failed = std::fs::read_to_string(&trace).unwrap().contains("INJECTED");
    daemon.stop();
    assert_eq!(world.names("failed"), Vec::<String>::new(), "{inject}");
    world.drain().ok();
    assert_eq!(accepted(&world), 3, "{inject}: {}", world.told());
    assert_eq!(world.names("done").len(), 3, "{inject}");
    failed
}

/// A lock that fails to come off is left in our own process, and every later batch finds the store
/// busy, until the connection is opened again. Without that, the daemon gives up at some of them.
#[test]
fn a_lock_that_fails_once_at_any_call_is_got_over() {
    if !has_tool("strace", "a lock that fails at each call") {
        return;
    }
    let mut calls = 0;
    while run_with(&format!("inject=fcntl:error=ENOLCK:when={}", calls + 1)) {
        calls += 1;
    }
    assert!(calls > 20, "only {calls} calls for a lock were there to fail");
}
