-- Step 4: a time of the store's own, and what is known of sources that are only expected or retired.
-- A step that has been released is never edited: add another.

-- the time that retention measures age by: it follows the clock, never backwards, and only so fast
ALTER TABLE store ADD COLUMN trusted_ms INTEGER;
-- of an older store: when it was last written to, by its last receipt; the clock of this moment is
-- not asked, since it may be wrong
UPDATE store SET trusted_ms = coalesce(
    (SELECT committed_at_ms FROM batches ORDER BY batch DESC LIMIT 1),
    last_ingest_at_ms,
    (SELECT refused_at_ms FROM refusals ORDER BY refusal DESC LIMIT 1)
);

-- which events an operator settled in one batch
CREATE INDEX late_by_act ON late (applied_in, window_start_ms, key) WHERE applied_in IS NOT NULL;
CREATE INDEX settled_by_act ON settled (settled_in);

-- what retention took away, by kind of row: together with what is there it adds up to all that there
-- ever was, so that a row that damage took is told from one that retention took. rows is how many;
-- up_to is the greatest batch, start or time that may be gone; the sums are those of the rows that
-- went
CREATE TABLE removed (
    kind           TEXT PRIMARY KEY,
    rows           INTEGER NOT NULL,
    up_to          INTEGER,
    batches        INTEGER NOT NULL DEFAULT 0,
    accepted       INTEGER NOT NULL DEFAULT 0,
    late           INTEGER NOT NULL DEFAULT 0,
    duplicate      INTEGER NOT NULL DEFAULT 0,
    future         INTEGER NOT NULL DEFAULT 0,
    expired        INTEGER NOT NULL DEFAULT 0,
    released       INTEGER NOT NULL DEFAULT 0,
    windows_closed INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- what an older version took away is what is missing now; ids are counted by the program
INSERT INTO removed (kind, rows, up_to, batches, accepted, late, duplicate, future, expired)
SELECT 'receipts', last_number - there, CASE WHEN last_number > there
    THEN MAX(last_number - 10000, 0) END, batches - r.of_events, s.accepted - r.accepted,
    s.late - r.late, s.duplicate - r.duplicate, s.future - r.future, s.expired - r.expired
FROM store s, (SELECT COUNT(*) AS there, COALESCE(SUM(kind = 'events'), 0) AS of_events,
    COALESCE(SUM(CASE WHEN kind IN ('events', 'release') THEN accepted END), 0) AS accepted,
    COALESCE(SUM(CASE WHEN kind IN ('events', 'release') THEN late END), 0) AS late,
    COALESCE(SUM(CASE WHEN kind IN ('events', 'release') THEN duplicate END), 0) AS duplicate,
    COALESCE(SUM(CASE kind WHEN 'events' THEN future
        WHEN 'release' THEN -(accepted + late + duplicate + expired) END), 0) AS future,
    COALESCE(SUM(CASE WHEN kind IN ('events', 'release') THEN expired END), 0) AS expired
    FROM batches) r;

INSERT INTO removed (kind, rows, up_to) SELECT 'windows', 0, pruned_start_ms FROM store;

INSERT INTO removed (kind, rows)
SELECT 'late', CASE late_policy WHEN 'aside' THEN late - late_kept ELSE 0 END FROM store;

INSERT INTO removed (kind, rows, up_to, windows_closed)
SELECT 'moves', 0, CASE WHEN pruned_start_ms IS NOT NULL
    THEN COALESCE((SELECT MIN(to_ms) - 1 FROM moves), watermark_ms) END,
    (SELECT COALESCE(SUM(windows_closed), 0) FROM batches)
    - (SELECT COALESCE(SUM(windows_closed), 0) FROM moves) FROM store;

INSERT INTO removed (kind, rows, up_to)
SELECT 'refusals', refused_batches - there, CASE WHEN refused_batches > there
    THEN COALESCE((SELECT refused_at_ms + 1 FROM refusals ORDER BY refusal LIMIT 1), 0) END
FROM store, (SELECT COUNT(*) AS there FROM refusals);

INSERT INTO removed (kind, rows, released)
SELECT 'settled', s.future - s.held - gone.discarded + gone.released, gone.released
FROM store s, (SELECT (SELECT COUNT(*) FROM settled WHERE settlement = 'discarded') AS discarded,
    (SELECT COALESCE(SUM(accepted + late + duplicate + future + expired), 0) FROM batches
    WHERE kind = 'release') - (SELECT COUNT(*) FROM settled WHERE settlement = 'released')
    AS released) gone;

INSERT INTO removed (kind, rows, up_to)
SELECT 'presence', 0, (SELECT MAX(at_ms) + 1 FROM (SELECT committed_at_ms AS at_ms FROM batches b
    WHERE kind IN ('declare', 'idle', 'active') AND NOT EXISTS
    (SELECT 1 FROM presence p WHERE p.batch = b.batch)
    UNION ALL SELECT presence_since_ms FROM sources WHERE NOT EXISTS
    (SELECT 1 FROM presence p WHERE p.source = sources.name))) FROM store;

-- how many sources are known: events of them came, or they were declared
ALTER TABLE store ADD COLUMN sources INTEGER NOT NULL DEFAULT 0;

UPDATE store SET sources =
    (SELECT COUNT(*) FROM sources WHERE declared = 1 OR last_batch IS NOT NULL);

-- idle because an operator retired it
ALTER TABLE sources ADD COLUMN retired INTEGER NOT NULL DEFAULT 0;
-- 1: the watermark waits for its first event, since files of it wait in the inbox; 2: that is over
ALTER TABLE sources ADD COLUMN expected INTEGER NOT NULL DEFAULT 0;
-- the last batch that named it, declared it or took it back
ALTER TABLE sources ADD COLUMN heard_in INTEGER NOT NULL DEFAULT 0;

UPDATE sources SET heard_in = MAX(COALESCE(last_batch, 0), COALESCE((SELECT MAX(batch) FROM presence
    WHERE presence.source = sources.name AND presence.presence IN ('declared', 'active')), 0));

-- which source was heard of the longest ago, and which were in the batch that ends
CREATE INDEX sources_by_heard ON sources (heard_in) WHERE idle = 0;

-- whether the watermark waits for a source that has sent nothing
CREATE INDEX sources_awaited ON sources (name)
    WHERE idle = 0 AND max_timestamp_ms IS NULL AND (declared = 1 OR expected = 1);

-- which source is the furthest ahead, and which of those that are not idle is the furthest behind:
-- one index for both, since each batch writes to it
DROP INDEX sources_by_time;
DROP INDEX sources_active;
CREATE INDEX sources_by_time ON sources (idle, max_timestamp_ms);
