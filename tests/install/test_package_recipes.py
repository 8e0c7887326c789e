"""The recipes of packages agree with the project, and with each other."""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from testbed.images import requirements as required

import rtsched
from rtsched.cli import main

TOP = Path(__file__).parents[2]
PACKAGING = TOP / "packaging"
SPEC = (PACKAGING / "rpm" / "rtsched.spec").read_text()
CONTROL = (PACKAGING / "debian" / "control").read_text()
CLIENT = (PACKAGING / "files" / "rtsched").read_text()


def test_all_recipes_are_of_this_release():
    """A release changes its version in each of them."""
    changelog = (PACKAGING / "debian" / "changelog").read_text()
    assert changelog.startswith(f"rtsched ({rtsched.__version__}-1) ")
    assert re.search(r"^Version: +(\S+)$", SPEC, re.MULTILINE)[1] == rtsched.__version__
    assert f"- {rtsched.__version__}-1\n" in SPEC
    citation = (TOP / "CITATION.cff").read_text()
    assert f"\nversion: {rtsched.__version__}\n" in citation


def test_both_kinds_have_the_same_packages():
    """Admins find the same parts under the same names."""
    debian = set(re.findall(r"^Package: (\S+)$", CONTROL, re.MULTILINE))
    rpm = {"rtsched", *(f"rtsched-{name}" for name in re.findall(r"^%package (\S+)$", SPEC, re.M))}
    assert debian == rpm == {"rtsched", "rtsched-client", "rtsched-slurm-plugin", "rtsched-condor"}


def test_wheels_are_those_that_the_project_requires():
    """The requirements of the program, of its extras, and of its build."""
    words = [
        sys.executable,
        "-m",
        "requirements",
        TOP / "pyproject.toml",
        "live",
        "report",
        "rest",
        "build",
    ]
    done = subprocess.run(words, cwd=PACKAGING, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == required(("live", "report", "rest"))


def test_users_commands_are_commands():
    """What the client offers alone is there, and does not need what it lacks."""
    users = set(re.findall(r'"([a-z]+)"', re.search(r"^USERS = (.*)$", CLIENT, re.MULTILINE)[1]))
    assert users < set(main.list_commands(click.Context(main)))
    assert {"status", "feasible"} <= users


@pytest.mark.parametrize("path", sorted(PACKAGING.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_shell(path):
    """Each can be run, and is no nonsense to the shell."""
    assert path.stat().st_mode & 0o111
    subprocess.run(["sh", "-n", path], check=True)
    assert path.read_text().startswith("#!/bin/sh\n# ")


def test_the_units_program_is_where_the_packages_put_it():
    """The unit names a path that `install.sh` replaces."""
    unit = (TOP / "contrib" / "systemd" / "rtsched.service").read_text()
    assert "ExecStart=/opt/rtsched/bin/rtsched serve" in unit
    assert "s|/opt/rtsched/bin/rtsched|/usr/bin/rtsched|" in (PACKAGING / "install.sh").read_text()
