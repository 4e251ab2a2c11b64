//! Faults put into system calls: `strace` kills the daemon at a call, or has the call fail.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::row::Unable;
use crate::world::{Daemon, World, under};

/// Whether there is an `strace` that can put faults into calls.
///
/// # Errors
/// When there is none.
pub fn is_here() -> Result<(), Unable> {
    let with = ["-qq", "-o", "/dev/null", "-e", "inject=getpid:error=EIO:when=1", "true"];
    match Command::new("strace").args(with).output() {
        Ok(ran) if ran.status.success() => Ok(()),
        Ok(ran) => Err(Unable(format!(
            "strace cannot trace here: {}",
            String::from_utf8_lossy(&ran.stderr).trim()
        ))),
        Err(_) => Err(Unable("there is no strace (Debian: apt-get install strace)".to_owned())),
    }
}

/// What the call meets with, from strace's own language: `signal=KILL:when=3`. Calls are counted by
/// thread.
pub struct Inject<'a> {
    /// The calls, with commas in between.
    pub calls: &'a str,
    /// What happens to them, and when.
    pub how: String,
    /// Only calls that have to do with these paths; none: all.
    pub paths: Vec<String>,
}

impl Inject<'_> {
    /// The words before the command that it is done to; what was done is written to `trace`.
    pub fn wrapper(&self, trace: &str) -> Vec<String> {
        let (calls, how) = (self.calls, &self.how);
        let mut words = ["strace", "-f", "-qq", "-o", trace, "-e"].map(str::to_owned).to_vec();
        words.extend([format!("trace={calls}"), "-e".into(), format!("inject={calls}:{how}")]);
        words.extend(self.paths.iter().flat_map(|path| ["-P".to_owned(), path.clone()]));
        words
    }

    /// The same for a daemon, which stays our child: strace is a process beside it.
    pub fn wrapper_beside(&self, trace: &str) -> Vec<String> {
        let mut words = self.wrapper(trace);
        words.splice(1..1, ["-D"].map(str::to_owned));
        words
    }

    /// Does it to a process that runs, all of whose threads are held by it when this returns.
    ///
    /// # Errors
    /// When it cannot be attached.
    pub fn attach(&self, world: &World, pid: u32) -> Result<Attached, String> {
        let trace = world.root().join("attached.trace");
        let mut words = self.wrapper(trace.to_str().unwrap());
        words.extend(["-p".to_owned(), pid.to_string()]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let attached = Attached { child };
        let begun = Instant::now();
        while !is_held(pid) {
            if begun.elapsed() > Duration::from_secs(20) {
                return Err(format!("strace does not get hold of {pid}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(attached)
    }
}

/// Whether each thread of a process has a tracer.
fn is_held(pid: u32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    tasks.flatten().all(|task| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.is_some_and(|pid| pid.trim() != "0")
    })
}

/// Has the tracer of that process let go of it: whatever is done to its calls ends.
pub fn let_go(daemon: &Daemon<'_>) {
    let tracer = daemon.proc_status("TracerPid").and_then(|pid| pid.parse().ok());
    if let Some(tracer) = tracer.and_then(Pid::from_raw) {
        // killed, since strace can wait for ever for threads that ended while it lets go of them;
        // it may be on its way out already
        let _ = kill_process(tracer, Signal::KILL);
    }
}

/// A fault that lasts as long as this does.
pub struct Attached {
    child: Child,
}

impl Drop for Attached {
    fn drop(&mut self) {
        // it lets go of its process when it is asked to end, and when it is killed, too
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How often something was done to calls, by what strace wrote.
pub fn struck(world: &World, trace: &str) -> usize {
    let text = fs::read(world.root().join(trace)).unwrap_or_default();
    String::from_utf8_lossy(&text).matches("(INJECTED)").count()
}

/// How often each of these calls is made by the thread that makes it most often, in one run of
/// `run --once` over what lies in the inbox. Rounded up, since it varies a little from run to run,
/// and attempts are to have the same number each time.
pub fn count(world: &World, calls: &[&str]) -> BTreeMap<String, u64> {
    let trace = world.root().join("counted.trace");
    let which = format!("trace={}", calls.join(","));
    let wrapper = ["strace", "-f", "-qq", "-o", trace.to_str().unwrap(), "-e", &which];
    world.run_under(&wrapper, &["run", "--once"]);
    let mut by_thread: BTreeMap<(String, String), u64> = BTreeMap::new();
    let text = fs::read(&trace).unwrap();
    for line in String::from_utf8_lossy(&text).lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        // the end of a call that was begun on another line is not one more
        let Some((call, _)) = rest.trim_start().split_once('(') else { continue };
        if calls.contains(&call) {
            *by_thread.entry((call.to_owned(), thread.to_owned())).or_default() += 1;
        }
    }
    let mut most = BTreeMap::new();
    for ((call, _), times) in by_thread {
        let so_far = most.entry(call).or_insert(0);
        *so_far = times.max(*so_far);
    }
    most.values_mut().for_each(|times| *times = rounded_up(*times));
    most
}

/// To the next of 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on.
fn rounded_up(times: u64) -> u64 {
    let power = times.next_power_of_two();
    if times <= power / 4 * 3 { power / 4 * 3 } else { power }
}

/// Runs a command on a world to its end, under strace with these arguments of its own.
///
/// # Errors
/// When it cannot be started.
pub fn run(world: &World, strace: &[&str], args: &[&str]) -> Result<Output, String> {
    let wrapper = [&["strace", "-f"], strace].concat();
    under(&wrapper, &world.command(args)).output().map_err(|error| format!("strace: {error}"))
}
