"""Accuracy of start estimates on a log: numbers, a verdict, and a page with plots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.estimates.record import (
    ERROR,
    ERROR_BY_LIMITS,
    JOB,
    MADE_AT,
    SCORE,
    WIDTH,
    WITHIN_80,
    WITHIN_95,
)
from rtsched.estimates.run_times import NAMES
from rtsched.model.units import MINUTE, WEEK
from rtsched.report.axes import LOGGED, POLICIES
from rtsched.report.wording import MISSING, count, duration, instant, is_dated, percent
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.estimates.check import Checked
    from rtsched.report.scene import Figure

LEVELS = 0.80, 0.90, 0.95
"""Of the intervals, as the columns of judged estimates have them."""

IN_A_WINDOW, IN_A_PART = (0.87, 0.93), (0.80, 0.97)
"""Between which shares the 90 % intervals cover starts, if they hold: on the whole and in windows,
and in quarters of the time and thirds of sizes."""

WORSE = 0.05
"""By which share the error may be above that of the best simple predictor in a window."""

NEAR = 1 * MINUTE, 10 * MINUTE
"""Errors of the median whose shares are shown, seconds."""

FEWEST = 50
"""Jobs below which a part is not judged: estimates of one job are right or wrong together."""

TITLES = ("", "jobs", "judged", "80 %", "90 %", "95 %", "width of 90 %", "score", "simple", "score")
"""Of the table of intervals; the score is the mean interval score of that of 90 %. The last two are
width and score of the best simple predictor, with intervals by the same calibration."""

ERROR_TITLES = ("", "error", *NAMES, "lower by", "within 1 min", "10 min")
"""Of the table of medians."""


INTERVALS = "How often starts were within the intervals."
MEDIANS = "How far starts were from the median, and from what simple predictors say."


_FIRSTS = range(ERROR_BY_LIMITS, ERROR_BY_LIMITS + 3 * len(NAMES), len(NAMES))
_ERRORS, _WIDTHS, _SCORES = (slice(first, first + len(NAMES)) for first in _FIRSTS)
"""Columns of judged estimates of the simple predictors."""


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
    width, score : float
        Mean width and interval score of the interval of 90 %, seconds.
    error : float
        Mean absolute error of the median start, seconds.
    errors : tuple of float
        Those of the starts by the simple predictors `NAMES`, without arrivals.
    widths, scores : tuple of float
        Mean widths and interval scores of their intervals of 90 %, seconds.
    near : tuple of float
        Shares of the medians that were off by no more than `NEAR`, 0 to 1.
    best, sharpest : int
        Which of the simple predictors is the best one on the whole, by error and by score.
    """

    name: str
    jobs: int
    judged: int
    covered: tuple[float, ...]
    width: float
    score: float
    error: float
    errors: tuple[float, ...]
    widths: tuple[float, ...]
    scores: tuple[float, ...]
    near: tuple[float, ...]
    best: int
    sharpest: int

    @classmethod
    def of(cls, name: str, rows: NDArray[np.float64], best: int, sharpest: int) -> Part:
        """Return a part, given its judged estimates, float64[n, 19]."""
        means = (rows.mean(axis=0) if len(rows) else np.full(rows.shape[1], np.nan)).tolist()
        near = [np.mean(rows[:, ERROR] <= most) if len(rows) else np.nan for most in NEAR]
        return cls(
            name,
            len(np.unique(rows[:, JOB])),
            len(rows),
            tuple(means[WITHIN_80 : WITHIN_95 + 1]),
            means[WIDTH],
            means[SCORE],
            means[ERROR],
            tuple(means[_ERRORS]),
            tuple(means[_WIDTHS]),
            tuple(means[_SCORES]),
            tuple(map(float, near)),
            best,
            sharpest,
        )

    @property
    def enough(self) -> bool:
        """Return whether there are enough jobs to judge the intervals."""
        return self.jobs >= FEWEST

    @property
    def is_window(self) -> bool:
        """Return whether it is a window of so many jobs."""
        return self.name.startswith("window")

    @property
    def bounds(self) -> tuple[float, float]:
        """Return between which shares the 90 % intervals cover starts, if they hold."""
        return IN_A_WINDOW if self.name == "all" or self.is_window else IN_A_PART

    @property
    def cover(self) -> str:
        """Return which share of which starts the 90 % intervals cover."""
        where = "on the whole" if self.name == "all" else f"of {self.name}"
        return f"{percent(self.covered[1])} {where}"

    @property
    def lower(self) -> float:
        """Return by which share it is nearer than the best simple predictor; nan: no error."""
        return _lower(self.error, self.errors[self.best])

    @property
    def sharper(self) -> float:
        """Return by which share its score is lower than that of the best simple predictor."""
        return _lower(self.score, self.scores[self.sharpest])

    @property
    def narrower(self) -> float:
        """Return by which share it is narrower than the intervals of that predictor."""
        return _lower(self.width, self.widths[self.sharpest])

    def as_object(self) -> dict[str, Any]:
        """Return it as JSON has it; null where there is no value."""
        numbers = {
            f"covered_{100 * level:.0f}": each
            for level, each in zip(LEVELS, self.covered, strict=True)
        }
        numbers |= {"width_90_s": self.width, "score_90_s": self.score, "error_s": self.error}
        by = ("limits", "median_ratio", "last_two")
        simple = {"error": self.errors, "width_90": self.widths, "score_90": self.scores}
        for what, each in simple.items():
            numbers |= {f"{what}_by_{name}_s": one for name, one in zip(by, each, strict=True)}
        numbers |= {"lower_ratio": self.lower, "lower_score_ratio": self.sharper}
        minutes = (f"within_{most / MINUTE:.0f}_min" for most in NEAR)
        numbers |= dict(zip(minutes, self.near, strict=True))
        finite = {name: each if np.isfinite(each) else None for name, each in numbers.items()}
        return {"jobs": self.jobs, "judged": self.judged, **finite}

    def cells(self) -> list[str]:
        """Return the cells of a row below `TITLES`."""
        shares = [percent(each) for each in self.covered]
        simple = self.widths[self.sharpest], self.scores[self.sharpest]
        widths = map(duration, (self.width, self.score, *simple))
        return [self.name, count(self.jobs), count(self.judged), *shares, *widths]

    def error_cells(self) -> list[str]:
        """Return the cells of a row below `ERROR_TITLES`."""
        errors = [duration(each) for each in (self.error, *self.errors)]
        return [self.name, *errors, percent(self.lower), *map(percent, self.near)]


def _lower(own: float, simple: float) -> float:
    """Return by which share one is lower than the other; nan: both are 0."""
    if not simple:
        return np.nan if not own else -np.inf
    return 1 - own / simple


@dataclass(frozen=True)
class StartAccuracy:
    """How good start estimates would have been on a log.

    Attributes
    ----------
    parts : tuple of Part
        All, quarters of the time that is judged, thirds of sizes, windows of so many jobs.
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
        means = checked.rows.mean(axis=0)
        best = int(np.argmin(means[_ERRORS])), int(np.argmin(means[_SCORES]))
        weeks = ((f"week {week + 1}", checked.rows[place == week]) for week in range(number))
        return cls(
            tuple(Part.of(name, rows, *best) for name, rows in checked.parts()),
            tuple(Part.of(name, rows, *best) for name, rows in weeks),
            np.asarray(begin + WEEK * np.arange(number), np.float64),
            tuple(checked.quarters.tolist()),
            tuple(checked.sizes.tolist()),
            checked.steady,
            checked.instants,
        )

    @property
    def narrow(self) -> list[str]:
        """Return where the 90 % intervals cover too little, each with its share."""
        return [part.cover for part in self._judged() if part.covered[1] < part.bounds[0]]

    @property
    def wide(self) -> list[str]:
        """Return where the 90 % intervals cover too much, each with its share."""
        return [part.cover for part in self._judged() if part.covered[1] > part.bounds[1]]

    def _judged(self) -> list[Part]:
        return [part for part in self.parts if part.enough]

    @property
    def worse(self) -> list[str]:
        """Return where the best simple predictor is nearer to the starts than medians are."""
        found = [] if self.parts[0].lower > 0 else ["on the whole"]
        windows = (part for part in self.parts if part.is_window)
        return found + [f"in {part.name}" for part in windows if part.lower < -WORSE]

    @property
    def holds(self) -> bool:
        """Return whether intervals hold, and medians and they are better than simple ones."""
        good = self.parts[0].enough and self._sharp
        return good and not (self.narrow or self.wide or self.worse)

    @property
    def _sharp(self) -> bool:
        """Return whether intervals are narrower than simple ones on the whole, and score lower."""
        whole = self.parts[0]
        return whole.sharper > 0 and whole.narrower > 0

    def verdict(self) -> str:
        """Return in a few sentences whether the estimates can be relied on."""
        whole = self.parts[0]
        if not whole.enough:
            number = counted(whole.jobs, "job")
            return f"Estimates of only {number} are too few to say whether the intervals hold."
        return f"{self._intervals()} {self._scores()} {self._medians()}"

    def _intervals(self) -> str:
        found = []
        if self.narrow:
            found.append(f"The 90 % intervals are too narrow: they cover {', '.join(self.narrow)}.")
        if self.wide:
            begin = "They are" if found else "The 90 % intervals are"
            found.append(f"{begin} wider than they need be: they cover {', '.join(self.wide)}.")
        cover = percent(self.parts[0].covered[1])
        good = f"The 90 % intervals hold: they cover {cover} of the starts."
        return " ".join(found) or good

    def _scores(self) -> str:
        whole, name = self.parts[0], NAMES[self.parts[0].sharpest]
        width, score = (
            f"{percent(abs(each))} {'lower' if each > 0 else 'higher'}"
            for each in (whole.narrower, whole.sharper)
        )
        return (
            f"Their interval score is {score}, and their mean width {width}, than with the best "
            f"simple predictor, {name}."
        )

    def _medians(self) -> str:
        whole, name = self.parts[0], NAMES[self.parts[0].best]
        if self.worse:
            where = ", ".join(self.worse)
            return f"A simple predictor, {name}, is nearer to the starts than the median {where}."
        return (
            f"The median is {percent(whole.lower)} nearer to the starts than the best simple "
            f"predictor, {name}."
        )

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
    simple = NAMES[found.parts[0].best]
    lines = (
        ("median of the simulations", [week.error for week in found.weeks], POLICIES[0], "solid"),
        (simple, [week.errors[week.best] for week in found.weeks], LOGGED, "dot"),
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
    text = ", ".join(
        f"{percent(each)} of the starts within {100 * level:.0f} % intervals"
        for level, each in zip(LEVELS, whole.covered, strict=True)
    )
    return (
        Figure(
            "fig-coverage",
            "How often starts were within the interval",
            f"On the whole: {text}.",
            "One point per week, in its middle, by when the estimates were made; dashed: what was "
            "stated. Below its dashed line an interval was too narrow in that week, above it too "
            "wide.",
            390,
            cover,
        ),
        Figure(
            "fig-error",
            "How far starts were from the estimate",
            f"Mean error: {duration(whole.error)}; by {simple} without arrivals: "
            f"{duration(whole.errors[whole.best])}.",
            "Mean absolute error per week. Errors of up to a minute are at the lower edge.",
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
        parts = [html.drawn(figure) for figure in figures(found)]
    except ImportError as error:
        raise MissingExtraError("the HTML page", "report", str(error)) from error
    return html.filled(
        "start_accuracy.html.j2",
        title=title,
        facts=list(facts),
        sentences=[found.verdict(), found.steadiness()],
        tables=[
            (INTERVALS, TITLES, [part.cells() for part in found.parts]),
            (MEDIANS, ERROR_TITLES, [part.error_cells() for part in found.parts]),
        ],
        figures=parts,
        assumptions=list(assumptions),
    )


def span(found: StartAccuracy) -> str:
    """Return which time is judged."""
    begin, end = found.quarters[0], found.quarters[-1]
    if not is_dated(begin):
        return duration(end - begin) if end > begin else MISSING
    return f"{instant(begin)} to {instant(end)}"
