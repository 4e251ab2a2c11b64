//! Bytes to events, one at a time, within bounds, each fault with its place.
//!
//! The first fault in the order of the batch decides, whatever follows it (what is wrong with other
//! events is told beside it, as far as the next 16 MiB), and neither how the
//! reader cuts its blocks nor the size of the chunks changes anything, but for damaged packing.
//! Each of the choices below is public:
//! - A batch is a JSON array of events, or objects of which each begins on a line of its own and
//!   may go on over several. What else follows an object on its line is `trailing_data`.
//! - An element that is no object, an event as an array in field order included, is `wrong_type`.
//! - A missing field is reported where its event begins, everything else at the offending token.
//! - Of an event that is larger than allowed no more is read than allowed: what is wrong within
//!   the allowed part is reported first, and otherwise `event_too_large`.
//! - Compressed data that ends too early is `truncated`, like JSON that does: the rest may still
//!   be on its way. Its faults have no place in the batch, but name the byte of the file.
//! - How many of the good events before such damage arrive, and near which byte it is said to be,
//!   is left to the unpacker.
//! - Damage to compressed data wins over what else is wrong before it, since the one is mostly
//!   the cause of the other: on a refusal, the rest is unpacked to see whether its checks hold.

mod compress;
mod flaw;
mod format_hint;
mod frame;
mod intake;
mod json;
mod more_faults;
mod structure;
mod token;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Read};
use std::time::Duration;

use crate::model::event::Chunk;
use crate::model::refusal::Refusal;
use structure::Structure;

/// How much a batch may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of one event, from its `{` to its `}`. By default 1 MiB.
    pub max_event_bytes: u64,
    /// The most bytes of a file as it lies there. None, the default, allows any.
    pub max_file_bytes: Option<u64>,
    /// The most bytes that compressed data may inflate to. By default 16 GiB.
    pub max_inflated_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_event_bytes: 1 << 20, max_file_bytes: None, max_inflated_bytes: 16 << 30 }
    }
}

/// Why no more events come. It is either the file's fault or ours, never both.
#[derive(Debug)]
pub enum Fault {
    /// The batch breaks a rule.
    Refused(Box<Refusal>),
    /// It could not be read; it may well be right.
    Io(io::Error),
}

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Refused(refusal) => to.write_str(&refusal.message),
            Fault::Io(error) => write!(to, "can't read the batch: {error}"),
        }
    }
}

impl std::error::Error for Fault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Fault::Refused(_) => None,
            Fault::Io(error) => Some(error),
        }
    }
}

/// What the raw file was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// SHA-256 of its bytes, in lower-case hexadecimal digits.
    pub sha256: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// Whether this is about all of it; false only when the rest was left unread: the file has more
    /// bytes than allowed, or it is refused and its rest would take too long.
    pub whole: bool,
}

/// For how long at most the rest of a file is read that is refused: for its hash, and to see whether
/// it is damaged.
pub const REST_TIME: Duration = Duration::from_secs(1);

/// How much is read and unpacked at once.
const BLOCK_BYTES: usize = 128 << 10;

/// The least that is worth it, for files that are smaller.
const LEAST_BLOCK_BYTES: usize = 4 << 10;

/// When a chunk is full: the most events, and the bytes of text from which on none is added.
const CHUNK_EVENTS: usize = 4096;
const CHUNK_TEXT_BYTES: usize = 1 << 20;

/// Reads one batch. Its memory is bounded by the limits, whatever the size of the batch.
pub struct Decoder<R: Read> {
    structure: Structure<R>,
    chunk_events: usize,
    ended: Option<Ended>,
}

/// Told that reading moves on; says whether it is to go on.
pub type GoesOn = Box<dyn FnMut() -> bool + Send>;

enum Ended {
    Well,
    Refused(Box<Refusal>),
    Failed(io::ErrorKind),
}

impl<R: Read> Decoder<R> {
    /// A decoder of the raw bytes of one file, compressed or not. Nothing is read yet.
    pub fn new(raw: R, limits: Limits) -> Decoder<R> {
        Decoder::with_sizes(raw, limits, BLOCK_BYTES, CHUNK_EVENTS)
    }

    /// The same for a file of about that many bytes: for a small one less memory is made ready.
    pub fn sized(raw: R, limits: Limits, file_bytes: u64) -> Decoder<R> {
        // one byte more than it has, so that its end is seen at once
        let bytes = usize::try_from(file_bytes).unwrap_or(usize::MAX).saturating_add(1);
        Decoder::with_sizes(raw, limits, bytes.clamp(LEAST_BLOCK_BYTES, BLOCK_BYTES), CHUNK_EVENTS)
    }

    /// The same with blocks of `block_bytes` (at least 8) and chunks of at most `chunk_events`
    /// (at least 1). Nothing but the speed depends on them: for tests, which hold it to that.
    pub fn with_sizes(
        raw: R,
        limits: Limits,
        block_bytes: usize,
        chunk_events: usize,
    ) -> Decoder<R> {
        let structure = Structure::new(raw, limits, block_bytes);
        Decoder { structure, chunk_events, ended: None }
    }

    /// Asks that at each block of the raw input, and at each block that comes of it: a small file
    /// can keep one busy for long before it brings an event, and so can the rest of one that is
    /// refused. When the answer is no, reading fails.
    pub fn watched(mut self, goes_on: GoesOn) -> Decoder<R> {
        self.structure.watch(goes_on);
        self
    }

    /// Allows so much time for the rest of the file when it is refused, instead of [`REST_TIME`].
    pub fn allowing_rest(mut self, time: Duration) -> Decoder<R> {
        self.structure.allow_rest(time);
        self
    }

    /// Restarts `chunk` and fills it with the next events, up to 4096 or about 1 MiB of text.
    /// True means that there may be more; false that the batch ended well, and the chunk holds its
    /// last events, if any.
    ///
    /// # Errors
    /// The first thing that is wrong. The chunk then holds the good events before it. Asked again,
    /// it gives no events and the same fault.
    pub fn read_chunk(&mut self, chunk: &mut Chunk) -> Result<bool, Fault> {
        chunk.restart(self.structure.events());
        match &self.ended {
            None => {}
            Some(Ended::Well) => return Ok(false),
            Some(Ended::Refused(refusal)) => return Err(Fault::Refused(refusal.clone())),
            Some(Ended::Failed(kind)) => return Err(Fault::Io((*kind).into())),
        }
        while chunk.len() < self.chunk_events && chunk.text_bytes() < CHUNK_TEXT_BYTES {
            match self.structure.next_event(chunk) {
                Ok(true) => {}
                Ok(false) => {
                    self.ended = Some(Ended::Well);
                    return Ok(false);
                }
                Err(fault) => {
                    self.ended = Some(match &fault {
                        Fault::Refused(refusal) => Ended::Refused(refusal.clone()),
                        Fault::Io(error) => Ended::Failed(error.kind()),
                    });
                    return Err(fault);
                }
            }
        }
        Ok(true)
    }

    /// Reads what is left of the raw input and says what the whole raw file was, also after a
    /// refusal. What is beyond `max_file_bytes` stays unread, and what takes longer than allowed.
    ///
    /// # Errors
    /// When the input can't be read, or could not be before.
    pub fn digest(self) -> io::Result<Digest> {
        self.structure.into_source().digest()
    }
}
