//! What a run of the program does to a disk, recorded by `strace` from its real system calls.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, Event, Node, Place, ROOT, Span};
use crate::strace;
use crate::world::World;

/// The calls that are recorded. Those that are not there on this machine are left out.
const CALLS: &str = "?open,openat,?creat,close,?dup,?dup2,dup3,fcntl,write,pwrite64,writev,\
                     ?pwritev,ftruncate,fallocate,fsync,fdatasync,?rename,?renameat,renameat2,\
                     ?link,linkat,?unlink,unlinkat,?mkdir,mkdirat,?rmdir,copy_file_range,sendfile";

/// What happened to the disk of a spool, one thing after the other.
pub struct Recording {
    /// How it was before.
    pub before: Disk,
    /// What happened.
    pub steps: Vec<Step>,
    /// Who asked for each sync, with what call, and of what.
    pub syncs: Vec<Asked>,
}

/// A call that syncs.
pub struct Asked {
    /// When it had ended.
    pub moment: u64,
    /// Its thread.
    pub thread: String,
    /// Its name.
    pub call: String,
    /// The name of what it is about.
    pub name: String,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct Step {
    /// What.
    pub event: Event,
    /// When.
    pub span: Span,
    /// The name of what it is about; nothing for the spool itself.
    pub name: String,
}

/// Makes a recording of a world's spool.
pub struct Recorder<'w> {
    world: &'w World,
    recording: Recording,
    now: Disk,
    open: HashMap<i32, Open>,
    lines: u64,
}

/// An open file or folder.
#[derive(Clone, Copy)]
struct Open {
    node: Node,
    at: usize,
}

/// A call that has ended.
struct Call<'l> {
    thread: &'l str,
    name: &'l str,
    args: Vec<&'l str>,
    /// Below 0: it failed.
    answer: i64,
    span: Span,
}

impl<'w> Recorder<'w> {
    /// Begins with what lies in the spool, all of which is durable.
    pub fn new(world: &'w World) -> Recorder<'w> {
        let mut now = Disk::new();
        take_in(&mut now, ROOT, &world.spool());
        now.settle();
        let recording = Recording { before: now.clone(), steps: Vec::new(), syncs: Vec::new() };
        Recorder { world, recording, now, open: HashMap::new(), lines: 0 }
    }

    /// A producer drops a file; it has made it durable before, or not.
    pub fn drop_in(&mut self, name: &str, content: &[u8], is_synced: bool) {
        self.world.drop_in(name, content);
        let path = [b"inbox/", name.as_bytes()].concat();
        let at = self.make_folders(&path);
        let node = self.now.next();
        let folder = at.0;
        self.add(Event::Make { at, is_folder: false });
        self.add(Event::Write { node, from: 0, bytes: content.into() });
        if is_synced {
            self.add(Event::Sync { node });
            self.add(Event::Sync { node: folder });
        }
    }

    /// Makes the folders above what is to have that path, and answers its place.
    fn make_folders(&mut self, path: &[u8]) -> Place {
        let (mut folder, mut rest) = (ROOT, path);
        while let Some(end) = rest.iter().position(|byte| *byte == b'/') {
            let name = rest[..end].to_vec();
            folder = match self.now.named(folder, &name) {
                Some(node) => node,
                None => {
                    let node = self.now.next();
                    self.add(Event::Make { at: (folder, name), is_folder: true });
                    node
                }
            };
            rest = &rest[end + 1..];
        }
        (folder, rest.to_vec())
    }

    fn add(&mut self, event: Event) {
        self.lines += 1;
        let span = Span { begun: self.lines, ended: self.lines };
        self.keep(event, span);
    }

    fn keep(&mut self, event: Event, span: Span) {
        let shown = |name: &[u8]| name.escape_ascii().to_string();
        let name = match &event {
            Event::Make { at, .. } | Event::Remove { at } => shown(&at.1),
            Event::Move { to: at, .. } | Event::Link { at, .. } => shown(&at.1),
            Event::Write { node, .. } | Event::Resize { node, .. } => shown(&self.now.name(*node)),
            Event::Sync { node } | Event::FailedSync { node } => shown(&self.now.name(*node)),
        };
        self.now.apply(&event, span);
        self.recording.steps.push(Step { event, span, name });
    }

    /// The number of the line that comes next: between two of them a moment can be named.
    pub fn moment(&self) -> u64 {
        self.lines
    }

    /// Runs the program to its end, and records it. `inject` are more arguments for strace.
    ///
    /// # Errors
    /// When it did not end with one of these codes, or did what cannot be recorded.
    pub fn run(&mut self, args: &[&str], inject: &[&str], codes: &[i32]) -> Result<i32, String> {
        let trace = self.world.root().join("trace");
        let path = trace.to_string_lossy();
        let calls = format!("trace={CALLS}");
        let mut strace = vec!["-xx", "-s", "16777216", "-e", "signal=none", "-e", &calls];
        strace.extend(inject.iter().chain(&["-o", &path]));
        let output = strace::run(self.world, &strace, args)?;
        let Some(code) = output.status.code().filter(|code| codes.contains(code)) else {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("{args:?} ended with {}: {said}", output.status));
        };
        let text = fs::read_to_string(&trace).map_err(|error| format!("the trace: {error}"))?;
        self.open.clear();
        let mut begun = HashMap::new();
        for line in text.lines() {
            self.lines += 1;
            self.line(line, &mut begun)?;
        }
        fs::remove_file(&trace).map_err(|error| format!("the trace: {error}"))?;
        Ok(code)
    }

    fn line<'l>(
        &mut self,
        line: &'l str,
        begun: &mut HashMap<&'l str, (&'l str, u64)>,
    ) -> Result<(), String> {
        let Some((thread, rest)) = line.split_once(' ') else { return Ok(()) };
        let rest = rest.trim_start();
        if let Some(head) = rest.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, (head, self.lines));
            return Ok(());
        }
        let ended = self.lines;
        let joined: String;
        let (text, begun) = match rest.strip_prefix("<... ").and_then(|it| it.split_once('>')) {
            Some((_, tail)) => {
                let Some((head, begun)) = begun.remove(thread) else { return Ok(()) };
                joined = format!("{head}{tail}");
                (joined.as_str(), begun)
            }
            None => (rest, ended),
        };
        let span = Span { begun, ended };
        let Some(call) = Call::read(thread, text, span) else { return Ok(()) };
        self.call(&call).map_err(|error| {
            let shown: String = text.chars().take(200).collect();
            format!("cannot be recorded: {error}: {shown}")
        })
    }

    fn call(&mut self, call: &Call<'_>) -> Result<(), String> {
        let arg = |at: usize| call.args.get(at).copied().unwrap_or_default();
        if call.answer < 0 {
            return match call.name {
                "fsync" | "fdatasync" => self.content(call),
                _ => Ok(()),
            };
        }
        match call.name {
            "open" => self.open_at(call, "AT_FDCWD", arg(0), arg(1)),
            "creat" => self.open_at(call, "AT_FDCWD", arg(0), "O_CREAT|O_TRUNC"),
            "openat" => self.open_at(call, arg(0), arg(1), arg(2)),
            "close" => drop(number(arg(0)).and_then(|fd| self.open.remove(&(fd as i32)))),
            "dup" | "dup2" | "dup3" => self.copy(call),
            "fcntl" if arg(1).starts_with("F_DUPFD") => self.copy(call),
            "fcntl" => {}
            "rename" => self.renamed(call, ("AT_FDCWD", arg(0)), ("AT_FDCWD", arg(1))),
            "renameat" | "renameat2" => self.renamed(call, (arg(0), arg(1)), (arg(2), arg(3))),
            "link" => self.linked(call, ("AT_FDCWD", arg(0)), ("AT_FDCWD", arg(1))),
            "linkat" => self.linked(call, (arg(0), arg(1)), (arg(2), arg(3))),
            "unlink" | "rmdir" => self.removed(call, "AT_FDCWD", arg(0)),
            "unlinkat" => self.removed(call, arg(0), arg(1)),
            "mkdir" => self.made(call, "AT_FDCWD", arg(0)),
            "mkdirat" => self.made(call, arg(0), arg(1)),
            _ => return self.content(call),
        }
        Ok(())
    }

    /// The calls that change or sync what is in an open file.
    fn content(&mut self, call: &Call<'_>) -> Result<(), String> {
        let arg = |at: usize| call.args.get(at).copied().unwrap_or_default();
        let Some(Open { node, at }) = self.held(arg(0)) else { return Ok(()) };
        let count = |at: usize| number(arg(at)).ok_or_else(|| format!("no number at {at}"));
        let written = || unhex(arg(1)).get(..call.answer as usize).map(Arc::<[u8]>::from);
        let event = match call.name {
            "write" => {
                let bytes = written().ok_or("not all of it is there")?;
                if let Some(open) = number(arg(0)).and_then(|fd| self.open.get_mut(&(fd as i32))) {
                    open.at += bytes.len();
                }
                Event::Write { node, from: at, bytes }
            }
            "pwrite64" => {
                let bytes = written().ok_or("not all of it is there")?;
                Event::Write { node, from: count(3)? as usize, bytes }
            }
            "ftruncate" => Event::Resize { node, bytes: count(1)? as usize },
            "fallocate" if arg(1) == "0" => {
                let end = (count(2)? + count(3)?) as usize;
                Event::Resize { node, bytes: self.now.bytes(node).max(end) }
            }
            "fsync" | "fdatasync" => {
                let (thread, name) = (call.thread.to_owned(), call.name.to_owned());
                let of = self.now.name(node).escape_ascii().to_string();
                let moment = call.span.ended;
                self.recording.syncs.push(Asked { moment, thread, call: name, name: of });
                match call.answer {
                    0 => Event::Sync { node },
                    _ => Event::FailedSync { node },
                }
            }
            _ => return Err("no such call was met so far".to_owned()),
        };
        self.keep(event, call.span);
        Ok(())
    }

    fn held(&self, fd: &str) -> Option<Open> {
        self.open.get(&(number(fd)? as i32)).copied()
    }

    fn copy(&mut self, call: &Call<'_>) {
        if let Some(open) = call.args.first().and_then(|fd| self.held(fd)) {
            self.open.insert(call.answer as i32, open);
        }
    }

    /// Where a path leads: to its folder and its name; none when that is not within the spool.
    fn place(&self, folder: &str, path: &str) -> Option<Place> {
        let path = unhex(path);
        let held = |fd: &[u8]| self.held(&String::from_utf8_lossy(fd));
        if let Some(open) = path.strip_prefix(b"/proc/self/fd/").and_then(held) {
            return Some((open.node, Vec::new()));
        }
        let (start, below) = match self.held(folder) {
            Some(open) if path.first() != Some(&b'/') => (open.node, path),
            Some(_) => return None,
            None if folder.starts_with("AT_FDCWD") || path.first() == Some(&b'/') => {
                let path = Path::new(std::ffi::OsStr::from_bytes(&path)).to_owned();
                let below = self.world.root().join(path);
                let below = below.strip_prefix(self.world.spool()).ok()?.to_owned();
                (ROOT, below.into_os_string().into_encoded_bytes())
            }
            None => return None,
        };
        let mut folder = start;
        let mut name = Vec::new();
        let is_name = |part: &&[u8]| !part.is_empty() && *part != b".";
        for part in below.split(|byte| *byte == b'/').filter(is_name) {
            if !name.is_empty() {
                folder = self.now.named(folder, &name)?;
            }
            name = part.to_vec();
        }
        Some((folder, name))
    }

    /// What stands there.
    fn node(&self, place: &Place) -> Option<Node> {
        if place.1.is_empty() { Some(place.0) } else { self.now.named(place.0, &place.1) }
    }

    fn open_at(&mut self, call: &Call<'_>, folder: &str, path: &str, flags: &str) {
        let fd = call.answer as i32;
        self.open.remove(&fd);
        let Some(place) = self.place(folder, path) else { return };
        let node = match self.node(&place) {
            Some(node) => node,
            None if flags.contains("O_CREAT") => {
                let node = self.now.next();
                self.keep(Event::Make { at: place, is_folder: false }, call.span);
                node
            }
            None => return,
        };
        if flags.contains("O_TRUNC") && self.now.bytes(node) > 0 {
            self.keep(Event::Resize { node, bytes: 0 }, call.span);
        }
        self.open.insert(fd, Open { node, at: 0 });
    }

    fn renamed(&mut self, call: &Call<'_>, from: (&str, &str), to: (&str, &str)) {
        let places = self.place(from.0, from.1).zip(self.place(to.0, to.1));
        if let Some((from, place)) = places {
            self.keep(Event::Move { from, to: place }, call.span);
        }
    }

    fn linked(&mut self, call: &Call<'_>, from: (&str, &str), to: (&str, &str)) {
        let node = self.place(from.0, from.1).and_then(|place| self.node(&place));
        if let Some((node, at)) = node.zip(self.place(to.0, to.1)) {
            self.keep(Event::Link { node, at }, call.span);
        }
    }

    fn removed(&mut self, call: &Call<'_>, folder: &str, path: &str) {
        if let Some(at) = self.place(folder, path) {
            self.keep(Event::Remove { at }, call.span);
        }
    }

    fn made(&mut self, call: &Call<'_>, folder: &str, path: &str) {
        if let Some(at) = self.place(folder, path) {
            self.keep(Event::Make { at, is_folder: true }, call.span);
        }
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// When what was recorded does not lead to what lies in the spool: a call was overlooked.
    pub fn end(self) -> Result<Recording, String> {
        let mut real = Disk::new();
        take_in(&mut real, ROOT, &self.world.spool());
        let all = |disk: &Disk| {
            let mut left = disk.shown();
            left.files.retain(|(path, _)| is_kept(&String::from_utf8_lossy(path)));
            left.files.sort();
            left.files
        };
        let (recorded, real) = (all(&self.now), all(&real));
        let names = |files: &[(Vec<u8>, Vec<u8>)]| -> Vec<String> {
            let shown = |(path, bytes): &(Vec<u8>, Vec<u8>)| {
                format!("{} ({})", path.escape_ascii(), bytes.len())
            };
            files.iter().map(shown).collect()
        };
        if recorded != real {
            let (recorded, real) = (names(&recorded), names(&real));
            return Err(format!("recorded: {recorded:?}\nreal: {real:?}"));
        }
        Ok(self.recording)
    }
}

impl<'l> Call<'l> {
    fn read(thread: &'l str, text: &'l str, span: Span) -> Option<Call<'l>> {
        let (name, rest) = text.split_once('(')?;
        let (args, answer) = rest.rsplit_once(" = ")?;
        let args = args.trim_end().strip_suffix(')')?;
        let answer = answer.split(' ').next()?;
        let args = args.split(", ").collect();
        Some(Call { thread, name, args, answer: number(answer)? as i64, span })
    }
}

/// Whether what has that name is part of what lasts: the index of the log is made anew.
pub fn is_kept(name: &str) -> bool {
    !name.ends_with("-shm")
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.event {
            Event::Make { is_folder: true, .. } => f.write_str("a new folder")?,
            Event::Make { is_folder: false, .. } => f.write_str("a new file")?,
            Event::Write { from, bytes, .. } => write!(f, "{} bytes at {from}", bytes.len())?,
            Event::Resize { bytes, .. } => write!(f, "a size of {bytes} bytes")?,
            Event::Move { .. } => f.write_str("a move")?,
            Event::Link { .. } => f.write_str("a link")?,
            Event::Remove { .. } => f.write_str("a removal")?,
            Event::Sync { .. } => f.write_str("a sync")?,
            Event::FailedSync { .. } => f.write_str("a sync that failed")?,
        }
        write!(f, " of {}", if self.name.is_empty() { "the spool" } else { &self.name })
    }
}

fn number(text: &str) -> Option<i128> {
    match text.strip_prefix("0x") {
        Some(hex) => i128::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The bytes that strace shows as `"\x61\x62"`.
fn unhex(text: &str) -> Vec<u8> {
    let text = text.trim_matches('"').as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or_default() as u8;
    text.chunks_exact(4).map(|one| digit(one[2]) << 4 | digit(one[3])).collect()
}

/// Takes in what lies in a real folder.
fn take_in(disk: &mut Disk, folder: Node, path: &PathBuf) {
    let mut entries: Vec<_> = fs::read_dir(path).unwrap().flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    let span = Span { begun: 0, ended: 0 };
    for entry in entries {
        let (path, node) = (entry.path(), disk.next());
        let at = (folder, entry.file_name().into_encoded_bytes());
        let is_folder = entry.file_type().unwrap().is_dir();
        disk.apply(&Event::Make { at, is_folder }, span);
        if is_folder {
            take_in(disk, node, &path);
        } else {
            let bytes = fs::read(&path).unwrap().into();
            disk.apply(&Event::Write { node, from: 0, bytes }, span);
        }
    }
}
