"""GPUs that suit a job: its RequireGPUs, evaluated on each kind of GPU of the slots.

HTCondor gives a job any GPUs of a slot for which its RequireGPUs holds. Plans count the GPUs of a
slot and do not tell them apart, so a slot suits a job only if each of its GPUs does. An expression
is evaluated once for each different set of GPUs, not for each slot.

Sources: HTCondor's manual, "condor_submit" (require_gpus, gpus_minimum_capability) and
condor_gpu_discovery; attributes of slots as HTCondor 23.9 and 25.14 publish them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rtsched.adapters.condor.expressions import (
    PLAIN_CALLS,
    as_written,
    bindings,
    calls_in,
    in_one_form,
    parsed,
)
from rtsched.logs.classads import number

if TYPE_CHECKING:
    from rtsched.logs.classads import Record

Gpu = tuple[tuple[str, str | int | float | bool], ...]
"""The properties of a kind of GPU, such as DeviceName and Capability, in order of their names."""

LIMITS = ("GPUsMinCapability", "GPUsMaxCapability", "GPUsMinMemory", "GPUsMinRuntime")
"""Attributes of a job to which condor_submit's RequireGPUs refers."""

_PREFIX = "GPUs_"
_OWN = frozenset({"id", "deviceuuid", "devicepcibusid"})
"""Properties that no two GPUs have in common."""
_PLAIN = frozenset({str, int, float, bool})
_LIMIT = re.compile(rf"\b(?:MY\.)?({'|'.join(LIMITS)})\b", re.IGNORECASE)
_LONGEST = 1000


def gpus_in(slot: Mapping[str, Any]) -> tuple[Gpu, ...]:
    """Return the kinds of GPUs of a slot whose ad is given with all attributes."""
    ads = (value for name, value in slot.items() if name.startswith(_PREFIX))
    return tuple(sorted({_kind(ad) for ad in ads if isinstance(ad, Mapping)}, key=repr))


def suiting_gpus(job: Any, slot: Any) -> int:
    """Return how many GPUs of a slot, whoever has them, suit the RequireGPUs of a job.

    Both are ads of the bindings, with all attributes.
    """
    require, kind = job.lookup("RequireGPUs"), type(job)
    limits = {name: job[name] for name in LIMITS if name in job}
    gpus = (value for name, value in slot.items() if name.startswith(_PREFIX))
    ads = (kind(dict(gpu) | limits) for gpu in gpus if isinstance(gpu, Mapping))
    return sum(require.eval(ad) is True for ad in ads)


def _kind(ad: Mapping[str, Any]) -> Gpu:
    plain = {name: ad[name] for name in sorted(ad) if name.lower() not in _OWN}
    return tuple((name, value) for name, value in plain.items() if type(value) in _PLAIN)


def request_in(ad: Record) -> str:
    """Return what a job asks of its GPUs; empty: nothing.

    That is its RequireGPUs, in which the limits that condor_submit sets apart are filled in.
    """
    expression = ad.get("requiregpus")
    if expression is None:
        return ""

    def filled(found: re.Match[str]) -> str:
        value = number(ad, found[1].lower())
        return f"{value!r}" if math.isfinite(value) else found[0]

    return in_one_form(_LIMIT.sub(filled, as_written(expression)), _LONGEST)


def wrong_in(request: str) -> str:
    """Return why a request cannot be evaluated, one sentence; empty: it can."""
    if len(request) > _LONGEST:
        return f"its require_gpus is longer than {_LONGEST} characters"
    for name in calls_in(request):
        if name.lower() not in PLAIN_CALLS:
            return (
                f"cannot plan with the function {name[:60]} in its require_gpus; compare the "
                "properties of GPUs with values"
            )
    if parsed(request) is None:
        return f"its require_gpus ({request[:80]}) cannot be read"
    return ""


def suits(request: str, gpus: tuple[Gpu, ...]) -> bool:
    """Return whether a request holds for each of some kinds of GPUs."""
    tree = None if wrong_in(request) else parsed(request)
    if tree is None:
        return False
    ads = (bindings().ClassAd(dict(gpu)) for gpu in gpus)
    return all(tree.eval(ad) is True for ad in ads)
