//! How many events would have been late under other lateness settings. Pure: it is shown events in
//! the order of their arrival, and counts; it reads nothing.
//!
//! Each source is looked at by itself, as if it alone moved the watermark. With several, the
//! watermark follows the slowest, and fewer are late than is said here.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::engine::settings::{LateRule, Settings};
use crate::engine::window;

/// The shares that a setting is proposed for, in events of a thousand that would be late.
const SHARES_PER_MILLE: [u64; 4] = [0, 1, 10, 50];

/// Delays are told apart exactly below this, and above it to one part in so many.
const STEPS: u64 = 64;

/// What is counted, source by source. Memory grows with the number of sources only.
#[derive(Debug)]
pub struct Lateness {
    window_ms: i64,
    rule: LateRule,
    candidates_ms: Vec<i64>,
    sources: BTreeMap<String, Tally>,
}

/// What one source would have seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceLateness {
    /// Its name.
    pub source: String,
    /// How many events of it were shown.
    pub events: u64,
    /// How many came behind a greater timestamp of it.
    pub out_of_order: u64,
    /// The least setting under which none would have been late, in milliseconds.
    pub none_late_ms: i64,
    /// What each setting would have done, by setting.
    pub settings: Vec<Setting>,
}

/// What one setting would have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The setting, in milliseconds.
    pub lateness_ms: i64,
    /// How many events would have been late.
    pub late: u64,
    /// It is the store's own.
    pub current: bool,
    /// It is the least that leaves at most so many events of a thousand late, to about a 64th of
    /// its size.
    pub for_per_mille: Option<u64>,
}

#[derive(Debug, Default)]
struct Tally {
    events: u64,
    out_of_order: u64,
    max_ms: Option<i64>,
    worst_ms: Option<i64>,
    // by place among the candidates: how many events are late under that one, and not the next
    at_candidate: Vec<u64>,
    // by step: how many events are late under a setting of that step, and not the next
    at_step: BTreeMap<u32, u64>,
}

impl Lateness {
    /// For a store with those settings.
    pub fn new(settings: &Settings) -> Lateness {
        let mut candidates_ms = vec![0, settings.lateness_ms()];
        let tens = std::iter::successors(Some(1_i64), |ten| ten.checked_mul(10));
        // up to the span of all timestamps there can be
        for ten in tens.take_while(|ten| *ten <= crate::model::event::MAX_TIMESTAMP_MS) {
            candidates_ms.extend([ten, 2 * ten, 5 * ten]);
        }
        candidates_ms.sort_unstable();
        candidates_ms.dedup();
        Lateness {
            window_ms: settings.window_ms(),
            rule: settings.late_rule(),
            candidates_ms,
            sources: BTreeMap::new(),
        }
    }

    /// The next event that came, of that source.
    pub fn event(&mut self, source: &str, timestamp_ms: i64) {
        if !self.sources.contains_key(source) {
            let at_candidate = vec![0; self.candidates_ms.len()];
            self.sources.insert(source.to_owned(), Tally { at_candidate, ..Tally::default() });
        }
        let Some(tally) = self.sources.get_mut(source) else { return };
        tally.events += 1;
        let before_ms = tally.max_ms.replace(tally.max_ms.unwrap_or(0).max(timestamp_ms));
        let Some(before_ms) = before_ms else { return };
        tally.out_of_order += u64::from(timestamp_ms < before_ms);
        // the greatest setting under which it is late; the watermark would be `before_ms` less that
        let late_up_to_ms = match self.rule {
            LateRule::Window => {
                let start_ms = window::start_ms(timestamp_ms, self.window_ms);
                before_ms - window::end_ms(start_ms, self.window_ms)
            }
            LateRule::Event => before_ms - timestamp_ms - 1,
        };
        let Ok(delay_ms) = u64::try_from(late_up_to_ms) else { return };
        tally.worst_ms = tally.worst_ms.max(Some(late_up_to_ms));
        *tally.at_step.entry(step(delay_ms)).or_default() += 1;
        // 0 is a candidate, so at least one is not above it
        let place = self.candidates_ms.partition_point(|ms| *ms <= late_up_to_ms) - 1;
        tally.at_candidate[place] += 1;
    }

    /// What was counted, by source.
    pub fn sources(&self, current_ms: i64) -> Vec<SourceLateness> {
        let one = |(source, tally): (&String, &Tally)| {
            let none_late_ms = tally.worst_ms.map_or(0, |worst_ms| worst_ms + 1);
            SourceLateness {
                source: source.clone(),
                events: tally.events,
                out_of_order: tally.out_of_order,
                none_late_ms,
                settings: self.settings(tally, none_late_ms, current_ms),
            }
        };
        self.sources.iter().map(one).collect()
    }

    fn settings(&self, tally: &Tally, none_late_ms: i64, current_ms: i64) -> Vec<Setting> {
        let mut by_setting: BTreeMap<i64, Setting> = BTreeMap::new();
        let mut late = 0;
        for (place, lateness_ms) in self.candidates_ms.iter().enumerate().rev() {
            late += tally.at_candidate[place];
            let current = *lateness_ms == current_ms;
            // the ladder ends where nothing is late any more
            if current || *lateness_ms < none_late_ms || *lateness_ms == 0 {
                let setting =
                    Setting { lateness_ms: *lateness_ms, late, current, for_per_mille: None };
                by_setting.insert(*lateness_ms, setting);
            }
        }
        for per_mille in SHARES_PER_MILLE {
            let (lateness_ms, late) = tally.least_for(per_mille, none_late_ms);
            let setting = by_setting.entry(lateness_ms).or_insert(Setting {
                lateness_ms,
                late,
                current: false,
                for_per_mille: None,
            });
            setting.for_per_mille.get_or_insert(per_mille);
        }
        by_setting.into_values().collect()
    }
}

impl Tally {
    /// The least setting on the edge of a step that leaves at most that share late, and how many
    /// that are.
    fn least_for(&self, per_mille: u64, none_late_ms: i64) -> (i64, u64) {
        let allowed = (u128::from(self.events) * u128::from(per_mille) / 1000) as u64;
        let mut late = 0;
        for (step, count) in self.at_step.iter().rev() {
            if late + count > allowed {
                let edge_ms = i64::try_from(first_of(step + 1)).unwrap_or(i64::MAX);
                return (edge_ms.min(none_late_ms), late);
            }
            late += count;
        }
        (0, late)
    }
}

/// The step that a delay falls into: one for each below [`STEPS`], then [`STEPS`] for each
/// doubling.
fn step(delay_ms: u64) -> u32 {
    if delay_ms < STEPS {
        return delay_ms as u32;
    }
    let shift = delay_ms.ilog2() - STEPS.ilog2();
    // the leading bits, their first one counted as a doubling
    (shift << STEPS.ilog2()) + (delay_ms >> shift) as u32
}

/// The least delay of a step.
fn first_of(step: u32) -> u64 {
    let steps = STEPS as u32;
    if step < steps {
        return u64::from(step);
    }
    let shift = step / steps - 1;
    u64::from(step % steps + steps) << shift
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::settings::LatePolicy;

    /// How many would be late, by the rule as it is written.
    fn late_by_the_rule(settings: &Settings, timestamps_ms: &[i64], lateness_ms: i64) -> u64 {
        let mut watermark_ms = 0;
        let mut late = 0;
        for timestamp_ms in timestamps_ms {
            let start_ms = window::start_ms(*timestamp_ms, settings.window_ms());
            late += u64::from(match settings.late_rule() {
                LateRule::Window => window::is_final(start_ms, settings.window_ms(), watermark_ms),
                LateRule::Event => *timestamp_ms < watermark_ms,
            });
            watermark_ms = watermark_ms.max(timestamp_ms - lateness_ms);
        }
        late
    }

    proptest! {
        #[test]
        fn every_count_is_that_of_the_rule(
            timestamps_ms in prop::collection::vec(0..20_000_i64, 0..60),
            window_ms in 1..500_i64,
            current_ms in 0..3000_i64,
            by_event in any::<bool>(),
        ) {
            let rule = if by_event { LateRule::Event } else { LateRule::Window };
            let settings = Settings::new(window_ms, current_ms).unwrap();
            let settings = settings.with_late(rule, LatePolicy::Aside);
            let mut lateness = Lateness::new(&settings);
            timestamps_ms.iter().for_each(|ms| lateness.event("s", *ms));
            for source in lateness.sources(current_ms) {
                for setting in &source.settings {
                    let expected =
                        late_by_the_rule(&settings, &timestamps_ms, setting.lateness_ms);
                    prop_assert_eq!(setting.late, expected, "{:?}", setting);
                    if let Some(per_mille) = setting.for_per_mille {
                        prop_assert!(setting.late * 1000 <= source.events * per_mille);
                    }
                }
                let none_late_ms = source.none_late_ms;
                prop_assert_eq!(late_by_the_rule(&settings, &timestamps_ms, none_late_ms), 0);
                if none_late_ms > 0 {
                    let less_ms = none_late_ms - 1;
                    prop_assert!(late_by_the_rule(&settings, &timestamps_ms, less_ms) > 0);
                }
                prop_assert!(source.settings.iter().any(|setting| setting.current));
            }
        }

        #[test]
        fn steps_follow_on_one_another(delay_ms in any::<u64>().prop_map(|ms| ms >> 1)) {
            let step = step(delay_ms);
            prop_assert!(first_of(step) <= delay_ms);
            prop_assert!(delay_ms < first_of(step + 1));
            prop_assert!(first_of(step + 1) - first_of(step) <= delay_ms / STEPS + 1);
        }
    }

    #[test]
    fn sources_are_told_apart_and_all_shares_are_answered() {
        let settings = Settings::new(1, 10).unwrap();
        let mut lateness = Lateness::new(&settings);
        // of b one in a hundred comes late, by 6 s
        for n in 0..1000 {
            lateness.event("a", 5000 + n);
            lateness.event("b", if n % 100 == 99 { 4000 } else { 10_000 });
        }
        let [a, b] = &lateness.sources(10)[..] else { panic!("two sources") };
        assert_eq!(
            (a.source.as_str(), a.events, a.out_of_order, a.none_late_ms),
            ("a", 1000, 0, 0)
        );
        assert_eq!((b.source.as_str(), b.out_of_order, b.none_late_ms), ("b", 10, 6000));
        let least = |per_mille| {
            let found = b.settings.iter().find(|setting| setting.for_per_mille == Some(per_mille));
            found.map(|setting| (setting.lateness_ms, setting.late))
        };
        assert_eq!(least(0), Some((6000, 0)));
        assert_eq!(least(10), Some((0, 10)));
    }
}
