"""The past: what is taken in, and what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rtsched.estimates import run_times as module
from rtsched.estimates.run_times import History
from rtsched.model.log import Log, Outcomes
from rtsched.testing import make_jobs

if TYPE_CHECKING:
    from rtsched.model.jobs import Jobs

HOUR = 3600.0


def log_of(ids: list[int], end: list[float], run_time: float = 60.0, **columns: Any) -> Log:
    """Return jobs that ended."""
    ends = np.array(end)
    given = {"id": ids, "submit": ends - 100.0 - run_time, "user": "ann"} | columns
    jobs: Jobs = make_jobs(len(ids), **given)
    outcomes = Outcomes.build(len(ids), start=ends - run_time, end=ends)
    return Log(jobs, outcomes, (), "test")


def known(*logs: Log, since: float = -np.inf) -> History:
    """Return what is known after these logs."""
    found = History()
    for log in logs:
        found.learn(log, since)
    return found


def test_known_jobs_are_passed_over() -> None:
    """A job of two logs counts once; one that ran again counts again."""
    found = known(log_of([1, 2], [500.0, 600.0]), log_of([2, 3], [600.0, 700.0]))
    assert found.end.tolist() == [500.0, 600.0, 700.0]
    found.learn(log_of([2], [900.0]), -np.inf)
    assert len(found.jobs) == 4


def test_logs_out_of_order() -> None:
    """It is the same past, whichever day is read first."""
    first, second = log_of([1, 2], [500.0, 600.0], 200.0), log_of([3, 4], [900.0, 800.0])
    one, two = known(first, second), known(second, first)
    assert one.jobs.submit.tolist() == two.jobs.submit.tolist() == sorted(one.jobs.submit)
    assert one.run_time.tolist() == two.run_time.tolist()
    new = make_jobs(1, user="ann")
    assert one.run_times.distributions(new).tolist() == two.run_times.distributions(new).tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        log_of([9], [1e6], 11 * HOUR),
        log_of([9], [1e6], 0.0),
        log_of([9], [1e6], -5.0),
        log_of([9], [np.nan]),
        log_of([9], [np.inf]),
        log_of([9], [1e6], submit=[1e6 + 1.0]),
        log_of([9], [1e6], submit=[np.nan]),
        log_of([9], [1e6], size=[0]),
    ],
)
def test_what_cannot_be(wrong: Log) -> None:
    """Absurd run times and clocks are left out."""
    assert len(known(wrong).jobs) == 0


def test_a_job_that_outlived_its_requested_time() -> None:
    """Up to ten hours, for a request of an hour, it is believed."""
    assert known(log_of([9], [1e6], 10 * HOUR)).run_time.tolist() == [10 * HOUR]


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many jobs the latest remain, in order of their submissions."""
    monkeypatch.setattr(module, "MOST", 10)
    found = known(log_of(list(range(50)), np.linspace(1e6, 1.0, 50).tolist()))
    assert len(found.jobs) == 10
    assert found.end.min() > 0.7e6
    assert (np.diff(found.jobs.submit) >= 0.0).all()


def test_what_is_known_to_be_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not more of it than jobs; those that were dropped do not come back, in whatever order.

    The same log read once more changes nothing.
    """
    monkeypatch.setattr(module, "MOST", 10)
    logs = [log_of([day * 5 + k for k in range(5)], [1e6 + 100.0 * day] * 5) for day in range(9)]
    found = known(*logs[4:], *reversed(logs[:4]))
    again = known(*logs[4:], *reversed(logs[:4]), *logs)
    for each in (found, again):
        assert each.end.tolist() == [1e6 + 700.0] * 5 + [1e6 + 800.0] * 5
        assert len(each._known) <= 10
    found.learn(log_of([99], [1e6 + 900.0]), -np.inf)
    found.learn(logs[7], -np.inf)  # some of these were dropped for it
    assert found.end.tolist() == [1e6 + 700.0] * 4 + [1e6 + 800.0] * 5 + [1e6 + 900.0]
    assert len(found._known) <= 10


def test_old_jobs_are_forgotten() -> None:
    """Those before a time, whether they come late or grow old."""
    found = known(log_of([1, 2], [500.0, 5000.0]), since=1000.0)
    assert found.end.tolist() == [5000.0]
    found.forget(6000.0, np.inf)
    assert len(found.jobs) == 0


def test_ends_in_the_future() -> None:
    """A few are dropped; if all are, it is the present clock that is wrong."""
    found = known(log_of([1, 2, 3], [500.0, 600.0, 1e9]))
    found.forget(0.0, 1000.0)
    assert found.end.tolist() == [500.0, 600.0]
    found.forget(0.0, 100.0)
    assert len(found.jobs) == 2


def test_an_empty_log() -> None:
    """Nothing is learnt."""
    assert len(known(log_of([], [])).jobs) == 0
