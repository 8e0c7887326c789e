-- Schema 2: the nodes that the plan's rows mean stand beside it, what users left unused is kept, and
-- nothing takes longer the more promises were closed.

ALTER TABLE plan ADD COLUMN nodes TEXT;  -- a JSON list of names; NULL: in the state `rtsched`

CREATE TABLE unused (
    uid      INTEGER NOT NULL,
    standing TEXT NOT NULL,        -- of the promises or offers before they lapsed
    times    TEXT NOT NULL,        -- a JSON list: when they did
    PRIMARY KEY (uid, standing)
) WITHOUT ROWID;

DROP INDEX records_by_standing;
CREATE INDEX records_open ON records (made_at)
    WHERE standing IN ('offered', 'provisional', 'firm');
CREATE INDEX records_closed ON records (changed_at)
    WHERE NOT standing IN ('offered', 'provisional', 'firm');

CREATE TABLE counts (
    standing TEXT PRIMARY KEY,
    number   INTEGER NOT NULL      -- records that stand so
) WITHOUT ROWID;
INSERT INTO counts SELECT standing, count(*) FROM records GROUP BY standing;
CREATE TRIGGER count_made AFTER INSERT ON records BEGIN
    INSERT INTO counts SELECT new.standing, 0
        WHERE new.standing NOT IN (SELECT standing FROM counts);
    UPDATE counts SET number = number + 1 WHERE standing = new.standing;
END;
CREATE TRIGGER count_changed AFTER UPDATE OF standing ON records
WHEN old.standing <> new.standing BEGIN
    INSERT INTO counts SELECT new.standing, 0
        WHERE new.standing NOT IN (SELECT standing FROM counts);
    UPDATE counts SET number = number + 1 WHERE standing = new.standing;
    UPDATE counts SET number = number - 1 WHERE standing = old.standing;
END;
CREATE TRIGGER count_forgotten AFTER DELETE ON records BEGIN
    UPDATE counts SET number = number - 1 WHERE standing = old.standing;
END;
