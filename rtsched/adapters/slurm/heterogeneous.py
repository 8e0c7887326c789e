"""Heterogeneous jobs: one promise for all components of one, and so one row.

Slurm shows each component as a job of its own. It starts all of them together, and its backfill
scheduler alone does. It makes them under one lock, so a poll shows all of them or none. What is
asked of the first one by its number, such as a change, a release or a cancellation, is asked of
all, and a component that waits cannot be cancelled alone (seen on 26.05; `update_job_str` in
src/slurmctld/job_mgr.c of 25.11). In a reservation of as many whole nodes as they want in all, each
of which is as every component asks for, they start whichever gets which. So it is where promised
jobs share nodes, too: a node list, by which other jobs are bound there, would be one of each
component.

Source: https://slurm.schedmd.com/heterogeneous_jobs.html.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.slurm.completions import place_of_ending
from rtsched.adapters.slurm.demand import shown_demand
from rtsched.adapters.slurm.layout import is_ours
from rtsched.adapters.slurm.observation import is_admitted
from rtsched.adapters.slurm.rows import MEGABYTE, WAITING, Components, alive, taken, with_joined
from rtsched.adapters.slurm.texts import Texts
from rtsched.logs.hostlist import fold, names_of
from rtsched.model.resources import MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.slurm.facts import SlurmFacts
    from rtsched.adapters.slurm.rows import JobRows


def joined_components(rows: JobRows, facts: SlurmFacts) -> JobRows:
    """Return the rows with one for each heterogeneous job that has a deadline, or was held for us.

    It has the number of its first component, the nodes of all of them, the longest time limit and
    the earliest deadline, and on each node the most that one of them takes.
    """
    members: dict[int, list[int]] = {}
    for at in np.flatnonzero(rows.het >= 0).tolist():
        members.setdefault(int(rows.het[at]), []).append(at)
    wanted = {
        job: sorted(which, key=lambda at: int(rows.id[at]))
        for job, which in members.items()
        if any(rows.deadline[at] < math.inf or is_admitted(rows.mark[at]) for at in which)
    }
    if not wanted:
        return rows
    joined = [_joined(rows, job, which, facts) for job, which in wanted.items()]
    dropped = {at for which in wanted.values() for at in which}
    return with_joined(rows, dropped, joined)


def _joined(rows: JobRows, job: int, which: list[int], facts: SlurmFacts) -> JobRows:
    """Return the row of a heterogeneous job with these components, in the order of their ids."""
    runs = [at for at in which if alive(rows.state[at]) and rows.state[at] not in WAITING]
    waits = [at for at in which if rows.state[at] in WAITING]
    shown = runs or waits or which
    sizes = _sizes(rows, which, facts)
    components = Components(
        tuple(rows.id[which].tolist()),
        int((-(-rows.cpus[which] // sizes)).max()),
        _unlike(rows, which, several=bool((rows.max_nodes[which] > sizes).any())),
    )
    held = min(waits or shown, key=lambda at: int(rows.priority[at]))
    start = float(np.fmin.reduce(rows.start[shown]))
    ends = np.where(np.isnan(rows.start[shown]), start, rows.start[shown]) + rows.limit[shown]
    limit = float(ends.max() - start) if runs and not math.isnan(start) else rows.limit[which].max()
    return replace(
        taken(rows, which[:1]),
        id=np.array([job]),
        label=Texts.of([""]),
        state=Texts.of([rows.state[_telling(rows, shown, over=not runs and not waits)]]),
        reason=Texts.of([rows.reason[held]]),
        priority=rows.priority[[held]],
        nodes=Texts.of([fold(_names(rows.nodes[at] for at in shown))]),
        features=Texts.of([_together([rows.features[at] for at in which])]),
        required=Texts.of([",".join(_names(rows.required[at] for at in which))]),
        excluded=Texts.of([fold(_names(rows.excluded[at] for at in which))]),
        reservation=Texts.of([_reservation([rows.reservation[at] for at in shown])]),
        licenses=Texts.of([_listed(rows.licenses[at] for at in which)]),
        tres=Texts.of([" ".join(filter(None, (rows.tres[at] for at in which)))]),
        mark=Texts.of([next((rows.mark[at] for at in which if is_admitted(rows.mark[at])), "")]),
        submit=np.array([rows.submit[which].min()]),
        eligible=np.array([np.fmax.reduce(rows.eligible[which])]),
        start=np.array([start]),
        end=np.array([np.fmax.reduce(rows.end[shown])]),
        limit=np.array([limit]),
        deadline=np.array([np.fmin.reduce(rows.deadline[which])]),
        amounts=Texts.of([_amounts([rows.amounts[at] for at in which], sizes.tolist())]),
        cpus=np.array([rows.cpus[which].sum()]),
        memory=np.array([rows.memory[which].max()]),
        min_nodes=np.array([sizes.sum()]),
        max_nodes=np.array([sizes.sum()]),
        requeue=np.array([rows.requeue[which].all()]),
        restarts=np.array([rows.restarts[which].max()]),
        components={job: components},
    )


def _sizes(rows: JobRows, which: Sequence[int], facts: SlurmFacts) -> NDArray[np.int64]:
    """Return the nodes of each component: by its own count, or its processors."""
    part = facts.partitions.get(rows.partition[which[0]].split(",", 1)[0])
    least = np.maximum(rows.min_nodes[which], 1)
    fewest = -(-rows.cpus[which] // (part.cores if part is not None else 1))
    sizes: NDArray[np.int64] = np.where(
        rows.max_nodes[which] <= least, least, np.maximum(least, fewest)
    )
    return sizes


def _amounts(shown: Sequence[str], sizes: Sequence[int]) -> str:
    """Return what all nodes together have if each has the most of what components have on theirs.

    `sizes` are the nodes of each component.
    """
    most: dict[str, int] = {}
    for text, size in zip(shown, sizes, strict=True):
        for name, amount in shown_demand(text, size).items():
            most[name] = max(most.get(name, 0), amount)
    nodes = sum(sizes)
    whole = [
        f"{name}={-(-amount // MEGABYTE) * nodes}M"
        if name == MEMORY
        else f"{name}={amount * nodes}"
        for name, amount in most.items()
    ]
    return ",".join([*whole, f"node={nodes}"])


def _unlike(rows: JobRows, which: Sequence[int], *, several: bool) -> str:
    """Return why components cannot be planned as one job; empty: they can.

    `several`: one of them may have more nodes than it needs.
    """
    for name, what in (
        ("partition", "are in different partitions"),
        ("account", "are charged to different accounts"),
        ("qos", "have different QOS"),
    ):
        if len({getattr(rows, name)[at] for at in which}) > 1:
            return what
    return "want more or fewer nodes; give each --nodes with one number" if several else ""


def _telling(rows: JobRows, shown: Sequence[int], *, over: bool) -> int:
    """Return the component whose state is that of the whole job."""
    if over:
        return shown[place_of_ending(rows.state[at] for at in shown)]
    return next((at for at in shown if rows.state[at] != "COMPLETING"), shown[0])


def _names(lists: Iterable[str]) -> list[str]:
    """Return the nodes of all lists, each once."""
    return sorted({name for text in set(lists) for name in names_of(text)})


def _listed(texts: Iterable[str]) -> str:
    return ",".join(filter(None, texts))


def _together(features: Sequence[str]) -> str:
    """Return a constraint that nodes meet which meet all of these."""
    different = list(dict.fromkeys(filter(None, features)))
    return "&".join(f"({each})" for each in different) if len(different) > 1 else "".join(different)


def _reservation(names: Sequence[str]) -> str:
    """Return the reservation that the components are in; one of ours only if all of them are."""
    different = set(names)
    if len(different) == 1:
        return different.pop()
    return next((name for name in names if name and not is_ours(name)), "")
