//! Fair turns between source folders: a producer whose files sort first, and keep coming, does not
//! hold up the others.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::spool::Entry;

/// For how long files that became ready later may be taken before a file.
const PATIENCE: Duration = Duration::from_secs(2);

/// Which files were overtaken. Files are taken in the order of their names. When files that became
/// ready later were taken before one for longer than [`PATIENCE`], its folder is overtaken: then the
/// overtaken folders come first, one file of each in turn. Within a folder the order stays.
#[derive(Debug, Default)]
pub(super) struct Fairness {
    /// When the file became ready that became so last, of all that were taken.
    newest_taken: Option<Instant>,
}

impl Fairness {
    /// A file was taken that was ready since then.
    pub(super) fn taken(&mut self, ready_since: Instant) {
        self.newest_taken = self.newest_taken.max(Some(ready_since));
    }

    /// Puts the files of overtaken folders first. `ready` stands in the order of the names;
    /// `ready_since` says since when a file is ready.
    pub(super) fn order<'e>(
        &self,
        ready: &mut Vec<&'e Entry>,
        ready_since: impl Fn(&Entry) -> Option<Instant>,
        now: Instant,
    ) {
        let Some(newest) = self.newest_taken else { return };
        let is_overtaken = |entry: &Entry| {
            ready_since(entry).is_some_and(|since| since < newest && since + PATIENCE <= now)
        };
        // how many files of each overtaken folder have their turn
        let mut turns: HashMap<Option<&'e str>, usize> = HashMap::new();
        for entry in ready.iter().copied() {
            let folder = entry.folder.as_deref();
            if !turns.contains_key(&folder) && is_overtaken(entry) {
                turns.insert(folder, 0);
            }
        }
        if turns.is_empty() {
            return;
        }
        let mut numbered = Vec::with_capacity(ready.len());
        for entry in ready.drain(..) {
            let turn = turns.get_mut(&entry.folder.as_deref());
            let turn = turn.map_or(usize::MAX, |turn| {
                *turn += 1;
                *turn
            });
            numbered.push((turn, entry));
        }
        // stable: what has the same turn stays in the order of the names
        numbered.sort_by_key(|(turn, _)| *turn);
        ready.extend(numbered.into_iter().map(|(_, entry)| entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has failed for an order by name alone, and for turns without patience.
    #[test]
    fn overtaken_folders_come_first_one_file_of_each_in_turn() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        // the name, and when it became ready
        let files = [
            ("flood/0", 1500),
            ("flood/1", 1200),
            ("b", 1000),
            ("flood/5", 100),
            ("x/7", 1000),
            ("y/8", 0),
            ("y/9", 1000),
        ];
        let entries: Vec<(Entry, Instant)> =
            files.iter().map(|(name, ms)| (Entry::parse(name).unwrap(), at(*ms))).collect();
        let since = |entry: &Entry| {
            entries.iter().find(|(known, _)| known == entry).map(|(_, since)| *since)
        };
        let order = |fairness: &Fairness, now_ms| {
            let mut ready: Vec<&Entry> = entries.iter().map(|(entry, _)| entry).collect();
            fairness.order(&mut ready, since, at(now_ms));
            ready.into_iter().map(Entry::shown).collect::<Vec<_>>()
        };
        let by_name: Vec<String> = files.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut fairness = Fairness::default();
        assert_eq!(order(&fairness, 9000), by_name, "nothing was taken");
        fairness.taken(at(0));
        assert_eq!(order(&fairness, 9000), by_name, "what was taken became ready no later");
        fairness.taken(at(1000));
        fairness.taken(at(500));
        assert_eq!(order(&fairness, 1999), by_name, "not for long");
        let first = ["y/8", "y/9", "flood/0", "flood/1", "b", "flood/5", "x/7"];
        assert_eq!(order(&fairness, 2000), first);
        // the others became ready no earlier than any that was taken
        let in_turn = ["flood/0", "y/8", "flood/1", "y/9", "flood/5", "b", "x/7"];
        assert_eq!(order(&fairness, 9000), in_turn);
        fairness.taken(at(1001));
        let all = ["flood/0", "b", "x/7", "y/8", "flood/1", "y/9", "flood/5"];
        assert_eq!(order(&fairness, 9000), all);
    }
}
