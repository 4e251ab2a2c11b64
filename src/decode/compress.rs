//! What comes out when the raw bytes of a batch are unpacked. It knows nothing of JSON.
//!
//! Every buffer is filled to the brim before it is looked at, so nothing depends on how the
//! reader cuts its blocks. A fault is handed out only after all bytes before it.

use std::io::{self, BufRead, Read};
use std::mem;
use std::time::{Duration, Instant};

use flate2::bufread::GzDecoder;
use zstd::stream::raw::{DParameter, Decoder as ZstdFrames, Operation};

use super::intake::{Intake, refused, unwanted};
use super::{Digest, Fault, GoesOn, Limits, REST_TIME};
use crate::model::refusal::Code;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// What follows the first byte (0x50 to 0x5f) of a skippable zstd frame.
const ZSTD_SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];

/// A zstd frame may ask for a window of 128 MiB, and no more: the window is memory.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// What is unpacked at once when only the checks at its end matter.
const SCRATCH_BYTES: usize = 64 << 10;

/// How the raw bytes are packed, by their first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
    Zstd,
    /// Too few bytes to say, all of them as in the beginning of one of the others.
    CutMagic,
}

impl Packing {
    /// Tells from the first bytes: at least four, unless the file has fewer.
    pub(super) fn of(head: &[u8]) -> Packing {
        let skippable = head.len() > 1
            && (0x50..=0x5f).contains(&head[0])
            && head[1..].iter().zip(ZSTD_SKIPPABLE).all(|(found, magic)| *found == magic);
        if head.starts_with(&GZIP_MAGIC) {
            Packing::Gzip
        } else if head.starts_with(&ZSTD_MAGIC) || (skippable && head.len() > 3) {
            Packing::Zstd
        } else if !head.is_empty()
            && (skippable || GZIP_MAGIC.starts_with(head) || ZSTD_MAGIC.starts_with(head))
        {
            Packing::CutMagic
        } else {
            Packing::Plain
        }
    }
}

/// The unpacked bytes of a batch.
pub(super) struct Source<R> {
    body: Body<R>,
    /// Found behind bytes that had to be handed out first.
    waiting: Option<Fault>,
    inflated: u64,
    max_inflated: u64,
    /// A fault was handed out, so that nothing more can come.
    failed: bool,
    /// For how long the rest of a refused file may be read, and until when that is.
    rest_time: Duration,
    rest_until: Option<Instant>,
}

enum Body<R> {
    /// Nothing was read yet.
    Sealed(Intake<R>),
    Plain(Intake<R>),
    Gzip(Box<GzDecoder<Intake<R>>>),
    Zstd(Box<Zstd<R>>),
}

struct Zstd<R> {
    intake: Intake<R>,
    frames: ZstdFrames<'static>,
    inside_frame: bool,
}

impl<R: Read> Source<R> {
    pub(super) fn new(raw: R, limits: &Limits, block_bytes: usize) -> Source<R> {
        Source {
            body: Body::Sealed(Intake::new(raw, limits.max_file_bytes, block_bytes)),
            waiting: None,
            inflated: 0,
            max_inflated: limits.max_inflated_bytes,
            failed: false,
            rest_time: REST_TIME,
            rest_until: None,
        }
    }

    /// Fills `into` with the next bytes. Fewer than fit means that the end or a fault comes next.
    pub(super) fn fill(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        // a little that is packed can be much when it is unpacked
        if !self.body.intake().goes_on() {
            self.failed = true;
            return Err(Fault::Io(unwanted()));
        }
        let mut filled = 0;
        while filled < into.len() {
            let step = match self.waiting.take() {
                Some(fault) => Err(fault),
                None => self.pull(&mut into[filled..]),
            };
            match step {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(fault) if filled == 0 => {
                    self.failed = true;
                    return Err(fault);
                }
                Err(fault) => {
                    self.waiting = Some(fault);
                    break;
                }
            }
        }
        Ok(filled)
    }

    /// Takes back a fault, to be handed out when more is asked for again.
    pub(super) fn put_back(&mut self, fault: Fault) {
        self.failed = false;
        self.waiting = Some(fault);
    }

    /// Unpacks the rest and says whether it is damaged, cut or unreadable. Plain data can't be
    /// damaged, a fault that was handed out is not told again, and bounds are no damage.
    pub(super) fn damage(&mut self) -> Option<Fault> {
        if self.failed || matches!(self.body, Body::Sealed(_) | Body::Plain(_)) {
            return None;
        }
        let until = self.rest_until();
        let mut scratch = vec![0; SCRATCH_BYTES];
        loop {
            match self.fill(&mut scratch) {
                Ok(0) => return None,
                // whether the rest is damaged is not worth more
                Ok(_) if Instant::now() >= until => return None,
                Ok(_) => {}
                Err(Fault::Refused(refusal)) => {
                    let damaged = matches!(refusal.code, Code::BadCompression | Code::Truncated);
                    return damaged.then_some(Fault::Refused(refusal));
                }
                Err(fault) => return Some(fault),
            }
        }
    }

    /// Asks that from now on at each block, packed or unpacked, and fails when the answer is no.
    pub(super) fn watch(&mut self, goes_on: GoesOn) {
        self.body.intake().watch(goes_on);
    }

    /// Allows so much time for the rest of a file that is refused.
    pub(super) fn allow_rest(&mut self, time: Duration) {
        self.rest_time = time;
    }

    /// The rest of a file is read by then, or left.
    fn rest_until(&mut self) -> Instant {
        *self.rest_until.get_or_insert_with(|| Instant::now() + self.rest_time)
    }

    /// Reads the rest of the raw input, within its bounds, and says what the whole was.
    pub(super) fn digest(mut self) -> io::Result<Digest> {
        let until = self.rest_until();
        match self.body {
            Body::Sealed(intake) | Body::Plain(intake) => intake.digest(until),
            Body::Gzip(members) => members.into_inner().digest(until),
            Body::Zstd(zstd) => zstd.intake.digest(until),
        }
    }

    fn pull(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        if let Body::Sealed(intake) = &mut self.body {
            let body = open(intake)?;
            self.body = body;
        }
        if let Body::Plain(intake) = &mut self.body {
            return intake.pull(into);
        }
        let room = self.max_inflated - self.inflated;
        if room == 0 {
            return match self.body.unpack(&mut [0])? {
                0 => Ok(0),
                _ => Err(inflates_too_far(self.max_inflated)),
            };
        }
        let most = into.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let bytes = self.body.unpack(&mut into[..most])?;
        self.inflated += bytes as u64;
        Ok(bytes)
    }
}

impl<R> Body<R> {
    fn intake(&mut self) -> &mut Intake<R> {
        match self {
            Body::Sealed(intake) | Body::Plain(intake) => intake,
            Body::Gzip(members) => members.get_mut(),
            Body::Zstd(zstd) => &mut zstd.intake,
        }
    }
}

impl<R: Read> Body<R> {
    fn unpack(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        match self {
            Body::Sealed(intake) | Body::Plain(intake) => intake.pull(into),
            Body::Gzip(members) => pull_gzip(members, into),
            Body::Zstd(zstd) => zstd.pull(into),
        }
    }
}

/// Looks at the first bytes, and moves the intake to what unpacks it; on a fault it stays.
fn open<R: Read>(intake: &mut Intake<R>) -> Result<Body<R>, Fault> {
    let head = intake.peek(4);
    let bytes = head.len();
    match Packing::of(head) {
        Packing::Plain => Ok(Body::Plain(mem::take(intake))),
        Packing::Gzip => Ok(Body::Gzip(Box::new(GzDecoder::new(mem::take(intake))))),
        Packing::Zstd => {
            let mut frames = ZstdFrames::new().map_err(Fault::Io)?;
            let window = DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX);
            frames.set_parameter(window).map_err(Fault::Io)?;
            let intake = mem::take(intake);
            Ok(Body::Zstd(Box::new(Zstd { intake, frames, inside_frame: false })))
        }
        Packing::CutMagic => {
            let cut =
                || cut_short(&format!("after {bytes} bytes, inside a mark of compressed data"));
            Err(intake.fault().unwrap_or_else(cut))
        }
    }
}

fn pull_gzip<R: Read>(members: &mut GzDecoder<Intake<R>>, into: &mut [u8]) -> Result<usize, Fault> {
    loop {
        let read = members.read(into);
        match read {
            Ok(bytes) if bytes > 0 => return Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            _ => {}
        }
        let intake = members.get_mut();
        if let Some(fault) = intake.fault() {
            return Err(fault);
        }
        let at = intake.taken();
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(cut_short(&format!("after {at} bytes, inside its gzip data")));
            }
            Err(error) => return Err(bad_compression("gzip", at, &error.to_string())),
        }
        let head = intake.peek(GZIP_MAGIC.len());
        if head.is_empty() {
            return intake.fault().map_or(Ok(0), Err);
        }
        if head.len() < GZIP_MAGIC.len() && GZIP_MAGIC.starts_with(head) {
            let cut = cut_short(&format!("after {} bytes, inside its gzip data", at + 1));
            return Err(intake.fault().unwrap_or(cut));
        }
        if head != GZIP_MAGIC {
            return Err(garbage_behind("gzip", at));
        }
        let intake = mem::take(intake);
        *members = GzDecoder::new(intake);
    }
}

impl<R: Read> Zstd<R> {
    fn pull(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        loop {
            if !self.inside_frame && !self.next_frame()? {
                return Ok(0);
            }
            let at = self.intake.taken();
            let step = match self.intake.fill_buf() {
                Ok(input) => self.frames.run_on_buffers(input, into),
                Err(error) => return Err(Fault::Io(error)),
            };
            let step = step.map_err(|error| bad_compression("zstd", at, &error.to_string()))?;
            self.intake.consume(step.bytes_read);
            self.inside_frame = step.remaining > 0;
            if step.bytes_written > 0 {
                return Ok(step.bytes_written);
            }
            if self.inside_frame && step.bytes_read == 0 && self.intake.peek(1).is_empty() {
                let cut = || cut_short(&format!("after {at} bytes, inside its zstd data"));
                return Err(self.intake.fault().unwrap_or_else(cut));
            }
        }
    }

    /// Whether one more frame begins here; neither the end nor anything else may.
    fn next_frame(&mut self) -> Result<bool, Fault> {
        let at = self.intake.taken();
        let head = self.intake.peek(4);
        let (bytes, packing) = (head.len(), Packing::of(head));
        if packing == Packing::Zstd {
            self.inside_frame = true;
            return Ok(true);
        }
        if let Some(fault) = self.intake.fault() {
            return Err(fault);
        }
        match packing {
            _ if bytes == 0 => Ok(false),
            Packing::CutMagic if head_is_zstd(self.intake.peek(1)) => {
                let end = at + bytes as u64;
                Err(cut_short(&format!("after {end} bytes, inside its zstd data")))
            }
            _ => Err(garbage_behind("zstd", at)),
        }
    }
}

fn head_is_zstd(head: &[u8]) -> bool {
    head.first() != Some(&GZIP_MAGIC[0])
}

fn cut_short(place: &str) -> Fault {
    refused(
        Code::Truncated,
        format!("the file ends {place}"),
        "send the whole file again; write it under another name and rename it when it is complete",
    )
}

fn garbage_behind(format: &str, at: u64) -> Fault {
    refused(
        Code::BadCompression,
        format!(
            "something else follows the {format} data: expected its end or more {format} data at \
             byte {at} of the compressed file"
        ),
        "send what the compressor wrote, with nothing behind it",
    )
}

fn bad_compression(format: &str, at: u64, found: &str) -> Fault {
    refused(
        Code::BadCompression,
        format!("the {format} data is damaged near byte {at} of the compressed file: {found}"),
        match format {
            "gzip" => "test the sender's copy with gzip -t, and send it again in binary mode",
            _ => {
                "test the sender's copy with zstd -t, and send it again in binary mode; windows \
                 above 128 MiB (--long=28 and more) and dictionaries are not supported"
            }
        },
    )
}

fn inflates_too_far(most: u64) -> Fault {
    refused(
        Code::InflatesTooFar,
        format!("the file inflates to more than {most} bytes, the most that is allowed"),
        "split the batch into smaller files, or raise max_inflated_bytes",
    )
}
