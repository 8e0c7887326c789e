"""The page on architecture names modules and their names as they are."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NAMES = sorted(set(re.findall(r"`(rtsched(?:_plugins)?(?:\.\w+)+)`", PAGE)))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_named_is_there(name: str) -> None:
    """A module, or something in one."""
    home, _, last = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        assert hasattr(importlib.import_module(home), last)


def test_the_rooms_are_those_of_the_contract() -> None:
    """Row by row, from the top down."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (layers,) = (
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["name"] == "Imports point one way"
    )
    rows = PAGE.split("```text\n")[1].split("```")[0].splitlines()
    shown = [set(re.split(r"\s{3,}", row)) & set(re.findall(r"\w+", row)) for row in rows]
    wanted = [set(re.findall(r"rtsched\.(\w+)", layer)) for layer in layers]
    assert shown == wanted


def test_files_that_are_named_are_there() -> None:
    """Those of contrib, too."""
    for path in re.findall(r"`(contrib/[\w./]+)`", PAGE):
        assert (ROOT / path).exists(), path
