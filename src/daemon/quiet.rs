//! How long nothing has come from each source, by what we ourselves could see.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::store::SourceRow;

/// How much of the time between two looks into the inbox counts while we were at work: when we stood
/// still (a slow disk, a long file of another source, a stopped process), nobody else fell silent.
const MOST_AT_WORK: Duration = Duration::from_secs(1);

/// How much later than meant a wait can end on a busy machine. After a longer one we were not there.
const LATE_BY: Duration = Duration::from_secs(1);

/// What is known of the silence of each source.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    sources: HashMap<String, Silence>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Silence {
    last_batch: Option<u64>,
    lasted: Duration,
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
    /// Sources that are idle from now on, by name.
    pub(super) idle: Vec<String>,
    /// Sources that are back, by name: a file of theirs is there.
    pub(super) back: Vec<String>,
    /// How soon the next one can fall idle.
    pub(super) next: Option<Duration>,
}

impl Quiet {
    /// After a look into the inbox: `rows` is what the store knows of the sources, `waiting` names
    /// those of which a file is there, in whatever state.
    pub(super) fn look(
        &mut self,
        rows: &[SourceRow],
        waiting: &HashSet<&str>,
        spent: Spent,
        timeout: Duration,
    ) -> Turn {
        let counted = match spent {
            Spent::AtWork(passed) => passed.min(MOST_AT_WORK),
            // we were stopped in it, and do not know how long we watched before
            Spent::Waiting { passed, meant } if passed > meant + LATE_BY => Duration::ZERO,
            Spent::Waiting { passed, meant } => passed.min(meant),
        };
        let mut turn = Turn::default();
        let mut sources = HashMap::with_capacity(rows.len());
        for row in rows {
            let is_here = waiting.contains(row.source.as_str());
            let before = self.sources.get(&row.source);
            let is_heard = is_here || before.is_none_or(|was| was.last_batch != row.last_batch);
            let lasted = match before {
                Some(was) if !is_heard => was.lasted + counted,
                _ => Duration::ZERO,
            };
            match (row.idle, is_here) {
                (true, true) => turn.back.push(row.source.clone()),
                (false, _) if lasted >= timeout => turn.idle.push(row.source.clone()),
                (false, _) => {
                    let left = timeout - lasted;
                    turn.next = Some(turn.next.map_or(left, |next| next.min(left)));
                }
                (true, false) => {}
            }
            let silence = Silence { last_batch: row.last_batch, lasted };
            sources.insert(row.source.clone(), silence);
        }
        self.sources = sources;
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Counts;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn row(source: &str, last_batch: u64, idle: bool) -> SourceRow {
        SourceRow {
            source: source.to_owned(),
            max_timestamp_ms: Some(1),
            declared: false,
            idle,
            presence_since_ms: None,
            last_batch_at_ms: Some(0),
            last_batch: Some(last_batch),
            last_file: Some("f".to_owned()),
            counts: Counts::default(),
        }
    }

    fn waited(seconds: u64) -> Spent {
        let passed = Duration::from_secs(seconds);
        Spent::Waiting { passed, meant: passed }
    }

    fn look(quiet: &mut Quiet, rows: &[SourceRow], waiting: &[&str], spent: Spent) -> Turn {
        quiet.look(rows, &waiting.iter().copied().collect(), spent, TIMEOUT)
    }

    #[test]
    fn a_source_falls_idle_when_its_time_is_up_and_not_before() {
        let mut quiet = Quiet::default();
        let rows = [row("a", 1, false)];
        // the first look begins the count: what was before we started is not known
        assert_eq!(look(&mut quiet, &rows, &[], waited(60)).idle, Vec::<String>::new());
        assert_eq!(look(&mut quiet, &rows, &[], waited(9)).next, Some(Duration::from_secs(1)));
        assert_eq!(look(&mut quiet, &rows, &[], waited(1)).idle, ["a"]);
    }

    #[test]
    fn events_and_waiting_files_begin_the_count_anew() {
        let mut quiet = Quiet::default();
        look(&mut quiet, &[row("a", 1, false)], &[], waited(0));
        look(&mut quiet, &[row("a", 1, false)], &[], waited(9));
        look(&mut quiet, &[row("a", 2, false)], &[], waited(9));
        let turn = look(&mut quiet, &[row("a", 2, false)], &["a"], waited(60));
        assert!(turn.idle.is_empty(), "a file of it waits");
        assert_eq!(look(&mut quiet, &[row("a", 2, false)], &[], waited(10)).idle, ["a"]);
    }

    #[test]
    fn our_own_stall_makes_nobody_idle() {
        let mut quiet = Quiet::default();
        let rows = [row("a", 1, false)];
        look(&mut quiet, &rows, &[], waited(0));
        let hour = Duration::from_secs(3600);
        let stopped = Spent::Waiting { passed: hour, meant: Duration::from_secs(5) };
        assert!(look(&mut quiet, &rows, &[], stopped).idle.is_empty());
        assert!(look(&mut quiet, &rows, &[], Spent::AtWork(hour)).idle.is_empty());
        // also in the very wait after which it would have been idle
        look(&mut quiet, &rows, &[], waited(8));
        let meant = Duration::from_secs(1);
        let stopped = Spent::Waiting { passed: hour, meant };
        assert!(look(&mut quiet, &rows, &[], stopped).idle.is_empty());
        let late = Spent::Waiting { passed: meant * 2, meant };
        assert_eq!(look(&mut quiet, &rows, &[], late).idle, ["a"]);
    }

    #[test]
    fn an_idle_source_is_back_when_a_file_of_it_is_there() {
        let mut quiet = Quiet::default();
        let rows = [row("a", 1, true), row("b", 1, true)];
        let turn = look(&mut quiet, &rows, &["a"], waited(1));
        assert_eq!((turn.back, turn.idle), (vec!["a".to_owned()], vec![]));
    }
}
