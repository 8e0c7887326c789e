"""A Slurm that Debian does not have, built from its sources: the release that a site runs.

References
----------
Slurm's Quick Start Administrator Guide, "Manual build".
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import images
from testbed.accounting import accounting
from testbed.errors import TestbedError
from testbed.layers import Layer, boxes
from testbed.sandbox import Sandbox
from testbed.slurm import CGROUP_CONF

if TYPE_CHECKING:
    from collections.abc import Mapping

LIBRARIES = ["bzip2", "libdbus-1-dev", "libjson-c-dev", "libmariadb-dev", "libmunge-dev"]
LIBRARIES += ["liblua5.4-dev", "pkg-config", "xz-utils"]

WITHOUT_DISABLED = "CgroupPlugin=cgroup/v1\n"
"""cgroup.conf up to 23.11, which knows no `disabled`; this plug-in is loaded, and not used."""

PYSLURM = ("25.11",)
"""The releases of Slurm that PyPI has a pyslurm for."""

BUILD = r"""
set -eu
lib=/usr/lib/x86_64-linux-gnu
useradd --system --user-group --home-dir /nonexistent --shell /usr/sbin/nologin slurm
mkdir /tmp/slurm
tar -xf /mnt/sources -C /tmp/slurm --strip-components 1
cd /tmp/slurm
# As optimised as by default. Without symbols for debuggers, and libraries compiled once, not twice.
./configure --quiet --prefix=/usr --sysconfdir=/etc/slurm --libdir=$lib \
    --enable-multiple-slurmd --disable-dependency-tracking --disable-slurmrestd \
    --disable-static --disable-debug CFLAGS="-std=gnu17 -O1 -fno-strict-aliasing"
make -s -j2
make -s install
# Where Debian has its plug-ins, and PluginDir of the testbed names them.
ln -s slurm $lib/slurm-wlm
echo $lib/slurm >/etc/ld.so.conf.d/slurm.conf
ldconfig
find $lib/slurm -name '*.la' -delete
cd /
rm -rf /tmp/slurm
"""


def named() -> Path | None:
    """Return the archive that $RTSCHED_SLURM_SOURCE names: the release of all clusters then.

    Raises
    ------
    TestbedError
        If there is no such file.
    """
    archive = os.environ.get("RTSCHED_SLURM_SOURCE")
    if not archive:
        return None
    if not Path(archive).is_file():
        raise TestbedError(f"RTSCHED_SLURM_SOURCE={archive}: there is no such file")
    return Path(archive)


def has_pyslurm() -> bool:
    """Return whether the first of the suites has a pyslurm for its Slurm, or for the named one."""
    archive = named()
    return archive is None or _feature(version_of(archive)) in PYSLURM


def _feature(version: str) -> str:
    return ".".join(version.split(".")[:2])


def version_of(archive: Path) -> str:
    """Return the release in an archive of Slurm's sources.

    Raises
    ------
    TestbedError
        If it holds none.
    """
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if re.fullmatch(r"[^/]+/META", member.name):
                    text = tar.extractfile(member).read().decode()  # type: ignore[union-attr]
                    return re.search(r"(?m)^\s*Version:\s*(\S+)", text)[1]  # type: ignore[index]
    except (OSError, tarfile.TarError) as error:
        raise TestbedError(f"{archive}: cannot be read: {error}") from error
    raise TestbedError(f"{archive}: these are not sources of Slurm")


def stack(suite: str, archive: Path) -> Layer:
    """Return the layers of a Debian release with a Slurm from sources, Python and accounting.

    Raises
    ------
    TestbedError
        If the archive holds no sources of Slurm.
    """
    version = version_of(archive)
    name = f"slurm-{version}-{suite}"
    without = [each for each in images.PACKAGES if "slurm" not in each]
    below = images.packages(suite, "build", [*without, *LIBRARIES])

    def make(upper: Path, lower: list[Path]) -> Mapping[str, object]:
        binds = {archive.resolve(): "/mnt/sources"}
        with Sandbox(lower, boxes(), upper=upper, binds=binds) as box:
            box.run(["sh", "-c", BUILD], timeout=3600)
            return {"slurm": box.run(["slurmctld", "-V"]).stdout.strip()}

    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    built = _bindings(name, version, Layer(name, BUILD + digest, make, below))
    cgroup_conf = WITHOUT_DISABLED if version.startswith("23.") else CGROUP_CONF
    return accounting(name, images.python(built, f"python-{name}"), cgroup_conf)


def _bindings(name: str, version: str, below: Layer) -> Layer:
    """Return the layer with the pyslurm of that release of Slurm, where there is one."""
    feature = _feature(version)
    if feature not in PYSLURM:
        return below

    def make(upper: Path, lower: list[Path]) -> Mapping[str, object]:
        settings, places = images.pip_settings()
        binds = images.network_files() | places
        env = images.proxies() | settings | {"SLURM_LIB_DIR": "/usr/lib/x86_64-linux-gnu/slurm"}
        with Sandbox(lower, boxes(), upper=upper, network="host", binds=binds) as box:
            box.run(["python3", "-m", "venv", images.VENV], timeout=300)
            pip = [f"{images.VENV}/bin/python", "-m", "pip", "install", "--quiet"]
            box.run([*pip, f"pyslurm=={feature}.*"], env=env, timeout=1800)
        return {"pyslurm": feature}

    return Layer(f"bindings-{name}", "pyslurm 1", make, below)
