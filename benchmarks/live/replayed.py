"""The stream that was played, replayed in the simulated batch system; and the accounting, too."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from measure import NODES

from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Edges, Jobs, Kind, Periodic
from rtsched.model.log import FinalState, Outcomes, Skipped
from rtsched.model.snapshot import Accounts
from rtsched.replay.engine import replay
from rtsched.replay.measures import measure
from rtsched.replay.policies import presets
from rtsched.replay.results import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workload_driver import Reply


def admitted(
    replies: Sequence[Reply],
    begun: float,
    policy: str,
    margins: tuple[float, float],
    periodic: Sequence[Mapping[str, float]] = (),
) -> dict[str, float]:
    """Return what a replay of the same submissions at the same times admits.

    Parameters
    ----------
    replies : sequence of Reply
        Best-effort jobs and those with deadlines.
    begun : float
        Start of the stream, seconds since the epoch.
    policy : str
        A preset.
    margins : (float, float)
        Seconds by which a plan lets a job outlive its limit, and the same where its size is open.
    periodic : sequence of mapping
        Columns of the recurring work, by node.
    """
    workload = _workload(replies, begun, margins, periodic)
    run = replay(workload, policy, presets()[policy])
    values = measure(workload, run.results)
    asked = np.isfinite(workload.jobs.deadline)
    rejected = np.equal(run.results.fate, FinalState.REJECTED)
    return {
        "admitted": int((asked & ~rejected).sum()),
        "rejected": int((asked & rejected).sum()),
        "missed": int(values["missed"] or 0),
    }


def _workload(
    replies: Sequence[Reply],
    begun: float,
    margins: tuple[float, float],
    periodic: Sequence[Mapping[str, float]],
) -> Workload:
    ordered = [one for one in sorted(replies, key=lambda one: one.at) for _ in range(one.work.jobs)]
    number = {one.work.name: at + 1 for at, one in enumerate(ordered)}
    rows = [_row(one, begun, margins) for one in ordered]
    columns: dict[str, Any] = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    run_time = columns.pop("run_time")
    graphs = {name: at for at, name in enumerate(sorted(map(_graph, ordered)))}
    dag = [graphs[_graph(one)] if one.work.kind == "chain" else -1 for one in ordered]
    jobs = Jobs.build(len(rows), id=np.arange(len(rows)) + 1, dag=np.array(dag), **columns)
    links = [(number[s.work.before], number[s.work.name]) for s in ordered if s.work.before]
    edges = Edges.build(
        len(links),
        before=np.array([link[0] for link in links], np.int64),
        after=np.array([link[1] for link in links], np.int64),
    )
    work: dict[str, Any] = {
        name: np.array([row[name] for row in periodic]) for name in (periodic or [{}])[0]
    }
    return Workload(
        jobs,
        run_time,
        Outcomes.build(len(rows)),
        Cluster.uniform(NODES),
        Accounts.build(0),
        edges,
        (),
        Skipped(),
        periodic=Periodic.build(len(periodic), **work),
    )


def _graph(reply: Reply) -> str:
    return reply.work.name.rpartition("-")[0]


def _row(reply: Reply, begun: float, margins: tuple[float, float]) -> dict[str, float]:
    """Return a job's columns; the run time is that on `size` nodes, as the simulation has it."""
    work = reply.work
    narrow, wide = margins
    part = work.part * work.slow
    deadline = begun + work.at + work.deadline
    row = {
        "submit": reply.at,
        "deadline": deadline,
        "kind": Kind.RIGID,
        "size": work.least,
        "size_min": -1,
        "size_max": -1,
        "wall_time": work.minutes * 60.0 + narrow,
        "run_time": work.minutes * 60.0 * part,
        "sigma": math.nan,
        "cms": math.nan,
        "cps": math.nan,
        "setup_link": 0.0,
        "setup_node": 0.0,
    }
    if work.kind == "moldable":
        row |= {"kind": Kind.MOLDABLE, "size_min": work.least, "size_max": work.most}
        row["wall_time"] = work.minutes * 60.0 + wide * work.most / work.least
    if work.load is not None:
        row |= {"kind": Kind.DIVISIBLE, "size_min": work.least, "size_max": work.most}
        row |= {"sigma": work.load.sigma, "cms": work.load.cms, "cps": work.load.cps}
        row["setup_node"] = wide
        row["wall_time"] = work.load.seconds(work.least) + wide
        row["run_time"] = work.load.seconds(work.least) * part
    return row


def accounting(text: str, machine: str, site: str, policy: str) -> dict[str, Any]:
    """Return what `rtsched replay` says of a run's accounting: read, left out, promised.

    Parameters
    ----------
    text, machine : str
        The log, and the nodes.
    site : str
        Lines of a site.toml, of which the first are of the `[workload]` table.
    policy : str
        A preset, or one of the site's.
    """
    with tempfile.TemporaryDirectory() as directory:
        files = {"log": text, "nodes": machine}
        files["site.toml"] = f"[workload]\n{site}\n"
        for name, content in files.items():
            (Path(directory) / name).write_text(content)
        words = [sys.executable, "-m", "rtsched", "replay", "log", "--cluster", "nodes"]
        words += ["--policy", policy, "--config", "site.toml", "--no-out", "--no-report"]
        words += ["--timezone", "UTC", "--no-progress", "--json"]
        done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"rtsched replay: {done.stderr.strip()}")
    reply = json.loads(done.stdout)
    of_log, of_policy = reply["log"], reply["policies"][policy]
    return {
        "jobs read": of_log["jobs"],
        "left out": sum(each["records"] for each in of_log["skipped"].values()),
        "asked": of_log["jobs_with_deadline"],
        "admitted": of_policy["promises"],
        "rejected": of_policy["rejected"],
        "met": of_log["jobs_with_deadline"] - of_policy["rejected"] - of_policy["missed"],
        "missed": of_policy["missed"],
        "utilisation": of_policy["utilisation"],
    }
