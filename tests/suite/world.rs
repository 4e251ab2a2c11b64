//! The real binary in a world of its own: a spool, a store, a daemon. When something does not come
//! about in time, it prints the commands, the tree and what was said.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything may take before it counts as not happening.
const DEADLINE: Duration = Duration::from_secs(60);

/// Who the daemon is where rights must count, when the tests run as root, for whom none do.
const NOBODY: u32 = 65534;

/// A spool and a store in a folder of their own.
pub struct World {
    folder: tempfile::TempDir,
    history: Mutex<String>,
    // who runs the commands; none: who runs the tests
    uid: Option<u32>,
}

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl World {
    /// An empty spool, without a store.
    pub fn new() -> World {
        World::new_in(&std::env::temp_dir())
    }

    /// The same in that folder, such as one that lies in memory.
    pub fn new_in(folder: &Path) -> World {
        let folder =
            tempfile::Builder::new().prefix("windowflow-test-").tempdir_in(folder).unwrap();
        let world = World { folder, history: Mutex::default(), uid: None };
        fs::create_dir_all(world.inbox()).unwrap();
        world
    }

    /// A spool with a store that has these settings.
    pub fn with_store(window_ms: i64, lateness_ms: i64) -> World {
        let world = World::new();
        world.init(window_ms, lateness_ms, &[]);
        world
    }

    /// An empty spool whose commands run as an ordinary user, who owns it. The test itself may be
    /// root.
    pub fn unprivileged() -> World {
        let mut world = World::new();
        if rustix::process::geteuid().is_root() {
            world.uid = Some(NOBODY);
            // where it was built may be closed to others; not copied by this process, since a
            // command that another test starts meanwhile would have the copy open for writing
            let mut copy = Command::new("cp");
            copy.arg(env!("CARGO_BIN_EXE_windowflow")).arg(world.root());
            assert!(copy.status().unwrap().success());
            fs::set_permissions(world.root(), fs::Permissions::from_mode(0o755)).unwrap();
            for path in [world.root().to_owned(), world.spool(), world.inbox()] {
                std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        world
    }

    /// Makes the store.
    pub fn init(&self, window_ms: i64, lateness_ms: i64, more: &[&str]) {
        let (window, lateness) = (window_ms.to_string(), lateness_ms.to_string());
        let mut args = vec!["init", "--window-ms", &window, "--lateness-ms", &lateness];
        args.extend(more);
        self.run(&args).ok();
    }

    /// The folder that all of it lies in.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// The spool.
    pub fn spool(&self) -> PathBuf {
        self.root().join("spool")
    }

    /// Its inbox.
    pub fn inbox(&self) -> PathBuf {
        self.spool().join("inbox")
    }

    /// Its store.
    pub fn db(&self) -> PathBuf {
        self.spool().join("windowflow.db")
    }

    /// A command on this world's store and spool, ready to be changed and started.
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = match self.uid {
            None => Command::new(env!("CARGO_BIN_EXE_windowflow")),
            Some(uid) => {
                let mut command = Command::new(self.root().join("windowflow"));
                command.uid(uid).gid(uid);
                command
            }
        };
        command
            .env_remove("RUST_LOG")
            .env_remove("NOTIFY_SOCKET")
            .env("WINDOWFLOW_DB", self.db())
            .env("WINDOWFLOW_SPOOL", self.spool())
            .current_dir(self.root())
            .args(args)
            .stdin(Stdio::null());
        let shown: Vec<_> = args.iter().map(|arg| arg.as_ref().to_string_lossy()).collect();
        writeln!(self.history.lock().unwrap(), "$ windowflow {}", shown.join(" ")).unwrap();
        command
    }

    /// Runs a command to its end.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        self.end(self.command(args).output().unwrap())
    }

    /// Runs a command to its end, with that on its standard input.
    pub fn run_with_input<S: AsRef<OsStr>>(&self, args: &[S], input: &[u8]) -> Ran {
        use std::io::Write as _;
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // a command that does not read to the end is not the writer's fault
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        self.end(output)
    }

    fn end(&self, output: Output) -> Ran {
        let ran = Ran {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        let mut history = self.history.lock().unwrap();
        writeln!(history, "{}{}[{:?}]", ran.out, ran.err, ran.code).unwrap();
        ran
    }

    /// Drops a file into the inbox as a careful producer does: written elsewhere, then renamed.
    /// `name` may begin with the folder of a source.
    pub fn drop_in(&self, name: impl AsRef<OsStr>, content: impl AsRef<[u8]>) {
        let to = self.inbox().join(name.as_ref());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let staged = self.root().join(".staged");
        fs::write(&staged, content).unwrap();
        fs::rename(&staged, &to).unwrap();
    }

    /// Runs the daemon once over the inbox; whatever its exit code.
    pub fn drain(&self) -> Ran {
        self.run(&["run", "--once"])
    }

    /// Starts the daemon and waits until it has looked into the inbox for the first time.
    pub fn daemon(&self) -> Daemon<'_> {
        self.daemon_with(&[])
    }

    /// The same, with more arguments.
    pub fn daemon_with(&self, more: &[&str]) -> Daemon<'_> {
        let daemon = self.spawn(more);
        daemon.until_ready();
        daemon
    }

    /// Starts the daemon and does not wait for anything.
    pub fn spawn(&self, more: &[&str]) -> Daemon<'_> {
        let mut args = vec!["run"];
        args.extend(more);
        self.start(self.command(&args))
    }

    /// The same under a wrapper that becomes the daemon, such as `env`.
    pub fn spawn_under(&self, wrapper: &[&str], more: &[&str]) -> Daemon<'_> {
        let mut args = vec!["run"];
        args.extend(more);
        self.start(under(wrapper, &self.command(&args)))
    }

    /// Runs a command to its end under a wrapper, such as `strace`.
    pub fn run_under<S: AsRef<OsStr>>(&self, wrapper: &[&str], args: &[S]) -> Ran {
        self.end(under(wrapper, &self.command(args)).output().unwrap())
    }

    /// Starts a command of this world as a daemon.
    pub fn start(&self, mut command: Command) -> Daemon<'_> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.root().join("daemon.log"))
            .unwrap();
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Daemon { world: self, child }
    }

    /// What the daemons said so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.root().join("daemon.log")).unwrap_or_default()
    }

    /// What `status` says.
    pub fn state(&self) -> Value {
        let output = self.command(&["status", "--json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// The report, as JSON.
    pub fn report(&self) -> Value {
        self.run(&["report", "--json"]).ok().json()
    }

    /// The names in one of the spool's folders and its sub-folders, sorted, escaped, without those
    /// that begin with a dot.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let mut names = Vec::new();
        collect(&self.spool().join(folder), "", &mut names);
        names.sort();
        names
    }

    /// The reason beside a failed file.
    pub fn reason(&self, name: &str) -> Value {
        let path = self.spool().join("failed").join(format!("{name}.error.json"));
        let text = fs::read(&path).unwrap_or_else(|error| {
            panic!("{}: {error}\n{}", path.display(), self.told());
        });
        serde_json::from_slice(&text).unwrap()
    }

    /// Polls until it comes about; panics with all that is known when it does not.
    pub fn eventually(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            if begun.elapsed() > DEADLINE {
                panic!("not within {DEADLINE:?}: {what}\n{}", self.told());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until nothing lies in the inbox.
    pub fn until_drained(&self) {
        self.eventually("the inbox is empty", || self.names("inbox").is_empty());
    }

    /// All that is known, for a failure.
    pub fn told(&self) -> String {
        let mut told = String::new();
        for folder in ["inbox", "done", "failed", "reports"] {
            let names = self.names(folder);
            let shown = names.iter().take(40).cloned().collect::<Vec<_>>().join("  ");
            writeln!(told, "{folder}/ ({}): {shown}", names.len()).unwrap();
        }
        let tail = |text: &str| -> String {
            let lines: Vec<_> = text.lines().collect();
            lines[lines.len().saturating_sub(60)..].join("\n")
        };
        writeln!(told, "--- commands\n{}", tail(&self.history.lock().unwrap())).unwrap();
        writeln!(told, "--- daemon\n{}", tail(&self.log())).unwrap();
        told
    }
}

/// The same command under a wrapper, such as `env` or `prlimit`.
pub fn under(wrapper: &[&str], command: &Command) -> Command {
    let mut wrapped = Command::new(wrapper[0]);
    wrapped.args(&wrapper[1..]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    wrapped.current_dir(command.get_current_dir().unwrap()).stdin(Stdio::null());
    wrapped
}

fn collect(folder: &Path, prefix: &str, names: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().as_encoded_bytes().escape_ascii().to_string();
        if name.starts_with('.') {
            continue;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), &format!("{prefix}{name}/"), names);
        } else {
            names.push(format!("{prefix}{name}"));
        }
    }
}

impl Ran {
    /// Itself, if it ended well.
    pub fn ok(self) -> Ran {
        self.exits(0)
    }

    /// Itself, if it ended with that code.
    pub fn exits(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    /// What it printed, as one JSON value.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// What it printed, as one JSON value a line.
    pub fn json_lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A daemon that runs; it is killed when it goes out of scope.
pub struct Daemon<'w> {
    world: &'w World,
    child: Child,
}

impl Daemon<'_> {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, by name: "USR1", "TERM", "KILL", "STOP", "CONT", "HUP", "INT".
    pub fn signal(&self, name: &str) {
        let number = match name {
            "USR1" => libc::SIGUSR1,
            "TERM" => libc::SIGTERM,
            "INT" => libc::SIGINT,
            "HUP" => libc::SIGHUP,
            "KILL" => libc::SIGKILL,
            "STOP" => libc::SIGSTOP,
            "CONT" => libc::SIGCONT,
            other => panic!("no signal {other}"),
        };
        let process = rustix::process::Pid::from_raw(self.pid() as i32).unwrap();
        let signal = rustix::process::Signal::from_named_raw(number).unwrap();
        rustix::process::kill_process(process, signal).unwrap();
    }

    /// Waits until it has looked into the inbox for the first time.
    pub fn until_ready(&self) {
        self.world.eventually("the daemon is ready", || {
            let state = self.world.state();
            state["daemon"]["pid"] == self.pid() && state["daemon"]["phase"] != "starting"
        });
    }

    /// A line of /proc/PID/status.
    pub fn proc_status(&self, name: &str) -> Option<String> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.trim().to_owned())
    }

    /// Whether it catches that signal by now.
    pub fn catches(&self, signal: i32) -> bool {
        let caught = self.proc_status("SigCgt").unwrap_or_default();
        u64::from_str_radix(&caught, 16).is_ok_and(|mask| mask & (1 << (signal - 1)) != 0)
    }

    /// Whether it is still there.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until it ends.
    pub fn wait(&mut self) -> ExitStatus {
        let mut ended = None;
        let child = &mut self.child;
        self.world.eventually("the daemon ends", || {
            ended = child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    /// Asks it to stop, and checks that it does so in good order.
    pub fn stop(mut self) {
        self.signal("TERM");
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{status}\n{}", self.world.told());
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.signal("KILL");
        let status = self.wait();
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}");
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        // it may have ended already
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says loudly that something was not tested; where it must be possible, that is a failure.
pub fn skip(what: &str, why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{what} cannot be tested here: {why}");
    // not by a macro, whose output the test runner keeps to itself
    let text = format!("SKIPPED: {what} was NOT tested: {why}\n");
    std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()).unwrap();
}

/// Whether that program can be run here; said loudly where it cannot, and `what` goes untested.
pub fn has_tool(name: &str, what: &str) -> bool {
    let is_there = Command::new(name).arg("--version").output().is_ok();
    if !is_there {
        skip(what, &format!("there is no {name}"));
    }
    is_there
}
