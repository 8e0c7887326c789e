"""Programs by which users submit work, of fixed releases, in a virtual environment of their own.

One layer of a Debian release serves its Slurm clusters and its HTCondor pools: they see it at the
same place.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from testbed.images import network_files, packages, pip_settings, proxies
from testbed.layers import Layer, boxes, forget
from testbed.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Mapping

VENV = "/opt/tools"
"""Where a cluster has it."""
RELEASES = Path(__file__).with_name("tools.txt")


def tools(suite: str) -> Layer:
    """Return the layer of the tools of `tools.txt`, which has its virtual environment in `VENV`."""
    releases = RELEASES.read_text()

    def make(upper: Path, below: list[Path]) -> Mapping[str, object]:
        settings, places = pip_settings()
        binds = network_files() | places | {RELEASES: "/mnt/tools.txt"}
        with Sandbox(below, boxes(), upper=upper, network="host", binds=binds) as box:
            box.run(["python3", "-m", "venv", VENV], timeout=300)
            pip = [f"{VENV}/bin/python", "-m", "pip"]
            env = proxies() | settings
            box.run([*pip, "install", "--quiet", "-r", "/mnt/tools.txt"], env=env, timeout=1800)
            return {"tools": box.run([*pip, "freeze"], env=env).stdout.splitlines()}

    return Layer(f"tools-{suite}", releases, make, packages(suite))


def binds(suite: str) -> dict[Path, str]:
    """Return where the tools of a suite lie on this machine, and where a cluster sees them."""
    found = tools(suite)
    found.ready()
    forget(found, unused_days=7)
    return {found.directory / VENV.lstrip("/"): VENV}
