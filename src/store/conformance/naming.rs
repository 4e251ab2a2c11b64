//! Names are bytes: none is trimmed, folded or cut.

use super::world::*;
use crate::model::event::MAX_NAME_BYTES;
use crate::model::refusal::Other;

pub(super) fn names_are_bytes(subject: &impl Subject) {
    let mut store = subject.make(settings());
    // distinct though a C string, a trim, a case fold or a normalisation would take some for one
    let names = ["a", "a\0", "a\0b", "a\0c", "A", " a", "a ", "é", "e\u{301}", "\0", "1", "1.0"];
    let events: Vec<Ev> = names
        .iter()
        .map(|name| ev(name, name, 0, 1).from(name).by(name))
        .chain(names.iter().map(|name| ev(&format!("{name}!"), name, 1, 1).from(name)))
        .collect();
    let committed = deliver(&mut store, 1, &events);
    assert_eq!(committed.counts.accepted, 2 * names.len() as u64);
    let mut store = subject.reopen(store);
    assert_eq!(deliver(&mut store, 2, &events).counts.duplicate, 2 * names.len() as u64);
    let dump = subject.dump(&store);
    let mut sorted = names.map(str::to_owned);
    sorted.sort_unstable();
    let keys: Vec<_> = dump.windows.iter().map(|(_, key, _)| key.clone()).collect();
    assert_eq!(keys, sorted);
    assert!(dump.windows.iter().all(|(_, _, totals)| totals.count == 2), "{:?}", dump.windows);
    let sources: Vec<_> = dump.sources.iter().map(|row| row.source.clone()).collect();
    assert_eq!(sources, sorted);
    let versions: Vec<_> = dump.versions.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(versions, sorted);
}

pub(super) fn the_longest_names_fit(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let long = "é".repeat(MAX_NAME_BYTES / 2);
    let other = format!("{}è", "é".repeat(MAX_NAME_BYTES / 2 - 1));
    let late = ev(&other, &long, 1, 1).from(&long).by(&long);
    let events = [ev(&long, &long, 9000, 1).from(&long), late];
    assert_eq!(deliver(&mut store, 1, &events).counts.late, 1);
    let dump = subject.dump(&store);
    assert_eq!(dump.windows[0].1, long);
    let row = &dump.late[0];
    assert_eq!((&row.id, &row.key, &row.source), (&other, &long, &long));
}

pub(super) fn an_id_tells_where_it_came_from(subject: &impl Subject) {
    let mut store = subject.make(settings());
    let committed = deliver(&mut store, 1, &[ev("a", "k", 1, 7), ev("b\0", "k", 2, -3)]);
    let conflict = |store: &mut _, number, chunks: &[&[Ev]]| match ingest::<dyn crate::store::Store>(
        store,
        &delivery(number),
        chunks,
    ) {
        Err(Stopped::Conflict { event_index, other }) => (event_index, *other),
        other => panic!("expected a conflict, found {other:?}"),
    };
    let found = conflict(&mut store, 2, &[&[ev("x", "k", 1, 1), ev("b\0", "k", 2, 4)]]);
    let other = Other {
        file: Some("f1.json".to_owned()),
        batch: Some(committed.batch),
        source: Some("default".to_owned()),
        event_index: Some(1),
        key: Some("k".to_owned()),
        timestamp_ms: Some(2),
        value: Some(-3),
    };
    assert_eq!(found, (1, other.clone()));
    // the other side in an earlier chunk of the batch itself
    let here = [ev("c", "l", 3, 9)];
    let found = conflict(&mut store, 3, &[&here, &[ev("c", "l", 3, 8)]]);
    let own = Other {
        file: Some("f3.json".to_owned()),
        batch: None,
        event_index: Some(0),
        key: Some("l".to_owned()),
        timestamp_ms: Some(3),
        value: Some(9),
        ..other
    };
    assert_eq!(found, (1, own));
}
