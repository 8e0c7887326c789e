-- Schema 6: a commit writes what of the plan changed, not all of it, and nothing beside its version.

CREATE TABLE plan_parts (
    number INTEGER PRIMARY KEY,
    part   BLOB NOT NULL           -- 0: a Schedule; the others, in order: what changed in it
);
INSERT INTO plan_parts SELECT 0, plan FROM plan WHERE plan IS NOT NULL;

CREATE TABLE plan_nodes (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    names TEXT NOT NULL            -- a JSON list; no row: in the state `rtsched`
);
INSERT INTO plan_nodes SELECT 1, nodes FROM plan WHERE nodes IS NOT NULL;

CREATE TABLE ledger (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL
);
INSERT INTO ledger SELECT 1, version FROM plan;
DROP TABLE plan;
