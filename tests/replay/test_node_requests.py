"""Nodes that jobs ask for, by features, names and partitions: what is replayed and what is told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rtsched.logs.node_requests import nodes_with
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.log import Log, Outcomes
from rtsched.model.resources import allowed_nodes
from rtsched.replay.workload import WorkloadOptions, prepare
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.settings import ExclusiveSettings

FEATURES = ("fast,gpu", "fast", "slow", None)
PLAIN = WorkloadOptions(deadline_rule="none")


def machine(features: tuple[str | None, ...] = FEATURES) -> Cluster:
    """Return nodes n1 to n4; partition `left` has n1 and n2, `right` n3 and n4."""
    left = np.array([True, True, False, False])
    nodes = Nodes.build(4, name=["n1", "n2", "n3", "n4"], features=list(features))
    return Cluster(nodes, {"left": left, "right": ~left})


def nested() -> Cluster:
    """Return the same, but `left` has all nodes."""
    some = machine()
    return replace(some, partitions={**some.partitions, "left": np.ones(4, np.bool_)})


def log(*requests: str | None, **columns: object) -> Log:
    """Return jobs of 5 s, all submitted at 0, with these requests for nodes."""
    n = len(requests)
    usual = {"id": np.arange(n) + 1, "submit": np.zeros(n), "wall_time": np.full(n, 5.0)}
    jobs = Jobs.build(n, node_request=list(requests), **{**usual, **columns})
    return Log(jobs, Outcomes.build(n, run_time=np.full(n, 5.0)), ("a.log",), "sacct")


def nodes_of(asked: Log, cluster: Cluster | None = None) -> list[str]:
    """Return the nodes that each job may use, as digits; `-`: all."""
    work = prepare(asked, PLAIN, machine() if cluster is None else cluster)
    code, masks = allowed_nodes(work.jobs, work.cluster)
    digits = ["".join(str(at + 1) for at in np.flatnonzero(mask)) for mask in masks]
    return [digits[at] if at >= 0 else "-" for at in code.tolist()]


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("fast", [1, 1, 0, 0]),
        ("fast&gpu", [1, 0, 0, 0]),
        ("gpu|slow", [1, 0, 1, 0]),
        ("gpu|slow&fast", [1, 0, 0, 0]),
        ("gpu|(slow&fast)", [1, 0, 0, 0]),
        ("(gpu|slow)&(fast|slow)", [1, 0, 1, 0]),
        ("fast & gpu", [1, 0, 0, 0]),
        ("none", [0, 0, 0, 0]),
        *((text, None) for text in ("fast*2", "[fast|slow]", "(fast", "fast&", "|fast", "", "a b")),
        *((text, None) for text in ("fast)", "()", "[a*2&b*3]")),
    ],
)
def test_constraints(text: str, nodes: list[int] | None) -> None:
    """Operators apply from left to right; what cannot be said by a set of nodes is None."""
    words = [(some or "").split(",") for some in FEATURES]
    found = nodes_with(text, lambda name: np.array([name in some for some in words]))
    assert (None if found is None else found.astype(int).tolist()) == nodes


def test_features_lists_and_partitions_choose_nodes() -> None:
    """A partition that the log ends with holds as well, unless several were asked for."""
    asked = log(
        "--constraint=fast",
        "--constraint=fast --exclude=n1",
        "--nodelist=n[2-3]",
        "--constraint=slow|fast",
        "--partition=left,right",
        "--constraint=fast --partition=left,right",
        None,
        partition=[None, None, None, "right", "left", "right", "left"],
    )
    assert nodes_of(asked) == ["12", "2", "23", "3", "-", "12", "12"]
    (notes,) = [
        text for text in prepare(asked, PLAIN, machine()).assumptions if "--nodelist" in text
    ]
    assert notes.startswith(
        "6 jobs with a --constraint, --nodelist, --exclude or several partitions"
    )


@pytest.mark.parametrize(
    ("asked", "notes"),
    [
        ("--constraint=[fast|slow]", "1 job with a --constraint that counts nodes or has brackets"),
        ("--constraint=gone", "1 job with a request for nodes that too few of the machine meet"),
        ("--nodelist=x9", "1 job with a --nodelist or --exclude that is no list of the machine's"),
        ("--nodelist=./hosts", "1 job with a --nodelist or --exclude that is no list"),
    ],
)  # fmt: skip
def test_what_cannot_be_replayed_is_told(asked: str, notes: str) -> None:
    """The job then runs on any node of its partition."""
    work = prepare(log(asked, partition=["left"]), PLAIN, machine())
    assert [text.startswith(notes) for text in work.assumptions].count(True) == 1
    assert nodes_of(log(asked, partition=["left"])) == ["12"]


def test_wide_jobs_keep_their_partition_and_unknown_features_are_told() -> None:
    """A job of two nodes must not be spread over two partitions."""
    wide = log("--partition=left,right", partition=["right"], size=[2])
    assert nodes_of(wide) == ["34"]
    notes = prepare(wide, PLAIN, machine()).assumptions
    assert any(text.startswith("1 job of more than one node or processor") for text in notes)
    assert nodes_of(log("--partition=left,right", partition=["right"], size=[2]), nested()) == ["-"]
    bare = machine((None,) * 4)
    assert nodes_of(log("--constraint=fast"), bare) == ["-"]
    notes = prepare(log("--constraint=fast"), PLAIN, bare).assumptions
    assert any("of a machine whose features are not known" in text for text in notes)


@pytest.mark.parametrize("unit", ["node", "resources"])
@pytest.mark.parametrize("loop", ["fcfs", "easy", "conservative"])
def test_jobs_run_on_the_nodes_that_they_ask_for(unit: str, loop: str) -> None:
    """Two jobs want the only GPU node; a third takes the other fast node, in FCFS behind them."""
    asked = log("--constraint=gpu", "--constraint=gpu", "--constraint=fast")
    work = prepare(asked, WorkloadOptions(deadline_rule="none", unit=unit), machine())
    system = ExclusiveNodes(
        work.jobs, work.run_time, work.cluster, ExclusiveSettings(loop=loop), record_nodes=True
    )
    while not system.advance().done:
        pass
    assert system.job_outcomes().start.tolist() == [0, 5, 5 if loop == "fcfs" else 0]
    assert system.node_rows()[1].tolist() == [0, 0, 1]


def test_features_of_processors_are_those_of_their_node() -> None:
    """With a row per core, a node's rows have its features."""
    nodes = Nodes.build(2, name=["a", "b"], cores=np.array([2, 1], np.int32), features=["x", "y"])
    assert nodes_of(log("--constraint=x"), Cluster(nodes)) == ["12"]
    assert nodes_of(log("--nodelist=b"), Cluster(nodes)) == ["3"]
