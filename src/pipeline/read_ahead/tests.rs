//! The thread that reads ahead, where it ends in another way than it should.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::engine::settings::Settings;
use crate::model::clock::Clock;
use crate::store::memory::MemoryStore;

#[test]
fn case_p5_a_panic_of_the_thread_ends_the_writer_instead_of_letting_it_wait() {
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let settings = Settings::new(1, 0).unwrap();
        let store = MemoryStore::new(settings, Clock::System);
        let thread = ReaderThread::start().unwrap();
        let entries = [Entry::new(None, "a")];
        let waiting: Waiting<'_> = Box::new(|| ControlFlow::Continue(()));
        let rests = Arc::new(Mutex::new(RefusalBudget::new()));
        let (nowhere, besides) = (PathBuf::from("/nowhere"), (Arc::default(), waiting, rests));
        let limits = Limits::default();
        let mut ahead = ReadAhead::start(&thread, nowhere, entries.into(), limits, &store, besides);
        let (tell, told) = bounded(1);
        ahead.told = told;
        ahead.running = Some(thread.run(move || {
            let _tell = tell;
            panic!("on purpose");
        }));
        ahead.peek(None).is_some()
    }));
    let said = ended.unwrap_err();
    assert_eq!(said.downcast_ref(), Some(&"on purpose"));
}
