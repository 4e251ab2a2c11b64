//! No question sorts, or walks a table from end to end, that must stay fast in a large store.

use super::*;
use crate::store::conformance::settings;

#[test]
fn every_question_has_its_index() {
    let files = Files::new();
    let store = files.make(settings());
    let connection = store.connection.as_ref().unwrap();
    let plan = |sql: &str| -> String {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let mut rows = statement.raw_query();
        let mut plan = String::new();
        while let Some(row) = rows.next().unwrap() {
            plan += &(row.get::<_, String>(3).unwrap() + "; ");
        }
        plan
    };
    let texts: Vec<String> = [
        include_str!("../tables/accounts.rs"),
        include_str!("../reader.rs"),
        include_str!("../tables/settlement.rs"),
        include_str!("../tables/sources.rs"),
        include_str!("../prune.rs"),
        include_str!("../tables/windows.rs"),
        include_str!("../tables/receipts.rs"),
        include_str!("../ledger/mod.rs"),
        include_str!("../ledger/cursor.rs"),
        include_str!("../ledger/expire.rs"),
        include_str!("../ledger/run.rs"),
        include_str!("../write_buffer/mod.rs"),
        include_str!("../write_buffer/row.rs"),
    ]
    .into_iter()
    .flat_map(queries)
    .collect();
    assert!(texts.len() > 30, "only {} queries found", texts.len());
    for sql in texts {
        let plan = plan(&sql);
        assert!(!plan.contains("TEMP B-TREE"), "{sql}\n{plan}");
    }
    for (sql, index) in [
        ("SELECT 1 FROM held WHERE source = 's' AND key = 'k'", "held_by_account"),
        ("SELECT 1 FROM late WHERE window_start_ms = 1 AND key = 'k'", "late_by_window"),
    ] {
        assert!(plan(sql).contains(index), "{sql}: {}", plan(sql));
    }
}

/// Case 119: what is asked of sources for each chunk is found by an index that holds nothing else,
/// however many sources have sent nothing that counts.
#[test]
fn case_119_no_question_walks_over_all_sources() {
    let files = Files::new();
    let store = files.make(settings());
    let connection = store.connection.as_ref().unwrap();
    for (sql, index) in [
        (
            "SELECT name FROM sources WHERE idle = 0 AND max_timestamp_ms IS NOT NULL \
          ORDER BY max_timestamp_ms",
            "sources_by_time (idle=? AND max_timestamp_ms>?)",
        ),
        (
            "SELECT name FROM sources WHERE idle = 1 AND max_timestamp_ms IS NOT NULL \
          ORDER BY max_timestamp_ms DESC",
            "sources_by_time (idle=? AND max_timestamp_ms>?)",
        ),
        (
            "SELECT name, 0 FROM sources INDEXED BY sources_awaited WHERE idle = 0 AND max_timestamp_ms IS NULL \
          AND (declared = 1 OR expected = 1)",
            "sources_awaited",
        ),
        (
            "UPDATE sources INDEXED BY sources_by_heard SET last_batch_at_ms = 2 \
          WHERE idle = 0 AND heard_in = 1 AND last_batch = 1",
            "sources_by_heard",
        ),
        (
            "SELECT name FROM sources INDEXED BY sources_by_heard WHERE idle = 0 AND heard_in >= 1 \
          AND (heard_in, name) > (1, 'n') AND expected <> 1 ORDER BY heard_in, name LIMIT 3",
            "sources_by_heard",
        ),
    ] {
        let plan: String = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap()
            .query_row([], |row| row.get(3))
            .unwrap();
        assert!(plan.contains(index), "{sql}: {plan}");
    }
    // and the questions themselves are those
    let texts = queries(include_str!("../tables/sources.rs"));
    let awaited = "(declared = 1 OR expected = 1)";
    assert_eq!(texts.iter().filter(|sql| sql.contains(awaited)).count(), 2, "{texts:?}");
}

/// The queries that stand in a source file, as Rust would read them.
fn queries(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(start) = rest.find("\"SELECT ") {
        rest = &rest[start + 1..];
        let end = rest.find('"').unwrap();
        let lines = rest[..end].lines().map(|line| line.trim_start().trim_end_matches('\\'));
        found.push(lines.collect::<String>());
        rest = &rest[end..];
    }
    found
}
