"""The short form of `benchmarks/soak.py`: nothing grows, nothing unknown is logged."""

import pytest
from soaking import GROUNDS, low, soak

SECONDS = 60.0
GROWTH = 1.1
"""In so short a time caches still fill; the benchmark's hours show whether memory stays flat."""


@pytest.mark.parametrize("system", GROUNDS)
def test_a_minute_of_everything(system: str) -> None:
    """Jobs come, go and change, nodes fail, settings are read again: the daemon goes on as it was.

    It is the process that was started, its open files are as many as before, its memory stays in
    bounds, and whatever its log holds above "info" is explained.
    """
    with GROUNDS[system](hurry=3.0) as ground:
        found = soak(ground, SECONDS, rate=3.0, every=2.0)
    figures = found.figures()
    unknown = "\n".join(figures["unexplained log lines"])
    assert not unknown, unknown
    assert figures["restarts of the daemon"] == 0
    assert figures["promised"] > 0
    assert all(found.done[name] for name in (*ground.now_and_then, "cancelled", "changed"))
    for name in ("daemon_files", "child_files"):
        quarters = found.quarters(name, low)
        assert quarters[3] <= quarters[1] + 2, figures
    for name in ("daemon_kib", "child_kib"):
        assert figures[f"{name}, last quarter over second"] < GROWTH, figures
