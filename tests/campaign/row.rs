//! What a row of the table is: a fault, a promise, and what is tried.

use crate::dice::Dice;

/// A row of the table.
pub struct Row {
    /// Its number, which never changes.
    pub number: u32,
    /// What goes wrong.
    pub fault: &'static str,
    /// What has to hold all the same.
    pub promise: &'static str,
    /// How many attempts are made at each scale.
    pub figures: Figures,
    /// How many attempts may run at once.
    pub lanes: usize,
    /// Makes what every attempt needs, once.
    pub begin: fn(&Scale) -> Result<Box<dyn Trial>, Unable>,
}

/// How many attempts: fewer where the trial itself knows fewer, or the time is up. An attempt may
/// hold many faults.
pub struct Figures {
    /// At the gate: the whole table has to end within minutes.
    pub smoke: u64,
    /// Before a change of what the promises rest on is called done: within hours.
    pub full: u64,
    /// In a soak, which lasts a night.
    pub soak: u64,
}

/// How large it may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// At the gate, within minutes.
    Smoke,
    /// Whole, within hours.
    Full,
    /// For a night.
    Soak,
}

/// Why a row cannot be tried here.
pub struct Unable(pub String);

/// What is tried again and again. A panic in it counts as a violation, and so does an error.
pub trait Trial: Sync {
    /// How many different attempts there are; none: as many as one likes.
    fn attempts(&self) -> Option<u64> {
        None
    }

    /// What the table has to say besides its figures, such as what was left out; none: nothing.
    fn note(&self) -> Option<String> {
        None
    }

    /// What attempt `n` tries, for the words of a failure; empty where there is nothing to say.
    fn what(&self, n: u64) -> String {
        let _ = n;
        String::new()
    }

    /// One attempt: `n` counts up from 0, the dice are its own.
    ///
    /// # Errors
    /// What was found that must not be.
    fn attempt(&self, n: u64, dice: Dice) -> Result<Tried, String>;
}

/// What an attempt came to, when nothing was violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// The fault struck.
    Struck,
    /// It was too late or found nothing to strike: it proves little.
    Missed,
    /// The attempt holds many faults, and this is how often they struck.
    Times(u64),
}

impl Tried {
    /// How many faults were tried, and how many struck.
    pub fn figures(self) -> (u64, u64) {
        match self {
            Tried::Struck => (1, 1),
            Tried::Missed => (1, 0),
            Tried::Times(times) => (times, times),
        }
    }
}
