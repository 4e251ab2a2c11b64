//! What a chunk holds of each source and key, counted by outcome. Sums only: nothing is decided
//! here.

use std::collections::HashMap;

use super::watermark::Watermark;
use super::{Counts, Outcome, SourceChange};
use crate::event::Event;

/// What a chunk says of one key of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountChange<'c> {
    /// The place of the source in [`Changes::sources`](super::Changes::sources).
    pub source: usize,
    /// The key.
    pub key: &'c str,
    /// The outcomes of their events in this chunk.
    pub counts: Counts,
    /// How far event time had come with the last of them: W when it was judged, or the greatest
    /// timestamp that was accepted, if that is more.
    pub last_seen_ms: i64,
}

/// By place of the source, and key.
#[derive(Default)]
pub(super) struct Accounts<'c>(HashMap<(usize, &'c str), (Counts, i64)>);

impl<'c> Accounts<'c> {
    pub(super) fn count(
        &mut self,
        place: usize,
        event: &Event<'c>,
        outcome: Outcome,
        watermark_ms: i64,
    ) {
        let (counts, last_seen_ms) = self.0.entry((place, event.key)).or_default();
        counts.count(outcome);
        // only what is accepted has a window that outlives W
        let seen_ms = match outcome {
            Outcome::Accepted => watermark_ms.max(event.timestamp_ms),
            _ => watermark_ms,
        };
        *last_seen_ms = seen_ms.max(*last_seen_ms);
    }

    /// What they come to for each source, in the order of their places, and for each key by the
    /// names of both.
    pub(super) fn changes(
        &mut self,
        watermark: &Watermark,
    ) -> (Vec<SourceChange>, Vec<AccountChange<'c>>) {
        let mut all: Vec<_> = self.0.drain().collect();
        all.sort_unstable_by_key(|(account, _)| *account);
        let (mut sources, mut last): (Vec<SourceChange>, _) = (Vec::new(), None);
        let mut accounts = Vec::with_capacity(all.len());
        for ((place, key), (counts, last_seen_ms)) in all {
            if last != Some(place) {
                last = Some(place);
                sources.push(SourceChange {
                    source: watermark.name(place).to_owned(),
                    max_timestamp_ms: watermark.known(place).max_timestamp_ms,
                    counts: Counts::default(),
                });
            }
            let source = sources.len() - 1;
            sources[source].counts.add(&counts);
            accounts.push(AccountChange { source, key, counts, last_seen_ms });
        }
        // stable, and the keys of each are in order already
        accounts.sort_by(|a, b| sources[a.source].source.cmp(&sources[b.source].source));
        (sources, accounts)
    }
}
