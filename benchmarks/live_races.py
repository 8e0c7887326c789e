"""Have best-effort jobs and jobs with deadlines race for the nodes of a real Slurm.

    python benchmarks/live_races.py [--races N] [--nodes N] [--share-nodes] [--lua] [--cycle S]

In each round bob submits as many best-effort jobs as there are nodes, or half as many, while alice
asks for ten promises that leave no time to wait (tests/live/racing.py). Printed is how many were
promised, rejected at once, or held for the next poll; how many promises broke since they were given
on nodes that were taken already, and how many since a job started after the answer. The exit status
is 1 if a promise broke by a stale state, or a job of others was stopped. It needs root on Linux
with debootstrap, as tests/testbed does.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "live")]

from promising import QUICK, SITE, SUBMIT_CONF, Live  # noqa: E402
from racing import Races, race  # noqa: E402
from testbed import Cluster, SlurmOptions  # noqa: E402

IN_A_ROUND = 10
"""Submissions with a deadline."""


def raced(given: argparse.Namespace) -> Races:
    """Return what came of so many races."""
    lua = (ROOT / "contrib" / "slurm" / "job_submit.lua").read_text()
    options = SlurmOptions(
        fast=0,
        slow=given.nodes,
        hardware={"slow": "CPUs=4 RealMemory=1000"},
        job_submit=("lua",) if given.lua else ("rtsched",),
        job_submit_lua=lua,
        settings={"SchedulerParameters": "bf_interval=5", "ReturnToService": "1"},
    )
    site = SITE.replace("cycle = 1", f"cycle = {given.cycle:g}")
    site += "unused_offers_per_hour = 1000\n"
    site += "[slurm]\nshare_nodes = true\n" if given.share_nodes else ""
    races, rng = Races(), random.Random(given.seed)  # noqa: S311
    with Cluster("forky", options, files={SUBMIT_CONF: QUICK}) as cluster:
        cluster.start_daemon(site)
        live = Live(cluster)
        live.wait_usable(given.nodes)
        while len(races.seconds) < given.races:
            race(live, races, rng, given.nodes, IN_A_ROUND)
            print(json.dumps(races.figures()), file=sys.stderr, flush=True)
    return races


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--races", type=int, default=500, help="submissions; default: 500")
    parser.add_argument("--nodes", type=int, default=30, help="default: 30")
    parser.add_argument("--share-nodes", action="store_true", help="jobs share nodes")
    parser.add_argument("--lua", action="store_true", help="the submit filter in Lua")
    parser.add_argument(
        "--cycle", type=float, default=5.0, help="seconds between polls; default: 5"
    )
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn; default: 1")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    races = raced(given)
    if given.json:
        print(json.dumps(races.figures() | {"stale": races.stale, "overtaken": races.overtaken}))
    else:
        for name, value in races.figures().items():
            print(f"{name}: {value}")
        for text in (*races.stale, *races.overtaken):
            print(f"  {text}")
    return 1 if races.stale or races.requeued else 0


if __name__ == "__main__":
    sys.exit(main())
