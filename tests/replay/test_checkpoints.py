"""A replay that was interrupted goes on, to the same results; of another one it is refused."""

import errno
from collections.abc import Callable, Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine import workload

from rtsched.core.plugins import discover
from rtsched.errors import InputError
from rtsched.model import on_disk
from rtsched.model.cluster import NodeState
from rtsched.replay import checkpoints
from rtsched.replay.checkpoints import Checkpoint, Checkpoints, digest
from rtsched.replay.engine import replay
from rtsched.replay.policies import Policy, presets
from rtsched.replay.results import PolicyRun, Workload
from rtsched.simulator.interface import NodeEvent

STATIC = ("fcfs", "easy", "conservative", "multifactor", "negotiator")
"""Policies whose replay asks no plug-in in Python."""


class Interrupted(Exception):  # noqa: N818
    """Ends a replay at one of its checkpoints."""


class Always(Checkpoint):
    """Keeps every state, through a file's format, and ends the replay at one of them."""

    def __init__(self, until: int = -1) -> None:
        self.state: bytes | None = None
        self.left = until
        super().__init__(self._given, self._take)

    def is_due(self) -> bool:
        """Return whether it is time, which it always is."""
        return True

    def _given(self) -> Any:
        if self.state is None:
            return None
        with TemporaryDirectory() as place:
            path = Path(place, "state")
            path.write_bytes(self.state)
            return on_disk.read(path, writable=True)

    def _take(self, state: Any) -> None:
        file = BytesIO()
        on_disk.write(file, state)
        self.state = file.getvalue()
        self.left -= 1
        if self.left == 0:
            raise Interrupted


def same(one: PolicyRun, other: PolicyRun) -> bool:
    """Return whether two runs hold the same."""
    nodes = zip(one.node_rows, other.node_rows, strict=True)
    return (
        one.results.equals(other.results)
        and all(np.array_equal(ours, theirs) for ours, theirs in nodes)
        and list(one.decisions) == list(other.decisions)
        and {name: _counts(books) for name, books in one.hooks.items()}
        == {name: _counts(books) for name, books in other.hooks.items()}
    )


def _counts(books: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: (book.calls, book.judged, book.changed) for name, book in books.items()}


@pytest.mark.parametrize("name", STATIC)
@settings(max_examples=8)
@given(until=st.integers(1, 100), again=st.integers(1, 50))
def test_an_interrupted_replay_goes_on(name: str, until: int, again: int) -> None:
    """Wherever it was interrupted, and if it is once more, results and counts are the same."""
    work, policy = WORK, presets()[name]
    checkpoint = Always(until)
    with pytest.raises(Interrupted):
        replay(work, name, policy, checkpoint=checkpoint)
    checkpoint.left = again
    with pytest.raises(Interrupted):
        replay(work, name, policy, checkpoint=checkpoint)
    checkpoint.left = -1
    assert same(replay(work, name, policy, checkpoint=checkpoint), WHOLE[name])


WORK = workload(400, deadlines=0.5)
WHOLE = {name: replay(WORK, name, presets()[name]) for name in STATIC}


def test_nodes_that_change_go_on_as_they_were() -> None:
    """A node that was down at the checkpoint is down, and comes back when it would have."""
    middle = float(np.median(WORK.jobs.submit))
    changes = [(0.0, NodeState.DOWN), (20000.0, NodeState.UP)]
    events = tuple(
        NodeEvent(middle + seconds, node, state) for seconds, state in changes for node in (0, 1)
    )
    work = replace(WORK, node_events=events)
    whole = replay(work, "easy", presets()["easy"])
    for until in (50, 101, 110, 150):
        checkpoint = Always(until)
        with pytest.raises(Interrupted):
            replay(work, "easy", presets()["easy"], checkpoint=checkpoint)
        assert same(replay(work, "easy", presets()["easy"], checkpoint=checkpoint), whole)


def test_where_plugins_are_asked_there_is_no_checkpoint() -> None:
    """What they remember is their own; the policy is replayed anew."""
    checkpoint = Always()
    replay(WORK, "mcdf", presets()["mcdf"], checkpoint=checkpoint)
    assert checkpoint.state is None


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Checkpoints]:
    """Return a function that opens what is kept of a replay, however short."""
    monkeypatch.setattr(checkpoints, "KEEP_AFTER", 0.0)
    warnings: list[str] = []

    def opened(work: Workload = WORK, policies: Mapping[str, Policy] = presets()) -> Checkpoints:
        return Checkpoints(tmp_path / "out", work, policies, discover(), warn=warnings.append)

    opened.warnings = warnings
    return opened


def test_what_is_finished_is_not_replayed_again(kept: Callable[..., Checkpoints]) -> None:
    """A run comes back as it was; an unfinished one has its last state."""
    first = kept()
    assert not first.resume()
    assert not first.any
    assert same(first.finish(WHOLE["easy"]), WHOLE["easy"])
    first.of("fcfs").keep({"state": np.arange(3)})
    again = kept()
    assert again.finished("easy") is None  # before it was found to be the same replay
    assert again.resume()
    found = again.finished("easy")
    assert found is not None
    assert same(found, WHOLE["easy"])
    assert again.finished("fcfs") is None
    assert again.of("fcfs").read()["state"].tolist() == [0, 1, 2]
    again.finish(WHOLE["fcfs"])
    assert again.of("fcfs").read() is None
    again.discard()
    assert not kept().resume()


def test_another_replay_is_refused(
    kept: Callable[..., Checkpoints], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another log, of other settings, of another version, each in words."""
    kept().finish(WHOLE["easy"])
    log = replace(WORK, run_time=WORK.run_time + 1)
    with pytest.raises(InputError, match="cannot be resumed: it is of another log or machine"):
        kept(log).resume()
    backwards = dict(reversed(presets().items()))
    for policies in ({"easy": presets()["easy"]}, backwards):
        with pytest.raises(InputError, match="it is of other policies or settings of them"):
            kept(policies=policies).resume()
    assert kept().resume()
    monkeypatch.setattr(checkpoints, "__version__", "0.0.0")
    with pytest.raises(InputError, match=r"it is of rtsched .*, not 0\.0\.0"):
        kept().resume()


def test_damaged_files_are_not_used(kept: Callable[..., Checkpoints], tmp_path: Path) -> None:
    """The policy is replayed anew, with a warning; without the identity nothing is resumed."""
    kept().finish(WHOLE["easy"])
    place = tmp_path / "out" / checkpoints.DIRECTORY
    (run,) = place.glob("*.run")
    run.write_bytes(run.read_bytes()[:-20])
    again = kept()
    assert again.resume()
    assert again.finished("easy") is None
    assert "not complete" in kept.warnings[0]
    (place / "replay.json").write_text("{")
    with pytest.raises(InputError, match="replay without --resume"):
        kept().resume()


def test_a_full_disk_ends_no_replay(
    kept: Callable[..., Checkpoints], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One warning; what was kept before stands, and nothing half-written is there."""
    first = kept()
    first.of("easy").keep(1)

    def full(file: Any, _value: object) -> NoReturn:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(on_disk, "write", full)
    first.of("easy").keep(2)
    first.of("easy").keep(3)
    assert first.finish(WHOLE["fcfs"]) is WHOLE["fcfs"]
    (warning,) = kept.warnings
    assert "No space left on device" in warning
    assert first.of("easy").read() == 1
    names = {path.name for path in (tmp_path / "out" / checkpoints.DIRECTORY).iterdir()}
    assert len(names) == 2
    assert "replay.json" in names


def test_a_digest_tells_workloads_apart() -> None:
    """Equal ones have the same, also from disk; each part of one counts."""
    assert digest(WORK) == digest(workload(400, deadlines=0.5)) == digest(on_disk.mapped(WORK))
    others = [
        replace(WORK, price=2.0),
        replace(WORK, jobs=WORK.jobs.replace(nice=1.0)),
        replace(WORK, jobs=WORK.jobs.replace_text("user", WORK.jobs.user, ["a"] * 99)),
        replace(WORK, cluster=replace(WORK.cluster, partitions={"a": WORK.cluster.usable})),
        replace(WORK, node_events=(NodeEvent(0.0, 0, 2),)),
    ]
    assert len({digest(work) for work in [WORK, *others]}) == 6
