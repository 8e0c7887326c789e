"""`scontrol show partition --json` (Slurm 23.02 to 26.05), as the lines that its text has.

It may follow the nodes of a cluster in one file, as the text does.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from rtsched.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PARTITIONS = re.compile(r'"partitions"\s*:\s*\[\s*[{\]]')
_SHAPE = "write the file again with `scontrol show partition --json`"


def with_partitions_as_text(path: str, text: str) -> str:
    """Return the text of a file with its JSON of partitions as `PartitionName=...` lines.

    Raises
    ------
    InputError
        If the JSON is cut short, or its partitions are of an unknown shape.
    """
    if not _PARTITIONS.search(text):
        return text
    parts, before = [], 0
    for start, end, found in documents(path, text):
        if isinstance(found.get("partitions"), list) and "nodes" not in found:
            lines = "\n".join(_line(path, each) for each in found["partitions"])
            rest = text.count("\n", start, end) - lines.count("\n")
            parts += [text[before:start], lines, "\n" * max(1, rest)]
            before = end
    return "".join([*parts, text[before:]])


def nodes_json(path: str, text: str) -> str:
    """Return the JSON of nodes in a file; empty: there is none."""
    for start, end, found in documents(path, text):
        if "nodes" in found:
            return text[start:end]
    return ""


def documents(path: str, text: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield begin, end and content of each JSON object that begins a line.

    Raises
    ------
    InputError
        If one is cut short or no JSON.
    """
    decoder, at = json.JSONDecoder(), 0
    begins = re.compile(r"^[ \t]*(?=\{)", re.MULTILINE)
    while match := begins.search(text, at):
        try:
            found, at = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, match.end()) + 1
            raise InputError(path, f"no JSON of scontrol ({error}); {_SHAPE}", line=line) from error
        yield match.end(), at, found


def _line(path: str, partition: object) -> str:
    """Return the line of one partition, of what is read of it."""
    if not isinstance(partition, dict) or not isinstance(partition.get("name"), str):
        raise InputError(path, f"a partition without a name; {_SHAPE}")
    share = _at(partition, "maximums/oversubscribe")
    jobs = _at(share, "jobs") if isinstance(share, dict) else _at(partition, "maximums/shares")
    alone = _at(partition, "partition/exclusive")  # since 26.05, where `jobs` is 0 of others too
    mode = _at(partition, "preempt_mode")
    modes = ",".join(map(str, mode)) if isinstance(mode, list) else mode
    said = {
        "PartitionName": partition["name"],
        "OverSubscribe": "EXCLUSIVE" if jobs == 0 and alone is None else "",
        "Exclusive": alone,
        "PriorityTier": _at(partition, "priority/tier"),
        "PreemptMode": "" if modes == "CLUSTER_GLOBAL" else modes,
        "QoS": _at(partition, "qos/assigned"),
        "TRESBillingWeights": _at(partition, "tres/billing_weights"),
    }
    pairs = (f"{name}={value}" for name, value in said.items() if value not in (None, "", {}))
    return " ".join("".join(pair.split()) for pair in pairs)


def _at(partition: Mapping[str, Any], path: str) -> Any:
    """Return what is at a path such as `priority/tier`; None: nothing. A number is told plainly."""
    found: Any = partition
    for name in path.split("/"):
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, dict) and "number" in found:
        return found["number"] if found.get("set", True) else None
    return found
