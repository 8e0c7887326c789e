"""Which slots have GPUs that suit a job: its RequireGPUs, evaluated on each kind of GPU.

HTCondor gives a job any GPUs of a slot for which its RequireGPUs holds. Plans count the GPUs of a
slot and do not tell them apart, so a slot suits a job only if each of its GPUs does. An expression
is evaluated once for each different set of GPUs, not for each slot.

Sources: HTCondor's manual, "condor_submit" (require_gpus, gpus_minimum_capability) and
condor_gpu_discovery; attributes of slots as HTCondor 23.9 and 25.14 publish them.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.logs.classads import number, text
from rtsched.model.table import read_only

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from rtsched.logs.classads import Record

    Mask = NDArray[np.bool_]

Gpu = tuple[tuple[str, str | int | float | bool], ...]
"""The properties of a kind of GPU, such as DeviceName and Capability, in order of their names."""

LIMITS = ("GPUsMinCapability", "GPUsMaxCapability", "GPUsMinMemory", "GPUsMinRuntime")
"""Attributes of a job to which condor_submit's RequireGPUs refers."""

_PREFIX = "GPUs_"
_OWN = frozenset({"id", "deviceuuid", "devicepcibusid"})
"""Properties that no two GPUs have in common."""
_PLAIN = frozenset({str, int, float, bool})
_OF_CLASS = "; RtClass = "
_LIMIT = re.compile(rf"\b(?:MY\.)?({'|'.join(LIMITS)})\b", re.IGNORECASE)
_QUOTED = re.compile(r"""(["'])(?:(?!\1)[^\\]|\\.)*\1""", re.DOTALL)
_PIECE = re.compile(rf"{_QUOTED.pattern}|\s+|\b\d\.\d{{15}}E[-+]\d\d\b", re.DOTALL)
_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
_PLAIN_CALLS = frozenset(
    {"is", "isnt", "isundefined", "ifthenelse", "stringlistmember", "stringlistimember"}
    | {"tolower", "toupper", "versionge", "versiongt", "versionle", "versionlt"}
)
"""What may stand before a parenthesis: a user's expression is evaluated while others wait."""
_LONGEST = 1000
_MOST_KEPT = 1000


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
    """Return what a job asks of its GPUs, as `Jobs.node_request`; empty: nothing.

    That is its RequireGPUs, in which the limits that condor_submit sets apart are filled in, and
    its class.
    """
    said = ad.get("requiregpus")
    if said is None:
        return ""

    def filled(found: re.Match[str]) -> str:
        value = number(ad, found[1].lower())
        return f"{value!r}" if math.isfinite(value) else found[0]

    written = str(said).lower() if isinstance(said, bool) else str(said)
    expression = _in_one_form(_LIMIT.sub(filled, written))
    kind = text(ad, "rtclass")
    return f"{expression}{_OF_CLASS}{kind}" if kind else expression


def wrong_in(request: str) -> str:
    """Return why a request cannot be evaluated, one sentence; empty: it can."""
    expression = expression_in(request)
    if len(expression) > _LONGEST:
        return f"its require_gpus is longer than {_LONGEST} characters"
    for name in _CALL.findall(_QUOTED.sub('""', expression)):
        if name.lower() not in _PLAIN_CALLS:
            return (
                f"cannot plan with the function {name[:60]} in its require_gpus; compare the "
                "properties of GPUs with values"
            )
    if _parsed(expression) is None:
        return f"its require_gpus ({expression[:80]}) cannot be read"
    return ""


def expression_in(request: str) -> str:
    """Return the RequireGPUs of a request."""
    return request.partition(_OF_CLASS)[0]


class GpuSets(Mapping[str, "Mask"]):
    """Which rows of the cluster suit requests for GPUs, each worked out when it is asked for.

    Parameters
    ----------
    classes : sequence of str
        RtClass of each row, empty where it has none.
    gpus : sequence of tuple of Gpu
        The kinds of GPUs of each row.
    """

    def __init__(self, classes: Sequence[str], gpus: Sequence[tuple[Gpu, ...]]) -> None:
        self._of = tuple(classes), tuple(gpus)
        self._kinds = np.array(classes, object)
        code = {each: at for at, each in enumerate(dict.fromkeys(gpus))}
        self._distinct = list(code)
        self._code = np.array([code[each] for each in gpus], np.int64)
        self._known: dict[str, Mask] = {}

    def __reduce__(self) -> tuple[type[GpuSets], tuple[Any, ...]]:
        """Return how to make it again: what was worked out does not go to other processes."""
        return GpuSets, self._of

    def __eq__(self, other: object) -> bool:
        """Return whether the rows have the same classes and kinds of GPUs."""
        return isinstance(other, GpuSets) and self._of == other._of

    def __getitem__(self, request: str) -> Mask:
        if request not in self._known:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[request] = read_only(self._suiting(request))
        return self._known[request]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def _suiting(self, request: str) -> Mask:
        expression, named, kind = request.partition(_OF_CLASS)
        suits = [bool(each) and _suits(expression, each) for each in self._distinct]
        mask: Mask = np.array(suits, np.bool_)[self._code]
        return mask & (self._kinds == kind) if named else mask


def _suits(expression: str, gpus: tuple[Gpu, ...]) -> bool:
    """Return whether an expression holds for each of some kinds of GPUs."""
    tree = None if wrong_in(expression) else _parsed(expression)
    if tree is None:
        return False
    # The bindings know MY of themselves only in a process that has loaded htcondor2.
    ads = (_bindings().ClassAd(dict(gpu) | {"MY": dict(gpu)}) for gpu in gpus)
    return all(tree.eval(ad) is True for ad in ads)


@lru_cache(_MOST_KEPT)
def _parsed(expression: str) -> Any:
    """Return an expression as HTCondor's bindings have it; None if they cannot read it."""
    try:
        bindings = _bindings()
    except ImportError:
        return None
    try:
        return bindings.ExprTree(expression)
    except (bindings.ClassAdException, ValueError):
        return None


def _in_one_form(expression: str) -> str:
    """Return an expression in one form, whoever wrote it."""
    tree = _parsed(expression) if len(expression) <= _LONGEST else None
    if tree is None:
        return " ".join(expression.split())
    return _PIECE.sub(_plain, str(tree)).strip()


def _plain(piece: re.Match[str]) -> str:
    """Return a piece of an expression: what is quoted as it is, a blank, or a number."""
    if piece[1]:
        return piece[0]
    return " " if piece[0].isspace() else f"{float(piece[0])!r}"


def _bindings() -> Any:
    return importlib.import_module("classad2")
