//! The raw bytes of a batch in blocks, hashed and counted.

use std::io::{self, BufRead, Read};
use std::mem;
use std::time::Instant;

use sha2::{Digest as _, Sha256};

use super::{Digest, Fault, GoesOn};
use crate::model::refusal::{Code, Refusal};

/// The raw bytes in blocks. After a fault it looks as if they ended, so that what decompressors
/// still hold comes out first; whoever meets an end asks for [`Intake::fault`].
pub(super) struct Intake<R> {
    raw: Option<R>,
    end: End,
    hash: Sha256,
    read: u64,
    most: Option<u64>,
    block: Vec<u8>,
    from: usize,
    to: usize,
    goes_on: Option<GoesOn>,
}

enum End {
    NotYet,
    Reached,
    TooLarge,
    Failed(io::Error),
}

impl<R> Default for Intake<R> {
    /// One that has nothing: what stands in while a decompressor is exchanged.
    fn default() -> Intake<R> {
        Intake {
            raw: None,
            end: End::Reached,
            hash: Sha256::new(),
            read: 0,
            most: None,
            block: Vec::new(),
            from: 0,
            to: 0,
            goes_on: None,
        }
    }
}

impl<R> Intake<R> {
    /// Asks that from now on at each block.
    pub(super) fn watch(&mut self, goes_on: GoesOn) {
        self.goes_on = Some(goes_on);
    }

    /// Whoever waits for the end sees that it moves on, and may have enough.
    pub(super) fn goes_on(&mut self) -> bool {
        self.goes_on.as_mut().is_none_or(|goes_on| goes_on())
    }
}

impl<R: Read> Intake<R> {
    pub(super) fn new(raw: R, most: Option<u64>, block_bytes: usize) -> Intake<R> {
        let block = vec![0; block_bytes.max(8)];
        Intake { raw: Some(raw), end: End::NotYet, most, block, ..Intake::default() }
    }

    /// How many raw bytes were taken out of it.
    pub(super) fn taken(&self) -> u64 {
        self.read - (self.to - self.from) as u64
    }

    /// What ended it too early. A failed read is told once; then only its kind is known.
    pub(super) fn fault(&mut self) -> Option<Fault> {
        match &mut self.end {
            End::NotYet | End::Reached => None,
            End::TooLarge => self.most.map(too_large),
            End::Failed(error) => {
                let kind = error.kind();
                Some(Fault::Io(mem::replace(error, kind.into())))
            }
        }
    }

    /// The next bytes without taking them; fewer only before the end.
    pub(super) fn peek(&mut self, bytes: usize) -> &[u8] {
        if self.to - self.from < bytes {
            self.refill();
        }
        &self.block[self.from..self.to.min(self.from + bytes)]
    }

    pub(super) fn pull(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        if self.peek(1).is_empty() {
            return self.fault().map_or(Ok(0), Err);
        }
        let bytes = into.len().min(self.to - self.from);
        into[..bytes].copy_from_slice(&self.block[self.from..self.from + bytes]);
        self.from += bytes;
        Ok(bytes)
    }

    /// Moves what is left to the front and reads until the block is full or the input ends.
    fn refill(&mut self) {
        self.block.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let begun = self.to;
        if matches!(self.end, End::NotYet) && !self.goes_on() {
            self.end = End::Failed(unwanted());
        }
        while self.to < self.block.len() && matches!(self.end, End::NotYet) {
            let Some(raw) = &mut self.raw else { break };
            match raw.read(&mut self.block[self.to..]) {
                Ok(0) => self.end = End::Reached,
                Ok(bytes) => self.to += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.end = End::Failed(error),
            }
        }
        self.hash.update(&self.block[begun..self.to]);
        self.read += (self.to - begun) as u64;
        if let Some(most) = self.most
            && self.read > most
            && !matches!(self.end, End::TooLarge)
        {
            // the block was read as a whole, but nothing beyond the bound may be seen
            let beyond = usize::try_from(self.read - most).unwrap_or(usize::MAX);
            self.to -= beyond.min(self.to);
            self.end = End::TooLarge;
        }
    }

    pub(super) fn digest(mut self, until: Instant) -> io::Result<Digest> {
        while matches!(self.end, End::NotYet) {
            self.from = self.to;
            self.refill();
            if Instant::now() >= until {
                break;
            }
        }
        if let End::Failed(error) = self.end {
            return Err(error);
        }
        let sha256 = format!("{:x}", self.hash.finalize());
        Ok(Digest { sha256, bytes: self.read, whole: matches!(self.end, End::Reached) })
    }
}

impl<R: Read> Read for Intake<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?.read(into)?;
        self.consume(bytes);
        Ok(bytes)
    }
}

impl<R: Read> BufRead for Intake<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.from == self.to {
            self.refill();
        }
        Ok(&self.block[self.from..self.to])
    }

    fn consume(&mut self, bytes: usize) {
        self.from = self.to.min(self.from + bytes);
    }
}

pub(super) fn refused(code: Code, message: String, hint: &str) -> Fault {
    Fault::Refused(Box::new(Refusal::new(code, message, hint)))
}

fn too_large(most: u64) -> Fault {
    refused(
        Code::FileTooLarge,
        format!("the file has more than {most} bytes, the most that is allowed"),
        "split the batch into smaller files, or raise max_file_bytes",
    )
}

/// What reading fails with when nobody wants the rest.
pub(super) fn unwanted() -> io::Error {
    io::Error::other("the rest is not wanted any more")
}
