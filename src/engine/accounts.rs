//! What a chunk holds of each source and key, counted by outcome. Sums only: nothing is decided
//! here.

use super::tally::{Judgement, TallyPart};
use super::watermark::Watermark;
use super::{Counts, Outcome, SourceChange};
use crate::model::event::Chunk;

/// What a chunk says of one key of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountChange<'c> {
    /// The place of the source in [`Changes::sources`](super::Changes::sources).
    pub source: usize,
    /// The key.
    pub key: &'c str,
    /// The outcomes of their events in this chunk.
    pub counts: Counts,
    /// How far event time had come with the last of them: the watermark when it was judged, or the
    /// greatest timestamp that was accepted, if that is more.
    pub last_seen_ms: i64,
}

/// What the judged rows, given by key, come to for each source, in the order of their places, and
/// for each key by the names of both.
pub(super) fn add_up<'c>(
    chunk: &'c Chunk,
    by_key: &[usize],
    judgements: &[Judgement],
    places: &[usize],
    watermark: &Watermark,
) -> (Vec<SourceChange>, Vec<AccountChange<'c>>) {
    let ranks = watermark.ranks();
    let counted = by_key.iter().copied().filter(|row| judgements[*row].part != TallyPart::None);
    let mut rows: Vec<(usize, usize)> = counted.map(|row| (ranks[places[row]], row)).collect();
    // stable: what is of one source stays by key
    rows.sort_by_key(|(rank, _)| *rank);
    let mut sources: Vec<Counts> = vec![Counts::default(); ranks.len()];
    let mut accounts: Vec<AccountChange<'_>> =
        Vec::with_capacity(rows.len().min(chunk.key_count()));
    let mut last = None;
    for (rank, row) in rows {
        let (place, slot) = (places[row], chunk.key_slot(row));
        if last != Some((rank, slot)) {
            last = Some((rank, slot));
            let key = chunk.key(slot);
            let (counts, last_seen_ms) = (Counts::default(), 0);
            accounts.push(AccountChange { source: place, key, counts, last_seen_ms });
        }
        let Judgement { outcome, watermark_ms, .. } = judgements[row];
        sources[place].count(outcome);
        if let Some(account) = accounts.last_mut() {
            account.counts.count(outcome);
            // only what is accepted has a window that outlives the watermark
            let seen_ms = match outcome {
                Outcome::Accepted => watermark_ms.max(chunk.timestamp_ms(row)),
                _ => watermark_ms,
            };
            account.last_seen_ms = account.last_seen_ms.max(seen_ms);
        }
    }
    // those that nothing came of have no part in it
    let mut index = vec![0; sources.len()];
    let mut changes = Vec::new();
    for (place, counts) in sources.into_iter().enumerate().filter(|(_, c)| c.events() > 0) {
        index[place] = changes.len();
        changes.push(SourceChange {
            source: watermark.name(place).to_owned(),
            max_timestamp_ms: watermark.known(place).max_timestamp_ms,
            counts,
        });
    }
    accounts.iter_mut().for_each(|account| account.source = index[account.source]);
    (changes, accounts)
}
