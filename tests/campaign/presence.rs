//! How sources came and went by the daemon's own acts, as the store notes it.

use rusqlite::Connection;

/// One note of the store.
pub struct Note {
    /// The batch of the act.
    pub batch: i64,
    /// Of which source.
    pub source: String,
    /// As the model calls it.
    pub presence: &'static str,
}

/// The notes of the batches behind `from` and before `to`, in their order. That a source is back by
/// an event is left out: the model knows it by itself.
///
/// # Errors
/// When the notes cannot be read, or hold what the daemon never does by itself in the campaign.
pub fn notes(store: &Connection, from: i64, to: i64) -> Result<Vec<Note>, String> {
    let sql = "SELECT batch, source, presence FROM presence \
               WHERE batch > ?1 AND batch < ?2 AND event_index IS NULL ORDER BY batch, ordinal";
    let read = || -> rusqlite::Result<Vec<(i64, String, String)>> {
        let mut statement = store.prepare(sql)?;
        let rows =
            statement.query_map([from, to], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.collect()
    };
    let rows = read().map_err(|error| format!("I3: no notes of sources: {error}"))?;
    let known = |(batch, source, name): (i64, String, String)| match name.as_str() {
        "expected" => Ok(Note { batch, source, presence: "expected" }),
        "not_expected" => Ok(Note { batch, source, presence: "not_expected" }),
        _ => Err(format!("I3: source {source} was made {name}")),
    };
    rows.into_iter().map(known).collect()
}
