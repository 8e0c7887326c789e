"""What a submit request of Slurm could ask for instead, and the options of sbatch for that.

Source: manual page sbatch.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from rtsched.adapters.adjusting import NOT_ADJUSTABLE, Adjustable
from rtsched.adapters.slurm.spec import WORD
from rtsched.adapters.wire import Tag
from rtsched.model.resources import GRES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from rtsched.adapters.adjusting import Adjustment
    from rtsched.adapters.slurm.facts import Partition, SlurmFacts

_GPUS = re.compile(r"(?:gres[/:])?gpu(?::([A-Za-z][\w.-]*))?(?::(\d{1,6}))?", re.ASCII)
_GPU = f"{GRES}gpu"

OPTIONS: Mapping[Tag, str] = {
    Tag.PARTITION: "partition",
    Tag.ACCOUNT: "account",
    Tag.QOS: "qos",
    Tag.NUM_TASKS: "ntasks",
    Tag.NTASKS_PER_NODE: "ntasks-per-node",
    Tag.CPUS_PER_TASK: "cpus-per-task",
    Tag.FEATURES: "constraint",
    Tag.LICENSES: "licenses",
    Tag.REQ_NODES: "nodelist",
    Tag.EXC_NODES: "exclude",
    Tag.ARRAY_INX: "array",
    Tag.DEPENDENCY: "dependency",
}
"""Options of sbatch whose values are what the filter sends."""

TEXTS: Mapping[Tag, str] = {Tag.EXTRA: "extra", Tag.COMMENT: "comment"}
"""Likewise, of what may hold a word for rtsched."""


def adjustable(
    fields: Mapping[int, str | int], facts: SlurmFacts, *, rigid: bool, limit_s: float
) -> Adjustable:
    """Return what of a request can be changed.

    Parameters
    ----------
    fields : mapping of int to str or int
        What the submit filter sent.
    facts : SlurmFacts
        Of the last poll.
    rigid : bool
        Whether the job asks for nodes and a time limit, and is no divisible load and no array.
    limit_s : float
        Its time limit, seconds; inf: none.
    """
    name = str(fields.get(Tag.PARTITION, "")).split(",", 1)[0] or facts.default
    here = facts.partitions.get(name)
    if here is None:
        return NOT_ADJUSTABLE
    nodes = int(fields.get(Tag.MIN_NODES, 1))
    pinned = bool(fields.get(Tag.REQ_NODES))
    gpu_type, gpus = gpus_in(fields)
    others = () if pinned else (n for n, p in facts.partitions.items() if n != name and _open(p))
    return Adjustable(
        nodes=nodes if rigid and not pinned else 1,
        limit_s=limit_s,
        gpus=gpus,
        gpu_types=tuple(_types(here, gpu_type)) if gpus else (),
        partitions=tuple(n for n in others if facts.partitions[n].longest_s >= limit_s),
    )


def _open(partition: Partition) -> bool:
    return partition.up and not partition.restricted


def _types(partition: Partition, present: str) -> Iterator[str]:
    """Yield the other types of GPUs of a partition's nodes, by name."""
    names = {name for node, _ in partition.hardware for name, n in node.items() if n}
    for name in sorted(names):
        if name.startswith(f"{_GPU}:") and present and name != f"{_GPU}:{present}":
            yield name.removeprefix(f"{_GPU}:")


def gpus_in(fields: Mapping[int, str | int]) -> tuple[str, int]:
    """Return the type, which may be empty, and the number of GPUs on each node; 0: none.

    Of a request for other generic resources too, or for GPUs in another way, nothing is changed.
    """
    others = (Tag.TRES_PER_JOB, Tag.TRES_PER_SOCKET, Tag.TRES_PER_TASK)
    found = _GPUS.fullmatch(str(fields.get(Tag.TRES_PER_NODE, "")))
    if found is None or any(fields.get(tag) for tag in others):
        return "", 0
    return found[1] or "", int(found[2] or 1)


def adjusted(fields: Mapping[int, str | int], to: Adjustment) -> dict[int, str | int]:
    """Return the request that asks for something else.

    With fewer nodes it asks for fewer tasks and processors in proportion, rounded up.
    """
    new = dict(fields)
    if to.nodes is not None:
        old = max(int(fields.get(Tag.MIN_NODES, 1)), 1)
        most = int(fields.get(Tag.MAX_NODES, old))
        new |= {Tag.MIN_NODES: to.nodes, Tag.MAX_NODES: most if most > old else to.nodes}
        for tag in (Tag.NUM_TASKS, Tag.MIN_CPUS, Tag.MAX_CPUS):
            if int(fields.get(tag, 0)) > 0:
                new[tag] = -(-int(fields[tag]) * to.nodes // old)
    if to.limit_s is not None:
        new[Tag.TIME_LIMIT] = max(math.floor(to.limit_s / 60.0 + 1e-6), 1)
    if to.gpus is not None or to.gpu_type is not None:
        kind, count = gpus_in(fields)
        kind = kind if to.gpu_type is None else to.gpu_type
        count = count if to.gpus is None else to.gpus
        new[Tag.TRES_PER_NODE] = ":".join(filter(None, (_GPU, kind, str(count))))
    if to.partition is not None:
        new[Tag.PARTITION] = to.partition
    if to.deadline is not None:
        new[Tag.DEADLINE] = math.ceil(to.deadline)
    if to.odds is not None:
        new |= _with_odds(fields, to.odds)
    return new


def _with_odds(fields: Mapping[int, str | int], odds: float) -> dict[int, str | int]:
    """Return the texts of a request that asks for other odds; 1: for a guarantee, so for none."""
    texts = {tag: str(fields[tag]) for tag in (Tag.EXTRA, Tag.COMMENT) if fields.get(tag)}
    new: dict[int, str | int] = {}
    for tag, text in texts.items():
        if (left := WORD.sub(_without_odds, text).strip()) != text:
            new[tag] = left
    if odds < 1.0:
        extra = str(new.get(Tag.EXTRA, texts.get(Tag.EXTRA, "")))
        new[Tag.EXTRA] = f"{extra} rtsched:odds={100 * odds:g}".strip()
    return new


def _without_odds(word: re.Match[str]) -> str:
    pairs = word[1].split(",")
    left = [pair for pair in pairs if not pair.startswith("odds=")]
    return word[0] if left == pairs else f"rtsched:{','.join(left)}" if left else ""


def options(fields: Mapping[int, str | int], changed: Collection[int] = ()) -> tuple[str, ...]:
    """Return the options of sbatch that make a request, whatever the script says.

    A comment, and an Extra that is empty, are among them only if their tags are `changed`.
    """
    found = []
    if least := int(fields.get(Tag.MIN_NODES, 0)):
        most = int(fields.get(Tag.MAX_NODES, least))
        found.append(f"--nodes={least}-{most}" if most > least else f"--nodes={least}")
    if (minutes := int(fields.get(Tag.TIME_LIMIT, 0))) > 0:
        found.append(f"--time={minutes}")
    found += [f"--{name}={fields[tag]}" for tag, name in OPTIONS.items() if fields.get(tag)]
    found += [
        f"--{name}={fields.get(tag, '')}"
        for tag, name in TEXTS.items()
        if tag in changed or (tag == Tag.EXTRA and fields.get(tag))
    ]
    if memory := fields.get(Tag.PN_MIN_MEMORY):
        found.append(f"--mem={memory}M")
    if memory := fields.get(Tag.MEM_PER_CPU):
        found.append(f"--mem-per-cpu={memory}M")
    if tres := str(fields.get(Tag.TRES_PER_NODE, "")):
        found.append(f"--gres={re.sub(r'(?:^|(?<=,))gres[/:]', '', tres)}")
    if deadline := int(fields.get(Tag.DEADLINE, 0)):
        found.append(f"--deadline=uts{deadline}")
    return tuple(found)
