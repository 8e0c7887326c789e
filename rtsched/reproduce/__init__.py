"""Reproductions of the published policies: ours beside the papers' values."""

from rtsched.reproduce.study import (
    CHANCE,
    Claim,
    Curve,
    Findings,
    Parameters,
    Part,
    Plot,
    Reproduced,
    Reproduction,
    Sheet,
    Tally,
    Verdict,
    chance,
    executor,
    reproduce,
    reproductions,
)

__all__ = [
    "CHANCE",
    "Claim",
    "Curve",
    "Findings",
    "Parameters",
    "Part",
    "Plot",
    "Reproduced",
    "Reproduction",
    "Sheet",
    "Tally",
    "Verdict",
    "chance",
    "executor",
    "reproduce",
    "reproductions",
]
