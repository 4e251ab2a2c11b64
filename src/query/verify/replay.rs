//! All batches once more, in their order, through the real engine into a store of their own, which
//! must come to say the same.

use std::io;
use std::path::Path;

use super::files::DoneFiles;
use crate::decode::Limits;
use crate::model::clock::Clock;
use crate::model::event::Event;
use crate::pipeline::admin_batch::{self, Asked, Done, Settling};
use crate::pipeline::ingest::{Ended, Ingest, Mode, Seconds, Unwatched};
use crate::store::audit::{Checkup, FindingCode};
use crate::store::sqlite::{KeptIn, KeptOne, Scratch, SqliteSnapshot};
use crate::store::{Act, Delivery, Error, Kept, ReceiptRow, Store};

/// How many batches are made durable together: what is not stays in the log.
const BATCHES_A_SYNC: u64 = 64;

/// Why it ended early.
enum Stop {
    /// The store itself cannot be read.
    Store(Error),
    /// What is needed for it is not there.
    Untold(String),
    /// A batch came out otherwise, so that no other can be compared.
    Differs(FindingCode, String, String, String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Store(error)
    }
}

/// Plays all batches again, and compares. All receipts must be there, and their files.
pub(super) fn replay(
    snapshot: &SqliteSnapshot,
    files: &DoneFiles,
    done: &Path,
    limits: &Limits,
    checkup: &mut Checkup,
) -> Result<(), Error> {
    let scratch = Scratch::new(*snapshot.fixed()).map_err(in_scratch);
    let limits = Limits { max_file_bytes: None, ..limits.clone() };
    let played = scratch.and_then(|scratch| {
        let mut replay = Replay { snapshot, files, done, limits, scratch, batches: 0 };
        snapshot.try_each_receipt::<Stop>(|receipt| replay.batch(receipt))?;
        let replayed = replay.scratch.snapshot().map_err(in_scratch)?;
        Ok((replay, replayed))
    });
    match played {
        Ok((replay, replayed)) => {
            checkup.checked("batches_played_again", replay.batches);
            snapshot.compare_with(&replayed, checkup)
        }
        Err(Stop::Store(error)) => Err(error),
        Err(Stop::Untold(why)) => {
            checkup.not_checked(format!("all batches played again from their files: {why}"));
            Ok(())
        }
        Err(Stop::Differs(code, what, expected, found)) => {
            checkup.found(code, what, expected, found);
            checkup.not_checked("all batches played again: only up to the first that differs");
            Ok(())
        }
    }
}

fn in_scratch(error: Error) -> Stop {
    Stop::Untold(format!("{error} (TMPDIR names another temporary folder)"))
}

struct Replay<'r> {
    snapshot: &'r SqliteSnapshot,
    files: &'r DoneFiles,
    done: &'r Path,
    limits: Limits,
    scratch: Scratch,
    batches: u64,
}

impl Replay<'_> {
    fn batch(&mut self, receipt: &ReceiptRow) -> Result<(), Stop> {
        match receipt.act.as_deref() {
            None => self.events(receipt)?,
            Some(act) => self.act(receipt, act)?,
        }
        self.batches += 1;
        if self.batches.is_multiple_of(BATCHES_A_SYNC) {
            self.scratch.store().sync().map_err(in_scratch)?;
        }
        Ok(())
    }

    fn events(&mut self, receipt: &ReceiptRow) -> Result<(), Stop> {
        let batch = receipt.batch;
        let Some(file) = self.files.of_batch(batch) else {
            return Err(Stop::Untold(format!("the file of batch {batch} is not in done/")));
        };
        let opened = file.open(self.done);
        let opened = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Stop::Untold(format!("done/{} is gone", file.entry)),
            _ => Stop::Untold(format!("done/{}: {error}", file.entry)),
        })?;
        self.set_clock(receipt)?;
        let delivery = Delivery::fresh(receipt.file.clone(), receipt.source.clone())
            .map_err(|error| Stop::Untold(format!("no random token: {error}")))?;
        let (limits, mode) = (self.limits.clone(), Mode::Group);
        let ingest = Ingest {
            delivery: &delivery,
            limits,
            mode,
            admission: None,
            now_ms: 0,
            seconds: Seconds::Accept,
        };
        let what = format!("batch {batch}, played again");
        match ingest.run(self.scratch.store(), opened, &mut Unwatched) {
            Ok(Ended::Committed(committed)) if committed.batch == batch => Ok(()),
            Ok(Ended::Refused(refused)) => Err(Stop::Differs(
                FindingCode::ReceiptDiffers,
                what,
                "taken in, as its receipt says".to_owned(),
                format!("refused ({}): {}", refused.refusal.code.name(), refused.refusal.message),
            )),
            Ok(other) => Err(Stop::Untold(format!("{what} came out as {other:?}"))),
            Err(crate::pipeline::ingest::IngestError::Store(error)) => Err(in_scratch(error)),
            Err(error) => Err(Stop::Untold(error.to_string())),
        }
    }

    /// What was too far ahead is what the store holds or held as such: the moment at which that was
    /// judged is not kept.
    fn set_clock(&mut self, receipt: &ReceiptRow) -> Result<(), Stop> {
        let ahead_ms = self.snapshot.fixed().max_future_ms();
        let now_ms = match (receipt.counts.future, ahead_ms) {
            (0, _) | (_, None) => i64::MAX,
            (future, Some(ahead_ms)) => match self.snapshot.held_of(receipt.batch)? {
                (known, Some(least_ms)) if known == future => {
                    least_ms.saturating_sub(1).saturating_sub(ahead_ms)
                }
                _ => {
                    let why = "what it held is not known any more";
                    return Err(Stop::Untold(format!("batch {}: {why}", receipt.batch)));
                }
            },
        };
        self.scratch.set_clock(Clock::Fixed(now_ms));
        Ok(())
    }

    fn act(&mut self, receipt: &ReceiptRow, name: &str) -> Result<(), Stop> {
        let batch = receipt.batch;
        self.scratch.set_clock(Clock::Fixed(i64::MAX));
        let asked = Asked { by: "", reason: None };
        let is = |act: Act| act.name() == name;
        let done = if is(Act::Advance) {
            admin_batch::advance(self.scratch.store(), receipt.watermark_ms, asked)
        } else if let Some(presence) = Act::from_name(name).and_then(Act::presence) {
            let sources = self.snapshot.presence_in(batch)?;
            if sources.is_empty() {
                let why = "the note of which sources came or went in it is gone";
                return Err(Stop::Untold(format!("batch {batch} ({name}): {why}")));
            }
            let names: Vec<&str> = sources.iter().map(|(source, _)| source.as_str()).collect();
            admin_batch::change_presence(self.scratch.store(), &names, presence, asked)
        } else {
            let kind = if is(Act::Correct) { Kept::Late } else { Kept::Held };
            if !self.snapshot.knows_all_kept(kind)? {
                let why = "which events it concerned is not known any more";
                return Err(Stop::Untold(format!("batch {batch} ({name}): {why}")));
            }
            let mut wanted = Wanted::of(self.snapshot.kept_in(kind, batch))?;
            let store = self.scratch.store();
            let mut wants = |event: &Event<'_>| wanted.wants(event);
            let done = match name {
                _ if is(Act::Correct) => {
                    admin_batch::settle(store, Settling::Correct, &mut wants, asked)
                }
                _ if is(Act::Release) => {
                    admin_batch::settle(store, Settling::Release, &mut wants, asked)
                }
                _ if is(Act::Discard) => {
                    admin_batch::settle(store, Settling::Discard, &mut wants, asked)
                }
                _ => {
                    let why = format!("batch {batch}: no act is named {name:?}");
                    return Err(Stop::Untold(why));
                }
            };
            wanted.end(batch, name)?;
            done
        };
        self.did(receipt, name, done)
    }

    fn did(
        &self,
        receipt: &ReceiptRow,
        name: &str,
        done: Result<Done, admin_batch::AdminBatchError>,
    ) -> Result<(), Stop> {
        let differs = |found: String| {
            let what = format!("batch {} ({name}), played again", receipt.batch);
            let expected = format!("watermark {}, as its receipt says", receipt.watermark_ms);
            Stop::Differs(FindingCode::ReceiptDiffers, what, expected, found)
        };
        match done {
            Ok(done) if done.batch == Some(receipt.batch) => Ok(()),
            Ok(_) => Err(differs("there was nothing to do".to_owned())),
            Err(admin_batch::AdminBatchError::Behind { watermark_ms, .. }) => {
                Err(differs(format!("watermark {watermark_ms} already")))
            }
            Err(admin_batch::AdminBatchError::Store(Error::Overflow(_))) => {
                Err(differs("windows would leave the 64-bit range".to_owned()))
            }
            Err(admin_batch::AdminBatchError::Store(error)) => Err(in_scratch(error)),
        }
    }
}

/// The kept events that an act concerned, as they are walked through in their order.
struct Wanted<'s> {
    all: KeptIn<'s>,
    next: Option<KeptOne>,
    failed: Option<Error>,
}

impl<'s> Wanted<'s> {
    fn of(mut all: KeptIn<'s>) -> Result<Wanted<'s>, Error> {
        let next = all.step()?;
        Ok(Wanted { all, next, failed: None })
    }

    fn wants(&mut self, event: &Event<'_>) -> bool {
        let is_it = self.next.as_ref().is_some_and(|one| {
            (one.id.as_str(), one.key.as_str(), one.timestamp_ms, one.value)
                == (event.id, event.key, event.timestamp_ms, event.value)
        });
        if is_it {
            match self.all.step() {
                Ok(next) => self.next = next,
                Err(error) => {
                    self.next = None;
                    self.failed = Some(error);
                }
            }
        }
        is_it
    }

    fn end(self, batch: u64, act: &str) -> Result<(), Stop> {
        if let Some(error) = self.failed {
            return Err(Stop::Store(error));
        }
        let Some(one) = self.next else { return Ok(()) };
        Err(Stop::Differs(
            FindingCode::SettledDiffers,
            format!("event {:?}, in batch {batch} ({act})", one.id),
            "one that was kept by then".to_owned(),
            "none, when all batches before are played again".to_owned(),
        ))
    }
}
