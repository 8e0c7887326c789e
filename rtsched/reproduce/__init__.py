"""Reproductions of the published policies: ours beside the papers' values."""

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

__all__ = ["Claim", "Curve", "Findings", "Parameters", "Part", "Plot", "Reproduction", "Sheet"]
