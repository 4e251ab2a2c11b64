//! How names, moments and numbers are shown, so that none passes for another.

use std::borrow::Cow;
use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;

pub use crate::model::clock::utc;
pub(super) use crate::spool::name::is_unseen as is_hidden;

/// A name as it stands if that can mistake nobody; else in quotes, with JSON's escapes for what
/// cannot be seen. So no name can forge a line, a column or another name, and every name can be
/// told from the way it is shown.
pub fn shown(name: &str) -> Cow<'_, str> {
    let misleads = |c: char| is_hidden(c) || (c.is_whitespace() && c != ' ');
    let is_plain = !name.is_empty()
        && !name.starts_with(['"', ' '])
        && !name.ends_with(' ')
        && !name.contains("  ")
        && !name.contains(misleads);
    if is_plain {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(name.len() + 8);
    text.push('"');
    for c in name.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if misleads(c) => push_escaped(c, &mut text),
            c => text.push(c),
        }
    }
    text.push('"');
    Cow::Owned(text)
}

/// A text as it stands, but for what cannot be seen, which is escaped: for messages, in which names
/// stand escaped already.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_hidden(c) { push_escaped(c, &mut shown) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// The same for a text that may have several lines: their ends stay.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    let is_bad = |c: char| c != '\n' && is_hidden(c);
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split('\n').map(visible).collect::<Vec<_>>().join("\n"))
}

/// The number with its thousands set apart by `_`, as `-1_234_567`: one word to copy, no decimal
/// sign anywhere, and a number to Rust, Python, Ruby, Java, JavaScript and TOML as it stands.
pub fn grouped(number: impl Into<i128>) -> String {
    let number: i128 = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 2);
    if number < 0 {
        text.push('-');
    }
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

/// A character as `\u00ad`, in two halves where JSON needs two.
pub(super) fn push_escaped(c: char, text: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        text.push_str(&format!("\\u{unit:04x}"));
    }
}

/// Names as they stand in one list: those that look like another of them, since they are other
/// characters for the same text (`u` and a diaeresis, or `ü`), have all that is not ASCII escaped.
/// One that is composed stays as it is.
pub fn shown_apart<'n>(names: &[&'n str]) -> Vec<Cow<'n, str>> {
    let composed = |name: &str| name.nfc().collect::<String>();
    let mut looks: HashMap<String, usize> = HashMap::new();
    for name in names.iter().filter(|name| !name.is_ascii()) {
        *looks.entry(composed(name)).or_default() += 1;
    }
    let one = |name: &&'n str| {
        let look = if name.is_ascii() { None } else { Some(composed(name)) };
        match look {
            Some(look) if looks[&look] > 1 && look != **name => Cow::Owned(escaped(name)),
            _ => shown(name),
        }
    };
    names.iter().map(one).collect()
}

/// A name in quotes, with all escaped that is not plain ASCII.
fn escaped(name: &str) -> String {
    let mut text = String::from("\"");
    for c in name.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            ' '..='~' => text.push(c),
            _ => push_escaped(c, &mut text),
        }
    }
    text.push('"');
    text
}

/// How many names a line lists at most.
pub const MOST_NAMES: usize = 20;

/// Names for one line: at most [`MOST_NAMES`] of them, and how many others there are.
pub fn some_names<S: AsRef<str>>(names: &[S]) -> String {
    let listed: Vec<String> =
        names.iter().take(MOST_NAMES).map(|name| shown(name.as_ref()).into_owned()).collect();
    match names.len().saturating_sub(MOST_NAMES) {
        0 => listed.join(", "),
        others => format!("{} and {others} others", listed.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case 136: two names that look alike are told apart, and others stay as they are.
    /// Has failed for names compared as they are, shown as they are, and both escaped.
    #[test]
    fn case_136_names_that_look_alike_are_told_apart() {
        let (composed, decomposed) = ("Z\u{fc}rich", "Zu\u{308}rich");
        let shown = shown_apart(&["Bern", composed, decomposed, "a\u{308}"]);
        assert_eq!(shown, ["Bern", composed, "\"Zu\\u0308rich\"", "a\u{308}"]);
        assert_eq!(shown_apart(&[decomposed]), [decomposed]);
        // the sign of the unit and the letter
        let shown = shown_apart(&["1 \u{212b}", "1 \u{c5}"]);
        assert_eq!(shown, ["\"1 \\u212b\"", "1 \u{c5}"]);
    }

    #[test]
    fn no_name_can_forge_lines_columns_or_another_name() {
        let cases = [
            ("plain key/with:signs=é漢", "plain key/with:signs=é漢"),
            ("back\\nslash", "back\\nslash"),
            ("two\nlines", "\"two\\nlines\""),
            ("a\0b", "\"a\\u0000b\""),
            ("\u{1b}[2Jx", "\"\\u001b[2Jx\""),
            ("c1\u{9b}2J", "\"c1\\u009b2J\""),
            ("\u{202e}gpj.exe", "\"\\u202egpj.exe\""),
            ("\u{feff}a", "\"\\ufeffa\""),
            ("tag\u{e0041}", "\"tag\\udb40\\udc41\""),
            ("trailing ", "\"trailing \""),
            (" leading", "\" leading\""),
            ("a  b", "\"a  b\""),
            ("a\u{a0}b", "\"a\\u00a0b\""),
            ("\"quoted\"", "\"\\\"quoted\\\"\""),
            ("\"\\", "\"\\\"\\\\\""),
            ("", "\"\""),
        ];
        for (name, expected) in cases {
            assert_eq!(shown(name), expected, "{name:?}");
        }
        let quoted = cases.iter().filter(|(_, shown)| shown.starts_with('"'));
        for (name, shown) in quoted {
            assert_eq!(serde_json::from_str::<String>(shown).unwrap(), *name);
        }
    }

    #[test]
    fn moments_are_shown_to_the_millisecond() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_795_976_555_123, "2026-11-29T18:22:35.123Z"),
            (253_402_300_799_999 - 86_400_000, "9999-12-30T23:59:59.999Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (-500, "1969-12-31T23:59:59.500Z"),
            (253_402_300_800_000, "after-year-9999"),
            (i64::MAX, "after-year-9999"),
            (i64::MIN, "before-year--9999"),
        ];
        for (ms, expected) in cases {
            assert_eq!(utc(ms), expected, "{ms}");
        }
    }

    #[test]
    fn thousands_are_set_apart() {
        let numbers = [0, 7, 999, 1000, -999, -1000, 1_234_567, i64::MAX, i64::MIN].map(grouped);
        let expected = [
            "0",
            "7",
            "999",
            "1_000",
            "-999",
            "-1_000",
            "1_234_567",
            "9_223_372_036_854_775_807",
            "-9_223_372_036_854_775_808",
        ];
        assert_eq!(numbers, expected);
        assert_eq!(grouped(u64::MAX), "18_446_744_073_709_551_615");
    }
}
