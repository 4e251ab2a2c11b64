//! Taking what is ready, and saying what became of it.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::thread;
use std::time::Instant;

use super::Round;
use crate::daemon::backoff::Backoff;
use crate::daemon::drain::Drain;
use crate::daemon::state::Phase;
use crate::ingest::Step;
use crate::report;
use crate::spool::Entry;
use crate::spool::name::shown;
use crate::spool::scan::Scan;
use crate::spool::shelve;
use crate::worker::{Pace, Reach, Trouble, Verdict};

/// Shows which file is taken, and how long it may be.
struct Hand<'a> {
    drain: &'a Drain,
}

impl Pace for Hand<'_> {
    fn begin(&mut self, entry: &Entry) -> ControlFlow<()> {
        let shared = &self.drain.shared;
        shared.beat();
        if shared.stopping() {
            return ControlFlow::Break(());
        }
        let mut state = shared.state();
        state.phase = Phase::Working;
        state.file = Some(entry.shown());
        drop(state);
        self.drain.changed();
        ControlFlow::Continue(())
    }

    fn step(&mut self, _: Step) -> ControlFlow<()> {
        self.drain.shared.beat();
        match self.drain.shared.out_of_time() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

impl Round {
    /// Takes what is ready, in order; how many files left the inbox.
    pub(super) fn take_all(&mut self, scan: &Scan) -> Result<usize, Trouble> {
        let mut took = 0;
        if !self.resting.is_empty() {
            let here: HashSet<&Entry> = scan.ready.iter().collect();
            self.resting.retain(|entry, _| here.contains(entry));
        }
        for entry in &scan.links {
            let verdicts = self.worker.refuse_link(entry, &mut Hand { drain: &self.drain });
            took += self.judge(verdicts)?;
        }
        let now = Instant::now();
        let rests =
            |entry: &&Entry| self.resting.get(*entry).is_some_and(|rest| !rest.is_over(now));
        let ready: Vec<&Entry> = scan.ready.iter().filter(|entry| !rests(entry)).collect();
        let mut from = 0;
        while from < ready.len() && !self.drain.shared.stopping() {
            let (taken, left) = self.take_some(&ready[from..])?;
            (from, took) = (from + taken, took + left);
            if taken == 0 {
                break;
            }
        }
        // nothing to do unless something was moved, now or before a sync that failed
        shelve::sync_folders(&self.drain.spool).map_err(|error| {
            let root = shown(self.drain.spool.root().as_os_str().as_encoded_bytes());
            Trouble::passing(format!(
                "cannot sync the folders of {root}: {error}; the user that runs windowflow must be \
                 able to read them; until then a power cut may bring back files that were moved, \
                 which changes no total"
            ))
        })?;
        let mut state = self.drain.shared.state();
        state.file = None;
        state.phase = Phase::Idle;
        state.resting = (self.resting.len() + self.unreadable) as u64;
        drop(state);
        self.drain.changed();
        Ok(took)
    }

    /// Takes these files until there is another configuration for the rest; how many of them were
    /// taken, and how many left the inbox.
    fn take_some(&mut self, ready: &[&Entry]) -> Result<(usize, usize), Trouble> {
        thread::scope(|scope| {
            let mut ahead = self.worker.read_ahead(scope, ready)?;
            let mut left = 0;
            loop {
                let mut hand = Hand { drain: &self.drain };
                let verdicts = self.worker.take_group(&mut ahead, &mut hand);
                let is_over = verdicts.is_empty();
                left += self.judge(verdicts)?;
                if is_over || self.obey() {
                    return Ok((ahead.taken(), left));
                }
            }
        })
    }

    /// What became of files; how many left the inbox. A trouble with one of them is told once all
    /// of them are: what became of those behind it is known, too.
    fn judge(&mut self, verdicts: Vec<(Entry, Verdict)>) -> Result<usize, Trouble> {
        let (mut left, mut trouble) = (0, None);
        for (entry, verdict) in verdicts {
            match self.judged(&entry, verdict) {
                Ok(one) => left += one,
                Err(found) => drop(trouble.get_or_insert(found)),
            }
        }
        trouble.map_or(Ok(left), Err)
    }

    /// What became of one file; 1 when it left the inbox.
    fn judged(&mut self, entry: &Entry, verdict: Verdict) -> Result<usize, Trouble> {
        self.drain.shared.beat();
        if !matches!(verdict, Verdict::Trouble(_)) {
            self.suspected = false;
            self.resting.remove(entry);
            self.backoff.reset();
            self.drain.clear();
        }
        let mut state = self.drain.shared.state();
        match verdict {
            Verdict::Done(done, to) => {
                state.done += 1;
                state.ready = state.ready.saturating_sub(1);
                log::info!(
                    "batch {}: {entry}: {}; watermark {}, windows closed: {}; now {}",
                    done.batch,
                    done.counts,
                    done.watermark_ms,
                    done.windows_closed,
                    shown(to.as_os_str().as_encoded_bytes())
                );
            }
            Verdict::Failed(refused, to) => {
                state.failed += 1;
                state.ready = state.ready.saturating_sub(1);
                let (code, message) = (refused.refusal.code.name(), &refused.refusal.message);
                log::warn!(
                    "refused {entry}: {code}: {}; now {}",
                    report::visible(message),
                    shown(to.as_os_str().as_encoded_bytes())
                );
            }
            Verdict::NotYet => {
                drop(state);
                log::debug!("{entry} is not complete yet: back in line");
                self.scanner.put_back(entry, Instant::now());
                return Ok(0);
            }
            Verdict::Gone => return Ok(0),
            Verdict::Vanished(done) => {
                state.done += 1;
                log::warn!(
                    "batch {}: {entry}: {}; it is in, but its file went away or was replaced \
                     before it could be moved to done/",
                    done.batch,
                    done.counts
                );
            }
            Verdict::Stopped => {
                log::info!("{entry} is undone: it stays in the inbox, for the next start");
                return Ok(0);
            }
            Verdict::Trouble(trouble) if trouble.reach == Reach::File => {
                drop(state);
                self.rest(entry, trouble);
                return Ok(0);
            }
            Verdict::Trouble(trouble) => return Err(trouble),
        }
        Ok(1)
    }

    /// A fault that stands in the way of one file only: the others go on.
    fn rest(&mut self, entry: &Entry, trouble: Trouble) {
        let config = &self.drain.config;
        let rest = self.resting.entry(entry.clone()).or_insert_with(|| Backoff::new(config));
        if rest.tries() == 0 {
            log::error!("{}; trying again later", trouble.text);
        }
        rest.next();
        self.stuck = Some(trouble);
    }
}
