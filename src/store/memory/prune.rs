//! Retention on plain maps. What may be removed is decided elsewhere.

use std::collections::{HashMap, HashSet};

use crate::engine::window;
use crate::store::retention::Moment;
use crate::store::{Pruned, Retention};

use super::MemoryState;

pub(super) fn prune(state: &mut MemoryState, what: &Retention, now_ms: i64) -> Pruned {
    let MemoryState { watermark_ms, last_number, .. } = *state;
    let bounds = what.bounds(&state.settings, Moment { watermark_ms, last_number, now_ms });
    let mut pruned = Pruned::default();
    let window_ms = state.settings.window_ms();
    if let Some(from_ms) = bounds.ids_from_ms {
        let before = state.ledger.len();
        state.ledger.retain(|_, known| known.timestamp_ms >= from_ms);
        pruned.ids = (before - state.ledger.len()) as u64;
    }
    if let Some(from_ms) = bounds.late_from_ms {
        let before = state.late.len();
        state.late.retain(|_, late| window::start_ms(late.timestamp_ms, window_ms) >= from_ms);
        pruned.late = (before - state.late.len()) as u64;
    }
    if let Some(from_ms) = bounds.windows_from_ms {
        windows(state, from_ms, &mut pruned);
        accounts(state, from_ms, &mut pruned);
    }
    if let Some(asked_ms) = bounds.moves_from_ms {
        let oldest_ms = state.windows.keys().next().map(|(ms, _)| window::end_ms(*ms, window_ms));
        let from_ms = asked_ms.min(oldest_ms.unwrap_or(i64::MAX));
        let before = state.moves.len();
        state.moves.retain(|moved| moved.to_ms >= from_ms);
        pruned.moves = (before - state.moves.len()) as u64;
    }
    if let Some(bound) = bounds.receipts {
        let before = state.receipts.len();
        state.receipts.retain(|batch, kept| {
            *batch > bound.last_number || kept.committed_at_ms >= bound.from_ms
        });
        pruned.receipts = (before - state.receipts.len()) as u64;
        let receipts = &state.receipts;
        state.tokens.retain(|_, committed| receipts.contains_key(&committed.batch));
        let before = (state.refusals.len(), state.settled.len(), state.presence.len());
        let mut left = state.refusals.len();
        state.refusals.retain(|refused| {
            left -= 1;
            left == 0 || refused.refused_at_ms >= bound.notes_from_ms
        });
        state.settled.retain(|_, row| row.at_ms >= bound.notes_from_ms);
        state.presence.retain(|(_, row)| row.at_ms >= bound.notes_from_ms);
        pruned.refusals = (before.0 - state.refusals.len()) as u64;
        pruned.settled = (before.1 - state.settled.len()) as u64;
        pruned.presence = (before.2 - state.presence.len()) as u64;
    }
    pruned
}

fn windows(state: &mut MemoryState, from_ms: i64, pruned: &mut Pruned) {
    let window_ms = state.settings.window_ms();
    let mut awaited: HashMap<(i64, String), u64> = HashMap::new();
    for late in state.late.values().filter(|late| late.applied_in.is_none()) {
        let start_ms = window::start_ms(late.timestamp_ms, window_ms);
        *awaited.entry((start_ms, late.key.clone())).or_default() += 1;
    }
    let goes = |place: &(i64, String)| place.0 < from_ms && !awaited.contains_key(place);
    for (place, window) in state.windows.iter().filter(|(place, _)| goes(place)) {
        pruned.windows += 1;
        pruned.revisions += window.before.len() as u64;
        state.pruned_start_ms = state.pruned_start_ms.max(Some(place.0));
    }
    state.windows.retain(|place, _| !goes(place));
}

fn accounts(state: &mut MemoryState, from_ms: i64, pruned: &mut Pruned) {
    let before = state.windows.keys().take_while(|(start_ms, _)| *start_ms < from_ms);
    let left: HashSet<&str> = before.map(|(_, key)| key.as_str()).collect();
    let held: HashSet<(&str, &str)> =
        state.held.values().map(|held| (held.source.as_str(), held.key.as_str())).collect();
    let rest = &mut state.pruned_accounts;
    state.accounts.retain(|(source, key), account| {
        let stays = account.last_seen_ms >= from_ms
            || left.contains(key.as_str())
            || held.contains(&(source, key));
        if !stays {
            rest.entry(source.clone()).or_default().add(&account.counts);
            pruned.accounts += 1;
        }
        stays
    });
}
