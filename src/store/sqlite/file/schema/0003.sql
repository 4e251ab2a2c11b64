-- Step 3: the ledger as entries in the order in which they came and runs of sorted ids; windows and
-- accounts of the last batches apart from the tables. A step that has been released is never edited:
-- add another.

-- the secret under which ids are hashed: nobody outside can make up ids that collide
ALTER TABLE store ADD COLUMN hash_key BLOB NOT NULL DEFAULT x'';
-- the position behind all that were ever given to entries
ALTER TABLE store ADD COLUMN next_position INTEGER NOT NULL DEFAULT 0;
-- rises when something is taken away, so that others see that what they have in memory is old
ALTER TABLE store ADD COLUMN removals INTEGER NOT NULL DEFAULT 0;

UPDATE store SET hash_key = randomblob(16);

-- what came with ids, packed, in rows that fill a page; first is the position of the first of them
CREATE TABLE ledger_entries (
    first   INTEGER PRIMARY KEY,
    entries BLOB NOT NULL
) STRICT;

-- runs of sorted ids: level 1 was made of what came last, higher ones merged from others, level 0 is
-- being made; each speaks of the entries from the position first up to before behind
CREATE TABLE ledger_runs (
    run      INTEGER PRIMARY KEY,
    level    INTEGER NOT NULL,
    first    INTEGER NOT NULL,
    behind   INTEGER NOT NULL,
    parts    INTEGER NOT NULL,
    ids      INTEGER NOT NULL,
    least_ms INTEGER NOT NULL
) STRICT;

-- part p of run r has the number r * 2^24 + p; each id has 8 bytes: 40 bits of its hash, and its
-- place behind the first entry of the run
CREATE TABLE ledger_parts (
    part INTEGER PRIMARY KEY,
    ids  BLOB NOT NULL
) STRICT;

-- for each run what says of most new ids that they are not in it
CREATE TABLE ledger_filters (
    run  INTEGER PRIMARY KEY,
    bits BLOB NOT NULL
) STRICT;

-- what chunks made of windows and accounts that is not in these tables yet, packed
CREATE TABLE recent (
    chunk   INTEGER PRIMARY KEY,
    changes BLOB NOT NULL
) STRICT;
