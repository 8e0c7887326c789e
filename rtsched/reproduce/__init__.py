"""Reproductions of the published policies: ours beside the papers' values."""

from rtsched.reproduce.running import Reproduced, executor, reproduce, reproductions
from rtsched.reproduce.study import (
    Claim,
    Curve,
    Findings,
    Parameters,
    Part,
    Plot,
    Reproduction,
    Sheet,
)

__all__ = [
    "Claim",
    "Curve",
    "Findings",
    "Parameters",
    "Part",
    "Plot",
    "Reproduced",
    "Reproduction",
    "Sheet",
    "executor",
    "reproduce",
    "reproductions",
]
