//! How long nothing has come from each source, by what we ourselves could see.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::store::{Error, Silent};

/// How much of the time between two looks into the inbox counts while we were at work: when we stood
/// still (a slow disk, a long file of another source, a stopped process), nobody else fell silent.
const MOST_AT_WORK: Duration = Duration::from_secs(1);

/// How much later than meant a wait can end on a busy machine. After a longer one we were not there.
const LATE_BY: Duration = Duration::from_secs(1);

/// How many sources are asked for at once.
const ROWS_AT_ONCE: usize = 100;

/// How many sources fall idle at once: one act names no more. The next look comes at once.
const MOST_AT_ONCE: usize = 1000;

/// Into how many steps the time until a source is idle is cut: what was heard within one step counts
/// as heard at its end.
const STEPS: u32 = 1024;

/// Tells how long each source was silent from the batch that named it last, so that nothing has to
/// be remembered of a source.
#[derive(Debug, Default)]
pub(super) struct Idleness {
    /// For how long we have watched.
    watched: Duration,
    /// The last batch there was, and how long we had watched then; both rise.
    batches: VecDeque<(u64, Duration)>,
    /// The sources of which a file waited lately, and how long we had watched then.
    here: HashMap<String, Duration>,
}

/// How the time since the last look was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spent {
    /// At work, for so long.
    AtWork(Duration),
    /// Waiting, for so long, of so much that was meant.
    Waiting {
        /// What passed.
        passed: Duration,
        /// What was meant.
        meant: Duration,
    },
}

/// What a look brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// Sources that are idle from now on.
    pub(super) idle: Vec<String>,
    /// How soon the next one can fall idle.
    pub(super) next: Option<Duration>,
}

/// What [`Store::silent`](crate::store::Store::silent) answers.
pub(super) type Ask<'a> =
    dyn FnMut(Option<&Silent>, usize) -> Result<Vec<(u64, Silent)>, Error> + 'a;

impl Idleness {
    /// After a look into the inbox: `waiting` names the sources of which a file is there, in
    /// whatever state. Only those are looked at that may have been silent for too long.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub(super) fn look(
        &mut self,
        ask: &mut Ask<'_>,
        waiting: &HashSet<&str>,
        spent: Spent,
        timeout: Duration,
    ) -> Result<Turn, Error> {
        self.watched += match spent {
            Spent::AtWork(passed) => passed.min(MOST_AT_WORK),
            // we were stopped in it, and do not know how long we watched before
            Spent::Waiting { passed, meant } if passed > meant + LATE_BY => Duration::ZERO,
            Spent::Waiting { passed, meant } => passed.min(meant),
        };
        let watched = self.watched;
        self.here.retain(|_, at| *at + timeout > watched);
        self.here.extend(waiting.iter().map(|source| ((*source).to_owned(), watched)));
        let mut turn = Turn::default();
        let mut after: Option<Silent> = None;
        loop {
            let rows = ask(after.as_ref(), ROWS_AT_ONCE)?;
            let Some((last_batch, last)) = rows.last().cloned() else { return Ok(turn) };
            self.note(last_batch, timeout);
            for (_, Silent { source, heard_in }) in rows {
                let heard = self.heard(heard_in);
                let here = self.here.get(&source).copied().unwrap_or_default();
                let lasted = watched.saturating_sub(heard.max(here));
                match timeout.checked_sub(lasted).filter(|left| !left.is_zero()) {
                    None => turn.idle.push(source),
                    Some(left) => turn.next = Some(turn.next.map_or(left, |next| next.min(left))),
                }
                if turn.idle.len() == MOST_AT_ONCE {
                    turn.next = Some(Duration::ZERO);
                    return Ok(turn);
                }
                // all others were heard later
                if watched.saturating_sub(heard) < timeout {
                    return Ok(turn);
                }
            }
            after = Some(last);
        }
    }

    /// Notes that the last batch by now is that one.
    fn note(&mut self, last_batch: u64, timeout: Duration) {
        let watched = self.watched;
        if self.batches.back().is_none_or(|(batch, _)| *batch < last_batch) {
            let is_same_step = |at: &Duration| *at + timeout / STEPS > watched;
            let before = self.batches.len().checked_sub(2).map(|index| self.batches[index].1);
            if before.as_ref().is_some_and(is_same_step) {
                self.batches.pop_back();
            }
            self.batches.push_back((last_batch, watched));
        }
        // of what was silent for longer it does not matter for how long
        while self.batches.get(1).is_some_and(|(_, at)| *at + timeout <= watched) {
            self.batches.pop_front();
        }
    }

    /// How long we had watched when that batch came, by what we saw first after it.
    fn heard(&self, batch: u64) -> Duration {
        let index = self.batches.partition_point(|(last_batch, _)| *last_batch < batch);
        self.batches.get(index).map_or(self.watched, |(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn waited(seconds: u64) -> Spent {
        let passed = Duration::from_secs(seconds);
        Spent::Waiting { passed, meant: passed }
    }

    /// Looks at sources that were heard of last in those batches.
    fn look(idleness: &mut Idleness, rows: &[(&str, u64)], waiting: &[&str], spent: Spent) -> Turn {
        let last_batch = rows.iter().map(|(_, batch)| *batch).max().unwrap_or(0);
        let mut all: Vec<(u64, &str)> = rows.iter().map(|(name, batch)| (*batch, *name)).collect();
        all.sort_unstable();
        let mut ask = |after: Option<&Silent>, most: usize| {
            let is_behind = |(heard_in, source): &&(u64, &str)| {
                after.is_none_or(|after| (*heard_in, *source) > (after.heard_in, &after.source))
            };
            let silent = |(heard_in, source): &(u64, &str)| {
                (last_batch, Silent { source: (*source).to_owned(), heard_in: *heard_in })
            };
            Ok(all.iter().filter(is_behind).take(most).map(silent).collect())
        };
        let waiting = waiting.iter().copied().collect();
        idleness.look(&mut ask, &waiting, spent, TIMEOUT).unwrap()
    }

    #[test]
    fn a_source_falls_idle_when_its_time_is_up_and_not_before() {
        let mut idleness = Idleness::default();
        let rows = [("a", 1)];
        // the first look begins the count: what was before we started is not known
        assert_eq!(look(&mut idleness, &rows, &[], waited(60)).idle, Vec::<String>::new());
        assert_eq!(look(&mut idleness, &rows, &[], waited(9)).next, Some(Duration::from_secs(1)));
        assert_eq!(look(&mut idleness, &rows, &[], waited(1)).idle, ["a"]);
    }

    #[test]
    fn events_and_waiting_files_begin_the_count_anew() {
        let mut idleness = Idleness::default();
        look(&mut idleness, &[("a", 1)], &[], waited(0));
        look(&mut idleness, &[("a", 1)], &[], waited(9));
        look(&mut idleness, &[("a", 2)], &[], waited(9));
        let turn = look(&mut idleness, &[("a", 2)], &["a"], waited(60));
        assert!(turn.idle.is_empty(), "a file of it waits");
        assert_eq!(look(&mut idleness, &[("a", 2)], &[], waited(10)).idle, ["a"]);
    }

    #[test]
    fn our_own_stall_makes_nobody_idle() {
        let mut idleness = Idleness::default();
        let rows = [("a", 1)];
        look(&mut idleness, &rows, &[], waited(0));
        let hour = Duration::from_secs(3600);
        let stopped = Spent::Waiting { passed: hour, meant: Duration::from_secs(5) };
        assert!(look(&mut idleness, &rows, &[], stopped).idle.is_empty());
        assert!(look(&mut idleness, &rows, &[], Spent::AtWork(hour)).idle.is_empty());
        // also in the very wait after which it would have been idle
        look(&mut idleness, &rows, &[], waited(8));
        let meant = Duration::from_secs(1);
        let stopped = Spent::Waiting { passed: hour, meant };
        assert!(look(&mut idleness, &rows, &[], stopped).idle.is_empty());
        let late = Spent::Waiting { passed: meant * 2, meant };
        assert_eq!(look(&mut idleness, &rows, &[], late).idle, ["a"]);
    }

    #[test]
    fn the_silence_of_many_is_told_apart_and_little_is_remembered() {
        let mut idleness = Idleness::default();
        for batch in 1..=10_000_u64 {
            let rows = [("a", 1), ("b", batch.min(3000)), ("c", batch), ("d", 1)];
            let spent = Spent::Waiting {
                passed: Duration::from_millis(4),
                meant: Duration::from_millis(4),
            };
            let turn = look(&mut idleness, &rows, &["d"], spent);
            assert!(idleness.batches.len() <= 2 * STEPS as usize + 2, "{}", idleness.batches.len());
            let idle = match batch {
                ..=2500 => [].as_slice(),
                2501..=5502 => &["a"],
                _ => &["a", "b"],
            };
            // within a step of ten milliseconds
            let is_edge = (2501..=2510).contains(&batch) || (5498..=5515).contains(&batch);
            assert!(is_edge || turn.idle == idle, "{batch}: {:?}", turn.idle);
        }
    }

    #[test]
    fn so_many_fall_idle_at_once_and_no_more() {
        let mut idleness = Idleness::default();
        let names: Vec<String> = (0..1500).map(|number| format!("s{number}")).collect();
        let rows: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        look(&mut idleness, &rows, &[], waited(0));
        let turn = look(&mut idleness, &rows, &[], waited(10));
        assert_eq!((turn.idle.len(), turn.next), (MOST_AT_ONCE, Some(Duration::ZERO)));
    }
}
