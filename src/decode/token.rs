//! The tokens of JSON in a slice that may end anywhere: exact, without recursion, and with a
//! flaw at the first byte from which on the slice can't be JSON any more.
//!
//! What is found wrong never depends on how much of the slice is there already.

use std::borrow::Cow;

use super::flaw::{Stop, quote, shorten};
use crate::model::refusal::Code;

/// Whether JSON counts the byte as white space.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// A value as far as an event can hold it: of the nested ones only that they begin.
#[derive(Debug, PartialEq)]
pub(super) enum Value<'a> {
    Text(Cow<'a, str>),
    Integer(i64),
    /// An integer literal outside of the signed 64-bit range.
    Beyond(&'a [u8]),
    /// A number with a fraction or an exponent, or `-0`.
    NotInteger(&'a [u8]),
    /// `true`, `false` or `null`.
    Word(&'static str),
    Array,
    Object,
}

impl Value<'_> {
    /// What it is, for a message.
    pub(super) fn found(&self) -> String {
        match self {
            Value::Text(text) => format!("the string {}", quote(text)),
            Value::Integer(number) => format!("the number {number}"),
            Value::Beyond(digits) | Value::NotInteger(digits) => {
                format!("the number {}", literal(digits))
            }
            Value::Word(word) => (*word).to_owned(),
            Value::Array => "an array".to_owned(),
            Value::Object => "an object".to_owned(),
        }
    }
}

fn literal(ascii: &[u8]) -> String {
    let text = String::from_utf8_lossy(ascii);
    let shown = shorten(&text, 40);
    if shown.len() == text.len() {
        text.into_owned()
    } else {
        format!("{shown}... ({} digits or signs)", text.len())
    }
}

/// A reader of tokens.
pub(super) struct Tokens<'a> {
    bytes: &'a [u8],
    /// The offset of the next byte.
    pub(super) at: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Tokens<'a> {
        Tokens { bytes, at: 0 }
    }

    /// Passes over white space; the byte behind it, which stays the next one.
    #[inline]
    pub(super) fn next(&mut self) -> Result<u8, Stop> {
        while let Some(byte) = self.bytes.get(self.at) {
            if !is_space(*byte) {
                return Ok(*byte);
            }
            self.at += 1;
        }
        Err(Stop::More)
    }

    /// Passes over that text, if it comes next.
    #[inline]
    pub(super) fn take(&mut self, text: &str) -> bool {
        let comes = self.bytes[self.at..].starts_with(text.as_bytes());
        self.at += if comes { text.len() } else { 0 };
        comes
    }

    /// Any value; the next byte is its first. Of arrays and objects nothing is taken.
    pub(super) fn value(&mut self) -> Result<Value<'a>, Stop> {
        match self.next()? {
            b'"' => Ok(Value::Text(self.string()?)),
            b'[' => Ok(Value::Array),
            b'{' => Ok(Value::Object),
            b'-' | b'0'..=b'9' => self.number(),
            byte if byte.is_ascii_alphabetic() => self.word(),
            _ => Err(self.unexpected("a JSON value")),
        }
    }

    /// A string; the next byte is its opening quote.
    #[inline]
    pub(super) fn string(&mut self) -> Result<Cow<'a, str>, Stop> {
        let start = self.at + 1;
        let rest = &self.bytes[start..];
        let plain = find_special(rest);
        if let Some(bytes) = plain
            && rest[bytes] == b'"'
            && let Ok(text) = std::str::from_utf8(&rest[..bytes])
        {
            self.at = start + bytes + 1;
            return Ok(Cow::Borrowed(text));
        }
        self.string_with_care().map(Cow::Owned)
    }

    /// The same for one that has escapes, is faulty, or may go on beyond the slice.
    #[cold]
    fn string_with_care(&mut self) -> Result<String, Stop> {
        let mut text = String::new();
        let mut at = self.at + 1;
        loop {
            let rest = &self.bytes[at..];
            let bytes = find_special(rest);
            let plain = &rest[..bytes.unwrap_or(rest.len())];
            match std::str::from_utf8(plain) {
                Ok(plain) => text.push_str(plain),
                Err(error) if error.error_len().is_none() && bytes.is_none() => {
                    return Err(Stop::More);
                }
                Err(error) => return Err(self.not_utf8(at + error.valid_up_to())),
            }
            let Some(bytes) = bytes else { return Err(Stop::More) };
            at += bytes;
            match self.bytes[at] {
                b'"' => {
                    self.at = at + 1;
                    return Ok(text);
                }
                b'\\' => {
                    let (found, length) = self.escape(at)?;
                    text.push(found);
                    at += length;
                }
                control => return Err(unescaped(at, control)),
            }
        }
    }

    /// The character that the escape at `at` stands for, and how long the escape is.
    fn escape(&self, at: usize) -> Result<(char, usize), Stop> {
        let letter = *self.bytes.get(at + 1).ok_or(Stop::More)?;
        let short = match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(at),
            _ => {
                return Err(Stop::flaw(
                    Code::BadJson,
                    at,
                    "expected one of the escapes of JSON, found a backslash that begins none",
                    "a backslash itself is written \\\\; the escapes are \\\" \\\\ \\/ \\b \\f \
                     \\n \\r \\t \\uXXXX",
                ));
            }
        };
        Ok((short, 2))
    }

    fn unicode_escape(&self, at: usize) -> Result<(char, usize), Stop> {
        let first = self.hex(at)?;
        if let Some(found) = char::from_u32(first) {
            return Ok((found, 6));
        }
        let lone = || {
            Stop::flaw(
                Code::BadJson,
                at,
                format!("expected a whole character, found the lone surrogate \\u{first:04x}"),
                "characters beyond U+FFFF are written as they are in UTF-8, or as a pair \
                 \\ud800-\\udbff, \\udc00-\\udfff; was a text cut in the middle of one?",
            )
        };
        if first >= 0xdc00 {
            return Err(lone());
        }
        for (offset, wanted) in [(6, b'\\'), (7, b'u')] {
            match self.bytes.get(at + offset) {
                None => return Err(Stop::More),
                Some(found) if *found != wanted => return Err(lone()),
                Some(_) => {}
            }
        }
        let second = self.hex(at + 6)?;
        if !(0xdc00..=0xdfff).contains(&second) {
            return Err(lone());
        }
        let scalar = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        char::from_u32(scalar).map(|found| (found, 12)).ok_or_else(lone)
    }

    /// The four digits of the escape at `at`.
    fn hex(&self, at: usize) -> Result<u32, Stop> {
        let mut number = 0;
        for offset in 2..6 {
            let digit = *self.bytes.get(at + offset).ok_or(Stop::More)?;
            number = number * 16
                + char::from(digit).to_digit(16).ok_or_else(|| {
                    Stop::flaw(
                        Code::BadJson,
                        at,
                        "expected four hexadecimal digits after \\u, found something else",
                        "write \\uXXXX with four hexadecimal digits, or \\\\u for a backslash \
                         and a u",
                    )
                })?;
        }
        Ok(number)
    }

    /// A number; the next byte is its sign or first digit.
    #[inline]
    pub(super) fn number(&mut self) -> Result<Value<'a>, Stop> {
        let rest = &self.bytes[self.at..];
        let negative = rest.first() == Some(&b'-');
        let digits = &rest[usize::from(negative)..];
        let (mut number, mut count) = (0_i64, 0);
        // eighteen digits can't overflow; of more the number is not used
        for digit in digits.iter().take(19).take_while(|byte| byte.is_ascii_digit()) {
            number = number.wrapping_mul(10).wrapping_add(i64::from(*digit - b'0'));
            count += 1;
        }
        let ends = digits.get(count).is_some_and(|byte| !is_wordy(*byte));
        if ends && (1..19).contains(&count) && (digits[0] != b'0' || (count == 1 && !negative)) {
            self.at += count + usize::from(negative);
            return Ok(Value::Integer(if negative { -number } else { number }));
        }
        self.number_with_care()
    }

    /// The same for one that is long, odd or faulty, or may go on beyond the slice.
    #[cold]
    fn number_with_care(&mut self) -> Result<Value<'a>, Stop> {
        let text = self.wordy()?;
        let unsigned = text.strip_prefix(b"-").unwrap_or(text);
        let (whole, rest) = split_digits(unsigned);
        if whole.is_empty() || (whole[0] == b'0' && whole.len() > 1) || !is_number_tail(rest) {
            let hint = match whole {
                _ if text.ends_with(b"Infinity") => {
                    "JSON has no infinity: leave the event out or give it a number"
                }
                [b'0', _, ..] => "write the number without leading zeros",
                _ => "a number is written like 42 or -42",
            };
            let what = format!("expected a JSON number, found {}", quote(&literal(text)));
            return Err(Stop::flaw(Code::BadJson, self.at, what, hint));
        }
        self.at += text.len();
        if !rest.is_empty() || text == b"-0" {
            return Ok(Value::NotInteger(text));
        }
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        Ok(number.map_or(Value::Beyond(text), Value::Integer))
    }

    fn word(&mut self) -> Result<Value<'a>, Stop> {
        let text = self.wordy()?;
        let word = ["true", "false", "null"].into_iter().find(|word| word.as_bytes() == text);
        if let Some(word) = word {
            self.at += text.len();
            return Ok(Value::Word(word));
        }
        let hint = match text {
            b"NaN" | b"nan" | b"Infinity" | b"inf" => {
                "JSON has neither NaN nor infinity: leave the event out or give it a number"
            }
            b"True" | b"False" | b"None" => {
                "this is how Python prints, not JSON: write the batch with json.dump"
            }
            _ => "a string stands in double quotes",
        };
        let what = format!("expected a JSON value, found {}", quote(&literal(text)));
        Err(Stop::flaw(Code::BadJson, self.at, what, hint))
    }

    /// The letters, digits and signs from here on, which together are one number, word or mess.
    fn wordy(&self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| !is_wordy(*byte)).ok_or(Stop::More)?;
        Ok(&rest[..end])
    }

    /// That something else than `expected` comes next.
    #[cold]
    pub(super) fn unexpected(&self, expected: &str) -> Stop {
        let found = match first_char(&self.bytes[self.at..]) {
            First::Char(found) => found,
            First::Cut => return Stop::More,
            First::NotUtf8(_) => return self.not_utf8(self.at),
        };
        let hint = match found {
            '\0' => "did the machine of the sender crash while it wrote, or is this UTF-16?",
            '\'' | '\u{2018}'..='\u{201f}' => "names and strings stand in plain double quotes",
            '/' | '#' => "JSON has no comments",
            ',' | ']' | '}' => "is a comma, or the value before it, too much or missing?",
            '{' | '[' => "is a comma missing, or was what stands before it cut short?",
            '\u{feff}' => "a byte order mark may stand only at the start: were files joined?",
            '+' | '.' => "a number begins with a digit or a minus sign",
            _ => "is a quote, comma or brace missing before it?",
        };
        let what = format!("expected {expected}, found {}", show_char(found));
        Stop::flaw(Code::BadJson, self.at, what, hint)
    }

    #[cold]
    fn not_utf8(&self, at: usize) -> Stop {
        let what = format!("expected UTF-8, found the byte 0x{:02X}", self.bytes[at]);
        let hint = "write the batch as UTF-8; single bytes from 0x80 on are a sign of Latin-1 or \
                    Windows-1252";
        Stop::flaw(Code::NotUtf8, at, what, hint)
    }
}

/// What a slice begins with.
pub(super) enum First {
    Char(char),
    /// The beginning of a character, or nothing.
    Cut,
    NotUtf8(u8),
}

/// The first character of the slice.
pub(super) fn first_char(bytes: &[u8]) -> First {
    let start = &bytes[..bytes.len().min(4)];
    let (valid, error) = match std::str::from_utf8(start) {
        Ok(valid) => (valid, None),
        Err(error) => {
            let valid = std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or("");
            (valid, error.error_len())
        }
    };
    match (valid.chars().next(), error) {
        (Some(found), _) => First::Char(found),
        (None, None) => First::Cut,
        (None, Some(_)) => First::NotUtf8(start[0]),
    }
}

/// The character for a message.
pub(super) fn show_char(found: char) -> String {
    match found {
        '\0' => "a NUL byte".to_owned(),
        '\u{feff}' => "a byte order mark (U+FEFF)".to_owned(),
        '"' => "a double quote".to_owned(),
        _ if found.is_control() || found.is_whitespace() => format!("U+{:04X}", u32::from(found)),
        _ => format!("{:?}", found.to_string()),
    }
}

fn unescaped(at: usize, control: u8) -> Stop {
    let (found, hint) = match control {
        b'\n' => (
            "the end of the line",
            "is its closing quote missing? a line end in it is \\n".to_owned(),
        ),
        b'\t' => ("an unescaped tab", "write \\t".to_owned()),
        b'\0' => ("a NUL byte", "write it as \\u0000, or leave it out".to_owned()),
        _ => ("an unescaped control character", format!("write it as \\u{control:04x}")),
    };
    let what = format!("expected the rest of a string, found {found} (0x{control:02X})");
    Stop::flaw(Code::BadJson, at, what, hint)
}

fn is_wordy(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.' | b'_')
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count())
}

/// Whether this is a right fraction and exponent, or nothing.
fn is_number_tail(mut rest: &[u8]) -> bool {
    if let Some(fraction) = rest.strip_prefix(b".") {
        let (digits, behind) = split_digits(fraction);
        if digits.is_empty() {
            return false;
        }
        rest = behind;
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let unsigned = match exponent {
            [b'+' | b'-', unsigned @ ..] => unsigned,
            unsigned => unsigned,
        };
        let (digits, behind) = split_digits(unsigned);
        if digits.is_empty() {
            return false;
        }
        rest = behind;
    }
    rest.is_empty()
}

/// Where a plain run within a string ends: at a quote, a backslash or a control character.
#[inline]
fn find_special(bytes: &[u8]) -> Option<usize> {
    let (words, tail) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let special = special_in(u64::from_le_bytes(*word));
        if special != 0 {
            return Some(at * 8 + special.trailing_zeros() as usize / 8);
        }
    }
    let is_special = |byte: &u8| matches!(byte, 0..0x20 | b'"' | b'\\');
    tail.iter().position(is_special).map(|at| words.len() * 8 + at)
}

/// Eight bytes at once: the lowest bit that is set is the topmost one of the first special byte.
/// (Subtracting borrows from the bytes above one that is special, never from those below.)
fn special_in(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let below = |word: u64, least: u8| word.wrapping_sub(ONES * u64::from(least)) & !word;
    let is = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (below(word, 0x20) | is(b'"') | is(b'\\')) & (ONES << 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_special_byte_is_found_wherever_it_stands() {
        for byte in 0..=u8::MAX {
            let is_special = byte < 0x20 || byte == b'"' || byte == b'\\';
            for at in 0..20 {
                for filling in [b'a', b'!', 0x7f, 0x80, 0xff] {
                    let mut bytes = [filling; 20];
                    bytes[at] = byte;
                    // what stands behind it changes nothing
                    bytes[at + 1..].fill(b'"');
                    let expected = if is_special { at } else { at + 1 };
                    assert_eq!(find_special(&bytes), (expected < 20).then_some(expected));
                }
            }
        }
    }
}
