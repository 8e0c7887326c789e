"""A daemon for the tests of this directory."""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
from typing import TYPE_CHECKING

import pytest
from rest_client import daemon_with_a_promise
from running import Running
from scene import Scene

from rtsched.daemon.app import rules_of
from rtsched.daemon.messages import Wording
from rtsched.daemon.warming import warm_up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser


NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
"""What Chromium may be called."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in a loop of its own, which ends if it hangs."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    asyncio.run(asyncio.wait_for(test, 600.0))
    return True


@pytest.fixture(scope="session", autouse=True)
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have the kernels compiled that judge jobs: a filter does not wait for that."""
    one = Running(tmp_path_factory.mktemp("compiled"))
    policy = one.policy()
    warm_up(policy, rules_of(policy, Wording(str, str)))
    one.close()


@pytest.fixture
def scene() -> Scene:
    """Give four idle nodes, and a planner of deadlines."""
    return Scene()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """Give a daemon with four idle nodes."""
    one = Running(tmp_path)
    yield one
    one.close()


@pytest.fixture(scope="module")
def with_promise(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Give a daemon with ann's promise, which serves this process as REST."""
    with daemon_with_a_promise(tmp_path_factory.mktemp("promise")) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Give Chromium."""
    from playwright.sync_api import expect, sync_playwright  # most tests here need no browser

    expect.set_options(timeout=60_000)
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        reason = f"none of {', '.join(NAMES)} is installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()
