"""How many jobs policies promise of the most that could end in time, in small cuts of a log.

    python benchmarks/offline_optimum.py LOG... [--jobs N] [--windows N] [--policy NAME]...

A window is some jobs of the log, one after the other, on an idle machine that is as large as the
widest of them. Each runs for the time that it requests and is due four times that after its
submission. The optimum knows all of them beforehand; CP-SAT finds it and proves it, and windows in
which it does not within ten seconds are left out and counted. The policies are replayed as `rtsched
replay` does it.

The exit status is 1 if a policy ends more jobs in time than the optimum.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from rtsched.logs.readers import ReadOptions, read_logs
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.log import Outcomes, Skipped
from rtsched.model.snapshot import Accounts
from rtsched.replay.engine import replay
from rtsched.replay.measures import measure
from rtsched.replay.policies import presets
from rtsched.replay.results import Workload
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.workload import prepare

POLICIES = ("mcdf", "edf-mn", "spare-uf", "portfolio", "portfolio-run", "edf-easy-admit")
PATIENCE = 10.0
"""Seconds after which the search for an optimum is given up."""


def windows(path: Path, jobs: int, count: int) -> list[Workload]:
    """Return windows of a log, evenly apart, in which jobs run for as long as they request."""
    whole = prepare(read_logs([path], ReadOptions()), WorkloadOptions()).jobs
    found = []
    for first in np.linspace(0, len(whole) - jobs, count).astype(int).tolist():
        cut = whole.take(np.arange(first, first + jobs))
        names = ("id", "submit", "size", "wall_time", "deadline")
        cut = Jobs.build(jobs, **{name: cut.column(name) for name in names})
        machine = (Cluster.uniform(int(cut.size.max())), Accounts.build(0), Edges.build(0))
        found.append(Workload(cut, cut.wall_time, Outcomes.build(jobs), *machine, (), Skipped()))
    return found


def optimum(work: Workload, patience: float = PATIENCE) -> int | None:
    """Return the most jobs of a window that can all end in time; None: not found or not proved.

    Times are whole seconds.
    """
    cp: Any = importlib.import_module("ortools.sat.python.cp_model")
    jobs, model = work.jobs, cp.CpModel()
    runs, intervals = [], []
    begin = jobs.submit.min()
    for row in range(len(jobs)):
        seconds = int(jobs.wall_time[row])
        submit, due = int(jobs.submit[row] - begin), int(jobs.deadline[row] - begin)
        start = model.new_int_var(submit, max(due - seconds, submit), "")
        run = model.new_bool_var("")
        if due - seconds < submit:
            model.add(run == 0)
        intervals.append(model.new_optional_fixed_size_interval_var(start, seconds, run, ""))
        runs.append(run)
    model.add_cumulative(intervals, jobs.size.tolist(), len(work.cluster))
    model.maximize(sum(runs))
    solver = cp.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = patience, 1
    return round(solver.objective_value) if solver.solve(model) == cp.OPTIMAL else None


def main() -> int:
    """Search, replay and print; 1 if a policy does better than the optimum."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--windows", type=int, default=200)
    parser.add_argument("--policy", action="append")
    given = parser.parse_args()
    policies, wrong = given.policy or list(POLICIES), False
    for log in given.logs:
        best = left_out = full = 0
        promised, in_time = dict.fromkeys(policies, 0), dict.fromkeys(policies, 0)
        for work in windows(log, given.jobs, given.windows):
            most = optimum(work)
            if most is None:
                left_out += 1
                continue
            best, full = best + most, full + (most == given.jobs)
            for name in policies:
                found = measure(work, replay(work, name, presets()[name]).results)
                kept, ended = int(found["promises_kept"] or 0), int(found["in_time"] or 0)
                promised[name], in_time[name] = promised[name] + kept, in_time[name] + ended
                wrong = wrong or max(kept, ended) > most
        count = given.windows - left_out
        print(
            f"{log.name}: {best} of {given.jobs * count} jobs can end in time, in {full} of "
            f"{count} windows all; {left_out} windows left out"
        )
        for name in policies:
            shares = [100 * counted[name] / best for counted in (promised, in_time)]
            print(f"  {name:16} {shares[0]:.1f} % promised, {shares[1]:.1f} % in time")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
