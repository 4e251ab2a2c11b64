//! What else is wrong with a batch that is refused: the faults of events behind the first one, so
//! that a sender can mend all of them at once. Only what is refused is ever read by this.

use std::io::Read;

use super::Fault;
use super::structure::Structure;
use crate::model::event::Chunk;
use crate::model::refusal::{Code, Refusal};

/// The most faults that are named, the first one included.
const NAMED: usize = 20;

/// How far behind the first fault is read, in bytes: who sends more than that must look again.
const MOST_BYTES: u64 = 16 << 20;

/// How many good events are passed over at once.
const AT_ONCE: usize = 4096;

/// Whether the fault is one of an event that was read to where it is wrong: what follows it can be
/// read for itself.
fn is_of_event(refusal: &Refusal) -> bool {
    matches!(
        refusal.code,
        Code::MissingField
            | Code::UnknownField
            | Code::DuplicateField
            | Code::WrongType
            | Code::OutOfRange
            | Code::Blank
            | Code::TooLong
    ) && refusal.event_index.is_some()
}

/// Adds to the first fault what else is wrong, as far as that is read.
pub(super) fn add<R: Read>(structure: &mut Structure<R>, first: &mut Refusal) {
    if !is_of_event(first) {
        return;
    }
    let (mut faults, mut more) = (1, Vec::new());
    let is_whole = read_on(structure, &mut |refusal| {
        faults += 1;
        if more.len() + 1 < NAMED {
            more.push(refusal);
        }
    });
    if faults > 1 {
        first.faults = Some(faults);
        first.all_faults = Some(is_whole);
        first.more = more;
    }
}

/// Shows each fault of an event from here on; whether all of the batch was read.
fn read_on<R: Read>(structure: &mut Structure<R>, each: &mut dyn FnMut(Refusal)) -> bool {
    let (begun, mut chunk) = (structure.byte(), Chunk::default());
    loop {
        // it stands where the event with the last fault begins
        match structure.pass_over(begun + MOST_BYTES) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(fault) => {
                structure.put_back(fault);
                return false;
            }
        }
        let refusal = loop {
            if chunk.len() == AT_ONCE || chunk.text_bytes() > 1 << 20 {
                chunk.restart(0);
            }
            match structure.step(&mut chunk) {
                Ok(true) if structure.byte() > begun + MOST_BYTES => return false,
                Ok(true) => {}
                Ok(false) => return true,
                Err(Fault::Refused(refusal)) if refusal.line.is_some() => break refusal,
                // it is no fault of the batch, but of its packing or of the disk
                Err(fault) => {
                    structure.put_back(fault);
                    return false;
                }
            }
        };
        if !is_of_event(&refusal) {
            return false;
        }
        each(*refusal);
    }
}

/// Passes over a value whatever is wrong in it, from its first byte to its end.
#[derive(Default)]
pub(super) struct Passing {
    depth: u32,
    in_string: bool,
    is_escaped: bool,
    has_begun: bool,
}

/// How it goes on.
pub(super) enum Passed {
    /// The value goes on.
    More,
    /// It ended with that byte.
    With,
    /// It ended before that byte.
    Before,
    /// Where it ends cannot be told.
    Lost,
}

impl Passing {
    /// Takes the next byte.
    pub(super) fn next(&mut self, byte: u8) -> Passed {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        if self.in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                b'\n' => return Passed::Lost,
                _ => {}
            }
            return if !self.in_string && self.depth == 0 { Passed::With } else { Passed::More };
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' | b',' | b' ' | b'\n' | b'\r' | b'\t' if self.depth == 0 => {
                return if is_first { Passed::Lost } else { Passed::Before };
            }
            b'}' | b']' => {
                self.depth -= 1;
                return if self.depth == 0 { Passed::With } else { Passed::More };
            }
            _ => {}
        }
        Passed::More
    }
}
