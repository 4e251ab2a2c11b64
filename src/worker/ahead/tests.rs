//! The thread that reads ahead, where it ends in another way than it should.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use super::*;
use crate::clock::Clock;
use crate::engine::settings::Settings;
use crate::store::memory::MemoryStore;

#[test]
fn case_p5_a_panic_of_the_thread_ends_the_writer_instead_of_letting_it_wait() {
    let entry = Entry::new(None, "a");
    let entries = [&entry];
    let ended = catch_unwind(AssertUnwindSafe(|| {
        thread::scope(|scope| {
            let nowhere = PathBuf::from("/nowhere");
            let settings = Settings::new(1, 0).unwrap();
            let store = MemoryStore::new(settings, Clock::System);
            let limits = Limits::default();
            let trying = Arc::default();
            let waiting: Waiting<'_> = Box::new(|| ControlFlow::Continue(()));
            let besides = (trying, waiting);
            let ahead = Ahead::start(scope, nowhere, &entries, limits, &store, besides);
            let mut ahead = ahead.unwrap();
            let (tell, told) = bounded(1);
            ahead.told = told;
            ahead.thread = Some(scope.spawn(move || {
                let _tell = tell;
                panic!("on purpose");
            }));
            ahead.peek(None).is_some()
        })
    }));
    let said = ended.unwrap_err();
    assert_eq!(said.downcast_ref(), Some(&"on purpose"));
}
