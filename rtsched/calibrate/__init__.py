"""Calibration: what the models need, estimated from a site's own log, with 95 % intervals.

Each part is an estimate or a `Refused` with the reason: what a log cannot tell is not guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

import numpy as np

from rtsched.calibrate.intervals import Estimate, Refused, RequestedTimes, requested_times
from rtsched.calibrate.loads import Loads, divisible_loads
from rtsched.calibrate.speeds import Speeds, node_speeds
from rtsched.errors import ConfigError
from rtsched.logs.hostlist import names_of
from rtsched.model.log import Ending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.model.log import Log

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]


__all__ = ["Calibration", "Estimate", "Loads", "Options", "Refused", "RequestedTimes", "Speeds"]
__all__ += ["calibrate"]

MEGABYTE = 2.0**20
"""The unit of load where the log has sizes of input."""


@dataclass(frozen=True)
class Options:
    """What a user may say about a calibration.

    Attributes
    ----------
    unit : str
        What a load is cut over: `core` or `node`, as in `[workload]`; `auto`: `node` if all jobs
        held the same number of cores, several, on each of their nodes.
    groups : tuple of str
        Patterns of node names: nodes of one pattern are taken as equal. Empty: a node is a group.
    within : tuple of float
        Shares of the jobs for which the margin on requested times is wanted.
    setup : bool
        False: divisible loads have no set-up times.
    """

    unit: Literal["auto", "core", "node"] = "auto"
    groups: tuple[str, ...] = ()
    within: tuple[float, ...] = (0.9, 0.95, 0.99)
    setup: bool = True

    def __post_init__(self) -> None:
        wrong = [each for each in self.within if not 0 < each < 1]
        if wrong:
            raise ConfigError([f"--within: {100 * wrong[0]:g} is not between 0 and 100 %"])


@dataclass(frozen=True)
class Calibration:
    """What a log tells.

    Attributes
    ----------
    speeds : Speeds or Refused
    places : tuple of str
        Patterns of node names behind the codes in `speeds`.
    loads : Loads or Refused
    requests : RequestedTimes or Refused
    jobs : int
        Jobs of the log that ran and ended.
    sources : tuple of str
        The files.
    unit : str
        What a load is cut over.
    notes : tuple of str
        What had to be assumed, one sentence each.
    """

    speeds: Speeds | Refused
    places: tuple[str, ...]
    loads: Loads | Refused
    requests: RequestedTimes | Refused
    jobs: int
    sources: tuple[str, ...]
    unit: str
    notes: tuple[str, ...]


def calibrate(log: Log, options: Options | None = None) -> Calibration:
    """Return what a log, read with `ReadOptions(details=True)`, tells of the models' parameters."""
    options = options or Options()
    records = Records.of(log, options.groups)
    chosen: tuple[str, ...] = ()
    if options.unit == "auto":
        options, chosen = _chosen(options, records)
    speeds, loads = _speeds(records), _loads(records, options)
    return Calibration(
        speeds,
        records.places,
        loads,
        _requests(records, options),
        len(records.run_time),
        log.sources,
        options.unit,
        (*chosen, *log.assumptions, *_assumed(records, speeds, loads)),
    )


def _chosen(options: Options, records: Records) -> tuple[Options, tuple[str, ...]]:
    """Return the options with a unit, and a sentence about it."""
    known = records.nodes > 0
    each = records.size[known] / records.nodes[known]
    unit: Literal["core", "node"] = "core"
    if len(each) and known.all() and each[0] > 1 and (each == each[0]).all():
        unit = "node"
    why = "all jobs held equally many cores of each node" if unit == "node" else "jobs share nodes"
    note = f"Unit: {unit}, as {why}, as far as the log tells (--unit)."
    return replace(options, unit=unit), (note,) if known.any() else ()


def _assumed(records: Records, speeds: Speeds | Refused, loads: Loads | Refused) -> tuple[str, ...]:
    notes = []
    if isinstance(speeds, Speeds):
        alike = "user, name and" if records.named else "user, requested time and"
        notes.append(
            f"Jobs with the same {alike} number of processors are taken as repetitions of one "
            "job, and where they ran as not chosen by how long they would run."
        )
    if isinstance(loads, Loads) and not loads.sigma_known:
        notes.append(
            "Jobs of one user with the same name are taken to have the same load, whatever the "
            "number of nodes or processors."
        )
    return tuple(notes)


def _speeds(records: Records) -> Speeds | Refused:
    rows = records.done & (records.place >= 0)
    if records.named:
        rows &= records.name >= 0
    what = records.name if records.named else records.requested
    columns = (records.user, what, records.size)
    return node_speeds(
        records.run_time[rows],
        classes(*(column[rows] for column in columns)),
        records.place[rows],
    )


def _loads(records: Records, options: Options) -> Loads | Refused:
    size = records.nodes if options.unit == "node" else records.size
    known = records.done & (records.sigma > 0) & (size > 0)
    sigma = None
    if len(np.unique(records.sigma[known])) > 1:
        rows, sigma = known, records.sigma[known] / MEGABYTE
    elif not records.named:
        return Refused("the log has no names of jobs, so it does not say which had the same load")
    else:
        rows = records.done & (records.name >= 0) & (size > 0)
    group = classes(records.user[rows], records.name[rows])
    return divisible_loads(records.run_time[rows], size[rows], group, sigma, setup=options.setup)


def _requests(records: Records, options: Options) -> RequestedTimes | Refused:
    rows = (records.done | records.killed) & np.isfinite(records.requested)
    return requested_times(
        records.run_time[rows],
        records.requested[rows],
        records.killed[rows],
        classes(records.user[rows]),
        options.within,
    )


@dataclass(frozen=True)
class JobPlaces:
    """Where jobs ran.

    Attributes
    ----------
    node : int64[n]
        The node, or group of nodes, that all of a job ran on; -1: several, none or unknown.
    names : tuple of str
        Patterns for site.toml behind the codes.
    count : int64[n]
        Nodes each job ran on; 0: unknown.
    """

    node: Codes
    names: tuple[str, ...]
    count: Codes

    @classmethod
    def of(cls, log: Log, groups: Sequence[str]) -> JobPlaces:
        """Return the places of all jobs; nodes are pooled by the first pattern that fits."""
        lists = log.outcomes.names("nodes")
        table: dict[str, int] = {name: k for k, name in enumerate(groups)}
        node = np.full(len(lists) + 1, -1)  # the last is for -1, no list
        count = np.zeros(len(lists) + 1, np.int64)
        for k, text in enumerate(lists):
            hosts = _hosts(text)
            count[k] = len(hosts)
            if groups:
                found = {_first(groups, host) for host in hosts}
                node[k] = found.pop() if len(found) == 1 else -1
            elif len(hosts) == 1:
                node[k] = table.setdefault(_pattern(hosts[0]), len(table))
        code = log.outcomes.nodes
        return cls(node[code], tuple(table), count[code])


def _hosts(text: str) -> list[str]:
    """Return the nodes of a node list; of `slot1@host` the host."""
    if "@" in text:
        return [text.partition("@")[2]]
    return list(dict.fromkeys(names_of(text)))


def _first(groups: Sequence[str], host: str) -> int:
    return next((k for k, group in enumerate(groups) if fnmatchcase(host, group)), -1)


def _pattern(host: str) -> str:
    """Return the pattern that fits this node alone, as settings of node names take it.

    A daemon with a name of its own on HTCondor, `name@host`, has slots `slot1@name@host`.
    """
    plain = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in host)
    return f"*@{plain}" if "@" in host else plain


@dataclass(frozen=True)
class Records:
    """The jobs of a log that ran; one row each.

    Attributes
    ----------
    run_time, requested, sigma : float64[n]
        Seconds (> 0), seconds (inf: not said) and bytes of input (nan: not known).
    done, killed : bool[n]
        Whether it ended by itself and well, or at its limit.
    size : int64[n]
        Processors it was given.
    user, name : int64[n]
        Codes; -1: not said.
    """

    run_time: Floats
    requested: Floats
    sigma: Floats
    done: NDArray[np.bool_]
    killed: NDArray[np.bool_]
    size: Codes
    user: Codes
    name: Codes
    place: Codes
    places: tuple[str, ...]
    nodes: Codes

    @classmethod
    def of(cls, log: Log, groups: Sequence[str] = ()) -> Records:
        """Return the jobs of a log that ran for some time and ended."""
        jobs, outcomes = log.jobs, log.outcomes
        ran = np.flatnonzero(
            np.isfinite(outcomes.run_time)
            & (outcomes.run_time > 0)
            & ~np.isin(outcomes.ending, (Ending.RUNNING, Ending.PENDING))
        )
        places = JobPlaces.of(log, groups)
        ending, run_time = outcomes.ending[ran], outcomes.run_time[ran]
        requested = jobs.wall_time[ran]
        done = ending == Ending.COMPLETED
        if (outcomes.ending == Ending.UNKNOWN).all():
            done = np.ones(len(ran), np.bool_)  # the log does not say how jobs ended
        size = np.where(outcomes.size > 0, outcomes.size, jobs.size)[ran]
        return cls(
            run_time,
            requested,
            outcomes.input_bytes[ran],
            done,
            (ending == Ending.TIMEOUT) | (~done & (run_time >= requested)),
            size.astype(np.int64),
            jobs.user[ran].astype(np.int64),
            jobs.name[ran].astype(np.int64),
            places.node[ran],
            places.names,
            places.count[ran],
        )

    @property
    def named(self) -> bool:
        """Whether the log has names of jobs."""
        return bool((self.name >= 0).any())


def classes(*columns: NDArray[np.generic]) -> Codes:
    """Return one code, from 0 without gaps, per distinct row of some columns of equal length."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        _, code = np.unique(code * (len(values) + 1) + place, return_inverse=True)
    return code
