"""The process that talks to the batch system: it may hang or crash, and the daemon goes on."""

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from live_systems import leaky, small, unmade

from rtsched.daemon.worker import Worker
from rtsched.errors import AdapterError
from rtsched.model.actions import Hold


@pytest.fixture
def script(tmp_path):
    """Return a script that a system follows; words are written by the test."""
    path = tmp_path / "script"
    path.write_text("")
    return path


def alive(pid: int) -> bool:
    """Return whether a process is there and no zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def in_group(leader: int) -> list[int]:
    """Return the processes of a group."""
    listed = subprocess.run(["ps", "-eo", "pid=,pgid="], capture_output=True, text=True)
    pairs = (line.split() for line in listed.stdout.splitlines())
    return [int(pid) for pid, group in pairs if int(group) == leader]


def ends(pid: int) -> bool:
    """Return whether a process ends within some seconds."""
    until = time.monotonic() + 10
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not alive(pid)


async def test_ends_of_purged_jobs(script):
    """Who keeps the records is asked through the same process; a failure leaves it in place."""
    async with Worker(small(script)) as worker:
        assert (await worker.find_completions([3, 4])).job.tolist() == [3, 4]
        pid = worker.pid
        with pytest.raises(AdapterError, match="accounting does not answer"):
            await worker.find_completions([-1])
        assert (await worker.poll()).facts == pid


async def test_no_code_comes_from_where_it_was_started(script, monkeypatch, tmp_path):
    """Root may look at a batch system from a directory in which others write."""
    (tmp_path / "pickle.py").write_text("raise SystemExit('not ours')\n")
    monkeypatch.chdir(tmp_path)
    async with Worker(small(script)) as worker:
        assert (await worker.poll()).facts == worker.pid


async def test_polls_and_changes(script):
    """A poll crosses over whole and not writable; a dry-run changes nothing."""
    async with Worker(small(script)) as worker:
        observation = await worker.poll()
        assert observation.facts == worker.pid != os.getpid()
        assert observation.queued.texts("name")[99] == "job 99"
        assert not observation.queued.id.flags.writeable
        actions = [Hold(np.array([3, 4]), np.full(2, -np.inf))]
        changes, dones = await worker.apply(actions, dry_run=True)
        assert [change.text for change in changes] == ["hold 3", "hold 4"]
        assert not dones
        assert not script.with_suffix(".done").exists()
        changes, dones = await worker.apply(actions)
        assert [(done.change, done.outcome) for done in dones] == [
            (change, "done") for change in changes
        ]
        assert {change.command for change in changes} == {None}
        assert script.with_suffix(".done").read_text() == "hold 3 hold 4"
        pid = observation.facts
    assert ends(pid)
    assert worker.starts == 1


async def test_a_system_that_hangs(script):
    """It is killed with the commands it started when its time is up; the loop runs meanwhile."""
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    async with Worker(small(script), timeout_s=5) as worker:
        first = (await worker.poll()).facts
        worker._timeout = 0.5
        script.write_text("sleep")
        beating = asyncio.create_task(beat())
        began = time.monotonic()
        with pytest.raises(AdapterError, match=r"did not answer within 0.5 s"):
            await worker.poll()
        assert time.monotonic() - began < 3
        assert beats > 20
        beating.cancel()
        assert ends(first)
        assert all(ends(pid) for pid in in_group(first))
        with pytest.raises(AdapterError, match="restarts in"):
            await worker.poll()
        await asyncio.sleep(0.3)
        worker._timeout = 5
        assert (await worker.poll()).facts != first
        assert worker.starts == 2


async def test_a_library_that_leaks(script):
    """After so many calls a new process goes on with the system as it is."""
    async with Worker(leaky(script)) as worker:
        polls = [(await worker.poll()).facts for _ in range(7)]
        assert [count for _, count in polls] == [1, 2, 3, 4, 5, 6, 7]
        pids = list(dict.fromkeys(pid for pid, _ in polls))
        assert [pid for pid, _ in polls] == [*pids[:1] * 3, *pids[1:2] * 3, *pids[2:]]
        assert worker.pid == pids[2]
        assert not any(map(alive, pids[:2]))


async def test_what_cannot_be_handed_over(script):
    """It is said, and a new one is made."""
    script.write_text("stick")
    async with Worker(leaky(script)) as worker:
        pid, _ = [(await worker.poll()).facts for _ in range(3)][-1]
        with pytest.raises(AdapterError, match="defect in the adapter"):
            await worker.poll()
        assert ends(pid)
        await asyncio.sleep(0.3)
        assert (await worker.poll()).facts[1] == 1
        assert worker.starts == 2


@pytest.mark.parametrize(("word", "how"), [("die", "signal SIGSEGV"), ("leave", "status 7")])
async def test_a_system_that_dies(script, word, how):
    """Its end is told with the signal or status, at once, and the next call has a new process."""
    async with Worker(small(script), timeout_s=20) as worker:
        await worker.poll()
        script.write_text(word)
        began = time.monotonic()
        with pytest.raises(AdapterError, match=how):
            await worker.poll()
        assert time.monotonic() - began < 5
        await asyncio.sleep(0.3)
        await worker.poll()
        assert worker.starts == 2


async def test_killed_between_requests(script):
    """A process that somebody kills while it is idle is replaced."""
    async with Worker(small(script)) as worker:
        pid = (await worker.poll()).facts
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(AdapterError, match="signal SIGKILL"):
            await worker.poll()
        await asyncio.sleep(0.3)
        assert (await worker.poll()).facts != pid


async def test_the_pause_grows(script):
    """A process that dies again and again is started more and more rarely."""
    script.write_text("die " * 100)
    async with Worker(small(script)) as worker:
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            with pytest.raises(AdapterError):
                await worker.poll()
            await asyncio.sleep(0.01)
        assert 2 <= worker.starts <= 4


async def test_a_system_that_says_no(script):
    """What the adapter says reaches the caller, a defect with its traceback; nothing restarts."""
    script.write_text("refuse break_down")
    async with Worker(small(script)) as worker:
        with pytest.raises(AdapterError, match=r"^slurmctld does not answer; start it$"):
            await worker.poll()
        with pytest.raises(AdapterError, match=r"defect .* ZeroDivisionError: by zero") as told:
            await worker.poll()
        assert "break_down" in told.value.__notes__[0]
        await worker.poll()
        assert worker.starts == 1


async def test_a_system_that_cannot_be_made():
    """Why is told at the first call, and it is tried again later."""
    async with Worker(unmade) as worker:
        with pytest.raises(AdapterError, match="needs Slurm's commands"):
            await worker.poll()
        assert worker.pid is None
        with pytest.raises(AdapterError, match="restarts in"):
            await worker.poll()


def test_a_factory_must_be_picklable():
    """One that could not reach the child is refused when the worker is made."""
    with pytest.raises((AttributeError, pickle.PicklingError)):
        Worker(lambda: unmade())


async def test_who_gives_up_during_the_start_disturbs_nobody(script):
    """The process is made all the same, and answers the next call."""
    async with Worker(small(script)) as worker:
        asked = asyncio.create_task(worker.poll())
        await asyncio.sleep(0.01)
        asked.cancel()
        changes, _ = await worker.apply([Hold(np.array([1]), np.zeros(1))], dry_run=True)
        assert changes[0].text == "hold 1"
        assert worker.starts == 1


async def test_two_at_a_time(script):
    """Calls wait for each other, and a caller that gives up does not confuse the next."""
    async with Worker(small(script)) as worker:
        sights = await asyncio.gather(*(worker.poll() for _ in range(5)))
        assert len({observation.facts for observation in sights}) == 1
        asked = asyncio.create_task(worker.poll())
        await asyncio.sleep(0)
        asked.cancel()
        changes, _ = await worker.apply([Hold(np.array([1]), np.zeros(1))], dry_run=True)
        assert changes[0].text == "hold 1"


PARENT = """
import asyncio, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it in the background
sys.path.insert(0, {tests!r})
from pathlib import Path
from live_systems import small
from rtsched.daemon.worker import Worker
async def main():
    worker = Worker(small(Path({script!r})))
    print((await worker.poll()).facts, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_it_dies_with_the_daemon(script, number):
    """However the daemon ends, its process does not stay behind."""
    code = PARENT.format(tests=str(Path(__file__).parent), script=str(script))
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as daemon:
        pid = int(daemon.stdout.readline())
        assert alive(pid)
        os.kill(pid, signal.SIGINT)  # a Ctrl-C at the terminal is the daemon's business
        time.sleep(0.2)
        assert alive(pid)
        daemon.send_signal(number)
        daemon.wait(120)
        assert ends(pid)


def test_large_polls_do_not_stall(tmp_path, monkeypatch):
    """Ten thousand jobs cross over in some milliseconds of the daemon's time."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    from live_systems import large

    async def main() -> float:
        async with Worker(large) as worker:
            assert len((await worker.poll()).queued) == 10_000
            spent = []
            for _ in range(10):
                began = time.process_time()
                await worker.poll()
                spent.append(time.process_time() - began)
            return min(spent)

    assert asyncio.run(main()) < 0.005
