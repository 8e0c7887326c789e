"""Node speeds from run times of repeated jobs.

log(run time) = what the job is + what the node is + chance. Jobs of a class that ran on one node
(or one group of nodes) only say nothing about others and drop out. Jobs far from a first fit by
medians, and then from the fit itself, are set aside, so that a hung or a failed job does no harm;
all others count alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtsched.calibrate.intervals import (
    OUTLIER,
    Estimate,
    Refused,
    loss,
    medians,
    rounding,
    scatter,
    t_quantile,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]

FEWEST_JOBS = 3
"""Jobs without which a node says nothing."""

_BLOCK = 2048
_LEAST = 1e-6


@dataclass(frozen=True)
class Design:
    """The rows that compare nodes, as cells (class, node), in order of class, then node.

    Attributes
    ----------
    rows : int64[n]
        Which rows of the log they are.
    cell : int64[n]
        Each row's cell.
    job_class, node : int64[cells]
        Codes from 0, without gaps.
    count : float64[cells]
        Rows in each cell.
    class_code, node_code : int64[classes], int64[nodes]
        What the codes are in the log.
    """

    rows: Codes
    cell: Codes
    job_class: Codes
    node: Codes
    count: Floats
    class_code: Codes
    node_code: Codes

    @classmethod
    def of(cls, job_class: Codes, node: Codes, keep: NDArray[np.bool_]) -> Design:
        """Return the design of the rows to keep: classes on several nodes, nodes of some jobs."""
        rows = np.flatnonzero(keep)
        width = int(node.max(initial=0)) + 1
        while True:
            key = job_class[rows] * width + node[rows]
            cells, cell, count = np.unique(key, return_inverse=True, return_counts=True)
            spread = np.bincount(cells // width) > 1
            good = spread[job_class[rows]]
            good &= (np.bincount(node[rows[good]], minlength=width) >= FEWEST_JOBS)[node[rows]]
            if good.all():
                break
            rows = rows[good]
        class_code, job_of = np.unique(cells // width, return_inverse=True)
        node_code, node_of = np.unique(cells % width, return_inverse=True)
        return cls(rows, cell, job_of, node_of, count.astype(np.float64), class_code, node_code)

    @property
    def total(self) -> Floats:
        """Rows in each class, float64[classes]."""
        return np.asarray(np.bincount(self.job_class, self.count), np.float64)

    def blocks(self) -> Iterator[tuple[slice, slice, Codes, Floats]]:
        """Yield some classes, their cells, each cell's class in the block, shares of the nodes."""
        total = self.total
        for first in range(0, len(total), _BLOCK):
            last = min(first + _BLOCK, len(total))
            start, end = np.searchsorted(self.job_class, (first, last)).tolist()
            cells = slice(start, end)
            within = self.job_class[cells] - first
            part = np.zeros((last - first, len(self.node_code)))
            part[within, self.node[cells]] = self.count[cells] / total[first + within]
            yield slice(first, last), cells, within, part

    def components(self) -> Codes:
        """Return each node's component: nodes that classes connect, the one of most rows first."""
        label = np.arange(len(self.node_code))
        while True:
            least = np.full(len(self.class_code), len(label))
            np.minimum.at(least, self.job_class, label[self.node])
            after = label.copy()
            np.minimum.at(after, self.node, least[self.job_class])
            after = after[after]
            if (after == label).all():
                break
            label = after
        _, component = np.unique(label, return_inverse=True)
        rows = np.bincount(component[self.node], self.count)
        rank = np.empty(len(rows), np.int64)
        rank[np.argsort(-rows, kind="stable")] = np.arange(len(rows))
        return rank[component]


@dataclass(frozen=True)
class Fit:
    """What least squares finds.

    Attributes
    ----------
    node_effect : float64[nodes]
        Sum 0 in each component.
    class_effect : float64[classes]
    covariance : float64[nodes, nodes]
        Of the node effects; only differences within a component mean something.
    residual, free : float64[n]
        What is left of each row of the design, and 1 less its leverage.
    """

    node_effect: Floats
    class_effect: Floats
    covariance: Floats
    residual: Floats
    free: Floats

    @classmethod
    def of(cls, values: Floats, design: Design) -> Fit:
        """Fit values float64[n] of the rows of a design."""
        cell, nodes = design.cell, len(design.node_code)
        job, node = design.job_class[cell], design.node[cell]
        total, mean = design.total, np.bincount(job, values) / design.total
        system = np.diag(np.bincount(node, minlength=nodes).astype(np.float64))
        for classes, _, _, part in design.blocks():
            system -= part.T @ (part * total[classes, None])
        component = design.components()
        inverse = np.linalg.inv(system + (component[:, None] == component))
        effect: Floats = inverse @ np.bincount(node, values - mean[job], nodes)
        of_class = mean - np.bincount(design.job_class, design.count * effect[design.node]) / total
        residual = values - of_class[job] - effect[node]
        free = np.maximum(1 - _leverage(design, inverse)[cell], _LEAST)
        weight = np.asarray(np.bincount(cell, residual**2 / free), np.float64)
        covariance: Floats = inverse @ _middle(design, weight) @ inverse
        return cls(effect, of_class, covariance, residual, free)

    @property
    def standard(self) -> Floats:
        """What is left of each row, scaled to the variance of one job."""
        return self.residual / np.sqrt(self.free)


def _leverage(design: Design, inverse: Floats) -> Floats:
    """Return the leverage of a row of each cell."""
    found = 1 / design.total[design.job_class] + np.diag(inverse)[design.node]
    for _, cells, within, part in design.blocks():
        seen = part @ inverse
        found[cells] += np.einsum("cn,cn->c", seen, part)[within]
        found[cells] -= 2 * seen[within, design.node[cells]]
    return found


def _middle(design: Design, weight: Floats) -> Floats:
    """Return the sum over rows of weight x x', x the row's node less its class's mean."""
    found: Floats = np.diag(np.bincount(design.node, weight))
    for _, cells, within, part in design.blocks():
        own = np.zeros_like(part)
        own[within, design.node[cells]] = weight[cells]
        cross = own.T @ part
        found += part.T @ (part * own.sum(axis=1)[:, None]) - cross - cross.T
    return found


MOST_NODES = 1000
"""More nodes than these are to be pooled."""

_ROUNDS = 10


@dataclass(frozen=True)
class Speeds:
    """Speeds of the nodes (or groups of nodes) that repeated jobs compare.

    Attributes
    ----------
    node : int64[m]
        Nodes by component, fastest first.
    component : int64[m]
        Speeds compare within one component; 0 has the most jobs.
    fastest : bool[m]
        The nodes of a component that the log cannot tell from its fastest. Their mean is speed 1:
        the best of many equal nodes is best by luck.
    speed : tuple of Estimate
        Relative to the fastest, with the interval of that ratio.
    jobs : int64[m]
        Jobs behind each speed.
    classes, outliers : int
        How many classes of jobs compare nodes; how many of their jobs were set aside.
    scatter : float
        Standard deviation of log(run time) within a class, on equal nodes.
    """

    node: Codes
    component: Codes
    fastest: NDArray[np.bool_]
    speed: tuple[Estimate, ...]
    jobs: Codes
    classes: int
    outliers: int
    scatter: float


def node_speeds(run_time: Floats, job_class: Codes, node: Codes) -> Speeds | Refused:
    """Return node speeds from repeated jobs, or why the log cannot tell them.

    Parameters
    ----------
    run_time : float64[n]
        Seconds, > 0.
    job_class : int64[n]
        Jobs of one class do the same work; codes from 0.
    node : int64[n]
        Where each ran; codes from 0.
    """
    log_time = np.log(run_time)
    design = Design.of(job_class, node, np.ones(len(node), np.bool_))
    if len(design.node_code) < 2:
        return Refused(_why_not(job_class, node))
    if len(design.node_code) > MOST_NODES:
        return Refused(
            f"repeated jobs ran on {len(design.node_code):,} nodes; pool them with --group into at "
            f"most {MOST_NODES:,}"
        )
    seen = design.rows
    keep = _near_medians(log_time, design)
    for _ in range(_ROUNDS):
        design = Design.of(job_class, node, keep)
        if len(design.node_code) < 2:
            return Refused("jobs of one class differ too much to compare nodes by them")
        fit = Fit.of(log_time[design.rows], design)
        again = _near(fit, design, log_time, job_class, node, seen)
        if (again == keep).all():
            break
        keep = again
    return _speeds(fit, design, len(seen), _width(fit, log_time))


def _why_not(job_class: Codes, node: Codes) -> str:
    if not len(node):
        return "the log does not say on which node a job ran that completed"
    if len(np.unique(node)) < 2:
        return "all jobs whose node is known ran on one node or group of nodes"
    if int(np.bincount(job_class).max()) < 2:
        return "no job repeats another one, so there is nothing to compare nodes by"
    return "no node has three repeated jobs that ran on other nodes too"


def _near_medians(log_time: Floats, design: Design) -> NDArray[np.bool_]:
    """Return which rows a two-way fit by medians has near enough."""
    left = log_time[design.rows].copy()
    job, node = design.job_class[design.cell], design.node[design.cell]
    for _ in range(_ROUNDS):
        left -= medians(left, job)[job]
        left -= medians(left, node)[node]
    # Medians go through about as many points as there are medians; the others show the scatter.
    fitted = len(design.class_code) + len(design.node_code)
    keep = np.zeros(len(log_time), np.bool_)
    keep[design.rows] = np.abs(left) <= OUTLIER * max(scatter(left, fitted), rounding(log_time))
    return keep


def _near(
    fit: Fit, design: Design, log_time: Floats, job_class: Codes, node: Codes, seen: Codes
) -> NDArray[np.bool_]:
    """Return which rows are near the fit; those it says nothing about are not."""
    of_node = np.full(int(node.max()) + 1, np.nan)
    of_class = np.full(int(job_class.max()) + 1, np.nan)
    of_node[design.node_code] = fit.node_effect
    of_class[design.class_code] = fit.class_effect
    free = np.ones(len(log_time))
    free[design.rows] = fit.free
    off = np.abs(log_time - of_class[job_class] - of_node[node]) / np.sqrt(free)
    keep = np.zeros(len(log_time), np.bool_)
    keep[seen] = off[seen] <= OUTLIER * _width(fit, log_time)
    return keep


def _width(fit: Fit, log_time: Floats) -> float:
    """Return the standard deviation of one job."""
    return max(scatter(fit.standard), rounding(log_time))


def _speeds(fit: Fit, design: Design, seen: int, width: float) -> Speeds:
    component = design.components()
    order = np.lexsort((fit.node_effect, component))
    first = order[np.searchsorted(component[order], component)]
    jobs = np.bincount(design.node, design.count).astype(np.int64)
    wider = loss(np.abs(fit.standard) / width)
    alone = np.equal.outer(np.arange(len(order)), first).T.astype(np.float64)
    slower, half = _against(fit, alone, jobs, wider)
    fastest = slower <= half
    pool = (component[:, None] == component) & fastest
    slower, half = _against(fit, pool / pool.sum(axis=1, keepdims=True), jobs, wider)
    ends = np.exp([-slower, -slower - half, -slower + half]).T[order].tolist()
    return Speeds(
        design.node_code[order],
        component[order],
        fastest[order],
        tuple(Estimate(*each) for each in ends),
        jobs[order],
        len(design.class_code),
        seen - len(design.rows),
        width,
    )


def _against(fit: Fit, reference: Floats, jobs: Codes, wider: float) -> tuple[Floats, Floats]:
    """Return the effects less those of weighted references, and half their intervals.

    `reference` float64[m, m] has a row of weights, of sum 1, for each node.
    """
    slower = fit.node_effect - reference @ fit.node_effect
    seen = reference @ fit.covariance
    variance = np.diag(fit.covariance) - 2 * np.diag(seen) + np.einsum("mn,mn->m", seen, reference)
    freedom = np.minimum(jobs, (reference > 0) @ jobs) - 1  # Welch's, on the safe side
    quantile = np.array([t_quantile(each) for each in freedom.tolist()])
    return slower, wider * quantile * np.sqrt(np.maximum(variance, 0.0))
