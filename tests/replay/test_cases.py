"""Every worked case whose kind has a runner passes through the code that the policies run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import run_cases

from rtsched.kernels import dlt
from rtsched.kernels.loads import Load

CASES = Path(__file__).parent.parent / "data" / "cases"
MCDF = run_cases.read_cases(CASES / "mcdf.json")
PSTS = run_cases.read_cases(CASES / "psts.json")
STE = run_cases.read_cases(CASES / "ste.json")
SED = run_cases.read_cases(CASES / "sed.json")
SPARE = run_cases.read_cases(CASES / "spare.json")
ALL = [*MCDF, *PSTS, *STE, *SED, *SPARE]


@pytest.mark.parametrize("case", ALL, ids=[case["case_id"] for case in ALL])
def test_worked_case(case: run_cases.Case) -> None:
    """The case's expected values come out."""
    assert run_cases.check(case) == []


def test_all_kinds_have_a_runner() -> None:
    """No case is passed over."""
    assert {case["kind"] for case in ALL} <= run_cases.RUNNERS.keys()


def test_runner_reports_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong expectation is found, named and counted."""
    case = dict(MCDF[0], expected={"exec_time": 1.0})
    wrong = run_cases.check(case)
    assert wrong == [f".exec_time: expected 1.0, found {dlt.exec_time(1, Load(100.0, 10.0, 10.0))}"]
    assert run_cases.main([str(CASES / "mcdf.json")]) == 0
    assert "plan: 5 passed, 0 failed" in capsys.readouterr().out


BREAK = """
import sys
from rtsched.kernels import dlt
right = dlt.chain_time
dlt.chain_time = lambda *load: 1.01 * right(*load)
import run_cases
sys.exit(run_cases.main(sys.argv[1:]))
"""


def test_a_broken_kernel_fails_cases_and_replays() -> None:
    """Formulas, plans and whole replays stand on the same kernel, so all of them notice."""
    done = subprocess.run(
        [sys.executable, "-c", BREAK, str(CASES / "mcdf.json")],
        env={**os.environ, "RTSCHED_COMPILE": "0", "PYTHONPATH": str(CASES.parent.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    for line in ("dlt: 0 passed", "plan: 0 passed", "sim: 0 passed"):
        assert line in done.stdout
