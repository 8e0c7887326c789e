"""Where there are headers of a packaged Slurm."""

from pathlib import Path

from testbed import unavailable
from testbed.images import packages


class NoHeadersError(Exception):
    """There are none; the text says what would help."""


def headers(suite: str) -> Path:
    """Return the directory that holds the headers of a Debian suite's Slurm, or this machine's.

    Raises
    ------
    NoHeadersError
        If there are neither.
    """
    cause = unavailable()
    if not cause:
        places = [layer / "usr/include" for layer in packages(suite).ready()]
        return next(place for place in places if (place / "slurm/slurm.h").exists())
    if not Path("/usr/include/slurm/slurm.h").exists():
        raise NoHeadersError(
            f"there are no headers of Slurm (install libslurm-dev), nor a test cluster: {cause}"
        )
    return Path("/usr/include")


def alone(include: Path, place: Path) -> Path:
    """Return a directory, `place`, that holds Slurm's headers and no others."""
    place.mkdir(exist_ok=True)
    (place / "slurm").symlink_to(include / "slurm")
    return place
