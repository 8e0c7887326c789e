"""Procs that are expected to be as they were at the last poll: the schedd compares them itself.

The procs of a large cluster that wait are equal but for their numbers. A constraint that states all
that was read of them finds those procs of the queue of which anything else is true; only these are
read again, and of the others that they are there.

Source: HTCondor's manual, "ClassAd Expressions": `=?=` tells types and case apart, and is never
undefined.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from rtsched.adapters.condor.ids import PROC_BITS
from rtsched.adapters.condor.requirements import REQUEST_ATTRIBUTES

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from numpy.typing import NDArray

    from rtsched.logs.classads import Record, Value

FEWEST = 1000
"""A shorter queue is read as a whole."""

ALIKE = 50
"""So many procs of a cluster are alike at least, where the schedd compares them."""

SHARE = 0.5
"""The share of all procs that must be expected: it takes time to ask who is there, too."""

MOST = 500
"""So many clusters are expected at the most, those with the most procs alike: of what is said of
each the schedd reads about 300 bytes, and finds a proc's cluster in 9 steps."""

_PLAIN = re.compile(r"[ !#-\[\]-~]*")
"""Texts that are written alike in the old and the new syntax of ClassAds."""


@dataclass(frozen=True)
class ExpectedProcs:
    """What procs are expected to be like, by their clusters.

    Attributes
    ----------
    attributes : tuple of str
        What was read of them.
    ads : dict of int to Record
        By cluster, the ad that its procs are expected to have, without ProcId.
    constraint : str
        What is true of a proc that is as expected.
    """

    attributes: tuple[str, ...]
    ads: dict[int, Record]
    constraint: str

    @classmethod
    def of(cls, records: Sequence[Record], attributes: Sequence[str]) -> Self | None:
        """Return what is expected after a poll; None: the next one had better read everything.

        Parameters
        ----------
        records : sequence of Record
            The ads of all procs; equal ones are one object.
        attributes : sequence of str
            What was read of them.
        """
        if len(records) < FEWEST:
            return None
        ads: dict[int, Record] = {}
        stated: dict[int, tuple[str, ...]] = {}
        procs = 0
        for cluster, (ad, count) in _most_common(records).items():
            said = conditions_of(ad, attributes)
            if said is not None:
                ads[cluster], stated[cluster] = ad, said
                procs += count
        if not ads or procs < SHARE * len(records):
            return None
        common = set.intersection(*map(set, stated.values()))
        leaves = [
            (cluster, " && ".join([f"ClusterId == {cluster}", *_without(stated[cluster], common)]))
            for cluster in sorted(stated)
        ]
        every = [each for each in next(iter(stated.values())) if each in common]
        return cls(tuple(attributes), ads, " && ".join([*every, f"({_tree(leaves)})"]))

    @property
    def others(self) -> str:
        """What is true of a proc that is not as expected."""
        return f"({self.constraint}) =!= true"

    def known(self, jobs: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[Record]]:
        """Return those of these jobs that belong to the clusters, and the ad expected of each."""
        cluster = jobs >> PROC_BITS
        jobs = jobs[np.isin(cluster, np.array(list(self.ads), np.int64))]
        return jobs, [self.ads[each] for each in (jobs >> PROC_BITS).tolist()]


def _most_common(records: Sequence[Record]) -> dict[int, tuple[Record, int]]:
    """Return the ad that most procs of a cluster have, and how many have it, by cluster."""
    objects = np.fromiter(map(id, records), np.int64, len(records))
    _, first, counts = np.unique(objects, return_index=True, return_counts=True)
    found: dict[int, tuple[Record, int]] = {}
    for at in np.lexsort((first, -counts)).tolist():
        if counts[at] < ALIKE or len(found) == MOST:
            break
        ad = records[first[at]]
        cluster = ad.get("clusterid")
        if type(cluster) is int and 0 <= cluster < 1 << 31:
            found.setdefault(cluster, (ad, int(counts[at])))
    return found


def conditions_of(ad: Record, attributes: Sequence[str]) -> tuple[str, ...] | None:
    """Return what is true of a proc whose ad is this one but for its numbers, by attribute.

    None: that cannot be stated, since something in the ad is no plain literal.

    What users ask of rtsched must not even be an expression that comes out undefined: they would be
    told what is wrong with that.
    """
    found = []
    for name in attributes:
        key = name.lower()
        if key in {"clusterid", "procid"}:
            continue
        value = ad.get(key)
        if value is None:
            is_asked = key in REQUEST_ATTRIBUTES
            found.append(f'unparse({name}) =?= ""' if is_asked else f"{name} =?= undefined")
            continue
        written = _literal(value)
        if written is None:
            return None
        found.append(f"{name} =?= {written}")
    return tuple(found)


def _literal(value: Value) -> str | None:
    """Return a value as it is written in an expression; None: it is no plain literal."""
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int and abs(value) < 1 << 62:
        return str(value)
    if type(value) is float and math.isfinite(value):
        return repr(value)
    if type(value) is str and _PLAIN.fullmatch(value):
        return f'"{value}"'
    return None


def _without(said: Sequence[str], common: Container[str]) -> list[str]:
    return [each for each in said if each not in common]


def _tree(leaves: Sequence[tuple[int, str]]) -> str:
    """Return the expression that is the one of these, by cluster in order, that a proc's is of."""
    if len(leaves) == 1:
        return leaves[0][1]
    middle = len(leaves) // 2
    lower, upper = _tree(leaves[:middle]), _tree(leaves[middle:])
    return f"ClusterId < {leaves[middle][0]} ? ({lower}) : ({upper})"
