"""Completion in shells: commands, options and their values, quickly."""

import os
import shutil
import subprocess
import sys

import pytest

PROGRAM = "from rtsched.cli import main; main(prog_name='rtsched')"
REPORTING = f"""
import atexit, sys

def tell():
    print(*(name for name in sys.modules if name[:12] == "rtsched.cli."), file=sys.stderr)
atexit.register(tell)
{PROGRAM}
"""
"""The program, which tells at its end which commands were imported."""


def completed(line):
    """Return what bash is offered behind a command line, and what was imported for that."""
    given = {
        "_RTSCHED_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    words = [sys.executable, "-c", REPORTING]
    done = subprocess.run(
        words, env={**os.environ, **given}, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines(), done.stderr.split()


def test_commands():
    """Names are completed, and no command is imported for it."""
    offered, modules = completed("rtsched re")
    assert offered == ["plain,replay", "plain,rest", "plain,reproduce", "plain,render"]
    assert modules == ["rtsched.cli.common"]


def test_commands_of_a_group():
    """What is in a group is completed, and no other command is imported."""
    offered, modules = completed("rtsched slurm ")
    names = ("check", "install", "restore", "uninstall")
    assert sorted(offered) == [f"plain,{name}" for name in names]
    assert "rtsched.cli.replay" not in modules


def test_options_and_values():
    """So are options and those of their values that are known; other values may be files."""
    assert completed("rtsched replay --table")[0] == ["plain,--table-format"]
    assert completed("rtsched replay --table-format p")[0] == ["plain,parquet"]
    assert completed("rtsched replay --cluster no")[0] == ["file,no"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell):
    """Each shell's script is printed, and is no nonsense to the shell where it is installed."""
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("click asks bash for its version")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "_RTSCHED_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_RTSCHED_COMPLETE" in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)
