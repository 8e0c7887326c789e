"""Progress says that numba compiles, at a terminal and in a log file."""

import threading

import numpy as np
import pytest

from rtsched.cli import common
from rtsched.cli.common import ProgressBars, compiling_shown

numba = pytest.importorskip("numba")


def test_compiling_is_told_once_however_many_functions_it_takes() -> None:
    """One function calls another: begun and ended once; compiled, it says nothing more."""

    @numba.njit
    def twice(x: float) -> float:
        return 2.0 * x

    @numba.njit
    def total(values: np.ndarray) -> float:
        found = 0.0
        for value in values:
            found += twice(value)
        return found

    told: list[bool] = []
    with compiling_shown(told.append):
        assert total(np.array([1.0, 2.5])) == 7.0
        assert told == [True, False]
        assert total(np.array([1.0])) == 2.0
    assert told == [True, False]


def test_nothing_is_told_afterwards() -> None:
    """The listener is gone when the step has ended."""

    @numba.njit
    def half(x: float) -> float:
        return x / 2.0

    told: list[bool] = []
    with compiling_shown(told.append):
        pass
    assert half(3.0) == 1.5
    assert told == []


def test_where_nobody_watches_lines_come_now_and_then(monkeypatch, capsys) -> None:
    """A long step writes lines, of what it does and how far it is; a short one writes none."""
    with ProgressBars(wanted=True) as bars, bars.step("reading"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(common, "FIRST_LINE", 0.05)
    written = threading.Event()
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        written.set()

    monkeypatch.setattr(common, "say", say)
    with ProgressBars(wanted=True) as bars, bars.step("easy") as tell:
        tell(0.4)
        assert written.wait(60.0)
    assert said[0] == "rtsched: easy: 0.05 s, 40 %"
    before = threading.enumerate()
    with ProgressBars(wanted=False) as bars, bars.step("easy"):
        assert threading.enumerate() == before
