"""A daemon for the tests of this directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from running import Running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """Give a daemon with four idle nodes."""
    one = Running(tmp_path)
    yield one
    one.close()
