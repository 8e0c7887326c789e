"""The psts reproduction: the example comes out, and a broken scan does not pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from rtsched_plugins.kernels import scan_balance
from rtsched_reproductions.psts import Extent, Psts

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
