"""What the layers of a cluster hold: Debian, its packages, Python, accounting, our software.

Everything that changes how a layer is made is in its recipe.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import sandbox
from testbed.accounting import accounting
from testbed.errors import TestbedError
from testbed.layers import Layer, boxes, cache
from testbed.sandbox import Sandbox
from testbed.slurm import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CHECKOUT = Path(__file__).parents[2]
SUITES = ("forky", "trixie")
VENV = "/opt/rtsched"
SOURCES = "/usr/src/rtsched"

PACKAGES = [
    "slurmctld",
    "slurmd",
    "slurm-client",
    "slurmdbd",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-plugins",
    "libslurm-dev",
    "munge",
    "mariadb-server",
    "mariadb-client",
    "gcc",
    "g++",
    "make",
    "libc6-dev",
    "libc6-dbg",
    "valgrind",
    "liblua5.4-0",
    "python3-dev",
    "python3-venv",
    "python3-pip",
    "libfaketime",
    "procps",
    "iproute2",
    "util-linux",
    "tzdata",
]

INSTALL = """
set -eu
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
# The Release file of a suite in the making may be past its date.
echo 'Acquire::Check-Valid-Until "false";' >/etc/apt/apt.conf.d/99testbed
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "$@"
apt-get clean
rm -rf /var/lib/apt/lists/* /var/lib/mysql /var/log/apt/*
"""

EXTRAS = ("replay", "live")
"""Which of pyproject.toml's optional dependencies a cluster has."""
BUILD = ("hatchling>=1.25",)
"""What builds our wheel."""
PYSLURM = CHECKOUT / "contrib" / "slurm" / "pyslurm"
PYSLURM_SUITES = ("forky",)


def stack(suite: str) -> Layer:
    """Return the layers of a Debian release with Slurm, Python and accounting, without ours.

    Raises
    ------
    TestbedError
        If there is no such suite.
    """
    if suite not in SUITES:
        raise TestbedError(f"no suite {suite}: there are {', '.join(SUITES)}")
    return accounting(suite, python(_bindings(suite), f"python-{suite}"))


def unavailable() -> str:
    """Return why no cluster can run on this machine, or nothing."""
    cause = sandbox.unavailable(boxes())
    made = all(bootstrap(suite).complete for suite in SUITES)
    if not (cause or made or shutil.which("debootstrap")):
        cause = "needs debootstrap (Debian package debootstrap)"
    return cause


def _mirror() -> str:
    return os.environ.get("RTSCHED_MIRROR") or "http://deb.debian.org/debian"


def bootstrap(suite: str) -> Layer:
    """Return the layer of a Debian release with its minimum and Python."""

    def make(root: Path, below: list[Path]) -> Mapping[str, object]:
        # The last word is the script's name: debootstrap may be older than the suite.
        words = ["--variant=minbase", "--include=python3,ca-certificates", suite, str(root)]
        done = subprocess.run(
            ["debootstrap", *words, _mirror(), "sid"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise TestbedError(f"debootstrap {suite}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return {"suite": suite, "mirror": _mirror()}

    return Layer(f"bootstrap-{suite}", f"debootstrap minbase {suite} 1", make)


def packages(
    suite: str,
    name: str = "packages",
    wanted: Sequence[str] = PACKAGES,
    below: Layer | None = None,
) -> Layer:
    """Return Debian with packages as they come, by default Slurm, MariaDB, compilers, Python.

    They lie upon the layer `below`, by default a Debian with its minimum.
    """

    def make(upper: Path, lower: list[Path]) -> Mapping[str, object]:
        with Sandbox(lower, boxes(), upper=upper, network="host", binds=network_files()) as box:
            words = ["sh", "-c", INSTALL, "install", *wanted]
            box.run(words, env=proxies(), timeout=1800)
            asked = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *wanted]
            return {"packages": box.run(asked).stdout.splitlines()}

    recipe = " ".join(wanted) + INSTALL
    return Layer(f"{name}-{suite}", recipe, make, below or bootstrap(suite))


def _bindings(suite: str) -> Layer:
    """Return the layer of a virtual environment, with pyslurm where ours fits the suite's Slurm."""
    pyslurm = suite in PYSLURM_SUITES

    def make(upper: Path, below: list[Path]) -> Mapping[str, object]:
        settings, places = pip_settings()
        binds = network_files() | places | {PYSLURM: "/mnt"}
        with Sandbox(below, boxes(), upper=upper, network="host", binds=binds) as box:
            box.run(["python3", "-m", "venv", VENV], timeout=300)
            if pyslurm:
                words = ["sh", "/mnt/build.sh", f"{VENV}/bin/python"]
                box.run(words, env=proxies() | settings, timeout=1800)
        return {"pyslurm": pyslurm}

    recipe = _texts(PYSLURM) if pyslurm else "none"
    return Layer(f"bindings-{suite}", recipe, make, packages(suite))


def python(
    below: Layer, name: str, extras: Sequence[str] = EXTRAS, *, constraints: str = ""
) -> Layer:
    """Return the layer of what our extras require, in a virtual environment, made if missing.

    `constraints` is a shell command that prints further requirements, such as the version that
    fits what is installed.
    """
    wanted = requirements(extras)

    def make(upper: Path, below: list[Path]) -> Mapping[str, object]:
        settings, places = pip_settings()
        binds, env = network_files() | places, proxies() | settings
        pip = [f"{VENV}/bin/python", "-m", "pip"]
        with Sandbox(below, boxes(), upper=upper, network="host", binds=binds) as box:
            if not box.path(VENV).exists():
                box.run(["python3", "-m", "venv", VENV], timeout=300)
            more = box.run(["sh", "-c", constraints]).stdout.split()
            box.run([*pip, "install", "--quiet", *wanted, *more], env=env, timeout=1800)
            return {"python": box.run([*pip, "freeze"], env=env).stdout.splitlines()}

    return Layer(name, " ".join(wanted) + constraints, make, below)


def requirements(extras: Sequence[str] = EXTRAS) -> list[str]:
    """Return what pip has to install beside our own wheel, from pyproject.toml."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    known = project["optional-dependencies"]
    found, pending = {*BUILD, *project["dependencies"]}, list(extras)
    while pending:
        for word in known[pending.pop()]:
            own = re.fullmatch(r"rtsched\[(.+)\]", word)
            pending += own[1].split(",") if own else []
            found |= set() if own else {word}
    return sorted(found)


def pip_settings() -> tuple[dict[str, str], dict[Path, str]]:
    """Return how pip is set up on this machine: variables, and local places that they name."""
    # Without pip here there is nothing to take over.
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    settings: dict[str, str] = {}
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        key = "PIP_" + name.rpartition(".")[2].replace("-", "_").upper()
        settings[key] = " ".join(str(ast.literal_eval(value)).split())
    places: dict[Path, str] = {}
    for key, value in settings.items():
        for word in value.split():
            path = Path(word.removeprefix("file://"))
            if path.is_absolute() and path.exists():
                # The pages of an index name files beside it.
                place = path.parent if key.endswith("INDEX_URL") else path
                places[place] = str(place)
    return settings, places


def network_files() -> dict[Path, str]:
    """Return the files of this machine without which nothing is fetched inside a sandbox."""
    files = ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt")
    return {Path(file): file for file in files if Path(file).exists()}


def proxies() -> dict[str, str]:
    """Return this machine's variables for proxies."""
    return {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}


def _texts(directory: Path) -> str:
    return "\0".join(path.read_text() for path in sorted(directory.iterdir()) if path.is_file())


class Sources:
    """The files of the checkout that a cluster installs, as they are now."""

    def __init__(self, *tops: str) -> None:
        paths = sorted(path for top in tops for path in _files(CHECKOUT / top))
        self.files = {str(path.relative_to(CHECKOUT)): path.read_bytes() for path in paths}
        digest = hashlib.sha256()
        for name, content in self.files.items():
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        self.key = digest.hexdigest()

    def write(self, directory: Path) -> None:
        """Write them below a directory."""
        for name, content in self.files.items():
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(0o644 | (CHECKOUT / name).stat().st_mode & 0o111)


def _files(top: Path) -> Iterable[Path]:
    if top.is_file():
        return [top]
    return (path for path in top.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


WHEEL = f"""
set -eu
{VENV}/bin/python -m pip install --quiet --no-deps --no-build-isolation --no-compile --no-index \\
    {SOURCES}
site=$({VENV}/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# What is compiled at run time is kept by the times of its sources.
find "$site"/rtsched* -exec touch -h -d 2020-02-02T00:00:00Z {{}} +
{VENV}/bin/python -m compileall -q "$site"/rtsched*
"""


def software(below: Layer, suite: str) -> Layer:
    """Return the layer of our wheel, built from the checkout as it is now."""
    sources = Sources("pyproject.toml", "README.md", "LICENSE", "rtsched", "plugins")

    def make(upper: Path, lower: list[Path]) -> Mapping[str, object]:
        sources.write(upper / SOURCES.lstrip("/"))
        with Sandbox(lower, boxes(), upper=upper) as box:
            box.run(["sh", "-c", WHEEL], timeout=300)
        return {"sources": sources.key}

    return Layer(f"software-{suite}", WHEEL + sources.key, make, below)


def submit_filter(below: Layer, suite: str) -> Layer:
    """Return the layer of our plug-in for slurmctld, compiled against the suite's headers.

    Raises
    ------
    TestbedError
        If the checkout holds none.
    """
    if not (CHECKOUT / "contrib" / "slurm" / "Makefile").exists():
        raise TestbedError("no contrib/slurm/Makefile in this checkout")
    sources = Sources("contrib/common", "contrib/slurm")

    def make(upper: Path, lower: list[Path]) -> Mapping[str, object]:
        sources.write(upper / SOURCES.lstrip("/"))
        with Sandbox(lower, boxes(), upper=upper) as box:
            words = ["make", "-s", "-C", f"{SOURCES}/contrib/slurm", "all", "install"]
            box.run([*words, f"PLUGINDIR={PLUGINS}"], timeout=300)
        return {"sources": sources.key}

    return Layer(f"filter-{suite}", sources.key, make, below)


def compiled() -> Path:
    """Return the directory of machine code that numba makes of the checkout's kernels.

    All kernels decide: numba itself looks at the file of a function, not at those that it calls.
    """
    key = Sources("rtsched/kernels", "plugins/rtsched_plugins/kernels").key[:12]
    directory = cache() / "numba" / key
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o1777)
    os.utime(directory)
    for other in directory.parent.iterdir():
        if other.stat().st_mtime < time.time() - 2 * 86400:
            shutil.rmtree(other, ignore_errors=True)
    return directory
