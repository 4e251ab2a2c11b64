//! Whether a file stands still: the rule of readiness, with clocks and facts handed in.

use std::time::{Duration, Instant, SystemTime};

use super::folder::Facts;

/// Why a file is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotReady {
    /// Its size or its time of last writing has not been still for long enough.
    StillChanging,
    /// Somebody has it open for writing.
    OpenForWriting,
}

/// How often a file that somebody has open for writing is asked about at least. Its closing is a
/// hint, so this is for where the kernel gives none.
const LONGEST_ASK_WAIT: Duration = Duration::from_secs(10);

/// How often such a file is asked about at most.
const SHORTEST_ASK_WAIT: Duration = Duration::from_millis(100);

/// What is remembered of one file.
#[derive(Clone, Debug)]
pub(super) struct Observation {
    pub(super) facts: Facts,
    pub(super) still_since: Instant,
    // it came whole: renamed or linked in
    pub(super) arrived: bool,
    // its size changed and its time of last writing did not move on: that time says nothing
    mtime_lies: bool,
    // put back in line until then
    pub(super) held_until: Option<Instant>,
    // it was ready, and has not changed since
    pub(super) cleared: bool,
    // since when it is known that somebody has it open for writing
    pub(super) open_since: Option<Instant>,
    pub(super) round: u64,
}

/// The clocks at one scan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: Instant,
    pub(super) wall: SystemTime,
    pub(super) trust_wall: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Take,
    Wait(NotReady, Duration),
}

impl Observation {
    /// What is known of a file now, from what was known at the scan before.
    pub(super) fn new(
        before: Option<&Observation>,
        facts: Facts,
        came: bool,
        moment: Moment,
        round: u64,
    ) -> Observation {
        let arrived = came || facts.links > 1;
        match before {
            // another file under the same name begins anew
            Some(before) if before.facts.file == facts.file => {
                let same = before.facts.same_content(&facts);
                Observation {
                    facts,
                    still_since: if same { before.still_since } else { moment.now },
                    arrived: arrived || before.arrived,
                    mtime_lies: if same {
                        before.mtime_lies
                    } else {
                        facts.mtime <= before.facts.mtime
                    },
                    held_until: before.held_until,
                    cleared: same && before.cleared,
                    open_since: before.open_since,
                    round,
                }
            }
            _ => Observation {
                facts,
                still_since: moment.now,
                arrived,
                mtime_lies: false,
                held_until: None,
                cleared: false,
                open_since: None,
                round,
            },
        }
    }

    /// Begins anew, and is not ready before `until`, however the file came.
    pub(super) fn hold(&mut self, now: Instant, until: Instant) {
        self.arrived = false;
        self.cleared = false;
        self.still_since = now;
        self.held_until = Some(until);
    }

    /// Whether the file is ready. `is_written` costs an open, and is asked only when it decides.
    pub(super) fn judge(
        &mut self,
        moment: Moment,
        settle: Duration,
        is_written: impl FnOnce() -> Option<bool>,
    ) -> Readiness {
        if self.cleared {
            return Readiness::Take;
        }
        let held = self
            .held_until
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(moment.now));
        if !held.is_zero() {
            return Readiness::Wait(NotReady::StillChanging, held);
        }
        let unrest = self.unrest(moment, settle);
        if !self.arrived && !unrest.is_zero() {
            return Readiness::Wait(NotReady::StillChanging, unrest);
        }
        // a certain answer of the kernel overrules every clock, however the file came
        if is_written() == Some(true) {
            let since = *self.open_since.get_or_insert(moment.now);
            let open_for = moment.now.saturating_duration_since(since);
            let wait = (open_for / 4).clamp(SHORTEST_ASK_WAIT, LONGEST_ASK_WAIT);
            return Readiness::Wait(NotReady::OpenForWriting, wait.max(settle));
        }
        self.open_since = None;
        self.cleared = true;
        Readiness::Take
    }

    /// For how long the file must still be watched until it has been still for `settle`.
    fn unrest(&self, moment: Moment, settle: Duration) -> Duration {
        let watched = moment.now.saturating_duration_since(self.still_since);
        let aged = match moment.wall.duration_since(self.facts.modified()) {
            Ok(age) if moment.trust_wall && !self.mtime_lies => age,
            // dated in the future, or by a clock that was set: only what we saw ourselves counts
            _ => Duration::ZERO,
        };
        settle.saturating_sub(watched.max(aged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::folder::{FileId, Kind};

    const SETTLE: Duration = Duration::from_secs(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// One file and the clocks, in milliseconds from a start.
    struct FileHistory {
        start: Instant,
        observation: Option<Observation>,
        round: u64,
    }

    #[derive(Clone, Copy)]
    struct Look {
        at: u64,
        // the wall clock says 1,000,000 seconds at the start
        wall: u64,
        trust_wall: bool,
        inode: u64,
        bytes: u64,
        mtime: u64,
        came: bool,
        links: u32,
        written: Option<bool>,
    }

    /// A file in the making, found at the start.
    const FRESH: Look = Look {
        at: 0,
        wall: 1_000_000_000,
        trust_wall: true,
        inode: 1,
        bytes: 10,
        mtime: 1_000_000_000,
        came: false,
        links: 1,
        written: Some(false),
    };

    impl Look {
        fn at(self, at: u64) -> Look {
            Look { at, wall: self.wall + at - self.at, ..self }
        }
    }

    impl FileHistory {
        fn new() -> FileHistory {
            FileHistory { start: Instant::now(), observation: None, round: 0 }
        }

        fn look(&mut self, look: Look) -> Readiness {
            let facts = Facts {
                kind: Kind::File,
                file: FileId { device: (8, 1), inode: look.inode, born: (0, 0) },
                bytes: look.bytes,
                mtime: ((look.mtime / 1000) as i64, (look.mtime % 1000) as u32 * 1_000_000),
                links: look.links,
            };
            let moment = Moment {
                now: self.start + ms(look.at),
                wall: SystemTime::UNIX_EPOCH + ms(look.wall),
                trust_wall: look.trust_wall,
            };
            self.round += 1;
            let mut observation =
                Observation::new(self.observation.as_ref(), facts, look.came, moment, self.round);
            let verdict = observation.judge(moment, SETTLE, || look.written);
            self.observation = Some(observation);
            verdict
        }
    }

    fn changing(wait_ms: u64) -> Readiness {
        Readiness::Wait(NotReady::StillChanging, ms(wait_ms))
    }

    #[test]
    fn a_file_written_in_place_is_taken_when_it_has_been_still() {
        let mut story = FileHistory::new();
        assert_eq!(story.look(FRESH), changing(1000));
        assert_eq!(story.look(FRESH.at(400)), changing(600));
        let grown = Look { bytes: 20, mtime: FRESH.mtime + 500, ..FRESH };
        assert_eq!(story.look(grown.at(600)), changing(900));
        assert_eq!(story.look(grown.at(1499)), changing(1));
        assert_eq!(story.look(grown.at(1500)), Readiness::Take);
    }

    #[test]
    fn an_old_file_is_taken_at_first_sight() {
        let old = Look { mtime: FRESH.mtime - 1000, ..FRESH };
        assert_eq!(FileHistory::new().look(old), Readiness::Take);
        assert_eq!(FileHistory::new().look(Look { mtime: old.mtime + 1, ..old }), changing(1));
    }

    #[test]
    fn a_writer_that_pauses_is_waited_for_and_asked_for_only_when_it_decides() {
        let mut story = FileHistory::new();
        let paused = Look { written: Some(true), ..FRESH };
        assert_eq!(story.look(paused), changing(1000));
        let open = Readiness::Wait(NotReady::OpenForWriting, SETTLE);
        assert_eq!(story.look(paused.at(1000)), open);
        assert_eq!(story.look(paused.at(2000)), open);
        assert_eq!(story.look(FRESH.at(2001)), Readiness::Take);
        // where the kernel cannot tell, stillness decides
        assert_eq!(FileHistory::new().look(Look { written: None, ..FRESH }), changing(1000));
        assert_eq!(
            FileHistory::new().look(Look { written: None, mtime: 0, ..FRESH }),
            Readiness::Take
        );
    }

    #[test]
    fn what_was_renamed_or_linked_in_is_taken_at_once() {
        assert_eq!(FileHistory::new().look(Look { came: true, ..FRESH }), Readiness::Take);
        assert_eq!(FileHistory::new().look(Look { links: 2, ..FRESH }), Readiness::Take);
        // seen before the hint arrived
        let mut story = FileHistory::new();
        assert_eq!(story.look(FRESH), changing(1000));
        assert_eq!(story.look(Look { came: true, ..FRESH.at(1) }), Readiness::Take);
    }

    /// Has failed for a file that came whole and was not asked about, and for one that was asked
    /// about as often as at first.
    #[test]
    fn case_109_what_came_whole_is_not_taken_while_somebody_has_it_open_for_writing() {
        for how in [Look { came: true, ..FRESH }, Look { links: 2, ..FRESH }] {
            let mut story = FileHistory::new();
            let open = Look { written: Some(true), ..how };
            assert_eq!(story.look(open), Readiness::Wait(NotReady::OpenForWriting, SETTLE));
            // the hint is heard once, and remembered
            let later = Look { came: false, ..open };
            assert_eq!(
                story.look(later.at(1000)),
                Readiness::Wait(NotReady::OpenForWriting, SETTLE)
            );
            assert_eq!(
                story.look(later.at(20_000)),
                Readiness::Wait(NotReady::OpenForWriting, ms(5000)),
                "the longer it is open, the less often it is asked about"
            );
            assert_eq!(
                story.look(later.at(3_600_000)),
                Readiness::Wait(NotReady::OpenForWriting, LONGEST_ASK_WAIT)
            );
            let observation = story.observation.as_ref().unwrap();
            assert_eq!(observation.open_since, Some(story.start));
            let closed = Look { written: Some(false), ..later };
            assert_eq!(story.look(closed.at(3_600_001)), Readiness::Take, "it came whole");
            assert_eq!(story.observation.unwrap().open_since, None);
        }
    }

    #[test]
    fn another_file_under_the_same_name_begins_anew() {
        let mut story = FileHistory::new();
        assert_eq!(story.look(Look { came: true, ..FRESH }), Readiness::Take);
        let other = Look { inode: 2, mtime: FRESH.mtime + 5000, ..FRESH.at(5000) };
        assert_eq!(story.look(other), changing(1000));
    }

    #[test]
    fn a_date_in_the_future_or_a_set_clock_leave_our_own_watching() {
        let mut story = FileHistory::new();
        let future = Look { mtime: FRESH.mtime + 86_400_000, ..FRESH };
        assert_eq!(story.look(future), changing(1000));
        assert_eq!(story.look(future.at(1000)), Readiness::Take);

        let mut story = FileHistory::new();
        let doubted = Look { mtime: 0, trust_wall: false, ..FRESH };
        assert_eq!(story.look(doubted), changing(1000));
        assert_eq!(story.look(doubted.at(1000)), Readiness::Take);
    }

    #[test]
    fn a_date_that_does_not_move_with_the_size_is_not_believed() {
        let mut story = FileHistory::new();
        let old = Look { mtime: FRESH.mtime - 500, ..FRESH };
        assert_eq!(story.look(old), changing(500));
        // the writer dates its file back after each block
        let grown = Look { bytes: 11, mtime: old.mtime - 60_000, ..old };
        assert_eq!(story.look(grown.at(400)), changing(1000));
        assert_eq!(story.look(grown.at(1399)), changing(1));
        assert_eq!(story.look(grown.at(1400)), Readiness::Take);
    }

    #[test]
    fn a_ready_file_stays_ready_without_being_asked_again_until_it_changes() {
        let mut story = FileHistory::new();
        let old = Look { mtime: 0, ..FRESH };
        assert_eq!(story.look(old), Readiness::Take);
        assert_eq!(story.look(Look { written: Some(true), ..old.at(1) }), Readiness::Take);
        let written = Look { bytes: 11, mtime: FRESH.mtime, written: Some(true), ..FRESH.at(2) };
        assert_eq!(story.look(written), changing(998));
    }
}
