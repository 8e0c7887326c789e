"""Which route to Slurm is taken, and when that is a problem."""

import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from rtsched.adapters.slurm.route import JobSource, rows_of, shown_dependency
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.errors import AdapterError

pytestmark = pytest.mark.skipif(find_spec("pyslurm") is not None, reason="pyslurm is here")


class Commands:
    """Shows no jobs."""

    settings = SlurmSettings(command_timeout_s=5.0)

    def jobs(self) -> list[object]:
        """Return nothing."""
        return []


def test_a_site_without_pyslurm_has_no_problem() -> None:
    """Slurm's commands do for everything, so nobody is alarmed for good."""
    route = JobSource(Commands(), "auto")
    assert route.jobs() == []
    assert (route.name, route.problem) == ("commands", "")


def test_who_demands_pyslurm_is_told() -> None:
    """A setting that cannot be followed is an error."""
    with pytest.raises(AdapterError, match="pyslurm does not match"):
        JobSource(Commands(), "pyslurm").jobs()


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (None, ""),
        ({"afterok": [], "singleton": False, "satisfy": "all"}, "singleton"),
        ({"afterok": ["5(unfulfilled)", 6], "satisfy": "all"}, "afterok:5(unfulfilled),afterok:6"),
        ({"after": [5], "afterany": ["6_*"], "satisfy": "any"}, "after:5?afterany:6_*"),
    ],
)
def test_dependencies_that_pyslurm_shows(said: dict[str, object] | None, text: str) -> None:
    """As squeue writes them; one that pyslurm does not know is a singleton."""
    assert shown_dependency(said) == text


def test_a_pyslurm_that_hangs_delays_the_first_poll_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while, shorter than any command may take, Slurm's commands are used."""
    (tmp_path / "pyslurm.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    commands = Commands()
    commands.settings = SlurmSettings(command_timeout_s=0.5)
    route = JobSource(commands, "auto")
    begin = time.monotonic()
    assert route.jobs() == []
    assert time.monotonic() - begin < 5.0
    assert route.name == "commands"
    assert "pyslurm did not answer within 0.5 s" in route.problem


class Unreadable:
    """A job of pyslurm's whose exit code it cannot read, and that says nothing else."""

    id = 7
    state = "FAILED"

    @property
    def exit_code(self) -> int:
        """Return what pyslurm does of a killed srun."""
        raise OverflowError("Python int too large to convert to C int")

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def test_an_exit_code_that_pyslurm_cannot_read() -> None:
    """Any user's killed srun has one: the poll goes on, and it did not fail by itself."""
    (shown,) = rows_of([Unreadable()]).exit_code
    assert shown == "0:0"
