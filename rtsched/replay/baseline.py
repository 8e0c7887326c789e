"""The baseline with only the jobs that another policy accepted.

A policy that rejects jobs has the others wait less, whatever its plan is worth. Under the baseline
those others alone wait for less too: that part of the gain comes from rejecting, the rest from the
plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.final_state import FinalState
from rtsched.replay.engine import replay
from rtsched.replay.policies import baseline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rtsched.core.plugins import Found
    from rtsched.replay.policies import Policy
    from rtsched.replay.results import PolicyRun, Workload


def with_baseline_waits(
    workload: Workload,
    runs: Sequence[PolicyRun],
    policies: Mapping[str, Policy],
    found: Mapping[str, Found] | None = None,
) -> list[PolicyRun]:
    """Return the runs with `baseline_wait`, if some policy left jobs out that the baseline ran.

    It is not known where the baseline itself plans or rejects. It is replayed once more for each
    policy that left some out.

    Parameters
    ----------
    workload : Workload
        From `prepare`.
    runs : sequence of PolicyRun
        What each policy made of it.
    policies : mapping of str to Policy
        By the names of the runs.
    found : mapping of str to Found, optional
        Installed plug-ins; found anew if None.
    """
    base = baseline(run.policy for run in runs)
    left_out = {run.policy: np.equal(run.results.fate, FinalState.REJECTED) for run in runs}
    some = any(absent.any() for absent in left_out.values())
    if not some or policies[base].planner is not None or left_out[base].any():
        return list(runs)
    results = {run.policy: run.results for run in runs}
    waits: dict[str, float | None] = {}
    for name, absent in left_out.items():
        alone = results[base]
        if absent.any():
            given = (workload, base, policies[base])
            alone = replay(*given, found=found, record_nodes=False, absent=absent).results
        wait = (alone.start - workload.jobs.submit)[np.isfinite(alone.start)]
        waits[name] = float(wait.mean()) if len(wait) else None
    return [replace(run, baseline_wait=waits[run.policy]) for run in runs]
