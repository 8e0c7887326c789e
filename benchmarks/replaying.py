"""Whole-process replay: rtsched with and without plug-ins beside its peers, on the same trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from measuring import HERE, ChildError, Used, run_alone, script
from traces import head

if TYPE_CHECKING:
    from collections.abc import Callable

    from traces import Trace

TARGET, TARGET_MB = 200_000, 400
"""Jobs per second and MiB to reach with the four plug-ins."""

PLUGGED, PLAIN, BARE = "rtsched, 4 hooks", "rtsched, no plug-in", "bare Python loop"


def rtsched(policy: str, path: Path) -> list[str | Path]:
    """Return the command that replays a log under one policy."""
    options = ("--policy", policy, "--json", "--no-out", "--no-progress")
    command = (sys.executable, "-m", "rtsched", "replay", path, "--config", HERE / "chain.toml")
    return [*command, *options]


def compare(trace: Trace, directory: Path, runs: int, peer_jobs: int) -> dict[str, Any]:
    """Return what each contestant took and made of a trace.

    The contestants take turns, so that a slow moment of the machine meets all alike.
    """
    warm, _ = head(trace, directory, 1000)
    for policy in ("chain", "easy"):
        run_alone(rtsched(policy, warm))  # compiles what is not compiled yet
    contestants: dict[str, Callable[[], Used]] = {
        PLUGGED: lambda: run_alone(rtsched("chain", trace.path)),
        PLAIN: lambda: run_alone(rtsched("easy", trace.path)),
        BARE: lambda: run_alone(script("bare.py", trace.path)),
    }
    used: dict[str, list[Used]] = {name: [] for name in contestants}
    for _ in range(runs):
        for name, run in contestants.items():
            used[name].append(run())
    rows = {
        PLUGGED: _row(used[PLUGGED], "chain"),
        PLAIN: _row(used[PLAIN], "easy"),
        BARE: _row(used[BARE], None),
    }
    found: dict[str, Any] = {
        "records": trace.records,
        "one_round": {
            "mean_wait_s": trace.mean_wait_s,
            "mean_bounded_slowdown": trace.mean_bounded_slowdown,
        },
        "contestants": rows,
        "hooks": rows[PLUGGED].pop("hooks"),
        "differences": _differences(trace, rows),
    }
    if peer_jobs:
        found["contestants"]["AccaSim"] = accasim(trace, directory, peer_jobs)
    return found


def _row(used: list[Used], policy: str | None) -> dict[str, Any]:
    """Return medians and ranges of several runs of one contestant."""
    said = json.loads(used[-1].output)
    said = said if policy is None else said["policies"][policy]
    jobs = said["jobs"]
    return {
        "jobs": jobs,
        "jobs_per_s": median(jobs / run.wall for run in used),
        "least_jobs_per_s": min(jobs / run.wall for run in used),
        "most_jobs_per_s": max(jobs / run.wall for run in used),
        "jobs_per_cpu_s": median(jobs / run.cpu for run in used),
        "peak_mb": max(run.peak_mb for run in used),
        "mean_wait_s": said["mean_wait_s"],
        "mean_bounded_slowdown": said["mean_bounded_slowdown"],
        "loop_s": said["seconds"],
        "hooks": said.get("hooks", {}),
    }


def _differences(trace: Trace, rows: dict[str, dict[str, Any]]) -> list[str]:
    """Return where contestants differ in the third digit from one round of the bare loop."""
    differences = []
    for measure in ("mean_wait_s", "mean_bounded_slowdown"):
        wanted = f"{getattr(trace, measure):.3f}"
        for name, row in rows.items():
            if f"{row[measure]:.3f}" != wanted:
                differences.append(f"{name}: {measure} is {row[measure]:.3f}, not {wanted}")
    return differences


def accasim(trace: Trace, directory: Path, jobs: int) -> dict[str, Any] | None:
    """Return AccaSim's speed on the first jobs of a trace; None where it cannot be installed."""
    python = _accasim_python()
    if python is None:
        return None
    log, processors = head(trace, directory, jobs)
    place = directory / "accasim"
    place.mkdir(exist_ok=True)
    try:
        used = run_alone([python, HERE / "accasim_peer.py", log, str(processors), place])
    except ChildError as error:
        print(f"AccaSim: {error}", file=sys.stderr)
        return None
    return {
        "jobs": jobs,
        "jobs_per_s": jobs / used.wall,
        "least_jobs_per_s": jobs / used.wall,
        "most_jobs_per_s": jobs / used.wall,
        "jobs_per_cpu_s": jobs / used.cpu,
        "peak_mb": used.peak_mb,
        "mean_wait_s": None,
        "mean_bounded_slowdown": None,
    }


def _accasim_python() -> Path | None:
    """Return the Python of a virtual environment with AccaSim, made where there is none."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    place = cache / "rtsched-benchmarks" / f"accasim-{sys.version_info[0]}.{sys.version_info[1]}"
    python, ready = place / "bin" / "python", place / "ready"
    if not ready.exists():
        try:
            venv.create(place, with_pip=True, clear=True)
            words = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            subprocess.run([python, *words, "accasim==1.1.3"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"AccaSim could not be installed: {error}", file=sys.stderr)
            return None
        ready.touch()
    return python
