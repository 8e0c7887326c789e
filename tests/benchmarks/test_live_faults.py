"""How the kills of `benchmarks/live_faults.py` are shared out, resumed and summed up."""

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "live"))

from collections.abc import Iterator

import live_faults
from live_faults import CONTROLLER, COUNTS, Part, parts, run, totals
from testbed import TestbedError

FOUND = dict.fromkeys(COUNTS, 1) | {"submission ms": [5, 7], "away s": [1.0], "wrong": []}


def test_every_kill_is_in_a_part() -> None:
    """None is left out, each part has its own seed, and the first parts are of each kind."""
    todo = parts(2000, 200)
    kills = {kind: sum(p.kills for p in todo if p.kind == kind) for kind in {p.kind for p in todo}}
    assert sum(kills.values()) == 2200
    assert kills[CONTROLLER] == 200
    assert len({part.name for part in todo}) == len(todo)
    assert len({part.kind for part in todo[:4]}) == 4
    assert parts(2, 0) == [Part("in a stream", 1, 0), Part("committed", 1, 0)]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Play parts on nothing; the third one fails."""
    names: list[str] = []

    def play(_: object, part: Part) -> dict[str, Any]:
        names.append(part.name)
        if len(names) == 3:
            raise TestbedError("it does not start")
        return FOUND

    @contextmanager
    def nothing() -> Iterator[None]:
        yield None

    monkeypatch.setattr(live_faults, "play", play)
    monkeypatch.setitem(live_faults.SYSTEMS, "slurm", nothing)
    return names


def test_parts_are_resumed(played: list[str]) -> None:
    """What is found is not done again; a part that failed is told, and the others go on."""
    todo, found = parts(60, 10), dict[str, Any]()
    kept: list[str] = []
    found[todo[0].name] = FOUND
    run("slurm", todo, found, lambda: kept.append(json.dumps(found)), 60.0)
    assert played == [part.name for part in todo[1:]]
    assert found[todo[3].name] == {"failed": "TestbedError: it does not start"}
    assert json.loads(kept[-1]) == found
    assert sum(side["kills"] for side in totals(found).values()) == len(todo) - 1


def test_no_part_begins_late(played: list[str]) -> None:
    """Where the time is over nothing more is begun."""
    run("slurm", parts(60, 10), {}, lambda: None, 0.0)
    assert played == []
