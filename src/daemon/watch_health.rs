//! Whether the kernel tells of the files that come: where it does not, only listing finds them.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// After how many listings in a row that found files without a hint the kernel is not relied on.
const MOST_MISSED: u32 = 3;

/// What was found without a hint, and whether the hint came after all.
#[derive(Debug, Default)]
pub(super) struct WatchHealth {
    // files of the last listing whose hint may be on its way
    unheard: HashSet<PathBuf>,
    missed: u32,
    // any hint came since the last listing
    heard: bool,
}

impl WatchHealth {
    /// A hint came.
    pub(super) fn hear(&mut self, path: &Path) {
        self.heard = true;
        self.unheard.remove(path);
    }

    /// All was listed by time, and these files were found that no hint had named.
    pub(super) fn listed(&mut self, unannounced: impl Iterator<Item = PathBuf>) {
        if !self.unheard.is_empty() {
            self.missed += 1;
        }
        self.unheard = unannounced.collect();
        if self.unheard.is_empty() && self.heard {
            self.missed = 0;
        }
        self.heard = false;
    }

    /// Begins anew, with another watch.
    pub(super) fn reset(&mut self) {
        *self = WatchHealth::default();
    }

    /// Files come, and the kernel does not tell of them.
    pub(super) fn is_deaf(&self) -> bool {
        self.missed >= MOST_MISSED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(watch_health: &mut WatchHealth, names: &[&str]) {
        watch_health.listed(names.iter().map(PathBuf::from));
    }

    #[test]
    fn case_138_files_without_hints_are_noticed_and_hints_without_them_clear_that() {
        let mut watch_health = WatchHealth::default();
        for name in ["a", "b", "c"] {
            listed(&mut watch_health, &[name]);
            assert!(!watch_health.is_deaf());
        }
        listed(&mut watch_health, &[]);
        assert!(watch_health.is_deaf());
        listed(&mut watch_health, &[]);
        assert!(watch_health.is_deaf(), "nothing came that could have been heard of");
        watch_health.hear(Path::new("d"));
        listed(&mut watch_health, &[]);
        assert!(!watch_health.is_deaf());
    }

    #[test]
    fn a_hint_that_comes_after_the_listing_is_only_late() {
        let mut watch_health = WatchHealth::default();
        for _ in 0..10 {
            listed(&mut watch_health, &["a"]);
            watch_health.hear(Path::new("a"));
        }
        assert!(!watch_health.is_deaf());
        // one producer is heard of, and another is not
        for _ in 0..4 {
            listed(&mut watch_health, &["a", "b"]);
            watch_health.hear(Path::new("a"));
        }
        assert!(watch_health.is_deaf());
    }
}
