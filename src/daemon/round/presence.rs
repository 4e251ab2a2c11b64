//! Which sources are waited for: those that the configuration expects, those that fall silent, and
//! those that are back.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::Round;
use crate::act::{self, Asked};
use crate::daemon::quiet::Spent;
use crate::engine::Presence;
use crate::spool::Entry;
use crate::spool::name::shown;
use crate::spool::scan::Scan;
use crate::store::Snapshot;
use crate::store::sqlite::SqliteStore;
use crate::worker::Trouble;

impl Round {
    /// Declares the sources that the configuration expects, before anything is taken under it.
    pub(super) fn declare(&mut self) -> Result<(), Trouble> {
        if !self.undeclared {
            return Ok(());
        }
        let declared = self.drain.config.sources.declared.clone();
        if !declared.is_empty() {
            self.change_presence(&declared, Presence::Declared, "named in the configuration")?;
        }
        self.undeclared = false;
        Ok(())
    }

    /// Lets sources fall idle from which nothing came for too long, and takes them back before the
    /// first of their files is read.
    pub(super) fn mind_silence(&mut self, scan: &Scan) -> Result<(), Trouble> {
        let spent = std::mem::replace(&mut self.spent, Spent::AtWork(Duration::ZERO));
        self.looked = Instant::now();
        self.next_idle = None;
        self.declare()?;
        let Some(timeout) = self.drain.config.sources.idle_timeout() else { return Ok(()) };
        let rows = SqliteStore::snapshot(&self.drain.db, self.drain.options.clone())
            .and_then(|snapshot| snapshot.sources())
            .map_err(|error| Trouble::from(&error))?;
        let waiting = scan.ready.iter().chain(scan.waiting.iter().map(|(entry, _)| entry));
        let passed_over = self.resting.passed_over();
        let waiting: HashSet<&str> = waiting.map(Entry::source).chain(passed_over).collect();
        let turn = self.quiet.look(&rows, &waiting, spent, timeout);
        self.next_idle = turn.next;
        if !turn.back.is_empty() {
            self.change_presence(&turn.back, Presence::Active, "a file of it is there")?;
        }
        if !turn.idle.is_empty() {
            let why = format!("nothing came from it for {} ms", timeout.as_millis());
            self.change_presence(&turn.idle, Presence::Idle, &why)?;
        }
        Ok(())
    }

    fn change_presence(
        &mut self,
        sources: &[String],
        presence: Presence,
        why: &str,
    ) -> Result<(), Trouble> {
        let asked = Asked { by: "windowflow", reason: Some(why) };
        let names: Vec<&str> = sources.iter().map(String::as_str).collect();
        let done = act::change_presence(self.worker.store(), &names, presence, asked);
        let done = done.map_err(|error| match error {
            act::Error::Store(error) => Trouble::from(&error),
            // only setting the watermark by hand can be behind
            act::Error::Behind { .. } => {
                Trouble::passing("behind", "the watermark would move back")
            }
        })?;
        if done.batch.is_some() {
            let sources: Vec<String> = sources.iter().map(|s| shown(s.as_bytes())).collect();
            log::info!(
                "{}: {} ({why}); watermark {}, windows closed: {}",
                presence.name(),
                sources.join(", "),
                done.watermark_ms,
                done.windows_closed
            );
        }
        Ok(())
    }
}
