"""The menu of a rejected job: hand-derived choices, how they are held, and who may take them."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import ANN, FACTS, NOW, Running, answer_of

from rtsched.adapters.slurm.facts import Partition
from rtsched.adapters.wire import ACCEPT, REJECT, Tag
from rtsched.daemon.menu import Allowance
from rtsched.daemon.questions import Choice, Choices, Feasible, Hold, RefusedError
from rtsched.daemon.settings import DaemonSettings
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Schedule

BOB = 1002
MINUTE = 60.0


async def submit(
    running: Running, nodes: int, minutes: int, by: float, uid: int = ANN, **more: int | str
) -> dict[int, int | str]:
    """Return the answer to a job of so many nodes and minutes, by so many minutes from now."""
    line = running.asked(nodes, by / 60, uid=uid, minutes=minutes, **more)
    return (await asyncio.to_thread(answer_of, line))[1]


def busy(until: Mapping[int, float]) -> dict[str, Any]:
    """Return a poll in which each of some nodes has a job that ends so many minutes from now."""
    count, ends = len(until), [NOW + minutes * MINUTE for minutes in until.values()]
    ids = list(range(500, 500 + count))
    return {
        "running": Jobs.build(
            count, id=ids, submit=NOW, size=1, wall_time=[end - NOW for end in ends]
        ),
        "allocations": Schedule.build(
            ids, [NOW] * count, ends, np.arange(count + 1), np.array(list(until), np.int32)
        ),
    }


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Running]:
    """Give a daemon with four nodes and much time for menus: a busy machine is slow."""
    one = Running(tmp_path, DaemonSettings(menu_ms=600_000.0))
    yield one
    one.close()


def told(choices: tuple[Choice, ...]) -> list[tuple[str, str, float]]:
    """Return kind, text and deadline, minutes from now, of choices."""
    return [(c.kind, c.text, (c.deadline - NOW) / MINUTE) for c in choices]


async def test_fewer_nodes_or_later(patient: Running) -> None:
    """One of four nodes is free for an hour: it is that, or all four when the others are free."""
    await patient.start(**busy({1: 120, 2: 120, 3: 120}))
    said = await submit(patient, 4, 30, 60)
    assert said[Tag.VERDICT] == REJECT
    first, *others = str(said[Tag.MESSAGE]).splitlines()
    assert "Feasible: " in first
    assert first.endswith("not reserved: submit within 60 s")  # one of them is free
    assert len(others) == 1
    start = "or `rtsched take 2 job.sh`: on 1 node (with the same time limit), by "
    assert others[0].startswith(start)
    assert others[0].endswith(", not reserved")
    report = await patient.ask(Choices())
    assert told(report.choices) == [
        ("later", "as it is", 150.0),
        ("smaller", "on 1 node (with the same time limit)", 60.0),
    ]
    options = [each.options for each in report.choices]
    assert options[0] == ("--nodes=4", "--time=30", f"--deadline=uts{NOW + 9000:.0f}")
    assert options[1] == ("--nodes=1", "--time=30", f"--deadline=uts{NOW + 3600:.0f}")
    assert report.expires == NOW + 60
    assert (await patient.ask(Choices(), BOB)).choices == ()


async def test_the_same_node_hours(patient: Running) -> None:
    """Three of four nodes for four thirds of the time: better than fewer of both."""
    await patient.start(**busy({3: 120}))
    await submit(patient, 4, 15, 60)
    report = await patient.ask(Choices())
    assert told(report.choices) == [
        ("later", "as it is", 135.0),
        ("smaller", "on 3 nodes with a time limit of 20 min (the same node-hours)", 60.0),
    ]


async def test_a_shorter_time_limit(patient: Running) -> None:
    """All nodes are free 15 minutes before the deadline: the limit is just that."""
    await patient.start(**busy(dict.fromkeys(range(4), 45)))
    await submit(patient, 4, 30, 60)
    report = await patient.ask(Choices())
    assert told(report.choices) == [
        ("later", "as it is", 75.0),
        ("shorter", "with a time limit of 15 min", 60.0),
    ]
    assert "--time=15" in report.choices[1].options


async def test_another_partition(patient: Running) -> None:
    """One that all users may use, and that starts jobs, is a choice; others are not."""
    names = ("all", "spare", "closed", "private")
    parts = {name: Partition(name, 600.0, 86400.0, True, 4, 4) for name in names}
    parts["closed"] = replace(parts["closed"], up=False)
    parts["private"] = replace(parts["private"], access={"RootOnly": "YES"})
    first = np.arange(4) < 2
    masks = {name: first if name == "all" else ~first for name in names}
    cluster = Cluster(Nodes.build(4, name=[f"n{k}" for k in range(4)]), masks)
    facts = replace(FACTS, partitions=parts)
    await patient.start(cluster=cluster, facts=facts, **busy({0: 120, 1: 120}))
    await submit(patient, 2, 30, 60)
    report = await patient.ask(Choices())
    assert [(c.kind, c.text) for c in report.choices] == [
        ("later", "as it is"),
        ("partition", "in spare"),
    ]
    assert "--partition=spare" in report.choices[1].options


async def test_later_and_smaller_where_smaller_alone_does_not_do(patient: Running) -> None:
    """A node is free after the deadline, long before all are: fewer nodes are ready earlier."""
    await patient.start(**busy({0: 20, 1: 300, 2: 300, 3: 300}))
    await submit(patient, 4, 30, 40)
    report = await patient.ask(Choices())
    assert told(report.choices)[:2] == [
        ("later", "as it is", 330.0),
        ("smaller", "on 1 node (with the same time limit)", 50.0),
    ]


async def test_whichever_is_taken_is_promised(patient: Running) -> None:
    """Both choices are held, and only what keeps no job from starting is reserved."""
    await patient.start(**busy({1: 120, 2: 120, 3: 120}))
    await submit(patient, 4, 30, 60)
    later, one = (await patient.ask(Choices())).choices
    assert later.held  # behind the other choice and busy nodes
    assert not one.held  # on a free node
    assert patient.states() == ["offered", "offered"]
    said = await submit(patient, 1, 30, 60)
    assert said[Tag.VERDICT] == ACCEPT
    states = Counter((r.uid, r.state) for r in patient.daemon.site.promises.values())
    assert states[ANN, "provisional"] == 1
    assert states[ANN, "offered"] == 0
    assert (await patient.ask(Choices())).choices == ()
    assert patient.daemon.site.unused_by(ANN, NOW, "offered") == []


async def test_a_menu_is_one_offer(patient: Running) -> None:
    """All its choices lapse together, count as one offer not used, and may not be taken then."""
    await patient.start(**busy({1: 120, 2: 120, 3: 120}))
    await submit(patient, 4, 30, 60)
    await submit(patient, 4, 30, 61)  # one offer per user: the first menu is given up
    assert patient.states() == ["offered", "offered"]
    assert len(patient.daemon.site.unused_by(ANN, NOW, "offered")) == 1
    patient.now = NOW + 61
    patient.show(time=patient.now)
    await patient.daemon.cycle()
    assert patient.states() == []
    assert len(patient.daemon.site.unused_by(ANN, NOW, "offered")) == 2
    assert (await patient.ask(Choices())).choices == ()


async def test_what_cannot_be_held_beside_is_as_of_now(patient: Running) -> None:
    """What would be in the way of the held choice is not held; what fits in its place is."""
    await patient.start(**busy({0: 10, 1: 10, 2: 10, 3: 45}))
    said = await submit(patient, 4, 30, 60)
    report = await patient.ask(Choices())
    assert [(c.kind, c.held) for c in report.choices] == [
        ("later", True),
        ("smaller", False),  # three nodes until 50 min from now; all four are held from 45 on
        ("shorter", True),  # the first 15 min of that
    ]
    assert patient.states() == ["offered"]
    lines = str(said[Tag.MESSAGE]).splitlines()
    assert [line.rpartition(", ")[2] for line in lines[1:]] == ["not reserved", "reserved"]
    said = await submit(patient, 3, 40, 60)  # what is held is not in its user's way
    assert said[Tag.VERDICT] == ACCEPT
    assert patient.states() == ["provisional"]


async def test_what_gave_way_to_another_job_is_as_of_now(patient: Running) -> None:
    """The menu stays; its choices are held no longer, and are promised if there is room."""
    await patient.start(**busy({2: 60, 3: 60}))
    await submit(patient, 4, 30, 60)
    menu = (await patient.ask(Choices())).choices
    assert [each.held for each in menu] == [True, False]
    assert (await submit(patient, 2, 50, 55))[Tag.VERDICT] == ACCEPT
    assert patient.states() == ["provisional"]
    assert [r.state for r in patient.store.open_promises()] == ["provisional"]
    after = await patient.ask(Choices())
    assert told(after.choices) == told(menu)
    assert [each.held for each in after.choices] == [False, False]
    assert (await submit(patient, 2, 60, 60))[Tag.VERDICT] == REJECT, "choice 2 has no room now"


async def test_a_job_that_can_have_nothing_leaves_the_menu(patient: Running) -> None:
    """What is held stays held, and can be taken."""
    await patient.start(**busy({1: 120, 2: 120, 3: 120}))
    await submit(patient, 4, 30, 60)
    menu = (await patient.ask(Choices())).choices
    assert (await submit(patient, 4, 30, 60, RESERVATION="none"))[Tag.VERDICT] == REJECT
    assert (await patient.ask(Choices())).choices == menu
    assert patient.states() == ["offered", "offered"]
    assert patient.daemon.site.unused_by(ANN, NOW, "offered") == []


async def test_nothing_is_held_for_a_question(patient: Running) -> None:
    """`feasible` shows the same menu; `hold` holds it, for its user and as one offer."""
    await patient.start(**busy({1: 120, 2: 120, 3: 120}))
    question = {"nodes": 4, "time_s": 1800.0, "deadline": NOW + 3600}
    report = await patient.ask(Feasible(**question))
    assert not report.feasible
    assert [(c.kind, c.held) for c in report.choices] == [("later", False), ("smaller", False)]
    assert patient.states() == []
    held = await patient.ask(Hold(**question))
    assert told(held.choices) == told(report.choices)
    assert [each.held for each in held.choices] == [True, False]
    assert held.expires == NOW + 60
    assert patient.states() == ["offered", "offered"]
    assert (await submit(patient, 1, 30, 60))[Tag.VERDICT] == ACCEPT
    assert patient.states() == ["provisional"]
    good = await patient.ask(Hold(nodes=1, time_s=600.0, deadline=NOW + 86400))
    assert good.feasible
    assert patient.states() == ["provisional"]


async def test_a_question_after_too_many_unused_offers(tmp_path: Path) -> None:
    """Nothing is held any more; the answer still names what could be promised."""
    one = Running(tmp_path, DaemonSettings(menu_ms=600_000.0, unused_offers_per_hour=0))
    await one.start(**busy({1: 120, 2: 120, 3: 120}))
    earliest = NOW + 150 * MINUTE
    for kind in (Feasible, Hold):
        report = await one.ask(kind(nodes=4, time_s=1800.0))
        assert report.feasible
        assert (report.deadline, report.start, report.nodes) == (
            earliest,
            NOW + 120 * MINUTE,
            ("n0", "n1", "n2", "n3"),
        )
        assert report.reasons == ()
        report = await one.ask(kind(nodes=4, time_s=1800.0, deadline=NOW + 3600))
        assert (report.feasible, report.deadline) == (False, earliest)
        assert [each.kind for each in report.choices] == ["later", "smaller"]
        assert one.states() == []
    one.close()


async def test_a_dry_run_holds_nothing(patient: Running) -> None:
    """It says so."""
    await patient.start()
    patient.daemon.dry_run = True
    with pytest.raises(RefusedError, match="nothing can be held"):
        await patient.ask(Hold())


async def test_no_time_no_search(tmp_path: Path) -> None:
    """With menu_ms = 0 a rejection offers a later deadline, and nothing more is judged."""
    one, judged = Running(tmp_path, DaemonSettings(menu_ms=0.0)), list[int]()
    await one.start(**busy({1: 120, 2: 120, 3: 120}))
    one.judging = lambda: judged.append(1)
    said = await submit(one, 4, 30, 60)
    assert len(str(said[Tag.MESSAGE]).splitlines()) == 1
    assert len(judged) == 2, "the job, and the deadline that is held"
    one.close()


def test_an_allowance_ends() -> None:
    """By its time, by its number of requests, and when somebody waits."""
    at, waits = [0.0], [False]
    allowance = Allowance(1.0, 3, lambda: waits[0], lambda: at[0])
    assert not allowance.spent()
    waits[0] = True
    assert allowance.spent()
    waits[0] = False
    assert [allowance.spent() for _ in range(3)] == [False, False, True]
    late = Allowance(1.0, 3, lambda: False, lambda: at[0])
    at[0] = 1.0
    assert late.spent()


async def test_hard_rejections_have_no_menu(patient: Running) -> None:
    """A job that is wrong is rejected as before, and the menu of before stays."""
    await patient.start(**busy({1: 120, 2: 120, 3: 120}))
    await submit(patient, 4, 30, 60)
    said = await submit(patient, 4, 30, 60, PARTITION="nowhere")
    assert "nowhere" in str(said[Tag.MESSAGE])
    assert len(str(said[Tag.MESSAGE]).splitlines()) == 1
    assert len((await patient.ask(Choices())).choices) == 2
