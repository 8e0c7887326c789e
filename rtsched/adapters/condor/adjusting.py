"""What a submission to HTCondor could ask for instead, and the lines of a submit file for that.

Source: manual page condor_submit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rtsched.adapters.adjusting import Adjustable
from rtsched.adapters.live import PART
from rtsched.logs.classads import number, text

if TYPE_CHECKING:
    from rtsched.adapters.adjusting import Adjustment
    from rtsched.adapters.condor.facts import CondorFacts
    from rtsched.logs.classads import Record

PARALLEL = 11


def adjustable(ad: Record, facts: CondorFacts, *, rigid: bool, limit_s: float) -> Adjustable:
    """Return what of a submission can be changed.

    Parameters
    ----------
    ad : Record
        The job's ad.
    facts : CondorFacts
        Of the last poll.
    rigid : bool
        Whether the job has a stated run time, and is no divisible load.
    limit_s : float
        Its run time, seconds; inf: none.
    """
    least, most = number(ad, "minhosts"), number(ad, "maxhosts")
    alike = number(ad, "jobuniverse") == PARALLEL and least == most and math.isfinite(most)
    gpus = number(ad, "requestgpus")
    here = text(ad, "rtclass") or ""
    classes = sorted({name.partition(PART)[0] for name in facts.parts.nodes} - {"", here})
    return Adjustable(
        nodes=int(most) if rigid and alike else 1,
        limit_s=limit_s,
        step_s=1.0,
        gpus=int(gpus) if math.isfinite(gpus) else 0,
        partitions=tuple(classes) if here else (),
    )


def adjusted(ad: str, to: Adjustment) -> str:
    """Return the ad, lines `Name = literal`, that asks for something else."""
    given = {
        "MinHosts": to.nodes,
        "MaxHosts": to.nodes,
        "RtRunTime": None if to.limit_s is None else math.floor(to.limit_s),
        "RequestGPUs": to.gpus,
        "RtClass": None if to.partition is None else f'"{to.partition}"',
        "RtDeadline": None if to.deadline is None else math.ceil(to.deadline),
        "RtOdds": None if to.odds is None else _odds(to.odds),
    }
    new = {name: value for name, value in given.items() if value is not None}
    names = {name.lower() for name in new}
    kept = (
        line
        for line in ad.split("\n")
        if line and line.partition("=")[0].strip().lower() not in names
    )
    return "".join(f"{line}\n" for line in (*kept, *(f"{n} = {v}" for n, v in new.items())))


def _odds(odds: float) -> str:
    """Return a literal of odds, 0 to 1; 1: a guarantee is wanted, so none are."""
    return f"{100 * odds:g}" if odds < 1.0 else "undefined"


def options(ad: Record, to: Adjustment) -> tuple[str, ...]:
    """Return the options of condor_submit that make a submission, whatever the file says."""
    run_time, wanted = number(ad, "rtruntime"), text(ad, "rtclass")
    lines = []
    if to.nodes is not None:
        lines.append(f"machine_count = {to.nodes}")
    if math.isfinite(run_time):
        lines.append(f"+RtRunTime = {run_time:.0f}")
    if to.gpus is not None:
        lines.append(f"request_gpus = {to.gpus}")
    if wanted:
        lines.append(f'+RtClass = "{wanted}"')
    lines.append(f"+RtDeadline = {math.ceil(number(ad, 'rtdeadline'))}")
    if to.odds is not None:
        lines.append(f"+RtOdds = {_odds(to.odds)}")
    return tuple(word for line in lines for word in ("-append", line))
