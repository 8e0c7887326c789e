"""By which route the state is read: pyslurm where it fits, else Slurm's commands."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from rtsched.adapters.slurm.bindings import TRIAL_S, Bindings, differs, unusable
from rtsched.errors import AdapterError

if TYPE_CHECKING:
    from rtsched.adapters.slurm.commands import CommandRunner
    from rtsched.adapters.slurm.rows import JobRows, NodeRow


class Route:
    """Jobs and nodes by the best route there is.

    Parameters
    ----------
    commands : CommandRunner
        Slurm's commands, which do for everything.
    wanted : {"auto", "pyslurm", "commands"}
        `pyslurm`: no other route will do.

    Attributes
    ----------
    name : str
        `pyslurm` or `commands`; empty before the first poll.
    problem : str
        Why pyslurm is not used although it is there; empty: it is used, or is not wanted, or by
        `auto` is not installed, which is no problem.
    """

    def __init__(self, commands: CommandRunner, wanted: str) -> None:
        self._commands = commands
        self._wanted = wanted
        self._bindings: Bindings | None = None
        self.name = ""
        self.problem = ""

    def jobs(self) -> JobRows:
        """Return all jobs that the controller knows.

        Raises
        ------
        AdapterError
            If the controller does not answer, or pyslurm is demanded and does not fit.
        """
        if not self.name:
            self._choose()
        return (self._bindings or self._commands).jobs()

    def nodes(self) -> list[NodeRow]:
        """Return all nodes."""
        return (self._bindings or self._commands).nodes()

    def _choose(self) -> None:
        """Try pyslurm, and use it if it shows what squeue shows."""
        wanted = self._wanted
        if wanted == "pyslurm" or (wanted == "auto" and find_spec("pyslurm") is not None):
            shown = self._commands.jobs()
            try:
                self._bindings = self._tried(shown)
            except AdapterError as error:
                if wanted == "pyslurm":
                    raise
                self.problem = f"{error}; using Slurm's commands instead"
        self.name = "commands" if self._bindings is None else "pyslurm"

    def _tried(self, shown: JobRows) -> Bindings:
        """Return bindings that fit.

        Raises
        ------
        AdapterError
            If there are none.
        """
        why = unusable(min(TRIAL_S, self._commands.settings.command_timeout_s))
        if why:
            raise AdapterError(why)
        bindings = Bindings()
        column = differs(bindings.jobs(), shown)
        if column:
            raise AdapterError(
                f"pyslurm and squeue differ in {column}; build pyslurm for this release of Slurm"
            )
        return bindings
