"""The psts reproduction: the example comes out, and a broken scan does not pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from rtsched_plugins.kernels import scan_balance
from rtsched_reproductions.psts import NODES, Extent, Psts, _of_figures

if TYPE_CHECKING:
    from rtsched.reproduce.study import Findings


def findings(parameters: Extent) -> Findings:
    """Return what a run of these parameters shows."""
    study = Psts()
    return study.findings(parameters, [part.run() for part in study.parts(parameters)])


@pytest.fixture(scope="module")
def reduced() -> Findings:
    """Return the findings of the reduced run."""
    assert isinstance(Psts.reduced, Extent)
    return findings(Psts.reduced)


def test_worked_example_matches_to_the_unit(reduced: Findings) -> None:
    """The six sheets of the example have no differing cell at all."""
    for sheet in reduced.sheets[:6]:
        assert np.isfinite(sheet.expected).all()
        assert not sheet.differs().any(), sheet.title


def test_parameters_count(reduced: Findings) -> None:
    """Longer steps raise the crossover points that are shown."""
    assert isinstance(Psts.reduced, Extent)
    slow = findings(msgspec.structs.replace(Psts.reduced, step_time=4.0))
    assert (slow.sheets[7].ours > reduced.sheets[7].ours).all()


def test_a_broken_scan_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With another rounding of the intervals the example does not come out."""
    right = scan_balance.edges

    def shifted(total: np.ndarray, power: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        bounds = right(total, power).copy()
        bounds[:, 1:-1] = np.maximum(bounds[:, 1:-1] - 1, 0)
        return bounds

    monkeypatch.setattr(scan_balance, "edges", shifted)
    assert isinstance(Psts.reduced, Extent)
    broken = findings(msgspec.structs.replace(Psts.reduced, tasks=50, seeds=2))
    assert any(sheet.differs().any() for sheet in broken.sheets[:6])


@pytest.mark.parametrize(("saved", "clear"), [(0.5, False), (1.5, True)])
def test_time_saved_is_clear_by_three_standard_errors(saved: float, clear: bool) -> None:
    """16 runs that lie 1 above and 1 below their mean: three standard errors are 0.9."""
    time = np.full((2, len(NODES), 16, 3), 100.0)
    time[..., 0] += saved + np.tile([-1.0, 1.0], 8)
    found = {claim.text: claim.holds for claim in _of_figures({"time": time, "gain": time}, 1.0)}
    (holds,) = [holds for text, holds in found.items() if "clearly less" in text]
    assert holds == clear


@pytest.mark.parametrize("at", range(5))
def test_one_step_up_is_no_fall(at: int) -> None:
    """Figures 4 to 6 fall only if each step does."""
    falling = np.linspace(6.0, 1.0, len(NODES))
    for values, holds in ((falling, True), (falling + 3.0 * (np.arange(6) > at), False)):
        each = np.broadcast_to(values[None, :, None, None], (2, 6, 3, 3))
        claims = _of_figures({"time": each, "gain": each}, 1.0)
        falls = [claim.holds for claim in claims if " falls as nodes are added" in claim.text]
        assert falls == [holds] * 3
