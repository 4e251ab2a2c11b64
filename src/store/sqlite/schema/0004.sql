-- Step 4: a time of the store's own, and what is known of sources that are only expected or retired.
-- A step that has been released is never edited: add another.

-- the time that retention measures age by: it follows the clock, never backwards, and only so fast
ALTER TABLE store ADD COLUMN trusted_ms INTEGER;
