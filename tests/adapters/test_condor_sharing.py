"""Slots that jobs share: from ads to amounts, what a plan keeps, and who may start beside whom."""

from typing import Any

import numpy as np
import pytest
from condor_views import NOW, Shown, ad, plan_of, view_of
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.condor import system as observers
from rtsched.adapters.condor.commands import CLOSED_S, Edit, LastApplied, Publish
from rtsched.adapters.condor.facts import QUANTUM, CondorFacts, Parts, parts_of
from rtsched.adapters.condor.ids import job_id
from rtsched.adapters.condor.pool_state import PoolState
from rtsched.adapters.condor.requirements import PARALLEL, requirements_of
from rtsched.adapters.condor.reserving import STARTING_S, reserve_changes
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.sharing import RESOURCES, kept_amounts, may_start_beside, most_before
from rtsched.adapters.condor.slots import layout_of, slots_of
from rtsched.adapters.condor.submission import CondorTranslator
from rtsched.adapters.condor.system import Observer
from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.adapters.wire import Tag
from rtsched.logs.classads import Record
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Schedule

MB, GB = 1 << 20, 1 << 30
SETTINGS = CondorSettings(share_nodes=True)
A, B, C, D = (job_id(cluster, 0) for cluster in (1, 2, 3, 4))
OFFER = FIRST_OWN_ID
WHOLE = (8, 16 * GB, 2, 100 * GB, 8)
"""What a slot of these tests has."""


def machine(name: str = "slot1@a", **said: Any) -> Record:
    """Return the ad of a partitionable slot of 8 CPUs, 16 GB, 2 GPUs and 100 GB, half in use."""
    total = {"totalslotcpus": 8, "totalslotmemory": 16384, "totalslotgpus": 2}
    total |= {"totalslotdisk": 100.0 * MB}
    plain: Record = {"name": name, "machine": name.partition("@")[2], "state": "Unclaimed"}
    plain |= {"partitionableslot": True, "cpus": 4, "memory": 8192, "gpus": 1}
    plain |= {"disk": 50.0 * MB}
    return plain | total | said


def part(
    name: str, cpus: int, memory: int, gpus: int = 0, schedd: str = "here", disk: float = 0.0
) -> Record:
    """Return the ad of a dynamic slot that somebody has; memory in MB, disk in KB."""
    size = {"cpus": cpus, "memory": memory, "gpus": gpus, "disk": disk}
    return {
        "name": name,
        "dynamicslot": True,
        "state": "Claimed",
        "remotescheddname": schedd,
    } | size


def static(name: str, **said: Any) -> Record:
    """Return the ad of a static slot."""
    return {"name": name, "machine": "a", "cpus": 4, "memory": 4096, "state": "Unclaimed"} | said


# --- slots and what is in use ---------------------------------------------------------------------


def test_a_slot_is_one_row_with_its_amounts() -> None:
    """All of a partitionable slot counts, not only what is free; a static one takes one job."""
    ads = [machine(), static("slot2@a", gpus=1, disk=3072.0), part("slot1_1@a", 4, 8192, 1)]
    rows = layout_of(slots_of(ads, SETTINGS)[0])
    assert rows.nodes.texts("name") == rows.slots.texts("name") == ["slot1@a", "slot2@a"]
    names = ("cpu", "mem", "gres/gpu", "fs/disk", "gres/slot")
    assert rows.nodes.names("capacity") == RESOURCES == names
    assert rows.nodes.capacity.tolist() == [list(WHOLE), [4, 4 * GB, 1, 3 * MB, 1]]
    assert rows.nodes.cores.tolist() == [8, 4]
    assert rows.shared
    assert rows.first == {"slot1@a": 0, "slot2@a": 1}


def test_without_the_setting_nothing_is_shared() -> None:
    """Rows have no amounts, and GPUs make no difference."""
    rows = layout_of(slots_of([machine()], CondorSettings())[0])
    assert not rows.shared
    assert len(rows.nodes) == 8
    assert rows.parts.gpus == (0,)
    assert not rows.cluster(np.empty(0, np.int64), 1).shared


def test_parts_by_gpus() -> None:
    """A job may have slots with as many GPUs as it asks for, and more; one without GPUs all."""
    ads = [machine("slot1@a", totalslotgpus=0), machine("slot1@b"), machine("slot1@c")]
    ads[2] |= {"totalslotgpus": 4, "rtclass": "big"}
    rows = layout_of(slots_of(ads, SETTINGS)[0])
    masks, parts = rows.masks, rows.parts
    assert masks[parts.of("", 1, 0)].tolist() == [True, True, True]
    assert masks[parts.of("", 1, 0, 1)].tolist() == [False, True, True]
    assert masks[parts.of("", 1, 0, 3)].tolist() == [False, False, True]
    assert masks[parts.of("big", 8, 0, 1)].tolist() == [False, False, True]
    assert parts.of("", 1, 0, 5) == parts.of("", 9, 0, 0) == parts.of("", 1, 17 * GB, 1) == ""
    assert parts.of("", 1, 0) == f"/8/{16 * GB}"
    assert parts.of("", 1, 0, 3) == f"/8/{16 * GB}/4"


def polled(monkeypatch: pytest.MonkeyPatch, slots: list[Record], *jobs: Record) -> PoolState:
    """Return the first poll of a pool."""
    monkeypatch.setattr(observers.time, "time", lambda: NOW)
    return Observer(SETTINGS, Shown(slots, jobs)).poll()


def proc(cluster: int, cpus: int, memory: int, gpus: int = 0, on: str = "", **said: Any) -> Record:
    """Return the ad of a proc that asks for so much; memory in MB."""
    plain: Record = {"clusterid": cluster, "procid": 0, "jobstatus": 1, "jobuniverse": 5}
    plain |= {"owner": "root", "user": "root@pool", "qdate": int(NOW) - 100, "rtruntime": 600}
    plain |= {"requestcpus": cpus, "requestmemory": memory, "requestgpus": gpus}
    runs = {"jobstatus": 2, "jobcurrentstartdate": int(NOW) - 50, "remotehost": on} if on else {}
    return plain | runs | said


def test_jobs_take_what_they_ask_for_and_what_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits as its request is rounded up; one that runs what its dynamic slot has."""
    ads = [machine(), part("slot1_1@a", 2, 1024, 1, disk=2048.0), part("slot1_2@a", 1, 128)]
    running = [proc(1, 2, 900, 1, on="slot1_1@a", requestdisk=1), proc(2, 1, 1, on="slot1_2@a")]
    waiting = [proc(3, 4, 1000, 2, requestdisk=1025), proc(4, 0, 0)]
    view = polled(monkeypatch, ads, *running, *waiting)
    seen = view.observation
    assert seen.running.names("demand") == seen.queued.names("demand") == RESOURCES
    assert seen.running.demand.tolist() == [[2, 1024 * MB, 1, 2 * MB, 1], [1, 128 * MB, 0, 0, 1]]
    assert seen.queued.demand.tolist() == [[4, 1024 * MB, 2, 2 * MB, 1], [1, 0, 0, MB, 1]]
    assert seen.allocations.nodes.tolist() == [0, 0]
    assert seen.cluster.nodes.capacity.tolist() == [list(WHOLE)]
    assert seen.cluster.usable.tolist() == [True]


def test_what_others_have_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs of another schedd take from the amounts; a static slot of theirs takes no job."""
    ads = [
        machine(),
        part("slot1_1@a", 3, 2048, 1, schedd="there", disk=1.0 * MB),
        static("slot2@a"),
    ]
    ads[2] |= {"state": "Claimed", "remotescheddname": "there"}
    cluster = polled(monkeypatch, ads).observation.cluster
    assert cluster.nodes.capacity.tolist() == [[5, 14 * GB, 1, 99 * GB, 7], [0] * 5]
    assert set(cluster.nodes.state) == {NodeState.UP}


def test_a_job_that_may_start_takes_what_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no dynamic slot yet, and counts as running."""
    bound = {"rtadmission": "judged", "rtnodeset": "slot1@a", "rtplannedstart": NOW - 1}
    bound |= {"rtdeadline": NOW + 5000}
    view = polled(monkeypatch, [machine()], proc(1, 4, 1000, 2, **bound))
    assert view.bound == {A}
    assert view.observation.running.demand.tolist() == [[4, 1024 * MB, 2, MB, 1]]
    assert view.observation.allocations.nodes.tolist() == [0]


@pytest.mark.parametrize("began", [-100, 100])
def test_where_others_start_no_slot_is_suspect(monkeypatch: pytest.MonkeyPatch, began: int) -> None:
    """One that missed its start keeps promised jobs off its slot only if nobody starts there."""
    bound = {"rtadmission": "judged", "rtnodeset": "slot1@a", "rtdeadline": NOW + 5000}
    late = proc(1, 4, 1000, **bound, rtplannedstart=NOW - 150)
    ads = [machine(), machine("slot1@b"), machine("slot1@c"), part("slot1_1@a", 1, 128)]
    other = proc(2, 1, 128, on="slot1_1@a") | {"jobcurrentstartdate": int(NOW) - 50 + began}
    monkeypatch.setattr(Shown, "setting", lambda *_: 10.0)
    usable = polled(monkeypatch, ads, late, other).observation.cluster.usable.tolist()
    assert usable == [began > 0, True, True]


def test_a_load_has_the_most_of_any_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of its chunks on one machine count together."""
    load = {"rtsigma": 100.0, "rtcms": 0.1, "rtcps": 10.0, "rtdeadline": NOW + 9000}
    ads = [machine(), machine("slot1@b"), part("slot1_1@a", 1, 128), part("slot1_2@a", 1, 128)]
    ads.append(part("slot1_1@b", 1, 256))
    names = ("slot1_1@a", "slot1_2@a", "slot1_1@b")
    chunks = [proc(1, 1, 100, on=name, **load) | {"procid": at} for at, name in enumerate(names)]
    seen = polled(
        monkeypatch, ads, *[each | {"totalsubmitprocs": 3} for each in chunks]
    ).observation
    assert seen.running.demand.tolist() == [[2, 256 * MB, 0, 0, 2]]
    assert seen.allocations.nodes.tolist() == [0, 1]


# --- what is asked for at submission --------------------------------------------------------------

FACTS = CondorFacts(
    margin=30.0,
    parts=layout_of(slots_of([machine(), static("slot2@a")], SETTINGS)[0]).parts,
    shared=True,
)


def described(facts: CondorFacts = FACTS, **said: Any) -> Any:
    """Return what a submission with these lines means."""
    lines = {"Owner": '"root"', "RtDeadline": NOW + 9000, "RtRunTime": 60, "JobUniverse": 5} | said
    text = "".join(f"{name} = {value}\n" for name, value in lines.items())
    return CondorTranslator(SETTINGS).describe({Tag.AD: text}, facts, NOW)


def test_a_submission_takes_what_it_asks_for() -> None:
    """GPUs too; memory as the startd rounds it up."""
    found = described(RequestCpus=2, RequestMemory=1025, RequestGPUs=1, RequestDisk=2049)
    assert found.problem == ""
    assert found.jobs.names("demand") == RESOURCES
    assert found.jobs.demand.tolist() == [[2, 1152 * MB, 1, 3 * MB, 1]]
    assert found.jobs.texts("partition") == [f"/4/{4 * GB}/2"]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"RequestGPUs": 3}, "no slot has 1 CPUs, 0 MB and 3 GPUs"),
        ({"RequestGPUs": 1, "RtClass": '"x"'}, "no slot of class 'x' has 1 CPUs, 0 MB and 1 GPU"),
        ({"RequestCpus": 9}, "no slot has 9 CPUs and 0 MB"),
        ({"RequestMemory": 16385}, "no slot has 1 CPUs and 16385 MB"),
        ({"RequestDisk": 101 * MB}, "no slot has 1 CPUs, 0 MB and 103424 MB of disk"),
        (
            {"RequestDisk": 101 * MB, "RequestGPUs": 1},
            "no slot has 1 CPUs, 0 MB, 1 GPU and 103424 MB of disk",
        ),
        ({"RequestDisk": 101 * MB, "RequestCpus": 9}, "no slot has 9 CPUs and 0 MB"),
        ({"RequestMemory": 10**15}, "no slot has 1 CPUs and 1099511627776 MB"),
        (
            {"JobUniverse": PARALLEL, "MaxHosts": 2},
            "a parallel job gets no promise where jobs share",
        ),
    ],
)
def test_what_cannot_be_had(said: dict[str, Any], problem: str) -> None:
    """Its user reads why."""
    assert described(**said).problem.startswith(problem)


def test_without_the_setting_gpus_get_no_promise() -> None:
    """As before."""
    wish: Record = {"rtdeadline": NOW + 9000, "rtruntime": 60, "requestgpus": 1}
    assert requirements_of(wish, CondorFacts()).problem == "jobs that need GPUs get no promise"


def test_memory_is_rounded_up_where_a_slot_has_so_much() -> None:
    """A job that asks for all of the largest slot gets it, though that is no multiple."""
    parts = Parts((1,), (1000 * MB,))
    asked = np.array([-1, 0, 1, QUANTUM, QUANTUM + 1, 999 * MB, 1000 * MB, 1001 * MB], np.int64)
    rounded = parts.rounded(asked) // MB
    assert rounded.tolist() == [0, 0, 128, 128, 256, 999, 1000, 1024]


def test_disk_is_rounded_up_where_a_slot_has_so_much() -> None:
    """To whole MiB, one at least; all of the largest slot is no multiple."""
    parts = Parts(disk=(5, 3 * MB + 7))
    asked = np.array([0, 1, MB, MB + 1, 3 * MB + 7, 3 * MB + 8], np.int64)
    assert parts.rounded_disk(asked).tolist() == [MB, MB, MB, 2 * MB, 3 * MB + 7, 4 * MB]
    assert Parts().rounded_disk(asked[:2]).tolist() == [0, MB]


DISKS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), min_size=1, max_size=20)


@given(DISKS, st.integers(1, 4), st.integers(0, 11))
def test_slots_with_so_much_disk_counted_plainly(
    slots: list[tuple[int, int]], cpus: int, disk: int
) -> None:
    """Of those that have the CPUs; none is no part."""
    cores, disks = (np.array(column, np.int64) for column in zip(*slots, strict=True))
    parts, _ = parts_of([""] * len(slots), cores, cores, disk=disks)
    expected = sum(c >= cpus and d >= disk for c, d in slots)
    name = parts.of("", cpus, 0, 0, disk)
    assert (name != "") == (expected > 0)
    assert parts.count(name or parts.of("", cpus, 0), disk) == expected


@pytest.mark.parametrize(("disk", "each", "most"), [(0, 4, 3), (6, 3, 3), (12, 2, 2), (20, 1, 3)])
def test_an_array_is_as_wide_as_its_disk_allows(disk: int, each: int, most: int) -> None:
    """Machines of 4 CPUs with 24, 25 and 23 GB: most of its procs run at once."""
    sizes = {"slot1@a": 24.0, "slot1@b": 25.0, "slot1@c": 23.0}
    ads = [machine(name, totalslotcpus=4, totalslotdisk=size * MB) for name, size in sizes.items()]
    facts = CondorFacts(parts=layout_of(slots_of(ads, SETTINGS)[0]).parts, shared=True)
    said = {"RequestDisk": disk * MB, "TotalSubmitProcs": 1000, "WholeCluster": True, "ProcId": 0}
    row = described(facts, **said).jobs
    assert (row.tasks_per_node[0], row.size_max[0]) == (each, most)
    assert row.demand[0].tolist() == [each, 0, 0, (disk * GB or MB) * each, each]


def test_procs_of_one_job_take_the_most_of_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their own files make the default of RequestDisk differ; others count by themselves."""
    array = {"rtperslot": 2, "rtadmission": "judged", "rtdeadline": NOW + 9000}
    jobs = [proc(1, 1, 128, requestdisk=kb, procid=at, **array) for at, kb in enumerate((1, 2049))]
    jobs += [proc(2, 1, 128, requestdisk=5000.5), proc(3, 1, 128), proc(4, 1, 128, requestdisk=-3)]
    demand = polled(monkeypatch, [machine()], *jobs).observation.queued.demand
    assert demand[:, 3].tolist() == [6 * MB, 5 * MB, MB, MB]


# --- what a plan keeps ----------------------------------------------------------------------------


def takes(cpus: int, memory: int, gpus: int = 0, disk: int = 0) -> dict[str, Any]:
    """Return what a job takes of a slot; memory and disk in GB."""
    return {"takes": (cpus, memory * GB, gpus, disk * GB, 1)}


def waits(
    cluster: int, cpus: int, memory: int, gpus: int = 0, disk: int = 0, **said: Any
) -> Record:
    """Return the ad of a promised job that waits; memory and disk in GB."""
    words = {"rtadmission": "judged", "rtdeadline": NOW + 9000.0}
    return ad(cluster, **(words | takes(cpus, memory, gpus, disk) | said))


def runs(
    cluster: int, row: int, cpus: int, memory: int, gpus: int = 0, disk: int = 0, **said: Any
) -> Record:
    """Return the ad of a job that runs; memory and disk in GB."""
    return ad(cluster, jobstatus=2, on=[row], **(takes(cpus, memory, gpus, disk) | said))


def shared(*ads: Record, slots: int = 2, **said: Any) -> PoolState:
    """Return a poll of slots that have `WHOLE`: slot1@0, slot1@1, ..."""
    return view_of(*ads, slots=[f"slot1@{at}" for at in range(slots)], capacity=WHOLE, **said)


def kept(plan: Schedule, view: PoolState, **said: Any) -> dict[str, list[tuple[float, ...]]]:
    """Return what is kept, in seconds after now, CPUs, GB, GPUs and GB of disk."""
    starting = np.isin(plan.entries.job, said.get("starting", []))
    bound = np.isin(view.observation.running.id, said.get("bound", []))
    found = kept_amounts(
        plan,
        view,
        starting,
        bound,
        lead=said.get("lead", 0.0),
        horizon=NOW + said.get("horizon", 1e6),
    )
    return {
        name: [
            (at - NOW if at else 0, cpus, mb / 1024, gpus, kb / MB)
            for at, cpus, mb, gpus, kb in steps
        ]
        for name, steps in found.items()
    }


def test_each_instant_keeps_what_its_jobs_take_together() -> None:
    """Jobs that follow one another keep the most of any of them, not their sum."""
    view = shared(waits(1, 4, 2, 0, 5), waits(2, 2, 8, 1, 7), waits(3, 6, 1))
    plan = plan_of((A, 100, [0]), (B, 300, [0]), (C, 700, [0, 1]), length=600)
    assert kept(plan, view) == {
        "slot1@0": [(100, 4, 2, 0, 5), (300, 6, 10, 1, 12), (700, 8, 10, 1, 12)],
        "slot1@1": [(700, 6, 1, 0, 0)],
    }


def test_a_job_that_is_not_in_the_queue_yet_keeps_what_it_takes() -> None:
    """Its plan says what that is; where it is not said, the whole slot is kept."""
    view, new = (
        shared(),
        Jobs.build(
            1, id=[OFFER], names={"demand": RESOURCES}, demand=np.array([[4, 2 << 30, 1, 0, 1]])
        ),
    )
    plan = plan_of((OFFER, 100, [0]))
    assert kept(plan, view) == {"slot1@0": [(100, 8, 16, 2, 100)]}
    view.planned = new
    assert kept(plan, view) == {"slot1@0": [(100, 4, 2, 1, 0)]}


def test_starts_and_ends_are_told_earlier_by_the_lead() -> None:
    """A best-effort job may be there so much longer; what follows at an end comes for it."""
    view = shared(waits(1, 8, 1), waits(2, 8, 1))
    plan = plan_of((A, 100.5, [0]), (B, 700.5, [0]))
    assert kept(plan, view, lead=20) == {"slot1@0": [(80, 8, 1, 0, 0)]}


def test_what_may_start_at_once_is_kept_at_once() -> None:
    """So is what is about to start; what runs is not free anyway."""
    view = shared(waits(1, 1, 1), runs(7, 1, 2, 2, 1), runs(8, 1, 1, 1))
    plan = plan_of((A, 100, [0]))
    found = kept(plan, view, lead=20, starting=[A], bound=[job_id(7, 0)])
    assert found == {"slot1@0": [(0, 1, 1, 0, 0)], "slot1@1": [(0, 2, 2, 1, 0)]}


def test_a_job_that_is_not_in_the_queue_yet_keeps_its_slots() -> None:
    """Nobody knows what it takes."""
    plan = plan_of((OFFER, 100, [1]), (A, 50, [1]))
    assert kept(plan, shared(waits(1, 1, 1))) == {
        "slot1@1": [(50, 1, 1, 0, 0), (100, 9, 17, 2, 100)]
    }


def test_starts_beyond_the_horizon_keep_nothing() -> None:
    """The site says how far ahead slots are kept."""
    assert kept(plan_of((A, 100, [0])), shared(waits(1, 1, 1)), horizon=99) == {}
    assert kept(plan_of(), shared()) == {}


SPANS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 20),
        st.integers(1, 10),
        st.lists(st.integers(0, 3), min_size=2, max_size=2),
    ),
    max_size=8,
)


@given(SPANS)
def test_the_most_before_each_instant_counted_plainly(
    spans: list[tuple[int, int, int, list[int]]],
) -> None:
    """What is kept before an end is the most that is taken at any instant before it."""
    row, begin, length, amount = (
        (list(each) for each in zip(*spans, strict=True)) if spans else ([[]] * 4)
    )
    start = np.array(begin, np.float64)
    found = most_before(
        np.array(row, np.int64),
        start,
        start + np.array(length, np.float64),
        np.array(amount, np.int64).reshape(-1, 2),
    )
    for one in range(3):
        steps = found.get(one, ())
        moments = [step[0] for step in steps]
        assert moments == sorted(set(moments))
        for end in range(35):
            taken = [
                [sum(a[r] for w, b, n, a in spans if w == one and b <= t < b + n) for r in (0, 1)]
                for t in range(end)
            ]
            most = [max((each[r] for each in taken), default=0) for r in (0, 1)]
            before = [list(step[1:]) for step in steps if step[0] < end]
            assert (before[-1] if before else [0, 0]) == most


# --- who may start --------------------------------------------------------------------------------


def may(plan: Schedule, view: PoolState, **said: Any) -> list[bool]:
    """Return who may start."""
    closed = np.array(said.get("closed", [True] * len(plan.nodes)), np.bool_)
    return may_start_beside(plan, view, closed, NOW).tolist()


def test_who_fits_beside_what_runs() -> None:
    """Each resource counts, on each of the slots; a job goes on beside others."""
    busy = runs(7, 0, 4, 8, 1, 60)
    for asked, fits in (
        ((4, 8, 1, 40), True),
        ((1, 1, 0, 41), False),
        ((5, 1, 0), False),
        ((1, 9, 0), False),
        ((1, 1, 2), False),
    ):
        view = shared(waits(1, *asked), busy)
        assert may(plan_of((A, 0, [0])), view) == [fits]
        assert may(plan_of((A, 0, [1])), view) == [True]
        assert may(plan_of((A, 0, [1, 0])), view) == [fits]


def test_who_may_start_early() -> None:
    """Only beside all that come before it there, whenever these end."""
    plan = plan_of((A, 100, [0]), (B, 800, [0]), (C, 900, [0]))
    assert may(plan, shared(waits(1, 4, 1), waits(2, 4, 1), waits(3, 1, 1))) == [True, True, False]
    busy = runs(7, 0, 1, 1)
    assert may(plan, shared(waits(1, 8, 1), waits(2, 4, 1), waits(3, 1, 1), busy)) == [False] * 3


def test_whose_time_has_come_waits_for_nobody_that_is_not_known() -> None:
    """The plan has room for both; one that is early must leave the slots to it."""
    view = shared(waits(1, 4, 1))
    assert may(plan_of((OFFER, -5, [0]), (A, 0, [0])), view) == [False, True]
    assert may(plan_of((OFFER, 5, [0]), (A, 6, [0])), view) == [False, False]
    assert may(plan_of((OFFER, 7, [0]), (A, 6, [0])), view) == [False, True]


def test_who_may_not_start() -> None:
    """Where others may still come, and on slots that are away."""
    plan = plan_of((A, 0, [0, 1]))
    view = shared(waits(1, 4, 1))
    assert may(plan, view, closed=[True, False]) == [False]
    assert may(plan, shared(waits(1, 4, 1), down=[1])) == [False]


DEMANDS = st.tuples(st.integers(1, 8), st.integers(1, 16), st.integers(0, 2), st.integers(0, 100))
ENTRIES = st.lists(
    st.tuples(DEMANDS, st.integers(-3, 6), st.sets(st.integers(0, 1), min_size=1)), max_size=5
)
RUNNING = st.lists(st.tuples(DEMANDS, st.integers(0, 1)), max_size=3)


@given(ENTRIES, RUNNING)
def test_who_may_start_counted_plainly(
    entries: list[tuple[tuple[int, int, int, int], int, set[int]]],
    running: list[tuple[tuple[int, int, int, int], int]],
) -> None:
    """Beside what runs, and beside those before it on each slot."""
    ads = [waits(at + 1, *asked) for at, (asked, _, _) in enumerate(entries)]
    ads += [runs(at + 11, row, *asked) for at, (asked, row) in enumerate(running)]
    jobs = [(job_id(at + 1, 0), start, sorted(rows)) for at, (_, start, rows) in enumerate(entries)]
    expected = []
    for at, (asked, start, rows) in enumerate(entries):
        fits = True
        for row in rows:
            others = [one for one, where in running if where == row]
            others += [
                one
                for before, (one, earlier, where) in enumerate(entries)
                if row in where and (earlier, before) < (start, at)
            ]
            sums = [sum(one[r] for one in [asked, *others]) for r in range(4)]
            fits &= all(s <= w for s, w in zip(sums, (8, 16, 2, 100), strict=True))
            fits &= len(others) < 8
        expected.append(fits)
    assert may(plan_of(*jobs), shared(*ads)) == expected


# --- from a plan to changes -----------------------------------------------------------------------


def changes_of(
    plan: Schedule,
    view: PoolState,
    memory: LastApplied,
    now: float = NOW,
    secured: Schedule | None = None,
) -> Any:
    """Return the node sets that jobs get, and the table's steps in seconds after now."""
    made = reserve_changes(plan, view, SETTINGS, memory, now, secured)
    steps = [step for one in made for step in one.command or ()]
    sets = {
        job: step.value
        for step in steps
        if isinstance(step, Edit) and step.attribute == "RtNodeSet"
        for job in step.jobs
    }
    tables = [step.table for step in steps if isinstance(step, Publish)]
    return sets, tables[-1] if tables else None


def test_a_job_is_bound_when_what_it_takes_has_been_kept_for_a_while() -> None:
    """Beside jobs that run on; the table names all that it takes."""
    view, memory = shared(waits(1, 4, 8, 1, 3), runs(7, 0, 4, 8, 1)), LastApplied()
    plan = plan_of((A, 10, [0]))
    sets, table = changes_of(plan, view, memory)
    assert sets == {}
    assert table.kept == {"slot1@0": ((0, 4, 8192, 1, 3 * MB),)}
    assert table.text(5.0, 9.0).splitlines()[1] == "slot1@0\t1\t0:4:8192:1:3145728"
    memory.closed = {each: since - CLOSED_S for each, since in memory.closed.items()}
    assert changes_of(plan, view, memory)[0] == {A: '"slot1@0"'}


def test_what_waits_to_be_promised_its_slot_has_it_kept() -> None:
    """It gets its slots in no other way; when it is promised them, they have been closed before."""
    view, memory = shared(waits(1, 4, 8, 1, 3)), LastApplied()
    sets, table = changes_of(plan_of(), view, memory, secured=plan_of((A, 0, [0])))
    assert sets == {}
    assert table.kept == {"slot1@0": ((0, 4, 8192, 1, 3 * MB),)}
    memory.closed = {each: since - CLOSED_S for each, since in memory.closed.items()}
    assert changes_of(plan_of(), view, memory, secured=plan_of((A, 0, [0])))[0] == {}
    assert changes_of(plan_of((A, 0, [0])), view, memory)[0] == {A: '"slot1@0"'}


def test_one_that_moves_to_another_slot_waits_anew() -> None:
    """Others may be on their way there."""
    view, memory = shared(waits(1, 4, 8)), LastApplied()
    memory.closed = {f"{A} slot1@1": NOW - CLOSED_S}
    assert changes_of(plan_of((A, 0, [0])), view, memory)[0] == {}
    assert list(memory.closed) == [f"{A} slot1@0"]


def test_a_job_that_does_not_fit_yet_is_kept_room_from_its_start_on() -> None:
    """The lead before its planned start, and it is bound to nothing."""
    view = shared(waits(1, 8, 1), runs(7, 0, 1, 1))
    sets, table = changes_of(plan_of((A, 100, [0])), view, LastApplied())
    assert sets == {}
    lead = view.facts.tail + STARTING_S
    assert table.kept == {"slot1@0": ((int(NOW + 100 - lead), 8, 1024, 0, 0),)}
