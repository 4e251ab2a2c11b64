//! Row 26: a hostile producer beside an honest one, each a user of its own, as the daemon is.
//!
//! An attempt is a world, one attack that goes on for some seconds, and an honest producer that
//! drops a file every 100 ms. Each honest file has to be in done/ within 10 s, a report that is asked
//! for in the middle has to be written, and the memory of the daemon is bounded. How long the honest
//! files took is told: it is a figure of the machine, too, and no promise.
//!
//! What is not tried: files that come into the same folder faster than the daemon takes them. Files
//! are taken by name, so such a flood delays those that sort behind it.
//!
//! The guards were taken out under the tests of the suite, `daemon::neighbours`, which then fail.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::row::{Figures, Row, Scale, Trial, Tried, Unable};
use crate::rows::quick_config;
use crate::world::{Daemon, World};

/// It holds up its own files only.
pub const ROW: Row = Row {
    number: 26,
    fault: "a hostile producer beside an honest one",
    promise: "each honest file in done/ within 10 s, memory bounded",
    figures: Figures { smoke: ATTACKS.len() as u64, full: ATTACKS.len() as u64, soak: 90 },
    lanes: 1,
    begin,
};

/// The users: the daemon's, the hostile one's, the honest one's, and their group.
const DAEMON: u32 = 65_534;
const FOE: u32 = 64_001;
const HONEST: u32 = 64_002;
const GROUP: u32 = 64_100;

/// How often an honest file is dropped, and how soon it has to be in.
const EVERY: Duration = Duration::from_millis(100);
const AT_MOST: Duration = Duration::from_secs(10);

/// The bound of the memory, in KiB.
const MOST_MEMORY_KIB: u64 = 400 << 10;

/// What the hostile producer does, over and over, in a shell in the inbox: `$n` counts up, `ev` is
/// one event. It begins before the daemon does.
const ATTACKS: &[(&str, &str)] = &[
    (
        "sticky folders",
        "mkdir 0e$n; for i in $(seq 60); do ev e$n-$i >0e$n/$i; done; ev f >0e$n/.f; \
         echo x >0e$n/bad; ln -s x 0e$n/l; chmod 1777 0e$n; sleep 0.1",
    ),
    (
        "folders that are closed later",
        "mkdir 0c$n; chmod 777 0c$n; for i in $(seq 20); do ev c$n-$i >0c$n/.t; mv 0c$n/.t 0c$n/$i; \
         done; sleep 0.05; chmod $(printf '0333\\n0000\\n0555\\n1333\\n0111\\n' | sed -n \
         $((n % 5 + 1))p) 0c$n",
    ),
    (
        "leases",
        "perl -e 'use Fcntl; open F, \">\", \".l\" or die; print F \"x\"; close F; \
         open F, \"<\", \".l\" or die; $SIG{IO} = sub {}; fcntl(F, 1024, 1) or die; \
         rename \".l\", \"0l$ARGV[0]\"; select undef, undef, undef, 0.5' $n",
    ),
    ("sparse files", "truncate -s 4T .s; mv .s 0s$n; sleep 0.05"),
    (
        "many sources in one file",
        "seq 1 5000 | sed 's/.*/{\"id\":\"m'$n'-&\",\"key\":\"k\",\"timestamp_ms\":500,\"value\":1,\
         \"source\":\"s'$((n % 2))'-&\"}/' >.m; mv .m 0m$n; sleep 0.5",
    ),
    (
        "names of the probe",
        "mkdir .windowflow-probe .windowflow-probe.$n .windowflow-trial 2>/dev/null; touch \
         .windowflow-probe.x$n; sleep 0.02",
    ),
    ("small files that are refused", "for i in $(seq 20); do printf x >0f$n-$i; done; sleep 0.2"),
    ("ignored names", "for i in $(seq 200); do : >.g$n-$i; done"),
    ("links", "for i in $(seq 20); do ln -s nowhere 0k$n-$i; done; sleep 0.05"),
    (
        "a file that is touched all the time",
        "test -e 0t || { seq 1 50000 | sed 's/.*/{\"id\":\"t&\",\"key\":\"k\",\"timestamp_ms\":500,\
         \"value\":1}/' >.t; mv .t 0t; }; touch 0t; sleep 0.01",
    ),
    ("many folders", "for i in $(seq 20); do mkdir 0d$n-$i; done; sleep 0.05"),
    (
        "files that nobody may read, pipes, deep folders",
        "ev u$n >.u; chmod 0 .u; mv .u 0u$n; mkfifo 0p$n; mkdir -p 0v$n/deep; sleep 0.05",
    ),
];

struct HostileProducer {
    lasts: Duration,
    has_lease: bool,
    took: Mutex<Vec<Duration>>,
}

fn begin(scale: &Scale) -> Result<Box<dyn Trial>, Unable> {
    if !rustix::process::geteuid().is_root() {
        return Err(Unable("only root can act as several users".to_owned()));
    }
    let seconds = match scale {
        Scale::Smoke => 3,
        Scale::Full => 15,
        Scale::Soak => 60,
    };
    let tried = Command::new("setpriv").args(&as_daemon(true)[1..]).arg("true").output();
    let tried = tried.map_err(|error| Unable(format!("no setpriv (util-linux): {error}")))?;
    let (lasts, has_lease) = (Duration::from_secs(seconds), tried.status.success());
    Ok(Box::new(HostileProducer { lasts, has_lease, took: Mutex::default() }))
}

/// What runs the daemon as its own user, in the group of the producers.
fn as_daemon(has_lease: bool) -> Vec<String> {
    let ids = ["setpriv", "--reuid", "65534", "--regid", "65534", "--groups", "64100"];
    let lease = ["--inh-caps", "-all,+lease", "--ambient-caps", "-all,+lease"];
    let lease = lease.into_iter().filter(|_| has_lease);
    ids.into_iter().chain(lease).map(str::to_owned).collect()
}

impl Trial for HostileProducer {
    fn attempts(&self) -> Option<u64> {
        None
    }

    fn note(&self) -> Option<String> {
        let mut took = self.took.lock().unwrap().clone();
        took.sort_unstable();
        let at = |part: usize| took.get((took.len() * part / 1000).min(took.len().max(1) - 1));
        let ms = |part: usize| at(part).map_or(0.0, |took| took.as_secs_f64() * 1000.0);
        let lease = if self.has_lease { "" } else { "; WITHOUT CAP_LEASE" };
        Some(format!(
            "{} honest files: median {:.1} ms, p99 {:.1} ms, longest {:.1} ms; {} s each{lease}",
            took.len(),
            ms(500),
            ms(990),
            ms(1000),
            self.lasts.as_secs()
        ))
    }

    fn what(&self, n: u64) -> String {
        attack(n).0.to_owned()
    }

    fn attempt(&self, n: u64, _: Dice) -> Result<Tried, String> {
        let (name, script) = attack(n);
        let world = World::unprivileged();
        world.init(1000, 3_600_000, &[]);
        chown(world.inbox(), Some(DAEMON), Some(GROUP)).unwrap();
        fs::set_permissions(world.inbox(), fs::Permissions::from_mode(0o3730)).unwrap();
        let config = quick_config(&world, &[("inbox.settle_ms", "50")]);
        let foe = Foe::begin(&world, script);
        // the start, too, is not held up
        let wrapper = as_daemon(self.has_lease);
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        let mut daemon = world.spawn_under(&wrapper, &["--config", &config]);
        daemon.until_ready();
        let outcome = self.honest(&world, &mut daemon);
        drop(foe);
        let outcome = outcome.map_err(|text| format!("{name}: {text}\n{}", world.told()));
        self.took.lock().unwrap().extend(outcome?);
        daemon.signal("TERM");
        match daemon.wait().code() {
            Some(0) => Ok(Tried::Struck),
            code => Err(format!("{name}: after TERM it ended with {code:?}: {}", world.told())),
        }
    }
}

fn attack(n: u64) -> (&'static str, &'static str) {
    ATTACKS[(n % ATTACKS.len() as u64) as usize]
}

impl HostileProducer {
    /// Drops honest files while the attack lasts; how long each took.
    fn honest(&self, world: &World, daemon: &mut Daemon<'_>) -> Result<Vec<Duration>, String> {
        let begun = Instant::now();
        let (mut took, mut left) = (Vec::new(), VecDeque::new());
        let mut dropped = 0_u32;
        let mut has_asked = false;
        while begun.elapsed() < self.lasts || !left.is_empty() {
            if begun.elapsed() < self.lasts && begun.elapsed() >= EVERY * dropped {
                left.push_back((drop_one(world, dropped), Instant::now()));
                dropped += 1;
            }
            left.retain(|(name, at): &(String, Instant)| {
                let is_in = world.spool().join("done").join(name).exists();
                if is_in {
                    took.push(at.elapsed());
                }
                !is_in
            });
            if let Some((name, at)) = left.front()
                && at.elapsed() > AT_MOST
            {
                return Err(format!("{name} is not in done/ after {AT_MOST:?}"));
            }
            if !has_asked && begun.elapsed() > self.lasts / 2 {
                has_asked = true;
                daemon.signal("USR1");
            }
            if !daemon.runs() {
                return Err("it ended by itself".to_owned());
            }
            let memory = daemon.proc_status("VmRSS").unwrap_or_default();
            let memory_kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
            if memory_kib > MOST_MEMORY_KIB {
                return Err(format!("it uses {memory_kib} KiB"));
            }
            // a pause, so that looking takes nothing from who is looked at
            std::thread::sleep(Duration::from_millis(1));
        }
        let asked = Instant::now();
        while !world.spool().join("reports/latest.json").exists() {
            if asked.elapsed() > AT_MOST {
                return Err("no report was written".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(took)
    }
}

/// Drops one file of the honest producer, by a rename; its name.
fn drop_one(world: &World, n: u32) -> String {
    let name = format!("honest-{n:06}.json");
    let staged = world.root().join(".honest");
    let text =
        format!("{{\"id\":\"{name}\",\"key\":\"h\",\"timestamp_ms\":{},\"value\":1}}\n", n % 500);
    fs::write(&staged, text).unwrap();
    fs::set_permissions(&staged, fs::Permissions::from_mode(0o640)).unwrap();
    chown(&staged, Some(HONEST), Some(GROUP)).unwrap();
    fs::rename(&staged, world.inbox().join(&name)).unwrap();
    name
}

/// The hostile producer, until it goes out of scope.
struct Foe(Child);

impl Foe {
    fn begin(world: &World, script: &str) -> Foe {
        let script = format!(
            "umask 022; ev() {{ echo '{{\"id\":\"'$1'\",\"key\":\"k\",\"timestamp_ms\":500,\
             \"value\":1}}'; }}; n=0; while :; do n=$((n + 1)); {script}; done"
        );
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).current_dir(world.inbox()).uid(FOE).gid(GROUP);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // a group of its own: what it has started ends with it
        Foe(command.process_group(0).spawn().unwrap())
    }
}

impl Drop for Foe {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
}
