"""Three policies on one site: promises, priorities and node choice, each by another plug-in."""

from pathlib import Path

import numpy as np
import pytest

from rtsched.logs.readers import ReadOptions, read_logs
from rtsched.model.log import FinalState
from rtsched.replay.engine import replay
from rtsched.replay.measures import measure
from rtsched.replay.policies import load_site, presets
from rtsched.replay.results import PolicyRun, Workload
from rtsched.replay.workload import prepare

EXAMPLES = Path(__file__).parents[2] / "examples"
SITE = load_site(EXAMPLES / "composed.toml")
JOBS = 800


@pytest.fixture(scope="module")
def workload() -> Workload:
    """Return the first jobs of the shipped log, as the composed site takes them."""
    log = read_logs([EXAMPLES / "logs" / "cluster.swf.gz"], ReadOptions())
    whole = prepare(log, SITE.workload)
    rows = np.arange(JOBS)
    return Workload(
        whole.jobs.take(rows),
        whole.run_time[rows],
        whole.outcomes.take(rows),
        whole.cluster,
        whole.accounts,
        whole.edges.take([]),
        whole.assumptions,
        whole.skipped,
    )


@pytest.fixture(scope="module")
def run(workload: Workload) -> PolicyRun:
    """Return the composed site's replay of it."""
    return replay(workload, "site", SITE.policies()["site"])


def test_every_promise_is_kept(workload: Workload, run: PolicyRun) -> None:
    """Jobs that ste orders and sed places never get in the way of what mcdf promised."""
    promised = np.isfinite(run.results.promise)
    assert promised.sum() > 50
    late = run.results.end[promised] - run.results.promise[promised]
    assert late.max() <= 1e-6
    assert (run.results.fate[promised] == FinalState.FINISHED).all()
    assert measure(workload, run.results)["missed"] == 0


def test_each_plug_in_has_its_say(run: PolicyRun) -> None:
    """None abstains on everything, and each changes something."""
    for plugin, hook in (("mcdf", "admit"), ("ste", "fair_share"), ("sed", "partition")):
        book = run.hooks[hook][plugin]
        assert book.judged > 0
        assert book.abstained < book.judged
        assert book.changed > 0
        assert book.errors == 0


def test_best_effort_jobs_are_fairer_and_moldable_ones_sized(
    workload: Workload, run: PolicyRun
) -> None:
    """Against plain EASY: less service-time error, and jobs of other sizes than they asked for."""
    plain = measure(workload, replay(workload, "easy", presets()["easy"]).results)
    ours = measure(workload, run.results)
    assert ours["user_error_rms_node_s"] < plain["user_error_rms_node_s"]
    best_effort = ~np.isfinite(run.results.promise) & (run.results.size > 0)
    assert (run.results.size[best_effort] != workload.jobs.size[best_effort]).mean() > 0.5


def test_the_same_again(workload: Workload, run: PolicyRun) -> None:
    """Equal log, configuration and seed give equal results, to the bit."""
    again = replay(workload, "site", SITE.policies()["site"]).results
    for name in ("start", "end", "size", "first_node"):
        assert np.array_equal(getattr(again, name), getattr(run.results, name), equal_nan=True)
