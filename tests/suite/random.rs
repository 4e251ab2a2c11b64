//! Random histories, against the model: through the library with each store, and through the real
//! binary.
//!
//! `WINDOWFLOW_SEED=N` plays one history again, `WINDOWFLOW_ROUNDS=N` plays N times as many.

use std::collections::BTreeMap;

use windowflow::model::clock::Clock;

use crate::draw::{Draw, NOW_MS, Step};
use crate::model::{Counts, Event, Model, Settings, State};
use crate::observed::{self, difference};
use crate::real::{Acted, Real, act_in_model};
use crate::world::World;

/// Plays each of some histories; says which seed it was when one fails.
fn each_seed<T>(rounds: u64, play: fn(u64) -> T) {
    let number =
        |name: &str| std::env::var(name).ok().map(|text: String| text.parse::<u64>().expect(name));
    if let Some(seed) = number("WINDOWFLOW_SEED") {
        play(seed);
        return;
    }
    for seed in 0..rounds * number("WINDOWFLOW_ROUNDS").unwrap_or(1) {
        let played = std::panic::catch_unwind(|| drop(play(seed)));
        assert!(played.is_ok(), "as told above; play it again with WINDOWFLOW_SEED={seed}");
    }
}

#[test]
fn histories_hold_all_that_can_happen() {
    let (mut counts, mut refused) = (Counts::default(), BTreeMap::<&str, u32>::new());
    let (mut behind, mut acts) = (0, BTreeMap::<&str, u64>::new());
    let mut revisions = 0;
    for seed in 0..30 {
        let mut draw = Draw::new(seed);
        let mut model = Model::new(draw.settings);
        for _ in 0..800 {
            match draw.step() {
                Step::Event(event) => {
                    if let Err((code, _)) = model.ingest("default", &[event], draw.now_ms) {
                        *refused.entry(code).or_default() += 1;
                    }
                }
                step => {
                    let name = match &step {
                        Step::Presence(_, presence) => presence,
                        Step::Release(_) => "release",
                        Step::Discard(_) => "discard",
                        Step::Apply(_) => "apply",
                        _ => "other",
                    };
                    match act_in_model(&mut model, &step, draw.now_ms) {
                        Acted::Advanced(moved) => behind += u32::from(moved.is_none()),
                        Acted::Done(done) => *acts.entry(name).or_default() += done.concerned,
                        Acted::Overflow => *acts.entry("overflow").or_default() += 1,
                    }
                    draw.reach(model.state.watermark_ms);
                }
            }
        }
        revisions += model.state.revisions.values().sum::<u64>();
        counts.accepted += model.state.counts.accepted;
        counts.late += model.state.counts.late;
        counts.duplicate += model.state.counts.duplicate;
        counts.future += model.state.counts.future;
        counts.expired += model.state.counts.expired;
    }
    let Counts { accepted, late, duplicate, future, expired } = counts;
    let least = accepted.min(late).min(duplicate).min(expired);
    assert!(least > 500 && accepted > 5000 && future > 50, "{counts:?}");
    assert!(refused["conflict"] > 50 && refused["overflow"] > 50 && behind > 5, "{refused:?}");
    for name in ["declared", "idle", "active", "release", "discard", "apply"] {
        assert!(acts.get(name).is_some_and(|count| *count > 20), "{name}: {acts:?}");
    }
    assert!(acts.contains_key("overflow") && revisions > 200, "{revisions} {acts:?}");
}

#[test]
fn random_batches_do_what_the_model_does_in_sqlite() {
    each_seed(30, |seed| play_batches(seed, 800, Real::sqlite));
}

#[test]
fn random_batches_do_what_the_model_does_in_memory() {
    each_seed(60, |seed| play_batches(seed, 800, Real::memory));
}

#[test]
fn random_large_batches_do_what_the_model_does() {
    each_seed(3, |seed| play_batches(1000 + seed, 20_000, Real::sqlite));
}

/// Exactly as far ahead as may be is accepted, a millisecond more is held.
#[test]
fn the_guard_against_the_future_begins_a_millisecond_behind_its_bound() {
    for max_future_ms in [Some(0), Some(1000), None] {
        let settings = Settings { max_future_ms, ..Settings::new(1000, 0) };
        let bound_ms = NOW_MS + max_future_ms.unwrap_or(0);
        let batch = [
            Event::new("behind", "k", bound_ms + 1, 1),
            Event::new("at", "k", bound_ms, 1),
            Event::new("last", "k", 253_402_300_799_999, 1),
        ];
        let mut model = Model::new(settings);
        let expected = model.ingest("default", &batch, NOW_MS).unwrap();
        assert_eq!(expected.counts.future, if max_future_ms.is_some() { 2 } else { 0 });
        for mut real in [Real::sqlite(settings), Real::memory(settings)] {
            assert_eq!(real.ingest(&observed::ndjson(&batch)), Ok(expected));
            assert_same(&real.state(), &model.state);
        }
    }
}

/// Batches of random sizes, some of which are to be refused: those must change nothing. How many
/// there were.
pub fn play_batches(seed: u64, events: usize, make: fn(Settings) -> Real) -> u64 {
    let (mut draw, mut batches) = (Draw::new(seed), 0);
    let mut model = Model::new(draw.settings);
    let mut real = make(draw.settings);
    let mut batch = Vec::new();
    for drawn in 0..events {
        let largest = if events > 10_000 { 9000 } else { 60 };
        match draw.step() {
            Step::Event(event) => batch.push(event),
            step => {
                let expected = act_in_model(&mut model, &step, draw.now_ms);
                assert_eq!(real.act(&step), expected, "after {drawn} events: {step:?}");
                draw.reach(model.state.watermark_ms);
            }
        }
        let full = draw.random.one_in(largest / 2) || drawn + 1 == events;
        if batch.is_empty() || !full {
            continue;
        }
        let text = match draw.random.one_in(2) {
            true => observed::array(&batch),
            false => observed::ndjson(&batch),
        };
        let expected = model.ingest("default", &batch, draw.now_ms);
        assert_eq!(real.ingest(&text), expected, "after {drawn} events, for\n{text:.10000}");
        if expected.is_err() || draw.random.one_in(10) {
            assert_same(&real.state(), &model.state);
        }
        if draw.random.one_in(15) {
            real.reopen();
        }
        batch.clear();
        batches += 1;
    }
    assert_same(&real.state(), &model.state);
    batches
}

/// Two states that have to be the same.
pub fn assert_same(found: &State, expected: &State) {
    assert!(found == expected, "{}", difference(found, expected));
}

#[test]
fn the_same_events_give_the_same_however_they_are_cut() {
    each_seed(8, |seed| play_cuts(seed, 300, &[1, 2, 50, i64::MAX], Real::memory));
    each_seed(3, |seed| play_cuts(100 + seed, 300, &[1, 2, 50, i64::MAX], Real::sqlite));
    // so that a batch is judged in several chunks
    each_seed(1, |seed| play_cuts(200 + seed, 10_000, &[200, i64::MAX], Real::sqlite));
}

/// One batch, one event a batch, and anything in between.
fn play_cuts(seed: u64, events: usize, cuts: &[i64], make: fn(Settings) -> Real) {
    let mut draw = Draw::new(seed);
    // without acts in between, which would cut by themselves
    draw.acts = events < 10_000;
    let mut model = Model::new(draw.settings);
    // what one event a batch takes in, so that no cut is refused
    let mut steps = Vec::new();
    while steps.len() < events {
        let step = draw.step();
        let kept = match &step {
            Step::Event(event) => {
                model.ingest("default", std::slice::from_ref(event), draw.now_ms).is_ok()
            }
            step => {
                let acted = act_in_model(&mut model, step, draw.now_ms);
                draw.reach(model.state.watermark_ms);
                acted.changed()
            }
        };
        steps.extend(kept.then_some(step));
    }
    for cut in cuts {
        let mut real = make(draw.settings);
        let mut batch = Vec::new();
        let give = |real: &mut Real, batch: &mut Vec<Event>| {
            if !batch.is_empty() {
                real.ingest(&observed::ndjson(batch)).unwrap();
                batch.clear();
            }
        };
        for step in &steps {
            match step {
                Step::Event(event) => batch.push(event.clone()),
                step => {
                    give(&mut real, &mut batch);
                    assert!(real.act(step).changed(), "{step:?}");
                }
            }
            if draw.random.one_in(*cut) {
                give(&mut real, &mut batch);
            }
        }
        give(&mut real, &mut batch);
        // a batch makes one revision of a window, however many events it brings
        let mut found = real.state();
        assert!(found.revisions.keys().eq(model.state.revisions.keys()));
        (found.revisions, found.earlier) =
            (model.state.revisions.clone(), model.state.earlier.clone());
        assert_same(&found, &model.state);
    }
}

#[test]
fn replaying_all_that_was_committed_changes_no_total() {
    each_seed(6, |seed| {
        let mut draw = Draw::new(300 + seed);
        let mut real = Real::sqlite(draw.settings);
        let mut committed = Vec::new();
        for _ in 0..40 {
            let steps = (0..20).map(|_| draw.step());
            let batch = steps.filter_map(|step| match step {
                Step::Event(event) => Some(event),
                _ => None,
            });
            let text = observed::ndjson(&batch.collect::<Vec<_>>());
            if real.ingest(&text).is_ok() {
                committed.push(text);
            }
        }
        let before = real.state();
        assert!(before.counts.accepted > 50, "{:?}", before.counts);
        for text in committed.iter().chain(committed.iter().rev()) {
            let answer = real.ingest(text).unwrap();
            assert_eq!((answer.counts.accepted, answer.counts.late), (0, 0));
        }
        let after = State { counts: before.counts, ..real.state() };
        assert_same(&after, &before);
    });
}

#[test]
fn random_histories_through_the_binary() {
    each_seed(4, |seed| {
        let mut draw = binary_draw(400 + seed);
        let settings = draw.settings;
        let world = world(settings);
        let mut model = Model::new(settings);
        for number in 0..25 {
            let batch = batch(&mut draw, 40);
            let name = format!("{number:03}.json");
            std::fs::write(world.root().join(&name), observed::array(&batch)).unwrap();
            let ran = world.run(&["ingest", "--json", &name]);
            match model.ingest("default", &batch, now_of_day_ms()) {
                Ok(expected) => {
                    assert_eq!(observed::answer(&ran.ok().json()), expected, "{}", world.told());
                }
                Err((code, index)) => {
                    let refused = ran.exits(65).json();
                    assert_eq!(refused["code"], code, "{refused}");
                    assert_eq!(refused["event_index"], index, "{refused}");
                }
            }
            if draw.random.one_in(4) {
                let to_ms = model.state.watermark_ms + draw.random.below(1500) - 300;
                let ran = world.run(&["advance", &to_ms.max(0).to_string(), "--json"]);
                match model.advance(to_ms.max(0)) {
                    Some(closed) => assert_eq!(ran.ok().json()["windows_closed"], closed),
                    None => drop(ran.exits(2)),
                }
            }
            if draw.random.one_in(4) {
                let ran = world.run(&["late", "--apply", "--json"]);
                match model.apply(|_| true) {
                    Ok(done) => assert_eq!(ran.ok().json()["events"], done.concerned),
                    Err(_) => drop(ran.exits(65)),
                }
            }
            if number == 5 {
                world.run(&["sources", "--declare", "slow"]).ok();
                model.change_presence(&["slow".to_owned()], "declared");
            }
        }
        observed::assert_report(&world.report(), &model, &|| world.told());
    });
}

#[test]
fn random_histories_through_the_daemon() {
    each_seed(3, |seed| {
        let mut draw = binary_draw(500 + seed);
        let settings = draw.settings;
        let world = world(settings);
        let mut model = Model::new(settings);
        let mut failed = Vec::new();
        for number in 0..60 {
            let batch = batch(&mut draw, 30);
            let name = format!("{number:03}.ndjson");
            world.drop_in(&name, observed::ndjson(&batch));
            if let Err((code, _)) = model.ingest("default", &batch, now_of_day_ms()) {
                failed.push((name, code));
            }
        }
        world.drain().exits(if failed.is_empty() { 0 } else { 65 });
        for (name, code) in &failed {
            assert_eq!(world.reason(name)["code"], *code, "{name}");
        }
        assert_eq!(world.names("done").len(), 60 - failed.len(), "{}", world.told());
        observed::assert_report(&world.report(), &model, &|| world.told());
    });
}

/// Nothing is ahead of the real clock.
fn binary_draw(seed: u64) -> Draw {
    let mut draw = Draw::new(seed);
    draw.settings.max_future_ms = None;
    draw
}

fn world(settings: Settings) -> World {
    let (world, flags) = (World::new(), settings.flags());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    world.init(settings.window_ms, settings.lateness_ms, &flags);
    world
}

fn batch(draw: &mut Draw, most: i64) -> Vec<Event> {
    let steps: Vec<Step> = (0..=draw.random.below(most)).map(|_| draw.step()).collect();
    let events = steps.into_iter().filter_map(|step| match step {
        Step::Event(event) => Some(event),
        _ => None,
    });
    events.collect()
}

/// The events of these tests lie decades behind it.
fn now_of_day_ms() -> i64 {
    Clock::System.now_ms()
}
