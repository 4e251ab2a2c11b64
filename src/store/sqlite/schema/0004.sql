-- Step 4: a time of the store's own, and what is known of sources that are only expected or retired.
-- A step that has been released is never edited: add another.

-- the time that retention measures age by: it follows the clock, never backwards, and only so fast
ALTER TABLE store ADD COLUMN trusted_ms INTEGER;

-- which events an operator settled in one batch
CREATE INDEX late_by_act ON late (applied_in, window_start_ms, key) WHERE applied_in IS NOT NULL;
CREATE INDEX settled_by_act ON settled (settled_in);
