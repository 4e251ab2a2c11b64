//! File names: which are left alone, how any bytes are shown, and which name is free next.
//! No file is touched here.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobSet};

/// The endings of names that a producer is still busy with.
const IGNORED_ENDINGS: [&[u8]; 6] =
    [b".tmp", b".part", b".partial", b".filepart", b".inprogress", b"~"];

/// Whether a file of that name is left alone: a leading dot, or the ending of a file in the making.
pub fn is_ignored(name: &[u8]) -> bool {
    is_hidden(name) || IGNORED_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// The names of files that are left alone: those of [`is_ignored`], and what the operator adds.
#[derive(Clone, Debug, Default)]
pub struct Ignored {
    more: GlobSet,
}

impl Ignored {
    /// With these patterns for whole names, as a shell has them: `*`, `?`, `[a-z]`, `{a,b}`.
    ///
    /// # Errors
    /// The first pattern that is none, and why.
    pub fn new(patterns: &[String]) -> Result<Ignored, (String, String)> {
        let mut more = GlobSet::builder();
        for pattern in patterns {
            let refused = |why: &str| (pattern.clone(), why.to_owned());
            if pattern.is_empty() || pattern.contains(['/', '\0']) {
                return Err(refused("it must be a pattern for names, not empty and without /"));
            }
            let glob = GlobBuilder::new(pattern).literal_separator(true).build();
            more.add(glob.map_err(|error| refused(&error.kind().to_string()))?);
        }
        let more = more.build().map_err(|error| {
            (error.glob().unwrap_or_default().to_owned(), error.kind().to_string())
        })?;
        Ok(Ignored { more })
    }

    /// Whether a file of that name is left alone.
    pub fn covers(&self, name: &[u8]) -> bool {
        is_ignored(name) || (!self.more.is_empty() && self.more.is_match(OsStr::from_bytes(name)))
    }
}

/// Whether the name begins with a dot; folders are left alone for that only.
pub(super) fn is_hidden(name: &[u8]) -> bool {
    name.first() == Some(&b'.')
}

/// Whether a character cannot be seen, moves the cursor, or turns the direction of its neighbours:
/// shown as it is, it would let one name pass for another, or for lines that are not there.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// The path as it can be shown on any terminal, as [`shown`].
pub fn shown_path(path: &Path) -> String {
    shown(path.as_os_str().as_encoded_bytes())
}

/// The path as it can be typed into a shell.
pub fn typed(path: &Path) -> String {
    shell_word(&shown_path(path)).into_owned()
}

/// What a shell takes for this one word.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:,@%".contains(c);
    match text.chars().all(is_plain) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("'{}'", text.replace('\'', r"'\''"))),
    }
}

/// The name as it can be shown on any terminal: control characters, what prints as nothing,
/// backslashes and bytes that are not UTF-8 are escaped. [`parsed`] gives the bytes back.
pub fn shown(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for part in name.utf8_chunks() {
        for char in part.valid().chars() {
            match char {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\0'..='\x1f' | '\x7f' => out.push_str(&format!("\\x{:02x}", u32::from(char))),
                _ if is_unseen(char) => {
                    out.push_str(&format!("\\u{{{:x}}}", u32::from(char)));
                }
                _ => out.push(char),
            }
        }
        for byte in part.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

/// The bytes of a name as [`shown`] writes it; none when it has an escape that is not ours.
pub fn parsed(shown: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(shown.len());
    let mut rest = shown;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let kind = after.chars().next()?;
        rest = &after[kind.len_utf8()..];
        match kind {
            '\\' => bytes.push(b'\\'),
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'x' => {
                let digits = rest.get(..2).filter(|digits| is_hex(digits))?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &rest[2..];
            }
            'u' => {
                let (digits, after) = rest.strip_prefix('{')?.split_once('}')?;
                let code = u32::from_str_radix(Some(digits).filter(|d| is_hex(d))?, 16).ok()?;
                bytes.extend_from_slice(char::from_u32(code)?.to_string().as_bytes());
                rest = after;
            }
            _ => return None,
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}

fn is_hex(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The `number`-th name to try for a file: itself for 0, with the number behind it otherwise,
/// shortened so that it has at most `room` bytes. None when that number gives no name: 0 is never
/// shortened, since the rest of a name can end like one that is ignored.
pub(super) fn numbered(name: &[u8], number: u64, room: usize) -> Option<Vec<u8>> {
    if number == 0 {
        return (name.len() <= room).then(|| name.to_vec());
    }
    let suffix = format!(".{number}");
    let mut keep = name.len().min(room.checked_sub(suffix.len()).filter(|&keep| keep > 0)?);
    // not in the midst of a character, where the name is text
    if let Ok(text) = std::str::from_utf8(name) {
        keep = text.floor_char_boundary(keep);
    }
    Some([&name[..keep], suffix.as_bytes()].concat())
}

/// The least number found that is not taken, asking about 2 log n times when n are taken in a row.
pub(super) fn first_free<E>(mut is_taken: impl FnMut(u64) -> Result<bool, E>) -> Result<u64, E> {
    if !is_taken(0)? {
        return Ok(0);
    }
    let (mut taken, mut free) = (0, 1);
    while is_taken(free)? {
        taken = free;
        free *= 2;
    }
    while free - taken > 1 {
        let middle = taken + (free - taken) / 2;
        if is_taken(middle)? {
            taken = middle;
        } else {
            free = middle;
        }
    }
    Ok(free)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn exactly_the_documented_names_are_left_alone() {
        for left in [
            ".a.json.swp",
            "xa.json.part",
            "a.json~",
            "a.json.gz.tmp",
            "a.partial",
            "a.filepart",
            "a.inprogress",
            ".",
            "~",
            ".tmp",
        ] {
            assert!(is_ignored(left.as_bytes()), "{left}");
        }
        for taken in ["A.JSON", "json", "a.json ", "a.TMP", "tmp", "part", "a.tmp.json", "a.json.1"]
        {
            assert!(!is_ignored(taken.as_bytes()), "{taken}");
        }
    }

    /// Has failed for patterns that match nothing, and for bad ones that were taken.
    #[test]
    fn case_135_patterns_of_the_operator_add_to_the_names_that_are_left_alone() {
        let patterns = ["_SUCCESS", "*.md5", "part-[0-9]?", "*.{crc,ok}"].map(str::to_owned);
        let ignored = Ignored::new(&patterns).unwrap();
        for left in ["_SUCCESS", "a.md5", ".md5", "part-7x", "a.crc", "b.ok", "a.tmp", ".a"] {
            assert!(ignored.covers(left.as_bytes()), "{left}");
        }
        assert!(ignored.covers(b"\xff\xfe.md5"), "a name that is no text");
        for taken in ["_SUCCESS.json", "a.md5.json", "part-x7", "a_SUCCESS", "_success", "a.crcx"] {
            assert!(!ignored.covers(taken.as_bytes()), "{taken}");
        }
        assert!(!Ignored::default().covers(b"a.md5"));
        for (wrong, why) in [("", "not empty"), ("a/b", "without /"), ("[a", "unclosed")] {
            let refused = Ignored::new(&["*.ok".to_owned(), wrong.to_owned()]).unwrap_err();
            assert_eq!(refused.0, wrong);
            assert!(refused.1.contains(why), "{refused:?}");
        }
    }

    #[test]
    fn names_are_shown_without_control_of_the_terminal() {
        assert_eq!(shown(b"a\nb\x1b[31m\xff\\\x7f"), r"a\nb\x1b[31m\xff\\\x7f");
        assert_eq!(shown("ключ \u{202e}\u{9b}\u{200b}".as_bytes()), r"ключ \u{202e}\u{9b}\u{200b}");
        // a byte that is not UTF-8 and the character of that number differ
        assert_ne!(shown(b"\x9b"), shown("\u{9b}".as_bytes()));
        assert_eq!(parsed(r"a\q"), None);
        assert_eq!(parsed(r"a\x+1"), None);
        assert_eq!(parsed("a\\"), None);
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(name in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(parsed(&shown(&name)), Some(name));
        }

        #[test]
        fn shown_text_reads_back(name in "\\PC*[\\\\\u{80}-\u{9f}\u{2028}-\u{202e}\n]*") {
            let out = shown(name.as_bytes());
            prop_assert!(!out.chars().any(char::is_control), "{out}");
            prop_assert_eq!(parsed(&out), Some(name.into_bytes()));
        }
    }

    #[test]
    fn numbered_names_fit() {
        assert_eq!(numbered(b"a.json", 0, 255).unwrap(), b"a.json");
        assert_eq!(numbered(b"a.json", 12, 255).unwrap(), b"a.json.12");
        let long = [b'x'; 255];
        assert_eq!(numbered(&long, 0, 255).unwrap(), long);
        assert_eq!(numbered(&long, 0, 244), None);
        let cut = numbered(&long, 1234, 255).unwrap();
        assert_eq!((cut.len(), &cut[249..]), (255, &b"x.1234"[..]));
        // 2-byte characters: one byte stays unused rather than half a character
        let text = "ж".repeat(127);
        assert_eq!(
            numbered(text.as_bytes(), 1, 255).unwrap(),
            [text.as_bytes(), b".1"].concat()[2..]
        );
        assert_eq!(numbered(text.as_bytes(), 1, 254).unwrap().len(), 254);
    }

    /// Has failed for one step at a time.
    #[test]
    fn case_146_a_free_number_is_found_among_thousands_in_few_steps() {
        for taken in [0, 1, 2, 3, 999, 100_000] {
            let mut asked = 0;
            let free = first_free(|number| {
                asked += 1;
                Ok::<_, ()>(number < taken)
            });
            assert_eq!(free, Ok(taken));
            assert!(asked < 40, "asked {asked} times");
        }
        assert_eq!(first_free(|_| Err("broken")), Err("broken"));
    }
}
