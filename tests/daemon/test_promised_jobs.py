"""The list of promised jobs that the daemon leaves for a submit filter that cannot ask it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
from running import ANN, Running, answer_of

from rtsched.adapters.live import Completions, CompletionStatus, Marks
from rtsched.adapters.wire import ACCEPT, Tag
from rtsched.daemon.promised_jobs import FILE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


def run(place: Path, course: Callable[[Running], Awaitable[None]]) -> None:
    """Run a daemon with four idle nodes, and a course of events."""

    async def whole() -> None:
        running = Running(place)
        try:
            await running.start()
            await course(running)
        finally:
            running.close()

    asyncio.run(whole())


def lines(running: Running) -> list[str]:
    """Return the list's lines, without the first words and the last line."""
    first, *others, last = (running.path / FILE).read_text().splitlines()
    assert last == "end"
    return [first.removeprefix("rtsched-promised-jobs 1 "), *others]


async def promise(running: Running) -> None:
    """Have ann promised something."""
    _, fields = await asyncio.to_thread(answer_of, running.asked())
    assert fields[Tag.VERDICT] == ACCEPT


def appear(running: Running, job: int) -> None:
    """Have the next poll show the job of the one promise that has none yet."""
    site = running.daemon.site
    record = next(r for r in site.promises.values() if r.state == "provisional")
    row = site.row(record.id).replace(id=np.array([job]))
    marks = Marks.build(1, job=[job], uid=[ANN], token=[record.token], requeues=[True])
    running.show(queued=row, marks=marks)


def test_a_promise_is_on_the_list_before_the_filter_reads_of_it(tmp_path: Path) -> None:
    """Its job has no number yet, so its user stands there; with the next poll the job does."""

    async def course(running: Running) -> None:
        assert lines(running) == ["0"]
        add = running.daemon.promised.add

        def seen(uid: int) -> None:
            assert running.states() == ["provisional"]  # committed, not answered
            add(uid)
            assert lines(running) == ["0", f"user {ANN}"]

        running.daemon.promised.add = seen
        await promise(running)
        assert lines(running) == ["0", f"user {ANN}"]
        appear(running, 17)
        await running.daemon.cycle()
        assert lines(running) == ["17", "17"]

    run(tmp_path, course)


def test_a_closed_promise_leaves_the_list(tmp_path: Path) -> None:
    """A job that is gone is on it no longer, nor is a user whose admission lapsed."""

    async def course(running: Running) -> None:
        await promise(running)
        appear(running, 17)
        await running.daemon.cycle()
        await promise(running)
        assert lines(running) == ["17", "17", f"user {ANN}"]
        running.now += 1000.0
        empty = running.system.observation.queued.take(np.zeros(0, np.int64))
        over = Completions.build(1, job=[17], end=[running.now], status=[CompletionStatus.FAILED])
        running.show(time=running.now, queued=empty, marks=Marks.build(0), completions=over)
        await running.daemon.cycle()
        assert running.states() == []
        assert lines(running) == ["17"]

    run(tmp_path, course)


def test_an_offer_is_no_promise(tmp_path: Path) -> None:
    """Of a user who was rejected, with an offer that is held for her, no job is guarded."""

    async def course(running: Running) -> None:
        await asyncio.to_thread(answer_of, running.asked(nodes=4, hours=0.6))
        await asyncio.to_thread(answer_of, running.asked(nodes=4, hours=0.6))
        assert sorted(running.states()) == ["offered", "provisional"]
        appear(running, 17)
        await running.daemon.cycle()
        assert lines(running) == ["17", "17"]

    run(tmp_path, course)


def test_a_list_that_cannot_be_written_is_a_problem_and_no_obstacle(tmp_path: Path) -> None:
    """Promises are given all the same; the status says what is wrong, until it is not any more."""

    async def course(running: Running) -> None:
        place = tmp_path / "gone" / FILE
        running.daemon.promised.path = place
        await promise(running)
        await running.daemon.cycle()
        problem = f"{place} cannot be written (No such file or directory)"
        assert any(problem in each for each in running.daemon.status.problems)
        place.parent.mkdir()
        await running.daemon.cycle()
        assert running.daemon.status.problems == ()
        assert f"user {ANN}" in place.read_text()

    run(tmp_path, course)


def test_the_list_is_written_when_it_changes(tmp_path: Path) -> None:
    """A poll that shows nothing new, and a second promise to a user, leave the file as it is."""

    async def course(running: Running) -> None:
        await promise(running)
        before = (tmp_path / FILE).stat().st_mtime_ns
        await promise(running)
        await running.daemon.cycle()
        assert (tmp_path / FILE).stat().st_mtime_ns == before
        assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o644
        assert [path.name for path in tmp_path.glob(f".{FILE}*")] == []

    run(tmp_path, course)
