//! What is wrong with a batch, in words; where it stands in the file is added by the decoder.

use std::borrow::Cow;

use crate::model::refusal::Code;

/// Why reading stopped within a slice.
#[derive(Debug)]
pub(super) enum Stop {
    /// All that is there is right as far as it goes; what comes next decides.
    More,
    /// Whatever comes next, this is wrong.
    Flaw(Box<Flaw>),
}

/// Something that is wrong.
#[derive(Debug)]
pub(super) struct Flaw {
    pub(super) code: Code,
    /// The offset of the offending token in the slice.
    pub(super) at: usize,
    /// What was expected and what was found.
    pub(super) what: String,
    pub(super) hint: Cow<'static, str>,
    pub(super) field: Option<String>,
}

impl Stop {
    pub(super) fn flaw(
        code: Code,
        at: usize,
        what: impl Into<String>,
        hint: impl Into<Cow<'static, str>>,
    ) -> Stop {
        let (what, hint) = (what.into(), hint.into());
        Stop::Flaw(Box::new(Flaw { code, at, what, hint, field: None }))
    }

    /// The same with that hint, where there is a better one.
    pub(super) fn with_hint(mut self, hint: Option<String>) -> Stop {
        if let (Stop::Flaw(flaw), Some(hint)) = (&mut self, hint) {
            flaw.hint = hint.into();
        }
        self
    }

    /// The same, in the field of that name.
    pub(super) fn in_field(mut self, name: &str) -> Stop {
        if let Stop::Flaw(flaw) = &mut self {
            flaw.field = Some(name.to_owned());
        }
        self
    }
}

/// The most characters of a batch that a message repeats at once.
const SHOWN_CHARS: usize = 40;

/// The text in double quotes, escaped, and shortened where it is long.
pub(super) fn quote(text: &str) -> String {
    let shown = shorten(text, SHOWN_CHARS);
    if shown.len() == text.len() {
        format!("{text:?}")
    } else {
        format!("{shown:?}... ({} bytes)", text.len())
    }
}

/// At most that many characters from the beginning of the text.
pub(super) fn shorten(text: &str, most_chars: usize) -> &str {
    text.char_indices().nth(most_chars).map_or(text, |(end, _)| &text[..end])
}
