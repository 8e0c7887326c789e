"""Probe of Slurm's nodes: whether a step without allocation can run our program there.

`srun --no-allocate` starts a step on nodes whether they are busy or not, past slurmctld's queue,
and for root and SlurmUser only. slurmd runs the site's Prolog before it, as before any job.

References
----------
Manual page srun(1), `--no-allocate`; slurm.conf(5), `TaskProlog`.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from rtsched.errors import AdapterError
from rtsched.logs.hostlist import expand
from rtsched.model.cluster import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from rtsched.adapters.slurm.rows import NodeRow

NODES_PER_STEP = 1000
"""So many nodes are asked by one step."""

# As nobody, who is in no group: what nobody may run every user may. root itself may run what others
# may not even see.
ASK = """
if [ "$(id -u)" = 0 ]; then
    set -- setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
fi
"$@" </dev/null >/dev/null 2>&1
echo "rtsched_node $SLURMD_NODENAME $?"
"""

_ANSWER = re.compile(r"^rtsched_node (\S+) (\d+)$", re.MULTILINE)
_UNREACHED = re.compile(r"failed on node (\S+): (.*)")
_FAILED = re.compile(r"error: (\S+): tasks? \S+: Exited")
_CANNOT = {126: "it cannot be executed", 127: "it does not exist"}
_UP = {NodeState.UP: "", NodeState.DOWN: "down", NodeState.DRAINED: "drained"}


class ProbeResult(NamedTuple):
    """What the nodes answered.

    Attributes
    ----------
    able : tuple of str
        Nodes that ran the program.
    unable : mapping of str to str
        Nodes that did not, or did not answer, each with why.
    unasked : mapping of str to str
        Nodes that take no jobs now, each with its state.
    """

    able: tuple[str, ...]
    unable: Mapping[str, str]
    unasked: Mapping[str, str]


def probe_nodes(
    program: str, rows: Iterable[NodeRow], srun: str | Path = "srun", seconds: float = 60.0
) -> ProbeResult:
    """Run a program on every node that takes jobs, and return which could.

    Parameters
    ----------
    program : str
        Its path; it is run as nobody, without arguments.
    rows : iterable of NodeRow
        The nodes as the controller shows them; those that are down or drained are not asked.
    srun : str or Path
        Slurm's command.
    seconds : float
        How long this may take altogether.

    Raises
    ------
    AdapterError
        If srun cannot be started.
    """
    states = {row.name: _UP[row.state] for row in rows}
    waiting = [name for name, state in states.items() if not state]
    unasked = {name: state for name, state in states.items() if state}
    able: list[str] = []
    unable: dict[str, str] = {}
    deadline = time.monotonic() + seconds
    while waiting and (left := deadline - time.monotonic()) > 0:
        now = waiting[:NODES_PER_STEP]
        answers, unreached = _step(program, now, srun, left)
        able += [name for name in now if answers.get(name) == 0]
        for name in now:
            if status := answers.get(name):
                unable[name] = _CANNOT.get(status, f"exit status {status}")
            elif name in unreached:
                unable[name] = unreached[name]
        known = {*answers, *unreached}
        if not known.intersection(now):  # it would be the same the next time
            unable |= dict.fromkeys(now, "no answer")
            known = set(now)
        waiting = [name for name in waiting if name not in known]
    unable |= dict.fromkeys(waiting, f"no answer within {seconds:g} s")
    return ProbeResult(tuple(able), unable, unasked)


def _step(
    program: str, names: Sequence[str], srun: str | Path, seconds: float
) -> tuple[dict[str, int], dict[str, str]]:
    """Return the exit status on each node that answered, and why others did not.

    One node that srun does not reach ends the step, perhaps before others have answered.
    """
    count = len(names)
    words = [
        *(str(srun), "--no-allocate", f"--nodelist={','.join(names)}"),
        *(f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--wait=0"),
        *("--mpi=none", "--cpu-bind=none", "--input=none", "--chdir=/", "--kill-on-bad-exit=0"),
        *("--export=PATH=/usr/sbin:/usr/bin:/sbin:/bin", "/bin/sh", "-c", ASK, "ask", program),
    ]
    # srun takes options from variables, and a job's surroundings where it runs in one.
    foreign = ("SLURM_", "SRUN_", "SBATCH_", "RTSCHED_")
    kept = {k: v for k, v in os.environ.items() if k == "SLURM_CONF" or not k.startswith(foreign)}
    try:
        process = subprocess.Popen(  # noqa: S603 -- an argument list; what sh reads is constant
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=kept | {"LC_ALL": "C.UTF-8"},
        )
    except OSError as error:
        raise AdapterError(
            f"{srun} cannot be run ({error.strerror}); install Slurm's client commands, or set "
            "bin_dir in [slurm]"
        ) from error
    with process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                output, errors = process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                output, errors = process.communicate()
    answers = {name: int(status) for name, status in _ANSWER.findall(output)}
    unreached = {name: why.strip() for name, why in _UNREACHED.findall(errors)}
    with suppress(ValueError):  # whatever else srun may print there
        ended = [name for nodes in _FAILED.findall(errors) for name in expand(nodes)]
        unreached = dict.fromkeys(ended, "steps fail there") | unreached
    return answers, unreached
