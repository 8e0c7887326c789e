"""What our expressions cost the negotiator: its cycle without them, with START's alone, with all.

The slots are made up, so no match is completed: a cycle weighs every slot for each user.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import condor_loading
import loading
from testbed.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from testbed import Pool

SLOTS = {False: (30, 2_000, 10_000), True: (30, 200)}
CYCLES = {False: 7, True: 3}
JOBS = 20
"""Of each user."""
SETTINGS = {
    **condor_loading.LASTING,
    "NEGOTIATOR_INTERVAL": "3",
    "NEGOTIATOR_CYCLE_DELAY": "1",
    "NEGOTIATOR_UPDATE_INTERVAL": "1",
    "NEGOTIATOR_DEBUG": "D_ERROR",
}
NO_RANK = {"60-norank.conf": "NEGOTIATOR_PRE_JOB_RANK = 0\n"}
MADE = 'TARGET.Machine > "made" && TARGET.Machine < "madf"'


def run(*, reduced: bool, keep: Path | None = None) -> dict[str, Any]:  # noqa: ARG001 - as all
    """Measure cycles of three pools side by side, of growing size."""
    sizes, found = SLOTS[reduced], dict[str, Any]()
    with ExitStack() as stack:
        enter = stack.enter_context
        pools = {
            "without": enter(condor_loading.pool(ours=False, settings=SETTINGS)),
            "START alone": enter(condor_loading.pool(ours=True, settings=SETTINGS, config=NO_RANK)),
            "START and rank": enter(condor_loading.pool(ours=True, settings=SETTINGS)),
        }
        for running in pools.values():
            _fill(running)
        for size in sizes:
            names = [f"slot1@made{number}.testbed" for number in range(size)]
            for running in pools.values():
                condor_loading.advertise(running, names)
                condor_loading.write_table(running, names)
            for name, running in pools.items():
                found.setdefault(name, {})[f"{size}_slots"] = _cycles(running, size, reduced)
    return {"load": os.getloadavg()[1], **found}


def problems(found: dict[str, Any]) -> list[str]:
    """Return what went wrong; speed alone never fails."""
    sides = {name: side for name, side in found.items() if isinstance(side, dict)}
    return [
        f"{name}, {size}: no job was considered"
        for name, side in sides.items()
        for size, each in side.items()
        if not each["requests"]
    ]


def _fill(running: Pool) -> None:
    """Submit jobs that only made-up slots can run."""
    for user in condor_loading.USERS:
        lines = [f"requirements = {MADE}", "My.RtRunTime = 600"]
        condor_loading.submit(running, lines, JOBS, user)


def _cycles(running: Pool, size: int, reduced: bool) -> dict[str, float]:
    """Return medians over some cycles: processor seconds, and requests that were weighed."""
    seen: dict[int, dict[str, Any]] = {}

    def enough() -> bool:
        ad = _last(running)
        if ad.get("LastNegotiationCycleTotalSlots0", 0) >= size:
            seen[ad["LastNegotiationCycleTime0"]] = ad
        time.sleep(0.5)
        return len(seen) >= CYCLES[reduced]

    wait_for("some cycles", enough, 300)
    names = {
        "matching_ms": "LastNegotiationCyclePhase4CpuTime0",
        "cycle_ms": "LastNegotiationCycleCpuTime0",
    }
    found = {
        name: 1000 * loading.at_share([ad[attribute] for ad in seen.values()], 0.5)
        for name, attribute in names.items()
    }
    considered = [ad["LastNegotiationCycleNumJobsConsidered0"] for ad in seen.values()]
    return found | {"requests": loading.at_share(considered, 0.5)}


def _last(running: Pool) -> dict[str, Any]:
    """Return what the negotiator tells of its last cycle."""
    ads = json.loads(running.run(["condor_status", "-negotiator", "-json"]).stdout or "[{}]")
    return dict(ads[0]) if ads else {}
