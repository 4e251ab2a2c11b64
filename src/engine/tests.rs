//! The engine's table of outcomes, row by row.

use std::collections::BTreeMap;

use super::settings::{LateRule, Settings};
use super::*;
use crate::model::event::Event;
use crate::model::event::Place;

const FUTURE_MS: i64 = 1_000_000;

fn settings() -> Settings {
    Settings::new(1000, 500).unwrap().with_max_future_ms(Some(FUTURE_MS)).unwrap()
}

fn chunk(events: &[(&str, &str, i64, i64)]) -> Chunk {
    let mut chunk = Chunk::default();
    for (id, key, timestamp_ms, value) in events {
        chunk.push(Event {
            id,
            key,
            timestamp_ms: *timestamp_ms,
            value: *value,
            source: None,
            producer_version: None,
            place: Place::default(),
        });
    }
    chunk
}

/// Judges the events of one batch as one chunk, with nothing known before.
fn judge<'c>(settings: Settings, chunk: &'c Chunk, facts: &[Fact]) -> Judged<'c> {
    let mut judge = Judge::new(settings, 7, "default");
    let asked = judge.sources(chunk).len();
    judge.learn(&Progress { sources: vec![Known::default(); asked], ..Progress::default() });
    judge.judge(chunk, facts)
}

#[test]
fn the_worked_example() {
    let chunk = chunk(&[
        ("request-1", "checkout", 100, 12),
        ("request-2", "checkout", 700, 20),
        ("request-3", "checkout", 400, 8),
        ("request-4", "checkout", 1600, 5),
        ("request-5", "checkout", 900, 99),
        ("request-2", "checkout", 700, 20),
    ]);
    let judged = judge(settings(), &chunk, &[Fact::New; 6]);
    let counts = Counts { accepted: 4, late: 1, duplicate: 1, ..Counts::default() };
    assert_eq!(judged.changes.counts, counts);
    assert_eq!(judged.changes.watermark_ms, 1100);
    let (first, delta) = judged.changes.windows[0];
    assert_eq!(first, WindowId { start_ms: 0, key: "checkout" });
    assert_eq!((delta.count, delta.sum, delta.min, delta.max), (3, 40, 8, 20));
    assert_eq!(judged.changes.late, [SetAside { row: 4, watermark_ms: 1100 }]);
    let moved = Move { from_ms: 200, to_ms: 1100, event_index: Some(3) };
    assert_eq!(judged.changes.moves, [moved]);
    assert_eq!(judged.changes.recorded, [0, 1, 2, 3, 4]);
}

#[test]
fn an_event_too_far_ahead_is_held_and_moves_nothing() {
    let bound = FUTURE_MS;
    let chunk = chunk(&[("a", "k", bound + 1, 1), ("b", "k", 10, 1), ("a", "k", bound + 1, 1)]);
    let judged = judge(settings(), &chunk, &[Fact::New; 3]);
    assert_eq!(judged.outcomes, [Outcome::Future, Outcome::Accepted, Outcome::Duplicate]);
    assert_eq!(judged.changes.watermark_ms, 0);
    assert_eq!(judged.changes.held.len(), 1);
    let exactly = chunk_of_one("a", bound);
    assert_eq!(judge(settings(), &exactly, &[Fact::New]).outcomes, [Outcome::Accepted]);
}

fn chunk_of_one(id: &str, timestamp_ms: i64) -> Chunk {
    chunk(&[(id, "k", timestamp_ms, 1)])
}

#[test]
fn a_contradiction_stops_the_chunk_and_names_the_first() {
    let chunk = chunk(&[("a", "k", 1, 1), ("b", "k", 2, 2), ("a", "k", 1, 9), ("c", "k", 3, 3)]);
    let judged = judge(settings(), &chunk, &[Fact::New; 4]);
    let first = Seen { batch: 7, event_index: 0, timestamp_ms: 1, same_payload: false };
    assert_eq!(judged.stopped, Some((2, Stop::Conflict(first))));
    assert_eq!(judged.outcomes, [Outcome::Accepted, Outcome::Accepted]);
}

#[test]
fn what_the_store_has_seen_is_a_repeat_or_a_contradiction() {
    let chunk = chunk_of_one("a", 1);
    let seen = Seen { batch: 3, event_index: 5, timestamp_ms: 1, same_payload: true };
    let repeat = judge(settings(), &chunk, &[Fact::Seen(seen)]);
    assert_eq!(repeat.outcomes, [Outcome::Duplicate]);
    assert!(repeat.changes.recorded.is_empty());
    let other = Seen { same_payload: false, ..seen };
    assert_eq!(
        judge(settings(), &chunk, &[Fact::Seen(other)]).stopped,
        Some((0, Stop::Conflict(other)))
    );
}

#[test]
fn beyond_the_horizon_a_repeat_is_expired_and_an_old_contradiction_forgotten() {
    let settings = settings().with_dedup_horizon_ms(Some(1500)).unwrap();
    let chunk = chunk(&[("z", "k", 9000, 1), ("a", "k", 6999, 1), ("b", "k", 7000, 1)]);
    let old = Seen { batch: 1, event_index: 0, timestamp_ms: 6999, same_payload: false };
    let facts = [Fact::New, Fact::Seen(old), Fact::Seen(old)];
    let judged = judge(settings, &chunk, &facts);
    assert_eq!(judged.outcomes, [Outcome::Accepted, Outcome::Expired, Outcome::Late]);
    assert_eq!(judged.stopped, None);
}

#[test]
fn the_event_rule_is_stricter_inside_an_open_window() {
    let strict = settings().with_late(LateRule::Event, LatePolicy::Drop);
    let chunk = chunk(&[("a", "k", 1900, 1), ("b", "k", 1399, 1), ("c", "k", 1400, 1)]);
    let judged = judge(strict, &chunk, &[Fact::New; 3]);
    assert_eq!(judged.outcomes, [Outcome::Accepted, Outcome::Late, Outcome::Accepted]);
    assert!(judged.changes.late.is_empty(), "dropped, not kept");
    assert_eq!(judged.changes.counts.late, 1);
}

#[test]
fn a_late_event_still_moves_its_source() {
    let mut judge = Judge::new(settings(), 1, "slow");
    let chunk = chunk_of_one("a", 2999);
    judge.sources(&chunk);
    let progress = Progress {
        source_count: 1,
        watermark_ms: 3000,
        sources: vec![Known { max_timestamp_ms: Some(100), ..Known::default() }],
        others: Others { least_active_ms: Some(9000), ..Others::default() },
        now_ms: 0,
    };
    judge.learn(&progress);
    let judged = judge.judge(&chunk, &[Fact::New]);
    assert_eq!(judged.outcomes, [Outcome::Late]);
    assert_eq!(judged.changes.sources[0].max_timestamp_ms, Some(2999));
    assert_eq!(judged.changes.watermark_ms, 3000);
}

#[test]
fn under_correct_a_late_event_corrects_its_window_after_it_closed() {
    let correct = settings().with_late(LateRule::Window, LatePolicy::Correct);
    let chunk = chunk(&[("a", "k", 100, 1), ("b", "k", 1700, 2), ("c", "k", 900, 4)]);
    let judged = judge(correct, &chunk, &[Fact::New; 3]);
    assert_eq!(judged.outcomes, [Outcome::Accepted, Outcome::Accepted, Outcome::Late]);
    let first = WindowId { start_ms: 0, key: "k" };
    assert_eq!(judged.changes.windows[0], (first, Delta::of(1)));
    assert_eq!(judged.changes.corrections, [(first, Delta::of(4))]);
    assert_eq!(judged.changes.recorded, [0, 1, 2]);
    assert!(judged.changes.late.is_empty());
}

#[test]
fn under_correct_a_late_event_of_an_open_window_just_counts() {
    let correct = settings().with_late(LateRule::Event, LatePolicy::Correct);
    let chunk = chunk(&[("a", "k", 1900, 1), ("b", "k", 1399, 2), ("c", "k", 900, 4)]);
    let judged = judge(correct, &chunk, &[Fact::New; 3]);
    assert_eq!(judged.outcomes, [Outcome::Accepted, Outcome::Late, Outcome::Late]);
    let id = |start_ms| WindowId { start_ms, key: "k" };
    assert_eq!(judged.changes.windows.len(), 1);
    assert_eq!((judged.changes.windows[0].0, judged.changes.windows[0].1.sum), (id(1000), 3));
    assert_eq!(judged.changes.corrections, [(id(0), Delta::of(4))]);
}

#[test]
fn an_idle_source_is_back_before_its_event_is_judged() {
    let mut judge = Judge::new(settings(), 1, "fast");
    let mut chunk = chunk(&[("a", "k", 9000, 1)]);
    let other = chunk_of_one("b", 8600);
    let slow = Event { id: "b", source: Some("slow"), ..other.event(0) };
    chunk.push(slow);
    chunk.push(Event { id: "c", source: None, timestamp_ms: 20000, ..slow });
    assert_eq!(judge.sources(&chunk), ["fast", "slow"]);
    let slow = Known { max_timestamp_ms: Some(100), idle: true, ..Known::default() };
    let sources = vec![Known::default(), slow];
    judge.learn(&Progress { sources, now_ms: 50_000, ..Progress::default() });
    let judged = judge.judge(&chunk, &[Fact::New; 3]);
    let back = PresenceChange {
        source: "slow".to_owned(),
        presence: Presence::Active,
        event_index: Some(1),
    };
    assert_eq!(judged.changes.presence, [back]);
    assert_eq!(judged.changes.watermark_ms, 8500, "8600 - 500 would not be reached before it");
}

#[test]
fn a_released_event_is_judged_again_or_stays_held() {
    let mut judge = Judge::release(settings(), 9);
    let chunk = chunk(&[("a", "k", 100, 1), ("b", "k", FUTURE_MS + 11, 1)]);
    judge.sources(&chunk);
    judge.learn(&Progress { sources: vec![Known::default()], now_ms: 10, ..Progress::default() });
    let judged = judge.judge(&chunk, &[Fact::New; 2]);
    assert_eq!(judged.outcomes, [Outcome::Accepted, Outcome::Future]);
    assert_eq!(judged.changes.counts, Counts { accepted: 1, ..Counts::default() });
    assert!(judged.changes.recorded.is_empty() && judged.changes.held.is_empty());
}

#[test]
fn the_last_to_fall_idle_lets_the_watermark_go() {
    let mut judge = Judge::new(settings(), 3, "default");
    let asked = judge.named(&["a"]);
    assert_eq!(asked, ["a"]);
    let a = Known { max_timestamp_ms: Some(1600), ..Known::default() };
    let others = Others { greatest_ms: Some(5600), ..Others::default() };
    judge.learn(&Progress { sources: vec![a], others, ..Progress::default() });
    let changes = judge.change_presence(&["a"], Presence::Idle);
    assert_eq!(changes.watermark_ms, 5100, "the other one is idle already");
    assert_eq!(changes.moves, [Move { from_ms: 0, to_ms: 5100, event_index: None }]);
    assert_eq!(changes.presence.len(), 1);
    let again = judge.change_presence(&["a"], Presence::Idle);
    assert!(again.presence.is_empty() && again.moves.is_empty());
}

#[test]
fn each_window_and_account_comes_once_in_order_and_adds_up_in_the_order_of_events() {
    let (keys, sources) = (["b", "a", "c"], [Some("zoo"), None, Some("ant")]);
    let mut chunk = Chunk::default();
    let mut windows: BTreeMap<(i64, &str), Delta> = BTreeMap::new();
    let mut accounts: BTreeMap<(&str, &str), (u64, i64)> = BTreeMap::new();
    let mut random = 7_u64;
    for index in 0..200 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let pick = |bits: u32, below: usize| (random >> bits) as usize % below;
        let (key, source) = (keys[pick(33, 3)], sources[pick(40, 3)]);
        let (timestamp_ms, value) = (pick(20, 5000) as i64, pick(45, 2001) as i64 - 1000);
        let (id, place) = (&*format!("event-{index}"), Place::default());
        chunk.push(Event { id, key, timestamp_ms, value, source, producer_version: None, place });
        let window = windows.entry((timestamp_ms / 1000, key));
        window.and_modify(|delta| delta.add(value)).or_insert_with(|| Delta::of(value));
        let (count, last_seen_ms) = accounts.entry((source.unwrap_or("default"), key)).or_default();
        (*count, *last_seen_ms) = (*count + 1, timestamp_ms.max(*last_seen_ms));
    }
    let changes = judge(Settings::new(1000, 5000).unwrap(), &chunk, &[Fact::New; 200]).changes;
    let found = changes.windows.iter().map(|(id, delta)| ((id.start_ms / 1000, id.key), *delta));
    assert!(found.eq(windows));
    let source = |account: &AccountChange<'_>| &*changes.sources[account.source].source;
    let found = changes.accounts.iter().map(|account| {
        ((source(account), account.key), (account.counts.accepted, account.last_seen_ms))
    });
    assert!(found.eq(accounts));
}

#[test]
#[should_panic(expected = "out of range")]
fn an_event_without_a_fact_is_no_event_that_can_be_judged() {
    judge(settings(), &chunk(&[("a", "k", 1, 1), ("b", "k", 1, 1)]), &[Fact::New]);
}
