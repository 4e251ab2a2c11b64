//! What is in the way: shown as long as it is, and logged once, not at every try.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::model::clock::Clock;

/// A fault that is in the way, until it clears.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownFault {
    pub text: String,
    pub since_ms: i64,
    pub tries: u64,
}

/// How often it is logged that a fault lasts.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// How often within that time the beginning of a fault is logged that comes and goes.
const SAID_AT_MOST: u32 = 5;

/// What a fault is in the way of; the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FaultPart {
    /// The worker itself: it does not get on.
    Progress,
    /// All files.
    Spool,
    /// Some files; others go on.
    Files,
    /// The copy of a file that changed after its move.
    LateWrites,
    /// The time of day: it is behind what the store knows.
    Clock,
    /// The next start: the configuration was read again, and is wrong.
    Config,
    /// The store's log, which is not emptied.
    Log,
    /// Report dumps.
    Reports,
    /// The removal of what is old.
    Retention,
    /// What is published of the state.
    State,
}

impl FaultPart {
    /// Before the text of the fault, where it does not say so itself.
    fn prefix(self) -> &'static str {
        match self {
            FaultPart::Progress
            | FaultPart::Spool
            | FaultPart::Files
            | FaultPart::Clock
            | FaultPart::Log => "",
            FaultPart::LateWrites => "a file that changed after its move is not taken in again: ",
            FaultPart::Config => "configuration: ",
            FaultPart::Reports => "no report: ",
            FaultPart::Retention => "retention: ",
            FaultPart::State => "the state cannot be published: ",
        }
    }

    fn promise(self) -> &'static str {
        match self {
            FaultPart::Progress => "if this lasts, it has to be looked at",
            FaultPart::Spool => "trying again until it passes",
            FaultPart::Files | FaultPart::LateWrites => "trying again later",
            FaultPart::Clock => "this ends when they agree",
            FaultPart::Config => "the next good reload ends this",
            FaultPart::Reports => "trying again until it passes",
            FaultPart::Log => "it is emptied after that",
            FaultPart::Retention | FaultPart::State => "the next turn tries again",
        }
    }
}

/// A kind of fault that was met since the start.
#[derive(Debug)]
struct Known {
    part: FaultPart,
    kind: String,
    /// What is in the way now.
    now: Option<ShownFault>,
    /// Its beginning was logged: so its end is, too.
    is_said: bool,
    /// When that, or that it lasts, was first logged in the last while, and how often since.
    said_at: Instant,
    said: u32,
}

/// All that was met. There are few kinds, so this stays small.
#[derive(Debug, Default)]
pub(super) struct Faults {
    known: Vec<Known>,
}

/// What is to be logged.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// It began.
    Begun(String),
    /// It lasts.
    Still(String),
    /// It is over.
    Over(String),
}

impl Line {
    /// Logs it.
    pub(super) fn log(self) {
        match self {
            Line::Begun(text) => log::error!("{text}"),
            Line::Still(text) => log::warn!("{text}"),
            Line::Over(text) => log::info!("{text}"),
        }
    }
}

impl Faults {
    /// Something was tried, and that is in its way. Of each part one fault is shown at a time: the
    /// last one.
    pub(super) fn meet(
        &mut self,
        part: FaultPart,
        kind: &str,
        text: &str,
        now: Instant,
    ) -> Option<Line> {
        let text = format!("{}{text}", part.prefix());
        let mut since_ms = None;
        for other in self.known.iter_mut().filter(|known| known.part == part && known.kind != kind)
        {
            // this one took its place
            if let Some(fault) = other.now.take() {
                since_ms = Some(fault.since_ms);
            }
        }
        let begun = |tries| ShownFault {
            text: text.clone(),
            since_ms: since_ms.unwrap_or_else(|| Clock::System.now_ms()),
            tries,
        };
        let line = || {
            let text = format!("{text}; {}", part.promise());
            // it may only be slow
            Some(if part == FaultPart::Progress { Line::Still(text) } else { Line::Begun(text) })
        };
        let found = self.known.iter_mut().find(|known| known.part == part && known.kind == kind);
        let Some(known) = found else {
            let (now, said_at) = (Some(begun(1)), now);
            let kind = kind.to_owned();
            self.known.push(Known { part, kind, now, is_said: true, said_at, said: 1 });
            return line();
        };
        let is_due = now.duration_since(known.said_at) >= SAID_EVERY;
        if is_due {
            (known.said_at, known.said) = (now, 0);
        }
        match &mut known.now {
            Some(fault) => {
                fault.tries += 1;
                fault.text.clone_from(&text);
                let (tries, minutes) = (fault.tries, seconds_since(fault.since_ms) / 60);
                is_due.then(|| {
                    known.is_said = true;
                    Line::Still(format!("still, for {minutes} min, {tries} tries: {text}"))
                })
            }
            None => {
                known.now = Some(begun(1));
                known.is_said = known.said < SAID_AT_MOST;
                known.said += 1;
                if known.is_said { line() } else { None }
            }
        }
    }

    /// The same for what is logged elsewhere each time that it is met: it is only shown.
    pub(super) fn show(&mut self, part: FaultPart, kind: &str, text: &str, now: Instant) {
        self.meet(part, kind, text, now);
        let shown = self.known.iter_mut().filter(|known| known.part == part);
        shown.for_each(|known| known.is_said = false);
    }

    /// Nothing is in the way of that part (any more).
    pub(super) fn pass(&mut self, part: FaultPart) -> Option<Line> {
        let known =
            self.known.iter_mut().find(|known| known.part == part && known.now.is_some())?;
        let fault = known.now.take()?;
        let seconds = seconds_since(fault.since_ms);
        known.is_said.then(|| {
            Line::Over(format!("going on after {seconds} s; what was in the way: {}", fault.text))
        })
    }

    /// The gravest, and the texts of the others.
    pub(super) fn shown(&self) -> (Option<ShownFault>, Vec<String>) {
        let mut all: Vec<&Known> = self.known.iter().filter(|known| known.now.is_some()).collect();
        all.sort_by_key(|known| known.part);
        let mut faults = all.into_iter().filter_map(|known| known.now.clone());
        (faults.next(), faults.map(|fault| fault.text).collect())
    }

    /// Whether something is in the way of that part.
    pub(super) fn has(&self, part: FaultPart) -> bool {
        self.known.iter().any(|known| known.part == part && known.now.is_some())
    }
}

fn seconds_since(since_ms: i64) -> i64 {
    (Clock::System.now_ms() - since_ms).max(0) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(faults: &mut Faults, kind: &str, text: &str, now: Instant) -> Option<Line> {
        faults.meet(FaultPart::Spool, kind, text, now)
    }

    #[test]
    fn a_fault_is_said_when_it_begins_then_each_minute_and_when_it_is_over() {
        let (mut faults, start) = (Faults::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let begun = met(&mut faults, "full", "disk full: 7 bytes free", start);
        let text = "disk full: 7 bytes free; trying again until it passes";
        assert_eq!(begun, Some(Line::Begun(text.to_owned())));
        for second in 1..60 {
            assert_eq!(met(&mut faults, "full", "disk full: 0 bytes free", at(second)), None);
        }
        let still = met(&mut faults, "full", "disk full: 1 byte free", at(60));
        assert!(
            matches!(&still, Some(Line::Still(text)) if text.contains("61 tries")),
            "{still:?}"
        );
        assert_eq!(met(&mut faults, "full", "disk full: 1 byte free", at(61)), None);
        let (shown, others) = faults.shown();
        assert_eq!(shown.unwrap().text, "disk full: 1 byte free");
        assert!(others.is_empty());
        let over = faults.pass(FaultPart::Spool);
        assert!(matches!(&over, Some(Line::Over(text)) if text.contains("1 byte")), "{over:?}");
        assert_eq!(faults.pass(FaultPart::Spool), None);
        assert_eq!(faults.shown().0, None);
    }

    #[test]
    fn what_comes_and_goes_all_the_time_makes_ten_lines_a_minute() {
        let (mut faults, start) = (Faults::default(), Instant::now());
        let mut lines = 0;
        for n in 0..1200 {
            let now = start + Duration::from_millis(100 * n);
            let text = format!("cannot read inbox/{n}.json");
            lines += usize::from(met(&mut faults, "EIO", &text, now).is_some());
            assert_eq!(faults.shown().0.unwrap().text, text, "it is shown all the same");
            lines += usize::from(faults.pass(FaultPart::Spool).is_some());
        }
        assert_eq!(lines, 20, "in two minutes");
    }

    #[test]
    fn kinds_that_take_turns_make_few_lines_and_one_of_them_is_shown() {
        let (mut faults, start) = (Faults::default(), Instant::now());
        let mut lines = 0;
        for n in 0..100 {
            let kind = ["full", "EIO"][n % 2];
            lines += usize::from(met(&mut faults, kind, kind, start).is_some());
            let (shown, others) = faults.shown();
            assert_eq!((shown.unwrap().text.as_str(), others.len()), (kind, 0));
        }
        assert_eq!(lines, 10);
    }

    #[test]
    fn the_gravest_is_shown_and_the_others_beside_it() {
        let (mut faults, now) = (Faults::default(), Instant::now());
        faults.meet(FaultPart::Reports, "report", "no room", now);
        faults.meet(FaultPart::Spool, "busy", "busy", now);
        faults.meet(FaultPart::Files, "EIO", "a", now);
        let (shown, others) = faults.shown();
        assert_eq!(shown.unwrap().text, "busy");
        assert_eq!(others, ["a", "no report: no room"]);
        assert!(faults.has(FaultPart::Files) && !faults.has(FaultPart::Progress));
        faults.pass(FaultPart::Spool);
        assert_eq!(faults.shown().0.unwrap().text, "a");
    }
}
