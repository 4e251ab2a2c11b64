-- Step 3: the ledger as sorted runs. A step that has been released is never edited: add another.

-- the secret under which ids are hashed: nobody outside can make up ids that collide
ALTER TABLE store ADD COLUMN hash_key BLOB NOT NULL DEFAULT x'';

UPDATE store SET hash_key = randomblob(16);
