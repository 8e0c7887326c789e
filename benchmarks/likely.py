"""How many jobs get likely promises where all ask for a deadline, and how many of them are kept.

    python benchmarks/likely.py LOG [--cluster FILE --unit resources] [--rule run_time:4]...
        [--order deadline] [--load F] [--jobs N] [--draws N] [--horizon DAYS] [--step S]
        [--plot FILE] [--json]

The log is replayed under EASY, with deadlines for all by the rule, and with `--load 1.25` in four
fifths of its time. Beside EASY in order of submission and in order of deadlines, four runs:

* `guaranteed`: all ask for a guarantee, the planner is that of the preset `portfolio`;
* `likely`: all ask for odds of 95 %. A job with enough odds is accepted; all run as best effort, in
  order of submission, the rejected ones too. With `--order deadline` those that were accepted and
  wait change places among themselves, the earliest deadline first; a job is judged at the place
  that it would get, and the others keep theirs;
* `half`: those with an even id ask for a guarantee, the others for odds of 95 %;
* `mixed`: all ask for odds, 80, 90, 95 or 99 % by their ids. This one is drawn.

Odds are those of the daemon: of `rtsched.estimates.Estimator`, whose state is at most 30 s old,
against the threshold of `rtsched.estimates.calibration`, which learns from the promises before. At
each instant only what was known then is used. The first third of the log's time is there to learn
from, the rest is counted. Blocks are of 500 promises with odds, in the order in which they were
given; a block holds if 92 % or more were kept. In time are those of all jobs, with a promise or
without, that ended by their deadlines.

The exit status is 1 if a guaranteed promise was broken.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rtsched.core.decision import admission_actions, judge
from rtsched.errors import RtschedError
from rtsched.estimates.calibration import STEP, LikelyLevel
from rtsched.estimates.estimator import Estimator
from rtsched.estimates.settings import EstimateSettings
from rtsched.logs.cluster_files import read_cluster
from rtsched.logs.readers import ReadOptions, read_logs
from rtsched.model.actions import Admit, Reject, SetPriority
from rtsched.model.log import Log
from rtsched.replay.engine import replay
from rtsched.replay.planners import load_chain
from rtsched.replay.policies import presets
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.workload import prepare
from rtsched.report.reliability import reliability, reliability_drawing
from rtsched.simulator.interface import StaticAnswers, StopConditions
from rtsched.simulator.machines import simulate
from rtsched.simulator.settings import ExclusiveSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.replay.results import Workload

LEARNT = 1 / 3
"""Part of the log's time that is not counted."""

STATED = 0.95
MIXED = np.array([0.8, 0.9, 0.95, 0.99])
BLOCK, HOLDS = 500, 0.92
"""Promises of a block, and the share that is to be kept in each where 95 % were stated."""

PLANNER = "portfolio"
"""The preset by which guarantees are given."""

QUEUES = ("easy", "edf-easy")
"""The presets without promises."""

GRACE = 1.0
"""Seconds after a deadline that do not count, as in replays."""


@dataclass
class Run:
    """One replay in which jobs ask for odds, and maybe others for guarantees.

    Attributes
    ----------
    workload : Workload
        With deadlines.
    stated : float64[n]
        Odds that each job asks for; nan: it asks for a guarantee.
    settings : EstimateSettings
        Of the odds.
    level : LikelyLevel
        From which raw odds on jobs are accepted.
    by_deadline : bool
        Whether likely promises that wait change places, the earliest deadline first.
    """

    workload: Workload
    stated: NDArray[np.float64]
    settings: EstimateSettings
    level: LikelyLevel
    by_deadline: bool = False

    def __post_init__(self) -> None:
        work, n = self.workload, len(self.workload.jobs)
        self.likely = np.isfinite(self.stated)
        self.deadline = work.jobs.deadline
        jobs = work.jobs.replace(
            id=np.arange(n), deadline=np.where(self.likely, np.inf, self.deadline)
        )
        self.policy = presets()[PLANNER]
        if not isinstance(self.policy.system, ExclusiveSettings):
            raise TypeError("the preset runs on another machine")
        self.place = np.arange(n, dtype=np.float64)
        """Of each job in the queue; the lowest is the first."""
        order = "priority" if self.by_deadline else "arrival"
        system = msgspec.structs.replace(self.policy.system, rejected="run", order=order)
        self.guarantees = not self.likely.all()
        self.chain, problems = load_chain(
            self.policy, periodic=False, resources=work.cluster.shared
        )
        if problems:
            raise SystemExit("; ".join(problems))
        self.machine = simulate(
            jobs,
            work.run_time,
            work.cluster,
            system,
            stop_at=StopConditions(arrivals=True, early_ends=self.guarantees),
            static=StaticAnswers(priority=-self.place),
        )
        self.jobs = jobs
        self.estimator = Estimator(self.settings, self.policy.system, answer_within=np.inf)
        self.refreshed, self.first = -np.inf, 0
        """When the state was last taken, and the first job that came after that."""
        self.accepted = np.zeros(n, np.bool_)
        self.promised = np.full(n, np.inf)
        self.unlearnt = np.zeros(0, np.int64)
        """Accepted jobs that have not ended."""
        self.unjudged = np.zeros(n, np.bool_)
        """Likely promises of which the outcome is not known yet."""

    def go(self) -> None:
        """Run to the end."""
        while not (point := self.machine.advance()).done:
            rows = point.arrivals
            guaranteed = rows[~self.likely[rows]]
            if len(guaranteed) or (self.guarantees and point.early_end):
                self._judge(guaranteed)
            if len(rows):
                self._learn(point.time)
            for row in rows[self.likely[rows]].tolist():
                self._ask(row)

    def _judge(self, rows: NDArray[np.int64]) -> None:
        """Have the planner judge jobs that ask for a guarantee, or, without any, its plan."""
        jobs = self.jobs.take(rows)
        judgement = judge(self.machine.snapshot({}), self.chain, jobs)
        self.machine.apply(admission_actions(jobs, judgement.verdicts))
        promise = judgement.verdicts.promise
        good = np.isfinite(promise)
        self.accepted[rows[good]], self.promised[rows[good]] = True, promise[good]
        self.unlearnt = np.append(self.unlearnt, rows[good])

    def _ask(self, row: int) -> None:
        """Accept or reject a job that asks for odds."""
        odds, place = self._in_order(row) if self.by_deadline else (self._odds(row), self.place)
        if odds >= self.level.threshold(float(self.stated[row])):
            self.machine.apply([Admit(np.array([row]), np.full(1, np.inf))])
            moved, self.place = np.flatnonzero(place != self.place), place
            if len(moved):
                self.machine.apply([SetPriority(moved, -place[moved])])
            self.accepted[row] = self.unjudged[row] = True
            self.unlearnt = np.append(self.unlearnt, row)
        else:
            self.machine.apply([Reject(np.array([row]), np.full(1, np.inf), ("",))])

    def _odds(self, row: int) -> float:
        """Return the raw odds that a job, submitted now, ends by its deadline."""
        snapshot = self.machine.snapshot({})
        if snapshot.now >= self.refreshed + self.settings.refresh:
            self.estimator.refresh(snapshot)
            self.refreshed, self.first = snapshot.now, row
        job = self.jobs.take([row]).replace(deadline=self.deadline[[row]])
        there = np.concatenate([snapshot.queued.id, snapshot.running.id])
        since = self.jobs.take(np.sort(there[there >= self.first]))
        return float(self.estimator.odds(job, since)[0])

    def _in_order(self, row: int) -> tuple[float, NDArray[np.float64]]:
        """Return raw odds as `_odds`, and the places of all jobs by which they hold."""
        snapshot = self.machine.snapshot({})
        queued = snapshot.queued.with_rows(self.jobs.take([row]))
        ids = queued.id
        open_ = self.accepted[ids] & self.likely[ids] & (self.deadline[ids] > snapshot.now)
        rows = ids[open_ | (ids == row)]
        place = self.place.copy()
        place[rows] = in_deadline_order(place[rows], self.deadline[rows])
        due = np.where(ids == row, self.deadline[row], np.inf)
        after = replace(snapshot, queued=queued.replace(deadline=due))
        return float(self.estimator.refresh(after, order=-place[ids]).odds[-1]), place

    def _learn(self, now: float) -> None:
        """Learn which jobs have ended, and which likely promises were kept."""
        rows = self.unlearnt
        start, run_time = self.machine.starts()[rows], self.workload.run_time[rows]
        end = start + run_time
        ended = end <= now
        if ended.any():
            over = rows[ended]
            outcomes = self.workload.outcomes.take(over).replace(
                start=start[ended], end=end[ended], run_time=run_time[ended]
            )
            work = self.workload
            self.estimator.learn(Log(self.jobs.take(over), outcomes, work.sources, work.format))
        due = self.deadline[rows] + GRACE
        known = np.flatnonzero(self.unjudged[rows] & (ended | (now > due)))
        at = np.where(ended[known], end[known], np.inf)
        order = known[np.argsort(np.minimum(at, due[known]), kind="stable")]
        kept = ended[order] & (end[order] <= due[order])
        stated = self.stated[rows[order]].tolist()
        self.level = self.level.learnt(zip(stated, kept.tolist(), strict=True))
        self.unjudged[rows[order]] = False
        self.unlearnt = rows[~ended]

    def in_time(self) -> NDArray[np.bool_]:
        """Return who ended by the deadline, or, accepted with a guarantee, by what was promised."""
        due = np.where(self.accepted & ~self.likely, self.promised, self.deadline)
        return ends_by(self.machine.job_outcomes().end, due)


def in_deadline_order(
    place: NDArray[np.float64], deadline: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the places of jobs that change among themselves: the earliest deadline first."""
    new = np.empty(len(place))
    new[np.argsort(deadline, kind="stable")] = np.sort(place)
    return new


def ends_by(end: NDArray[np.float64], due: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which jobs ended in time, bool[n]; an end that is nan is none."""
    return np.asarray(np.nan_to_num(end, nan=np.inf) <= due + GRACE)


def blocks(kept: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the share kept of each full block of promises, in the order of their answers."""
    full = len(kept) // BLOCK
    return np.asarray(kept[: full * BLOCK].reshape(full, BLOCK).mean(axis=1))


def prepared(given: argparse.Namespace, rule: str) -> Workload:
    """Return the log as a workload, or its first jobs."""
    shared = given.unit == "resources"
    options = WorkloadOptions(deadline_rule=rule, **({"unit": given.unit} if given.unit else {}))
    log = read_logs([given.log], ReadOptions(timezone="UTC", resources=shared))
    work = prepare(log, options, read_cluster(given.cluster)[0] if given.cluster else None)
    submit = work.jobs.submit
    earlier = (submit - submit[0]) * (1.0 - 1.0 / given.load)
    jobs = work.jobs.replace(submit=submit - earlier, deadline=work.jobs.deadline - earlier)
    work = replace(work, jobs=jobs)
    if not given.jobs or given.jobs >= len(work.jobs):
        return work
    rows = np.arange(given.jobs)
    return replace(
        work,
        jobs=work.jobs.take(rows),
        run_time=work.run_time[rows],
        outcomes=work.outcomes.take(rows),
    )


def measured(given: argparse.Namespace, rule: str) -> tuple[dict[str, Any], Any]:
    """Return the figures of one log and rule, and what was stated and kept in the mixed run."""
    work = prepared(given, rule)
    submit, ids = work.jobs.submit, work.jobs.id
    counts = submit >= submit[0] + LEARNT * (submit[-1] - submit[0])
    counted = max(int(counts.sum()), 1)
    alone = {
        name: replay(work, name, presets()[name], record_nodes=False).results
        for name in (PLANNER, *QUEUES)
    }
    results = alone[PLANNER]
    promised = np.isfinite(results.promise) & counts
    good = promised & ends_by(results.end, results.promise)
    row: dict[str, Any] = {
        "rule": rule,
        "jobs": len(work.jobs),
        "counted": counted,
        "guaranteed": int(promised.sum()),
        "guaranteed_broken": int((promised & ~good).sum()),
    } | {
        f"{name}.in_time": int((counts & ends_by(alone[name].end, work.jobs.deadline)).sum())
        for name in QUEUES
    }
    n = len(ids)
    asks = {
        "likely": np.full(n, STATED),
        "half": np.where(ids % 2 == 0, np.nan, STATED),
        "mixed": MIXED[ids % len(MIXED)],
    }
    drawn = None
    settings = EstimateSettings(draws=given.draws, horizon_days=given.horizon, longest=np.inf)
    for name in given.run or asks:
        begun = time.perf_counter()
        level = LikelyLevel(given.step)
        run = Run(work, asks[name], settings, level, by_deadline=given.order == "deadline")
        run.go()
        kept, of = run.in_time(), run.accepted & counts
        row[f"{name}.in_time"] = int((kept & counts).sum())
        for kind, rows in (("likely", of & run.likely), ("guaranteed", of & ~run.likely)):
            if rows.any():
                row[f"{name}.{kind}"] = int(rows.sum())
                row[f"{name}.{kind}_kept"] = float(kept[rows].mean())
                row[f"{name}.{kind}_broken"] = int((rows & ~kept).sum())
        shares = blocks(kept[of & run.likely])
        row[f"{name}.blocks"] = [round(share, 3) for share in shares.tolist()]
        row[f"{name}.levels"] = {
            str(stated): round(run.level.threshold(stated), 3) for stated in run.level.shifts
        }
        row[f"{name}.s"] = round(time.perf_counter() - begun, 1)
        if name == "mixed":
            drawn = reliability(run.stated[of], kept[of])
            row["mixed.stated"] = [
                [round(float(x), 3) for x in point]
                for point in zip(drawn.stated, drawn.promises, drawn.kept, strict=True)
            ]
        print(f"{rule} {name}: {row[f'{name}.s']} s", file=sys.stderr, flush=True)
    return row, drawn


def line(name: str, row: dict[str, Any]) -> str:
    """Return a row of the table."""
    asked, sure = row["counted"], row["guaranteed"]
    cells = [name, f"`{row['rule']}`", f"{asked:,}", f"{sure:,} ({100 * sure / asked:.1f} %)"]
    if "likely.likely" in row:
        many = row["likely.likely"]
        cells += [
            f"{many:,} ({100 * (many / max(sure, 1) - 1):+.1f} %)",
            f"{100 * row['likely.likely_kept']:.1f} %",
            *of_blocks(row["likely.blocks"]),
            f"{row['likely.in_time']:,}",
        ]
    cells += [f"{row[f'{name}.in_time']:,}" for name in QUEUES]
    if "half.likely" in row:
        cells += [
            f"{row['half.guaranteed']:,}, {row['half.guaranteed_broken']} broken",
            f"{row['half.likely']:,}, {100 * row['half.likely_kept']:.1f} % kept",
        ]
    return f"| {' | '.join(cells)} |"


def of_blocks(shares: list[float]) -> tuple[str, str]:
    """Return the cells of the least share kept in a block, and of how many blocks hold."""
    if not shares:
        return "", ""
    hold = sum(share >= HOLDS for share in shares)
    return f"{100 * min(shares):.1f} %", f"{hold} of {len(shares)}"


def main() -> int:
    """Read the command line, measure, print; return the exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("log")
    parser.add_argument("--cluster", help="what scontrol show nodes printed")
    parser.add_argument("--unit", help="as of `rtsched replay`")
    parser.add_argument("--rule", action="append", help="default: run_time:4 and slowdown:4")
    parser.add_argument("--run", action="append", choices=("likely", "half", "mixed"))
    parser.add_argument("--order", choices=("arrival", "deadline"), default="arrival")
    parser.add_argument("--load", type=float, default=1.0, help="times as many jobs in a time")
    parser.add_argument("--jobs", type=int, default=0, help="the first ones of the log; 0: all")
    parser.add_argument("--draws", type=int, default=16)
    parser.add_argument("--horizon", type=float, default=14.0, help="days that are simulated ahead")
    parser.add_argument("--step", type=float, default=STEP, help="of the threshold")
    parser.add_argument("--plot", type=Path, help="where the mixed run of the last rule is drawn")
    parser.add_argument("--json", action="store_true", help="print the figures, one line a rule")
    given = parser.parse_args()
    if given.plot and given.run and "mixed" not in given.run:
        parser.error("--plot draws the mixed run; add --run mixed")
    try:
        return shown(given)
    except RtschedError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 2


def shown(given: argparse.Namespace) -> int:
    """Measure and print each rule; return 1 if a guaranteed promise was broken."""
    name = Path(given.log).name.split(".")[0]
    broken = 0
    for rule in given.rule or ("run_time:4", "slowdown:4"):
        row, drawn = measured(given, rule)
        print(json.dumps(row) if given.json else line(name, row), flush=True)
        broken += row["guaranteed_broken"] + row.get("half.guaranteed_broken", 0)
        if given.plot and drawn is not None:
            given.plot.write_text(reliability_drawing(drawn) + "\n")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
