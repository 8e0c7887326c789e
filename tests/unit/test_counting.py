"""Counts of things agree with their number."""

from __future__ import annotations

import pytest

from rtsched.counting import counted


@pytest.mark.parametrize(
    ("words", "one", "many"),
    [
        (["job"], "1 job", "2,000 jobs"),
        (["job is", "jobs are"], "1 job is", "2,000 jobs are"),
        (["policy", "policies"], "1 policy", "2,000 policies"),
    ],
)
def test_counted(words: list[str], one: str, many: str) -> None:
    """One thing is called otherwise than several, or none."""
    assert counted(1, *words) == one
    assert counted(2000, *words) == many
    assert counted(0, *words) == many.replace("2,000", "0")
