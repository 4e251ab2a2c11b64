//! The reader thread: started once and kept for all groups of files. A thread that is started while
//! the machine is out of memory can die before it does anything, so none is started later.

use std::any::Any;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::thread::{Builder, Result as Ended};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

/// A thread that carries out one task after the other. It ends when this is dropped.
pub(super) struct ReaderThread {
    tasks: Sender<Task>,
}

struct Task {
    run: Box<dyn FnOnce() + Send>,
    end: Sender<Ended<()>>,
}

/// A task that the thread carries out.
pub(super) struct Running {
    ended: Receiver<Ended<()>>,
}

impl ReaderThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no room for another thread.
    pub(super) fn start() -> io::Result<ReaderThread> {
        let (tasks, waiting) = unbounded::<Task>();
        Builder::new().name("reader".to_owned()).spawn(move || {
            for Task { run, end } in waiting {
                // a panic is handed on to whoever waits for the task
                let ended = panic::catch_unwind(AssertUnwindSafe(run));
                // nobody has to wait for the end
                let _ = end.send(ended);
            }
        })?;
        Ok(ReaderThread { tasks })
    }

    /// Has the thread carry out a task, behind those that it has.
    pub(super) fn run(&self, task: impl FnOnce() + Send + 'static) -> Running {
        let (end, ended) = bounded(1);
        // the thread lives as long as this does; if it does not, `wait` returns at once
        let _ = self.tasks.send(Task { run: Box::new(task), end });
        Running { ended }
    }
}

impl Running {
    /// Waits until the task has ended. An error is what it panicked with.
    pub(super) fn wait(self) -> Result<(), Box<dyn Any + Send>> {
        self.ended.recv().unwrap_or(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn case_132_one_thread_carries_out_all_tasks_and_survives_a_panic() {
        let reader = ReaderThread::start().unwrap();
        let (tell, told) = unbounded();
        for n in 0..4 {
            let tell = tell.clone();
            let running = reader.run(move || {
                tell.send(thread::current().id()).unwrap();
                assert!(n != 1, "on purpose");
            });
            assert_eq!(running.wait().is_err(), n == 1, "task {n}");
        }
        let ids: Vec<_> = told.try_iter().collect();
        assert_eq!(ids.len(), 4);
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }
}
