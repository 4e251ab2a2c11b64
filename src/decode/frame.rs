//! The unpacked bytes that are not used up yet, as one slice, with the place where it begins.

use std::io::Read;
use std::time::Duration;

use super::compress::Source;
use super::{Fault, GoesOn, Limits};
use crate::model::event::Place;

/// A view of the batch that moves from front to back.
pub(super) struct Frame<R> {
    source: Source<R>,
    data: Vec<u8>,
    from: usize,
    to: usize,
    /// The offset in the batch of `data[from]`.
    byte: u64,
    line: u64,
    /// The offset in the batch at which that line begins.
    line_byte: u64,
}

impl<R: Read> Frame<R> {
    pub(super) fn new(raw: R, limits: &Limits, block_bytes: usize) -> Frame<R> {
        Frame {
            source: Source::new(raw, limits, block_bytes),
            data: vec![0; block_bytes.max(8)],
            from: 0,
            to: 0,
            byte: 0,
            line: 1,
            line_byte: 0,
        }
    }

    /// What is in memory and not used up.
    pub(super) fn unread(&self) -> &[u8] {
        &self.data[self.from..self.to]
    }

    /// Where that begins.
    pub(super) fn place(&self) -> Place {
        self.place_at(0)
    }

    /// Where its byte with that offset stands.
    pub(super) fn place_at(&self, offset: usize) -> Place {
        let (line, line_byte) = self.line_at(offset);
        let byte = self.byte + offset as u64;
        Place { byte, line, column: byte - line_byte + 1 }
    }

    /// Uses up that many bytes.
    pub(super) fn advance(&mut self, bytes: usize) {
        (self.line, self.line_byte) = self.line_at(bytes);
        self.from += bytes;
        self.byte += bytes as u64;
    }

    fn line_at(&self, offset: usize) -> (u64, u64) {
        let passed = &self.unread()[..offset];
        match memchr::memrchr(b'\n', passed) {
            None => (self.line, self.line_byte),
            Some(last) => {
                let before = memchr::memchr_iter(b'\n', &passed[..last]).count() as u64;
                (self.line + before + 1, self.byte + last as u64 + 1)
            }
        }
    }

    /// Brings in more bytes behind the others; false at the end. The buffer grows only when all
    /// of it is unread, so it is never larger than twice what the caller leaves unread.
    pub(super) fn more(&mut self) -> Result<bool, Fault> {
        if self.to - self.from == self.data.len() {
            self.data.resize(2 * self.data.len(), 0);
        } else {
            self.data.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        let bytes = self.source.fill(&mut self.data[self.to..])?;
        self.to += bytes;
        Ok(bytes > 0)
    }

    /// The first bytes of what is left, up to that many; fewer only before the end or a fault,
    /// which is told when more is asked for.
    pub(super) fn head(&mut self, bytes: usize) -> &[u8] {
        while self.unread().len() < bytes {
            match self.more() {
                Ok(true) => {}
                Ok(false) => break,
                Err(fault) => {
                    self.source.put_back(fault);
                    break;
                }
            }
        }
        let unread = self.unread();
        &unread[..bytes.min(unread.len())]
    }

    /// Uses up white space, however much; the byte behind it, none at the end.
    pub(super) fn skip_space(&mut self) -> Result<Option<u8>, Fault> {
        loop {
            let unread = self.unread();
            let found = unread.iter().position(|byte| !super::token::is_space(*byte));
            let (bytes, next) = match found {
                Some(bytes) => (bytes, Some(unread[bytes])),
                None => (unread.len(), None),
            };
            self.advance(bytes);
            if next.is_some() || !self.more()? {
                return Ok(next);
            }
        }
    }

    /// What is wrong with the packing of all that is still to come, which is used up.
    pub(super) fn damage(&mut self) -> Option<Fault> {
        self.source.damage()
    }

    /// That fault, which came out of it, comes once more.
    pub(super) fn put_back(&mut self, fault: Fault) {
        self.source.put_back(fault);
    }

    pub(super) fn watch(&mut self, goes_on: GoesOn) {
        self.source.watch(goes_on);
    }

    pub(super) fn allow_rest(&mut self, time: Duration) {
        self.source.allow_rest(time);
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.data.len()
    }

    pub(super) fn into_source(self) -> Source<R> {
        self.source
    }
}
