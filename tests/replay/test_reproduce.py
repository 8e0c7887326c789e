"""Reproductions: parts run anywhere with the same result, and differences are never hidden."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from reproduced import reduced_run

import rtsched.cli.reproduce as command
from rtsched.reproduce import (
    Claim,
    Curve,
    Findings,
    Parameters,
    Part,
    Plot,
    Sheet,
    executor,
    reproduce,
    reproductions,
)
from rtsched.reproduce.pages import cells, markdown, verdict

if TYPE_CHECKING:
    from pathlib import Path

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
    with executor(where, 1) as pool:  # type: ignore[arg-type]
        assert markdown(reproduce(Squares(), Squares.full, pool, fractions.append)) == expected
    assert fractions == [1 / 3, 2 / 3, 1.0]


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
            with executor(where, 1) as one, executor(where, 1) as other:  # type: ignore[arg-type]
                assert one is not other


def test_a_difference_counts_unless_it_is_explained() -> None:
    """9 is not 8: unexplained at first, explained by a reason for that row."""
    done = reproduce(Squares(), Squares.full)
    (sheet,) = done.findings.sheets
    assert done.unexplained == 1
    assert cells(sheet) == [["1 (1)"], ["4 (4)"], ["9 (8) !"]]
    assert verdict(sheet) == "differs: 1 of 3 values by more than 0, at most by 1; 1 unexplained"
    assert reproduce(Explained(), Squares.full).unexplained == 0


def test_tolerances_are_those_of_the_compared_values() -> None:
    """A cell without an expected value has no tolerance to be named."""
    nan = float("nan")
    bounds = np.array([[0.5, nan], [2.0, 9.0]])
    ours, expected = np.ones((2, 2)), np.array([[1.0, nan], [1.5, nan]])
    sheet = Sheet("t", "s", ("a", "b"), ("x", "y"), ours, expected, bounds)
    assert verdict(sheet) == "matches: 2 of 2 values within 0.500 to 2"


def test_a_failed_claim_counts_unless_it_is_explained() -> None:
    """So does one that holds though it should not."""
    done = reproduce(Squares(), Squares.Parameters(numbers=(2, 1)))
    assert done.unexplained == 3
    surprise = Claim("the moon is cheese", holds=True, evidence="taste", expected=False)
    assert not surprise.why
    assert surprise.holds != surprise.expected


def test_a_value_without_an_expected_one_is_shown_only() -> None:
    """Nothing to compare with is no match and no difference."""
    done = reproduce(Explained(), Squares.Parameters(numbers=(1, 2, 3, 7)))
    assert cells(done.findings.sheets[0])[3] == ["49"]
    assert done.unexplained == 0


@pytest.fixture
def papers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command find the two reproductions of this module."""
    found = {"squares": Squares, "explained": Explained}
    monkeypatch.setattr(command, "reproductions", lambda: found)


@pytest.mark.usefixtures("papers")
def test_command_prints_sheets_and_exits_by_what_it_found(tmp_path) -> None:
    """Status 1 with an unexplained difference; a changed parameter changes the values."""
    run = CliRunner().invoke
    done = run(command.command, ["squares", "--executor", "here"])
    assert done.exit_code == 1
    assert "9 (8) !" in done.output
    assert "1 unexplained difference" in done.output
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


@pytest.mark.parametrize("name", sorted(reproductions().keys() - {"sed"}))
def test_reduced_reproduction_has_no_unexplained_difference(name: str) -> None:
    """Each published policy, at its reduced extent and tolerances; for `sed` see its own tests."""
    done = reduced_run(name)
    assert done.findings.sheets or done.findings.claims
    assert done.unexplained == 0, markdown(done)
