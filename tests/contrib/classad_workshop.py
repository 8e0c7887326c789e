"""A place with HTCondor's headers where the ClassAd library is built and tried."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from filter_sources import ADDRESSES, PROGRAMS, ROOT
from testbed.condor_images import PACKAGES
from testbed.images import Sources, packages
from testbed.layers import Layer, boxes, forget
from testbed.sandbox import Sandbox

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

    def built(self, place: str, *words: str) -> None:
        """Have the library built in a directory by make; what was made of these sources is kept."""
        self._keep("library", place, words, lambda shop: shop.make(place, *words))

    def build(self, program: str, flags: tuple[str, ...] = ADDRESSES) -> str:
        """Compile a program of tests/contrib/cpp with the library's objects; return its path."""
        place, options = f"/opt/{program}{flags[0][11:17]}", f"-g -O1 {shlex.join(flags)}"

        def work(shop: Workshop) -> None:
            shop.make(place, f"CFLAGS={options}", f"CXXFLAGS={options}", "HARDEN=")
            shop.compile(program, f"{place}/{program}", *flags, f"{place}/*.o")

        if not self.path(place).exists():
            self._keep(place[5:], place, flags, work)
        return f"{place}/{program}"

    def _keep(
        self, name: str, place: str, words: Sequence[str], work: Callable[[Workshop], object]
    ) -> None:
        """Do some work that fills a directory, or take over what it made of the same sources."""
        sources = Sources("contrib/common", "contrib/condor", "tests/contrib/cpp")

        def make(upper: Path, _lower: list[Path]) -> Mapping[str, object]:
            with Workshop(self._suite, upper) as shop:
                work(shop)
            return {"sources": sources.key}

        recipe = f"{place} {shlex.join(words)} {sources.key}"
        layer = Layer(f"classad-{name}-{self._suite}", recipe, make, self._packages)
        shutil.copytree(layer.ready()[0] / place[1:], self.path(place), copy_function=shutil.copy)
        forget(layer, unused_days=2)

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
