"""`rtsched take`: where the options of a choice go among the words of a command line."""

import pytest

from rtsched.cli.feasible import command_line

ADDED = ("--nodes=1", "--deadline=uts7")


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        ("job.sh", "sbatch", "job.sh"),
        ("job.sh -N 4", "sbatch", "job.sh -N 4"),
        ("-A phys --time 30 job.sh x", "sbatch -A phys --time 30", "job.sh x"),
        ("-- sbatch -n4 -H --hold -J a job.sh", "sbatch -n4 -H --hold -J a", "job.sh"),
        ("salloc -N4", "salloc -N4", ""),
        ("--wrap=true", "sbatch --wrap=true", ""),
    ],
)
def test_options_stand_behind_those_of_the_user_and_before_the_script(
    words: str, before: str, after: str
) -> None:
    """So they override both, and are no arguments of the script."""
    found = command_line("slurm", words.split(), ADDED)
    assert found == [*before.split(), *ADDED, *after.split()]


def test_lines_of_a_submit_file_stand_before_the_queue_statement() -> None:
    """Which takes all words behind it."""
    added = ("-append", "+RtDeadline = 7")
    found = command_line("condor", ["job.sub", "-queue", "3"], added)
    assert found == ["condor_submit", "job.sub", *added, "-queue", "3"]
