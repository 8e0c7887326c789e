"""ClassAd expressions of users: one form of each, what of them may be evaluated, and RequireGPUs.

They are evaluated while others wait, so functions that may take long are left out.

HTCondor gives a job any GPUs of a slot for which its RequireGPUs holds. Plans count the GPUs of a
slot and do not tell them apart, so a slot suits a job only if each of its GPUs does. An expression
is evaluated once for each different set of GPUs, not for each slot.

Sources: HTCondor's manual, "ClassAds", "condor_submit" (require_gpus, gpus_minimum_capability) and
condor_gpu_discovery; how the bindings (classad2) write an expression; attributes of slots as
HTCondor 23.9 and 25.14 publish them.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from rtsched.logs.classads import number

if TYPE_CHECKING:
    from rtsched.logs.classads import Record


MOST_KEPT = 1000
"""So many results are kept of each kind."""

KEYWORDS = frozenset({"true", "false", "undefined", "error", "is", "isnt"})

PLAIN_CALLS = frozenset(
    {"is", "isnt", "isundefined", "ifthenelse", "stringlistmember", "stringlistimember"}
    | {"tolower", "toupper", "versionge", "versiongt", "versionle", "versionlt"}
)
"""Functions that take no longer than a comparison."""

_TOKEN = re.compile(
    r"""(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<blank>\s+)"""
    r"|(?P<real>\d\.\d{15}E[-+]\d\d\d?)|(?P<number>\d+)"
    r"|(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
    r"|(?P<operator>\|\||&&|=[?!]=|[=!<>]=|\?:|>>>?|<<|.)",
    re.DOTALL | re.ASCII,
)


class Token(NamedTuple):
    """A part of an expression: a `name` with its scope, a `quoted` text, an `operator`, ...

    `calls`: whether it is the name of a function that is called.
    """

    kind: str
    text: str
    calls: bool = False


@lru_cache(MOST_KEPT)
def parsed(expression: str) -> Any:
    """Return an expression as HTCondor's bindings have it; None if they cannot read it."""
    try:
        found = bindings()
    except ImportError:
        return None
    try:
        return found.ExprTree(expression)
    except (found.ClassAdException, ValueError):
        return None


@lru_cache(MOST_KEPT)
def tokens_of(expression: str) -> tuple[Token, ...]:
    """Return the parts of an expression, blanks between names and operators included."""
    found = [
        Token(match.lastgroup or "", _plain(match)) for match in _TOKEN.finditer(expression.strip())
    ]
    following = [*(each.text for each in found), ""][1:]
    return tuple(
        each._replace(calls=each.kind == "name" and after == "(")
        for each, after in zip(found, following, strict=True)
    )


def as_written(value: object) -> str:
    """Return a value of an ad as an expression; a truth value as ClassAds write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@lru_cache(MOST_KEPT)
def in_one_form(expression: str, longest: int) -> str:
    """Return an expression in one form, whoever wrote it; one that is too long as it is written."""
    tree = parsed(expression) if len(expression) <= longest else None
    if tree is None:
        return " ".join(expression.split())
    return "".join(token.text for token in tokens_of(str(tree)))


def calls_in(expression: str) -> list[str]:
    """Return the functions that an expression calls."""
    return [
        token.text for token in tokens_of(in_one_form(expression, len(expression))) if token.calls
    ]


def _plain(match: re.Match[str]) -> str:
    """Return a part of an expression: blanks are one, and a number is as short as it can be."""
    if match["blank"]:
        return " "
    return f"{float(match[0])!r}" if match["real"] else match[0]


def bindings() -> Any:
    """Return HTCondor's bindings for ClassAds, which know its own functions from now on.

    Without `htcondor2` they lack stringListMember, MY and the like. It takes a moment to load.

    Raises
    ------
    ImportError
        If there are none.
    """
    importlib.import_module("htcondor2")
    return importlib.import_module("classad2")


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


def gpus_required(ad: Record) -> str:
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


def gpus_problem(request: str) -> str:
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
    tree = None if gpus_problem(request) else parsed(request)
    if tree is None:
        return False
    ads = (bindings().ClassAd(dict(gpu)) for gpu in gpus)
    return all(tree.eval(ad) is True for ad in ads)
