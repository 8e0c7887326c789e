"""What the layers of an HTCondor pool hold: Debian, HTCondor, Python, users, our library.

The Python bindings are PyPI's `htcondor`, of the daemons' own major version: Debian packages none
for 25.14, and clients of 24 and 25 refuse the FS authentication of daemons of 23.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.accounting import ADD_USERS, USERS
from testbed.errors import TestbedError
from testbed.images import CHECKOUT, SOURCES, SUITES, Sources, packages, python
from testbed.layers import Layer, boxes
from testbed.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PACKAGES = [
    "condor",
    "condor-dev",
    "gcc",
    "g++",
    "make",
    "libc6-dev",
    "libc6-dbg",
    "valgrind",
    "stunnel4",
    "openssl",
    "python3-dev",
    "python3-venv",
    "python3-pip",
    "libfaketime",
    "procps",
    "iproute2",
    "util-linux",
    "tzdata",
]
EXTRAS = ("condor",)
SAME_VERSION = r"condor_version | sed -n 's/.*CondorVersion: \([0-9]*\)\..*/htcondor==\1.*/p'"

DIRECTORIES = """\
usermod --append --groups condor rtsched
install -d -o rtsched -g rtsched -m 755 /var/lib/rtsched
install -d -m 755 /etc/rtsched /usr/lib/rtsched
rm -rf /var/log/condor/* /var/lib/condor/execute/* /var/lib/condor/spool/*
"""


def stack(suite: str) -> Layer:
    """Return the layers of a Debian release with HTCondor, Python and users, without ours.

    Raises
    ------
    TestbedError
        If there is no such suite.
    """
    if suite not in SUITES:
        raise TestbedError(f"no suite {suite}: there are {', '.join(SUITES)}")
    debian = packages(suite, "condor-packages", PACKAGES)
    below = python(debian, f"condor-python-{suite}", EXTRAS, constraints=SAME_VERSION)

    def make(upper: Path, lower: list[Path]) -> Mapping[str, object]:
        with Sandbox(lower, boxes(), upper=upper) as box:
            users = [word for user in USERS.items() for word in map(str, user)]
            box.run(["sh", "-c", ADD_USERS + DIRECTORIES, "add", *users], timeout=120)
        return {"users": USERS}

    return Layer(f"condor-users-{suite}", f"{USERS}\n{ADD_USERS}{DIRECTORIES}", make, below)


def library(below: Layer, suite: str) -> Layer:
    """Return the layer of our ClassAd library, compiled against the suite's headers.

    Raises
    ------
    TestbedError
        If the checkout holds none.
    """
    if not (CHECKOUT / "contrib" / "condor" / "Makefile").exists():
        raise TestbedError("no contrib/condor/Makefile in this checkout")
    sources = Sources("contrib/common", "contrib/condor")

    def make(upper: Path, lower: list[Path]) -> Mapping[str, object]:
        sources.write(upper / SOURCES.lstrip("/"))
        with Sandbox(lower, boxes(), upper=upper) as box:
            words = ["make", "-s", "-C", f"{SOURCES}/contrib/condor", "all", "install"]
            box.run(words, timeout=300)
        return {"sources": sources.key}

    return Layer(f"library-{suite}", sources.key, make, below)
