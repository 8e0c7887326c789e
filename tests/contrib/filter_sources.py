"""Where the filter's sources are, and what they are built with."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMON, SLURM, PROGRAMS = ROOT / "contrib/common", ROOT / "contrib/slurm", ROOT / "tests/contrib/c"
FILTER = [*sorted(SLURM.glob("*.c")), *sorted(COMMON.glob("*.c"))]
ADDRESSES = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
THREADS = ("-fsanitize=thread",)


def slurm_headers() -> list[Path]:
    """Return directories that hold Slurm's public headers: one per release, the newest last."""
    named = os.environ.get("RTSCHED_SLURM_INCLUDE")
    places = [Path(named)] if named else []
    places += [*Path("/var/cache/rtsched-testbed").glob("*/usr/include"), Path("/usr/include")]
    found = {}
    for place in places:
        if (place / "slurm/slurm.h").exists():
            version = (place / "slurm/slurm_version.h").read_text()
            found[int(re.findall(r"VERSION_NUMBER (0x\w+)", version)[0], 16)] = place
    return [found[release] for release in sorted(found)]
