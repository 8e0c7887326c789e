"""What users read."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rtsched.chain import Judgement

PREFIX = "rtsched: "
LONGEST = 900
"""Characters of a message at most; the batch system shows one line."""


def moment(at: float, now: float) -> str:
    """Return an instant in local time, with the date if it is not today."""
    there, here = time.localtime(at), time.localtime(now)
    same_day = there[:3] == here[:3]
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S", there)


def promised(deadline: float, start: float, size: int, now: float) -> str:
    """Return what a user reads whose job was promised its deadline."""
    nodes = "1 node" if size == 1 else f"{size} nodes"
    when = "now" if start <= now + 1 else f"at {moment(start, now)}"
    return f"{PREFIX}promised to end by {moment(deadline, now)}; planned to start {when} on {nodes}"


def rejected(why: str, offer: float, asking: str, held: float, now: float) -> str:
    """Return what a user reads whose job was turned away.

    `offer` is the earliest deadline that would be promised, inf if there is none; `asking` how to
    ask for it; `held` for how many seconds it is kept for the user, 0 if it is not.
    """
    text = f"{PREFIX}rejected: {why or 'its deadline cannot be promised'}"
    if not math.isfinite(offer):
        return shortened(text)
    kept = f", kept for you for {held:.0f} s" if held else ""
    return f"{shortened(text)}. Feasible: {moment(offer, now)} ({asking}){kept}"


def put_off(why: str, until: float, now: float) -> str:
    """Return what a user reads whose job waits to be judged."""
    when = f" from {moment(until, now)} on" if math.isfinite(until) else ""
    return shortened(f"{PREFIX}held; it is judged again{when}: {why}")


def warned(judgement: Judgement) -> str:
    """Return what plug-ins that only warn would have said against the job; empty: nothing."""
    said = [
        finding.text(0)
        for answer in judgement.answers
        if answer.mode == "warn" and answer.value is not None and int(answer.value.code[0]) >= 2
        for finding in answer.value.findings
        if 0 in finding.rows
    ]
    return shortened(f"{PREFIX}warning: {'; '.join(said)}") if said else ""


def reasons(judgement: Judgement) -> tuple[tuple[str, ...], str]:
    """Return the codes and sentences of what counted against the first job of a batch."""
    found = [f for f in judgement.verdicts.findings if 0 in f.rows]
    texts = [f.text(f.rows.tolist().index(0)) for f in found]
    return tuple(f.reason.code for f in found), "; ".join(texts)


def shortened(text: str) -> str:
    """Return a text on one line that is not too long for a prompt."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
