"""Sweeps: each policy once for each value of a setting that it has."""

from __future__ import annotations

import pytest

from rtsched.errors import ConfigError
from rtsched.replay.policies import Sweep, presets, swept

POLICIES = {name: presets()[name] for name in ("easy", "mcdf", "multifactor")}


def sweep(*texts: str) -> list[Sweep]:
    """Return what `--sweep` says, each."""
    return [Sweep.parse(text) for text in texts]


def test_a_policy_has_each_value_of_its_settings() -> None:
    """All combinations, in order; who has none of the tables stays as it is."""
    found = swept(POLICIES, sweep("mcdf.order=deadline, arrival", "mcdf.offer_tests=0,9"))
    assert list(found) == [
        "easy",
        "mcdf+order=deadline+offer_tests=0",
        "mcdf+order=deadline+offer_tests=9",
        "mcdf+order=arrival+offer_tests=0",
        "mcdf+order=arrival+offer_tests=9",
        "multifactor",
    ]
    assert found["easy"] == POLICIES["easy"]
    changed = found["mcdf+order=arrival+offer_tests=9"]
    (table,) = changed.plugin
    assert table.settings == POLICIES["mcdf"].plugin[0].settings | {
        "order": "arrival",
        "offer_tests": 9,
    }
    assert (changed.planner, changed.system) == ("mcdf", POLICIES["mcdf"].system)


def test_the_systems_own_settings() -> None:
    """`system` is a table of all policies; values are those of TOML, or texts."""
    found = swept(POLICIES, sweep("system.depth=0,5", "system.loop=fcfs"))
    assert [(name, policy.system.depth) for name, policy in found.items()] == [  # type: ignore[union-attr]
        (f"{name}+depth={depth}+loop=fcfs", depth) for name in POLICIES for depth in (0, 5)
    ]
    assert swept(POLICIES, []) == POLICIES


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("order=1,2", "'order=1,2' is not TABLE.KEY=VALUE,VALUE"),
        ("mcdf.order", "is not TABLE.KEY=VALUE,VALUE"),
        ("mcdf.order=", "is not TABLE.KEY=VALUE,VALUE"),
        ("mcdf.order=a,,b", "is not TABLE.KEY=VALUE,VALUE"),
        ("spare.order=a", "no policy has the plug-in 'spare'; name one of its plug-ins"),
        ("system.dept=1", "policy easy+dept=1: system.dept: unknown setting"),
        ("system.depth=deep", "policy easy+depth=deep: system.depth: expected `int`"),
        ("system.depth=[[[[1", "expected `int`"),
    ],
)
def test_what_is_no_sweep_is_told(text: str, problem: str) -> None:
    """One sentence that names the policy and the setting."""
    with pytest.raises(ConfigError) as caught:
        swept(POLICIES, sweep(text))
    assert problem in str(caught.value)
