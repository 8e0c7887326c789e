"""Studies: independent parts of work, and sheets that compare their results.

A reproduction regenerates the tables and figures of one published policy and puts its own values
beside the printed or expected ones. It is a class that a distribution announces under the entry
point group `rtsched.reproductions`; its parts may run on many cores, or on a cluster.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import msgspec
import numpy as np

from rtsched.errors import ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of a reproduction's settings; each has a type, a default and a description."""


@dataclass(frozen=True)
class Part:
    """One piece of work that depends on no other.

    Attributes
    ----------
    function : callable
        A module's function, so that it can be sent to another process.
    arguments : mapping of str to value
        What it is called with: plain values and arrays.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def run(self) -> Any:
        """Do the work and return its result."""
        return self.function(**self.arguments)


class Verdict(StrEnum):
    """What comes of one comparison; no remark changes it."""

    AGREES = "agrees"
    DIFFERS = "differs"
    FITTED = "fitted"
    """It agrees, but was fitted to the value that it is compared with."""


class Tally(NamedTuple):
    """How many comparisons came out how; tallies are summed with `total`."""

    agree: int = 0
    differ: int = 0
    fitted: int = 0

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> Tally:
        """Return the tally of some verdicts."""
        found = Counter(verdicts)
        return cls(*(found[verdict] for verdict in Verdict))

    @classmethod
    def total(cls, tallies: Iterable[Tally]) -> Tally:
        """Return the sum of some tallies."""
        return cls(*(sum(column) for column in zip(cls(), *tallies, strict=True)))

    def __str__(self) -> str:
        fitted = f", {self.fitted} fitted" if self.fitted else ""
        one, other = "s" * (self.agree == 1), "s" * (self.differ == 1)
        return f"{self.agree} agree{one}, {self.differ} differ{other}{fitted}"


@dataclass(frozen=True)
class Sheet:
    """A table of ours beside the printed or expected one.

    Attributes
    ----------
    title, source : str
        What it shows; where the expected values stand (paper and section).
    rows, columns : tuple of str
        Labels.
    ours : float64[r, c]
        Computed in this run; nan: no such value, which differs from any that is expected.
    expected : float64[r, c]
        Printed or expected; nan: nothing is printed, so ours is shown only.
    tolerance : float or float64[r, c]
        Largest absolute difference that still agrees; of means over runs see `chance`.
    why : mapping of str to str
        Row label to a remark on that row, such as why it differs. It changes no verdict.
    basis : str
        How the tolerance comes about, in words.
    fitted : str
        What was fitted to the expected values, if anything was: no value then counts as agreeing.

    Raises
    ------
    ShapeError
        If tables and labels differ in size, or a tolerance is negative or not finite.
    """

    title: str
    source: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    ours: NDArray[np.float64]
    expected: NDArray[np.float64]
    tolerance: float | NDArray[np.float64] = 0.0
    why: Mapping[str, str] = field(default_factory=dict)
    basis: str = ""
    fitted: str = ""

    def __post_init__(self) -> None:
        shape = (len(self.rows), len(self.columns))
        if self.ours.shape != shape or self.expected.shape != shape:
            raise ShapeError(
                f"{self.title}: {self.ours.shape} and {self.expected.shape} values for {shape}"
            )
        bounds = self.bounds()[np.isfinite(self.expected)]
        if not (np.isfinite(bounds) & (bounds >= 0)).all():
            raise ShapeError(f"{self.title}: a tolerance must be a finite number of 0 or more")

    def bounds(self) -> NDArray[np.float64]:
        """Return the tolerance of each value, float64[r, c]."""
        return np.broadcast_to(np.asarray(self.tolerance, np.float64), self.ours.shape)

    def compared(self) -> NDArray[np.bool_]:
        """Return bool[r, c]: where a value is expected."""
        return np.isfinite(self.expected)

    def differs(self) -> NDArray[np.bool_]:
        """Return bool[r, c]: where a value is expected and ours is further off than tolerated."""
        near = np.abs(self.ours - self.expected) <= self.bounds() + 1e-12
        return self.compared() & ~near

    def verdicts(self) -> list[list[Verdict | None]]:
        """Return the verdict on each value, None where nothing is expected."""
        good = Verdict.FITTED if self.fitted else Verdict.AGREES
        return [
            [
                None if not judged else Verdict.DIFFERS if wrong else good
                for judged, wrong in zip(*row, strict=True)
            ]
            for row in zip(self.compared(), self.differs(), strict=True)
        ]

    def tally(self) -> Tally:
        """Return how many values agree, differ and were fitted."""
        return Tally.of(verdict for row in self.verdicts() for verdict in row if verdict)


CHANCE = (
    "three standard errors of the mean over the runs (as many more as Student's t wants for few "
    "runs)"
)
"""What `chance` computes, in words."""


def chance(
    runs: NDArray[np.float64], behind: int = 0, rounding: float = 0.0
) -> NDArray[np.float64]:
    """Return how far a mean over runs may lie from an expected one by chance.

    Three standard errors of the difference between the two means. The spread is known from our
    runs only, so the three are those of Student's t with n - 1 degrees of freedom at the same
    confidence, 99.73 %: 6.6 for 5 runs, 4.1 for 10, 3.1 for 100.

    Parameters
    ----------
    runs : float64[n, ...]
        Independent runs, at least 2.
    behind : int
        Runs behind the expected value, of equal spread; 0: it is exact, or that is not known.
    rounding : float
        Half a unit of the last printed digit, which is added.

    Returns
    -------
    float64[...]

    Raises
    ------
    ShapeError
        If there is only one run.
    """
    n = len(runs)
    if n < 2:
        raise ShapeError("a standard error needs at least 2 runs")
    share = 1 / n + (1 / behind if behind else 0.0)
    spread = runs.std(axis=0, ddof=1)
    return np.asarray(_three(n - 1) * spread * share**0.5 + rounding, np.float64)


def _three(freedom: int) -> float:
    """Return the quantile of Student's t that is 3 for the normal distribution.

    By its expansion in powers of 1/freedom (Abramowitz and Stegun, 26.7.5).
    """
    z = 3.0
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**k for k, term in enumerate(terms, 1))


@dataclass(frozen=True)
class Claim:
    """A statement of the source, tested.

    Attributes
    ----------
    text : str
        What is claimed.
    holds : bool
        Whether it does in this run.
    evidence : str
        The numbers behind it.
    why : str
        A remark, such as why it does not hold. It changes no verdict.
    """

    text: str
    holds: bool
    evidence: str
    why: str = ""

    @property
    def verdict(self) -> Verdict:
        """Return whether this run agrees with the statement."""
        return Verdict.AGREES if self.holds else Verdict.DIFFERS


@dataclass(frozen=True)
class Curve:
    """One line of a plot: label, x and y."""

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]


@dataclass(frozen=True)
class Plot:
    """A figure: curves over one axis."""

    name: str
    """File name without its ending."""
    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Findings:
    """All that one reproduction shows."""

    sheets: tuple[Sheet, ...] = ()
    claims: tuple[Claim, ...] = ()
    plots: tuple[Plot, ...] = ()


class Reproduction(Protocol):
    """One paper's reproduction."""

    name: ClassVar[str]
    """What the command line calls it."""
    source: ClassVar[str]
    """The paper."""
    full: ClassVar[Parameters]
    """The paper's own extent."""
    reduced: ClassVar[Parameters]
    """A smaller one for tests: fewer seeds, jobs and points, wider tolerances."""

    def parts(self, parameters: Any) -> Sequence[Part]:
        """Return the work, in an order that `findings` knows."""

    def findings(self, parameters: Any, results: Sequence[Any]) -> Findings:
        """Return the comparison, from the results of the parts in their order."""
