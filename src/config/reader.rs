//! Takes a TOML table apart key by key, and notes everything that is wrong with it on the way.
//! It knows no key of its own: the known ones are those that were asked for.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::Problem;
use crate::model::event::check_name;

/// How alike two keys are, from 0 to 1, when one can be a slip for the other.
const LEAST_LIKENESS: f64 = 0.75;

/// How much of a wrong value is shown.
const MAX_SHOWN_CHARS: usize = 60;

/// One reading of one file.
pub(super) struct TableReader<'t> {
    text: &'t str,
    base: &'t Path,
    /// Each with its byte offset.
    problems: Vec<(usize, Problem)>,
    /// Each key that was asked for, with its table's name before it.
    known: Vec<(&'static str, &'static str)>,
}

impl<'t> TableReader<'t> {
    pub(super) fn new(text: &'t str, base: &'t Path) -> TableReader<'t> {
        TableReader { text, base, problems: Vec::new(), known: Vec::new() }
    }

    pub(super) fn top<'r, 'v>(&'r mut self, table: &'v DeTable<'v>) -> Section<'r, 't, 'v> {
        Section { reader: self, name: "", at: 0, table: Some(table) }
    }

    /// What is wrong, in the order of the file. To be asked once every known key was.
    pub(super) fn into_problems(mut self, top: &DeTable<'_>) -> Vec<Problem> {
        self.note_unknown("", top);
        for (name, value) in top {
            if let DeValue::Table(table) = value.get_ref()
                && let Some(name) = self.known_name("", name.get_ref())
            {
                self.note_unknown(name, table);
            }
        }
        self.problems.sort_by_key(|(at, _)| *at);
        self.problems.into_iter().map(|(_, problem)| problem).collect()
    }

    /// Every key that was asked for, with its table's name before it.
    #[cfg(test)]
    pub(super) fn known(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.known.iter().copied()
    }

    /// The keys that may stand in that table.
    fn known_in(&self, table: &str) -> impl Iterator<Item = &'static str> {
        self.known.iter().filter(move |(its, _)| *its == table).map(|(_, key)| *key)
    }

    fn known_name(&self, table: &str, key: &str) -> Option<&'static str> {
        self.known_in(table).find(|known| *known == key)
    }

    fn note_unknown(&mut self, name: &str, table: &DeTable<'_>) {
        for key in table.keys() {
            let (at, key) = (key.span().start, key.get_ref().as_ref());
            if self.known_name(name, key).is_none() {
                let message = self.unknown(name, key);
                self.note(at, dotted(name, key), message);
            }
        }
    }

    fn unknown(&self, table: &str, key: &str) -> String {
        let elsewhere = self.known.iter().find(|(_, known)| *known == key).map(|(its, _)| *its);
        let nearest = self
            .known_in(table)
            .map(|known| (strsim::jaro_winkler(known, key), known))
            .filter(|(likeness, _)| *likeness >= LEAST_LIKENESS)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let advice = match (elsewhere, nearest) {
            (Some(""), _) => ": it stands at the top, before the first table".to_owned(),
            (Some(its), _) => format!(": it stands in [{its}]"),
            (None, Some((_, nearest))) => format!(": did you mean {nearest}?"),
            (None, None) => String::new(),
        };
        let known: Vec<&str> = self.known_in(table).collect();
        let place = if table.is_empty() { "here".to_owned() } else { format!("in [{table}]") };
        format!("unknown key{advice}; known {place} are {}", known.join(", "))
    }

    fn note(&mut self, at: usize, key: String, message: String) {
        let (line, column) = place_of(self.text, at);
        self.problems.push((at, Problem { line, column, key: Some(key), message }));
    }
}

/// One table of the file, or the place where it could stand.
pub(super) struct Section<'r, 't, 'v> {
    reader: &'r mut TableReader<'t>,
    /// Empty at the top.
    name: &'static str,
    /// The byte offset of its name.
    at: usize,
    table: Option<&'v DeTable<'v>>,
}

impl<'t, 'v> Section<'_, 't, 'v> {
    /// The table of that name in this one.
    pub(super) fn section(&mut self, name: &'static str) -> Section<'_, 't, 'v> {
        let (at, table) = match self.find(name) {
            None => (self.at, None),
            Some((at, _, DeValue::Table(table))) => (at, Some(table)),
            Some((at, ..)) => {
                self.refuse(name, &format!("a table, [{name}]"));
                (at, None)
            }
        };
        Section { reader: self.reader, name, at, table }
    }

    /// A whole number.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> u64 {
        self.try_number(key, &range).unwrap_or(default)
    }

    /// A whole number, or `"off"`, which is the default.
    pub(super) fn number_or_off(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        default: Option<u64>,
    ) -> Option<u64> {
        let Some((_, _, value)) = self.find(key) else { return default };
        if value.as_str() == Some("off") {
            return None;
        }
        let number = in_range(value, &range);
        if number.is_none() {
            self.refuse(key, &format!("{} or \"off\"", range_words(&range)));
        }
        number
    }

    /// Milliseconds that must be given when the table is.
    pub(super) fn required_ms(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<i64> {
        let number = self.try_number(key, &range);
        if self.table.is_some() && !self.has(key) {
            let expected = range_words(&range);
            let message = format!("missing: [{}] needs it, {expected}", self.name);
            self.reader.note(self.at, dotted(self.name, key), message);
        }
        number.and_then(|number| i64::try_from(number).ok())
    }

    /// One of a few names.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
        default: T,
    ) -> T {
        let Some((_, _, value)) = self.find(key) else { return default };
        let found = choices.iter().find(|(name, _)| value.as_str() == Some(name));
        if let Some((_, choice)) = found {
            return *choice;
        }
        let names: Vec<String> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        self.refuse(key, &format!("one of {}", names.join(", ")));
        default
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> bool {
        let Some((_, _, value)) = self.find(key) else { return default };
        let flag = value.as_bool();
        if flag.is_none() {
            self.refuse(key, "true or false, without quotes");
        }
        flag.unwrap_or(default)
    }

    /// A path, which starts from the base if it is relative.
    pub(super) fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        let (_, _, value) = self.find(key)?;
        match value.as_str() {
            // no shell reads this file: a folder of that name would be made
            Some(path) if path == "~" || path.starts_with("~/") => {
                self.refuse(key, "a path in full (~ means nothing here)");
                None
            }
            Some(path) if !path.is_empty() && !path.contains('\0') => {
                Some(self.reader.base.join(path))
            }
            _ => {
                self.refuse(key, "a path in quotes");
                None
            }
        }
    }

    /// Names of sources, in brackets.
    pub(super) fn names(&mut self, key: &'static str) -> Vec<String> {
        let expected = "names of sources in brackets, each of 1 to 512 bytes and not blank";
        self.texts(key, expected, |name| check_name(name).is_ok())
    }

    /// Texts, in brackets.
    pub(super) fn strings(&mut self, key: &'static str, expected: &str) -> Vec<String> {
        self.texts(key, expected, |_| true)
    }

    fn texts(
        &mut self,
        key: &'static str,
        expected: &str,
        is_right: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let Some((_, _, value)) = self.find(key) else { return Vec::new() };
        let texts: Option<Vec<String>> = value.as_array().and_then(|texts| {
            let text = |text: &toml::Spanned<DeValue<'_>>| {
                let text = text.get_ref().as_str()?;
                is_right(text).then(|| text.to_owned())
            };
            texts.iter().map(text).collect()
        });
        if texts.is_none() {
            self.refuse(key, expected);
        }
        texts.unwrap_or_default()
    }

    /// Whether the key stands in the file.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    /// Notes that the value of that key is none of what is expected.
    pub(super) fn refuse(&mut self, key: &'static str, expected: &str) {
        if let Some((_, at, value)) = self.find(key) {
            let found = self.found(at.clone(), value);
            let message = format!("expected {expected}, found {found}");
            self.reader.note(at.start, dotted(self.name, key), message);
        }
    }

    /// Notes what is wrong with the value of that key, in words of its own.
    pub(super) fn refuse_with(&mut self, key: &'static str, message: String) {
        if let Some((_, at, _)) = self.find(key) {
            self.reader.note(at.start, dotted(self.name, key), message);
        }
    }

    /// Notes what is wrong with the table as a whole.
    pub(super) fn refuse_whole(&mut self, message: &str) {
        self.reader.note(self.at, self.name.to_owned(), message.to_owned());
    }

    fn try_number(&mut self, key: &'static str, range: &RangeInclusive<u64>) -> Option<u64> {
        let (_, _, value) = self.find(key)?;
        let number = in_range(value, range);
        if number.is_none() {
            self.refuse(key, &range_words(range));
        }
        number
    }

    /// The value of that key, with where the key begins and where the value stands. From now on
    /// the key is known.
    fn find(
        &mut self,
        key: &'static str,
    ) -> Option<(usize, std::ops::Range<usize>, &'v DeValue<'v>)> {
        if self.reader.known_name(self.name, key).is_none() {
            self.reader.known.push((self.name, key));
        }
        let (name, value) = self.table?.get_key_value(key)?;
        Some((name.span().start, value.span(), value.get_ref()))
    }

    /// A value as it stands in the file, with its type where it could be mistaken.
    fn found(&self, at: std::ops::Range<usize>, value: &DeValue<'_>) -> String {
        let text = self.reader.text.get(at).unwrap_or_default();
        let mut shown = String::new();
        for c in text.chars().take(MAX_SHOWN_CHARS) {
            match c {
                '"' | '\'' | '\\' => shown.push(c),
                c => shown.extend(c.escape_debug()),
            }
        }
        match value {
            DeValue::Table(_) => "a table".to_owned(),
            DeValue::Array(_) => "an array".to_owned(),
            value => format!("the {} {shown}", value.type_str()),
        }
    }
}

fn in_range(value: &DeValue<'_>, range: &RangeInclusive<u64>) -> Option<u64> {
    let integer = value.as_integer()?;
    let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok()?;
    range.contains(&number).then_some(number)
}

fn range_words(range: &RangeInclusive<u64>) -> String {
    format!("a whole number from {} to {}", range.start(), range.end())
}

fn dotted(table: &str, key: &str) -> String {
    let key: String = key.chars().take(MAX_SHOWN_CHARS).collect();
    let is_bare = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let key = if is_bare && !key.is_empty() { key } else { format!("{key:?}") };
    if table.is_empty() { key } else { format!("{table}.{key}") }
}

/// Line and column (in characters) of a byte offset, both from 1.
pub(super) fn place_of(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(at)];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |rest| rest.chars().count()) + 1;
    (line, column)
}
