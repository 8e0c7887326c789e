"""The study of spare capability, in its reduced extent."""

from __future__ import annotations

from rtsched_reproductions.spare import Spare


def test_reduced_study_shows_no_unexplained_difference() -> None:
    """Worked values are met, the table is near, and claims hold or say why not."""
    study = Spare()
    results = [part.run() for part in study.parts(study.reduced)]
    findings = study.findings(study.reduced, results)
    worked, share, table = findings.sheets
    assert not worked.differs().any()
    assert not share.differs().any()
    assert not table.differs().any()
    for claim in findings.claims:
        assert claim.holds == claim.expected or claim.why, claim


def test_parameters_change_the_results() -> None:
    """Fewer graphs per drawing give other values: nothing is written down beforehand."""
    study = Spare()
    tables = []
    for jobs in (4, 8):
        parameters = Spare.Parameters(seeds=3, jobs=jobs, sets=20)
        results = [part.run() for part in study.parts(parameters)]
        tables.append(study.findings(parameters, results).sheets[2].ours.tolist())
    assert tables[0] != tables[1]
