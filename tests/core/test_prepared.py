"""What a plug-in prepared: kept as long as what it read stands, and no longer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rtsched.api import Chain, Member, PreparedState, Snapshot, Verdicts, hookimpl
from rtsched.core.chain import Stage
from rtsched.testing import check_plugin, make_cluster, make_jobs


def total(values: list[float]) -> float:
    """Return the sum."""
    return sum(values)


def shifted(values: list[float], by: float) -> list[float]:
    """Return the values, moved."""
    return [value + by for value in values]


def test_a_result_is_kept_while_its_arguments_are_the_same_objects() -> None:
    """An equal list is another list; an equal number is the same."""
    prepared, values = PreparedState(), [1.0, 2.0]
    first = prepared.get(shifted, values, 1000.0)
    assert first == [1001.0, 1002.0]
    assert prepared.get(shifted, values, 2000.0 / 2) is first
    assert prepared.get(shifted, values, 1001.0) == [1002.0, 1003.0]
    assert prepared.get(shifted, values, 1000.0) is not first
    assert prepared.get(shifted, list(values), 1000.0) is not first


def test_each_function_has_its_own_result() -> None:
    """One does not push out the other."""
    prepared, values = PreparedState(), [1.0, 2.0]
    first = prepared.get(shifted, values, 1.0)
    assert prepared.get(total, values) == 3.0
    assert prepared.get(shifted, values, 1.0) is first


def test_what_is_read_may_be_less_than_the_arguments() -> None:
    """Only what `reads` names decides."""
    prepared, values = PreparedState(), [1.0, 2.0]
    first = prepared.get(shifted, values, 1.0, reads=(values,))
    assert prepared.get(shifted, values, 2.0, reads=(values,)) is first
    assert prepared.get(shifted, values, 2.0, reads=(values, 2.0)) == [3.0, 4.0]


def test_a_result_may_be_made_from_the_last_one() -> None:
    """Where that cannot be, it is made anew."""
    prepared = PreparedState()
    first = prepared.get(shifted, [1.0], 1.0, after=lambda _last: [0.0])
    assert first == [2.0]
    assert prepared.get(shifted, [1.0], 2.0, after=lambda last: [*last, 3.0]) == [2.0, 3.0]
    assert prepared.get(shifted, [1.0], 3.0, after=lambda _last: None) == [4.0]


class Ranked:
    """Say how often nodes were ranked."""

    def __init__(self, config: object = None) -> None:
        del config
        self.made = 0

    @hookimpl
    def rtsched_admit(self, snapshot: Snapshot, prepared: PreparedState) -> Verdicts | None:
        """Rank the nodes."""
        prepared.get(self.ranking, snapshot.cluster.nodes.speed)
        return None

    def ranking(self, speed: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[int]:
        """Return nodes from fast to slow."""
        self.made += 1
        return np.argsort(-speed).tolist()


def test_the_chain_keeps_it_from_one_call_to_the_next() -> None:
    """Also in another chain, made of the same member with another mode."""
    plugin, jobs = Ranked(), make_jobs(1)
    member = Member("ranked", plugin)
    snapshot = Snapshot(0.0, make_cluster(4))
    for now in (0.0, 10.0):
        Chain([member]).admit(jobs, replace(snapshot, now=now))
    Chain([replace(member, mode="shadow")]).admit(jobs, snapshot)
    assert plugin.made == 1
    Chain([member]).admit(jobs, Snapshot(0.0, make_cluster(4)))
    assert plugin.made == 2


class Widest:
    """Let everything in that fits the machine."""

    @hookimpl
    def rtsched_admit(self, jobs: object, cluster: object, prepared: PreparedState) -> None:
        """Have no opinion."""


def test_who_prepares_may_be_static() -> None:
    """What is prepared follows from the other arguments."""
    assert Chain([Member("widest", Widest())]).asks("admit", Stage.STATIC) == ("widest",)


class Stale:
    """Keep more than stands."""

    def __init__(self, config: object = None) -> None:
        del config

    @hookimpl
    def rtsched_admit(
        self, jobs: object, snapshot: Snapshot, prepared: PreparedState
    ) -> Verdicts | None:
        """Hold for as long after the first instant asked about as after this one."""
        first = prepared.get(float, snapshot.now, reads=())
        n = len(jobs)  # type: ignore[arg-type]
        return Verdicts.build(np.full(n, 2, np.int8), retry_at=np.full(n, first + 60.0))


def test_conformance_notices_what_stands_no_longer() -> None:
    """A part that is read and not named shows as another answer."""
    with pytest.raises(AssertionError, match="asked before"):
        check_plugin(Stale, examples=5)
