"""Which route to Slurm is taken, and when that is a problem."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from rtsched.adapters.slurm.route import Route
from rtsched.errors import AdapterError

pytestmark = pytest.mark.skipif(find_spec("pyslurm") is not None, reason="pyslurm is here")


class Commands:
    """Shows no jobs."""

    def jobs(self) -> list[object]:
        """Return nothing."""
        return []


def test_a_site_without_pyslurm_has_no_problem() -> None:
    """Slurm's commands do for everything, so nobody is alarmed for good."""
    route = Route(Commands(), "auto")  # type: ignore[arg-type]
    assert route.jobs() == []
    assert (route.name, route.problem) == ("commands", "")


def test_who_demands_pyslurm_is_told() -> None:
    """A setting that cannot be followed is an error."""
    with pytest.raises(AdapterError, match="pyslurm does not fit"):
        Route(Commands(), "pyslurm").jobs()  # type: ignore[arg-type]
