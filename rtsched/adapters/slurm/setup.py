"""Checks of a Slurm's setup: what there is, what should be, what to do.

`inspect_site` makes a `Setup`, `findings` judges it, `wanted` is what slurm.conf should hold.
`probe_nodes` asks nodes whether a step without allocation can run our program there: `srun
--no-allocate` starts one on nodes whether they are busy or not, past slurmctld's queue, and for
root and SlurmUser only. slurmd runs the site's Prolog before it, as before any job.

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rtsched.adapters import readiness
from rtsched.adapters.readiness import (
    CheckResult,
    HostSetup,
    good,
    note,
    socket_findings,
    user_findings,
    wrong,
)
from rtsched.adapters.slurm import slurm_conf
from rtsched.adapters.slurm.facts import default_memory, plans_licenses, sharing_of
from rtsched.errors import AdapterError
from rtsched.logs.hostlist import expand
from rtsched.model.cluster import NodeState
from rtsched.model.resources import GRES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rtsched.adapters.slurm.rows import NodeRow


PLUGIN = "job_submit_rtsched.so"
PROLOG = "/usr/libexec/rtsched/task_prolog.sh"
HANDED_OUT = "rtsched_task_prolog.sh"
"""A copy beside slurm.conf: a configless slurmctld hands it out, from Slurm 25.11 on."""
PROLOGS = (PROLOG, HANDED_OUT)
"""What TaskProlog is where it is ours."""
FLAGS = ("job_comment", "job_extra")
MOST_SKEW = 5.0
"""Seconds that the controller's clock may differ."""

OLDEST, NEWEST = (23, 11), (26, 5)
"""Releases of Slurm from the oldest that the submit filter compiles for to the newest tested."""

SUBMIT_KEYS = readiness.SUBMIT_KEYS | {"promised_jobs", "share_nodes"}


@dataclass(frozen=True, kw_only=True)
class Setup(HostSetup):
    """What there is on this machine, beside what there is of any batch system.

    Attributes
    ----------
    path : Path
        slurm.conf.
    conf : mapping of str to str
        What it and the files it includes set, by name in lower case.
    running : mapping of str to str, or None
        What the running controller uses, by name in lower case; None: it does not answer.
    silence : str
        Why it does not answer.
    skew_s : float
        How far its clock is ahead of ours, seconds.
    version : str
        Of the installed slurmctld; empty: unknown.
    plugin : Path or None
        Our submit filter, where PluginDir holds it.
    plugin_version : str
        The Slurm it was built for; empty: it cannot be loaded.
    sends_idle : bool
        Whether it tells the daemon which nodes are idle at the instant of a submission.
    level : str
        The AdminLevel of the daemon's user; empty: unknown.
    federation : str
        The federation that the cluster is in; empty: none.
    share_nodes : bool
        Whether promised jobs share nodes, by the site's settings.
    """

    path: Path
    conf: Mapping[str, str] = field(default_factory=dict)
    running: Mapping[str, str] | None = None
    silence: str = ""
    skew_s: float = 0.0
    version: str = ""
    plugin: Path | None = None
    plugin_version: str = ""
    sends_idle: bool = True
    level: str = ""
    federation: str = ""
    share_nodes: bool = False
    filters: tuple[str, ...] = ("slurm", "root")


# --- what is wanted -------------------------------------------------------------------------------


def wanted(setup: Setup, task_prolog: bool | None = None) -> dict[str, str]:
    """Return the values that slurm.conf should have, by name as Slurm's manual writes it.

    PluginDir stays what it is: where one of its directories is missing on a host that reads this
    slurm.conf, slurmd and all commands there give up.

    Parameters
    ----------
    setup : Setup
        What there is.
    task_prolog : bool, optional
        Whether our TaskProlog is wanted; not given: if it is there.
    """
    present = setup.conf
    found = {
        "JobSubmitPlugins": slurm_conf.with_last(present.get("jobsubmitplugins", ""), "rtsched"),
        "AccountingStoreFlags": slurm_conf.with_all(present.get("accountingstoreflags", ""), FLAGS),
    }
    if "plugindir" in present:
        found["PluginDir"] = present["plugindir"]
    prolog = present.get("taskprolog", "")
    if task_prolog is not False and prolog in PROLOGS:
        found["TaskProlog"] = prolog
    elif task_prolog:
        found["TaskProlog"] = PROLOG
    return found


def plugin_dirs(conf: Mapping[str, str], running: Mapping[str, str] | None) -> list[Path]:
    """Return where Slurm looks for plug-ins: PluginDir, its default as the controller tells it."""
    searched = conf.get("plugindir") or (running or {}).get("plugindir", "")
    return [Path(place) for place in searched.split(":") if place]


# --- judging --------------------------------------------------------------------------------------


def findings(setup: Setup, probe: ProbeResult | None = None) -> list[CheckResult]:
    """Return what is good and what is not, in the order in which to put it right.

    Parameters
    ----------
    setup : Setup
        What there is.
    probe : ProbeResult, optional
        What the nodes answered, if they were asked, about our TaskProlog.
    """
    return [
        *_release(setup),
        *_plugin(setup),
        *_lines(setup),
        *_prolog(setup, probe),
        *_controller(setup),
        *_permissions(setup),
        *socket_findings(setup, SUBMIT_KEYS),
        *_promised_jobs(setup),
        *_held_jobs(setup),
        *_user_top(setup),
        *(_shared_nodes(setup) if setup.share_nodes else ()),
    ]


def _release(setup: Setup) -> Iterator[CheckResult]:
    """Tell whether rtsched runs with this release of Slurm, and was tested with it."""
    if not setup.version:
        return
    major, minor, _ = map(int, setup.version.split("."))
    if (major, minor) < OLDEST:
        yield wrong(
            f"Slurm {setup.version} is too old: the submit filter does not compile for it",
            f"upgrade to Slurm {_feature(OLDEST)} or later",
        )
    elif (major, minor) > NEWEST:
        yield note(
            f"rtsched is not tested with Slurm {setup.version}: the newest tested is "
            f"{_feature(NEWEST)}",
            "try it with all plug-ins in `shadow` first",
        )


def _feature(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]:02d}"


def _plugin(setup: Setup) -> Iterator[CheckResult]:
    if setup.plugin is None:
        places = plugin_dirs(setup.conf, setup.running)
        where = f" PLUGINDIR={places[-1]}" if places else ""
        yield wrong(
            f"no {PLUGIN} in PluginDir" + (f" ({':'.join(map(str, places))})" if places else ""),
            "build it for this Slurm: `make -C contrib/slurm && make -C contrib/slurm install"
            f"{where}`; do not add a directory to PluginDir that other hosts do not have",
        )
    elif not setup.plugin_version:
        yield wrong(f"{setup.plugin} cannot be loaded", "rebuild it on this machine")
    elif setup.version and not same_release(setup.plugin_version, setup.version):
        yield wrong(
            f"{setup.plugin} was built for Slurm {setup.plugin_version}, {setup.version} is "
            "installed: slurmctld cannot start with it",
            "rebuild it before slurmctld restarts",
        )
    elif not setup.sends_idle:
        yield wrong(
            f"{setup.plugin} is of an earlier release of rtsched: it does not tell which nodes are "
            "idle, so jobs without time to spare wait for a poll before they are promised anything",
            "rebuild it, and restart slurmctld",
        )
    else:
        yield good(f"{setup.plugin} is built for Slurm {setup.plugin_version}")


def same_release(one: str, other: str) -> bool:
    """Return whether two releases are the same: Slurm wants the micro release to be equal too."""
    return [int(part) for part in one.split(".")] == [int(part) for part in other.split(".")]


def _lines(setup: Setup) -> Iterator[CheckResult]:
    remedy = "`rtsched slurm install` shows the line, `rtsched slurm install --apply` adds it"
    for name, value in wanted(setup).items():
        present = setup.conf.get(name.lower(), "")
        if present == value:
            yield good(f"{name}={value}")
        else:
            now = f"{name}={present}" if present else f"{name} is not set"
            yield wrong(f"{setup.path}: {now}, wanted: {value}", remedy)
    if setup.conf.get("prioritytype", "priority/multifactor").lower() == "priority/basic":
        yield note(
            "PriorityType=priority/basic has no site factor: rtsched orders the queue by Nice",
            "use priority/multifactor if fair share must move jobs by more than 60,000 places",
        )


def _prolog(setup: Setup, probe: ProbeResult | None) -> Iterator[CheckResult]:
    """Tell which nodes can run our TaskProlog: a step fails where it is missing."""
    prolog = setup.conf.get("taskprolog", "")
    remedy = f"copy {PROLOG} there, mode 755; or `rtsched slurm install --no-task-prolog --apply`"
    if probe is None:
        if prolog in PROLOGS:
            what = f"TaskProlog={prolog}: every step fails on a node that does not have it"
            yield note(what, "`rtsched slurm check --nodes` tests them")
        return
    if probe.unable:
        nodes = few(probe.unable)
        if prolog in PROLOGS:
            what = f"steps fail on nodes that cannot run TaskProlog={prolog}: {nodes}"
            yield wrong(what, remedy)
        else:
            remedy = "copy it there, mode 755, before `rtsched slurm install --task-prolog`"
            yield note(f"nodes cannot run {PROLOG} and do not need to: {nodes}", remedy)
    if probe.able:
        ours = prolog if prolog in PROLOGS else PROLOG
        yield good(f"{len(probe.able)} nodes can run {ours}")
    if probe.unasked:
        what = f"not tested, because they accept no jobs now: {few(probe.unasked)}"
        yield note(what, "test them when they are back")


def few(nodes: Mapping[str, str], most: int = 8) -> str:
    """Return the first of some nodes, each with what there is to say of it."""
    shown = [f"{name} ({why})" for name, why in list(nodes.items())[:most]]
    return ", ".join(shown) + (f" and {len(nodes) - most} more" if len(nodes) > most else "")


def _controller(setup: Setup) -> Iterator[CheckResult]:
    if setup.running is None:
        yield wrong(f"the controller does not answer: {setup.silence}", "start slurmctld")
        return
    read = setup.running.get("slurm_conf", "")
    if read.startswith("/") and Path(read).resolve() != setup.path.resolve():
        yield wrong(
            f"the running controller reads {read}, this check reads {setup.path}",
            f"`rtsched slurm check --slurm-conf {read}`, and so `install`",
        )
    used = setup.running.get("jobsubmitplugins", "")
    if "rtsched" in used.split(","):
        yield good(f"the running controller uses JobSubmitPlugins={used}")
    else:
        yield wrong(
            f"the running controller uses JobSubmitPlugins={used}",
            "when slurm.conf is ready: `scontrol reconfigure`; if it fails, "
            "the old settings remain in effect",
        )
    if abs(setup.skew_s) > MOST_SKEW:
        yield wrong(
            f"the controller's clock is {setup.skew_s:+.0f} s from this machine's",
            "run the daemon on the slurmctld host and synchronise all clocks by NTP",
        )
    owner = setup.running.get("slurmuser", "").partition("(")[0]
    if owner and owner not in setup.filters:
        yield wrong(
            f"slurmctld runs as {owner}, who may not query the daemon",
            f'set filters = ["{owner}"] in the [daemon] table',
        )
    if setup.federation:
        yield note(
            f"the cluster is in the federation {setup.federation}: jobs with a deadline are "
            "rejected unless they name this cluster alone (--clusters)",
            "tell your users; each cluster of the federation needs rtsched of its own",
        )


def controller_findings(
    names: Sequence[str], standby: bool, database: Path, memory: str
) -> Iterator[CheckResult]:
    """Tell whether filter and daemon fit the controllers that there are.

    Parameters
    ----------
    names : sequence of str
        Hosts of the controllers, by slurm.conf.
    standby, database, memory
        By the site's settings.
    """
    if standby and len(names) < 2:
        yield note(
            "standby is set, but slurm.conf names only one controller",
            "remove standby from site.toml, or add the backup's SlurmctldHost",
        )
    elif not standby and len(names) > 1:
        yield note(
            f"slurmctld runs on {', '.join(names)}: it starts on none of them without {PLUGIN}; "
            "and promises are kept beside one of them: when a backup takes over, jobs pass as "
            "on_failure says",
            f"install {PLUGIN} and submit.conf on each, for the same Slurm, and run `rtsched slurm "
            "check` there too; have a daemon on each, with standby = true: docs/slurm/standby.md",
        )
    elif standby and memory and Path(memory).parent != database.parent:
        yield wrong(
            f"{memory} is not in the directory of {database}: the other daemons cannot read it",
            f'set memory = "{database.parent / Path(memory).name}" in the [slurm] table',
        )
    elif standby:
        yield good(
            f"slurmctld runs on {', '.join(names)}, and the daemons there share {database}; "
            f"each host needs {PLUGIN} and submit.conf: check there too"
        )


def _permissions(setup: Setup) -> Iterator[CheckResult]:
    user = setup.user
    yield from user_findings(setup)
    owner = (setup.running or {}).get("slurmuser", "").partition("(")[0]
    if user in {owner, "root"}:
        yield good(f"{user} is SlurmUser or root, who has all permissions")
    elif setup.level in {"Operator", "Administrator", "Admin"}:
        yield good(f"{user} has AdminLevel={setup.level}")
    elif setup.level:
        yield wrong(
            f"{user} is not an Operator: Slurm refuses its reservations and changes of jobs",
            f"`sacctmgr add user {user} account=ACCOUNT adminlevel=Operator`, or `sacctmgr modify "
            f"user {user} set adminlevel=Operator`",
        )
    else:
        yield note(
            f"the accounting database has no permissions for {user}",
            "without slurmdbd only SlurmUser and root may change jobs of others: run the daemon "
            "as SlurmUser",
        )


def _promised_jobs(setup: Setup) -> Iterator[CheckResult]:
    wanted = str(setup.run / "promised_jobs")
    read = setup.submit.get("promised_jobs", "/run/rtsched/promised_jobs")
    if read != wanted:
        yield wrong(
            f"the submit filter reads {read}, the daemon writes {wanted}: when the daemon is down "
            "and on_failure is hold or closed, no job can be changed",
            f"set promised_jobs = {wanted} in {setup.submit_path}",
        )


def _held_jobs(setup: Setup) -> Iterator[CheckResult]:
    """Tell whether jobs that the filter holds ask for nodes as the daemon plans them."""
    shares = setup.submit.get("share_nodes", "false") == "true"
    if setup.submit.get("on_failure") == "hold" and shares != setup.share_nodes:
        wanted = "true" if setup.share_nodes else "false"
        yield note(
            f"share_nodes is {wanted} in site.toml, and not in {setup.submit_path}: jobs that are "
            "held while the daemon is down ask for "
            + ("whole nodes" if setup.share_nodes else "less than whole nodes"),
            f"set share_nodes = {wanted} in {setup.submit_path}",
        )


def _settings(setup: Setup) -> dict[str, str]:
    """Return the settings of slurm.conf, and what slurmctld runs with where it has none."""
    return {**(setup.running or {}), **setup.conf}


def _user_top(setup: Setup) -> Iterator[CheckResult]:
    """Tell whether users can give the priority of their promised jobs to others of theirs."""
    conf = _settings(setup)
    if "enable_user_top" in conf.get("schedulerparameters", "").lower().split(","):
        yield note(
            "SchedulerParameters has enable_user_top: by `scontrol top` a user's jobs without a "
            "promise get the priority of the promised ones, before the jobs of all others",
            "remove enable_user_top",
        )


def _shared_nodes(setup: Setup) -> Iterator[CheckResult]:
    """Tell whether Slurm's scheduler can keep promises on nodes that jobs share."""
    conf = _settings(setup)
    names = ("SelectType", "PriorityType", "SchedulerType", "SelectTypeParameters")
    config = {name: conf[name.lower()] for name in names if name.lower() in conf}
    _, problem = sharing_of(config)
    if problem:
        what, _, remedy = problem.partition("; ")
        yield wrong(what, remedy)
        return
    parameters = conf.get("schedulerparameters", "")
    if "bf_window_linear=" not in parameters:
        yield note(
            "SchedulerParameters has no bf_window_linear: Slurm estimates far starts roughly, and "
            "may put promised jobs off for shorter ones",
            "add bf_window_linear=30",
        )
    if conf.get("licenses") and not plans_licenses({"SchedulerParameters": parameters}):
        yield note(
            "SchedulerParameters has no bf_licenses: jobs that need licences get no promise",
            "add bf_licenses",
        )
    consumed = "MEMORY" in config.get("SelectTypeParameters", "").upper()
    if consumed and not any(default_memory(conf)):
        yield note(
            "a job that asks for no memory gets all memory of its nodes, in partitions without "
            "DefMemPerCPU",
            "set DefMemPerCPU or DefMemPerNode",
        )
    tracked = conf.get("accountingstoragetres", "").lower().split(",")
    kinds = [kind for kind in conf.get("grestypes", "").lower().split(",") if kind]
    for kind in kinds:
        if f"{GRES}{kind}" not in tracked:
            yield note(
                f"AccountingStorageTRES has no {GRES}{kind}: jobs that ask for it get no promise",
                f"add {GRES}{kind}, and its types, such as {GRES}{kind}:a100",
            )


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
