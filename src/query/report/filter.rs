//! Which windows and late events a report lists.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};

use super::{WindowState, shown};
use crate::store::Span;

/// Which windows and late events are listed; the default lists all. The figures of the whole
/// store are never filtered.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only keys that match; see [`Filter::key_glob`].
    pub key: Option<GlobMatcher>,
    /// Only windows that start in it, and late events of such windows.
    pub span: Span,
    /// Only windows in that state. Late events are listed whatever it is.
    pub state: Option<WindowState>,
}

impl Filter {
    /// A pattern for whole keys, case and all: `*` stands for anything, a slash too, `?` for one
    /// byte (two to four of them for a character outside ASCII), `[a-z]` and `[!a-z]` for one byte
    /// of a set, `{a,b}` for one of several patterns; a backslash takes the next character as it
    /// is.
    ///
    /// # Errors
    /// When it is no pattern, or when a set holds a character outside ASCII: matching goes by
    /// bytes, so such a set would match something else than it says.
    pub fn key_glob(pattern: &str) -> Result<GlobMatcher, KeyGlobError> {
        let refused =
            |reason: String| KeyGlobError { pattern: pattern.to_owned(), reason: reason.clone() };
        if has_wide_set(pattern) {
            return Err(refused("a set in [] may hold ASCII characters only".to_owned()));
        }
        GlobBuilder::new(pattern)
            .backslash_escape(true)
            .empty_alternates(true)
            .build()
            .map(|glob| glob.compile_matcher())
            .map_err(|error| refused(error.kind().to_string()))
    }

    /// Whether a window of that key with that start, or a late event of it, is let through.
    pub fn takes(&self, key: &str, start_ms: i64) -> bool {
        let span = self.span;
        self.takes_key(key)
            && span.from_ms.is_none_or(|from_ms| from_ms <= start_ms)
            && span.to_ms.is_none_or(|to_ms| start_ms < to_ms)
    }

    pub(super) fn takes_key(&self, key: &str) -> bool {
        self.key.as_ref().is_none_or(|glob| glob.is_match(key))
    }
}

/// Whether a character outside ASCII stands between `[` and `]`.
fn has_wide_set(pattern: &str) -> bool {
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            '[' => {
                // a `]` that comes first belongs to the set
                let set = chars.as_str();
                let set = set.strip_prefix(['!', '^']).unwrap_or(set);
                let Some(end) = set.char_indices().skip(1).find(|(_, c)| *c == ']') else {
                    return false;
                };
                if !set[..end.0].is_ascii() {
                    return true;
                }
                chars = set[end.0..].chars();
            }
            _ => {}
        }
    }
    false
}

/// A pattern for keys that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyGlobError {
    /// What was given.
    pub pattern: String,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for KeyGlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is no pattern for keys: {}; expected a glob such as 'checkout*' or '{{a,b}}', with \
             a backslash before any of *?[]{{}} that is meant as it stands",
            shown(&self.pattern),
            self.reason
        )
    }
}

impl std::error::Error for KeyGlobError {}
