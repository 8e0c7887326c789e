"""What a promised job is told at its start, and what hostile text cannot do there."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from filter_sources import SLURM

RECORD = "rtsched:promise deadline=1800000000 nodes=3 fractions=0.5:0.3:2e-1 on=fast1:slow2:slow3"
LINE = re.compile(r"export RTSCHED_[A-Z]+=[A-Za-z0-9][A-Za-z0-9._:-]*")
AWKS = [awk for awk in ("mawk", "gawk", "original-awk", "busybox") if shutil.which(awk)] or ["awk"]


class Prolog:
    """The script, with a made-up scontrol and a chosen awk."""

    def __init__(self, place: Path, awk: str) -> None:
        self.place = place
        self.asked = place / "asked"
        (place / "bin").mkdir()
        (place / "bin/awk").symlink_to(shutil.which(awk) or awk)

    def __call__(self, comment: str, **variables: str) -> dict[str, str]:
        """Return what the task is told."""
        (self.place / "answer").write_text(f"JobId=5 JobName=x\n   Comment={comment}\n   StdIn=x\n")
        scontrol = self.place / "scontrol"
        scontrol.write_text(
            f'#!/bin/sh\necho "$@" >>{self.asked}\ncat {self.place}/answer\nexit 1\n'
        )
        scontrol.chmod(0o755)
        environment = {
            "PATH": f"{self.place}/bin:/usr/bin:/bin",
            "RTSCHED_SCONTROL": str(scontrol),
            "SLURM_JOB_ID": "5",
            "SLURMD_NODENAME": "slow2",
        }
        done = subprocess.run(
            ["sh", SLURM / "task_prolog.sh"],
            env=environment | variables,
            capture_output=True,
            timeout=20,
            cwd=self.place,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        lines = done.stdout.decode(errors="replace").splitlines()
        assert all(LINE.fullmatch(line) for line in lines), lines
        return dict(line.removeprefix("export RTSCHED_").split("=", 1) for line in lines)


@pytest.fixture(params=AWKS)
def prolog(request: pytest.FixtureRequest, tmp_path: Path) -> Prolog:
    """Return the script under each awk that is there."""
    return Prolog(tmp_path, request.param)


def test_a_task_is_told_its_share(prolog: Prolog) -> None:
    """Numbers and names of the record come as variables; the user's own words after it do not."""
    assert prolog(f"{RECORD} my words on=evil nodes=9") == {
        "JOB": "5",
        "DEADLINE": "1800000000",
        "NODES": "3",
        "ON": "fast1:slow2:slow3",
        "FRACTIONS": "0.5:0.3:2e-1",
        "CHUNK": "1",
        "FRACTION": "0.3",
        "FROM": "0.5",
        "TO": "0.8",
    }


def test_the_parts_of_the_load_join(prolog: Prolog) -> None:
    """The first part begins at 0, the last ends at 1 whatever rounding did."""
    record = RECORD.replace("0.5:0.3:2e-1", "0.333:0.333:0.333")
    told = [prolog(record, SLURMD_NODENAME=node) for node in ("fast1", "slow2", "slow3")]
    assert [row["FROM"] for row in told] == ["0", "0.333", "0.666"]
    assert [row["TO"] for row in told] == ["0.333", "0.666", "1"]


def test_a_task_is_told_its_rounds(prolog: Prolog) -> None:
    """How a node's part is taken is told where the record says it, in steps too."""
    told = prolog(RECORD.replace(" on=", " rounds=0.25:0.75 on="))
    assert told["ROUNDS"] == "0.25:0.75"
    assert prolog("", **{f"RTSCHED_{name}": value for name, value in told.items()}) == told
    for bad in ("0.25:x", "1:", ":", "$(id)"):
        assert "ROUNDS" not in prolog(RECORD.replace(" on=", f" rounds={bad} on="))


def test_a_node_of_another_name_is_found_by_its_place(prolog: Prolog) -> None:
    """Where names differ, SLURM_NODEID counts; where that is out of range, no share is told."""
    assert prolog(RECORD, SLURMD_NODENAME="x", SLURM_NODEID="2")["CHUNK"] == "2"
    assert "FRACTION" not in prolog(RECORD, SLURMD_NODENAME="x", SLURM_NODEID="3")


def test_a_job_without_fractions_is_told_the_rest(prolog: Prolog) -> None:
    """A rigid job has no shares."""
    record = "rtsched:promise deadline=18 nodes=1 fractions= on=slow2"
    assert prolog(record) == {
        "JOB": "5",
        "DEADLINE": "18",
        "NODES": "1",
        "ON": "slow2",
        "CHUNK": "0",
    }


def test_steps_do_not_ask_again(prolog: Prolog) -> None:
    """What the batch script was told is used in its steps, with the step's own node."""
    told = {f"RTSCHED_{name}": value for name, value in prolog(RECORD).items()}
    asked = prolog.asked.read_text()
    assert prolog("", **told | {"SLURMD_NODENAME": "fast1"})["FRACTION"] == "0.5"
    assert prolog.asked.read_text() == asked == "show job 5\n"


def test_variables_of_another_job_do_not_count(prolog: Prolog) -> None:
    """A job submitted from within a promised one inherits its variables, and asks anew."""
    told = {f"RTSCHED_{name}": value for name, value in prolog(RECORD).items()}
    assert prolog("", **told | {"SLURM_JOB_ID": "6"}) == {}
    assert prolog.asked.read_text() == "show job 5\nshow job 6\n"


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "(null)",
        "rtsched:promise",
        "mine rtsched:promise deadline=1 nodes=1 on=a",
        "rtsched:promise deadline=$(reboot) nodes=1 on=slow2",
        "rtsched:promise deadline=1e5 nodes=1 on=slow2",
        "rtsched:promise deadline=1 nodes=-1 on=slow2",
        "rtsched:promise nodes=1 on=slow2",
        "rtsched:promise deadline=" + "9" * 100 + " nodes=1",
    ],
)
def test_a_record_that_is_none_tells_nothing(prolog: Prolog, comment: str) -> None:
    """Anything but a whole record of the daemon's form is no record."""
    assert prolog(comment) == {}


@pytest.mark.parametrize(
    "text",
    [
        "on=slow2;reboot",
        "on=slow2:$(touch${IFS}x)",
        "on=`touch`:slow2",
        "on=slow2 fractions=0.5;x",
        "on=slow2 fractions=1:1",
        "on=slow2 fractions=-1",
        "on=slow2 fractions=nan",
        "on=slow2\nexport LD_PRELOAD=evil",
        "on=slow2\n   Comment=rtsched:promise deadline=7 nodes=7 on=slow2",
        "on=slow2 fractions=\x01\x1b[1m",
        "on=" + "a:" * 20000,
    ],
)
def test_hostile_text_is_not_handed_on(prolog: Prolog, text: str) -> None:
    """Nothing but checked numbers and names is printed, and nothing is run."""
    told = prolog(f"rtsched:promise deadline=1 nodes=1 {text}")
    assert told["DEADLINE"] == "1"
    assert "FRACTION" not in told
    assert not (prolog.place / "x").exists()


def test_other_jobs_are_not_looked_up(prolog: Prolog) -> None:
    """A task without a variable or a reservation of ours does not ask slurmctld."""
    done = subprocess.run(
        ["sh", SLURM / "task_prolog.sh"],
        env={"PATH": f"{prolog.place}:/usr/bin:/bin", "SLURM_JOB_ID": "5"},
        capture_output=True,
        check=True,
        timeout=20,
    )
    assert done.stdout == b""
    assert not prolog.asked.exists()
