"""A daemon for the tests of this directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from running import Running

from rtsched.daemon.app import rules_of
from rtsched.daemon.messages import Wording
from rtsched.daemon.warming import warm_up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session", autouse=True)
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have the kernels compiled that judge jobs: a filter does not wait for that."""
    one = Running(tmp_path_factory.mktemp("compiled"))
    policy = one.policy()
    warm_up(policy, rules_of(policy, Wording(str, str)))
    one.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """Give a daemon with four idle nodes."""
    one = Running(tmp_path)
    yield one
    one.close()
