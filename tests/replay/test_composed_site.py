"""One site runs deadline admission, shares for the rest, and delay classes together."""

from pathlib import Path

import numpy as np
from workloads import workload_of

from rtsched.model.jobs import Kind
from rtsched.model.snapshot import Accounts
from rtsched.replay.engine import replay
from rtsched.replay.measures import measure
from rtsched.replay.policies import load_site
from rtsched.replay.results import Workload
from rtsched.testing import make_cluster, make_jobs

SITE = """
planner = "mcdf"
system = { loop = "easy", order = "priority" }

[[plugin]]
name = "mcdf"

[[plugin]]
name = "ste"

[[plugin]]
name = "sed"
settings = { migrate = false }
"""


def workload(n: int, *, moldable: bool) -> Workload:
    """Return jobs of two users on fast and slow nodes; a fifth of them have deadlines."""
    rng = np.random.default_rng(3)
    submit, size = np.cumsum(rng.exponential(120.0, n)), rng.integers(1, 9, n)
    wall = rng.uniform(300.0, 3000.0, n)
    due = rng.random(n) < 0.2
    kind = np.where(moldable & ~due, Kind.MOLDABLE, Kind.RIGID).astype(np.int8)
    jobs = make_jobs(
        n,
        submit=submit,
        size=size,
        kind=kind,
        size_min=np.where(kind == Kind.MOLDABLE, (size + 1) // 2, -1),
        size_max=np.where(kind == Kind.MOLDABLE, 2 * size, -1),
        wall_time=wall,
        deadline=np.where(due, submit + 4 * wall, np.inf),
        association=rng.integers(0, 2, n),
    )
    accounts = Accounts.build(2, name=["ann", "bob"], shares=[3.0, 1.0], is_user=True)
    cluster = make_cluster(24, speed=[1.0] * 16 + [2.0] * 8)
    return workload_of(jobs, wall * rng.uniform(0.3, 1.0, n), cluster, accounts=accounts)


def test_all_three_act_and_every_promise_is_kept(tmp_path: Path) -> None:
    """Rigid jobs (sed is static then) and moldable ones (it is asked at every pass)."""
    path = tmp_path / "site.toml"
    path.write_text(SITE, "utf-8")
    policy = load_site(path).policies()["site"]
    for moldable in (False, True):
        work = workload(300, moldable=moldable)
        run = replay(work, "site", policy)
        values = measure(work, run.results)
        assert values["promises"] == values["promises_kept"] > 20
        assert values["missed"] == 0
        for hook, plugin in (("admit", "mcdf"), ("fair_share", "ste"), ("partition", "sed")):
            use = run.hooks[hook][plugin]
            assert use.changed > 0, plugin
            assert not use.errors, use.first_error
        best_effort = np.isinf(work.jobs.deadline)
        assert (run.results.fate[best_effort] == 0).all()
        assert (run.hooks["partition"]["sed"].calls > 1) == moldable
        assert (run.results.size != work.jobs.size)[best_effort].any() == moldable
