"""What comes of rejecting, and what of the plan: the baseline with only the accepted jobs."""

from __future__ import annotations

import numpy as np
import pytest

from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.log import Outcomes, Skipped
from rtsched.model.snapshot import Accounts
from rtsched.replay.engine import replay, with_baseline_waits
from rtsched.replay.policies import presets
from rtsched.replay.results import Workload
from rtsched.report.html import sentences
from rtsched.report.summary import summarise


def four_jobs(node_count: int = 1) -> Workload:
    """Return jobs of one node each, of which the second cannot end in time behind the first."""
    jobs = Jobs.build(
        4,
        id=[1, 2, 3, 4],
        submit=[0.0, 0.0, 10.0, 20.0],
        size=1,
        wall_time=[100.0, 100.0, 50.0, 10.0],
        deadline=[100.0, 150.0, 1000.0, 115.0],
    )
    nobody, cluster = Accounts.build(0), Cluster.uniform(node_count)
    return Workload(
        jobs, jobs.wall_time, Outcomes.build(4), cluster, nobody, Edges.build(0), (), Skipped()
    )


def waits(work: Workload, *names: str) -> dict[str, float | None]:
    """Return `baseline_wait` by policy; the first is the baseline."""
    known = {name: presets()[name] for name in names}
    runs = [replay(work, name, policy) for name, policy in known.items()]
    return {run.policy: run.baseline_wait for run in with_baseline_waits(work, runs, known)}


@pytest.mark.parametrize("base", ["easy", "multifactor", "conservative"])
def test_the_baseline_alone_with_the_accepted_jobs(base: str) -> None:
    """First come first served, all start at 0, 100, 200, 250 s; jobs 1, 3, 4 at 0, 100, 150 s.

    They wait 0, 90 and 130 s then. By plan job 4 is before job 3: 0, 100 and 80 s.
    """
    work, names = four_jobs(), (base, "edf-mn")
    alone, whole = (0 + 90 + 130) / 3, (0 + 100 + 190 + 230) / 4
    found = waits(work, *names, "edf-easy")
    assert found == pytest.approx({base: whole, "edf-mn": alone, "edf-easy": whole})
    known = {name: presets()[name] for name in names}
    runs = [replay(work, name, policy) for name, policy in known.items()]
    summary = summarise(work, with_baseline_waits(work, runs, known))
    measures = summary.measures("edf-mn")
    assert summary.measures(base)["mean_wait_s"] == pytest.approx(whole)
    assert measures["mean_wait_s"] == pytest.approx((0 + 100 + 80) / 3)
    assert measures["mean_baseline_wait_s"] == pytest.approx(alone)
    notes = (
        f"1m 00s, but 25.0 % of them are rejected; under {base} the others alone would wait 1m 13s."
    )
    assert any(sentence.endswith(notes) for sentence in sentences(summary))


def test_where_nothing_is_rejected_or_the_baseline_plans() -> None:
    """Nothing is known then, nor where rejected jobs run on."""
    assert waits(four_jobs(4), "easy", "edf-mn") == {"easy": None, "edf-mn": None}
    assert waits(four_jobs(), "edf-mn", "easy") == {"edf-mn": None, "easy": None}
    assert waits(four_jobs(), "easy", "portfolio-run") == {"easy": None, "portfolio-run": None}
    assert with_baseline_waits(four_jobs(), [], {}) == []


def test_all_that_are_left_out_never_start() -> None:
    """They are rejected at their submission, also where plug-ins are asked."""
    work, absent = four_jobs(), np.array([True, False, False, True])
    for name in ("easy", "multifactor", "rr", "sed"):
        results = replay(work, name, presets()[name], absent=absent).results
        assert np.array_equal(np.isnan(results.start), absent)
