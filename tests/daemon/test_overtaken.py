"""Cycles that submissions overtake again and again: they end, off the loop, and lose nothing."""

import asyncio
import threading
from socket import socket

import numpy as np
from running import NOW, Running, answer_of, until

from rtsched.adapters.live import Marks
from rtsched.adapters.slurm.observation import token_of
from rtsched.adapters.wire import ACCEPT, Tag
from rtsched.daemon.app import ATTEMPTS, LEAST
from rtsched.model.jobs import Jobs


def park(running: Running, count: int = 1) -> None:
    """Have the next poll show jobs that are held until they have been judged."""
    ids = np.arange(1, count + 1)
    jobs = Jobs.build(count, id=ids, submit=np.full(count, NOW), wall_time=np.full(count, 60.0))
    held = np.ones(count, np.bool_)
    running.show(queued=jobs, marks=Marks.build(count, job=ids, deferred=held, held=held))


async def test_a_cycle_that_is_overtaken_each_time_ends(running: Running) -> None:
    """Whoever asks in its last attempt is judged in the next cycle; no promise is lost."""
    given: list[str] = []
    threads = set()

    def submit() -> None:
        threads.add(threading.current_thread())
        _, fields = answer_of(running.asked())
        assert fields[Tag.VERDICT] == ACCEPT
        given.append(token_of(str(fields[Tag.ADMIN_COMMENT])))

    await running.start()
    park(running)
    running.settling = submit
    await asyncio.wait_for(running.daemon.cycle(), 120.0)
    assert threading.main_thread() not in threads, "a cycle was worked out on the loop"
    assert not given[-1], "it was promised nothing"
    tokens = {record.token for record in running.daemon.site.promises.values()}
    assert tokens == set(given[:-1])
    assert len(given) == ATTEMPTS
    assert running.daemon.site.waiting_job(1).declined is not None, "the deferred job was judged"


async def test_a_submission_waits_for_a_cycle_that_is_about_to_end(running: Running) -> None:
    """It is judged on what the cycle came to, if that comes soon enough for the filter."""
    attempts, asking = [], threading.Event()
    line: list[socket] = []

    def submit() -> None:
        attempts.append(len(attempts))
        if len(attempts) < ATTEMPTS:
            answer_of(running.asked())
            return
        line.append(running.asked())
        assert asking.wait(120.0)

    def judging() -> None:
        if len(attempts) == ATTEMPTS:
            asking.set()

    await running.start()
    park(running)
    running.settling, running.judging = submit, judging
    await running.daemon.cycle()
    _, fields = await asyncio.to_thread(answer_of, line[0])
    assert str(fields[Tag.ADMIN_COMMENT]) != "rtsched:parked"
    assert len(running.states()) == ATTEMPTS


async def test_an_answer_that_nobody_read_waits_for_the_cycle_too(running: Running) -> None:
    """A promise is not withdrawn from under the last attempt of a cycle, but right after it."""
    calls = 0
    await running.start()
    park(running)
    line = running.asked()
    await until(lambda: bool(running.states()))

    def submit() -> None:
        nonlocal calls
        calls += 1
        if calls < ATTEMPTS:
            answer_of(running.asked())
            return
        line.close()
        answer_of(running.asked())  # the loop has seen the close before it answers this

    running.settling = submit
    await running.daemon.cycle()
    await until(lambda: len(running.states()) == ATTEMPTS - 1)
    assert running.store.counts()["lapsed"] == 1


async def test_attempts_have_less_to_do_each_time(running: Running) -> None:
    """Of many deferred jobs the last attempts judge a few, so that they are over soon."""
    submissions = []
    await running.start()
    park(running, 20)
    running.settling = lambda: submissions.append(answer_of(running.asked()))
    await running.daemon.cycle()
    assert len(submissions) == 20 + 20 + LEAST + LEAST
    assert len(running.daemon.site.waiting) == LEAST
