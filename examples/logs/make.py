"""Make cluster.swf.gz: ten synthetic weeks of a small cluster, as its plain FCFS loop ran it.

    python examples/logs/make.py [FILE]

The jobs come from the model of Lublin and Feitelson (`rtsched synth lublin`), which knows no
starts; so that the log has some, like a site's own, the simulated FCFS loop fills them in.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rtsched.logs.swf import write
from rtsched.replay.engine import replay
from rtsched.replay.policies import presets
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.synth import Lublin
from rtsched.replay.workload import prepare

MODEL = Lublin(jobs=2500, nodes=128, seed=2, load=0.55, users=24, accounts=5)
NOTE = "made by rtsched: model of Lublin and Feitelson, starts by a simulated FCFS loop"


def main(path: Path) -> None:
    """Write the log to `path`."""
    log = MODEL.log()
    workload = prepare(log, WorkloadOptions(deadline_rule="none"))
    done = replay(workload, "fcfs", presets()["fcfs"], record_nodes=False).results
    outcomes = workload.outcomes.replace(start=done.start, end=done.end)
    header = {**MODEL.header(), "Note": NOTE}
    write(path, workload.jobs, outcomes, cluster=workload.cluster, header=header)


if __name__ == "__main__":
    named = sys.argv[1:]
    main(Path(named[0]) if named else Path(__file__).with_name("cluster.swf.gz"))
