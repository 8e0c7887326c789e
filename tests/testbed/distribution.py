"""What the layers for our packages hold: tools to build them, the packages, clean roots."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from testbed.condor_images import SAME_VERSION
from testbed.images import CHECKOUT, Sources, network_files, packages, pip_settings, proxies
from testbed.layers import Layer, boxes, forget
from testbed.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOOLS = [
    "build-essential",
    "debhelper",
    "python3-pip",
    "python3-venv",
    "rpm",
    "rpmlint",
    "cpio",
    "iproute2",
]
HEADERS = ["libslurm-dev", "condor", "condor-dev"]
WITHOUT_CONDOR = ("bookworm",)
"""Releases of Debian that have no HTCondor."""
NEEDED = ["python3", "libstdc++6", "systemd", "man-db", "bash-completion", "iproute2", "procps"]
"""What a root has before ours are installed: their dependencies, and who looks at them."""

WHEELS = "/usr/src/wheels"
SOURCES = "/usr/src/rtsched"
PACKAGES = "/usr/src/packages"


def tools(suite: str) -> Layer:
    """Return Debian with what builds packages, and the headers of its batch systems."""
    headers = HEADERS[:1] if suite in WITHOUT_CONDOR else HEADERS
    return packages(suite, "package-tools", [*TOOLS, *headers])


def clean(suite: str, *wanted: str) -> Layer:
    """Return Debian with what our packages depend on, none of ours."""
    return packages(suite, "package-root", sorted({*NEEDED, *wanted}))


def debs(suite: str) -> tuple[Path, dict[str, str]]:
    """Return the directory of our Debian packages, built if need be, and their files by name."""
    layer = built(suite)
    forget(layer, unused_days=1)
    directory = layer.ready()[0] / PACKAGES.lstrip("/")
    files = {path.name.partition("_")[0]: path.name for path in sorted(directory.glob("*.deb"))}
    return directory, {name: file for name, file in files.items() if not name.endswith("-dbgsym")}


def wheels(suite: str) -> Layer:
    """Return the layer of the wheels that packages bring along."""
    sources = Sources("packaging/wheelhouse.sh", "packaging/requirements.py", "pyproject.toml")

    def make(upper: Path, below: list[Path]) -> Mapping[str, object]:
        settings, places = pip_settings()
        sources.write(upper / SOURCES.lstrip("/"))
        binds, env = network_files() | places, proxies() | settings
        with Sandbox(below, boxes(), upper=upper, network="host", binds=binds) as box:
            bindings = box.run(["sh", "-c", SAME_VERSION]).stdout.split()
            words = ["sh", f"{SOURCES}/packaging/wheelhouse.sh", WHEELS, "", *bindings]
            box.run(words, env=env, timeout=1800)
        return {"wheels": sorted(path.name for path in (upper / WHEELS.lstrip("/")).iterdir())}

    return Layer(f"package-wheels-{suite}", _needs(), make, tools(suite))


def _needs() -> str:
    """Return what is fetched: other changes of the project gather no wheels anew."""
    words = [
        "python3",
        "-m",
        "requirements",
        CHECKOUT / "pyproject.toml",
        "live",
        "report",
        "rest",
        "build",
    ]
    done = subprocess.run(
        words, cwd=CHECKOUT / "packaging", capture_output=True, text=True, check=True
    )
    return done.stdout + (CHECKOUT / "packaging" / "wheelhouse.sh").read_text()


def built(suite: str) -> Layer:
    """Return the layer of our Debian packages, built from the checkout as it is now."""
    return _built(suite, "debs", f"{SOURCES}/packaging/build-deb.sh {PACKAGES}")


def rpms(suite: str) -> Layer:
    """Return the layer of our RPM packages, built on Debian from the checkout as it is now."""
    # As the headers of a Slurm of Enterprise Linux are found there.
    plugins = "--define 'slurm_plugins /usr/lib64/slurm' --define '_binary_payload w1.gzdio'"
    return _built(suite, "rpms", f"{SOURCES}/packaging/build-rpm.sh {PACKAGES} --nodeps {plugins}")


def _built(suite: str, what: str, command: str) -> Layer:
    """Return the layer in which a command has built packages, without a network."""
    names = ("contrib", "docs", "examples", "packaging", "plugins", "rtsched", "tools")
    sources = Sources("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", *names)

    def make(upper: Path, below: list[Path]) -> Mapping[str, object]:
        target = upper / SOURCES.lstrip("/")
        target.mkdir(parents=True)
        script = str(CHECKOUT / "packaging" / "sources.sh")
        with subprocess.Popen([script], stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "-x", "-C", target], stdin=archive.stdout, check=True)
        with Sandbox(below, boxes(), upper=upper) as box:
            env = {"RTSCHED_WHEELS": WHEELS, "RTSCHED_COMPRESSION": "-Zzstd -z1"}
            done = box.run(["sh", "-c", command], env=env, timeout=1800)
        # The next build starts from the sources of its own time.
        shutil.rmtree(target)
        return {"packages": done.stdout.splitlines()[-8:]}

    return Layer(f"package-{what}-{suite}", sources.key + command, make, wheels(suite))
