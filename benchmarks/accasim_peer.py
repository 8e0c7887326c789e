"""Run AccaSim on an SWF file, for comparison, in a virtual environment of its own.

    python benchmarks/accasim_peer.py FILE.swf PROCESSORS DIRECTORY

AccaSim 1.1 was written for Python 3.3 to 3.9: `collections.Mapping` is gone since 3.10.

References
----------
Galleguillos, Kiziltan, Netti, Soto, 2020: AccaSim: a customizable workload management simulator.
"""

from __future__ import annotations

import collections
import collections.abc
import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Simulate EASY backfilling with first-fit allocation.

    The machine is one node with all processors: AccaSim is many times slower with as many nodes,
    and its schedule is the same.
    """
    log, processors, directory = Path(sys.argv[1]).resolve(), int(sys.argv[2]), Path(sys.argv[3])
    os.chdir(directory)
    collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]
    from accasim.base.allocator_class import FirstFit
    from accasim.base.scheduler_class import EASYBackfilling
    from accasim.base.simulator_class import Simulator

    system = {
        "system_name": "benchmark",
        "start_time": 0,
        "equivalence": {"processor": {"core": 1}},
        "groups": {"g0": {"core": processors}},
        "resources": {"g0": 1},
    }
    Path("system.json").write_text(json.dumps(system))
    Simulator(
        str(log),
        "system.json",
        EASYBackfilling(FirstFit()),
        RESULTS_FOLDER_PATH=str(Path.cwd()),
        pprint_output=False,
        benchmark_output=False,
        statistics_output=False,
        scheduling_output=True,
    ).start_simulation()


if __name__ == "__main__":
    main()
