"""The plug-ins of this checkout, and what they say."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path

from rtsched.core.plugins import Found
from rtsched.model.verdicts import Reason

TOP = Path(__file__).resolve().parents[2]
NOTE = "*Made from the code by `python tools/docs/generate.py`; do not edit.*"


@cache
def built_in() -> dict[str, Found]:
    """Return the plug-ins that this checkout's pyproject.toml announces, by name."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
    announced = project["entry-points"]["rtsched.plugins"]
    return {
        name: Found(name, project["name"], "", EntryPoint(name, target, "").load)
        for name, target in sorted(announced.items())
    }


def reasons_of(kind: object) -> list[Reason]:
    """Return the reasons that a class or module holds."""
    return [value for value in vars(kind).values() if isinstance(value, Reason)]
