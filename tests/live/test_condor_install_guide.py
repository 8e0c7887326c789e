"""The install guide for HTCondor, its commands run in order on a pool that knows nothing of us."""

import re
from pathlib import Path

import pytest
from guide import blocks, follow, unpack
from testbed import Pool, PoolOptions, SubmitError
from testbed.images import SUITES
from testbed.waiting import wait_for

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "condor" / "install.md"

# As Debian's packages leave it: no user of ours.
FORGET = """
userdel rtsched
rm -rf /var/lib/rtsched /etc/rtsched /usr/lib/rtsched /run/rtsched
# A busy test machine is slow; `make install` keeps a file that is there.
mkdir /etc/rtsched
echo timeout_ms = 5000 >/etc/rtsched/submit.conf
"""


def configuration(pool):
    """Return what HTCondor's daemons are told, by file."""
    files = sorted(pool.path("/etc/condor/config.d").rglob("*"))
    return {str(path): path.read_bytes() for path in files if path.is_file()}


def accepted(pool):
    """Return whether a job is taken, and runs to its end."""
    try:
        job = pool.submit(user="alice")
    except SubmitError:
        return False
    pool.wait_job(job)
    return True


@pytest.mark.parametrize("suite", SUITES)
def test_the_guide_leads_from_a_bare_pool_to_a_counter_offer_and_back(suite):
    """Its commands work as they stand; the last before the rollback is told a feasible deadline."""
    found = blocks(GUIDE)
    there = [block for block in found if block.section != "Rollback"]
    back = [block for block in found if block.section == "Rollback"]
    assert there
    assert back
    with Pool(suite, PoolOptions(fast=2, slow=4), software=False) as pool:
        pool.run(["sh", "-c", FORGET], check=False)
        unpack(pool, kernels=True)
        bare = configuration(pool)
        reply, last = follow(pool, there)
        assert "portfolio (shadow) would reject it" in reply["Shadow"]
        assert "1 job(s) submitted to cluster" in reply["Shadow"]
        assert "rtsched: warning: " in reply["Warn"]
        assert "1 job(s) submitted to cluster" in reply["Warn"]
        assert "rtsched: promised to end by" in reply["Enforce"]
        assert re.search(
            r"rtsched: rejected: .* Feasible: .*\+RtDeadline=\d+\), not reserved", last
        )
        follow(pool, back)
        assert configuration(pool) == bare
        wait_for("the schedd is back", lambda: accepted(pool), 60)


def test_every_command_of_the_guide_is_run():
    """A block of shell commands that the test would pass over is a mistake in the guide."""
    assert GUIDE.read_text("utf-8").count("```sh\n") == len(blocks(GUIDE))
