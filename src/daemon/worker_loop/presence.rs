//! Which sources are waited for: those that the configuration declares, new ones of which files wait,
//! those that fall silent, and those that are back.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use super::WorkerLoop;
use crate::daemon::expected::{self, ExpectedFiles};
use crate::daemon::idleness::{Idleness, Spent};
use crate::engine::{Expected, Presence};
use crate::pipeline::admin_batch::{self, Asked};
use crate::pipeline::worker::Failure;
use crate::query::report::{shown, some_names};
use crate::spool::Entry;
use crate::spool::scan::Scan;
use crate::store::Committed;

/// For how long what the store said of a source is relied on: an operator may retire it meanwhile.
const RELIED_ON: Duration = Duration::from_secs(1);

/// What the worker remembers of sources between two looks into the inbox.
#[derive(Debug, Default)]
pub(super) struct Presences {
    idleness: Idleness,
    expected: ExpectedFiles,
    /// The store was asked for what a process before this one left.
    has_begun: bool,
    /// Sources that are known and not idle, as the store said at that time.
    active: HashSet<String>,
    asked_at: Option<Instant>,
    /// Sources of which a file waits and nothing is known yet.
    new: HashSet<String>,
    /// It was said that there are more new sources than are waited for.
    told_of_many: bool,
    /// How soon a source can fall idle, or no longer be expected.
    pub(super) next: Option<Duration>,
}

impl WorkerLoop {
    /// Declares the sources that the configuration names, before anything is taken under it.
    pub(super) fn declare(&mut self) -> Result<(), Failure> {
        if !self.undeclared {
            return Ok(());
        }
        let declared = self.context.config.sources.declared.clone();
        if !declared.is_empty() {
            self.change_presence(&declared, Presence::Declared, "named in the configuration")?;
        }
        self.undeclared = false;
        Ok(())
    }

    /// Before anything of a look is taken: which sources are waited for from now on.
    pub(super) fn mind_sources(&mut self, scan: &Scan) -> Result<(), Failure> {
        let spent = std::mem::replace(&mut self.spent, Spent::AtWork(Duration::ZERO));
        self.looked = Instant::now();
        self.presences.next = None;
        self.declare()?;
        let passed_over = self.resting.passed_over().map(str::to_owned).collect::<Vec<_>>();
        let waiting = all_of(scan).map(Entry::source);
        let waiting: HashSet<&str> =
            waiting.chain(passed_over.iter().map(String::as_str)).collect();
        self.end_expected(scan)?;
        let unheard = self.take_back(&waiting)?;
        if waiting.len() > 1 && self.context.config.sources.accept_new {
            self.expect(scan, unheard)?;
        }
        let Some(timeout) = self.context.config.sources.idle_timeout() else { return Ok(()) };
        let store = self.worker.store();
        let mut ask = |after: Option<&_>, most| store.silent(after, most);
        let turn = self.presences.idleness.look(&mut ask, &waiting, spent, timeout);
        let turn = turn.map_err(|error| Failure::from(&error))?;
        self.wake_in(turn.next);
        if !turn.idle.is_empty() {
            let why = format!("nothing came from it for {} ms", timeout.as_millis());
            self.change_presence(&turn.idle, Presence::Idle, &why)?;
        }
        Ok(())
    }

    fn wake_in(&mut self, next: Option<Duration>) {
        let soonest = [self.presences.next, next].into_iter().flatten().min();
        self.presences.next = soonest;
    }

    /// Idle sources of which a file is there are back, before the first of their files is read. Says
    /// which of the others could be expected: nothing is known of them yet.
    fn take_back(&mut self, waiting: &HashSet<&str>) -> Result<Vec<String>, Failure> {
        let presences = &mut self.presences;
        presences.new.retain(|source| waiting.contains(source.as_str()));
        if presences.asked_at.is_none_or(|at| at.elapsed() >= RELIED_ON) {
            presences.active.clear();
            presences.asked_at = Some(Instant::now());
        }
        let is_unsure = |source: &&str| !presences.active.contains(*source);
        let unsure: BTreeSet<&str> = waiting.iter().copied().filter(is_unsure).collect();
        let unsure: Vec<&str> = unsure.into_iter().collect();
        if unsure.is_empty() {
            return Ok(Vec::new());
        }
        let known = self.worker.store().known(&unsure).map_err(|error| Failure::from(&error))?;
        let (mut back, mut unheard) = (Vec::new(), Vec::new());
        for (source, known) in unsure.into_iter().zip(known) {
            let source = source.to_owned();
            if known.idle {
                back.push(source.clone());
            }
            if known.is_known {
                self.presences.active.insert(source);
                continue;
            }
            self.presences.new.insert(source.clone());
            if known.expected == Expected::Never {
                unheard.push(source);
            }
        }
        if !back.is_empty() {
            self.change_presence(&back, Presence::Active, "a file of it is there")?;
        }
        Ok(unheard)
    }

    /// New sources are expected, before an event of another is judged. One that nobody else is
    /// there beside need not be: its own first event comes first.
    fn expect(&mut self, scan: &Scan, unheard: Vec<String>) -> Result<(), Failure> {
        let taken = self.presences.expected.len();
        let mut names = unheard;
        let left_out = names.split_off(names.len().min(expected::MOST.saturating_sub(taken)));
        if !left_out.is_empty() && !std::mem::replace(&mut self.presences.told_of_many, true) {
            log::warn!(
                "more than {} new sources have files in the inbox: the watermark does not wait for \
                 {}; what they send can be late; declare them (declared in [sources])",
                expected::MOST,
                some_names(&left_out)
            );
        }
        if names.is_empty() {
            return Ok(());
        }
        // they are waited for until these files are taken, whatever comes in the way of writing it
        self.presences.expected.begin(&names, all_of(scan));
        self.change_presence(&names, Presence::Expected, "files of it wait in the inbox")
    }

    /// Expected sources whose files have come to an end are waited for no longer.
    fn end_expected(&mut self, scan: &Scan) -> Result<(), Failure> {
        if !std::mem::replace(&mut self.presences.has_begun, true) {
            // what a process before this one left
            match self.worker.store().expected() {
                Ok(names) => self.presences.expected.begin(&names, all_of(scan)),
                Err(error) => {
                    self.presences.has_begun = false;
                    return Err(Failure::from(&error));
                }
            }
        }
        if self.presences.expected.len() == 0 {
            return Ok(());
        }
        let here: HashSet<&Entry> = scan.ready.iter().collect();
        let not_ready: HashSet<&Entry> = scan.waiting.iter().map(|(entry, _)| entry).collect();
        let resting = &self.resting;
        let is_held_up = |entry: &Entry| {
            not_ready.contains(entry)
                || resting.hides(entry)
                || (here.contains(entry) && resting.has(entry))
        };
        let turn = self.presences.expected.look(&here, &is_held_up, Instant::now());
        self.wake_in(turn.next);
        if turn.over.is_empty() {
            return Ok(());
        }
        let ended = self.change_presence(
            &turn.over,
            Presence::NotExpected,
            "its files were taken, removed, or held up for a minute",
        );
        if ended.is_err() {
            // told again at the next look
            self.presences.expected.begin(&turn.over, std::iter::empty());
        }
        ended
    }

    /// A new source that is mostly late was not waited for: says what to do about it.
    pub(super) fn look_at_first(&mut self, entry: &Entry, done: &Committed) {
        let source = entry.source();
        if !self.presences.new.remove(source) {
            return;
        }
        let (late, judged) = (done.counts.late, done.counts.late + done.counts.accepted);
        if late * 2 > judged {
            let source = shown(source);
            log::warn!(
                "source {source} is new, and {late} of the {judged} events of its first file were \
                 late: the watermark was past them already; if this source starts behind others, \
                 declare it before its first file (windowflow sources --declare {source}, or \
                 declared in [sources]), so that the watermark waits for it"
            );
        }
    }

    fn change_presence(
        &mut self,
        sources: &[String],
        presence: Presence,
        why: &str,
    ) -> Result<(), Failure> {
        let asked = Asked { by: "windowflow", reason: Some(why) };
        let names: Vec<&str> = sources.iter().map(String::as_str).collect();
        self.presences.asked_at = None;
        let done = admin_batch::change_presence(self.worker.store(), &names, presence, asked);
        let done = done.map_err(|error| match error {
            admin_batch::AdminBatchError::Store(error) => Failure::from(&error),
            // only setting the watermark by hand can be behind
            admin_batch::AdminBatchError::Behind { .. } => {
                Failure::passing("behind", "the watermark would move back")
            }
        })?;
        if done.batch.is_some() {
            log::info!(
                "{}: {} ({why}); watermark {}, windows closed: {}",
                presence.name().replace('_', " "),
                some_names(&done.sources),
                done.watermark_ms,
                done.windows_closed
            );
        }
        Ok(())
    }
}

/// All files that a look has seen, in whatever state.
fn all_of(scan: &Scan) -> impl Iterator<Item = &Entry> {
    scan.ready.iter().chain(scan.waiting.iter().map(|(entry, _)| entry))
}
