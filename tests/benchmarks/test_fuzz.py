"""The short form of `benchmarks/fuzz.py`: nothing that others wrote makes our code fail."""

import contextlib
import itertools
import time
from collections.abc import Callable

import pytest
from fuzzing import PARTS, Part, fuzz, refusing

from rtsched.errors import InputError

INPUTS = 2000
SECONDS = 3.0


@pytest.mark.parametrize("name", PARTS)
def test_hostile_inputs_are_taken_or_refused(name: str, pytestconfig: pytest.Config) -> None:
    """Whatever an input holds, it is read, or refused with an error of ours, and in time."""
    seed = int(pytestconfig.getoption("randomly_seed", 0) or 0)
    found = fuzz(PARTS[name], INPUTS, seed, SECONDS)
    assert found.wrong == {}
    assert found.outcomes["taken"]


def test_what_counts_as_a_finding() -> None:
    """Our own errors are refusals; another exception is a finding, with its first input."""

    def read(data: bytes) -> None:
        if data.startswith(b"a"):
            raise InputError("here", "refused")
        raise KeyError(len(data))

    found = fuzz(Part(lambda: [b"a" * 40], refusing(read)), 300)
    assert found.outcomes["refused"]
    (what,) = {text.partition(":")[0] for text in found.wrong}
    assert what.startswith("KeyError at test_fuzz.py")


def test_a_hang_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """An input that takes too long is broken off, even by code that takes every error."""

    def read(data: bytes) -> None:
        while data:
            with contextlib.suppress(Exception):
                time.sleep(0.01)

    monkeypatch.setattr("fuzzing.HANGS_S", 1)
    found = fuzz(Part(lambda: [b"ab" * 40], read_when_warm(read)), 1)
    assert [text.partition(" ")[0] for text in found.wrong] == ["HangError"]


def read_when_warm(read: Callable[[bytes], None]) -> Callable[[bytes], str]:
    """Return a check whose first call, which warms up, does nothing."""
    calls = itertools.count()
    return lambda data: refusing(read)(data if next(calls) else b"")
