"""A place with HTCondor's headers where the ClassAd library is built and tried."""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING

from filter_sources import ADDRESSES, PROGRAMS, ROOT
from testbed.condor_images import PACKAGES
from testbed.images import Sources, packages
from testbed.layers import Layer, boxes, forget
from testbed.sandbox import Sandbox

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from pathlib import Path

CHECKOUT = "/mnt/checkout"
LIBRARY = f"{CHECKOUT}/contrib/condor"
CPP = PROGRAMS.with_name("cpp")


class Workshop(Sandbox):
    """A sandbox with HTCondor's development files, a compiler, and the checkout."""

    def __init__(self, suite: str, upper: Path | None = None) -> None:
        self._suite, self._packages = suite, packages(suite, "condor-packages", PACKAGES)
        super().__init__(self._packages.ready(), boxes(), binds={ROOT: CHECKOUT}, upper=upper)

    def make(self, directory: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the library's make, with all that it builds in a directory."""
        self.run(["mkdir", "-p", directory])
        return self.run(
            ["make", "-s", "-j2", "-C", LIBRARY, f"BUILD={directory}", *words], timeout=300
        )

    def build(self, program: str, flags: tuple[str, ...] = ADDRESSES) -> str:
        """Return the path of a program of tests/contrib/cpp with the library's objects.

        What was compiled of the same sources is kept.
        """
        place = f"/opt/{program}{flags[0][11:17]}"
        if not self.path(place).exists():
            layer = self._compiled(program, flags, place)
            shutil.copytree(layer.ready()[0] / place[1:], self.path(place))
            forget(layer, unused_days=2)
        return f"{place}/{program}"

    def _compiled(self, program: str, flags: tuple[str, ...], place: str) -> Layer:
        sources = Sources("contrib/common", "contrib/condor", "tests/contrib/cpp")
        options = f"-g -O1 {shlex.join(flags)}"

        def make(upper: Path, _lower: list[Path]) -> Mapping[str, object]:
            with Workshop(self._suite, upper) as shop:
                shop.make(place, f"CFLAGS={options}", f"CXXFLAGS={options}", "HARDEN=")
                shop.compile(program, f"{place}/{program}", *flags, f"{place}/*.o")
            return {"sources": sources.key, "flags": flags}

        recipe = f"{program} {options} {sources.key}"
        return Layer(f"classad-{program}{flags[0][11:17]}", recipe, make, self._packages)

    def compile(self, program: str, to: str, *words: str) -> None:
        """Compile and link one program of tests/contrib/cpp."""
        source = f"{CHECKOUT}/{(CPP / program).relative_to(ROOT)}.cpp"
        command = f"g++ -std=c++20 -Wall -Wextra -Werror -g -O1 -I{LIBRARY} -rdynamic"
        line = f"{command} -o {to} {source} {' '.join(words)} -lclassad -pthread"
        self.run(["sh", "-c", line], timeout=300)


class Library:
    """The library in a program, with settings, a socket and a table of its own."""

    def __init__(self, workshop: Workshop, program: str, place: str) -> None:
        self.workshop = workshop
        self.program = program
        self.place = place
        workshop.run(["mkdir", "-p", place])
        self.socket = workshop.path(f"{place}/s")
        self.settings = workshop.path(f"{place}/submit.conf")
        self.table = workshop.path(f"{place}/slots")
        self.log = ""
        self.set()

    def set(self, **settings: object) -> None:
        """Write the settings file."""
        own = {"socket": f"{self.place}/s", "table": f"{self.place}/slots"}
        known = own | {"timeout_ms": 300, "daemon_user": 4711} | settings
        self.settings.write_text("".join(f"{key} = {value}\n" for key, value in known.items()))

    def run(self, *commands: str, timeout: float = 60) -> list[str]:
        """Return what the commands of one process print; cpp/harness.cpp says which there are."""
        done = self.workshop.run(
            [self.program],
            input="".join(f"{command}\n" for command in commands),
            env={"RTSCHED_SUBMIT_CONF": f"{self.place}/submit.conf"},
            timeout=timeout,
        )
        self.log = done.stderr
        return done.stdout.splitlines()

    def judge(self, job: str, cluster: str = "[]") -> tuple[str, str, str]:
        """Return admission, verdict and message of one job, as the transform asks for them."""
        words = ("admission", "verdict", "message")
        asked = [f'eval rtschedJudge("{word}")' for word in words]
        admission, verdict, message = self.run(f"cluster {cluster}", f"job {job}", *asked)
        return plain(admission), plain(verdict), plain(message)


def plain(value: str) -> str:
    """Return a string without its quotes."""
    return value[1:-1] if value.startswith('"') else value


def ad(**attributes: object) -> str:
    """Return the ad of a job whose transform waits for a verdict, with these attributes.

    Values are expressions; strings carry their quotes.
    """
    said = {"RtVerdict": '"open"'} | attributes
    return "[ " + " ".join(f"{name} = {value};" for name, value in said.items()) + " ]"
