"""Where the filter's sources are, and what they are built with."""

import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMON, SLURM, PROGRAMS = ROOT / "contrib/common", ROOT / "contrib/slurm", ROOT / "tests/contrib/c"

_MAKEFILE = (SLURM / "Makefile").read_text().replace("\\\n", " ")
FILTER = [
    (SLURM / name).resolve()
    for line in re.findall(r"^SOURCES = (.*)$", _MAKEFILE, re.MULTILINE)
    for name in line.split()
]
"""As the Makefile lists them."""

ADDRESSES = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
THREADS = ("-fsanitize=thread",)

Build = Callable[..., Path]
"""What the fixture `build` gives."""
