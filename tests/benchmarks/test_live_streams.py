"""Streams of the live experiment: what is submitted, how long it runs, how it is counted."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "live"))

import measure
import on_condor
import on_slurm
import shares
from shared_on_condor import SharedCondor
from stream import (
    Demand,
    Extent,
    Load,
    Work,
    deadline_stream,
    flood,
    licensed,
    shared_flood,
    shared_stream,
)
from workload_driver import Book, Reply, Setup

EXTENT = Extent(600, 5, (1, 2), (1.5, 3.0), 30, (2, 4), 9000)
KINDS = ("rigid", "moldable", "divisible", "chain")


def slept(work: Work, nodes: int, on: str = "fast1") -> float:
    """Return for how long a job's body would sleep on so many nodes."""
    script = on_slurm.body(work).replace('system("sleep "', 'print (""')
    env = {"SLURM_JOB_NUM_NODES": str(nodes), "SLURM_JOB_NODELIST": on, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, check=True)
    return float(done.stdout)


def test_equal_seeds_give_equal_streams() -> None:
    """Both clusters are sent the same jobs."""
    assert deadline_stream(3, EXTENT, KINDS, "ann") == deadline_stream(3, EXTENT, KINDS, "ann")
    assert flood(4, EXTENT, ("ann",)) == flood(4, EXTENT, ("ann",))


def test_every_job_keeps_its_limit_and_could_meet_its_deadline() -> None:
    """On the fewest nodes no body sleeps longer than the limit, nor the limit beyond the deadline.

    A second job of a chain has its predecessor's time to wait for, too.
    """
    works = deadline_stream(3, EXTENT, KINDS, "ann")
    assert {work.kind for work in works} == set(KINDS)
    for work in works:
        assert 0 < slept(work, work.least) < 60 * work.minutes < work.deadline


def test_bodies_follow_their_models() -> None:
    """A moldable job is twice as fast on twice the nodes, a load follows E(sigma, n)."""
    moldable = Work("d0", "ann", 0.0, 2, 4, 2, 0.5, "moldable", 300.0)
    assert slept(moldable, 2) == pytest.approx(60.0, rel=1e-3)
    assert slept(moldable, 4) == pytest.approx(30.0, rel=1e-3)
    load = Load(100.0, 0.01, 2.0)
    divisible = Work("d1", "ann", 0.0, 2, 4, 2, 1.0, "divisible", 300.0, load=load)
    assert slept(divisible, 3) == pytest.approx(load.seconds(3), rel=1e-3)
    parallel = Work("b0", "ann", 0.0, 1, 4, 3, 0.3, "moldable", slow=3.0)
    assert slept(parallel, 2, "slow[1-2]") == pytest.approx(3 * slept(parallel, 2), rel=1e-3)


def slept_in_a_pool(work: Work, speed: float, tmp_path: Path, **given: str) -> float:
    """Return for how long a job's body would sleep on a slot of this speed."""
    (tmp_path / "ad").write_text(f"RtSpeed = {speed}\n")
    line = next(x for x in on_condor.submit_file(work, 0.0).splitlines() if "arguments" in x)
    words = line.split('"')[1].replace("$(Process)", given.pop("process", "0")).split()
    script = on_condor.BODY.replace("exec sleep", "echo")
    env = {"_CONDOR_MACHINE_AD": str(tmp_path / "ad"), "PATH": "/usr/bin:/bin", **given}
    done = subprocess.run(
        ["sh", "-c", script, "play", *words], env=env, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def test_bodies_of_a_pool_follow_their_models(tmp_path: Path) -> None:
    """Limits are those of slow slots; all chunks of a load end at the same time, E(sigma, n)."""
    serial = Work("d0", "ann", 0.0, 1, 1, 2, 0.45, "several", 300.0, slow=2.0)
    assert slept_in_a_pool(serial, 1.0, tmp_path) == pytest.approx(108)
    assert slept_in_a_pool(serial, 2.0, tmp_path) == pytest.approx(54)
    moldable = Work("d1", "ann", 0.0, 2, 4, 2, 0.5, "moldable", 300.0, slow=2.0)
    found = slept_in_a_pool(moldable, 1.0, tmp_path, _CONDOR_NPROCS="4")
    assert found == pytest.approx(60)
    load = Load(100.0, 0.5, 2.0)
    divisible = Work("d2", "ann", 0.0, 2, 2, 2, 0.5, "divisible", 300.0, load=load, slow=2.0)
    first = 1 / (1 + load.cps / (load.cms + load.cps))
    shares = {"0": first, "1": 1 - first}
    ends = [
        slept_in_a_pool(divisible, 1.0, tmp_path, RTSCHED_FRACTION=f"{share}", RTSCHED_FROM=start)
        for start, share in zip(("0", f"{first}"), shares.values(), strict=True)
    ]
    assert ends == pytest.approx([load.seconds(2)] * 2, rel=1e-3)
    alone = slept_in_a_pool(divisible, 1.0, tmp_path, process="1")
    assert alone == pytest.approx(50 * 2.5 + 50 * 0.5)


def test_what_a_pool_is_told() -> None:
    """Each kind of job is submitted in HTCondor's words."""
    wide = Work("d0", "ann", 1.0, 2, 4, 1, 0.5, "moldable", 300.0)
    text = on_condor.submit_file(wide, 1000.0)
    assert {"universe = parallel", "machine_count = 2", "My.MaxHosts = 4"} <= set(text.split("\n"))
    assert "+RtDeadline=1301" in text
    several = Work("d1", "ann", 1.0, 1, 1, 1, 0.5, "several", 300.0, jobs=3)
    assert on_condor.submit_file(several, 0.0, deadline="+RtDeadline=7").endswith("queue 3\n")
    load = Work("d2", "ann", 1.0, 2, 6, 1, 0.5, "divisible", 300.0, load=Load(9.0, 1.0, 2.0))
    assert on_condor.submit_file(load, 0.0).endswith("queue 6\n")


def test_jobs_that_share_nodes_are_the_same_where_none_is_wide() -> None:
    """What a pool runs as several jobs takes as much, as long and until the same deadlines."""
    wide, apart = (shared_stream(3, EXTENT, "ann", wide=each) for each in (True, False))
    assert {work.least for work in wide} == {1, 2, 3}
    assert [(w.at, w.least, w.minutes, w.part, w.deadline, w.demand) for w in wide] == [
        (w.at, w.jobs, w.minutes, w.part, w.deadline, w.demand) for w in apart
    ]
    assert {(work.least, work.most) for work in apart} == {(1, 1)}


def test_a_flood_may_begin_with_an_array_of_thousands() -> None:
    """It comes before the same jobs as without."""
    extent = replace(EXTENT, array=3000)
    first, *rest = shared_flood(4, extent, ("ann", "bob"))
    assert (first.user, first.jobs, first.demand) == ("ann", 3000, Demand(1, 2))
    assert rest == shared_flood(4, EXTENT, ("ann", "bob"))


def test_some_jobs_take_licences() -> None:
    """About a third, and no array; what else they ask for is the same."""
    works = shared_stream(3, EXTENT, "ann", kinds=("rigid", "moldable", "array"))
    found = licensed(5, works)
    assert [replace(w, demand=replace(w.demand, licenses=0)) for w in found] == works
    counts = [work.demand.licenses for work in found if work.kind != "array"]
    assert set(counts) == {0, 1, 2}
    assert 0.2 < sum(map(bool, counts)) / len(counts) < 0.5
    assert not any(work.demand.licenses for work in found if work.kind == "array")
    taken = replace(works[0], demand=Demand(licenses=2))
    assert "--licenses=tool:2" in on_slurm.arguments(taken, 0.0)


def test_what_a_pool_with_shared_slots_is_told() -> None:
    """A job says what it takes, and the settings of each startd what its machine has."""
    work = Work("d0", "ann", 1.0, 1, 1, 1, 0.5, "several", 300.0, jobs=2, demand=Demand(2, 16, 1))
    lines = on_condor.submit_file(work, 0.0).split("\n")
    assert {"request_cpus = 2", "request_memory = 16384", "request_gpus = 1"} <= set(lines)
    assert "queue 2" in lines
    plain = on_condor.submit_file(replace(work, demand=Demand(4, 8)), 0.0)
    assert "request_gpus" not in plain
    options = SharedCondor.options(Setup(steered=True))
    assert len(options.slots) == 20
    conf = options.files()["/etc/condor/config.d/10-testbed.conf"].split("\n")
    assert {"SLOT_TYPE_1 = 100%", "SLOT_TYPE_1_PARTITIONABLE = True"} <= set(conf)
    has = {"fast4.NUM_CPUS = 16", "fast4.OWN_GPUS = 4", "large4.MEMORY = 256000"}
    assert has <= set(conf)


def test_rows_of_shared_slots_count_cpus() -> None:
    """A job ran on a part of the slot of its node set, and had the CPUs that it asked for."""
    given = {"ClusterId": 7, "ProcId": 0, "Owner": "ann", "QDate": 10, "JobUniverse": 5}
    given |= {"JobStatus": 4, "ExitCode": 0, "JobCurrentStartDate": 20, "CompletionDate": 60}
    given |= {"RequestCpus": 4, "LastRemoteHost": "slot1_3@fast1.testbed"}
    (row,) = SharedCondor.rows(json.dumps([given | {"RtNodeSet": "slot1@fast1.testbed"}]))
    assert (row.nodes, row.on, row.planned) == (4, ("slot1@fast1.testbed",), row.on)
    assert measure.strays([row]) == 0


@pytest.mark.parametrize(
    ("ad", "state"),
    [
        ({"JobStatus": 4, "ExitCode": 0}, "COMPLETED"),
        ({"JobStatus": 4, "ExitCode": 3}, "FAILED"),
        ({"JobStatus": 3, "RemoveReason": "via condor_rm"}, "CANCELLED"),
        ({"JobStatus": 3, "RemoveReason": "rtsched: run time of 60 s is over"}, "TIMEOUT"),
        ({"JobStatus": 1}, "PENDING"),
    ],
)
def test_what_became_of_a_job_of_a_pool(ad: dict[str, object], state: str) -> None:
    """History is told in the words that all systems share."""
    more = {"ClusterId": 7, "ProcId": 2, "Owner": "ann", "QDate": 10, "JobCurrentStartDate": 20}
    more |= {"CompletionDate": 0, "EnteredCurrentStatus": 90, "LastJobStatus": 2}
    text = json.dumps([{"JobUniverse": 5, **more, **ad}])
    (row,) = on_condor.Condor.rows(text)
    assert (row.job, row.state) == (on_condor.job_id(7, 2), state)
    assert math.isnan(row.end) == (state == "PENDING")


def test_chunks_that_were_not_needed_are_no_misses() -> None:
    """A load is met when all chunks that ran are; those that were taken away never count."""
    common = {"ClusterId": 7, "Owner": "ann", "QDate": 10, "JobUniverse": 5, "RtSigma": 9.0}
    ran = {"JobStatus": 4, "ExitCode": 0, "JobCurrentStartDate": 20, "CompletionDate": 60}
    gone = {"JobStatus": 3, "RemoveReason": "rtsched: not needed", "EnteredCurrentStatus": 30}
    ads = [common | ran | {"ProcId": 0, "EnteredCurrentStatus": 60}, common | gone | {"ProcId": 1}]
    rows = on_condor.Condor.rows(json.dumps(ads))
    assert measure.fate(measure.by_job(rows)[on_condor.job_id(7, 0)], 60.0) == "met"


@pytest.mark.parametrize(
    ("state", "end", "fate"),
    [
        ("COMPLETED", 100.0, "met"),
        ("COMPLETED", 101.0, "missed"),
        ("TIMEOUT", 90.0, "own_limit"),
        ("DEADLINE", 100.0, "missed"),
        ("FAILED", 50.0, "missed"),
    ],
)
def test_what_became_of_a_job(state: str, end: float, fate: str) -> None:
    """Only a job that completed in time met its deadline; its own limit is counted apart."""
    row = measure.Row(1, "d0", "ann", 0.0, 10.0, end, 2, state, "")
    assert measure.fate([row], 100.0) == fate


@pytest.mark.parametrize(
    ("text", "comment", "start", "counted"),
    [
        (measure.DEFERRED, "rtsched: rejected: too late", math.nan, "rejected"),
        (measure.DEFERRED, "rtsched: rejected: too late", 10.0, "admitted"),
        (measure.DEFERRED, "", math.nan, "admitted"),
        ("promised to end by", "rtsched: rejected: too late", math.nan, "admitted"),
    ],
)
def test_who_was_held_and_then_rejected_was_never_admitted(
    text: str, comment: str, start: float, counted: str
) -> None:
    """Only if its user read so and it never ran; any other removed job was admitted, and missed."""
    work = deadline_stream(3, on_condor.Condor.reduced, ("rigid",), "ann", 1.0)[0]
    reply = Reply(work, 5.0, (1,), text, 0.1)
    row = measure.Row(1, work.name, "ann", 0.0, start, 20.0, 2, measure.CANCELLED, comment)
    found = measure.outcomes(Book(0.0, [reply]), [row])
    assert found[counted] == work.jobs
    assert found["missed"] == (counted == "admitted")


def test_service_counts_what_lies_in_the_window() -> None:
    """Node-seconds before and after the run do not count, and of a requeued job all runs do."""
    runs = [
        measure.Row(1, "b0", "ann", 0.0, 0.0, 50.0, 2, "REQUEUED", ""),
        measure.Row(1, "b0", "ann", 0.0, 60.0, 200.0, 2, "COMPLETED", ""),
        measure.Row(2, "b1", "ann", 0.0, 20.0, 30.0, 1, "COMPLETED", ""),
    ]
    found = measure.best_effort(runs, 10.0, 100.0)
    assert found["best_effort_node_s"] == 2 * 40 + 2 * 40 + 10
    assert found["best_effort_useful_node_s"] == 2 * 40 + 10
    assert (found["best_effort_jobs"], found["requeued"]) == (1, 1)


def test_service_time_errors_follow_from_accounting() -> None:
    """Shares 1, 2, 3 of 30 nodes: whoever has 10 where 5 are due gains 5 node-seconds a second."""
    nan = math.nan
    rows = [
        measure.Row(1, "b0", "alice", 0.0, 0.0, 60.0, 10, "COMPLETED", ""),
        measure.Row(2, "b1", "bob", 0.0, 0.0, nan, 20, "RUNNING", ""),
        measure.Row(3, "b2", "carol", 0.0, nan, nan, 1, "PENDING", ""),
    ]
    found = shares.service(rows, 0.0, 60.0)
    assert found["error_node_s"]["10"] == {"alice": 50.0, "bob": 100.0, "carol": -150.0}
    assert found["served_node_s"] == {"alice": 600.0, "bob": 1200.0, "carol": 0.0}
    assert found["utilisation"] == 1.0
