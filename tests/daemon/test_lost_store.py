"""The database is removed while the daemon runs, or another one is there when it starts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest
from running import ANN, NOW, Running, answer_of

from rtsched.adapters.live import Marks
from rtsched.adapters.wire import MessageKind, Tag
from rtsched.daemon.store import Store
from rtsched.model.actions import Notify
from rtsched.model.jobs import Jobs

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "0123456789abcdef" * 2


def remove(path: Path) -> None:
    """Remove the database."""
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink()


def test_a_database_that_is_removed_is_made_again_with_all_promises(running: Running) -> None:
    """What comes in between is promised nothing, and admins read what happened."""

    async def course() -> None:
        await running.start()
        await asyncio.to_thread(answer_of, running.asked())
        remove(running.store.path)
        kind, fields = await asyncio.to_thread(answer_of, running.asked())
        assert kind == MessageKind.ERROR
        assert "was removed while the daemon ran" in str(fields[Tag.MESSAGE])
        await running.daemon.cycle()
        await asyncio.to_thread(answer_of, running.asked())
        (problem,) = running.daemon.problems()
        assert "it was made again" in problem
        text = running.daemon.metrics.text()
        assert not text or "rtsched_database_renewals_total 1.0" in text

    asyncio.run(course())
    known = {record.token for record in running.daemon.site.promises.values()}
    assert len(known) == 2
    running.close()
    with Store(running.store.path) as store:
        assert {record.token for record in store.load().promises} == known


def test_while_the_directory_is_gone_nothing_is_promised(running: Running) -> None:
    """Admins read what to do; once it is back everything is as it was."""
    place = running.path / "store"
    place.mkdir()
    running.daemon.store = Store(place / "rtsched.db")

    async def course() -> None:
        await running.start()
        place.rename(running.path / "away")
        await running.daemon.cycle()
        (problem,) = running.daemon.problems()
        assert "cannot be made again; nothing is promised until it is there" in problem
        assert (await asyncio.to_thread(answer_of, running.asked()))[0] == MessageKind.ERROR
        (running.path / "away").rename(place)
        await running.daemon.cycle()
        assert not running.daemon.problems()
        assert (await asyncio.to_thread(answer_of, running.asked()))[0] == MessageKind.ANSWER

    asyncio.run(course())
    running.daemon.store.close()


@pytest.mark.parametrize("hours", [2.0, 0.1])
def test_promises_that_the_database_does_not_know_are_given_again(
    running: Running, hours: float
) -> None:
    """By the tokens that waiting jobs carry; one that cannot be kept any more is told so."""
    job = Jobs.build(
        1, id=[7], submit=[NOW - 60.0], wall_time=[1800.0], deadline=[NOW + hours * 3600.0]
    )
    marks = Marks.build(1, job=[7], uid=[ANN], token=[TOKEN])
    running.show(queued=job, marks=marks)

    async def course() -> None:
        await running.start()
        (problem,) = running.daemon.problems()
        assert problem.startswith("1 waiting job had a promise that the database does not know (7)")
        told = [
            text
            for each in running.system.applied
            if isinstance(each, Notify)
            for text in each.text
        ]
        promised = hours > 0.5
        assert ("promised again" in told[0]) == promised
        found = [(r.id, r.token, r.state) for r in running.daemon.site.promises.values()]
        assert found == ([(7, TOKEN, "firm")] if promised else [])
        await running.daemon.cycle()
        assert [r.token for r in running.daemon.site.promises.values()] == [TOKEN] * promised

    asyncio.run(course())
    assert running.store.known([TOKEN]) == ({TOKEN} if hours > 0.5 else set())


def test_promises_that_were_closed_are_known(running: Running) -> None:
    """A job whose promise is void still carries its token."""
    running.show(
        queued=Jobs.build(1, id=[7], submit=[NOW], wall_time=[60.0], deadline=[NOW + 7200.0]),
        marks=Marks.build(1, job=[7], uid=[ANN], token=[TOKEN], held=np.array([False])),
    )
    running.store.known = lambda tokens: set(tokens)  # type: ignore[method-assign]

    async def course() -> None:
        await running.start()
        assert not running.daemon.problems()
        assert not running.daemon.site.promises

    asyncio.run(course())
