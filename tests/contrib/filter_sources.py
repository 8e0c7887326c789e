"""Where the filter's sources are, and what they are built with."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMON, SLURM, PROGRAMS = ROOT / "contrib/common", ROOT / "contrib/slurm", ROOT / "tests/contrib/c"
FILTER = [*sorted(SLURM.glob("*.c")), *sorted(COMMON.glob("*.c"))]
ADDRESSES = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
THREADS = ("-fsanitize=thread",)
