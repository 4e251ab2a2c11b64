//! Files that are taken together: each is a batch of its own, and none is moved before one sync has
//! made all of them durable.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error_class::{self, Blame};
use super::ingest::{self, Ended, Ingest, Mode, RefusedBatch, Seconds, Step};
use super::read_ahead::{ReadAhead, ReaderFeed, Upcoming};
use super::worker::{
    ASK_AGAIN, Failure, FileFate, FileOutcome, Unfinished, Watched, Worker, reason,
};
use crate::spool::Entry;
use crate::spool::in_flight::Hand;
use crate::spool::late_writes::Moved;
use crate::spool::move_error::MoveError;
use crate::spool::moves;
use crate::spool::reason_file::{self, Reason, ReasonDraft};
use crate::spool::safe_open::{OpenError, Opened};
use crate::store::{self, Committed, Delivery};

/// What bounds a group: its files, their bytes, and the time since it began. What is in and not
/// durable can be seen in reports already, so that should not last.
pub(super) const GROUP_FILES: usize = reason_file::DRAFTS;
const GROUP_BYTES: u64 = 32 << 20;
const GROUP_TIME: Duration = Duration::from_millis(100);

/// Who watches over the files while they are taken.
pub trait Pace {
    /// That file is next; a break ends the group before it.
    fn begin(&mut self, entry: &Entry) -> ControlFlow<()>;

    /// Told of each step within a file; a break undoes it.
    fn step(&mut self, step: Step) -> ControlFlow<()>;
}

/// A file of the group, and how far it has come: what is left to do, or that there is nothing.
pub(super) struct Taken {
    pub(super) entry: Entry,
    pub(super) opened: Option<Arc<Opened>>,
    pub(super) delivery: Option<Delivery>,
    pub(super) so_far: Result<FileFate, FileOutcome>,
}

impl Taken {
    /// Whether no other file is to be taken before this is looked at.
    fn ends_the_group(&self) -> bool {
        match &self.so_far {
            Err(FileOutcome::Failure(failure)) => !failure.is_of_one(),
            Err(FileOutcome::Stopped) => true,
            _ => false,
        }
    }
}

impl Worker {
    /// Takes the next files in, as many as make a group and are there already, each as one
    /// transaction; then moves them. None when there is no other, or `pace` wants none.
    pub fn take_group(
        &mut self,
        ahead: &mut ReadAhead<'_>,
        pace: &mut dyn Pace,
    ) -> Vec<(Entry, FileOutcome)> {
        let until = Instant::now() + GROUP_TIME;
        let mut group: Vec<Taken> = Vec::new();
        let mut bytes = 0;
        while group.len() < GROUP_FILES {
            let is_first = group.is_empty();
            let Some(next) = ahead.peek((!is_first).then_some(until)) else { break };
            bytes += next.bytes();
            let has_room = bytes <= GROUP_BYTES && Instant::now() < until;
            if !(is_first || has_room) || pace.begin(&next.entry).is_break() {
                break;
            }
            // the sync of its commit is that of the group
            let is_last = next.is_last || group.len() + 1 == GROUP_FILES || bytes > GROUP_BYTES;
            let mode = if is_last { Mode::Commit } else { Mode::Group };
            let Some(next) = ahead.take() else { break };
            let taken = self.take(next, mode, ahead, pace);
            let ends = taken.ends_the_group();
            group.push(taken);
            if ends {
                break;
            }
        }
        self.end(group, pace)
    }

    fn take(
        &mut self,
        next: Upcoming,
        mode: Mode,
        ahead: &mut ReadAhead<'_>,
        pace: &mut dyn Pace,
    ) -> Taken {
        let Upcoming { entry, opened, .. } = next;
        let never_opened = |entry, so_far| Taken { entry, opened: None, delivery: None, so_far };
        let opened = match opened {
            Ok(opened) => opened,
            Err(OpenError::Gone | OpenError::NotRegular(_)) => {
                self.unfinished.remove(&entry);
                return never_opened(entry, Err(FileOutcome::Gone));
            }
            Err(error) => {
                let so_far = self.unopened(&entry, &error);
                return never_opened(entry, so_far);
            }
        };
        let resumed = self.unfinished.remove(&entry).filter(|was| was.seen.is(&opened));
        let is_resumed = resumed.is_some();
        let (delivery, fate) = match resumed {
            Some(was) => (was.delivery, was.fate),
            None => match Delivery::fresh(entry.shown(), entry.source().to_owned()) {
                Ok(delivery) => (delivery, FileFate::Unknown),
                Err(error) => {
                    let failure = Failure::with_spool(
                        "no token",
                        "no random token",
                        self.spool.root(),
                        &error,
                    );
                    return never_opened(entry, Err(FileOutcome::Failure(failure)));
                }
            },
        };
        let so_far = match fate {
            FileFate::Unknown => {
                let (entry, opened, delivery) = (&entry, &*opened, &delivery);
                let file = File { entry, opened, delivery, may_be_in: is_resumed };
                self.ingest(&file, mode, Some(ahead.feed()), pace)
            }
            FileFate::Refusing(refused) => {
                let recorded = self.record(refused.clone());
                if recorded.is_err() {
                    self.keep(&entry, &opened, delivery.clone(), FileFate::Refusing(refused));
                }
                recorded
            }
            known @ (FileFate::Committed(_) | FileFate::Refused(_)) => Ok(known),
        };
        Taken { entry, opened: Some(opened), delivery: Some(delivery), so_far }
    }

    /// What becomes of a file that cannot be opened.
    fn unopened(&mut self, entry: &Entry, error: &OpenError) -> Result<FileFate, FileOutcome> {
        let denied = io::ErrorKind::PermissionDenied.into();
        let system = match error {
            OpenError::Denied => &denied,
            OpenError::Io(error) => return Err(self.unreadable(entry, error)),
            OpenError::Gone | OpenError::NotRegular(_) => return Err(FileOutcome::Gone),
        };
        match error_class::blame_of(system) {
            Blame::TheFiles(code) => self.record(self.unread(entry, code, error)),
            Blame::Ours(_) => Err(self.unreadable(entry, system)),
        }
    }

    /// Takes a file in, from what was read ahead or, without that, from its beginning.
    fn ingest(
        &mut self,
        file: &File<'_>,
        mode: Mode,
        mut fed: Option<ReaderFeed<'_, '_>>,
        pace: &mut dyn Pace,
    ) -> Result<FileFate, FileOutcome> {
        let File { entry, opened, delivery, may_be_in } = *file;
        let (limits, admission) = (self.limits.clone(), self.admission);
        let accepted = Arc::clone(&self.accepted_seconds);
        let seconds = Seconds::RefuseUnless(&accepted);
        let now_ms = self.store.now_ms();
        let ingest = Ingest { delivery, limits, mode, admission, now_ms, seconds };
        let mut asked = 0;
        let in_flight = Arc::clone(&self.in_flight);
        let ended = loop {
            let inbox = self.spool.inbox();
            let is_synced = fed.is_some();
            let (in_flight, steps) = (&*in_flight, 0);
            let mut watched = Watched { inbox, entry, opened, is_synced, pace, in_flight, steps };
            let ended = match fed.take() {
                Some(mut fed) => ingest.run_on(self.store.as_mut(), &mut fed, &mut watched),
                None => opened
                    .rewind()
                    .map_err(ingest::IngestError::Read)
                    .and_then(|()| ingest.run(self.store.as_mut(), opened.file(), &mut watched)),
            };
            match ended {
                // the same delivery again: the store says whether the commit took place
                Err(ingest::IngestError::Store(store::Error::Unknown(text)))
                    if asked < ASK_AGAIN =>
                {
                    self.doubt(&text);
                    asked += 1;
                }
                ended => break ended,
            }
        };
        in_flight.put_down(Hand::Writer);
        let is_unknown = matches!(ended, Err(ingest::IngestError::Store(store::Error::Unknown(_))));
        let fate = match ended {
            Ok(Ended::Committed(committed) | Ended::Checked(committed)) => {
                Ok(FileFate::Committed(committed))
            }
            Ok(Ended::Refused(refused)) if self.is_incomplete(opened, &refused) => {
                Err(FileOutcome::NotYet)
            }
            Ok(Ended::Refused(mut refused)) => {
                // where the rest was not read for its hash
                refused.bytes.get_or_insert(opened.bytes());
                self.record(refused)
            }
            Ok(Ended::Changed) => Err(FileOutcome::NotYet),
            Ok(Ended::Stopped) => Err(FileOutcome::Stopped),
            Err(ingest::IngestError::Read(error)) => Err(self.unreadable(entry, &error)),
            Err(ingest::IngestError::Store(error)) => {
                Err(FileOutcome::Failure(Failure::from(&error)))
            }
        };
        // it may be in, whatever came in the way of asking after it
        if fate.is_err() && (may_be_in || is_unknown || asked > 0) {
            self.keep(entry, opened, delivery.clone(), FileFate::Unknown);
        }
        fate
    }

    /// Keeps a refusal in the store.
    pub(super) fn record(&mut self, refused: Box<RefusedBatch>) -> Result<FileFate, FileOutcome> {
        match self.store.record_refusal(&refused.receipt()) {
            Ok(()) => Ok(FileFate::Refused(refused)),
            Err(error) => Err(FileOutcome::Failure(Failure::from(&error))),
        }
    }

    /// Makes all of the group durable, then moves its files, in order.
    pub(super) fn end(
        &mut self,
        mut group: Vec<Taken>,
        pace: &mut dyn Pace,
    ) -> Vec<(Entry, FileOutcome)> {
        if let Err(failure) = self.sync(&mut group, pace) {
            let kept = group.into_iter().map(|taken| self.put_off(taken, &failure));
            return kept.collect();
        }
        let mut reasons = self.keep_reasons(&group);
        let mut verdicts = Vec::with_capacity(group.len());
        for (number, Taken { entry, opened, delivery, so_far }) in group.into_iter().enumerate() {
            let delivered = opened.as_deref().zip(delivery);
            let verdict = match (so_far, reasons[number].take()) {
                (Ok(FileFate::Committed(done)), _) => self.move_to_done(&entry, delivered, done),
                (Ok(FileFate::Refused(refused)), Some(reason)) => {
                    self.move_to_failed(&entry, delivered, refused, reason)
                }
                (Ok(_), _) => FileOutcome::Gone,
                (Err(verdict), _) => verdict,
            };
            verdicts.push((entry, verdict));
        }
        verdicts
    }

    /// The durability point of a group. When it cannot be told what is in, the store is asked for
    /// each file, which is taken again where it is not.
    fn sync(&mut self, group: &mut [Taken], pace: &mut dyn Pace) -> Result<(), Failure> {
        for _ in 0..ASK_AGAIN {
            match self.store.sync() {
                Ok(()) => return Ok(()),
                Err(store::Error::Unknown(text)) => {
                    self.doubt(&text);
                    self.ask_again(group, pace)?;
                }
                Err(error) => return Err(Failure::from(&error)),
            }
        }
        self.store.sync().map_err(|error| {
            group.iter_mut().for_each(Taken::doubt);
            Failure::from(&error)
        })
    }

    fn ask_again(&mut self, group: &mut [Taken], pace: &mut dyn Pace) -> Result<(), Failure> {
        group.iter_mut().for_each(Taken::doubt);
        for taken in group {
            let again = match &taken.so_far {
                Ok(FileFate::Refusing(refused)) => self.record(refused.clone()),
                Ok(FileFate::Unknown) => {
                    let Taken { entry, opened: Some(opened), delivery: Some(delivery), .. } = taken
                    else {
                        continue;
                    };
                    let file = File { entry, opened, delivery, may_be_in: true };
                    self.ingest(&file, Mode::Group, None, pace)
                }
                _ => continue,
            };
            match again {
                Err(FileOutcome::Failure(failure)) if !failure.is_of_one() => {
                    return Err(failure);
                }
                again => taken.so_far = again,
            }
        }
        Ok(())
    }

    /// Leaves a file where it is, with what is known of it.
    fn put_off(&mut self, taken: Taken, failure: &Failure) -> (Entry, FileOutcome) {
        let Taken { entry, opened, delivery, so_far } = taken;
        let fate = match so_far {
            // the store is asked, whatever becomes of the group
            Ok(FileFate::Committed(_)) => FileFate::Unknown,
            Ok(fate) => fate,
            Err(verdict) => return (entry, verdict),
        };
        if let Some((opened, delivery)) = opened.zip(delivery) {
            self.keep(&entry, &opened, delivery, fate);
        }
        (entry, FileOutcome::Failure(failure.clone()))
    }

    /// The reasons of those that were refused, durable: first all are written, then all are synced.
    fn keep_reasons(&self, group: &[Taken]) -> Vec<Option<Result<Reason, MoveError>>> {
        let draft = |(number, taken): (usize, &Taken)| match &taken.so_far {
            Ok(FileFate::Refused(refused)) => {
                Some(reason_file::draft_reason(&self.spool, number, &reason(refused)))
            }
            _ => None,
        };
        let drafts: Vec<_> = group.iter().enumerate().map(draft).collect();
        let sync = |draft: Result<ReasonDraft, MoveError>| draft?.sync(&self.spool);
        drafts.into_iter().map(|draft| draft.map(sync)).collect()
    }

    fn move_to_done(
        &mut self,
        entry: &Entry,
        delivered: Option<(&Opened, Delivery)>,
        committed: Committed,
    ) -> FileOutcome {
        let Some((opened, delivery)) = delivered else { return FileOutcome::Vanished(committed) };
        match moves::to_done(&self.spool, entry, opened) {
            Ok(to) => FileOutcome::Done(committed, Box::new(Moved::new(entry, to, opened))),
            Err(MoveError::Gone | MoveError::Replaced) => FileOutcome::Vanished(committed),
            // written to after its commit: taken again, and what is in counts as duplicates
            Err(MoveError::Changed) => FileOutcome::NotYet,
            Err(error) => {
                let what =
                    format!("inbox/{entry} is in, as batch {}, but not moved", committed.batch);
                self.keep(entry, opened, delivery, FileFate::Committed(committed));
                self.unmovable(entry, self.spool.done(), &what, &error)
            }
        }
    }

    fn move_to_failed(
        &mut self,
        entry: &Entry,
        delivered: Option<(&Opened, Delivery)>,
        refused: Box<RefusedBatch>,
        reason: Result<Reason, MoveError>,
    ) -> FileOutcome {
        let opened = delivered.as_ref().map(|(opened, _)| *opened);
        let moved = reason.and_then(|reason| moves::to_failed(&self.spool, entry, opened, reason));
        match moved {
            Ok(to) => FileOutcome::Failed(refused, to),
            Err(MoveError::Gone | MoveError::Replaced) => FileOutcome::Gone,
            Err(MoveError::Changed) => FileOutcome::NotYet,
            Err(error) => {
                let code = refused.refusal.code.name();
                let what = format!("inbox/{entry} was refused ({code}), but not moved");
                if let Some((opened, delivery)) = delivered {
                    self.keep(entry, opened, delivery, FileFate::Refused(refused));
                }
                self.unmovable(entry, self.spool.failed(), &what, &error)
            }
        }
    }

    fn keep(&mut self, entry: &Entry, opened: &Opened, delivery: Delivery, fate: FileFate) {
        let seen = opened.seen();
        self.unfinished.insert(entry.clone(), Unfinished { seen, delivery, fate });
    }
}

impl Taken {
    /// What was thought to be in may be lost.
    fn doubt(&mut self) {
        let so_far = std::mem::replace(&mut self.so_far, Ok(FileFate::Unknown));
        self.so_far = match so_far {
            Ok(FileFate::Committed(_)) => Ok(FileFate::Unknown),
            Ok(FileFate::Refused(refused)) => Ok(FileFate::Refusing(refused)),
            other => other,
        };
    }
}

/// A file that is open and on its way in.
struct File<'a> {
    entry: &'a Entry,
    opened: &'a Opened,
    delivery: &'a Delivery,
    /// A commit of it has been tried, and nobody knows what became of that.
    may_be_in: bool,
}
