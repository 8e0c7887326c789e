-- Schema 4: a job of one of several schedds has a number that begins with its schedd's, so those of
-- jobs that the batch system has not numbered yet begin higher: 2^62 in place of 2^52.

UPDATE records SET id = id + 4607182418800017408 WHERE id >= 4503599627370496;

ALTER TABLE records ADD COLUMN notify TEXT NOT NULL DEFAULT '';  -- events with + between, or none
