//! The files for which new sources are expected: when all of them have come to an end, their source
//! is not waited for any more.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::spool::Entry;

/// How many sources are expected at once, at most.
pub(super) const MOST: usize = 1000;

/// For how long a file may be not ready, or rest after a fault of its own, before its source is no
/// longer expected because of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The files for which sources are expected, each with the time since which it is held up.
#[derive(Debug, Default)]
pub(super) struct ExpectedFiles {
    sources: HashMap<String, HashMap<Entry, Option<Instant>>>,
}

/// What a look brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// Sources of which no file is left to wait for, by name.
    pub(super) over: Vec<String>,
    /// How soon the next file can have been held up for too long.
    pub(super) next: Option<Duration>,
}

impl ExpectedFiles {
    /// How many sources there are.
    pub(super) fn len(&self) -> usize {
        self.sources.len()
    }

    /// Begins to wait for those of these files that are of these sources.
    pub(super) fn begin<'e>(&mut self, names: &[String], files: impl Iterator<Item = &'e Entry>) {
        let mut new: HashMap<&str, HashMap<Entry, Option<Instant>>> =
            names.iter().map(|source| (source.as_str(), HashMap::new())).collect();
        for entry in files {
            if let Some(files) = new.get_mut(entry.source()) {
                files.insert(entry.clone(), None);
            }
        }
        self.sources.extend(new.into_iter().map(|(source, files)| (source.to_owned(), files)));
    }

    /// After a look into the inbox: `here` holds what can be taken, `is_held_up` tells what is not
    /// ready or rests. A file that is in neither was taken, refused or removed.
    pub(super) fn look(
        &mut self,
        here: &HashSet<&Entry>,
        is_held_up: &dyn Fn(&Entry) -> bool,
        now: Instant,
    ) -> Turn {
        let mut turn = Turn::default();
        self.sources.retain(|source, files| {
            files.retain(|entry, since| {
                if !is_held_up(entry) {
                    *since = None;
                    return here.contains(entry);
                }
                let until = *since.get_or_insert(now) + PATIENCE;
                let left = until.saturating_duration_since(now);
                if !left.is_zero() {
                    turn.next = Some(turn.next.map_or(left, |next| next.min(left)));
                }
                !left.is_zero()
            });
            if files.is_empty() {
                turn.over.push(source.clone());
            }
            !files.is_empty()
        });
        turn.over.sort_unstable();
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_when_each_file_was_taken_or_held_up_for_too_long() {
        let file = |name: &str| Entry::new(Some("a"), name);
        let (one, two, other) = (file("1"), file("2"), Entry::new(None, "1"));
        let mut expected = ExpectedFiles::default();
        expected.begin(&["a".to_owned()], [&one, &two, &other].into_iter());
        let now = Instant::now();
        let set =
            |files: &[&'static str]| -> Vec<Entry> { files.iter().map(|f| file(f)).collect() };
        let mut look = |here: &[&'static str], held_up: &[&'static str], at: u64| {
            let (here, held_up) = (set(here), set(held_up));
            let here = here.iter().collect();
            expected.look(&here, &|entry| held_up.contains(entry), now + Duration::from_secs(at))
        };
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!(look(&["1", "2"], &[], 0), Turn::default());
        assert_eq!(look(&["2"], &["1"], 10), Turn { over: vec![], next: seconds(60) });
        // it became ready in between: the count begins anew
        assert_eq!(look(&["1"], &[], 60), Turn::default());
        assert_eq!(look(&[], &["1"], 65).next, seconds(60));
        assert_eq!(look(&[], &["1"], 124).next, seconds(1));
        assert_eq!(look(&[], &["1"], 125), Turn { over: vec!["a".to_owned()], next: None });
        assert_eq!(look(&[], &["1"], 126), Turn::default(), "told once");
    }
}
