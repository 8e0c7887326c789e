"""`rtsched condor` on a real pool that knows nothing of us: ready, and back again."""

import json

import pytest
from testbed import Pool, PoolOptions
from testbed.images import SUITES
from testbed.waiting import wait_for

SITE = """\
planner = "mcdf"

[[plugin]]
name = "mcdf"

[daemon]
system = "condor"

[condor]
run_time_s = 600
overruns = "remove"
"""
DIRECTORY = "/etc/condor/config.d"


def check(pool, *words):
    """Return exit status and findings of `rtsched condor check`."""
    done = pool.run(["rtsched", "condor", "check", "--json", *words], check=False, timeout=120)
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, json.loads(done.stdout)


def found_now(pool):
    """Return the findings alone."""
    return check(pool)[1]


def notes(found):
    """Return what is worth a note."""
    return [each["what"] for each in found if each["state"] == "note"]


def wrong(found):
    """Return what is wrong."""
    return [each["what"] for each in found if each["state"] == "wrong"]


def ours(pool):
    """Return our files in HTCondor's configuration."""
    return sorted(path.name for path in pool.path(DIRECTORY).glob("5?-rtsched*"))


@pytest.mark.parametrize("suite", SUITES)
def test_from_bare_to_ready_and_back(suite):
    """What check names is put right step by step, and uninstall leaves no trace."""
    options = PoolOptions(fast=1, slow=1, library=True)
    with Pool(suite, options, files={"/etc/rtsched/site.toml": SITE}) as pool:
        status, found = check(pool)
        assert status == 1
        assert any("50-rtsched.conf does not exist" in what for what in wrong(found))
        assert any("2 of 2 slots start jobs" in what for what in wrong(found))
        shown = pool.run(["rtsched", "condor", "install"], timeout=60)
        assert "+RTSCHED_RUN_TIME = 600" in shown.stdout
        assert ours(pool) == []
        pool.run(["rtsched", "condor", "install", "--apply"], timeout=60)
        assert ours(pool) == ["50-rtsched.conf", "51-rtsched-execute.conf"]
        pool.run(["condor_reconfig"])
        (known,) = [each["remedy"] for each in found_now(pool) if "does not know" in each["what"]]
        pool.run(["sh", "-c", known.split("`")[1]])
        pool.run(["usermod", "-aG", "condor", "rtsched"])
        wait_for("the gate", lambda: not any("start jobs" in x for x in wrong(found_now(pool))), 30)
        status, found = check(pool)
        assert ["no daemon answers" in what for what in wrong(found)] == [True], found
        assert any("/run/rtsched/slots does not exist" in what for what in notes(found))
        pool.start_daemon()
        status, found = check(pool)
        assert status == 0, wrong(found)
        wait_for("the table", lambda: not any("/slots" in x for x in notes(found_now(pool))), 60)
        assert not any("JOB_TRANSFORM_NAMES" in what for what in notes(found_now(pool)))
        assert check(pool, "--role", "central")[0] == 0
        own = pool.path(f"{DIRECTORY}/99-interval.conf")
        own.write_text("NEGOTIATOR_INTERVAL = 7200\n")  # which the negotiator has not read
        assert any("plans assume 7200 s" in what for what in notes(found_now(pool)))
        own.write_text("JOB_TRANSFORM_NAMES = $(JOB_TRANSFORM_NAMES) Late\n")
        pool.run(["condor_reconfig"])
        wait_for(
            "the note", lambda: any("applies Late in" in x for x in notes(found_now(pool))), 30
        )
        own.unlink()
        pool.run(["rtsched", "condor", "uninstall", "--apply"], timeout=60)
        assert ours(pool) == []
