"""Licences: what Slurm shows of them, what jobs take, and what is reserved."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurm_printed import PLAIN, job_rows, printed

from rtsched.adapters.live import Change, Observation
from rtsched.adapters.slurm.advance_reservations import (
    FLAGS,
    LICENSE_FLAGS,
    AdvanceReservation,
    difference,
)
from rtsched.adapters.slurm.commands import Rank
from rtsched.adapters.slurm.comments import NOTHING
from rtsched.adapters.slurm.facts import Partition, Sharing, SlurmFacts, plans_licenses
from rtsched.adapters.slurm.last_applied import LastApplied, SlurmState, applied
from rtsched.adapters.slurm.layout import layout_of, unreserved_licenses
from rtsched.adapters.slurm.observation import jobs_of, marks_of
from rtsched.adapters.slurm.per_node import Demand, demand_of
from rtsched.adapters.slurm.requirements import JobRequest, requirements_of
from rtsched.adapters.slurm.reserving import licenses_kept, reserve_changes
from rtsched.adapters.slurm.rows import ReservationRow, license_counts, node_rows, reservation_rows
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.adapters.slurm.submission import request_of
from rtsched.adapters.wire import Tag
from rtsched.model.schedule import Schedule
from rtsched.model.table import amounts_of

NOW = 1_795_320_000.0
MATLAB, FLUENT = "license/matlab", "license/fluent"
LICENSES = {MATLAB: 4, FLUENT: 2}
SHARING = Sharing(("cpu",), licenses=LICENSES)
PART = Partition("all", nodes=3, cores=8, hardware=(({"cpu": 8}, 3),))
FACTS = SlurmFacts(margin=20.0, partitions={"all": PART}, default="all", sharing=SHARING)
WAITS = PLAIN | {
    "jobarrayid": "1",
    "exclusive": "NO",
    "tres": "cpu=1,mem=100M,node=1,license/matlab=3",
    "tres-per-job": "N/A",
    "numcpus": "1",
    "maxnodes": "1",
    "dependency": "(null)",
    "eligibletime": PLAIN["submittime"],
    "timelimit": "10:00",
    "partition": "all",
    "prioritylong": "1000",
    "deadline": str(int(NOW + 5000)),
    "licenses": "matlab:3",
}
SHOWN = """\
LicenseName=fluent@lm Total=8 Used=2 Free=3 Reserved=0 Remote=yes LastConsumed=6 LastDeficit=3 \
LastUpdate=2026-11-24T09:00:00
LicenseName=matlab Total=4 Used=3 Free=1 Reserved=3 Remote=no
"""


def test_how_many_there_are() -> None:
    """Those in use and reserved too; not those of a server that are used elsewhere."""
    assert license_counts(SHOWN) == {"license/fluent@lm": 5, MATLAB: 4}
    assert license_counts("No licenses configured in Slurm.\n") == {}


@pytest.mark.parametrize(
    ("parameters", "plans"),
    [("bf_continue,bf_licenses", True), ("bf_continue", False), ("", False)],
)
def test_whether_backfill_plans_with_them(parameters: str, plans: bool) -> None:
    """By SchedulerParameters."""
    assert plans_licenses({"SchedulerParameters": parameters}) == plans
    assert not plans_licenses({})


def test_reservations_of_others() -> None:
    """Those near and recurring ones take licences; ours and those that are over do not."""
    shown = (
        "ReservationName=course StartTime=1795319990 EndTime=1795320500 Nodes=(null) "
        "Flags=ANY_NODES Users=dave Licenses=matlab:2 State=ACTIVE\n"
    )
    (course,) = reservation_rows(shown)
    assert dict(course.licenses) == {MATLAB: 2}

    def row(name: str, start: float, end: float, *flags: str) -> ReservationRow:
        return ReservationRow(name, NOW + start, NOW + end, (), (), flags, False, {FLUENT: 1})

    others = [
        course,
        row("rtsched_7", 0, 100),
        row("over", -50, -5),
        row("far", 5000, 6000),
        row("daily", 5000, 6000, "DAILY"),
    ]
    assert unreserved_licenses(LICENSES, others, NOW, 100.0) == {MATLAB: 2, FLUENT: 1}
    assert unreserved_licenses({MATLAB: 1}, others, NOW, 100.0) == {MATLAB: 0}


def test_the_machine_has_them() -> None:
    """Where nodes are not shared it has none."""
    nodes = node_rows("NodeName=n1 CPUTot=8 RealMemory=100 State=IDLE Partitions=all Weight=1\n")
    for sharing, licenses in ((SHARING, LICENSES), (Sharing(("cpu",)), {}), (None, {})):
        layout = layout_of(nodes, {"all": {}}, "all", set(), SlurmSettings(), 1, sharing)
        assert layout.cluster.licenses == licenses


def taken(sharing: Sharing = SHARING, nodes: int = 1, **asked: Any) -> Demand:
    """Return what a request takes."""
    return demand_of(JobRequest(**asked), PART, sharing, nodes)


def test_what_a_request_takes() -> None:
    """Licences are for all of its nodes together."""
    assert taken(nodes=2, licenses="matlab:3,fluent").amounts == {"cpu": 1, MATLAB: 3, FLUENT: 1}
    shown = taken(nodes=2, shown="cpu=4,node=2,license/matlab=3", licenses="matlab:3")
    assert shown.amounts == {"cpu": 2, MATLAB: 3}
    assert taken(shown="cpu=1", licenses="matlab:1|fluent:2").amounts[FLUENT] == 2


@pytest.mark.parametrize(
    ("licenses", "text"),
    [
        ("matlab:5", "requests 5 licences 'matlab'; there are 4 for jobs"),
        ("ansys", "Slurm has no licences 'ansys'; see scontrol show licenses"),
        ("matlab:1|fluent:1", "cannot plan with a choice of licences"),
        ("matlab:x", "cannot plan with the licences 'matlab:x'; write NAME:COUNT"),
    ],
)
def test_what_cannot_be_planned(licenses: str, text: str) -> None:
    """One sentence each; nothing of it concerns a job that wants no promise."""
    assert text in taken(licenses=licenses).problem
    assert not requirements_of(JobRequest(limit=60.0, licenses=licenses), FACTS).problem


def test_none_of_a_licence() -> None:
    """A job that says that it needs none of some is as others."""
    fields = {Tag.TIME_LIMIT: 1, Tag.DEADLINE: int(NOW) + 900, Tag.LICENSES: "matlab:0,work=0"}
    asked = request_of(fields, NOTHING, NOW)
    for sharing in (SHARING, Sharing(("cpu",)), Sharing()):
        assert not requirements_of(asked, replace(FACTS, sharing=sharing)).problem
    assert not requirements_of(replace(asked, array=4), FACTS).problem


def test_where_slurm_does_not_keep_them() -> None:
    """Without bf_licenses, without shared nodes, and for arrays."""
    asked = JobRequest(limit=60.0, deadline=NOW + 900, licenses="matlab:1")
    assert not requirements_of(asked, FACTS).problem
    bare = replace(FACTS, sharing=Sharing(("cpu",)))
    assert "the admin may add bf_licenses" in requirements_of(asked, bare).problem
    whole = replace(FACTS, sharing=Sharing())
    assert "a job that needs licences" in requirements_of(asked, whole).problem
    each = requirements_of(replace(asked, licenses="", tres_task="license/matlab:1"), FACTS)
    assert "licences per task; name all of the job by --licenses" in each.problem
    array = requirements_of(replace(asked, array=4), FACTS)
    assert "an array whose tasks need licences" in array.problem


def view_of(*jobs: dict[str, str]) -> SlurmState:
    """Return a view of waiting jobs numbered from 1 on three nodes."""
    shown = (
        {**WAITS, "jobid": str(at + 1), "jobarrayid": str(at + 1), **job}
        for at, job in enumerate(jobs)
    )
    rows = job_rows(printed(*shown))
    which = np.arange(len(jobs))
    text = "".join(
        f"NodeName=n{n} CPUTot=8 RealMemory=100 State=IDLE Partitions=all Weight=1\n"
        for n in range(3)
    )
    layout = layout_of(node_rows(text), {"all": {}}, "all", set(), SlurmSettings(), 1, SHARING)
    observation = Observation(
        NOW, layout.cluster, jobs_of(rows, which, FACTS), marks=marks_of(rows, which, FACTS)
    )
    return SlurmState(rows, observation, FACTS, ("n0", "n1", "n2"), [], NOW)


def plan(*entries: tuple[int, float, int]) -> Schedule:
    """Return a plan of (job, start after now, node), each for 620 s."""
    start = NOW + np.array([start for _, start, _ in entries])
    return Schedule.build(
        [job for job, *_ in entries],
        start,
        start + 620.0,
        np.arange(len(entries) + 1),
        np.array([node for *_, node in entries], np.int32),
    )


def changes(view: SlurmState, *entries: tuple[int, float, int]) -> list[Change]:
    """Return what a plan asks of reservations and their jobs, and carry it out."""
    settings = SlurmSettings(share_nodes=True)
    found = reserve_changes(plan(*entries), view, settings, LastApplied())
    found.sort(key=lambda each: each.command.rank)
    for each in found:
        applied(view, each.command)
    return [each for each in found if "ReservationName=" in str(each.command.words)]


def test_what_queued_jobs_take() -> None:
    """By Licenses, whether accounting tracks them or not; two nodes take them once."""
    two = {"tres": "cpu=4,node=2", "maxnodes": "2", "licenses": "matlab:3,fluent:1"}
    queued = view_of({}, two, {"licenses": "(null)", "tres": "cpu=1,node=1"}).observation.queued
    assert amounts_of(queued, "demand", ("cpu", MATLAB, FLUENT)).tolist() == [
        [1, 3, 0],
        [2, 3, 1],
        [1, 0, 0],
    ]
    assert np.isfinite(queued.deadline).all()


def test_licences_are_reserved_for_a_planned_job() -> None:
    """On no node, from the margin before its start; the job is bound, and may start before."""
    view = view_of({}, {"licenses": "(null)"})
    entries = (1, 1000.0, 0), (2, 1000.0, 1)
    create, bind = changes(view, *entries)
    assert {
        "ReservationName=rtsched_1",
        f"StartTime=uts{NOW + 980:.0f}",
        f"EndTime=uts{NOW + 1600:.0f}",
        "Licenses=matlab:3",
        "Users=ann",
        f"Flags={LICENSE_FLAGS}",
    } == set(create.command.words[3:])
    assert bind.command.words[2:4] == ("JobId=1", "ReservationName=rtsched_1")
    assert bind.command.words[4].startswith("TimeMin="), "backfill does not shorten its limit"
    assert "with the licences matlab:3 from" in create.text
    assert not changes(view, *entries)


def test_one_after_the_other() -> None:
    """What both take in turn is reserved once: for the first, and when that runs for the second."""
    view = view_of({}, {})
    changes(view, (1, 1000.0, 0), (2, 1620.0, 0))
    (only,) = view.reservations
    assert (only.name, only.licenses, only.end) == ("rtsched_1", {MATLAB: 3}, NOW + 1600)
    swapped = changes(view, (1, 1620.0, 0), (2, 1000.0, 0))
    assert [each.command.rank for each in swapped] == [
        Rank.LEAVE,
        Rank.RENEW,
        Rank.CREATE,
        Rank.BIND,
    ]
    (only,) = view.reservations
    assert (only.name, only.end) == ("rtsched_2", NOW + 1600)


def test_what_later_jobs_take_beside_the_first() -> None:
    """One of 1 is followed by one of 3: 2 more are kept for nobody, until the first one runs."""
    view = view_of({"licenses": "matlab:1"}, {})
    changes(view, (1, 1000.0, 0), (2, 1620.0, 0))
    first, rest = sorted(view.reservations, key=lambda row: row.start)
    assert (first.name, first.licenses) == ("rtsched_1", {MATLAB: 1})
    assert (rest.name, rest.licenses, rest.nodes) == ("rtsched_0", {MATLAB: 2}, ())
    assert (rest.start, rest.users) == (NOW + 1600, ("rtsched",))
    assert not changes(view, (1, 1000.0, 0), (2, 1620.0, 0))
    view.held = {1}
    ranks = [each.command.rank for each in changes(view, (1, 1000.0, 0), (2, 1620.0, 0))]
    assert ranks == [Rank.LEAVE, Rank.RENEW, Rank.RENEW, Rank.CREATE, Rank.BIND]
    assert [row.name for row in view.reservations] == ["rtsched_2"]


def test_the_rest_changes_in_place() -> None:
    """Its licences, as its times: it is not deleted first."""
    row = ReservationRow("rtsched_0", NOW + 10, NOW + 600, (), ("rtsched",), (), licenses=LICENSES)
    pool = AdvanceReservation(
        "rtsched_0", 0, "rtsched", NOW + 20, NOW + 600, (), whole=False, licenses={MATLAB: 2}
    )
    moved = difference([pool], [row], NOW, 300.0)
    ((same, words),) = moved.update
    assert same is pool
    assert words == {"StartTime": f"uts{NOW + 20:.0f}", "Licenses": "matlab:2"}
    assert (moved.renew, moved.delete, moved.create) == ((), (), ())


planned_jobs = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(0, 3), st.integers(0, 2)),
    min_size=1,
    max_size=7,
)


@given(planned_jobs, st.lists(st.tuples(st.integers(1, 12), st.integers(0, 2)), max_size=3))
def test_planned_starts_are_possible_by_slurms_rule(
    jobs: list[tuple[int, int, int, int]], runs: list[tuple[int, int]]
) -> None:
    """What runs, what a due job takes, and what others have reserved are no more than there are."""
    # There are as many as the plan takes at one time. What is reserved is no more than jobs take at
    # one time either, and no less unless some are due. Instant by instant.
    start, length, *amounts = (np.array(column) for column in zip(*jobs, strict=True))
    end, taken = start + length, np.column_stack(amounts)
    instants = range(40)
    waiting = np.array([taken[(start <= t) & (end > t)].sum(axis=0) for t in instants])
    busy = np.array([[sum(n for over, n in runs if over > t)] * 2 for t in instants])
    total = (waiting + busy).max(axis=0)
    due = start == 0
    own, rest = licenses_kept(start * 1.0, end * 1.0, taken, total - busy[0], due)
    reserved = taken[own].sum(axis=0) + rest
    assert (rest >= 0).all()
    assert (reserved <= waiting.max(axis=0)).all()
    if due.any():
        assert own[due].all()
        assert (busy[0] + reserved <= total).all()
    else:
        assert (reserved == waiting.max(axis=0)).all()
    order = np.lexsort((start, ~due))
    assert (np.diff(own[order].astype(int)) <= 0).all(), "the first ones"


def test_a_job_that_is_late() -> None:
    """Its plan moves with the clock; its reservation is extended when it is much too short."""
    view = view_of({})
    changes(view, (1, 10.0, 0))
    view.now += 250.0
    assert not changes(view, (1, 250.0, 0)), "it has begun, and reaches far enough"
    view.now += 150.0
    (late,) = changes(view, (1, 400.0, 0))
    assert late.command.words[3:] == (f"EndTime=uts{NOW + 1000:.0f}",)


def test_a_job_without_time_to_spare() -> None:
    """It has both reserved, its nodes and its licences."""
    view = view_of({"deadline": str(int(NOW) + 2620)})
    create, _ = changes(view, (1, 2000.0, 2))
    assert {"Nodes=n2", "Licenses=matlab:3", f"Flags={FLAGS}"} <= set(create.command.words)
    assert not changes(view, (1, 2000.0, 2))
    assert [each.command.rank for each in changes(view, (1, 1000.0, 2))] == [
        Rank.LEAVE,
        Rank.RENEW,
        Rank.CREATE,
        Rank.BIND,
    ], "with time to spare it has licences alone"
    assert [row.nodes for row in view.reservations] == [()]


def test_far_starts_and_jobs_that_are_held() -> None:
    """Nothing that starts now reaches into them; a held job starts nothing."""
    view = view_of({}, {"prioritylong": "0", "reason": "JobHeldUser"})
    view.facts = replace(FACTS, longest=3600.0)
    assert not changes(view, (1, 9000.0, 0), (2, 100.0, 1))


def test_a_promise_that_is_over() -> None:
    """Its job leaves the reservation before that goes."""
    view = view_of({})
    changes(view, (1, 1000.0, 0))
    assert [each.command.rank for each in changes(view)] == [Rank.LEAVE, Rank.RENEW]
    assert not view.reservations
