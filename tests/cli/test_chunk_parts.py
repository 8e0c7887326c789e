"""`rtsched chunk --next`: each node takes its part of a load round by round."""

import json
import os
import signal
import stat
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.condor.reserving import variables as environment_of
from rtsched.adapters.slurm.comments import record_of
from rtsched.cli.chunk import Parts, parts_of, variables
from rtsched.core.chain import Chain, Member
from rtsched.errors import AdapterError
from rtsched.kernels.dlt import chain_of, round_shares, rounds_time
from rtsched.kernels.loads import Load
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.snapshot import Snapshot
from rtsched.model.verdicts import Verdict, Verdicts
from rtsched_plugins.mcdf import Mcdf

NOW = 1_795_219_200.0
RTSCHED = Path(sys.executable).with_name("rtsched")
RECORD = record_of(NOW, ["n1", "n2"], [0.5, 0.5], [0.25, 0.75])
"""Of n1 and n2 each takes a quarter of its half first."""
PARTS = {"n1": ["0 0.125", "0.125 0.5"], "n2": ["0.5 0.625", "0.625 1"]}


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Return a function that puts the test onto a node of job 12, which has been planned."""
    script = tmp_path / "scontrol"
    script.write_text(f"#!/bin/sh\necho >>{tmp_path}/asked\necho '   Comment={RECORD} my words'\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    for name in ("RTSCHED_JOB", "SLURM_NODEID", "SLURM_RESTART_COUNT", "_CONDOR_JOB_AD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RTSCHED_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("RTSCHED_SCONTROL", str(script))
    monkeypatch.setenv("SLURM_JOB_ID", "12")

    def node(name: str, restarts: int = 0) -> None:
        monkeypatch.setenv("SLURMD_NODENAME", name)
        if restarts:
            monkeypatch.setenv("SLURM_RESTART_COUNT", str(restarts))

    node("n1")
    return node


def taken(run) -> list[str]:
    """Take parts until none is left, as a job's loop does."""
    found = []
    while (result := run("chunk", "--next")).exit_code == 0:
        found.append(result.stdout.rstrip("\n"))
    assert (result.exit_code, result.output) == (1, "")
    return found


def test_two_nodes_in_two_rounds_by_hand() -> None:
    """Of 180 units, 10 s to send and 40 s to compute, each of 2 nodes gets 30 and then 60.

    While a node computes 30 units, 1200 s, both are sent the next 60; the first 30 take 600 s for
    both, and 90 units 3600 s on each: 4200 s. At once it would be 180 · 50 · 0.2/0.36 = 5000 s.
    """
    load = Load(180.0, 10.0, 40.0)
    assert round_shares(2, 2, load) == pytest.approx([1 / 3, 2 / 3])
    assert round_shares(1, 2, load) == []
    later = Load(180.0, 10.0, 40.0, 0.0, 70.0)
    assert round_shares(2, 2, later, 70.0) == round_shares(2, 2, load), "70 s pass at the end"
    assert rounds_time(2, chain_of(later), 2, 70.0) == (4270.0, 2)
    job = Jobs.build(
        1, id=[7], submit=NOW, deadline=NOW + 4300, kind=Kind.DIVISIBLE, sigma=180.0, cms=10.0,
        cps=40.0, size_max=2, rounds=2,
    )  # fmt: skip
    plan = judged(job, rounds=2).plan
    assert plan is not None
    assert (plan.entries.end - plan.entries.start).tolist() == [4200.0]
    assert (plan.entries.rounds.tolist(), plan.fractions.tolist()) == ([2], [0.5, 0.5])
    at_once = job.replace(rounds=np.array([1], np.int32))
    for verdicts in (judged(at_once, rounds=2), judged(job, rounds=1)):
        assert verdicts.code.tolist() == [Verdict.REJECT], "at once it takes 5000 s"
    record = record_of(NOW, ["n1", "n2"], plan.fractions.tolist(), round_shares(2, 2, load))
    parts = {name: parts_of(told(record, name)) for name in ("n1", "n2")}
    assert parts == {
        "n1": ["0 0.1666666665", "0.1666666665 0.5"],
        "n2": ["0.5 0.6666666665", "0.6666666665 1"],
    }


def judged(job: Jobs, **settings: object) -> Verdicts:
    """Return the verdicts of mcdf on a job, on two idle nodes."""
    chain = Chain([Member("mcdf", Mcdf(Mcdf.Config(**settings)))], "mcdf")
    return chain.admit(job, Snapshot(NOW, Cluster.uniform(2))).verdicts


def told(record: str, name: str) -> dict[str, str]:
    """Return what a node of job 12 is told by a record."""
    environment = {"SLURM_JOB_ID": "12", "SLURMD_NODENAME": name}
    return variables(f"JobId=12\n   Comment={record}\n", environment)


shares = st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=20).map(
    lambda values: [value / sum(values) for value in values]
)


@given(shares, shares)
def test_all_parts_are_the_load(fractions: list[float], rounds: list[float]) -> None:
    """All rounds on all nodes: each part begins where the one before ends; from 0 to 1."""
    names = [f"n{k}" for k in range(len(fractions))]
    record = record_of(NOW, names, fractions, rounds if len(rounds) > 1 else [])
    slurm = [parts_of(told(record, name)) for name in names]
    condor = [
        parts_of(
            {
                name.removeprefix("RTSCHED_"): value
                for name, value in environment_of(fractions, k, "s", None, rounds).items()
            }
        )
        for k in range(len(fractions))
    ]
    for nodes in (slurm, condor):
        assert {len(parts) for parts in nodes} == {len(rounds)}
        bounds = [part.split() for parts in nodes for part in parts]
        assert (bounds[0][0], bounds[-1][1]) == ("0", "1")
        assert all(one[1] == two[0] for one, two in pairwise(bounds))
        assert all(float(start) <= float(end) for start, end in bounds)


@given(
    st.integers(1, 8), st.integers(2, 64), st.floats(0.1, 1e4), st.floats(0.001, 10),
    st.floats(0.01, 100), st.floats(0, 5), st.floats(0, 60),
)  # fmt: skip
def test_rounds_share_a_part(n, most, sigma, cms, cps, link, node) -> None:
    """Whatever number of rounds the planner takes, their shares are of the whole part."""
    load = Load(sigma, cms, cps, link, node)
    _, count = rounds_time(n, chain_of(load), most)
    found = round_shares(count, n, load)
    assert len(found) == (count if count > 1 else 0)
    if found:
        assert sum(found) == pytest.approx(1.0)
        assert min(found) > 0
    assert sum(round_shares(5, n, load)) == pytest.approx(1.0)


def test_each_node_takes_its_parts_in_turn(run, node, tmp_path) -> None:
    """A part a call in the order of the rounds; then exit status 1, and Slurm is asked once."""
    for name, parts in PARTS.items():
        node(name)
        assert taken(run) == parts
        assert run("chunk", "--next").exit_code == 1
    assert len((tmp_path / "asked").read_text().splitlines()) == 2
    assert stat.S_IMODE((tmp_path / f"state/rtsched-{os.geteuid()}").stat().st_mode) == 0o700


def test_a_part_as_json(run, node) -> None:
    """Numbers for programs."""
    assert json.loads(run("chunk", "--next", "--json").stdout) == {"from": 0.0, "to": 0.125}


def test_a_requeued_job_begins_anew(run, node) -> None:
    """So does a node that is told to."""
    assert taken(run) == PARTS["n1"]
    node("n1", restarts=1)
    assert taken(run) == PARTS["n1"]
    assert run("chunk", "--restart").exit_code == 0
    assert taken(run) == PARTS["n1"]


def test_a_load_in_one_round_has_one_part(run, node, monkeypatch) -> None:
    """A script that takes rounds runs with any plan; what the job was told is used."""
    words = {"JOB": "12", "DEADLINE": "5", "NODES": "1", "FRACTIONS": "1", "ON": "n1"}
    for name, value in words.items():
        monkeypatch.setenv(f"RTSCHED_{name}", value)
    assert taken(run) == ["0 1"]


def test_tasks_of_a_node_share_its_parts(node, tmp_path, monkeypatch) -> None:
    """However many ask at a time, each part is given once, and a kill loses none that is left."""
    rounds = [1 / 40] * 40
    found = parts_of(told(record_of(NOW, ["n1"], [1.0], rounds), "n1"))
    words = {"JOB": "12", "DEADLINE": "5", "NODES": "1", "FRACTIONS": "1", "ON": "n1"}
    words["ROUNDS"] = ":".join(f"{share:.9f}" for share in rounds)
    for name, value in words.items():
        monkeypatch.setenv(f"RTSCHED_{name}", value)
    first = subprocess.run([RTSCHED, "chunk", "--next"], capture_output=True, check=True, text=True)
    loop = f"while part=$({RTSCHED} chunk --next); do echo $part; done"
    killed = subprocess.Popen(["sh", "-c", loop], stdout=subprocess.PIPE, start_new_session=True)
    lines = [killed.stdout.readline().decode() for _ in range(2)]
    os.killpg(killed.pid, signal.SIGKILL)
    lines += killed.communicate()[0].decode().splitlines()
    tasks = [subprocess.Popen(["sh", "-c", loop], stdout=subprocess.PIPE) for _ in range(4)]
    each = [task.communicate()[0].decode().splitlines() for task in tasks]
    given_out = [line.strip() for part in ([first.stdout], lines, *each) for line in part]
    assert len(given_out) == len(set(given_out)) >= 39, "at most the killed call's part is lost"
    assert set(given_out) <= set(found)
    assert all(part == sorted(part, key=found.index) for part in each)


def test_a_job_of_condor_takes_its_parts(run, tmp_path, monkeypatch) -> None:
    """From its environment; what it took is in its scratch directory, out of its output."""
    told = environment_of([0.5, 0.5], 1, "slot1@h", None, [0.25, 0.75])
    for name, value in {**told, "_CONDOR_JOB_AD": "/x/.job.ad"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("_CONDOR_SCRATCH_DIR", raising=False)
    result = run("chunk", "--next")
    assert (result.exit_code, "_CONDOR_SCRATCH_DIR is not set" in result.stderr) == (3, True)
    monkeypatch.setenv("_CONDOR_SCRATCH_DIR", str(tmp_path))
    assert taken(run) == PARTS["n2"]
    assert [path.name for path in tmp_path.iterdir()] == [".rtsched"]
    monkeypatch.setenv("_CONDOR_SCRATCH_DIR", str(tmp_path / "next"))
    assert taken(run) == PARTS["n2"], "a restarted job has another scratch directory"


def test_what_cannot_be_used_is_told(run, node, refused, tmp_path, monkeypatch) -> None:
    """A sentence, never the exit status of a load that is done."""
    place = tmp_path / f"state/rtsched-{os.geteuid()}"
    assert run("chunk", "--next").exit_code == 0
    for text in ("0 1", "0 1\n\nxy", "x", "0 1\n\nx\n", "\0" * 9):
        (place / "12.0.n1").write_text(text)
        refused(run("chunk", "--next"), "12.0.n1 is damaged; `rtsched chunk --restart`", status=3)
    assert run("chunk", "--restart").exit_code == 0
    assert run("chunk", "--next").stdout == "0 0.125\n"
    place.chmod(0o777)
    refused(run("chunk", "--next"), "others may write to it; set RTSCHED_STATE_DIR", status=3)
    place.chmod(0o700)
    (place / "12.0.n2").symlink_to("12.0.n1")
    node("n2")
    refused(run("chunk", "--next"), "12.0.n2 cannot be used", status=3)
    node("../n2")
    refused(run("chunk", "--next"), "is not valid", status=3)
    node("n9")
    refused(run("chunk", "--next"), "gives this node no part of a load", status=3)
    monkeypatch.setenv("RTSCHED_STATE_DIR", str(place / "12.0.n1"))
    refused(run("chunk", "--next"), "cannot be used", status=3)
    monkeypatch.setenv("RTSCHED_SCONTROL", "true")
    monkeypatch.setenv("RTSCHED_STATE_DIR", str(tmp_path / "other"))
    refused(run("chunk", "--next"), "there is no plan for this job", status=3)
    refused(run("chunk", "--next", "7"), "inside a job", status=2)
    refused(run("chunk", "--next", "--restart"), "are used alone", status=2)
    monkeypatch.delenv("SLURM_JOB_ID")
    refused(run("chunk", "--next"), "not inside a job of Slurm or HTCondor", status=3)


def test_a_full_disk_takes_nothing(run, node, tmp_path) -> None:
    """What cannot be noted is not given, and is given later."""
    assert run("chunk", "--next").stdout == "0 0.125\n"
    limited = ["sh", "-c", f"ulimit -f 0; exec {RTSCHED} chunk --next"]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "12.0.n1 cannot be used: " in done.stderr
    assert "Traceback" not in done.stderr
    with Parts(str(tmp_path / f"state/rtsched-{os.geteuid()}"), "12.0.n1") as parts:
        assert parts.take(dict) == "0.125 0.5"


def test_a_plan_of_nothing_is_refused() -> None:
    """A job without a load has no parts."""
    with pytest.raises(AdapterError, match="no part of a load"):
        parts_of({"JOB": "1", "NODES": "1"})
