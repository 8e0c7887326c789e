"""Least squares on jobs of several classes on several nodes, without the table of all pairs.

Class effects are eliminated, so what is solved has one row per node. Classes are taken some
thousands at a time.

References
----------
Searle, 1987: Linear Models for Unbalanced Data (the two-way model, disconnected designs).
MacKinnon and White, 1985: the covariance estimator HC2, which allows for unequal scatter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

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
