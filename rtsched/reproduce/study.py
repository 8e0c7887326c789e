"""What a reproduction is made of: independent parts of work, and sheets that compare results.

A reproduction regenerates the tables and figures of one published policy and puts its own values
beside the printed or expected ones. It is a class that a distribution announces under the entry
point group `rtsched.reproductions`; its parts may run on many cores, or on a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec
import numpy as np

from rtsched.errors import ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
        Computed in this run; nan: no such value.
    expected : float64[r, c]
        Printed or expected; nan: nothing is printed, so ours is shown only.
    tolerance : float or float64[r, c]
        Largest absolute difference that still matches.
    why : mapping of str to str
        Row label to the reason why that row may differ.
    """

    title: str
    source: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    ours: NDArray[np.float64]
    expected: NDArray[np.float64]
    tolerance: float | NDArray[np.float64] = 0.0
    why: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (len(self.rows), len(self.columns))
        if self.ours.shape != shape or self.expected.shape != shape:
            raise ShapeError(
                f"{self.title}: {self.ours.shape} and {self.expected.shape} values for {shape}"
            )

    def differs(self) -> NDArray[np.bool_]:
        """Return bool[r, c]: where a value is expected and ours is further off than tolerated."""
        near = np.abs(self.ours - self.expected) <= self.tolerance + 1e-12
        return np.isfinite(self.expected) & ~near

    def unexplained(self) -> NDArray[np.bool_]:
        """Return bool[r, c]: where they differ and no reason is given for that row."""
        known = np.array([row in self.why for row in self.rows], np.bool_)
        return self.differs() & ~known[:, None]


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
    expected : bool
        Whether it should hold (some statements are known errata).
    why : str
        Why it differs from what is expected, or why the claim is an erratum.
    """

    text: str
    holds: bool
    evidence: str
    expected: bool = True
    why: str = ""


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
