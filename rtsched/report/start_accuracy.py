"""How good start estimates would have been on a log: numbers, a verdict, and a page with plots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.counting import counted
from rtsched.estimates.record import (
    COLUMNS,
    ERROR,
    ERROR_BY_LIMITS,
    JOB,
    MADE_AT,
    WITHIN_80,
    WITHIN_95,
)
from rtsched.model.units import WEEK
from rtsched.report.palette import LOGGED, POLICIES
from rtsched.report.wording import MISSING, count, duration, instant, is_dated, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.estimates.check import Checked
    from rtsched.report.scene import Figure

LEVELS = 0.80, 0.90, 0.95
"""Of the intervals, as the columns of judged estimates have them."""

ON_THE_WHOLE, IN_A_PART = (0.88, 0.92), (0.85, 0.95)
"""Between which shares the 90 % intervals cover starts, if they hold."""

FEWEST = 50
"""Jobs below which a part is not judged: estimates of one job are right or wrong together."""

TITLES = ("", "jobs", "judged", "80 %", "90 %", "95 %", "error", "by limits", "lower by")


@dataclass(frozen=True)
class Part:
    """What became of some of the estimates.

    Attributes
    ----------
    name : str
        Which ones.
    jobs, judged : int
        Of how many jobs, and how many; without any, the other values are nan.
    covered : tuple of float
        Shares that were within the intervals of `LEVELS`, 0 to 1.
    error, error_by_limits : float
        Mean absolute error of the median start, and of the start by requested times without
        arrivals, seconds.
    """

    name: str
    jobs: int
    judged: int
    covered: tuple[float, ...]
    error: float
    error_by_limits: float

    @classmethod
    def of(cls, name: str, rows: NDArray[np.float64]) -> Part:
        """Return a part, given its judged estimates, float64[n, 9]."""
        means = rows.mean(axis=0).tolist() if len(rows) else [np.nan] * COLUMNS
        covered = tuple(means[WITHIN_80 : WITHIN_95 + 1])
        jobs = len(np.unique(rows[:, JOB]))
        return cls(name, jobs, len(rows), covered, means[ERROR], means[ERROR_BY_LIMITS])

    @property
    def enough(self) -> bool:
        """Return whether there are enough jobs to judge the intervals."""
        return self.jobs >= FEWEST

    @property
    def lower(self) -> float:
        """Return by which share the error is lower than that by requested times; nan: neither."""
        if not self.error_by_limits:
            return np.nan if not self.error else -np.inf
        return 1 - self.error / self.error_by_limits

    def as_object(self) -> dict[str, Any]:
        """Return it as JSON has it; null where there is no value."""
        low = [each if np.isfinite(each) else None for each in self.covered]
        names = [f"covered_{100 * level:.0f}" for level in LEVELS]
        numbers = {"error_s": self.error, "error_by_limits_s": self.error_by_limits}
        numbers["lower_ratio"] = self.lower
        finite = {name: each if np.isfinite(each) else None for name, each in numbers.items()}
        counts = {"jobs": self.jobs, "judged": self.judged}
        return {**counts, **dict(zip(names, low, strict=True)), **finite}

    def cells(self) -> list[str]:
        """Return the cells of a row below `TITLES`."""
        shares = [percent(each) for each in self.covered]
        errors = [duration(self.error), duration(self.error_by_limits), percent(self.lower)]
        return [self.name, count(self.jobs), count(self.judged), *shares, *errors]


@dataclass(frozen=True)
class StartAccuracy:
    """How good start estimates would have been on a log.

    Attributes
    ----------
    parts : tuple of Part
        All, quarters of the time that is judged, thirds of sizes.
    weeks : tuple of Part
        Weeks in which estimates were made, those without any too.
    begins : float64[weeks]
        When each week begins, seconds since the epoch.
    quarters, sizes : tuple of float
        Bounds of the quarters, seconds since the epoch, and of the thirds.
    steady : float
        Share of medians that changed by less than the width of their 95 % interval until the next
        poll; nan: not measured.
    instants : int
        How often all waiting jobs were estimated.
    """

    parts: tuple[Part, ...]
    weeks: tuple[Part, ...]
    begins: NDArray[np.float64]
    quarters: tuple[float, ...]
    sizes: tuple[float, ...]
    steady: float
    instants: int

    @classmethod
    def of(cls, checked: Checked) -> StartAccuracy:
        """Return what became of the estimates of a check."""
        begin, end = float(checked.quarters[0]), float(checked.quarters[-1])
        number = max(int(np.ceil((end - begin) / WEEK)), 1)
        place = np.clip((checked.rows[:, MADE_AT] - begin) // WEEK, 0, number - 1)
        return cls(
            tuple(Part.of(name, rows) for name, rows in checked.parts()),
            tuple(
                Part.of(f"week {week + 1}", checked.rows[place == week]) for week in range(number)
            ),
            np.asarray(begin + WEEK * np.arange(number), np.float64),
            tuple(checked.quarters.tolist()),
            tuple(checked.sizes.tolist()),
            checked.steady,
            checked.instants,
        )

    @property
    def outside(self) -> list[str]:
        """Return where the 90 % intervals cover too little or too much, each with its share."""
        found = []
        for part in self.parts:
            low, high = self._bounds(part)
            if part.enough and not low <= part.covered[1] <= high:
                where = "on the whole" if part is self.parts[0] else f"of {part.name}"
                found.append(f"{percent(part.covered[1])} {where}")
        return found

    def _bounds(self, part: Part) -> tuple[float, float]:
        return ON_THE_WHOLE if part is self.parts[0] else IN_A_PART

    @property
    def too_narrow(self) -> bool:
        """Return whether the 90 % intervals cover too little somewhere."""
        return any(part.enough and part.covered[1] < self._bounds(part)[0] for part in self.parts)

    @property
    def holds(self) -> bool:
        """Return whether the intervals hold, and medians are nearer than requested times are."""
        return self.parts[0].enough and not self.outside and self.parts[0].lower > 0

    def verdict(self) -> str:
        """Return in one sentence whether the estimates can be relied on."""
        whole = self.parts[0]
        if not whole.enough:
            number = counted(whole.jobs, "job")
            return f"Estimates of only {number} are too few to say whether the intervals hold."
        lower = whole.lower
        nearer = (
            f"the median is {percent(lower)} nearer to the starts than requested times"
            if lower > 0
            else "requested times alone are as near to the starts as the median, or nearer"
        )
        if self.outside:
            where = ", ".join(self.outside)
            if not self.too_narrow:
                return (
                    f"The 90 % intervals are wider than they need be: they cover {where}; {nearer}."
                )
            return f"The 90 % intervals do not hold everywhere: they cover {where}; {nearer}."
        cover = percent(whole.covered[1])
        return f"The 90 % intervals hold: they cover {cover} of the starts; {nearer}."

    def steadiness(self) -> str:
        """Return in one sentence how steady the medians were."""
        if not np.isfinite(self.steady):
            return "How steady estimates are was not measured: too few of them were made."
        return (
            f"In {percent(self.steady)} of the cases the median changed by less than the width of "
            "its 95 % interval until the next poll."
        )

    def as_object(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        weeks = zip(self.begins.tolist(), self.weeks, strict=True)
        return {
            "instants": self.instants,
            "parts": {part.name.replace(" ", "_"): part.as_object() for part in self.parts},
            "weeks": [{"begin": begin, **part.as_object()} for begin, part in weeks],
            "quarters": self.quarters,
            "sizes": self.sizes,
            "steady_ratio": self.steady if np.isfinite(self.steady) else None,
            "holds": self.holds,
            "verdict": self.verdict(),
        }


def figures(found: StartAccuracy) -> tuple[Figure, Figure]:
    """Return coverage and error per week, as plotly draws them."""
    import plotly.graph_objects as go

    from rtsched.report.axes import TimeAxis, axis, base, log_axis
    from rtsched.report.scene import Figure

    begin = float(found.begins[0])
    end = begin + WEEK * len(found.begins)
    time = TimeAxis.of(begin, end)
    x = time.at(found.begins + WEEK / 2)
    # without a range, one week alone would be drawn on an axis of milliseconds
    shown = time.at(np.array([begin, end])).tolist()
    judged = [count(week.judged) for week in found.weeks]
    cover, most = go.Figure(), 60.0
    for place, level in enumerate(LEVELS):
        colour, name = POLICIES[place], f"{100 * level:.0f} % intervals"
        cover.add_scatter(
            x=x, y=[100 * week.covered[place] for week in found.weeks], mode="lines+markers",
            name=name, line={"color": colour, "width": 2}, marker={"size": 6}, cliponaxis=False,
            customdata=judged, hovertemplate="%{y:.1f} % of %{customdata}",
        )  # fmt: skip
        cover.add_hline(100 * level, line={"color": colour, "width": 1, "dash": "dash"})
    shares = [100 * each for week in found.weeks for each in week.covered if np.isfinite(each)]
    low = min(70.0, 10 * np.floor(min(shares, default=70.0) / 10))
    cover.update_layout(
        base(
            xaxis=time.layout(range=shown),
            yaxis=axis("Starts within the interval", range=[low, 101], ticksuffix=" %"),
        )
    )
    error = go.Figure()
    lines = (
        ("median of the simulations", [week.error for week in found.weeks], POLICIES[0], "solid"),
        ("requested times", [week.error_by_limits for week in found.weeks], LOGGED, "dot"),
    )
    for name, seconds, colour, dash in lines:
        minutes = np.array(seconds) / 60
        most = max(most, float(np.nanmax(minutes, initial=0.0)))
        error.add_scatter(
            x=x, y=np.maximum(minutes, 1.0), mode="lines+markers", name=name,
            line={"color": colour, "width": 2, "dash": dash}, marker={"size": 6}, cliponaxis=False,
            customdata=[duration(each) for each in seconds], hovertemplate="%{customdata}",
        )  # fmt: skip
    error.update_layout(
        base(
            xaxis=time.layout(range=shown),
            yaxis=log_axis("Mean error in minutes (logarithmic)", most),
        )
    )
    whole = found.parts[0]
    said = ", ".join(
        f"{percent(each)} of the starts within {100 * level:.0f} % intervals"
        for level, each in zip(LEVELS, whole.covered, strict=True)
    )
    return (
        Figure(
            "fig-coverage",
            "How often starts were within the interval",
            f"On the whole: {said}.",
            "One point per week, in its middle, by when the estimates were made; dashed: what was "
            "stated. Below its dashed line an interval was too narrow in that week, above it too "
            "wide.",
            390,
            cover,
        ),
        Figure(
            "fig-error",
            "How far starts were from the estimate",
            f"Mean error: {duration(whole.error)}; by requested times without arrivals: "
            f"{duration(whole.error_by_limits)}.",
            "Mean absolute error per week. Errors of up to a minute stand at the lower edge.",
            390,
            error,
        ),
    )


def page(
    found: StartAccuracy,
    title: str,
    facts: Sequence[tuple[str, str]],
    assumptions: Sequence[str] = (),
) -> str:
    """Return one page that needs no network.

    Parameters
    ----------
    found : StartAccuracy
        What is shown.
    title : str
        Its heading.
    facts : sequence of (str, str)
        Of log, machine and settings: names and values.
    assumptions : sequence of str
        Sentences on what the log does not say.

    Raises
    ------
    MissingExtraError
        If jinja2 or plotly is not installed.
    """
    from rtsched.errors import MissingExtraError
    from rtsched.report import html

    try:
        drawn = [html.shown(figure) for figure in figures(found)]
    except ImportError as error:
        raise MissingExtraError("the HTML page", "report", str(error)) from error
    return html.filled(
        "start_accuracy.html.j2",
        title=title,
        facts=list(facts),
        sentences=[found.verdict(), found.steadiness()],
        titles=TITLES,
        rows=[part.cells() for part in found.parts],
        figures=drawn,
        assumptions=list(assumptions),
    )


def span(found: StartAccuracy) -> str:
    """Return which time is judged."""
    begin, end = found.quarters[0], found.quarters[-1]
    if not is_dated(begin):
        return duration(end - begin) if end > begin else MISSING
    return f"{instant(begin)} to {instant(end)}"
