"""The study of spare capability."""

import numpy as np
import pytest

from rtsched_reproductions.spare import (
    BASE,
    SCENES,
    SERIES,
    JobMix,
    Spare,
    _of_load,
    _of_selection,
    _of_series,
    _worked_sheet,
)

LIGHT, MIDDLE = JobMix(30.0), JobMix(15.0)
FEW = SERIES[0].scenes[1.0]
SOONER = "response-first has the lower mean response"
THREE = "utilisation-first has about three times the response at light load"
MORE = "with jobs of several tasks response-first has the higher guarantee ratio"
USED = "the spare utilisation of utilisation-first is higher only at light load"
FALLS = "the guarantee ratio falls with load"
RISES = "the spare utilisation rises with load"
UNEQUAL = "more heterogeneity: the guarantee ratio falls"
RATIO, RESPONSE, USE = range(3)


def as_expected(scene: JobMix) -> list[list[float]]:
    """Return ratio, response and use, response-first and utilisation-first, of a harder scene."""
    hard = (30 - scene.gap) / 100 + scene.work / 100 + scene.message / 200 + scene.busy / 10
    hard += max(scene.speeds) / min(scene.speeds) / 100
    more = 0.1 if scene == LIGHT else -0.05
    return [[1 - hard, 10 + 10 * hard, 0.2 + hard], [0.9 - hard, 30 + hard, 0.2 + hard + more]]


def wrong(scene: JobMix, column: int, values: tuple[float, float] | JobMix) -> set[str]:
    """Return which claims fail if both selections have these values, or those of a scene, there."""
    mean = {each: np.array(as_expected(each)) for each in SCENES}
    mean[scene][:, column] = mean[values][:, column] if isinstance(values, JobMix) else values
    claims = [*_of_selection(mean), *_of_load(mean), *_of_series(mean)]
    return {claim.text for claim in claims if not claim.holds}


def test_parameters_change_the_results() -> None:
    """Fewer graphs per drawing give other values: nothing is written down beforehand."""
    study = Spare()
    tables = []
    for jobs in (4, 8):
        parameters = Spare.Parameters(seeds=3, jobs=jobs, sets=20)
        results = [part.run() for part in study.parts(parameters)]
        tables.append(study.findings(parameters, results).sheets[2].ours.tolist())
    assert tables[0] != tables[1]


@pytest.mark.parametrize(
    ("scene", "column", "values", "failing"),
    [
        (BASE, RATIO, BASE, set()),
        (MIDDLE, RESPONSE, (12.0, 12.0), {SOONER}),
        (LIGHT, RESPONSE, (10.0, 25.0), {THREE}),
        (LIGHT, RESPONSE, (10.0, 26.0), set()),
        (LIGHT, RESPONSE, (10.0, 34.0), set()),
        (LIGHT, RESPONSE, (10.0, 35.0), {THREE}),
        (MIDDLE, RATIO, (0.75, 0.75), {MORE}),
        (LIGHT, USE, (0.3, 0.3), {USED}),
        (BASE, USE, (0.5, 0.5), {USED}),
        (MIDDLE, RATIO, LIGHT, {FALLS}),
        (MIDDLE, RATIO, BASE, {FALLS}),
        (MIDDLE, USE, BASE, {RISES}),
        (FEW, RATIO, BASE, {UNEQUAL}),
    ],
)
def test_one_scene_decides(
    scene: JobMix, column: int, values: tuple[float, float] | JobMix, failing: set[str]
) -> None:
    """Claims are of each scene: a tie in one of them is no lead, and no fall."""
    assert wrong(scene, column, values) == failing


@pytest.mark.parametrize(
    ("series", "what"), [(1, "larger tasks"), (2, "larger messages"), (3, "more periodic work")]
)
def test_each_step_of_a_figure_counts(series: int, what: str) -> None:
    """Two neighbours that are equal are no fall of the ratio, nor a growth of the response."""
    first, second, *_ = SERIES[series].scenes.values()
    scene, other = (second, first) if first == BASE else (first, second)
    assert wrong(scene, RATIO, other) == {f"{what}: the guarantee ratio falls"}
    grows = {f"{what}: the mean response grows"} if series > 1 else set()
    assert wrong(scene, RESPONSE, other) == grows


def test_worked_values_are_beside_the_expected_ones() -> None:
    """What was computed first."""
    sheet = _worked_sheet([("a value", 1.0, 2.0)])
    assert (sheet.ours.tolist(), sheet.expected.tolist()) == ([[1.0]], [[2.0]])
