"""Reproductions at their reduced extent, run once per process for all tests that look at them."""

from functools import cache

import numpy as np

from rtsched.reproduce import Reproduced, Verdict, reproduce, reproductions


@cache
def reduced_run(name: str) -> Reproduced:
    """Return the reduced run of one reproduction, in this process."""
    study = reproductions()[name]
    return reproduce(study(), study.reduced)


def differences(done: Reproduced) -> list[str]:
    """Return what differs: `sheet: row, column` of each value, and the text of each claim."""
    found = [
        f"{sheet.title}: {sheet.rows[row]}, {sheet.columns[column]}"
        for sheet in done.findings.sheets
        for row, column in np.argwhere(sheet.differs())
    ]
    return found + [
        claim.text for claim in done.findings.claims if claim.verdict is Verdict.DIFFERS
    ]
