"""Comparisons of the conformance test: answers row by row, inputs, settings and reasons."""

from __future__ import annotations

import math
import re
import string
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from rtsched.descriptions import described, structures
from rtsched.model.verdicts import Reason

if TYPE_CHECKING:
    from rtsched.model.verdicts import Finding
    from rtsched.testing.strategies import Scene

CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9]+(-[a-z0-9]+)*)+")


def claim(condition: object, message: str) -> None:
    """Fail the test with a message unless the condition holds, under `python -O` too."""
    if not condition:
        raise AssertionError(message)


def claim_same(one: Any, other: Any, message: str) -> None:
    """Fail the test unless two nested values are equal but for rounding."""
    claim(same(one, other), f"{message}: {one} and {other}")


def by_row(hook: str, answer: Any, n: int) -> list[Any]:
    """Return an answer as one comparable value per job."""
    if answer is None:
        return [None] * n
    if hook == "admit":
        columns = zip(answer.code, answer.retry_at, answer.promise, answer.offer, strict=True)
        found: list[list[Any]] = [[] for _ in range(n)]
        for finding in answer.findings:
            for k, row in enumerate(finding.rows.tolist()):
                numbers = {name: float(values[k]) for name, values in finding.numbers.items()}
                found[row].append((finding.reason.code, sorted(numbers.items())))
        return [(*map(float, row), sorted(found[i])) for i, row in enumerate(columns)]
    if hook == "fair_share":
        total = answer.total().tolist()
        return [sorted(total)] * n if answer.per_account else total
    if hook == "partition":
        sets = [part.tolist() for part in answer.node_sets]
        cuts = [part.tolist() for part in answer.fractions] or [[]] * len(sets)
        return [
            (size, sets[code] if code >= 0 else None, cuts[code] if code >= 0 else None)
            for size, code in zip(answer.size.tolist(), answer.node_set.tolist(), strict=True)
        ]
    common = [answer.factor.tolist(), answer.bounds.tolist()]
    if answer.per_job is None:
        return [common] * n
    return [(common, row) for row in answer.per_job.tolist()]


def same(one: Any, other: Any) -> bool:
    """Return whether two nested values are equal, numbers but for rounding."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-12)
    return bool(one == other)


def contents(scene: Scene) -> list[bytes]:
    """Return the bytes of all columns that a plug-in can reach."""
    system = scene.snapshot
    tables = (scene.jobs, system.queued, system.cluster.nodes, system.accounts, scene.events.rows)
    masks = [mask.tobytes() for mask in system.cluster.partitions.values()]
    return masks + [table.column(name).tobytes() for table in tables for name in table.columns()]


def reasons_of(plugin: type[Any]) -> list[Reason]:
    """Return the reasons that a plug-in declares in its class; fail for a code that is none."""
    values = [getattr(plugin, name) for name in dir(plugin) if not name.startswith("__")]
    reasons = [value for value in values if isinstance(value, Reason)]
    codes = [reason.code for reason in reasons]
    claim(len(set(codes)) == len(codes), "two reasons have one code")
    for code in codes:
        claim(CODE.fullmatch(code), f"{code!r} is no dotted lower-case code")
    return reasons


def claim_numbers(finding: Finding) -> None:
    """Fail the test unless a finding gives every number of its reason's template."""
    template = finding.reason.template
    wanted = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    claim(wanted <= finding.numbers.keys(), f"{finding.reason.code} lacks a number")
    for position in range(len(finding.rows)):
        claim(finding.text(position), f"{finding.reason.code} says nothing")


def undescribed(kind: type[msgspec.Struct], prefix: str) -> list[str]:
    """Return the paths of settings without a description."""
    missing = []
    hints = get_type_hints(described(kind), include_extras=True)
    for field in msgspec.structs.fields(kind):
        path, hint = f"{prefix}{field.encode_name}", hints[field.name]
        metas = [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, msgspec.Meta)]
        if not any(meta.description for meta in metas):
            missing.append(path)
        for inner in structures(hint):
            missing += undescribed(inner, f"{path}.")
    return missing
