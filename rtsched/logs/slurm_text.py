"""Slurm's words: job states, submit lines, the deadline in Extra or Comment.

Sources: the manual pages sacct (JOB STATE CODES), sbatch and srun.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from rtsched.model.log import Ending
from rtsched.model.resources import GRES, LICENSE
from rtsched.model.units import size_bytes

ENDINGS: dict[str, Ending] = {
    "BOOT_FAIL": Ending.NODE_FAILURE,
    "CANCELLED": Ending.CANCELLED,
    "COMPLETED": Ending.COMPLETED,
    "COMPLETING": Ending.RUNNING,
    "CONFIGURING": Ending.RUNNING,
    "DEADLINE": Ending.MISSED,
    "FAILED": Ending.FAILED,
    "LAUNCH_FAILED": Ending.FAILED,
    "NODE_FAIL": Ending.NODE_FAILURE,
    "OUT_OF_MEMORY": Ending.FAILED,
    "PENDING": Ending.PENDING,
    "PREEMPTED": Ending.PREEMPTED,
    "RECONFIG_FAIL": Ending.NODE_FAILURE,
    "REQUEUED": Ending.UNKNOWN,
    "REQUEUE_FED": Ending.PENDING,
    "REQUEUE_HOLD": Ending.PENDING,
    "RESIZING": Ending.RESIZED,
    "RESV_DEL_HOLD": Ending.PENDING,
    "REVOKED": Ending.CANCELLED,
    "RUNNING": Ending.RUNNING,
    "SIGNALING": Ending.RUNNING,
    "SPECIAL_EXIT": Ending.FAILED,
    "STAGE_OUT": Ending.RUNNING,
    "STOPPED": Ending.RUNNING,
    "SUSPENDED": Ending.RUNNING,
    "TIMEOUT": Ending.TIMEOUT,
}
"""What each job state means here."""

_BASE_STATES = [
    "PENDING",
    "RUNNING",
    "SUSPENDED",
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "OUT_OF_MEMORY",
]
"""Job states by number (slurm.h, enum job_states)."""
_STATE_FLAGS = {1 << 10: "REQUEUED", 1 << 13: "RESIZING", 1 << 19: "REVOKED"}
"""Flags that the accounting database keeps in place of a state."""
_STATE_NUMBER = re.compile(r"(\d{1,10})(?:[.,]0)?", re.ASCII)

_WORDS = (
    "bell contiguous exclusive get-user-env help hold ignore-pbs immediate join-output "
    "kill-on-bad-exit label multi-prog nice no-allocate no-bell no-kill no-requeue no-shell "
    "no-rotate oom-kill-step overcommit overlap oversubscribe parsable preserve-env propagate pty "
    "quiet quit-on-interrupt reboot requeue share spread-job stepmgr test-only unbuffered usage "
    "use-min-nodes verbose version wait wait-all-nodes x11 exact external disable-status "
    "export-all interactive-step"
)
_FLAGS = frozenset(_WORDS.split())
"""Long options that take no value in the next word."""

_WITH_VALUES = (
    "account acctg-freq array batch bb bbf begin bcast chdir cluster-constraint clusters comment "
    "constraint container container-id core-spec cores-per-socket cpu-bind cpu-freq cpus-per-gpu "
    "cpus-per-task deadline delay-boot dependency distribution error exclude export export-file "
    "extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task "
    "gres gres-flags hint input job-name kill-on-invalid-dep licenses mail-type mail-user "
    "mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus mpi network nodefile nodelist nodes "
    "ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output "
    "partition power prefer priority profile qos reservation resv-ports segment signal "
    "sockets-per-node switches thread-spec threads-per-core time time-min tmp tres-bind "
    "tres-per-node tres-per-task uid wckey wrap"
)
_LONG_NAMES = _FLAGS | frozenset(_WITH_VALUES.split())
_EVEN_WRAPPED = frozenset(
    ["deadline", "gres", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "tres-per-task"]
)
"""Options that count behind `--wrap` too: the job's command, if it has them, needs as much."""

_SHORT_FLAGS = frozenset("EHIKOQVWXZhklsuv")

_DEADLINE = re.compile(r"(?:^|[\s,;])(?:rt:)?(?:rt)?deadline=([^\s,;]+)", re.IGNORECASE)
_NODES = re.compile(r"(\d{1,9})(k?)(?:-(\d{1,9})(k?))?", re.ASCII)
_THROTTLED = re.compile(r"[^%]*%(\d{1,9})", re.ASCII)
_LICENSE = re.compile(r"([^\s:=@]{1,80}(?:@[^\s:=]{1,80})?)(?:[:=](\d{1,9}))?", re.ASCII)
_GENERIC_OPTIONS = frozenset(
    [
        "gres",
        "gpus",
        "gpus-per-node",
        "gpus-per-socket",
        "gpus-per-task",
        "tres-per-node",
        "tres-per-task",
        "ntasks-per-gpu",
    ]
)
_GENERIC = re.compile(
    r"(gres[/:])?([a-z_]\w*(?::(?!\d+[kmgtp]?(?:[:=]|$))[^:=]+)?)(?:[:=](\d{1,9}[kmgtp]?))?",
    re.ASCII | re.IGNORECASE,
)
_COUNT = re.compile(r"(\d{1,9})", re.ASCII)


@dataclass(frozen=True)
class SubmitLine:
    """What a submit line says beside the columns of the log.

    Attributes
    ----------
    deadline : str
        What `--deadline` says; empty if it is not there.
    nodes : (int, int) or None
        Least and most nodes (`-N`), if the number of processors grows with them.
    per_node : int
        Processors per node that were asked for.
    exclusive : bool
        Whether no other job may run on its nodes.
    dependency, job_name, begin : str
        What `--dependency`, `--job-name` and `--begin` say; empty if they are not there.
    array_limit : int
        Tasks of its array that may run at a time (`--array=1-100%8`); 0: any number.
    constraint, node_options : str
        What `--constraint` says; and `--nodelist=...`, `--exclude=...` and `--partition=...` of
        several partitions, in this order.
    licenses : str
        What `--licenses` says.
    gres, gpus : str
        Generic resources of each node, and GPUs of all nodes together, as `--gres` writes them.
    owner_only : bool
        Whether only jobs of the same user or MCS label may share its nodes (`--exclusive=user`).
    """

    deadline: str = ""
    nodes: tuple[int, int] | None = None
    per_node: int = 1
    exclusive: bool = False
    dependency: str = ""
    job_name: str = ""
    begin: str = ""
    array_limit: int = 0
    constraint: str = ""
    node_options: str = ""
    licenses: str = ""
    gres: str = ""
    gpus: str = ""
    owner_only: bool = False

    def nodes_asked(self, constraint: str) -> str:
        """Return which nodes are asked for, with features that may stand elsewhere in the log."""
        features = f"--constraint={constraint}" if constraint else ""
        return f"{features} {self.node_options}".strip()


@lru_cache(maxsize=8192)
def submit_line(text: str) -> SubmitLine:
    """Return what a command line of sbatch, srun or salloc asks for.

    The log has lost the quotes around words. Options of the job's own command do not count; after
    `--wrap`, whose value cannot be told from further options, only a deadline and GPUs do.
    """
    if "-" not in text:
        return SubmitLine()
    options = _options(text.split()[1:])
    throttled = _THROTTLED.fullmatch(options.get("array", ""))
    nodes, per_node = _node_range(options)
    return SubmitLine(
        options.get("deadline", ""),
        nodes,
        per_node,
        options.get("exclusive") == "",
        options.get("dependency", ""),
        options.get("job-name", ""),
        options.get("begin", ""),
        int(throttled[1]) if throttled else 0,
        options.get("constraint", ""),
        _node_options(options),
        options.get("licenses", ""),
        *_generic(options),
        options.get("exclusive") in {"user", "mcs"},
    )


def _generic(options: dict[str, str]) -> tuple[str, str]:
    """Return the generic resources of each node and the GPUs of all nodes that options ask for.

    Where the number of tasks is not said, there is one on each node.
    """
    if _GENERIC_OPTIONS.isdisjoint(options):
        return "", ""
    each = _count(options.get("ntasks-per-node"))
    tasks = options.get("ntasks", "")
    per_task = "job" if tasks.isdigit() else "node"
    times = _count(tasks) if tasks.isdigit() else each
    found: dict[str, list[str]] = {"node": [], "job": []}
    for name, basis, factor in (
        ("gres", "node", 1),
        ("tres-per-node", "node", 1),
        ("gpus-per-node", "node", 1),
        ("gpus-per-socket", "node", _count(options.get("sockets-per-node"))),
        ("gpus-per-task", per_task, times),
        ("tres-per-task", per_task, times),
        ("gpus", "job", 1),
    ):
        for part in options.get(name, "").split(","):
            match = _GENERIC.fullmatch(f"gpu:{part}" if name.startswith("gpus") else part)
            if match is None or part in {"", "none"} or not (match[1] or name[:4] != "tres"):
                continue
            basis = basis if match[2].startswith("gpu") else "node"
            if amount := int(size_bytes(match[3] or "1")) * factor:
                found[basis].append(f"{match[2]}:{amount}")
    if "ntasks-per-gpu" in options and tasks.isdigit() and not any(found.values()):
        found["job"].append(f"gpu:{-(-int(tasks) // _count(options['ntasks-per-gpu']))}")
    return ",".join(found["node"]), ",".join(found["job"])


def _node_options(options: dict[str, str]) -> str:
    """Return the options that name nodes, or several partitions."""
    names = [name for name in ("nodelist", "exclude", "partition") if options.get(name)]
    if "," not in options.get("partition", ""):
        names = [name for name in names if name != "partition"]
    return " ".join(f"--{name}={options[name]}" for name in names)


def _node_range(options: dict[str, str]) -> tuple[tuple[int, int] | None, int]:
    """Return least and most nodes, None if the job has a fixed size, and processors per node."""
    match = _NODES.fullmatch(options.get("nodes", ""))
    if match is None or match[3] is None or options.keys() & {"ntasks", "exclusive"}:
        return None, 1
    least, most = (int(match[i]) * (1024 if match[i + 1] else 1) for i in (1, 3))
    per_node = _count(options.get("ntasks-per-node")) * _count(options.get("cpus-per-task"))
    return ((least, most), per_node) if 0 < least < most else (None, 1)


def _count(text: str | None) -> int:
    match = _COUNT.fullmatch(text or "")
    return max(1, int(match[1])) if match else 1


_LONG = {
    "N": "nodes",
    "n": "ntasks",
    "c": "cpus-per-task",
    "d": "dependency",
    "a": "array",
    "J": "job-name",
    "b": "begin",
    "p": "partition",
    "C": "constraint",
    "w": "nodelist",
    "x": "exclude",
    "L": "licenses",
    "G": "gpus",
}


def _options(words: list[str]) -> dict[str, str]:
    """Return the values of the options before the job's command."""
    options: dict[str, str] = {}
    wrapped = False
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        follows = words[at] if at < len(words) else ""
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
            name = _full(name)
            if not given and name not in _FLAGS and not follows.startswith("-"):
                value = follows
                at += 1
            if not wrapped or name in _EVEN_WRAPPED:
                options[name] = value
            wrapped |= name == "wrap"
        elif word.startswith("-") and len(word) > 1 and not wrapped:
            letter = word[1]
            value = word[2:].removeprefix("=")
            if letter not in _SHORT_FLAGS and not value:
                value = follows
                at += 1
            options[_LONG.get(letter, letter)] = value
        elif not wrapped and word != ":":
            break
    return options


@lru_cache(maxsize=1024)
def _full(name: str) -> str:
    """Return the option that a name means, as getopt does: `--dep` is `--dependency`."""
    if name in _LONG_NAMES:
        return name
    found = [full for full in _LONG_NAMES if name and full.startswith(name)]
    return found[0] if len(found) == 1 else name


def deadline_in(*texts: str) -> str:
    """Return what the first of some free texts says after `deadline=`; empty if none does.

    The syntax is `rt:deadline=2026-11-21T17:40` or `RtDeadline=1795282800`, words separated by
    white space, comma or semicolon.
    """
    for text in texts:
        match = _DEADLINE.search(text)
        if match is not None:
            return match[1]
    return ""


def ending(state: str) -> Ending:
    """Return what a state such as `CANCELLED by 1001`, or its number, means; UNKNOWN: it is none.

    A narrow column cuts it (`OUT_OF_ME+`): a beginning that no other has is as good. Of a number
    the low 8 bits are the state (slurm.h, JOB_STATE_BASE), flags follow.
    """
    if number := _STATE_NUMBER.fullmatch(state.strip()):
        flags, base = int(number[1]) & ~0xFF, int(number[1]) & 0xFF
        known = _BASE_STATES[base] if base < len(_BASE_STATES) else ""
        state = next((name for flag, name in _STATE_FLAGS.items() if flag & flags), known)
    return ENDINGS.get(state_name(state), Ending.UNKNOWN)


def state_name(state: str) -> str:
    """Return the name of a state such as `CANCELLED by 1001`, in full where it is cut."""
    word = next(iter(state.upper().split()), "")
    name = word.rstrip("+")
    found = [full for full in ENDINGS if full.startswith(name)] if word != name else []
    return found[0] if len(found) == 1 else name


def is_state_number(state: str) -> bool:
    """Return whether a job state is given as a number, as the accounting database keeps it."""
    return _STATE_NUMBER.fullmatch(state.strip()) is not None


NO_VALUE = 4294967294.0
"""Slurm's 32 bit number for "not set"; one more means "infinite"."""


def minutes(text: str) -> float:
    """Return the seconds of a number of minutes (TimelimitRaw); inf for anything else."""
    text = text.removesuffix(".0").removesuffix(",0")
    known = text.isascii() and text.isdigit() and len(text) < 12 and float(text) < NO_VALUE
    return float(text) * 60.0 if known else float("inf")


_NO_LIMIT = frozenset(("billing", "energy", "node", "pages", "vmem"))
"""Trackable resources that no node runs out of."""


def trackable(text: str) -> dict[str, int]:
    """Return the amounts in `billing=4,cpu=4,gres/gpu:a100=2,mem=50M,node=1`, memory in bytes.

    What no node runs out of, such as `billing`, is left out, and so is what cannot be read. A type
    of GPUs counts as GPUs too, where the text does not say how many there are in all.

    References
    ----------
    Slurm manual, "Trackable Resources (TRES)".
    """
    amounts: dict[str, int] = {}
    for pair in text.split(","):
        name, _, value = pair.partition("=")
        amount = size_bytes(value, "M" if name == "mem" else "")
        limited = name not in _NO_LIMIT and not name.startswith(("fs/", "ic/"))
        if name and limited and 0 < amount < 2.0**62:
            amounts[name] = int(amount)
    return with_totals(amounts)


def with_totals(amounts: dict[str, int]) -> dict[str, int]:
    """Return amounts of resources with `gres/gpu` beside `gres/gpu:a100`, where it is missing."""
    totals: dict[str, int] = {}
    for name, amount in amounts.items():
        whole, _, kind = name.partition(":")
        if kind and whole not in amounts:
            totals[whole] = totals.get(whole, 0) + amount
    return amounts | totals


def generic_column(text: str) -> str:
    """Return what ReqGRES or AllocGRES means: resources of each node, `;`, those of all together.

    Before Slurm 21.08 these columns counted all nodes together; `PER_NODE:gpu:2` is of each.
    """
    node: list[str] = []
    job: list[str] = []
    for part in text.split(","):
        basis, _, rest = part.partition(":")
        name = (rest if basis.startswith("PER_") else part).removeprefix("gres:")
        if name and not name.endswith(":0") and name != "(null)":
            (job if basis in {name, name.partition(":")[0], "gres", "PER_JOB"} else node).append(
                name
            )
    return f"{','.join(node)};{','.join(job)}" if node or job else ""


def generic_amounts(text: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the generic resources of each node, and of all together, in `gpu:2;gpu:8`."""
    node, _, job = text.partition(";")
    return gres(node), gres(job)


def gres(text: str) -> dict[str, int]:
    """Return the amounts in `gpu:a100:4(S:0-1),shard:8`, by their names as trackable resources.

    References
    ----------
    Slurm manual page slurm.conf: Gres.
    """
    amounts: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        kind, *rest = part.split(":")
        rest = [word for word in rest if word != "no_consume"]
        amount = size_bytes(rest.pop()) if rest and rest[-1][:1].isdigit() else 1.0
        if kind and 0 < amount < 2.0**62:
            name = f"{GRES}{kind}" + "".join(f":{word}" for word in rest)
            amounts[name] = amounts.get(name, 0) + int(amount)
    return with_totals(amounts)


def licenses_in(text: str) -> dict[str, int]:
    """Return the licences in `matlab:4,fluent@server`, by their names as trackable resources.

    References
    ----------
    Slurm manual pages slurm.conf and sbatch: Licenses.
    """
    amounts: dict[str, int] = {}
    for part in re.split("[,;]", text):
        match = _LICENSE.fullmatch(part.strip())
        if match is not None and match[1] != "(null)":
            name = f"{LICENSE}{match[1]}"
            amounts[name] = amounts.get(name, 0) + int(match[2] or 1)
    return amounts
