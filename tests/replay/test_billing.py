"""Service for fair share in billing units: TRESBillingWeights from the machine's file on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.errors import InputError
from rtsched.logs import ReadOptions, read_cluster, read_logs
from rtsched.model.billing import BillingWeights
from rtsched.model.jobs import Jobs
from rtsched.model.limits import LimitSet, Qos, SiteLimits
from rtsched.replay.limits import JobAmounts, limits_of_jobs
from rtsched.replay.measures import charged, errors, logged_results
from rtsched.replay.workload import WorkloadOptions, prepare

if TYPE_CHECKING:
    from pathlib import Path

G = 2**30
THINGS = ("cpu", "mem", "gres/gpu", "license/x")


def jobs(n: int, **columns: Any) -> Jobs:
    """Return jobs of 4 cores, 8 GB, 1 GPU on each of 2 nodes, and 3 licences."""
    usual: dict[str, Any] = {
        "id": np.arange(n),
        "size": np.full(n, 8, np.int32),
        "node_count": np.full(n, 2, np.int32),
        "demand": np.tile([4, 8 * G, 1, 3], (n, 1)),
        "partition": ["gpu"] * n,
        "names": {"demand": THINGS},
    }
    return Jobs.build(n, **{**usual, **columns})


def units(table: Jobs, weights: BillingWeights) -> list[float]:
    """Return the billing units of jobs that share nodes."""
    amounts = JobAmounts(table, np.zeros(len(table), bool), 16, weights)
    return amounts.billing_units().tolist()


WEIGHTS = {"cpu": 1.0, "mem": 0.25 / G, "gres/gpu": 5.0, "license/x": 2.0}


@pytest.mark.parametrize(
    ("rule", "expected"),
    # 8 cores, 16 GB, 2 GPUs, 3 licences: 8, 4, 10 and 6 units.
    [("sum", 28.0), ("max", 16.0), ("max-gres", 24.0)],
)
def test_units_of_a_job(rule: Any, expected: float) -> None:
    """The sum, or the greatest of what nodes have; licences come on top; CPUs without weights."""
    table = jobs(3, partition=["gpu", "cpu", None])
    assert units(table, BillingWeights({"gpu": WEIGHTS}, rule)) == [expected, 8.0, 8.0]


@given(data=st.data(), rule=st.sampled_from(["sum", "max", "max-gres"]))
def test_units_as_the_plain_way(data: Any, rule: Any) -> None:
    """Job by job, resource by resource."""
    n = data.draw(st.integers(1, 6))
    amounts = st.tuples(*[st.integers(0, 5)] * 4)
    demand = data.draw(st.lists(amounts, min_size=n, max_size=n))
    nodes = data.draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    names = data.draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=n, max_size=n))
    weight = st.dictionaries(st.sampled_from([*THINGS, "node"]), st.sampled_from([0.0, 0.5, 3.0]))
    weights = {"a": data.draw(weight), "b": data.draw(weight)}
    size = [each[0] * count for each, count in zip(demand, nodes, strict=True)]
    table = jobs(
        n,
        size=np.array(size, np.int32),
        node_count=np.array(nodes, np.int32),
        demand=np.array(demand),
        partition=names,
    )
    expected = []
    for row in range(n):
        held = dict(zip(THINGS, demand[row], strict=True))
        held = {name: count * nodes[row] for name, count in held.items() if name != "license/x"}
        held |= {"license/x": demand[row][3], "node": nodes[row]}
        mine = weights.get(names[row])
        if not mine:
            expected.append(float(size[row]))
            continue
        most = total = 0.0
        for name, value in mine.items():
            at_most = name in {"cpu", "mem", "node"} or (rule == "max" and name == "gres/gpu")
            if rule != "sum" and at_most:
                most = max(most, value * held[name])
            else:
                total += value * held[name]
        expected.append(most + total)
    assert units(table, BillingWeights(weights, rule)) == expected


CONF = """\
PriorityFlags=MAX_TRES
NodeName=n1 CPUs=8 RealMemory=8192 Gres=gpu:2
PartitionName=DEFAULT TRESBillingWeights="CPU=1.0,Mem=0.25G"
PartitionName=one Nodes=n1
PartitionName=two Nodes=n1 TRESBillingWeights=CPU=.5,Mem=1,GRES/gpu=2.0,License/x=1K
"""

SHOWN = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=8
   CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.00
   Gres=gpu:2
   RealMemory=8192 AllocMem=0 State=IDLE
   Partitions=all,free

PartitionName=all
   AllowGroups=ALL QoS=N/A
   TRESBillingWeights=CPU=1.0,GRES/gpu=7.0
PartitionName=free
   AllowGroups=ALL QoS=N/A
"""


def test_weights_of_a_slurm_conf(tmp_path: Path) -> None:
    """Of memory per byte, from MB if no unit is given; DEFAULT holds for those without."""
    (tmp_path / "slurm.conf").write_text(CONF)
    billing = read_cluster(tmp_path / "slurm.conf")[0].billing
    assert billing == BillingWeights(
        {
            "one": {"cpu": 1.0, "mem": 0.25 / G},
            "two": {"cpu": 0.5, "mem": 1 / 2**20, "gres/gpu": 2.0, "license/x": 1 / 1024},
        },
        "max",
    )


def test_weights_of_scontrol(tmp_path: Path) -> None:
    """Partitions behind nodes; without them it is not known what jobs are billed for."""
    (tmp_path / "nodes").write_text(SHOWN)
    billing = read_cluster(tmp_path / "nodes")[0].billing
    assert billing == BillingWeights({"all": {"cpu": 1.0, "gres/gpu": 7.0}})
    (tmp_path / "nodes").write_text(SHOWN.partition("PartitionName")[0])
    assert read_cluster(tmp_path / "nodes")[0].billing is None


@pytest.mark.parametrize("text", ["CPU", "CPU=much", "CPU=-1", "CPU=1,,Mem=1"])
def test_weights_that_are_none(tmp_path: Path, text: str) -> None:
    """File, line and remedy."""
    (tmp_path / "slurm.conf").write_text(
        f"NodeName=n CPUs=1\nPartitionName=a TRESBillingWeights={text}\n"
    )
    with pytest.raises(InputError, match=r"slurm.conf:2: TRESBillingWeights has .* put it right"):
        read_cluster(tmp_path / "slurm.conf")


LOG = """\
JobID|User|Account|Partition|Submit|Start|End|ElapsedRaw|TimelimitRaw|ReqCPUS|NNodes|State|ReqTRES
1|ann|lab|all|+000|+000|+100|100|5|1|1|COMPLETED|cpu=1,gres/gpu=1,mem=1G,node=1
2|bob|lab|free|+000|+000|+100|100|5|4|1|COMPLETED|cpu=4,mem=1G,node=1
"""


def workload(folder: Path, nodes: str, unit: Any = "resources") -> Any:
    """Return the log on one node of 8 cores."""
    (folder / "log").write_text(LOG.replace("+", "1700000"))
    (folder / "nodes").write_text(nodes)
    log = read_logs([folder / "log"], ReadOptions(resources=True))
    return prepare(log, WorkloadOptions(unit=unit), read_cluster(folder / "nodes")[0])


def test_errors_in_billing_units(tmp_path: Path) -> None:
    """Ann's core and GPU are billed with 8 units, Bob's four cores with 4: she has 2 of 8 too much.

    Both are active for 100 s, and are entitled to 6 units each.
    """
    made = workload(tmp_path, SHOWN)
    assert (made.jobs.billed * 8).tolist() == [8.0, 4.0]
    assert any(
        notes.startswith("Service for fair share counts billing") for notes in made.assumptions
    )
    found = errors(made, logged_results(made), "user")
    assert found is not None
    assert dict(zip(found.names, (found.error.final * 8).tolist(), strict=True)) == {
        "ann": 200.0,
        "bob": -200.0,
    }


def test_without_weights_nothing_changes(tmp_path: Path) -> None:
    """Cores count, whether partitions are known or not; whole nodes are not billed."""
    bare = SHOWN.replace("TRESBillingWeights=CPU=1.0,GRES/gpu=7.0", "")
    made = workload(tmp_path, bare)
    assert np.isnan(made.jobs.billed).all()
    results = logged_results(made)
    assert charged(made, results).tolist() == results.serving().tolist()
    whole = workload(tmp_path, SHOWN, "node")
    assert np.isnan(whole.jobs.billed).all()
    assert any(notes.startswith("TRESBillingWeights are not used") for notes in whole.assumptions)


def test_weights_of_cpus_alone_are_cores(tmp_path: Path) -> None:
    """CPU=1 everywhere gives what is counted without weights."""
    made = workload(tmp_path, SHOWN.replace(",GRES/gpu=7.0", ""))
    results = logged_results(made)
    assert charged(made, results).tolist() == results.serving().tolist()


def test_limits_of_billing_units() -> None:
    """They hold once it is known what jobs are billed for, by whole units."""
    site = SiteLimits(qos={"normal": Qos(LimitSet(group={"billing": 30}))})
    table = jobs(1, qos=["normal"])
    weights = BillingWeights({"gpu": {"cpu": 1.2}})
    made = limits_of_jobs(JobAmounts(table, np.zeros(1, bool), 16, weights), site, [])
    assert made is not None
    assert (made.things, made.asked.tolist(), made.most.tolist()) == (("billing",), [[9]], [[30]])
    assert limits_of_jobs(JobAmounts(table, np.zeros(1, bool), 16), site, []) is None
