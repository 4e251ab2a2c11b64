//! Files that are small and ask for much: memory, room, or time. Each with the code that it is
//! refused with, and a cage of memory for whoever reads it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// The memory that a daemon has for all of it.
pub const CAGE_BYTES: u64 = 256 << 20;

/// How far they inflate: beyond what is allowed, which is this much less one.
pub struct Reach {
    /// The bytes that the configuration allows.
    pub allowed_bytes: u64,
    /// How many members, frames or brackets there are of what is many.
    pub many: u64,
}

/// One of them.
pub struct Bomb {
    pub name: &'static str,
    /// What it is refused with.
    pub code: &'static str,
    pub write: fn(&mut dyn Write, &Reach) -> io::Result<()>,
}

/// All of them.
pub const BOMBS: [Bomb; 14] = [
    Bomb { name: "gzip of spaces", code: "inflates_too_far", write: gzip_spaces },
    Bomb { name: "zstd of spaces", code: "inflates_too_far", write: zstd_spaces },
    Bomb { name: "gzip of a space and zeros", code: "not_utf8", write: gzip_zeros },
    Bomb { name: "gzip in gzip in gzip", code: "not_a_batch", write: nested },
    Bomb { name: "gzip of brackets", code: "wrong_type", write: gzip_brackets },
    Bomb { name: "gzip of one event", code: "event_too_large", write: gzip_one_event },
    Bomb { name: "zstd of one number", code: "event_too_large", write: zstd_one_number },
    Bomb { name: "many empty gzip members", code: "empty", write: empty_members },
    Bomb { name: "many empty zstd frames", code: "empty", write: empty_frames },
    Bomb { name: "many skippable frames", code: "empty", write: skippable_frames },
    Bomb { name: "a skippable frame of 4 GiB", code: "truncated", write: skippable_claim },
    Bomb { name: "a zstd window of 2 GiB", code: "bad_compression", write: wide_window },
    Bomb { name: "a zstd frame that claims 16 GiB", code: "bad_compression", write: claim },
    Bomb { name: "a gzip name without end", code: "bad_compression", write: endless_name },
];

fn repeat(out: &mut dyn Write, piece: &[u8], bytes: u64) -> io::Result<()> {
    let block = piece.repeat((64 << 10) / piece.len().max(1));
    let mut left = bytes;
    while left > 0 {
        let some = left.min(block.len() as u64);
        out.write_all(&block[..some as usize])?;
        left -= some;
    }
    Ok(())
}

/// Packs what is between: a beginning, and a piece again and again.
fn gzip(out: &mut dyn Write, begin: &[u8], piece: &[u8], bytes: u64) -> io::Result<()> {
    let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::best());
    encoder.write_all(begin)?;
    repeat(&mut encoder, piece, bytes)?;
    encoder.finish().map(drop)
}

/// A zstd frame of one byte again and again: four bytes for each 128 KiB.
fn zstd_runs(out: &mut dyn Write, begin: &[u8], byte: u8, bytes: u64) -> io::Result<()> {
    out.write_all(b"\x28\xb5\x2f\xfd\x00\x38")?;
    let block =
        |size: u32, kind: u32, last: bool| (size << 3 | kind << 1 | u32::from(last)).to_le_bytes();
    out.write_all(&block(begin.len() as u32, 0, false)[..3])?;
    out.write_all(begin)?;
    let runs = bytes.div_ceil(128 << 10);
    for run in 1..=runs {
        out.write_all(&block(128 << 10, 1, run == runs)[..3])?;
        out.write_all(&[byte])?;
    }
    Ok(())
}

fn gzip_spaces(out: &mut dyn Write, reach: &Reach) -> io::Result<()> {
    gzip(out, b"[", b" ", reach.allowed_bytes)
}

fn zstd_spaces(out: &mut dyn Write, reach: &Reach) -> io::Result<()> {
    zstd_runs(out, b"[", b' ', reach.allowed_bytes + 1)
}

fn gzip_zeros(out: &mut dyn Write, reach: &Reach) -> io::Result<()> {
    gzip(out, b" ", b"\0", reach.allowed_bytes / 2)
}

fn nested(out: &mut dyn Write, reach: &Reach) -> io::Result<()> {
    let (mut inner, mut middle) = (Vec::new(), Vec::new());
    gzip(&mut inner, b"[", b" ", reach.allowed_bytes)?;
    gzip(&mut middle, &inner, b"", 0)?;
    gzip(out, &middle, b"", 0)
}

fn gzip_brackets(out: &mut dyn Write, reach: &Reach) -> io::Result<()> {
    gzip(out, b"", b"[", reach.allowed_bytes / 2)
}

fn gzip_one_event(out: &mut dyn Write, reach: &Reach) -> io::Result<()> {
    gzip(out, b"[{\"id\":\"", b"x", reach.allowed_bytes / 2)
}

fn zstd_one_number(out: &mut dyn Write, reach: &Reach) -> io::Result<()> {
    zstd_runs(out, b"[{\"value\":", b'1', reach.allowed_bytes / 2)
}

fn empty_members(out: &mut dyn Write, reach: &Reach) -> io::Result<()> {
    let mut one = Vec::new();
    gzip(&mut one, b"", b"", 0)?;
    repeat(out, &one, reach.many * one.len() as u64)
}

fn empty_frames(out: &mut dyn Write, reach: &Reach) -> io::Result<()> {
    let one = b"\x28\xb5\x2f\xfd\x00\x38\x01\x00\x00";
    repeat(out, one, reach.many * one.len() as u64)
}

fn skippable_frames(out: &mut dyn Write, reach: &Reach) -> io::Result<()> {
    let one = b"\x5a\x2a\x4d\x18\x04\0\0\0skip";
    repeat(out, one, reach.many * one.len() as u64)
}

fn skippable_claim(out: &mut dyn Write, reach: &Reach) -> io::Result<()> {
    out.write_all(b"\x50\x2a\x4d\x18\xff\xff\xff\xff")?;
    repeat(out, b"skip", 4 * reach.many)
}

fn wide_window(out: &mut dyn Write, _: &Reach) -> io::Result<()> {
    out.write_all(b"\x28\xb5\x2f\xfd\x00\xa8\x11\x00\x00[]")
}

fn claim(out: &mut dyn Write, _: &Reach) -> io::Result<()> {
    out.write_all(b"\x28\xb5\x2f\xfd\xe0")?;
    out.write_all(&(16_u64 << 30).to_le_bytes())?;
    out.write_all(b"\x11\x00\x00[]")
}

fn endless_name(out: &mut dyn Write, reach: &Reach) -> io::Result<()> {
    out.write_all(b"\x1f\x8b\x08\x08\0\0\0\0\0\xff")?;
    repeat(out, b"name", 10 * reach.many)
}

/// An array of that many events on one line, about 100 bytes each.
pub fn write_line(path: &Path, events: u64) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let pad = "p".repeat(40);
    for n in 0..events {
        let begin = if n == 0 { '[' } else { ',' };
        write!(
            out,
            "{begin}{{\"id\":\"{pad}{n}\",\"key\":\"k{}\",\"timestamp_ms\":{n},\"value\":1}}",
            n % 100
        )?;
    }
    out.write_all(b"]")?;
    out.into_inner()?.sync_all()
}

/// A group of processes that may have so much memory; whoever wants more is killed.
pub struct Cage {
    folder: PathBuf,
}

impl Cage {
    /// Makes one; none where the kernel or our rights do not allow it.
    pub fn new(bytes: u64) -> Option<Cage> {
        let name = format!("windowflow-{}-{:?}", std::process::id(), std::thread::current().id());
        let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
        let kinds = [("memory", "memory.limit_in_bytes"), ("", "memory.max")];
        kinds.into_iter().find_map(|(below, limit)| {
            let folder = Path::new("/sys/fs/cgroup").join(below).join(&name);
            fs::create_dir(&folder).ok()?;
            let cage = Cage { folder };
            fs::write(cage.folder.join(limit), bytes.to_string()).ok()?;
            Some(cage)
        })
    }

    /// What to put before a command, so that it is in there.
    pub fn wrapper(&self) -> [String; 4] {
        let procs = self.folder.join("cgroup.procs");
        let script = "echo $$ > \"$0\" && exec \"$@\"".to_owned();
        ["sh".to_owned(), "-c".to_owned(), script, procs.to_str().unwrap().to_owned()]
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        // who was in it has ended
        let _ = fs::remove_dir(&self.folder);
    }
}
