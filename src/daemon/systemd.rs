//! What is said to systemd: ready, status, watchdog, reloading, stopping.
//!
//! Only the words and the sending; when to say what is decided by the daemon. Outside systemd
//! (no `NOTIFY_SOCKET`) every call does nothing, so the daemon never asks where it runs.

use std::borrow::Cow;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sd_notify::NotifyState;

use crate::spool::name::is_unseen;

/// How long one message may wait for a service manager whose queue is full.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest status in bytes. systemd ignores a message of more than 4,096 bytes as a whole.
const STATUS_MAX_BYTES: usize = 1024;

/// Speaks to the service manager that started this process, if one did.
///
/// May be shared between threads. A message that cannot be sent is logged the first time and is
/// never an error: the work goes on whether or not somebody listens.
#[derive(Debug)]
pub struct Notifier {
    channel: Option<Channel>,
    watchdog_interval: Option<Duration>,
    last_status: Mutex<String>,
    failure_logged: AtomicBool,
}

impl Notifier {
    /// The notifier that the environment asks for: `NOTIFY_SOCKET`, `WATCHDOG_USEC` and
    /// `WATCHDOG_PID`, as systemd sets them for a unit of `Type=notify`.
    pub fn from_env() -> Notifier {
        let usec = env::var_os("WATCHDOG_USEC");
        let pid = env::var_os("WATCHDOG_PID");
        let interval = parse_watchdog(usec.as_deref(), pid.as_deref(), process::id());
        Notifier::new(env::var_os("NOTIFY_SOCKET"), interval)
    }

    fn new(socket: Option<OsString>, watchdog_interval: Option<Duration>) -> Notifier {
        let mut notifier = Notifier {
            channel: None,
            watchdog_interval,
            last_status: Mutex::new(String::new()),
            failure_logged: AtomicBool::new(false),
        };
        match socket.filter(|name| !name.is_empty()).map(|name| Channel::open(&name)) {
            Some(Ok(channel)) => notifier.channel = Some(channel),
            Some(Err(error)) => _ = notifier.log_once(&error),
            None => {}
        }
        notifier
    }

    /// The daemon has recovered and takes files; also the end of a [`reloading`](Self::reloading).
    pub fn ready(&self) {
        self.send(&[NotifyState::Ready]);
    }

    /// One line for `systemctl status`. Control characters are escaped, a text of more than 1,024
    /// bytes is cut, and a text that was sent last is not sent again.
    pub fn status(&self, text: &str) {
        let line = one_line(text);
        let mut last = self.last_status.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != line && self.send(&[NotifyState::Status(&line)]) {
            *last = line.into_owned();
        }
    }

    /// How often [`watchdog`](Self::watchdog) is to be called: half of the time after which systemd
    /// restarts the unit. `None` when no watchdog is set, or it is set for another process.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog_interval
    }

    /// The worker moves on. To be called only for progress that was really seen.
    pub fn watchdog(&self) {
        self.send(&[NotifyState::Watchdog]);
    }

    /// The configuration is being read again; [`ready`](Self::ready) must follow, whatever came of
    /// it. Carries the time stamp that `Type=notify-reload` asks for.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => _ = self.send(&[NotifyState::Reloading, now]),
            Err(error) => _ = self.log_once(&error),
        }
    }

    /// No new file is taken; the process ends within its grace time.
    pub fn stopping(&self) {
        self.send(&[NotifyState::Stopping]);
    }

    /// Asks for `more` time, counted from now, before a start or a stop counts as hung. At most
    /// 4,294 seconds a call; a long recovery calls it again while it moves on.
    pub fn extend_timeout(&self, more: Duration) {
        let usec = u32::try_from(more.as_micros()).unwrap_or(u32::MAX);
        self.send(&[NotifyState::ExtendTimeoutUsec(usec)]);
    }

    /// Sends the states as one datagram. True when it went out, or nobody listens.
    fn send(&self, states: &[NotifyState]) -> bool {
        let Some(channel) = &self.channel else { return true };
        let message: String = states.iter().map(|state| format!("{state}\n")).collect();
        match channel.send(&message) {
            Ok(()) => true,
            Err(error) => {
                self.log_once(&error);
                false
            }
        }
    }

    /// True when this failure was the first and was logged.
    fn log_once(&self, error: &io::Error) -> bool {
        let first = !self.failure_logged.swap(true, Ordering::Relaxed);
        if first {
            log::warn!(
                "cannot tell systemd about our state: {error}; the work goes on, but systemd may \
                 take this process for hung (check NOTIFY_SOCKET and that the unit says \
                 NotifyAccess=main)"
            );
        }
        first
    }
}

/// An own socket rather than `sd_notify::notify`: that one reads the environment at each message,
/// knows no abstract address and may block for ever.
#[derive(Debug)]
struct Channel {
    socket: UnixDatagram,
    manager: SocketAddr,
}

impl Channel {
    fn open(name: &OsStr) -> io::Result<Channel> {
        let manager = match name.as_bytes() {
            [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name)?,
            [b'/', ..] => SocketAddr::from_pathname(name)?,
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    format!("NOTIFY_SOCKET={} is neither a path nor @abstract", name.display()),
                ));
            }
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(Channel { socket, manager })
    }

    /// Addressed anew each time instead of connected once: a manager that binds its socket again
    /// is found again.
    fn send(&self, message: &str) -> io::Result<()> {
        let sent = self.socket.send_to_addr(message.as_bytes(), &self.manager)?;
        if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

/// Half of `WATCHDOG_USEC`, unless `WATCHDOG_PID` names another process than `own_pid`.
fn parse_watchdog(usec: Option<&OsStr>, pid: Option<&OsStr>, own_pid: u32) -> Option<Duration> {
    if let Some(pid) = pid
        && pid.to_str()?.parse::<u32>() != Ok(own_pid)
    {
        return None;
    }
    let usec: u64 = usec?.to_str()?.parse().ok()?;
    (usec > 1).then(|| Duration::from_micros(usec / 2))
}

/// A line feed would end the assignment and start another one (`MAINPID=1`, say), and what comes
/// from file names may hold anything.
fn one_line(text: &str) -> Cow<'_, str> {
    if text.len() <= STATUS_MAX_BYTES && !text.contains(is_unseen) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(STATUS_MAX_BYTES);
    for c in text.chars() {
        let before = line.len();
        if is_unseen(c) {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
        if line.len() > STATUS_MAX_BYTES - '…'.len_utf8() {
            line.truncate(before);
            line.push('…');
            break;
        }
    }
    Cow::Owned(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service manager of our own: a bound socket in a folder that goes away with it.
    struct Manager {
        dir: tempfile::TempDir,
        socket: UnixDatagram,
    }

    impl Manager {
        fn new() -> Manager {
            let dir = tempfile::tempdir().unwrap();
            let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            Manager { dir, socket }
        }

        fn notifier(&self) -> Notifier {
            Notifier::new(Some(self.dir.path().join("notify").into()), None)
        }

        fn next(&self) -> String {
            let mut bytes = [0; 8192];
            let len = self.socket.recv(&mut bytes).unwrap();
            String::from_utf8(bytes[..len].to_vec()).unwrap()
        }

        fn has_nothing(&self) -> bool {
            self.socket.set_nonblocking(true).unwrap();
            let answer = self.socket.recv(&mut [0; 16]);
            self.socket.set_nonblocking(false).unwrap();
            answer.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        }
    }

    #[test]
    fn each_state_is_one_datagram_in_systemds_words() {
        let manager = Manager::new();
        let notifier = manager.notifier();
        notifier.ready();
        notifier.status("3 files wait");
        notifier.watchdog();
        notifier.stopping();
        notifier.extend_timeout(Duration::from_millis(1500));
        notifier.extend_timeout(Duration::from_secs(1_000_000));
        let said: Vec<String> = (0..6).map(|_| manager.next()).collect();
        assert_eq!(
            said,
            [
                "READY=1\n",
                "STATUS=3 files wait\n",
                "WATCHDOG=1\n",
                "STOPPING=1\n",
                "EXTEND_TIMEOUT_USEC=1500000\n",
                "EXTEND_TIMEOUT_USEC=4294967295\n",
            ]
        );
        assert!(manager.has_nothing());
    }

    #[test]
    fn reloading_carries_its_monotonic_time() {
        let manager = Manager::new();
        let notifier = manager.notifier();
        let times: Vec<u64> = (0..2)
            .map(|_| {
                notifier.reloading();
                let said = manager.next();
                let usec = said.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
                usec.strip_suffix('\n').unwrap().parse().unwrap()
            })
            .collect();
        assert!(0 < times[0] && times[0] <= times[1], "{times:?}");
    }

    #[test]
    fn a_status_is_sent_only_when_it_changed() {
        let manager = Manager::new();
        let notifier = manager.notifier();
        for text in ["idle", "idle", "busy", "busy", "idle"] {
            notifier.status(text);
        }
        let said: Vec<String> = (0..3).map(|_| manager.next()).collect();
        assert_eq!(said, ["STATUS=idle\n", "STATUS=busy\n", "STATUS=idle\n"]);
        assert!(manager.has_nothing());
    }

    #[test]
    fn a_status_can_neither_smuggle_a_state_nor_outgrow_a_message() {
        let manager = Manager::new();
        let notifier = manager.notifier();
        notifier.status("took a\nMAINPID=1\r\u{1b}[2J\u{85}\u{2028}ä.json");
        assert_eq!(
            manager.next(),
            "STATUS=took a\\nMAINPID=1\\r\\u{1b}[2J\\u{85}\\u{2028}ä.json\n"
        );
        for text in ["ä".repeat(5000), "\u{1}".repeat(5000), "a".repeat(1025)] {
            let line = one_line(&text).into_owned();
            assert!(line.len() <= STATUS_MAX_BYTES, "{} bytes", line.len());
            assert!(line.len() > STATUS_MAX_BYTES - 10, "{} bytes", line.len());
            assert!(line.ends_with('…') && !line.contains('\u{1}'), "{line}");
        }
        let fits = "a".repeat(STATUS_MAX_BYTES);
        assert_eq!(one_line(&fits), fits);
    }

    #[test]
    fn an_abstract_socket_is_reached() {
        let name = format!("windowflow-test-notify-{}", process::id());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Notifier::new(Some(format!("@{name}").into()), None).ready();
        let mut bytes = [0; 64];
        let len = socket.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"READY=1\n");
    }

    #[test]
    fn outside_systemd_nothing_is_said_and_nothing_fails() {
        for socket in [None, Some(OsString::new())] {
            let notifier = Notifier::new(socket, None);
            notifier.ready();
            notifier.status("idle");
            notifier.reloading();
            notifier.stopping();
            assert_eq!(notifier.watchdog_interval(), None);
            assert!(notifier.channel.is_none());
            assert!(!notifier.failure_logged.load(Ordering::Relaxed));
        }
    }

    #[test]
    fn a_failing_send_is_logged_once_and_the_status_is_said_when_somebody_listens_again() {
        let manager = Manager::new();
        let notifier = manager.notifier();
        let path = manager.dir.path().join("notify");
        std::fs::remove_file(&path).unwrap();
        notifier.status("idle");
        assert!(notifier.failure_logged.load(Ordering::Relaxed));
        assert!(!notifier.log_once(&io::ErrorKind::NotFound.into()), "a second failure is quiet");

        let again = UnixDatagram::bind(&path).unwrap();
        again.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        notifier.status("idle");
        let mut bytes = [0; 64];
        let len = again.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"STATUS=idle\n");
    }

    #[test]
    fn a_kind_of_socket_that_is_not_known_is_logged_and_left() {
        let notifier = Notifier::new(Some("vsock:2:1234".into()), None);
        assert!(notifier.failure_logged.load(Ordering::Relaxed));
        notifier.ready();
        assert!(notifier.channel.is_none());
    }

    #[test]
    fn the_watchdog_is_fed_at_half_its_time_by_the_process_it_names() {
        let parse = |usec: Option<&str>, pid: Option<&str>| {
            parse_watchdog(usec.map(OsStr::new), pid.map(OsStr::new), 42)
        };
        let half = Some(Duration::from_secs(30));
        assert_eq!(parse(Some("60000000"), Some("42")), half);
        assert_eq!(parse(Some("60000000"), None), half);
        assert_eq!(parse(Some("60000000"), Some("43")), None);
        assert_eq!(parse(Some("60000000"), Some("")), None);
        assert_eq!(parse(Some("0"), Some("42")), None);
        assert_eq!(parse(Some("-1"), Some("42")), None);
        assert_eq!(parse(Some("60s"), Some("42")), None);
        assert_eq!(parse(None, Some("42")), None);
    }
}
