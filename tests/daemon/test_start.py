"""Which plug-ins a daemon starts with."""

from __future__ import annotations

from typing import Any

import pytest

from rtsched.config import PluginTable
from rtsched.daemon.settings import LiveSite
from rtsched.daemon.start import policy_of
from rtsched.errors import ConfigError


def site(name: str, **settings: Any) -> LiveSite:
    """Return a site with this planner."""
    return LiveSite(planner=name, plugin=[PluginTable(name, settings=settings)])


@pytest.mark.parametrize(
    ("name", "settings", "remedy"),
    [
        ("portfolio", {}, "set rounds = 1"),
        ("mcdf", {"rounds": 2}, "set rounds = 1"),
        ("mcdf", {"staggered": True}, "set staggered = false"),
        ("spare", {"form": "edf", "slot": 60.0}, "change its settings"),
    ],
)
def test_plans_that_no_batch_system_can_follow_are_refused(
    name: str, settings: dict[str, Any], remedy: str
) -> None:
    """Jobs of a live system know their shares, and start on all their nodes at once."""
    with pytest.raises(ConfigError, match=f"plugin '{name}'.*{remedy}"):
        policy_of(site(name, **settings))


@pytest.mark.parametrize(
    ("name", "settings"),
    [("portfolio", {"rounds": 1}), ("mcdf", {"unequal_nodes": True}), ("spare", {})],
)
def test_other_planners_start(name: str, settings: dict[str, Any]) -> None:
    """What jobs can follow is planned live as it is in a replay."""
    assert policy_of(site(name, **settings))
