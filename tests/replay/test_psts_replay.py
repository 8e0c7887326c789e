"""The policy psts in a replay: all jobs run, it has opinions, unequal nodes are used well."""

import msgspec
import numpy as np
import pytest
from workloads import workload_of

from rtsched.core.config import PluginTable
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.log import FinalState
from rtsched.replay.engine import replay
from rtsched.replay.policies import Policy, presets
from rtsched.replay.results import PolicyRun, Workload


def workload(widest: int = 8, seed: int = 3) -> Workload:
    """Return 200 jobs on 16 nodes of speed 1, 2 and 4, many of which end early."""
    rng = np.random.default_rng(seed)
    n = 200
    run = np.ceil(rng.lognormal(6, 1, n))
    submit = np.cumsum(rng.integers(0, 60, n)).astype(np.float64)
    jobs = Jobs.build(
        n,
        id=np.arange(n),
        submit=submit,
        wall_time=np.ceil(run * rng.uniform(1, 4, n)),
        size=rng.integers(1, widest + 1, n),
    )
    cluster = Cluster(Nodes.build(16, speed=[1.0] * 8 + [2.0] * 4 + [4.0] * 4))
    return workload_of(jobs, run, cluster)


def run(work: Workload, **settings: object) -> PolicyRun:
    """Replay under the preset, with other settings where some are given."""
    policy = presets()["psts"]
    plugin = [PluginTable("psts", settings=settings)]
    return replay(work, "psts", msgspec.structs.replace(policy, plugin=plugin))


def mean_response(work: Workload, done: PolicyRun) -> float:
    """Return the mean time from submission to end, seconds."""
    return float((done.results.end - work.jobs.submit).mean())


@pytest.mark.parametrize("binding", ["soft", "strict"])
@pytest.mark.parametrize("widest", [1, 8, 16])
def test_all_jobs_run_to_their_end(binding: str, widest: int) -> None:
    """Nobody starves, wide or narrow; every row asked about gets an opinion; nothing fails."""
    work = workload(widest)
    done = run(work, binding=binding, comm_step=0.0, comp_step=0.0, least_imbalance=0.0)
    assert (done.results.fate == FinalState.FINISHED).all()
    book = done.hooks["partition"]["psts"]
    assert book.judged > 0
    assert book.abstained == 0
    assert not book.errors
    assert not done.hooks["observe"]["psts"].errors


def test_scans_are_made_and_move_jobs() -> None:
    """Bound jobs of one node whose neighbours end early are moved."""
    quiet = run(workload(1), binding="strict", comm_step=1e9)
    moved = run(workload(1), binding="strict", comm_step=0.0, comp_step=0.0)
    assert mean_response(workload(1), moved) < mean_response(workload(1), quiet)


def test_fast_nodes_are_taken_first() -> None:
    """On nodes of unequal speed jobs end sooner than under EASY, which takes the lowest rows."""
    work = workload(1)
    plain = replay(work, "easy", Policy(system=presets()["easy"].system))
    assert mean_response(work, run(work)) < mean_response(work, plain)


def test_equal_runs_are_equal() -> None:
    """The same workload comes out the same."""
    one, other = run(workload()), run(workload())
    assert np.array_equal(one.results.start, other.results.start)
    assert np.array_equal(one.node_rows[1], other.node_rows[1])
