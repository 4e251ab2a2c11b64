//! Files that processes died of: taken alone, then after all others, and at last not any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::spool::in_flight::{CrashSuspect, DEATHS, InFlight};
use crate::spool::{Entry, Spool};

/// For how long this process has to live before it takes a file that two have died of. Whoever
/// kills daemons at random, one after the other, is not mistaken for the file: it would have to come
/// just when that is in hand, after a while in which nothing happened.
const CALM: Duration = Duration::from_secs(3);

/// What is to be done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is taken with the others.
    Now,
    /// It is taken when it is its turn, alone.
    Alone,
    /// It is taken after the others, alone.
    Last,
    /// The same, but not yet.
    NotYet,
    /// It is not tried any more, after so many deaths.
    Never(u32),
}

/// The files that are suspected.
#[derive(Debug)]
pub(super) struct Quarantine {
    in_flight: Arc<InFlight>,
    spool: Spool,
    known: Vec<(Entry, CrashSuspect)>,
    begun: Instant,
}

impl Quarantine {
    /// Those that the processes before this one have left.
    pub(super) fn begin(spool: &Spool) -> Quarantine {
        let (in_flight, quarantine) = InFlight::begin(spool).unwrap_or_else(|error| {
            log::warn!(
                "{}: what is in hand cannot be noted there: {error}; a file that crashes this \
                 process is tried again each time",
                spool.root().display()
            );
            (InFlight::default(), Vec::new())
        });
        let known = quarantine.into_iter().filter_map(|suspect| Some((suspect.entry()?, suspect)));
        let known: Vec<_> = known.collect();
        for (entry, suspect) in &known {
            log::warn!(
                "a process before this one ended with inbox/{entry} in hand; deaths in a row at \
                 that place of it: {}; it is taken alone, then after all others, and after {DEATHS} \
                 deaths it goes into failed/",
                suspect.deaths
            );
        }
        Quarantine {
            in_flight: Arc::new(in_flight),
            spool: spool.clone(),
            known,
            begun: Instant::now(),
        }
    }

    /// The note of what is in hand.
    pub(super) fn in_flight(&self) -> Arc<InFlight> {
        Arc::clone(&self.in_flight)
    }

    /// When a file is to be taken.
    ///
    /// A panic has a culprit. A process that ended without a word may have been killed for any
    /// reason, and a file that is taken later than its turn may be late: so after one such end it is
    /// only taken alone, which tells whether it is to blame, and after the second it is the last.
    pub(super) fn turn(&self, entry: &Entry, now: Instant) -> Turn {
        let Some((_, suspect)) = self.known.iter().find(|(known, _)| known == entry) else {
            return Turn::Now;
        };
        // another file may have the name by now
        if !suspect.is_there(self.spool.inbox()) {
            return Turn::Now;
        }
        match suspect.deaths {
            deaths if deaths >= DEATHS => Turn::Never(deaths),
            deaths if deaths + 1 == DEATHS && !self.calm_in(now).is_zero() => Turn::NotYet,
            deaths if deaths + 1 == DEATHS || suspect.panicked || suspect.stuck > 1 => Turn::Last,
            _ => Turn::Alone,
        }
    }

    /// How long until files are taken that have to wait for it.
    pub(super) fn calm_in(&self, now: Instant) -> Duration {
        (self.begun + CALM).saturating_duration_since(now)
    }

    /// It was taken, and nobody died of it.
    pub(super) fn clear(&mut self, entry: &Entry) {
        let before = self.known.len();
        self.known.retain(|(known, _)| known != entry);
        if self.known.len() != before {
            let left: Vec<CrashSuspect> =
                self.known.iter().map(|(_, suspect)| suspect.clone()).collect();
            // what stays there by mistake is compared with the file at the next start
            let _ = self.in_flight.keep(&left);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::spool::in_flight::{Excuse, Hand};
    use crate::spool::safe_open;

    /// What a process does with a file that so many others ended over, in that way.
    fn turn(deaths: u32, excuse: Excuse, is_calm: bool) -> Turn {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        fs::write(spool.inbox().join("a"), "a").unwrap();
        let entry = Entry::new(None, "a");
        for _ in 0..deaths {
            let (in_flight, _) = InFlight::begin(&spool).unwrap();
            let opened = safe_open::open_entry(spool.inbox(), &entry).unwrap();
            in_flight.take(Hand::Reader, &entry, &opened);
            in_flight.excuse(excuse);
        }
        let mut quarantine = Quarantine::begin(&spool);
        let now = quarantine.begun + if is_calm { CALM } else { Duration::ZERO };
        assert_eq!(quarantine.turn(&Entry::new(None, "b"), now), Turn::Now);
        let turn = quarantine.turn(&entry, now);
        quarantine.clear(&entry);
        assert_eq!(quarantine.turn(&entry, now), Turn::Now);
        assert_eq!(InFlight::begin(&spool).unwrap().1, [], "it was kept");
        turn
    }

    #[test]
    fn the_more_processes_die_of_a_file_the_later_it_is_taken() {
        let panicked = Excuse::Panicked(Hand::Reader);
        for (deaths, excuse, is_calm, expected) in [
            (0, Excuse::None, false, Turn::Now),
            (1, Excuse::None, false, Turn::Alone),
            (1, panicked, false, Turn::Last),
            (1, Excuse::Stuck, false, Turn::Alone),
            (2, Excuse::Stuck, false, Turn::Last),
            (9, Excuse::Stuck, true, Turn::Last),
            (9, Excuse::Ending, true, Turn::Now),
            (2, Excuse::None, false, Turn::NotYet),
            (2, Excuse::None, true, Turn::Last),
            (3, Excuse::None, false, Turn::Never(3)),
            (3, panicked, true, Turn::Never(3)),
        ] {
            assert_eq!(turn(deaths, excuse, is_calm), expected, "{deaths} {excuse:?} {is_calm}");
        }
    }
}
