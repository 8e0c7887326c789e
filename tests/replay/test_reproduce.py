"""Reproductions: parts run anywhere with the same result, and differences are never hidden."""

import json
import os
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from reproduced import differences, reduced_run

import rtsched.cli.reproduce as command
from rtsched.errors import ShapeError
from rtsched.reproduce import (
    Claim,
    Curve,
    Findings,
    Parameters,
    Part,
    Plot,
    Sheet,
    Tally,
    chance,
    executor,
    reproduce,
    reproductions,
)
from rtsched.reproduce.pages import (
    as_object,
    cells,
    claim_verdict,
    from_object,
    markdown,
    row_verdicts,
    verdict,
)

NAN = float("nan")


def square(number: int) -> int:
    """Return the square of a number."""
    return number * number


class Squares:
    """The squares of a few numbers."""

    class Parameters(Parameters, frozen=True):
        """Settings."""

        numbers: Annotated[tuple[int, ...], msgspec.Meta(description="What to square.")] = (1, 2, 3)

    name: ClassVar[str] = "squares"
    source: ClassVar[str] = "Euclid, Elements"
    full: ClassVar[Parameters] = Parameters()
    reduced: ClassVar[Parameters] = Parameters(numbers=(1, 2))
    why: ClassVar[dict[str, str]] = {}

    def parts(self, parameters: Parameters) -> list[Part]:
        """One part per number."""
        return [Part(square, {"number": number}) for number in parameters.numbers]

    def findings(self, parameters: Parameters, results: list[int]) -> Findings:
        """Ours beside the squares of 1, 2, 3; the last is misprinted."""
        n = len(results)
        sheet = Sheet(
            "Squares",
            "book 2",
            tuple(str(number) for number in parameters.numbers),
            ("square",),
            np.array(results, np.float64)[:, None],
            np.array([1.0, 4.0, 8.0, NAN])[:n, None],
            why=self.why,
        )
        x = np.arange(float(n))
        line = Plot("line", "Squares", "n", "n²", (Curve("square", x, x * x),))
        claim = Claim("squares grow", bool((np.diff(results) > 0).all()), f"up to {results[-1]}")
        return Findings((sheet,), (claim,), (line,))


class Explained(Squares):
    """The same, with the misprint explained."""

    why: ClassVar[dict[str, str]] = {"3": "misprint"}


@pytest.mark.parametrize("where", ["here", "processes", "dask"])
def test_parts_give_the_same_result_wherever_they_run(where: str) -> None:
    """One page, byte for byte."""
    expected = markdown(reproduce(Squares(), Squares.full))
    fractions: list[float] = []
    with executor(where, 1) as pool:
        assert markdown(reproduce(Squares(), Squares.full, pool, fractions.append)) == expected
    assert fractions == [1 / 3, 2 / 3, 1.0]


@pytest.mark.parametrize("name", ["explained", "ste"])
def test_a_page_can_be_made_from_its_values(name: str) -> None:
    """The JSON has all that the page says; where nothing is expected, too."""
    numbers = Squares.Parameters(numbers=(1, 2, 3, 7))
    done = reduced_run(name) if name == "ste" else reproduce(Explained(), numbers)
    values = msgspec.json.decode(msgspec.json.encode(as_object(done)))
    assert markdown(from_object(values)) == markdown(done)


def test_clusters_beside_each_other_take_no_port_from_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two users, or two tests, on one machine: Dask would warn that a port is taken."""
    import dask

    for name, text in (("sbatch", "Submitted batch job 1"), ("scancel", "")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    job = {"cores": 1, "memory": "1GB", "log-directory": str(tmp_path)}
    settings = {f"jobqueue.slurm.{name}": value for name, value in job.items()}
    with dask.config.set(settings):
        for where in ("dask", "slurm"):
            with executor(where, 1) as one, executor(where, 1) as other:
                assert one is not other


def test_a_difference_counts_whatever_explains_it() -> None:
    """9 is not 8, with a remark on that row and without."""
    for study in (Squares(), Explained()):
        done = reproduce(study, Squares.full)
        (sheet,) = done.findings.sheets
        assert done.values == Tally(agree=2, differ=1)
        assert done.differ == 1
        assert cells(sheet) == [["1 (1)"], ["4 (4)"], ["9 (8) !"]]
        assert verdict(sheet) == "2 of 3 values agree, 1 differs, by 1"
        assert row_verdicts(sheet) == ["agrees", "agrees", "differs"]


def test_every_difference_counts_when_all_rows_have_a_remark() -> None:
    """A result that is off by 10^9 in every row is not made good by remarks made beforehand."""
    ours, expected = np.full((6, 2), 1e9), np.ones((6, 2))
    rows = tuple("abcdef")
    sheet = Sheet("t", "s", rows, ("x", "y"), ours, expected, why=dict.fromkeys(rows, "unknown"))
    assert sheet.tally() == Tally(differ=12)


def test_tolerances_are_shown_beside_the_expected_values() -> None:
    """A cell without an expected value has no tolerance to be named."""
    bounds = np.array([[0.5, NAN], [2.0, 9.0]])
    ours, expected = np.ones((2, 2)), np.array([[1.0, NAN], [1.5, NAN]])
    sheet = Sheet("t", "s", ("a", "b"), ("x", "y"), ours, expected, bounds)
    assert cells(sheet) == [["1 (1 ± 0.500)", "1"], ["1 (1.500 ± 2)", "1"]]
    assert verdict(sheet) == "2 of 2 values agree"


@pytest.mark.parametrize("bound", [NAN, np.inf, -1.0])
def test_a_tolerance_that_tolerates_everything_or_nothing_is_refused(bound: float) -> None:
    """One that is no number, infinite or negative would make the comparison empty."""
    bounds = np.array([[0.5, bound]])
    ours = np.ones((1, 2))
    with pytest.raises(ShapeError, match="tolerance"):
        Sheet("t", "s", ("a",), ("x", "y"), ours, ours, bounds)


def test_a_value_that_is_missing_differs() -> None:
    """No number where one is printed is no match."""
    sheet = Sheet("t", "s", ("a",), ("x",), np.array([[NAN]]), np.ones((1, 1)), 5.0)
    assert sheet.tally() == Tally(differ=1)


def test_fitted_values_are_no_match() -> None:
    """A value that was fitted to the printed one agrees by construction; off it, it differs."""
    ours, expected = np.array([[1.0], [2.0]]), np.array([[1.0], [3.0]])
    sheet = Sheet("t", "s", ("a", "b"), ("x",), ours, expected, fitted="two times to two points")
    assert sheet.tally() == Tally(differ=1, fitted=1)
    assert verdict(sheet) == "0 of 2 values agree, 1 differs, by 1, 1 fitted"
    assert row_verdicts(sheet) == ["fitted", "differs"]


def test_a_claim_differs_if_it_does_not_hold() -> None:
    """Known errata of the source too: the remark is shown beside."""
    claims = (Claim("a", True, "x"), Claim("the moon is cheese", False, "taste", "a slip"))
    assert [claim_verdict(claim) for claim in claims] == ["agrees", "differs"]
    done = reproduce(Squares(), Squares.Parameters(numbers=(2, 1)))
    assert done.claims == Tally(differ=1)
    assert done.differ == 3


def test_a_value_without_an_expected_one_is_shown_only() -> None:
    """Nothing to compare with is no match and no difference."""
    done = reproduce(Explained(), Squares.Parameters(numbers=(1, 2, 3, 7)))
    assert cells(done.findings.sheets[0])[3] == ["49"]
    assert row_verdicts(done.findings.sheets[0])[3] == ""
    assert done.values == Tally(agree=2, differ=1)


@pytest.fixture
def papers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command find the two reproductions of this module."""
    found = {"squares": Squares, "explained": Explained}
    monkeypatch.setattr(command, "reproductions", lambda: found)


@pytest.mark.usefixtures("papers")
def test_command_prints_sheets_and_exits_by_what_it_found(tmp_path) -> None:
    """Status 1 with a difference, explained or not; a changed parameter changes the values."""
    run = CliRunner().invoke
    for name in ("squares", "explained"):
        done = run(command.command, [name, "--executor", "here"])
        assert done.exit_code == 1
        assert "9 (8) !" in done.output
        assert "values: 2 agree, 1 differs\nclaims: 1 agrees, 0 differ" in done.output
    assert "misprint" in done.output
    changed = run(command.command, ["squares", "--executor", "here", "--numbers", "[2]", "--json"])
    assert json.loads(changed.stdout)["sheets"][0]["ours"] == [[4.0]]
    kept = run(command.command, ["squares", "--reduced", "--executor", "here", "--out", tmp_path])
    assert kept.exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "squares-line.svg",
        "squares.json",
        "squares.md",
    ]
    first = (tmp_path / "squares-line.svg").read_bytes()
    run(command.command, ["squares", "--reduced", "--executor", "here", "--out", tmp_path])
    assert (tmp_path / "squares-line.svg").read_bytes() == first


CROSSOVERS = [
    f"Crossover points: {nodes} nodes, {grid}"
    for nodes in (2, 4, 8, 16, 32, 64)
    for grid in ("line", "best dimension")
]
AVOIDS = "Part of the rejects of FIFO-AN and EDF-AN that MCDF avoids: one100 literal"
KNOWN = {
    "mcdf": [
        *(f"{AVOIDS} {load}, {other}" for load in (0.1, 0.3) for other in ("fifo-an", "edf-an")),
        "more than 99 % are late without an admission test, offered load above 1",
        "MCDF rejects fewest at every load",
    ],
    "portfolio": [],
    "psts": [
        "Best dimension and steps: 32 nodes, dimension in table 6",
        "Best dimension and steps: 64 nodes, dimension in table 6",
        *CROSSOVERS,
        "Crossover points of one arriving task, on a line: 2 nodes, crossover",
        "Crossover points of one arriving task, on a line: 64 nodes, crossover",
        "The two units of the example leave v12 and v16.",
        "The number of nodes is the product of all sides but one.",
        "The time of a run falls as nodes are added, on a line (figure 4).",
        "The time of a run falls as nodes are added, in the best dimension (figure 5).",
        "In the best dimension a run takes clearly less time than on a line (figures 4, 5).",
        "The relative speed-up falls as nodes are added (figure 6).",
    ],
    "spare": [
        "the printed S(t), by each job's next deadline, is safe",
        "(2, 3), (2, 8) is the smallest example of that",
        "larger messages: the mean response grows",
        "more heterogeneity: the guarantee ratio falls",
    ],
}
"""What differs from the sources; `ste` and `sed` have tests of their own."""


def test_every_reproduction_has_its_known_differences() -> None:
    """One that is added must state what differs."""
    assert set(KNOWN) | {"ste", "sed"} == set(reproductions())


@pytest.mark.parametrize("name", KNOWN)
def test_reduced_reproduction_differs_where_it_is_known_to(name: str) -> None:
    """Each published policy, at its reduced extent: no difference more, and none less."""
    done = reduced_run(name)
    assert done.findings.sheets or done.findings.claims
    assert differences(done) == KNOWN[name], markdown(done)
    assert done.differ == len(KNOWN[name])


def test_chance_is_three_standard_errors_as_student_has_them() -> None:
    """Quantiles of 99.73 %: 6.62 with 4 degrees of freedom, 3.45 with 19, 3 with very many."""
    runs = np.random.default_rng(1).normal(size=(20, 2))
    error = runs.std(axis=0, ddof=1)
    assert chance(runs, 0) == pytest.approx(3.447 * error / 20**0.5, rel=1e-3)
    assert chance(runs, 5, 0.5) == pytest.approx(3.447 * error * 0.25**0.5 + 0.5, rel=1e-3)
    assert chance(runs[:5]) == pytest.approx(6.62 * runs[:5].std(0, ddof=1) / 5**0.5, rel=1e-2)
    many = np.tile([-1.0, 1.0], 50_000)
    assert chance(many) == pytest.approx(3 * 100_000**-0.5, rel=1e-3)
    with pytest.raises(ShapeError, match="2 runs"):
        chance(runs[:1])


def test_means_of_equal_runs_rarely_differ_by_chance() -> None:
    """Of 4,000 pairs of means, one of 5 runs and one of 3, about 0.27 % are further apart."""
    rng = np.random.default_rng(2)
    ours, theirs = rng.normal(size=(5, 4000)), rng.normal(size=(3, 4000))
    off = np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) > chance(ours, 3)
    assert 2 <= off.sum() <= 25
