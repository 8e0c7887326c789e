"""Slurm's own sources, release by release: configured once, and kept for the next time.

$RTSCHED_SLURM_SOURCES names a directory of release tarballs, `slurm-*.tar.xz` or `.tar.bz2`, as
https://download.schedmd.com/slurm/ and the tags of https://github.com/SchedMD/slurm have them.
What is made of each stays in $XDG_CACHE_HOME/rtsched-tests (~/.cache/rtsched-tests).
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

CONFIGURE = (
    *("--no-create", "--disable-dependency-tracking", "--without-rpath", "--without-munge"),
    *("--disable-pam", "--disable-slurmrestd", "--disable-x11"),
)
"""Nothing is built: a build's libraries are not wanted, only what stands in its headers."""
GENERATED = ("config.h", "slurm/slurm_version.h")


@dataclass(frozen=True)
class Release:
    """One release of Slurm.

    Attributes
    ----------
    version : str
        Such as `25.11.7`.
    source : Path
        Its sources.
    built : Path
        Where its generated headers are.
    """

    version: str
    source: Path
    built: Path

    @property
    def include(self) -> Path:
        """Where `slurm/slurm.h` is with all it includes, as a package of headers has them."""
        return self.built / "include"

    def text(self, path: str) -> str:
        """Return one of its files."""
        return (self.source / path).read_text(encoding="utf-8", errors="replace")


def tarballs() -> list[Path]:
    """Return the release tarballs that there are, the oldest release first."""
    place = os.environ.get("RTSCHED_SLURM_SOURCES", "")
    found = [path for end in ("xz", "bz2") for path in Path(place).glob(f"slurm-*.tar.{end}")]
    return sorted(found, key=lambda path: [int(part) for part in re.findall(r"\d+", path.name)])


def unpacked(tarball: Path) -> Release:
    """Return a release, unpacked and configured: at once from the second time on."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rtsched-tests"
    base.mkdir(parents=True, exist_ok=True)
    # What a directory was made of stands in its name: another tarball, or configured otherwise.
    made_of = hashlib.sha256(tarball.read_bytes() + repr((CONFIGURE, GENERATED)).encode())
    name = tarball.name.partition(".tar")[0]
    place = base / f"{name}-{made_of.hexdigest()[:16]}"
    with (base / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            with TemporaryDirectory(dir=base) as empty:
                _make(tarball, Path(empty))
                (Path(empty) / "made").rename(place)
    return Release(name.removeprefix("slurm-"), place / "source", place / "built")


def _make(tarball: Path, empty: Path) -> None:
    """Unpack and configure a release in `made` of an empty directory."""
    made = empty / "made"
    source, built = made / "source", made / "built"
    built.mkdir(parents=True)
    with tarfile.open(tarball) as packed:
        packed.extractall(empty / "packed", filter="data")
    next((empty / "packed").iterdir()).rename(source)
    for part in ("testsuite", "doc"):
        shutil.rmtree(source / part, ignore_errors=True)
    for command in ([source / "configure", *CONFIGURE], ["./config.status", *GENERATED]):
        done = subprocess.run(
            command, cwd=built, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, f"{tarball}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    headers = built / "include/slurm"
    headers.mkdir(parents=True)
    for header in (*(source / "slurm").glob("*.h"), built / "slurm/slurm_version.h"):
        shutil.copy(header, headers)
