"""Promises with odds on a real HTCondor: accepted, rejected with a later deadline, kept."""

from collections.abc import Iterator

import pytest
from alike import Likely
from promised_pool import SITE, LivePool, live_pool

LIKELY = """
[likely]
wait = 1.5

[estimates]
refresh = 1
core_share = 1
"""

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def live() -> Iterator[LivePool]:
    """Run six slots with library and daemon."""
    with live_pool(SITE + LIKELY) as running:
        yield running


class TestLikely(Likely):
    """Promises with odds."""

    rejected = "ERROR: rtsched: rejected: the "
    choices = Likely.choices | {"guaranteed"}

    def check_counts(self, standings: dict[str, int]) -> None:
        """Check that it is the only one."""
        assert standings == {"likely kept": 1}

    def check_plain(self, live: LivePool, job: int) -> None:
        """Check that it may start on any slot."""
        ad = live.wait_status(job, "completed", seconds=90)
        assert ad.get("RtNodeSet") is None

    def test_odds_that_make_no_sense(self, live: LivePool) -> None:
        """Without a deadline, and such that are no percentages."""
        assert "RtOdds asks for a deadline" in live.submit(live.odds(95), "+RtRunTime = 20").text
        for wrong in ('"many"', "true", "-1"):
            text = live.wish(300, live.odds(wrong)).text
            assert "RtOdds must be a percentage above 0 and below 100" in text
