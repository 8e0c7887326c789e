"""The study of spare capability."""

from __future__ import annotations

from rtsched_reproductions.spare import Spare


def test_parameters_change_the_results() -> None:
    """Fewer graphs per drawing give other values: nothing is written down beforehand."""
    study = Spare()
    tables = []
    for jobs in (4, 8):
        parameters = Spare.Parameters(seeds=3, jobs=jobs, sets=20)
        results = [part.run() for part in study.parts(parameters)]
        tables.append(study.findings(parameters, results).sheets[2].ours.tolist())
    assert tables[0] != tables[1]
