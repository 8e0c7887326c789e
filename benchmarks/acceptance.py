"""How many jobs planners admit of those that exact admission does, where jobs share nodes.

    python benchmarks/acceptance.py [--instances N] [--jobs N] [--policy NAME]... [--seed N]
        [--json FILE]

Random instances of a few jobs with deadlines, which arrive one after the other at two or three
nodes with cores, memory and GPUs. Each runs for as long as it asks for. The policies are replayed
as `rtsched replay` does it; exact admission is a search over all orders and nodes
(tests/exact_admission.py). Both follow their own decisions: *admitted* adds up what becomes of
that, and may be above 100 %, since who admits a job may have to refuse two others later. So each
question that a policy refuses is put to the search as well, from the state in which the policy
refused it: *could be kept* counts those for which there was a schedule.

The exit status is 1 if a policy admits what the search says cannot be kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.core.decision import admission_actions, judge
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.verdicts import Verdict
from rtsched.replay.planners import load_chain
from rtsched.replay.policies import presets
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import StopConditions

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from exact_admission import Entry, Job, Search, admissions  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rtsched.core.chain import Chain
    from rtsched.model.snapshot import Snapshot
    from rtsched.simulator.settings import ExclusiveSettings

NOW = 1_795_000_000
RESOURCES = ("cpu", "mem", "gres/gpu")
POLICIES = ("mcdf", "portfolio")


class Load(NamedTuple):
    """How instances are drawn."""

    gap: int
    """Seconds between two arrivals, at most."""
    slack: float
    """Time to spare until the deadline, in run times, at most."""


LOADS = {
    "light": Load(9, 3.0),
    "tight": Load(6, 0.75),
    "overloaded": Load(2, 2.0),
    "burst": Load(0, 2.5),
}
KINDS = ("rigid", "moldable")


class Instance(NamedTuple):
    """Nodes and the jobs that come to them, in order of arrival."""

    capacity: list[tuple[int, ...]]
    jobs: list[Job]


def drawn(rng: np.random.Generator, load: Load, kind: str, count: int) -> Instance:
    """Return an instance: each of its jobs could be kept on the idle machine."""
    nodes = int(rng.integers(2, 4))
    capacity = [tuple(int(k) for k in rng.integers((2, 2, 0), (5, 5, 3))) for _ in range(nodes)]
    jobs: list[Job] = []
    submit = 0
    while len(jobs) < count:
        demand = tuple(int(k) for k in rng.integers((1, 0, 0), (5, 4, 2)))
        fit = sum(all(np.less_equal(demand, amounts)) for amounts in capacity)
        size = int(rng.choice([1, 1, 1, 2, 3]))
        if kind == "moldable":
            seconds = int(rng.choice([6, 12]))
            shapes = tuple((n, seconds // n) for n in range(1, min(fit, size) + 1))
        else:
            shapes = ((size, int(rng.integers(1, 13))),)
        if not shapes or shapes[-1][0] > fit:
            continue
        submit += int(rng.integers(0, load.gap + 1))
        least = shapes[-1][1]
        slack = int(rng.integers(0, int(load.slack * least) + 2))
        jobs.append(Job(submit, submit + least + slack, demand, shapes))
    return Instance(capacity, jobs)


def instances(load: str, kind: str, count: int, jobs: int, seed: int) -> Iterator[Instance]:
    """Yield the instances of a load; the same ones for the same seed."""
    key = list(LOADS).index(load), KINDS.index(kind), seed
    for k in range(count):
        yield drawn(np.random.default_rng((*key, k)), LOADS[load], kind, jobs)


@dataclass
class Tally:
    """What a policy made of instances.

    Attributes
    ----------
    questions, exact, admitted : int
        Jobs, and how many of them exact admission and the policy admitted.
    refused, feasible : int
        Jobs that the policy refused, and how many of them could have been kept beside what it had
        promised.
    wrong : int
        Jobs that it admitted though there is no schedule.
    """

    questions: int = 0
    exact: int = 0
    admitted: int = 0
    refused: int = 0
    feasible: int = 0
    wrong: int = 0

    def add(self, other: Tally) -> None:
        """Add what was made of other instances."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


def table_of(jobs: list[Job]) -> Jobs:
    """Return the jobs as the planner is asked about them."""
    few, wall = zip(*(job.shapes[0] for job in jobs), strict=True)
    most = [job.shapes[-1][0] for job in jobs]
    moldable = np.less(few, most)
    return Jobs.build(
        len(jobs),
        names={"demand": RESOURCES},
        id=np.arange(len(jobs)),
        submit=NOW + np.array([job.submit for job in jobs], np.float64),
        deadline=NOW + np.array([job.deadline for job in jobs], np.float64),
        size=np.array(few, np.int32),
        size_min=np.where(moldable, few, 0).astype(np.int32),
        size_max=np.where(moldable, most, 0).astype(np.int32),
        wall_time=np.array(wall, np.float64),
        demand=np.array([job.demand for job in jobs], np.int64),
        kind=np.where(moldable, Kind.MOLDABLE, Kind.RIGID).astype(np.int8),
    )


def running(snapshot: Snapshot) -> list[Entry]:
    """Return the jobs that run."""
    held = snapshot.allocations
    return [
        Entry(int(job), round(start) - NOW, round(end) - NOW, tuple(held.nodes_of(k).tolist()))
        for k, (job, start, end) in enumerate(
            zip(held.entries.job, held.entries.start, held.entries.end, strict=True)
        )
    ]


def followed(instance: Instance, chain: Chain, system: ExclusiveSettings) -> Tally:
    """Return what a policy makes of an instance, each of its answers compared with the search."""
    jobs, capacity = instance.jobs, instance.capacity
    table, search, tally = table_of(jobs), Search(jobs, capacity), Tally(questions=len(jobs))
    nodes = Nodes.build(
        len(capacity), names={"capacity": RESOURCES}, capacity=np.array(capacity, np.int64)
    )
    machine = ExclusiveNodes(
        table,
        table.wall_time.copy(),
        Cluster(nodes),
        system,
        stop_at=StopConditions(arrivals=True, early_ends=True),
        record_nodes=True,
    )
    while not (point := machine.advance()).done:
        snapshot = machine.snapshot()
        arrived = table.take(point.arrivals)
        judgement = judge(snapshot, chain, arrived)
        assert not judgement.planner_error
        machine.apply(admission_actions(arrived, judgement.verdicts))
        held, waiting = running(snapshot), snapshot.plan.entries.job.tolist()
        code = judgement.verdicts.code
        for row, admitted in zip(point.arrivals.tolist(), code == Verdict.ADMIT, strict=True):
            exists = search.schedule(round(snapshot.now) - NOW, held, [*waiting, row]) is not None
            tally.admitted += int(admitted)
            tally.refused += int(not admitted)
            tally.feasible += int(exists and not admitted)
            tally.wrong += int(admitted and not exists)
            waiting += [row] * int(admitted)
    return tally


def compared(
    load: str, kind: str, policies: tuple[str, ...], count: int, jobs: int = 7, seed: int = 0
) -> dict[str, Tally]:
    """Return what each policy made of the instances of one load and kind of jobs."""
    found = {name: Tally() for name in policies}
    chains = {name: load_chain(presets()[name], periodic=False)[0] for name in policies}
    for instance in instances(load, kind, count, jobs, seed):
        exact = sum(admissions(*reversed(instance)))
        for name in policies:
            found[name].add(followed(instance, chains[name], presets()[name].system))
            found[name].exact += exact
    return found


def row_of(load: str, kind: str, name: str, tally: Tally) -> str:
    """Return a row of the table."""
    percent = 100.0 * tally.feasible
    return (
        f"| {load} | {kind} | `{name}` | {tally.questions:,} | {tally.exact:,} "
        f"| {tally.admitted:,} ({100.0 * tally.admitted / tally.exact:.1f} %) | {tally.refused:,} "
        f"| {tally.feasible:,} ({percent / max(tally.refused, 1):.1f} %; "
        f"{percent / tally.questions:.2f} %) |"
    )


def main() -> int:
    """Compare and print; 1 if a policy admits what cannot be kept."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--instances", type=int, default=500, help="of each load and kind of jobs")
    parser.add_argument("--jobs", type=int, default=7, help="of an instance")
    parser.add_argument("--policy", action="append", help=f"default: {', '.join(POLICIES)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    policies = tuple(given.policy or POLICIES)
    print("| load | jobs | policy | asked | exact | admitted | refused | could be kept |")
    print("|---|---|---|---:|---:|---:|---:|---:|", flush=True)
    rows = []
    for load in LOADS:
        for kind in KINDS:
            found = compared(load, kind, policies, given.instances, given.jobs, given.seed)
            for name, tally in found.items():
                rows.append({"load": load, "kind": kind, "policy": name, **asdict(tally)})
                print(row_of(load, kind, name, tally), flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")
    return int(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
