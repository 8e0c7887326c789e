"""The psts reproduction: the example comes out, and a broken scan does not pass."""

import msgspec
import numpy as np
import pytest

from rtsched.reproduce.study import Findings
from rtsched_plugins.kernels import scans
from rtsched_reproductions.psts import (
    NODES,
    Extent,
    Psts,
    _directions,
    _migration,
    _name,
    _of_figures,
    _sheet,
)


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
    right = scans.edges

    def shifted(total: int, power: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        bounds = right(total, power).copy()
        bounds[1:-1] = np.maximum(bounds[1:-1] - 1, 0)
        return bounds

    monkeypatch.setattr("rtsched_reproductions.psts.edges", shifted)
    assert isinstance(Psts.reduced, Extent)
    broken = findings(msgspec.structs.replace(Psts.reduced, tasks=50, seeds=2))
    assert any(sheet.differs().any() for sheet in broken.sheets[:6])


def clearly(time: np.ndarray) -> bool:  # type: ignore[type-arg]
    """Return whether these times are clearly less in the best dimension."""
    found = {claim.text: claim.holds for claim in _of_figures({"time": time, "gain": time}, 1.0)}
    (holds,) = [holds for text, holds in found.items() if "clearly less" in text]
    return holds


@pytest.mark.parametrize(
    ("saved", "spread", "clear"), [(0.5, 1.0, False), (1.5, 1.0, True), (0.0, 0.0, False)]
)
def test_time_saved_is_clear_by_three_standard_errors(
    saved: float, spread: float, clear: bool
) -> None:
    """16 runs that lie 1 above and 1 below their mean: three standard errors are 0.9."""
    time = np.full((2, len(NODES), 16, 3), 100.0)
    time[..., 0] += saved + spread * np.tile([-1.0, 1.0], 8)
    assert clearly(time) == clear


@pytest.mark.parametrize("at", range(6))
def test_time_is_saved_for_each_number_of_nodes_but_two(at: int) -> None:
    """Two nodes are a line in any dimension."""
    time = np.full((2, len(NODES), 16, 3), 100.0)
    time[..., 0] += (np.arange(6) != at)[:, None]
    assert clearly(time) == (at == 0)


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize(("rise", "holds"), [(0.0, True), (1.0, False), (3.0, False)])
def test_one_step_up_or_none_is_no_fall(at: int, rise: float, holds: bool) -> None:
    """Figures 4 to 6 fall only if each step does, which is 1 down before the rise."""
    values = np.linspace(6.0, 1.0, len(NODES)) + rise * (np.arange(6) > at)
    each = np.broadcast_to(values[None, :, None, None], (2, 6, 3, 3))
    claims = _of_figures({"time": each, "gain": each}, 1.0)
    falls = [claim.holds for claim in claims if " falls as nodes are added" in claim.text]
    assert falls == [holds] * 3


@pytest.mark.parametrize(
    ("best", "more", "holds", "higher"),
    [
        (0.0, -0.1, (True, True), 0),
        (0.1, -0.1, (False, True), 6),
        (1e-9, -0.1, (False, True), 6),
        (0.0, 0.0, (True, False), 0),
    ],
)
def test_one_number_of_nodes_decides_on_crossover_points(
    best: float, more: float, holds: tuple[bool, bool], higher: int
) -> None:
    """The best dimension beside a line, and with more work, in 2 laws and 3 seeds of 8 nodes."""
    points = np.tile([2.0, 1.0, 0.5], (2, len(NODES), 3, 1))
    points[:, 2] = 2.0, 2.0 + best, 2.0 + best + more
    grids, work = _directions(points)
    assert (grids.holds, work.holds) == holds
    assert f"higher in {higher} of 36 " in grids.evidence


def test_packets_that_take_no_time() -> None:
    """Moving is for nothing then; else one packet of 3 takes 1.5 s over a link of 2 a second."""
    ends = np.array([0]), np.array([1]), np.array([3])
    assert _migration((2,), *ends, 0.0) == 0.0
    assert _migration((2,), *ends, 0.5) == 1.5


@pytest.mark.parametrize(("node", "name"), [(0, 11), (5, 16), (6, 21), (17, 36)])
def test_nodes_are_named_by_row_and_column(node: int, name: int) -> None:
    """The first and the last of each."""
    assert _name(node) == name


def test_the_example_s_sheets_show_what_was_computed() -> None:
    """Not what is expected."""
    sheet = _sheet("", "", {"row": ([1.0, 2.0], [3.0, 4.0])})
    assert sheet.ours.tolist() == [[1.0, 2.0]]
    assert sheet.expected.tolist() == [[3.0, 4.0]]
