"""The install guide for HTCondor, its commands run in order on a pool that knows nothing of us."""

from pathlib import Path

import pytest
from guide import install
from testbed import Pool, PoolOptions, SubmitError
from testbed.images import SUITES
from testbed.waiting import wait_for

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "condor" / "install.md"


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
    with Pool(suite, PoolOptions(fast=2, slow=4), software=False) as pool:
        submitted, offer = "1 job(s) submitted to cluster", r"\+RtDeadline=\d+\), not reserved"
        install(pool, GUIDE, submitted, offer)
        wait_for("the schedd is back", lambda: accepted(pool), 60)
