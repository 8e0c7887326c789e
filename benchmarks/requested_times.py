"""Give the jobs of a log in SWF requested times where they have none.

    python benchmarks/requested_times.py LOG [--factor F] > NEW

Models of workloads have none. A replay then lets the run time stand in, and start estimates would
know how long each job runs. Here a job requests from its run time to 1 + F times as much, all
equally likely, in whole minutes; the same at each call.

References
----------
Mu'alem, Feitelson, "Utilization, predictability, workloads, and user runtime estimates in
scheduling the IBM SP2 with backfilling", IEEE TPDS 12(6), 2001: the f-model.
"""

from __future__ import annotations

import argparse
import gzip
import math
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RUN, REQUESTED = 3, 8
"""Fields of SWF, from 0."""


def requested(lines: Iterable[str], factor: float) -> Iterator[str]:
    """Yield the lines of a log with the requested times that are missing."""
    chance = random.Random(1)  # noqa: S311
    for line in lines:
        fields = line.split()
        if len(fields) > REQUESTED and not line.startswith(";"):
            run = float(fields[RUN])
            if float(fields[REQUESTED]) <= 0 < run:
                asked = run * (1.0 + factor * chance.random())
                fields[REQUESTED] = str(60 * math.ceil(asked / 60.0))
            yield " ".join(fields) + "\n"
        else:
            yield line


def main() -> None:
    """Write the log to standard output."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("--factor", type=float, default=4.0)
    given = parser.parse_args()
    opened = gzip.open if given.log.suffix == ".gz" else open
    with opened(given.log, "rt", encoding="utf-8") as log:
        sys.stdout.writelines(requested(log, given.factor))


if __name__ == "__main__":
    main()
