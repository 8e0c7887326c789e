-- Schema 5: likely promises, with the odds that were stated; they are counted apart.

ALTER TABLE records ADD COLUMN odds REAL;  -- 0 to 1; NULL: a guaranteed promise
CREATE INDEX records_likely ON records (odds, standing) WHERE odds IS NOT NULL;

DROP TRIGGER count_made;
DROP TRIGGER count_changed;
DROP TRIGGER count_forgotten;
CREATE TRIGGER count_made AFTER INSERT ON records BEGIN
    INSERT INTO counts SELECT iif(new.odds IS NULL, '', 'likely ') || new.standing, 0
        WHERE iif(new.odds IS NULL, '', 'likely ') || new.standing
            NOT IN (SELECT standing FROM counts);
    UPDATE counts SET number = number + 1
        WHERE standing = iif(new.odds IS NULL, '', 'likely ') || new.standing;
END;
CREATE TRIGGER count_changed AFTER UPDATE OF standing ON records
WHEN old.standing <> new.standing BEGIN
    INSERT INTO counts SELECT iif(new.odds IS NULL, '', 'likely ') || new.standing, 0
        WHERE iif(new.odds IS NULL, '', 'likely ') || new.standing
            NOT IN (SELECT standing FROM counts);
    UPDATE counts SET number = number + 1
        WHERE standing = iif(new.odds IS NULL, '', 'likely ') || new.standing;
    UPDATE counts SET number = number - 1
        WHERE standing = iif(old.odds IS NULL, '', 'likely ') || old.standing;
END;
CREATE TRIGGER count_forgotten AFTER DELETE ON records BEGIN
    UPDATE counts SET number = number - 1
        WHERE standing = iif(old.odds IS NULL, '', 'likely ') || old.standing;
END;
