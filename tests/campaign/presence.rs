//! How sources came and went by the daemon's own acts, as the store tells it: the model is told.

use rusqlite::Connection;

use crate::model::Model;

/// One note of the store.
struct Note {
    source: String,
    presence: &'static str,
}

/// Tells the model what the store noted behind one batch and before another; the last batch that is
/// dealt with.
///
/// # Errors
/// When the notes cannot be read, or hold what the daemon never does by itself.
pub fn tell(store: &Connection, model: &mut Model, from: i64, to: i64) -> Result<i64, String> {
    for note in notes(store, from, to)? {
        model.change_presence(&[note.source], note.presence);
    }
    Ok(from.max(to))
}

fn notes(store: &Connection, from: i64, to: i64) -> Result<Vec<Note>, String> {
    let failed = |error: rusqlite::Error| format!("I3: no notes of sources: {error}");
    // a source that is back by an event is the model's own to know
    let sql = "SELECT batch, source, presence FROM presence \
               WHERE batch > ?1 AND batch < ?2 AND event_index IS NULL ORDER BY batch, ordinal";
    let mut statement = store.prepare(sql).map_err(failed)?;
    let mut rows = statement.query([from, to]).map_err(failed)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let name: String = row.get(2).map_err(failed)?;
        let batch: i64 = row.get(0).map_err(failed)?;
        let presence = match name.as_str() {
            "expected" => "expected",
            "not_expected" => "not_expected",
            _ => return Err(format!("I3: batch {batch} makes a source {name}")),
        };
        found.push(Note { source: row.get(1).map_err(failed)?, presence });
    }
    Ok(found)
}
