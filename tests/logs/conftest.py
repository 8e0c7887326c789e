"""Readers are tested twice: with compiled kernels, and in plain Python."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from rtsched.logs import ReadOptions, cells, read_logs, sacct, swf
from rtsched.model.log import Log

settings.register_profile("compiling", deadline=None)  # the first call may have to compile
settings.load_profile("compiling")

LOGS = Path(__file__).parents[1] / "data" / "logs"


@pytest.fixture(params=["compiled", "plain"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with and without compiled kernels."""
    if request.param == "plain":
        for module in (cells, sacct, swf):
            monkeypatch.setattr(module, "COMPILING", False)
    return str(request.param)


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Log]:
    """Write a text to a file and read it, in UTC unless told otherwise."""

    def read_text(text: str | bytes, **options: Any) -> Log:
        path = tmp_path / "log"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_logs([path], ReadOptions(**{"timezone": "UTC", **options}))

    return read_text
