"""What the first users of a daemon wait for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("planner", ["mcdf", "portfolio"])
def test_first_answers_load_nothing(planner: str) -> None:
    """No module and no compiled function: a filter waits for milliseconds."""
    paths = os.pathsep.join(
        filter(None, (str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH")))
    )
    done = subprocess.run(
        [sys.executable, str(HERE / "first_answers.py"), planner],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == []
