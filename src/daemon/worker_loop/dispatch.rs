//! Taking what is ready, and saying what became of it.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use super::WorkerLoop;
use crate::daemon::faults::FaultPart;
use crate::daemon::quarantine::Turn;
use crate::daemon::state::Phase;
use crate::daemon::worker_context::WorkerContext;
use crate::pipeline::ingest::Step;
use crate::pipeline::worker::{Failure, FileOutcome, Pace, Scope};
use crate::query::report;
use crate::spool::Entry;
use crate::spool::blame;
use crate::spool::move_error::MoveError;
use crate::spool::moves;
use crate::spool::name::shown;
use crate::spool::scan::Scan;

/// Shows which file is taken, and how long it may be.
struct Hand<'a> {
    context: &'a WorkerContext,
}

impl Pace for Hand<'_> {
    fn begin(&mut self, entry: &Entry) -> ControlFlow<()> {
        let shared = &self.context.shared;
        shared.beat();
        if shared.stopping() {
            return ControlFlow::Break(());
        }
        let mut state = shared.state();
        state.phase = Phase::Working;
        state.file = Some(entry.shown());
        drop(state);
        self.context.changed();
        ControlFlow::Continue(())
    }

    fn step(&mut self, _: Step) -> ControlFlow<()> {
        self.context.shared.beat();
        match self.context.shared.out_of_time() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

impl WorkerLoop {
    /// Takes what is ready, in order; how many files left the inbox.
    pub(super) fn take_all(&mut self, scan: &Scan) -> Result<usize, Failure> {
        let now = Instant::now();
        let mut took = 0;
        self.forget_gone(scan);
        self.resting.keep_changed(scan);
        self.rested = false;
        let links: HashSet<&Entry> = scan.links.iter().collect();
        let due = self.resting.due(scan.ready.iter().chain(&scan.links), now);
        let (links, mut ready): (Vec<&Entry>, Vec<&Entry>) =
            due.into_iter().partition(|entry| links.contains(entry));
        self.fairness.order(&mut ready, |entry| self.scanner.ready_since(entry), now);
        let ready =
            ready.into_iter().map(|entry| (entry, self.context.quarantine.turn(entry, now)));
        let is_last = |turn: &Turn| !matches!(turn, Turn::Now | Turn::Alone);
        let (last, ready): (Vec<_>, Vec<_>) = ready.partition(|(_, turn)| is_last(turn));
        took += self.take_in_order(&ready)?;
        if !self.must_look || !self.is_stale() {
            took += self.refuse_links(links)?;
            took += self.take_last(&last)?;
        }
        blame::remove_trials(&self.context.spool);
        // nothing to do unless something was moved, now or before a sync that failed
        moves::sync_folders(&self.context.spool).map_err(unsynced)?;
        let (resting, rests) = (self.resting.len(), self.resting.shown());
        let mut state = self.context.shared.state();
        state.file = None;
        state.phase = if resting > 0 { Phase::BackingOff } else { Phase::Idle };
        state.resting = resting as u64;
        state.rests = rests;
        drop(state);
        if resting == 0 {
            self.context.shared.pass(FaultPart::Files);
        }
        self.context.changed();
        Ok(took)
    }

    /// What is known of files that went away is not needed any more.
    fn forget_gone(&mut self, scan: &Scan) {
        if !self.worker.has_unfinished() {
            return;
        }
        let waiting = scan.waiting.iter().map(|(entry, _)| entry);
        let here: HashSet<&Entry> = scan.ready.iter().chain(&scan.links).chain(waiting).collect();
        let resting = &self.resting;
        self.worker.keep_unfinished(|entry| here.contains(entry) || resting.hides(entry));
    }

    /// Moves links to failed/; how many left the inbox.
    fn refuse_links(&mut self, mut links: Vec<&Entry>) -> Result<usize, Failure> {
        let mut took = 0;
        while !links.is_empty() && !self.context.shared.stopping() {
            let verdicts = self.worker.refuse_links(&links, &mut Hand { context: &self.context });
            let taken = verdicts.len();
            took += self.judge(verdicts)?;
            links.drain(..taken);
            self.leave_out_rested(&mut links);
            if taken == 0 {
                break;
            }
        }
        Ok(took)
    }

    /// Leaves out what is not to be touched any more since a folder began to rest.
    fn leave_out_rested(&mut self, left: &mut Vec<&Entry>) {
        if std::mem::take(&mut self.rested) {
            let now = Instant::now();
            left.retain(|entry| !self.resting.holds(entry, now));
        }
    }

    /// Takes files in their order, until it is time to look afresh at what is ready; how many left
    /// the inbox. One that a process died of is taken alone, so that the next death is of no other.
    fn take_in_order(&mut self, ready: &[(&Entry, Turn)]) -> Result<usize, Failure> {
        let mut took = 0;
        for run in ready.chunk_by(|one, next| (one.1, next.1) == (Turn::Now, Turn::Now)) {
            let mut run: Vec<&Entry> = run.iter().map(|(entry, _)| *entry).collect();
            while !run.is_empty() {
                if self.context.shared.stopping() {
                    return Ok(took);
                }
                let (taken, left) = self.take_some(&run)?;
                took += left;
                run.drain(..taken);
                self.leave_out_rested(&mut run);
                if taken == 0 {
                    return Ok(took);
                }
                if self.is_stale() {
                    self.must_look = true;
                    return Ok(took);
                }
            }
        }
        Ok(took)
    }

    /// Takes files that are likely to be deadly, or puts them away; how many left the inbox.
    fn take_last(&mut self, last: &[(&Entry, Turn)]) -> Result<usize, Failure> {
        let mut took = 0;
        self.calming = false;
        for (entry, turn) in last {
            if self.context.shared.stopping() {
                break;
            }
            match turn {
                Turn::NotYet => self.calming = true,
                Turn::Now | Turn::Alone | Turn::Last => took += self.take_some(&[entry])?.1,
                Turn::Never(deaths) => {
                    let mut hand = Hand { context: &self.context };
                    let verdicts = self.worker.refuse_deadly(entry, *deaths, &mut hand);
                    took += self.judge(verdicts)?;
                }
            }
        }
        Ok(took)
    }

    /// Takes these files until there is another configuration for the rest, a folder of one of them
    /// begins to rest, or it is time to look afresh; how many of them were taken, and how many left
    /// the inbox.
    fn take_some(&mut self, ready: &[&Entry]) -> Result<(usize, usize), Failure> {
        let shared = Arc::clone(&self.context.shared);
        let waiting = move || {
            shared.beat();
            if shared.out_of_time() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let entries = ready.iter().map(|entry| (*entry).clone()).collect();
        let mut ahead = self.worker.read_ahead(entries, Box::new(waiting))?;
        let mut left = 0;
        loop {
            let mut hand = Hand { context: &self.context };
            let verdicts = self.worker.take_group(&mut ahead, &mut hand);
            let is_over = verdicts.is_empty();
            left += self.judge(verdicts)?;
            if is_over || self.rested || self.obey() {
                return Ok((ahead.taken(), left));
            }
            if self.is_stale() {
                ahead.begin_no_other();
            }
        }
    }

    /// What became of files; how many left the inbox. A trouble with one of them is told once all
    /// of them are: what became of those behind it is known, too.
    fn judge(&mut self, verdicts: Vec<(Entry, FileOutcome)>) -> Result<usize, Failure> {
        let (mut left, mut failure) = (0, None);
        for (entry, verdict) in verdicts {
            match self.judged(&entry, verdict) {
                Ok(one) => left += one,
                Err(found) => drop(failure.get_or_insert(found)),
            }
        }
        failure.map_or(Ok(left), Err)
    }

    /// What became of one file; 1 when it left the inbox.
    fn judged(&mut self, entry: &Entry, verdict: FileOutcome) -> Result<usize, Failure> {
        self.context.shared.beat();
        if !matches!(verdict, FileOutcome::Failure(_) | FileOutcome::Stopped) {
            self.context.quarantine.clear(entry);
        }
        if !matches!(verdict, FileOutcome::Failure(_)) {
            self.suspected = false;
            let is_moved = matches!(verdict, FileOutcome::Done(..) | FileOutcome::Failed(..));
            self.resting.pass(entry, is_moved);
            self.backoff.reset();
            self.context.clear();
        }
        match verdict {
            FileOutcome::Done(..) | FileOutcome::Failed(..) => {
                if let Some(since) = self.scanner.ready_since(entry) {
                    self.fairness.taken(since);
                }
                self.scanner.left(entry);
            }
            // it went away, or another has its name
            FileOutcome::Gone | FileOutcome::Vanished(_) => self.scanner.look_at(entry),
            _ => {}
        }
        let mut state = self.context.shared.state();
        match verdict {
            FileOutcome::Done(done, moved) => {
                self.late_writes.moved(&moved, done.batch, Instant::now());
                state.done += 1;
                state.ready = state.ready.saturating_sub(1);
                drop(state);
                self.look_at_first(entry, &done);
                log::info!(
                    "batch {}: {entry}: {}; watermark {}, windows closed: {}; now {}",
                    done.batch,
                    done.counts,
                    done.watermark_ms,
                    done.windows_closed,
                    shown(moved.path.as_os_str().as_encoded_bytes())
                );
            }
            FileOutcome::Failed(refused, to) => {
                state.failed += 1;
                state.ready = state.ready.saturating_sub(1);
                let (code, message) = (refused.refusal.code.name(), &refused.refusal.message);
                log::warn!(
                    "refused {entry}: {code}: {}; now {}",
                    report::visible(message),
                    shown(to.as_os_str().as_encoded_bytes())
                );
            }
            FileOutcome::NotYet => {
                drop(state);
                log::debug!("{entry} is not complete yet: back in line");
                let settle_times = self.resting.change(entry);
                self.scanner.put_back(entry, settle_times, Instant::now());
                self.must_look = true;
                return Ok(0);
            }
            FileOutcome::Gone => {
                // whether another has its name is to be seen now
                self.must_look = true;
                return Ok(0);
            }
            FileOutcome::Vanished(done) => {
                state.done += 1;
                log::warn!(
                    "batch {}: {entry}: {}; it is in, but its file went away or was replaced \
                     before it could be moved to done/",
                    done.batch,
                    done.counts
                );
            }
            FileOutcome::Stopped => {
                log::info!("{entry} is undone: it stays in the inbox, for the next start");
                return Ok(0);
            }
            FileOutcome::Failure(failure) if failure.is_of_one() => {
                drop(state);
                self.rest(entry, failure);
                return Ok(0);
            }
            FileOutcome::Failure(failure) => return Err(failure),
        }
        Ok(1)
    }

    /// A fault that stands in the way of one file or folder only: the others go on at once.
    fn rest(&mut self, entry: &Entry, failure: Failure) {
        self.resting.meet(entry, &failure, &self.context.config);
        self.rested |= failure.reach == Scope::Folder;
        log::debug!("{}; trying again later", failure.text);
        let more = match self.resting.len() - 1 {
            0 => String::new(),
            more => format!(" (so are {more} other files)"),
        };
        let text = format!("{}{more}", failure.text);
        self.context.shared.meet(FaultPart::Files, &failure.kind, &text);
        self.stuck = Some(failure);
    }
}

/// Moves that are not durable yet.
fn unsynced(error: MoveError) -> Failure {
    const WHAT: &str = "cannot sync a folder (until then a power cut may bring back files that \
                        were moved, which changes no total)";
    match error {
        MoveError::Io(path, error) => Failure::with_spool("unsynced", WHAT, &path, &error),
        other => Failure::passing("unsynced", format!("{WHAT}: {other}")),
    }
}
