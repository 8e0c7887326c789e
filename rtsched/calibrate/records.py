"""Records of a log for a calibration: run times, classes of jobs, and where jobs ran."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from rtsched.logs.hostlist import names_of
from rtsched.model.log import Ending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.model.log import Log

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Places:
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
    def of(cls, log: Log, groups: Sequence[str]) -> Places:
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
        places = Places.of(log, groups)
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
