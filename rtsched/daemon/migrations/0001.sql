-- Schema 1: promises, the plan behind them, what plug-ins remember, and recent verdicts.

CREATE TABLE records (
    token      TEXT PRIMARY KEY,   -- the admission that the job carries
    id         INTEGER NOT NULL,   -- the batch system's job id; 2^40 and above: not numbered yet
    uid        INTEGER NOT NULL,
    user       TEXT NOT NULL,
    deadline   REAL NOT NULL,      -- all times: seconds since the epoch
    made_at    REAL NOT NULL,
    standing   TEXT NOT NULL,
    changed_at REAL NOT NULL,
    why        TEXT NOT NULL,
    job        BLOB NOT NULL,      -- its row of Jobs
    expires    REAL NOT NULL       -- Infinity: never
) WITHOUT ROWID;
CREATE INDEX records_by_standing ON records (standing, changed_at);
CREATE INDEX records_by_id ON records (id);

CREATE TABLE plan (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    plan    BLOB                   -- a Schedule; NULL: none yet
);
INSERT INTO plan VALUES (1, 0, NULL);

CREATE TABLE states (
    name  TEXT PRIMARY KEY,
    state BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE journal (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    time    REAL NOT NULL,
    uid     INTEGER NOT NULL,
    token   TEXT NOT NULL,
    job     TEXT NOT NULL,
    name    TEXT NOT NULL,
    verdict TEXT NOT NULL,
    codes   TEXT NOT NULL,         -- a JSON list of reason codes
    text    TEXT NOT NULL,
    offer   REAL NOT NULL          -- Infinity: none
);
CREATE INDEX journal_by_uid ON journal (uid, number);
CREATE INDEX journal_by_job ON journal (job, number);
CREATE INDEX journal_by_token ON journal (token, number) WHERE token <> '';
