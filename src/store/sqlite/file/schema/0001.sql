-- Step 1: the tables of a new store. A step that has been released is never edited: add another.
--
-- Times are milliseconds since 1970-01-01T00:00:00Z. Every table is STRICT, so that no integer can
-- turn into a floating-point number. Rows point at their batch by its number without a foreign
-- key: receipts can be pruned before what they brought in.

-- what was fixed when the store was made, how far it has come, and the running totals
CREATE TABLE store (
    only_row         INTEGER PRIMARY KEY CHECK (only_row = 1),
    window_ms        INTEGER NOT NULL,
    lateness_ms      INTEGER NOT NULL,
    late_rule        TEXT NOT NULL,
    late_policy      TEXT NOT NULL,
    max_future_ms    INTEGER,
    dedup_horizon_ms INTEGER,
    watermark_ms     INTEGER NOT NULL DEFAULT 0,
    last_number      INTEGER NOT NULL DEFAULT 0,
    last_batch       INTEGER,
    last_ingest_at_ms INTEGER,
    batches          INTEGER NOT NULL DEFAULT 0,
    refused_batches  INTEGER NOT NULL DEFAULT 0,
    accepted         INTEGER NOT NULL DEFAULT 0,
    late             INTEGER NOT NULL DEFAULT 0,
    duplicate        INTEGER NOT NULL DEFAULT 0,
    future           INTEGER NOT NULL DEFAULT 0,
    expired          INTEGER NOT NULL DEFAULT 0,
    windows          INTEGER NOT NULL DEFAULT 0,
    late_kept        INTEGER NOT NULL DEFAULT 0,
    held             INTEGER NOT NULL DEFAULT 0
) STRICT;

-- the open windows lie together at the end: few pages are dirtied by a batch
CREATE TABLE windows (
    start_ms INTEGER NOT NULL,
    key      TEXT NOT NULL,
    count    INTEGER NOT NULL,
    sum      INTEGER NOT NULL,
    min      INTEGER NOT NULL,
    max      INTEGER NOT NULL,
    PRIMARY KEY (start_ms, key)
) STRICT, WITHOUT ROWID;

-- every id taken in; a BLOB is compared byte for byte, whatever its bytes are
CREATE TABLE ledger (
    id           BLOB PRIMARY KEY,
    batch        INTEGER NOT NULL,
    event_index  INTEGER NOT NULL,
    key          TEXT NOT NULL,
    timestamp_ms INTEGER NOT NULL,
    value        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- by batch and index, not by id: with a horizon one id can rightly be late twice
CREATE TABLE late (
    batch           INTEGER NOT NULL,
    event_index     INTEGER NOT NULL,
    id              TEXT NOT NULL,
    key             TEXT NOT NULL,
    timestamp_ms    INTEGER NOT NULL,
    value           INTEGER NOT NULL,
    window_start_ms INTEGER NOT NULL,
    watermark_ms    INTEGER NOT NULL,
    source          TEXT NOT NULL,
    PRIMARY KEY (batch, event_index)
) STRICT, WITHOUT ROWID;

-- events too far ahead, with all that is needed to judge them again
CREATE TABLE held (
    batch            INTEGER NOT NULL,
    event_index      INTEGER NOT NULL,
    id               TEXT NOT NULL,
    key              TEXT NOT NULL,
    timestamp_ms     INTEGER NOT NULL,
    value            INTEGER NOT NULL,
    source           TEXT NOT NULL,
    producer_version TEXT,
    watermark_ms     INTEGER NOT NULL,
    PRIMARY KEY (batch, event_index)
) STRICT, WITHOUT ROWID;

CREATE TABLE sources (
    name             TEXT PRIMARY KEY,
    max_timestamp_ms INTEGER,
    accepted         INTEGER NOT NULL,
    late             INTEGER NOT NULL,
    duplicate        INTEGER NOT NULL,
    future           INTEGER NOT NULL,
    expired          INTEGER NOT NULL,
    last_batch       INTEGER NOT NULL,
    last_batch_at_ms INTEGER NOT NULL,
    last_file        TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- answers which source is the furthest behind, and which the furthest ahead
CREATE INDEX sources_by_time ON sources (max_timestamp_ms);

CREATE TABLE versions (
    name      TEXT PRIMARY KEY,
    accepted  INTEGER NOT NULL,
    late      INTEGER NOT NULL,
    duplicate INTEGER NOT NULL,
    future    INTEGER NOT NULL,
    expired   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- the moves of the watermark that closed windows; it only rises, so where it came to names a move
CREATE TABLE moves (
    to_ms          INTEGER PRIMARY KEY,
    from_ms        INTEGER NOT NULL,
    batch          INTEGER NOT NULL,
    event_index    INTEGER,
    windows_closed INTEGER NOT NULL
) STRICT;

-- receipts of what took effect: kind is 'events' or 'advance'
CREATE TABLE batches (
    batch           INTEGER PRIMARY KEY,
    kind            TEXT NOT NULL,
    token           BLOB NOT NULL UNIQUE,
    file            TEXT NOT NULL,
    source          TEXT NOT NULL,
    sha256          TEXT,
    bytes           INTEGER,
    accepted        INTEGER NOT NULL,
    late            INTEGER NOT NULL,
    duplicate       INTEGER NOT NULL,
    future          INTEGER NOT NULL,
    expired         INTEGER NOT NULL,
    watermark_ms    INTEGER NOT NULL,
    windows_closed  INTEGER NOT NULL,
    committed_at_ms INTEGER NOT NULL,
    asked_by        TEXT,
    reason          TEXT
) STRICT;

-- receipts of what was refused, in the order of refusal
CREATE TABLE refusals (
    refusal       INTEGER PRIMARY KEY,
    file          TEXT NOT NULL,
    source        TEXT NOT NULL,
    sha256        TEXT,
    bytes         INTEGER,
    refused_at_ms INTEGER NOT NULL,
    code          TEXT NOT NULL,
    message       TEXT NOT NULL
) STRICT;
