-- Step 2: event time in depth: revisions of windows, sources that come and go, held and late events
-- that are settled, and what retention has to know. A step that has been released is never edited:
-- add another.

ALTER TABLE store ADD COLUMN corrected_windows INTEGER NOT NULL DEFAULT 0;
-- how many of the late events that are kept are part of a revision; a process of the version before
-- that has the store open still counts the others rightly
ALTER TABLE store ADD COLUMN late_applied INTEGER NOT NULL DEFAULT 0;
-- the greatest start of a window that was pruned: up to there a missing window may have held
-- something
ALTER TABLE store ADD COLUMN pruned_start_ms INTEGER;

-- how often a window was corrected since it was final, and the batch that did so last
ALTER TABLE windows ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;
ALTER TABLE windows ADD COLUMN revised_in INTEGER;

-- what a window held in each revision but the present one, and the batch that made the next
CREATE TABLE revisions (
    start_ms     INTEGER NOT NULL,
    key          TEXT NOT NULL,
    revision     INTEGER NOT NULL,
    count        INTEGER NOT NULL,
    sum          INTEGER NOT NULL,
    min          INTEGER NOT NULL,
    max          INTEGER NOT NULL,
    corrected_in INTEGER NOT NULL,
    PRIMARY KEY (start_ms, key, revision)
) STRICT, WITHOUT ROWID;

-- the batch in which a late event became part of a revision
ALTER TABLE late ADD COLUMN applied_in INTEGER;

-- answers which late events a window has
CREATE INDEX late_by_window ON late (window_start_ms, key);

-- what became of events that were held, with what they were
CREATE TABLE settled (
    batch            INTEGER NOT NULL,
    event_index      INTEGER NOT NULL,
    settlement       TEXT NOT NULL,
    settled_in       INTEGER NOT NULL,
    at_ms            INTEGER NOT NULL,
    id               TEXT NOT NULL,
    key              TEXT NOT NULL,
    timestamp_ms     INTEGER NOT NULL,
    value            INTEGER NOT NULL,
    source           TEXT NOT NULL,
    producer_version TEXT,
    PRIMARY KEY (batch, event_index)
) STRICT, WITHOUT ROWID;

-- how sources came and went, in order
CREATE TABLE presence (
    batch       INTEGER NOT NULL,
    ordinal     INTEGER NOT NULL,
    source      TEXT NOT NULL,
    presence    TEXT NOT NULL,
    event_index INTEGER,
    at_ms       INTEGER NOT NULL,
    PRIMARY KEY (batch, ordinal)
) STRICT, WITHOUT ROWID;

CREATE INDEX presence_by_source ON presence (source, batch, ordinal);

-- a source that was only declared has had no batch; NOT NULL cannot be taken off a column
CREATE TABLE sources_with_presence (
    name              TEXT PRIMARY KEY,
    max_timestamp_ms  INTEGER,
    declared          INTEGER NOT NULL DEFAULT 0,
    idle              INTEGER NOT NULL DEFAULT 0,
    presence_since_ms INTEGER,
    accepted          INTEGER NOT NULL DEFAULT 0,
    late              INTEGER NOT NULL DEFAULT 0,
    duplicate         INTEGER NOT NULL DEFAULT 0,
    future            INTEGER NOT NULL DEFAULT 0,
    expired           INTEGER NOT NULL DEFAULT 0,
    last_batch        INTEGER,
    last_batch_at_ms  INTEGER,
    last_file         TEXT
) STRICT, WITHOUT ROWID;

INSERT INTO sources_with_presence (name, max_timestamp_ms, accepted, late, duplicate, future,
    expired, last_batch, last_batch_at_ms, last_file)
SELECT name, max_timestamp_ms, accepted, late, duplicate, future, expired, last_batch,
    last_batch_at_ms, last_file FROM sources;

DROP TABLE sources;

ALTER TABLE sources_with_presence RENAME TO sources;

-- which source is the furthest ahead; which of those that are not idle is the furthest behind, and
-- whether one of them has sent nothing
CREATE INDEX sources_by_time ON sources (max_timestamp_ms);

CREATE INDEX sources_active ON sources (max_timestamp_ms) WHERE idle = 0;

-- what each source sent of each key; last_seen_ms is how far event time had come with the last of it
CREATE TABLE accounts (
    source       TEXT NOT NULL,
    key          TEXT NOT NULL,
    accepted     INTEGER NOT NULL,
    late         INTEGER NOT NULL,
    duplicate    INTEGER NOT NULL,
    future       INTEGER NOT NULL,
    expired      INTEGER NOT NULL,
    last_seen_ms INTEGER NOT NULL,
    PRIMARY KEY (source, key)
) STRICT, WITHOUT ROWID;

-- what each source sent that is not told apart by key: its accounts were pruned, or it came before
-- there were any. With the accounts it adds up to the counts of the source
CREATE TABLE pruned_accounts (
    source    TEXT PRIMARY KEY,
    accepted  INTEGER NOT NULL,
    late      INTEGER NOT NULL,
    duplicate INTEGER NOT NULL,
    future    INTEGER NOT NULL,
    expired   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- answers whether events of an account are held
CREATE INDEX held_by_account ON held (source, key);

-- of version 1 only the held events have their keys with them: they begin the accounts
INSERT INTO accounts (source, key, accepted, late, duplicate, future, expired, last_seen_ms)
SELECT source, key, 0, 0, 0, COUNT(*), 0, (SELECT watermark_ms FROM store)
FROM held GROUP BY source, key;

INSERT INTO pruned_accounts (source, accepted, late, duplicate, future, expired)
SELECT name, accepted, late, duplicate,
    future - (SELECT COUNT(*) FROM held WHERE held.source = sources.name), expired
FROM sources WHERE accepted + late + duplicate + future + expired > 0;
