"""The pure part of `explain`: what the results say of one job."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.model.jobs import Jobs
from rtsched.model.log import FinalState
from rtsched.replay.decisions import close_matches, explain, find
from rtsched.replay.results import Results

INF, NAN = np.inf, np.nan


def small():
    """Return eight jobs on ten nodes, and what EASY made of them.

    Row 0 takes the machine but two nodes until 100; row 1 waits for it; row 2 fits beside it, row
    3 is turned away; rows 4 and 6 wait behind 1, 5 passes them, 7 is wider than the machine.
    """
    n = 8
    jobs = Jobs.build(
        n,
        id=np.arange(10, 10 + n),
        label=["a", "b", "c", "d", "e_1", "f", "g", None],
        submit=[0.0, 10, 10, 20, 30, 40, 50, 60],
        wall_time=[100.0, 50, INF, 10, 20, 10, 20, 1],
        size=[8, 10, 2, 1, 4, 2, 6, 11],
        deadline=[INF, INF, INF, 25, INF, INF, 150, INF],
    )
    start = [0.0, 100, 10, NAN, 150, 40, 150, NAN]
    end = [100.0, 150, 30, NAN, 170, 50, 170, NAN]
    fate = [FinalState.FINISHED] * n
    fate[3], fate[7] = FinalState.REJECTED, FinalState.UNFINISHED
    size = np.where(np.isfinite(start), jobs.size, 0).astype(np.int32)
    return jobs, Results.build(n, start=start, end=end, size=size, fate=np.array(fate, np.int8))


def test_what_a_job_met():
    """Free nodes, running and waiting jobs are those at its submission, itself left out."""
    jobs, results = small()
    why = explain(jobs, results, 4, 10)
    assert (why.met.machine, why.met.busy, why.met.free) == (10, 8, 2)
    assert (why.met.running, why.met.running_work) == (1, 8 * 70.0)
    assert (why.met.waiting, why.met.waiting_work) == (1, 10 * 50.0)
    assert why.wait == 120


def test_who_was_ahead_and_who_passed():
    """Ahead are earlier jobs that started first; later ones that did so passed it."""
    jobs, results = small()
    why = explain(jobs, results, 4, 10)
    assert why.ahead.tolist() == [1]
    assert why.overtook.tolist() == [5]
    assert why.overtook_work == 2 * 10.0
    assert why.made_way.tolist() == [1]


def test_job_that_starts_at_once():
    """Nobody is ahead of it, nobody passes it."""
    jobs, results = small()
    why = explain(jobs, results, 2, 10)
    assert why.wait == 0
    assert not len(why.ahead)
    assert not len(why.overtook)


def test_rejected_job():
    """Nobody passes a job that was turned away, and it passes nobody."""
    jobs, results = small()
    why = explain(jobs, results, 3, 10, [{"plugin": "p"}])
    assert why.fate is FinalState.REJECTED
    assert not len(why.overtook)
    assert why.decisions == [{"plugin": "p"}]
    assert 3 not in explain(jobs, results, 1, 10).overtook


def test_job_that_never_starts():
    """All who wait with it and start are ahead; its wait has no length."""
    jobs, results = small()
    why = explain(jobs, results, 7, 10)
    assert np.isnan(why.wait)
    assert sorted(why.ahead.tolist()) == [1, 4, 6]
    assert why.asked > why.met.machine


def test_lateness():
    """Negative in time, positive too late, nan without a deadline."""
    jobs, results = small()
    assert explain(jobs, results, 6, 10).lateness == 20
    assert np.isnan(explain(jobs, results, 0, 10).lateness)


def test_unlimited_jobs_count_with_what_they_took():
    """A waiting job without a time limit adds the work it really did."""
    jobs = Jobs.build(3, id=[0, 1, 2], submit=[0.0, 0, 0], size=[1, 1, 1])
    results = Results.build(3, start=[0.0, 5, 7], end=[5.0, 7, 8], size=[1, 1, 1])
    assert explain(jobs, results, 2, 1).met.waiting_work == 2


@given(st.data())
def test_counts_agree_with_a_plain_loop(data):
    """On any results the arrays give what counting job by job gives."""
    n = data.draw(st.integers(1, 12))
    draw = st.lists(st.integers(0, 6), min_size=n, max_size=n)
    submit = sorted(data.draw(draw))
    start = [s + w for s, w in zip(submit, data.draw(draw), strict=True)]
    end = [s + r for s, r in zip(start, data.draw(draw), strict=True)]
    never = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    fate = [FinalState.REJECTED if gone else FinalState.FINISHED for gone in never]
    row = data.draw(st.integers(0, n - 1))
    jobs = Jobs.build(n, id=np.arange(n), submit=np.array(submit, float), wall_time=1.0)
    results = Results.build(
        n,
        start=np.where(never, NAN, start),
        end=np.where(never, NAN, end),
        size=np.ones(n, np.int32),
        fate=np.array(fate, np.int8),
    )
    why = explain(jobs, results, row, n)
    now, others = submit[row], [k for k in range(n) if not never[k] and k != row]
    waiting = [k for k in others if k < row and start[k] > now]
    assert why.met.waiting == len(waiting)
    running = [
        k for k in others if end[k] > now and (start[k] < now or (start[k] == now and k < row))
    ]
    assert why.met.busy == len(running)
    if not never[row]:
        assert sorted(why.ahead) == [k for k in waiting if start[k] < start[row]]
        assert sorted(why.overtook) == [k for k in others if k > row and start[k] < start[row]]


def test_find_by_label_then_by_id():
    """A job is found by the batch system's name, else by its number."""
    jobs, _ = small()
    assert find(jobs, "e_1") == [4]
    assert find(jobs, "17") == [7]
    assert find(jobs, "nobody") == []
    assert find(jobs, "9" * 40) == []


def test_find_returns_every_job_of_a_name():
    """Two jobs of one name (a log over several clusters) are both found."""
    jobs = Jobs.build(3, id=[1, 2, 3], label=["7", "8", "7"], submit=[0.0, 1, 2])
    assert find(jobs, "7") == [0, 2]


@pytest.mark.parametrize(
    ("name", "close"), [("e", ["e_1"]), ("18", ["17"]), ("zzz", []), ("1" * 5000, [])]
)
def test_close_matches(name, close):
    """An unknown name gets the nearest numbers and the names that look like it."""
    jobs, _ = small()
    assert close_matches(jobs, name) == close


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("13", ["13.0", "13.1", "12.0"]),
        ("14.0", ["13.0", "13.1", "12.0"]),
        ("host#13.5", ["13.0", "13.1", "12.0"]),
        ("1", ["13.0", "13.1", "12.0"]),
    ],
)
def test_close_matches_are_real_names(name, close):
    """The batch system's names are suggested, never ids that only rtsched knows."""
    jobs = Jobs.build(4, id=np.arange(4), label=["13.0", "13.1", "12.0", "12.1"])
    assert close_matches(jobs, name) == close
    assert all(find(jobs, each) for each in close)


def test_service_on_shared_nodes():
    """Work of others counts as far as they were served."""
    jobs, results = small()
    service = np.full(len(jobs), np.nan)
    service[0], service[5] = 8 * 100 / 4, 2 * 10 / 2
    served = results.replace(service=service)
    why = explain(jobs, served, 4, 10, shared=True)
    assert (why.met.shared, why.met.free, why.met.running_work) == (True, 10, 8 * 70.0 / 4)
    assert why.overtook_work == 2 * 10.0 / 2
    assert (explain(jobs, served, 0, 10).whole, explain(jobs, served, 0, 10).served) == (800, 200)
