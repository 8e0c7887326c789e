"""Calls that may never return, and commands whose output is read while it comes."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.child_process import SubprocessProxy
from rtsched.adapters.condor.pool import PatientPool
from rtsched.adapters.programs import output_of, run_program, text_of
from rtsched.errors import AdapterError


class Hung:
    """A negotiator that may be asleep, made in another process."""

    def __init__(self, log: str) -> None:
        with open(log, "a") as file:
            file.write(f"{os.getpid()}\n")

    def sleep(self) -> None:
        """Never answer, and let no thread of the process run."""
        os.kill(os.getpid(), signal.SIGSTOP)

    submitters = sleep

    def twice(self, value: Any) -> Any:
        """Answer."""
        return value, value

    def fail(self) -> None:
        """Fail as an adapter does."""
        raise AdapterError("the negotiator does not answer")

    def die(self) -> None:
        """End the process."""
        os._exit(3)


LOST: list[int] = []
"""What a library loses."""


class Worn:
    """One that remembers how often it was asked, and whose library is worn out after two calls."""

    calls = 2

    def __init__(self) -> None:
        self.known = 0

    def count(self) -> tuple[int, int, int]:
        """Return the process, how often this one was asked, and what the library lost in it."""
        self.known += 1
        LOST.append(0)
        return os.getpid(), self.known, len(LOST)


def slowly(log: str) -> Hung:
    """Take a while."""
    time.sleep(1.5)
    return Hung(log)


def unmade() -> None:
    """Make nothing."""
    raise AdapterError("no bindings")


@pytest.fixture
def log(tmp_path):
    """Return a file with the processes that were started."""
    return tmp_path / "pids"


@pytest.fixture
def proxy() -> Iterator[Callable[..., SubprocessProxy]]:
    """Return a function that makes proxies; all end with the test, whatever becomes of it."""
    made: list[SubprocessProxy] = []

    def new(*arguments: Any) -> SubprocessProxy:
        made.append(SubprocessProxy(*arguments))
        return made[-1]

    yield new
    for each in made:
        each.end()


def is_there(pid: int) -> bool:
    """Return whether a process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_answers_come_from_one_other_process(log, proxy) -> None:
    """It is started once, an error in it is no end of it, and it goes when it is told to."""
    apart = proxy(partial(Hung, str(log)), 30.0, 60.0)
    assert apart.call("twice", {"a": 1.5}) == ({"a": 1.5}, {"a": 1.5})
    with pytest.raises(AdapterError, match=r"^the negotiator does not answer$"):
        apart.call("fail")
    assert apart.call("twice", 2) == (2, 2)
    (pid,) = map(int, log.read_text().split())
    assert pid != os.getpid()
    apart.end()
    assert not is_there(pid)


def test_a_call_that_hangs_is_given_up_in_time_and_not_made_again_for_a_while(log, proxy) -> None:
    """The process goes, the next calls fail at once; after the rest another one answers."""
    apart = proxy(partial(Hung, str(log)), 60.0, 2.0)
    assert apart.call("twice", 1) == (1, 1)
    apart._limit = 5.0
    began = time.monotonic()
    with pytest.raises(AdapterError, match="did not answer within 5 s"):
        apart.call("sleep")
    over = time.monotonic()
    assert over - began < 10.0
    assert not is_there(int(log.read_text()))
    with pytest.raises(AdapterError, match="next attempt in"):
        apart.call("twice", 2)
    assert len(log.read_text().split()) == 1
    time.sleep(max(0.0, over + 2.1 - time.monotonic()))
    apart._limit = 60.0
    assert apart.call("twice", 3) == (3, 3)
    assert len(log.read_text().split()) == 2


def test_a_new_process_takes_over_after_so_many_calls(proxy) -> None:
    """What a library loses at each call ends with its process; the object remains as it was."""
    apart = proxy(Worn, 30.0, 60.0)
    answers = [apart.call("count") for _ in range(5)]
    assert [(known, lost) for _, known, lost in answers] == [(1, 1), (2, 2), (3, 1), (4, 2), (5, 1)]
    pids = list(dict.fromkeys(pid for pid, _, _ in answers))
    assert len(pids) == 3
    assert not any(map(is_there, pids[:2]))


def test_a_takeover_that_is_slow_is_waited_for(proxy) -> None:
    """The busy machine again: the object is not made anew, and nobody is left alone."""
    apart = proxy(Worn, 60.0, 600.0)
    assert [apart.call("count")[1] for _ in range(2)] == [1, 2]
    apart._child._hand_over(60.0)
    apart._limit = 0.0
    with pytest.raises(AdapterError, match="did not start within"):
        apart.call("count")
    apart._limit = 60.0
    assert apart.call("count")[1:] == (3, 1)


def test_no_code_comes_from_where_it_was_started(log, monkeypatch, tmp_path, proxy) -> None:
    """Root may look at a pool from a directory in which others write."""
    (tmp_path / "pickle.py").write_text("raise SystemExit('not ours')\n")
    monkeypatch.chdir(tmp_path)
    apart = proxy(partial(Hung, str(log)), 30.0, 60.0)
    assert apart.call("twice", 1) == (1, 1)


def test_a_slow_start_is_waited_for(log, proxy) -> None:
    """A machine that is busy is no negotiator that hangs: nobody is left alone for it."""
    apart = proxy(partial(slowly, str(log)), 0.2, 600.0)
    with pytest.raises(AdapterError, match="did not start within"):
        apart.call("twice", 1)
    apart._limit = 60.0
    assert apart.call("twice", 1) == (1, 1)
    assert len(log.read_text().split()) == 1, "one process"


def test_what_cannot_be_made_or_dies_is_said(log, proxy) -> None:
    """The next call tries anew."""
    with pytest.raises(AdapterError, match="no bindings"):
        proxy(unmade, 30.0, 60.0).call("twice", 1)
    apart = proxy(partial(Hung, str(log)), 30.0, 60.0)
    with pytest.raises(AdapterError, match="exited"):
        apart.call("die")
    assert apart.call("twice", 4) == (4, 4)


def test_a_hung_negotiator_ends_no_poll(log, proxy) -> None:
    """Its accounting is missing, and factors are not set, at once after the first time."""
    pool: Any = PatientPool.__new__(PatientPool)
    apart = pool._apart = proxy(partial(Hung, str(log)), 60.0, 600.0)
    assert apart.call("twice", 1) == (1, 1)
    apart._limit = 5.0
    with pytest.raises(AdapterError, match="negotiator: it did not answer within 5 s"):
        pool.submitters()
    began = time.monotonic()
    ((outcome, said),) = pool.set_factors({"alice@pool": 2.0}).values()
    assert outcome == "failed"
    assert "next attempt in" in said
    assert time.monotonic() - began < 4.0


def shell(script: str, seconds: float = 20.0) -> bytes:
    """Return what a script prints."""
    return b"".join(output_of(["sh", "-c", script], seconds, {"PATH": "/usr/bin:/bin"}))


def test_all_output_comes() -> None:
    """Whatever its length, and what goes to standard error is not among it."""
    assert shell("echo x >&2") == b""
    assert shell("head -c 3000000 /dev/zero; echo x >&2") == bytes(3_000_000)


def test_one_that_fails() -> None:
    """Its exit status and what it said are told when its output has ended."""
    with pytest.raises(subprocess.CalledProcessError) as failed:
        shell("echo some; echo why >&2; exit 3")
    assert (failed.value.returncode, failed.value.stderr) == (3, b"why\n")
    with pytest.raises(OSError, match="No such file"):
        list(output_of(["/no/such/program"], 1.0))


@pytest.mark.parametrize("script", ["sleep 60", "sleep 60 & sleep 60", "exec >&-; sleep 60", "yes"])
def test_one_that_takes_too_long(script: str) -> None:
    """It is killed in time, also where others hold its output open or it never ends."""
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        shell(script, 0.3)
    assert time.monotonic() - begun < 10.0


def test_one_that_is_not_read_to_its_end() -> None:
    """It is ended, and nobody waits for it."""
    output = output_of(["sh", "-c", "echo first; sleep 60"], 60.0)
    assert next(output) == b"first\n"
    begun = time.monotonic()
    output.close()
    assert time.monotonic() - begun < 10.0


@given(st.binary().filter(lambda data: b"\0" not in data))
def test_text_is_that_of_a_whole_run(data: bytes) -> None:
    """Bytes that are no text and ends of lines are the same by either way."""
    octal = "".join(f"\\{byte:03o}" for byte in data)
    assert text_of(data) == run_program(["printf", "%b", octal.replace("\\", "\\0")], 20.0).stdout
