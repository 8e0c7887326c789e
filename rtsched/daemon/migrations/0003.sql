-- Schema 3: which daemon may write, where those of several controllers share the file.

CREATE TABLE holder (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    epoch INTEGER NOT NULL,        -- grows with each daemon that takes the file over
    host  TEXT NOT NULL            -- of the daemon that did so last; empty: none shares the file
);
INSERT INTO holder VALUES (1, 0, '');
